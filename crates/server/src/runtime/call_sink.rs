//! What a turn of a connection does with each record that it receives.

use super::connection_address::ConnectionAddress;
use super::worker_pool::{InFlight, Task, WorkerPool};
use crate::byte_budget::Charge;
use crate::clock;
use crate::dispatch::{Dispatched, Executor, SMALL_REPLY_BYTES};
use crate::program::{CallHead, Handover, Mode, PlacedWrite};
use crate::replies::Payload;
use crate::statistics::Counters;
use memory::{Registrar, Scatter};
use std::time::Duration;
use store::ReceiveBatch;
use transport::{PayloadPlace, Sink, SlicesMut};

/// A connection over RDMA.
pub(crate) type Responder = transport::rdma::Responder<Payload, Incoming>;

/// A call whose payload is being received into memory of a store.
pub(crate) struct Incoming {
    head: CallHead,
    placed: PlacedWrite,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a call with {} bytes", self.placed.buffer.len())
    }
}

impl transport::ReceiveBuffer for Incoming {
    #[inline]
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>) {
        self.placed.buffer.unfilled(from, out);
    }

    fn registered(&mut self, with: &Registrar, out: &mut Scatter) -> bool {
        self.placed.buffer.registered(with, out)
    }
}

/// However little room there is, a reply may have this much payload.
const PAYLOAD_BYTES_MIN: usize = 4 << 10;

/// A turn that has an end looks at the clock each time that it has executed this many calls.
const CALLS_PER_LOOK: u32 = 4;

/// One turn of a connection on its loop.
pub(crate) struct CallSink<'a> {
    pub executor: Executor<'a>,
    pub address: ConnectionAddress,
    /// What the stores report about a file stays valid for all calls of one receive. Absent where
    /// payloads are not sent by system calls.
    pub batch: Option<&'a ReceiveBatch>,
    pub counters: &'a mut Counters,
    pub worker_pool: &'a WorkerPool,
    /// Calls of the connection that workers have.
    pub in_flight: &'a mut InFlight,
    /// Bytes of replies that still fit into the queue of the connection.
    pub queue_room: usize,
    /// Bytes of memory that the turn may take; `usize::MAX` while there is plenty.
    pub room: usize,
    pub charge: &'a Charge,
    /// What the calls that were handed over to workers take of the room.
    pub handed_over_bytes: usize,
    /// Set when a long record begins for which there is no room: its length.
    pub record_without_room: Option<usize>,
    /// The longest reply that there was no room for, and that was shortened.
    pub shortened_bytes: &'a mut usize,
    pub calls_left: u32,
    /// When the turn ends, whatever is left.
    pub ends: Option<Duration>,
    /// Bytes of replies that the turn may produce.
    pub reply_bytes_max: usize,
    /// Set when the peer does not speak RPC.
    pub garbage: Option<&'static str>,
}

impl CallSink<'_> {
    /// Whether the queue of replies is full, or the connection has as many calls in the worker pool
    /// as allowed.
    pub fn is_full(&self) -> bool {
        self.executor.replies.bytes() + self.in_flight.bytes() >= self.queue_room
            || self.in_flight.is_full(self.worker_pool)
    }

    /// Whether the turn has produced as many bytes of replies as it may.
    pub fn has_spent_its_budget(&self) -> bool {
        self.executor.replies.bytes() >= self.reply_bytes_max
    }

    /// What is left of the room.
    fn room_left(&self) -> usize {
        self.room.saturating_sub(self.executor.replies.bytes() + self.handed_over_bytes)
    }

    /// While room is scarce, a reply gets no more payload than there is room for. So a client that
    /// reads its replies always goes on.
    #[inline]
    fn fit_reply(&mut self, head: &CallHead, record: &[u8]) {
        if self.room < usize::MAX {
            self.executor.payload_bytes_max = u32::MAX;
            let (asked, left) = (self.executor.reply_bytes_max(head, record), self.room_left());
            if asked > left {
                *self.shortened_bytes = asked.max(*self.shortened_bytes);
            }
            let bytes = left.saturating_sub(SMALL_REPLY_BYTES);
            // Whole pages, as readers like them.
            let bytes = (bytes & !(PAYLOAD_BYTES_MIN - 1)).max(PAYLOAD_BYTES_MIN);
            self.executor.payload_bytes_max = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
    }

    /// Counts a call against what the turn may execute.
    fn spend_call(&mut self) {
        self.calls_left = self.calls_left.saturating_sub(1);
        if let Some(ends) = self.ends
            && self.calls_left.is_multiple_of(CALLS_PER_LOOK)
            && clock::now() >= ends
        {
            self.calls_left = 0;
        }
    }

    fn take(&mut self, head: &CallHead, record: &[u8], placed: Option<PlacedWrite>, record_len: usize) {
        self.spend_call();
        self.fit_reply(head, record);
        match self.executor.serve(head, record, placed, record_len, Mode::Loop(self.batch)) {
            Dispatched::WouldBlock(handover) => self.hand_over(head, record, handover, record_len),
            dispatched => self.count(dispatched),
        }
    }

    fn count(&mut self, dispatched: Dispatched) {
        match dispatched {
            Dispatched::Answered(end) => self.counters.count(&end),
            Dispatched::Refused => self.counters.count_refused(),
            Dispatched::Elsewhere => self.in_flight.promise(),
            Dispatched::Uncounted | Dispatched::WouldBlock(_) => {}
            Dispatched::Garbage(what) => self.garbage = Some(what),
        }
    }

    /// Hands a call over to a worker.
    #[cold]
    fn hand_over(&mut self, head: &CallHead, record: &[u8], handover: Handover, record_len: usize) {
        let Handover { begun, deferred, placed } = handover;
        let bytes = record_len + self.executor.reply_bytes_max(head, record);
        let permit = self.worker_pool.acquire(bytes, self.charge.beside(bytes));
        self.handed_over_bytes += bytes;
        self.in_flight.begin(bytes);
        let task = Task {
            address: self.address,
            client: self.executor.client.for_worker(),
            head: *head,
            record: record.into(),
            record_len,
            placed,
            begun,
            deferrals: 0,
            received: self.executor.times.now,
            payload_bytes_max: self.executor.payload_bytes_max,
            permit,
        };
        if deferred {
            self.worker_pool.defer(task);
        } else {
            self.worker_pool.submit(task);
        }
    }
}

impl Sink for CallSink<'_> {
    type ReceiveBuffer = Incoming;

    /// Finds memory of a store for the payload of a call, and keeps the head of the call until the
    /// payload has been received.
    fn choose_receive_buffer(&mut self, head: &[u8], record_len: usize) -> Option<PayloadPlace<Incoming>> {
        let record = head;
        let head = CallHead::decode(record).ok()?;
        let room = self.room_left();
        // Over RDMA the payload then goes to memory that has a bound of its own.
        if record_len > room && self.batch.is_some() {
            self.record_without_room = Some(record_len);
            return None;
        }
        let (at, placed) = self.executor.choose_receive_buffer(&head, record, record_len, room)?;
        Some(PayloadPlace { at, len: placed.buffer.len(), receive_buffer: Incoming { head, placed } })
    }

    #[inline]
    fn receiving(&mut self) {
        if let Some(batch) = self.batch {
            batch.renew();
        }
    }

    #[inline]
    fn record(&mut self, record: &[u8]) {
        match CallHead::decode(record) {
            Ok(head) => self.take(&head, record, None, record.len()),
            Err(error) => {
                self.spend_call();
                let dispatched = self.executor.refuse_record(record, &error);
                self.count(dispatched);
            }
        }
    }

    #[inline]
    fn received(&mut self, head: &[u8], receive_buffer: Incoming, tail: &[u8]) {
        let Incoming { head: decoded, placed } = receive_buffer;
        let record_len = head.len() + placed.buffer.len() + tail.len();
        self.take(&decoded, head, Some(placed), record_len);
    }

    fn refused(&mut self, xid: u32, _reason: &dyn std::fmt::Display) {
        self.executor.take_refusal(xid);
    }

    #[inline]
    fn wants_more(&self) -> bool {
        self.calls_left > 0
            && self.garbage.is_none()
            && self.record_without_room.is_none()
            && !self.is_full()
            && !self.has_spent_its_budget()
    }
}

//! What a connection's turn does with each record that it receives.

use super::place::Place;
use super::worker_pool::{InFlight, Task, WorkerPool};
use crate::nfs3::request::Request;
use crate::service::{Executor, Handover, IO_BYTES_MAX, Mode, Taken, reply_bytes_max};
use crate::statistics::Counters;
use nfs3::proc::write::ArgsHead;
use nfs3::{Procedure, Wire};
use transport::{Place as PayloadPlace, Sink, SlicesMut};
use xdr::Reader;

/// Memory of a store that a WRITE is received into.
pub(crate) struct Incoming(store::ReceiveBuffer);

impl transport::ReceiveBuffer for Incoming {
    #[inline]
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>) {
        self.0.unfilled(from, out);
    }
}

/// One turn of one connection on its loop.
pub(crate) struct CallSink<'a> {
    pub executor: Executor<'a>,
    pub place: Place,
    /// What stores are seen to hold holds for the calls of one receive.
    pub moment: Option<&'a store::ReceiveBatch>,
    pub counters: &'a mut Counters,
    pub worker_pool: &'a WorkerPool,
    /// The connection's calls that workers have.
    pub in_flight: &'a mut InFlight,
    /// Bytes of replies that still fit the connection's queue.
    pub room_bytes: usize,
    /// The most memory that a payload may be received into at once.
    pub landing_bytes_max: usize,
    pub calls_left: u32,
    /// Bytes of replies that the turn may make.
    pub reply_bytes_max: usize,
    /// Set when the peer does not speak RPC.
    pub garbage: Option<&'static str>,
}

impl CallSink<'_> {
    /// Whether the queue of replies is at its bound, or as many calls as may wait for their stores do.
    pub fn is_full(&self) -> bool {
        self.executor.replies.bytes() + self.in_flight.bytes() >= self.room_bytes
            || self.in_flight.is_full(self.worker_pool)
    }

    /// Whether the turn has made as many replies as it may, by their bytes.
    pub fn has_used_its_turn(&self) -> bool {
        self.executor.replies.bytes() >= self.reply_bytes_max
    }

    fn take(&mut self, record: &[u8], receive_buffer: Option<store::ReceiveBuffer>, record_len: usize) {
        self.calls_left = self.calls_left.saturating_sub(1);
        match self.executor.take(record, receive_buffer, record_len, Mode::Loop) {
            Taken::Answered(end) => self.counters.count(&end),
            Taken::Refused => self.counters.count_refused(),
            Taken::Elsewhere => self.in_flight.promise(),
            Taken::PortMap => {}
            Taken::MustWait(handover) => self.hand_over(record, handover, record_len),
            Taken::Garbage(what) => self.garbage = Some(what),
        }
    }

    /// Tells the store of a WRITE, if that is what a record with its mark holds. Whether it may be done is seen when it is.
    #[inline]
    fn foresee_write(&self, marked: &[u8]) -> Option<()> {
        let mut reader = Reader::new(marked.get(rpc::record::MARK_BYTES..)?);
        let header = rpc::call::decode(&mut reader).ok()?;
        let is_write = header.procedure == Procedure::Write.number() && header.program == nfs3::PROGRAM;
        if !is_write {
            return None;
        }
        let args = ArgsHead::decode(&mut reader).ok()?;
        let client = &*self.executor.client;
        let (export, object) = client.exports.open(args.file.as_slice(), &client.admitted).ok()?;
        // A longer one is received into a place of its own.
        if (args.data_len as usize) < transport::DIRECT_BYTES_MIN {
            export.store.foresee_write(object, args.offset, args.data_len);
        }
        Some(())
    }

    /// Gives a call to a worker.
    #[cold]
    fn hand_over(&mut self, record: &[u8], handover: Handover, record_len: usize) {
        let Executor { client, times, .. } = &self.executor;
        let Handover { begun, later, receive_buffer } = handover;
        let bytes = record_len + reply_bytes_max(record);
        let ticket = self.worker_pool.ticket(bytes);
        self.in_flight.take_off(bytes);
        let task = Task {
            place: self.place,
            client: client.for_worker(),
            record: record.into(),
            record_len,
            receive_buffer,
            begun,
            put_off: 0,
            received: times.now,
            ticket,
        };
        if later {
            self.worker_pool.put_off(task);
        } else {
            self.worker_pool.submit(task);
        }
    }
}

impl Sink for CallSink<'_> {
    type ReceiveBuffer = Incoming;

    /// Finds memory of the store for the data of a WRITE. Whatever is odd about the call is left to the slow
    /// path, which has the words for it.
    fn place(&mut self, head: &[u8], record_len: usize) -> Option<PayloadPlace<Incoming>> {
        let mut reader = Reader::new(head);
        let header = rpc::call::decode(&mut reader).ok()?;
        let is_write = header.procedure == Procedure::Write.number() && header.program == nfs3::PROGRAM;
        if !is_write || header.version != nfs3::VERSION {
            return None;
        }
        let args = ArgsHead::decode(&mut reader).ok()?;
        let at = head.len() - reader.remaining();
        let len = usize::try_from(args.data_len).ok()?;
        if len == 0
            || len > self.landing_bytes_max
            || args.data_len > IO_BYTES_MAX
            || record_len != at + len + xdr::padding(len)
        {
            return None;
        }
        let Executor { client, .. } = &mut self.executor;
        client.identities.identify(header.credential_flavor, header.credential_body).ok()?;
        let identity = client.identities.current()?;
        let request = Request { client, identity, may_wait: false };
        let target = request.open_for_change_at_once(&args.file).ok()?;
        let receive_buffer = target.export.store.receive_buffer(args.offset, args.data_len)?;
        Some(PayloadPlace { at, len, receive_buffer: Incoming(receive_buffer) })
    }

    #[inline]
    fn receiving(&mut self) {
        if let Some(moment) = self.moment {
            moment.renew();
        }
    }

    /// Where the next WRITE goes no cache holds as a rule: the store asks for it while this call is executed.
    #[inline]
    fn look_ahead(&mut self, behind: &[u8]) {
        self.foresee_write(behind);
    }

    #[inline]
    fn record(&mut self, record: &[u8]) {
        self.take(record, None, record.len());
    }

    #[inline]
    fn received(&mut self, head: &[u8], receive_buffer: Incoming, tail: &[u8]) {
        let record_len = head.len() + receive_buffer.0.len() + tail.len();
        self.take(head, Some(receive_buffer.0), record_len);
    }

    #[inline]
    fn wants_more(&self) -> bool {
        self.calls_left > 0 && self.garbage.is_none() && !self.is_full() && !self.has_used_its_turn()
    }
}

//! The client's end of an RDMA connection: connects, frames calls, and receives replies. RFC 8166
//!
//! [`Connecting`] makes the connection; a [`Requester`] is connected. Calls wait here, unframed,
//! until a credit and registered memory are free, so what a connection holds is bounded by its
//! credits.
//!
//! Payload in memory that the source can register is lent to the server for the time of the call
//! (`endpoint/lending.rs`): its reply is handed over when the server's right has ended. A call may
//! move to another path as soon as its connection was ended, because that destroys the queue pair
//! if anything is lent. Other payload is copied through the endpoint's pool, and a dead connection
//! can write only into its own pool, which is freed after its queue pair.

#![allow(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use memory::Registered;
use rpcrdma::client::{Call, CallError, Client, CloseReason, Forms, Message, Output, Sizes};
use rpcrdma::header::{Chunk, Segment};
use verbs::Access;

use super::endpoint::Lent;
use super::{
    Buffer, Counters, Endpoint, Error, Event, Offer, Options, SIGNALLED_EACH, forget, inline, is_call,
};
use crate::framing::FramingError;
use crate::poll::{Interest, Poller};
use crate::{
    Address, Ended, Expect, Flushed, PayloadPlace, ReceiveBuffer, Received, Remains, Scratch, Sink, Slices,
    SlicesMut, Source, Transport,
};

/// Maximum number of calls of one connection in flight. A server may grant fewer.
const CREDITS: u32 = 32;
/// Message size of a connection used only for probes: the smallest that a peer must accept. RFC
/// 8166 s3.3.2
const ASKING_BYTES: u32 = 1024;
/// Maximum size of a connection's registered memory for payload. Calls without room wait until
/// others return it.
const POOL_BYTES_MAX: usize = 64 << 20;

/// The options of a client's endpoint, which reads and writes no memory of the server. As many
/// calls as `windows` may lend memory at a time.
fn options(credits: Credits, windows: u32) -> Options {
    // A reply may be received before the device reports that the call has arrived, so more messages
    // are in flight than there are credits.
    let sends = (2 * credits.calls + credits.reverse).max(to_u32(SIGNALLED_EACH) + 1);
    Options {
        receives: credits.calls + credits.reverse,
        // For each call a bind and an invalidation besides, if its memory is lent.
        work: sends + 3 * windows,
        sends,
        reads_made: 0,
        pool_bytes_max: POOL_BYTES_MAX,
        // A window is in use for a while after its call was answered.
        windows: 2 * windows,
        ..Options::default()
    }
}

/// How many calls may be in flight.
#[derive(Debug, Clone, Copy)]
struct Credits {
    calls: u32,
    /// Calls of the server.
    reverse: u32,
}

/// A message that is not framed yet: a call, or the reply to a call of the server.
#[derive(Debug)]
struct Queued<K> {
    xid: u32,
    head: Vec<u8>,
    payload: K,
    payload_len: u32,
    expect: Expect,
}

impl<K> Queued<K> {
    fn bytes(&self) -> usize {
        self.head.len() + to_usize(self.payload_len)
    }
}

/// Memory that a call in flight has offered to the server.
#[derive(Debug, Default)]
struct Offered {
    /// Memory that the server reads: the message, the payload.
    sources: [Option<Buffer>; 2],
    receive_buffer: Option<Buffer>,
    reply: Option<Buffer>,
    /// The caller's memory, instead of one of the above.
    lent: Option<Lent>,
}

/// How a call has ended, whose memory is being taken back.
#[derive(Debug)]
enum Outcome {
    /// With this message, and so many bytes of payload placed directly.
    Reply {
        head: Vec<u8>,
        landed: u32,
    },
    Failed(CallError),
}

/// What a piece of work was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Sent,
    /// The memory of the call with this xid was taken back.
    Returned(u32),
}

/// A connection that is being made. Nothing blocks, but the steps that create the queue pair and
/// register memory take long, and so do not belong on a loop that serves other connections.
#[derive(Debug)]
pub struct Connecting {
    endpoint: Endpoint<Tag>,
    credits: Credits,
    inbox: Vec<u8>,
}

impl Connecting {
    /// Starts to connect. The server may have `reverse_credits` calls to this end outstanding.
    ///
    /// # Errors
    /// Missing requirements of this machine, as far as they are known at once.
    pub fn start(local: Option<Address>, remote: SocketAddr, reverse_credits: u32) -> Result<Self, Error> {
        let credits = Credits { calls: CREDITS, reverse: reverse_credits };
        Self::with((local, remote), credits, options(credits, CREDITS))
    }

    /// Like [`Connecting::start`], but for one short call at a time, with hardly any memory: to see
    /// whether the server answers.
    ///
    /// # Errors
    /// As for [`Connecting::start`].
    pub fn start_to_ask(local: Option<Address>, remote: SocketAddr) -> Result<Self, Error> {
        let offer = Offer { send_bytes: ASKING_BYTES, receive_bytes: ASKING_BYTES, ..Offer::default() };
        let credits = Credits { calls: 1, reverse: 0 };
        Self::with((local, remote), credits, Options { offer, ..options(credits, 0) })
    }

    fn with(
        (local, remote): (Option<Address>, SocketAddr),
        credits: Credits,
        options: Options,
    ) -> Result<Self, Error> {
        let local = local.map(|address| address.with_port(0));
        let endpoint = Endpoint::connect(local, remote, &options)?;
        Ok(Self { endpoint, credits, inbox: Vec::new() })
    }

    /// The descriptor that is readable when [`Connecting::advance`] has something to do.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.endpoint.fds().0
    }

    /// Takes the next steps. Returns the connection once it is made, as a `K` says what it carries;
    /// `Err` with this connection if the descriptor must be waited for.
    ///
    /// # Errors
    /// Why the connection could not be made.
    pub fn advance<K>(mut self) -> Result<Result<Requester<K>, Self>, Error> {
        self.endpoint.wake();
        while let Some(event) = self.endpoint.poll(&mut self.inbox)? {
            if let Event::Connected(agreed) = event {
                let Self { endpoint, credits, inbox } = self;
                let mut client = Client::new(agreed, credits.calls);
                client.grant_calls(credits.reverse);
                return Requester::over(endpoint, client, inbox).map(Ok);
            }
        }
        Ok(Err(self))
    }
}

/// See the module's documentation. `K` names a payload, as [`Source`] knows it.
#[derive(Debug)]
pub struct Requester<K> {
    /// First, so that the endpoint and its queue pair are dropped first.
    endpoint: Endpoint<Tag>,
    client: Client,
    /// By xid.
    offered: HashMap<u32, Offered>,
    /// Calls that have ended, until their memory was taken back. By xid.
    returning: HashMap<u32, (Offered, Outcome)>,
    waiting: VecDeque<Queued<K>>,
    /// Replies to calls of the server, which need no credit.
    answers: VecDeque<Queued<K>>,
    queued_bytes: usize,
    inbox: Vec<u8>,
}

impl<K> Requester<K> {
    fn over(endpoint: Endpoint<Tag>, client: Client, inbox: Vec<u8>) -> Result<Self, Error> {
        let mut this = Self {
            endpoint,
            client,
            offered: HashMap::new(),
            returning: HashMap::new(),
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            queued_bytes: 0,
            inbox,
        };
        // The first outputs post receives.
        while let Some(output) = this.client.poll_output() {
            if let Output::PostReceives(count) = output {
                this.endpoint.post_receives(count)?;
            }
        }
        Ok(this)
    }

    /// Makes the poller that waited for the connection forget it.
    pub fn leave(&self, poller: &Poller) {
        forget(self.fds(), poller);
    }

    fn fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let (events, completions) = self.endpoint.fds();
        [Some(events), completions]
    }

    /// Sends queued calls, as far as the server's credits and registered memory allow. Returns
    /// whether all were sent.
    fn send_queued(&mut self, source: &impl Source<K>) -> Result<bool, Error> {
        while let Some(answer) = self.answers.pop_front() {
            self.queued_bytes -= answer.bytes();
            self.client.answer(&inline(answer.head, &answer.payload, source))?;
            while let Some(output) = self.client.poll_output() {
                if let Output::Send { bytes, .. } = output {
                    self.endpoint.send(&[&bytes], None, Some(Tag::Sent))?;
                }
            }
        }
        while let Some(call) = self.waiting.front() {
            let has_credit = self.client.in_flight().0 < to_usize(self.client.credits());
            if !has_credit || self.returning.contains_key(&call.xid) {
                return Ok(false);
            }
            let mut payload = Slices::new();
            source.slices(&call.payload, &mut payload);
            if payload.iter().map(|piece| piece.len()).sum::<usize>() != to_usize(call.payload_len) {
                // The missing bytes would be sent with the previous contents of the memory.
                return Err(Error::Misuse("the payload of a call is not as long as it said"));
            }
            let memory =
                self.endpoint.registrar().and_then(|registrar| source.memory(&call.payload, registrar));
            let framed = frame(&mut self.endpoint, &self.client, call, (&payload, memory))?;
            let Some((framed, offered)) = framed else { return Ok(false) };
            if offered.lent.is_none() {
                self.endpoint.count_copied(to_usize(call.payload_len));
            }
            self.offered.insert(call.xid, offered);
            self.client.call(framed)?;
            while let Some(output) = self.client.poll_output() {
                if let Output::Send { bytes, payload: inline, .. } = output {
                    // With a completion of its own: the arrival of the call is a sign of life.
                    send(&mut self.endpoint, &bytes, inline.map(|(_, padding)| (&payload, padding)))?;
                }
            }
            drop(payload);
            self.queued_bytes -= call.bytes();
            self.waiting.pop_front();
        }
        Ok(true)
    }

    fn take_events<S: Sink>(&mut self, sink: &mut S) -> Result<Received, Error> {
        let mut received = Received::default();
        while sink.wants_more() {
            match self.endpoint.poll(&mut self.inbox)? {
                None => break,
                Some(Event::Done(Tag::Sent) | Event::Connected(_)) => {}
                Some(Event::Done(Tag::Returned(xid))) => self.was_returned(xid, sink)?,
                Some(Event::Received) => {
                    received.bytes += self.inbox.len();
                    self.client.handle_receive(&self.inbox);
                    self.carry_out(sink, &mut received)?;
                }
            }
        }
        received.may_send = !self.waiting.is_empty();
        Ok(received)
    }

    /// Carries out the outputs of the state machine.
    fn carry_out<S: Sink>(&mut self, sink: &mut S, received: &mut Received) -> Result<(), Error> {
        while let Some(output) = self.client.poll_output() {
            match output {
                Output::PostReceives(count) => self.endpoint.post_receives(count)?,
                Output::Reply { xid, message, landed } => {
                    received.bytes += to_usize(landed);
                    self.answered(xid, &message, landed, sink)?;
                }
                Output::Failed { xid, error } => match self.offered.remove(&xid) {
                    Some(offered) if offered.lent.is_some() => {
                        self.take_back(xid, offered, Outcome::Failed(error))?;
                    }
                    _ => sink.refused(xid, &error),
                },
                Output::Close(reason) => {
                    // Calls that have ended, perhaps for this reason, have their outcome.
                    self.endpoint.end_lending();
                    let ended: Vec<u32> = self.returning.keys().copied().collect();
                    ended.into_iter().try_for_each(|xid| self.was_returned(xid, sink))?;
                    return Err(reason.into());
                }
                Output::Reverse(range) => sink.record(self.inbox.get(range).unwrap_or_default()),
                // The refusal of a call of the server: calls are passed to the state machine only
                // when they can be sent at once, and replies are sent as they are passed.
                Output::Send { bytes, .. } => self.endpoint.send(&[&bytes], None, Some(Tag::Sent))?,
            }
        }
        Ok(())
    }

    /// Hands over a reply and frees the memory that the call had offered; a reply to a call that
    /// has lent memory is handed over when the memory was taken back.
    fn answered<S: Sink>(
        &mut self,
        xid: u32,
        message: &Message,
        landed: u32,
        sink: &mut S,
    ) -> Result<(), Error> {
        let Some(offered) = self.offered.remove(&xid) else { return Ok(()) };
        let mut long = Vec::new();
        let head = match message {
            Message::Received(range) => self.inbox.get(range.clone()).unwrap_or_default(),
            Message::InChunk(bytes) => {
                long.resize(to_usize(*bytes), 0);
                if let Some(buffer) = &offered.reply {
                    buffer.read(0, &mut long)?;
                }
                check_long(xid, &long, sink)?;
                &long
            }
        };
        if offered.lent.is_some() {
            let head = head.to_vec();
            return self.take_back(xid, offered, Outcome::Reply { head, landed });
        }
        let copied = deliver(head, &offered, landed, sink)?;
        self.endpoint.count_copied(copied);
        Ok(())
    }

    /// Ends the server's right to the memory of a call.
    fn take_back(&mut self, xid: u32, offered: Offered, outcome: Outcome) -> Result<(), Error> {
        let (offered, _) = &*self.returning.entry(xid).insert_entry((offered, outcome)).into_mut();
        match &offered.lent {
            Some(lent) => self.endpoint.take_back(lent, Tag::Returned(xid)),
            None => Ok(()),
        }
    }

    /// Hands over how a call has ended, now that its memory is the caller's again.
    fn was_returned<S: Sink>(&mut self, xid: u32, sink: &mut S) -> Result<(), Error> {
        let Some((offered, outcome)) = self.returning.remove(&xid) else { return Ok(()) };
        if let Some(lent) = &offered.lent {
            self.endpoint.was_returned(lent);
        }
        match outcome {
            Outcome::Failed(error) => sink.refused(xid, &error),
            Outcome::Reply { head, landed } => {
                let copied = deliver(&head, &offered, landed, sink)?;
                self.endpoint.count_copied(copied);
            }
        }
        Ok(())
    }
}

impl<K: Send + 'static, L: ReceiveBuffer> Transport<K, L> for Requester<K> {
    fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        self.fds().into_iter().flatten().try_for_each(|fd| poller.add(fd, token, Interest::READ))
    }

    fn wake(&mut self) {
        self.endpoint.wake();
    }

    fn receive(
        &mut self,
        _scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
        _budget_bytes: usize,
    ) -> Result<Received, crate::Error> {
        Ok(self.take_events(sink)?)
    }

    fn push(&mut self, payload: K, payload_len: usize, expect: Expect, head: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        head(&mut bytes);
        let xid = bytes.first_chunk().copied().map_or(0, u32::from_be_bytes);
        // One call moves at most 1 MiB.
        let payload_len = u32::try_from(payload_len).unwrap_or(u32::MAX);
        let call = Queued { xid, head: bytes, payload, payload_len, expect };
        self.queued_bytes += call.bytes();
        let is_call = is_call(&call.head);
        if is_call { &mut self.waiting } else { &mut self.answers }.push_back(call);
    }

    fn flush(&mut self, source: &impl Source<K>, _budget_bytes: usize) -> Result<Flushed, crate::Error> {
        Ok(if self.send_queued(source)? { Flushed::All } else { Flushed::PeerIsFull })
    }

    fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    fn queued_records(&self) -> usize {
        self.waiting.len() + self.answers.len()
    }

    fn progress(&self) -> u64 {
        self.endpoint.counters().completions
    }

    fn unacknowledged_bytes(&self) -> Option<u64> {
        (self.waiting.is_empty() && self.answers.is_empty() && self.endpoint.work_under_way() == 0)
            .then_some(0)
    }

    fn ask(&mut self) -> Result<(), crate::Error> {
        Ok(self.endpoint.ask(Tag::Sent)?)
    }

    fn counters(&self) -> Counters {
        self.endpoint.counters()
    }

    fn end(mut self, reset: bool, poller: &Poller) -> Ended<L> {
        self.leave(poller);
        if reset {
            self.endpoint.disconnect();
        }
        if self.endpoint.has_lent() {
            // Now, and not with what remains: the caller may use its memory when this returns.
            self.endpoint.end_lending();
        }
        Ended { receive_buffer: None, remains: Remains::of(self) }
    }
}

/// Offers memory for a call; `None` if there is none.
fn frame<K>(
    endpoint: &mut Endpoint<Tag>,
    client: &Client,
    call: &Queued<K>,
    (payload, memory): (&Slices<'_>, Option<Registered>),
) -> Result<Option<(Call, Offered)>, Error> {
    let payload_len = (call.payload_len > 0).then_some(call.payload_len);
    let Expect { payload_max, reply_max } = call.expect;
    let forms = client.forms(&Sizes {
        message: call.head.len(),
        payload: payload_len,
        lands: payload_max > 0,
        reply_max,
        segments: 1,
    });
    let Some(offered) = offer(endpoint, forms, call, memory)? else { return Ok(None) };
    let [message, data] = &offered.sources;
    if let Some(message) = message {
        message.write(0, &call.head)?;
    }
    if let Some(data) = data {
        let mut at = 0;
        for piece in payload {
            data.write(at, piece)?;
            at += piece.len();
        }
    }
    let chunk = |buffer: &Option<Buffer>, bytes: u32| buffer.as_ref().map(|buffer| segment(buffer, bytes));
    let lent = || offered.lent.as_ref().map(|lent| Chunk::from_slice(&[lent.segment()]));
    let (sends, receives) = (forms.payload_chunk, payload_max > 0);
    let framed = Call {
        xid: call.xid,
        message: call.head.clone(),
        message_chunk: chunk(message, u32::try_from(call.head.len()).unwrap_or(u32::MAX)),
        payload: payload_len.map(|bytes| (bytes, chunk(data, bytes).or_else(|| lent().filter(|_| sends)))),
        receive_buffer: chunk(&offered.receive_buffer, payload_max).or_else(|| lent().filter(|_| receives)),
        reply_chunk: chunk(&offered.reply, reply_max),
    };
    Ok(Some((framed, offered)))
}

/// Allocates the memory for a call, or lends that of the caller; `None` if some of it must be
/// returned first.
fn offer<K>(
    endpoint: &mut Endpoint<Tag>,
    forms: Forms,
    call: &Queued<K>,
    memory: Option<Registered>,
) -> Result<Option<Offered>, Error> {
    let Expect { payload_max, reply_max } = call.expect;
    let mut offered = Offered::default();
    let [message, data] = &mut offered.sources;
    // Lent last, so that nothing is lent for a call that must wait.
    let wanted = [
        (forms.message_chunk, call.head.len(), Access::RemoteRead, message, None),
        (forms.reply_chunk, to_usize(reply_max), Access::RemoteWrite, &mut offered.reply, None),
        (forms.payload_chunk, to_usize(call.payload_len), Access::RemoteRead, data, memory),
        (payload_max > 0, to_usize(payload_max), Access::RemoteWrite, &mut offered.receive_buffer, memory),
    ];
    for (needed, bytes, access, place, memory) in wanted {
        if !needed {
            continue;
        }
        if let Some(memory) = memory.filter(|memory| memory.bytes == bytes && offered.lent.is_none()) {
            // SAFETY: the source leaves the memory alone until the reply is delivered or the
            // connection was ended (`Source::memory`).
            offered.lent = unsafe { endpoint.lend(&memory, access)? };
            if offered.lent.is_some() {
                continue;
            }
        }
        *place = endpoint.buffer(bytes, access)?;
        if place.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(offered))
}

/// Checks that a reply in the memory of a call is to that call. As with inline replies, one with
/// another xid matches no call; but here the call is known whose memory it took, and which would
/// get the like again on every connection. So the call is named to the sink. RFC 8166 s4.2.1
fn check_long<S: Sink>(xid: u32, message: &[u8], sink: &mut S) -> Result<(), Error> {
    let found = message.first_chunk().copied().map(u32::from_be_bytes);
    if found == Some(xid) {
        return Ok(());
    }
    let reason = "a reply to another call in the memory of this one".to_owned();
    sink.bad_record(&xid.to_be_bytes(), &FramingError::Malformed(reason));
    Err(CloseReason::Protocol.into())
}

/// Sends a message, followed by the payload and its padding if that is inline.
fn send(
    endpoint: &mut Endpoint<Tag>,
    bytes: &[u8],
    payload: Option<(&Slices<'_>, usize)>,
) -> Result<(), Error> {
    let mut pieces = vec![bytes];
    if let Some((payload, padding)) = payload {
        pieces.extend(payload.iter().map(|piece| &**piece));
        pieces.push(&[0; 3][..padding.min(3)]);
    }
    endpoint.send(&pieces, None, Some(Tag::Sent))
}

/// Hands over a reply, whose call was given this memory. Returns how many bytes of payload were
/// copied.
fn deliver<S: Sink>(head: &[u8], offered: &Offered, landed: u32, sink: &mut S) -> Result<usize, Error> {
    let landed = to_usize(landed);
    match (&offered.receive_buffer, &offered.lent) {
        (Some(buffer), _) if landed > 0 => place_payload(head, Landed::InPool(buffer), landed, sink),
        (None, Some(lent)) if landed > 0 => place_payload(head, Landed::Lent(lent), landed, sink),
        _ => {
            sink.record(head);
            Ok(0)
        }
    }
}

/// Where the server has placed the payload of a reply.
enum Landed<'a> {
    InPool(&'a Buffer),
    Lent(&'a Lent),
}

impl Landed<'_> {
    fn read(&self, from: usize, into: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::InPool(buffer) => buffer.read(from, into),
            Self::Lent(lent) => {
                lent.read(from, into);
                Ok(())
            }
        }
    }

    /// Whether the payload is in these pieces already.
    fn is_in(&self, pieces: &[std::io::IoSliceMut<'_>]) -> bool {
        matches!((self, pieces), (Self::Lent(lent), [piece]) if lent.is_at(piece))
    }
}

/// Hands over directly placed payload, where the sink wants it. Returns how many bytes were copied.
fn place_payload<S: Sink>(
    head: &[u8],
    from: Landed<'_>,
    landed: usize,
    sink: &mut S,
) -> Result<usize, Error> {
    let padding = landed.wrapping_neg() % 4;
    let length = head.len() + landed + padding;
    match sink.choose_receive_buffer(head, length) {
        Some(PayloadPlace { at, len, mut receive_buffer }) if at == head.len() && len == landed => {
            let mut pieces = SlicesMut::new();
            receive_buffer.unfilled(0, &mut pieces);
            let is_there = from.is_in(&pieces);
            let mut done = 0;
            for piece in pieces.iter_mut().filter(|_| !is_there) {
                from.read(done, piece)?;
                done += piece.len();
            }
            drop(pieces);
            sink.received(head, receive_buffer, &[]);
            Ok(done)
        }
        place => {
            // A reply whose length differs from the bytes placed: as on a stream, the reply's own
            // length counts.
            let mut record = head.to_vec();
            record.resize(length, 0);
            if let Some(payload) = record.get_mut(head.len()..head.len() + landed) {
                from.read(0, payload)?;
            }
            match place {
                None => sink.record(&record),
                Some(PayloadPlace { at, len, mut receive_buffer }) => {
                    let mut from = at;
                    let mut pieces = SlicesMut::new();
                    receive_buffer.unfilled(0, &mut pieces);
                    for piece in &mut pieces {
                        if let Some(bytes) = record.get(from..from + piece.len()) {
                            piece.copy_from_slice(bytes);
                        }
                        from += piece.len();
                    }
                    drop(pieces);
                    sink.received(
                        record.get(..at).unwrap_or_default(),
                        receive_buffer,
                        record.get(at + len..).unwrap_or_default(),
                    );
                }
            }
            Ok(landed)
        }
    }
}

fn segment(buffer: &Buffer, bytes: u32) -> Chunk {
    let region = buffer.region();
    Chunk::from_slice(&[Segment { handle: region.remote_key(), length: bytes, offset: region.address() }])
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes the calls whose replies cannot be read.
    #[derive(Default)]
    struct BadRecords(Vec<Vec<u8>>);

    struct NoBuffer;

    impl ReceiveBuffer for NoBuffer {
        fn unfilled<'a>(&'a mut self, _from: usize, _out: &mut SlicesMut<'a>) {}
    }

    impl Sink for BadRecords {
        type ReceiveBuffer = NoBuffer;
        fn choose_receive_buffer(
            &mut self,
            _head: &[u8],
            _record_len: usize,
        ) -> Option<PayloadPlace<NoBuffer>> {
            None
        }
        fn record(&mut self, _record: &[u8]) {}
        fn received(&mut self, _head: &[u8], _receive_buffer: NoBuffer, _tail: &[u8]) {}
        fn bad_record(&mut self, beginning: &[u8], _error: &FramingError) {
            self.0.push(beginning.to_vec());
        }
    }

    // RFC 8166 s4.2.1
    #[test]
    fn a_reply_to_another_call_in_the_memory_of_a_call_is_charged_to_the_call_whose_memory_it_took() {
        let mut sink = BadRecords::default();
        assert!(check_long(7, &[0, 0, 0, 7, 0, 0, 0, 1], &mut sink).is_ok());
        assert_eq!(sink.0, [[0; 4]; 0]);
        for message in [&[0, 0, 0, 8, 0, 0, 0, 1][..], &[0, 0]] {
            assert!(matches!(check_long(7, message, &mut sink), Err(Error::Protocol(_))));
        }
        assert_eq!(sink.0, [[0, 0, 0, 7]; 2]);
    }
}

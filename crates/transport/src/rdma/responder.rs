//! The server's end of an RDMA connection: parses calls, reads the memory that they offer, and
//! sends replies. RFC 8166
//!
//! Calls are handed out as records, as from a stream, and replies are passed in as records: each is
//! matched to its call by its xid, so the code that executes calls need not know about chunks.
//! Nothing blocks.
//!
//! Bounds: a client has at most [`CREDITS`] calls outstanding; memory read from the client and not
//! yet handed out is at most [`READ_BYTES_MAX`], which is half of the registered pool, so that
//! replies always find room in the end.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;

use rpcrdma::header::{Chunk, Segment, bytes_of};
use rpcrdma::holds;
use rpcrdma::server::{Limits, Message, Output, Payload, Piece, ReadInto, RequestId, Server, Source as From};
use verbs::Access;

use super::{Buffer, Counters, Endpoint, Error, Event, Incoming, Options, Part, forget, inline, is_call};
use crate::poll::{Interest, Poller};
use crate::{
    Ended, Expect, Flushed, Place, ReceiveBuffer, Received, Remains, Scratch, Sink, Slices, SlicesMut,
    Source, Transport,
};

/// Calls that one client may have outstanding on a connection, the same as Linux grants.
const CREDITS: u32 = 64;
/// Maximum size of a connection's registered memory for payload. Replies without room wait until
/// others return it.
const POOL_BYTES_MAX: usize = 32 << 20;
/// Maximum number of bytes read from a client's memory before its calls are handed out.
const READ_BYTES_MAX: usize = POOL_BYTES_MAX / 2;

/// Work whose completion matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Read(RequestId),
    /// The client has everything that was sent once this work is done.
    Sent,
}

/// The memory read for a call.
#[derive(Debug, Default)]
struct Fetched {
    message: Option<Buffer>,
    payload: Option<Buffer>,
}

impl Fetched {
    fn bytes(&self) -> usize {
        [&self.message, &self.payload].into_iter().flatten().map(|buffer| buffer.region().bytes()).sum()
    }
}

/// A complete message: a call, or the reply to a call of this end.
#[derive(Debug)]
struct Call {
    head: Vec<u8>,
    payload: Option<Payload>,
    fetched: Fetched,
}

#[derive(Debug)]
struct Reply<P> {
    head: Vec<u8>,
    payload: P,
    payload_len: usize,
}

impl<P> Reply<P> {
    const fn bytes(&self) -> usize {
        self.head.len() + self.payload_len
    }
}

/// See the module's documentation. `P` names a payload, as [`Source`] knows it.
#[derive(Debug)]
pub struct Responder<P> {
    /// First, so that the endpoint and its queue pair are dropped first.
    endpoint: Endpoint<Tag>,
    server: Server,
    /// Calls that were handed out, by xid.
    unanswered: HashMap<u32, VecDeque<RequestId>>,
    /// Reads that wait for room.
    reads: VecDeque<(RequestId, ReadInto, Chunk)>,
    fetched: HashMap<RequestId, Fetched>,
    /// Bytes of registered memory held by calls that were not handed out yet.
    read_bytes: usize,
    calls: VecDeque<Call>,
    replies: VecDeque<Reply<P>>,
    queued_bytes: usize,
    /// The reply being sent, and its remaining outputs.
    current: Option<Reply<P>>,
    outgoing: VecDeque<Output>,
    /// Calls to the client that its transport refused, until the sink is told.
    refused: Vec<u32>,
    inbox: Vec<u8>,
}

impl<P> Responder<P> {
    /// Accepts a client, whose calls are at most this long. This end may have `reverse_credits`
    /// calls to the client outstanding, as far as the client grants them.
    ///
    /// # Errors
    /// Errors of the system, mostly because too much memory would have to be locked.
    pub fn accept(incoming: Incoming, record_bytes_max: usize, reverse_credits: u32) -> Result<Self, Error> {
        let receives = CREDITS + reverse_credits;
        let options = Options { receives, pool_bytes_max: POOL_BYTES_MAX, ..Options::default() };
        let endpoint = incoming.prepare(&options)?;
        let agreed = endpoint.agreed().ok_or(Error::Misuse("a client that has offered nothing"))?;
        let limits = Limits { credits: CREDITS, payload_bytes: bound(record_bytes_max) };
        let mut server = Server::new(agreed, limits);
        server.allow_calls(reverse_credits);
        let mut this = Self {
            endpoint,
            server,
            unanswered: HashMap::new(),
            reads: VecDeque::new(),
            fetched: HashMap::new(),
            read_bytes: 0,
            calls: VecDeque::new(),
            replies: VecDeque::new(),
            queued_bytes: 0,
            current: None,
            outgoing: VecDeque::new(),
            refused: Vec::new(),
            inbox: Vec::new(),
        };
        this.carry_out()?;
        this.endpoint.accept()?;
        Ok(this)
    }

    fn fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let (events, completions) = self.endpoint.fds();
        [Some(events), completions]
    }

    /// Passes calls to the sink, while it wants more.
    fn hand_out_calls<S: Sink>(&mut self, sink: &mut S) -> Result<Received, Error> {
        self.pump()?;
        self.refused.drain(..).for_each(|xid| sink.refused(xid, &"the client's transport refuses it"));
        let mut received = Received::default();
        while sink.wants_more() {
            let Some(call) = self.calls.pop_front() else { break };
            let payload_bytes = call.payload.map_or(0, |payload| payload.bytes);
            received.bytes += call.head.len() + to_usize(payload_bytes);
            self.read_bytes = self.read_bytes.saturating_sub(call.fetched.bytes());
            hand_out(&call, sink)?;
        }
        self.begin_reads()?;
        Ok(received)
    }

    /// Sends queued replies, as far as there is memory; returns true once the client has all of
    /// them. A reply without a call is dropped.
    fn send_replies(&mut self, source: &impl Source<P>) -> Result<bool, Error> {
        self.pump()?;
        loop {
            while !self.outgoing.is_empty() {
                if !self.carry_first(source)? {
                    return Ok(false);
                }
                self.outgoing.pop_front();
            }
            self.current = None;
            let Some(reply) = self.replies.pop_front() else { break };
            self.queued_bytes -= reply.bytes();
            if is_call(&reply.head) {
                self.server.call(inline(reply.head, &reply.payload, source))?;
                self.outgoing.extend(std::iter::from_fn(|| self.server.poll_output()));
                continue;
            }
            let Some(request) = self.asked(&reply.head) else { continue };
            let payload_len = u32::try_from(reply.payload_len).ok().filter(|len| *len > 0);
            self.server.reply(request, reply.head.clone(), payload_len);
            self.outgoing.extend(std::iter::from_fn(|| self.server.poll_output()));
            self.current = Some(reply);
        }
        Ok(self.client_has_all())
    }

    fn client_has_all(&self) -> bool {
        self.outgoing.is_empty() && self.replies.is_empty() && self.endpoint.work_under_way() == 0
    }

    /// The call that a reply answers, by the xid at its start.
    fn asked(&mut self, head: &[u8]) -> Option<RequestId> {
        let xid = u32::from_be_bytes(*head.first_chunk()?);
        let requests = self.unanswered.get_mut(&xid)?;
        let request = requests.pop_front();
        if requests.is_empty() {
            self.unanswered.remove(&xid);
        }
        request
    }

    /// Handles all events.
    fn pump(&mut self) -> Result<(), Error> {
        while let Some(event) = self.endpoint.poll(&mut self.inbox)? {
            match event {
                Event::Connected(_) | Event::Done(Tag::Sent) => {}
                Event::Done(Tag::Read(request)) => {
                    self.server.handle_read_done(request);
                    self.carry_out()?;
                }
                Event::Received => {
                    self.server.handle_receive(&self.inbox);
                    self.carry_out()?;
                }
            }
        }
        self.begin_reads()
    }

    /// Carries out the outputs of the state machine for calls.
    fn carry_out(&mut self) -> Result<(), Error> {
        while let Some(output) = self.server.poll_output() {
            match output {
                Output::PostReceives(count) => self.endpoint.post_receives(count)?,
                Output::Read { request, into, chunk } => self.reads.push_back((request, into, chunk)),
                Output::Call { request, xid, message, payload, .. } => {
                    let fetched = self.fetched.remove(&request).unwrap_or_default();
                    let head = match (message, &fetched.message) {
                        (Message::Received(range), _) => self.inbox.get(range).unwrap_or_default().to_vec(),
                        (Message::Kept(bytes), _) => bytes,
                        (Message::Read(bytes), Some(buffer)) => {
                            let mut head = vec![0; to_usize(bytes)];
                            buffer.read(0, &mut head)?;
                            head
                        }
                        (Message::Read(_), None) => Vec::new(),
                    };
                    self.unanswered.entry(xid).or_default().push_back(request);
                    self.calls.push_back(Call { head, payload, fetched });
                }
                // The answer to an invalid header, or a call that waited for a credit; answers to
                // calls come from replies.
                Output::Send { bytes, invalidate, .. } => {
                    self.endpoint.send(&[&bytes], invalidate, Some(Tag::Sent))?;
                }
                Output::Close(reason) => return Err(reason.into()),
                Output::Reverse(range) => {
                    let head = self.inbox.get(range).unwrap_or_default().to_vec();
                    self.calls.push_back(Call { head, payload: None, fetched: Fetched::default() });
                }
                Output::ReverseRefused(xid) => self.refused.push(xid),
                Output::Write { .. } => {}
            }
        }
        Ok(())
    }

    /// Starts to read the memory that calls offer, as far as there is room.
    fn begin_reads(&mut self) -> Result<(), Error> {
        while let Some((request, into, chunk)) = self.reads.front() {
            let (request, into) = (*request, *into);
            // The state machine checks the length against the bound.
            let bytes = usize::try_from(bytes_of(chunk)).unwrap_or(usize::MAX);
            let Some(buffer) = self.endpoint.buffer(bytes, Access::Local)? else { return Ok(()) };
            let held = buffer.region().bytes();
            if self.read_bytes > 0 && self.read_bytes + held > READ_BYTES_MAX {
                return Ok(());
            }
            self.read_bytes += held;
            let segments: Vec<Segment> = chunk.iter().copied().filter(|segment| segment.length > 0).collect();
            let (mut from, count) = (0, segments.len());
            for (at, segment) in segments.into_iter().enumerate() {
                let part = Part { buffer: buffer.clone(), from, bytes: segment.length };
                from += to_usize(segment.length);
                let tag = (at + 1 == count).then_some(Tag::Read(request));
                self.endpoint.read(segment.offset, segment.handle, part, tag)?;
            }
            let fetched = self.fetched.entry(request).or_default();
            match into {
                ReadInto::Message => fetched.message = Some(buffer),
                ReadInto::Payload => fetched.payload = Some(buffer),
            }
            self.reads.pop_front();
        }
        Ok(())
    }

    /// Carries out the next output of the current reply; returns false while there is no memory for
    /// it.
    fn carry_first(&mut self, source: &impl Source<P>) -> Result<bool, Error> {
        let mut payload = Slices::new();
        if let Some(reply) = &self.current {
            source.slices(&reply.payload, &mut payload);
        }
        match self.outgoing.front() {
            Some(Output::Write { message, pieces, .. }) => {
                let bytes = pieces.iter().map(|piece| to_usize(piece.to.length)).sum();
                if bytes == 0 {
                    return Ok(true);
                }
                let Some(buffer) = self.endpoint.buffer(bytes, Access::Local)? else { return Ok(false) };
                let mut from = 0;
                for piece in pieces {
                    fill(&buffer, from, piece, message, &payload)?;
                    let part = Part { buffer: buffer.clone(), from, bytes: piece.to.length };
                    from += to_usize(piece.to.length);
                    // The send that follows reports its completion.
                    self.endpoint.write(piece.to.offset, piece.to.handle, part, None)?;
                }
            }
            Some(Output::Send { bytes, payload: inline, invalidate, .. }) => {
                let mut pieces = vec![bytes.as_slice()];
                if let Some((_, padding)) = inline {
                    pieces.extend(payload.iter().map(|piece| &**piece));
                    pieces.push(&[0; 3][..(*padding).min(3)]);
                }
                self.endpoint.send(&pieces, *invalidate, Some(Tag::Sent))?;
            }
            _ => {}
        }
        Ok(true)
    }
}

impl<P: Send + 'static, L: ReceiveBuffer> Transport<P, L> for Responder<P> {
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
        Ok(self.hand_out_calls(sink)?)
    }

    fn push(&mut self, payload: P, payload_len: usize, _expect: Expect, head: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        head(&mut bytes);
        let reply = Reply { head: bytes, payload, payload_len };
        self.queued_bytes += reply.bytes();
        self.replies.push_back(reply);
    }

    fn flush(&mut self, source: &impl Source<P>, _budget_bytes: usize) -> Result<Flushed, crate::Error> {
        Ok(if self.send_replies(source)? { Flushed::All } else { Flushed::PeerIsFull })
    }

    fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    fn queued_records(&self) -> usize {
        self.replies.len()
    }

    fn set_record_bound(&mut self, record_bytes_max: usize) {
        self.server.set_payload_bound(bound(record_bytes_max));
    }

    fn progress(&self) -> u64 {
        self.endpoint.counters().completions
    }

    fn unacknowledged_bytes(&self) -> Option<u64> {
        self.client_has_all().then_some(0)
    }

    fn ask(&mut self) -> Result<(), crate::Error> {
        Ok(self.endpoint.ask(Tag::Sent)?)
    }

    fn counters(&self) -> Counters {
        self.endpoint.counters()
    }

    fn end(self, reset: bool, poller: &Poller) -> Ended<L> {
        forget(self.fds(), poller);
        if reset {
            self.endpoint.disconnect();
        }
        Ended { receive_buffer: None, remains: Remains::of(self) }
    }
}

/// Copies a piece of a reply to registered memory.
fn fill(
    buffer: &Buffer,
    mut at: usize,
    piece: &Piece,
    message: &[u8],
    payload: &Slices<'_>,
) -> Result<(), Error> {
    let (mut skip, mut left) = (to_usize(piece.start), to_usize(piece.to.length));
    let mut copy = |bytes: &[u8]| -> Result<(), Error> {
        let from = skip.min(bytes.len());
        let bytes = bytes.get(from..).unwrap_or_default();
        let bytes = bytes.get(..left).unwrap_or(bytes);
        buffer.write(at, bytes)?;
        (skip, at, left) = (skip - from, at + bytes.len(), left - bytes.len());
        Ok(())
    };
    match piece.source {
        From::Message => copy(message),
        From::Payload => payload.iter().try_for_each(|slice| copy(slice)),
        From::Padding => copy(&[0; 4]),
    }
}

/// Passes a call to the sink, and its payload to the receive buffer of the sink.
fn hand_out<S: Sink>(call: &Call, sink: &mut S) -> Result<(), Error> {
    let Call { head, payload, fetched } = call;
    let (Some(payload), Some(buffer)) = (payload, &fetched.payload) else {
        sink.record(head);
        return Ok(());
    };
    let (position, bytes) = (to_usize(payload.position), to_usize(payload.bytes));
    let padding = bytes.wrapping_neg() % 4;
    if position == head.len()
        && let Some(Place { at, len, mut receive_buffer }) = sink.place(head, head.len() + bytes + padding)
        && at == head.len()
        && u32::try_from(len).is_ok_and(|len| holds(payload.bytes, len))
    {
        let mut pieces = SlicesMut::new();
        receive_buffer.unfilled(0, &mut pieces);
        let mut from = 0;
        for piece in &mut pieces {
            buffer.read(from, piece)?;
            from += piece.len();
        }
        drop(pieces);
        sink.received(head, receive_buffer, &[]);
        return Ok(());
    }
    // A smaller or unusual call becomes the record that it would be on a stream.
    let (before, after) = head.split_at_checked(position).unwrap_or((head, &[]));
    let mut record = before.to_vec();
    record.resize(before.len() + bytes + padding, 0);
    if let Some(place) = record.get_mut(before.len()..before.len() + bytes) {
        buffer.read(0, place)?;
    }
    record.extend_from_slice(after);
    sink.record(&record);
    Ok(())
}

fn bound(record_bytes_max: usize) -> u32 {
    u32::try_from(record_bytes_max).unwrap_or(u32::MAX)
}

fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

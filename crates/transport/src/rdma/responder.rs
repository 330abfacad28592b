//! The server's end of an RDMA connection: parses calls, reads the memory that they offer, and
//! sends replies. RFC 8166
//!
//! Calls are handed out as records, as from a stream, and replies are passed in as records: each is
//! matched to its call by its xid, so the code that executes calls need not know about chunks.
//! Nothing blocks.
//!
//! Payload is moved where its owner keeps it, as far as that memory can be registered: the payload
//! of a reply is written from the memory that [`Source::pieces`] finds, and the payload of a call
//! is read into the memory that [`Sink::choose_receive_buffer`] offers. Other payload is copied
//! through the pool of the endpoint, and counted ([`Counters::copied_bytes`]).
//!
//! Memory that a device accesses stays until the device is done with it: the payload of a reply is
//! the tag of the send that follows its writes, and the memory for the payload of a call waits in
//! `fetched`. When a connection ends, both are dropped after the queue pair is destroyed.
//!
//! Bounds: a client has at most [`CREDITS`] calls outstanding; memory read from the client and not
//! yet handed out is at most [`READ_BYTES_MAX`], which is half of the registered pool, so that
//! replies always find room in the end; payload that is being written is at most
//! [`WRITTEN_BYTES_MAX`].

#![allow(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;

use memory::{Registered, Scatter};
use rpcrdma::header::{Chunk, Segment, bytes_of};
use rpcrdma::server::{Limits, Message, Output, ReadInto, RequestId, Server, Source as From};
use smallvec::SmallVec;
use verbs::Access;

use super::call::{Call, Fetched, hand_out, place_for};
use super::direct::{Pieces, memory_of, overlaps, unregistered_bytes};
use super::{Counters, Endpoint, Error, Event, Incoming, Options, Part, forget, inline, is_call};
use crate::poll::{Interest, Poller};
use crate::{Ended, Expect, Flushed, ReceiveBuffer, Received, Remains, Scratch, Sink, Source, Transport};

/// Calls that one client may have outstanding on a connection, the same as Linux grants.
const CREDITS: u32 = 64;
/// Maximum size of a connection's registered memory for payload. Replies without room wait until
/// others return it.
const POOL_BYTES_MAX: usize = 32 << 20;
/// Maximum number of bytes read from a client's memory before its calls are handed out.
const READ_BYTES_MAX: usize = POOL_BYTES_MAX / 2;
/// Maximum number of bytes of payload that are written to a client at a time: more than one
/// connection carries in a round trip, and what a client that reads no more may pin.
const WRITTEN_BYTES_MAX: usize = 32 << 20;
/// Memory in more pieces than this is not read into piece by piece: copying costs less than so many
/// RDMA reads. A store that is not full has 1 MiB in 17 pieces at most.
const READ_PIECES_MAX: usize = 20;

/// Work whose completion matters.
#[derive(Debug)]
enum Tag<P> {
    Read(RequestId),
    /// The client has everything that was sent once this work is done. The payload that was written
    /// from where it is, and its length.
    Sent(Option<(P, usize)>),
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

/// See the module's documentation. `P` is a payload, as [`Source::pieces`] knows it, and `L` memory
/// for one.
#[derive(Debug)]
pub struct Responder<P, L> {
    /// First, so that the endpoint and its queue pair are dropped first.
    endpoint: Endpoint<Tag<P>>,
    server: Server,
    /// Calls that were handed out, by xid.
    unanswered: HashMap<u32, VecDeque<RequestId>>,
    /// Reads that wait for room.
    reads: VecDeque<(RequestId, ReadInto, Chunk)>,
    fetched: HashMap<RequestId, Fetched<L>>,
    /// Bytes of registered memory held by calls that were not handed out yet.
    read_bytes: usize,
    calls: VecDeque<Call<L>>,
    replies: VecDeque<Reply<P>>,
    queued_bytes: usize,
    /// Bytes of payload that is being written from where it is.
    written_bytes: usize,
    /// The reply being sent, and its remaining outputs.
    current: Option<Reply<P>>,
    outgoing: VecDeque<Output>,
    /// Calls to the client that its transport refused, until the sink is told.
    refused: Vec<u32>,
    inbox: Vec<u8>,
    /// Calls came, or have been read, since they were last passed to the sink.
    unseen: bool,
}

impl<P, L: ReceiveBuffer> Responder<P, L> {
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
            written_bytes: 0,
            current: None,
            outgoing: VecDeque::new(),
            refused: Vec::new(),
            inbox: Vec::new(),
            unseen: false,
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
    fn hand_out_calls<S: Sink<ReceiveBuffer = L>>(&mut self, sink: &mut S) -> Result<Received, Error> {
        self.pump()?;
        self.unseen = false;
        self.refused.drain(..).for_each(|xid| sink.refused(xid, &"the client's transport refuses it"));
        let mut received = Received::default();
        while sink.wants_more() {
            let Some(call) = self.calls.pop_front() else { break };
            let payload_bytes = call.payload.map_or(0, |payload| payload.bytes);
            received.bytes += call.head.len() + to_usize(payload_bytes);
            self.read_bytes = self.read_bytes.saturating_sub(call.fetched.bytes());
            let copied = hand_out(call, sink)?;
            self.endpoint.count_copied(copied);
        }
        self.begin_reads(sink)?;
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
                Event::Connected(_) | Event::Done(Tag::Sent(None)) => {}
                Event::Done(Tag::Sent(Some((payload, bytes)))) => {
                    self.written_bytes -= bytes;
                    drop(payload);
                }
                Event::Done(Tag::Read(request)) => {
                    self.unseen = true;
                    self.server.handle_read_done(request);
                    self.carry_out()?;
                }
                Event::Received => {
                    self.unseen = true;
                    self.server.handle_receive(&self.inbox);
                    self.carry_out()?;
                }
            }
        }
        Ok(())
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
                        (Message::Buffered(bytes), _) => bytes,
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
                    self.endpoint.send(&[&bytes], invalidate, Some(Tag::Sent(None)))?;
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
    fn begin_reads<S: Sink<ReceiveBuffer = L>>(&mut self, sink: &mut S) -> Result<(), Error> {
        while let Some((request, into, chunk)) = self.reads.front() {
            let (request, into, chunk) = (*request, *into, chunk.clone());
            // The state machine checks the length against the bound.
            let bytes = usize::try_from(bytes_of(&chunk)).unwrap_or(usize::MAX);
            if self.is_full_with(bytes) {
                return Ok(());
            }
            let placed = into == ReadInto::Payload && self.read_in_place(request, &chunk, sink)?;
            if !placed && !self.read_into_pool(request, into, &chunk, bytes)? {
                return Ok(());
            }
            self.reads.pop_front();
        }
        Ok(())
    }

    /// Whether calls that were not handed out yet hold too much memory for this much more.
    const fn is_full_with(&self, bytes: usize) -> bool {
        self.read_bytes > 0 && self.read_bytes + bytes > READ_BYTES_MAX
    }

    /// Reads the payload of a call into memory of the sink; returns false if the sink offers none
    /// that can be registered.
    fn read_in_place<S: Sink<ReceiveBuffer = L>>(
        &mut self,
        request: RequestId,
        chunk: &[Segment],
        sink: &mut S,
    ) -> Result<bool, Error> {
        let Self { endpoint, server, .. } = self;
        let (Some((head, payload)), Some(registrar)) = (server.awaiting(request), endpoint.registrar())
        else {
            return Ok(false);
        };
        let Some((mut receive_buffer, len)) = place_for(head, payload, sink) else { return Ok(false) };
        let mut memory = Scatter::new();
        if !receive_buffer.registered(registrar, &mut memory) || memory.len() > READ_PIECES_MAX {
            return Ok(false);
        }
        let reads = overlaps(chunk, &memory);
        if reads.is_empty() {
            return Ok(false);
        }
        self.read_bytes += len;
        // Kept before the first read is posted.
        self.fetched.entry(request).or_default().placed = Some((receive_buffer, len));
        for (at, (from, to)) in reads.iter().enumerate() {
            let tag = (at + 1 == reads.len()).then_some(Tag::Read(request));
            // SAFETY: the receive buffer is left alone in `fetched` until the last of these reads
            // is done, and dropped after the endpoint if the connection ends before.
            unsafe { self.endpoint.read_registered(from.offset, from.handle, to, tag)? };
        }
        Ok(true)
    }

    /// Reads a part of a call into the pool; returns false while there is no room.
    fn read_into_pool(
        &mut self,
        request: RequestId,
        into: ReadInto,
        chunk: &[Segment],
        bytes: usize,
    ) -> Result<bool, Error> {
        let Some(buffer) = self.endpoint.buffer(bytes, Access::Local)? else { return Ok(false) };
        let held = buffer.region().bytes();
        if self.is_full_with(held) {
            return Ok(false);
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
        Ok(true)
    }

    /// Carries out the next output of the current reply; returns false while there is no memory for
    /// it, or too much is being written.
    fn carry_first(&mut self, source: &impl Source<P>) -> Result<bool, Error> {
        match self.outgoing.front() {
            Some(Output::Write { .. }) => self.write_pieces(source),
            Some(Output::Send { .. }) => self.send_reply(source).map(|()| true),
            _ => Ok(true),
        }
    }

    fn write_pieces(&mut self, source: &impl Source<P>) -> Result<bool, Error> {
        let Self { endpoint, current, outgoing, written_bytes, .. } = self;
        let Some(Output::Write { message, pieces, .. }) = outgoing.front() else { return Ok(true) };
        let mut payload = Pieces::new();
        if let Some(reply) = current {
            if *written_bytes > 0 && *written_bytes + reply.payload_len > WRITTEN_BYTES_MAX {
                return Ok(false);
            }
            if !source.pieces(&reply.payload, endpoint.registrar(), &mut payload) {
                return Err(KERNEL_ONLY);
            }
        }
        let memory: SmallVec<[_; 4]> =
            pieces.iter().map(|piece| (piece, memory_of(piece, message, &payload))).collect();
        let through_pool: usize = memory.iter().map(|(_, parts)| unregistered_bytes(parts)).sum();
        let mut buffer = None;
        if through_pool > 0 {
            buffer = endpoint.buffer(through_pool, Access::Local)?;
            if buffer.is_none() {
                return Ok(false);
            }
        }
        let (mut at, mut copied) = (0, 0);
        for (piece, parts) in memory.iter().filter(|(_, parts)| !parts.is_empty()) {
            let mut registered: SmallVec<[Registered; 8]> = SmallVec::new();
            for part in parts {
                registered.push(match (part.registered, &buffer) {
                    (Some(part), _) => part,
                    (None, Some(buffer)) => {
                        buffer.write(at, part.bytes)?;
                        copied += if piece.source == From::Payload { part.bytes.len() } else { 0 };
                        at += part.bytes.len();
                        buffer.registered(at - part.bytes.len(), part.bytes.len())
                    }
                    (None, None) => return Ok(false),
                });
            }
            // SAFETY: the payload stays in `current` and then in the tag of the send that follows;
            // either is dropped after the endpoint if the connection ends before. The endpoint
            // keeps the buffer.
            unsafe {
                let (to, key) = (piece.to.offset, piece.to.handle);
                endpoint.write_registered(to, key, &registered, buffer.as_ref(), None)?;
            }
        }
        endpoint.count_copied(copied);
        Ok(true)
    }

    /// Sends the message that ends a reply, with the payload if that is inline.
    fn send_reply(&mut self, source: &impl Source<P>) -> Result<(), Error> {
        let Some(Output::Send { bytes, payload: inline, invalidate, .. }) = self.outgoing.front() else {
            return Ok(());
        };
        let Some((_, padding)) = inline else {
            // The payload, if there is any, has been written from where it is.
            let written = self.current.take().map(|reply| (reply.payload, reply.payload_len));
            self.written_bytes += written.as_ref().map_or(0, |(_, bytes)| *bytes);
            return self.endpoint.send(&[bytes.as_slice()], *invalidate, Some(Tag::Sent(written)));
        };
        let mut payload = Pieces::new();
        if let Some(reply) = &self.current
            && !source.pieces(&reply.payload, None, &mut payload)
        {
            return Err(KERNEL_ONLY);
        }
        let mut pieces: SmallVec<[&[u8]; 4]> = SmallVec::new();
        pieces.push(bytes);
        pieces.extend(payload.iter().map(|piece| piece.bytes));
        pieces.push(&[0; 3][..(*padding).min(3)]);
        self.endpoint.send(&pieces, *invalidate, Some(Tag::Sent(None)))?;
        self.endpoint.count_copied(payload.iter().map(|piece| piece.bytes.len()).sum());
        Ok(())
    }
}

impl<P: Send + 'static, L: ReceiveBuffer + Send + 'static> Transport<P, L> for Responder<P, L> {
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

    fn has_unseen(&self) -> bool {
        self.unseen
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
        Ok(self.endpoint.ask(Tag::Sent(None))?)
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

/// Pages that only the kernel may access are for loops that send through the kernel.
const KERNEL_ONLY: Error = Error::Misuse("a payload is in memory that only the kernel may access");

fn bound(record_bytes_max: usize) -> u32 {
    u32::try_from(record_bytes_max).unwrap_or(u32::MAX)
}

fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

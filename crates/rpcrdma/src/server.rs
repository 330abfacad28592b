//! The responder: parses calls, says which memory of the client to read and to write, and frames
//! replies.
//!
//! A request goes through these states: received; its chunks are being read ([`Output::Read`], then
//! [`Server::handle_read_done`]); handed out ([`Output::Call`]); answered ([`Server::reply`]), with
//! [`Output::Write`] before [`Output::Send`], which one queue pair carries out in this order.
//!
//! The message of a reply is the bare RPC message: a reply cache that keeps the message for a retry
//! keeps no framing, because the retry has chunks of its own.

use crate::connect::Agreed;
use crate::header::{
    Body, Chunk, Chunks, DecodeError, Header, HeaderError, ReadSegment, Segment, VERSION, bytes_of,
};
use crate::placement::{fill, pieces};
use crate::reverse::{self, Caller};
use crate::{CALL, message_type, message_xid};
use std::collections::VecDeque;
use std::ops::Range;
use xdr::{Reader, Writer, padding};

/// The limits of a server for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of calls that a client may have outstanding, and of receives posted. At least 1.
    pub credits: u32,
    /// The maximum size of a call's payload, in bytes, and of a call that is read as a whole.
    pub payload_bytes: u32,
}

/// Identifies a call that was not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    slot: u32,
    /// Distinguishes a late completion of an earlier request in the same slot.
    generation: u32,
}

/// Where the message of a call is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// In the receive buffer just handled, at this range.
    Received(Range<usize>),
    /// Here: its receive buffer was reposted while chunks were read.
    Buffered(Vec<u8>),
    /// In the memory filled by [`ReadInto::Message`], with this many bytes.
    Read(u32),
}

/// The destination of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadInto {
    /// The call itself.
    Message,
    /// The payload of the call.
    Payload,
}

/// Payload that was read from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// The position of the payload in the message.
    pub position: u32,
    /// The length in bytes, with or without padding to a multiple of four ([`crate::holds`]).
    pub bytes: u32,
}

/// The source of the bytes of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The reply's message.
    Message,
    /// The reply's payload.
    Payload,
    /// Zeroes.
    Padding,
}

/// A piece of a reply and its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The source.
    pub source: Source,
    /// The first byte of the source.
    pub start: u32,
    /// The client's memory, and the number of bytes.
    pub to: Segment,
}

/// A request to the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Post this many more receives of the agreed size.
    PostReceives(u32),
    /// Read this memory of the client, one segment after the other; then call
    /// [`Server::handle_read_done`].
    Read {
        /// The call.
        request: RequestId,
        /// The destination.
        into: ReadInto,
        /// The client's memory.
        chunk: Chunk,
    },
    /// A call is complete: answer it with [`Server::reply`], or [`Server::forget`] it.
    Call {
        /// Identifies the call in [`Server::reply`] and [`Server::forget`].
        request: RequestId,
        /// The xid of the call.
        xid: u32,
        /// The RPC message, without the payload.
        message: Message,
        /// The payload, if it was in a chunk.
        payload: Option<Payload>,
        /// How many bytes of a result may be written into the client's memory; `None` if the client
        /// offers none.
        room: Option<u64>,
    },
    /// Write these pieces into the client's memory. The next output may be carried out before this
    /// write has completed.
    Write {
        /// The call.
        request: RequestId,
        /// The message of the reply, if pieces of it are written.
        message: Vec<u8>,
        /// The pieces.
        pieces: Vec<Piece>,
    },
    /// Send a message.
    Send {
        /// The call that this message answers; `None` for the answer to an invalid header and for a
        /// call in the other direction.
        request: Option<RequestId>,
        /// The header, and the message where it is inline.
        bytes: Vec<u8>,
        /// Append this many bytes of payload, and after them this many zeroes.
        payload: Option<(u32, usize)>,
        /// A registration of the client that this send invalidates.
        invalidate: Option<u32>,
    },
    /// The reply to a call of [`Server::call`], in the receive buffer just handled. RFC 8167 s4
    Reverse(Range<usize>),
    /// The client's transport refuses a call of [`Server::call`].
    ReverseRefused(u32),
    /// Close the connection.
    Close(CloseReason),
}

/// Why a connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The received bytes are shorter than a header.
    #[error("the client sends what is no header")]
    NoHeader,
    /// More calls than it was granted.
    #[error("the client has more calls outstanding than it was granted")]
    TooManyCalls,
}

#[derive(Debug)]
struct Request {
    xid: u32,
    chunks: Chunks,
    reads_left: u8,
    message: Message,
    payload: Option<Payload>,
}

/// The responder of one connection.
#[derive(Debug)]
pub struct Server {
    agreed: Agreed,
    limits: Limits,
    granted: u32,
    slots: Vec<(u32, Option<Request>)>,
    outputs: VecDeque<Output>,
    /// Calls to the client.
    reverse: Caller,
}

impl Server {
    /// Creates a responder. Its first output posts receives.
    #[must_use]
    pub fn new(agreed: Agreed, limits: Limits) -> Self {
        let limits = Limits { credits: limits.credits.max(1), ..limits };
        let outputs = VecDeque::from([Output::PostReceives(limits.credits)]);
        Self { agreed, limits, granted: 1, slots: Vec::new(), outputs, reverse: Caller::default() }
    }

    /// Allows this many calls to the client to be outstanding, as far as the client grants them,
    /// and posts receives for their replies. RFC 8167 s4
    pub fn allow_calls(&mut self, credits: u32) {
        self.reverse.allow(credits);
        if credits > 0 {
            self.outputs.push_back(Output::PostReceives(credits));
        }
    }

    /// Calls the client with this RPC message, at once or when credits allow. RFC 8167 s5
    ///
    /// # Errors
    /// Misuse by the caller; the call is then not accepted.
    pub fn call(&mut self, message: Vec<u8>) -> Result<(), reverse::Misuse> {
        self.reverse.call(message, self.agreed.send_bytes)?;
        self.send_calls();
        Ok(())
    }

    /// The number of calls to the client that were sent and not answered, and of calls that wait
    /// for credits.
    #[must_use]
    pub fn calls(&self) -> (usize, usize) {
        self.reverse.outstanding()
    }

    fn send_calls(&mut self) {
        while let Some(bytes) = self.reverse.next() {
            self.outputs.push_back(Output::Send { request: None, bytes, payload: None, invalidate: None });
        }
    }

    /// Changes the limit of payloads, and of calls that are read as a whole.
    pub const fn set_payload_bound(&mut self, bytes: u32) {
        self.limits.payload_bytes = bytes;
    }

    /// The next request to the driver; `None` until the next input.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The number of unanswered calls.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.slots.iter().filter(|(_, request)| request.is_some()).count()
    }

    /// Handles a received message.
    pub fn handle_receive(&mut self, bytes: &[u8]) {
        self.outputs.push_back(Output::PostReceives(1));
        let mut reader = Reader::new(bytes);
        match Header::decode(&mut reader) {
            Ok(header) => {
                let message = bytes.len() - reader.remaining()..bytes.len();
                self.handle_header(header, bytes, message);
            }
            // RFC 8166 s4.5.1
            Err(DecodeError::Version { xid, .. }) => {
                self.refuse(None, xid, HeaderError::Version { low: VERSION, high: VERSION });
            }
            // RFC 8166 s4.5.2
            Err(DecodeError::Chunks { xid }) => self.refuse(None, xid, HeaderError::Chunk),
            // RFC 8166 s4.6.2
            Err(DecodeError::Done) => {}
            Err(DecodeError::Short(_)) => self.outputs.push_back(Output::Close(CloseReason::NoHeader)),
        }
    }

    /// The message of a call whose payload is still to be read, and that payload; `None` if the
    /// message is in a chunk too.
    #[must_use]
    pub fn awaiting(&self, id: RequestId) -> Option<(&[u8], Payload)> {
        let (generation, request) = self.slots.get(usize::try_from(id.slot).ok()?)?;
        let request = request.as_ref().filter(|_| *generation == id.generation)?;
        match &request.message {
            Message::Buffered(bytes) => Some((bytes, request.payload?)),
            Message::Received(_) | Message::Read(_) => None,
        }
    }

    /// Handles the completion of an [`Output::Read`]. A failed read breaks the connection and is
    /// not reported here.
    pub fn handle_read_done(&mut self, id: RequestId) {
        let Some(request) = self.request(id) else { return };
        request.reads_left = request.reads_left.saturating_sub(1);
        if request.reads_left == 0 {
            self.hand_out(id);
        }
    }

    /// Answers a call. The payload, if any, ends the message: it is written into the client's
    /// memory if that was offered, otherwise sent with the message. A reply that does not fit is
    /// refused, never truncated. The driver keeps the payload; the message is returned in the
    /// outputs that need it.
    pub fn reply(&mut self, id: RequestId, message: Vec<u8>, payload: Option<u32>) {
        let Some(request) = self.take(id) else { return };
        let Chunks { reads, writes, reply } = request.chunks;
        let offers = Chunks { reads, writes: writes.clone(), reply: reply.clone() };
        let placed = payload.filter(|_| !writes.is_empty());
        let mut answers = Chunks::default();
        for (at, chunk) in writes.iter().enumerate() {
            // The first chunk takes the payload; unused segments have length 0. RFC 8166 s4.3.2
            let bytes = if at == 0 { placed.unwrap_or(0) } else { 0 };
            match fill(chunk, u64::from(bytes)) {
                Some(filled) => answers.writes.push(filled),
                None => return self.refuse(Some(id), request.xid, HeaderError::Chunk),
            }
        }
        if let (Some(bytes), Some(filled)) = (placed, answers.writes.first()) {
            let pieces = pieces(filled, &[(Source::Payload, bytes)]);
            self.outputs.push_back(Output::Write { request: id, message: Vec::new(), pieces });
        }
        let inline = payload.filter(|_| placed.is_none());
        let invalidate = if self.agreed.may_invalidate { offers.first_handle() } else { None };
        self.send(id, request.xid, message, inline, answers, reply, invalidate);
    }

    /// Drops a call without a reply.
    pub fn forget(&mut self, id: RequestId) {
        drop(self.take(id));
    }

    fn handle_header(&mut self, header: Header, bytes: &[u8], message: Range<usize>) {
        let inline = bytes.get(message.clone()).unwrap_or_default();
        let xid = header.xid;
        let (chunks, whole) = match header.body {
            Body::Message(chunks) => (chunks, None),
            Body::NoMessage(chunks) => {
                let at_0 = read_chunk(&chunks, 0);
                (chunks, Some(at_0))
            }
            // Only the end that answers sends errors.
            Body::Error(_) => {
                if self.reverse.failed(xid) {
                    self.outputs.push_back(Output::ReverseRefused(xid));
                    self.send_calls();
                }
                return;
            }
        };
        if whole.is_none() {
            if message_xid(inline) != Some(xid) {
                return self.refuse(None, xid, HeaderError::Chunk);
            }
            if message_type(inline) != Some(CALL) {
                // Its credits apply to the other direction. A reply without a call is dropped.
                // RFC 8167 s4
                if self.reverse.answered(xid, header.credits) {
                    self.outputs.push_back(Output::Reverse(message));
                }
                return self.send_calls();
            }
        }
        if self.outstanding() >= usize::try_from(self.limits.credits).unwrap_or(usize::MAX) {
            return self.outputs.push_back(Output::Close(CloseReason::TooManyCalls));
        }
        // A client that is granted 0 credits could never send again, and a client that is granted
        // more credits than receives are posted would break the connection. RFC 8166 s3.3.1
        self.granted = header.credits.clamp(1, self.limits.credits);
        let message_bytes = whole.as_ref().map_or(inline.len() as u64, |chunk| bytes_of(chunk));
        let Ok(payload) = self.payload_of(&chunks, whole.is_some(), message_bytes) else {
            return self.refuse(None, xid, HeaderError::Chunk);
        };
        let kept = match &whole {
            Some(_) => Message::Read(u32::try_from(message_bytes).unwrap_or(u32::MAX)),
            None if payload.is_some() => Message::Buffered(inline.to_vec()),
            None => Message::Received(message),
        };
        let payload_chunk = payload.map(|payload| read_chunk(&chunks, payload.position));
        let reads = [(ReadInto::Message, whole), (ReadInto::Payload, payload_chunk)];
        let request = Request { xid, chunks, reads_left: 0, message: kept, payload };
        let id = self.insert(request);
        for (into, chunk) in reads {
            let Some(chunk) = chunk.filter(|chunk| bytes_of(chunk) > 0) else { continue };
            self.outputs.push_back(Output::Read { request: id, into, chunk });
            if let Some(request) = self.request(id) {
                request.reads_left += 1;
            }
        }
        if self.request(id).is_some_and(|request| request.reads_left == 0) {
            self.hand_out(id);
        }
    }

    /// Finds the chunk that holds the payload; a call may have at most one such chunk. RFC 8166
    /// s3.4.5
    fn payload_of(&self, chunks: &Chunks, whole: bool, message_bytes: u64) -> Result<Option<Payload>, ()> {
        let at_0 = chunks.reads.iter().any(|read| read.position == 0);
        // A call is either inline or in the chunk at position 0. RFC 8166 s3.5.3
        if whole != at_0
            || message_bytes > u64::from(self.limits.payload_bytes)
            || (whole && message_bytes < 8)
        {
            return Err(());
        }
        let mut positions = chunks.reads.iter().map(|read| read.position).filter(|position| *position != 0);
        let Some(position) = positions.next() else { return Ok(None) };
        let bytes = bytes_of(&read_chunk(chunks, position));
        let misplaced = position % 4 != 0 || u64::from(position) > message_bytes;
        if misplaced
            || positions.any(|other| other != position)
            || bytes > u64::from(self.limits.payload_bytes)
        {
            return Err(());
        }
        Ok(Some(Payload { position, bytes: u32::try_from(bytes).map_err(drop)? }))
    }

    fn hand_out(&mut self, id: RequestId) {
        let Some(request) = self.request(id) else { return };
        let message = std::mem::replace(&mut request.message, Message::Read(0));
        let room = request.chunks.writes.first().map(|chunk| bytes_of(chunk));
        let call = Output::Call { request: id, xid: request.xid, message, payload: request.payload, room };
        self.outputs.push_back(call);
    }

    /// Sends the reply inline if it fits, otherwise in the reply chunk; otherwise refuses it.
    #[expect(clippy::too_many_arguments, reason = "the parts of one reply, taken apart by its one caller")]
    fn send(
        &mut self,
        id: RequestId,
        xid: u32,
        message: Vec<u8>,
        payload: Option<u32>,
        mut chunks: Chunks,
        reply_chunk: Option<Chunk>,
        invalidate: Option<u32>,
    ) {
        let payload_bytes = payload.unwrap_or(0);
        let pad = padding(usize::try_from(payload_bytes).unwrap_or(0));
        let stream = message.len() as u64 + u64::from(payload_bytes) + pad as u64;
        let credits = self.granted;
        if 16 + chunks.encoded_bytes() as u64 + stream <= u64::from(self.agreed.send_bytes) {
            let mut bytes = encoded(&Header { xid, credits, body: Body::Message(chunks) });
            bytes.extend_from_slice(&message);
            let payload = payload.map(|bytes| (bytes, pad));
            return self.outputs.push_back(Output::Send { request: Some(id), bytes, payload, invalidate });
        }
        // A reply longer than the client expected is refused. RFC 8166 s4.5.3
        let Some(filled) = reply_chunk.and_then(|chunk| fill(&chunk, stream)) else {
            return self.refuse(Some(id), xid, HeaderError::Chunk);
        };
        chunks.reply = Some(filled.clone());
        // The reply repeats all chunks. If the client offered many, such a header may exceed the
        // client's receive size.
        if 16 + chunks.encoded_bytes() as u64 > u64::from(self.agreed.send_bytes) {
            return self.refuse(Some(id), xid, HeaderError::Chunk);
        }
        let message_bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let pad = u32::try_from(pad).unwrap_or(0);
        let sources =
            [(Source::Message, message_bytes), (Source::Payload, payload_bytes), (Source::Padding, pad)];
        let pieces = pieces(&filled, &sources);
        self.outputs.push_back(Output::Write { request: id, message, pieces });
        let bytes = encoded(&Header { xid, credits, body: Body::NoMessage(chunks) });
        self.outputs.push_back(Output::Send { request: Some(id), bytes, payload: None, invalidate });
    }

    fn refuse(&mut self, request: Option<RequestId>, xid: u32, error: HeaderError) {
        let bytes = encoded(&Header { xid, credits: self.granted, body: Body::Error(error) });
        self.outputs.push_back(Output::Send { request, bytes, payload: None, invalidate: None });
    }

    fn insert(&mut self, request: Request) -> RequestId {
        let free = self.slots.iter().position(|(_, slot)| slot.is_none());
        let at = free.unwrap_or(self.slots.len());
        if at == self.slots.len() {
            self.slots.push((0, None));
        }
        let mut generation = 0;
        if let Some((age, slot)) = self.slots.get_mut(at) {
            *age = age.wrapping_add(1);
            generation = *age;
            *slot = Some(request);
        }
        RequestId { slot: u32::try_from(at).unwrap_or(u32::MAX), generation }
    }

    fn slot(&mut self, id: RequestId) -> Option<&mut Option<Request>> {
        let (generation, slot) = self.slots.get_mut(usize::try_from(id.slot).ok()?)?;
        (*generation == id.generation).then_some(slot)
    }

    fn request(&mut self, id: RequestId) -> Option<&mut Request> {
        self.slot(id)?.as_mut()
    }

    fn take(&mut self, id: RequestId) -> Option<Request> {
        self.slot(id)?.take()
    }
}

/// The segments of the read list with this position, in order.
fn read_chunk(chunks: &Chunks, position: u32) -> Chunk {
    let here = |read: &&ReadSegment| read.position == position;
    chunks.reads.iter().filter(here).map(|read| read.segment).collect()
}

fn encoded(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(header.encoded_bytes());
    header.encode(&mut Writer::new(&mut bytes));
    bytes
}

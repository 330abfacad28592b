//! The requester: frames calls, respects the server's credits, and parses replies.
//!
//! The driver registers memory: [`Client::forms`] says what a call needs, the driver registers
//! that, and [`Client::call`] takes the segments. A reply, or a failure, ends the server's right to
//! the call's memory, but only as far as the protocol is concerned: before a buffer is returned to
//! its owner the driver must fence it (invalidate its registration, or destroy the queue pair). The
//! requester never relies on a completion that says that the server invalidated a registration.

use crate::connect::{Agreed, INLINE_BYTES_DEFAULT};
use crate::header::{
    Body, Chunk, Chunks, DecodeError, HEADER_BYTES_MIN, Header, HeaderError, ReadSegment, bytes_of,
};
use crate::placement::used;
use crate::reverse::{self, Answerer, Verdict};
use crate::{CALL, message_type, message_xid};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use xdr::{Reader, Writer, padding};

/// The maximum number of calls that wait for credits on one connection. It is a safety net: the
/// caller already bounds its calls in flight.
pub const WAITING_MAX: usize = 4096;

/// The sizes of a call before it is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the RPC message, without the payload.
    pub message: usize,
    /// Bytes of the payload, which ends the message.
    pub payload: Option<u32>,
    /// Whether the result is placed directly into the caller's memory.
    pub lands: bool,
    /// The maximum size of the reply, without the directly placed result. If nothing is placed
    /// directly, this includes the payload.
    pub reply_max: u32,
    /// The number of segments in which the driver registers one piece of memory.
    pub segments: usize,
}

/// The memory that the driver must register for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forms {
    /// The message itself, to be read by the server. RFC 8166 s3.5.3
    pub message_chunk: bool,
    /// The payload, to be read by the server; otherwise it goes inline.
    pub payload_chunk: bool,
    /// Memory for the whole reply: it may not fit inline. RFC 8166 s4.3.3
    pub reply_chunk: bool,
}

/// A call with the memory registered for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The xid, not in use by another call of this connection.
    pub xid: u32,
    /// The RPC message, without the payload.
    pub message: Vec<u8>,
    /// The message in registered memory, if it does not fit inline.
    pub message_chunk: Option<Chunk>,
    /// The length of the payload, and its registration; without one it is sent inline.
    pub payload: Option<(u32, Option<Chunk>)>,
    /// The receive buffer for the result.
    pub receive_buffer: Option<Chunk>,
    /// Memory for a reply that does not fit inline.
    pub reply_chunk: Option<Chunk>,
}

/// Where the message of a reply is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// In the receive buffer just handled, at this range.
    Received(Range<usize>),
    /// In the call's reply chunk, with this many bytes.
    InChunk(u32),
}

/// A request to the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Post this many more receives of the agreed size.
    PostReceives(u32),
    /// Send a header, the message if it is inline, and after it this many bytes of the call's
    /// payload and this many zeroes.
    Send {
        /// The xid of the call: of the server's, if it is that which is answered.
        xid: u32,
        /// Header and message.
        bytes: Vec<u8>,
        /// Bytes of payload and of padding.
        payload: Option<(u32, usize)>,
    },
    /// A call was answered; its credit is free.
    Reply {
        /// The xid of the call.
        xid: u32,
        /// The RPC message, without the directly placed result.
        message: Message,
        /// The number of bytes placed directly.
        landed: u32,
    },
    /// A call failed; its credit is free. The server did not execute it, or the outcome is unknown.
    Failed {
        /// The xid of the call.
        xid: u32,
        /// The cause.
        error: CallError,
    },
    /// A call from the server, in the receive buffer just handled: answer it with
    /// [`Client::answer`], if calls were granted. RFC 8167 s4
    Reverse(Range<usize>),
    /// Close the connection, then report [`Client::handle_disconnected`].
    Close(CloseReason),
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server could not use the offered memory: it is too small for the reply, or unreadable.
    #[error("the server refuses the memory that was offered for the call")]
    Chunk,
    /// The server supports other versions only.
    #[error("the server speaks RPC-over-RDMA versions {low} to {high}; only version 1 is spoken here")]
    Version {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The server reported an unknown error for the call.
    #[error("the server refuses the call with an unknown error {0}")]
    Unknown(u32),
    /// The server claims an impossible use of the offered memory.
    #[error("the server's answer about the memory it used cannot be true")]
    Misused,
    /// The connection ended before the reply.
    #[error("the connection ended before the answer")]
    Disconnected,
}

/// Why a connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The received bytes are no message.
    #[error("the server sends what is no header")]
    NoHeader,
    /// Another version, or impossible replies.
    #[error("the server breaks the protocol")]
    Protocol,
}

/// Why a call was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// Its xid is in use.
    #[error("call {0:#010x} is outstanding already")]
    Outstanding(u32),
    /// Its parts do not fit inline and were not registered, or their registrations are too small.
    #[error("call {0:#010x} lacks memory that `forms` asked for")]
    Forms(u32),
    /// Too many calls wait for credits.
    #[error("{WAITING_MAX} calls wait for credits")]
    Full,
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
}

#[derive(Debug)]
struct Waiting {
    receive_buffer: Option<Chunk>,
    reply_chunk: Option<Chunk>,
    /// The caller no longer waits for the reply; the credit is still in use.
    abandoned: bool,
}

/// The requester of one connection.
#[derive(Debug)]
pub struct Client {
    agreed: Agreed,
    wanted: u32,
    granted: u32,
    outstanding: BTreeMap<u32, Waiting>,
    queue: VecDeque<Call>,
    outputs: VecDeque<Output>,
    closed: bool,
    unmatched: u64,
    /// Calls of the server.
    reverse: Answerer,
}

impl Client {
    /// Creates a requester. Its first output posts receives: as many as credits are wanted, at
    /// least one.
    #[must_use]
    pub fn new(agreed: Agreed, credits_wanted: u32) -> Self {
        let wanted = credits_wanted.max(1);
        Self {
            agreed,
            wanted,
            // Until the first reply. RFC 8166 s3.3.3
            granted: 1,
            outstanding: BTreeMap::new(),
            queue: VecDeque::new(),
            outputs: VecDeque::from([Output::PostReceives(wanted)]),
            closed: false,
            unmatched: 0,
            reverse: Answerer::default(),
        }
    }

    /// Grants the server this many calls, for which receives are posted. RFC 8167 s4
    pub fn grant_calls(&mut self, credits: u32) {
        self.reverse.grant(credits);
        if credits > 0 {
            self.outputs.push_back(Output::PostReceives(credits));
        }
    }

    /// Answers a call of the server with this RPC message. RFC 8167 s5
    ///
    /// # Errors
    /// Misuse by the caller; nothing is sent then.
    pub fn answer(&mut self, message: &[u8]) -> Result<(), reverse::Misuse> {
        if self.closed {
            return Err(reverse::Misuse::Closed);
        }
        let (xid, bytes) = self.reverse.reply(message, self.agreed.send_bytes)?;
        self.outputs.push_back(Output::Send { xid, bytes, payload: None });
        Ok(())
    }

    /// The next request to the driver; `None` until the next input.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The memory that must be registered for a call of these sizes.
    #[must_use]
    pub fn forms(&self, sizes: &Sizes) -> Forms {
        let chunk = 4 + 16 * sizes.segments;
        let receive_buffer = if sizes.lands { 4 + chunk } else { 0 };
        let reply_max = usize::try_from(sizes.reply_max).unwrap_or(usize::MAX);
        // The limits of receiver and sender may differ; a reply is bounded by what this end can
        // receive.
        let reply_chunk = reply_max.saturating_add(HEADER_BYTES_MIN + receive_buffer) > self.receive_bytes();
        let header = HEADER_BYTES_MIN + receive_buffer + if reply_chunk { chunk } else { 0 };
        let payload = sizes.payload.map_or(0, padded);
        let send_bytes = usize::try_from(self.agreed.send_bytes).unwrap_or(usize::MAX);
        if header + sizes.message + payload <= send_bytes {
            return Forms { message_chunk: false, payload_chunk: false, reply_chunk };
        }
        let payload_chunk = sizes.payload.is_some_and(|bytes| bytes > 0);
        let reads = if payload_chunk { 24 * sizes.segments } else { 0 };
        Forms { message_chunk: header + reads + sizes.message > send_bytes, payload_chunk, reply_chunk }
    }

    /// Accepts a call, which is sent at once or when credits allow.
    ///
    /// # Errors
    /// Misuse by the caller; the call is then not accepted.
    pub fn call(&mut self, call: Call) -> Result<(), Misuse> {
        if self.closed {
            return Err(Misuse::Closed);
        }
        let queued = self.queue.iter().any(|waiting| waiting.xid == call.xid);
        if queued || self.outstanding.contains_key(&call.xid) {
            return Err(Misuse::Outstanding(call.xid));
        }
        if self.queue.len() >= WAITING_MAX {
            return Err(Misuse::Full);
        }
        let send_bytes = usize::try_from(self.agreed.send_bytes).unwrap_or(usize::MAX);
        let pieces = [(&call.message_chunk, call.message.len() as u64)];
        let covered =
            pieces.iter().all(|(chunk, bytes)| chunk.as_ref().is_none_or(|chunk| bytes_of(chunk) >= *bytes));
        let payload = call.payload.as_ref();
        let payload_covered = payload.is_none_or(|(bytes, chunk)| {
            chunk.as_ref().is_none_or(|chunk| bytes_of(chunk) >= u64::from(*bytes))
        });
        // An inline payload after a message that is not inline would have no position.
        let inline_payload = payload.is_some_and(|(bytes, chunk)| chunk.is_none() && *bytes > 0);
        let scattered = call.message_chunk.is_some() && inline_payload;
        if !covered || !payload_covered || scattered || self.sent_bytes(&call) > send_bytes {
            return Err(Misuse::Forms(call.xid));
        }
        self.queue.push_back(call);
        self.send_waiting();
        Ok(())
    }

    /// Abandons a call that is no longer waited for. An unsent call is dropped; the credit of a
    /// sent call is freed by its reply, and its memory must be fenced before it is reused. Returns
    /// whether the call was sent.
    pub fn abandon(&mut self, xid: u32) -> bool {
        self.queue.retain(|call| call.xid != xid);
        match self.outstanding.get_mut(&xid) {
            Some(waiting) => {
                waiting.abandoned = true;
                true
            }
            None => false,
        }
    }

    /// How many calls the server allows now.
    #[must_use]
    pub fn credits(&self) -> u32 {
        self.granted
    }

    /// The number of calls that were sent and not answered, and of calls that wait for credits.
    #[must_use]
    pub fn in_flight(&self) -> (usize, usize) {
        (self.outstanding.len(), self.queue.len())
    }

    /// The number of dropped replies without a matching call.
    #[must_use]
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }

    /// Handles a received message.
    pub fn handle_receive(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        self.outputs.push_back(Output::PostReceives(1));
        let mut reader = Reader::new(bytes);
        match Header::decode(&mut reader) {
            Ok(header) => {
                let message = bytes.len() - reader.remaining()..bytes.len();
                self.handle_header(header, bytes, message);
            }
            Err(DecodeError::Done) => {}
            // A reply with invalid lists, or of a version that this end did not use.
            Err(DecodeError::Chunks { xid } | DecodeError::Version { xid, .. }) => {
                if self.outstanding.contains_key(&xid) {
                    self.fail(xid, CallError::Misused);
                }
                self.close(CloseReason::Protocol);
            }
            Err(DecodeError::Short(_)) => self.close(CloseReason::NoHeader),
        }
        self.send_waiting();
    }

    /// Handles the loss of the connection: all its calls fail, sent or not.
    pub fn handle_disconnected(&mut self) {
        self.closed = true;
        let sent: Vec<_> = self.outstanding.keys().copied().collect();
        sent.into_iter().for_each(|xid| self.fail(xid, CallError::Disconnected));
        for call in std::mem::take(&mut self.queue) {
            self.outputs.push_back(Output::Failed { xid: call.xid, error: CallError::Disconnected });
        }
    }

    fn handle_header(&mut self, header: Header, bytes: &[u8], message: Range<usize>) {
        let inline = bytes.get(message.clone()).unwrap_or_default();
        let xid = header.xid;
        if let Body::Message(chunks) = &header.body
            && message_type(inline) == Some(CALL)
        {
            // Its credits apply to the other direction. RFC 8167 s4
            let is_plain = *chunks == Chunks::default() && message_xid(inline) == Some(xid);
            return self.called(xid, message, is_plain);
        }
        // A server that grants nothing would stop the client permanently, so one call is still
        // sent; calls beyond the posted receives would have their replies dropped. RFC 8166 s3.3.1
        self.granted = header.credits.clamp(1, self.wanted);
        let mismatch = matches!(header.body, Body::Message(_)) && message_xid(inline) != Some(xid);
        let Some(waiting) = self.outstanding.get(&xid).filter(|_| !mismatch) else {
            self.unmatched += 1;
            return;
        };
        match header.body {
            Body::Error(error) => self.refused(xid, error),
            Body::Message(chunks) => match landed(waiting, &chunks) {
                Some(landed) => self.answered(xid, Message::Received(message), landed),
                None => self.misused(xid),
            },
            Body::NoMessage(chunks) => {
                let offered = waiting.reply_chunk.as_ref();
                let said = offered.zip(chunks.reply.as_ref()).and_then(|(ours, theirs)| used(ours, theirs));
                let said = said.and_then(|bytes| u32::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
                match said.zip(landed(waiting, &chunks)) {
                    Some((bytes, landed)) => self.answered(xid, Message::InChunk(bytes), landed),
                    None => self.misused(xid),
                }
            }
        }
    }

    /// Handles a call of the server; only a plain one, without chunks, can be answered.
    fn called(&mut self, xid: u32, message: Range<usize>, is_plain: bool) {
        if !is_plain {
            let bytes = self.reverse.refusal(xid);
            return self.outputs.push_back(Output::Send { xid, bytes, payload: None });
        }
        match self.reverse.handle_call(xid) {
            Verdict::HandOut => self.outputs.push_back(Output::Reverse(message)),
            Verdict::TooMany => self.close(CloseReason::Protocol),
        }
    }

    fn answered(&mut self, xid: u32, message: Message, landed: u32) {
        if self.outstanding.remove(&xid).is_some_and(|waiting| !waiting.abandoned) {
            self.outputs.push_back(Output::Reply { xid, message, landed });
        }
    }

    fn refused(&mut self, xid: u32, error: HeaderError) {
        match error {
            HeaderError::Chunk => self.fail(xid, CallError::Chunk),
            HeaderError::Other(code) => self.fail(xid, CallError::Unknown(code)),
            HeaderError::Version { low, high } => {
                self.fail(xid, CallError::Version { low, high });
                self.close(CloseReason::Protocol);
            }
        }
    }

    /// What the server wrote, and where, is unknown.
    fn misused(&mut self, xid: u32) {
        self.fail(xid, CallError::Misused);
        self.close(CloseReason::Protocol);
    }

    fn fail(&mut self, xid: u32, error: CallError) {
        if self.outstanding.remove(&xid).is_some_and(|waiting| !waiting.abandoned) {
            self.outputs.push_back(Output::Failed { xid, error });
        }
    }

    fn close(&mut self, reason: CloseReason) {
        if !self.closed {
            self.closed = true;
            self.outputs.push_back(Output::Close(reason));
        }
    }

    fn receive_bytes(&self) -> usize {
        usize::try_from(self.agreed.receive_bytes.max(INLINE_BYTES_DEFAULT)).unwrap_or(usize::MAX)
    }

    fn send_waiting(&mut self) {
        while !self.closed && self.outstanding.len() < usize::try_from(self.granted).unwrap_or(usize::MAX) {
            let Some(call) = self.queue.pop_front() else { return };
            self.send(call);
        }
    }

    fn send(&mut self, call: Call) {
        let header = self.header(&call);
        let mut bytes = Vec::with_capacity(header.encoded_bytes() + call.message.len());
        header.encode(&mut Writer::new(&mut bytes));
        let mut payload = None;
        if call.message_chunk.is_none() {
            bytes.extend_from_slice(&call.message);
            payload = inline_payload(&call).map(|bytes| (bytes, padded(bytes) - to_usize(bytes)));
        }
        let waiting =
            Waiting { receive_buffer: call.receive_buffer, reply_chunk: call.reply_chunk, abandoned: false };
        self.outstanding.insert(call.xid, waiting);
        self.outputs.push_back(Output::Send { xid: call.xid, bytes, payload });
    }

    fn header(&self, call: &Call) -> Header {
        let mut chunks = Chunks::default();
        let reads = |position, chunk: &Chunk| -> Vec<_> {
            chunk.iter().map(|segment| ReadSegment { position, segment: *segment }).collect()
        };
        if let Some(chunk) = &call.message_chunk {
            chunks.reads.extend(reads(0, chunk));
        }
        if let Some((_, Some(chunk))) = &call.payload {
            // Messages are far below 4 GiB. RFC 8166 s3.4.5
            let position = u32::try_from(call.message.len()).unwrap_or(u32::MAX);
            chunks.reads.extend(reads(position, chunk));
        }
        chunks.writes.extend(call.receive_buffer.clone());
        chunks.reply.clone_from(&call.reply_chunk);
        let body = if call.message_chunk.is_some() { Body::NoMessage(chunks) } else { Body::Message(chunks) };
        Header { xid: call.xid, credits: self.wanted, body }
    }

    fn sent_bytes(&self, call: &Call) -> usize {
        let header = self.header(call).encoded_bytes();
        let inline = if call.message_chunk.is_none() { call.message.len() } else { 0 };
        header + inline + inline_payload(call).map_or(0, padded)
    }
}

/// The number of directly placed bytes, according to the server's reply; `None` if that is
/// impossible. A server that leaves the list out has placed nothing.
fn landed(waiting: &Waiting, chunks: &Chunks) -> Option<u32> {
    match (&waiting.receive_buffer, chunks.writes.first()) {
        (_, None) => Some(0),
        (Some(ours), Some(theirs)) if chunks.writes.len() == 1 => used(ours, theirs)?.try_into().ok(),
        _ => None,
    }
}

fn inline_payload(call: &Call) -> Option<u32> {
    call.payload.as_ref().filter(|(_, chunk)| chunk.is_none()).map(|(bytes, _)| *bytes)
}

fn padded(bytes: u32) -> usize {
    let bytes = to_usize(bytes);
    bytes + padding(bytes)
}

fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

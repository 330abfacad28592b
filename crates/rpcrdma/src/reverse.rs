//! The other direction of a connection: the responder calls and the requester answers. RFC 8167
//!
//! Each direction has credits and xids of its own (s4). Messages of this direction are inline: no
//! chunk is offered, and none is accepted (s5). Both ends post receives for them besides those for
//! the first direction.

use crate::header::{Body, Chunks, Header, HeaderError};
use crate::{CALL, message_type, message_xid};
use std::collections::{BTreeSet, VecDeque};
use xdr::Writer;

/// Calls that may wait for credits.
const WAITING_MAX: usize = 1024;

/// Why a message of the other direction was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// Its bytes are no call, or no reply, of RPC.
    #[error("what is to be sent in the other direction is no message of the expected type")]
    Message,
    /// A call with this xid is outstanding.
    #[error("call {0:#010x} is outstanding already")]
    Outstanding(u32),
    /// No call with this xid waits for a reply.
    #[error("there is no call {0:#010x} to answer")]
    NoCall(u32),
    /// The message does not fit inline.
    #[error("message {0:#010x} does not fit inline, and the other direction has no chunks")]
    TooLong(u32),
    /// Too many calls wait for credits.
    #[error("{WAITING_MAX} calls of the other direction wait for credits")]
    Full,
    /// No receives were posted for replies.
    #[error("no calls are made in the other direction")]
    NotAllowed,
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
}

fn framed(xid: u32, credits: u32, message: &[u8]) -> Vec<u8> {
    let header = Header { xid, credits, body: Body::Message(Chunks::default()) };
    let mut bytes = Vec::with_capacity(header.encoded_bytes() + message.len());
    header.encode(&mut Writer::new(&mut bytes));
    bytes.extend_from_slice(message);
    bytes
}

fn fits(message: &[u8], send_bytes: u32) -> bool {
    let bytes = crate::header::HEADER_BYTES_MIN + message.len();
    u32::try_from(bytes).is_ok_and(|bytes| bytes <= send_bytes)
}

/// The end that calls.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    /// Credits that are asked for, and receives that are posted for replies.
    wanted: u32,
    granted: u32,
    outstanding: BTreeSet<u32>,
    queue: VecDeque<(u32, Vec<u8>)>,
}

impl Caller {
    /// Allows this many calls to be outstanding.
    pub fn allow(&mut self, wanted: u32) {
        // Until the first reply, one. RFC 8167 s4
        (self.wanted, self.granted) = (wanted, 1);
    }

    /// Accepts a call, which [`Caller::next`] returns when credits allow.
    pub fn call(&mut self, message: Vec<u8>, send_bytes: u32) -> Result<(), Misuse> {
        let xid = message_xid(&message).filter(|_| message_type(&message) == Some(CALL));
        let xid = xid.ok_or(Misuse::Message)?;
        if self.wanted == 0 {
            return Err(Misuse::NotAllowed);
        }
        if self.outstanding.contains(&xid) || self.queue.iter().any(|(queued, _)| *queued == xid) {
            return Err(Misuse::Outstanding(xid));
        }
        if !fits(&message, send_bytes) {
            return Err(Misuse::TooLong(xid));
        }
        if self.queue.len() >= WAITING_MAX {
            return Err(Misuse::Full);
        }
        self.queue.push_back((xid, message));
        Ok(())
    }

    /// The next call to send, framed.
    pub fn next(&mut self) -> Option<Vec<u8>> {
        if self.outstanding.len() >= usize::try_from(self.granted).unwrap_or(usize::MAX) {
            return None;
        }
        let (xid, message) = self.queue.pop_front()?;
        self.outstanding.insert(xid);
        Some(framed(xid, self.wanted, &message))
    }

    /// Handles a reply. Returns whether it answers a call.
    pub fn answered(&mut self, xid: u32, credits: u32) -> bool {
        if self.wanted > 0 {
            // Never 0, which would stop this end for good, and never more than the receives that
            // are posted for replies. RFC 8167 s4
            self.granted = credits.clamp(1, self.wanted);
        }
        self.outstanding.remove(&xid)
    }

    /// Handles an error of the transport's header. Returns whether a call has failed.
    pub fn failed(&mut self, xid: u32) -> bool {
        self.outstanding.remove(&xid)
    }

    pub fn outstanding(&self) -> (usize, usize) {
        (self.outstanding.len(), self.queue.len())
    }
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    HandOut,
    /// The end that calls has more calls outstanding than it was granted, or one twice.
    TooMany,
}

/// The end that answers.
#[derive(Debug, Default)]
pub(crate) struct Answerer {
    /// Credits that are granted, and receives that are posted for calls. With 0, calls are not
    /// expected: they are handed out and cannot be answered.
    granted: u32,
    outstanding: BTreeSet<u32>,
}

impl Answerer {
    /// Grants this many calls.
    pub fn grant(&mut self, credits: u32) {
        self.granted = credits;
    }

    /// Handles a call.
    pub fn handle_call(&mut self, xid: u32) -> Verdict {
        if self.granted == 0 {
            return Verdict::HandOut;
        }
        let full = self.outstanding.len() >= usize::try_from(self.granted).unwrap_or(usize::MAX);
        if full || !self.outstanding.insert(xid) { Verdict::TooMany } else { Verdict::HandOut }
    }

    /// Frames a reply.
    pub fn reply(&mut self, message: &[u8], send_bytes: u32) -> Result<(u32, Vec<u8>), Misuse> {
        let xid = message_xid(message).filter(|_| message_type(message).is_some_and(|kind| kind != CALL));
        let xid = xid.ok_or(Misuse::Message)?;
        if !self.outstanding.contains(&xid) {
            return Err(Misuse::NoCall(xid));
        }
        if !fits(message, send_bytes) {
            return Err(Misuse::TooLong(xid));
        }
        self.outstanding.remove(&xid);
        Ok((xid, framed(xid, self.granted, message)))
    }

    /// Frames the refusal of a call that offers chunks.
    pub fn refusal(&self, xid: u32) -> Vec<u8> {
        let header = Header { xid, credits: self.granted.max(1), body: Body::Error(HeaderError::Chunk) };
        let mut bytes = Vec::with_capacity(header.encoded_bytes());
        header.encode(&mut Writer::new(&mut bytes));
        bytes
    }
}

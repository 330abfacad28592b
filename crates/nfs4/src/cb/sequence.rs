//! CB_SEQUENCE: the slot of a callback, first in every one of a session. RFC 8881 s20.9

use crate::array::Array;
use crate::wire::wire_fields;
use crate::{SessionId, Status};

/// `referring_call4`: a request. RFC 8881 s20.9
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReferringCall {
    /// Its number on its slot.
    pub sequence: u32,
    /// Its slot.
    pub slot: u32,
}

wire_fields!(ReferringCall { sequence, slot });

/// `referring_call_list4`: requests that the callback is about, so that the client waits for their
/// replies first. RFC 8881 s20.9
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReferringCalls<'a> {
    /// Their session.
    pub session: SessionId,
    /// The requests.
    pub calls: Array<'a, ReferringCall>,
}

wire_fields!(ReferringCalls<'a> { session, calls });

/// `CB_SEQUENCE4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The session.
    pub session: SessionId,
    /// The number of the callback on its slot.
    pub sequence: u32,
    /// The slot.
    pub slot: u32,
    /// The highest slot that the server uses.
    pub highest_slot: u32,
    /// Whether the client is to keep the reply.
    pub cache: bool,
    /// Requests that the callback is about.
    pub referring: Array<'a, ReferringCalls<'a>>,
}

wire_fields!(Args<'a> { session, sequence, slot, highest_slot, cache, referring });

/// `CB_SEQUENCE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The session.
    pub session: SessionId,
    /// The number of the callback on its slot.
    pub sequence: u32,
    /// The slot.
    pub slot: u32,
    /// The highest slot that the client accepts.
    pub highest_slot: u32,
    /// The highest slot that the server should use.
    pub target_highest_slot: u32,
}

wire_fields!(Success { session, sequence, slot, highest_slot, target_highest_slot });

/// `CB_SEQUENCE4res`.
pub type Reply = Result<Success, Status>;

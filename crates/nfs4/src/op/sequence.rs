//! SEQUENCE: the slot of a request, first in almost every compound. RFC 8881 s18.46

use crate::wire::wire_fields;
use crate::{SessionId, Status};

/// `SEQUENCE4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The session.
    pub session: SessionId,
    /// The number of the request on its slot.
    pub sequence: u32,
    /// The slot.
    pub slot: u32,
    /// The highest slot that the client uses.
    pub highest_slot: u32,
    /// Whether the server is to keep the reply (`sa_cachethis`).
    pub cache: bool,
}

wire_fields!(Args { session, sequence, slot, highest_slot, cache });

/// What the server wants its client to know. RFC 8881 s18.46.3
pub mod flag {
    /// No connection carries callbacks, for any session of the client.
    pub const CB_PATH_DOWN: u32 = 0x0000_0001;
    /// Contexts of callbacks expire soon.
    pub const CB_GSS_CONTEXTS_EXPIRING: u32 = 0x0000_0002;
    /// Contexts of callbacks have expired.
    pub const CB_GSS_CONTEXTS_EXPIRED: u32 = 0x0000_0004;
    /// The lease has expired, and all state was revoked.
    pub const EXPIRED_ALL_STATE_REVOKED: u32 = 0x0000_0008;
    /// The lease had expired, and some state was revoked.
    pub const EXPIRED_SOME_STATE_REVOKED: u32 = 0x0000_0010;
    /// An administrator has revoked state.
    pub const ADMIN_STATE_REVOKED: u32 = 0x0000_0020;
    /// Delegations or layouts were revoked.
    pub const RECALLABLE_STATE_REVOKED: u32 = 0x0000_0040;
    /// A file system has moved.
    pub const LEASE_MOVED: u32 = 0x0000_0080;
    /// The server has restarted: reclaim.
    pub const RESTART_RECLAIM_NEEDED: u32 = 0x0000_0100;
    /// No connection carries callbacks, for this session.
    pub const CB_PATH_DOWN_SESSION: u32 = 0x0000_0200;
    /// The back channel is broken: bind a connection to it again.
    pub const BACKCHANNEL_FAULT: u32 = 0x0000_0400;
    /// A device id has changed.
    pub const DEVID_CHANGED: u32 = 0x0000_0800;
    /// A device id was deleted.
    pub const DEVID_DELETED: u32 = 0x0000_1000;
}

/// `SEQUENCE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The session.
    pub session: SessionId,
    /// The number of the request on its slot.
    pub sequence: u32,
    /// The slot.
    pub slot: u32,
    /// The highest slot that the server accepts.
    pub highest_slot: u32,
    /// The highest slot that the client should use.
    pub target_highest_slot: u32,
    /// [`flag`].
    pub flags: u32,
}

wire_fields!(Success { session, sequence, slot, highest_slot, target_highest_slot, flags });

/// `SEQUENCE4res`.
pub type Reply = Result<Success, Status>;

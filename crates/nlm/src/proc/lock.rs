//! LOCK: locks a range; NM_LOCK does so for a host that is not monitored. RFC 1813 s6.3.2, s6.3.16

use crate::wire::wire_fields;
use crate::{Lock, NetObj};

/// `nlm4_lockargs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// Chosen by the caller, and returned.
    pub cookie: NetObj<'a>,
    /// Whether to wait if another lock is in the way.
    pub block: bool,
    /// Whether the lock is to be exclusive.
    pub exclusive: bool,
    /// The lock.
    pub lock: Lock<'a>,
    /// Whether the caller held the lock before the server restarted.
    pub reclaim: bool,
    /// The state number of the caller's NSM.
    pub state: i32,
}

wire_fields!(Args<'a> { cookie, block, exclusive, lock, reclaim, state });

/// `nlm4_res`.
pub type Reply<'a> = super::Reply<'a>;

//! CANCEL: ends a request that waits. RFC 1813 s6.3.3

use crate::wire::wire_fields;
use crate::{Lock, NetObj};

/// `nlm4_cancargs`: as the LOCK that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// Chosen by the caller, and returned.
    pub cookie: NetObj<'a>,
    /// Whether the request waits.
    pub block: bool,
    /// Whether the lock was to be exclusive.
    pub exclusive: bool,
    /// The lock.
    pub lock: Lock<'a>,
}

wire_fields!(Args<'a> { cookie, block, exclusive, lock });

/// `nlm4_res`.
pub type Reply<'a> = super::Reply<'a>;

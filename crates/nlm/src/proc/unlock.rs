//! UNLOCK: unlocks a range. RFC 1813 s6.3.4

use crate::wire::wire_fields;
use crate::{Lock, NetObj};

/// `nlm4_unlockargs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// Chosen by the caller, and returned.
    pub cookie: NetObj<'a>,
    /// The range.
    pub lock: Lock<'a>,
}

wire_fields!(Args<'a> { cookie, lock });

/// `nlm4_res`.
pub type Reply<'a> = super::Reply<'a>;

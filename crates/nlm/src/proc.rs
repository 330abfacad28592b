//! The procedures, one file per family. RFC 1813 s6.3

pub mod cancel;
pub mod free_all;
pub mod granted;
pub mod lock;
pub mod share;
pub mod test;
pub mod unlock;

use crate::wire::wire_fields;
use crate::{NetObj, Status};

/// `nlm4_res`: the results of LOCK, CANCEL, UNLOCK and GRANTED, and of NM_LOCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The cookie of the request.
    pub cookie: NetObj<'a>,
    /// The outcome.
    pub status: Status,
}

wire_fields!(Reply<'a> { cookie, status });

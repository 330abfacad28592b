//! WRITE: writes data of the current file. The data travel beside the message; only what precedes
//! them is encoded here. RFC 8881 s18.32

use crate::wire::wire_fields;
use crate::{Stateid, Status};
use fs::{Stability, Verifier};

/// `WRITE4args` up to and including the length of the data. The data and their padding follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgsHead {
    /// An open, a lock or a delegation; or [`Stateid::ANONYMOUS`].
    pub stateid: Stateid,
    /// The first byte.
    pub offset: u64,
    /// How safe the data must be.
    pub stable: Stability,
    /// The number of bytes that follow.
    pub count: u32,
}

wire_fields!(ArgsHead { stateid, offset, stable, count });

/// `WRITE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The number of bytes written, which may be fewer than were sent.
    pub count: u32,
    /// How safe the data are.
    pub committed: Stability,
    /// The verifier (`writeverf`), which changes when unstable data may have been lost.
    pub verifier: Verifier,
}

wire_fields!(Success { count, committed, verifier });

/// `WRITE4res`.
pub type Reply = Result<Success, Status>;

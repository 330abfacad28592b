//! OFFLOAD_CANCEL and OFFLOAD_STATUS: a copy that is under way. RFC 7862 s15.8, s15.9

use crate::wire::wire_fields;
use crate::{Stateid, Status};

/// `OFFLOAD_CANCEL4args`. RFC 7862 s15.8
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelArgs {
    /// The copy.
    pub copy: Stateid,
}

wire_fields!(CancelArgs { copy });

/// `OFFLOAD_CANCEL4res`.
pub type CancelReply = Result<(), Status>;

/// `OFFLOAD_STATUS4args`. RFC 7862 s15.9
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusArgs {
    /// The copy.
    pub copy: Stateid,
}

wire_fields!(StatusArgs { copy });

/// `OFFLOAD_STATUS4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusSuccess {
    /// The number of bytes copied.
    pub count: u64,
    /// How the copy ended, if it has.
    pub complete: Option<Status>,
}

wire_fields!(StatusSuccess { count, complete });

/// `OFFLOAD_STATUS4res`.
pub type StatusReply = Result<StatusSuccess, Status>;

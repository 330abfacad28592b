//! READ: reads data of the current file. The data travel beside the message; only what precedes
//! them is encoded here. RFC 8881 s18.22

use crate::wire::wire_fields;
use crate::{Stateid, Status};

/// `READ4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// An open, a lock or a delegation; or [`Stateid::ANONYMOUS`].
    pub stateid: Stateid,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub count: u32,
}

wire_fields!(Args { stateid, offset, count });

/// `READ4resok` up to and including the length of the data. The data and their padding follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead {
    /// Whether the file ends with these bytes.
    pub eof: bool,
    /// The number of bytes that follow.
    pub count: u32,
}

wire_fields!(ReplyHead { eof, count });

/// `READ4res` up to the data.
pub type Reply = Result<ReplyHead, Status>;

//! SEEK: the next data, or the next hole, of the current file. RFC 7862 s15.11

use crate::wire::{wire_enum, wire_fields};
use crate::{Stateid, Status};

/// `data_content4`: what to look for. RFC 7862 s15.11
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// NFS4_CONTENT_DATA.
    Data,
    /// NFS4_CONTENT_HOLE.
    Hole,
}

wire_enum!(What { Data = 0, Hole = 1 });

/// `SEEK4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// An open.
    pub stateid: Stateid,
    /// Where to begin.
    pub offset: u64,
    /// What to look for.
    pub what: What,
}

wire_fields!(Args { stateid, offset, what });

/// `seek_res4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// Whether the file ends without any; of a hole: whether it is the one at the end of the file.
    pub eof: bool,
    /// Where it is.
    pub offset: u64,
}

wire_fields!(Success { eof, offset });

/// `SEEK4res`.
pub type Reply = Result<Success, Status>;

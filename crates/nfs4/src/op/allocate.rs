//! ALLOCATE and DEALLOCATE: reserve storage for a range of the current file, or make the range a
//! hole. RFC 7862 s15.1, s15.4

use crate::wire::wire_fields;
use crate::{Range, Stateid, Status};

/// `ALLOCATE4args`, and `DEALLOCATE4args`, which looks the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// An open for writing.
    pub stateid: Stateid,
    /// The range.
    pub range: Range,
}

wire_fields!(Args { stateid, range });

/// `ALLOCATE4res` and `DEALLOCATE4res`.
pub type Reply = Result<(), Status>;

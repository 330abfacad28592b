//! IO_ADVISE: how the current file will be used. RFC 7862 s15.5

use crate::wire::wire_fields;
use crate::{Bitmap, Range, Stateid, Status};

/// `IO_ADVISE4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// An open.
    pub stateid: Stateid,
    /// The range; a length of 0 reaches to the end of the file.
    pub range: Range,
    /// The hints, by number (`IO_ADVISE_type4`).
    pub hints: Bitmap,
}

wire_fields!(Args { stateid, range, hints });

/// `IO_ADVISE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The hints that the server will act on.
    pub hints: Bitmap,
}

wire_fields!(Success { hints });

/// `IO_ADVISE4res`.
pub type Reply = Result<Success, Status>;

//! RECLAIM_COMPLETE: the client reclaims nothing more. RFC 8881 s18.51

use crate::Status;
use crate::wire::wire_fields;

/// `RECLAIM_COMPLETE4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// Whether this is about the file system of the current object alone, which has moved here.
    pub one_file_system: bool,
}

wire_fields!(Args { one_file_system });

/// `RECLAIM_COMPLETE4res`.
pub type Reply = Result<(), Status>;

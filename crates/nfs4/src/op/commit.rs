//! COMMIT: makes written data of the current file stable. RFC 8881 s18.3

use crate::Status;
use crate::wire::wire_fields;
use fs::Verifier;

/// `COMMIT4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes; 0 reaches to the end of the file.
    pub count: u32,
}

wire_fields!(Args { offset, count });

/// `COMMIT4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The verifier, which changes when unstable data may have been lost (`writeverf`).
    pub verifier: Verifier,
}

wire_fields!(Success { verifier });

/// `COMMIT4res`.
pub type Reply = Result<Success, Status>;

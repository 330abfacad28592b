//! COMMIT: makes data of unstable writes stable. RFC 1813 s3.3.21

use crate::wire::wire_fields;
use crate::{FileHandle, Outcome, Verifier, WccData};

/// `COMMIT3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The file.
    pub file: FileHandle,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes; 0 means up to the end.
    pub count: u32,
}

wire_fields!(Args { file, offset, count });

/// `COMMIT3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The file before and after (`file_wcc`).
    pub file: WccData,
    /// The verifier (`verf`). If it differs from that of a write, the data of that write may be
    /// lost.
    pub verifier: Verifier,
}

wire_fields!(Success { file, verifier });

/// `COMMIT3resfail`: the file before and after.
pub type Failure = WccData;

/// `COMMIT3res`.
pub type Reply = Outcome<Success, Failure>;

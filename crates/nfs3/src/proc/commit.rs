//! COMMIT: makes data that were written unstable safe. RFC 1813 s3.3.21

use crate::wire::wire_fields;
use crate::{FileHandle, Outcome, Verifier, WccData};

/// `COMMIT3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The file.
    pub file: FileHandle,
    /// Where to start, in bytes.
    pub offset: u64,
    /// How many bytes; 0 means up to the end.
    pub count: u32,
}

wire_fields!(Args { file, offset, count });

/// `COMMIT3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The file before and after (`file_wcc`).
    pub file: WccData,
    /// The same as that of the writes, or their data may be lost (`verf`).
    pub verifier: Verifier,
}

wire_fields!(Success { file, verifier });

/// `COMMIT3resfail`: the file before and after.
pub type Failure = WccData;

/// `COMMIT3res`.
pub type Reply = Outcome<Success, Failure>;

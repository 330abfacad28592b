//! FSSTAT: space and objects of a file system, total and free. RFC 1813 s3.3.18

use crate::wire::wire_fields;
use crate::{FileHandle, Outcome, PostOpAttr};

/// `FSSTAT3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// Any object of the file system (`fsroot`).
    pub root: FileHandle,
}

wire_fields!(Args { root });

/// `FSSTAT3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The object's attributes (`obj_attributes`).
    pub attributes: PostOpAttr,
    /// Total bytes (`tbytes`).
    pub total_bytes: u64,
    /// Bytes free (`fbytes`).
    pub free_bytes: u64,
    /// Bytes available to the caller (`abytes`).
    pub available_bytes: u64,
    /// Total objects (`tfiles`).
    pub total_files: u64,
    /// Objects that can still be created (`ffiles`).
    pub free_files: u64,
    /// Objects that the caller may still create (`afiles`).
    pub available_files: u64,
    /// For how many seconds these values are not expected to change (`invarsec`).
    pub invariant_seconds: u32,
}

wire_fields!(Success {
    attributes,
    total_bytes,
    free_bytes,
    available_bytes,
    total_files,
    free_files,
    available_files,
    invariant_seconds,
});

/// `FSSTAT3resfail`: the object's attributes.
pub type Failure = PostOpAttr;

/// `FSSTAT3res`.
pub type Reply = Outcome<Success, Failure>;

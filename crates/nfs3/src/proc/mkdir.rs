//! MKDIR: creates a directory. RFC 1813 s3.3.9

use crate::wire::wire_fields;
use crate::{Created, DirOpArgs, Outcome, Sattr3, WccData};

/// `MKDIR3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The directory and the new name (`where`).
    pub location: DirOpArgs<'a>,
    /// The new directory's attributes.
    pub attributes: Sattr3,
}

wire_fields!(Args<'a> { location, attributes });

/// `MKDIR3resok`.
pub type Success = Created;

/// `MKDIR3resfail`: the directory before and after (`dir_wcc`).
pub type Failure = WccData;

/// `MKDIR3res`.
pub type Reply = Outcome<Success, Failure>;

//! REMOVE: removes a name that is not a directory's. RFC 1813 s3.3.12

use crate::wire::wire_fields;
use crate::{DirOpArgs, Outcome, WccData};

/// `REMOVE3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The directory and the name to remove.
    pub object: DirOpArgs<'a>,
}

wire_fields!(Args<'a> { object });

/// `REMOVE3resok`: the directory before and after (`dir_wcc`).
pub type Success = WccData;

/// `REMOVE3resfail`: the same.
pub type Failure = WccData;

/// `REMOVE3res`.
pub type Reply = Outcome<Success, Failure>;

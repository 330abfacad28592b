//! RMDIR: removes an empty directory. RFC 1813 s3.3.13

use crate::wire::wire_fields;
use crate::{DirOpArgs, Outcome, WccData};

/// `RMDIR3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The directory and the name to remove.
    pub object: DirOpArgs<'a>,
}

wire_fields!(Args<'a> { object });

/// `RMDIR3resok`: the directory before and after (`dir_wcc`).
pub type Success = WccData;

/// `RMDIR3resfail`: the same.
pub type Failure = WccData;

/// `RMDIR3res`.
pub type Reply = Outcome<Success, Failure>;

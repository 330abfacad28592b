//! REMOVE: removes a name of anything but a directory. RFC 1813 s3.3.12

use crate::wire::wire_fields;
use crate::{DirOpArgs, Outcome, WccData};

/// `REMOVE3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The directory and the name in it that goes.
    pub object: DirOpArgs<'a>,
}

wire_fields!(Args<'a> { object });

/// `REMOVE3resok`: the directory before and after (`dir_wcc`).
pub type Success = WccData;

/// `REMOVE3resfail`: likewise.
pub type Failure = WccData;

/// `REMOVE3res`.
pub type Reply = Outcome<Success, Failure>;

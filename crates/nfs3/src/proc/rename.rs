//! RENAME: gives an object another name, in place of what has that name. RFC 1813 s3.3.14

use crate::wire::wire_fields;
use crate::{DirOpArgs, Outcome, WccData};

/// `RENAME3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The directory and the name in it that goes.
    pub from: DirOpArgs<'a>,
    /// The directory and the name in it that comes.
    pub to: DirOpArgs<'a>,
}

wire_fields!(Args<'a> { from, to });

/// `RENAME3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Success {
    /// The directory that the name left, before and after (`fromdir_wcc`).
    pub from: WccData,
    /// The directory that it came to (`todir_wcc`).
    pub to: WccData,
}

wire_fields!(Success { from, to });

/// `RENAME3resfail`: likewise.
pub type Failure = Success;

/// `RENAME3res`.
pub type Reply = Outcome<Success, Failure>;

//! RENAME: gives an object another name, and replaces an object that has this name. RFC 1813
//! s3.3.14

use crate::wire::wire_fields;
use crate::{DirOpArgs, Outcome, WccData};

/// `RENAME3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The directory and the old name.
    pub from: DirOpArgs<'a>,
    /// The directory and the new name.
    pub to: DirOpArgs<'a>,
}

wire_fields!(Args<'a> { from, to });

/// `RENAME3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Success {
    /// The old directory before and after (`fromdir_wcc`).
    pub from: WccData,
    /// The new directory before and after (`todir_wcc`).
    pub to: WccData,
}

wire_fields!(Success { from, to });

/// `RENAME3resfail`: the same.
pub type Failure = Success;

/// `RENAME3res`.
pub type Reply = Outcome<Success, Failure>;

//! LINK: gives an object another name. RFC 1813 s3.3.15

use crate::wire::wire_fields;
use crate::{DirOpArgs, FileHandle, Outcome, PostOpAttr, WccData};

/// `LINK3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The object.
    pub file: FileHandle,
    /// The directory and the new name.
    pub link: DirOpArgs<'a>,
}

wire_fields!(Args<'a> { file, link });

/// `LINK3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Success {
    /// The object's attributes (`file_attributes`).
    pub attributes: PostOpAttr,
    /// The directory before and after (`linkdir_wcc`).
    pub directory: WccData,
}

wire_fields!(Success { attributes, directory });

/// `LINK3resfail`: the same.
pub type Failure = Success;

/// `LINK3res`.
pub type Reply = Outcome<Success, Failure>;

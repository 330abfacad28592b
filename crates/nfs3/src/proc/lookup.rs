//! LOOKUP: finds the object with a name in a directory. RFC 1813 s3.3.3

use crate::wire::wire_fields;
use crate::{DirOpArgs, FileHandle, Outcome, PostOpAttr};

/// `LOOKUP3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The directory and the name.
    pub what: DirOpArgs<'a>,
}

wire_fields!(Args<'a> { what });

/// `LOOKUP3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The object.
    pub object: FileHandle,
    /// The object's attributes (`obj_attributes`).
    pub attributes: PostOpAttr,
    /// The directory's attributes (`dir_attributes`).
    pub directory: PostOpAttr,
}

wire_fields!(Success { object, attributes, directory });

/// `LOOKUP3resfail`: the directory's attributes.
pub type Failure = PostOpAttr;

/// `LOOKUP3res`.
pub type Reply = Outcome<Success, Failure>;

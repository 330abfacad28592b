//! ACCESS: asks which of some rights the caller has. RFC 1813 s3.3.4

use crate::wire::wire_fields;
use crate::{FileHandle, Outcome, PostOpAttr};

/// ACCESS3_READ: read data, or list a directory.
pub const READ: u32 = 0x01;
/// ACCESS3_LOOKUP: look up names in a directory.
pub const LOOKUP: u32 = 0x02;
/// ACCESS3_MODIFY: rewrite data, or change entries of a directory.
pub const MODIFY: u32 = 0x04;
/// ACCESS3_EXTEND: write new data, or add entries to a directory.
pub const EXTEND: u32 = 0x08;
/// ACCESS3_DELETE: delete an entry of a directory.
pub const DELETE: u32 = 0x10;
/// ACCESS3_EXECUTE: execute a file.
pub const EXECUTE: u32 = 0x20;
/// All six rights.
pub const ALL: u32 = READ | LOOKUP | MODIFY | EXTEND | DELETE | EXECUTE;

/// `ACCESS3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The object.
    pub object: FileHandle,
    /// The requested rights, as bits. The server ignores unknown bits.
    pub access: u32,
}

wire_fields!(Args { object, access });

/// `ACCESS3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The object's attributes (`obj_attributes`).
    pub attributes: PostOpAttr,
    /// The requested rights that the caller has.
    pub access: u32,
}

wire_fields!(Success { attributes, access });

/// `ACCESS3resfail`: the object's attributes.
pub type Failure = PostOpAttr;

/// `ACCESS3res`.
pub type Reply = Outcome<Success, Failure>;

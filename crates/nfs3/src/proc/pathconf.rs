//! PATHCONF: limits of names and links. RFC 1813 s3.3.20

use crate::wire::wire_fields;
use crate::{FileHandle, Outcome, PostOpAttr};

/// `PATHCONF3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The object.
    pub object: FileHandle,
}

wire_fields!(Args { object });

/// `PATHCONF3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The object's attributes (`obj_attributes`).
    pub attributes: PostOpAttr,
    /// The maximum number of hard links (`linkmax`).
    pub links_max: u32,
    /// The longest name, in bytes (`name_max`).
    pub name_bytes_max: u32,
    /// Whether a longer name is an error rather than truncated (`no_trunc`).
    pub no_truncation: bool,
    /// Whether only root may give a file to another owner.
    pub chown_restricted: bool,
    /// Whether names that differ only in case are the same.
    pub case_insensitive: bool,
    /// Whether case is kept.
    pub case_preserving: bool,
}

wire_fields!(Success {
    attributes,
    links_max,
    name_bytes_max,
    no_truncation,
    chown_restricted,
    case_insensitive,
    case_preserving,
});

/// `PATHCONF3resfail`: the object's attributes.
pub type Failure = PostOpAttr;

/// `PATHCONF3res`.
pub type Reply = Outcome<Success, Failure>;

//! GETATTR: the attributes of an object. RFC 1813 s3.3.1

use crate::wire::wire_fields;
use crate::{Fattr3, FileHandle, Outcome};

/// `GETATTR3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The object.
    pub object: FileHandle,
}

wire_fields!(Args { object });

/// `GETATTR3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The object's attributes (`obj_attributes`).
    pub attributes: Fattr3,
}

wire_fields!(Success { attributes });

/// A failure carries nothing.
pub type Failure = ();

/// `GETATTR3res`.
pub type Reply = Outcome<Success, Failure>;

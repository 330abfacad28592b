//! SETATTR: sets attributes, if the object still matches the guard. RFC 1813 s3.3.2

use crate::wire::wire_fields;
use crate::{FileHandle, NfsTime, Outcome, Sattr3, WccData};

/// `SETATTR3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The object.
    pub object: FileHandle,
    /// The attributes to set.
    pub new_attributes: Sattr3,
    /// The ctime that the object must still have (`sattrguard3`).
    pub guard: Option<NfsTime>,
}

wire_fields!(Args { object, new_attributes, guard });

/// `SETATTR3resok`: the object before and after (`obj_wcc`).
pub type Success = WccData;

/// `SETATTR3resfail`: the same.
pub type Failure = WccData;

/// `SETATTR3res`.
pub type Reply = Outcome<Success, Failure>;

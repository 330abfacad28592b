//! FSINFO: the sizes that a server supports, and its properties. RFC 1813 s3.3.19

use crate::wire::wire_fields;
use crate::{FileHandle, NfsTime, Outcome, PostOpAttr};

/// FSF3_LINK: hard links.
pub const LINK: u32 = 0x01;
/// FSF3_SYMLINK: symbolic links.
pub const SYMLINK: u32 = 0x02;
/// FSF3_HOMOGENEOUS: PATHCONF returns the same for every object.
pub const HOMOGENEOUS: u32 = 0x08;
/// FSF3_CANSETTIME: SETATTR sets times to the resolution of `time_delta`.
pub const CAN_SET_TIME: u32 = 0x10;

/// `FSINFO3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The root of the file system (`fsroot`).
    pub root: FileHandle,
}

wire_fields!(Args { root });

/// `FSINFO3resok`. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The root's attributes (`obj_attributes`).
    pub attributes: PostOpAttr,
    /// The maximum size of a READ (`rtmax`).
    pub read_max: u32,
    /// The preferred size of a READ (`rtpref`).
    pub read_preferred: u32,
    /// The size of a READ should be a multiple of this (`rtmult`).
    pub read_multiple: u32,
    /// The maximum size of a WRITE (`wtmax`).
    pub write_max: u32,
    /// The preferred size of a WRITE (`wtpref`).
    pub write_preferred: u32,
    /// The size of a WRITE should be a multiple of this (`wtmult`).
    pub write_multiple: u32,
    /// The preferred size of a READDIR (`dtpref`).
    pub directory_preferred: u32,
    /// The maximum size of a file (`maxfilesize`).
    pub file_bytes_max: u64,
    /// The resolution of times (`time_delta`).
    pub time_delta: NfsTime,
    /// The properties of the file system, as bits.
    pub properties: u32,
}

wire_fields!(Success {
    attributes,
    read_max,
    read_preferred,
    read_multiple,
    write_max,
    write_preferred,
    write_multiple,
    directory_preferred,
    file_bytes_max,
    time_delta,
    properties,
});

/// `FSINFO3resfail`: the root's attributes.
pub type Failure = PostOpAttr;

/// `FSINFO3res`.
pub type Reply = Outcome<Success, Failure>;

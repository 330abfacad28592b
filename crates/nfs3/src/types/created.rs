//! What CREATE, MKDIR, SYMLINK and MKNOD answer alike. RFC 1813 s3.3.8 to s3.3.11

use super::{FileHandle, PostOpAttr, WccData};
use crate::wire::wire_fields;

/// `CREATE3resok` and its three likes: the new object and its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The new object; absent where the server leaves the client to look it up (`obj`).
    pub object: Option<FileHandle>,
    /// Its attributes (`obj_attributes`).
    pub attributes: PostOpAttr,
    /// The directory before and after (`dir_wcc`).
    pub directory: WccData,
}

wire_fields!(Created { object, attributes, directory });

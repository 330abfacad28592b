//! The common result of CREATE, MKDIR, SYMLINK and MKNOD. RFC 1813 s3.3.8 to s3.3.11

use super::{FileHandle, PostOpAttr, WccData};
use crate::wire::wire_fields;

/// `CREATE3resok`, `MKDIR3resok`, `SYMLINK3resok` and `MKNOD3resok`: the new object and its
/// directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The new object (`obj`); absent if the server leaves the lookup to the client.
    pub object: Option<FileHandle>,
    /// The object's attributes (`obj_attributes`).
    pub attributes: PostOpAttr,
    /// The directory before and after (`dir_wcc`).
    pub directory: WccData,
}

wire_fields!(Created { object, attributes, directory });

//! Weak cache consistency, RFC 1813 s2.6 (`wcc_attr`, `wcc_data`): an object right before and after
//! an operation.

use super::{NfsTime, PostOpAttr};
use crate::wire::wire_fields;

/// `wcc_attr`: the attributes that show whether an object changed. RFC 1813 s2.6
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WccAttr {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime: NfsTime,
    /// Last change of the attributes.
    pub ctime: NfsTime,
}

wire_fields!(WccAttr { size, mtime, ctime });

/// `wcc_data`: the attributes before and after; each is absent if the server does not provide it.
/// RFC 1813 s2.6
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WccData {
    /// Before the operation.
    pub before: Option<WccAttr>,
    /// After the operation.
    pub after: PostOpAttr,
}

wire_fields!(WccData { before, after });

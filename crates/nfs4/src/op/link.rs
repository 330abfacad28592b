//! LINK, REMOVE and RENAME. RFC 8881 s18.9, s18.25, s18.26

use crate::wire::wire_fields;
use crate::{ChangeInfo, Status};

/// `LINK4args`. RFC 8881 s18.9
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkArgs<'a> {
    /// The saved object's further name in the current directory.
    pub name: &'a [u8],
}

wire_fields!(LinkArgs<'a> { name });

/// `LINK4res`: the directory before and after.
pub type LinkReply = Result<ChangeInfo, Status>;

/// `REMOVE4args`. RFC 8881 s18.25
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoveArgs<'a> {
    /// The name in the current directory.
    pub name: &'a [u8],
}

wire_fields!(RemoveArgs<'a> { name });

/// `REMOVE4res`: the directory before and after.
pub type RemoveReply = Result<ChangeInfo, Status>;

/// `RENAME4args`. RFC 8881 s18.26
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenameArgs<'a> {
    /// The name in the saved directory.
    pub old: &'a [u8],
    /// The name in the current directory.
    pub new: &'a [u8],
}

wire_fields!(RenameArgs<'a> { old, new });

/// `RENAME4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenameSuccess {
    /// The saved directory before and after.
    pub source: ChangeInfo,
    /// The current directory before and after.
    pub target: ChangeInfo,
}

wire_fields!(RenameSuccess { source, target });

/// `RENAME4res`.
pub type RenameReply = Result<RenameSuccess, Status>;

//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR: extended attributes of the current object.
//! RFC 8276 s8.4

use crate::array::Array;
use crate::wire::{wire_enum, wire_fields};
use crate::{ChangeInfo, Status};

/// `GETXATTR4args`. RFC 8276 s8.4.1
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetArgs<'a> {
    /// The name, without the "user." that Linux puts before it.
    pub name: &'a [u8],
}

wire_fields!(GetArgs<'a> { name });

/// `GETXATTR4res`: the value.
pub type GetReply<'a> = Result<&'a [u8], Status>;

/// `setxattr_option4`. RFC 8276 s8.4.2
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetOption {
    /// SETXATTR4_EITHER: make or replace.
    Either,
    /// SETXATTR4_CREATE: the attribute must not exist.
    Create,
    /// SETXATTR4_REPLACE: the attribute must exist.
    Replace,
}

wire_enum!(SetOption { Either = 0, Create = 1, Replace = 2 });

/// `SETXATTR4args`. RFC 8276 s8.4.2
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetArgs<'a> {
    /// Whether the attribute may exist.
    pub option: SetOption,
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

wire_fields!(SetArgs<'a> { option, name, value });

/// `SETXATTR4res`: the object before and after.
pub type SetReply = Result<ChangeInfo, Status>;

/// `LISTXATTRS4args`. RFC 8276 s8.4.3
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListArgs {
    /// Where to continue; 0 for the start.
    pub cookie: u64,
    /// The maximum size of `LISTXATTRS4resok`, in bytes.
    pub count_max: u32,
}

wire_fields!(ListArgs { cookie, count_max });

/// `LISTXATTRS4resok`. RFC 8276 s8.4.3
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListSuccess<'a> {
    /// The position after the last name.
    pub cookie: u64,
    /// The names.
    pub names: Array<'a, &'a [u8]>,
    /// Whether the list ends with these names.
    pub eof: bool,
}

wire_fields!(ListSuccess<'a> { cookie, names, eof });

/// `LISTXATTRS4res`.
pub type ListReply<'a> = Result<ListSuccess<'a>, Status>;

/// `REMOVEXATTR4args`. RFC 8276 s8.4.4
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoveArgs<'a> {
    /// The name.
    pub name: &'a [u8],
}

wire_fields!(RemoveArgs<'a> { name });

/// `REMOVEXATTR4res`: the object before and after.
pub type RemoveReply = Result<ChangeInfo, Status>;

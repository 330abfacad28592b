//! CB_GETATTR, CB_RECALL, CB_PUSH_DELEG, CB_RECALL_ANY, CB_RECALLABLE_OBJ_AVAIL, CB_RECALL_SLOT and
//! CB_WANTS_CANCELLED: what a server says about state that it has given. RFC 8881 s20.1, s20.2,
//! s20.5 to s20.8, s20.10

use crate::op::open::Delegation;
use crate::wire::wire_fields;
use crate::{Bitmap, Fattr, Stateid, Status};
use fs::FileHandle;

/// `CB_GETATTR4args`. RFC 8881 s20.1
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetAttrArgs {
    /// A file for which the client has a delegation for writing.
    pub file: FileHandle,
    /// The attributes: `change` and `size`, and the times of RFC 9754.
    pub wanted: Bitmap,
}

wire_fields!(GetAttrArgs { file, wanted });

/// `CB_GETATTR4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetAttrSuccess<'a> {
    /// The attributes.
    pub attributes: Fattr<'a>,
}

wire_fields!(GetAttrSuccess<'a> { attributes });

/// `CB_GETATTR4res`.
pub type GetAttrReply<'a> = Result<GetAttrSuccess<'a>, Status>;

/// `CB_RECALL4args`. RFC 8881 s20.2
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The delegation.
    pub delegation: Stateid,
    /// Whether the file is about to be truncated, so that its data need not be written back.
    pub truncate: bool,
    /// The file.
    pub file: FileHandle,
}

wire_fields!(Args { delegation, truncate, file });

/// `CB_PUSH_DELEG4args`. RFC 8881 s20.5
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushArgs<'a> {
    /// The file.
    pub file: FileHandle,
    /// The delegation.
    pub delegation: Delegation<'a>,
}

wire_fields!(PushArgs<'a> { file, delegation });

/// The numbers of `craa_type_mask`. RFC 8881 s20.6.3
pub mod any {
    /// Delegations for reading.
    pub const READ_DELEGATIONS: u32 = 0;
    /// Delegations for writing.
    pub const WRITE_DELEGATIONS: u32 = 1;
    /// Delegations of directories.
    pub const DIRECTORY_DELEGATIONS: u32 = 2;
    /// Layouts of the type of files.
    pub const FILE_LAYOUTS: u32 = 3;
}

/// `CB_RECALL_ANY4args`, and `CB_RECALLABLE_OBJ_AVAIL4args`, which looks the same. RFC 8881 s20.6,
/// s20.7
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnyArgs {
    /// How many the client may keep.
    pub keep: u32,
    /// Of which kinds: [`any`].
    pub kinds: Bitmap,
}

wire_fields!(AnyArgs { keep, kinds });

/// `CB_RECALL_SLOT4args`. RFC 8881 s20.8
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotArgs {
    /// The highest slot that the client may keep.
    pub target_highest_slot: u32,
}

wire_fields!(SlotArgs { target_highest_slot });

/// `CB_WANTS_CANCELLED4args`. RFC 8881 s20.10
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantsCancelledArgs {
    /// Those that waited for other clients.
    pub contended: bool,
    /// Those that waited for resources.
    pub resourced: bool,
}

wire_fields!(WantsCancelledArgs { contended, resourced });

/// The result of all these callbacks but CB_GETATTR.
pub type Reply = Result<(), Status>;

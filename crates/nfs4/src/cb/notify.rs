//! CB_NOTIFY, CB_NOTIFY_LOCK and CB_NOTIFY_DEVICEID. RFC 8881 s20.4, s20.11, s20.12

use crate::array::Array;
use crate::wire::wire_fields;
use crate::{Bitmap, StateOwner, Stateid, Status};
use fs::FileHandle;

/// `notify4`: notifications of several kinds. RFC 8881 s20.4
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification<'a> {
    /// The kinds (`notify_type4` or `notify_deviceid_type4`).
    pub kinds: Bitmap,
    /// The notifications, by ascending kind, not decoded.
    pub values: &'a [u8],
}

wire_fields!(Notification<'a> { kinds, values });

/// `CB_NOTIFY4args`. RFC 8881 s20.4
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The delegation of the directory.
    pub delegation: Stateid,
    /// The directory.
    pub directory: FileHandle,
    /// What has changed.
    pub changes: Array<'a, Notification<'a>>,
}

wire_fields!(Args<'a> { delegation, directory, changes });

/// `CB_NOTIFY_LOCK4args`. RFC 8881 s20.11
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockArgs<'a> {
    /// The file.
    pub file: FileHandle,
    /// Who was denied a lock.
    pub owner: StateOwner<'a>,
}

wire_fields!(LockArgs<'a> { file, owner });

/// `CB_NOTIFY_DEVICEID4args`. RFC 8881 s20.12
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceIdArgs<'a> {
    /// What has changed.
    pub changes: Array<'a, Notification<'a>>,
}

wire_fields!(DeviceIdArgs<'a> { changes });

/// The result of these callbacks.
pub type Reply = Result<(), Status>;

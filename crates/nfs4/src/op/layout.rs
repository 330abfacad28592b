//! GETDEVICEINFO, LAYOUTGET, LAYOUTCOMMIT and LAYOUTRETURN: where the data of a file are, RFC 8881
//! s18.40 to s18.44; and the layout type of files, s13.
//!
//! What is specific to a layout type is opaque data here; [`files`] has the content for the layout
//! type of files.

use crate::array::Array;
use crate::wire::{wire_enum, wire_fields};
use crate::{Bitmap, Range, Stateid, Status, Wire};
use fs::Time;
use xdr::{Error, Reader, Writer};

pub mod files;

/// `deviceid4`: a server's name for a device. RFC 8881 s3.3.14
pub type DeviceId = [u8; 16];

/// LAYOUT4_NFSV4_1_FILES, the number of the layout type of files. RFC 8881 s3.3.13
pub const TYPE_FILES: u32 = 1;

/// `layoutiomode4`. RFC 8881 s3.3.20
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoMode {
    /// LAYOUTIOMODE4_READ.
    Read,
    /// LAYOUTIOMODE4_RW.
    ReadWrite,
    /// LAYOUTIOMODE4_ANY: of a return or a recall only.
    Any,
}

wire_enum!(IoMode { Read = 1, ReadWrite = 2, Any = 3 });

/// `GETDEVICEINFO4args`. RFC 8881 s18.40
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceArgs {
    /// The device.
    pub device: DeviceId,
    /// The layout type.
    pub layout_type: u32,
    /// The maximum size of the `device_addr4`, in bytes; 0 to be told of changes only.
    pub count_max: u32,
    /// Of which changes the client wants to be told (`notify_deviceid_type4`).
    pub notify: Bitmap,
}

wire_fields!(DeviceArgs { device, layout_type, count_max, notify });

/// `GETDEVICEINFO4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSuccess<'a> {
    /// The layout type.
    pub layout_type: u32,
    /// The addresses: [`files::Device`] for the layout type of files.
    pub address: &'a [u8],
    /// Of which changes the server will tell.
    pub notify: Bitmap,
}

wire_fields!(DeviceSuccess<'a> { layout_type, address, notify });

/// `GETDEVICEINFO4res`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceReply<'a> {
    /// The device.
    Device(DeviceSuccess<'a>),
    /// NFS4ERR_TOOSMALL: as many bytes are needed.
    TooSmall(u32),
    /// Any other failure.
    Failed(Status),
}

impl DeviceReply<'_> {
    /// The status on the wire.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Device(_) => Status::OK,
            Self::TooSmall(_) => Status::TOOSMALL,
            Self::Failed(status) => *status,
        }
    }
}

impl<'a> Wire<'a> for DeviceReply<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Device(Wire::decode(reader)?),
            Status::TOOSMALL => Self::TooSmall(reader.u32()?),
            status => Self::Failed(status),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.status().encode(writer);
        match self {
            Self::Device(success) => success.encode(writer),
            Self::TooSmall(needed) => writer.u32(*needed),
            Self::Failed(_) => {}
        }
    }
}

/// `LAYOUTGET4args`. RFC 8881 s18.43
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetArgs {
    /// Whether the client wants to be told when a layout can be had later.
    pub signal: bool,
    /// The layout type.
    pub layout_type: u32,
    /// For reading or writing.
    pub mode: IoMode,
    /// The range.
    pub range: Range,
    /// The least length that is of use.
    pub length_min: u64,
    /// An open, a lock or a delegation; or the layout, for a further one of the file.
    pub stateid: Stateid,
    /// The maximum size of the layouts, in bytes.
    pub count_max: u32,
}

wire_fields!(GetArgs { signal, layout_type, mode, range, length_min, stateid, count_max });

/// `layout4`: where a range of a file is. RFC 8881 s3.3.17
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout<'a> {
    /// The range.
    pub range: Range,
    /// For reading or writing.
    pub mode: IoMode,
    /// The layout type.
    pub layout_type: u32,
    /// The layout: [`files::Layout`] for the layout type of files.
    pub body: &'a [u8],
}

wire_fields!(Layout<'a> { range, mode, layout_type, body });

/// `LAYOUTGET4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetSuccess<'a> {
    /// Whether the client must return the layout when it closes the file.
    pub return_on_close: bool,
    /// The layout's stateid.
    pub stateid: Stateid,
    /// The layouts, ascending by range.
    pub layouts: Array<'a, Layout<'a>>,
}

wire_fields!(GetSuccess<'a> { return_on_close, stateid, layouts });

/// `LAYOUTGET4res`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetReply<'a> {
    /// Granted.
    Granted(GetSuccess<'a>),
    /// NFS4ERR_LAYOUTTRYLATER; the flag says whether the server will tell when.
    TryLater(bool),
    /// Any other failure.
    Failed(Status),
}

impl GetReply<'_> {
    /// The status on the wire.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Granted(_) => Status::OK,
            Self::TryLater(_) => Status::LAYOUTTRYLATER,
            Self::Failed(status) => *status,
        }
    }
}

impl<'a> Wire<'a> for GetReply<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Granted(Wire::decode(reader)?),
            Status::LAYOUTTRYLATER => Self::TryLater(reader.bool()?),
            status => Self::Failed(status),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.status().encode(writer);
        match self {
            Self::Granted(success) => success.encode(writer),
            Self::TryLater(will_tell) => writer.bool(*will_tell),
            Self::Failed(_) => {}
        }
    }
}

/// `LAYOUTCOMMIT4args`. RFC 8881 s18.42
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitArgs<'a> {
    /// The range that was written.
    pub range: Range,
    /// Whether the server restarted in between.
    pub reclaim: bool,
    /// The layout.
    pub stateid: Stateid,
    /// The last byte that was written (`newoffset4`).
    pub last_write: Option<u64>,
    /// When it was written (`newtime4`).
    pub time_modify: Option<Time>,
    /// The layout type.
    pub layout_type: u32,
    /// What the layout type adds; nothing for that of files.
    pub body: &'a [u8],
}

wire_fields!(CommitArgs<'a> { range, reclaim, stateid, last_write, time_modify, layout_type, body });

/// `LAYOUTCOMMIT4res`: the file's size, if it has changed.
pub type CommitReply = Result<Option<u64>, Status>;

/// `layoutreturn4`: which layouts. RFC 8881 s18.44
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned<'a> {
    /// LAYOUTRETURN4_FILE: a range of the current file (`layoutreturn_file4`).
    File {
        /// The range.
        range: Range,
        /// The layout.
        stateid: Stateid,
        /// What the layout type adds; nothing for that of files.
        body: &'a [u8],
    },
    /// LAYOUTRETURN4_FSID: all of the current object's file system.
    FileSystem,
    /// LAYOUTRETURN4_ALL: all of the client.
    All,
}

impl<'a> Wire<'a> for Returned<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match reader.u32()? {
            1 => Self::File {
                range: Wire::decode(reader)?,
                stateid: Wire::decode(reader)?,
                body: Wire::decode(reader)?,
            },
            2 => Self::FileSystem,
            3 => Self::All,
            value => return Err(Error::BadDiscriminant { name: "layoutreturn_type4", value }),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::File { range, stateid, body } => {
                writer.u32(1);
                range.encode(writer);
                stateid.encode(writer);
                body.encode(writer);
            }
            Self::FileSystem => writer.u32(2),
            Self::All => writer.u32(3),
        }
    }
}

/// `LAYOUTRETURN4args`. RFC 8881 s18.44
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReturnArgs<'a> {
    /// Whether the server restarted in between.
    pub reclaim: bool,
    /// The layout type.
    pub layout_type: u32,
    /// For reading, writing or both.
    pub mode: IoMode,
    /// Which layouts.
    pub returned: Returned<'a>,
}

wire_fields!(ReturnArgs<'a> { reclaim, layout_type, mode, returned });

/// `LAYOUTRETURN4res`: the layout's stateid, if the client still has a part of it.
pub type ReturnReply = Result<Option<Stateid>, Status>;

//! The attributes of an object, and how to set them.

use crate::{Time, Version};

/// The type of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
}

/// The two numbers of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The attributes of an object, as `stat` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// What the object is.
    pub kind: FileKind,
    /// Permission bits, with set-user-id, set-group-id and sticky: the low 12 bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// The numbers of a device, zero for other objects.
    pub rdev: Device,
    /// The file system's number. A protocol with a longer number folds it into 64 bits.
    pub fsid: u64,
    /// The object's number within the file system.
    pub fileid: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
    /// A number that differs between any two states of the object: of its data, its names (for a
    /// directory) and its attributes, except the time of the last access. Zero if the protocol does
    /// not carry it. RFC 8881 s5.8.1.4 (change)
    pub change: u64,
}

impl Attributes {
    /// The attributes of an object of which only the type is known: one link, and zero in all other
    /// fields.
    #[must_use]
    pub const fn of(kind: FileKind) -> Self {
        const ZERO: Time = Time::from_seconds(0);
        Self {
            kind,
            mode: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            rdev: Device { major: 0, minor: 0 },
            fsid: 0,
            fileid: 0,
            atime: ZERO,
            mtime: ZERO,
            ctime: ZERO,
            change: 0,
        }
    }

    /// The version of the object's data, which changes whenever the data do.
    #[must_use]
    pub const fn version(&self) -> Version {
        Version { size: self.size, mtime: self.mtime, ctime: self.ctime, change: self.change }
    }
}

/// How to set one of the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leave the time as it is.
    #[default]
    Keep,
    /// The server's clock.
    Now,
    /// This time.
    To(Time),
}

/// The attributes to set; absent ones are left unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates, or extends with a hole.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the content.
    pub mtime: SetTime,
}

impl SetAttributes {
    /// Sets the permission bits alone.
    #[must_use]
    pub fn mode(mode: u32) -> Self {
        Self { mode: Some(mode), ..Self::default() }
    }
}

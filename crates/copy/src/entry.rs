//! Names and attributes in a form common to both sides.

use fs::{Attributes, Device, FileHandle, FileKind, Time};
use rustix::fs::Stat;

/// The name of the kind of an object, with its article.
pub(crate) const fn describe(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "a file",
        FileKind::Directory => "a directory",
        FileKind::Symlink => "a symbolic link",
        FileKind::Fifo => "a named pipe",
        FileKind::Socket => "a socket",
        FileKind::CharacterDevice => "a character device",
        FileKind::BlockDevice => "a block device",
    }
}

/// Whether a copied file may replace an object of this kind. Pipes, sockets and devices are not
/// replaced, because they are not an older version of a file.
pub(crate) const fn is_replaceable_by_file(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Symlink)
}

/// Whether two times are equal, even if one file system stores no fractions of a second.
pub(crate) const fn agree(one: Time, other: Time) -> bool {
    one.seconds == other.seconds
        && (one.nanoseconds == other.nanoseconds || one.nanoseconds == 0 || other.nanoseconds == 0)
}

/// Whether a file has holes.
pub(crate) const fn is_sparse(of: &Attributes) -> bool {
    of.used < of.size
}

/// The kind of a local object.
pub(crate) fn kind_of(mode: rustix::fs::RawMode) -> FileKind {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => FileKind::Directory,
        rustix::fs::FileType::Symlink => FileKind::Symlink,
        rustix::fs::FileType::Fifo => FileKind::Fifo,
        rustix::fs::FileType::Socket => FileKind::Socket,
        rustix::fs::FileType::CharacterDevice => FileKind::CharacterDevice,
        rustix::fs::FileType::BlockDevice => FileKind::BlockDevice,
        rustix::fs::FileType::RegularFile | rustix::fs::FileType::Unknown => FileKind::Regular,
    }
}

/// The attributes of a local object.
pub(crate) fn attributes_of(stat: &Stat) -> Attributes {
    let time = |seconds, nanoseconds: u64| Time {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or_default(),
    };
    Attributes {
        kind: kind_of(stat.st_mode),
        mode: stat.st_mode & 0o7777,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        // Blocks are of 512 bytes here, whatever the block size of the file system.
        used: u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512),
        rdev: Device { major: rustix::fs::major(stat.st_rdev), minor: rustix::fs::minor(stat.st_rdev) },
        fsid: stat.st_dev,
        fileid: stat.st_ino,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        // A local object has none.
        change: 0,
    }
}

/// A name in a directory, and its object.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name: any bytes.
    pub name: Vec<u8>,
    /// The object's attributes.
    pub attributes: Attributes,
    /// The object's handle; `None` for a local object.
    pub handle: Option<FileHandle>,
}

impl Entry {
    /// An entry for a stream, of which nothing is known.
    pub(crate) fn of_stream() -> Self {
        let attributes = Attributes { mode: 0o666, ..Attributes::of(FileKind::Regular) };
        Self { name: Vec::new(), attributes, handle: None }
    }
}

/// The attributes that a copy is to get.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewAttributes {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner and group; left unchanged if this user may not set them.
    pub owner: Option<(u32, u32)>,
    /// Last access and last change.
    pub times: Option<(Time, Time)>,
}

impl NewAttributes {
    pub(crate) const fn is_empty(&self) -> bool {
        self.mode.is_none() && self.owner.is_none() && self.times.is_none()
    }

    /// The attributes to set if the owner may not be set: without set-user-ID and set-group-ID,
    /// which would give another user's program the rights of this user.
    pub(crate) fn without_owner(self) -> Self {
        Self { mode: self.mode.map(|mode| mode & 0o1777), owner: None, times: self.times }
    }
}

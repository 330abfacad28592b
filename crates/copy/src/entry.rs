//! Names and attributes as both sides have them.

use fs::{FileHandle, FileKind};
use rustix::fs::Stat;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// In a word, with its article.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
        }
    }
}

impl Kind {
    /// Whether a file that is copied may take its name: what has no content of its own is not a file's older state.
    #[must_use]
    pub(crate) const fn gives_way_to_a_file(self) -> bool {
        matches!(self, Self::File | Self::Symlink)
    }
}

/// A time since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds besides.
    pub nanoseconds: u32,
}

impl Time {
    /// Whether two times are one, as far as file systems that keep no fractions can tell.
    pub(crate) fn agrees(self, other: Self) -> bool {
        self.seconds == other.seconds
            && (self.nanoseconds == other.nanoseconds || self.nanoseconds == 0 || other.nanoseconds == 0)
    }
}

/// What is known of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: Kind,
    /// Permissions, with those for set-user-ID and the like.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes that it occupies.
    pub used: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// How many names it has.
    pub links: u32,
    /// File system and number in it.
    pub id: (u64, u64),
    /// Last access.
    pub atime: Time,
    /// Last change of its content.
    pub mtime: Time,
    /// Last change of it or its attributes.
    pub ctime: Time,
}

impl Attributes {
    /// Whether a file has holes.
    #[must_use]
    pub const fn is_sparse(&self) -> bool {
        self.used < self.size
    }
}

impl From<&fs::Attributes> for Attributes {
    fn from(of: &fs::Attributes) -> Self {
        let time = |time: fs::Time| Time { seconds: time.seconds, nanoseconds: time.nanoseconds };
        Self {
            kind: match of.kind {
                FileKind::Regular => Kind::File,
                FileKind::Directory => Kind::Directory,
                FileKind::Symlink => Kind::Symlink,
                FileKind::Fifo => Kind::Fifo,
                FileKind::Socket => Kind::Socket,
                FileKind::CharacterDevice => Kind::CharacterDevice,
                FileKind::BlockDevice => Kind::BlockDevice,
            },
            mode: of.mode & 0o7777,
            uid: of.uid,
            gid: of.gid,
            size: of.size,
            used: of.used,
            device: (of.rdev.major, of.rdev.minor),
            links: of.nlink,
            id: (of.fsid, of.fileid),
            atime: time(of.atime),
            mtime: time(of.mtime),
            ctime: time(of.ctime),
        }
    }
}

impl From<&Stat> for Attributes {
    fn from(of: &Stat) -> Self {
        let time = |seconds, nanoseconds: u64| Time {
            seconds,
            nanoseconds: u32::try_from(nanoseconds).unwrap_or_default(),
        };
        Self {
            kind: match rustix::fs::FileType::from_raw_mode(of.st_mode) {
                rustix::fs::FileType::Directory => Kind::Directory,
                rustix::fs::FileType::Symlink => Kind::Symlink,
                rustix::fs::FileType::Fifo => Kind::Fifo,
                rustix::fs::FileType::Socket => Kind::Socket,
                rustix::fs::FileType::CharacterDevice => Kind::CharacterDevice,
                rustix::fs::FileType::BlockDevice => Kind::BlockDevice,
                rustix::fs::FileType::RegularFile | rustix::fs::FileType::Unknown => Kind::File,
            },
            mode: of.st_mode & 0o7777,
            uid: of.st_uid,
            gid: of.st_gid,
            size: u64::try_from(of.st_size).unwrap_or_default(),
            // Blocks are of 512 bytes, whatever the file system's own are.
            used: u64::try_from(of.st_blocks).unwrap_or_default().saturating_mul(512),
            device: (rustix::fs::major(of.st_rdev), rustix::fs::minor(of.st_rdev)),
            links: u32::try_from(of.st_nlink).unwrap_or(u32::MAX),
            id: (of.st_dev, of.st_ino),
            atime: time(of.st_atime, of.st_atime_nsec),
            mtime: time(of.st_mtime, of.st_mtime_nsec),
            ctime: time(of.st_ctime, of.st_ctime_nsec),
        }
    }
}

/// A name in a directory, and what it names.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name: any bytes.
    pub name: Vec<u8>,
    /// What it is.
    pub attributes: Attributes,
    /// How its server names it.
    pub handle: Option<FileHandle>,
}

impl Entry {
    /// What stands for a stream, of which nothing is known.
    pub(crate) fn of_stream() -> Self {
        let never = Time { seconds: 0, nanoseconds: 0 };
        let attributes = Attributes {
            kind: Kind::File,
            mode: 0o666,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: (0, 0),
            links: 1,
            id: (0, 0),
            atime: never,
            mtime: never,
            ctime: never,
        };
        Self { name: Vec::new(), attributes, handle: None }
    }
}

/// Attributes that an object is to get.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewAttributes {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner and group; left as they are where this user may not set them.
    pub owner: Option<(u32, u32)>,
    /// Last access and last change.
    pub times: Option<(Time, Time)>,
}

impl NewAttributes {
    pub(crate) const fn is_empty(&self) -> bool {
        self.mode.is_none() && self.owner.is_none() && self.times.is_none()
    }

    /// What is left where the owner may not be set: nobody else's program gets this user's rights.
    pub(crate) fn without_owner(self) -> Self {
        Self { mode: self.mode.map(|mode| mode & 0o1777), owner: None, times: self.times }
    }
}

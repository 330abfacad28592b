//! How objects are created and how safely data are stored.

use crate::{Device, FileKind, SetAttributes, Verifier};

/// What to do about an existing name when a regular file is created. RFC 1813 s3.3.8, RFC 8881
/// s18.16
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// Use an existing file, and set these attributes.
    Unchecked(SetAttributes),
    /// An existing name is an error.
    Guarded(SetAttributes),
    /// An existing file that was created with the same verifier is a success.
    Exclusive(Verifier),
}

/// An object that is neither file, directory nor symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// A block device.
    BlockDevice(Device),
    /// A character device.
    CharacterDevice(Device),
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
}

impl Special {
    /// The kind of the object.
    #[must_use]
    pub const fn kind(self) -> FileKind {
        match self {
            Self::BlockDevice(_) => FileKind::BlockDevice,
            Self::CharacterDevice(_) => FileKind::CharacterDevice,
            Self::Socket => FileKind::Socket,
            Self::Fifo => FileKind::Fifo,
        }
    }
}

/// How safe written data are when a write is answered. RFC 1813 s3.3.7, RFC 8881 s18.32
/// (stable_how)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// The data may be lost until they are committed.
    Unstable,
    /// The data are safe, together with the metadata needed to find them.
    DataSync,
    /// The data are safe, together with all attributes.
    FileSync,
}

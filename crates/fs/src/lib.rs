//! The common types of a file system: handles, attributes, statuses, directories.
//!
//! Everything above the protocol crates uses these types, so that a file protocol can be added
//! without a change to the mount, the copy or the programs. Values that a protocol cannot express
//! (a time before 1970 in NFS version 3) are adjusted where its messages are encoded.
//!
//! Invariants: plain data without I/O; numbers from a server that are unknown here are kept as
//! numbers. The types are constructed by field name (`..Attributes::of(kind)`), so that a field can
//! be added.
//!
//! Left out: payload, which never passes through these types; and every wire format.
#![forbid(unsafe_code)]

mod attributes;
mod change;
mod create;
mod directory;
mod handle;
mod rights;
mod status;
mod time;
mod volume;

pub use attributes::{Attributes, Device, FileKind, SetAttributes, SetTime};
pub use change::{Change, Effect, Version};
pub use create::{CreateMode, Special, Stability};
pub use directory::{DirectoryEntry, DirectoryPage, DirectoryPosition};
pub use handle::{FileHandle, HANDLE_BYTES_MAX, Handle};
pub use rights::Rights;
pub use status::Status;
pub use time::Time;
pub use volume::{FileSystemInfo, Limits, Space, TransferSizes};

/// Eight opaque bytes: the verifier of an exclusive CREATE, of the cookies of a directory, or of a
/// server's unstable data.
pub type Verifier = [u8; 8];

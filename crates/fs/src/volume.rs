//! File systems as a whole: space, limits, and what a server moves at once.

use std::time::Duration;

/// Space and objects of a file system, total and free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes that the caller may still use.
    pub available_bytes: u64,
    /// Objects in all.
    pub total_files: u64,
    /// Objects that can still be made.
    pub free_files: u64,
    /// Objects that the caller may still make.
    pub available_files: u64,
}

/// Limits of names and links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most hard links.
    pub links_max: u32,
    /// The longest name, in bytes.
    pub name_bytes_max: u32,
    /// Whether a longer name is an error rather than cut.
    pub no_truncation: bool,
    /// Whether only root may give a file to another owner.
    pub chown_restricted: bool,
    /// Whether names that differ in case only are the same.
    pub case_insensitive: bool,
    /// Whether case is kept.
    pub case_preserving: bool,
}

/// How much one READ or one WRITE moves, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransferSizes {
    /// The most.
    pub max: u32,
    /// What should be asked for.
    pub preferred: u32,
    /// What the size should be a multiple of.
    pub multiple: u32,
}

/// What a server says of a file system when it is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemInfo {
    /// Of READ.
    pub read: TransferSizes,
    /// Of WRITE.
    pub write: TransferSizes,
    /// Bytes that a page of a directory should have.
    pub directory_preferred: u32,
    /// The largest file, in bytes.
    pub file_bytes_max: u64,
    /// The resolution of times.
    pub time_delta: Duration,
    /// Whether there are hard links.
    pub has_links: bool,
    /// Whether there are symbolic links.
    pub has_symlinks: bool,
    /// Whether [`Limits`] are the same for every object.
    pub is_homogeneous: bool,
    /// Whether times can be set to the resolution of `time_delta`.
    pub can_set_time: bool,
}

//! File systems as a whole: space, limits, and transfer sizes.

use std::time::Duration;

/// Space and objects of a file system, total and free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Total bytes.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes available to the caller.
    pub available_bytes: u64,
    /// Total objects.
    pub total_files: u64,
    /// Objects that can still be created.
    pub free_files: u64,
    /// Objects that the caller may still create.
    pub available_files: u64,
}

/// Limits of names and links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of hard links.
    pub links_max: u32,
    /// The longest name, in bytes.
    pub name_bytes_max: u32,
    /// Whether a longer name is an error rather than truncated.
    pub no_truncation: bool,
    /// Whether only root may give a file to another owner.
    pub chown_restricted: bool,
    /// Whether names that differ only in case are the same.
    pub case_insensitive: bool,
    /// Whether case is kept.
    pub case_preserving: bool,
}

/// The sizes of one READ or one WRITE, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransferSizes {
    /// The maximum size.
    pub max: u32,
    /// The size to ask for.
    pub preferred: u32,
    /// The size should be a multiple of this.
    pub multiple: u32,
}

/// A server's information about a file system when it is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemInfo {
    /// The sizes of a READ.
    pub read: TransferSizes,
    /// The sizes of a WRITE.
    pub write: TransferSizes,
    /// The preferred size of a page of a directory, in bytes.
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

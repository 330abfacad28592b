//! What a mount holds at a moment, for whoever looks after it.

use crate::core::Core;

/// Where nobody uses the directory, all but the objects go back to what they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauges {
    /// Objects that the kernel remembers, as long as it likes.
    pub objects: usize,
    /// Handles of files.
    pub open_files: usize,
    /// Handles of directories.
    pub open_directories: usize,
    /// Data, and what it takes to keep them, that the server does not have yet.
    pub unsent_bytes: usize,
    /// What was read ahead, or is to be.
    pub ahead_bytes: usize,
    /// Memory that is kept for the next requests.
    pub kept_bytes: usize,
}

impl Core {
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges {
            objects: self.inodes.count(),
            open_files: self.files.count(),
            open_directories: self.directories.count(),
            unsent_bytes: self.budget.held(),
            ahead_bytes: self.ahead_budget.bytes(),
            kept_bytes: self.buffers.kept_bytes(),
        }
    }
}

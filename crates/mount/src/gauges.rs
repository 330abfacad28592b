//! What a mount holds now, for monitoring.

use crate::core::Core;

/// When no program uses the directory, all values but `objects` return to their initial level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauges {
    /// Objects that the kernel remembers, for as long as it chooses.
    pub objects: usize,
    /// Open handles of files.
    pub open_files: usize,
    /// Open handles of directories.
    pub open_directories: usize,
    /// Data that the server does not have yet, with their overhead.
    pub unsent_bytes: usize,
    /// Bytes that were read ahead, or are being read ahead.
    pub read_ahead_bytes: usize,
    /// Memory that is pooled for later requests.
    pub pooled_bytes: usize,
}

impl Core {
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges {
            objects: self.inodes.count(),
            open_files: self.files.count(),
            open_directories: self.directories.count(),
            unsent_bytes: self.budget.held(),
            read_ahead_bytes: self.read_ahead_budget.bytes(),
            pooled_bytes: self.buffers.pooled_bytes(),
        }
    }
}

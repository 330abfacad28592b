//! A file as memory, visible to the rest of the code only as a slice of atomic numbers.

#![allow(unsafe_code)]

use super::layout::WORD;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A mapping shared with other processes.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping consists of atomics, and stays mapped as long as `self` lives.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `words` words of a file that is at least as long.
    ///
    /// If the file is truncated, the kernel ends a process that accesses bytes behind its end
    /// (SIGBUS); such an access never reads other memory.
    pub fn new(file: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), words * WORD, protection, MapFlags::SHARED, file, 0)?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, words })
    }

    /// All words of the mapping.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping starts at a page, has this length, and lives as long as `self`. Every
        // value of the bytes is a valid number, and all threads, of this process and of others,
        // change the words only atomically.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no reference to the mapping can exist any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * WORD) };
    }
}

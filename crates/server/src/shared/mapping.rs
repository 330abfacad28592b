//! A file as memory: a slice of atomic numbers, which is all that anybody here sees of it.

#![allow(unsafe_code)]

use super::layout::WORD;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A mapping that other processes share.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: what it points to is atomic, and stays mapped as long as this lives.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `words` words of a file that is at least as long.
    ///
    /// Should somebody make the file shorter, the kernel ends a process that goes behind its end
    /// (SIGBUS); it never reads other memory.
    pub fn new(file: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), words * WORD, protection, MapFlags::SHARED, file, 0)?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, words })
    }

    /// All of it.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: a mapping starts at a page, has this length, and lives as long as `self`; every
        // value of the bytes is a number, and others, of this process and of others, change them by
        // atomic steps only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody can have a reference any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * WORD) };
    }
}

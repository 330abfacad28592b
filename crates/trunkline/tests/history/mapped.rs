//! A file mapped into memory, read and written a word at a time while other processes use it.
#![allow(unsafe_code)]

use crate::stamp::WORD_BYTES;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A shared mapping of a whole file.
pub struct Mapping {
    start: *mut u8,
    bytes: usize,
}

impl Mapping {
    /// The file must have this length and keep it: a process that accesses memory after the end of
    /// the file is killed.
    pub fn of(file: &File, bytes: usize) -> Self {
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory in use.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
        };
        Self { start: start.expect("a file can be mapped").cast(), bytes }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD_BYTES) && offset + WORD_BYTES <= self.bytes);
        // SAFETY: the word is within the mapping, which lives as long as `self`, and is aligned,
        // since the mapping begins at a page. Others that map or write the file are other processes
        // or the kernel; threads of this process access the memory only here.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    pub fn load(&self, offset: usize, into: &mut [u8]) {
        for (at, bytes) in into.chunks_exact_mut(WORD_BYTES).enumerate() {
            bytes.copy_from_slice(&self.word(offset + at * WORD_BYTES).load(Ordering::Relaxed).to_ne_bytes());
        }
        // No word is loaded after the time that the caller reads next.
        fence(Ordering::SeqCst);
    }

    pub fn store(&self, offset: usize, data: &[u8]) {
        for (at, bytes) in data.chunks_exact(WORD_BYTES).enumerate() {
            let word = u64::from_ne_bytes(bytes.try_into().expect("a word"));
            self.word(offset + at * WORD_BYTES).store(word, Ordering::Relaxed);
        }
        // Other processes see all words before the time that the caller reads next.
        fence(Ordering::SeqCst);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `of`, with this length, and no reference into the mapping remains.
        // Unmapping a valid mapping cannot fail.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

//! Mapped files of file systems in memory, so that a send gathers the pages of the file directly.
//!
//! No code in this process reads mapped bytes: they are passed to the kernel, which reports a page
//! that is gone (the file was truncated meanwhile) as a bad address, where a read in this process
//! would end it by a signal. The send then fails, and so does its connection; see [`distrust`].

#![allow(unsafe_code)]

use super::node::now;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Shorter files are read: copying their data costs less than mapping them.
pub(super) const FILE_BYTES_MIN: u64 = 128 << 10;
/// How long no file is sent from mapped pages after a send failed because of one.
const DISTRUST_PERIOD: Duration = Duration::from_secs(60);

static DISTRUSTED_UNTIL_MS: AtomicU64 = AtomicU64::new(0);

/// Called when a send failed because mapped pages were gone. For a while data are read before they
/// are sent, so that a client that sends the call again gets a reply.
pub fn distrust() {
    DISTRUSTED_UNTIL_MS.store(milliseconds(now() + DISTRUST_PERIOD), Ordering::Relaxed);
}

/// Whether files may be sent from mapped pages.
pub(super) fn is_trusted() -> bool {
    milliseconds(now()) >= DISTRUSTED_UNTIL_MS.load(Ordering::Relaxed)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The pages of a file from its beginning, with room for the file to grow.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the mapping and not to a thread, and no code of ours writes to it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file for reading; the length is rounded up to a power of two.
    pub fn new(fd: BorrowedFd<'_>, file_bytes: u64) -> rustix::io::Result<Self> {
        let len = file_bytes.checked_next_power_of_two().and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or(rustix::io::Errno::NOMEM)?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, fd, 0)? };
        let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { start, len })
    }

    pub const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and every part of the mapping keeps it alive.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Part of a mapped file.
pub(crate) struct Mapped {
    mapping: Arc<Mapping>,
    at: usize,
    len: usize,
}

impl Mapped {
    /// `None` beyond the end of the mapping.
    pub fn new(mapping: &Arc<Mapping>, offset: u64, len: usize) -> Option<Self> {
        let at = usize::try_from(offset).ok()?;
        at.checked_add(len).filter(|&end| end <= mapping.len)?;
        Some(Self { mapping: Arc::clone(mapping), at, len })
    }

    /// The length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The memory, for a system call that gathers. This is the only way to it.
    #[inline]
    pub fn for_kernel(&self) -> IoSlice<'_> {
        // SAFETY: `new` checked that the range lies within the mapping, which lives as long as
        // `self`. The file may change meanwhile; no code here accesses the bytes, and their
        // receiver requested them while the change was in progress.
        IoSlice::new(unsafe {
            std::slice::from_raw_parts(self.mapping.start.as_ptr().add(self.at), self.len)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_send_that_failed_nothing_is_sent_from_mapped_pages() {
        assert!(is_trusted());
        distrust();
        assert!(!is_trusted());
    }

    #[test]
    fn a_part_beyond_what_is_mapped_is_none() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(200 << 10).unwrap();
        let mapping = Arc::new(Mapping::new(std::os::fd::AsFd::as_fd(&file), 200 << 10).unwrap());
        assert_eq!(mapping.len(), 256 << 10);
        assert_eq!(Mapped::new(&mapping, 100, 1000).unwrap().len(), 1000);
        assert!(Mapped::new(&mapping, 255 << 10, 1025).is_none());
        assert!(Mapped::new(&mapping, u64::MAX, 1).is_none());
    }
}

//! Files of a file system in memory as memory of this process, so that a send gathers their very
//! pages.
//!
//! Nobody in this process reads mapped bytes: they are handed to the kernel, which takes a page
//! that is gone (the file got shorter meanwhile) for a bad address, where a read of ours would end
//! the process by a signal. The send then fails, and so does its connection; see [`distrust`].

#![allow(unsafe_code)]

use super::node::now;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A shorter file is read: its data cost less to copy than to map.
pub(super) const FILE_BYTES_MIN: u64 = 128 << 10;
/// How long no file is sent from mapped pages after a send that failed by one.
const DISTRUST_FOR: Duration = Duration::from_secs(60);

static DISTRUSTED_UNTIL_MS: AtomicU64 = AtomicU64::new(0);

/// A send failed because mapped pages were gone. For a while data are read before they are sent, so
/// that whoever asks again gets an answer.
pub fn distrust() {
    DISTRUSTED_UNTIL_MS.store(milliseconds(now() + DISTRUST_FOR), Ordering::Relaxed);
}

/// Whether files may be sent from mapped pages.
pub(super) fn is_trusted() -> bool {
    milliseconds(now()) >= DISTRUSTED_UNTIL_MS.load(Ordering::Relaxed)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A file's pages, from its beginning, with room for it to grow.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the mapping and not to a thread, and nothing of ours writes to it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file for reading, with as much room again as it has bytes.
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
        // SAFETY: mapped by `new`, and whoever has a part of it keeps it alive.
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
    /// `None` beyond what is mapped.
    pub fn new(mapping: &Arc<Mapping>, offset: u64, len: usize) -> Option<Self> {
        let at = usize::try_from(offset).ok()?;
        at.checked_add(len).filter(|&end| end <= mapping.len)?;
        Some(Self { mapping: Arc::clone(mapping), at, len })
    }

    /// The memory. To be handed to the kernel only, see the module.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: within the mapping, as `new` made sure, which lives as long as `self`. Others may
        // change the file meanwhile; nobody looks at the bytes here, and who receives them has
        // asked for them while that went on.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr().add(self.at), self.len) }
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
        assert_eq!(Mapped::new(&mapping, 100, 1000).unwrap().bytes().len(), 1000);
        assert!(Mapped::new(&mapping, 255 << 10, 1025).is_none());
        assert!(Mapped::new(&mapping, u64::MAX, 1).is_none());
    }
}

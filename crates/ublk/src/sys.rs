//! System calls for which there is no safe wrapper. No function here keeps a pointer after its
//! call.

#![allow(unsafe_code)]

use crate::wire::DESCRIPTOR_BYTES;
use rustix::ioctl::{NoArg, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;

/// Tells the kernel that this thread, and those that it starts from now on, serve a block device:
/// to free memory they never wait for what they serve themselves. Where the system refuses, as in a
/// container, nothing changes.
pub fn serve_io() {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: the call has numbers only.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
}

/// Locks a byte for this open file (`F_OFD_SETLK`). False if another open file has it locked. The
/// lock goes with the last reference to the open file.
pub(crate) fn lock_byte(file: BorrowedFd<'_>, at: u32) -> io::Result<bool> {
    let mut byte = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at.into(),
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and `byte` is a valid `flock` for the kernel to read.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut byte) } {
        -1 => {
            let error = io::Error::last_os_error();
            let is_held = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES));
            if is_held { Ok(false) } else { Err(error) }
        }
        _ => Ok(true),
    }
}

/// Writes what the kernel has of a block device in memory, also of a file system that is mounted
/// from it (`BLKFLSBUF`).
pub(crate) fn write_back(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request has no argument.
    Ok(unsafe { rustix::ioctl::ioctl(device, NoArg::<{ opcode::none(0x12, 97) }>::new()) }?)
}

/// The descriptors of a queue's requests, which the driver writes.
#[derive(Debug)]
pub(crate) struct Descriptors {
    start: NonNull<u8>,
    bytes: usize,
    depth: u16,
}

// SAFETY: the memory belongs to the mapping and not to a thread, and is only read.
unsafe impl Send for Descriptors {}

/// A descriptor: `ublksrv_io_desc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Descriptor {
    pub(crate) operation: u32,
    pub(crate) sectors: u32,
    pub(crate) start_sector: u64,
    _address: u64,
}

const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR_BYTES);

impl Descriptors {
    /// Maps those of queue 0 of a device.
    pub(crate) fn map(device: BorrowedFd<'_>, depth: u16) -> io::Result<Self> {
        let bytes = (usize::from(depth) * DESCRIPTOR_BYTES).next_multiple_of(rustix::param::page_size());
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, device, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes, depth })
    }

    /// That of a request which the driver has handed over.
    pub(crate) fn of(&self, tag: u16) -> Option<Descriptor> {
        if tag >= self.depth {
            return None;
        }
        let descriptors = self.start.as_ptr().cast::<Descriptor>();
        // SAFETY: the tag is within the mapping, which begins on a page and lives as long as
        // `self`. The driver writes a descriptor before it hands the request over, and not again
        // before that is completed; whatever is read, each value of the type is valid.
        Some(unsafe { descriptors.add(tag.into()).read_volatile() })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nothing else refers to it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_byte_is_locked_by_one_open_file_and_is_free_when_that_is_closed() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || std::fs::File::options().read(true).write(true).open(file.path()).expect("the file");
        let (one, other) = (open(), open());
        assert!(lock_byte(one.as_fd(), 3).expect("a lock"));
        assert!(!lock_byte(other.as_fd(), 3).expect("an answer"));
        assert!(lock_byte(other.as_fd(), 4).expect("a lock of another byte"));
        drop(one);
        assert!(lock_byte(other.as_fd(), 3).expect("a lock"));
    }
}

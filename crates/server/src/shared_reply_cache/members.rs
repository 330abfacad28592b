//! Locks on ranges of a file that the kernel releases when the process that holds them ends.
//!
//! The locks belong to the open file description (`F_OFD_SETLK`), which a process closes when its
//! last thread has ended. A killed thread ends only after its system call has returned, so once
//! such a lock is released, nothing that its process did can take effect any more.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn range(kind: libc::c_int, from: i64, len: i64) -> libc::flock {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::c_short::try_from(kind).unwrap_or_default();
    range.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default();
    (range.l_start, range.l_len) = (from, len);
    range
}

fn ask(file: BorrowedFd<'_>, command: libc::c_int, range: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open, and `range` is a valid `flock` for the kernel to read and
    // write.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(range)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Locks one byte, unless another open file has it locked.
pub(super) fn try_lock(file: BorrowedFd<'_>, at: i64) -> io::Result<bool> {
    match ask(file, libc::F_OFD_SETLK, &mut range(libc::F_WRLCK, at, 1)) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases the lock.
pub(super) fn unlock(file: BorrowedFd<'_>, at: i64) {
    let _ = ask(file, libc::F_OFD_SETLK, &mut range(libc::F_UNLCK, at, 1));
}

/// Whether another open file has any byte of the range locked.
pub(super) fn is_locked(file: BorrowedFd<'_>, from: i64, len: i64) -> io::Result<bool> {
    let mut range = range(libc::F_WRLCK, from, len);
    ask(file, libc::F_OFD_GETLK, &mut range)?;
    Ok(i32::from(range.l_type) != libc::F_UNLCK)
}

//! System calls for which there is no safe wrapper: locks of an open file, and requests to block
//! devices. No function here keeps a pointer after its call.

#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `BLKGETSIZE64` and its like, of `linux/fs.h`.
const BLOCK_GROUP: u8 = 0x12;

/// Locks the whole file for this open file (`F_OFD_SETLK`). False if another open file has it
/// locked. The lock goes with the last reference to the open file: those of this process, and those
/// of operations that the kernel still executes for it.
pub(crate) fn lock_whole(file: BorrowedFd<'_>) -> io::Result<bool> {
    let mut whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and `whole` is a valid `flock` for the kernel to read.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut whole) } {
        -1 => {
            let error = io::Error::last_os_error();
            let held = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES));
            if held { Ok(false) } else { Err(error) }
        }
        _ => Ok(true),
    }
}

/// The size of a block device in bytes.
pub(crate) fn device_bytes(device: BorrowedFd<'_>) -> Result<u64, Errno> {
    const BLKGETSIZE64: Opcode = opcode::read::<usize>(BLOCK_GROUP, 114);
    // SAFETY: the request writes 64 bits, whatever the type in its number says.
    unsafe { ioctl(device, Getter::<BLKGETSIZE64, u64>::new()) }
}

/// Gives back the storage of a range of a block device.
pub(crate) fn device_discard(device: BorrowedFd<'_>, at: u64, bytes: u64) -> Result<(), Errno> {
    const BLKDISCARD: Opcode = opcode::none(BLOCK_GROUP, 119);
    // SAFETY: the request reads two numbers of 64 bits.
    unsafe { ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new([at, bytes])) }
}

/// Has a range of a block device read as zeros, and keeps its storage.
pub(crate) fn device_zero(device: BorrowedFd<'_>, at: u64, bytes: u64) -> Result<(), Errno> {
    const BLKZEROOUT: Opcode = opcode::none(BLOCK_GROUP, 127);
    // SAFETY: the request reads two numbers of 64 bits.
    unsafe { ioctl(device, Setter::<BLKZEROOUT, [u64; 2]>::new([at, bytes])) }
}

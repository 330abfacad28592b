//! System calls for which there is no safe wrapper: kernel file handles, and the identity of one
//! thread.
//!
//! The identity calls are raw system calls, because the C library's `setgroups` changes all threads
//! of the process. No function here keeps a pointer after its call.

#![allow(unsafe_code)]

use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The longest handle that the kernel gives (`MAX_HANDLE_SZ`).
const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle`.
#[repr(C)]
pub(super) struct KernelHandle {
    bytes: u32,
    /// The type of handle that the file system made.
    pub of_type: i32,
    data: [u8; HANDLE_BYTES_MAX],
}

impl KernelHandle {
    /// `None` if the handle is longer than the kernel accepts.
    pub fn new(of_type: i32, handle: &[u8]) -> Option<Self> {
        let mut data = [0; HANDLE_BYTES_MAX];
        data.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(Self { bytes: u32::try_from(handle.len()).ok()?, of_type, data })
    }

    /// The bytes of the handle.
    pub fn as_slice(&self) -> &[u8] {
        usize::try_from(self.bytes).ok().and_then(|len| self.data.get(..len)).unwrap_or_default()
    }
}

fn checked(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(result)
}

/// The kernel's handle of a name in a directory, or of the descriptor itself where the name is
/// empty; and the number of its mount. Follows no link. Needs no privilege.
pub(super) fn name_to_handle(at: BorrowedFd<'_>, name: &CStr) -> Result<(KernelHandle, i32), Errno> {
    let mut handle = KernelHandle { bytes: HANDLE_BYTES_MAX as u32, of_type: 0, data: [0; HANDLE_BYTES_MAX] };
    let mut mount = 0_i32;
    let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: `handle` has room for the bytes it says, `name` ends with a NUL, and both outlive the
    // call.
    checked(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            at.as_raw_fd(),
            name.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            flags,
        )
    })?;
    Ok((handle, mount))
}

/// Opens a handle as a path descriptor (`O_PATH`), on the mount that `root` is on. Needs
/// `CAP_DAC_READ_SEARCH`.
pub(super) fn open_by_handle(root: BorrowedFd<'_>, handle: &KernelHandle) -> Result<OwnedFd, Errno> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the kernel reads as many bytes as `handle` says it has, and only during the call.
    let fd = checked(unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, root.as_raw_fd(), &raw const *handle, flags)
    })?;
    let fd = i32::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: the call returned a new descriptor that nothing else uses.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Which of the rights in `wanted` (4 read, 2 write, 1 execute) this thread's identity has, by the
/// kernel's own rules: all of them, or none.
pub(super) fn may(fd: BorrowedFd<'_>, wanted: u32) -> Result<(), Errno> {
    let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
    // SAFETY: the name is a static empty string.
    let result = unsafe { libc::syscall(libc::SYS_faccessat2, fd.as_raw_fd(), c"".as_ptr(), wanted, flags) };
    checked(result).map(drop)
}

/// Sets the user with which this thread accesses files.
pub(super) fn set_fs_user(uid: u32) -> Result<(), Errno> {
    // SAFETY: numbers only. The second call changes nothing, because no user has that number; it
    // returns the current user.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsuid, uid);
        libc::syscall(libc::SYS_setfsuid, u32::MAX)
    };
    if u32::try_from(now & 0xffff_ffff) == Ok(uid) { Ok(()) } else { Err(Errno::PERM) }
}

/// Like [`set_fs_user`], for a user for which that call succeeded before, without verification.
/// Returns the previous user.
pub(super) fn switch_fs_user(uid: u32) -> Option<u32> {
    // SAFETY: numbers only.
    let before = unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    u32::try_from(before & 0xffff_ffff).ok()
}

/// Sets the group with which this thread accesses files.
pub(super) fn set_fs_group(gid: u32) -> Result<(), Errno> {
    // SAFETY: as in `set_fs_user`.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsgid, u32::MAX)
    };
    if u32::try_from(now & 0xffff_ffff) == Ok(gid) { Ok(()) } else { Err(Errno::PERM) }
}

/// Sets this thread's supplementary groups.
pub(super) fn set_groups(gids: &[u32]) -> Result<(), Errno> {
    // SAFETY: the kernel reads `gids.len()` numbers, and only during the call.
    checked(unsafe { libc::syscall(libc::SYS_setgroups, gids.len(), gids.as_ptr()) }).map(drop)
}

/// Gives this thread a file mode creation mask of its own, and clears it.
pub(super) fn own_empty_umask() -> Result<(), Errno> {
    // SAFETY: the thread stops sharing only its working directory, root and mask; descriptors stay
    // shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS)? };
    rustix::process::umask(rustix::fs::Mode::empty());
    Ok(())
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops the capability of this thread to exceed quotas and reserved blocks (`CAP_SYS_RESOURCE`).
pub(super) fn obey_quotas() -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    const SYS_RESOURCE: u32 = 24;
    // The second number is the thread: 0 is the calling thread.
    let header = [VERSION_3, 0];
    let mut sets = [Capabilities::default(); 2];
    // SAFETY: version 3 reads and writes two sets of three numbers, which is what `sets` is.
    checked(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) })?;
    sets[0].effective &= !(1 << SYS_RESOURCE);
    // SAFETY: as above.
    checked(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }).map(drop)
}

/// Lets a range of one file share the blocks of another's, up to the end for a length of 0.
pub(super) fn clone_range(
    from: BorrowedFd<'_>,
    from_offset: u64,
    len: u64,
    to: BorrowedFd<'_>,
    to_offset: u64,
) -> Result<(), Errno> {
    /// `struct file_clone_range`.
    #[repr(C)]
    struct CloneRange {
        from: i64,
        from_offset: u64,
        len: u64,
        to_offset: u64,
    }
    let range = CloneRange { from: from.as_raw_fd().into(), from_offset, len, to_offset };
    // SAFETY: the kernel reads the range, and only during the call.
    let result = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
    checked(result.into()).map(drop)
}

/// The groups of a user in the system's user database, the primary group first. May wait for a
/// directory service.
pub(super) fn groups_of(uid: u32) -> Option<Vec<u32>> {
    /// Far longer than a line of any database.
    const TEXT_BYTES: usize = 64 << 10;
    /// The most groups that the kernel accepts (`NGROUPS_MAX`).
    const GROUPS_MAX: usize = 65_536;
    let mut text = vec![0; TEXT_BYTES];
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are to memory of ours that outlives the call, and `text` has the given
    // length.
    let status =
        unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), text.as_mut_ptr(), text.len(), &raw mut found) };
    if status != 0 || found.is_null() {
        return None;
    }
    let mut groups = vec![0_u32; 256];
    loop {
        let mut count = i32::try_from(groups.len()).ok()?;
        // SAFETY: `found` says that `entry` was filled; its name lies in `text`. `groups` has room
        // for `count`.
        let fits = unsafe {
            let entry = entry.assume_init_ref();
            libc::getgrouplist(entry.pw_name, entry.pw_gid, groups.as_mut_ptr(), &raw mut count)
        };
        if fits >= 0 {
            groups.truncate(usize::try_from(count).ok()?);
            return Some(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return None;
        }
        groups.resize(groups.len() * 2, 0);
    }
}

#[cfg(test)]
mod tests {
    use crate::dir::changes::Changes;
    use crate::dir::node::Node;
    use crate::interface::{ObjectId, Status};
    use rustix::fs::{Mode, OFlags, fstat};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_lease_on_a_file_is_told_as_later_and_holds_nobody_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leased");
        let file = std::fs::File::create(&path).unwrap();
        // SAFETY: numbers only. The kernel announces the end of a lease by a signal, which would
        // end the tests.
        let leased = unsafe {
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
        };
        if leased != 0 {
            eprintln!("skipped: the file system of temporary files has no leases");
            return;
        }
        let path_fd = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let stat = fstat(&path_fd).unwrap();
        let node = Node::new(ObjectId::new(stat.st_ino, 1), path_fd, &stat, &Changes::of_tests());
        assert!(matches!(node.to_read(), Err(Status::Later)));
        assert!(matches!(node.to_write(), Err(Status::Later)));
        drop(file);
        assert!(node.to_write().is_ok(), "the lease has ended");
    }
}

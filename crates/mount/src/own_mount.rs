//! The identity of a mount, and its end.
//!
//! A path does not identify a mount: somebody may have unmounted ours and mounted something else,
//! or mounted on top of it. So a mount is ended by its number and its device number. The kernel
//! gives both to later mounts once nothing uses this mount any more, but not while a descriptor is
//! open on it (`PinnedMount`). Since Linux 6.8 a mount also has a number that is never reused.
//! Unmounting a mount also unmounts what others have mounted within it, so nothing is unmounted
//! while there is such a mount.
//!
//! Without root, fusermount3 unmounts, by path. The identity is checked right before it is called.

use crate::fusermount;
use crate::mount_table::{Entry, MountTable, fdinfo_number, resolved_path};
use crate::session::Error;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, major, minor, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The most dead mounts on top of each other that are unmounted at once; far more than occur.
const STACKED_MAX: usize = 32;
/// A flag of statx(2), since Linux 6.8.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
/// How long an unmount is tried while the directory is in use, and how often: programs that only
/// look at it, such as df(1) and `trunkline status`, use it for a moment.
const BUSY_FOR: Duration = Duration::from_millis(500);
const BUSY_STEP: Duration = Duration::from_millis(20);

/// The numbers of a mount. As text: its number, the major and the minor number of its device, and
/// the number that is never reused, or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountId {
    id: u64,
    device: (u32, u32),
    unique: Option<u64>,
}

/// A mount with an open descriptor, so that its numbers are not given to another mount.
#[derive(Debug)]
struct PinnedMount {
    mount: MountId,
    root: OwnedFd,
    mount_point: PathBuf,
}

impl MountId {
    /// Finds the mount that was just made on a directory, by the FUSE device that serves it.
    ///
    /// # Errors
    /// Errors of the system; `NotConnected` if the mount is gone already.
    pub(crate) fn of_device(device: BorrowedFd<'_>, directory: &Path) -> io::Result<Self> {
        let table = MountTable::read()?;
        // Kernels from before 2025 do not report the connection. Then the uppermost mount is taken
        // for ours, which is wrong only if another one was made there at the same time.
        let connection = fdinfo_number(device, "fuse_connection")?;
        let is_it = |entry: &&Entry| {
            entry.is_ours() && connection.is_none_or(|number| (0, number) == wide(entry.device))
        };
        let uppermost = table.at(directory).filter(is_it);
        let found = uppermost.or_else(|| table.entries().filter(|_| connection.is_some()).find(is_it));
        let mount = found.map(Self::of).ok_or_else(gone)?;
        let pinned = mount.pin().ok().flatten();
        Ok(Self { unique: pinned.and_then(|pinned| unique(pinned.root.as_fd())), ..mount })
    }

    /// Finds the mount that a descriptor is on.
    ///
    /// # Errors
    /// As [`MountId::of_device`].
    pub(crate) fn of_mount(mount: BorrowedFd<'_>) -> io::Result<Self> {
        let id = fdinfo_number(mount, "mnt_id")?;
        let table = MountTable::read()?;
        let found = table.entries().find(|entry| Some(entry.id) == id).map(Self::of).ok_or_else(gone)?;
        Ok(Self { unique: unique(mount), ..found })
    }

    fn of(entry: &Entry) -> Self {
        Self { id: entry.id, device: entry.device, unique: None }
    }

    /// The major and the minor number of the device.
    pub(crate) const fn device(self) -> (u32, u32) {
        self.device
    }

    /// Unmounts the mount, even if it is in use, as long as `is_there` returns true.
    ///
    /// # Errors
    /// Errors of the system; `ResourceBusy` if something else is mounted on the mount or within it.
    pub(crate) fn unmount(self, is_there: impl Fn() -> bool) -> io::Result<()> {
        if !is_there() {
            return Ok(());
        }
        match self.pin()? {
            // Check again, now that the numbers cannot be given to another mount.
            Some(pinned) if is_there() => pinned.unmount(),
            _ => Ok(()),
        }
    }

    /// Whether an open file is in this mount's file system.
    #[must_use]
    pub fn has(self, file: impl AsFd) -> bool {
        let device = rustix::fs::fstat(file).map(|stat| (major(stat.st_dev), minor(stat.st_dev)));
        device == Ok(self.device)
    }

    /// Unmounts the mount if nothing serves it any more. Returns whether there was such a mount. If
    /// the kernel may have given its numbers to another mount since, only a mount on `directory`
    /// counts.
    ///
    /// # Errors
    /// As unmounting.
    pub fn unmount_dead(self, directory: &Path) -> io::Result<bool> {
        let is_it =
            |pinned: &PinnedMount| self.unique.is_some() || pinned.mount_point == resolved_path(directory);
        match self.pin()? {
            Some(pinned) if is_it(&pinned) && pinned.is_dead() => pinned.unmount().map(|()| true),
            _ => Ok(false),
        }
    }

    fn pin(self) -> io::Result<Option<PinnedMount>> {
        let Some(mount_point) = self.mount_point()? else { return Ok(None) };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, &mount_point, flags, Mode::empty())?;
        // Check again: before the descriptor was opened, the mount may have been unmounted and its
        // numbers given to another one.
        let is_other = self.unique.is_some() && unique(root.as_fd()) != self.unique;
        if is_other || fdinfo_number(&root, "mnt_id")? != Some(self.id) || self.mount_point()?.is_none() {
            return Ok(None);
        }
        Ok(Some(PinnedMount { mount: self, root, mount_point }))
    }

    /// Whether another mount of ours is directly beneath this one.
    fn covers_ours(self) -> io::Result<bool> {
        let table = MountTable::read()?;
        let own = table.entries().find(|entry| entry.id == self.id);
        Ok(own.is_some_and(|own| {
            let mut beneath = table
                .entries()
                .filter(|entry| entry.id == own.parent && entry.mount_point == own.mount_point);
            beneath.any(Entry::is_ours)
        }))
    }

    /// Where the mount is now, even if it was moved or a directory was renamed. Fails if something
    /// else is mounted on it or within it.
    fn mount_point(self) -> io::Result<Option<PathBuf>> {
        let table = MountTable::read()?;
        let Some(own) = table.entries().find(|entry| (entry.id, entry.device) == (self.id, self.device))
        else {
            return Ok(None);
        };
        match table.entries().find(|entry| entry.parent == self.id && entry.id != self.id) {
            Some(other) => {
                let cause = format!("something else is mounted on {}", other.mount_point.display());
                Err(io::Error::new(io::ErrorKind::ResourceBusy, cause))
            }
            None => Ok(Some(own.mount_point.clone())),
        }
    }
}

impl PinnedMount {
    /// Whether the serving process is gone: statfs(2) then fails at once.
    fn is_dead(&self) -> bool {
        let statfs = rustix::fs::fstatfs(&self.root);
        matches!(statfs, Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CONNREFUSED))
    }

    fn unmount(self) -> io::Result<()> {
        // By the descriptor: another mount may be on the path by now.
        let itself = format!("/proc/self/fd/{}", self.root.as_raw_fd());
        match rustix::mount::unmount(itself, UnmountFlags::DETACH) {
            Ok(()) => Ok(()),
            // It was unmounted meanwhile.
            Err(Errno::INVAL) if self.mount.mount_point()?.is_none() => Ok(()),
            Err(Errno::PERM) => fusermount::unmount(&self.mount_point, true),
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Display for MountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.device;
        write!(f, "{} {major} {minor} {}", self.id, self.unique.unwrap_or_default())
    }
}

impl FromStr for MountId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut numbers = text.split(' ');
        let mut next = || numbers.next().unwrap_or_default();
        let (id, device) = (next().parse()?, (next().parse()?, next().parse()?));
        Ok(Self { id, device, unique: Some(next().parse()?).filter(|unique| *unique > 0) })
    }
}

/// The number of a descriptor's mount that is never reused. Does not ask the file system.
fn unique(descriptor: BorrowedFd<'_>) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(descriptor, "", flags, StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE)).ok()?;
    (stat.stx_mask & STATX_MNT_ID_UNIQUE != 0).then_some(stat.stx_mnt_id)
}

fn wide((major, minor): (u32, u32)) -> (u64, u64) {
    (major.into(), minor.into())
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the mount was unmounted at once")
}

/// The mount of ours that is uppermost on a directory now, dead or alive.
#[must_use]
pub fn uppermost(directory: &Path) -> Option<MountId> {
    let table = MountTable::read().ok()?;
    table.at(&resolved_path(directory)).filter(|entry| entry.is_ours()).map(MountId::of)
}

/// A mount of ours, as the table of mounts has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMount {
    /// What is mounted.
    pub source: String,
    /// Where.
    pub directory: PathBuf,
    mount: MountId,
}

impl ListedMount {
    /// Whether the serving process is gone. Waits for the serving process, and may wait for the
    /// server too.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.mount.pin().ok().flatten().is_some_and(|pinned| pinned.is_dead())
    }
}

/// All mounts of ours that this process can see, in the order in which they were made.
///
/// # Errors
/// If proc(5) is not mounted.
pub fn list_mounts() -> io::Result<Vec<ListedMount>> {
    let table = MountTable::read()?;
    let mounts = table.entries().filter(|entry| entry.is_ours()).map(|entry| ListedMount {
        source: String::from_utf8_lossy(&entry.source).into_owned(),
        directory: entry.mount_point.clone(),
        mount: MountId::of(entry),
    });
    Ok(mounts.collect())
}

/// Unmounts the dead mount of ours on a directory, unless it is `but`.
///
/// # Errors
/// [`Error::Unmount`].
pub fn unmount_dead(directory: &Path, but: Option<MountId>) -> Result<(), Error> {
    let failed = |source| Error::Unmount { directory: directory.to_owned(), source };
    match uppermost(directory).filter(|mount| Some(*mount) != but) {
        Some(mount) => mount.unmount_dead(directory).map(|_| ()).map_err(failed),
        None => Ok(()),
    }
}

/// Returns the dead mount of ours on a directory, left by a killed process, so that it can be
/// replaced. It stays until [`DeadMount::unmount`], so that no program sees the directory beneath.
/// If several are on top of each other, all but the lowest are unmounted.
///
/// # Errors
/// [`Error::Unmount`].
pub(crate) fn dead_mount_on(directory: &Path) -> Result<Option<DeadMount>, Error> {
    let failed = |source| Error::Unmount { directory: directory.to_owned(), source };
    for _ in 0..STACKED_MAX {
        let Some(mount) = uppermost(directory) else { return Ok(None) };
        let Some(dead) = mount.pin().map_err(failed)?.filter(PinnedMount::is_dead).map(DeadMount) else {
            return Ok(None);
        };
        if !mount.covers_ours().map_err(failed)? {
            return Ok(Some(dead));
        }
        dead.unmount().map_err(failed)?;
    }
    Ok(None)
}

/// A dead mount of ours: nothing serves it any more.
#[derive(Debug)]
pub(crate) struct DeadMount(PinnedMount);

impl DeadMount {
    pub(crate) fn unmount(self) -> io::Result<()> {
        let mount_point = self.0.mount_point.clone();
        self.0.unmount()?;
        tracing::warn!(directory = %mount_point.display(), "a dead mount was unmounted");
        Ok(())
    }
}

/// The type of the file system that is mounted on a directory.
///
/// # Errors
/// If proc(5) is not mounted.
pub fn mounted_type(directory: &Path) -> io::Result<Option<String>> {
    let table = MountTable::read()?;
    let entry = table.at(&resolved_path(directory));
    Ok(entry.map(|entry| String::from_utf8_lossy(&entry.kind).into_owned()))
}

/// Unmounts a directory at the user's request; with `lazily` even if it is in use.
///
/// # Errors
/// [`Error::Unmount`].
pub fn unmount(directory: &Path, lazily: bool) -> Result<(), Error> {
    let failed = |source| Error::Unmount { directory: directory.to_owned(), source };
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let mount_point = resolved_path(directory);
    let attempt = || match rustix::mount::unmount(&mount_point, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => fusermount::unmount(&mount_point, lazily),
        Err(error) => Err(error.into()),
    };
    retry_while_busy(BUSY_FOR, attempt).map_err(failed)
}

fn retry_while_busy(within: Duration, mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && begun.elapsed() < within => {
                std::thread::sleep(BUSY_STEP);
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_handed_on_as_text() {
        for unique in [None, Some(4_294_968_000)] {
            let mount = MountId { id: 812, device: (0, 57), unique };
            assert_eq!(mount.to_string().parse(), Ok(mount));
        }
        assert!("812 0 57".parse::<MountId>().is_err() && "".parse::<MountId>().is_err());
    }

    #[test]
    fn an_unmount_is_tried_again_while_the_directory_is_in_use_and_not_for_ever() {
        let mut outcomes = vec![Ok(()), Err(Errno::BUSY.into()), Err(Errno::BUSY.into())];
        let within = Duration::from_secs(600);
        assert!(retry_while_busy(within, || outcomes.pop().unwrap()).is_ok() && outcomes.is_empty());
        let fail = |errno: Errno, within| {
            let mut attempts = 0;
            let outcome = retry_while_busy(within, || {
                attempts += 1;
                Err(errno.into())
            });
            (outcome.unwrap_err().raw_os_error(), attempts)
        };
        assert_eq!(fail(Errno::BUSY, Duration::ZERO), (Some(libc::EBUSY), 1));
        assert_eq!(fail(Errno::PERM, within), (Some(libc::EPERM), 1), "nothing else is waited for");
    }

    #[test]
    fn a_mount_that_is_not_there_is_not_unmounted() {
        let root = std::fs::File::open("/").unwrap();
        let of_root = MountId::of_mount(root.as_fd()).unwrap();
        // Earlier mounts that had the root's numbers.
        for earlier in [
            MountId { device: (0, u32::MAX), unique: None, ..of_root },
            MountId { device: (0, u32::MAX), ..of_root },
        ] {
            assert!(earlier.pin().unwrap().is_none());
            assert!(!earlier.unmount_dead(Path::new("/")).unwrap());
        }
    }
}

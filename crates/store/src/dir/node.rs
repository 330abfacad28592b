//! One open object: its path descriptor (`O_PATH`), descriptors for its data, and the known rights
//! of callers.
//!
//! Rights are checked by the kernel under the caller's identity, so that access control lists and
//! other mechanisms of the file system apply. They are cached for one second, or until mode or
//! owner change.

use super::changes::{Changes, Looked};
use super::descriptors::{Descriptor, Descriptors};
use super::fault::OrStatus;
use super::identity::Identity;
use super::mapping::Mapping;
use super::sys;
use crate::interface::{Attributes, Caller, Device, Effect, FileKind, Found, ObjectId, Result, Status, Time};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// The right to read, or to list a directory.
pub(super) const READ: u32 = 4;
/// The right to write, or to change a directory.
pub(super) const WRITE: u32 = 2;
/// The right to execute, or to look up names in a directory.
pub(super) const EXECUTE: u32 = 1;

/// Callers whose rights to one object are cached.
const CACHED_RIGHTS_MAX: usize = 4;
/// How long rights are cached: a change of an access control list that does not change the mode
/// takes effect within this time.
const RIGHTS_CACHE_TTL: Duration = Duration::from_secs(1);

/// A very cheap clock with a resolution of a few milliseconds.
pub(super) fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[derive(Clone, Copy)]
struct CachedRights {
    who: u64,
    of: (u32, u32, u32),
    rights: u32,
    until: Duration,
}

/// See the module's documentation.
pub(super) struct Node {
    pub object: ObjectId,
    pub kind: FileKind,
    pub path_fd: OwnedFd,
    changes: Arc<Changes>,
    pub descriptors: Descriptors,
    /// For a directory: held while the directory is listed, because the position of its descriptor
    /// is shared.
    pub cookies: Mutex<Option<super::listing::CookieTable>>,
    change: Mutex<()>,
    /// Held shared by the syncs in progress through descriptors of this node.
    pub syncs: RwLock<()>,
    mapping: Mutex<Option<Arc<Mapping>>>,
    cached_rights: Mutex<[Option<CachedRights>; CACHED_RIGHTS_MAX]>,
    /// Written since the last sync.
    pub dirty: AtomicBool,
    /// Used since the last check.
    pub used: AtomicBool,
    /// How often it is held; changed under the lock of the cache's shard.
    pub holds: AtomicU32,
    /// The time until which the node counts as lying beneath the root, in milliseconds.
    pub beneath_root_until: AtomicU64,
}

impl Node {
    pub fn new(object: ObjectId, path_fd: OwnedFd, stat: &Stat, changes: &Arc<Changes>) -> Self {
        Self {
            object,
            kind: kind(stat),
            path_fd,
            changes: Arc::clone(changes),
            descriptors: Descriptors::default(),
            cookies: Mutex::new(None),
            change: Mutex::new(()),
            syncs: RwLock::new(()),
            mapping: Mutex::new(None),
            cached_rights: Mutex::new([None; CACHED_RIGHTS_MAX]),
            dirty: AtomicBool::new(false),
            used: AtomicBool::new(true),
            holds: AtomicU32::new(0),
            beneath_root_until: AtomicU64::new(0),
        }
    }

    /// The current state; stale if the last name is gone, even though the object is open here,
    /// unless it is held.
    pub fn stat(&self) -> Result<Looked> {
        let stat = self.changes.look(|| rustix::fs::fstat(&self.path_fd)).or_status()?;
        if stat.st_nlink == 0 && !self.is_held() { Err(Status::Stale) } else { Ok(stat) }
    }

    pub fn is_held(&self) -> bool {
        self.holds.load(Ordering::Relaxed) > 0
    }

    pub fn attributes(&self) -> Result<Attributes> {
        Ok(attributes(self.object, &self.stat()?))
    }

    pub fn found(&self) -> Result<Found> {
        Ok(found(self.object, &self.stat()?))
    }

    /// Locks the object against our own other changes, so that the states before and after describe
    /// one change.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`hold`](Self::hold), unless the lock is already held.
    pub fn try_hold(&self) -> Option<MutexGuard<'_, ()>> {
        self.change.try_lock().ok()
    }

    /// Held during a sync, and until its failure has been counted. Syncs of one file run
    /// concurrently, so that a file system can merge them.
    pub fn hold_sync(&self) -> RwLockReadGuard<'_, ()> {
        self.syncs.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the syncs in progress through descriptors of this node. Syncs that arrive
    /// meanwhile begin afterwards, so this waits for no others.
    pub fn wait_for_syncs(&self) {
        drop(self.syncs.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// The effect of an operation that found this object as `before`.
    ///
    /// It is not atomic: other processes may change the object at any time.
    pub fn effect_since(&self, before: &Looked) -> Effect {
        let before = attributes(self.object, before).version();
        Effect { before: Some(before), after: self.attributes().ok(), atomic: false }
    }

    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub fn require_directory(&self) -> Result<()> {
        if self.is_directory() { Ok(()) } else { Err(Status::NotDirectory) }
    }

    pub fn require_file(&self) -> Result<()> {
        match self.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Status::IsDirectory),
            _ => Err(Status::Invalid),
        }
    }

    /// The path under which this process reaches the object, whatever its name.
    pub fn own_path(&self) -> String {
        own_path(self.path_fd.as_fd())
    }

    pub fn reopen(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        // For files and directories `NONBLOCK` has one effect: a client that holds a lease on the
        // object cannot block a worker.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        rustix::fs::open(self.own_path(), flags, Mode::empty())
    }

    /// A descriptor for reading, if one is already open.
    pub fn opened_to_read(&self) -> Option<Descriptor<'_>> {
        self.descriptors.readable()
    }

    /// The pages of the file, mapped up to at least `file_bytes`. A mapping keeps the open file
    /// description through which it was made, so it is given one for reading.
    pub fn mapped(&self, file_bytes: u64) -> rustix::io::Result<Arc<Mapping>> {
        let mut mapping = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = mapping.as_ref().filter(|known| known.len() as u64 >= file_bytes) {
            return Ok(Arc::clone(known));
        }
        // Only this file may not be readable.
        let fd = self.reopen(OFlags::RDONLY).map_err(|_| Errno::AGAIN)?;
        let new = Arc::new(Mapping::new(fd.as_fd(), file_bytes)?);
        *mapping = Some(Arc::clone(&new));
        Ok(new)
    }

    /// A descriptor for writing, if one is already open.
    pub fn opened_to_write(&self) -> Option<Descriptor<'_>> {
        self.descriptors.writable()
    }

    /// Adopts the descriptor through which a file was created.
    pub fn adopt(&self, fd: OwnedFd) {
        self.descriptors.keep_writable(fd);
    }

    /// A descriptor for reading a file or a directory. The rights of the caller are not checked.
    pub fn to_read(&self) -> Result<Descriptor<'_>> {
        if let Some(fd) = self.opened_to_read() {
            return Ok(fd);
        }
        let fd = self.open_somehow(OFlags::RDONLY, Mode::RUSR)?;
        Ok(self.descriptors.keep_readable(fd))
    }

    /// A descriptor for writing.
    pub fn to_write(&self) -> Result<Descriptor<'_>> {
        if let Some(fd) = self.opened_to_write() {
            return Ok(fd);
        }
        let fd = self.open_somehow(OFlags::RDWR, Mode::RUSR | Mode::WUSR)?;
        Ok(self.descriptors.keep_writable(fd))
    }

    /// A separate open file description, to sync data that are written from now on; only for files.
    pub fn open_to_sync(&self) -> Result<OwnedFd> {
        match self.reopen(OFlags::RDONLY) {
            Err(Errno::ACCESS) => self.open_somehow(OFlags::WRONLY, Mode::WUSR),
            other => other.or_status(),
        }
    }

    /// The owner may always read and write a file, or copying a file with mode 0444 would stop
    /// halfway. Root can open any file; an ordinary user briefly widens the mode of its own file.
    /// RFC 1813 s4.4
    fn open_somehow(&self, flags: OFlags, needed: Mode) -> Result<OwnedFd> {
        match self.reopen(flags) {
            Err(Errno::ACCESS) => {
                let stat = self.stat()?;
                if stat.st_uid != rustix::process::geteuid().as_raw() {
                    return Err(Status::Access);
                }
                let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                rustix::fs::chmod(self.own_path(), mode | needed).or_status()?;
                let opened = self.reopen(flags);
                rustix::fs::chmod(self.own_path(), mode).or_status()?;
                opened.or_status()
            }
            other => other.or_status(),
        }
    }

    /// The rights of a caller, if they are cached.
    pub fn try_cached_rights(&self, key: &RandomState, caller: Caller<'_>, stat: &Stat) -> Option<u32> {
        let who = key.hash_one((caller.uid, caller.gid, caller.gids));
        let of = (stat.st_mode, stat.st_uid, stat.st_gid);
        let cached_rights = self.cached_rights.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = cached_rights.iter().flatten();
        known
            .find(|cached| cached.who == who && cached.of == of && now() < cached.until)
            .map(|cached| cached.rights)
    }

    /// The rights of a caller, as the kernel sees them.
    pub fn rights(&self, key: &RandomState, who: &Identity, caller: Caller<'_>, stat: &Stat) -> Result<u32> {
        let caller = who.effective(caller);
        if let Some(rights) = self.try_cached_rights(key, caller, stat) {
            return Ok(rights);
        }
        let rights = {
            let _impersonation = who.impersonate(caller)?;
            let ask = |right: u32| if sys::may(self.path_fd.as_fd(), right).is_ok() { right } else { 0 };
            ask(READ) | ask(WRITE) | ask(EXECUTE)
        };
        let cached = CachedRights {
            who: key.hash_one((caller.uid, caller.gid, caller.gids)),
            of: (stat.st_mode, stat.st_uid, stat.st_gid),
            rights,
            until: now() + RIGHTS_CACHE_TTL,
        };
        let mut cached_rights = self.cached_rights.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &CachedRights| known.who == cached.who;
        let at =
            cached_rights.iter().position(|known| known.as_ref().is_none_or(same)).unwrap_or_else(|| {
                cached_rights.rotate_right(1);
                0
            });
        if let Some(slot) = cached_rights.get_mut(at) {
            *slot = Some(cached);
        }
        Ok(rights)
    }
}

/// The path under which this process reaches a descriptor.
pub(super) fn own_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Whether the caller owns the object, or is root.
pub(super) fn owns(caller: Caller<'_>, stat: &Stat) -> bool {
    caller.uid == 0 || caller.uid == stat.st_uid
}

pub(super) fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::Socket => FileKind::Socket,
        FileType::Fifo => FileKind::Fifo,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    }
}

fn time(seconds: i64, nanoseconds: u64) -> Time {
    Time { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or_default() }
}

pub(super) fn attributes(object: ObjectId, stat: &Looked) -> Attributes {
    let kind = kind(stat);
    let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice);
    let number = Device { major: rustix::fs::major(stat.st_rdev), minor: rustix::fs::minor(stat.st_rdev) };
    Attributes {
        mode: stat.st_mode & 0o7777,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        // Blocks are counted in units of 512 bytes, whatever the block size of the file system.
        used: u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512),
        rdev: if is_device { number } else { Device::default() },
        fileid: object.fileid,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        change: stat.change,
        ..Attributes::of(kind)
    }
}

pub(super) fn found(object: ObjectId, stat: &Looked) -> Found {
    Found { object, attributes: attributes(object, stat) }
}

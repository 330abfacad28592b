//! One object of the tree: its attributes, the rights of callers, and its content.
//!
//! Times: the changed time of one object never repeats and never goes back, so that weak cache
//! consistency data tell every change apart, and that it serves as the change attribute. The access
//! time is kept as Linux does by default (relatime), without the daily step: the first read after a
//! change moves it, later ones do not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::content::Content;
use super::directory::Directory;
use super::table::Number;
use super::xattr::Xattrs;
use crate::interface::{
    Attributes, Caller, Device, Effect, FileKind, Found, Result, SetTime, Special, Status, Time, Version,
};

/// Set-user-id.
pub(super) const SET_UID: u32 = 0o4000;
/// Set-group-id.
pub(super) const SET_GID: u32 = 0o2000;
/// Sticky: names of others stay.
pub(super) const STICKY: u32 = 0o1000;
/// All that a mode can hold.
pub(super) const MODE_BITS: u32 = 0o7777;

/// The right to read, or to list a directory.
pub(super) const READ: u32 = 4;
/// The right to write, or to change a directory.
pub(super) const WRITE: u32 = 2;
/// The right to execute, or to look up names in a directory.
pub(super) const EXECUTE: u32 = 1;

/// What a directory shows as its size: names have no place on a medium here.
const DIRECTORY_BYTES: u64 = 4096;
const NANOS: u64 = 1_000_000_000;

/// The content of an object.
pub(super) enum Body {
    File(Content),
    Directory(Box<Directory>),
    Symlink(Box<[u8]>),
    Special(Special),
}

/// See the module's documentation.
pub(super) struct Inode {
    pub number: Number,
    pub body: Body,
    pub mode: u32,
    pub links: u32,
    /// How often it is held: then it stays when its last name goes.
    pub holds: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Nanoseconds since 1970, as all times here; atomic because reads move it under the shared
    /// lock.
    pub accessed: AtomicU64,
    pub modified: u64,
    pub changed: u64,
    /// Of an exclusive create; kept for good, so that a create repeated late still finds its file.
    /// RFC 1813 s3.3.8
    pub verifier: Option<[u8; 8]>,
    pub xattrs: Xattrs,
}

impl Inode {
    /// The wall clock, in nanoseconds.
    pub fn now() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    pub fn new(number: Number, body: Body, mode: u32, uid: u32, gid: u32) -> Inode {
        let now = Inode::now();
        let (links, size) = match &body {
            Body::Directory(_) => (2, DIRECTORY_BYTES),
            Body::Symlink(target) => (1, target.len() as u64),
            Body::File(_) | Body::Special(_) => (1, 0),
        };
        let accessed = AtomicU64::new(now);
        let (modified, changed, verifier, holds) = (now, now, None, 0);
        let xattrs = Xattrs::default();
        Inode {
            number,
            body,
            mode,
            links,
            holds,
            uid,
            gid,
            size,
            accessed,
            modified,
            changed,
            verifier,
            xattrs,
        }
    }

    pub fn kind(&self) -> FileKind {
        match &self.body {
            Body::File(_) => FileKind::Regular,
            Body::Directory(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Special(special) => special.kind(),
        }
    }

    pub fn attributes(&self) -> Attributes {
        Attributes {
            mode: self.mode,
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            used: match &self.body {
                Body::File(content) => content.used(),
                Body::Directory(_) => DIRECTORY_BYTES,
                Body::Symlink(_) | Body::Special(_) => 0,
            },
            rdev: match self.body {
                Body::Special(Special::BlockDevice(device) | Special::CharacterDevice(device)) => device,
                _ => Device::default(),
            },
            fileid: self.number.fileid.into(),
            atime: to_time(self.accessed.load(Ordering::Relaxed)),
            mtime: to_time(self.modified),
            ctime: to_time(self.changed),
            change: self.changed,
            ..Attributes::of(self.kind())
        }
    }

    pub fn found(&self) -> Found {
        Found { object: self.number.object(), attributes: self.attributes() }
    }

    pub fn version(&self) -> Version {
        let (mtime, ctime) = (to_time(self.modified), to_time(self.changed));
        Version { size: self.size, mtime, ctime, change: self.changed }
    }

    /// The effect of an operation that found this object as `before` and leaves it as it is now. It
    /// is atomic: the object is locked throughout.
    pub fn effect_since(&self, before: Version) -> Effect {
        Effect { before: Some(before), after: Some(self.attributes()), atomic: true }
    }

    pub fn no_effect(&self) -> Effect {
        self.effect_since(self.version())
    }

    /// Marks a change of the attributes.
    pub fn touch_changed(&mut self) -> u64 {
        self.changed = Inode::now().max(self.changed.saturating_add(1));
        self.changed
    }

    /// Marks a change of the content.
    pub fn touch_modified(&mut self) {
        self.modified = self.touch_changed();
    }

    /// Marks an access, if the last one is not later than the last change of the content.
    pub fn touch_accessed(&self) {
        if self.accessed.load(Ordering::Relaxed) <= self.modified {
            self.accessed.store(Inode::now().max(self.modified.saturating_add(1)), Ordering::Relaxed);
        }
    }

    pub fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Status::NotDirectory),
        }
    }

    pub fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Status::NotDirectory),
        }
    }

    pub fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    /// The content of a regular file; for anything else the error that Linux gives.
    pub fn content(&self) -> Result<&Content> {
        match &self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Status::IsDirectory),
            Body::Symlink(_) | Body::Special(_) => Err(Status::Invalid),
        }
    }

    /// As [`Inode::content`], to change it.
    pub fn content_mut(&mut self) -> Result<&mut Content> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Status::IsDirectory),
            Body::Symlink(_) | Body::Special(_) => Err(Status::Invalid),
        }
    }

    /// Whether the caller has all the `wanted` rights by the permission bits; root has, except to
    /// execute what nobody may execute.
    pub fn allows(&self, caller: Caller<'_>, wanted: u32) -> bool {
        if caller.uid == 0 {
            return wanted & EXECUTE == 0 || self.is_directory() || self.mode & 0o111 != 0;
        }
        let shift = if caller.uid == self.uid {
            6
        } else if in_group(caller, self.gid) {
            3
        } else {
            0
        };
        (self.mode >> shift) & wanted == wanted
    }

    /// [`Status::Access`] without the rights.
    pub fn require(&self, caller: Caller<'_>, wanted: u32) -> Result<()> {
        if self.allows(caller, wanted) { Ok(()) } else { Err(Status::Access) }
    }

    /// Whether file data may be read: the owner always may, because the client checked when the
    /// file was opened, and a caller who may execute a file must be able to page it in. RFC 1813
    /// s4.4
    pub fn may_read_data(&self, caller: Caller<'_>) -> bool {
        caller.uid == self.uid || self.allows(caller, READ) || self.allows(caller, EXECUTE)
    }

    /// Whether file data may be written; the owner always may. RFC 1813 s4.4
    pub fn may_write_data(&self, caller: Caller<'_>) -> bool {
        caller.uid == self.uid || self.allows(caller, WRITE)
    }

    /// Whether the caller has the rights of the owner.
    pub fn owned_by(&self, caller: Caller<'_>) -> bool {
        caller.uid == 0 || caller.uid == self.uid
    }

    /// What writing by anybody but root does to the mode: a changed program loses its special
    /// rights.
    pub fn drop_privileges(&mut self, caller: Caller<'_>) {
        if caller.uid != 0 && self.mode & (SET_UID | SET_GID) != 0 && !self.is_directory() {
            self.mode = self.without_privileges(caller);
        }
    }

    /// The mode without set-user-id, and without set-group-id. Without group execute, set-group-id
    /// is no privilege (it once meant mandatory locking), and stays if the caller is in the file's
    /// group.
    pub fn without_privileges(&self, caller: Caller<'_>) -> u32 {
        const GROUP_EXECUTE: u32 = 0o010;
        let stays = self.mode & GROUP_EXECUTE == 0 && (caller.uid == 0 || in_group(caller, self.gid));
        self.mode & !SET_UID & if stays { MODE_BITS } else { !SET_GID }
    }
}

/// Whether the group is one of the caller's.
pub(super) fn in_group(caller: Caller<'_>, gid: u32) -> bool {
    caller.gid == gid || caller.gids.contains(&gid)
}

/// Nanoseconds as the interface has them.
pub(super) fn to_time(nanos: u64) -> Time {
    Time { seconds: (nanos / NANOS).cast_signed(), nanoseconds: (nanos % NANOS) as u32 }
}

/// The nanoseconds to set; `None` to keep what is there. Times before 1970 and after 2554 become
/// the nearest.
pub(super) fn from_set(set: SetTime, now: u64) -> Option<u64> {
    match set {
        SetTime::Keep => None,
        SetTime::Now => Some(now),
        SetTime::To(time) => {
            let nanos = u64::try_from(time.seconds).map(|seconds| seconds.saturating_mul(NANOS));
            Some(nanos.map_or(0, |nanos| nanos.saturating_add(time.nanoseconds.into())))
        }
    }
}

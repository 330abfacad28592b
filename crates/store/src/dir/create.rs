//! CREATE, MKDIR, SYMLINK, MKNOD and LINK: operations that add a name.
//!
//! The kernel decides under the caller's identity whether a name may be added, and sets the owner
//! of the new object. The verifier of an exclusive create is kept in the times of the new file, so
//! that a create repeated after a restart still finds its file; the client sets the correct times
//! afterwards. RFC 1813 s3.3.8 Where the file system supports this, such a file gets its name last:
//! whenever a server is killed, a file that has the name also has the verifier.

use super::fault::{OrStatus, status};
use super::find::{RESOLVE_BENEATH, check_name, is_dots};
use super::identity::prepare_thread;
use super::node::{Node, found, own_path};
use super::setattr::{set_times, timestamps};
use super::{FILE_BYTES_MAX, Shared};
use crate::interface::{
    Attributes, Caller, CreateMode, Device, Effect, FileKind, Found, NewObject, ObjectId, Result,
    SetAttributes, SetTime, Special, Status, Time,
};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The longest target of a symbolic link: a path with its NUL fits in a page.
const TARGET_BYTES_MAX: usize = 4095;
const SET_IDS: u32 = 0o6000;

impl Shared {
    pub fn make(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        new: NewObject<'_>,
    ) -> (Effect, Result<Found>) {
        let (change, made) = self.changing(directory, |parent| {
            let called = new_name(parent, name)?;
            if let Err(error) = check_new(&new) {
                let taken = self.child(parent, name, ResolveFlags::empty()).is_ok();
                return Err(if taken { Status::Exists } else { error });
            }
            prepare_thread();
            let made = match new {
                NewObject::File(CreateMode::Unchecked(set) | CreateMode::Guarded(set)) => {
                    self.make_file(caller, parent, &called, &set)
                }
                NewObject::File(CreateMode::Exclusive(verifier)) => {
                    self.make_exclusive(caller, parent, &called, verifier)
                }
                NewObject::Directory(set) | NewObject::Symlink(set, _) | NewObject::Special(set, _) => {
                    self.make_other(caller, parent, &called, &new, &set)
                }
            };
            match made {
                Err(Status::Exists) => self.create_existing(caller, parent, name, new),
                made => {
                    let node = made?;
                    Ok((node.found()?, Some(node)))
                }
            }
        });
        // Outside the lock of the directory, like the sync of its names, so that concurrent syncs
        // overlap.
        let synced = made.and_then(|(found, node)| {
            node.map_or(Ok(()), |node| self.sync_attributes(&node))?;
            Ok(found)
        });
        (change, synced)
    }

    /// Changes the names of a directory, with its state before and after. The names are on disk
    /// when this returns.
    pub fn changing<T>(
        &self,
        directory: ObjectId,
        act: impl FnOnce(&Node) -> Result<T>,
    ) -> (Effect, Result<T>) {
        let parent = match self.get(directory) {
            Ok(node) => node,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let guard = parent.hold();
        let before = match parent.stat() {
            Ok(stat) => stat,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let result = parent.require_directory().and_then(|()| act(&parent));
        let change = parent.effect_since(&before);
        drop(guard);
        let synced = result.and_then(|done| self.sync_names(&parent).map(|()| done));
        (change, synced)
    }

    fn make_file(
        &self,
        caller: Caller<'_>,
        parent: &Node,
        called: &CStr,
        set: &SetAttributes,
    ) -> Result<Arc<Node>> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(set.mode.unwrap_or(0) & 0o7777);
        let fd = {
            let _impersonation = self.identity.impersonate(caller)?;
            rustix::fs::openat2(&parent.path_fd, called, flags, mode, RESOLVE_BENEATH).or_status()?
        };
        let path_fd = rustix::fs::open(own_path(fd.as_fd()), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .or_status()?;
        let (node, stat) = self.keep_child(parent, called.to_bytes(), path_fd)?;
        // The descriptor can write regardless of the mode; copying a read-only file requires this.
        node.adopt(fd);
        self.finish(caller, &node, &stat, set)?;
        Ok(node)
    }

    /// Creates a file that has the verifier in its times before it has its name.
    fn make_exclusive(
        &self,
        caller: Caller<'_>,
        parent: &Node,
        called: &CStr,
        verifier: [u8; 8],
    ) -> Result<Arc<Node>> {
        let set = verifier_times(verifier);
        let Some(fd) = self.make_and_link(caller, parent, called, &set)? else {
            return self.make_file(caller, parent, called, &set);
        };
        let path_fd = self.child(parent, called.to_bytes(), ResolveFlags::empty()).or_status()?;
        let (node, stat) = self.keep_child(parent, called.to_bytes(), path_fd)?;
        let made = rustix::fs::fstat(&fd).or_status()?;
        // Somebody on the server itself may have replaced the file meanwhile.
        if (made.st_dev, made.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(Status::Stale);
        }
        node.adopt(fd);
        Ok(node)
    }

    /// Creates a file without a name, sets its times, and only then links it into its directory.
    /// `None` if the file system does not support unnamed files.
    fn make_and_link(
        &self,
        caller: Caller<'_>,
        parent: &Node,
        called: &CStr,
        set: &SetAttributes,
    ) -> Result<Option<OwnedFd>> {
        let _impersonation = self.identity.impersonate(caller)?;
        // As with O_EXCL, an existing name takes precedence over any other error.
        if rustix::fs::statat(&parent.path_fd, called, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(Status::Exists);
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat2(&parent.path_fd, c".", flags, Mode::empty(), RESOLVE_BENEATH) {
            Ok(fd) => fd,
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS | Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(status(errno)),
        };
        rustix::fs::futimens(&fd, &timestamps(set)).or_status()?;
        let from = own_path(fd.as_fd());
        rustix::fs::linkat(rustix::fs::CWD, from, &parent.path_fd, called, AtFlags::SYMLINK_FOLLOW)
            .or_status()?;
        Ok(Some(fd))
    }

    fn make_other(
        &self,
        caller: Caller<'_>,
        parent: &Node,
        called: &CStr,
        new: &NewObject<'_>,
        set: &SetAttributes,
    ) -> Result<Arc<Node>> {
        let mode = Mode::from_raw_mode(set.mode.unwrap_or(0) & 0o7777);
        {
            let _impersonation = self.identity.impersonate(caller)?;
            match *new {
                NewObject::Directory(_) => rustix::fs::mkdirat(&parent.path_fd, called, mode).or_status()?,
                NewObject::Symlink(_, target) => {
                    let target = CString::new(target).map_err(|_| Status::Invalid)?;
                    rustix::fs::symlinkat(&target, &parent.path_fd, called).or_status()?;
                }
                NewObject::Special(_, special) => {
                    let number = |device: Device| rustix::fs::makedev(device.major, device.minor);
                    let (kind, device) = match special {
                        Special::BlockDevice(device) => (FileType::BlockDevice, number(device)),
                        Special::CharacterDevice(device) => (FileType::CharacterDevice, number(device)),
                        Special::Socket => (FileType::Socket, 0),
                        Special::Fifo => (FileType::Fifo, 0),
                    };
                    rustix::fs::mknodat(&parent.path_fd, called, kind, mode, device).or_status()?;
                }
                NewObject::File(_) => return Err(Status::BadType),
            }
        }
        let path_fd = self.child(parent, called.to_bytes(), ResolveFlags::empty()).or_status()?;
        let (node, stat) = self.keep_child(parent, called.to_bytes(), path_fd)?;
        // Somebody on the server itself may have replaced the object meanwhile.
        if node.kind != new.kind() {
            return Err(Status::Stale);
        }
        self.finish(caller, &node, &stat, set)?;
        Ok(node)
    }

    /// Sets attributes that could not be set at creation. Only root may choose another owner or
    /// group; for other callers the fields are ignored.
    fn finish(&self, caller: Caller<'_>, node: &Node, stat: &Stat, set: &SetAttributes) -> Result<()> {
        let root = self.identity.effective(caller).uid == 0;
        let (uid, gid) = (set.uid.filter(|_| root), set.gid.filter(|_| root));
        let other = uid.is_some_and(|uid| uid != stat.st_uid) || gid.is_some_and(|gid| gid != stat.st_gid);
        if let Some(size) = set.size.filter(|size| *size > 0) {
            let fd = node.to_write()?;
            let _impersonation = self.identity.impersonate_writer(caller, stat.st_mode)?;
            rustix::fs::ftruncate(&fd, size).or_status()?;
        }
        let _impersonation = self.identity.impersonate(caller)?;
        if other {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            rustix::fs::chownat(&node.path_fd, c"", uid, gid, AtFlags::EMPTY_PATH).or_status()?;
        }
        // Mode bits that mkdir omits, or that a change of owner cleared. An inherited set-group-id
        // of a directory stays.
        let wanted =
            set.mode.unwrap_or(0) & 0o7777 | stat.st_mode & if node.is_directory() { 0o2000 } else { 0 };
        let lacks = wanted & SET_IDS != stat.st_mode & SET_IDS || other && wanted & SET_IDS != 0;
        if lacks && node.kind != FileKind::Symlink {
            rustix::fs::chmod(node.own_path(), Mode::from_raw_mode(wanted)).or_status()?;
        }
        set_times(node, set)
    }

    /// Handles CREATE for an existing name. RFC 1813 s3.3.8
    ///
    /// UNCHECKED sets only the size of an existing file, and leaves everything else unchanged, as
    /// `open` without `O_EXCL` does.
    fn create_existing(
        &self,
        caller: Caller<'_>,
        parent: &Node,
        name: &[u8],
        new: NewObject<'_>,
    ) -> Result<(Found, Option<Arc<Node>>)> {
        let NewObject::File(mode @ (CreateMode::Unchecked(_) | CreateMode::Exclusive(_))) = new else {
            return Err(Status::Exists);
        };
        let path_fd = self.child(parent, name, ResolveFlags::empty()).or_status()?;
        let (node, stat) = self.keep_child(parent, name, path_fd)?;
        let found = found(node.object, &stat);
        match mode {
            CreateMode::Unchecked(SetAttributes { size: Some(size), .. })
                if node.kind == FileKind::Regular =>
            {
                let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
                self.set(caller, node.object, &set, None).1?;
                Ok((node.found()?, None))
            }
            CreateMode::Exclusive(verifier) => {
                let (times, known) = (verifier_times(verifier), found.attributes);
                let same = times.atime == SetTime::To(known.atime)
                    && times.mtime == SetTime::To(known.mtime)
                    && known.kind == FileKind::Regular
                    && known.size == 0;
                if same { Ok((found, Some(node))) } else { Err(Status::Exists) }
            }
            _ => Ok((found, None)),
        }
    }

    pub fn make_link(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> (Option<Attributes>, Effect, Result<()>) {
        let known = self.get(object);
        let (change, result) = self.changing(directory, |parent| {
            let node = known.as_ref().map_err(|error| *error)?;
            if node.is_directory() {
                return Err(Status::IsDirectory);
            }
            let called = new_name(parent, name)?;
            {
                let _impersonation = self.identity.impersonate(caller)?;
                let from = node.own_path();
                rustix::fs::linkat(rustix::fs::CWD, from, &parent.path_fd, &called, AtFlags::SYMLINK_FOLLOW)
                    .or_status()?;
            }
            self.note(&object, parent, name);
            Ok(())
        });
        (known.ok().and_then(|node| node.attributes().ok()), change, result)
    }

    /// Makes names durable before a client is told of them. RFC 1813 s4.8
    pub fn sync_names(&self, directory: &Node) -> Result<()> {
        // Only root can open a directory that is writable but not readable; for other users its
        // names reach the disk a little later.
        let Ok(fd) = directory.to_read() else { return Ok(()) };
        match rustix::fs::fsync(&fd) {
            // A file system that cannot sync directories persists names by itself.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(status(errno)),
        }
    }
}

/// Checks a name for a new object.
fn new_name(parent: &Node, name: &[u8]) -> Result<CString> {
    parent.require_directory()?;
    let called = check_name(name)?;
    if is_dots(name) { Err(Status::Exists) } else { Ok(called) }
}

/// The verifier is kept in the seconds of the times, of which every supported file system keeps 31
/// bits.
fn verifier_times(verifier: [u8; 8]) -> SetAttributes {
    let [a, b, c, d, e, f, g, h] = verifier;
    let time = |bytes| SetTime::To(Time::from_seconds(i64::from(u32::from_be_bytes(bytes) & 0x7fff_ffff)));
    SetAttributes { atime: time([a, b, c, d]), mtime: time([e, f, g, h]), ..SetAttributes::default() }
}

fn check_new(new: &NewObject<'_>) -> Result<()> {
    match *new {
        NewObject::File(CreateMode::Unchecked(set) | CreateMode::Guarded(set)) => {
            let fits = set.size.is_none_or(|size| size <= FILE_BYTES_MAX);
            if fits { Ok(()) } else { Err(Status::FileTooBig) }
        }
        NewObject::Symlink(_, []) => Err(Status::NotFound),
        NewObject::Symlink(_, target) if target.len() > TARGET_BYTES_MAX => Err(Status::NameTooLong),
        NewObject::Symlink(_, target) if target.contains(&0) => Err(Status::Invalid),
        _ => Ok(()),
    }
}

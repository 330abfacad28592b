//! SETATTR: checks first which attributes the caller may set, then sets them under the caller's
//! identity.

use super::changes::Looked;
use super::fault::OrStatus;
use super::identity::prepare_thread;
use super::node::{Node, WRITE, attributes, owns};
use super::{FILE_BYTES_MAX, Shared};
use crate::interface::{Caller, Effect, FileKind, ObjectId, Result, SetAttributes, SetTime, Status, Time};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

impl Shared {
    pub fn set(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> (Effect, Result<()>) {
        let node = match self.get(object) {
            Ok(node) => node,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let lock = node.hold();
        let before = match node.stat() {
            Ok(stat) => stat,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let checked = self.check_set(caller, &node, &before, set, guard);
        let result = checked.and_then(|()| self.apply(caller, &node, &before, set));
        let change = node.effect_since(&before);
        drop(lock);
        let synced = result.and_then(|()| {
            if *set == SetAttributes::default() { Ok(()) } else { self.sync_attributes(&node) }
        });
        self.has_synced(&node);
        (change, synced)
    }

    fn check_set(
        &self,
        caller: Caller<'_>,
        node: &Node,
        stat: &Looked,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> Result<()> {
        let caller = self.identity.effective(caller);
        let owned = owns(caller, stat);
        let rights = || node.rights(&self.callers, &self.identity, caller, stat);
        let writes = || rights().map(|rights| rights & WRITE != 0);
        if let Some(size) = set.size {
            node.require_file()?;
            if !owned && !writes()? {
                return Err(Status::Access);
            }
            if size > FILE_BYTES_MAX {
                return Err(Status::FileTooBig);
            }
        }
        let now = set.atime == SetTime::Now || set.mtime == SetTime::Now;
        if now && !owned && !writes()? {
            return Err(Status::Access);
        }
        // RFC 1813 s3.3.2
        if guard.is_some_and(|guard| guard != attributes(node.object, stat).ctime) {
            return Err(Status::NotSync);
        }
        let root = caller.uid == 0;
        let gives_away = set.uid.is_some_and(|uid| !(root || owned && uid == stat.st_uid));
        let joins = |gid: u32| caller.gid == gid || caller.gids.contains(&gid) || gid == stat.st_gid;
        let regroups = set.gid.is_some_and(|gid| !(root || owned && joins(gid)));
        let to = matches!(set.atime, SetTime::To(_)) || matches!(set.mtime, SetTime::To(_));
        if gives_away || regroups || ((set.mode.is_some() || to) && !owned) {
            return Err(Status::NotPermitted);
        }
        Ok(())
    }

    fn apply(&self, caller: Caller<'_>, node: &Node, stat: &Stat, set: &SetAttributes) -> Result<()> {
        prepare_thread();
        if let Some(size) = set.size {
            let fd = node.to_write()?;
            let _impersonation = self.identity.impersonate_writer(caller, stat.st_mode)?;
            rustix::fs::ftruncate(&fd, size).or_status()?;
        }
        let _impersonation = self.identity.impersonate(caller)?;
        if let Some(mode) = set.mode
            && node.kind != FileKind::Symlink
        {
            rustix::fs::chmod(node.own_path(), Mode::from_raw_mode(mode & 0o7777)).or_status()?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            // This makes the kernel clear set-user-id, and set-group-id of executable files.
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            rustix::fs::chownat(&node.path_fd, c"", uid, gid, AtFlags::EMPTY_PATH).or_status()?;
        }
        set_times(node, set)
    }

    /// Makes attributes durable before a client is told that they are set. RFC 1813 s4.8
    ///
    /// Only objects that can be opened can be synced: attributes of links and devices reach the
    /// disk a little later.
    pub fn sync_attributes(&self, node: &Node) -> Result<()> {
        if !matches!(node.kind, FileKind::Regular | FileKind::Directory) {
            return Ok(());
        }
        // The data of the file are synced too, and a failure reported here is not reported again to
        // other syncs through the same descriptor.
        let sync = |fd: BorrowedFd<'_>| match node.kind {
            FileKind::Regular => self.sync(node, fd, false),
            _ => rustix::fs::fsync(fd).or_status(),
        };
        if let Some(fd) = node.opened_to_write().or_else(|| node.opened_to_read()) {
            return sync(fd.as_fd());
        }
        match node.reopen(OFlags::RDONLY) {
            Ok(fd) => sync(fd.as_fd()),
            Err(Errno::AGAIN) => Err(Status::Later),
            // A file of ours that we have no right to read, while we are not root.
            Err(_) => Ok(()),
        }
    }
}

/// Sets the requested times, under the current identity of the thread.
pub(super) fn set_times(node: &Node, set: &SetAttributes) -> Result<()> {
    if set.atime == SetTime::Keep && set.mtime == SetTime::Keep {
        return Ok(());
    }
    rustix::fs::utimensat(&node.path_fd, c"", &timestamps(set), AtFlags::EMPTY_PATH).or_status()
}

/// Converts the requested times for the kernel.
pub(super) fn timestamps(set: &SetAttributes) -> Timestamps {
    let spec = |time: SetTime| match time {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To(time) => Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() },
    };
    Timestamps { last_access: spec(set.atime), last_modification: spec(set.mtime) }
}

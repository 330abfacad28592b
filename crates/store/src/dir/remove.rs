//! REMOVE, RMDIR and RENAME: operations that remove a name.

use super::Shared;
use super::fault::status;
use super::find::{check_name, is_dots};
use super::node::Node;
use crate::interface::{Caller, Effect, FileKind, ObjectId, Result, Status};
use rustix::fs::{AtFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

impl Shared {
    pub fn unlink(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        rmdir: bool,
    ) -> (Effect, Result<()>) {
        self.changing(directory, |parent| {
            let called = check_name(name)?;
            // RFC 1813 s3.3.13
            match (name, rmdir) {
                (b".", true) => return Err(Status::Invalid),
                (b"..", true) => return Err(Status::Exists),
                (b"." | b"..", false) => return Err(Status::Access),
                _ => {}
            }
            let victim = self.child(parent, name, ResolveFlags::empty()).ok();
            {
                let _impersonation = self.identity.impersonate(caller)?;
                let flags = if rmdir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                rustix::fs::unlinkat(&parent.path_fd, &called, flags).map_err(|errno| match errno {
                    Errno::EXIST => Status::NotEmpty,
                    other => status(other),
                })?;
            }
            self.forget_unlinked(victim);
            Ok(())
        })
    }

    /// Drops a removed object from the cache and the map, if it has no name left.
    fn forget_unlinked(&self, victim: Option<OwnedFd>) {
        let Some(victim) = victim else { return };
        let Ok(stat) = rustix::fs::fstat(&victim) else { return };
        if stat.st_nlink > 0 && super::node::kind(&stat) != FileKind::Directory {
            return;
        }
        if let Ok(object) = self.naming.name(victim.as_fd(), c"", &stat) {
            self.close(self.cache.forget(&object).into_iter().collect());
            if !self.naming.opens(&object) {
                self.map.forget(&object);
            }
        }
    }

    pub fn move_name(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> (Effect, Effect, Result<()>) {
        if from.0 == to.0 {
            let (both, result) =
                self.changing(from.0, |parent| self.move_in(caller, (parent, from.1), (parent, to.1)));
            return (both, both, result);
        }
        // The two locks are taken in a fixed order, whichever way the rename goes.
        let forth = (from.0.fileid, from.0.name()) < (to.0.fileid, to.0.name());
        let (first, second) = if forth { (from.0, to.0) } else { (to.0, from.0) };
        let mut inner = Effect::default();
        let (outer, result) = self.changing(first, |one| {
            let (change, result) = self.changing(second, |other| {
                let (source, target) = if forth { (one, other) } else { (other, one) };
                self.move_in(caller, (source, from.1), (target, to.1))
            });
            inner = change;
            result
        });
        if forth { (outer, inner, result) } else { (inner, outer, result) }
    }

    fn move_in(&self, caller: Caller<'_>, from: (&Node, &[u8]), to: (&Node, &[u8])) -> Result<()> {
        let names: (CString, CString) = (check_name(from.1)?, check_name(to.1)?);
        if is_dots(from.1) || is_dots(to.1) {
            return Err(Status::Invalid);
        }
        let victim = self.child(to.0, to.1, ResolveFlags::empty()).ok();
        {
            let _impersonation = self.identity.impersonate(caller)?;
            let moved = rustix::fs::renameat(&from.0.path_fd, &names.0, &to.0.path_fd, &names.1);
            moved.map_err(|errno| match errno {
                // The target directory is not empty; some file systems report it as EEXIST.
                Errno::EXIST => Status::NotEmpty,
                other => status(other),
            })?;
        }
        self.after_rename(victim, to.0, to.1);
        Ok(())
    }

    /// After a rename: drops the replaced object, and records the new location of the renamed one.
    fn after_rename(&self, victim: Option<OwnedFd>, parent: &Node, name: &[u8]) {
        let Ok(path_fd) = self.child(parent, name, ResolveFlags::empty()) else { return };
        let same = |one: &OwnedFd, other: &OwnedFd| {
            let (one, other) = (rustix::fs::fstat(one), rustix::fs::fstat(other));
            matches!((one, other), (Ok(one), Ok(other)) if (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
        };
        if !victim.as_ref().is_some_and(|victim| same(victim, &path_fd)) {
            self.forget_unlinked(victim);
        }
        // Records the object in the map if its name alone is not enough to open it.
        let _ = self.keep_child(parent, name, path_fd);
    }
}

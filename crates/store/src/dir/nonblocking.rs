//! Operations that are answered without waiting: from open objects, on file systems whose data the
//! kernel caches in this machine's memory.

use super::Shared;
use super::find::{check_name, is_dots, rights_of};
use super::node::{self, EXECUTE, Node, attributes};
use crate::interface::{Attributes, Caller, Found, ObjectId, Result, Rights};
use rustix::fs::ResolveFlags;
use std::os::fd::AsFd;
use std::sync::Arc;

impl Shared {
    /// An object that is already open, and whose check to lie beneath the root is still valid.
    pub fn try_get(&self, object: ObjectId) -> Option<Arc<Node>> {
        if !self.local {
            return None;
        }
        self.cache.find(&object).filter(|node| self.is_known_beneath_root(node))
    }

    pub fn try_find(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
    ) -> Option<(Option<Attributes>, Result<Found>)> {
        let parent = self.try_get(directory)?;
        if !parent.is_directory() || is_dots(name) {
            return None;
        }
        check_name(name).ok()?;
        let stat = parent.stat().ok()?;
        let caller = self.identity.effective(caller);
        if parent.try_cached_rights(&self.callers, caller, &stat)? & EXECUTE == 0 {
            return None;
        }
        let path_fd = self.child(&parent, name, ResolveFlags::CACHED).ok()?;
        let found = self.changes.look(|| rustix::fs::fstat(&path_fd)).ok()?;
        let object = self.naming.name(path_fd.as_fd(), c"", &found).ok()?;
        // Only objects that are already open: opening another may require closing one, which may
        // wait.
        self.try_get(object)?;
        Some((Some(attributes(directory, &stat)), Ok(node::found(object, &found))))
    }

    pub fn try_rights(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        wanted: Rights,
    ) -> Option<Result<(Rights, Attributes)>> {
        let node = self.try_get(object)?;
        let stat = node.stat().ok()?;
        let rights = node.try_cached_rights(&self.callers, self.identity.effective(caller), &stat)?;
        Some(Ok((rights_of(&node, rights) & wanted, attributes(object, &stat))))
    }
}

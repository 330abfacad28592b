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
    pub fn held_now(&self, object: ObjectId) -> Option<Arc<Node>> {
        if !self.local {
            return None;
        }
        self.cache.find(&object).filter(|node| self.is_proved(node))
    }

    pub fn find_now(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
    ) -> Option<(Option<Attributes>, Result<Found>)> {
        let parent = self.held_now(directory)?;
        if !parent.is_directory() || is_dots(name) {
            return None;
        }
        check_name(name).ok()?;
        let stat = parent.stat().ok()?;
        let caller = self.identity.effective(caller);
        if parent.known_rights(&self.callers, caller, &stat)? & EXECUTE == 0 {
            return None;
        }
        let place = self.child(&parent, name, ResolveFlags::CACHED).ok()?;
        let found = rustix::fs::fstat(&place).ok()?;
        let object = self.naming.name(place.as_fd(), c"", &found).ok()?;
        // Only objects that are already open: opening another may require closing one, which may
        // wait.
        self.held_now(object)?;
        Some((Some(attributes(directory, &stat)), Ok(node::found(object, &found))))
    }

    pub fn rights_now(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        wanted: Rights,
    ) -> Option<Result<(Rights, Attributes)>> {
        let node = self.held_now(object)?;
        let stat = node.stat().ok()?;
        let rights = node.known_rights(&self.callers, self.identity.effective(caller), &stat)?;
        Some(Ok((rights_of(&node, rights) & wanted, attributes(object, &stat))))
    }
}

//! LOOKUP, ACCESS, READLINK, READDIR: operations that change nothing.

use std::sync::Arc;

use super::MemStore;
use super::directory::{COOKIE_PARENT, COOKIE_SELF, check_name};
use super::inode::{Body, EXECUTE, Inode, READ, WRITE};
use crate::interface::{Attributes, Caller, DirectoryEnd, Entry, Error, ObjectId, Result};

/// Names taken out of a directory at a time, to visit them without its lock.
const BATCH: usize = 64;

// RFC 1813 s3.3.4
const ACCESS_READ: u32 = 0x01;
const ACCESS_LOOKUP: u32 = 0x02;
const ACCESS_MODIFY: u32 = 0x04;
const ACCESS_EXTEND: u32 = 0x08;
const ACCESS_DELETE: u32 = 0x10;
const ACCESS_EXECUTE: u32 = 0x20;

impl MemStore {
    pub(super) fn find(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
    ) -> (Option<Attributes>, Result<Attributes>) {
        loop {
            let (attributes, found) = match self.table.read(directory) {
                Ok(inode) => (inode.attributes(), find_in(&inode, caller, name)),
                Err(error) => return (None, Err(error)),
            };
            let object = match found {
                Ok(object) => object,
                Err(error) => return (Some(attributes), Err(error)),
            };
            if object == directory {
                return (Some(attributes), Ok(attributes));
            }
            // The directory's lock is released first, because the parent comes before it in the
            // order of locks. If the object went away meanwhile, so did the name: look again.
            if let Ok(inode) = self.table.read(object) {
                return (Some(attributes), Ok(inode.attributes()));
            }
        }
    }

    pub(super) fn rights(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        wanted: u32,
    ) -> Result<(u32, Attributes)> {
        let inode = self.table.read(object)?;
        let when = |right: u32, bits: u32| if inode.allows(caller, right) { bits } else { 0 };
        let rights = if inode.is_directory() {
            when(READ, ACCESS_READ)
                | when(EXECUTE, ACCESS_LOOKUP)
                | when(WRITE | EXECUTE, ACCESS_MODIFY | ACCESS_EXTEND | ACCESS_DELETE)
        } else {
            when(READ, ACCESS_READ)
                | when(WRITE, ACCESS_MODIFY | ACCESS_EXTEND)
                | when(EXECUTE, ACCESS_EXECUTE)
        };
        Ok((rights & wanted, inode.attributes()))
    }

    pub(super) fn target(&self, object: ObjectId, out: &mut Vec<u8>) -> Result<Attributes> {
        let inode = self.table.read(object)?;
        let Body::Symlink(target) = &inode.body else { return Err(Error::Invalid) };
        out.extend_from_slice(target);
        inode.touch_accessed();
        Ok(inode.attributes())
    }

    pub(super) fn list(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<DirectoryEnd> {
        let mut cookie = cookie;
        let mut batch: Vec<(u64, Arc<[u8]>, ObjectId)> = Vec::with_capacity(BATCH);
        loop {
            batch.clear();
            let (attributes, parent) = {
                let inode = self.table.read(directory)?;
                let names = inode.directory()?;
                inode.require(caller, READ)?;
                if !names.gave(cookie) {
                    return Err(Error::BadCookie);
                }
                inode.touch_accessed();
                let after = names.after(cookie).take(BATCH);
                batch.extend(after.map(|(cookie, name, object)| (cookie, Arc::clone(name), object)));
                (inode.attributes(), names.parent)
            };
            let more = DirectoryEnd { eof: false, attributes };
            if cookie < COOKIE_SELF
                && !visit(Entry { name: b".", cookie: COOKIE_SELF, attributes: &attributes })
            {
                return Ok(more);
            }
            if cookie < COOKIE_PARENT {
                let parent = if parent == directory { Ok(attributes) } else { self.get(parent) };
                // A parent that is gone means that this directory was moved and its old parent
                // removed, just now; its own attributes stand in rather than none.
                let parent = parent.unwrap_or(attributes);
                if !visit(Entry { name: b"..", cookie: COOKIE_PARENT, attributes: &parent }) {
                    return Ok(more);
                }
            }
            for (at, name, object) in &batch {
                cookie = *at;
                // A name whose object is gone was removed since the batch was taken.
                let Ok(attributes) = self.get(*object) else { continue };
                if !visit(Entry { name, cookie, attributes: &attributes }) {
                    return Ok(more);
                }
            }
            if batch.len() < BATCH {
                return Ok(DirectoryEnd { eof: true, attributes });
            }
        }
    }

    pub(super) fn get(&self, object: ObjectId) -> Result<Attributes> {
        Ok(self.table.read(object)?.attributes())
    }
}

fn find_in(inode: &Inode, caller: Caller<'_>, name: &[u8]) -> Result<ObjectId> {
    let names = inode.directory()?;
    check_name(name)?;
    inode.require(caller, EXECUTE)?;
    match name {
        b"." => Ok(inode.object),
        b".." => Ok(names.parent),
        name => names.find(name).ok_or(Error::NotFound),
    }
}

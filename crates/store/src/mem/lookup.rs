//! LOOKUP, ACCESS, READLINK, READDIR: operations that change nothing.

use std::sync::Arc;

use super::MemStore;
use super::directory::{COOKIE_PARENT, COOKIE_SELF, check_name};
use super::inode::{Body, EXECUTE, Inode, READ, WRITE};
use crate::interface::{Attributes, Caller, DirectoryEnd, Entry, Found, ObjectId, Result, Rights, Status};

/// Names taken out of a directory at a time, to visit them without its lock.
const BATCH: usize = 64;

impl MemStore {
    pub(super) fn find(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
    ) -> (Option<Attributes>, Result<Found>) {
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
                return (Some(attributes), Ok(Found { object, attributes }));
            }
            // The directory's lock is released first, because the parent comes before it in the
            // order of locks. If the object went away meanwhile, so did the name: look again.
            if let Ok(inode) = self.table.read(object) {
                return (Some(attributes), Ok(inode.found()));
            }
        }
    }

    pub(super) fn rights(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        wanted: Rights,
    ) -> Result<(Rights, Attributes)> {
        let inode = self.table.read(object)?;
        let when = |right: u32, rights| if inode.allows(caller, right) { rights } else { Rights::NONE };
        let rights = if inode.is_directory() {
            when(READ, Rights::READ)
                | when(EXECUTE, Rights::LOOKUP)
                | when(WRITE | EXECUTE, Rights::MODIFY | Rights::EXTEND | Rights::DELETE)
        } else {
            when(READ, Rights::READ)
                | when(WRITE, Rights::MODIFY | Rights::EXTEND)
                | when(EXECUTE, Rights::EXECUTE)
        };
        let has_xattrs = matches!(inode.body, Body::File(_) | Body::Directory(_));
        let xattrs =
            when(READ, Rights::READ_XATTRS | Rights::LIST_XATTRS) | when(WRITE, Rights::WRITE_XATTRS);
        let rights = if has_xattrs { rights | xattrs } else { rights };
        Ok((rights & wanted, inode.attributes()))
    }

    pub(super) fn target(&self, object: ObjectId, out: &mut Vec<u8>) -> Result<Attributes> {
        let inode = self.table.read(object)?;
        let Body::Symlink(target) = &inode.body else { return Err(Status::Invalid) };
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
                    return Err(Status::BadCookie);
                }
                inode.touch_accessed();
                let after = names.after(cookie).take(BATCH);
                batch.extend(after.map(|(cookie, name, object)| (cookie, Arc::clone(name), object)));
                (inode.attributes(), names.parent())
            };
            let more = DirectoryEnd { eof: false, attributes };
            let itself = Found { object: directory, attributes };
            if cookie < COOKIE_SELF && !visit(Entry { name: b".", cookie: COOKIE_SELF, found: &itself }) {
                return Ok(more);
            }
            if cookie < COOKIE_PARENT {
                // A parent that is gone means that this directory was moved and its old parent
                // removed, just now; its own attributes stand in rather than none.
                let parent = if parent == directory { itself } else { self.found(parent).unwrap_or(itself) };
                if !visit(Entry { name: b"..", cookie: COOKIE_PARENT, found: &parent }) {
                    return Ok(more);
                }
            }
            for (at, name, object) in &batch {
                cookie = *at;
                // A name whose object is gone was removed since the batch was taken.
                let Ok(found) = self.found(*object) else { continue };
                if !visit(Entry { name, cookie, found: &found }) {
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

    pub(super) fn found(&self, object: ObjectId) -> Result<Found> {
        Ok(self.table.read(object)?.found())
    }
}

fn find_in(inode: &Inode, caller: Caller<'_>, name: &[u8]) -> Result<ObjectId> {
    let names = inode.directory()?;
    check_name(name)?;
    inode.require(caller, EXECUTE)?;
    match name {
        b"." => Ok(inode.number.object()),
        b".." => Ok(names.parent()),
        name => names.find(name).ok_or(Status::NotFound),
    }
}

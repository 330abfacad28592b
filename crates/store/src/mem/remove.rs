//! REMOVE and RMDIR: operations that remove a name; what holds objects without a name, and the
//! disposal of those.

use super::MemStore;
use super::create::target_bytes;
use super::directory::{DIRECTORY_BYTES, check_name};
use super::inode::{Body, EXECUTE, Inode, STICKY, WRITE};
use super::table::{OBJECT_BYTES, WriteGuard};
use crate::interface::{Caller, Effect, ObjectId, Result, Status};

impl MemStore {
    /// REMOVE, or RMDIR with `rmdir`.
    pub(super) fn unlink(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        rmdir: bool,
    ) -> (Effect, Result<()>) {
        let mut parent = match self.table.write(directory) {
            Ok(inode) => inode,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let before = parent.version();
        let gone = self.unlink_in(caller, &mut parent, name, rmdir);
        let change = parent.effect_since(before);
        drop(parent);
        (change, gone.map(|gone| gone.into_iter().for_each(|inode| self.dispose(inode))))
    }

    fn unlink_in(
        &self,
        caller: Caller<'_>,
        parent: &mut Inode,
        name: &[u8],
        rmdir: bool,
    ) -> Result<Option<Inode>> {
        let names = parent.directory()?;
        check_name(name)?;
        parent.require(caller, EXECUTE)?;
        match name {
            // RFC 1813 s3.3.13
            b"." if rmdir => return Err(Status::Invalid),
            b".." if rmdir => return Err(Status::Exists),
            b"." | b".." => return Err(Status::Access),
            _ => {}
        }
        let object = names.find(name).ok_or(Status::NotFound)?;
        let inode = self.table.write(object)?;
        may_take(parent, &inode, caller)?;
        match &inode.body {
            Body::Directory(_) if !rmdir => return Err(Status::IsDirectory),
            Body::Directory(names) if !names.is_empty() => return Err(Status::NotEmpty),
            Body::Directory(_) => parent.links -= 1,
            _ if rmdir => return Err(Status::NotDirectory),
            _ => {}
        }
        parent.directory_mut()?.take(&self.pool, name);
        parent.touch_modified();
        Ok(self.drop_link(inode))
    }

    /// Removes one link of an object. Without any link left the object is removed and returned, to
    /// be disposed of, unless it is held.
    pub(super) fn drop_link(&self, mut inode: WriteGuard<'_>) -> Option<Inode> {
        if inode.is_directory() || (inode.links <= 1 && inode.holds == 0) {
            return Some(self.table.remove(inode));
        }
        inode.links -= 1;
        inode.touch_changed();
        None
    }

    pub(super) fn hold_file(&self, object: ObjectId) -> Result<()> {
        let mut inode = self.table.write(object)?;
        inode.content()?;
        inode.holds = inode.holds.checked_add(1).ok_or(Status::Later)?;
        Ok(())
    }

    pub(super) fn release_file(&self, object: ObjectId) {
        let Ok(mut inode) = self.table.write(object) else { return };
        inode.holds = inode.holds.saturating_sub(1);
        if inode.holds == 0 && inode.links == 0 {
            let gone = self.table.remove(inode);
            self.dispose(gone);
        }
    }

    /// Frees what an object had; no lock is held, because a large file takes time.
    pub(super) fn dispose(&self, inode: Inode) {
        inode.xattrs.clear(&self.pool);
        match inode.body {
            Body::File(content) => content.clear(&self.pool),
            Body::Symlink(target) => {
                let bytes = target_bytes(&target);
                drop(target);
                self.pool.uncharge(bytes);
            }
            Body::Directory(_) => self.pool.uncharge(DIRECTORY_BYTES),
            Body::Special(_) => {}
        }
        self.pool.uncharge(OBJECT_BYTES);
    }
}

/// Whether the caller may take a name out of a directory; from a sticky one only the owner of
/// either may.
pub(super) fn may_take(parent: &Inode, inode: &Inode, caller: Caller<'_>) -> Result<()> {
    parent.require(caller, WRITE | EXECUTE)?;
    if parent.mode & STICKY != 0 && !parent.owned_by(caller) && !inode.owned_by(caller) {
        return Err(Status::NotPermitted);
    }
    Ok(())
}

//! SETATTR: the rights to set attributes, and the attributes that change with them, as on Linux.

use super::inode::{self, Inode, MODE_BITS, SET_GID, WRITE, in_group, to_time};
use super::pool::FreedPages;
use super::{FILE_BYTES_MAX, MemStore};
use crate::interface::{Caller, Effect, FileKind, ObjectId, Result, SetAttributes, SetTime, Status, Time};

impl MemStore {
    pub(super) fn set(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> (Effect, Result<()>) {
        let mut freed = FreedPages::default();
        let mut inode = match self.table.write(object) {
            Ok(inode) => inode,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let before = inode.version();
        let result =
            check(&inode, caller, set, guard).and_then(|()| self.apply(&mut inode, caller, set, &mut freed));
        let change = inode.effect_since(before);
        drop(inode);
        self.pool.free(freed);
        (change, result)
    }

    fn apply(
        &self,
        inode: &mut Inode,
        caller: Caller<'_>,
        set: &SetAttributes,
        freed: &mut FreedPages,
    ) -> Result<()> {
        if *set == SetAttributes::default() {
            return Ok(());
        }
        if let Some(size) = set.size {
            if size < inode.size {
                inode.content_mut()?.truncate(&self.pool, size, freed)?;
            }
            inode.size = size;
            inode.drop_privileges(caller);
        }
        if let Some(mode) = set.mode
            && inode.kind() != FileKind::Symlink
        {
            let group = set.gid.unwrap_or(inode.gid);
            let stranger = caller.uid != 0 && !in_group(caller, group);
            inode.mode = mode & MODE_BITS & if stranger { !SET_GID } else { MODE_BITS };
        }
        if (set.uid.is_some() || set.gid.is_some()) && !inode.is_directory() {
            inode.mode = inode.without_privileges(caller);
        }
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        let now = inode.touch_changed();
        if set.size.is_some() {
            inode.modified = now;
        }
        set_times(inode, set, now);
        Ok(())
    }
}

/// Sets the times that are to be set; `now` is the time of the change.
pub(super) fn set_times(inode: &mut Inode, set: &SetAttributes, now: u64) {
    if let Some(accessed) = inode::from_set(set.atime, now) {
        *inode.accessed.get_mut() = accessed;
    }
    if let Some(modified) = inode::from_set(set.mtime, now) {
        inode.modified = modified;
    }
}

fn check(inode: &Inode, caller: Caller<'_>, set: &SetAttributes, guard: Option<Time>) -> Result<()> {
    if let Some(size) = set.size {
        inode.content()?;
        if !inode.may_write_data(caller) {
            return Err(Status::Access);
        }
        if size > FILE_BYTES_MAX {
            return Err(Status::FileTooBig);
        }
    }
    let owned = inode.owned_by(caller);
    let now = set.atime == SetTime::Now || set.mtime == SetTime::Now;
    if now && !owned && !inode.allows(caller, WRITE) {
        return Err(Status::Access);
    }
    // RFC 1813 s3.3.2
    if guard.is_some_and(|guard| guard != to_time(inode.changed)) {
        return Err(Status::NotSync);
    }
    let root = caller.uid == 0;
    let gives_away = set.uid.is_some_and(|uid| !(root || owned && uid == inode.uid));
    let joins = |gid: u32| in_group(caller, gid) || gid == inode.gid;
    let regroups = set.gid.is_some_and(|gid| !(root || owned && joins(gid)));
    let to = matches!(set.atime, SetTime::To(_)) || matches!(set.mtime, SetTime::To(_));
    if gives_away || regroups || ((set.mode.is_some() || to) && !owned) {
        return Err(Status::NotPermitted);
    }
    Ok(())
}

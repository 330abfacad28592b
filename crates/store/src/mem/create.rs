//! CREATE, MKDIR, SYMLINK, MKNOD and LINK: operations that add a name.

use super::cost::heap_bytes;
use super::directory::{DIRECTORY_BYTES, Directory, Purpose, check_name, is_dots};
use super::inode::{Body, EXECUTE, Inode, MODE_BITS, SET_GID, WRITE, in_group};
use super::setattr::set_times;
use super::table::{Number, OBJECT_BYTES};
use super::{FILE_BYTES_MAX, LINKS_MAX, MemStore};
use crate::interface::{
    Attributes, Caller, CreateMode, Effect, FileKind, Found, NewObject, ObjectId, Result, SetAttributes,
    Special, Status,
};

/// The longest target of a symbolic link, as Linux has it: a path with its NUL fits in a page.
const TARGET_BYTES_MAX: usize = 4095;
/// Everybody may follow a link; its target's mode decides.
const SYMLINK_MODE: u32 = 0o777;

impl MemStore {
    pub(super) fn make(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        new: NewObject<'_>,
    ) -> (Effect, Result<Found>) {
        let mut parent = match self.table.write(directory) {
            Ok(inode) => inode,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let before = parent.version();
        let result = free_name(&parent, caller, name).and_then(|existing| match existing {
            Some(object) => self.create_existing(caller, object, new),
            None => self.make_in(caller, &mut parent, name, new),
        });
        (parent.effect_since(before), result)
    }

    /// Handles CREATE for an existing name. RFC 1813 s3.3.8
    ///
    /// As on Linux, UNCHECKED sets only the size of an existing file, and leaves anything else as
    /// it is: this is what `open` without `O_EXCL` means.
    fn create_existing(&self, caller: Caller<'_>, object: ObjectId, new: NewObject<'_>) -> Result<Found> {
        match new {
            NewObject::File(CreateMode::Unchecked(set)) => {
                let existing = self.found(object)?;
                if existing.attributes.kind != FileKind::Regular || set.size.is_none() {
                    return Ok(existing);
                }
                let set = SetAttributes { size: set.size, ..SetAttributes::default() };
                self.set(caller, object, &set, None).1?;
                self.found(object)
            }
            NewObject::File(CreateMode::Exclusive(verifier)) => {
                let existing = self.table.read(object)?;
                if existing.verifier != Some(verifier) {
                    return Err(Status::Exists);
                }
                Ok(existing.found())
            }
            _ => Err(Status::Exists),
        }
    }

    fn make_in(
        &self,
        caller: Caller<'_>,
        parent: &mut Inode,
        name: &[u8],
        new: NewObject<'_>,
    ) -> Result<Found> {
        parent.require(caller, WRITE | EXECUTE)?;
        check_new(caller, parent, &new)?;
        let bytes = object_bytes(&new);
        if !self.pool.charge(bytes) {
            return Err(Status::NoSpace);
        }
        parent
            .directory_mut()?
            .make_room(&self.pool, name, Purpose::Addition)
            .inspect_err(|_| self.pool.uncharge(bytes))?;
        let added = self.table.add(|number| inode_of(caller, parent, number, &new));
        let names = parent.directory_mut()?;
        let number = added.inspect_err(|_| {
            names.leave_room(&self.pool, name);
            self.pool.uncharge(bytes);
        })?;
        names.add(name, number);
        if matches!(new, NewObject::Directory(_)) {
            parent.links += 1;
        }
        parent.touch_modified();
        self.found(number.object())
    }

    pub(super) fn make_link(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> (Option<Attributes>, Effect, Result<()>) {
        // Asked before anything is locked: the directory and the object could be the same.
        let known = self.get(object);
        let mut parent = match self.table.write(directory) {
            Ok(inode) => inode,
            Err(error) => return (known.ok(), Effect::default(), Err(error)),
        };
        let before = parent.version();
        let result = known.and_then(|known| {
            if known.kind == FileKind::Directory {
                return Err(Status::IsDirectory);
            }
            if free_name(&parent, caller, name)?.is_some() {
                return Err(Status::Exists);
            }
            parent.require(caller, WRITE | EXECUTE)?;
            let mut inode = self.table.write(object)?;
            // It is only held: as on Linux, it does not come back.
            if inode.links == 0 {
                return Err(Status::NotFound);
            }
            if inode.links >= LINKS_MAX {
                return Err(Status::TooManyLinks);
            }
            let names = parent.directory_mut()?;
            names.make_room(&self.pool, name, Purpose::Addition)?;
            names.add(name, inode.number);
            parent.touch_modified();
            inode.links += 1;
            inode.touch_changed();
            Ok(inode.attributes())
        });
        let change = parent.effect_since(before);
        match result {
            Ok(attributes) => (Some(attributes), change, Ok(())),
            Err(error) => {
                drop(parent);
                (self.get(object).ok(), change, Err(error))
            }
        }
    }
}

/// What the target of a symbolic link costs.
pub(super) const fn target_bytes(target: &[u8]) -> u64 {
    heap_bytes(target.len())
}

/// What a new object costs, without its name.
fn object_bytes(new: &NewObject<'_>) -> u64 {
    OBJECT_BYTES
        + match new {
            NewObject::Directory(_) => DIRECTORY_BYTES,
            NewObject::Symlink(_, target) => target_bytes(target),
            NewObject::File(_) | NewObject::Special(..) => 0,
        }
}

/// Checks that a name may be added to the directory. Returns the object that already has the name,
/// if any.
fn free_name(parent: &Inode, caller: Caller<'_>, name: &[u8]) -> Result<Option<ObjectId>> {
    let names = parent.directory()?;
    check_name(name)?;
    parent.require(caller, EXECUTE)?;
    if is_dots(name) {
        return Err(Status::Exists);
    }
    Ok(names.find(name))
}

fn check_new(caller: Caller<'_>, parent: &Inode, new: &NewObject<'_>) -> Result<()> {
    match *new {
        NewObject::File(CreateMode::Unchecked(set) | CreateMode::Guarded(set)) => {
            if set.size.is_some_and(|size| size > FILE_BYTES_MAX) {
                return Err(Status::FileTooBig);
            }
        }
        NewObject::File(CreateMode::Exclusive(_)) => {}
        NewObject::Directory(_) => {
            if parent.links >= LINKS_MAX {
                return Err(Status::TooManyLinks);
            }
        }
        NewObject::Symlink(_, target) => {
            if target.is_empty() {
                return Err(Status::NotFound);
            }
            if target.len() > TARGET_BYTES_MAX {
                return Err(Status::NameTooLong);
            }
            if target.contains(&0) {
                return Err(Status::Invalid);
            }
        }
        NewObject::Special(_, Special::BlockDevice(_) | Special::CharacterDevice(_)) if caller.uid != 0 => {
            return Err(Status::NotPermitted);
        }
        NewObject::Special(..) => {}
    }
    Ok(())
}

/// The new object. An exclusive create's has no rights until the SETATTR that follows; its owner
/// can use it.
fn inode_of(caller: Caller<'_>, parent: &Inode, number: Number, new: &NewObject<'_>) -> Inode {
    let (set, body) = match *new {
        NewObject::File(CreateMode::Unchecked(set) | CreateMode::Guarded(set)) => {
            (set, Body::File(Default::default()))
        }
        NewObject::File(CreateMode::Exclusive(_)) => {
            (SetAttributes::default(), Body::File(Default::default()))
        }
        NewObject::Directory(set) => (set, Body::Directory(Box::new(Directory::new(parent.number)))),
        NewObject::Symlink(set, target) => (set, Body::Symlink(target.into())),
        NewObject::Special(set, special) => (set, Body::Special(special)),
    };
    // Only root may choose another owner or group, as on Linux; for others the fields mean nothing.
    let root = caller.uid == 0;
    let inherits = parent.mode & SET_GID != 0;
    let uid = set.uid.filter(|_| root).unwrap_or(caller.uid);
    let made_gid = if inherits { parent.gid } else { caller.gid };
    let gid = set.gid.filter(|_| root).unwrap_or(made_gid);
    let mut mode = set.mode.unwrap_or(0) & MODE_BITS;
    if !root && !in_group(caller, gid) {
        mode &= !SET_GID;
    }
    match body {
        Body::Symlink(_) => mode = SYMLINK_MODE,
        Body::Directory(_) if inherits => mode |= SET_GID,
        _ => {}
    }
    let file = matches!(body, Body::File(_));
    let mut inode = Inode::new(number, body, mode, uid, gid);
    if file {
        inode.size = set.size.unwrap_or(0);
    }
    if let NewObject::File(CreateMode::Exclusive(verifier)) = *new {
        inode.verifier = Some(verifier);
    }
    let now = inode.changed;
    set_times(&mut inode, &set, now);
    inode
}

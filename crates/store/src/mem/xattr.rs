//! Extended attributes. RFC 8276

use std::collections::BTreeMap;

use super::MemStore;
use super::cost::heap_bytes;
use super::inode::{Body, Inode, READ, STICKY, WRITE};
use super::pool::Pool;
use crate::interface::{
    Caller, Effect, ObjectId, Result, SetXattr, Status, XATTR_VALUE_BYTES_MAX, xattr_cookie, xattr_name,
};

/// An attribute's place in listings, and its name.
type Key = (u64, Box<[u8]>);
type Tree = BTreeMap<Key, Box<[u8]>>;

/// Places in a node of the tree, and what it has besides.
const NODE_BYTES: u64 = heap_bytes(11 * (size_of::<Key>() + size_of::<Box<[u8]>>()) + 32);
/// What an attribute costs besides its name and its value: its share of a node that is about half
/// full, and of the nodes above.
const ENTRY_BYTES: u64 = NODE_BYTES / 5;
/// The most bytes of all names of one object, each with its prefix and a NUL: as Linux has it
/// (`XATTR_LIST_MAX`), where longer lists could not be read.
const LIST_BYTES_MAX: usize = 64 << 10;

/// The extended attributes of one object.
#[derive(Default)]
pub(super) struct Xattrs(Option<Box<Tree>>);

/// What the first attribute costs more.
const fn tree_bytes() -> u64 {
    heap_bytes(size_of::<Tree>()) + NODE_BYTES
}

fn key(name: &[u8]) -> Key {
    (xattr_cookie(name), name.into())
}

fn entry_bytes(name: &[u8], value: &[u8]) -> u64 {
    ENTRY_BYTES + heap_bytes(name.len()) + heap_bytes(value.len())
}

impl Xattrs {
    fn tree(&self) -> Option<&Tree> {
        self.0.as_deref()
    }

    fn find(&self, name: &[u8]) -> Option<&[u8]> {
        self.tree()?.get(&key(name)).map(|value| &**value)
    }

    /// The bytes of all names as Linux lists them.
    fn list_bytes(&self) -> usize {
        let names = self.tree().into_iter().flat_map(Tree::keys);
        names.map(|(_, name)| listed_bytes(name)).sum()
    }

    fn set(&mut self, pool: &Pool, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        let old = self.find(name).map(|value| entry_bytes(name, value));
        match (how, old) {
            (SetXattr::Create, Some(_)) => return Err(Status::Exists),
            (SetXattr::Replace, None) => return Err(Status::NoXattr),
            _ => {}
        }
        if old.is_none() && self.list_bytes() + listed_bytes(name) > LIST_BYTES_MAX {
            return Err(Status::NoSpace);
        }
        let tree = if self.0.is_none() { tree_bytes() } else { 0 };
        let new = tree + entry_bytes(name, value);
        let old = old.unwrap_or(0);
        if !pool.charge(new.saturating_sub(old)) {
            return Err(Status::NoSpace);
        }
        self.0.get_or_insert_default().insert(key(name), value.into());
        pool.uncharge(old.saturating_sub(new));
        Ok(())
    }

    fn remove(&mut self, pool: &Pool, name: &[u8]) -> Result<()> {
        let tree = self.0.as_mut().ok_or(Status::NoXattr)?;
        let value = tree.remove(&key(name)).ok_or(Status::NoXattr)?;
        pool.uncharge(entry_bytes(name, &value));
        if tree.is_empty() {
            self.0 = None;
            pool.uncharge(tree_bytes());
        }
        Ok(())
    }

    /// Frees all; for an object that is gone.
    pub fn clear(self, pool: &Pool) {
        let Some(tree) = self.0 else { return };
        let entries: u64 = tree.iter().map(|((_, name), value)| entry_bytes(name, value)).sum();
        drop(tree);
        pool.uncharge(tree_bytes() + entries);
    }
}

/// What a name takes of the list of names on Linux.
fn listed_bytes(name: &[u8]) -> usize {
    name.len() + "user.\0".len()
}

impl MemStore {
    pub(super) fn value_of_xattr(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        name: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        xattr_name(name)?;
        let inode = self.table.read(object)?;
        if !has_xattrs(&inode) {
            return Err(Status::NoXattr);
        }
        inode.require(caller, READ)?;
        out.extend_from_slice(inode.xattrs.find(name).ok_or(Status::NoXattr)?);
        Ok(())
    }

    /// Sets an attribute, or removes it without a value.
    pub(super) fn change_xattr(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        name: &[u8],
        value: Option<(&[u8], SetXattr)>,
    ) -> (Effect, Result<()>) {
        let mut inode = match self.table.write(object) {
            Ok(inode) => inode,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let before = inode.version();
        let result = may_change(&inode, caller, name).and_then(|()| match value {
            Some((value, _)) if value.len() > XATTR_VALUE_BYTES_MAX => Err(Status::XattrTooBig),
            Some((value, how)) => inode.xattrs.set(&self.pool, name, value, how),
            None => inode.xattrs.remove(&self.pool, name),
        });
        if result.is_ok() {
            inode.touch_changed();
        }
        (inode.effect_since(before), result)
    }

    pub(super) fn names_of_xattrs(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(&[u8], u64) -> bool,
    ) -> Result<bool> {
        let inode = self.table.read(object)?;
        inode.require(caller, READ)?;
        let Some(tree) = inode.xattrs.tree() else { return Ok(true) };
        let Some(next) = cookie.checked_add(1) else { return Ok(true) };
        let from: Key = (next, Box::default());
        let mut names = tree.range(from..).map(|((cookie, name), _)| (name, *cookie));
        Ok(names.all(|(name, cookie)| visit(name, cookie)))
    }
}

/// Links, devices and the like have none, as on Linux: their permissions mean something else.
fn has_xattrs(inode: &Inode) -> bool {
    matches!(inode.body, Body::File(_) | Body::Directory(_))
}

/// Whether the caller may change an attribute; in a sticky directory only the owner may change
/// those of the directory, as on Linux.
fn may_change(inode: &Inode, caller: Caller<'_>, name: &[u8]) -> Result<()> {
    xattr_name(name)?;
    let protected = inode.is_directory() && inode.mode & STICKY != 0 && !inode.owned_by(caller);
    if !has_xattrs(inode) || protected {
        return Err(Status::NotPermitted);
    }
    inode.require(caller, WRITE)
}

//! The names in one directory.
//!
//! Each name has a number that increases from name to name and never changes. The number is the
//! cookie, so a listing continues at the right place whatever names come and go. A listing goes
//! from the newest name to the oldest, so it never reaches a name that was created after it began:
//! otherwise it would never end for a program that renames every listed name. RFC 1813 s3.3.16

use std::sync::Arc;

use super::cost::heap_bytes;
use super::names::Names;
use super::pool::Pool;
use super::table::Number;
use crate::interface::{ObjectId, Result, Status};

/// The longest name, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// The cookie of `.`, which is told first; that of `..` is the next, then those of the names
/// follow.
pub(super) const COOKIE_SELF: u64 = 1;
/// The cookie of `..`.
pub(super) const COOKIE_PARENT: u64 = 2;
/// What a directory costs besides its object and its names.
pub(super) const DIRECTORY_BYTES: u64 = heap_bytes(size_of::<Directory>());

/// See the module.
pub(super) struct Directory {
    parent: Number,
    names: Names,
    last_cookie: u64,
}

/// What a change that needs memory may use of the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Something new.
    Addition,
    /// Something that replaces what is given back right after: part of the reserve too.
    Move,
}

impl Directory {
    pub fn new(parent: Number) -> Directory {
        Directory { parent, names: Names::default(), last_cookie: COOKIE_PARENT }
    }

    pub fn parent(&self) -> ObjectId {
        self.parent.object()
    }

    pub fn set_parent(&mut self, parent: Number) {
        self.parent = parent;
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn find(&self, name: &[u8]) -> Option<ObjectId> {
        self.names.find(name).map(Number::object)
    }

    /// Charges for a name, which must not be there yet, and makes room for it.
    pub fn make_room(&mut self, pool: &Pool, name: &[u8], purpose: Purpose) -> Result<()> {
        let charge = |bytes| match purpose {
            Purpose::Addition => pool.charge(bytes),
            Purpose::Move => pool.charge_move(bytes),
        };
        if !charge(Names::name_bytes(name.len())) {
            return Err(Status::NoSpace);
        }
        self.names.make_room(charge).inspect_err(|_| pool.uncharge(Names::name_bytes(name.len())))
    }

    /// Gives back what [`Directory::make_room`] charged for a name that was not added after all.
    pub fn leave_room(&mut self, pool: &Pool, name: &[u8]) {
        pool.uncharge(Names::name_bytes(name.len()));
        self.trim(pool);
    }

    /// Adds a name, for which room was made.
    pub fn add(&mut self, name: &[u8], object: Number) {
        self.last_cookie += 1;
        self.names.add(name, self.last_cookie, object);
    }

    /// Lets an existing name refer to another object, with its old cookie.
    pub fn replace(&mut self, name: &[u8], object: Number) {
        let replaced = self.names.replace(name, object);
        debug_assert!(replaced, "the name exists");
    }

    /// Takes an existing name out, and gives back what it cost.
    pub fn take(&mut self, pool: &Pool, name: &[u8]) {
        self.names.take(name);
        pool.uncharge(Names::name_bytes(name.len()));
        self.trim(pool);
    }

    /// Gives an existing name another text, and a new cookie. Its memory becomes that of the new
    /// name: the number of names is the same.
    pub fn rename(&mut self, pool: &Pool, (from, to): (&[u8], &[u8]), object: Number) -> Result<()> {
        let (old, new) = (Names::name_bytes(from.len()), Names::name_bytes(to.len()));
        if new > old && !pool.charge_move(new - old) {
            return Err(Status::NoSpace);
        }
        let room = self.names.make_room(|bytes| pool.charge_move(bytes));
        self.names.take(from);
        if room.is_err() {
            self.names.pack();
        }
        pool.uncharge(old.saturating_sub(new));
        self.add(to, object);
        Ok(())
    }

    /// Whether the cookie may have been returned by a listing.
    pub fn gave(&self, cookie: u64) -> bool {
        cookie <= self.last_cookie
    }

    /// The names after a cookie, which are older than its name: all of them after the beginning and
    /// the two dots.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Arc<[u8]>, ObjectId)> {
        let end = if cookie <= COOKIE_PARENT { self.last_cookie + 1 } else { cookie };
        self.names.before(end).map(|(cookie, name, number)| (cookie, name, number.object()))
    }

    fn trim(&mut self, pool: &Pool) {
        let before = self.names.bytes();
        self.names.trim();
        pool.uncharge(before - self.names.bytes());
    }
}

/// Refuses what cannot be a name: empty, too long, or with a separator or a NUL in it. Names are
/// bytes, not text.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(Status::Access);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    if name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Status::Invalid);
    }
    Ok(())
}

/// Whether it names the directory itself or its parent.
pub(super) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

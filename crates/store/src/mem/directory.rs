//! The names in one directory.
//!
//! Each name has a number that increases from name to name and never changes. The number is the
//! cookie, so a listing continues at the right place whatever names come and go. A listing goes
//! from the newest name to the oldest, so it never reaches a name that was created after it began:
//! otherwise it would never end for a program that renames every listed name. RFC 1813 s3.3.16

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::interface::{ObjectId, Result, Status};

/// The longest name, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// What a name costs besides twice its bytes: its places in the two tables, estimated.
const NAME_BYTES: u64 = 160;
/// The cookie of `.`, which is told first; that of `..` is the next, then those of the names
/// follow.
pub(super) const COOKIE_SELF: u64 = 1;
/// The cookie of `..`.
pub(super) const COOKIE_PARENT: u64 = 2;

/// See the module.
pub(super) struct Directory {
    pub parent: ObjectId,
    names: HashMap<Arc<[u8]>, Link>,
    order: BTreeMap<u64, (Arc<[u8]>, ObjectId)>,
    last_cookie: u64,
}

#[derive(Clone, Copy)]
struct Link {
    object: ObjectId,
    cookie: u64,
}

impl Directory {
    pub fn new(parent: ObjectId) -> Directory {
        Directory { parent, names: HashMap::new(), order: BTreeMap::new(), last_cookie: COOKIE_PARENT }
    }

    /// What a name costs of the bound.
    pub fn charge(name: &[u8]) -> u64 {
        NAME_BYTES + name.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn find(&self, name: &[u8]) -> Option<ObjectId> {
        self.names.get(name).map(|link| link.object)
    }

    /// Adds a name, or lets an existing name refer to another object, with its old cookie.
    pub fn put(&mut self, name: &[u8], object: ObjectId) {
        if let Some(link) = self.names.get_mut(name) {
            link.object = object;
            if let Some(entry) = self.order.get_mut(&link.cookie) {
                entry.1 = object;
            }
            return;
        }
        self.last_cookie += 1;
        let name: Arc<[u8]> = name.into();
        self.order.insert(self.last_cookie, (Arc::clone(&name), object));
        self.names.insert(name, Link { object, cookie: self.last_cookie });
    }

    pub fn take(&mut self, name: &[u8]) {
        if let Some(link) = self.names.remove(name) {
            self.order.remove(&link.cookie);
        }
    }

    /// Whether the cookie may have been returned by a listing.
    pub fn gave(&self, cookie: u64) -> bool {
        cookie <= self.last_cookie
    }

    /// The names after a cookie, which are older than its name: all of them after the beginning and
    /// the two dots.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Arc<[u8]>, ObjectId)> {
        let end = if cookie <= COOKIE_PARENT { self.last_cookie + 1 } else { cookie };
        self.order.range(..end).rev().map(|(&cookie, (name, object))| (cookie, name, *object))
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

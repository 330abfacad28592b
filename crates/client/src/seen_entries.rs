//! The names that a listing has returned, so that a listing that has to restart returns no name
//! twice.
//!
//! A server may refuse a cookie that it gave (NFS3ERR_BAD_COOKIE): its directory has changed, or
//! the server is another process with a numbering of its own. The only way to continue is to
//! restart from the beginning and to skip the known names. RFC 1813 s3.3.16

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// Maximum number of names remembered per directory, about 32 MiB. In a larger directory a bad
/// cookie is an error.
pub const GIVEN_NAMES_MAX: usize = 1 << 20;
/// How often a listing may restart without finding a new name. This distinguishes a server that
/// refuses every cookie from one that refuses some.
pub const LISTING_RESTARTS_MAX: u32 = 8;

/// Hashes a name to 128 bits with random keys: a server cannot choose names that collide, and by
/// chance two of a million names collide once in 10^26 listings.
#[derive(Debug, Clone, Default)]
pub struct NameHasher([RandomState; 2]);

impl NameHasher {
    /// The mark of a name.
    #[must_use]
    pub fn of(&self, name: &[u8]) -> u128 {
        let [high, low] = &self.0;
        u128::from(high.hash_one(name)) << 64 | u128::from(low.hash_one(name))
    }
}

/// The names returned by one listing, page by page.
#[derive(Debug, Default)]
pub(crate) struct SeenEntries {
    hasher: NameHasher,
    names: HashSet<u128>,
    /// A name was not remembered because the set was full.
    overflowed: bool,
    /// Restarts since the last new name.
    restarts: u32,
}

impl SeenEntries {
    /// Records a name. Returns whether the name is new, and so must be returned to the caller.
    pub(crate) fn insert(&mut self, name: &[u8]) -> bool {
        let mark = self.hasher.of(name);
        if self.names.len() >= GIVEN_NAMES_MAX && !self.names.contains(&mark) {
            self.overflowed = true;
            return true;
        }
        let is_new = self.names.insert(mark);
        if is_new {
            self.restarts = 0;
        }
        is_new
    }

    /// Whether the listing may restart.
    pub(crate) fn may_restart(&mut self) -> bool {
        self.restarts += 1;
        !self.overflowed && self.restarts <= LISTING_RESTARTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_new_once_and_a_new_name_permits_further_restarts() {
        let mut given = SeenEntries::default();
        assert!(given.insert(b"a") && given.insert(b"b") && !given.insert(b"a"));
        for _ in 0..LISTING_RESTARTS_MAX {
            assert!(given.may_restart());
            assert!(!given.insert(b"b"));
        }
        assert!(!given.may_restart());
        assert!(given.insert(b"c"));
        assert!(given.may_restart(), "the listing made progress");
    }

    #[test]
    fn names_differ_by_all_their_bytes() {
        let hasher = NameHasher::default();
        assert_ne!(hasher.of(b"a"), hasher.of(b"a\0"));
        assert_ne!(hasher.of(b""), hasher.of(b"\0"));
        assert_eq!(hasher.of(b"name"), hasher.clone().of(b"name"));
    }
}

//! The names of a directory that a program has received, so that a listing whose cookie the server
//! refuses can continue behind them.
//!
//! The kernel asks for the next names by the cookie of the last name that it took, and drops names
//! that did not fit. So when it asks again, the program has the names up to that cookie. If the
//! server refuses the cookie (NFS3ERR_BAD_COOKIE), the directory is listed from the beginning, and
//! those names are left out. RFC 1813 s3.3.16
//!
//! Pure: the owner makes the calls.

use client::{DIRECTORY_ENTRIES_MAX, GIVEN_NAMES_MAX, LISTING_RESTARTS_MAX, NameHasher};
use fs::DirectoryEntry;
use std::collections::HashSet;

/// The most names reported for one directory, because a server that never ends its listing must not
/// occupy a program for ever. Some names are reported twice, when the kernel did not take them.
const NAMES_MAX: usize = 2 * DIRECTORY_ENTRIES_MAX;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    marks: NameHasher,
    /// Cookies and names as reported to the kernel since the beginning.
    reported: Vec<(u64, u128)>,
    /// The record is incomplete: too many names, or the program moved to a position that is not
    /// recorded.
    partial: bool,
    /// Names that the restarted listing leaves out.
    skipped: HashSet<u128>,
    /// How often the listing has restarted since the last reported name.
    restarts: u32,
    /// Names reported since the beginning, with those reported twice.
    count: usize,
}

impl Listing {
    /// The kernel continues at a cookie; 0 is the beginning.
    pub fn seek(&mut self, cookie: u64) {
        if cookie == 0 {
            (self.partial, self.restarts, self.count) = (false, 0, 0);
            self.reported.clear();
            self.skipped.clear();
            return;
        }
        // Search from the end: a cookie of an earlier listing may recur in this listing for another
        // name.
        match self.reported.iter().rposition(|(reported, _)| *reported == cookie) {
            Some(last) => self.reported.truncate(last + 1),
            None => self.partial = true,
        }
    }

    /// Whether more names were reported than any directory has.
    pub const fn is_endless(&self) -> bool {
        self.count > NAMES_MAX
    }

    /// A name is reported to the kernel.
    pub fn record(&mut self, cookie: u64, name: &[u8]) {
        self.restarts = 0;
        self.count += 1;
        if self.reported.len() < GIVEN_NAMES_MAX {
            self.reported.push((cookie, self.marks.of(name)));
        } else {
            self.partial = true;
        }
    }

    /// Restarts the listing if that can help. Returns how many names are to be left out.
    pub fn restart(&mut self) -> Option<usize> {
        self.restarts += 1;
        if self.partial || self.restarts > LISTING_RESTARTS_MAX {
            return None;
        }
        self.skipped = self.reported.iter().map(|(_, name)| *name).collect();
        Some(self.skipped.len())
    }

    /// Removes the names that the program already has.
    pub fn retain_new(&self, names: &mut Vec<DirectoryEntry>) {
        names.retain(|name| self.is_new(&name.name));
    }

    fn is_new(&self, name: &[u8]) -> bool {
        self.skipped.is_empty() || !self.skipped.contains(&self.marks.of(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing_of(names: &[(u64, &[u8])]) -> Listing {
        let mut listing = Listing::default();
        listing.seek(0);
        names.iter().for_each(|(cookie, name)| listing.record(*cookie, name));
        listing
    }

    #[test]
    fn names_that_the_kernel_did_not_take_are_reported_again() {
        let mut listing = listing_of(&[(1, b"a"), (2, b"b"), (3, b"c")]);
        listing.seek(2);
        assert_eq!(listing.restart(), Some(2));
        assert!(!listing.is_new(b"a") && !listing.is_new(b"b"));
        assert!(listing.is_new(b"c") && listing.is_new(b"d"));
    }

    #[test]
    fn a_cookie_of_another_numbering_stands_for_the_name_that_had_it_last() {
        let mut listing = listing_of(&[(1, b"a"), (2, b"b")]);
        assert_eq!(listing.restart(), Some(2));
        // After renumbering, the same cookies belong to other names.
        listing.record(1, b"c");
        listing.record(2, b"d");
        listing.seek(1);
        assert_eq!(listing.restart(), Some(3));
        assert!(!listing.is_new(b"c") && listing.is_new(b"d"));
    }

    #[test]
    fn from_the_beginning_every_name_is_reported() {
        let mut listing = listing_of(&[(1, b"a")]);
        assert_eq!(listing.restart(), Some(1));
        assert!(!listing.is_new(b"a"));
        listing.seek(0);
        assert!(listing.is_new(b"a"));
    }

    #[test]
    fn where_a_program_was_not_before_nothing_can_be_left_out() {
        let mut listing = listing_of(&[(1, b"a")]);
        listing.seek(9);
        assert_eq!(listing.restart(), None);
        listing.seek(0);
        assert_eq!(listing.restart(), Some(0), "reading from the beginning helps");
    }

    #[test]
    fn a_listing_has_an_end() {
        let mut listing = listing_of(&[(1, b"a")]);
        listing.count = NAMES_MAX;
        assert!(!listing.is_endless());
        listing.record(2, b"b");
        assert!(listing.is_endless());
        listing.seek(0);
        assert!(!listing.is_endless());
    }

    #[test]
    fn a_server_that_refuses_each_cookie_is_given_up() {
        let mut listing = listing_of(&[(1, b"a")]);
        for _ in 0..LISTING_RESTARTS_MAX {
            assert_eq!(listing.restart(), Some(1));
        }
        assert_eq!(listing.restart(), None);
        listing.record(7, b"b");
        assert_eq!(listing.restart(), Some(2), "the listing has made progress");
    }
}

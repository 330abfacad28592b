//! The version of a file that is known here, followed through the writes made from here.
//!
//! With each WRITE the server reports the version of the file before and after it. A version
//! reached from the known version by such writes alone contains no other client's changes. Replies
//! come in any order, so a change that does not connect yet is kept for a while. If a server does
//! not report the version before a write, the change may be anyone's, and counts as another
//! client's. RFC 1813 s2.6
//!
//! Pure.

use fs::{Change, Version};
use std::collections::VecDeque;

/// The most earlier versions and unconnected changes remembered: usually more than the writes of
/// one file that are under way.
const VERSIONS_MAX: usize = 256;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    newest: Option<Version>,
    /// Earlier versions since another client last changed the file, newest last.
    earlier: VecDeque<Version>,
    /// Our changes, from one version to another, that begin at no version known here.
    loose: VecDeque<(Version, Version)>,
}

impl Lineage {
    /// A write from here was answered.
    pub(crate) fn follow(&mut self, change: Change) {
        let (Some(before), Some(after)) = (change.before, change.after) else { return };
        let change = (before, after);
        if change.0 == change.1 {
            return;
        }
        self.loose.push_back(change);
        self.go_on();
        self.loose.drain(..self.loose.len().saturating_sub(VERSIONS_MAX));
        self.earlier.drain(..self.earlier.len().saturating_sub(VERSIONS_MAX));
    }

    /// Follows our changes from the newest known version.
    fn go_on(&mut self) {
        while let Some(newest) = self.newest
            && let Some(at) = self.loose.iter().position(|(before, _)| *before == newest)
            && let Some((_, after)) = self.loose.remove(at)
        {
            self.earlier.push_back(newest);
            self.newest = Some(after);
        }
    }

    /// Takes a version that the server reports. Returns whether another client has changed the file
    /// since the known version. A reply from before a write of ours may arrive after the reply to
    /// that write.
    pub(crate) fn sees(&mut self, version: Version) -> bool {
        let is_known = self.newest == Some(version) || self.earlier.contains(&version);
        if is_known {
            return false;
        }
        self.earlier.clear();
        let before = self.newest.replace(version);
        self.go_on();
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::Time;

    fn at(seconds: i64) -> Version {
        let time = Time::from_seconds(seconds);
        Version { size: 1, mtime: time, ctime: time }
    }

    fn seen(lineage: &mut Lineage, seconds: i64) -> bool {
        lineage.sees(at(seconds))
    }

    fn from_to(before: i64, after: i64) -> Change {
        Change { before: Some(at(before)), after: Some(at(after)) }
    }

    #[test]
    fn what_follows_by_our_writes_alone_is_ours_in_whatever_order_they_are_answered() {
        let mut lineage = Lineage::default();
        assert!(!seen(&mut lineage, 1), "the first is no change");
        for change in [from_to(2, 3), from_to(3, 4), from_to(1, 2), from_to(4, 5)] {
            lineage.follow(change);
        }
        assert!(!seen(&mut lineage, 5));
        // An earlier reply, and the newest version again.
        assert!(!seen(&mut lineage, 3) && !seen(&mut lineage, 5));
        assert!(lineage.loose.is_empty());
    }

    #[test]
    fn what_was_answered_before_any_version_was_known_follows_the_first() {
        let mut lineage = Lineage::default();
        lineage.follow(from_to(2, 3));
        lineage.follow(from_to(1, 2));
        assert!(!seen(&mut lineage, 1) && !seen(&mut lineage, 3));
    }

    #[test]
    fn what_somebody_else_has_done_between_two_of_our_writes_is_theirs() {
        let mut lineage = Lineage::default();
        seen(&mut lineage, 1);
        lineage.follow(from_to(1, 2));
        lineage.follow(from_to(3, 4));
        assert!(seen(&mut lineage, 4));
        lineage.follow(from_to(4, 5));
        assert!(!seen(&mut lineage, 5));
        assert!(seen(&mut lineage, 1), "and nothing leads back");
    }

    #[test]
    fn a_server_that_does_not_tell_what_was_before_leaves_it_to_others() {
        for change in [
            Change { before: None, after: Some(at(2)) },
            Change { before: Some(at(1)), after: None },
            Change::default(),
        ] {
            let mut lineage = Lineage::default();
            seen(&mut lineage, 1);
            lineage.follow(change);
            assert!(seen(&mut lineage, 2), "{change:?}");
        }
    }

    #[test]
    fn changes_that_follow_nothing_do_not_pile_up() {
        let mut lineage = Lineage::default();
        seen(&mut lineage, 1);
        for at in 0..1000 {
            lineage.follow(from_to(at * 2 + 10, at * 2 + 11));
        }
        assert_eq!(lineage.loose.len(), VERSIONS_MAX);
        for at in 1..1000 {
            lineage.follow(from_to(at, at + 1));
        }
        assert_eq!(lineage.earlier.len(), VERSIONS_MAX);
    }
}

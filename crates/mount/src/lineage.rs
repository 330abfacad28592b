//! Which content of a file is known here, followed over the writes that are made from here.
//!
//! The server tells with each WRITE of which version the file was before it and after. A version
//! that is reached from the one known here by such writes alone is nobody else's work. Replies come
//! in any order, so a change that does not follow yet is kept for a while. A server that does not
//! tell what was before leaves it open who has changed the file: then others have. RFC 1813 s2.6
//!
//! Pure.

use fs::{Change, Version};
use std::collections::VecDeque;

/// Versions of before that are remembered, and changes that do not follow: more than writes of one
/// file are under way, mostly.
const VERSIONS_MAX: usize = 256;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    newest: Option<Version>,
    /// Those before it since somebody else has changed the file, newest last.
    earlier: VecDeque<Version>,
    /// Changes of ours, from one version to another, that begin at none known here.
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

    /// Follows our changes from the newest version that is known.
    fn go_on(&mut self) {
        while let Some(newest) = self.newest
            && let Some(at) = self.loose.iter().position(|(before, _)| *before == newest)
            && let Some((_, after)) = self.loose.remove(at)
        {
            self.earlier.push_back(newest);
            self.newest = Some(after);
        }
    }

    /// The server tells the file's version: whether somebody else has changed it since the one
    /// known here. An answer from before a write of ours may come after that of the write.
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
        // An answer from before, and the newest again.
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

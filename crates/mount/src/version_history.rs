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
pub(crate) struct VersionHistory {
    newest: Option<Version>,
    /// Earlier versions since another client last changed the file, newest last.
    earlier: VecDeque<Version>,
    /// Our changes, from one version to another, that begin at no version known here.
    unconnected: VecDeque<(Version, Version)>,
}

impl VersionHistory {
    /// A write from here was answered.
    pub(crate) fn record_own_change(&mut self, change: Change) {
        let (Some(before), Some(after)) = (change.before, change.after) else { return };
        let change = (before, after);
        if change.0 == change.1 {
            return;
        }
        self.unconnected.push_back(change);
        self.advance();
        self.unconnected.drain(..self.unconnected.len().saturating_sub(VERSIONS_MAX));
        self.earlier.drain(..self.earlier.len().saturating_sub(VERSIONS_MAX));
    }

    /// Follows our changes from the newest known version.
    fn advance(&mut self) {
        while let Some(newest) = self.newest
            && let Some(at) = self.unconnected.iter().position(|(before, _)| *before == newest)
            && let Some((_, after)) = self.unconnected.remove(at)
        {
            self.earlier.push_back(newest);
            self.newest = Some(after);
        }
    }

    /// Takes a version that the server reports. Returns whether another client has changed the file
    /// since the known version. A reply from before a write of ours may arrive after the reply to
    /// that write.
    pub(crate) fn observe(&mut self, version: Version) -> bool {
        let is_known = self.newest == Some(version) || self.earlier.contains(&version);
        if is_known {
            return false;
        }
        self.earlier.clear();
        let before = self.newest.replace(version);
        self.advance();
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::Time;

    fn at(seconds: i64) -> Version {
        let time = Time::from_seconds(seconds);
        Version { size: 1, mtime: time, ctime: time, change: 0 }
    }

    fn observe(history: &mut VersionHistory, seconds: i64) -> bool {
        history.observe(at(seconds))
    }

    fn from_to(before: i64, after: i64) -> Change {
        Change { before: Some(at(before)), after: Some(at(after)) }
    }

    #[test]
    fn what_follows_by_our_writes_alone_is_ours_in_whatever_order_they_are_answered() {
        let mut history = VersionHistory::default();
        assert!(!observe(&mut history, 1), "the first is no change");
        for change in [from_to(2, 3), from_to(3, 4), from_to(1, 2), from_to(4, 5)] {
            history.record_own_change(change);
        }
        assert!(!observe(&mut history, 5));
        // An earlier reply, and the newest version again.
        assert!(!observe(&mut history, 3) && !observe(&mut history, 5));
        assert!(history.unconnected.is_empty());
    }

    #[test]
    fn what_was_answered_before_any_version_was_known_follows_the_first() {
        let mut history = VersionHistory::default();
        history.record_own_change(from_to(2, 3));
        history.record_own_change(from_to(1, 2));
        assert!(!observe(&mut history, 1) && !observe(&mut history, 3));
    }

    #[test]
    fn a_change_between_two_of_our_writes_is_another_clients() {
        let mut history = VersionHistory::default();
        observe(&mut history, 1);
        history.record_own_change(from_to(1, 2));
        history.record_own_change(from_to(3, 4));
        assert!(observe(&mut history, 4));
        history.record_own_change(from_to(4, 5));
        assert!(!observe(&mut history, 5));
        assert!(observe(&mut history, 1), "and nothing leads back");
    }

    #[test]
    fn a_server_that_does_not_tell_what_was_before_leaves_it_to_others() {
        for change in [
            Change { before: None, after: Some(at(2)) },
            Change { before: Some(at(1)), after: None },
            Change::default(),
        ] {
            let mut history = VersionHistory::default();
            observe(&mut history, 1);
            history.record_own_change(change);
            assert!(observe(&mut history, 2), "{change:?}");
        }
    }

    #[test]
    fn changes_that_follow_nothing_do_not_pile_up() {
        let mut history = VersionHistory::default();
        observe(&mut history, 1);
        for at in 0..1000 {
            history.record_own_change(from_to(at * 2 + 10, at * 2 + 11));
        }
        assert_eq!(history.unconnected.len(), VERSIONS_MAX);
        for at in 1..1000 {
            history.record_own_change(from_to(at, at + 1));
        }
        assert_eq!(history.earlier.len(), VERSIONS_MAX);
    }
}

//! What the kernel keeps from one open to the next of a file that was changed elsewhere: pages and
//! a size.
//!
//! The kernel drops its pages when it handles the reply to an open that does not let it keep them.
//! The first use of the new handle shows that it has done so. Until then another open must not let
//! the kernel keep pages either, because it may still have the old ones.

use crate::inode::{Inode, State};
use fs::Version;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the kernel drops pages on the reply to an open, and is not known to have done so yet.
#[derive(Debug)]
pub(crate) struct Dropping(AtomicBool);

impl Dropping {
    /// For a new handle; `drops` says whether the kernel drops its pages on the reply.
    pub(crate) const fn new(drops: bool) -> Self {
        Self(AtomicBool::new(drops))
    }

    /// The handle was used, or is gone.
    pub(crate) fn is_over(&self, inode: &Inode) {
        // Usually this was recorded before, and no lock is needed.
        if self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel) {
            inode.lock().dropping -= 1;
        }
    }
}

impl State {
    /// Whether the kernel may keep its pages at an open that finds this version. If not, the
    /// handle's [`Dropping`] counts.
    pub(crate) fn keeps_pages(&mut self, now: Version) -> bool {
        let keeps = self.pages_of.replace(now) == Some(now) && self.dropping == 0;
        self.dropping += u32::from(!keeps);
        keeps
    }

    /// The kernel is sent attributes of this version. It is unknown when it receives them.
    pub(crate) fn tells(&mut self, now: Version) {
        let before = self.told_of.replace(now);
        self.told_otherwise |= before.is_some_and(|before| before != now);
    }

    /// Whether the kernel may have attributes of another version. It reads up to the size in its
    /// attributes, even if the file is longer.
    pub(crate) fn may_believe_otherwise(&self, now: Version) -> bool {
        self.told_of != Some(now) || self.told_otherwise
    }

    /// The kernel has dropped its earlier attributes. Attributes that are sent from now on arrive
    /// later.
    pub(crate) fn has_forgotten(&mut self, now: Version) {
        // If attributes of another version were sent meanwhile, the next open drops them.
        self.told_otherwise = self.told_of.is_some_and(|told| told != now) && self.told_otherwise;
        self.told_of = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::Time;

    fn content(size: u64) -> Version {
        let time = Time { seconds: 1, nanoseconds: 2 };
        Version { size, mtime: time, ctime: time }
    }

    #[test]
    fn pages_are_kept_once_whoever_was_to_drop_them_has_used_its_handle() {
        let mut state = State::default();
        assert!(!state.keeps_pages(content(1)), "nobody knows what they are of");
        assert!(!state.keeps_pages(content(1)), "the first open has not been seen to drop them");
        state.dropping -= 1;
        assert!(!state.keeps_pages(content(1)), "nor the second");
        state.dropping -= 2;
        assert!(state.keeps_pages(content(1)));
        assert_eq!(state.dropping, 0);
        assert!(!state.keeps_pages(content(2)));
    }

    #[test]
    fn attributes_are_forgotten_at_open_where_the_kernel_was_told_two_contents() {
        let mut state = State::default();
        assert!(state.may_believe_otherwise(content(1)), "it was told nothing");
        state.tells(content(1));
        assert!(!state.may_believe_otherwise(content(1)));
        state.tells(content(2));
        assert!(state.may_believe_otherwise(content(2)), "that answer may be on its way");
        state.has_forgotten(content(2));
        assert!(!state.may_believe_otherwise(content(2)));
        state.tells(content(2));
        assert!(!state.may_believe_otherwise(content(2)));
    }
}

//! What the kernel caches of a file whose content has changed elsewhere, from open to open: pages
//! and a size.
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
    /// A new handle, which may let the kernel keep its pages.
    pub(crate) const fn new(drops: bool) -> Self {
        Self(AtomicBool::new(drops))
    }

    /// The handle was used, or is gone.
    pub(crate) fn is_over(&self, inode: &Inode) {
        // Usually this is settled already, and no lock is needed.
        if self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel) {
            inode.lock().dropping -= 1;
        }
    }
}

impl State {
    /// Whether the kernel keeps its pages at an open that finds this content. If not, there is one
    /// more [`Dropping`].
    pub(crate) fn keeps_pages(&mut self, now: Version) -> bool {
        let keeps = self.pages_of.replace(now) == Some(now) && self.dropping == 0;
        self.dropping += u32::from(!keeps);
        keeps
    }

    /// The kernel is sent attributes of this content. When the kernel receives them is unknown.
    pub(crate) fn tells(&mut self, now: Version) {
        let before = self.told_of.replace(now);
        self.told_otherwise |= before.is_some_and(|before| before != now);
    }

    /// Whether the kernel may have attributes of different content. It reads up to the size that it
    /// was told, however long the file is.
    pub(crate) fn may_believe_otherwise(&self, now: Version) -> bool {
        self.told_of != Some(now) || self.told_otherwise
    }

    /// The kernel has dropped the earlier attributes; those that it is sent now arrive later.
    pub(crate) fn has_forgotten(&mut self, now: Version) {
        // Attributes of different content that were sent meanwhile are dropped at the next open.
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

//! What the kernel keeps from one open to the next of a file that another client has changed: pages
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
pub(crate) struct PendingDrop(AtomicBool);

impl PendingDrop {
    /// For a new handle; `drops` says whether the kernel drops its pages on the reply.
    pub(crate) const fn new(drops: bool) -> Self {
        Self(AtomicBool::new(drops))
    }

    /// The handle was used, or is gone.
    pub(crate) fn complete(&self, inode: &Inode) {
        // Usually this was recorded before, and no lock is needed.
        if self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel) {
            inode.lock().pending_drops -= 1;
        }
    }
}

impl State {
    /// Whether the kernel may keep its pages at an open that finds this version. If not, the
    /// handle's [`PendingDrop`] counts.
    pub(crate) fn may_keep_pages(&mut self, now: Version) -> bool {
        let keeps = self.pages_version.replace(now) == Some(now) && self.pending_drops == 0;
        self.pending_drops += u32::from(!keeps);
        keeps
    }

    /// The kernel is sent attributes of this version. It is unknown when it receives them.
    pub(crate) fn record_sent_version(&mut self, now: Version) {
        let before = self.sent_version.replace(now);
        self.sent_other_versions |= before.is_some_and(|before| before != now);
    }

    /// Whether the kernel may have attributes of another version. It reads up to the size in its
    /// attributes, even if the file is longer.
    pub(crate) fn may_have_other_attributes(&self, now: Version) -> bool {
        self.sent_version != Some(now) || self.sent_other_versions
    }

    /// The kernel has dropped its earlier attributes. Attributes that are sent from now on arrive
    /// later.
    pub(crate) fn attributes_dropped(&mut self, now: Version) {
        // If attributes of another version were sent meanwhile, the next open drops them.
        self.sent_other_versions =
            self.sent_version.is_some_and(|sent| sent != now) && self.sent_other_versions;
        self.sent_version = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::Time;

    fn content(size: u64) -> Version {
        let time = Time { seconds: 1, nanoseconds: 2 };
        Version { size, mtime: time, ctime: time, change: 0 }
    }

    #[test]
    fn pages_are_kept_once_the_handle_whose_open_drops_them_was_used() {
        let mut state = State::default();
        assert!(!state.may_keep_pages(content(1)), "nobody knows what they are of");
        assert!(!state.may_keep_pages(content(1)), "the first open has not been seen to drop them");
        state.pending_drops -= 1;
        assert!(!state.may_keep_pages(content(1)), "nor the second");
        state.pending_drops -= 2;
        assert!(state.may_keep_pages(content(1)));
        assert_eq!(state.pending_drops, 0);
        assert!(!state.may_keep_pages(content(2)));
    }

    #[test]
    fn attributes_are_dropped_at_open_if_the_kernel_was_sent_two_versions() {
        let mut state = State::default();
        assert!(state.may_have_other_attributes(content(1)), "the kernel has no attributes yet");
        state.record_sent_version(content(1));
        assert!(!state.may_have_other_attributes(content(1)));
        state.record_sent_version(content(2));
        assert!(state.may_have_other_attributes(content(2)), "that answer may be on its way");
        state.attributes_dropped(content(2));
        assert!(!state.may_have_other_attributes(content(2)));
        state.record_sent_version(content(2));
        assert!(!state.may_have_other_attributes(content(2)));
    }
}

//! Directories that are being filled. A directory gets its times and permissions when all of its
//! children are finished.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::Directory;
use crate::entry::NewAttributes;
use crate::progress::Progress;

/// A directory that is being filled.
#[derive(Debug)]
pub(crate) struct Target {
    pub directory: Arc<dyn Directory>,
    /// The copy created the directory, so it contains nothing else.
    pub created: bool,
    /// The attributes that the directory gets at the end.
    pub new: NewAttributes,
    pub parent: Option<Arc<Self>>,
    /// The number of unfinished parts: the walker while it lists the source, and each unfinished
    /// child.
    pub unfinished: AtomicUsize,
}

impl Target {
    pub(crate) fn new(
        directory: Arc<dyn Directory>,
        created: bool,
        new: NewAttributes,
        parent: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        if let Some(parent) = parent {
            parent.add_child();
        }
        Arc::new(Self { directory, created, new, parent: parent.cloned(), unfinished: AtomicUsize::new(1) })
    }

    /// Adds an unfinished child.
    pub(crate) fn add_child(&self) {
        self.unfinished.fetch_add(1, Ordering::SeqCst);
    }

    /// A child is finished, successfully or not.
    pub(crate) fn child_finished(self: &Arc<Self>, progress: &Progress) {
        let mut at = Arc::clone(self);
        while at.unfinished.fetch_sub(1, Ordering::SeqCst) == 1 {
            // If the copy was stopped, the copy that resumes it sets the times and permissions.
            if !at.new.is_empty()
                && !progress.is_stopped()
                && let Err(error) = at.directory.set(None, at.new)
            {
                progress.fail(&at.directory.display_name(), error);
            }
            let Some(parent) = at.parent.clone() else { return };
            at = parent;
        }
    }
}

//! Directories that are being filled. A directory gets its times and permissions when all of its
//! children are finished.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::Folder;
use crate::entry::NewAttributes;
use crate::progress::Progress;

/// A directory that is being filled.
#[derive(Debug)]
pub(crate) struct Target {
    pub folder: Arc<dyn Folder>,
    /// The copy created the directory, so it contains nothing else.
    pub made: bool,
    /// The attributes that the directory gets at the end.
    pub new: NewAttributes,
    pub parent: Option<Arc<Self>>,
    /// The number of unfinished parts: the walker while it lists the source, and each unfinished
    /// child.
    pub open: AtomicUsize,
}

impl Target {
    pub(crate) fn new(
        folder: Arc<dyn Folder>,
        made: bool,
        new: NewAttributes,
        parent: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        if let Some(parent) = parent {
            parent.begin();
        }
        Arc::new(Self { folder, made, new, parent: parent.cloned(), open: AtomicUsize::new(1) })
    }

    /// Adds an unfinished child.
    pub(crate) fn begin(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
    }

    /// A child is finished, successfully or not.
    pub(crate) fn end(self: &Arc<Self>, progress: &Progress) {
        let mut at = Arc::clone(self);
        while at.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            // If the copy was stopped, the copy that resumes it sets the times and permissions.
            if !at.new.is_empty()
                && !progress.is_stopped()
                && let Err(error) = at.folder.set(None, at.new)
            {
                progress.fail(&at.folder.place(), error);
            }
            let Some(parent) = at.parent.clone() else { return };
            at = parent;
        }
    }
}

//! Directories that are being filled. One gets its times and permissions when all that belongs into
//! it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::Folder;
use crate::entry::NewAttributes;
use crate::progress::Progress;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Target {
    pub folder: Arc<dyn Folder>,
    /// We made it, so that nothing is in it that we don't know of.
    pub made: bool,
    /// What it gets at the end.
    pub new: NewAttributes,
    pub parent: Option<Arc<Self>>,
    /// The walker while it lists the source, and each child that is not finished.
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

    /// Something more belongs into it.
    pub(crate) fn begin(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
    }

    /// Something that belongs into it is finished, well or not.
    pub(crate) fn end(self: &Arc<Self>, progress: &Progress) {
        let mut at = Arc::clone(self);
        while at.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            // What is not whole keeps the times of today, and is finished by the copy that takes it
            // up.
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

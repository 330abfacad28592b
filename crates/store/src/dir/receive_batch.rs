//! What a loop learned about a file, for the calls of one receive.
//!
//! All calls of a receive were in transit before the first is executed, and none is answered before
//! that. So the state of a file seen for one call is equally right for the others, even if the file
//! was changed in between: for their clients the change happened at the same time. Nothing is kept
//! after the batch, and a change by the loop itself discards the state of the file.

use super::mapping;
use super::node::Node;
use crate::interface::{Attributes, Caller, ObjectId};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// Files that are remembered.
const FILES: usize = 8;

/// A file that a caller may read, with the state needed to read it.
pub(super) struct FileSnapshot {
    /// Distinguishes stores.
    pub store: usize,
    pub node: Arc<Node>,
    pub attributes: Attributes,
    pub mapping: Option<Arc<mapping::Mapping>>,
    uid: u32,
    gid: u32,
    gids: SmallVec<[u32; 16]>,
}

impl FileSnapshot {
    pub fn new(store: usize, node: Arc<Node>, attributes: Attributes, caller: Caller<'_>) -> Self {
        let Caller { uid, gid, gids } = caller;
        Self { store, node, attributes, mapping: None, uid, gid, gids: gids.into() }
    }

    fn is(&self, store: usize, object: &ObjectId, caller: Caller<'_>) -> bool {
        self.store == store
            && self.node.object == *object
            && (self.uid, self.gid) == (caller.uid, caller.gid)
            && self.gids.as_slice() == caller.gids
    }
}

/// What a loop learned about files while it answers the calls of one connection that it received
/// together. The loop sends the data that it reads only by system calls, so that a store may return
/// pages that only the kernel may access.
#[derive(Default)]
pub struct ReceiveBatch(RefCell<Files>);

#[derive(Default)]
struct Files {
    snapshots: SmallVec<[FileSnapshot; FILES]>,
    /// The slot that the last file replaced, once all slots are in use.
    last: usize,
}

impl ReceiveBatch {
    /// More calls are going to be received: the state seen so far is outdated.
    #[inline]
    pub fn renew(&self) {
        self.0.borrow_mut().snapshots.clear();
    }

    /// Calls `act` with the state seen of a file, if there is any.
    #[inline]
    pub(super) fn with_snapshot<T>(
        &self,
        store: usize,
        object: &ObjectId,
        caller: Caller<'_>,
        act: impl FnOnce(&FileSnapshot) -> T,
    ) -> Option<T> {
        self.0.borrow().snapshots.iter().find(|snapshot| snapshot.is(store, object, caller)).map(act)
    }

    /// Remembers the state seen of a file.
    pub(super) fn remember(&self, snapshot: FileSnapshot) {
        let files = &mut *self.0.borrow_mut();
        if files.snapshots.len() < FILES {
            files.snapshots.push(snapshot);
            return;
        }
        files.last = (files.last + 1) % FILES;
        if let Some(slot) = files.snapshots.get_mut(files.last) {
            *slot = snapshot;
        }
    }

    /// Forgets a file that this loop changes.
    pub(super) fn forget(&self, object: &ObjectId) {
        self.0.borrow_mut().snapshots.retain(|snapshot| snapshot.node.object != *object);
    }
}

impl fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiveBatch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::changes::Changes;
    use crate::dir::node::attributes;
    use rustix::fs::{Mode, OFlags, fstat};

    fn snapshot(path: &std::path::Path, uid: u32, gids: &[u32]) -> FileSnapshot {
        let path_fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let changes = Changes::of_tests();
        let stat = changes.look(|| fstat(&path_fd)).unwrap();
        let object = ObjectId::new(stat.st_ino, 1);
        let node = Arc::new(Node::new(object, path_fd, &stat, &changes));
        FileSnapshot::new(1, node, attributes(object, &stat), Caller { uid, gid: 5, gids })
    }

    #[test]
    fn what_was_seen_is_known_to_the_same_caller_until_the_next_receive() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let batch = ReceiveBatch::default();
        let first = snapshot(file.path(), 7, &[1, 2]);
        let object = first.node.object;
        let known = |store, uid, gids: &[u32]| {
            batch.with_snapshot(store, &object, Caller { uid, gid: 5, gids }, |_| ()).is_some()
        };
        batch.remember(first);
        assert!(known(1, 7, &[1, 2]));
        assert!(!known(2, 7, &[1, 2]), "another store's");
        assert!(!known(1, 8, &[1, 2]), "another user");
        assert!(!known(1, 7, &[1]), "other groups");
        batch.renew();
        assert!(!known(1, 7, &[1, 2]), "more calls have come");
        batch.remember(snapshot(file.path(), 7, &[1, 2]));
        batch.forget(&object);
        assert!(!known(1, 7, &[1, 2]), "it has been changed");
    }

    #[test]
    fn no_more_files_are_remembered_than_the_bound() {
        let files: Vec<_> = (0..=FILES).map(|_| tempfile::NamedTempFile::new().unwrap()).collect();
        let batch = ReceiveBatch::default();
        for file in &files {
            batch.remember(snapshot(file.path(), 7, &[]));
        }
        assert_eq!(batch.0.borrow().snapshots.len(), FILES);
        let last = snapshot(files.last().unwrap().path(), 7, &[]);
        let caller = Caller { uid: 7, gid: 5, gids: &[] };
        assert!(batch.with_snapshot(1, &last.node.object, caller, |_| ()).is_some());
    }
}

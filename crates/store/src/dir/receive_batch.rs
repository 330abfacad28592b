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
pub(super) struct Seen {
    /// Distinguishes stores.
    pub store: usize,
    pub node: Arc<Node>,
    pub attributes: Attributes,
    pub mapping: Option<Arc<mapping::Mapping>>,
    uid: u32,
    gid: u32,
    gids: SmallVec<[u32; 16]>,
}

impl Seen {
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
    seen: SmallVec<[Seen; FILES]>,
    /// The place that the last file replaced, once all places are taken.
    last: usize,
}

impl ReceiveBatch {
    /// More calls are going to be received: the state seen so far is outdated.
    #[inline]
    pub fn renew(&self) {
        self.0.borrow_mut().seen.clear();
    }

    /// Calls `act` with the state seen of a file, if there is any.
    #[inline]
    pub(super) fn with_seen<T>(
        &self,
        store: usize,
        object: &ObjectId,
        caller: Caller<'_>,
        act: impl FnOnce(&Seen) -> T,
    ) -> Option<T> {
        self.0.borrow().seen.iter().find(|seen| seen.is(store, object, caller)).map(act)
    }

    /// Remembers the state seen of a file.
    pub(super) fn remember(&self, seen: Seen) {
        let files = &mut *self.0.borrow_mut();
        if files.seen.len() < FILES {
            files.seen.push(seen);
            return;
        }
        files.last = (files.last + 1) % FILES;
        if let Some(place) = files.seen.get_mut(files.last) {
            *place = seen;
        }
    }

    /// Forgets a file that this loop changes.
    pub(super) fn forget(&self, object: &ObjectId) {
        self.0.borrow_mut().seen.retain(|seen| seen.node.object != *object);
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
    use crate::dir::node::attributes;
    use rustix::fs::{Mode, OFlags, fstat};

    fn seen(path: &std::path::Path, uid: u32, gids: &[u32]) -> Seen {
        let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let stat = fstat(&place).unwrap();
        let object = ObjectId::new(stat.st_ino, 1);
        let node = Arc::new(Node::new(object, place, &stat));
        Seen::new(1, node, attributes(object, &stat), Caller { uid, gid: 5, gids })
    }

    #[test]
    fn what_was_seen_is_known_to_the_same_caller_until_the_next_receive() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let batch = ReceiveBatch::default();
        let first = seen(file.path(), 7, &[1, 2]);
        let object = first.node.object;
        let known = |store, uid, gids: &[u32]| {
            batch.with_seen(store, &object, Caller { uid, gid: 5, gids }, |_| ()).is_some()
        };
        batch.remember(first);
        assert!(known(1, 7, &[1, 2]));
        assert!(!known(2, 7, &[1, 2]), "another store's");
        assert!(!known(1, 8, &[1, 2]), "another user");
        assert!(!known(1, 7, &[1]), "other groups");
        batch.renew();
        assert!(!known(1, 7, &[1, 2]), "more calls have come");
        batch.remember(seen(file.path(), 7, &[1, 2]));
        batch.forget(&object);
        assert!(!known(1, 7, &[1, 2]), "it has been changed");
    }

    #[test]
    fn no_more_files_are_remembered_than_the_bound() {
        let files: Vec<_> = (0..=FILES).map(|_| tempfile::NamedTempFile::new().unwrap()).collect();
        let batch = ReceiveBatch::default();
        for file in &files {
            batch.remember(seen(file.path(), 7, &[]));
        }
        assert_eq!(batch.0.borrow().seen.len(), FILES);
        let last = seen(files.last().unwrap().path(), 7, &[]);
        let caller = Caller { uid: 7, gid: 5, gids: &[] };
        assert!(batch.with_seen(1, &last.node.object, caller, |_| ()).is_some());
    }
}

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
use std::marker::PhantomData;
use std::sync::Arc;

/// Files that are remembered.
const FILES: usize = 8;

thread_local! {
    static NOW: RefCell<Files> = RefCell::new(Files { on: false, known: SmallVec::new(), next: 0 });
}

struct Files {
    /// Whether a receive batch is active.
    on: bool,
    known: SmallVec<[Seen; FILES]>,
    next: usize,
}

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

/// While this guard lives, the thread is a loop that answers the calls of one connection, and sends
/// the data it reads only by system calls: a store may return pages that only the kernel may
/// access.
#[derive(Debug)]
pub struct ReceiveBatch {
    /// The guard belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl ReceiveBatch {
    /// Begins a receive batch; a thread has at most one.
    #[must_use]
    pub fn begin() -> Self {
        NOW.with_borrow_mut(|now| now.on = true);
        Self { not_send: PhantomData }
    }

    /// More calls are going to be received: the state seen so far is outdated.
    #[inline]
    pub fn renew(&self) {
        NOW.with_borrow_mut(|now| now.known.clear());
    }
}

impl Drop for ReceiveBatch {
    fn drop(&mut self) {
        NOW.with_borrow_mut(|now| {
            now.on = false;
            now.known.clear();
        });
    }
}

/// Whether a receive batch is active.
pub(super) fn is_on() -> bool {
    NOW.with_borrow(|now| now.on)
}

/// Calls `act` with the state seen of a file, if there is any.
#[inline]
pub(super) fn with_seen<T>(
    store: usize,
    object: &ObjectId,
    caller: Caller<'_>,
    act: impl FnOnce(&Seen) -> T,
) -> Option<T> {
    NOW.with_borrow(|now| now.known.iter().find(|seen| seen.is(store, object, caller)).map(act))
}

/// Remembers the state seen of a file.
pub(super) fn remember(seen: Seen) {
    NOW.with_borrow_mut(|now| {
        if !now.on {
            return;
        }
        if now.known.len() < FILES {
            now.known.push(seen);
            return;
        }
        now.next = (now.next + 1) % FILES;
        let next = now.next;
        if let Some(place) = now.known.get_mut(next) {
            *place = seen;
        }
    });
}

/// Forgets a file that this thread changes.
pub(super) fn forget(object: &ObjectId) {
    NOW.with_borrow_mut(|now| now.known.retain(|seen| seen.node.object != *object));
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
        let first = seen(file.path(), 7, &[1, 2]);
        let object = first.node.object;
        let known = |store, uid, gids: &[u32]| {
            with_seen(store, &object, Caller { uid, gid: 5, gids }, |_| ()).is_some()
        };
        remember(first);
        assert!(!known(1, 7, &[1, 2]), "there is no moment yet");
        let moment = ReceiveBatch::begin();
        remember(seen(file.path(), 7, &[1, 2]));
        assert!(known(1, 7, &[1, 2]));
        assert!(!known(2, 7, &[1, 2]), "another store's");
        assert!(!known(1, 8, &[1, 2]), "another user");
        assert!(!known(1, 7, &[1]), "other groups");
        moment.renew();
        assert!(!known(1, 7, &[1, 2]), "more calls have come");
        remember(seen(file.path(), 7, &[1, 2]));
        forget(&object);
        assert!(!known(1, 7, &[1, 2]), "it has been changed");
        drop(moment);
        assert!(!is_on());
    }

    #[test]
    fn no_more_files_are_remembered_than_the_bound() {
        let files: Vec<_> = (0..=FILES).map(|_| tempfile::NamedTempFile::new().unwrap()).collect();
        let _moment = ReceiveBatch::begin();
        for file in &files {
            remember(seen(file.path(), 7, &[]));
        }
        assert_eq!(NOW.with_borrow(|now| now.known.len()), FILES);
        let last = seen(files.last().unwrap().path(), 7, &[]);
        assert!(with_seen(1, &last.node.object, Caller { uid: 7, gid: 5, gids: &[] }, |_| ()).is_some());
    }
}

//! What the server has locked for this mount, as far as its answers say.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fs::FileHandle;

use crate::locks::{Held, LockKind, LockOwner, LockRange};

/// The locks of an owner on a file.
#[derive(Debug, Clone, Default)]
struct OwnerLocks {
    held: Held,
    is_lost: bool,
}

/// A range that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldRange {
    pub file: FileHandle,
    pub owner: LockOwner,
    pub range: LockRange,
    pub kind: LockKind,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Table {
    owners: Mutex<HashMap<(FileHandle, LockOwner), OwnerLocks>>,
    /// Owners whose locks are lost.
    lost: AtomicU64,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<(FileHandle, LockOwner), OwnerLocks>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an owner has locked something of a file, or tried to.
    pub(super) fn knows(&self, file: FileHandle, owner: LockOwner) -> bool {
        self.lock().contains_key(&(file, owner))
    }

    pub(super) fn held(&self, file: FileHandle, owner: LockOwner) -> Held {
        self.lock().get(&(file, owner)).map(|one| one.held.clone()).unwrap_or_default()
    }

    pub(super) fn is_lost(&self, file: FileHandle, owner: LockOwner) -> bool {
        self.lock().get(&(file, owner)).is_some_and(|one| one.is_lost)
    }

    #[inline]
    pub(super) fn are_lost(&self, file: FileHandle) -> bool {
        self.lost.load(Ordering::Relaxed) > 0
            && self.lock().iter().any(|((of, _), one)| *of == file && one.is_lost)
    }

    /// An owner is about to lock: what it has must be unlocked when it ends, whatever the answer.
    pub(super) fn begin(&self, file: FileHandle, owner: LockOwner) {
        self.lock().entry((file, owner)).or_default();
    }

    /// A range was locked, or unlocked.
    pub(super) fn set(&self, file: FileHandle, owner: LockOwner, range: LockRange, kind: Option<LockKind>) {
        let mut owners = self.lock();
        let one = owners.entry((file, owner)).or_default();
        one.held.set(range, kind);
        if one.is_lost && one.held.is_empty() {
            one.is_lost = false;
            self.lost.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The server does not have all locks of an owner any more. Returns whether that is new.
    pub(super) fn lose(&self, file: FileHandle, owner: LockOwner) -> bool {
        let mut owners = self.lock();
        let Some(one) = owners.get_mut(&(file, owner)).filter(|one| !one.is_lost) else { return false };
        one.is_lost = true;
        self.lost.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(super) fn forget(&self, file: FileHandle, owner: LockOwner) {
        if self.lock().remove(&(file, owner)).is_some_and(|one| one.is_lost) {
            self.lost.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether an owner is known for any file.
    pub(super) fn has_owner(&self, owner: LockOwner) -> bool {
        self.lock().keys().any(|(_, known)| *known == owner)
    }

    /// All that the server has and owners rely on.
    pub(super) fn all_held(&self) -> Vec<HeldRange> {
        let owners = self.lock();
        let sound = owners.iter().filter(|(_, one)| !one.is_lost);
        sound
            .flat_map(|((file, owner), one)| {
                one.held.iter().map(|(range, kind)| HeldRange { file: *file, owner: *owner, range, kind })
            })
            .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: LockOwner = LockOwner { number: 1, of_flock: false };
    const RANGE: LockRange = LockRange { first: 5, last: 9 };

    #[test]
    fn what_is_lost_is_lost_until_it_is_unlocked_or_its_owner_is_gone() {
        let (table, file) = (Table::default(), FileHandle::new(b"file").unwrap());
        let other = FileHandle::new(b"other").unwrap();
        table.set(file, ONE, RANGE, Some(LockKind::Exclusive));
        table.set(other, ONE, RANGE, Some(LockKind::Shared));
        assert_eq!(table.all_held().len(), 2);
        assert!(table.lose(file, ONE) && !table.lose(file, ONE));
        assert!(table.are_lost(file) && !table.are_lost(other) && table.is_lost(file, ONE));
        assert_eq!(table.all_held().len(), 1, "what is lost is not reclaimed again");
        table.set(file, ONE, LockRange { first: 0, last: 7 }, None);
        assert!(table.are_lost(file), "some of it");
        table.set(file, ONE, LockRange::ALL, None);
        assert!(!table.are_lost(file));
        assert!(table.lose(other, ONE));
        table.forget(other, ONE);
        assert!(!table.are_lost(other) && table.has_owner(ONE));
        table.forget(file, ONE);
        assert!(table.is_empty() && !table.has_owner(ONE));
    }
}

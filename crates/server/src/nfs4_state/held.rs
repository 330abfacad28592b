//! The files that clients have open, held in their stores: each can be used after its last name is
//! gone, until nobody has it open any more. RFC 8881 s18.16.3, s18.25.4
//!
//! A file is held once, however many opens it has. It is held before its first open is noted in the
//! state, and released after its last one has ended there, so a file that is open is never without
//! its hold. CLOSE looks at its own file. Opens that end in another way, with their client, are
//! only counted by the state: when that number has changed, all files that are held are looked at,
//! a part at a time.

use super::{HOST, Nfs4State};
use crate::export::Export;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{ObjectId, Store};

/// Parts, each with its own lock. To look at one takes a millisecond at most, with as many files as
/// can be open.
const PARTS: usize = 64;

/// The name of a file in the state of the clients.
pub(crate) type FileName = SmallVec<[u8; 64]>;

struct HeldFile {
    store: Arc<dyn Store>,
    object: ObjectId,
    /// OPENs that are under way.
    opening: u32,
    /// An open of the file has ended meanwhile, so the last of these looks whether another is left.
    look_again: bool,
}

impl HeldFile {
    /// Whether nobody has the file open. While it is being opened that is not known; then the OPEN
    /// will look.
    fn is_unused(&mut self, name: &[u8], is_open: impl Fn(&[u8]) -> bool) -> bool {
        self.look_again |= self.opening > 0;
        self.opening == 0 && !is_open(name)
    }
}

type Part = HashMap<FileName, HeldFile>;

/// The search for files that are not open any more.
struct Search {
    /// The next part; [`PARTS`] if there is nothing to search for.
    next: usize,
    /// The opens that had ended without a CLOSE when it began.
    dropped: u64,
}

/// See the module's documentation.
pub(crate) struct HeldFiles {
    parts: [Mutex<Part>; PARTS],
    hasher: RandomState,
    search: Mutex<Search>,
}

impl Default for HeldFiles {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::new(Part::new())),
            hasher: RandomState::new(),
            search: Mutex::new(Search { next: PARTS, dropped: 0 }),
        }
    }
}

/// An OPEN that is under way: its file is held. Dropped without [`keep`](Self::keep), the hold ends
/// if nobody else has the file open.
pub(crate) struct Opening<'a> {
    shared: &'a Nfs4State,
    now: Duration,
    name: FileName,
    /// Whether the store holds the file for it.
    is_held: bool,
}

impl HeldFiles {
    fn part(&self, name: &[u8]) -> MutexGuard<'_, Part> {
        let at = self.hasher.hash_one(name) as usize % PARTS;
        self.parts[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a file for an OPEN. Returns whether the store does. The store is asked without a lock,
    /// which others may need that cannot wait for this store.
    fn open(&self, store: &Arc<dyn Store>, object: ObjectId, name: &[u8]) -> Result<bool, fs::Status> {
        if let Some(file) = self.part(name).get_mut(name) {
            file.opening += 1;
            return Ok(true);
        }
        match store.hold(object) {
            Ok(()) => {}
            Err(fs::Status::Stale) => return Err(fs::Status::Stale),
            Err(_) => return Ok(false),
        }
        let mut part = self.part(name);
        if let Some(file) = part.get_mut(name) {
            // Another OPEN was faster. Stores count their holds.
            file.opening += 1;
            drop(part);
            store.release(object);
        } else {
            let file = HeldFile { store: Arc::clone(store), object, opening: 1, look_again: false };
            part.insert(FileName::from_slice(name), file);
        }
        Ok(true)
    }

    /// An OPEN has ended. Returns whether [`close`](Self::close) has to be called, because an open
    /// of the file has ended meanwhile.
    fn opened(&self, name: &[u8]) -> bool {
        let mut part = self.part(name);
        let Some(file) = part.get_mut(name) else { return false };
        file.opening = file.opening.saturating_sub(1);
        file.opening == 0 && std::mem::take(&mut file.look_again)
    }

    /// Releases a file after a CLOSE, if it was the last open. May have to wait for the store.
    pub fn close(&self, name: &[u8], is_open: impl Fn(&[u8]) -> bool) {
        let mut part = self.part(name);
        if part.get_mut(name).is_some_and(|file| file.is_unused(name, is_open)) {
            let gone = part.remove(name);
            // To free a large file takes time.
            drop(part);
            gone.iter().for_each(release);
        }
    }

    /// Looks at some of the files if opens have ended without a CLOSE, of which there were
    /// `dropped` so far. Returns whether there is more to look at.
    pub fn search(&self, dropped: u64, is_open: impl Fn(&[u8]) -> bool) -> bool {
        let mut search = self.search.lock().unwrap_or_else(PoisonError::into_inner);
        if search.next == PARTS && search.dropped != dropped {
            *search = Search { next: 0, dropped };
        }
        let Some(part) = self.parts.get(search.next) else { return false };
        search.next += 1;
        let is_left = search.next < PARTS || search.dropped != dropped;
        drop(search);
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = part.extract_if(|name, file| file.is_unused(name, &is_open)).map(|(_, file)| file);
        let gone: Vec<HeldFile> = gone.collect();
        drop(part);
        release_all(gone);
        is_left
    }
}

fn release(file: &HeldFile) {
    file.store.release(file.object);
}

/// Releases files from a thread that may not have to wait.
fn release_all(gone: Vec<HeldFile>) {
    let (slow, quick): (Vec<_>, Vec<_>) = gone.into_iter().partition(|file| file.store.may_block());
    quick.iter().for_each(release);
    if slow.is_empty() {
        return;
    }
    let slow = Arc::new(slow);
    let theirs = Arc::clone(&slow);
    let thread = std::thread::Builder::new().name("release".to_owned());
    if thread.spawn(move || theirs.iter().for_each(release)).is_err() {
        slow.iter().for_each(release);
    }
}

impl Nfs4State {
    /// Whether anybody has a file open; if that cannot be told, somebody may.
    fn is_open(&self, now: Duration, name: &[u8]) -> bool {
        self.state.is_open(&HOST, now, name).unwrap_or(true)
    }

    /// Holds a file for an OPEN. A store that can hold none, or no more of them, is no reason not
    /// to open it.
    ///
    /// # Errors
    /// [`fs::Status::Stale`] if the file is gone.
    pub fn hold(
        &self,
        now: Duration,
        export: &Export,
        object: ObjectId,
        name: FileName,
    ) -> Result<Opening<'_>, fs::Status> {
        let is_held = self.held.open(&export.store, object, &name)?;
        Ok(Opening { shared: self, now, name, is_held })
    }

    /// Releases a file after a CLOSE, if that was the last one. May have to wait for the store.
    pub fn release(&self, now: Duration, name: &[u8]) {
        self.held.close(name, |name| self.is_open(now, name));
    }

    /// Releases some of the files whose opens have ended with their client. Returns whether there
    /// may be more of them.
    pub(super) fn release_lost(&self, now: Duration) -> bool {
        self.held.search(self.state.dropped_opens(), |name| self.is_open(now, name))
    }
}

impl Opening<'_> {
    /// The file has been opened, so it stays held.
    pub fn keep(mut self) {
        if std::mem::take(&mut self.is_held) && self.shared.held.opened(&self.name) {
            self.shared.release(self.now, &self.name);
        }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if self.is_held {
            self.shared.held.opened(&self.name);
            self.shared.release(self.now, &self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Caller, CreateMode, MemStore, NewObject, SetAttributes, Wait};

    const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, gids: &[] };

    /// A file that has lost its name after an OPEN of it began, and whether it is still there.
    fn unlinked(held: &HeldFiles, test: impl FnOnce(&dyn Fn() -> bool)) {
        let store: Arc<dyn Store> = Arc::new(MemStore::new(1 << 20, 0, 0));
        let new = NewObject::File(CreateMode::Guarded(SetAttributes::default()));
        let object = store.create(ROOT, store.root(), b"f", new).1.unwrap().object;
        assert_eq!(held.open(&store, object, b"f"), Ok(true));
        store.remove(ROOT, store.root(), b"f").1.unwrap();
        test(&|| store.attributes(object, Wait::Allowed).unwrap().is_ok());
    }

    #[test]
    fn an_open_that_ends_during_another_is_looked_at_after_that() {
        for by_search in [false, true] {
            let held = HeldFiles::default();
            unlinked(&held, |is_there| {
                if by_search {
                    while held.search(1, |_| false) {}
                } else {
                    held.close(b"f", |_| false);
                }
                assert!(is_there(), "it is being opened");
                assert!(held.opened(b"f"));
                held.close(b"f", |_| true);
                assert!(is_there(), "another has it open");
                held.close(b"f", |_| false);
                assert!(!is_there());
            });
        }
    }

    #[test]
    fn an_open_alone_needs_no_further_look() {
        let held = HeldFiles::default();
        unlinked(&held, |is_there| {
            assert!(!held.opened(b"f"));
            assert!(is_there());
            while held.search(1, |_| false) {}
            assert!(!is_there());
        });
    }
}

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

    /// Holds a file for an OPEN. Returns whether the store does.
    fn open(&self, export: &Export, object: ObjectId, name: &[u8]) -> Result<bool, fs::Status> {
        let mut part = self.part(name);
        if let Some(file) = part.get_mut(name) {
            file.opening += 1;
            return Ok(true);
        }
        match export.store.hold(object) {
            Ok(()) => {
                let file = HeldFile { store: Arc::clone(&export.store), object, opening: 1 };
                part.insert(FileName::from_slice(name), file);
                Ok(true)
            }
            Err(fs::Status::Stale) => Err(fs::Status::Stale),
            Err(_) => Ok(false),
        }
    }

    /// An OPEN has ended.
    fn opened(&self, name: &[u8]) {
        if let Some(file) = self.part(name).get_mut(name) {
            file.opening = file.opening.saturating_sub(1);
        }
    }

    /// Releases a file after a CLOSE, if it was the last open. May have to wait for the store.
    pub fn close(&self, name: &[u8], is_open: impl Fn(&[u8]) -> bool) {
        let mut part = self.part(name);
        if part.get(name).is_some_and(|file| file.opening == 0) && !is_open(name) {
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
        let gone = part.extract_if(|name, file| file.opening == 0 && !is_open(name)).map(|(_, file)| file);
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
        let is_held = self.held.open(export, object, &name)?;
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
        if std::mem::take(&mut self.is_held) {
            self.shared.held.opened(&self.name);
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

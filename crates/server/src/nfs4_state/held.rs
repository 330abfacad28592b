//! The files that clients have open, held in their stores: each can be used after its last name is
//! gone, until nobody has it open any more. RFC 8881 s18.16.3, s18.25.4
//!
//! A file is held once, however many opens it has. It is held before its first open is noted in the
//! state, and released after its last one has ended there, so a file that is open is never without
//! its hold. CLOSE looks at its own file. Opens that end in another way, with their client, are
//! only counted by the state: when that number has changed, all files that are held are looked at,
//! a part at a time, and a thread releases those that nobody has open ([`Releases`]).
//!
//! Each process of a group holds the files that were opened by way of it. Their CLOSEs may come by
//! way of any other, so there they are counted too.

use super::releases::Releases;
use super::{Nfs4State, SEARCH_IN_GROUP, file_name};
use crate::export::Export;
use crate::shared_reply_cache::ServerWord;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{ObjectId, Store};

/// Parts, each with its own lock. To look at one takes a millisecond at most, with as many files as
/// can be open.
const PARTS: usize = 64;

/// The name of a file in the state of the clients.
pub(crate) type FileName = SmallVec<[u8; 64]>;

pub(super) struct HeldFile {
    store: Arc<dyn Store>,
    object: ObjectId,
    /// OPENs that are under way.
    opening: u32,
    /// An open of the file has ended meanwhile, so the last of these looks whether another is left.
    look_again: bool,
}

impl HeldFile {
    pub fn release(&self) {
        self.store.release(self.object);
    }

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
    releases: Releases,
}

impl Default for HeldFiles {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::new(Part::new())),
            hasher: RandomState::new(),
            search: Mutex::new(Search { next: PARTS, dropped: 0 }),
            releases: Releases::default(),
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
            gone.iter().for_each(HeldFile::release);
        }
    }

    fn search_state(&self) -> MutexGuard<'_, Search> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether opens have ended that no search has looked for, or one is under way.
    fn is_behind(&self, dropped: u64) -> bool {
        let search = self.search_state();
        search.next < PARTS || search.dropped != dropped
    }

    /// Whether a search is under way.
    fn is_searching(&self) -> bool {
        self.search_state().next < PARTS
    }

    /// Looks at some of the files if opens have ended without a CLOSE, of which there were
    /// `dropped` so far. What nobody has open any more is released by another thread. Returns
    /// whether there is more to look at.
    pub fn search(&self, dropped: u64, is_open: impl Fn(&[u8]) -> bool) -> bool {
        let mut search = self.search_state();
        if search.next == PARTS && search.dropped != dropped {
            *search = Search { next: 0, dropped };
        }
        let at = search.next;
        let Some(part) = self.parts.get(at) else { return false };
        search.next += 1;
        let is_left = search.next < PARTS || search.dropped != dropped;
        drop(search);
        let room = self.releases.room();
        let (mut taken, mut is_full) = (0, false);
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = part.extract_if(|name, file| {
            if !file.is_unused(name, &is_open) {
                return false;
            }
            is_full |= taken == room;
            taken += usize::from(!is_full);
            !is_full
        });
        let gone: Vec<HeldFile> = gone.map(|(_, file)| file).collect();
        drop(part);
        self.releases.release(gone);
        if is_full {
            let mut search = self.search_state();
            search.next = search.next.min(at);
        }
        is_left || is_full
    }

    /// Ends the thread that releases files, at `deadline` at the latest.
    pub fn end(&self, deadline: Duration) {
        self.releases.end(deadline);
    }
}

impl Nfs4State {
    /// Whether anybody has a file open; if that cannot be told, somebody may.
    fn is_open(&self, now: Duration, name: &[u8]) -> bool {
        self.state.is_open(self.host(), now, name).unwrap_or(true)
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

    /// Holds a file that somebody has open, before a name of it is taken away.
    pub fn hold_if_open(&self, now: Duration, export: &Export, object: ObjectId) -> Option<Opening<'_>> {
        let name = file_name(export, object);
        // A file that is gone loses no name.
        if self.is_open(now, &name) { self.hold(now, export, object, name).ok() } else { None }
    }

    /// Releases a file after a CLOSE, if that was the last one. May have to wait for the store.
    pub fn release(&self, now: Duration, name: &[u8]) {
        if let Some(closes) = self.group.as_ref().and_then(|file| file.server_word(ServerWord::Closes, 0)) {
            closes.fetch_add(1, Ordering::Relaxed);
        }
        self.held.close(name, |name| self.is_open(now, name));
    }

    /// Releases some of the files whose opens have ended with their client. Returns whether there
    /// may be more of them.
    pub(super) fn release_lost(&self, now: Duration) -> bool {
        let ended = self.ended_opens();
        if self.group.is_some() && !self.held.is_searching() {
            let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            let last = self.searched_ms.load(Ordering::Relaxed);
            let is_due = now_ms.saturating_sub(last) >= SEARCH_IN_GROUP.as_millis() as u64;
            if !is_due || !self.held.is_behind(ended) {
                return false;
            }
            self.searched_ms.store(now_ms, Ordering::Relaxed);
        }
        self.held.search(ended, |name| self.is_open(now, name))
    }

    /// How many opens have ended so that this process may not know of it.
    fn ended_opens(&self) -> u64 {
        let closes = self.group.as_ref().and_then(|file| file.server_word(ServerWord::Closes, 0));
        let closes = closes.map_or(0, |closes| closes.load(Ordering::Relaxed));
        self.state.dropped_opens().wrapping_add(closes)
    }

    /// Whether this process may hold files in a group that nobody has open any more.
    pub(super) fn holds_ended(&self) -> bool {
        self.group.is_some() && self.held.is_behind(self.ended_opens())
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
mod tests;

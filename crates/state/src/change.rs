//! Changes of files that are under way, and what they ask without the lock: whether the file is
//! delegated, or denied. RFC 8881 s10.4
//!
//! A change is *announced* before it asks for delegations, and a delegation is counted before it
//! asks for changes. Each of these steps is in one order with all others (`SeqCst`), so of a change
//! and a delegation that begin at once, at least one sees the other: the change then waits for a
//! recall, or nothing is delegated.
//!
//! An announcement is a word of the arena, in one of few words that the hash of the file says. It
//! belongs to a process, and counts the changes of this process to files of that hash. That of a
//! process that has ended counts no more. What is known of a file is kept by hash too, and outlives
//! the file's record: files of like hash have it together, which costs them a delegation, or a look
//! at the records, and never more.

use crate::State;
use crate::arena::{Arena, lower, upper};
use crate::client::ClientRef;
use crate::error::Error;
use crate::host::{Host, OWNER_BITS, Owner};
use crate::layout::{milliseconds, shared};
use crate::record::{Record, file};
use crate::transaction::Transaction;
use crate::words::Words;
use std::ops::Range;
use std::time::Duration;

/// A word that announces changes: the process in the upper [`OWNER_BITS`], then how many changes it
/// counts, then a part of the hash.
const TAG_BITS: u32 = 24;
const COUNT_BITS: u32 = 64 - OWNER_BITS - TAG_BITS;
const ONE: u64 = 1 << TAG_BITS;
const COUNT: u64 = ((1 << COUNT_BITS) - 1) << TAG_BITS;
/// How often a place is looked for, if others take what was found.
const ATTEMPTS: usize = 64;

/// In the lower half of [`shared::COUNTS`]: there was a delegation, and no change has been made
/// since. Set by the change that ends the last one, which may be taken back, and cleared by a later
/// one: so who reads 0 without the lock reads what was committed.
const WAS_DELEGATED: u64 = 1 << 31;

/// A change of a file that is under way. Until it is dropped, nobody gets a delegation of the file.
#[derive(Debug)]
#[must_use]
pub struct Change<'a, W: Words> {
    pub(crate) words: &'a W,
    pub(crate) at: usize,
    /// The word without its count.
    pub(crate) mine: u64,
}

impl<W: Words> Drop for Change<'_, W> {
    fn drop(&mut self) {
        let mut word = self.words.load(self.at);
        while word & !COUNT == self.mine && word & COUNT != 0 {
            let left = if word & COUNT == ONE { 0 } else { word - ONE };
            match self.words.compare_exchange(self.at, word, left) {
                Ok(()) => return,
                Err(found) => word = found,
            }
        }
    }
}

/// Whether a word announces changes of a process that may be running.
fn is_under_way(host: &impl Host, word: u64) -> bool {
    let owner = Owner::new((word >> (64 - OWNER_BITS)) as u32);
    word & COUNT != 0 && owner.is_some_and(|owner| owner == host.me() || host.is_alive(owner))
}

/// A change that is to be announced: this word, with a count.
const fn word_of(process: Owner, tag: u64) -> u64 {
    (process.number() as u64) << (64 - OWNER_BITS) | tag
}

const fn tag_of(hash: u64) -> u64 {
    hash >> (64 - TAG_BITS)
}

impl<W: Words> Arena<W> {
    /// Counts a change in one of these words.
    fn enter(&self, host: &impl Host, places: Range<usize>, tag: u64) -> Option<Change<'_, W>> {
        let mine = word_of(host.me(), tag);
        for _ in 0..ATTEMPTS {
            let mut words = places.clone().map(|at| (at, self.words.load(at)));
            let is_mine = |word: u64| word & !COUNT == mine && word & COUNT != 0;
            let joined = words.clone().find(|(_, word)| is_mine(*word) && word & COUNT != COUNT);
            let free = || words.clone().find(|(_, word)| *word == 0);
            // Last, because it may take a system call to know.
            let found = joined.or_else(free);
            let (at, word) = found.or_else(|| words.find(|(_, word)| !is_under_way(host, *word)))?;
            let counted = if joined.is_some() { word + ONE } else { mine | ONE };
            if self.words.compare_exchange(at, word, counted).is_ok() {
                return Some(Change { words: &self.words, at, mine });
            }
        }
        None
    }

    fn announce(&self, host: &impl Host, hash: u64) -> Result<Change<'_, W>, Error> {
        let entered = self.enter(host, self.layout.changes(hash), tag_of(hash));
        entered.or_else(|| self.enter(host, self.layout.crowd(), 0)).ok_or(Error::Busy)
    }

    /// Whether a file of this hash is being changed.
    fn is_being_changed(&self, host: &impl Host, hash: u64) -> bool {
        let tag = tag_of(hash);
        let is_its = |word: u64| word & (ONE - 1) == tag && is_under_way(host, word);
        self.layout.changes(hash).any(|at| is_its(self.words.load(at)))
            || self.layout.crowd().any(|at| is_under_way(host, self.words.load(at)))
    }

    fn counts(&self, hash: u64) -> u64 {
        self.words.load(self.layout.shared(hash) + shared::COUNTS)
    }

    /// Whether a file of this hash is delegated, or was when it was last looked at.
    fn may_be_delegated(&self, hash: u64) -> bool {
        lower(self.counts(hash)) != 0
    }

    /// Whether an open of a file of this hash denies anything.
    pub fn may_be_denied(&self, hash: u64) -> bool {
        upper(self.counts(hash)) != 0
    }

    /// Whether no file of this hash is to be delegated yet, because one had to be recalled.
    pub fn is_shared(&self, now: Duration, hash: u64) -> bool {
        milliseconds(now) < self.words.load(self.layout.shared(hash) + shared::UNTIL)
    }
}

impl<W: Words> Transaction<'_, W> {
    /// Counts an open that denies something, or does so no more.
    pub fn count_denial(&mut self, of: Record, difference: i64) -> Result<(), Error> {
        let at = self.layout.shared(self.read(of, file::HASH)?) + shared::COUNTS;
        self.add(at, difference << 32)
    }

    /// Counts a delegation of a file, unless the file is being changed. Returns whether it was
    /// counted.
    pub fn count_delegation(&mut self, host: &impl Host, of: Record) -> Result<bool, Error> {
        let hash = self.read(of, file::HASH)?;
        let at = self.layout.shared(hash) + shared::COUNTS;
        let before = self.words.load(at);
        self.set_fenced(at, (before & !WAS_DELEGATED) + 1)?;
        if self.is_being_changed(host, hash) {
            self.set(at, before)?;
            return Ok(false);
        }
        self.count(of, file::DELEGATED, 1)?;
        Ok(true)
    }

    /// Counts a delegation no more, because it ends or is revoked.
    pub fn discount_delegation(&mut self, of: Record) -> Result<(), Error> {
        let at = self.layout.shared(self.read(of, file::HASH)?) + shared::COUNTS;
        let left = self.words.load(at).checked_sub(1);
        let left = left.ok_or(Error::Damaged("delegations are counted below zero"))?;
        // In one step: 0 is not seen in between.
        self.set(at, if lower(left) == 0 { left | WAS_DELEGATED } else { left })?;
        self.count(of, file::DELEGATED, -1)
    }

    /// No file of this hash is delegated within a lease from now on.
    pub fn share(&mut self, now: Duration, hash: u64) -> Result<(), Error> {
        let until = now.saturating_add(self.layout.config.lease);
        self.set(self.layout.shared(hash) + shared::UNTIL, milliseconds(until))
    }

    /// What was delegated and is no more need not be looked for again.
    pub fn settle_delegations(&mut self, hash: u64) -> Result<(), Error> {
        let at = self.layout.shared(hash) + shared::COUNTS;
        let counts = self.words.load(at);
        if u64::from(lower(counts)) == WAS_DELEGATED { self.set(at, counts & !WAS_DELEGATED) } else { Ok(()) }
    }
}

impl<W: Words> State<W> {
    /// Begins a change of a file's data, size, attributes, names or links, in any protocol: makes
    /// sure that no other client has a delegation of the file, nor gets one before the change has
    /// ended. Takes no lock while the file is not delegated.
    ///
    /// # Errors
    /// [`Error::Delay`] until the delegations are returned or revoked; [`Error::Busy`],
    /// [`Error::Damaged`].
    pub fn begin_change(
        &self,
        host: &impl Host,
        now: Duration,
        of: Option<ClientRef>,
        file: &[u8],
    ) -> Result<Change<'_, W>, Error> {
        let hash = self.arena.file_hash(file);
        let change = self.arena.announce(host, hash)?;
        if self.arena.may_be_delegated(hash) {
            let except = of.map(ClientRef::record);
            self.in_rounds(host, now, |transaction| transaction.recall_for(now, file, except))?;
        }
        Ok(change)
    }

    /// As [`begin_change`](Self::begin_change), for the rest of what has begun to be visible and
    /// cannot be asked for again: delegations that were granted since are recalled, and not waited
    /// for.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Damaged`].
    pub fn go_on_with_change(
        &self,
        host: &impl Host,
        now: Duration,
        of: Option<ClientRef>,
        file: &[u8],
    ) -> Result<Change<'_, W>, Error> {
        match self.begin_change(host, now, of, file) {
            Err(Error::Delay) => self.arena.announce(host, self.arena.file_hash(file)),
            begun => begun,
        }
    }
}

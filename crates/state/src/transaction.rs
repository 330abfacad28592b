//! Changes that happen wholly or not at all.
//!
//! One word of the head is the lock; it names the process that holds it. Before a word changes, its
//! address and its old value are written into the undo log, and the log is made one entry longer.
//! To commit is to set the length to 0, in one step. Whoever takes the lock of a process that has
//! ended restores the words of the log, last first, before anything else. A process that ends while
//! it restores leaves the log as it was.
//!
//! Invariants: only the holder of the lock writes here; `CHANGES` is odd from before the first
//! change until after the commit, so a reader without the lock notices.

use crate::arena::{Arena, IN_USE, List, lower, pair, upper};
use crate::error::Error;
use crate::host::{Host, Owner};
use crate::layout::{Layout, UNDO_ENTRIES, head};
use crate::record::{BLOB_BYTES, BLOB_WORDS, Kind, NEXT_FREE, Record};
use crate::words::Words;
use std::ops::Deref;

/// Rounds in which the lock is only looked at again, before the host is asked to pause.
const SPIN_ROUNDS: u32 = 200;
/// Whether the holder of the lock lives is asked before the first pause and then before every
/// eighth, because the host may need a system call to know.
const PAUSES_PER_LOOK: u32 = 8;

/// Holds the lock. Dropped without [`commit`](Self::commit), it restores what it changed.
#[derive(Debug)]
pub(crate) struct Transaction<'a, W: Words> {
    arena: &'a Arena<W>,
    logged: usize,
    has_changed: bool,
    /// The address that was refused by [`Error::PeerLimit`].
    pub at_limit: Option<Record>,
    /// Whether [`Error::Delay`] is only for others who want the lock: the next try goes on.
    pub goes_on: bool,
}

impl<W: Words> Deref for Transaction<'_, W> {
    type Target = Arena<W>;

    fn deref(&self) -> &Arena<W> {
        self.arena
    }
}

impl<W: Words> Arena<W> {
    /// Takes the lock, and restores what a process that ended left half changed. Fails while the
    /// recovery records are not loaded.
    pub fn begin(&self, host: &impl Host) -> Result<Transaction<'_, W>, Error> {
        if self.is_loaded() { self.begin_any(host) } else { Err(Error::Busy) }
    }

    /// As [`begin`](Self::begin), also before the recovery records are loaded.
    pub fn begin_any(&self, host: &impl Host) -> Result<Transaction<'_, W>, Error> {
        self.lock(host)?;
        let logged = self.words.load(head::UNDO_COUNT) as usize;
        let has_changed = self.words.load(head::CHANGES) % 2 == 1;
        let mut transaction =
            Transaction { arena: self, logged, has_changed, at_limit: None, goes_on: false };
        transaction.roll_back();
        Ok(transaction)
    }
}

impl<W: Words> Arena<W> {
    /// Takes the lock, or that of a process that has ended. Only a lock that looks free, or
    /// abandoned, is tried to be changed.
    fn lock(&self, host: &impl Host) -> Result<(), Error> {
        let me = u64::from(host.me().number());
        for round in 0..u32::MAX {
            let holder = self.words.load(head::LOCK);
            let pauses = round.checked_sub(SPIN_ROUNDS);
            let is_due = pauses.is_some_and(|pauses| pauses % PAUSES_PER_LOOK == 0);
            let is_free = holder == 0 || is_due && !may_hold(host, holder);
            if is_free && self.words.compare_exchange(head::LOCK, holder, me).is_ok() {
                return Ok(());
            }
            match pauses {
                None => std::hint::spin_loop(),
                Some(pauses) if !host.pause(pauses) => break,
                Some(_) => {}
            }
        }
        Err(Error::Busy)
    }
}

/// Whether a process that may be running holds the lock.
fn may_hold(host: &impl Host, holder: u64) -> bool {
    let owner = u32::try_from(holder).ok().and_then(Owner::new);
    owner.is_some_and(|owner| owner == host.me() || host.is_alive(owner))
}

impl<W: Words> Transaction<'_, W> {
    /// Keeps the changes, and gives up the lock.
    pub fn commit(mut self) {
        self.checkpoint();
    }

    /// Keeps the changes so far, even if the rest fails.
    pub fn checkpoint(&mut self) {
        if self.logged > 0 {
            self.words.store(head::UNDO_COUNT, 0);
            self.logged = 0;
        }
    }

    /// As [`checkpoint`](Self::checkpoint), if the log is half full.
    pub fn checkpoint_if_large(&mut self) {
        if self.logged > UNDO_ENTRIES / 2 {
            self.checkpoint();
        }
    }

    /// Does something that is not necessary, in a change of its own: if there is no room for it, it
    /// is left out. The changes so far are kept. Returns whether it was done.
    pub fn as_favour(&mut self, act: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<bool, Error> {
        self.checkpoint();
        match act(self) {
            Ok(()) => {
                self.checkpoint();
                Ok(true)
            }
            Err(Error::ClientLimit(_) | Error::PeerLimit(_) | Error::Full(_) | Error::HostLimit) => {
                self.roll_back();
                Ok(false)
            }
            Err(other) => Err(other),
        }
    }

    /// Takes back the changes since the last [`checkpoint`](Self::checkpoint).
    pub fn roll_back(&mut self) {
        if self.logged == 0 {
            return;
        }
        for entry in (0..self.logged.min(UNDO_ENTRIES)).rev() {
            let at = self.layout.undo + 2 * entry;
            let (word, value) = (self.words.load(at), self.words.load(at + 1));
            // Anything else in the log was not written by this program.
            if let Some(word) = usize::try_from(word).ok().filter(|word| self.layout.is_undoable(*word)) {
                self.words.store(word, value);
            }
        }
        self.words.store(head::UNDO_COUNT, 0);
        self.logged = 0;
    }

    /// Changes a word; the old value is logged first.
    pub fn set(&mut self, at: usize, value: u64) -> Result<(), Error> {
        let old = self.words.load(at);
        if old == value {
            return Ok(());
        }
        self.log(at, old)?;
        self.words.store(at, value);
        Ok(())
    }

    /// As [`set`](Self::set), ordered with later loads: for words that others read without the lock
    /// before they change words that are read here.
    pub fn set_fenced(&mut self, at: usize, value: u64) -> Result<(), Error> {
        let old = self.words.load(at);
        self.log(at, old)?;
        let changed = self.words.compare_exchange(at, old, value);
        changed.map_err(|_| Error::Damaged("a word changed without the lock"))
    }

    fn log(&mut self, at: usize, old: u64) -> Result<(), Error> {
        if self.logged >= UNDO_ENTRIES {
            return Err(Error::Damaged("a change is larger than the undo log"));
        }
        if !self.layout.is_undoable(at) {
            return Err(Error::Damaged("a change outside of the records"));
        }
        if !self.has_changed {
            let changes = self.words.load(head::CHANGES);
            self.words.store(head::CHANGES, changes.wrapping_add(1));
            self.has_changed = true;
        }
        let entry = self.layout.undo + 2 * self.logged;
        self.words.store(entry, at as u64);
        self.words.store(entry + 1, old);
        self.logged += 1;
        self.words.store(head::UNDO_COUNT, self.logged as u64);
        Ok(())
    }

    pub fn write(&mut self, record: Record, field: usize, value: u64) -> Result<(), Error> {
        let at = self.address(record, field)?;
        self.set(at, value)
    }

    /// Changes a counter of a record or of the head.
    pub fn add(&mut self, at: usize, difference: i64) -> Result<(), Error> {
        let sum = self.words.load(at).checked_add_signed(difference);
        self.set(at, sum.ok_or(Error::Damaged("a counter is below zero"))?)
    }

    pub fn count(&mut self, record: Record, field: usize, difference: i64) -> Result<(), Error> {
        let at = self.address(record, field)?;
        self.add(at, difference)
    }

    /// Takes a record into use, with all its words 0 and a new generation.
    pub fn allocate(&mut self, kind: Kind) -> Result<Record, Error> {
        let slab = Layout::slab(kind);
        let free = self.words.load(slab) as u32;
        let record = if free != 0 {
            let record = Record { kind, index: free };
            let next = self.read(record, NEXT_FREE)?;
            if self.in_use(record)? {
                return Err(Error::Damaged("a free record is in use"));
            }
            self.set(slab, next)?;
            record
        } else {
            let fresh = self.words.load(slab + 1) as u32;
            let record = Record { kind, index: fresh.saturating_add(1) };
            if fresh >= self.layout.count(kind) || !self.layout.provide(&self.words, record) {
                return Err(Error::Full(kind));
            }
            self.set(slab + 1, u64::from(record.index))?;
            record
        };
        for field in 1..kind.cleared_words() {
            self.write(record, field, 0)?;
        }
        let generation = self.generation(record)?.wrapping_add(1);
        self.write(record, 0, pair(generation, IN_USE as u32))?;
        self.add(slab + 2, 1)?;
        Ok(record)
    }

    /// Ends the use of a record. Nothing may name it any more.
    pub fn free(&mut self, record: Record) -> Result<(), Error> {
        let slab = Layout::slab(record.kind);
        if !self.in_use(record)? {
            return Err(Error::Damaged("a record is freed twice"));
        }
        let generation = self.generation(record)?;
        self.write(record, 0, pair(generation, 0))?;
        let next = self.words.load(slab);
        self.write(record, NEXT_FREE, next)?;
        self.set(slab, u64::from(record.index))?;
        self.add(slab + 2, -1)
    }

    /// Adds a record at the end of a list.
    pub fn push(&mut self, list: List, record: Record) -> Result<(), Error> {
        let ends = self.words.load(list.head);
        let (first, last) = (upper(ends), lower(ends));
        self.write(record, list.link, pair(last, 0))?;
        if last == 0 {
            return self.set(list.head, pair(record.index, record.index));
        }
        let before = Record { kind: list.kind, index: last };
        let link = self.read(before, list.link)?;
        self.write(before, list.link, pair(upper(link), record.index))?;
        self.set(list.head, pair(first, record.index))
    }

    /// Takes a record out of a list that it is in.
    pub fn unlink(&mut self, list: List, record: Record) -> Result<(), Error> {
        let link = self.read(record, list.link)?;
        let (previous, next) = (upper(link), lower(link));
        let ends = self.words.load(list.head);
        let (mut first, mut last) = (upper(ends), lower(ends));
        if previous == 0 {
            first = next;
        } else {
            let before = Record { kind: list.kind, index: previous };
            let link = self.read(before, list.link)?;
            self.write(before, list.link, pair(upper(link), next))?;
        }
        if next == 0 {
            last = previous;
        } else {
            let after = Record { kind: list.kind, index: next };
            let link = self.read(after, list.link)?;
            self.write(after, list.link, pair(previous, lower(link)))?;
        }
        self.write(record, list.link, 0)?;
        self.set(list.head, pair(first, last))
    }

    /// Makes a record the last of its list, with those behind it in front, in the same order.
    pub fn rotate(&mut self, list: List, last: Record) -> Result<(), Error> {
        let next = lower(self.read(last, list.link)?);
        if next == 0 {
            return Ok(());
        }
        let ends = self.words.load(list.head);
        let of = |index| Record { kind: list.kind, index };
        // Some of these may be the same record.
        let (first, end) = (of(upper(ends)), of(lower(ends)));
        let before = upper(self.read(end, list.link)?);
        self.write(end, list.link, pair(before, first.index))?;
        let after = lower(self.read(first, list.link)?);
        self.write(first, list.link, pair(end.index, after))?;
        let before = upper(self.read(last, list.link)?);
        self.write(last, list.link, pair(before, 0))?;
        let after = lower(self.read(of(next), list.link)?);
        self.write(of(next), list.link, pair(0, after))?;
        self.set(list.head, pair(next, last.index))
    }

    /// Counts one more of the records of a list that are taken off it. A damaged list may never get
    /// empty.
    pub fn taken(&self, list: List, count: &mut u32) -> Result<(), Error> {
        *count += 1;
        let has_end = *count <= self.layout.count(list.kind);
        if has_end { Ok(()) } else { Err(Error::Damaged("a list does not get shorter")) }
    }

    /// Stores a string; `None` if it is empty.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Result<Option<Record>, Error> {
        let mut next = None;
        for chunk in bytes.chunks(BLOB_BYTES).rev() {
            let blob = self.allocate(Kind::Blob)?;
            self.write(blob, 1, pair(chunk.len() as u32, next.map_or(0, |next: Record| next.index)))?;
            let words = words_of::<BLOB_WORDS>(chunk);
            for (at, word) in words.into_iter().enumerate() {
                self.write(blob, 2 + at, word)?;
            }
            next = Some(blob);
        }
        Ok(next)
    }

    pub fn free_bytes(&mut self, blob: Option<Record>) -> Result<(), Error> {
        let (mut next, mut left) = (blob, crate::OWNER_BYTES_MAX.div_ceil(BLOB_BYTES));
        while let Some(blob) = next {
            left = left.checked_sub(1).ok_or(Error::Damaged("a string is too long"))?;
            let index = lower(self.read(blob, 1)?);
            self.free(blob)?;
            next = (index != 0).then_some(Record { kind: Kind::Blob, index });
        }
        Ok(())
    }
}

/// Up to `N` words of bytes, filled up with zeros.
pub(crate) fn words_of<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut filled = [0; 8];
        filled.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        *word = u64::from_le_bytes(filled);
    }
    words
}

impl<W: Words> Drop for Transaction<'_, W> {
    fn drop(&mut self) {
        self.roll_back();
        if self.has_changed {
            let changes = self.words.load(head::CHANGES);
            self.words.store(head::CHANGES, changes.wrapping_add(1));
        }
        self.words.store(head::LOCK, 0);
    }
}

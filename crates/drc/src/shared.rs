//! The reply cache in memory that several processes share: the same windows and the same table as
//! within one process, laid out in words that each process changes with single atomic steps.
//!
//! Whoever has the memory mapped may end between any two of its instructions, and may be stopped
//! there for long. So nothing here is guarded by a lock that others must wait for: an entry says in
//! one word what became of a call and which process has it (`entry`), and everybody can go on from
//! every such word. Only the search of a bucket of the table has a lock; that of a process that has
//! ended is taken over, and that of one that was stopped is not waited for.
//!
//! Invariants: only the process that an entry names executes its call, and only after it has moved
//! the entry from "begun" to "started"; a call that is started by a process that lives is begun by
//! nobody else; one whose process has ended is begun *in doubt*, because it may have been executed.
//! What is read is never trusted: any value of any word leads to an answer or to doubt, never out
//! of bounds.
//!
//! `docs/decisions/0008-group.md` has the layout, and the argument.

mod entry;
mod slot;
mod table;
mod window;

pub use slot::{REPLY_BYTES_MAX, Seen};
pub use table::{BUCKETS, Place, SharedTable, TABLE_WORDS};
pub use window::{SharedWindow, WINDOW_WORDS};

use super::{Refusal, Stored};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a process's generation, and of its member number before them.
pub const GENERATION_BITS: u32 = 22;
/// The most processes at once, because a member has 8 bits and 0 is nobody.
pub const MEMBERS_MAX: u8 = u8::MAX;

/// A process of a group: its place among the members, and how often places were given before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// From 1; 0 is nobody.
    pub member: u8,
    /// Tells those apart that had the same place, [`GENERATION_BITS`] wide.
    pub generation: u32,
}

impl Owner {
    /// No process.
    pub const NOBODY: Self = Self { member: 0, generation: 0 };
}

/// What the cache asks of the process that it runs in.
pub trait Host {
    /// This process.
    fn me(&self) -> Owner;

    /// Whether a process still runs, or may do so. Once this says no, nothing that the process
    /// began may take effect any more.
    fn is_alive(&self, owner: Owner) -> bool;

    /// Lets others run for a moment, because one of them holds what is wanted; `round` counts from
    /// 0. False: it was long enough, give up.
    fn pause(&self, round: u32) -> bool;
}

/// A process that shares its cache with no other.
#[derive(Debug, Clone, Copy)]
pub struct Alone;

impl Host for Alone {
    fn me(&self) -> Owner {
        Owner { member: 1, generation: 1 }
    }

    fn is_alive(&self, _owner: Owner) -> bool {
        true
    }

    fn pause(&self, _round: u32) -> bool {
        false
    }
}

/// What to do with a call that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedBegin {
    /// This process has it: `start` it and execute it, or `forget` it.
    Run,
    /// It ran: answer this and do not execute it.
    Replay(Stored),
    /// It is running, here or in another process, or is yet to be told from a neighbour's: ask
    /// again in a moment.
    Running,
    /// Do not execute it.
    Refused(Refusal),
}

/// What `start` says of a call that this process has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Execute it, then `finish` it.
    Fresh,
    /// A process that has ended may have executed it: look before you do, then `finish` it.
    InDoubt,
    /// Another process has taken it over meanwhile: `begin` it again.
    Lost,
}

// Every step on shared memory goes through these, so that tests can end a process before any of
// them.

pub(super) fn load(word: &AtomicU64) -> u64 {
    #[cfg(test)]
    tests::step();
    word.load(Ordering::SeqCst)
}

pub(super) fn store(word: &AtomicU64, value: u64) {
    #[cfg(test)]
    tests::step();
    word.store(value, Ordering::SeqCst);
}

pub(super) fn exchange(word: &AtomicU64, from: u64, to: u64) -> Result<(), u64> {
    #[cfg(test)]
    tests::step();
    word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).map(drop)
}

#[cfg(test)]
mod tests;

//! The reply cache in memory that several processes share: the same windows and the same table as
//! within one process, laid out in words that each process changes with single atomic steps.
//!
//! A process that has the memory mapped may end between any two of its instructions, and may be
//! stopped there for long. So nothing here is guarded by a lock that others must wait for: one word
//! of an entry says what became of a call and which process has it (`entry`), and any process can
//! continue from every such word. Only the search of a bucket of the table takes a lock; the lock
//! of a process that has ended is taken over, and the lock of a process that was stopped is not
//! waited for.
//!
//! Invariants: only the process that an entry names executes its call, and only after it has moved
//! the entry from "begun" to "started"; a call started by a live process is not begun by any other;
//! a call whose process has ended is begun *in doubt*, because it may have been executed. Values
//! read from the memory are never trusted: any value of any word leads to an answer or to doubt,
//! never out of bounds.
//!
//! `docs/decisions/0008-group.md` has the layout and the argument.

mod entry;
mod slot;
mod table;
mod window;

pub use slot::{PreOpState, REPLY_BYTES_MAX};
pub use table::{BUCKETS, SharedTable, SlotIndex, TABLE_WORDS};
pub use window::{SharedWindow, WINDOW_WORDS};

use super::{Refusal, Stored};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a process's generation, which follow those of its member number.
pub const GENERATION_BITS: u32 = 22;
/// Maximum number of processes at once, because a member has 8 bits and 0 means nobody.
pub const MEMBERS_MAX: u8 = u8::MAX;

/// A process of a group: its member number and its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// From 1; 0 is nobody.
    pub member: u8,
    /// Distinguishes processes that had the same member number, [`GENERATION_BITS`] wide.
    pub generation: u32,
}

impl Owner {
    /// No process.
    pub const NOBODY: Self = Self { member: 0, generation: 0 };
}

/// What the cache needs from the process that it runs in.
pub trait Host {
    /// This process.
    fn me(&self) -> Owner;

    /// Whether a process is or may be running. Once this returns false, nothing that the process
    /// began may take effect any more.
    fn is_alive(&self, owner: Owner) -> bool;

    /// Lets other processes run for a moment, because one of them holds what is needed; `round`
    /// counts from 0. Returns false to give up.
    fn pause(&self, round: u32) -> bool;
}

/// A process that shares its cache with no other process.
#[derive(Debug, Clone, Copy)]
pub struct SingleProcess;

impl Host for SingleProcess {
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

/// What to do with a received call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedBegin {
    /// The call is assigned to this process: `start` and execute it, or `forget` it.
    Run,
    /// The call ran: answer with this and do not execute it.
    Replay(Stored),
    /// The call is running, here or in another process, or cannot be distinguished from a
    /// neighbour's call yet: ask again in a moment.
    Running,
    /// Do not execute the call.
    Refused(Refusal),
}

/// The result of `start` for a call that this process has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Execute the call, then `finish` it.
    Fresh,
    /// A process that has ended may have executed the call: check before executing it, then
    /// `finish` it.
    InDoubt,
    /// Another process has taken over the call: `begin` it again.
    Lost,
}

// Every step on shared memory goes through these functions, so that tests can end a process before
// any step.

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

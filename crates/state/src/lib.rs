//! The state that a server keeps of NFSv4.1 and 4.2 clients (RFC 8881, 7862): clients, sessions and
//! their slots, opens, byte-range locks, delegations, leases, and the grace period. The locks of
//! NFSv3 clients (NLM) are in the same tables.
//!
//! All of it is in an *arena*: words of 64 bits ([`Words`]), on the heap of one process or in
//! memory that several processes share. [`State`] is what a process sees of it. Time is an
//! argument, counted from any start that all processes of an arena share; which processes live is
//! asked of a [`Host`]. What the server is to do because of the state comes out of
//! [`State::poll_output`].
//!
//! Invariants: a process that ends at any instruction leaves each change done or not done, and
//! blocks nobody; a request of a session is executed once, whichever process receives it; a value
//! read from the arena is never trusted to be more than a number, so damage leads to an error and
//! never out of bounds; the size of an arena follows from its [`Bounds`], and a client at its
//! bounds costs itself only.
//!
//! `docs/decisions/0014-state.md` has the reasons. Left out: wire formats, files, connections.
#![forbid(unsafe_code)]

mod arena;
mod back_channel;
mod change;
mod client;
mod delegation;
mod error;
mod file;
mod grace;
mod host;
mod id;
mod layout;
mod lease;
mod lock;
mod nlm;
mod open;
mod output;
mod peer;
mod range;
mod record;
mod session;
mod slot;
mod stateid;
mod transaction;
mod waiter;
mod words;

pub use back_channel::{CallBackSlot, CallBackTarget};
pub use change::Change;
pub use client::{ClientRef, ExchangeId, ExchangeIdArgs};
pub use delegation::{RECALL_RETRY, Recall};
pub use error::{Error, OpenError};
pub use grace::RecoveryRecord;
pub use host::{Host, OWNER_BITS, Owner, SingleProcess};
pub use id::{ClientId, SessionId, StateId};
pub use layout::{Bounds, Config};
pub use lease::{EXPIRY_MARGIN, Tick};
pub use lock::{
    Holder, LockArgs, LockQuery, Locker, OPENS_PER_LOCK_OWNER_MAX, RANGES_PER_FILE_MAX, RANGES_PER_LOCK_MAX,
};
pub use nlm::{NLM_HOST_IDLE, NlmHow, NlmLock, NlmLocked, NlmMonitor};
pub use open::{OpenArgs, READ, UndoOpen, WRITE};
pub use output::Output;
pub use record::{BACK_SLOTS_MAX, BLOB_BYTES, CHUNK_SLOTS, FILE_BYTES_MAX, Kind};
pub use session::{
    ChannelAttributes, CreateSession, CreateSessionArgs, Sequence, SequenceArgs, SessionChannels,
    SessionRefusal, Status, Ticket,
};
pub use slot::{NOTE_WORDS, NextOperation, Progress, STEP_OPERATIONS_MAX, STEP_RESULT_BYTES};
pub use waiter::{Available, RESERVATION, WAITERS_PER_FILE_MAX};
pub use words::{HeapWords, Words};

use arena::Arena;
use layout::Layout;
use std::time::Duration;
use transaction::Transaction;

/// Bytes of the owner string of a client, or of an owner: NFS4_OPAQUE_LIMIT. RFC 8881 s3.1
pub const OWNER_BYTES_MAX: usize = 1024;

/// How often an operation tries again by itself, giving others the lock in between: enough for as
/// many silent clients as a server has.
const ROUNDS: usize = 64;

/// How often room is made for an address at its bound.
const PEER_ATTEMPTS: u32 = 64;

/// The state in an arena.
#[derive(Debug, Clone)]
pub struct State<W> {
    arena: Arena<W>,
}

impl<W: Words> State<W> {
    /// Words that an arena with this configuration has; `None` if its bounds are not usable: a
    /// bound is 0 or above 2^28 - 1, or there are more than 512 slots in a session.
    #[must_use]
    pub fn word_count(config: &Config) -> Option<usize> {
        Layout::new(config).map(|layout| layout.word_count)
    }

    /// Creates an arena in memory that is all zeros and that no other process uses yet. It serves
    /// nobody before [`begin_grace`](Self::begin_grace), without records too. `epoch` must differ
    /// from those of all earlier arenas of this server, and be neither 0 nor `u32::MAX`; `seed` is
    /// random for each arena, and nobody else may know it.
    ///
    /// # Errors
    /// [`OpenError::Damaged`] for bounds that are not usable, [`OpenError::TooShort`],
    /// [`OpenError::NoMemory`].
    pub fn create(words: W, config: &Config, epoch: u32, seed: u128) -> Result<Self, OpenError> {
        let layout = Layout::new(config).ok_or(OpenError::Damaged("the bounds are not usable"))?;
        if epoch == 0 || epoch == u32::MAX {
            return Err(OpenError::Damaged("the epoch is reserved"));
        }
        layout.create(&words, epoch, seed)?;
        Ok(Self { arena: Arena::of(words, layout) })
    }

    /// Opens an arena that exists.
    ///
    /// # Errors
    /// Says what is wrong with the memory.
    pub fn open(words: W) -> Result<Self, OpenError> {
        let layout = Layout::of(&words)?;
        Ok(Self { arena: Arena::of(words, layout) })
    }

    /// The configuration of the arena, which its creator chose.
    pub const fn config(&self) -> &Config {
        &self.arena.layout.config
    }

    /// The epoch of the arena, which its creator chose.
    pub const fn epoch(&self) -> u32 {
        self.arena.epoch
    }

    /// Records of a kind that are in use.
    pub fn used(&self, kind: Kind) -> u64 {
        self.arena.used(kind)
    }

    /// The most records of a kind that there may be.
    pub fn bound(&self, kind: Kind) -> u32 {
        self.arena.layout.count(kind)
    }

    /// Changes the state. If there is no space for a record, or an address is at its bound, drops
    /// the state of clients whose lease has ended, and tries again.
    fn change<T>(
        &self,
        host: &impl Host,
        now: Duration,
        mut act: impl FnMut(&mut Transaction<'_, W>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut attempts = 0;
        loop {
            let mut transaction = self.arena.begin(host)?;
            match act(&mut transaction) {
                Ok(done) => {
                    transaction.commit();
                    return Ok(done);
                }
                Err(Error::Full(kind)) => {
                    drop(transaction);
                    if !self.make_room(host, now, kind, None)? {
                        return Err(Error::Full(kind));
                    }
                }
                Err(Error::PeerLimit(kind)) => {
                    let peer = transaction.at_limit;
                    drop(transaction);
                    // What was freed need not have been the address's.
                    attempts += 1;
                    if attempts > PEER_ATTEMPTS || !self.make_room(host, now, kind, peer)? {
                        return Err(Error::PeerLimit(kind));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`change`](Self::change), again while it goes on: what is done under one hold of the lock
    /// is bounded.
    fn in_rounds<T>(
        &self,
        host: &impl Host,
        now: Duration,
        mut act: impl FnMut(&mut Transaction<'_, W>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        for _ in 0..ROUNDS {
            let mut goes_on = false;
            let done = self.change(host, now, |transaction| {
                let done = act(transaction);
                goes_on = transaction.goes_on;
                done
            });
            if !(goes_on && matches!(done, Err(Error::Delay))) {
                return done;
            }
        }
        Err(Error::Delay)
    }
}

#[cfg(test)]
mod tests;

//! The window over WRITE and SETATTR: one word per call, without locks.
//!
//! The index of an entry in the ring is the low 14 bits of the call's counter; the entry holds the
//! upper 16 bits (its lap), a state, and the status with which the call ended. Several threads
//! begin and finish calls of one client at once; every change of an entry is one
//! compare-and-exchange from the value that was read.
//!
//! Invariants: an entry only ever moves to a newer lap, so a counter that was overtaken cannot be
//! claimed again; [`Phase::Ended`] is final within its lap; only the thread that moved an entry to
//! [`Phase::Running`] executes the call.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::class::{COUNTER_BITS, Counter, WINDOW_DONE};
use super::{Begin, Refusal, ReplyTo, Stored, Token};

const STATE_BITS: u32 = 2;
const STATUS_BITS: u32 = 14;
const LAP_BITS: u32 = COUNTER_BITS - WINDOW_DONE.trailing_zeros();
const LAP_SHIFT: u32 = STATE_BITS + STATUS_BITS;

/// The largest status that an entry holds; larger ones are stored as this value. The largest status
/// of NFS version 3 is 10,008.
pub const STATUS_MAX: u32 = (1 << STATUS_BITS) - 1;

// An entry is exactly lap, status and state.
const _: () = assert!(LAP_BITS + STATUS_BITS + STATE_BITS == u32::BITS);
const _: () = assert!(STATUS_MAX > 10_008); // NFS3ERR_JUKEBOX is the largest. RFC 1813 s2.6

/// What an entry says about the call of its lap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No call has used this entry yet.
    Unused,
    /// The call is being executed.
    Running,
    /// The call ended with this status; 0 is success.
    Ended(u32),
    /// The call was neither executed nor answered, and may run.
    Dropped,
}

/// An entry as one word: lap, status, state, from the top.
const fn entry(counter: Counter, phase: Phase) -> u32 {
    let (status, state) = match phase {
        Phase::Unused => (0, 0),
        Phase::Running => (0, 1),
        Phase::Ended(status) => (if status > STATUS_MAX { STATUS_MAX } else { status }, 2),
        Phase::Dropped => (0, 3),
    };
    lap(counter) << LAP_SHIFT | status << STATE_BITS | state
}

const fn lap(counter: Counter) -> u32 {
    counter.value() >> WINDOW_DONE.trailing_zeros()
}

const fn phase(entry: u32) -> Phase {
    match entry & ((1 << STATE_BITS) - 1) {
        0 => Phase::Unused,
        1 => Phase::Running,
        2 => Phase::Ended(entry >> STATE_BITS & STATUS_MAX),
        _ => Phase::Dropped,
    }
}

/// Laps from the entry's to the counter's; in the upper half of the range the entry is newer.
const fn laps_behind(entry: u32, counter: Counter) -> u32 {
    lap(counter).wrapping_sub(entry >> LAP_SHIFT) & ((1 << LAP_BITS) - 1)
}

/// The window of one client.
#[derive(Debug, Default)]
pub(super) struct DoneWindow {
    newest: Newest,
    /// Allocated at the first call: a client that only reads needs no ring.
    ring: OnceLock<Box<[AtomicU32]>>,
    /// The newest connection that waits for a running call, by the call's counter. Usually empty.
    waiters: Mutex<BTreeMap<u32, Token>>,
    /// The number of waiters, so that the hot path takes no lock.
    waiting: AtomicUsize,
}

impl DoneWindow {
    pub fn begin(&self, counter: Counter, token: Token) -> Begin {
        if self.newest.advance_to(counter) >= WINDOW_DONE {
            return Begin::Refused(Refusal::BelowWindow);
        }
        let slot = self.slot(counter);
        let mut seen = slot.load(Ordering::SeqCst);
        loop {
            let behind = laps_behind(seen, counter);
            match phase(seen) {
                Phase::Running if behind == 0 => {
                    if self.attach(counter, token, slot) {
                        return Begin::Attached;
                    }
                    seen = slot.load(Ordering::SeqCst);
                    continue;
                }
                Phase::Ended(0) if behind == 0 => return Begin::Replay(Stored::Done),
                Phase::Ended(status) if behind == 0 => return Begin::Replay(Stored::Failed(status)),
                // Overtaken since the check above: another thread moved the window and took the
                // entry.
                Phase::Running | Phase::Ended(_) | Phase::Dropped if behind >= 1 << (LAP_BITS - 1) => {
                    return Begin::Refused(Refusal::BelowWindow);
                }
                Phase::Unused | Phase::Dropped | Phase::Running | Phase::Ended(_) => {}
            }
            let running = entry(counter, Phase::Running);
            match slot.compare_exchange(seen, running, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Begin::Run,
                Err(other) => seen = other,
            }
        }
    }

    /// Ends a call with its status.
    pub fn finish(&self, counter: Counter, status: u32) -> ReplyTo {
        // If the window moved past the call in the meantime, its entry is gone, and copies of the
        // call are refused.
        let _overtaken = self.slot(counter).compare_exchange(
            entry(counter, Phase::Running),
            entry(counter, Phase::Ended(status)),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        // Sequentially consistent, as in `attach`: either this load sees the waiter, or the waiter
        // sees the end.
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return ReplyTo::ORIGINAL;
        }
        self.take_waiter(&mut self.waiters(), counter)
    }

    /// Releases a call that was neither executed nor answered.
    pub fn release(&self, counter: Counter) -> ReplyTo {
        // Under the lock, so that a waiter of the next run of this call is not taken for a waiter
        // of this run.
        let mut waiters = self.waiters();
        let _overtaken = self.slot(counter).compare_exchange(
            entry(counter, Phase::Running),
            entry(counter, Phase::Dropped),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        self.take_waiter(&mut waiters, counter)
    }

    /// Directs the reply to a running call to `token`. Returns false if the call is no longer
    /// running.
    fn attach(&self, counter: Counter, token: Token, slot: &AtomicU32) -> bool {
        let mut waiters = self.waiters();
        let former = waiters.insert(counter.value(), token);
        self.waiting.store(waiters.len(), Ordering::SeqCst);
        if slot.load(Ordering::SeqCst) == entry(counter, Phase::Running) {
            return true;
        }
        // The call ended in the meantime. A former waiter is still owed the reply by the thread
        // that ended the call, which waits for this lock; if there is no former waiter, that thread
        // may have seen none.
        match former {
            Some(former) => waiters.insert(counter.value(), former),
            None => waiters.remove(&counter.value()),
        };
        self.waiting.store(waiters.len(), Ordering::SeqCst);
        false
    }

    fn take_waiter(&self, waiters: &mut BTreeMap<u32, Token>, counter: Counter) -> ReplyTo {
        let waiter = waiters.remove(&counter.value());
        self.waiting.store(waiters.len(), Ordering::SeqCst);
        ReplyTo { waiter }
    }

    fn waiters(&self) -> MutexGuard<'_, BTreeMap<u32, Token>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, counter: Counter) -> &AtomicU32 {
        let ring = self.ring.get_or_init(|| (0..WINDOW_DONE).map(|_| AtomicU32::new(0)).collect());
        // The index is less than the length because of the modulo.
        &ring[counter.slot(WINDOW_DONE)]
    }
}

/// The newest counter seen, or none yet.
#[derive(Debug, Default)]
struct Newest(AtomicU32);

impl Newest {
    const SEEN: u32 = 1 << 31;

    /// Advances to `counter` if that is newer. Returns how far `counter` is then behind the newest.
    fn advance_to(&self, counter: Counter) -> u32 {
        let mut seen = self.0.load(Ordering::SeqCst);
        loop {
            let newest = Counter::new(seen);
            if seen & Self::SEEN != 0 && !counter.is_after(newest) {
                return newest.since(counter);
            }
            let next = Self::SEEN | counter.value();
            match self.0.compare_exchange_weak(seen, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return 0,
                Err(other) => seen = other,
            }
        }
    }
}

#[cfg(test)]
mod tests;

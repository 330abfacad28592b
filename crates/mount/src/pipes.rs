//! A pool of pipes, in which long payloads stay in the kernel. Pipes are reused, because making one
//! costs more than moving a payload through it.

use client::Pipe;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most pipes that are kept: enough for the READs under way of a program that keeps all paths
/// busy, and for replies. A user without privileges may have 64 pipes of the smaller size in all.
const POOLED_MAX: usize = 24;

/// The most pipes that may hold data that were read ahead: half of what a user without privileges
/// may have.
const READ_AHEAD_PIPES_MAX: usize = 32;

/// After a READ by pipe that was in vain, this many reads go through memory. Spread over so many
/// reads, the cost of the next attempt does not matter.
const PAUSED_READS: u32 = 1000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    free: Mutex<FreePipes>,
    /// The lack of pipes has been logged.
    warned: AtomicBool,
    /// The number of reads that still go through memory.
    paused_reads: AtomicU32,
    /// The number of pipes that hold data that were read ahead, or will.
    read_ahead: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct FreePipes {
    pipes: Vec<Pipe>,
    /// New pipes are large, because a payload came in more pieces than a small pipe has room for.
    are_large: bool,
}

/// The right to leave in a pipe data that were read ahead.
#[derive(Debug)]
pub(crate) struct PipePermit(Arc<AtomicUsize>);

impl Drop for PipePermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pipes {
    fn lock(&self) -> MutexGuard<'_, FreePipes> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an empty pipe; `None` if no more can be made.
    pub(crate) fn take(&self) -> Option<Pipe> {
        let (pooled, are_large) = {
            let mut free = self.lock();
            (free.pipes.pop(), free.are_large)
        };
        if pooled.is_some() {
            return pooled;
        }
        let created = if are_large { Pipe::large() } else { Pipe::new() };
        created
            .map_err(|error| {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::debug!(%error, "no pipe for a payload; it goes through memory");
                }
                self.pause_for_reads();
            })
            .ok()
    }

    /// Takes a pipe for a long read; `None` while reads go through memory.
    pub(crate) fn take_for_read(&self) -> Option<Pipe> {
        let one_less = |left: u32| left.checked_sub(1);
        match self.paused_reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
            Ok(_) => None,
            Err(_) => self.take(),
        }
    }

    /// Returns the right to leave in a pipe data that were read ahead; `None` if enough pipes hold
    /// such data.
    pub(crate) fn read_ahead_permit(&self) -> Option<PipePermit> {
        let others = self.read_ahead.fetch_add(1, Ordering::Relaxed);
        // Dropped, and not counted any more, if there are too many.
        let read_ahead = PipePermit(Arc::clone(&self.read_ahead));
        (others < READ_AHEAD_PIPES_MAX).then_some(read_ahead)
    }

    /// Whether any pipe may hold data that were read ahead.
    #[cfg(test)]
    pub(crate) fn has_permits_out(&self) -> bool {
        self.read_ahead.load(Ordering::Relaxed) > 0
    }

    /// A payload came in more pieces than its pipe had room for, and the next payloads will too.
    /// From now on pipes are large, or reads go through memory for a time. A read that began with a
    /// small pipe before pipes became large says nothing about large pipes.
    pub(crate) fn did_not_fit(&self, was_large: bool) {
        if was_large {
            return self.pause_for_reads();
        }
        if self.lock().are_large {
            return;
        }
        match Pipe::large() {
            Ok(pipe) => {
                // The small pipes are dropped, and so closed, after the lock is released.
                let _small =
                    std::mem::replace(&mut *self.lock(), FreePipes { pipes: vec![pipe], are_large: true });
            }
            Err(_) => self.pause_for_reads(),
        }
    }

    /// Lets the next reads go through memory. Called when a pipe was of no use and would not be for
    /// the next reads either: no pipe can be made, payloads do not fit, or the server returns less
    /// than was requested.
    pub(crate) fn pause_for_reads(&self) {
        self.paused_reads.store(PAUSED_READS, Ordering::Relaxed);
    }

    /// Returns a pipe to the pool if it is empty, of the current size, and the pool has room.
    pub(crate) fn give_back(&self, pipe: Pipe) {
        let mut free = self.lock();
        if pipe.is_empty() && pipe.is_large() == free.are_large && free.pipes.len() < POOLED_MAX {
            free.pipes.push(pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_pipes_are_used_again() {
        let pipes = Pipes::default();
        let mut pipe = pipes.take().unwrap();
        pipe.put(b"left").unwrap();
        pipes.give_back(pipe);
        assert!(pipes.lock().pipes.is_empty());
        let pipe = pipes.take().unwrap();
        pipes.give_back(pipe);
        assert_eq!(pipes.lock().pipes.len(), 1);
        assert!(pipes.take().unwrap().is_empty());
        assert!(pipes.lock().pipes.is_empty());
    }

    #[test]
    fn reads_that_came_to_nothing_are_not_tried_again_for_a_time() {
        let pipes = Pipes::default();
        assert!(pipes.take_for_read().is_some());
        pipes.pause_for_reads();
        assert!((0..PAUSED_READS).all(|_| pipes.take_for_read().is_none()));
        assert!(pipes.take_for_read().is_some());
    }

    #[test]
    fn what_does_not_fit_has_a_larger_pipe_next_where_there_may_be_one_and_else_none() {
        let pipes = Pipes::default();
        let small = pipes.take().unwrap();
        assert!(!small.is_large());
        pipes.did_not_fit(small.is_large());
        pipes.give_back(small);
        // Reads with small pipes that were under way do not fit either.
        pipes.did_not_fit(false);
        let next = pipes.take_for_read();
        assert_eq!(next.as_ref().map(Pipe::is_large), Pipe::large().ok().map(|_| true));
        // There is no larger size.
        pipes.did_not_fit(true);
        assert!(pipes.take_for_read().is_none());
    }

    #[test]
    fn the_number_of_pipes_with_data_that_were_read_ahead_is_limited() {
        let pipes = Pipes::default();
        let mut read_ahead_permit: Vec<_> =
            (0..READ_AHEAD_PIPES_MAX).map(|_| pipes.read_ahead_permit().unwrap()).collect();
        assert!(pipes.read_ahead_permit().is_none() && pipes.read_ahead_permit().is_none());
        read_ahead_permit.pop();
        assert!(pipes.read_ahead_permit().is_some());
        assert!(pipes.has_permits_out());
        read_ahead_permit.clear();
        assert!(!pipes.has_permits_out());
    }
}

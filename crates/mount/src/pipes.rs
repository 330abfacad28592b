//! Pipes in which long payloads stay in the kernel, used again: to make one costs more than to move a payload through it.

use client::Pipe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is kept for the next requests: as many as a program has under way that keeps paths busy, and those for replies. An
/// ordinary user may have 64 of the smaller size in all.
const KEPT_MAX: usize = 24;

/// So many reads are then made by way of memory: what the one cost is not felt any more.
const REST_READS: u32 = 1000;

/// Pipes that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    free: Mutex<Vec<Pipe>>,
    /// It was said that there are none.
    said: AtomicBool,
    /// So many more reads go through memory.
    resting: AtomicU32,
}

impl Pipes {
    fn lock(&self) -> MutexGuard<'_, Vec<Pipe>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty one; none where there may be no more.
    pub(crate) fn take(&self) -> Option<Pipe> {
        let kept = self.lock().pop();
        kept.or_else(|| match Pipe::new() {
            Ok(pipe) => Some(pipe),
            Err(error) => {
                if !self.said.swap(true, Ordering::Relaxed) {
                    tracing::debug!(%error, "no pipe for a payload; it goes through memory");
                }
                self.rest();
                None
            }
        })
    }

    /// One for a long read; none while they rest.
    pub(crate) fn take_for_read(&self) -> Option<Pipe> {
        let rests = |left: u32| left.checked_sub(1);
        match self.resting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rests) {
            Ok(_) => None,
            Err(_) => self.take(),
        }
    }

    /// A read was begun in vain, as the next ones would be: there is no pipe, the network brings too short pieces, or the server
    /// gives less than it is asked for.
    pub(crate) fn rest(&self) {
        self.resting.store(REST_READS, Ordering::Relaxed);
    }

    /// Keeps it for the next, if it is empty and there are not too many.
    pub(crate) fn give_back(&self, pipe: Pipe) {
        let mut free = self.lock();
        if pipe.is_empty() && free.len() < KEPT_MAX {
            free.push(pipe);
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
        assert!(pipes.lock().is_empty());
        let pipe = pipes.take().unwrap();
        pipes.give_back(pipe);
        assert_eq!(pipes.lock().len(), 1);
        assert!(pipes.take().unwrap().is_empty());
        assert!(pipes.lock().is_empty());
    }

    #[test]
    fn reads_that_do_not_fit_are_not_tried_again_for_a_time() {
        let pipes = Pipes::default();
        assert!(pipes.take_for_read().is_some());
        pipes.rest();
        assert!((0..REST_READS).all(|_| pipes.take_for_read().is_none()));
        assert!(pipes.take_for_read().is_some());
    }
}

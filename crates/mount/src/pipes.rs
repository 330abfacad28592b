//! Pipes in which long payloads stay in the kernel, used again: to make one costs more than to move
//! a payload through it.

use client::Pipe;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is kept for the next requests: as many as a program has under way that keeps paths busy,
/// and those for replies. An ordinary user may have 64 of the smaller size in all.
const KEPT_MAX: usize = 24;

/// So many may hold what nobody has asked for yet: half of what an ordinary user may have.
const AHEAD_MAX: usize = 32;

/// So many reads are then made by way of memory: what the one cost is not felt any more.
const REST_READS: u32 = 1000;

/// Pipes that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    free: Mutex<Free>,
    /// It was said that there are none.
    said: AtomicBool,
    /// So many more reads go through memory.
    resting: AtomicU32,
    /// So many hold, or will hold, what was read ahead.
    ahead: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Free {
    pipes: Vec<Pipe>,
    /// Payloads come in more pieces than others have room for.
    are_large: bool,
}

/// The right to leave in a pipe what was read ahead.
#[derive(Debug)]
pub(crate) struct PutBy(Arc<AtomicUsize>);

impl Drop for PutBy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pipes {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty one; none where there may be no more.
    pub(crate) fn take(&self) -> Option<Pipe> {
        let (kept, are_large) = {
            let mut free = self.lock();
            (free.pipes.pop(), free.are_large)
        };
        if kept.is_some() {
            return kept;
        }
        let made = if are_large { Pipe::large() } else { Pipe::new() };
        made.map_err(|error| {
            if !self.said.swap(true, Ordering::Relaxed) {
                tracing::debug!(%error, "no pipe for a payload; it goes through memory");
            }
            self.rest();
        })
        .ok()
    }

    /// One for a long read; none while they rest.
    pub(crate) fn take_for_read(&self) -> Option<Pipe> {
        let rests = |left: u32| left.checked_sub(1);
        match self.resting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rests) {
            Ok(_) => None,
            Err(_) => self.take(),
        }
    }

    /// Leave to put one by for what is read ahead; none where there are enough.
    pub(crate) fn put_by(&self) -> Option<PutBy> {
        let others = self.ahead.fetch_add(1, Ordering::Relaxed);
        // Given back if there are too many.
        let ahead = PutBy(Arc::clone(&self.ahead));
        (others < AHEAD_MAX).then_some(ahead)
    }

    /// Whether any holds what was read ahead.
    #[cfg(test)]
    pub(crate) fn are_put_by(&self) -> bool {
        self.ahead.load(Ordering::Relaxed) > 0
    }

    /// A payload came in more pieces than its pipe had room for, as the next ones will: they have
    /// larger pipes, or none. One that was begun before that was known says nothing of the larger
    /// ones.
    pub(crate) fn did_not_fit(&self, was_large: bool) {
        if was_large {
            return self.rest();
        }
        if self.lock().are_large {
            return;
        }
        match Pipe::large() {
            Ok(pipe) => {
                // The small ones are closed behind the lock.
                let _small =
                    std::mem::replace(&mut *self.lock(), Free { pipes: vec![pipe], are_large: true });
            }
            Err(_) => self.rest(),
        }
    }

    /// A read was begun in vain, as the next ones would be: there is no pipe, or the server gives
    /// less than it is asked for.
    pub(crate) fn rest(&self) {
        self.resting.store(REST_READS, Ordering::Relaxed);
    }

    /// Keeps it for the next, if it is empty and there are not too many.
    pub(crate) fn give_back(&self, pipe: Pipe) {
        let mut free = self.lock();
        if pipe.is_empty() && pipe.is_large() == free.are_large && free.pipes.len() < KEPT_MAX {
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
        pipes.rest();
        assert!((0..REST_READS).all(|_| pipes.take_for_read().is_none()));
        assert!(pipes.take_for_read().is_some());
    }

    #[test]
    fn what_does_not_fit_has_a_larger_pipe_next_where_there_may_be_one_and_else_none() {
        let pipes = Pipes::default();
        let small = pipes.take().unwrap();
        assert!(!small.is_large());
        pipes.did_not_fit(small.is_large());
        pipes.give_back(small);
        // Others were under way.
        pipes.did_not_fit(false);
        let next = pipes.take_for_read();
        assert_eq!(next.as_ref().map(Pipe::is_large), Pipe::large().ok().map(|_| true));
        // Nothing is larger still.
        pipes.did_not_fit(true);
        assert!(pipes.take_for_read().is_none());
    }

    #[test]
    fn some_are_put_by_and_no_more() {
        let pipes = Pipes::default();
        let mut put_by: Vec<_> = (0..AHEAD_MAX).map(|_| pipes.put_by().unwrap()).collect();
        assert!(pipes.put_by().is_none() && pipes.put_by().is_none());
        put_by.pop();
        assert!(pipes.put_by().is_some());
        assert!(pipes.are_put_by());
        put_by.clear();
        assert!(!pipes.are_put_by());
    }
}

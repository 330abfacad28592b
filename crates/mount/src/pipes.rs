//! Pipes in which long payloads stay in the kernel, used again: to make one costs more than to move a payload through it.

use client::Pipe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is kept for the next requests: as many as a program has under way that keeps paths busy, and those for replies.
const KEPT_MAX: usize = 64;

/// Pipes that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    free: Mutex<Vec<Pipe>>,
    /// It was said that there are none.
    said: AtomicBool,
}

impl Pipes {
    fn lock(&self) -> MutexGuard<'_, Vec<Pipe>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty one; none where this user may have no more.
    pub(crate) fn take(&self) -> Option<Pipe> {
        let kept = self.lock().pop();
        kept.or_else(|| match Pipe::new() {
            Ok(pipe) => Some(pipe),
            Err(error) => {
                if !self.said.swap(true, Ordering::Relaxed) {
                    tracing::debug!(%error, "no pipe for a payload; it goes through memory");
                }
                None
            }
        })
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
}

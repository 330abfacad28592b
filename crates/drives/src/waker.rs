//! How other threads hand completions to a queue, and wake its thread.

use crate::operation::Completion;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What other threads have for the thread of a queue.
pub(crate) struct Mailbox {
    event: OwnedFd,
    /// The event was signalled and not consumed since.
    signalled: AtomicBool,
    completions: Mutex<Vec<Completion>>,
}

impl Mailbox {
    pub fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, signalled: AtomicBool::new(false), completions: Mutex::default() })
    }

    pub fn put(&self, completion: Completion) {
        self.completions.lock().unwrap_or_else(PoisonError::into_inner).push(completion);
        self.wake();
    }

    fn wake(&self) {
        if !self.signalled.swap(true, Ordering::AcqRel) {
            // It cannot fail: the counter is far from its end, because one signal is pending at
            // most.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Whether there may be completions.
    pub fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::Acquire)
    }

    /// Moves all completions to `out`, and consumes the event. Costs no system call while nothing
    /// was signalled.
    pub fn take(&self, out: &mut Vec<Completion>) {
        if !self.is_signalled() {
            return;
        }
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        // Before anything is looked at that others may have for this thread: who changes that later
        // signals again, and what was changed before is seen, because the flag is swapped.
        self.signalled.swap(false, Ordering::AcqRel);
        out.append(&mut self.completions.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("signalled", &self.signalled).finish_non_exhaustive()
    }
}

/// Makes the descriptor of a queue readable, from any thread.
#[derive(Debug, Clone)]
pub struct Waker(pub(crate) Arc<Mailbox>);

impl Waker {
    /// Wakes the thread that waits for the queue; it reaps then, whether or not there are
    /// completions.
    pub fn wake(&self) {
        self.0.wake();
    }
}

//! What other queues tell a queue about its commands.

use drives::Waker;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Something that happened to a command or an owner.
#[derive(Debug)]
pub(crate) enum Note {
    Admitted { slot: usize, sequence: u64 },
    Cancelled { slot: usize, sequence: u64 },
    Drained { tag: u64 },
}

/// The notes for a queue. Bounded by the commands of the queue and the owners of its volumes.
pub(crate) struct Inbox {
    notes: Mutex<Vec<Note>>,
    is_empty: AtomicBool,
    waker: Waker,
}

impl Inbox {
    pub fn new(waker: Waker) -> Self {
        Self { notes: Mutex::default(), is_empty: AtomicBool::new(true), waker }
    }

    /// Adds a note. A queue that tells itself something needs no wake: its loop ends its round with
    /// a turn.
    pub fn put(&self, note: Note, wake: bool) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(note);
        self.is_empty.store(false, Ordering::Release);
        drop(notes);
        if wake {
            self.waker.wake();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    pub fn take(&self, out: &mut Vec<Note>) {
        if !self.is_empty() {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            out.append(&mut notes);
            self.is_empty.store(true, Ordering::Release);
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("is_empty", &self.is_empty).finish_non_exhaustive()
    }
}

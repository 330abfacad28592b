//! How other threads hand completions to the thread of a queue, and wake it.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// A request that has ended: its tag, and how many bytes of a read were given, or why it failed.
pub(crate) type Completion = (u16, Result<usize, i32>);

/// What other threads have for the thread of a queue.
#[derive(Debug)]
pub(crate) struct Mailbox {
    event: OwnedFd,
    is_signalled: AtomicBool,
    is_ending: AtomicBool,
    completions: Mutex<Vec<Completion>>,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_signalled: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            completions: Mutex::default(),
        })
    }

    pub(crate) fn put(&self, completion: Completion) {
        self.completions.lock().unwrap_or_else(PoisonError::into_inner).push(completion);
        self.wake();
    }

    /// Has the thread of the queue end.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    fn wake(&self) {
        if !self.is_signalled.swap(true, Ordering::AcqRel) {
            // It cannot fail: one signal is pending at most.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Moves all completions to `out`, and consumes the event.
    pub(crate) fn take(&self, out: &mut Vec<Completion>) {
        if self.is_signalled.load(Ordering::Acquire) {
            let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
            // Before the list is looked at: who adds to it later signals again.
            self.is_signalled.swap(false, Ordering::AcqRel);
            out.append(&mut self.completions.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    #[test]
    fn what_was_put_is_taken_once_and_the_event_tells_of_it() {
        let mailbox = Mailbox::new().expect("an event");
        let readable = || {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&mailbox, PollFlags::IN)], Some(&now)).expect("a poll")
        };
        assert_eq!(readable(), 0);
        mailbox.put((1, Ok(4096)));
        mailbox.put((2, Err(5)));
        assert_eq!(readable(), 1);
        let mut out = Vec::new();
        mailbox.take(&mut out);
        assert_eq!((out.as_slice(), readable()), (&[(1, Ok(4096)), (2, Err(5))][..], 0));
        mailbox.put((3, Ok(0)));
        mailbox.take(&mut out);
        assert_eq!(out.len(), 3);
        mailbox.end();
        assert!(mailbox.is_ending() && readable() == 1);
    }
}

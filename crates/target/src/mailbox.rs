//! What loops are told by each other.

use nvme::Cqe;
use nvme::controller::{CloseReason, View};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use transport::poll::Waker;

/// Names a connection of a loop; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    /// The bits of the place; more connections than that no loop has.
    pub(crate) const KEY_BITS: u32 = 20;

    pub(crate) const fn new(serial: u64, key: usize) -> Self {
        Self(serial << Self::KEY_BITS | key as u64)
    }

    pub(crate) const fn key(self) -> usize {
        (self.0 & ((1 << Self::KEY_BITS) - 1)) as usize
    }
}

/// The place of a queue: its loop, and its connection there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) event_loop: usize,
    pub(crate) token: Token,
}

/// A message to a loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection was accepted for it.
    Connected(OwnedFd, SocketAddr),
    /// An answer on an admin queue.
    Respond { token: Token, cqe: Cqe, data: Vec<u8> },
    /// A queue ends.
    Close { token: Token, reason: CloseReason },
    /// An I/O queue has a new view.
    View { token: Token, view: Arc<View> },
    /// There are controllers: their time runs.
    Tick,
    /// The target stops.
    Stop,
}

/// The messages of one loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
}

impl Mailbox {
    pub(crate) const fn new(waker: Waker) -> Self {
        Self { messages: Mutex::new(Vec::new()), waker }
    }

    /// Posts a message, and wakes the loop unless it is the one that posts.
    pub(crate) fn post(&self, message: Message, wake: bool) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        if wake {
            self.waker.wake();
        }
    }

    /// Takes all messages.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        std::mem::swap(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner), into);
    }

    pub(crate) fn clear_wake(&self) {
        self.waker.clear();
    }
}

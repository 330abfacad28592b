//! How many objects of each kind are alive: tests hold that all are freed.

use std::sync::atomic::{AtomicUsize, Ordering};

static COUNTS: [AtomicUsize; 7] = [const { AtomicUsize::new(0) }; 7];

/// The kinds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Channel,
    Identifier,
    Domain,
    Region,
    Queue,
    QueuePair,
    Window,
}

/// One object; counted until dropped.
#[derive(Debug)]
pub(crate) struct Counted(Kind);

impl Counted {
    pub(crate) fn new(kind: Kind) -> Self {
        COUNTS[kind as usize].fetch_add(1, Ordering::Relaxed);
        Self(kind)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        COUNTS[self.0 as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Objects of this process that the libraries and the kernel hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Alive {
    /// Channels for connection events.
    pub channels: usize,
    /// Connection identifiers.
    pub identifiers: usize,
    /// Protection domains.
    pub domains: usize,
    /// Registered memory.
    pub regions: usize,
    /// Completion queues, each with its channel.
    pub queues: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Memory windows.
    pub windows: usize,
}

/// Counts them.
#[must_use]
pub fn alive() -> Alive {
    let of = |kind: Kind| COUNTS[kind as usize].load(Ordering::Relaxed);
    Alive {
        channels: of(Kind::Channel),
        identifiers: of(Kind::Identifier),
        domains: of(Kind::Domain),
        regions: of(Kind::Region),
        queues: of(Kind::Queue),
        queue_pairs: of(Kind::QueuePair),
        windows: of(Kind::Window),
    }
}

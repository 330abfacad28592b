//! What loops are told by others: an inbox for each loop, with the waker that rings it.

use super::listeners::BoundListener;
use crate::export::Exports;
use crate::group::Group;
use crate::off_loop::Landed;
use crate::statistics::LoopReport;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use transport::poll::Waker;
use transport::rdma;

/// How a client came.
#[derive(Debug)]
pub(crate) enum Link {
    Tcp(OwnedFd),
    /// It wants to connect; the loop that gets it says yes.
    Rdma(Box<rdma::Incoming>),
}

/// A connection that was accepted and belongs to the loop that gets it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub link: Link,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub node: usize,
    pub id: u64,
}

/// Where a connection lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub on_loop: usize,
    pub key: usize,
}

/// A reply for a call that another loop was executing already.
#[derive(Debug)]
pub(crate) struct Answer {
    pub place: Place,
    /// The low half of the connection's number: its place may be another's by now.
    pub connection: u32,
    pub reply: Vec<u8>,
}

/// What a loop can be told. A sender that is only dropped says "done" by that.
#[derive(Debug)]
pub(crate) enum Message {
    /// Serve this connection.
    Accepted(Accepted),
    /// Send this reply.
    Answer(Answer),
    /// A call that was off this loop is back.
    Landed(Landed),
    /// This connection waits for an answer that will not come: end it, so that its client sends the call again.
    Forsake { place: Place, connection: u32 },
    /// The exports or their rules have changed.
    Exports(Arc<Exports>, Sender<()>),
    /// Say what you have counted.
    Report(Sender<LoopReport>),
    /// The connections of a node have changed in number: divide its pace anew.
    Repace(usize),
    /// Accept on these too.
    Listen(Vec<BoundListener>, Sender<io::Result<()>>),
    /// Stop accepting for a node.
    Unlisten(usize, Sender<()>),
    /// Reset the connections of a node.
    ResetNode(usize, Sender<()>),
    /// Answer what has been received, then end; at this time at the latest.
    Drain(Duration),
    /// End at once.
    Stop,
}

/// Messages that a new one is compared with, from the last one back.
const REPACES_LOOKED_AT: usize = 16;

#[derive(Debug, Default)]
struct Queue {
    messages: Vec<Message>,
    /// The loop has ended; nobody reads any more.
    gone: bool,
}

#[derive(Debug)]
struct Inbox {
    queue: Mutex<Queue>,
    waker: Waker,
    /// Connections given to the loop and not yet closed. The acceptor adds, the loop takes away; a stale
    /// reading only places a connection less evenly.
    connections: AtomicUsize,
}

impl Inbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A list of messages is whole between any two of its operations, whoever panicked.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The inboxes of all loops.
#[derive(Debug)]
pub(crate) struct Peers(Vec<Inbox>);

impl Peers {
    pub fn new(wakers: Vec<Waker>) -> Self {
        let inbox = |waker| Inbox { queue: Mutex::default(), waker, connections: AtomicUsize::new(0) };
        Self(wakers.into_iter().map(inbox).collect())
    }

    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells a loop something. A loop that has ended drops it.
    pub fn send(&self, index: usize, message: Message) {
        let Some(inbox) = self.0.get(index) else { return };
        let mut queue = inbox.queue();
        // One of them does for many, and dividing a pace anew is dear: whoever connects and leaves without end
        // must not keep the loops at it.
        let is_told =
            |told: &Message| matches!((told, &message), (Message::Repace(a), Message::Repace(b)) if a == b);
        if !queue.gone && !queue.messages.iter().rev().take(REPACES_LOOKED_AT).any(is_told) {
            queue.messages.push(message);
            drop(queue);
            inbox.waker.wake();
        }
    }

    /// Tells every loop.
    pub fn send_all(&self, message: impl Fn() -> Message) {
        for index in 0..self.0.len() {
            self.send(index, message());
        }
    }

    /// What a loop was told; clears its waker.
    pub fn take(&self, index: usize) -> Vec<Message> {
        let Some(inbox) = self.0.get(index) else { return Vec::new() };
        inbox.waker.clear();
        std::mem::take(&mut inbox.queue().messages)
    }

    /// Gives a new connection to the loop with the fewest.
    pub fn place(&self, accepted: Accepted) {
        let load = |inbox: &Inbox| inbox.connections.load(Ordering::Relaxed);
        let least = self.0.iter().enumerate().min_by_key(|(_, inbox)| load(inbox));
        let Some((index, inbox)) = least else { return };
        inbox.connections.fetch_add(1, Ordering::Relaxed);
        self.send(index, Message::Accepted(accepted));
    }

    /// A connection of a loop is gone.
    pub fn leave(&self, index: usize) {
        if let Some(inbox) = self.0.get(index) {
            inbox.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The connections of a node have changed in number.
    pub fn repace(&self, group: &Group, node: usize) {
        if group.nodes.get(node).is_some_and(crate::group::Node::is_paced) {
            self.send_all(|| Message::Repace(node));
        }
    }

    /// A loop has ended: what it was told is dropped, so that nobody waits for it, and it gets no connection.
    pub fn retire(&self, index: usize) {
        let Some(inbox) = self.0.get(index) else { return };
        inbox.connections.store(usize::MAX / 2, Ordering::Relaxed);
        let mut queue = inbox.queue();
        queue.gone = true;
        queue.messages.clear();
    }
}

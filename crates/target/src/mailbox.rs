//! What loops are told by each other.

use crate::authenticator::Done;
use crate::connection::Device;
use crate::forward::Route;
use nvme::controller::{CloseReason, GuestId, Node, View};
use nvme::rdma::Request;
use nvme::{Cqe, Status};
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

    /// From this place on, in one half of them, are those that the process of the other node has
    /// opened.
    pub(crate) const INLETS: usize = 1 << (Self::KEY_BITS - 1);

    pub(crate) const fn new(serial: u64, key: usize) -> Self {
        Self(serial << Self::KEY_BITS | key as u64)
    }

    pub(crate) const fn is_inlet(self) -> bool {
        self.key() >= Self::INLETS
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
    /// A connection was accepted for it, at a port of this node.
    Connected(OwnedFd, SocketAddr, Node),
    /// The same over RDMA. Memory for the capsules of an I/O queue is set aside.
    ConnectedRdma { device: Box<Device>, request: Request, peer: SocketAddr, node: Node },
    /// The queue pair of a connection is destroyed.
    Destroyed { token: Token },
    /// The process of the other node has connected, to forward commands.
    Forwards(OwnedFd),
    /// Nothing is executed any more that came by an earlier connection of the same loop.
    Forward { token: Token },
    /// The volume at a place, with this NSID, is reached like this from now on.
    Reach { at: usize, nsid: u32, route: Route },
    /// A host at the other node has a new view.
    GuestView { token: Token, guest: GuestId, view: Arc<View> },
    /// The end of a command of reservations of a host at the other node.
    GuestReserved { token: Token, guest: GuestId, tag: u16, result: Result<Vec<u8>, Status> },
    /// An answer on an admin queue.
    Respond { token: Token, cqe: Cqe, data: Vec<u8> },
    /// A command of an admin queue ends without an answer.
    Dropped { token: Token, cid: u16 },
    /// A message of authentication was handled.
    Authenticated { token: Token, done: Box<Done> },
    /// A host could not be authenticated, and was told so before.
    NotAuthenticated { token: Token },
    /// A queue ends.
    Close { token: Token, reason: CloseReason },
    /// An I/O queue has a new view.
    View { token: Token, view: Arc<View> },
    /// Commands on a namespace that the views do not allow any more are refused; once none of them
    /// is executed, the controllers are told.
    Fence { nsid: u32 },
    /// A volume has its backing from now on.
    Taken { at: usize, volume: volumes::Volume },
    /// A volume loses its backing: no view allows commands on it any more. Those that have not
    /// begun are refused; once none is executed, its volume is dropped and the controllers are told.
    Give { nsid: u32, at: usize },
    /// The end of a command of reservations.
    Reserved { token: Token, tag: u16, result: Result<Vec<u8>, Status> },
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

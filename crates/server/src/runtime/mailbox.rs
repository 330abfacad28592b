//! What loops are told by others: an inbox for each loop, with the waker that rings it.

use super::connection::Connection;
use super::listeners::BoundListener;
use super::place::{Place, place_of};
use super::rdma_acceptor::{PendingConnection, RdmaAcceptor};
use super::worker_pool::Completion;
use crate::export::Exports;
use crate::group::Group;
use crate::replies::Payload;
use crate::reply_cache::Waiters;
use crate::statistics::LoopReport;
use drc::Token;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use transport::poll::Waker;
use transport::rdma;

/// How a client came.
#[derive(Debug)]
pub(crate) enum Link {
    Tcp(OwnedFd),
    /// It was let in; it may have sent calls already.
    Rdma(Box<rdma::Responder<Payload>>),
}

/// A connection that was accepted and belongs to the loop that gets it.
#[derive(Debug)]
pub(crate) struct Accepted<L = Link> {
    pub link: L,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub node: usize,
    pub id: u64,
}

impl<L> Accepted<L> {
    /// The same who came like this.
    pub fn with<M>(self, link: M) -> Accepted<M> {
        let Self { link: _, peer, local, node, id } = self;
        Accepted { link, peer, local, node, id }
    }
}

/// A connection on its way from one loop to another.
pub(crate) struct Moving {
    pub(super) connection: Box<Connection>,
    /// When it left.
    pub(super) since: Duration,
}

impl std::fmt::Debug for Moving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { connection, since } = self;
        f.debug_struct("Moving").field("peer", &connection.client.peer).field("since", since).finish()
    }
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
    /// Go on with this one, which another loop had.
    Moved(Moving),
    /// Somebody was to be served here who was not let in: a connection of this node is gone.
    Refused { node: usize },
    /// Send this reply.
    Answer(Answer),
    /// A call that was off this loop is back.
    Completion(Completion),
    /// This connection waits for an answer that will not come: end it, so that its client sends the
    /// call again.
    Forsake { place: Place, connection: u32 },
    /// The exports or their rules have changed.
    Exports(Arc<Exports>, Sender<()>),
    /// Somebody asks whether clients have their replies: look.
    Look,
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

/// A connection moves to a loop that has so much less to do than its own without it, in thousandths
/// of a loop's time.
const WORTH_A_MOVE_PERMILLE: usize = 50;
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
    /// Connections given to the loop and not yet closed. The acceptor adds, or another loop that
    /// hands one on; the loop takes away. A stale reading only places a connection less evenly.
    connections: AtomicUsize,
    /// How much they load the loop, in thousandths of its time. The loop adds and takes away, or
    /// another loop that hands one on.
    load: AtomicUsize,
    /// The processor that it ran on when it last counted its load, which a loop without load does
    /// not; or [`NOWHERE`].
    runs_on: AtomicU32,
}

const NOWHERE: u32 = u32::MAX;

impl Inbox {
    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Whether it has something to do, and does it on this processor.
    fn works_on(&self, processor: u32) -> bool {
        self.load() > 0 && self.runs_on.load(Ordering::Relaxed) == processor
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A list of messages is whole between any two of its operations, whoever panicked.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The inboxes of all loops, and who makes connections over RDMA for them.
#[derive(Debug)]
pub(crate) struct Peers {
    inboxes: Vec<Inbox>,
    /// From the first who comes over RDMA on, until the server ends.
    rdma_acceptor: Mutex<Option<RdmaAcceptor>>,
}

impl Peers {
    pub fn new(wakers: Vec<Waker>) -> Self {
        let none = || AtomicUsize::new(0);
        let inbox = |waker| Inbox {
            queue: Mutex::default(),
            waker,
            connections: none(),
            load: none(),
            runs_on: AtomicU32::new(NOWHERE),
        };
        Self { inboxes: wakers.into_iter().map(inbox).collect(), rdma_acceptor: Mutex::new(None) }
    }

    pub const fn len(&self) -> usize {
        self.inboxes.len()
    }

    /// Tells a loop something. A loop that has ended drops it.
    pub fn send(&self, index: usize, message: Message) {
        let Some(inbox) = self.inboxes.get(index) else { return };
        let mut queue = inbox.queue();
        // One of them does for many, and dividing a pace anew is dear: whoever connects and leaves
        // without end must not keep the loops at it.
        let is_told = |told: &Message| {
            matches!((told, &message), (Message::Look, Message::Look))
                || matches!((told, &message), (Message::Repace(a), Message::Repace(b)) if a == b)
        };
        if !queue.gone && !queue.messages.iter().rev().take(REPACES_LOOKED_AT).any(is_told) {
            queue.messages.push(message);
            drop(queue);
            inbox.waker.wake();
        }
    }

    /// Tells every loop.
    pub fn send_all(&self, message: impl Fn() -> Message) {
        for index in 0..self.inboxes.len() {
            self.send(index, message());
        }
    }

    /// What a loop was told; clears its waker.
    pub fn take(&self, index: usize) -> Vec<Message> {
        let Some(inbox) = self.inboxes.get(index) else { return Vec::new() };
        inbox.waker.clear();
        std::mem::take(&mut inbox.queue().messages)
    }

    /// Gives a new connection to the loop with the fewest. Once it calls for files it may move.
    pub fn place(&self, accepted: Accepted) {
        if let Some(index) = self.take_place(|inbox| (inbox.connections(), 0)) {
            self.send(index, Message::Accepted(accepted));
        }
    }

    /// Has somebody let in who came over RDMA and stays there, for the loop with the least load of
    /// those that have less than `connections_max` connections.
    pub fn place_over_rdma(
        self: &Arc<Self>,
        incoming: Box<rdma::Incoming>,
        accepted: Accepted<()>,
        connections_max: usize,
    ) {
        let load = |inbox: &Inbox| {
            let load = if inbox.connections() < connections_max { inbox.load() } else { usize::MAX };
            (load, inbox.connections())
        };
        let Some(on_loop) = self.take_place(load) else { return };
        let (peer, node) = (accepted.peer, accepted.node);
        let mut rdma_acceptor = self.rdma_acceptor();
        let started = match rdma_acceptor.take() {
            Some(rdma_acceptor) => Ok(rdma_acceptor),
            None => RdmaAcceptor::start(Arc::clone(self)),
        };
        let refused = match started {
            Ok(started) => {
                let made =
                    rdma_acceptor.insert(started).make(PendingConnection { incoming, accepted, on_loop });
                made.err().map(str::to_owned)
            }
            Err(error) => Some(error.to_string()),
        };
        drop(rdma_acceptor);
        if let Some(error) = refused {
            tracing::warn!(%peer, error, "connection refused");
            self.send(on_loop, Message::Refused { node });
        }
    }

    /// Ends a connection over RDMA, which no loop waits for any more.
    pub fn end_over_rdma(&self, responder: Box<rdma::Responder<Payload>>) {
        if let Some(rdma_acceptor) = &*self.rdma_acceptor() {
            rdma_acceptor.end(responder);
        }
    }

    /// Ends what makes and ends connections over RDMA, until then.
    pub fn end_porter(&self, deadline: Duration) {
        let rdma_acceptor = self.rdma_acceptor().take();
        if let Some(rdma_acceptor) = rdma_acceptor {
            rdma_acceptor.stop(deadline);
        }
    }

    fn rdma_acceptor(&self) -> MutexGuard<'_, Option<RdmaAcceptor>> {
        self.rdma_acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection on the loop that has the least of something.
    fn take_place(&self, of: impl Fn(&Inbox) -> (usize, usize)) -> Option<usize> {
        let (index, _) = self.inboxes.iter().enumerate().min_by_key(|(_, inbox)| of(inbox))?;
        self.enter(index);
        Some(index)
    }

    /// A connection is given to a loop.
    pub fn enter(&self, index: usize) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection of a loop loads it by so much, in thousandths of its time.
    pub fn add_load(&self, index: usize, permille: usize) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.load.fetch_add(permille, Ordering::Relaxed);
        }
    }

    /// It does so no more.
    pub fn take_load(&self, index: usize, permille: usize) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.load.fetch_sub(permille, Ordering::Relaxed);
        }
    }

    /// A place on another loop for a connection of this one with so much load, of which so much is
    /// counted here, if the other has less to do than this one without it. Of several that have as
    /// little to do it is the one that runs on the processor where the connection's packets come
    /// in; a connection that is not counted here yet goes there from a loop with as little to do
    /// too. The other has less than `connections_max` connections; should several loops find so at
    /// once, it gets one more from each.
    pub fn take_place_from(
        &self,
        index: usize,
        permille: usize,
        counted: usize,
        connections_max: usize,
        comes_in_on: impl FnOnce() -> Option<u32>,
    ) -> Option<usize> {
        let own = self.inboxes.get(index)?;
        let without = own.load().saturating_sub(counted);
        let others = || {
            let others = self.inboxes.iter().enumerate().filter(|(other, _)| *other != index);
            others.filter(|(_, inbox)| inbox.connections() < connections_max)
        };
        let (least, least_load) =
            others().map(|(other, inbox)| (other, inbox.load())).min_by_key(|(_, load)| *load)?;
        let little = without.min(least_load) + WORTH_A_MOVE_PERMILLE;
        let stays = without <= little;
        if least_load > little || stays && counted > 0 {
            return None;
        }
        let at_home = match comes_in_on() {
            Some(processor) if stays && own.works_on(processor) => return None,
            Some(processor) => {
                others().find(|(_, inbox)| inbox.load() <= little && inbox.works_on(processor))
            }
            None => None,
        };
        let place = at_home.map(|(home, _)| home).or((!stays).then_some(least))?;
        self.take_load(index, counted);
        self.add_load(place, permille);
        self.enter(place);
        self.leave(index);
        Some(place)
    }

    /// Where a loop runs.
    pub fn tell_place(&self, index: usize, runs_on: Option<u32>) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.runs_on.store(runs_on.unwrap_or(NOWHERE), Ordering::Relaxed);
        }
    }

    /// How much its connections load a loop.
    pub fn load(&self, index: usize) -> usize {
        self.inboxes.get(index).map_or(0, Inbox::load)
    }

    /// Connections given to a loop and not yet closed.
    pub fn connections(&self, index: usize) -> usize {
        self.inboxes.get(index).map_or(0, Inbox::connections)
    }

    /// A connection of a loop is gone.
    pub fn leave(&self, index: usize) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The connections of a node have changed in number.
    pub fn repace(&self, group: &Group, node: usize) {
        if group.nodes.get(node).is_some_and(crate::group::Node::is_paced) {
            self.send_all(|| Message::Repace(node));
        }
    }

    /// A loop has ended: what it was told is dropped, so that nobody waits for it, and it gets no
    /// connection.
    pub fn retire(&self, index: usize) {
        let Some(inbox) = self.inboxes.get(index) else { return };
        inbox.connections.store(usize::MAX / 4, Ordering::Relaxed);
        inbox.load.store(usize::MAX / 4, Ordering::Relaxed);
        let mut queue = inbox.queue();
        queue.gone = true;
        queue.messages.clear();
    }
}

impl Waiters for Peers {
    #[cold]
    fn answer(&self, waiter: Token, reply: &[u8]) {
        let (place, connection) = place_of(waiter);
        self.send(place.on_loop, Message::Answer(Answer { place, connection, reply: reply.to_vec() }));
    }

    fn forsake(&self, waiter: Token) {
        let (place, connection) = place_of(waiter);
        self.send(place.on_loop, Message::Forsake { place, connection });
    }

    fn have_connections_looked_at(&self) {
        self.send_all(|| Message::Look);
    }
}

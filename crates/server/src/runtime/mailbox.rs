//! Messages to loops: an inbox for each loop, with the waker that wakes the loop.

use super::call_sink::Responder;
use super::connection::Connection;
use super::connection_address::{ConnectionAddress, address_of};
use super::listeners::BoundListener;
use super::rdma_acceptor::{PendingConnection, RdmaAcceptor};
use super::worker_pool::Completion;
use crate::byte_budget::Account;
use crate::clock;
use crate::config::ListenAddress;
use crate::export::Exports;
use crate::group::Group;
use crate::nfs4_state::Wake;
use crate::reply_cache::Waiters;
use crate::statistics::LoopReport;
use drc::Token;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use transport::poll::Waker;
use transport::{Remains, rdma};

/// The transport of a new connection.
#[derive(Debug)]
pub(crate) enum Link {
    Tcp(OwnedFd),
    /// The connection was accepted; the client may have sent calls already.
    Rdma(Box<Responder>),
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
    /// The same connection with another link.
    pub fn with<M>(self, link: M) -> Accepted<M> {
        let Self { link: _, peer, local, node, id } = self;
        Accepted { link, peer, local, node, id }
    }
}

/// A connection on its way from one loop to another.
pub(crate) struct MovingConnection {
    pub(super) connection: Box<Connection>,
    /// When the connection left its loop.
    pub(super) since: Duration,
}

impl std::fmt::Debug for MovingConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { connection, since } = self;
        f.debug_struct("Moving").field("peer", &connection.client.peer).field("since", since).finish()
    }
}

/// A reply to a call that another loop was already executing.
#[derive(Debug)]
pub(crate) struct RoutedReply {
    pub address: ConnectionAddress,
    /// The low half of the connection's number: the slot may belong to another connection by now.
    pub connection: u32,
    pub reply: Vec<u8>,
}

/// A message to a loop. A sender in a message that is only dropped signals "done" by that.
#[derive(Debug)]
pub(crate) enum Message {
    /// Serve this connection.
    Accepted(Accepted),
    /// Continue to serve this connection, which another loop had.
    Moved(MovingConnection),
    /// A connection assigned to this loop was not accepted: this node has one connection less.
    Refused { node: usize },
    /// Send this reply.
    Reply(RoutedReply),
    /// Send the call-backs that wait for this connection.
    Calls { address: ConnectionAddress, connection: u32 },
    /// A call of this loop has come back from the worker pool.
    Completion(Completion),
    /// This connection waits for a reply that will not come: end it, so that its client sends the
    /// call again.
    Abandon { address: ConnectionAddress, connection: u32 },
    /// The exports or their rules have changed.
    Exports(Arc<Exports>, Sender<()>),
    /// Somebody asks whether clients have their replies: check.
    CheckAcknowledgements,
    /// A connection of another loop waits for this much memory, on behalf of an address: end
    /// connections that keep the server waiting.
    MakeRoom(Arc<Account>, usize),
    /// Report the counters; also by file, and go on counting by file for this time.
    Report(Option<Duration>, Sender<LoopReport>),
    /// The number of connections of a node has changed: divide its pacing rate again.
    Repace(usize),
    /// Accept on these listeners too.
    Listen(Vec<BoundListener>, Sender<io::Result<()>>),
    /// Stop accepting for a node.
    Unlisten(usize, Sender<()>),
    /// Stop accepting on one address.
    UnlistenAt(ListenAddress, Sender<()>),
    /// Close the connections that were accepted on one address, once what was received is answered.
    DrainAt(ListenAddress),
    /// Reset the connections of a node.
    ResetNode(usize, Sender<()>),
    /// Answer the received calls, then end; at this time at the latest.
    Drain(Duration),
    /// End at once.
    Stop,
}

/// A connection moves if the other loop has at least this much less to do than its own loop has
/// without the connection, in thousandths of a loop's time.
const WORTH_A_MOVE_PERMILLE: usize = 50;
/// A loop whose round takes longer than this gets no connections from others: its own wait long
/// enough.
const LONG_ROUND: Duration = Duration::from_millis(50);
/// Queued messages, counted from the last, that a new message is compared with.
const DUPLICATES_SEARCHED: usize = 16;

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
    /// Connections given to the loop and not yet closed. The acceptor adds to the count, as does
    /// another loop that hands a connection over; the loop subtracts. a stale value only assigns a
    /// connection less evenly.
    connections: AtomicUsize,
    /// How much the connections load the loop, in thousandths of its time. The loop adds and
    /// subtracts, as does another loop that hands a connection over.
    load: AtomicUsize,
    /// When the loop began the round in which it is, in milliseconds of [`clock`]; 0 while it waits
    /// for events.
    round_since_ms: AtomicU64,
    /// The processor on which the loop ran when it last counted its load, or [`UNKNOWN_CPU`]. A
    /// loop without load does not count.
    cpu: AtomicU32,
}

const UNKNOWN_CPU: u32 = u32::MAX;

impl Inbox {
    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Whether the loop has work and runs on this processor.
    fn runs_on_cpu(&self, cpu: u32) -> bool {
        self.load() > 0 && self.cpu.load(Ordering::Relaxed) == cpu
    }

    /// Whether the loop has been in one round for long.
    fn is_late(&self, now_ms: u64) -> bool {
        let since_ms = self.round_since_ms.load(Ordering::Relaxed);
        since_ms > 0 && Duration::from_millis(now_ms.saturating_sub(since_ms)) > LONG_ROUND
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A panic cannot leave the list of messages incomplete, because each operation on it is
        // complete.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The inboxes of all loops, and the acceptor of their connections over RDMA.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    inboxes: Vec<Inbox>,
    /// Runs from the first connection over RDMA until the server ends.
    rdma_acceptor: Mutex<Option<RdmaAcceptor>>,
}

impl Mailboxes {
    pub fn new(wakers: Vec<Waker>) -> Self {
        let none = || AtomicUsize::new(0);
        let inbox = |waker| Inbox {
            queue: Mutex::default(),
            waker,
            connections: none(),
            load: none(),
            round_since_ms: AtomicU64::new(0),
            cpu: AtomicU32::new(UNKNOWN_CPU),
        };
        Self { inboxes: wakers.into_iter().map(inbox).collect(), rdma_acceptor: Mutex::new(None) }
    }

    pub const fn len(&self) -> usize {
        self.inboxes.len()
    }

    /// Sends a message to a loop. A loop that has ended drops the message.
    pub fn send(&self, index: usize, message: Message) {
        let Some(inbox) = self.inboxes.get(index) else { return };
        let mut queue = inbox.queue();
        // One such message stands for many, and dividing a pacing rate again is expensive: a client
        // that connects and disconnects without end must not keep the loops busy with it.
        let is_duplicate = |queued: &Message| {
            matches!((queued, &message), (Message::CheckAcknowledgements, Message::CheckAcknowledgements))
                || matches!((queued, &message), (Message::MakeRoom(a, _), Message::MakeRoom(b, _)) if Arc::ptr_eq(a, b))
                || matches!((queued, &message), (Message::Repace(a), Message::Repace(b)) if a == b)
        };
        if !queue.gone && !queue.messages.iter().rev().take(DUPLICATES_SEARCHED).any(is_duplicate) {
            queue.messages.push(message);
            drop(queue);
            inbox.waker.wake();
        }
    }

    /// Sends a message to every loop.
    pub fn send_all(&self, message: impl Fn() -> Message) {
        for index in 0..self.inboxes.len() {
            self.send(index, message());
        }
    }

    /// Sends a message to every loop but one.
    pub fn send_others(&self, but: usize, message: impl Fn() -> Message) {
        for index in (0..self.inboxes.len()).filter(|index| *index != but) {
            self.send(index, message());
        }
    }

    /// Takes the messages of a loop and clears its waker.
    pub fn take(&self, index: usize) -> Vec<Message> {
        let Some(inbox) = self.inboxes.get(index) else { return Vec::new() };
        inbox.waker.clear();
        std::mem::take(&mut inbox.queue().messages)
    }

    /// Gives a new connection to the loop with the fewest connections. The connection may move once
    /// it calls for files.
    pub fn assign(&self, accepted: Accepted) {
        if let Some(index) = self.reserve_on_loop(|inbox| (inbox.connections(), 0)) {
            self.send(index, Message::Accepted(accepted));
        }
    }

    /// Has a connection over RDMA accepted for the loop with the least load among those with less
    /// than `connections_max` connections. The connection stays on that loop.
    pub fn assign_over_rdma(
        self: &Arc<Self>,
        incoming: Box<rdma::Incoming>,
        accepted: Accepted<()>,
        connections_max: usize,
        reverse_credits: u32,
    ) {
        let load = |inbox: &Inbox| {
            let load = if inbox.connections() < connections_max { inbox.load() } else { usize::MAX };
            (load, inbox.connections())
        };
        let Some(on_loop) = self.reserve_on_loop(load) else { return };
        let (peer, node) = (accepted.peer, accepted.node);
        let mut rdma_acceptor = self.rdma_acceptor();
        let started = match rdma_acceptor.take() {
            Some(rdma_acceptor) => Ok(rdma_acceptor),
            None => RdmaAcceptor::start(Arc::clone(self)),
        };
        let refused = match started {
            Ok(started) => {
                let queued = rdma_acceptor.insert(started).accept(PendingConnection {
                    incoming,
                    accepted,
                    on_loop,
                    reverse_credits,
                });
                queued.err().map(str::to_owned)
            }
            Err(error) => Some(error.to_string()),
        };
        drop(rdma_acceptor);
        if let Some(error) = refused {
            tracing::warn!(%peer, error, "connection refused");
            self.send(on_loop, Message::Refused { node });
        }
    }

    /// Frees what is left of a connection that has ended, on a thread that may wait.
    pub fn free(&self, remains: Remains) {
        if remains.is_empty() {
            return;
        }
        if let Some(rdma_acceptor) = &*self.rdma_acceptor() {
            rdma_acceptor.free(remains);
        }
    }

    /// Ends the RDMA acceptor by `deadline`.
    pub fn stop_rdma_acceptor(&self, deadline: Duration) {
        let rdma_acceptor = self.rdma_acceptor().take();
        if let Some(rdma_acceptor) = rdma_acceptor {
            rdma_acceptor.stop(deadline);
        }
    }

    fn rdma_acceptor(&self) -> MutexGuard<'_, Option<RdmaAcceptor>> {
        self.rdma_acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a slot for a connection on the loop where `of` is least.
    fn reserve_on_loop(&self, of: impl Fn(&Inbox) -> (usize, usize)) -> Option<usize> {
        let (index, _) = self.inboxes.iter().enumerate().min_by_key(|(_, inbox)| of(inbox))?;
        self.enter(index);
        Some(index)
    }

    /// Counts a connection that is given to a loop.
    pub fn enter(&self, index: usize) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds the load of a connection to its loop, in thousandths of the loop's time.
    pub fn add_load(&self, index: usize, permille: usize) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.load.fetch_add(permille, Ordering::Relaxed);
        }
    }

    /// Removes the load of a connection from its loop.
    pub fn take_load(&self, index: usize, permille: usize) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.load.fetch_sub(permille, Ordering::Relaxed);
        }
    }

    /// Reserves a slot on another loop for a connection of this loop with the load `permille`, of
    /// which `counted` is counted here, if the other loop has less to do than this one has without
    /// the connection.
    ///
    /// The processor where the packets of the connection arrive (`SO_INCOMING_CPU`) only breaks
    /// ties: of the loops that are equally loaded, within `WORTH_A_MOVE_PERMILLE`, the loop on that
    /// processor is preferred. A connection that is not counted here yet goes there even from a
    /// loop with as little to do.
    ///
    /// The other loop has less than `connections_max` connections, and is not late; if several
    /// loops choose it at once, it gets one more from each.
    pub fn reserve_on_other_loop(
        &self,
        index: usize,
        permille: usize,
        counted: usize,
        connections_max: usize,
        incoming_cpu: impl FnOnce() -> Option<u32>,
    ) -> Option<usize> {
        let own = self.inboxes.get(index)?;
        let without = own.load().saturating_sub(counted);
        let now_ms = milliseconds(clock::now());
        let others = || {
            let others = self.inboxes.iter().enumerate().filter(|(other, _)| *other != index);
            others.filter(|(_, inbox)| inbox.connections() < connections_max && !inbox.is_late(now_ms))
        };
        let (least, least_load) =
            others().map(|(other, inbox)| (other, inbox.load())).min_by_key(|(_, load)| *load)?;
        let little = without.min(least_load) + WORTH_A_MOVE_PERMILLE;
        let stays = without <= little;
        if least_load > little || stays && counted > 0 {
            return None;
        }
        let on_that_cpu = match incoming_cpu() {
            Some(cpu) if stays && own.runs_on_cpu(cpu) => return None,
            Some(cpu) => others().find(|(_, inbox)| inbox.load() <= little && inbox.runs_on_cpu(cpu)),
            None => None,
        };
        let target = on_that_cpu.map(|(other, _)| other).or((!stays).then_some(least))?;
        self.take_load(index, counted);
        self.add_load(target, permille);
        self.enter(target);
        self.leave(index);
        Some(target)
    }

    /// Notes that a loop begins a round of work.
    pub fn begin_round(&self, index: usize, now: Duration) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.round_since_ms.store(milliseconds(now), Ordering::Relaxed);
        }
    }

    /// Notes that a loop is done with its work, and waits for more.
    pub fn end_round(&self, index: usize) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.round_since_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Notes the processor on which a loop runs.
    pub fn report_cpu(&self, index: usize, cpu: Option<u32>) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.cpu.store(cpu.unwrap_or(UNKNOWN_CPU), Ordering::Relaxed);
        }
    }

    /// How much the connections of a loop load it.
    pub fn load(&self, index: usize) -> usize {
        self.inboxes.get(index).map_or(0, Inbox::load)
    }

    /// Connections given to a loop and not yet closed.
    pub fn connections(&self, index: usize) -> usize {
        self.inboxes.get(index).map_or(0, Inbox::connections)
    }

    /// Counts a connection of a loop as closed.
    pub fn leave(&self, index: usize) {
        if let Some(inbox) = self.inboxes.get(index) {
            inbox.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Called when the number of connections of a node has changed.
    pub fn repace(&self, group: &Group, node: usize) {
        if group.nodes.get(node).is_some_and(crate::group::Node::is_paced) {
            self.send_all(|| Message::Repace(node));
        }
    }

    /// Called when a loop has ended: its messages are dropped, so that nobody waits for it, and it
    /// gets no more connections.
    pub fn retire(&self, index: usize) {
        let Some(inbox) = self.inboxes.get(index) else { return };
        inbox.connections.store(usize::MAX / 4, Ordering::Relaxed);
        inbox.load.store(usize::MAX / 4, Ordering::Relaxed);
        let mut queue = inbox.queue();
        queue.gone = true;
        queue.messages.clear();
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Wake for Mailboxes {
    fn has_calls(&self, connection: Token) {
        let (address, connection) = address_of(connection);
        self.send(address.on_loop, Message::Calls { address, connection });
    }
}

impl Waiters for Mailboxes {
    #[cold]
    fn reply(&self, waiter: Token, reply: &[u8]) {
        let (address, connection) = address_of(waiter);
        self.send(
            address.on_loop,
            Message::Reply(RoutedReply { address, connection, reply: reply.to_vec() }),
        );
    }

    fn abandon(&self, waiter: Token) {
        let (address, connection) = address_of(waiter);
        self.send(address.on_loop, Message::Abandon { address, connection });
    }

    fn check_acknowledgements(&self) {
        self.send_all(|| Message::CheckAcknowledgements);
    }
}

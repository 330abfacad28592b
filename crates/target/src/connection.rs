//! One connection, which is one queue of a controller: what is received, executed and sent.
//!
//! ```text
//!  Pending ── Connect ──> Admin: commands go to the controllers
//!                    └──> Io: commands go to the volumes
//!  any ── end ──> Ended: the socket closes, at once or when all is sent; what had not begun is
//!                 dropped; the queue is closed when the volumes have drained
//! ```

mod admin;
mod authentication;
mod io;
mod link;
mod rdma;
mod receive;

use crate::budget::Budget;
use crate::config::{CAPSULE_DATA_BYTES, QUEUE_CAPSULE_BYTES, TRANSFER_BYTES};
use crate::controllers::Queue;
use crate::forward::{Outlet, Route};
use crate::mailbox::{Place, Token};
use crate::outbound::Flushed;
use crate::shares::Shares;
use crate::target::Shared;
use admin::Admin;
use authentication::Authentication;
use io::Io;
pub(crate) use io::{FRESH, tag_of};
use link::{Link, Sending, Stream, digest_of};
use memory::Buffers;
use nvme::controller::{CloseReason, Node, View};
use nvme::tcp::Settings;
use nvme::{Cqe, Sqe, Status};
pub(crate) use rdma::{Device, RdmaLink};
use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use transport::poll::Interest;

/// Responses that a host has not read or will get; above, no more of its commands are taken.
const HEADS_BYTES_MAX: usize = 256 << 10;

/// What a connection uses of its loop and of the target.
pub(crate) struct Context<'a> {
    pub(crate) queue: &'a mut volumes::Queue,
    /// The volumes whose backing is here, by their places.
    pub(crate) volumes: &'a [Option<volumes::Volume>],
    /// How volumes are reached, by their places.
    pub(crate) routes: &'a [Route],
    /// The way to the process of the other node.
    pub(crate) outlet: &'a mut Outlet,
    /// For data that do not go to a volume here.
    pub(crate) buffers: &'a Arc<Buffers>,
    pub(crate) budget: &'a mut Budget,
    /// What the volumes have of the queue.
    pub(crate) places: &'a mut Shares,
    pub(crate) shared: &'a Shared,
    pub(crate) now: Instant,
    /// The loop was late in this round.
    pub(crate) late: bool,
    /// There is something to say to the process of the other node.
    pub(crate) has_output: bool,
    /// Something was submitted or drained: the queue needs a turn.
    pub(crate) needs_turn: bool,
    /// Memory or a place became free.
    pub(crate) has_room: bool,
}

impl Context<'_> {
    /// The volume with this identifier, if its backing is here.
    pub(crate) fn volume(&self, id: u64) -> Option<&volumes::Volume> {
        self.volumes.get(usize::try_from(id).ok()?)?.as_ref()
    }
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndReason {
    #[error("the host closed the connection")]
    ClosedByHost,
    #[error("the host ended the connection: {0:?}")]
    Terminated(nvme::pdu::TermReq),
    #[error("the host broke the protocol: {0}")]
    Malformed(nvme::pdu::Malformed),
    #[error("{0}")]
    Violation(nvme::controller::Violation),
    #[error("Connect was refused: {0}")]
    Refused(Status),
    #[error("the host disconnected the queue")]
    Disconnected,
    #[error("{0}")]
    Controller(CloseReason),
    #[error("the host could not be authenticated")]
    NotAuthenticated,
    #[error("the host did not authenticate in time")]
    AuthenticationTimeout,
    #[error("the host did not connect in time")]
    ConnectTimeout,
    #[error("the host did not send what it was asked for, or did not read what it asked for, in time")]
    Silence,
    #[error("its commands waited while this process stood still")]
    Stall,
    #[error("the target stops")]
    Stop,
    #[error("the host sent a message that is no command")]
    NoCapsule,
    #[error("the host sent another command where Connect is due")]
    Sequence,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Rdma(#[from] transport::rdma::Error),
}

impl EndReason {
    /// Whether what is queued for the host is still sent. A host that is silent, or that has left
    /// its connections, would be waited for in vain, and with it the end of its controller.
    const fn delivers(&self) -> bool {
        match self {
            Self::Malformed(_)
            | Self::Refused(_)
            | Self::Disconnected
            | Self::NotAuthenticated
            | Self::Stop => true,
            Self::Controller(reason) => !matches!(
                reason,
                CloseReason::KeepAlive | CloseReason::AdminQueueGone | CloseReason::Superseded
            ),
            _ => false,
        }
    }
}

#[derive(Debug)]
enum Role {
    /// No queue yet.
    Pending,
    Admin(Admin),
    Io(Box<Io>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The last words are being sent until this time.
    Lingering(Instant),
    Ended,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) place: Place,
    peer: SocketAddr,
    /// The node at whose port it is.
    node: Node,
    link: Link,
    role: Role,
    /// What stands before its commands, if its host has to authenticate.
    authentication: Option<Box<Authentication>>,
    /// Connect, while its data are received.
    connecting: Option<Sqe>,
    phase: Phase,
    /// Memory for data in the capsules of an I/O queue is set aside.
    pub(crate) has_capsules: bool,
    /// Memory of the loop's budget.
    held: usize,
    /// Volumes that are being drained.
    drains: usize,
    /// What the poller waits for.
    pub(crate) interest: Interest,
    /// More may be waiting to be received without a further event.
    pub(crate) has_more: bool,
    /// Since when something may be waiting to be received: more than a turn's share, or what comes
    /// while the host does not read its answers.
    behind_since: Option<Instant>,
    /// It is in the loop's list of those that wait for memory or for a place.
    pub(crate) is_listed: bool,
    /// When the system was asked last whether it is established, and it was.
    established_at: Cell<Option<Instant>>,
}

impl Connection {
    /// A TCP connection.
    pub(crate) fn new(
        place: Place,
        socket: OwnedFd,
        (peer, node): (SocketAddr, Node),
        shared: &Shared,
    ) -> Self {
        let settings = Settings { capsule_data_bytes: CAPSULE_DATA_BYTES, transfer_bytes: TRANSFER_BYTES };
        let stream = Stream::new(socket, shared.controllers.now(), settings);
        Self::over(Link::Tcp(Box::new(stream)), place, (peer, node))
    }

    /// An RDMA connection. Memory for capsules was set aside before, if it asks for an I/O queue.
    pub(crate) fn over_rdma(place: Place, link: RdmaLink, (peer, node): (SocketAddr, Node)) -> Self {
        let has_capsules = link.qid() > 0;
        Self { has_capsules, ..Self::over(Link::Rdma(Box::new(link)), place, (peer, node)) }
    }

    const fn over(link: Link, place: Place, (peer, node): (SocketAddr, Node)) -> Self {
        Self {
            place,
            peer,
            node,
            link,
            role: Role::Pending,
            authentication: None,
            connecting: None,
            phase: Phase::Open,
            has_capsules: false,
            held: 0,
            drains: 0,
            interest: Interest::READ,
            has_more: false,
            behind_since: None,
            is_listed: false,
            established_at: Cell::new(None),
        }
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.link.socket()
    }

    pub(crate) const fn token(&self) -> Token {
        self.place.token
    }

    /// Whether it can be forgotten.
    pub(crate) const fn is_gone(&self) -> bool {
        self.link.is_closed() && self.link.is_released() && self.drains == 0
    }

    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    pub(crate) fn has_output(&self) -> bool {
        let lingers = matches!(self.phase, Phase::Lingering(_));
        self.link.has_output() || (lingers && !self.link.is_closed())
    }

    fn queue(&self) -> Option<Queue> {
        match &self.role {
            Role::Pending => None,
            Role::Admin(admin) => Some(admin.queue),
            Role::Io(io) => Some(io.queue),
        }
    }

    /// Whether further PDUs are taken.
    const fn wants_more(&self) -> bool {
        let owed = match &self.role {
            Role::Admin(admin) => admin.owed_bytes(),
            _ => 0,
        };
        self.is_open() && self.link.unread_bytes().saturating_add(owed) < HEADS_BYTES_MAX
    }

    /// What the poller is to wait for. A host that does not read its answers is not read from.
    pub(crate) const fn wanted(&self, flushed: Flushed) -> Interest {
        let read = !self.is_open() || self.wants_more();
        Interest { read, write: matches!(flushed, Flushed::PeerIsFull) }
    }

    /// Ends the connection. What had not begun is dropped; the queue is closed once the rest is
    /// finished.
    pub(crate) fn end(&mut self, reason: &EndReason, context: &mut Context<'_>) {
        if !self.is_open() {
            // The peer of a connection that is ending already has gone.
            if !reason.delivers() {
                self.close(context);
            }
            return;
        }
        tracing::info!(peer = %self.peer, queue = ?self.queue(), %reason, "connection ended");
        self.phase = Phase::Lingering(context.now + context.shared.limits.last_words);
        self.link.stop_receiving();
        if let Role::Io(io) = &mut self.role {
            if let Link::Rdma(link) = &mut self.link {
                link.charge(io.take_reserved());
            }
            self.drains = io.end(self.place.token, &mut self.held, context);
        }
        if !reason.delivers() {
            self.close(context);
        }
        self.report_if_closed(context);
    }

    /// Closes the connection; nothing that is queued is delivered.
    fn close(&mut self, context: &mut Context<'_>) {
        self.phase = Phase::Ended;
        let freed = self.link.close();
        self.give_back(freed, context);
    }

    fn give_back(&mut self, bytes: usize, context: &mut Context<'_>) {
        if bytes > 0 {
            context.budget.give_back(bytes, &mut self.held);
            context.has_room = true;
        }
    }

    /// A volume has nothing of this connection any more.
    pub(crate) fn drained(&mut self, context: &mut Context<'_>) {
        self.drains = self.drains.saturating_sub(1);
        self.report_if_closed(context);
    }

    /// Reports the queue as closed once nothing of it can have an effect any more.
    fn report_if_closed(&mut self, context: &Context<'_>) {
        if self.is_open() || self.drains > 0 || !self.link.is_released() {
            return;
        }
        if std::mem::take(&mut self.has_capsules) {
            context.shared.capsule_bytes.fetch_sub(QUEUE_CAPSULE_BYTES, Ordering::Relaxed);
        }
        let Some(queue) = self.queue() else { return };
        self.role = Role::Pending;
        context.shared.controllers.closed(self.place.event_loop, queue);
    }

    /// An answer of the controllers for this admin queue.
    pub(crate) fn answer(&mut self, cqe: &Cqe, data: &[u8]) {
        if !self.is_open() {
            return;
        }
        if let Role::Admin(admin) = &mut self.role {
            admin.settle(cqe.cid);
        }
        self.link.answer(cqe, data);
    }

    /// A command of this admin queue ends without an answer.
    pub(crate) fn dropped(&mut self, cid: u16) {
        if let Role::Admin(admin) = &mut self.role {
            admin.settle(cid);
        }
        self.link.forget(cid);
    }

    /// The backing of a volume is gone, and nothing of this connection is executed there.
    pub(crate) fn forget_volume(&mut self, id: u64) {
        if let Role::Io(io) = &mut self.role {
            io.forget_owner(id);
        }
    }

    pub(crate) fn set_view(&mut self, view: Arc<View>) {
        if let Role::Io(io) = &mut self.role {
            io.machine.set_view(view);
        }
    }

    /// Sends what is queued.
    pub(crate) fn flush(&mut self, context: &mut Context<'_>) -> Flushed {
        let mut freed = 0;
        let lingers = matches!(self.phase, Phase::Lingering(_));
        let sending = self.link.flush(context.now, lingers, &mut freed);
        self.give_back(freed, context);
        let reason = match sending {
            Sending::Flushed(flushed) => {
                if self.link.is_closed() {
                    self.phase = Phase::Ended;
                }
                // What was not taken while the host did not read is parsed now.
                self.has_more |= flushed == Flushed::All && self.has_unparsed();
                return flushed;
            }
            Sending::Failed(error) => EndReason::Io(error),
            Sending::Broke(error) => EndReason::Rdma(error),
        };
        self.end(&reason, context);
        Flushed::All
    }

    /// Time has passed.
    pub(crate) fn sweep(&mut self, context: &mut Context<'_>) {
        if let Phase::Lingering(until) = self.phase {
            if context.now >= until {
                self.close(context);
            }
            return;
        }
        if !self.is_open() {
            return;
        }
        if self.link.handle_timeout(context.shared.controllers.now()) {
            return self.end(&EndReason::ConnectTimeout, context);
        }
        if self.authentication.as_ref().is_some_and(|one| one.is_late(context.now)) {
            return self.end(&EndReason::AuthenticationTimeout, context);
        }
        let waits_since = self.link.waits_since().into_iter().chain([self.receives_since()]);
        let limit = context.shared.limits.transfer;
        if waits_since.flatten().any(|since| context.now.duration_since(since) > limit) {
            self.end(&EndReason::Silence, context);
        }
    }

    fn receives_since(&self) -> Option<Instant> {
        let of_queue = match &self.role {
            Role::Pending => None,
            Role::Admin(admin) => admin.receives_since(),
            Role::Io(io) => io.receives_since(),
        };
        let of_host = self.authentication.as_ref().and_then(|one| one.receives_since());
        of_queue.into_iter().chain(of_host).min()
    }
}

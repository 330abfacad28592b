//! One connection, which is one queue of a controller: what is received, executed and sent.
//!
//! ```text
//!  Pending ── Connect ──> Admin: commands go to the controllers
//!                    └──> Io: commands go to the volumes
//!  any ── end ──> Ended: the socket closes, at once or when all is sent; what had not begun is
//!                 dropped; the queue is closed when the volumes have drained
//! ```

mod admin;
mod io;
mod receive;

use crate::budget::Budget;
use crate::config::{CAPSULE_DATA_BYTES, QUEUE_CAPSULE_BYTES, TRANSFER_BYTES};
use crate::controllers::Queue;
use crate::inbound::Inbound;
use crate::mailbox::{Place, Token};
use crate::outbound::{Flushed, Outbound};
use crate::target::Shared;
use admin::Admin;
pub(crate) use io::FRESH;
use io::Io;
use nvme::controller::{CloseReason, View};
use nvme::digest::Digest;
use nvme::tcp::{Settings, TargetConnection, ToHost};
use nvme::{Cqe, Sqe, Status};
use rustix::net::Shutdown;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use transport::poll::Interest;

/// How long a connection that ends in order may take to deliver its last words.
const LINGER: Duration = Duration::from_secs(2);
/// Responses that a host has not read; above, no more of its commands are taken.
const HEADS_BYTES_MAX: usize = 256 << 10;

/// What a connection uses of its loop and of the target.
pub(crate) struct Context<'a> {
    pub(crate) queue: &'a mut volumes::Queue,
    pub(crate) budget: &'a mut Budget,
    pub(crate) shared: &'a Shared,
    pub(crate) now: Instant,
    /// Something was submitted or drained: the queue needs a turn.
    pub(crate) needs_turn: bool,
    /// Memory or a place became free.
    pub(crate) has_room: bool,
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
    #[error("the host did not connect in time")]
    ConnectTimeout,
    #[error("the host did not send what it was asked for, or did not read what it asked for, in time")]
    Silence,
    #[error("its commands waited while this process stood still")]
    Stall,
    #[error("the target stops")]
    Stop,
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl EndReason {
    /// Whether what is queued for the host is still sent.
    const fn delivers(&self) -> bool {
        match self {
            Self::Malformed(_) | Self::Refused(_) | Self::Disconnected | Self::Stop => true,
            Self::Controller(reason) => !matches!(reason, CloseReason::KeepAlive),
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
    socket: Option<OwnedFd>,
    machine: TargetConnection,
    role: Role,
    /// Connect, while its data are received.
    connecting: Option<Sqe>,
    phase: Phase,
    inbound: Inbound,
    outbound: Outbound,
    /// Memory of the loop's budget.
    held: usize,
    /// Volumes that are being drained.
    drains: usize,
    /// What the poller waits for.
    pub(crate) interest: Interest,
    /// More may be waiting to be received without a further event.
    pub(crate) has_more: bool,
    /// It is in the loop's list of those that wait for memory or for a place.
    pub(crate) is_listed: bool,
}

impl Connection {
    pub(crate) fn new(place: Place, socket: OwnedFd, peer: SocketAddr, shared: &Shared) -> Self {
        let settings = Settings { capsule_data_bytes: CAPSULE_DATA_BYTES, transfer_bytes: TRANSFER_BYTES };
        Self {
            place,
            peer,
            socket: Some(socket),
            machine: TargetConnection::new(shared.controllers.now(), settings),
            role: Role::Pending,
            connecting: None,
            phase: Phase::Open,
            inbound: Inbound::new(),
            outbound: Outbound::default(),
            held: 0,
            drains: 0,
            interest: Interest::READ,
            has_more: false,
            is_listed: false,
        }
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    pub(crate) const fn token(&self) -> Token {
        self.place.token
    }

    /// Whether it can be forgotten.
    pub(crate) const fn is_gone(&self) -> bool {
        self.socket.is_none() && self.drains == 0
    }

    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    pub(crate) fn has_output(&self) -> bool {
        self.socket.is_some() && (!self.outbound.is_empty() || matches!(self.phase, Phase::Lingering(_)))
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
        self.is_open() && self.outbound.head_bytes() < HEADS_BYTES_MAX
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
        self.phase = Phase::Lingering(context.now + LINGER);
        self.inbound = Inbound::new();
        if let Role::Io(io) = &mut self.role {
            self.drains = io.end(self.place.token, &mut self.held, context);
        }
        if !reason.delivers() {
            self.close(context);
        }
        if self.drains == 0 {
            self.report_closed(context);
        }
    }

    /// Closes the socket; nothing that is queued is delivered.
    fn close(&mut self, context: &mut Context<'_>) {
        self.phase = Phase::Ended;
        let freed = self.outbound.clear();
        self.give_back(freed, context);
        if let Some(socket) = self.socket.take() {
            // A connection that is gone already needs no reset.
            let _ = transport::socket::reset_on_close(socket.as_fd());
        }
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
        if self.drains == 0 {
            self.report_closed(context);
        }
    }

    fn report_closed(&mut self, context: &Context<'_>) {
        let Some(queue) = self.queue() else { return };
        if matches!(self.role, Role::Io(_)) {
            context.shared.capsule_bytes.fetch_sub(QUEUE_CAPSULE_BYTES, Ordering::Relaxed);
        }
        self.role = Role::Pending;
        context.shared.controllers.closed(self.place.event_loop, queue);
    }

    /// An answer of the controllers for this admin queue.
    pub(crate) fn answer(&mut self, cqe: &Cqe, data: &[u8]) {
        if !self.is_open() {
            return;
        }
        if !data.is_empty() {
            let mut to_host = ToHost::new(cqe.cid, u32::try_from(data.len()).unwrap_or(u32::MAX));
            let sent = self.machine.send_data(&mut to_host, u32::MAX, cqe, &mut self.outbound.heads);
            self.outbound.heads.extend_from_slice(data);
            if sent.digest {
                self.outbound.heads.extend_from_slice(&nvme::digest::of(data).to_bytes());
            }
            if !sent.respond {
                return;
            }
        }
        self.machine.respond(cqe, &mut self.outbound.heads);
    }

    pub(crate) fn set_view(&mut self, view: Arc<View>) {
        if let Role::Io(io) = &mut self.role {
            io.machine.set_view(view);
        }
    }

    /// Sends what is queued.
    pub(crate) fn flush(&mut self, context: &mut Context<'_>) -> Flushed {
        let Some(socket) = &self.socket else { return Flushed::All };
        let mut freed = 0;
        let flushed = self.outbound.flush(socket.as_fd(), context.now, &mut freed);
        self.give_back(freed, context);
        match flushed {
            Ok(Flushed::All) => {
                if matches!(self.phase, Phase::Lingering(_)) {
                    self.finish_sending();
                }
                // What was not taken while the host did not read is parsed now.
                self.has_more |= !self.inbound.unparsed.is_empty();
                Flushed::All
            }
            Ok(flushed) => flushed,
            Err(error) => {
                self.end(&EndReason::Io(error), context);
                Flushed::All
            }
        }
    }

    /// The last words are with the system. The host closes when it has read them; a close of ours
    /// would lose them if it has sent something that was not received.
    fn finish_sending(&mut self) {
        if let Some(socket) = &self.socket
            && rustix::net::shutdown(socket, Shutdown::Write).is_err()
        {
            self.socket = None;
            self.phase = Phase::Ended;
        }
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
        if self.machine.handle_timeout(context.shared.controllers.now()) {
            return self.end(&EndReason::ConnectTimeout, context);
        }
        let waits_since = [self.outbound.since(), self.inbound.since, self.receives_since()];
        let limit = context.shared.limits.transfer;
        if waits_since.iter().flatten().any(|since| context.now.duration_since(*since) > limit) {
            self.end(&EndReason::Silence, context);
        }
    }

    fn receives_since(&self) -> Option<Instant> {
        match &self.role {
            Role::Pending => None,
            Role::Admin(admin) => admin.receives_since(),
            Role::Io(io) => io.receives_since(),
        }
    }

    /// Whether the peer is still connected, as far as the system knows now.
    fn is_established(&self) -> bool {
        self.socket().is_some_and(|fd| transport::socket::tcp_info(fd).is_ok_and(|info| info.is_established))
    }
}

/// The digest of data in pieces, if the connection has digests.
fn digest_of<'a>(machine: &TargetConnection, pieces: impl Iterator<Item = &'a [u8]>) -> Option<Digest> {
    machine.digests().data.then(|| {
        let mut digest = Digest::new();
        pieces.for_each(|piece| digest.update(piece));
        digest
    })
}

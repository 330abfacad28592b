//! One connection on its loop: a turn receives calls, executes them, and sends their replies
//! together.
//!
//! A client that does not read its replies fills its queue up to a bound
//! ([`Limits::queued_bytes_max`](crate::config::Limits)). Then nothing more is received from the
//! client until half of the queue is sent. A turn is bounded in bytes and in calls, so that a busy
//! client does not starve the others.

use super::acknowledgement::AcknowledgementCheck;
use super::call_sink::{CallSink, Incoming, Responder};
use super::connection_address::{ConnectionAddress, token_of};
use super::event_loop::balance::Load;
use super::held_memory::{HeldMemory, ROOM_BYTES_MIN, ReplyPace, receive_bytes_max};
use super::mailbox::{Accepted, Link, Mailboxes};
use super::worker_pool::{Completion, InFlight, TaskEnd, WorkerPool};
use crate::byte_budget::{BUDGET_BYTES_MIN, Charge};
use crate::client::Client;
use crate::config::ListenAddress;
use crate::dispatch::{self, Executor};
use crate::export::Exports;
use crate::group::Group;
use crate::program::IO_BYTES_MAX;
use crate::replies::{Payload, Pinned, Replies};
use crate::reply_cache::Times;
use crate::statistics::{ClientKey, ConnectionStatistics, Counters};
use rpc::portmap::Protocol;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use store::ReceiveBatch;
use transport::poll::{Interest, Poller};
use transport::{AnyTransport, Expect, Flushed, Scratch, Stream, Transport, socket};

/// A record is at most two WRITEs of the largest size, with a head: a WRITE of more than FSINFO's
/// wtmax is answered short, and one of more than this ends its connection. RFC 1813 s3.3.7
pub(super) const RECORD_BYTES_MAX: usize = 2 * IO_BYTES_MAX as usize + (64 << 10);
// An address gets half of the budget, and the longest record with its reply must fit there, or its
// connection would wait for ever.
const _: () = assert!(RECORD_BYTES_MAX + IO_BYTES_MAX as usize <= BUDGET_BYTES_MIN / 2);
/// The longest record of a client without any export, which may not ask for anything longer: a call
/// with the largest credential and a path of the largest length. RFC 5531 s8.2, RFC 1813 s5.1.3
pub(super) const STRANGER_RECORD_BYTES_MAX: usize = 4 << 10;
/// Bytes that one turn receives: a few of the largest WRITEs.
const TURN_BYTES: usize = 4 << 20;
/// Bytes that one turn receives or sends while the loop also serves a connection with light turns:
/// about 50 us of copying, so that a short call beside bulk transfers does not wait for megabytes.
/// Bulk transfers among themselves get long turns, which cost less: short turns made WRITEs of 1
/// MiB on eight connections 0.85 times as many.
const SHORT_TURN_BYTES: usize = 256 << 10;
/// A connection that has been idle for this long is no longer busy.
const IDLE_AFTER: Duration = Duration::from_millis(100);
/// A draining connection receives all that the system may hold for it.
const DRAIN_BYTES: usize = 64 << 20;
/// Calls that one turn executes: more than any sane client has outstanding.
const TURN_CALLS_MAX: u32 = 512;
/// Queued replies above which no more calls are received, whatever their size: a short reply takes
/// more memory than its bytes, and no sane client has this many calls outstanding.
const QUEUED_RECORDS_MAX: usize = 4096;
/// The minimum rate of a record that is still incomplete when the client may no longer be silent:
/// about 130 kbit/s, which the slowest link reaches, and at which the longest record takes a minute
/// more.
const RECORD_BYTES_PER_S_MIN: u64 = 16 << 10;
/// After its last reply a connection waits this long for the client to close its end.
const LINGER: Duration = Duration::from_millis(500);
/// A client that does not answer the system's probes, or takes no byte for this long, is gone.
const PEER_GONE: Duration = Duration::from_secs(60);
/// After this long without data over RDMA a client is asked whether it is alive. Its device then
/// has about half a minute to answer, so that a dead client is found within the same time as over
/// TCP.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);

/// What a turn of a connection needs from its loop.
#[derive(Clone, Copy)]
pub(super) struct TurnContext<'a> {
    pub group: &'a Group,
    pub mailboxes: &'a Mailboxes,
    pub worker_pool: &'a WorkerPool,
    /// How much more the connection may hold; `None` while there is plenty.
    pub room: Option<usize>,
    /// The turn is short, because the loop also serves a connection with light turns.
    pub short: bool,
    /// When the turn ends because other addresses have connections on the loop.
    pub ends: Option<Duration>,
    pub address: ConnectionAddress,
    pub now: Duration,
}

/// Memory of a loop that its connections use in turn.
pub(super) struct Workspace {
    pub scratch: Scratch,
    pub replies: Replies,
    pub text: Vec<u8>,
}

/// What follows a turn.
pub(super) enum Step {
    /// Wait for the socket.
    Wait,
    /// Take another turn after the other connections: received calls are waiting.
    Yield,
    /// The connection is finished.
    Close(CloseReason),
}

/// What a turn found in the calls that it received.
struct BatchResult {
    /// Set when the peer does not speak RPC.
    garbage: Option<&'static str>,
    /// The turn took as many calls as it may: received calls may be waiting in the stream.
    more_may_wait: bool,
}

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum CloseReason {
    /// The peer closed, and has all its replies.
    Peer,
    Transport(transport::Error),
    System(std::io::Error),
    /// A record was not a call, so that the bytes after it have no meaning.
    Garbage(&'static str),
    /// A handler panicked.
    Bug,
    /// The connection waits for the reply to a call that was dropped unexecuted: its client must
    /// send the call again.
    Abandoned,
    /// The client was silent or too slow in the middle of a record.
    Stuck,
    /// The client was silent or slow in the middle of a record, or did not take its replies, while
    /// others waited for the memory.
    Overdue,
    Evicted,
    Stalled,
    NodeStopped,
    Drained,
    Stopped,
}

impl CloseReason {
    pub fn log(&self, connection: &Connection) {
        let (peer, id) = (connection.client.peer, connection.client.id);
        match self {
            Self::Peer
            | Self::Drained
            | Self::Stopped
            | Self::NodeStopped
            | Self::Stalled
            | Self::Overdue
            | Self::Abandoned => {
                tracing::debug!(%peer, id, why = ?self, "connection closed");
            }
            Self::Bug => {
                tracing::error!(%peer, id, "connection closed: its last call brought out a bug of ours")
            }
            Self::Garbage(what) => tracing::warn!(%peer, id, what, "connection closed: not RPC"),
            Self::Transport(error) => tracing::info!(%peer, id, %error, "connection closed"),
            Self::System(error) => tracing::info!(%peer, id, %error, "connection closed"),
            Self::Stuck => {
                tracing::info!(%peer, id, "connection closed: silent or too slow in the middle of a record")
            }
            Self::Evicted => tracing::info!(%peer, id, "connection closed: it gave way to a new one"),
        }
    }

    /// Whether the system must drop the bytes that it has not delivered yet.
    const fn is_reset(&self) -> bool {
        matches!(self, Self::Stalled | Self::NodeStopped | Self::Stopped | Self::Bug | Self::Abandoned)
    }

    /// Whether calls of the connection that wait for a worker must not be executed any more. After
    /// a reset the client sends them again, perhaps to a host without our reply cache, and a late
    /// original would undo newer work there.
    pub const fn discards_calls(&self) -> bool {
        !matches!(self, Self::Peer | Self::Drained)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Calls are received.
    Serving,
    /// No more calls are received; the queued replies are still sent.
    Ending,
    /// All replies are sent. The connection waits for the client to close, so that no reset
    /// overtakes the last reply.
    Lingering { until: Duration },
}

/// What carries the calls of a client, and their replies.
type ClientTransport = AnyTransport<Payload, Incoming, Responder>;

/// A connection that was just made; records of the client are at most `record_bytes_max` long.
fn client_transport(link: Link, record_bytes_max: usize) -> ClientTransport {
    match link {
        Link::Tcp(socket) => {
            ClientTransport::Tcp(Stream::new(socket, transport::Limits { record_bytes_max }))
        }
        Link::Rdma(responder) => {
            let mut transport = ClientTransport::Rdma(responder);
            transport.set_record_bound(record_bytes_max);
            transport
        }
    }
}

/// Resets an accepted connection that is not served.
pub(super) fn refuse(accepted: Accepted, poller: &Poller, mailboxes: &Mailboxes) {
    mailboxes.free(client_transport(accepted.link, STRANGER_RECORD_BYTES_MAX).end(true, poller).remains);
}

/// One connection.
pub(super) struct Connection {
    pub(super) stream: ClientTransport,
    pub client: Client,
    /// Where the loop counts its calls.
    pub client_key: ClientKey,
    /// The share of its address in the rounds of the loop.
    pub share: usize,
    pub counters: Counters,
    pub interest: Interest,
    opened: Duration,
    /// When bytes were last received, or taken by the peer.
    pub active: Duration,
    /// When the peer was last asked whether it is alive.
    keepalive_sent: Duration,
    pub load: Load,
    /// The socket has a pacing rate.
    pub(super) is_paced: bool,
    /// The connection is in the loop's list for its next turn.
    pub is_queued: bool,
    /// Set by a drain: this turn is the last that receives calls.
    pub draining: bool,
    pub(super) phase: Phase,
    /// When the record that is being received began to arrive.
    pub(super) record_since: Option<Duration>,
    /// The reason for the end has been logged.
    close_logged: bool,
    pub(super) memory: HeldMemory,
    /// The queue is full, or too many calls are in the worker pool: nothing is received until half
    /// of that is done. Or the connection waits for memory.
    pub(super) paused: bool,
    /// Calls of the connection that workers have.
    in_flight: InFlight,
    /// Replies wait until the peer can receive more.
    pub(super) unsent: bool,
    pub(super) reply_pace: ReplyPace,
    /// Bytes of replies that the system has taken.
    pub(super) sent_bytes: u64,
    /// A check whether the client has its replies, if somebody asked for one.
    pub(super) acknowledgement_check: Option<AcknowledgementCheck>,
    /// When the client closed the connection, if it is kept open for that check.
    pub(super) closed_by_peer_at: Option<Duration>,
    /// Replies wait for the next turn, because this turn has used up its byte budget.
    pub(super) out_of_budget: bool,
}

fn record_bytes_max(client: &Client) -> usize {
    if client.admitted.is_empty() { STRANGER_RECORD_BYTES_MAX } else { RECORD_BYTES_MAX }
}

impl Connection {
    pub fn new(accepted: Accepted, group: &Group, now: Duration) -> Self {
        let client = Client::new(accepted.id, accepted.node, accepted.peer, accepted.local, group.exports());
        let stream = client_transport(accepted.link, record_bytes_max(&client));
        if let Some(socket) = stream.socket() {
            // Without an option that the system refuses, the connection is slower or ends later,
            // but it is not wrong.
            let _ = socket::set_deadlines(socket, PEER_GONE, PEER_GONE);
            if let Some(name) = &group.congestion {
                let _ = socket::set_congestion(socket, name);
            }
        }
        let mut connection = Self {
            stream,
            client_key: ClientKey::Others(client.node),
            share: usize::MAX,
            client,
            counters: Counters::default(),
            interest: Interest::READ,
            opened: now,
            active: now,
            keepalive_sent: now,
            load: Load::default(),
            is_paced: false,
            is_queued: false,
            draining: false,
            phase: Phase::Serving,
            record_since: None,
            close_logged: false,
            memory: HeldMemory::new(Charge::none(group.budget.account(accepted.peer.ip()))),
            paused: false,
            in_flight: InFlight::default(),
            unsent: false,
            reply_pace: ReplyPace::default(),
            sent_bytes: 0,
            acknowledgement_check: None,
            closed_by_peer_at: None,
            out_of_budget: false,
        };
        if let Some(pace) = group.nodes.get(connection.client.node).and_then(crate::group::Node::pace_share) {
            connection.set_pace(Some(pace));
        }
        connection
    }

    /// The exports or their rules have changed; the new rules apply to calls received from now on.
    pub fn readmit(&mut self, exports: &Arc<Exports>) {
        self.client.readmit(exports);
        self.stream.set_record_bound(record_bytes_max(&self.client));
    }

    /// Registers the connection with a poller.
    pub fn register(&self, poller: &Poller, token: u64) -> std::io::Result<()> {
        self.stream.register(poller, token)
    }

    /// Whether the connection may move to another loop: no call or reply of it is pending here, and
    /// none will be sent to its address on this loop.
    pub fn may_move(&self) -> bool {
        let calls = self.in_flight.calls() > 0 || self.in_flight.is_promised();
        let waits = self.is_queued || self.paused || self.draining || self.phase != Phase::Serving;
        self.stream.may_move() && !self.stream.within_record() && !self.unsent && !calls && !waits
    }

    /// Whether the received bytes begin with a call for files, not with one for MOUNT or the port
    /// mapper: a client that only mounts disconnects soon. Peeks at the head of a call without
    /// receiving it.
    pub fn calls_for_files(&self) -> bool {
        // Record mark, XID, message type, version of RPC, program. RFC 5531 s9, s11
        let mut head = [0; 20];
        if self.client.admitted.is_empty() {
            // A client without any export is not served.
            return false;
        }
        let Some(socket) = self.socket() else { return true };
        if self.stream.within_record() || self.unsent {
            return true;
        }
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        if rustix::net::recv(socket, &mut head, flags).is_err() {
            return false;
        }
        let program = head.last_chunk().map(|number| u32::from_be_bytes(*number));
        program.is_some_and(dispatch::serves_files)
    }

    /// Updates the load for the time since the last update. The connection is no longer busy if it
    /// was idle for long.
    pub fn count_load(&mut self, over: Duration, now: Duration) {
        let is_idle = self.active + IDLE_AFTER <= now && !self.has_pending_replies() && !self.paused;
        self.load.count(over, is_idle);
    }

    /// Called when the connection comes from another loop, and may have missed messages meanwhile.
    pub fn arrive(&mut self, group: &Group, now: Duration) {
        self.readmit(&group.exports());
        self.set_pace(group.nodes.get(self.client.node).and_then(crate::group::Node::pace_share));
        self.load.arrive(now);
    }

    /// The socket, if there is one.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.stream.socket()
    }

    /// Whether the connection was accepted on this address, which may be a wildcard.
    pub fn arrived_at(&self, address: ListenAddress) -> bool {
        let (local, socket) = (self.client.local, address.socket());
        let is_ip = socket.ip().is_unspecified() || socket.ip() == local.ip();
        is_ip && socket.port() == local.port() && address.tcp().is_some() == self.socket().is_some()
    }

    pub fn set_pace(&mut self, bytes_per_s: Option<u64>) {
        // Without a socket there is no pacing rate.
        let Some(socket) = self.stream.socket() else { return };
        if !std::mem::replace(&mut self.is_paced, bytes_per_s.is_some()) && bytes_per_s.is_none() {
            return;
        }
        if let Err(error) = socket::set_pacing(socket, bytes_per_s) {
            tracing::warn!(%error, peer = %self.client.peer, "the connection cannot be paced");
        }
    }

    /// The events to wait for.
    pub const fn wanted(&self) -> Interest {
        let read = match self.phase {
            Phase::Serving => !self.paused,
            Phase::Ending => false,
            Phase::Lingering { .. } => true,
        };
        Interest { read, write: self.unsent && !self.out_of_budget }
    }

    /// Runs one turn: sends queued replies, receives and executes calls, sends their replies.
    pub fn turn(&mut self, work: &mut Workspace, context: TurnContext<'_>) -> Step {
        let now = context.now;
        let mut budget = if context.short { SHORT_TURN_BYTES } else { usize::MAX };
        if let Phase::Lingering { .. } = self.phase {
            return self.discard();
        }
        self.stream.wake();
        // The events of a device must be handled in every turn, or they would wake the loop again
        // and again.
        if self.unsent || self.stream.needs_flush() {
            match self.flush(budget) {
                // A long download is not idle, although nothing is received from the client
                // meanwhile.
                Ok(sent) if sent > 0 => {
                    self.active = now;
                    budget = budget.saturating_sub(sent);
                }
                Ok(_) => {}
                Err(error) => return Step::Close(CloseReason::Transport(error)),
            }
            if budget == 0 && self.phase == Phase::Serving {
                // Received calls may be waiting.
                return Step::Yield;
            }
        }
        if self.phase == Phase::Serving && (!self.paused || !self.is_above_low_watermark(context)) {
            if std::mem::take(&mut self.paused) {
                self.restart_silence(now);
            }
            let mut step = self.receive_calls(work, context, budget);
            if matches!(step, Some(Step::Yield)) && self.stream.has_unseen() {
                // An RDMA read was done while replies were sent: its call is executed at once. A
                // turn of its own would cost three system calls.
                step = self.receive_calls(work, context, budget);
            }
            if let Some(step) = step {
                return step;
            }
        }
        self.finish_turn(now)
    }

    /// Whether the queue is more than half full: too full to resume after a pause.
    fn is_above_low_watermark(&self, context: TurnContext<'_>) -> bool {
        self.stream.queued_bytes() + self.in_flight.bytes() > context.group.limits.queued_bytes_max / 2
            || self.memory.lacks(context.room)
            || self.in_flight.is_above_low_watermark(context.worker_pool)
            || self.stream.queued_records() > QUEUED_RECORDS_MAX / 2
    }

    /// Sends up to about `budget_bytes`, and returns how many bytes were sent.
    fn flush(&mut self, budget_bytes: usize) -> Result<usize, transport::Error> {
        let queued = self.stream.queued_bytes();
        let flushed = self.stream.flush(&Pinned, budget_bytes).inspect_err(|error| {
            // The client sends the call again on its next connection.
            if is_bad_address(error) {
                tracing::info!(peer = %self.client.peer, "a file got shorter while it was sent");
                store::distrust();
            }
        });
        let flushed = flushed?;
        self.unsent = flushed != Flushed::All;
        if !self.unsent {
            self.reply_pace = ReplyPace::default();
        }
        self.out_of_budget = flushed == Flushed::OutOfBudget;
        let sent = queued.saturating_sub(self.stream.queued_bytes());
        self.load.moved(sent);
        self.sent_bytes += sent as u64;
        Ok(sent)
    }

    /// How many calls a turn may execute.
    fn turn_calls_max(&self) -> u32 {
        let records_left = QUEUED_RECORDS_MAX.saturating_sub(self.stream.queued_records());
        u32::try_from(records_left).unwrap_or(TURN_CALLS_MAX).min(TURN_CALLS_MAX)
    }

    /// Receives and executes calls, up to about `budget` bytes. Returns a step if the turn ends
    /// here.
    fn receive_calls(
        &mut self,
        work: &mut Workspace,
        context: TurnContext<'_>,
        budget: usize,
    ) -> Option<Step> {
        let TurnContext { group, mailboxes, worker_pool, room, address, now, ends, short: _ } = context;
        if !self.claim_room(room, now) {
            self.paused = true;
            return None;
        }
        let admitted = self.is_within_admitted_record();
        let queued = self.stream.queued_bytes();
        let queue_room = group.limits.queued_bytes_max.saturating_sub(queued);
        let room = room.unwrap_or(usize::MAX);
        let calls_max = self.turn_calls_max();
        let executor = Executor {
            group,
            waiters: mailboxes,
            token: token_of(address, self.client.id),
            protocol: Protocol::Tcp,
            client: &mut self.client,
            replies: &mut work.replies,
            text: &mut work.text,
            times: Times { now, received: now },
            payload_bytes_max: u32::MAX,
        };
        // Payloads that are copied here must be in our own memory and not in pages of a file that
        // may disappear.
        let batch = ReceiveBatch::default();
        let mut service = CallSink {
            executor,
            address,
            batch: (!self.stream.copies_payload()).then_some(&batch),
            counters: &mut self.counters,
            worker_pool,
            queue_room: queue_room.min(room.max(ROOM_BYTES_MIN).saturating_add(self.in_flight.bytes())),
            in_flight: &mut self.in_flight,
            charge: &self.memory.charge,
            room,
            handed_over_bytes: 0,
            record_without_room: None,
            shortened_bytes: &mut self.memory.shortened_bytes,
            calls_left: calls_max,
            ends,
            reply_bytes_max: budget,
            garbage: None,
        };
        let receive_max = if self.draining { DRAIN_BYTES } else { TURN_BYTES.min(budget) };
        let receive_max = receive_max.min(receive_bytes_max(room, admitted));
        let received = self.stream.receive(&mut work.scratch, &mut service, receive_max);
        let (record, calls_left) = (service.record_without_room, service.calls_left);
        let mut result = BatchResult {
            garbage: service.garbage,
            more_may_wait: service.is_full() || calls_left == 0 || service.has_spent_its_budget(),
        };
        let stream = &mut self.stream;
        work.replies.drain(|head, payload, len| {
            stream.push(payload, len, Expect::default(), |out| out.extend_from_slice(head));
        });
        if self.stream.needs_flush()
            && let Err(error) = self.flush(budget)
        {
            return Some(Step::Close(CloseReason::Transport(error)));
        }
        result.more_may_wait |= self.stream.has_unseen();
        self.note_record(calls_left < calls_max, now);
        self.wait_for_room(record, if admitted { usize::MAX } else { room }, now);
        self.after_calls(received, &result, context)
    }

    /// Handles the result of the calls of a turn. Returns a step if the turn ends here.
    fn after_calls(
        &mut self,
        received: Result<transport::Received, transport::Error>,
        result: &BatchResult,
        context: TurnContext<'_>,
    ) -> Option<Step> {
        let now = context.now;
        match received {
            Ok(received) if received.bytes > 0 => {
                self.active = now;
                self.load.moved(received.bytes);
            }
            Ok(_) => {}
            // The peer sends no more calls; the calls received before are still answered.
            Err(transport::Error::Closed) => {
                self.phase = Phase::Ending;
                let stays = self.has_pending_replies() || self.await_last_acknowledgement(now);
                return if stays { None } else { Some(Step::Close(CloseReason::Peer)) };
            }
            Err(error @ transport::Error::Record(_)) => return self.end_early(CloseReason::Transport(error)),
            Err(error) => return Some(Step::Close(CloseReason::Transport(error))),
        }
        if let Some(what) = result.garbage {
            return self.end_early(CloseReason::Garbage(what));
        }
        if self.memory.is_waiting() {
            self.paused = true;
            return None;
        }
        if result.more_may_wait {
            // Received calls may be waiting in the stream: they are executed first, without waiting
            // for the socket.
            self.paused = self.is_above_low_watermark(context);
            return (!self.paused).then_some(Step::Yield);
        }
        if self.draining {
            self.phase = Phase::Ending;
        }
        None
    }

    /// Notes when the incomplete record began to arrive; `began` says that other records came
    /// before it.
    fn note_record(&mut self, began: bool, now: Duration) {
        if !self.stream.within_record() {
            self.record_since = None;
        } else if began || self.record_since.is_none() {
            self.record_since = Some(now);
        }
    }

    /// The bytes that follow cannot be decoded. Calls received before are still answered, and bytes
    /// that still arrive are read and dropped: a close with unread bytes would be a reset, which
    /// may overtake replies.
    fn end_early(&mut self, why: CloseReason) -> Option<Step> {
        why.log(self);
        self.phase = Phase::Ending;
        self.close_logged = true;
        None
    }

    /// Whether replies are outstanding or unsent.
    pub(super) const fn has_pending_replies(&self) -> bool {
        self.unsent || self.in_flight.calls() > 0
    }

    /// Decides what follows after sending.
    fn finish_turn(&mut self, now: Duration) -> Step {
        let ends = self.phase == Phase::Ending && self.in_flight.calls() > 0;
        if !self.unsent && (ends || self.phase == Phase::Serving && self.paused) {
            return self.wait_unless_broken();
        }
        if self.out_of_budget {
            return Step::Yield;
        }
        if self.phase != Phase::Ending || self.has_pending_replies() {
            return Step::Wait;
        }
        if !self.draining && !self.close_logged {
            return if self.await_last_acknowledgement(now) {
                self.wait_unless_broken()
            } else {
                Step::Close(CloseReason::Peer)
            };
        }
        // A close with unread calls would be a reset, which may overtake replies; so only our half
        // is closed.
        let Some(socket) = self.socket() else { return Step::Close(CloseReason::Drained) };
        if rustix::net::shutdown(socket, rustix::net::Shutdown::Write).is_err() {
            return Step::Close(CloseReason::Drained);
        }
        self.phase = Phase::Lingering { until: now + LINGER };
        Step::Wait
    }

    /// Called when nothing is received from the client and nothing can be sent now.
    fn wait_unless_broken(&self) -> Step {
        let Some(socket) = self.socket() else { return Step::Wait };
        // Only a broken connection wakes the loop in this state, and it would do so again and
        // again. A reset behind bytes that are not received yet shows in no receive.
        if let Ok(Err(error)) = rustix::net::sockopt::socket_error(socket) {
            return Step::Close(CloseReason::System(error.into()));
        }
        let mut byte = [0; 1];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(socket, &mut byte, flags) {
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Step::Wait,
            Err(error) => Step::Close(CloseReason::System(error.into())),
        }
    }

    /// Reads calls that came too late, and drops them: their clients send them elsewhere.
    fn discard(&self) -> Step {
        let mut room = [0_u8; 16 << 10];
        let Some(socket) = self.socket() else { return Step::Close(CloseReason::Drained) };
        match rustix::io::read(socket, &mut room) {
            Ok(0) => Step::Close(CloseReason::Drained),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Step::Wait,
            Err(_) => Step::Close(CloseReason::Drained),
        }
    }

    pub fn is_done_lingering(&self, now: Duration) -> bool {
        matches!(self.phase, Phase::Lingering { until } if until <= now)
    }

    /// Whether the peer has been silent in the middle of a record for too long, or is too slow.
    pub fn is_stuck(&self, now: Duration, silence_max: Duration) -> bool {
        // A connection that this server has paused, or that waits for its turn, is not stuck.
        if self.paused || self.is_queued || !self.stream.within_record() || self.phase != Phase::Serving {
            return false;
        }
        let since = self.record_since.unwrap_or(now);
        let over_s = now.saturating_sub(since + silence_max).as_secs();
        let slow = (self.stream.incomplete_bytes() as u64) < over_s.saturating_mul(RECORD_BYTES_PER_S_MIN);
        slow || self.active + silence_max <= now
    }

    /// Whether the peer must be asked for a sign of life, because the system does not watch it.
    pub fn needs_keepalive(&self, now: Duration) -> bool {
        !self.stream.is_watched() && self.active.max(self.keepalive_sent) + KEEPALIVE_IDLE <= now
    }

    /// Asks the peer for a sign of life; without an answer the connection ends.
    pub fn send_keepalive(&mut self, now: Duration) -> Result<(), CloseReason> {
        self.keepalive_sent = now;
        self.stream.ask().map_err(CloseReason::Transport)
    }

    /// Queues a reply that another loop produced.
    pub fn push_reply(&mut self, reply: &[u8]) {
        if !matches!(self.phase, Phase::Lingering { .. }) {
            self.stream.push(Payload::new(), 0, Expect::default(), |out| out.extend_from_slice(reply));
            self.unsent = true;
        }
    }

    /// Queues the call-backs that wait for this connection, while it is served.
    pub fn push_calls(&mut self) {
        for call in self.client.back.take_unsent() {
            if self.phase == Phase::Serving {
                self.stream.push(Payload::new(), 0, Expect::default(), |out| out.extend_from_slice(&call));
                self.unsent = true;
            }
        }
    }

    /// Takes back a call from the worker pool. Its reply is queued unless the connection is about
    /// to end.
    pub fn complete(&mut self, completion: Completion) {
        self.in_flight.end_call(&completion.permit);
        if let Some(check) = &mut self.acknowledgement_check {
            check.call_ended(completion.received);
        }
        let (head, payload, payload_len, counted) = match completion.end {
            TaskEnd::Reply { head, payload, payload_len, counted } => (head, payload, payload_len, counted),
            TaskEnd::Elsewhere => return self.in_flight.promise(),
            TaskEnd::Bug | TaskEnd::TooLate => return,
        };
        match counted {
            Some(end) => self.counters.count_single(&end),
            None => self.counters.count_refused(),
        }
        self.stream.push(payload, payload_len, Expect::default(), |out| out.extend_from_slice(&head));
        self.unsent = true;
        // Before the charge of the call ends, so that nobody else takes its room.
        self.settle();
    }

    pub const fn pool_calls(&self) -> usize {
        self.in_flight.calls()
    }

    /// RDMA counters of the connection.
    pub fn rdma(&self) -> transport::rdma::Counters {
        self.stream.counters()
    }

    pub fn statistics(&self, on_loop: usize, now: Duration) -> ConnectionStatistics {
        ConnectionStatistics {
            id: self.client.id,
            peer: self.client.peer,
            local: self.client.local,
            on_loop,
            busy: self.load.is_busy(),
            age: now.saturating_sub(self.opened),
            idle: now.saturating_sub(self.active),
            queued_bytes: self.stream.queued_bytes(),
            pool_calls: self.in_flight.calls(),
            procedures: self.counters.procedures().clone(),
        }
    }

    /// Closes the connection. This also returns memory to its store that a payload was being
    /// received into.
    pub fn end(self, why: &CloseReason, poller: &Poller, mailboxes: &Mailboxes) {
        mailboxes.free(self.stream.end(why.is_reset(), poller).remains);
    }

    /// Makes the poller wait for other events.
    pub fn set_interest(&self, poller: &Poller, token: u64) -> std::io::Result<()> {
        self.stream.set_interest(poller, token, self.interest)
    }
}

/// Whether a send failed because pages of a mapped file were gone.
fn is_bad_address(error: &transport::Error) -> bool {
    matches!(error, transport::Error::Io(error) if error.raw_os_error() == Some(rustix::io::Errno::FAULT.raw_os_error()))
}

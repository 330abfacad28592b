//! Connections of an engine: connecting, path validation, sending, and failures.

use std::net::SocketAddr;
use std::time::Duration;

use paths::{ConnId, NodeId, PathId, Table};
use rpc::Xid;
use transport::poll::{Event, Interest};
use transport::rdma::{Counters, Error as RdmaError};
use transport::{Error, Expect, Flushed, Scratch, Transport, socket};

use super::bad_replies::BadReply;
use super::connecting::Connecting;
use super::{CONNECT_RESULTS_TOKEN, Engine, encode_call};
use crate::call::{Body, Call, CallKey};
use crate::call_backs::{REPLIES_QUEUED_MAX, SLOTS_MAX};
use crate::connector::{ConnectId, ConnectResult, Purpose, Wire};
use crate::engine::answers::Answers;
use crate::engine::back_channel::BackBinding;
use crate::engine::validation::{Questions, Verdict};

/// Smaller tokens are the loop's own.
pub(crate) const FIRST_CONNECTION_TOKEN: u64 = 1;
/// The longest reply: the largest read, and room for the rest of the reply.
const REPLY_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Bytes that a connection receives before the other connections have their turn: the largest READ.
const TURN_BYTES: usize = 1 << 20;
/// Idle time after which the system sends keep-alive probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Sent bytes that stay unacknowledged for this long break the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// No call: what a record is pushed for that is the reply to a call of the server.
const NO_CALL: CallKey = CallKey::MAX;

/// The state of a connection's slot.
#[derive(Debug)]
enum State {
    Closed,
    /// The connection is being made.
    Connecting(Connecting),
    /// The connection has been asked where it leads, and carries no other call yet.
    Validating(Box<Wire>),
    /// The connection leads to the mounted file system and carries calls.
    Ready(Box<Wire>),
}

impl State {
    const fn wire(&self) -> Option<&Wire> {
        match self {
            Self::Validating(wire) | Self::Ready(wire) => Some(wire),
            Self::Closed | Self::Connecting(_) => None,
        }
    }

    const fn wire_mut(&mut self) -> Option<&mut Wire> {
        match self {
            Self::Validating(wire) | Self::Ready(wire) => Some(wire),
            Self::Closed | Self::Connecting(_) => None,
        }
    }
}

/// A slot of the table, and the connection in it.
#[derive(Debug)]
pub(crate) struct Connection {
    state: State,
    /// The path that the socket uses. The table may already have assigned the slot to another path:
    /// see [`Engine::is_left`].
    pub(super) path: Option<PathId>,
    pub node: NodeId,
    pub(super) remote: Option<SocketAddr>,
    pub(super) questions: Questions,
    pub(super) call_backs: BackBinding,
    /// Replies to calls of the server that may not have been sent yet.
    replies_queued: usize,
    waits_to_send: bool,
    /// Whether the connection is in the list of those with something to send.
    is_dirty: bool,
    /// Bytes received or acknowledged as of the last tick.
    progress_seen: u64,
    received_bytes: u64,
}

impl Connection {
    pub(crate) const fn new() -> Self {
        Self {
            state: State::Closed,
            path: None,
            node: NodeId(0),
            remote: None,
            questions: Questions::NONE,
            call_backs: BackBinding::Unbound,
            replies_queued: 0,
            waits_to_send: false,
            is_dirty: false,
            progress_seen: 0,
            received_bytes: 0,
        }
    }

    /// Queues replies to calls of the server. Returns false if it does not read them.
    fn reply(&mut self, replies: Vec<Vec<u8>>) -> bool {
        self.replies_queued += replies.len();
        if let Some(wire) = self.state.wire_mut() {
            for reply in replies {
                wire.push(NO_CALL, 0, Expect::default(), |head| head.extend_from_slice(&reply));
            }
        }
        self.replies_queued <= REPLIES_QUEUED_MAX
    }

    /// Whether the connection carries calls.
    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    /// Whether the connection is made, validated or not.
    pub(super) const fn is_open(&self) -> bool {
        self.state.wire().is_some()
    }

    /// The calls that have not been sent completely.
    pub(super) fn unsent(&self) -> Vec<CallKey> {
        let mut unsent = Vec::new();
        if let Some(wire) = self.state.wire() {
            wire.unsent(|key| unsent.push(*key));
        }
        unsent
    }

    /// Whether the connection is made and has not been validated.
    pub(super) const fn is_validating(&self) -> bool {
        matches!(self.state, State::Validating(_))
    }

    /// Lets the connection carry calls.
    pub(super) fn validated(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Closed) {
            State::Validating(wire) => State::Ready(wire),
            other => other,
        };
    }

    /// Queues a call.
    pub(crate) fn push(&mut self, key: CallKey, call: &Call, xid: Xid, credential: &[u8]) {
        let payload_len = call.payload().len();
        debug_assert!(payload_len == 0 || call.procedure().sends_data());
        if let Some(wire) = self.state.wire_mut() {
            wire.push(key, payload_len, call.expect(), |head| {
                encode_call(head, call, xid, credential);
            });
        }
    }
}

pub(super) const fn token(conn: ConnId) -> u64 {
    FIRST_CONNECTION_TOKEN + conn.0 as u64
}

/// The connections of a loop, by slot of its path table.
#[derive(Debug)]
pub(super) struct Slots {
    connections: Vec<Connection>,
    /// Connections with something queued in this round, each once.
    dirty: Vec<ConnId>,
    /// When the oldest outstanding call of each connection was sent, as of the last tick.
    oldest: Vec<Option<Duration>>,
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        let connections = (0..count).map(|_| Connection::new()).collect();
        Self { connections, dirty: Vec::new(), oldest: Vec::new() }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ConnId> + use<> {
        (0..u16::try_from(self.connections.len()).unwrap_or(u16::MAX)).map(ConnId)
    }

    pub(super) fn get(&self, conn: ConnId) -> Option<&Connection> {
        self.connections.get(usize::from(conn.0))
    }

    pub(super) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Connection> {
        self.connections.get_mut(usize::from(conn.0))
    }

    /// Whether the connection of a slot is made.
    pub(super) fn is_open(&self, conn: ConnId) -> bool {
        self.get(conn).is_some_and(Connection::is_open)
    }

    /// All connections, in the order of their slots.
    #[cfg(test)]
    pub(super) fn all(&self) -> &[Connection] {
        &self.connections
    }

    /// The slot that waits for a connection made by another thread.
    fn waiting_for(&self, id: ConnectId) -> Option<ConnId> {
        let waits = |connection: &Connection| matches!(&connection.state, State::Connecting(connecting) if connecting.is(id));
        self.ids().zip(&self.connections).find(|(_, connection)| waits(connection)).map(|(conn, _)| conn)
    }

    /// The connection with the least load among those to a node, for calls that must go to that
    /// node.
    pub(super) fn connection_to(&self, table: &Table, node: NodeId) -> Option<ConnId> {
        self.ids()
            .zip(&self.connections)
            .filter(|(_, connection)| connection.is_ready() && connection.node == node)
            .map(|(conn, _)| conn)
            .min_by_key(|conn| table.load(*conn))
    }

    /// Notes that a connection has something to send.
    pub(super) fn mark_dirty(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn)
            && !std::mem::replace(&mut connection.is_dirty, true)
        {
            self.dirty.push(conn);
        }
    }
}

/// Memory that a loop receives with.
#[derive(Debug, Default)]
pub(super) struct ReceiveScratch {
    pub(super) scratch: Scratch,
    /// Calls whose data have not all been sent, on the connection being received from.
    unsent: Vec<CallKey>,
}

impl Engine {
    /// Starts to connect a slot to its path.
    pub(super) fn connect(&mut self, conn: ConnId) {
        self.close(conn);
        let Some(path) = self.core.table.path_of(conn) else { return };
        let route = std::sync::Arc::clone(&self.setup.route);
        let Some(end) = route.paths.get(usize::from(path.0)) else { return };
        let Some(connection) = self.slots.get_mut(conn) else { return };
        connection.path = Some(path);
        connection.node = end.node;
        connection.remote = Some(end.remote);
        connection.questions = Questions::NONE;
        connection.call_backs = BackBinding::Unbound;
        connection.replies_queued = 0;
        connection.waits_to_send = false;
        connection.progress_seen = 0;
        connection.received_bytes = 0;
        let at = (&*self.poller, token(conn));
        let reverse_credits = if self.setup.protocol.has_sessions() { SLOTS_MAX } else { 0 };
        let purpose = Purpose::Calls { reverse_credits };
        match Connecting::start(&route, end, purpose, at, &self.connect_results) {
            Ok(connecting) => connection.state = State::Connecting(connecting),
            Err(error) => {
                tracing::debug!(address = %end.remote, %error, "connect failed");
                self.health.failed(Some(path), &error);
                self.core.outages.note(Some(path), self.core.now);
                self.core.table.disconnected(self.core.now, conn);
            }
        }
    }

    /// Whether the table has moved a slot to another path than its socket uses. [`Engine::settle`]
    /// closes that socket, but only after all events of the same round are processed; until then
    /// its events say nothing about the slot's new path.
    pub(super) fn is_left(&self, conn: ConnId) -> bool {
        let connection = self.slots.get(conn);
        connection.is_some_and(|connection| connection.path != self.core.table.path_of(conn))
    }

    /// Handles readiness of a slot's socket.
    pub(crate) fn ready(&mut self, event: Event) {
        if event.token == CONNECT_RESULTS_TOKEN {
            for result in self.connect_results.take() {
                self.arrived(result);
            }
            return;
        }
        let slot = event.token.checked_sub(FIRST_CONNECTION_TOKEN).and_then(|at| u16::try_from(at).ok());
        let Some(conn) = slot.map(ConnId) else {
            self.probe_ready(event.token);
            return;
        };
        if self.is_left(conn) {
            return;
        }
        let Some(connection) = self.slots.get_mut(conn) else { return };
        match &mut connection.state {
            State::Connecting(_) => self.connect_ended(conn),
            State::Validating(wire) | State::Ready(wire) => {
                if event.readable {
                    wire.wake();
                    self.receive(conn);
                }
                if event.writable {
                    self.slots.mark_dirty(conn);
                }
            }
            State::Closed => {}
        }
    }

    /// Handles the end of a connection attempt of the system.
    fn connect_ended(&mut self, conn: ConnId) {
        let Some(connection) = self.slots.get_mut(conn) else { return };
        let State::Connecting(connecting) = std::mem::replace(&mut connection.state, State::Closed) else {
            return;
        };
        let ended = connecting.ended(&self.poller, REPLY_BYTES_MAX);
        self.opened(conn, ended.map_err(Error::Io));
    }

    /// Takes a connection that another thread has made, or ends it if its slot or probe no longer
    /// waits for it.
    fn arrived(&mut self, result: ConnectResult) {
        let ConnectResult { id, outcome } = result;
        let outcome = match self.slots.waiting_for(id).filter(|conn| !self.is_left(*conn)) {
            Some(conn) => return self.opened(conn, outcome),
            None => self.probe_arrived(id, outcome),
        };
        if let Some(Ok(wire)) = outcome {
            self.setup.route.connector.free(wire.end(true, &self.poller).remains);
        }
    }

    /// Validates a connection that was made, or reports why it was not.
    fn opened(&mut self, conn: ConnId, outcome: Result<Wire, Error>) {
        let Some(connection) = self.slots.get_mut(conn) else { return };
        let ready = outcome.and_then(|wire| {
            if let Some(socket) = wire.socket() {
                socket::set_deadlines(socket, KEEPALIVE_IDLE, USER_TIMEOUT)?;
            }
            wire.register(&self.poller, token(conn))?;
            Ok(wire)
        });
        match ready {
            Ok(wire) => {
                connection.state = State::Validating(Box::new(wire));
                self.core.table.reached(self.core.now, conn);
                self.validate(conn);
                // What has arrived before is not reported.
                self.receive(conn);
            }
            Err(error) => {
                connection.state = State::Closed;
                tracing::debug!(address = ?connection.remote, %error, "connect failed");
                self.health.failed(connection.path, &error);
                self.core.outages.note(connection.path, self.core.now);
                self.core.table.disconnected(self.core.now, conn);
            }
        }
    }

    /// Receives what is waiting on a connection. If more is waiting than fits its turn, the poller
    /// reports the connection again.
    fn receive(&mut self, conn: ConnId) {
        let Some(connection) = self.slots.get_mut(conn) else { return };
        let Some(wire) = connection.state.wire_mut() else { return };
        let mut unsent = std::mem::take(&mut self.receiving.unsent);
        unsent.clear();
        wire.unsent(|key| unsent.push(*key));
        let mut answers = Answers {
            core: &mut self.core,
            conn,
            unsent,
            bad_reply: None,
            validated: None,
            must_bind: false,
            replies: Vec::new(),
        };
        let outcome = wire.receive(&mut self.receiving.scratch, &mut answers, TURN_BYTES);
        let (bad_reply, validated) = (answers.bad_reply.take(), answers.validated.take());
        let (must_bind, replies) = (answers.must_bind, std::mem::take(&mut answers.replies));
        self.receiving.unsent = answers.unsent;
        match outcome {
            Ok(received) => {
                connection.received_bytes += received.bytes as u64;
                let (replies_wait, reads_replies) = (!replies.is_empty(), connection.reply(replies));
                if received.may_send || replies_wait {
                    self.slots.mark_dirty(conn);
                }
                if !reads_replies {
                    let reason = "it does not read the answers to its calls".to_owned();
                    return self.bad_reply(conn, BadReply::NoReply(reason));
                }
                self.learn(conn, bad_reply, validated);
                if must_bind {
                    self.reset(conn);
                }
            }
            Err(error) => {
                if let (Error::Record(_) | Error::Rdma(_), Some(bad_reply)) = (&error, bad_reply) {
                    self.bad_reply(conn, bad_reply);
                    return;
                }
                log_end(connection.remote, &error);
                self.health.failed(connection.path, &error);
                self.connection_ended(conn, &error);
            }
        }
    }

    /// Handles what the replies on a connection say about the connection itself.
    fn learn(&mut self, conn: ConnId, bad_reply: Option<BadReply>, validated: Option<Verdict>) {
        if let Some(bad_reply) = bad_reply {
            self.bad_reply(conn, bad_reply);
        } else if let Some(verdict) = validated {
            self.judge(conn, verdict);
        }
    }

    /// Handles a connection that broke by itself. The last reply on it may already have started its
    /// failback.
    pub(super) fn connection_broke(&mut self, conn: ConnId) {
        if let Some(connection) = self.slots.get(conn)
            && connection.is_ready()
            && let Some(path) = connection.path
        {
            self.health.report_failure(path);
        }
        self.close(conn);
        if !self.is_left(conn) {
            self.core.table.disconnected(self.core.now, conn);
        }
    }

    /// Resets a connection at the table's request. The connection was silent, so the fate of its
    /// calls is unknown.
    pub(super) fn abort(&mut self, conn: ConnId) {
        let overtakes = |call: &&Call| call.connection == Some(conn) && call.procedure().may_undo();
        let unfenced = self.core.calls.0.iter().map(|(_, call)| call).filter(overtakes).count();
        self.core.counts.replays.unfenced += unfenced as u64;
        self.close(conn);
    }

    /// Closes the connection in a slot. A buffer that was being received into is returned to its
    /// call; a pipe is emptied first.
    pub(super) fn close(&mut self, conn: ConnId) {
        self.core.back_connection_lost(self.slots.get_mut(conn));
        let Some(connection) = self.slots.get_mut(conn) else { return };
        connection.is_dirty = false;
        match std::mem::replace(&mut connection.state, State::Closed) {
            State::Validating(wire) | State::Ready(wire) => {
                self.core.counts.rdma_closed.add(&wire.counters());
                // Ended here, before any of its calls is sent on another connection.
                let ended = wire.end(true, &self.poller);
                self.setup.route.connector.free(ended.remains);
                if let Some(mut receive_buffer) = ended.receive_buffer
                    && let Some(call) = self.core.calls.0.get_mut(receive_buffer.key)
                    && let Body::Read { target, .. } = &mut call.body
                {
                    receive_buffer.empty();
                    *target = receive_buffer.target;
                }
            }
            State::Connecting(connecting) => connecting.give_up(&self.setup.route),
            State::Closed => {}
        }
        self.slots.dirty.retain(|dirty| *dirty != conn);
        // The validation of a lost connection is of no use to another connection.
        let validations: Vec<CallKey> = self
            .core
            .calls
            .0
            .iter()
            .filter(|(_, call)| call.connection == Some(conn) && matches!(call.body, Body::Validate(..)))
            .map(|(key, _)| key)
            .collect();
        for key in validations {
            self.core.finish(key, Err(crate::Error::Closed));
        }
    }

    /// Sends what was queued in this round, each connection's calls in one go. Returns false if
    /// nothing was queued. A connection may break while sending, so there may be something to
    /// settle afterwards.
    pub(crate) fn flush(&mut self) -> bool {
        let flushes = !self.slots.dirty.is_empty();
        while let Some(conn) = self.slots.dirty.pop() {
            let Some(connection) = self.slots.get_mut(conn) else { continue };
            connection.is_dirty = false;
            let Some(wire) = connection.state.wire_mut() else { continue };
            match wire.flush(&self.core.calls, usize::MAX) {
                Ok(flushed) => {
                    let all_sent = flushed == Flushed::All;
                    if all_sent {
                        connection.replies_queued = 0;
                    }
                    if connection.waits_to_send == all_sent {
                        let interest = if all_sent { Interest::READ } else { Interest::BOTH };
                        connection.waits_to_send = !all_sent;
                        if let Err(error) = wire.set_interest(&self.poller, token(conn), interest) {
                            tracing::error!(%error, "cannot wait for a socket");
                        }
                    }
                }
                Err(error) => {
                    log_end(connection.remote, &error);
                    self.health.failed(connection.path, &error);
                    self.connection_ended(conn, &error);
                }
            }
        }
        flushes
    }

    /// Reports the progress of each connection to the table.
    pub(super) fn tick_connections(&mut self) {
        let Slots { connections, oldest, .. } = &mut self.slots;
        oldest.clear();
        oldest.resize(connections.len(), None);
        for (_, call) in &self.core.calls.0 {
            if let Some(conn) = call.connection
                && let Some(slot) = oldest.get_mut(usize::from(conn.0))
            {
                *slot = Some(slot.map_or(call.sent_at, |at: Duration| at.min(call.sent_at)));
            }
        }
        for (index, (connection, oldest)) in connections.iter_mut().zip(&*oldest).enumerate() {
            let Some(wire) = connection.state.wire() else { continue };
            let progress_now = connection.received_bytes + wire.progress();
            let progress = progress_now != connection.progress_seen;
            connection.progress_seen = progress_now;
            let conn = ConnId(u16::try_from(index).unwrap_or(u16::MAX));
            self.core.table.tick(self.core.now, conn, *oldest, progress);
        }
    }

    /// Counters of the RDMA connections, open and closed.
    pub(super) fn rdma_counters(&self) -> Counters {
        let mut sum = self.core.counts.rdma_closed;
        for connection in &self.slots.connections {
            if let Some(wire) = connection.state.wire() {
                sum.add(&wire.counters());
            }
        }
        sum
    }
}

/// Logs why a connection ended; as a warning if this machine is the cause.
fn log_end(address: Option<SocketAddr>, error: &Error) {
    if matches!(error, Error::Rdma(RdmaError::DeviceGone)) {
        tracing::warn!(
            ?address,
            "the RDMA device of this path was removed; it is tried again; see: rdma link"
        );
    } else {
        tracing::debug!(?address, %error, "connection ended");
    }
}

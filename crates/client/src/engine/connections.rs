//! Connections of an engine: connecting, path validation, sending, and failures.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::time::Duration;

use paths::{ConnId, NodeId, PathId, Table};
use rpc::Xid;
use transport::poll::{Event, Interest};
use transport::rdma::Requester;
use transport::{Limits, Stream, Transport, socket};

use super::rdma::expected;
use super::{Engine, encode_call};
use crate::call::{Body, Call, CallKey, Owner, ReadLanding};
use crate::engine::answers::Answers;
use crate::options::Proto;
use crate::protocol;

/// Smaller tokens are the loop's own.
pub(crate) const FIRST_CONNECTION_TOKEN: u64 = 1;
/// The longest reply: the largest read, and room for the rest of the reply.
const REPLY_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// After this many bytes of READs the owners get their data, and may return the buffers for the
/// next READs, before more is received: the copy out of the socket then goes to memory that is in
/// the nearest caches.
const LANDED_BYTES_MAX: usize = 64 << 10;
/// Idle time after which the system sends keep-alive probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Sent bytes that stay unacknowledged for this long break the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of a connection's slot.
#[derive(Debug)]
pub(super) enum State {
    Closed,
    Connecting(OwnedFd),
    Open(Box<Stream<CallKey, ReadLanding>>),
    /// An RDMA connection, connecting or open.
    Rdma(Box<Requester<CallKey>>),
}

/// A slot of the table, and the connection in it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) state: State,
    /// The path that the socket uses. The table may already have assigned the slot to another path:
    /// see [`Engine::is_left`].
    path: Option<PathId>,
    pub node: NodeId,
    pub(super) remote: Option<SocketAddr>,
    waits_to_send: bool,
    /// Whether the connection is in the list of those with something to send.
    is_dirty: bool,
    /// Bytes received or acknowledged as of the last tick.
    progress_seen: u64,
    pub(super) received_bytes: u64,
    /// Whether the connection is validated and so carries calls.
    validated: bool,
}

impl Connection {
    pub(crate) const fn new() -> Self {
        Self {
            state: State::Closed,
            path: None,
            node: NodeId(0),
            remote: None,
            waits_to_send: false,
            is_dirty: false,
            progress_seen: 0,
            received_bytes: 0,
            validated: false,
        }
    }

    /// Queues a call.
    pub(crate) fn push(&mut self, key: CallKey, call: &Call, xid: Xid, credential: &[u8]) {
        self.push_with(key, call, xid, credential, None);
    }

    fn push_with(
        &mut self,
        key: CallKey,
        call: &Call,
        xid: Xid,
        credential: &[u8],
        root: Option<fs::FileHandle>,
    ) {
        let payload_len = call.payload().len();
        debug_assert!(payload_len == 0 || protocol::sends_data(call.procedure()));
        match &mut self.state {
            State::Open(stream) => {
                stream.push(key, payload_len, |head| encode_call(head, call, xid, credential, root));
            }
            State::Rdma(requester) => {
                requester.push(xid.0, key, payload_len, expected(call), |head| {
                    encode_call(head, call, xid, credential, root);
                });
            }
            State::Closed | State::Connecting(_) => {}
        }
    }
}

pub(super) const fn token(conn: ConnId) -> u64 {
    FIRST_CONNECTION_TOKEN + conn.0 as u64
}

/// The connection with the least load among those to a node, for calls that must go to that node.
pub(super) fn connection_to(connections: &[Connection], table: &Table, node: NodeId) -> Option<ConnId> {
    (0_u16..)
        .zip(connections)
        .filter(|(_, connection)| connection.validated && connection.node == node)
        .map(|(index, _)| ConnId(index))
        .min_by_key(|conn| table.load(*conn))
}

impl Engine {
    /// Starts to connect a slot to its path.
    pub(super) fn connect(&mut self, conn: ConnId) {
        self.close(conn);
        let Some(path) = self.core.table.path_of(conn) else { return };
        let route = std::sync::Arc::clone(&self.setup.route);
        let Some(end) = route.paths.get(usize::from(path.0)) else { return };
        let Some(connection) = self.connections.get_mut(usize::from(conn.0)) else { return };
        connection.path = Some(path);
        connection.node = end.node;
        connection.remote = Some(end.remote);
        connection.waits_to_send = false;
        connection.progress_seen = 0;
        connection.received_bytes = 0;
        if end.proto == Proto::Rdma {
            self.connect_rdma(conn, end);
            return;
        }
        let started = route.connect(end);
        match started.and_then(|socket| {
            self.poller.add(&socket, token(conn), Interest::WRITE)?;
            Ok(socket)
        }) {
            Ok(socket) => connection.state = State::Connecting(socket),
            Err(error) => {
                tracing::debug!(address = %end.remote, %error, "connect failed");
                self.core.table.disconnected(self.core.now, conn);
            }
        }
    }

    /// Whether the table has moved a slot to another path than its socket uses. [`Engine::settle`]
    /// closes that socket, but only after all events of the same round are processed; until then
    /// its events say nothing about the slot's new path.
    fn is_left(&self, conn: ConnId) -> bool {
        let connection = self.connections.get(usize::from(conn.0));
        connection.is_some_and(|connection| connection.path != self.core.table.path_of(conn))
    }

    /// Handles readiness of a slot's socket.
    pub(crate) fn ready(&mut self, event: Event) {
        let slot = event.token.checked_sub(FIRST_CONNECTION_TOKEN).and_then(|at| u16::try_from(at).ok());
        let Some(conn) = slot.map(ConnId) else {
            self.probe_ready(event.token);
            return;
        };
        if self.is_left(conn) {
            return;
        }
        match self.connections.get(usize::from(conn.0)).map(|connection| &connection.state) {
            Some(State::Connecting(_)) => self.connect_ended(conn),
            Some(State::Open(_)) => {
                if event.readable {
                    if self.core.landed < LANDED_BYTES_MAX {
                        self.receive(conn);
                    } else {
                        self.pause(conn);
                    }
                }
                if event.writable {
                    self.mark_dirty(conn);
                }
            }
            Some(State::Rdma(_)) => self.rdma_ready(conn),
            Some(State::Closed) | None => {}
        }
    }

    pub(super) fn mark_dirty(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(usize::from(conn.0))
            && !std::mem::replace(&mut connection.is_dirty, true)
        {
            self.dirty.push(conn);
        }
    }

    /// Handles the end of a connection attempt: validates the connection, or reports the failure.
    fn connect_ended(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(usize::from(conn.0)) else { return };
        let State::Connecting(socket) = std::mem::replace(&mut connection.state, State::Closed) else {
            return;
        };
        if let Err(error) = socket::connect_result(socket.as_fd())
            .and_then(|()| socket::set_deadlines(socket.as_fd(), KEEPALIVE_IDLE, USER_TIMEOUT))
            .and_then(|()| self.poller.modify(&socket, token(conn), Interest::READ))
        {
            tracing::debug!(address = ?connection.remote, %error, "connect failed");
            self.core.table.disconnected(self.core.now, conn);
            return;
        }
        self.core.table.reached(self.core.now, conn);
        connection.state =
            State::Open(Box::new(Stream::new(socket, Limits { record_bytes_max: REPLY_BYTES_MAX })));
        self.validate(conn);
    }

    /// Sends GETATTR of the root on a new connection, which validates where the connection leads.
    pub(super) fn validate(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(usize::from(conn.0)) else { return };
        let key = self.core.insert(Body::Validate, Owner::Engine);
        self.core.draw_xid(key, drc::XidClass::Repeatable);
        if let Some(call) = self.core.calls.0.get_mut(key)
            && let Some(xid) = call.xid
        {
            call.connection = Some(conn);
            connection.push_with(key, call, xid, &self.setup.credential, Some(self.setup.root));
        }
        self.mark_dirty(conn);
    }

    /// Pauses receiving from a connection until the received data are handed out.
    fn pause(&mut self, conn: ConnId) {
        if !self.paused.contains(&conn) {
            self.paused.push_back(conn);
        }
    }

    /// Resumes a paused connection, if there is one. Returns the number of bytes received.
    pub(crate) fn resume(&mut self) -> Option<usize> {
        self.paused.pop_front().map(|conn| if self.is_left(conn) { 0 } else { self.receive(conn) })
    }

    /// Receives what is waiting on a connection, as far as it may be handed out at once. Returns
    /// the number of bytes received.
    fn receive(&mut self, conn: ConnId) -> usize {
        let Some(connection) = self.connections.get_mut(usize::from(conn.0)) else { return 0 };
        let State::Open(stream) = &mut connection.state else { return 0 };
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.clear();
        unsent.extend(stream.unsent());
        let mut answers = Answers {
            core: &mut self.core,
            conn,
            unsent,
            landed_max: LANDED_BYTES_MAX,
            broken: None,
            validated: None,
        };
        let outcome = stream.receive(&mut self.scratch, &mut answers, LANDED_BYTES_MAX);
        let (broken, validated) = (answers.broken.take(), answers.validated.take());
        self.unsent = answers.unsent;
        match outcome {
            Ok(received) => {
                connection.received_bytes += received.bytes as u64;
                if received.more || self.core.landed >= LANDED_BYTES_MAX {
                    self.pause(conn);
                }
                self.seen_failures(conn, broken, validated);
                received.bytes
            }
            Err(error) => {
                tracing::debug!(address = ?connection.remote, %error, "connection ended");
                self.line_down(conn);
                0
            }
        }
    }

    /// Handles what the replies on a connection say about the connection itself.
    pub(super) fn seen_failures(
        &mut self,
        conn: ConnId,
        broken: Option<String>,
        validated: Option<Result<(), String>>,
    ) {
        let Some(connection) = self.connections.get_mut(usize::from(conn.0)) else { return };
        if let Some(reason) = broken {
            tracing::warn!(address = ?connection.remote, %reason, "the server's answer makes no sense; connection reset");
            self.line_down(conn);
            return;
        }
        match validated {
            Some(Ok(())) => {
                connection.validated = true;
                self.setup.route.path_proved(self.core.table.path_of(conn));
                self.core.table.connected(self.core.now, conn);
            }
            Some(Err(reason)) => {
                self.setup.route.path_refused(self.core.table.path_of(conn), &reason);
                self.line_down(conn);
            }
            None => {}
        }
    }

    /// Handles a connection that broke by itself. The last reply on it may already have started its
    /// failback.
    pub(super) fn line_down(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get(usize::from(conn.0))
            && connection.validated
            && let Some(path) = connection.path
        {
            self.setup.route.path_failures.tell(path, &mut self.seen_failures);
        }
        self.close(conn);
        if !self.is_left(conn) {
            self.core.table.disconnected(self.core.now, conn);
        }
    }

    /// Resets a connection at the table's request. The connection was silent, so the fate of its
    /// calls is unknown.
    pub(super) fn abort(&mut self, conn: ConnId) {
        let overtakes = |call: &&Call| call.connection == Some(conn) && protocol::may_undo(call.procedure());
        let unfenced = self.core.calls.0.iter().map(|(_, call)| call).filter(overtakes).count();
        self.core.replays.unfenced += unfenced as u64;
        self.close(conn);
    }

    /// Closes the connection in a slot. A buffer that was being received into is returned to its
    /// call; a pipe is emptied first.
    pub(super) fn close(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(usize::from(conn.0)) else { return };
        connection.validated = false;
        connection.is_dirty = false;
        match std::mem::replace(&mut connection.state, State::Closed) {
            State::Open(stream) => {
                if let Some(mut receive_buffer) = stream.abort()
                    && let Some(call) = self.core.calls.0.get_mut(receive_buffer.key)
                    && let Body::Read { target, .. } = &mut call.body
                {
                    receive_buffer.empty();
                    *target = receive_buffer.target;
                }
            }
            // The requester is dropped here, before any call ends: after that the device no longer
            // accesses the memory of its calls.
            State::Rdma(requester) => self.rdma_closed.add(&requester.counters()),
            State::Closed | State::Connecting(_) => {}
        }
        self.dirty.retain(|dirty| *dirty != conn);
        self.paused.retain(|paused| *paused != conn);
        // The validation of a lost connection is of no use to another connection.
        let validations: Vec<CallKey> = self
            .core
            .calls
            .0
            .iter()
            .filter(|(_, call)| call.connection == Some(conn) && matches!(call.body, Body::Validate))
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
        let flushes = !self.dirty.is_empty();
        while let Some(conn) = self.dirty.pop() {
            let Some(connection) = self.connections.get_mut(usize::from(conn.0)) else { continue };
            connection.is_dirty = false;
            let stream = match &mut connection.state {
                State::Open(stream) => stream,
                State::Rdma(_) => {
                    self.flush_rdma(conn);
                    continue;
                }
                State::Closed | State::Connecting(_) => continue,
            };
            match stream.flush(&self.core.calls) {
                Ok(all_sent) => {
                    if connection.waits_to_send == all_sent {
                        let interest = if all_sent { Interest::READ } else { Interest::BOTH };
                        connection.waits_to_send = !all_sent;
                        if let Err(error) = self.poller.modify(stream.fd(), token(conn), interest) {
                            tracing::error!(%error, "cannot wait for a socket");
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(address = ?connection.remote, %error, "connection ended");
                    self.line_down(conn);
                }
            }
        }
        flushes
    }

    /// Reports the progress of each connection to the table.
    pub(super) fn tick_lines(&mut self) {
        self.oldest.clear();
        self.oldest.resize(self.connections.len(), None);
        for (_, call) in &self.core.calls.0 {
            if let Some(conn) = call.connection
                && let Some(slot) = self.oldest.get_mut(usize::from(conn.0))
            {
                *slot = Some(slot.map_or(call.sent_at, |at: Duration| at.min(call.sent_at)));
            }
        }
        for (index, (connection, oldest)) in self.connections.iter_mut().zip(&self.oldest).enumerate() {
            let acknowledged = match &connection.state {
                State::Open(stream) => {
                    socket::tcp_info(stream.fd()).map_or(0, |info| info.acknowledged_bytes)
                }
                State::Rdma(requester) if requester.is_open() => requester.progress(),
                State::Rdma(_) | State::Closed | State::Connecting(_) => continue,
            };
            let progress_now = connection.received_bytes + acknowledged;
            let progress = progress_now != connection.progress_seen;
            connection.progress_seen = progress_now;
            let conn = ConnId(u16::try_from(index).unwrap_or(u16::MAX));
            self.core.table.tick(self.core.now, conn, *oldest, progress);
        }
    }
}

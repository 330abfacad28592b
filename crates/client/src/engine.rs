//! One loop's share of a mount: its connections, its calls, and the path table that it drives.
//!
//! The engine is driven by its loop ([`crate::shard`]): submissions and readiness events come in,
//! and finished operations go out through [`Engine::take_finished`]. [`paths::Table`] decides which
//! connection takes a call and what happens when a connection breaks; this file carries out its
//! decisions.
//!
//! Invariants: a call keeps one xid from its first to its last transmission; it is outstanding on
//! at most one connection, and that connection is reset before the call is sent on another.

mod answers;
mod back_channel;
mod bad_replies;
mod closes;
mod connecting;
mod connections;
mod counts;
mod credentials;
mod outage;
mod path_reports;
mod probes;
mod queues;
mod session;
mod stable;
#[cfg(test)]
mod tests;
mod validation;
mod xids;

use std::sync::Arc;
use std::time::{Duration, Instant};

use drc::XidClass;
use fs::{Attributes, Change, FileHandle, Status};
use paths::{ConnId, NodeId, Output, PathId, Table};
use rpc::Xid;
use transport::poll::Poller;
use xdr::Writer;

use crate::buffer::Buffer;
use crate::call::{Answer, Body, Call, CallKey, Caller, Calls, Done, Op, Owner, Target};
use crate::connector::ConnectResults;
use crate::error::{Error, Result};
use crate::options::SIZE_MAX;
use crate::protocol::Protocol;
use crate::route::Route;
use crate::session::SessionKeeper;
use crate::shard::ShardStatistics;

pub(crate) use closes::Closes;
use closes::Outages;
pub(crate) use connections::FIRST_CONNECTION_TOKEN;
use connections::{ReceiveScratch, Slots};
use counts::Counts;
use credentials::Credentials;
pub(crate) use credentials::encode_credential;
use outage::Outage;
use path_reports::Health;
use probes::Probe;
use queues::Queues;
use session::LoopSession;
use stable::CommitGroups;
use xids::Xids;

/// The token of connections that another thread has made. No connection or probe ever has it, and
/// the loop has the next one for itself.
const CONNECT_RESULTS_TOKEN: u64 = u64::MAX - 1;
/// How often connections are checked for silence, and the calls of soft mounts for their time
/// limit.
const TICK: Duration = Duration::from_millis(50);
/// [`Status::Later`] asks the client to wait; Linux waits this long at first.
const JUKEBOX_DELAY: Duration = Duration::from_millis(500);

/// The configuration of an engine; the same for all loops of a mount except the table, the
/// credential, the identity and the first xid.
#[derive(Debug)]
pub(crate) struct Setup {
    pub protocol: Protocol,
    /// The session of a mount of version 4, and which part of it this loop has: its index, and the
    /// number of loops.
    pub session: Option<(Arc<SessionKeeper>, (usize, usize))>,
    pub route: Arc<Route>,
    pub table: paths::Config,
    /// Flavour, length and body of the credential of every call that names no caller.
    pub credential: Vec<u8>,
    /// The identity by which the server knows this loop, for all callers.
    pub identity: u64,
    /// Refuse changes before they are sent.
    pub read_only: bool,
    /// See [`Settings::closes_time_min`](crate::Settings::closes_time_min).
    pub closes_time_min: Duration,
    pub first_xid: u32,
    pub root: FileHandle,
    pub root_attributes: Attributes,
}

/// The state that the sinks of connections need while a connection is borrowed.
#[derive(Debug)]
pub(crate) struct Core {
    pub protocol: Protocol,
    pub calls: Calls,
    /// The loop's part of the session, in version 4.
    session: Option<LoopSession>,
    xids: Xids,
    queues: Queues,
    groups: CommitGroups,
    pub table: Table,
    /// The node that each path leads to.
    nodes: Vec<NodeId>,
    root_attributes: Attributes,
    counts: Counts,
    outages: Outages,
    /// [`Setup::closes_time_min`].
    closes_time_min: Duration,
    /// The server's name, for the log.
    server: String,
    finished: Vec<(Owner, Done)>,
    pub now: Duration,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Engine {
    setup: Setup,
    poller: Arc<Poller>,
    /// Connections that another thread has made.
    connect_results: Arc<ConnectResults>,
    slots: Slots,
    receiving: ReceiveScratch,
    probes: Vec<Probe>,
    pub core: Core,
    credentials: Credentials,
    health: Health,
    outage: Outage,
    started: Instant,
    next_tick: Duration,
}

impl Engine {
    /// # Errors
    /// If the system has no descriptor left.
    pub(crate) fn new(setup: Setup, poller: Arc<Poller>) -> std::io::Result<Self> {
        let connect_results = Arc::new(ConnectResults::new(&poller, CONNECT_RESULTS_TOKEN)?);
        let now = Duration::ZERO;
        let own = setup.table.connections.iter().map(|connection| connection.path);
        let health = Health::new(&setup.route, setup.identity, own);
        let core = Core {
            protocol: setup.protocol,
            calls: Calls::default(),
            session: setup.session.as_ref().map(|(keeper, part)| {
                LoopSession::new(Arc::clone(keeper), *part, setup.table.connections.len())
            }),
            xids: Xids::new(setup.first_xid),
            queues: Queues::default(),
            groups: CommitGroups::default(),
            table: Table::new(setup.table.clone(), now),
            nodes: setup.table.paths.iter().map(|path| path.node).collect(),
            root_attributes: setup.root_attributes,
            counts: Counts::new(setup.table.paths.len()),
            outages: Outages::new(setup.table.paths.len()),
            closes_time_min: setup.closes_time_min,
            server: setup.route.server.clone(),
            finished: Vec::new(),
            now,
        };
        Ok(Self {
            slots: Slots::new(setup.table.connections.len()),
            receiving: ReceiveScratch::default(),
            probes: Vec::new(),
            core,
            credentials: Credentials::new(setup.credential.clone(), setup.identity),
            health,
            outage: Outage::default(),
            started: Instant::now(),
            next_tick: TICK,
            setup,
            poller,
            connect_results,
        })
    }

    /// Reads the clock: once before each round of work.
    pub(crate) fn refresh_clock(&mut self) {
        self.core.now = self.started.elapsed();
    }

    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        self.setup.route.buffer(len)
    }

    pub(crate) fn now(&self) -> Duration {
        self.core.now
    }

    /// Accepts an operation, which the next [`Engine::settle`] queues and the next
    /// [`Engine::flush`] sends.
    pub(crate) fn submit(&mut self, op: Op, caller: Option<Arc<Caller>>, owner: Owner) {
        if let Some(error) = self.refusal(&op) {
            let (buffer, latency) = (op.into_buffer(), Duration::ZERO);
            self.core.finished.push((owner, Done::failed(error, buffer, latency)));
            return;
        }
        let body = match op {
            Op::Read { file, offset, buffer } => Body::Read { file, offset, target: Target::Memory(buffer) },
            Op::ReadToPipe { file, offset, len, pipe } => {
                // An RDMA device places bytes in memory, not in a pipe.
                let rdma = self.setup.route.uses_rdma();
                let target =
                    if rdma { Target::Memory(self.setup.route.buffer(len)) } else { Target::Pipe(pipe, len) };
                Body::Read { file, offset, target }
            }
            Op::Write { file, offset, buffer } => {
                let stability = self.core.groups.writing(&file);
                Body::Write { file, offset, buffer, written: 0, stability, change: Change::default() }
            }
            Op::Call(request) => Body::Call(request),
        };
        let key = self.core.insert(body, owner);
        if let Some(call) = self.core.calls.0.get_mut(key) {
            call.caller = caller;
        }
        self.start(key);
    }

    /// Returns why an operation is refused before it is sent, if it is.
    fn refusal(&self, op: &Op) -> Option<Error> {
        let procedure = op.procedure(self.core.protocol);
        let operation = procedure.name();
        let is_of_state = || matches!(op, Op::Call(request) if request.is_of_state());
        if self.setup.read_only && procedure.changes() && !is_of_state() {
            return Some(Error::Status { operation, status: Status::ReadOnly });
        }
        // A longer record, or the reply with it, would break one connection after another, for
        // ever.
        let (len, max) = (op.len(), SIZE_MAX as usize);
        if len > max {
            return Some(Error::Misuse(format!("{operation} of {len} bytes; one call moves {max} at most")));
        }
        let has_room = !matches!(op, Op::ReadToPipe { pipe, .. } if !pipe.is_empty());
        (!has_room).then(|| Error::Misuse(format!("{operation} to a pipe that is not empty")))
    }

    /// Sends a call, or leaves it waiting until a connection or an xid is free.
    fn start(&mut self, key: CallKey) {
        let Some(call) = self.core.calls.0.get(key) else { return };
        if call.xid.is_none() {
            let class = call.xid_class();
            // Calls get their xids in order of arrival; otherwise a call might never get one. One
            // that has its slot waits for none of those that wait for a slot: they may wait for it.
            let has_slot = call.slot.is_some();
            let may_draw = has_slot || self.core.queues.first_for_xid(class).is_none();
            if !may_draw || !self.core.draw_xid(key, class) {
                if has_slot {
                    self.core.queues.wait_first_for_xid(class, key);
                } else {
                    self.core.queues.wait_for_xid(class, key);
                }
                return;
            }
        }
        self.send(key);
    }

    /// Sends a call that has its xid, or leaves it waiting for a connection.
    fn send(&mut self, key: CallKey) {
        if !self.core.keeps_slot(key) {
            return;
        }
        let table = &mut self.core.table;
        let Some(call) = self.core.calls.0.get_mut(key) else { return };
        let picked = if let Body::Commit { node, .. } = call.body {
            let connection = self.slots.connection_to(table, node);
            if connection.is_none() && table.usable() {
                // The node that holds the unstable data is gone: write the data again elsewhere.
                self.core.rewrite_group(key);
                return;
            }
            connection
        } else {
            table.pick(call.class(), call.home(), call.bytes())
        };
        let (Some(xid), Some(conn)) = (call.xid, picked) else {
            self.core.queues.wait_for_connection(key);
            return;
        };
        call.connection = Some(conn);
        call.sent_at = self.core.now;
        let path = table.path_of(conn);
        if call.sent_on.is_some()
            && call.sent_on == path
            && let Some(counters) = path.and_then(|path| self.core.counts.path(path))
        {
            counters.retransmissions += 1;
        }
        call.sent_again = call.sent_on.is_some();
        call.sent_on = path;
        table.sent(self.core.now, conn, call.class(), call.bytes());
        if let Some(connection) = self.slots.get_mut(conn) {
            connection.push(key, call, xid, self.credentials.of(call.caller.as_ref()));
        }
        self.slots.mark_dirty(conn);
    }

    /// Processes the effects of this round's inputs. [`Engine::flush`] sends what this queues,
    /// together with what the owners of finished operations submit meanwhile.
    pub(crate) fn settle(&mut self) {
        self.take_new_session();
        loop {
            let mut worked = false;
            while let Some(output) = self.core.table.poll_output() {
                self.carry_out(output);
                worked = true;
            }
            self.core.commit_touched();
            let mut again = self.core.queues.take_ready();
            worked |= !again.is_empty();
            for key in again.drain(..) {
                self.start(key);
            }
            self.core.queues.recycle(again);
            for _ in 0..self.core.queues.waiting_for_connection() {
                if !self.core.table.usable() {
                    break;
                }
                let Some(key) = self.core.queues.next_for_connection() else { break };
                self.send(key);
            }
            self.assign_xids();
            self.validate_waiting();
            if !worked {
                return;
            }
        }
    }

    /// Sends calls that waited for an xid, as far as xids are available.
    fn assign_xids(&mut self) {
        for class in [XidClass::Repeatable, XidClass::DoneBit, XidClass::WholeReply] {
            while let Some(key) = self.core.queues.first_for_xid(class)
                && self.core.draw_xid(key, class)
            {
                self.core.queues.pop_for_xid(class);
                self.send(key);
            }
        }
    }

    /// Swaps in the operations finished since the last call; `into` is reused.
    pub(crate) fn take_finished(&mut self, into: &mut Vec<(Owner, Done)>) {
        std::mem::swap(&mut self.core.finished, into);
    }

    /// How long the loop may wait.
    pub(crate) fn wait_time(&self) -> Duration {
        let due = self.core.table.next_wake().unwrap_or(self.next_tick).min(self.next_tick);
        due.saturating_sub(self.core.now)
    }

    /// Handles timers and the periodic tick.
    pub(crate) fn advance(&mut self) {
        let now = self.core.now;
        let late = now.saturating_sub(self.next_tick);
        if late > TICK {
            // This machine gave the loop no CPU time: peers that seem silent may have sent
            // something.
            self.core.table.late(late);
        }
        while let Some(path) = self.health.next_failure() {
            self.core.table.doubt(now, path);
        }
        self.core.table.advance(now);
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        self.tick_connections();
        self.expire_soft_calls();
        self.core.queues.end_delays(now);
        self.core.tick_session();
        self.repair_back_channel();
        let calls_wait = self.core.queues.waiting_for_connection() > 0;
        self.health.log_losses(&self.core.table);
        self.outage.look(&self.setup.route, self.core.table.usable(), calls_wait, now);
    }

    /// Fails calls of a soft mount that have exceeded their time limit.
    fn expire_soft_calls(&mut self) {
        let Some(timeout) = self.setup.route.soft_timeout else { return };
        let now = self.core.now;
        let late = |call: &Call| {
            !matches!(call.owner, Owner::Engine) && now.saturating_sub(call.submitted_at) > timeout
        };
        let mut expired: Vec<CallKey> =
            self.core.calls.0.iter().filter(|(_, call)| late(call)).map(|(key, _)| key).collect();
        if expired.is_empty() {
            return;
        }
        for at in 0..expired.len() {
            let key = expired.get(at).copied().unwrap_or_default();
            if let Some(Call { body: Body::Write { file, buffer, .. }, .. }) = self.core.calls.0.get(key) {
                // No one waits for a COMMIT that covers no write.
                expired.extend(self.core.groups.forget(file, key, buffer.len()));
            }
        }
        expired.sort_unstable();
        let mut connections: Vec<ConnId> = Vec::new();
        for &key in &expired {
            connections.extend(self.core.calls.0.get(key).and_then(|call| call.connection));
        }
        // The buffers are returned to their owners: nothing may still be sent from or received into
        // them.
        connections.sort_unstable();
        connections.dedup();
        for conn in connections {
            self.core.table.give_up(now, conn);
        }
        while let Some(output) = self.core.table.poll_output() {
            self.carry_out(output);
        }
        // Finish in slab order, which is key order. No list may contain a call that has ended: its
        // key will soon be reused.
        let stays = |key: &CallKey| expired.binary_search(key).is_err();
        self.core.queues.retain(stays);
        for &key in &expired {
            if let Some(call) = self.core.calls.0.get(key) {
                let error = Error::TimedOut { operation: call.operation(), waited: timeout };
                self.core.finish(key, Err(error));
            }
        }
    }

    /// Carries out an output of the path table.
    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Connect(conn) | Output::FailOver { conn, .. } => self.connect(conn),
            Output::Abort(conn) => {
                // The table may have given the connection to another path already.
                let path = self.slots.get(conn).and_then(|connection| connection.path);
                let path = path.or_else(|| self.core.table.path_of(conn));
                self.core.outages.note(path, self.core.now);
                self.abort(conn);
            }
            Output::Move(conn) => self.move_calls(conn),
            Output::Probe(path) => self.probe(path),
            Output::StateChanged { path, from, to } => {
                self.health.note(path, to);
                let name = self.setup.route.path_name(path);
                tracing::info!(path = %name, ?from, ?to, "path changed its state");
            }
        }
    }

    /// Queues the calls of a lost connection to be sent again on others.
    fn move_calls(&mut self, conn: ConnId) {
        // A connection that broke by itself is reset here, before any of its calls is sent on
        // another.
        self.close(conn);
        let keys: Vec<CallKey> = self
            .core
            .calls
            .0
            .iter()
            .filter(|(_, call)| call.connection == Some(conn))
            .map(|(key, _)| key)
            .collect();
        for &key in &keys {
            if let Some(call) = self.core.calls.0.get_mut(key) {
                call.connection = None;
            }
        }
        self.core.queues.extend(keys);
    }

    /// The statistics of this loop.
    pub(crate) fn statistics(&self) -> ShardStatistics {
        let count = u16::try_from(self.core.counts.paths().len()).unwrap_or(u16::MAX);
        let thread = transport::threads::own();
        ShardStatistics {
            now: self.core.now,
            counters: self.core.counts.paths().to_vec(),
            status: (0..count).map(|path| self.core.table.used_path(PathId(path))).collect(),
            replays: self.core.counts.replays,
            rdma: self.rdma_counters(),
            thread,
            cpu: transport::threads::cpu(thread).unwrap_or_default(),
        }
    }

    /// Fails every call: the mount is closed.
    pub(crate) fn fail_all(&mut self) {
        self.end_probes();
        for conn in self.slots.ids() {
            self.close(conn);
        }
        let keys: Vec<CallKey> = self.core.calls.0.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.core.finish(key, Err(Error::Closed));
        }
    }
}

impl Core {
    fn insert(&mut self, body: Body, owner: Owner) -> CallKey {
        self.calls.0.insert(Call {
            body,
            protocol: self.protocol,
            caller: None,
            owner,
            xid: None,
            slot: None,
            connection: None,
            sent_on: None,
            sent_again: false,
            in_doubt: false,
            bad_replies: 0,
            closes: None,
            rewrites: 0,
            submitted_at: self.now,
            sent_at: self.now,
        })
    }

    /// Assigns an xid to a call, and a slot if it is made in a session. Returns false if the window
    /// of its class is full, or no slot is free.
    fn draw_xid(&mut self, key: CallKey, class: XidClass) -> bool {
        if !self.take_slot(key) {
            return false;
        }
        let Some(call) = self.calls.0.get_mut(key) else { return true };
        call.xid = self.xids.assign(key, class);
        call.xid.is_some()
    }

    /// Turns a call into a new one, which the server executes again instead of treating it as a
    /// retransmission.
    fn forget_xid(&mut self, key: CallKey) {
        self.leave_slot(key);
        if let Some(call) = self.calls.0.get_mut(key) {
            call.connection = None;
            (call.sent_on, call.sent_again) = (None, false);
            if let Some(xid) = call.xid.take() {
                self.xids.complete(xid);
            }
        }
    }

    /// Sends a call again as a new one.
    fn renew(&mut self, key: CallKey) {
        self.forget_xid(key);
        self.queues.push(key);
    }

    /// Ends a call and hands its outcome to its owner.
    fn finish(&mut self, key: CallKey, result: Result<Answer>) {
        self.leave_slot(key);
        let Some(call) = self.calls.0.try_remove(key) else { return };
        if let Some(xid) = call.xid {
            self.xids.complete(xid);
        }
        let mut change = Change::default();
        let buffer = match call.body {
            Body::Read { target: Target::Memory(buffer), .. } => buffer,
            Body::Read { target: Target::Pipe(..), .. } => Buffer::default(),
            Body::Write { file, buffer, change: told, .. } => {
                change = told;
                self.groups.finished(&file);
                // Held writes wait for those in flight; this may have been the last one in flight.
                self.groups.touch(&file);
                buffer
            }
            Body::Commit { .. } | Body::Call(_) | Body::Validate(..) => Buffer::default(),
        };
        if !matches!(call.owner, Owner::Engine) {
            let latency = self.now.saturating_sub(call.submitted_at);
            self.finished.push((call.owner, Done { result, buffer, latency, change }));
        }
    }
}

/// Encodes the head of a call: everything but the payload of a WRITE.
fn encode_call(head: &mut Vec<u8>, call: &Call, xid: Xid, credential: &[u8]) {
    let mut writer = Writer::new(head);
    let protocol = call.protocol;
    protocol.encode_call(&mut writer, xid, call.procedure(), credential);
    let len = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let slot = call.slot.as_ref();
    match &call.body {
        Body::Read { file, offset, target } => {
            protocol.encode_read(&mut writer, slot, file.handle, (*offset, len(target.len())));
        }
        Body::Write { file, offset, written, stability, .. } => {
            let (offset, count) = (offset + *written as u64, len(call.payload().len()));
            protocol.encode_write(&mut writer, slot, file.handle, (offset, count, *stability));
        }
        Body::Commit { file, .. } => protocol.encode_commit(&mut writer, slot, file.handle),
        Body::Call(request) | Body::Validate(_, request) => {
            protocol.encode_request(&mut writer, request, slot);
        }
    }
}

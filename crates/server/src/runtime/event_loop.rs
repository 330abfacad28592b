//! One event loop: a thread with its own connections, buffers and counters.
//!
//! Only the loop's own thread touches what the loop owns; other threads send it a [`Message`].
//! Sockets are polled level-triggered, so that the next round reports a connection again which used
//! up its budget in this round. The wait for events is the only call that blocks.
//!
//! After a loop did not run for a while, calls that waited in its connections too long are not
//! executed ([`stall`]).

mod admission;
pub(super) mod balance;
mod fairness;
mod room;
mod stall;
#[cfg(test)]
mod tests;

use super::connection::{CloseReason, Connection, Step, TurnContext, Workspace, refuse};
use super::connection_address::ConnectionAddress;
use super::listeners::{BoundListener, Listeners};
use super::mailbox::{Accepted, Mailboxes, Message, RoutedReply};
use super::worker_pool::{Completion, TaskEnd, WorkerPool};
use crate::clock;
use crate::group::{Group, Node};
use crate::replies::Replies;
use crate::statistics::{ClientKey, ClientTable, LoopReport, LoopStatistics, NodeStatistics};
use balance::{Balance, LIGHT_INTERVAL};
use fairness::Shares;
use room::{ROOM_CHECK_INTERVAL, RoomCheck};
use slab::Slab;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use transport::busy::BusyPoll;
use transport::poll::{Events, Poller};
use transport::{Scratch, threads};

/// A loop with connections wakes up this often, to check whether it slept and which clients are
/// silent.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// How often all connections are checked.
const SWEEP: Duration = Duration::from_secs(1);
/// Only a connection that has been idle this long may be evicted for a new one.
const EVICTABLE_IDLE: Duration = Duration::from_secs(1);
/// How often a loop checks whether a client has its replies, while somebody asks for that.
const ACKNOWLEDGEMENT_CHECK_INTERVAL: Duration = Duration::from_millis(10);

const WAKER: u64 = u64::MAX;
pub(super) const LISTENERS: u64 = 1 << 32;

/// One event loop, before and while it runs.
pub(crate) struct EventLoop {
    index: usize,
    group: Arc<Group>,
    mailboxes: Arc<Mailboxes>,
    worker_pool: Arc<WorkerPool>,
    poller: Poller,
    busy: BusyPoll,
    listeners: Listeners,
    connections: Slab<Connection>,
    /// Connections that hold received calls and wait for their turn.
    run_queue: Vec<usize>,
    shares: Shares,
    work: Workspace,
    /// By node: the counters of closed connections.
    of_nodes: Vec<NodeStatistics>,
    /// The calls of all clients.
    clients: ClientTable,
    statistics: LoopStatistics,
    room_check: RoomCheck,
    /// When this loop last read the clock.
    alive: Duration,
    /// Since then the loop has read the clock often enough to know that it ran.
    runs_since: Duration,
    next_sweep: Duration,
    /// When the loop next checks whether clients have their replies, and whether somebody waits for
    /// that.
    next_acknowledgement_check: Duration,
    checks_acknowledgements: bool,
    /// The connection that had a light turn last, and the time until which turns of others are
    /// short.
    light: (usize, Duration),
    balance: Balance,
    /// Set by a drain: when to give up.
    deadline: Option<Duration>,
    stopped: bool,
}

impl EventLoop {
    /// Creates a loop with its index among the loops; `poller` already has its waker.
    pub fn new(
        index: usize,
        group: Arc<Group>,
        mailboxes: Arc<Mailboxes>,
        worker_pool: Arc<WorkerPool>,
        poller: Poller,
        busy: BusyPoll,
    ) -> Self {
        let nodes = group.nodes.len();
        let now = clock::now();
        Self {
            index,
            group,
            mailboxes,
            worker_pool,
            poller,
            busy,
            listeners: Listeners::default(),
            connections: Slab::new(),
            run_queue: Vec::new(),
            shares: Shares::default(),
            work: Workspace { scratch: Scratch::new(), replies: Replies::default(), text: Vec::new() },
            of_nodes: vec![NodeStatistics::default(); nodes],
            clients: ClientTable::new(nodes),
            statistics: LoopStatistics::default(),
            room_check: RoomCheck::default(),
            alive: now,
            runs_since: now,
            next_sweep: now + SWEEP,
            next_acknowledgement_check: now + TICK,
            checks_acknowledgements: false,
            light: (0, now),
            balance: Balance::new(now),
            deadline: None,
            stopped: false,
        }
    }

    /// The token of a loop's waker in its poller.
    pub const fn waker_token() -> u64 {
        WAKER
    }

    /// Adds listeners before the loop runs. Only the first loop has listeners.
    pub fn listen(&mut self, bound: Vec<BoundListener>) -> io::Result<()> {
        self.listeners.add(&self.poller, bound)
    }

    /// Runs until the loop is told to stop, or a drain has ended.
    pub fn run(mut self) {
        self.statistics.thread = threads::own();
        let mut events = Events::new();
        while !self.is_finished() {
            let timeout = self.timeout();
            self.mailboxes.end_round(self.index);
            if let Err(error) = self.busy.wait(&self.poller, &mut events, timeout) {
                tracing::error!(%error, index = self.index, "the loop cannot wait for its sockets and ends");
                break;
            }
            self.statistics.wakeups += 1;
            self.notice_stall_after_wait(events.iter().next().is_some());
            self.mailboxes.begin_round(self.index, self.alive);
            self.worker_pool.heartbeat(self.alive);
            self.shares.begin_round(self.alive);
            // A connection that is given a turn in this round takes it in the next: one turn per
            // connection and round.
            let due = std::mem::take(&mut self.run_queue);
            for event in events.iter() {
                match event.token {
                    WAKER => self.take_messages(),
                    token if token >= LISTENERS => self.accept(token),
                    token => self.serve_ready(usize::try_from(token).unwrap_or(usize::MAX)),
                }
            }
            self.resume_waiting();
            self.serve_queued(due);
            self.sweep();
        }
    }

    fn is_finished(&self) -> bool {
        // Connections on their way to this loop count too.
        let drained = self
            .deadline
            .is_some_and(|deadline| self.mailboxes.connections(self.index) == 0 || self.alive >= deadline);
        self.stopped || drained
    }

    /// How long the loop waits for events at most. The first loop also wakes up for the state of
    /// clients of version 4, while there is any.
    fn timeout(&self) -> Option<Duration> {
        let of_state = self.group.nfs4.as_ref().filter(|_| self.index == 0);
        let of_state = of_state.and_then(|state| state.next_tick(self.alive));
        match (self.timeout_of_connections(), of_state) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn timeout_of_connections(&self) -> Option<Duration> {
        if !self.run_queue.is_empty() {
            Some(Duration::ZERO)
        } else if self.room_check.is_needed {
            Some(ROOM_CHECK_INTERVAL)
        } else if self.checks_acknowledgements {
            Some(ACKNOWLEDGEMENT_CHECK_INTERVAL)
        } else if self.deadline.is_some() {
            Some(TICK / 10)
        } else if self.connections.is_empty() && !self.listeners.needs_polling() {
            None
        } else {
            Some(TICK)
        }
    }

    /// How many connections this loop may have.
    fn connections_max(&self) -> usize {
        self.group.limits.of_loop(self.mailboxes.len())
    }

    fn keys(&self, wanted: impl Fn(&Connection) -> bool) -> Vec<usize> {
        self.connections.iter().filter(|(_, connection)| wanted(connection)).map(|(key, _)| key).collect()
    }

    /// Runs one turn of a connection whose socket is ready, unless the connection has its turn of
    /// this round anyway. Otherwise a client that sends without end would gain one more turn with
    /// each round.
    fn serve_ready(&mut self, key: usize) {
        if self.connections.get(key).is_some_and(|connection| !connection.is_queued) {
            self.serve_or_defer(key);
        }
    }

    /// Runs one turn of a connection, now or in the next round if its address has used up its share
    /// of this one.
    fn serve_or_defer(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        if self.shares.may_take_turn(connection.share, false) {
            self.serve_active(key);
        } else {
            self.schedule(key);
        }
    }

    /// Runs one turn of a connection, which may first move to another loop because it begins to
    /// call for files.
    fn serve_active(&mut self, key: usize) {
        let is_busy = self.connections.get(key).is_some_and(|connection| connection.load.is_busy());
        if is_busy || !self.activate(key) {
            self.serve(key);
        }
    }

    /// Runs one turn of each connection that waits for its next; the rest of their work is left to
    /// the next round, and so are those whose address has used up its share of this round.
    fn serve_queued(&mut self, mut due: Vec<usize>) {
        due.retain(|&key| {
            // The key may belong to another connection by now, which waits for nothing.
            let Some(connection) = self.connections.get_mut(key).filter(|of| of.is_queued) else {
                return false;
            };
            let may = self.shares.may_take_turn(connection.share, true);
            if may {
                connection.is_queued = false;
                self.serve_active(key);
            }
            !may
        });
        due.append(&mut self.run_queue);
        self.run_queue = due;
    }

    /// Runs one turn of one connection.
    fn serve(&mut self, key: usize) {
        self.notice_stall();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let room = connection.room(&self.group.budget, self.mailboxes.len());
        let work = &mut self.work;
        let now = self.alive;
        connection.counters.counts_files = self.clients.counts_files();
        let context = TurnContext {
            group: &self.group,
            mailboxes: &self.mailboxes,
            worker_pool: &self.worker_pool,
            room,
            short: self.light.0 != key && self.alive < self.light.1,
            // A drain takes all calls that were received.
            ends: self.shares.turn_ends(connection.share, now).filter(|_| !connection.draining),
            address: ConnectionAddress { on_loop: self.index, key },
            now,
        };
        // A bug that one client's bytes trigger must not take down the others: only the connection
        // of that client ends.
        let step = catch_unwind(AssertUnwindSafe(|| connection.turn(work, context)));
        let step = step.unwrap_or_else(|_| {
            self.statistics.bugs += 1;
            self.work.replies.clear();
            Step::Close(CloseReason::Bug)
        });
        let Some(connection) = self.connections.get_mut(key) else { return };
        let ended = clock::now();
        self.shares.end_turn(connection.share, ended.saturating_sub(now));
        connection.counters.end_batch(ended.saturating_sub(now), connection.client_key, &mut self.clients);
        if connection.load.end_turn(ended.saturating_sub(now), ended) {
            self.light = (key, ended + LIGHT_INTERVAL);
        }
        connection.settle();
        let waits = connection.waits_for_room().is_some();
        self.room_check.is_needed |= waits;
        let shortened_bytes = std::mem::take(&mut connection.memory.shortened_bytes);
        if shortened_bytes > 0 {
            self.room_check.seek_for_reply(connection.account(), shortened_bytes);
        }
        // The replies that this turn has sent may have made the room.
        let resumes = waits && connection.has_room(&self.group.budget, self.mailboxes.len());
        match step {
            Step::Close(why) => self.close(key, why),
            Step::Yield => {
                self.schedule(key);
                self.set_interest(key);
            }
            Step::Wait => {
                if connection.awaits_last_acknowledgement() {
                    (self.checks_acknowledgements, self.next_acknowledgement_check) =
                        (true, ended + ACKNOWLEDGEMENT_CHECK_INTERVAL);
                }
                self.set_interest(key);
                if resumes {
                    self.schedule(key);
                }
                if self.balance.has_trials_left() {
                    self.rebalance(key);
                }
            }
        }
    }

    /// Gives a connection a turn in the next round.
    fn schedule(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.is_queued, true)
        {
            self.run_queue.push(key);
        }
    }

    fn set_interest(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let wanted = connection.wanted();
        if wanted == connection.interest {
            return;
        }
        connection.interest = wanted;
        if let Err(error) = connection.set_interest(&self.poller, key as u64) {
            self.close(key, CloseReason::System(error));
        }
    }

    /// Adopts a connection that was given to this loop.
    fn adopt(&mut self, accepted: Accepted) {
        let node = accepted.node;
        let bound = self.connections_max();
        if self.deadline.is_some() {
            tracing::info!(peer = %accepted.peer, "connection refused: the server is draining");
            return self.refuse(accepted);
        }
        if self.group.nodes.get(node).is_some_and(Node::is_stopped) {
            tracing::debug!(peer = %accepted.peer, "connection refused: its node was stopped meanwhile");
            return self.refuse(accepted);
        }
        if !self.make_place(accepted.peer, bound) {
            tracing::warn!(peer = %accepted.peer, bound, "connection refused: at the bound, and none gives way");
            return self.refuse(accepted);
        }
        self.count_accepted(node);
        self.restart_count();
        let mut connection = Connection::new(accepted, &self.group, self.alive);
        connection.client_key = self.clients.enter(&connection.client);
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        match connection.register(&self.poller, key as u64) {
            Ok(()) => {
                connection.share = self.shares.enter(connection.client.peer.ip());
                entry.insert(connection);
                self.mailboxes.repace(&self.group, node);
            }
            Err(error) => {
                tracing::warn!(%error, "connection refused: it cannot be waited for");
                self.clients.leave(connection.client_key, self.alive);
                connection.end(&CloseReason::System(error), &self.poller, &self.mailboxes);
                self.count_closed(node);
            }
        }
    }

    /// Resets a refused connection: the peer must not take a silent close for a served connection.
    fn refuse(&self, accepted: Accepted) {
        let node = accepted.node;
        refuse(accepted, &self.poller, &self.mailboxes);
        self.count_closed(node);
    }

    fn count_accepted(&mut self, node: usize) {
        if let Some(node) = self.of_nodes.get_mut(node) {
            node.accepted += 1;
        }
    }

    fn close(&mut self, key: usize, why: CloseReason) {
        let Some(connection) = self.connections.try_remove(key) else { return };
        self.shares.leave(connection.share);
        if connection.load.is_busy() {
            self.mailboxes.take_load(self.index, connection.load.permille());
        }
        let node = connection.client.node;
        if let Some(id) = connection.client.cache_client.connection.id() {
            let in_order = matches!(why, CloseReason::Peer) && connection.is_fully_acknowledged();
            self.group.reply_cache.connections().end(id, in_order);
        }
        if let Some(state) = &self.group.nfs4 {
            state.end_back(self.alive, &connection.client.back);
        }
        why.log(&connection);
        if why.discards_calls() && connection.pool_calls() > 0 {
            self.worker_pool.discard(connection.client.id);
        }
        if let Some(node) = self.of_nodes.get_mut(node) {
            node.rdma.add(&connection.rdma());
            node.refused_calls += connection.counters.refused();
        }
        self.clients.leave(connection.client_key, self.alive);
        connection.end(&why, &self.poller, &self.mailboxes);
        self.count_closed(node);
    }

    /// Removes a closed connection of this loop from the counts.
    fn count_closed(&self, node: usize) {
        self.mailboxes.leave(self.index);
        if let Some(node) = self.group.nodes.get(node) {
            node.leave();
        }
        self.mailboxes.repace(&self.group, node);
    }

    /// Periodic work: closes connections that fell silent within a record, asks for signs of life,
    /// and listens again after a rest.
    fn sweep(&mut self) {
        let now = self.alive;
        self.listeners.resume(&self.poller, now);
        if let Some(state) = &self.group.nfs4 {
            state.tick(now);
        }
        if let Some(deadline) = self.deadline {
            self.end_lingering();
            if now >= deadline {
                for key in self.keys(|_| true) {
                    self.close(key, CloseReason::Stopped);
                }
            }
        }
        if self.balance.is_due(now) {
            self.count_load(now);
        }
        if now >= self.next_acknowledgement_check {
            self.check_acknowledgements();
        }
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + SWEEP;
        self.clients.end_watch(now);
        self.end_lingering();
        self.connections.iter_mut().for_each(|(_, connection)| connection.note_reply_pace(now));
        let silence_max = Duration::from_millis(self.group.limits.partial_record_ms_max);
        for key in self.keys(|connection| connection.is_stuck(now, silence_max)) {
            self.close(key, CloseReason::Stuck);
        }
        for key in self.keys(|connection| connection.needs_keepalive(now)) {
            if let Some(Err(why)) =
                self.connections.get_mut(key).map(|connection| connection.send_keepalive(now))
            {
                self.close(key, why);
            }
        }
    }

    /// Checks whether clients have their replies, where somebody asks.
    fn check_acknowledgements(&mut self) {
        let now = clock::now();
        let mut closing = Vec::new();
        self.checks_acknowledgements = false;
        for (key, connection) in &mut self.connections {
            self.checks_acknowledgements |= connection.check_acknowledgement(&self.group.reply_cache, now);
            if connection.awaits_last_acknowledgement() {
                closing.push(key);
            }
        }
        self.checks_acknowledgements |= !closing.is_empty();
        for key in closing {
            self.schedule(key);
        }
        self.next_acknowledgement_check =
            now + if self.checks_acknowledgements { ACKNOWLEDGEMENT_CHECK_INTERVAL } else { TICK };
    }

    fn end_lingering(&mut self) {
        let now = self.alive;
        for key in self.keys(|connection| connection.is_done_lingering(now)) {
            self.close(key, CloseReason::Drained);
        }
    }

    fn take_messages(&mut self) {
        let mailboxes = Arc::clone(&self.mailboxes);
        for message in mailboxes.take(self.index) {
            self.take_message(message);
            // Each message may take long, and there may be many.
            self.notice_stall();
        }
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Accepted(accepted) => self.adopt(accepted),
            Message::Moved(moving) => self.adopt_moved(moving),
            Message::Refused { node } => self.count_closed(node),
            Message::Reply(reply) => self.send_routed_reply(reply),
            Message::Calls { address, connection } => {
                if let Some(connection) = self.find(address, u64::from(connection)) {
                    connection.push_calls();
                    self.serve_or_defer(address.key);
                }
            }
            Message::Completion(completion) => self.complete(completion),
            Message::Abandon { address, connection } => {
                if self.find(address, u64::from(connection)).is_some() {
                    self.close(address.key, CloseReason::Abandoned);
                }
            }
            Message::Exports(exports, _done) => {
                self.connections.iter_mut().for_each(|(_, connection)| connection.readmit(&exports));
            }
            Message::MakeRoom(account, bytes) => {
                self.make_room(&account, bytes, 0);
            }
            Message::CheckAcknowledgements => self.check_acknowledgements(),
            Message::Report(by_file, sender) => {
                // If nobody waits any more, nobody misses the report.
                let _ = sender.send(self.report(by_file));
            }
            Message::Repace(node) => {
                let pace = self.group.nodes.get(node).and_then(crate::group::Node::pace_share);
                for (_, connection) in &mut self.connections {
                    if connection.client.node == node {
                        connection.set_pace(pace);
                    }
                }
            }
            Message::Listen(bound, result) => {
                let _ = result.send(self.listeners.add(&self.poller, bound));
            }
            Message::Unlisten(node, _done) => self.listeners.remove(&self.poller, node),
            Message::UnlistenAt(address, _done) => self.listeners.remove_at(&self.poller, address),
            Message::DrainAt(address) => self.drain(|connection| connection.arrived_at(address)),
            Message::ResetNode(node, _done) => {
                for key in self.keys(|connection| connection.client.node == node) {
                    self.close(key, CloseReason::NodeStopped);
                }
            }
            Message::Drain(deadline) => self.begin_drain(deadline),
            Message::Stop => self.stopped = true,
        }
    }

    fn begin_drain(&mut self, deadline: Duration) {
        self.listeners.remove_all(&self.poller);
        self.deadline = Some(deadline);
        self.drain(|_| true);
    }

    /// Closes connections, once the calls that they have received are answered.
    fn drain(&mut self, wanted: impl Fn(&Connection) -> bool) {
        for key in self.keys(wanted) {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.draining = true;
            }
            self.serve(key);
        }
    }

    /// Sends a reply that another loop produced for a call received here.
    fn send_routed_reply(&mut self, reply: RoutedReply) {
        if let Some(connection) = self.find(reply.address, u64::from(reply.connection)) {
            connection.push_reply(&reply.reply);
            self.serve_or_defer(reply.address.key);
        }
    }

    /// Finds a connection by its address and the low half of its number: the slot may belong to
    /// another connection by now.
    fn find(&mut self, address: ConnectionAddress, number: u64) -> Option<&mut Connection> {
        let low = |number: u64| number & u64::from(u32::MAX);
        self.connections.get_mut(address.key).filter(|connection| low(connection.client.id) == low(number))
    }

    /// Takes back a call from the worker pool. Its reply is sent in the connection's next turn,
    /// together with others.
    fn complete(&mut self, completion: Completion) {
        let address = completion.address;
        let client = self.find(address, completion.connection).map(|connection| connection.client_key);
        if let TaskEnd::Reply { counted: Some(end), .. } = &completion.end {
            let client = client.unwrap_or(ClientKey::Others(completion.node));
            self.clients.count_single(client, end, self.alive.saturating_sub(completion.received));
        }
        let Some(connection) = self.find(address, completion.connection) else {
            // Nobody waits for the reply any more; the reply cache has what must be remembered.
            return;
        };
        let why = match completion.end {
            TaskEnd::Bug => Some(CloseReason::Bug),
            TaskEnd::TooLate => Some(CloseReason::Stalled),
            TaskEnd::Reply { .. } | TaskEnd::Elsewhere => None,
        };
        connection.complete(completion);
        match why {
            Some(why) => {
                self.statistics.bugs += u64::from(matches!(why, CloseReason::Bug));
                self.close(address.key, why);
            }
            None => self.schedule(address.key),
        }
    }

    fn accept(&mut self, token: u64) {
        self.listeners.accept(&self.poller, token, self.alive, &self.group, &self.mailboxes);
    }

    /// The counters. If calls are to be told apart by file, they are counted so for this time at
    /// least.
    fn report(&mut self, by_file: Option<Duration>) -> LoopReport {
        let files = by_file.and_then(|time| {
            self.clients.watch_files(self.alive, time);
            self.clients.report_files(self.alive)
        });
        let mut nodes = self.of_nodes.clone();
        for (_, connection) in &self.connections {
            if let Some(node) = nodes.get_mut(connection.client.node) {
                node.refused_calls += connection.counters.refused();
                node.rdma.add(&connection.rdma());
                node.connections.push(connection.statistics(self.index, self.alive));
            }
        }
        let cpu = threads::cpu(self.statistics.thread).unwrap_or_default();
        let cpu_ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        LoopReport {
            index: self.index,
            statistics: LoopStatistics { cpu_ns, ..self.statistics.clone() },
            nodes,
            clients: self.clients.report(),
            files,
        }
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        // Also runs when the loop ends by an error or a panic: nobody may wait for the loop or
        // count on it.
        self.mailboxes.retire(self.index);
    }
}

//! Assigns connections to loops: how much each connection loads its loop, and when it moves to
//! another.
//!
//! A connection is busy from its first call for files until it has been idle for a while. When it
//! becomes busy it moves to the loop with the least to do. Ten times a second each loop counts how
//! much of its time each connection takes, and a loop that has more to do than another hands a
//! connection over between two of its turns. Of two loops that have no time left, the loop with
//! fewer connections has more time for another.
//!
//! Among several loops with as little to do, a connection moves to the loop on the processor where
//! its packets arrive (`SO_INCOMING_CPU`): a network card has several queues, and each queue
//! interrupts one processor.

use super::EventLoop;
use crate::group::Node;
use crate::runtime::connection::{CloseReason, Connection};
use crate::runtime::connection_address::{ConnectionAddress, token_of};
use crate::runtime::mailbox::{Message, MovingConnection};
use rustix::net::sockopt::socket_incoming_cpu;
use std::time::Duration;
use transport::poll::Interest;
use transport::threads::processor;

/// A connection is light if its turns move less than this (4 KiB at a depth of 8 does),
const LIGHT_TURN_BYTES: usize = 48 << 10;
/// and if they are less than this apart. For as long after each of its turns, other connections of
/// its loop have short turns.
pub(in crate::runtime) const LIGHT_INTERVAL: Duration = Duration::from_millis(20);
/// The load of a busy connection, in thousandths of the loop's time, in addition to the time that
/// its turns take: of two loops that have no time left, the loop with fewer connections has more
/// time for another.
pub(in crate::runtime) const BUSY_PERMILLE: usize = 400;
/// How often the load of each connection is counted.
const COUNT_LOAD: Duration = Duration::from_millis(100);
/// After a count, this many turns check whether their connection should move to another loop.
const REBALANCE_TRIALS: u32 = 16;

/// How much a connection loads its loop.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Load {
    /// The connection has called for files recently, and its load is counted.
    busy: bool,
    /// While the connection is busy: the share of the loop's time that its turns take, in
    /// thousandths, plus [`BUSY_PERMILLE`].
    permille: usize,
    /// The time that the turns have taken since the last count.
    busy_time: Duration,
    /// Bytes that this turn has received and sent.
    turn_bytes: usize,
    /// The mean of the last turns, weighted towards the newest.
    turn_bytes_mean: usize,
    /// When the connection last had a turn that moved bytes.
    turn_at: Duration,
    /// When the connection came to this loop from another.
    arrived: Option<Duration>,
}

impl Load {
    pub const fn is_busy(&self) -> bool {
        self.busy
    }

    pub const fn permille(&self) -> usize {
        self.permille
    }

    /// Called when the connection calls for files. Returns its load until that is counted.
    pub const fn begin(&mut self) -> usize {
        (self.busy, self.busy_time, self.permille) = (true, Duration::ZERO, BUSY_PERMILLE);
        self.permille
    }

    /// Counts bytes that this turn has received or sent.
    pub const fn moved(&mut self, bytes: usize) {
        self.turn_bytes += bytes;
    }

    /// Ends a turn. Returns whether the turns of the connection are light, and follow each other
    /// closely.
    pub fn end_turn(&mut self, took: Duration, now: Duration) -> bool {
        self.busy_time += took;
        let bytes = std::mem::take(&mut self.turn_bytes);
        if bytes > 0 {
            let mean = if self.turn_bytes_mean == 0 { bytes } else { self.turn_bytes_mean };
            self.turn_bytes_mean = (3 * mean + bytes) / 4;
        }
        let last = if bytes > 0 { std::mem::replace(&mut self.turn_at, now) } else { Duration::ZERO };
        self.busy && self.turn_bytes_mean < LIGHT_TURN_BYTES && now < last + LIGHT_INTERVAL
    }

    /// Computes the load over the time since the last count. A connection that is idle and has had
    /// no turn is no longer busy.
    pub fn count(&mut self, over: Duration, is_idle: bool) {
        let busy_time = std::mem::take(&mut self.busy_time);
        if is_idle && busy_time.is_zero() {
            self.busy = false;
        } else if !over.is_zero() {
            let permille = busy_time.as_nanos() * 1000 / over.as_nanos();
            self.permille = BUSY_PERMILLE + usize::try_from(permille).unwrap_or(1000).min(1000);
        }
    }

    /// The work of the connection on another loop does not count on this one.
    pub const fn arrive(&mut self, now: Duration) {
        (self.busy_time, self.arrived) = (Duration::ZERO, Some(now));
    }

    /// Whether the connection has been on this loop long enough for its load to be known.
    fn is_known(&self, now: Duration) -> bool {
        self.arrived.is_none_or(|then| then + COUNT_LOAD <= now)
    }
}

/// The state by which a loop balances its load with others.
#[derive(Debug)]
pub(in crate::runtime) struct Balance {
    /// When the load of connections was last counted.
    since: Duration,
    /// This many more turns check whether another loop has less to do.
    trials_left: u32,
}

impl Balance {
    pub const fn new(now: Duration) -> Self {
        Self { since: now, trials_left: 0 }
    }

    pub fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= COUNT_LOAD
    }

    pub const fn has_trials_left(&self) -> bool {
        self.trials_left > 0
    }
}

impl EventLoop {
    /// Called when a connection that was not busy has received bytes. If it calls for files it
    /// becomes busy, on this loop or on one that has less to do. So working clients share the loops
    /// evenly, wherever they were while idle, and a connection that has only sent MOUNT calls does
    /// not count. Returns whether the connection moved.
    pub(in crate::runtime) fn activate(&mut self, key: usize) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if !connection.calls_for_files() {
            return false;
        }
        let load = connection.load.begin();
        let target = self.reserve_on_loop(key, load, 0);
        match target {
            Some(target) => self.move_to(target, key),
            None => self.mailboxes.add_load(self.index, load),
        }
        target.is_some()
    }

    /// Called when a connection has had its turn and has nothing pending here: it moves to a loop
    /// that has less to do even with this connection. Only one connection moves after each count,
    /// because the load of the others is counted again before the next.
    pub(in crate::runtime) fn rebalance(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        let load = &connection.load;
        if !load.is_busy() || !load.is_known(self.alive) || !self.may_move(connection) {
            return;
        }
        let permille = load.permille();
        self.balance.trials_left = self.balance.trials_left.saturating_sub(1);
        if let Some(target) = self.reserve_on_loop(key, permille, permille) {
            self.balance.trials_left = 0;
            self.move_to(target, key);
        }
    }

    /// Reserves a slot on another loop for a connection with the load `permille`, of which
    /// `counted` is counted here, if the connection may move and is better off there.
    fn reserve_on_loop(&self, key: usize, permille: usize, counted: usize) -> Option<usize> {
        let connection = self.connections.get(key).filter(|connection| self.may_move(connection))?;
        let incoming_cpu = || connection.socket().and_then(|socket| socket_incoming_cpu(socket).ok());
        self.mailboxes.reserve_on_other_loop(
            self.index,
            permille,
            counted,
            self.connections_max(),
            incoming_cpu,
        )
    }

    fn may_move(&self, connection: &Connection) -> bool {
        self.deadline.is_none() && connection.may_move()
    }

    /// Updates the load of each connection, and notes the processor on which the loop runs.
    pub(in crate::runtime) fn count_load(&mut self, now: Duration) {
        let over = now.saturating_sub(self.balance.since);
        self.balance.since = now;
        self.balance.trials_left = 0;
        if self.mailboxes.load(self.index) == 0 {
            // No connection is busy.
            return;
        }
        self.mailboxes.report_cpu(self.index, processor());
        let mut busy = 0;
        for (_, connection) in &mut self.connections {
            if !connection.load.is_busy() {
                continue;
            }
            let before = connection.load.permille();
            connection.count_load(over, now);
            if connection.load.is_busy() {
                self.mailboxes.add_load(self.index, connection.load.permille());
                busy += 1;
            }
            self.mailboxes.take_load(self.index, before);
        }
        self.balance.trials_left = if busy > 1 { REBALANCE_TRIALS } else { 0 };
    }

    /// Restarts the count on an empty loop: a loop without connections may have slept for any time.
    pub(in crate::runtime) fn restart_count(&mut self) {
        if self.connections.is_empty() {
            self.balance.since = self.alive;
        }
    }

    /// Moves a connection to the loop where a slot was reserved for it.
    fn move_to(&mut self, target: usize, key: usize) {
        let connection = self.connections.remove(key);
        self.shares.leave(connection.share);
        if let Some(socket) = connection.socket() {
            let _ = self.poller.remove(socket);
        }
        self.statistics.moved += 1;
        self.clients.leave(connection.client_key, self.alive);
        let moving = MovingConnection { connection: Box::new(connection), since: self.alive };
        self.mailboxes.send(target, Message::Moved(moving));
    }

    /// Takes over a connection from another loop, and serves the call that it may have come with.
    pub(in crate::runtime) fn adopt_moved(&mut self, moving: MovingConnection) {
        let MovingConnection { connection, since } = moving;
        self.restart_count();
        let mut connection = *connection;
        let node = connection.client.node;
        connection.arrive(&self.group, self.alive);
        connection.client_key = self.clients.enter(&connection.client);
        connection.share = self.shares.enter(connection.client.peer.ip());
        connection.draining = self.deadline.is_some();
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        connection.interest = Interest::READ;
        let registered = connection.register(&self.poller, key as u64);
        let address = ConnectionAddress { on_loop: self.index, key };
        connection.client.back.moved(token_of(address, connection.client.id));
        connection.push_calls();
        entry.insert(connection);
        // The first piece of work after a sleep may be this one.
        self.notice_stall();
        let is_stale =
            self.connections.get(key).is_some_and(|connection| self.slept_while_moving(connection, since));
        if let Err(error) = registered {
            self.close(key, CloseReason::System(error));
        } else if self.group.nodes.get(node).is_some_and(Node::is_stopped) {
            self.close(key, CloseReason::NodeStopped);
        } else if is_stale {
            self.statistics.stalls += 1;
            let waited = self.alive.saturating_sub(since);
            tracing::warn!(index = self.index, ?waited, "a connection from another loop is reset unexecuted");
            self.close(key, CloseReason::Stalled);
        } else {
            self.serve_or_defer(key);
        }
    }
}

#[cfg(test)]
impl EventLoop {
    /// Does what the first turn after a count does.
    pub(in crate::runtime) fn try_to_rebalance(&mut self, key: usize) {
        self.balance.trials_left = REBALANCE_TRIALS;
        self.rebalance(key);
        self.balance.trials_left = 0;
    }
}

//! Where connections live: how much each loads its loop, and when it goes to another.
//!
//! A connection is busy from its first call for files on until it has been idle for a while. When
//! it becomes busy it goes to the loop with the least to do; ten times a second loops count how
//! much of their time each connection takes, and a loop that has more to do than another hands a
//! connection on between two of its turns. Of two loops that have no time left, the one with fewer
//! connections has more for another.
//!
//! Of several loops that have as little to do, a connection goes to the one that runs on the
//! processor where its packets come in (`SO_INCOMING_CPU`): a network card has queues, and each
//! queue interrupts one processor.

use super::EventLoop;
use crate::clock;
use crate::group::Node;
use crate::runtime::connection::{Close, Connection};
use crate::runtime::mailbox::{Message, Moving};
use rustix::net::sockopt::socket_incoming_cpu;
use std::time::Duration;
use transport::poll::Interest;
use transport::threads::processor;

/// A connection whose turns move less than this is a light one: 4 KiB at a depth of 8 is,
const LIGHT_TURN_BYTES: usize = 48 << 10;
/// if they are less than this apart. Others of its loop have short turns for as long after each of
/// them.
pub(in crate::runtime) const LIGHT_APART: Duration = Duration::from_millis(20);
/// What a busy connection loads its loop by, in thousandths of the loop's time, besides the time
/// that its turns take: of two loops that have no time left, the one with fewer connections has
/// more for another.
pub(in crate::runtime) const BUSY_PERMILLE: usize = 400;
/// How often the load of each connection is counted.
const COUNT_LOAD: Duration = Duration::from_millis(100);
/// After a count so many turns look whether theirs is to go to another loop.
const EVEN_OUT_TRIALS: u32 = 16;

/// How much a connection loads its loop.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Load {
    /// It has called for files lately, and its load is counted.
    busy: bool,
    /// While it is busy: the share that its turns take of the loop's time, in thousandths, and
    /// [`BUSY_PERMILLE`].
    permille: usize,
    /// The time that its turns have taken since that was counted.
    worked: Duration,
    /// Bytes that this turn has received and sent.
    turn_bytes: usize,
    /// The mean of its last turns, the newest most.
    turn_bytes_mean: usize,
    /// When it last had a turn that moved something.
    turn_at: Duration,
    /// When it came to this loop from another one.
    arrived: Option<Duration>,
}

impl Load {
    pub const fn is_busy(&self) -> bool {
        self.busy
    }

    pub const fn permille(&self) -> usize {
        self.permille
    }

    /// It calls for files. Returns its load until that is counted.
    pub const fn begin(&mut self) -> usize {
        (self.busy, self.worked, self.permille) = (true, Duration::ZERO, BUSY_PERMILLE);
        self.permille
    }

    /// This turn has received or sent so many bytes.
    pub const fn moved(&mut self, bytes: usize) {
        self.turn_bytes += bytes;
    }

    /// Ends a turn that took so long; tells whether its turns are light, and somebody waits for one
    /// after the other.
    pub fn end_turn(&mut self, took: Duration, now: Duration) -> bool {
        self.worked += took;
        let bytes = std::mem::take(&mut self.turn_bytes);
        if bytes > 0 {
            let mean = if self.turn_bytes_mean == 0 { bytes } else { self.turn_bytes_mean };
            self.turn_bytes_mean = (3 * mean + bytes) / 4;
        }
        let last = if bytes > 0 { std::mem::replace(&mut self.turn_at, now) } else { Duration::ZERO };
        self.busy && self.turn_bytes_mean < LIGHT_TURN_BYTES && now < last + LIGHT_APART
    }

    /// Counts it over the time since that was done last. A connection that is idle and has had no
    /// turn is not busy any more.
    pub fn count(&mut self, over: Duration, is_idle: bool) {
        let worked = std::mem::take(&mut self.worked);
        if is_idle && worked.is_zero() {
            self.busy = false;
        } else if !over.is_zero() {
            let permille = worked.as_nanos() * 1000 / over.as_nanos();
            self.permille = BUSY_PERMILLE + usize::try_from(permille).unwrap_or(1000).min(1000);
        }
    }

    /// What it did on another loop does not count on this one.
    pub const fn arrive(&mut self, now: Duration) {
        (self.worked, self.arrived) = (Duration::ZERO, Some(now));
    }

    /// Whether it is long enough here for its load to be known.
    fn is_known(&self, now: Duration) -> bool {
        self.arrived.is_none_or(|then| then + COUNT_LOAD <= now)
    }
}

/// What a loop does to have as much to do as others.
#[derive(Debug)]
pub(in crate::runtime) struct Balance {
    /// Since when connections' load has been counted.
    since: Duration,
    /// So many more turns look whether another loop has less to do.
    trials_left: u32,
}

impl Balance {
    pub const fn new(now: Duration) -> Self {
        Self { since: now, trials_left: 0 }
    }

    pub fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= COUNT_LOAD
    }

    pub const fn is_trying(&self) -> bool {
        self.trials_left > 0
    }
}

impl EventLoop {
    /// A connection has something to say that was not busy. If it calls for files, it is from now
    /// on: here, or on a loop that has less to do. So clients that work share the loops evenly,
    /// wherever they were when they were idle, and a client that only mounts takes nobody's place.
    /// Says whether it went.
    pub(in crate::runtime) fn move_on(&mut self, key: usize) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if !connection.calls_for_files() {
            return false;
        }
        let load = connection.load.begin();
        let place = self.take_place(key, load, 0);
        match place {
            Some(place) => self.move_to(place, key),
            None => self.peers.add_load(self.index, load),
        }
        place.is_some()
    }

    /// A connection has had its turn, and nothing of it is here: it goes to a loop that has less to
    /// do even then. Only one does after each count: what the others are worth is counted again
    /// before the next.
    pub(in crate::runtime) fn even_out(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        let load = &connection.load;
        if !load.is_busy() || !load.is_known(self.alive) || !self.may_move(connection) {
            return;
        }
        let permille = load.permille();
        self.balance.trials_left = self.balance.trials_left.saturating_sub(1);
        if let Some(place) = self.take_place(key, permille, permille) {
            self.balance.trials_left = 0;
            self.move_to(place, key);
        }
    }

    /// A place on another loop for a connection with so much load, of which so much is counted
    /// here, if it may move and is better off there.
    fn take_place(&self, key: usize, permille: usize, counted: usize) -> Option<usize> {
        let connection = self.connections.get(key).filter(|connection| self.may_move(connection))?;
        let comes_in_on = || connection.socket().and_then(|socket| socket_incoming_cpu(socket).ok());
        self.peers.take_place_from(self.index, permille, counted, self.connections_max(), comes_in_on)
    }

    fn may_move(&self, connection: &Connection) -> bool {
        self.deadline.is_none() && connection.may_move()
    }

    /// Counts again how much each connection loads the loop, and tells where it runs.
    pub(in crate::runtime) fn count_load(&mut self, now: Duration) {
        let over = now.saturating_sub(self.balance.since);
        self.balance.since = now;
        self.balance.trials_left = 0;
        if self.peers.load(self.index) == 0 {
            // No connection is busy.
            return;
        }
        self.peers.tell_place(self.index, processor());
        let mut busy = 0;
        for (_, connection) in &mut self.connections {
            if !connection.load.is_busy() {
                continue;
            }
            let before = connection.load.permille();
            connection.count_load(over, now);
            if connection.load.is_busy() {
                self.peers.add_load(self.index, connection.load.permille());
                busy += 1;
            }
            self.peers.take_load(self.index, before);
        }
        self.balance.trials_left = if busy > 1 { EVEN_OUT_TRIALS } else { 0 };
    }

    /// A loop without connections may have slept for any time.
    pub(in crate::runtime) fn begin_to_count(&mut self) {
        if self.connections.is_empty() {
            self.balance.since = self.alive;
        }
    }

    /// Gives a connection to the loop where a place was taken for it.
    fn move_to(&mut self, place: usize, key: usize) {
        let connection = self.connections.remove(key);
        if let Some(socket) = connection.socket() {
            let _ = self.poller.remove(socket);
        }
        self.held = self.held.saturating_sub(connection.held);
        self.statistics.moved += 1;
        let moving = Moving { connection: Box::new(connection), since: self.alive };
        self.peers.send(place, Message::Moved(moving));
    }

    /// Goes on with a connection that another loop had, and serves the call that it may have come
    /// with.
    pub(in crate::runtime) fn take_over(&mut self, moving: Moving) {
        let Moving { connection, since } = moving;
        self.begin_to_count();
        let mut connection = *connection;
        let node = connection.client.node;
        connection.arrive(&self.group, self.alive);
        connection.draining = self.deadline.is_some();
        self.held = self.held.saturating_add(connection.held);
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        connection.interest = Interest::READ;
        let registered = connection.register(&self.poller, key as u64);
        entry.insert(connection);
        let waited = clock::now().saturating_sub(since);
        if let Err(error) = registered {
            self.close(key, Close::System(error));
        } else if self.group.nodes.get(node).is_some_and(Node::is_stopped) {
            self.close(key, Close::NodeStopped);
        } else if waited > self.stall_max() {
            // Its client has moved the call elsewhere meanwhile.
            self.statistics.stalls += 1;
            tracing::warn!(index = self.index, ?waited, "a connection from another loop is reset unexecuted");
            self.close(key, Close::Stalled);
        } else {
            self.serve(key);
        }
    }
}

#[cfg(test)]
impl EventLoop {
    /// What comes after the first turn after a count.
    pub(in crate::runtime) fn try_to_move(&mut self, key: usize) {
        self.balance.trials_left = EVEN_OUT_TRIALS;
        self.even_out(key);
        self.balance.trials_left = 0;
    }
}

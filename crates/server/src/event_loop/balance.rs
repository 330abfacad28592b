//! Where connections live: how much each loads its loop, and when it goes to another.
//!
//! A connection is busy from its first call for files on until it has been idle for a while. When it becomes busy it
//! goes to the loop with the least to do; ten times a second loops count how much of their time each busy one takes, and
//! one that has more to do than another hands a connection on between two of its turns. Of two loops that have no time
//! left, the one with fewer connections has more for another.

use super::EventLoop;
use super::connection::Close;
use super::messages::{Message, Moving};
use crate::clock;
use crate::group::Node;
use std::time::Duration;
use transport::poll::Interest;

/// A connection whose turns move less than this is a light one: 4 KiB at a depth of 8 is,
const LIGHT_TURN_BYTES: usize = 48 << 10;
/// if they are less than this apart. Others of its loop have short turns for as long after each of them.
pub(super) const LIGHT_APART: Duration = Duration::from_millis(20);
/// What a busy connection loads its loop by, in thousandths of the loop's time, besides the time that its turns take: of two
/// loops that have no time left, the one with fewer connections has more for another.
pub(super) const BUSY_PERMILLE: usize = 400;
/// How often it is counted anew how much each connection loads its loop.
pub(super) const COUNT_LOAD: Duration = Duration::from_millis(100);
/// After that so many turns look whether theirs is to go to another loop.
const EVEN_OUT_TRIALS: u32 = 16;

/// How much a connection loads its loop.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// It has called for files lately, and its load is counted.
    busy: bool,
    /// While it is busy: the share that its turns take of the loop's time, in thousandths, and [`BUSY_PERMILLE`].
    permille: usize,
    /// The time that its turns have taken since that was counted.
    worked: Duration,
    /// Bytes that this turn has received and sent.
    turn_bytes: usize,
    /// The mean of its last turns, the newest most.
    turn_bytes_mean: usize,
    /// When it last had a turn that moved something.
    turn_at: Duration,
}

impl Load {
    pub const fn is_busy(&self) -> bool {
        self.busy
    }

    pub const fn permille(&self) -> usize {
        self.permille
    }

    /// It calls for files. Returns its load until that is counted.
    pub fn begin(&mut self) -> usize {
        (self.busy, self.worked, self.permille) = (true, Duration::ZERO, BUSY_PERMILLE);
        self.permille
    }

    /// This turn has received or sent so many bytes.
    pub const fn moved(&mut self, bytes: usize) {
        self.turn_bytes += bytes;
    }

    /// Ends a turn that took so long; tells whether its turns are light, and somebody waits for one after the other.
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

    /// Counts it over the time since that was done last. Whoever is idle and has had no turn is not busy any more.
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
    pub const fn forget_work(&mut self) {
        self.worked = Duration::ZERO;
    }
}

impl EventLoop {
    /// A connection has something to say that was not busy. If it calls for files, it is from now on: here, or on a loop
    /// that has less to do. So clients that work share the loops evenly, wherever they were when they were idle,
    /// and whoever only mounts takes nobody's place. Says whether it went.
    pub(super) fn move_on(&mut self, key: usize) -> bool {
        let bound = self.connections_max();
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if !connection.calls_for_files() {
            return false;
        }
        let load = connection.load.begin();
        let may_move = self.deadline.is_none() && connection.may_move();
        let place = may_move.then(|| self.peers.take_place_from(self.index, load, 0, bound)).flatten();
        match place {
            Some(place) => self.move_to(place, key),
            None => self.peers.add_load(self.index, load),
        }
        place.is_some()
    }

    /// A connection that has had its turn, and of which nothing is here, goes to another loop if that has less to do even
    /// then. Only one of them: what the others are worth is counted anew before the next.
    pub(super) fn even_out(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        let load = connection.load.permille();
        if !connection.load.is_busy() || self.deadline.is_some() || !connection.may_move() {
            return;
        }
        self.trials_left -= 1;
        let bound = self.connections_max();
        if let Some(place) = self.peers.take_place_from(self.index, load, load, bound) {
            self.trials_left = 0;
            self.move_to(place, key);
        }
    }

    /// Counts anew how much each connection loads the loop.
    pub(super) fn count_load(&mut self, now: Duration) {
        let over = now.saturating_sub(self.load_since);
        self.load_since = now;
        if self.peers.load(self.index) == 0 {
            // Nobody is busy.
            return;
        }
        let mut busy = 0;
        for (_, connection) in self.connections.iter_mut().filter(|(_, connection)| connection.load.is_busy())
        {
            let before = connection.load.permille();
            connection.count_load(over, now);
            if connection.load.is_busy() {
                self.peers.add_load(self.index, connection.load.permille());
                busy += 1;
            }
            self.peers.take_load(self.index, before);
        }
        self.trials_left = if busy > 1 { EVEN_OUT_TRIALS } else { 0 };
    }

    /// A loop without connections may have slept for any time.
    pub(super) fn begin_to_count(&mut self) {
        if self.connections.is_empty() {
            self.load_since = self.alive;
        }
    }

    /// Gives a connection to the loop where a place was taken for it.
    fn move_to(&mut self, place: usize, key: usize) {
        let connection = self.connections.remove(key);
        if let Some(socket) = connection.socket() {
            let _ = self.poller.remove(socket);
        }
        self.held = self.held.saturating_sub(connection.held);
        let moving = Moving { connection: Box::new(connection), since: self.alive };
        self.peers.send(place, Message::Moved(moving));
    }

    /// Goes on with a connection that another loop had, and serves the call that it may have come with.
    pub(super) fn take_over(&mut self, moving: Moving) {
        let Moving { connection, since } = moving;
        self.begin_to_count();
        let mut connection = *connection;
        let node = connection.client.node;
        connection.arrive(&self.group);
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

//! Where connections live: how much each loads its loop, and when it goes to another.
//!
//! A connection is busy from its first call for files on until it has been idle for a while. When it becomes busy it
//! goes to the loop with the least to do; ten times a second, and more often after one has become busy, loops count how
//! much of their time each takes, and one that has more to do than another hands a connection on between two of its turns.
//! Of two loops that have no time left, the one with fewer connections has more for another.
//!
//! Where loops have as much to do, a connection goes home, in exchange for another if need be: to the loop that runs on the
//! processor where packets of its client come in, as what one processor has received another one would have to fetch from it.
//! Of our own clients on this machine, which tell their loops apart, each loop's connections go to one of ours: a client's
//! thread and a loop that serve each other alone are put on one processor by the scheduler, where neither waits for the other
//! to be woken elsewhere, and that is not to be seen from where packets come in before it is so.

use super::EventLoop;
use crate::clock;
use crate::group::Node;
use crate::runtime::connection::{Close, Connection};
use crate::runtime::mailbox::{Message, Moving, Offer, Peers};
use rustix::net::sockopt::socket_incoming_cpu;
use std::collections::VecDeque;
use std::time::Duration;
use transport::poll::Interest;
use transport::threads::{Hops, hop_to, processor};

/// A connection whose turns move less than this is a light one: 4 KiB at a depth of 8 is,
const LIGHT_TURN_BYTES: usize = 48 << 10;
/// if they are less than this apart. Others of its loop have short turns for as long after each of them.
pub(in crate::runtime) const LIGHT_APART: Duration = Duration::from_millis(20);
/// What a busy connection loads its loop by, in thousandths of the loop's time, besides the time that its turns take: of two
/// loops that have no time left, the one with fewer connections has more for another.
pub(in crate::runtime) const BUSY_PERMILLE: usize = 400;
/// How often it is counted anew how much each connection loads its loop.
const COUNT_LOAD: Duration = Duration::from_millis(100);
/// But not more often than this for each that is busy: looking at one takes the system less than a hundredth of it.
const COUNT_EACH: Duration = Duration::from_micros(100);
/// After a count so many turns look whether theirs is to go to another loop.
const EVEN_OUT_TRIALS: u32 = 16;
/// For so long after it only those that are at home elsewhere go.
const HOMELESS_FIRST: Duration = Duration::from_millis(10);
/// After one has become busy it is counted this often,
const COUNT_SOON: Duration = Duration::from_millis(20);
/// so many times, to bring each home soon.
const SOON_COUNTS: u32 = 10;
/// A connection that went home goes to no other home for so long, wherever threads are put meanwhile.
const HOME_FOR: Duration = Duration::from_secs(1);

/// A processor, once it was found twice in a row.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Debounced(Option<u32>);

impl Debounced {
    fn find(&mut self, processor: Option<u32>) -> Option<u32> {
        let before = std::mem::replace(&mut self.0, processor);
        processor.filter(|_| before == processor)
    }
}

/// How much a connection loads its loop.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Load {
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
    /// Where packets of its client come in.
    comes_on: Debounced,
    /// The loop that it is at home on, if that is another one.
    home: Option<usize>,
    /// That had no place for it when it last asked.
    was_refused: bool,
    /// When it last went home.
    went_home: Option<Duration>,
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
    pub fn begin(&mut self) -> usize {
        (self.busy, self.worked, self.permille) = (true, Duration::ZERO, BUSY_PERMILLE);
        (self.comes_on, self.home) = (Debounced::default(), None);
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

    /// What it did on another loop does not count on this one, nor where that runs.
    pub const fn arrive(&mut self, now: Duration) {
        (self.worked, self.home, self.arrived) = (Duration::ZERO, None, Some(now));
    }

    /// Whether it has become busy and was not counted since.
    const fn is_new(&self) -> bool {
        self.comes_on.0.is_none()
    }

    /// It is on the loop `here`, and at home on this one.
    fn set_home(&mut self, home: Option<usize>, here: usize, now: Duration) {
        let rests = self.went_home.is_some_and(|then| now < then + HOME_FOR);
        self.home = home.filter(|home| *home != here && !rests);
        self.was_refused = false;
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
    /// So many were busy then.
    busy: u32,
    /// Who was offered last.
    offered: usize,
    /// Those that are at home on another loop and were not offered since it was counted.
    homeless: VecDeque<usize>,
    /// It is counted soon so many more times.
    soon_left: u32,
    /// So many more turns look whether another loop has less to do.
    trials_left: u32,
    /// Some connection was at home on another loop.
    has_homeless: bool,
    /// It has taken a connection for one that could not be given back; until then it offers none.
    owes_until: Duration,
    /// On which processor the loop runs.
    runs_on: Debounced,
    /// Where packets of all of its clients come in.
    hears_from: Debounced,
    hops: Hops,
}

impl Balance {
    pub fn new(now: Duration) -> Self {
        Self {
            since: now,
            busy: 0,
            offered: 0,
            homeless: VecDeque::new(),
            soon_left: 0,
            trials_left: 0,
            has_homeless: false,
            owes_until: Duration::ZERO,
            runs_on: Debounced::default(),
            hears_from: Debounced::default(),
            hops: Hops::default(),
        }
    }

    pub fn is_due(&self, now: Duration) -> bool {
        let apart = if self.soon_left > 0 { COUNT_SOON } else { COUNT_LOAD };
        now.saturating_sub(self.since) >= apart.max(COUNT_EACH * self.busy)
    }

    pub const fn is_trying(&self) -> bool {
        self.trials_left > 0 || self.has_homeless
    }
}

/// The loop that a connection is at home on, and where its packets come in if a loop of our own client on this machine sends
/// them. The one that counts it runs on the processor `runs_on`.
fn find_home(
    connection: &mut Connection,
    peers: &Peers,
    runs_on: Option<u32>,
) -> (Option<usize>, Option<u32>) {
    let Some(socket) = connection.socket().filter(|_| peers.len() > 1) else { return (None, None) };
    let comes_on = socket_incoming_cpu(socket).ok();
    let steady = connection.load.comes_on.find(comes_on);
    if let Some(number) = connection.client.local_loop() {
        return (usize::try_from(number % peers.len() as u64).ok(), comes_on);
    }
    // Where the loop runs that counts it, it is at home already.
    let elsewhere = steady.filter(|processor| runs_on.is_some_and(|own| own != *processor));
    (elsewhere.and_then(|processor| peers.loop_on(processor)), None)
}

impl EventLoop {
    /// A connection has something to say that was not busy. If it calls for files, it is from now on: here, or on a loop
    /// that has less to do. So clients that work share the loops evenly, wherever they were when they were idle,
    /// and whoever only mounts takes nobody's place. Says whether it went.
    pub(in crate::runtime) fn move_on(&mut self, key: usize) -> bool {
        let bound = self.connections_max();
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if !connection.calls_for_files() {
            return false;
        }
        let load = connection.load.begin();
        let may_move = self.deadline.is_none() && connection.may_move();
        let place = may_move.then(|| self.peers.take_place_from(self.index, load, 0, bound)).flatten();
        match place {
            Some(place) => self.move_to(place, key, None),
            None => {
                self.balance.soon_left = SOON_COUNTS;
                self.peers.add_load(self.index, load);
            }
        }
        place.is_some()
    }

    /// A connection that has had its turn, and of which nothing is here, goes home if another loop is that, or to a loop that
    /// has less to do even then. Of the latter only one: what the others are worth is counted anew before the next.
    pub(in crate::runtime) fn even_out(&mut self, key: usize) {
        let bound = self.connections_max();
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !connection.load.is_busy() || self.deadline.is_some() || !connection.may_move() {
            return;
        }
        let load = connection.load.permille();
        let was_refused = connection.load.was_refused;
        let asks = |home: &usize| !was_refused || self.peers.would_exchange(self.index, *home, load);
        if let Some(home) = connection.load.home.filter(asks) {
            if let Some(exchange) = self.peers.take_place_at_home(self.index, home, load, bound) {
                if exchange.is_none() {
                    self.balance.trials_left = 0;
                }
                self.move_home(home, key, exchange);
                self.offer_again();
                return;
            }
            connection.load.was_refused = true;
        }
        // For a moment after a count whoever is not at home here comes first.
        let waits = self.balance.has_homeless && self.alive < self.balance.since + HOMELESS_FIRST;
        if waits || !connection.load.is_known(self.alive) || self.balance.trials_left == 0 {
            return;
        }
        self.balance.trials_left -= 1;
        if let Some(place) = self.peers.take_place_from(self.index, load, load, bound) {
            self.balance.trials_left = 0;
            self.move_to(place, key, None);
        }
    }

    /// Gives a connection to the loop that it is at home on, which gives back what it has offered, if it has.
    fn move_home(&mut self, home: usize, key: usize, exchange: Option<Offer>) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.load.went_home = Some(self.alive);
        }
        if exchange.is_none() {
            self.balance.owes_until = Duration::ZERO;
        }
        self.move_to(home, key, exchange);
    }

    /// Another loop gave a connection for what was offered, which is at home there.
    fn give_back(&mut self, offer: Offer) {
        let Offer { home, permille } = offer;
        if self.peers.load(self.index) <= self.peers.load(home) {
            // One of here has gone there meanwhile.
            return;
        }
        let mut found = None;
        if self.deadline.is_none() && self.peers.connections(home) < self.connections_max() {
            let all = self.connections.iter().map(|(key, connection)| (key, connection, &connection.load));
            let all = all.filter(|(_, connection, load)| {
                load.is_busy() && load.home == Some(home) && connection.may_move()
            });
            let all = all.map(|(key, _, load)| (key, load.permille()));
            found = all.min_by_key(|(_, load)| load.abs_diff(permille));
        }
        if let Some((key, load)) = found {
            self.peers.hand_over(self.index, home, load);
            self.move_home(home, key, None);
            self.offer_again();
        } else {
            // It goes as soon as it may, if there still is one.
            self.balance.owes_until = self.alive + HOME_FOR;
            (self.balance.trials_left, self.balance.has_homeless) = (EVEN_OUT_TRIALS, true);
        }
    }

    /// Counts anew how much each connection loads the loop, and where packets of its client come in.
    pub(in crate::runtime) fn count_load(&mut self, now: Duration) {
        let over = now.saturating_sub(self.balance.since);
        self.balance.since = now;
        self.balance.soon_left = self.balance.soon_left.saturating_sub(1);
        if self.peers.load(self.index) == 0 {
            // Nobody is busy.
            (self.balance.busy, self.balance.trials_left, self.balance.has_homeless) = (0, 0, false);
            (self.balance.runs_on, self.balance.hears_from) = Default::default();
            self.peers.tell_place(self.index, None, None);
            self.peers.offer(self.index, None);
            return;
        }
        let runs_on = self.balance.runs_on.find(processor());
        self.balance.homeless.clear();
        let (mut busy, mut hears_from) = (0, None);
        for (key, connection) in self.connections.iter_mut() {
            if !connection.load.is_busy() {
                continue;
            }
            let before = connection.load.permille();
            connection.count_load(over, now);
            if connection.load.is_busy() {
                let (home, local_from) = find_home(connection, &self.peers, runs_on);
                hears_from =
                    if busy == 0 { local_from } else { hears_from.filter(|_| hears_from == local_from) };
                connection.load.set_home(home, self.index, now);
                if connection.load.home.is_some() {
                    self.balance.homeless.push_back(key);
                }
                self.peers.add_load(self.index, connection.load.permille());
                busy += 1;
            }
            self.peers.take_load(self.index, before);
        }
        self.balance.has_homeless = !self.balance.homeless.is_empty();
        self.balance.busy = busy;
        self.balance.trials_left = if busy > 1 { EVEN_OUT_TRIALS } else { 0 };
        let hears_from = self.balance.hears_from.find(hears_from);
        self.peers.tell_place(self.index, runs_on, hears_from);
        if let (Some(here), Some(there)) = (runs_on, hears_from) {
            self.settle_down(here, there);
        }
        // Each that is at home elsewhere is offered in its turn.
        let next = self.balance.homeless.partition_point(|key| *key <= self.balance.offered);
        self.balance.homeless.rotate_left(next);
        self.offer_next();
    }

    /// Where its clients' packets come in is where they run: all are on this machine, and wait for it alone. It goes there if
    /// another loop is to have this place; the scheduler leaves them apart as long as nobody sleeps.
    fn settle_down(&mut self, here: u32, there: u32) {
        if here == there {
            self.balance.hops.settled(self.alive);
        } else if self.peers.belongs_there(self.index, here, there) && self.balance.hops.take_hop(self.alive)
        {
            match hop_to(there) {
                Ok(()) => self.balance.runs_on = Debounced::default(),
                // It may be bound to others.
                Err(error) => {
                    tracing::debug!(index = self.index, processor = there, %error, "a loop stays where it is");
                }
            }
        }
    }

    /// A connection has gone home: the one that was offered, if it is still here, or the next.
    fn offer_again(&mut self) {
        self.balance.homeless.push_front(self.balance.offered);
        self.offer_next();
    }

    /// Offers the next connection that is at home on another loop.
    fn offer_next(&mut self) {
        let mut offer = None;
        while offer.is_none()
            && self.alive >= self.balance.owes_until
            && let Some(key) = self.balance.homeless.pop_front()
        {
            if let Some(Connection { load, .. }) = self.connections.get(key)
                && load.is_busy()
            {
                offer = load.home.map(|home| Offer { home, permille: load.permille() });
                self.balance.offered = key;
            }
        }
        self.peers.offer(self.index, offer);
    }

    /// A loop without connections may have slept for any time.
    pub(in crate::runtime) fn begin_to_count(&mut self) {
        if self.connections.is_empty() {
            self.balance.since = self.alive;
        }
    }

    /// Gives a connection to the loop where a place was taken for it.
    fn move_to(&mut self, place: usize, key: usize, exchange: Option<Offer>) {
        let connection = self.connections.remove(key);
        if let Some(socket) = connection.socket() {
            let _ = self.poller.remove(socket);
        }
        self.held = self.held.saturating_sub(connection.held);
        self.statistics.moved += 1;
        self.miss(&connection);
        let moving = Moving { connection: Box::new(connection), since: self.alive, exchange };
        self.peers.send(place, Message::Moved(moving));
    }

    /// One of its connections is gone: it is not offered any more, and a loop without any may sleep for any time.
    pub(in crate::runtime) fn miss(&self, connection: &Connection) {
        if self.connections.is_empty() {
            self.peers.tell_place(self.index, None, None);
        }
        if connection.load.home.is_some() {
            self.peers.offer(self.index, None);
        }
    }

    /// Goes on with a connection that another loop had, and serves the call that it may have come with.
    pub(in crate::runtime) fn take_over(&mut self, moving: Moving) {
        let Moving { connection, since, exchange } = moving;
        self.begin_to_count();
        let mut connection = *connection;
        let node = connection.client.node;
        let is_new = connection.load.is_new();
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
        if is_new {
            self.balance.soon_left = SOON_COUNTS;
        }
        if let Some(offer) = exchange {
            self.give_back(offer);
        }
    }
}

#[cfg(test)]
impl Load {
    pub const fn is_at_home_on(&mut self, home: Option<usize>) {
        self.home = home;
    }
}

#[cfg(test)]
impl EventLoop {
    /// What comes after the first turn after a count.
    pub(in crate::runtime) fn try_to_move(&mut self, key: usize) {
        self.balance.since = self.alive;
        self.try_to_even_out(key);
    }

    /// What comes after a turn later on.
    pub(in crate::runtime) fn try_to_even_out(&mut self, key: usize) {
        (self.balance.trials_left, self.balance.has_homeless) = (EVEN_OUT_TRIALS, true);
        self.even_out(key);
        self.balance.trials_left = 0;
    }

    /// Counts, and then only those move that are at home elsewhere.
    pub(in crate::runtime) fn count_homeless(&mut self) {
        self.count_load(self.alive);
        self.balance.trials_left = 0;
    }

    pub(in crate::runtime) fn owes(&self) -> bool {
        self.alive < self.balance.owes_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_counts_once_it_was_found_twice() {
        let mut steady = Debounced::default();
        let found = [Some(7), Some(7), Some(6), Some(7), Some(7), None, None].map(|found| steady.find(found));
        assert_eq!(found, [None, Some(7), None, None, Some(7), None, None]);
    }

    #[test]
    fn whoever_went_home_stays_there_for_a_while() {
        let mut load = Load::default();
        load.set_home(Some(3), 0, COUNT_LOAD);
        assert_eq!(load.home, Some(3));
        load.set_home(Some(0), 0, COUNT_LOAD);
        assert_eq!(load.home, None, "it is there");
        load.went_home = Some(COUNT_LOAD);
        load.set_home(Some(3), 0, HOME_FOR);
        assert_eq!(load.home, None);
        load.set_home(Some(3), 0, HOME_FOR + COUNT_LOAD);
        assert_eq!(load.home, Some(3));
        load.begin();
        assert_eq!(load.home, None, "it was idle meanwhile");
    }
}

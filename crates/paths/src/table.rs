//! The table of one loop: its connections, the paths they are on, and who takes the next call.
//!
//! This file has the data and the warm path ([`Table::pick`], [`Table::sent`],
//! [`Table::answered`]), which neither allocates nor looks at a timer; `health` has what happens
//! when something breaks or comes back, `failover` the way to foreign paths and home again, `leave`
//! how files leave a slow home.
//!
//! Sets of connections are bits ([`set`]); what `pick` reads of each connection lies together.

mod failover;
mod health;
mod leave;
mod set;
#[cfg(test)]
mod tests;

use crate::silence::SilenceEstimator;
use crate::status::{Latency, PathStatus, SIZES, size_of};
use crate::{Class, Config, ConnId, NodeId, Output, PathId, State, Timing};
use leave::Residence;
use set::{Set, WORDS};
use std::collections::VecDeque;
use std::time::Duration;

/// Connections of one table: `nconnect` and `mdconnect` together never exceed it, and it is the
/// width of the bit sets.
pub const CONNECTIONS_MAX: usize = 256;
/// What is outstanding in the other direction counts by this part: it shares the processors, not
/// the link.
const OTHER_DIRECTION: u64 = 8;

/// Which way the bytes of a call go: 1 away from us.
const fn direction(class: Class) -> usize {
    match class {
        Class::Read | Class::Metadata => 0,
        Class::Write => 1,
    }
}

/// A call loads its connection by this much more than its payload: an answer costs a server about
/// as much as moving a few KiB, and calls without payload must count too.
const CALL_COST: u64 = 4 << 10;
/// One pick in so many ignores how slow a path has been, and among equals takes the slow one, so
/// that a path that has become quick is noticed.
const EXPLORE_EVERY: u32 = 64;
/// Weights are in sixteenths.
const WEIGHT_ONE: u64 = 16;
/// A path counts as slow from twice the latency of the quickest on; this bounds how far it is
/// avoided.
const WEIGHT_MAX: u64 = 8 * WEIGHT_ONE;

/// Whether a connection can carry calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    /// Not connected; waits for a path.
    Idle,
    /// The driver is connecting it, until then.
    Connecting { until: Duration },
    /// Broken while its path lives; will be connected then.
    Waiting { until: Duration },
    /// Connected.
    Live { since: Duration },
}

#[derive(Debug)]
struct Conn {
    link: Link,
    /// The path it belongs on.
    preferred: PathId,
    /// The path that the driver was last told.
    path: PathId,
    last_alive: Duration,
    /// Its calls are overdue.
    silent: bool,
    /// How much of its silence is the driver's, which did not run.
    excused: Duration,
    /// Since when it is connecting or, once the other end's system has accepted it, proving itself.
    connecting_since: Duration,
    /// The other end's system has accepted it.
    reached: bool,
    /// It left a live connection abroad for this attempt.
    returns: bool,
    /// Takes no new calls, because it is about to go home; until then.
    draining: Option<Duration>,
    attempts: u32,
}

#[derive(Debug)]
struct Path {
    node: NodeId,
    status: PathStatus,
    /// The connections that are on it now.
    members: Set,
    /// How many those are.
    sharers: u32,
    /// Some connection of this table belongs here.
    owned: bool,
    latency: Latency,
    last_alive: Duration,
    /// The silences that it has come back from.
    silence: SilenceEstimator,
    /// How long it took of late until the other end's system had accepted a connection.
    making: Duration,
    /// When the probe under way was sent, and how long it has.
    probe_sent: Option<Duration>,
    probe_until: Duration,
    /// When the other end's system accepted the last probe.
    probe_reached: Option<Duration>,
    /// Connects that were accepted and not proved in time, one after the other.
    unproved: u32,
    /// Down: when to try again. Suspect: when to send the next probe.
    retry_at: Option<Duration>,
    attempts: u32,
    /// A flapping path stays down until then, if there is any other; so does a home that could not
    /// prove itself.
    hold_until: Duration,
    hold: Duration,
    /// How long it was held when a connection last came home for nothing; forgotten as soon as it
    /// proves itself, which the hold of a flapping path is not.
    return_hold: Duration,
    /// Since when it is up again after it had been down.
    returned_at: Option<Duration>,
    /// It answered a probe while down: failed-over connections may come home.
    ready: bool,
    ramp_since: Option<Duration>,
    /// Since when it has been silent, as far as its suspicion goes.
    silent_since: Duration,
    /// Whether files whose home it is are there, by the size of their calls.
    residence: [Residence; SIZES],
}

/// Which connection takes the next call, and what is to be done about those that take none.
///
/// The driver reports what happens with `now`, the time since a start of its choice that never runs
/// backwards, and drains [`Table::poll_output`] after each report but the warm ones
/// ([`Table::sent`] and [`Table::pick`] never cause outputs). Between reports it calls
/// [`Table::tick`] for each connection about every [`crate::timing::TICK`] and [`Table::advance`]
/// at [`Table::next_wake`].
///
/// Calls for which `pick` finds nothing wait with the driver, which tries again after any
/// [`Table::connected`]; connects go on until one succeeds.
#[derive(Debug)]
pub struct Table {
    /// Connections that may take calls: of paths that are up, and the others.
    up: Set,
    suspect: Set,
    /// Connections on paths that ramp up, and those of them that carry all they may for now.
    ramping: Set,
    full: Set,
    /// Connections on paths that files have left, by the size of calls, and those of them that are
    /// being tried.
    left: [Set; SIZES],
    tried: [Set; SIZES],
    /// Connections by class: metadata, and reads and writes.
    metadata: Set,
    bulk: Set,
    spread_reads: bool,
    spread_writes: bool,
    last: ConnId,
    turn: u32,
    /// Outstanding bytes and calls of each connection, and how slow its path is ([`WEIGHT_ONE`] is
    /// not slow). Bytes outstanding in each direction: towards us, and away from us. A link carries
    /// both at once.
    load: [[u64; 2]; CONNECTIONS_MAX],
    calls: [u32; CONNECTIONS_MAX],
    weight: [u64; CONNECTIONS_MAX],
    /// What the slow are held against, as of the last tick: found once for all connections that
    /// tick together.
    quickest: [u64; SIZES],
    quickest_at: Option<Duration>,
    by_node: Vec<Set>,
    conns: Vec<Conn>,
    paths: Vec<Path>,
    outputs: VecDeque<Output>,
    timing: Timing,
    random: u64,
    wake: Option<Duration>,
    /// Where the search for a foreign path goes on, and when.
    failover_next: usize,
    failover_at: Option<Duration>,
    /// When connections may try again to go home.
    return_at: Duration,
}

impl Table {
    /// Starts with an [`Output::Connect`] for each connection.
    ///
    /// # Panics
    ///
    /// When there are no connections, or more than [`CONNECTIONS_MAX`], or one is on a path that is
    /// not in the list: mistakes of the caller, which checked its options before.
    #[must_use]
    pub fn new(config: Config, now: Duration) -> Self {
        let count = config.connections.len();
        assert!((1..=CONNECTIONS_MAX).contains(&count), "{count} connections in one table");
        let nodes = config.paths.iter().map(|path| usize::from(path.node.0) + 1).max().unwrap_or(0);
        let mut table = Self {
            up: Set::EMPTY,
            suspect: Set::EMPTY,
            ramping: Set::EMPTY,
            full: Set::EMPTY,
            left: [Set::EMPTY; SIZES],
            tried: [Set::EMPTY; SIZES],
            metadata: Set::EMPTY,
            bulk: Set::EMPTY,
            spread_reads: config.spread_reads,
            spread_writes: config.spread_writes,
            last: ConnId(0),
            turn: 0,
            load: [[0; 2]; CONNECTIONS_MAX],
            calls: [0; CONNECTIONS_MAX],
            weight: [WEIGHT_ONE; CONNECTIONS_MAX],
            quickest: [u64::MAX; SIZES],
            quickest_at: None,
            by_node: vec![Set::EMPTY; nodes],
            conns: Vec::with_capacity(count),
            paths: config.paths.iter().map(|spec| Path::new(spec.node, now)).collect(),
            outputs: VecDeque::with_capacity(4 * count + 16),
            timing: config.timing,
            random: config.seed ^ 0x9e37_79b9_7f4a_7c15,
            wake: None,
            failover_next: 0,
            failover_at: None,
            return_at: now,
        };
        table.failover_next = (table.random() % config.paths.len().max(1) as u64) as usize;
        for (index, spec) in config.connections.iter().enumerate() {
            let conn = ConnId(index as u16);
            assert!(usize::from(spec.path.0) < table.paths.len(), "{:?} is not in the list", spec.path);
            if !config.metadata_apart || spec.metadata {
                table.metadata |= conn;
            }
            if !config.metadata_apart || !spec.metadata {
                table.bulk |= conn;
            }
            table.conns.push(Conn {
                link: Link::Idle,
                preferred: spec.path,
                path: spec.path,
                last_alive: now,
                silent: false,
                excused: Duration::ZERO,
                connecting_since: now,
                reached: false,
                returns: false,
                draining: None,
                attempts: 0,
            });
            table.path_mut(spec.path).owned = true;
            table.enter(conn, spec.path);
            table.connect(conn, spec.path, now);
        }
        table.rearm();
        table
    }

    /// The connection for the next call, or none while nothing is connected.
    ///
    /// Least outstanding bytes wins, ties go round. Connections of paths that are up come before
    /// those of suspect ones, the call's class before the other class, and, unless `spread_reads`
    /// or `spread_writes` lift that, the file's home node before other nodes. A slow path counts
    /// its bytes several times, and files leave it while it is much slower than others; a returning
    /// one takes only as many calls at once as its ramp allows.
    ///
    /// `bytes` is what the call will move: the payload of a WRITE, the count of a READ, else 0.
    /// Follow with [`Table::sent`].
    pub fn pick(&mut self, class: Class, home: Option<NodeId>, bytes: u32) -> Option<ConnId> {
        if self.conns.len() <= u64::BITS as usize {
            self.pick_of::<1>(class, home, bytes)
        } else {
            self.pick_of::<WORDS>(class, home, bytes)
        }
    }

    /// The same where so many words hold all connections.
    fn pick_of<const N: usize>(&mut self, class: Class, home: Option<NodeId>, bytes: u32) -> Option<ConnId> {
        let (own, spread) = match class {
            Class::Metadata => (&self.metadata, false),
            Class::Read => (&self.bulk, self.spread_reads),
            Class::Write => (&self.bulk, self.spread_writes),
        };
        let own = own.first::<N>();
        let (on_preferred, quick) = match home {
            Some(node) if !spread => self.preferred::<N>(node, size_of(bytes)),
            _ => (Set::ALL, Set::ALL),
        };
        let (up, suspect) = (self.up.first::<N>(), self.suspect.first::<N>());
        let free = up & !self.full.first();
        let free_own = free & own;
        let set = (free_own & on_preferred)
            .some()
            .or_else(|| (free_own & quick).some())
            .or_else(|| free_own.some())
            .or_else(|| free.some())
            .or_else(|| (up & own).some())
            .or_else(|| up.some())
            .or_else(|| (suspect & own & on_preferred).some())
            .or_else(|| (suspect & own).some())
            .or_else(|| suspect.some())?;
        Some(self.least_loaded(set, class, u64::from(bytes) + CALL_COST))
    }

    fn least_loaded<const N: usize>(&mut self, set: Set<N>, class: Class, cost: u64) -> ConnId {
        let ours = direction(class);
        self.turn = self.turn.wrapping_add(1);
        let plain = self.turn.is_multiple_of(EXPLORE_EVERY);
        // The search starts after the last choice, so that ties go round.
        let first = ConnId(self.last.0 + 1);
        let (mut best, mut best_score) = (ConnId(0), u64::MAX);
        for conn in set.from(first) {
            let index = usize::from(conn.0);
            let loads = self.load[index];
            let load = loads[ours] + loads[1 - ours] / OTHER_DIRECTION + cost;
            let weight = self.weight[index];
            let score = if plain { load * WEIGHT_MAX - weight } else { load * weight };
            if score < best_score {
                (best, best_score) = (conn, score);
            }
            // Nothing under way on a quick path: none can be better, and those that are as good
            // come later.
            if !plain && score == cost * WEIGHT_ONE {
                break;
            }
        }
        self.last = best;
        best
    }

    /// A call of `bytes` (as given to [`Table::pick`]) was handed to this connection.
    pub fn sent(&mut self, now: Duration, conn: ConnId, class: Class, bytes: u32) {
        let index = usize::from(conn.0);
        let path = self.conns[index].path;
        self.load[index][direction(class)] += u64::from(bytes) + CALL_COST;
        self.calls[index] += 1;
        let status = &mut self.path_mut(path).status;
        status.calls += 1;
        status.bytes += u64::from(bytes);
        if self.ramping.has(conn) {
            self.ramp(conn, now);
        }
    }

    /// A call of `bytes` was answered on this connection, `latency` after it was sent there.
    /// Answers of calls that have left the connection must not be reported.
    pub fn answered(&mut self, now: Duration, conn: ConnId, class: Class, bytes: u32, latency: Duration) {
        let index = usize::from(conn.0);
        // The connections of a path share its load evenly.
        let under_way: u64 = self.load[index].iter().sum();
        let load = &mut self.load[index][direction(class)];
        *load = load.saturating_sub(u64::from(bytes) + CALL_COST);
        self.calls[index] = self.calls[index].saturating_sub(1);
        let path = self.conns[index].path;
        let of_path = self.path_mut(path);
        let under_way = under_way.saturating_mul(u64::from(of_path.sharers));
        of_path.latency.sample(now, latency, bytes, under_way);
        self.note_silence(now, conn, latency);
        self.alive(now, conn);
        if self.ramping.has(conn) {
            self.ramp(conn, now);
        }
        if self.conns[index].draining.is_some() && self.calls[index] == 0 {
            self.go_home(conn, now);
            self.rearm();
        }
    }

    /// A silence has ended in which something was waited for, since so long at the most.
    #[inline]
    fn note_silence(&mut self, now: Duration, conn: ConnId, waited: Duration) {
        let Conn { last_alive, excused, path, .. } = self.conns[usize::from(conn.0)];
        let silence = now.saturating_sub(last_alive).saturating_sub(excused).min(waited);
        self.path_mut(path).silence.note(now, silence);
    }

    /// A byte was received on this connection, or one sent on it was acknowledged. Acknowledged
    /// keep-alive segments don't count: a stopped server still sends those.
    pub fn alive(&mut self, now: Duration, conn: ConnId) {
        let state = &mut self.conns[usize::from(conn.0)];
        let Link::Live { .. } = state.link else { return };
        state.last_alive = now;
        state.excused = Duration::ZERO;
        let was_silent = std::mem::take(&mut state.silent);
        let path = state.path;
        let of_path = self.path_mut(path);
        of_path.last_alive = now;
        if of_path.status.state == State::Suspect {
            self.clear_suspicion(path, now);
        } else if was_silent {
            self.refresh(conn);
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Table::advance`] is due; none while nothing is waited for. A time in the past means
    /// at once.
    #[must_use]
    pub const fn next_wake(&self) -> Option<Duration> {
        self.wake
    }

    /// State and counters of a path, if it is in the list.
    #[must_use]
    pub fn path(&self, path: PathId) -> Option<PathStatus> {
        let path = self.paths.get(usize::from(path.0))?;
        Some(PathStatus { latency: path.latency.smoothed(), ..path.status })
    }

    /// The path that a connection is on now.
    #[must_use]
    pub fn path_of(&self, conn: ConnId) -> Option<PathId> {
        self.conns.get(usize::from(conn.0)).map(|conn| conn.path)
    }

    /// Bytes outstanding on a connection, with what each call counts besides its payload.
    #[must_use]
    pub fn load(&self, conn: ConnId) -> u64 {
        self.load.get(usize::from(conn.0)).map_or(0, |loads| loads.iter().sum())
    }

    /// Whether any connection can take a call.
    #[must_use]
    pub fn usable(&self) -> bool {
        !(self.up.is_empty() && self.suspect.is_empty())
    }

    fn conn(&mut self, conn: ConnId) -> &mut Conn {
        &mut self.conns[usize::from(conn.0)]
    }

    fn path_mut(&mut self, path: PathId) -> &mut Path {
        &mut self.paths[usize::from(path.0)]
    }

    fn is_live(&self, conn: ConnId) -> bool {
        matches!(self.conns[usize::from(conn.0)].link, Link::Live { .. })
    }

    /// Enters a connection among those of a path and its node.
    fn enter(&mut self, conn: ConnId, path: PathId) {
        let old = self.conn(conn).path;
        let old_node = self.path_mut(old).node;
        self.path_mut(old).members -= conn;
        self.by_node[usize::from(old_node.0)] -= conn;
        let node = self.path_mut(path).node;
        self.path_mut(path).members |= conn;
        self.by_node[usize::from(node.0)] |= conn;
        self.conn(conn).path = path;
        for path in [old, path] {
            let of_path = self.path_mut(path);
            of_path.sharers = of_path.members.len();
        }
    }

    /// Works out anew which sets of `pick` this connection is in.
    fn refresh(&mut self, conn: ConnId) {
        let of_conn = &self.conns[usize::from(conn.0)];
        let of_path = &self.paths[usize::from(of_conn.path.0)];
        let takes_calls = matches!(of_conn.link, Link::Live { .. }) && of_conn.draining.is_none();
        let up = takes_calls && !of_conn.silent && of_path.status.state == State::Up;
        let ramping = of_path.ramp_since.is_some();
        let residence = of_path.residence;
        self.up.set(conn, up);
        self.suspect.set(conn, takes_calls && !up);
        self.ramping.set(conn, ramping);
        if !ramping {
            self.full -= conn;
        }
        for (size, residence) in residence.iter().enumerate() {
            self.left[size].set(conn, residence.left());
            self.tried[size].set(conn, residence.tried());
        }
    }

    fn refresh_path(&mut self, path: PathId) {
        for conn in self.path_mut(path).members.iter() {
            self.refresh(conn);
        }
    }

    /// Holds a connection of a returning path to 1, 2, 4, ... calls at once, up to 128 at the
    /// ramp's end.
    fn ramp(&mut self, conn: ConnId, now: Duration) {
        const STEPS: u32 = 8;
        let (path, calls) = (self.conn(conn).path, self.calls[usize::from(conn.0)]);
        let since = self.path_mut(path).ramp_since.unwrap_or(now);
        let step_length = (self.timing.ramp / STEPS).as_nanos().max(1);
        let step = now.saturating_sub(since).as_nanos() / step_length;
        if step >= u128::from(STEPS) {
            self.path_mut(path).ramp_since = None;
            self.refresh_path(path);
        } else if calls >= 1 << step {
            self.full |= conn;
        } else {
            self.full -= conn;
        }
    }

    /// Works out how many times over the bytes on this connection count, because its path is slow.
    ///
    /// Compared is the latency of calls of like size. It falls as the path is used less, so the
    /// weight moves there in steps: otherwise slow and quick would take turns.
    fn weigh(&mut self, conn: ConnId, now: Duration) {
        if self.quickest_at != Some(now) {
            (self.quickest, self.quickest_at) = (self.quickest_ns(), Some(now));
        }
        let own = self.paths[usize::from(self.conns[usize::from(conn.0)].path.0)].latency.by_size_ns;
        let mut slower = None;
        for (&own, &best) in own.iter().zip(&self.quickest).filter(|(own, _)| **own != 0) {
            let times = (own * WEIGHT_ONE / best.clamp(1, own)).min(WEIGHT_MAX);
            slower = Some(slower.unwrap_or(times).min(times));
        }
        let aim = slower.filter(|&times| times >= 2 * WEIGHT_ONE).unwrap_or(WEIGHT_ONE);
        let weight = &mut self.weight[usize::from(conn.0)];
        *weight = if aim > *weight {
            *weight + (aim - *weight).div_ceil(4)
        } else {
            *weight - (*weight - aim).div_ceil(4)
        };
    }

    /// The least latency of any path that is used, by the size of calls; the largest number where
    /// none is known.
    fn quickest_ns(&self) -> [u64; SIZES] {
        let mut quickest = [u64::MAX; SIZES];
        for path in self.paths.iter().filter(|path| !path.members.is_empty()) {
            for (quickest, &own) in quickest.iter_mut().zip(&path.latency.by_size_ns) {
                *quickest = if own == 0 { *quickest } else { own.min(*quickest) };
            }
        }
        quickest
    }

    /// xorshift64*: jitter needs no better.
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        if self.random == 0 {
            self.random = 1;
        }
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

impl Path {
    fn new(node: NodeId, now: Duration) -> Self {
        Self {
            node,
            status: PathStatus::new(now),
            members: Set::EMPTY,
            sharers: 0,
            owned: false,
            latency: Latency::default(),
            last_alive: now,
            silence: SilenceEstimator::default(),
            making: Duration::ZERO,
            probe_sent: None,
            probe_until: now,
            probe_reached: None,
            unproved: 0,
            retry_at: None,
            attempts: 0,
            hold_until: Duration::ZERO,
            hold: Duration::ZERO,
            return_hold: Duration::ZERO,
            returned_at: None,
            ready: false,
            ramp_since: None,
            silent_since: Duration::ZERO,
            residence: [Residence::default(); SIZES],
        }
    }
}

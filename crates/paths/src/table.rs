//! The table of one loop: its connections, their paths, and the choice of a connection for each
//! call.
//!
//! This file has the data and the hot path ([`Table::pick`], [`Table::sent`], [`Table::answered`]),
//! which neither allocates nor looks at a timer. `health` handles failures and recovery, `failover`
//! moves connections to foreign paths and back to their preferred path, and `leave` moves files off
//! a slow preferred path.
//!
//! Sets of connections are bit sets ([`set`]). What `pick` reads of each connection is stored
//! contiguously.

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

/// Connections of one table: `nconnect` and `mdconnect` together never exceed this; it is also the
/// width of the bit sets.
pub const CONNECTIONS_MAX: usize = 256;
/// Bytes outstanding in the other direction count at one eighth: they share the processors but not
/// the link.
const OTHER_DIRECTION: u64 = 8;

/// The direction of a call's payload: 1 is away from the client.
const fn direction(class: Class) -> usize {
    match class {
        Class::Read | Class::Metadata => 0,
        Class::Write => 1,
    }
}

/// A call loads its connection by its payload plus this: a reply costs a server about as much as
/// moving a few KiB, and calls without payload must count too.
const CALL_COST: u64 = 4 << 10;
/// One pick in this many ignores how slow a path has been and prefers the slow path among equally
/// loaded ones, so that a path that has become fast again is noticed.
const EXPLORE_EVERY: u32 = 64;
/// Weights are in sixteenths.
const WEIGHT_ONE: u64 = 16;
/// A path counts as slow once its latency is twice that of the fastest path; this bounds how
/// strongly it is avoided.
const WEIGHT_MAX: u64 = 8 * WEIGHT_ONE;

/// Whether a connection can carry calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    /// Not connected; waits for a path.
    Idle,
    /// The driver is connecting it, with this deadline.
    Connecting { until: Duration },
    /// Broken while its path is alive; it connects again at this time.
    Waiting { until: Duration },
    /// Connected.
    Live { since: Duration },
}

#[derive(Debug)]
struct Conn {
    link: Link,
    /// The preferred path.
    preferred: PathId,
    /// The path that the driver was last told to use.
    path: PathId,
    last_alive: Duration,
    /// Its calls are overdue.
    silent: bool,
    /// How much of its silence is due to the driver, which did not run.
    excused: Duration,
    /// When it started connecting or, once the peer's system has accepted it, path validation.
    connecting_since: Duration,
    /// The peer's system has accepted it.
    reached: bool,
    /// This attempt is a failback: it gave up a live connection on another path.
    returns: bool,
    /// Takes no new calls until this time, because it is about to fail back.
    draining: Option<Duration>,
    attempts: u32,
}

#[derive(Debug)]
struct Path {
    node: NodeId,
    status: PathStatus,
    /// The connections that are on the path now.
    members: Set,
    /// The number of `members`.
    sharers: u32,
    /// The path is the preferred path of some connection of this table.
    owned: bool,
    latency: Latency,
    last_alive: Duration,
    /// The silences from which the path has recovered.
    silence: SilenceEstimator,
    /// How long it recently took until the peer's system accepted a connection.
    making: Duration,
    /// When the probe in flight was sent, and its deadline.
    probe_sent: Option<Duration>,
    probe_until: Duration,
    /// When the peer's system accepted the last probe.
    probe_reached: Option<Duration>,
    /// Consecutive connects that were accepted but not validated in time.
    unproved: u32,
    /// Down: when to try again. Suspect: when to send the next probe.
    retry_at: Option<Duration>,
    attempts: u32,
    /// A flapping path stays down until this time if there is any other path; so does a preferred
    /// path that failed validation.
    hold_until: Duration,
    hold: Duration,
    /// The hold after the last failed failback. It is cleared as soon as the path is validated,
    /// unlike the hold of a flapping path.
    return_hold: Duration,
    /// When the path came up again after it had been down.
    returned_at: Option<Duration>,
    /// It answered a probe while down: failed-over connections may fail back.
    ready: bool,
    ramp_since: Option<Duration>,
    /// Start of the silence for which the path is suspected.
    silent_since: Duration,
    /// Whether files that prefer this path use it, by the size of their calls.
    residence: [Residence; SIZES],
}

/// Chooses the connection for each call, and tells the driver what to do about connections that
/// cannot take calls.
///
/// The driver reports events with `now`, the time since a start of its choice, which never runs
/// backwards, and drains [`Table::poll_output`] after each report except [`Table::sent`] and
/// [`Table::pick`], which never cause outputs. Between reports it calls [`Table::tick`] for each
/// connection about every [`crate::timing::TICK`], and [`Table::advance`] at [`Table::next_wake`].
///
/// Calls for which `pick` finds no connection wait in the driver, which tries again after each
/// [`Table::connected`]. The table keeps connecting until a connect succeeds.
#[derive(Debug)]
pub struct Table {
    /// Connections that may take calls: those on paths that are up, and the others.
    up: Set,
    suspect: Set,
    /// Connections on paths that ramp up, and the subset at its current limit of calls.
    ramping: Set,
    full: Set,
    /// Connections on paths that files have left, by size of call, and the subset on trial.
    left: [Set; SIZES],
    tried: [Set; SIZES],
    /// Connections by class: those for metadata, and those for reads and writes.
    metadata: Set,
    bulk: Set,
    spread_reads: bool,
    spread_writes: bool,
    last: ConnId,
    turn: u32,
    /// Outstanding bytes and calls of each connection, and how slow its path is ([`WEIGHT_ONE`]
    /// means not slow). The bytes are kept by direction, towards the client and away from it,
    /// because a link carries both at once.
    load: [[u64; 2]; CONNECTIONS_MAX],
    calls: [u32; CONNECTIONS_MAX],
    weight: [u64; CONNECTIONS_MAX],
    /// The latency that slow paths are compared with, as of the last tick: computed once for all
    /// connections that tick together.
    quickest: [u64; SIZES],
    quickest_at: Option<Duration>,
    by_node: Vec<Set>,
    conns: Vec<Conn>,
    paths: Vec<Path>,
    outputs: VecDeque<Output>,
    timing: Timing,
    random: u64,
    wake: Option<Duration>,
    /// Where the search for a foreign path continues, and when.
    failover_next: usize,
    failover_at: Option<Duration>,
    /// When connections may next try to fail back.
    return_at: Duration,
}

impl Table {
    /// Starts with an [`Output::Connect`] for each connection.
    ///
    /// # Panics
    ///
    /// Panics if there are no connections, or more than [`CONNECTIONS_MAX`], or if a connection is
    /// on a path that is not in the list. These are bugs of the caller, which must have checked its
    /// options.
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

    /// Returns the connection for the next call, or `None` if no connection can take calls.
    ///
    /// The connection with the fewest outstanding bytes is chosen; ties are broken round robin.
    /// Connections of paths that are up come before those of suspect paths, connections of the
    /// call's class before those of the other class, and connections to the file's preferred node
    /// (`home`) before other nodes, unless `spread_reads` or `spread_writes` is set. On a slow path
    /// bytes count several times, and files leave a path that is much slower than others. A
    /// returning path takes only as many calls at once as its ramp allows.
    ///
    /// `bytes` is what the call will move: the payload of a WRITE, the count of a READ, otherwise
    /// 0. Call [`Table::sent`] next.
    pub fn pick(&mut self, class: Class, home: Option<NodeId>, bytes: u32) -> Option<ConnId> {
        if self.conns.len() <= u64::BITS as usize {
            self.pick_of::<1>(class, home, bytes)
        } else {
            self.pick_of::<WORDS>(class, home, bytes)
        }
    }

    /// Implements [`Table::pick`] for a table whose connections fit into `N` words.
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
        // The search starts after the last choice, so that ties are broken round robin.
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
            // This connection has nothing outstanding and its path is fast: no connection can be
            // better, and equally good ones get their turn later.
            if !plain && score == cost * WEIGHT_ONE {
                break;
            }
        }
        self.last = best;
        best
    }

    /// Records that a call of `bytes` (as passed to [`Table::pick`]) was handed to this connection.
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

    /// Records that a call of `bytes` was answered on this connection, `latency` after it was sent
    /// there. Replies to calls that have been moved off the connection must not be reported.
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

    /// Records the end of a silence during which a reply was expected for at most `waited`.
    #[inline]
    fn note_silence(&mut self, now: Duration, conn: ConnId, waited: Duration) {
        let Conn { last_alive, excused, path, .. } = self.conns[usize::from(conn.0)];
        let silence = now.saturating_sub(last_alive).saturating_sub(excused).min(waited);
        self.path_mut(path).silence.note(now, silence);
    }

    /// Records that a byte was received on this connection, or that a byte sent on it was
    /// acknowledged. Acknowledged keep-alive segments don't count: a stopped server still
    /// acknowledges those.
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

    /// The next request to the driver.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Table::advance`] is due; `None` if no timer is running. A time in the past means at
    /// once.
    #[must_use]
    pub const fn next_wake(&self) -> Option<Duration> {
        self.wake
    }

    /// State and counters of a path; `None` if the path is not in the list.
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

    /// Bytes outstanding on a connection, including the fixed cost of each call.
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

    /// Moves a connection into the sets of a path and its node.
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

    /// Recomputes which of the sets used by `pick` this connection is in.
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

    /// Limits a connection of a returning path to 1, 2, 4, ... calls at once, up to 128 at the end
    /// of the ramp.
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

    /// Recomputes the weight of the bytes on this connection, which is greater if its path is slow.
    ///
    /// The latencies of calls of similar size are compared. The latency of a path falls as the path
    /// is used less, so the weight approaches its target in steps: otherwise slow and fast would
    /// alternate.
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

    /// The lowest latency of any path in use, by size of call; `u64::MAX` if none is known.
    fn quickest_ns(&self) -> [u64; SIZES] {
        let mut quickest = [u64::MAX; SIZES];
        for path in self.paths.iter().filter(|path| !path.members.is_empty()) {
            for (quickest, &own) in quickest.iter_mut().zip(&path.latency.by_size_ns) {
                *quickest = if own == 0 { *quickest } else { own.min(*quickest) };
            }
        }
        quickest
    }

    /// xorshift64*, which is good enough for jitter.
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

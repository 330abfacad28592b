//! The table of one loop: its connections, their paths, and the choice of a connection for each
//! call.
//!
//! `pick` chooses connections. `events` handles what the driver reports of connections, `probes`
//! what it reports of probes, `attempts` makes and spaces attempts to connect, and `timeouts` says
//! how long each of them may take. `failover` moves connections to foreign paths and back to their
//! preferred path, and `leave` moves files off a slow preferred path. `path` and `conn` have the
//! states.

mod attempts;
mod conn;
mod foreign_paths;
mod health;
mod leave;
mod path;
mod pick;
mod probes;
mod set;
#[cfg(test)]
mod tests;
mod timeouts;

use crate::status::{PathStatus, SIZES};
use crate::{Config, ConnId, Output, PathId, State, Timing};
use conn::{Attempt, Conn, Link, Live};
use path::{Check, Health, Path, Probe};
use pick::{Choice, WEIGHT_ONE};
use set::Set;
use std::collections::VecDeque;
use std::time::Duration;

/// Connections of one table: `nconnect` and `mdconnect` together never exceed this; it is also the
/// width of the bit sets.
pub const CONNECTIONS_MAX: usize = 256;

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
    choice: Choice,
    spread_reads: bool,
    spread_writes: bool,
    /// The latency that slow paths are compared with, as of the last tick: computed once for all
    /// connections that tick together.
    quickest: [u64; SIZES],
    quickest_at: Option<Duration>,
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
    failback_at: Duration,
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
            choice: Choice::new(nodes),
            spread_reads: config.spread_reads,
            spread_writes: config.spread_writes,
            quickest: [u64::MAX; SIZES],
            quickest_at: None,
            conns: Vec::with_capacity(count),
            paths: config.paths.iter().map(|spec| Path::new(spec.node, now)).collect(),
            outputs: VecDeque::with_capacity(4 * count + 16),
            timing: config.timing,
            random: config.seed ^ 0x9e37_79b9_7f4a_7c15,
            wake: None,
            failover_next: 0,
            failover_at: None,
            failback_at: now,
        };
        table.failover_next = (table.random() % config.paths.len().max(1) as u64) as usize;
        for (index, spec) in config.connections.iter().enumerate() {
            let conn = ConnId(index as u16);
            assert!(usize::from(spec.path.0) < table.paths.len(), "{:?} is not in the list", spec.path);
            if !config.metadata_apart || spec.metadata {
                table.choice.metadata |= conn;
            }
            if !config.metadata_apart || !spec.metadata {
                table.choice.bulk |= conn;
            }
            table.conns.push(Conn::new(spec.path));
            table.path_mut(spec.path).is_own = true;
            table.enter(conn, spec.path);
            table.connect(conn, spec.path, now);
        }
        table.rearm();
        table
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
        self.paths.get(usize::from(path.0)).map(Path::status)
    }

    /// As [`path`](Self::path), but `None` if no connection is or was wanted on the path: nothing
    /// is known here of a path that is left to other tables.
    #[must_use]
    pub fn used_path(&self, path: PathId) -> Option<PathStatus> {
        let is_wanted = || self.conns.iter().any(|conn| conn.path == path);
        let known = self.paths.get(usize::from(path.0))?;
        (known.is_tried() || is_wanted()).then(|| known.status())
    }

    /// The path that a connection is on now.
    #[must_use]
    pub fn path_of(&self, conn: ConnId) -> Option<PathId> {
        self.conns.get(usize::from(conn.0)).map(|conn| conn.path)
    }

    /// Bytes outstanding on a connection, including the fixed cost of each call.
    #[must_use]
    pub fn load(&self, conn: ConnId) -> u64 {
        self.choice.load.get(usize::from(conn.0)).map_or(0, |loads| loads.iter().sum())
    }

    /// Whether any connection can take a call.
    #[must_use]
    pub fn usable(&self) -> bool {
        !(self.choice.up.is_empty() && self.choice.suspect.is_empty())
    }

    fn conn_ref(&self, conn: ConnId) -> &Conn {
        &self.conns[usize::from(conn.0)]
    }

    fn conn_mut(&mut self, conn: ConnId) -> &mut Conn {
        &mut self.conns[usize::from(conn.0)]
    }

    fn path_ref(&self, path: PathId) -> &Path {
        &self.paths[usize::from(path.0)]
    }

    fn path_mut(&mut self, path: PathId) -> &mut Path {
        &mut self.paths[usize::from(path.0)]
    }

    fn has_live(&self, path: PathId) -> bool {
        self.path_ref(path).members.iter().any(|conn| self.conn_ref(conn).live().is_some())
    }

    fn set_health(&mut self, path: PathId, health: Health, now: Duration) {
        if let Some(from) = self.path_mut(path).enter(health, now) {
            let to = self.path_ref(path).state();
            self.outputs.push_back(Output::StateChanged { path, from, to });
        }
    }

    /// Moves a connection into the sets of a path and its node.
    fn enter(&mut self, conn: ConnId, path: PathId) {
        let old = self.conn_ref(conn).path;
        let old_node = self.path_ref(old).node;
        self.path_mut(old).members -= conn;
        self.choice.by_node[usize::from(old_node.0)] -= conn;
        let node = self.path_ref(path).node;
        self.path_mut(path).members |= conn;
        self.choice.by_node[usize::from(node.0)] |= conn;
        self.conn_mut(conn).path = path;
        for path in [old, path] {
            let of_path = self.path_mut(path);
            of_path.sharers = of_path.members.len();
        }
    }

    fn refresh(&mut self, conn: ConnId) {
        let of_conn = &self.conns[usize::from(conn.0)];
        self.choice.refresh(conn, of_conn, &self.paths[usize::from(of_conn.path.0)]);
    }

    fn refresh_path(&mut self, path: PathId) {
        for conn in self.path_ref(path).members.iter() {
            self.refresh(conn);
        }
    }

    /// Does what is due at this time: ends connects and probes that took too long, and starts new
    /// attempts.
    pub fn advance(&mut self, now: Duration) {
        if self.wake.is_none_or(|wake| now < wake) {
            return;
        }
        for index in 0..self.conns.len() {
            let conn = ConnId(index as u16);
            self.advance_conn(conn, now);
            let Conn { path, preferred, .. } = *self.conn_ref(conn);
            for path in [path, preferred] {
                self.advance_path(path, now);
            }
        }
        if self.failover_at.is_some_and(|at| at <= now) {
            self.fail_over_idle(now);
        }
        self.start_failback(now);
        self.rearm();
    }

    /// Computes when the next timer is due. Slow path: looks at all connections, but only after
    /// changes.
    fn rearm(&mut self) {
        let mut wake = self.failover_at;
        let failing_back = self.is_failing_back();
        let mut at = |time: Option<Duration>| {
            wake = match (wake, time) {
                (Some(wake), Some(time)) => Some(wake.min(time)),
                (wake, time) => wake.or(time),
            }
        };
        for conn in &self.conns {
            match conn.link {
                Link::Connecting(Attempt { until, .. }) | Link::Waiting { until } => at(Some(until)),
                Link::Live(live) => at(live.draining),
                Link::Idle => {}
            }
            if !failing_back {
                at(self.failback_time(conn));
            }
            for path in [conn.path, conn.preferred] {
                at(self.path_ref(path).probe().map(|probe| probe.until));
                at(self.probe_time(path));
            }
        }
        self.wake = wake;
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

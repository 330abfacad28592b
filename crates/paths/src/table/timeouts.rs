//! How long a silence, a probe, a connect and a path validation may take.

use super::{ConnId, Duration, Link, Path, PathId, Table, Timing};
use crate::timing::SUSPECT_EXPENSIVE_MAX;

impl Table {
    /// How long a connection may be silent with calls in flight.
    pub(super) fn timeout(&self, path: PathId) -> Duration {
        let overdue = self.path_ref(path).latency.overdue_after();
        overdue.clamp(self.timing.suspect_min, self.timing.suspect_max.max(self.timing.suspect_min))
    }

    /// How long a path may be silent: if connections are expensive to establish, as long as
    /// establishing one takes ([`SUSPECT_EXPENSIVE_MAX`]).
    pub(super) fn timeout_with_path(&self, path: PathId) -> Duration {
        let timeout = self.timeout(path);
        if self.timing.probe_per_connect_time == 0 {
            return timeout;
        }
        timeout.max(self.path_ref(path).responses.connect_time.min(SUSPECT_EXPENSIVE_MAX))
    }

    /// How long the connect of this connection, or its path validation, may take. A failback from a
    /// working path does not wait longer with each attempt: the working path could have served its
    /// calls.
    pub(super) fn connect_timeout(&self, conn: ConnId, is_failback: bool, now: Duration) -> Duration {
        let Timing { connect_timeout, connect_max, .. } = self.timing;
        let responses = &self.path_ref(self.conn_ref(conn).path).responses;
        let doublings = if is_failback { 0 } else { responses.unvalidated.min(8) };
        let least = connect_timeout.saturating_mul(1 << doublings).min(connect_max);
        responses.silence.timeout(now, least, connect_max)
    }

    /// How long the first connect to a foreign path may take. Nothing is known about that path and
    /// calls are waiting, so the next path is tried soon.
    pub(super) fn first_connect_timeout(&self) -> Duration {
        self.timing.probe_timeout.max(self.connect_time_timeout())
    }

    /// How long establishing a connection may take on a path whose cost is not known, judging by
    /// the most expensive path of this table.
    fn connect_time_timeout(&self) -> Duration {
        let Timing { probe_per_connect_time, connect_timeout, .. } = self.timing;
        let longest = self.paths.iter().map(|path| path.responses.connect_time).max().unwrap_or_default();
        longest.saturating_mul(probe_per_connect_time).min(connect_timeout)
    }

    /// Where connections are expensive to establish, each attempt on a path that is down may take
    /// twice as long as the previous one: an attempt given up too early is wasted, and keeps a slow
    /// server from completing others.
    fn growing_timeout(&self, path: &Path) -> Duration {
        let Timing { probe_timeout, probe_per_connect_time, connect_timeout, .. } = self.timing;
        let factor = if probe_per_connect_time == 0 { 0 } else { 1 << path.recovery.attempts.min(16) };
        probe_timeout.saturating_mul(factor).min(connect_timeout)
    }

    /// How long the peer's system may take to accept a probe.
    pub(super) fn probe_timeout(&self, path: PathId, now: Duration, was_down: bool) -> Duration {
        let Timing { probe_timeout, probe_max, .. } = self.timing;
        let path = self.path_ref(path);
        let growing = if was_down { self.growing_timeout(path) } else { Duration::ZERO };
        let timeout = path.responses.silence.timeout(now, probe_timeout, probe_max);
        timeout.max(self.connect_time_timeout()).max(growing)
    }

    /// The driver ran late by this long. A peer that was silent in that time may have sent
    /// something, so the time does not count as silence.
    pub fn late(&mut self, by: Duration) {
        for conn in &mut self.conns {
            match &mut conn.link {
                Link::Live(live) => live.excused += by,
                Link::Connecting(attempt) => attempt.until += by,
                Link::Idle | Link::Waiting { .. } => {}
            }
        }
        for path in &mut self.paths {
            if let Some(probe) = path.probe_mut() {
                probe.until += by;
            }
        }
        self.rearm();
    }
}

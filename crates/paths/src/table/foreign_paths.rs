//! Fails over to foreign paths if all of the table's own paths are down, and fails back.
//!
//! All connections of a loop may be on paths that died while other paths of the mount are alive.
//! The loop's connections then connect to those paths, spread over them; nothing else in the table
//! changes. Connections fail back one at a time, and each is drained first, so that no call has to
//! be moved and the returning path is not overrun.

use super::{Conn, ConnId, Duration, Health, Link, PathId, Table};

impl Table {
    /// Fails idle connections over to foreign paths, if no connection of this table is live on its
    /// preferred path.
    pub(super) fn fail_over_idle(&mut self, now: Duration) {
        self.failover_at = None;
        // A failed-over connection that lost its path fails back once its preferred path answers.
        for index in 0..self.conns.len() {
            let conn = &self.conns[index];
            let preferred = conn.preferred;
            let is_idle = matches!(conn.link, Link::Idle);
            if is_idle && conn.is_failed_over() && self.path_ref(preferred).takes_failback() {
                self.connect(ConnId(index as u16), preferred, now);
            }
        }
        if self.conns.iter().any(|conn| !conn.is_failed_over() && conn.live().is_some()) {
            return;
        }
        for index in 0..self.conns.len() {
            if !matches!(self.conns[index].link, Link::Idle) {
                continue;
            }
            match self.foreign_path(now) {
                Some(path) => self.connect(ConnId(index as u16), path, now),
                None => {
                    self.failover_at = self.next_foreign_try();
                    return;
                }
            }
        }
    }

    /// The next path that no connection of this table prefers and that isn't known to be dead.
    fn foreign_path(&mut self, now: Duration) -> Option<PathId> {
        let count = self.paths.len();
        let candidate = |step: &usize| {
            let path = &self.paths[(self.failover_next + step) % count];
            !path.is_own && path.may_be_tried(now)
        };
        let found = (self.failover_next + (0..count).find(candidate)?) % count;
        self.failover_next = (found + 1) % count;
        Some(PathId(found as u16))
    }

    fn next_foreign_try(&self) -> Option<Duration> {
        let foreign = self.paths.iter().filter(|path| !path.is_own);
        let times = foreign.filter_map(|path| match path.health() {
            Health::Down { retry_at } => retry_at.map(|at| at.max(path.recovery.hold_until)),
            _ => None,
        });
        times.min()
    }

    /// When a failed-over connection may fail back, if its preferred path answers again. A
    /// preferred path may have answered a probe during its hold, if nothing else was usable at that
    /// time.
    pub(super) fn failback_time(&self, conn: &Conn) -> Option<Duration> {
        let preferred = self.path_ref(conn.preferred);
        let carries_calls = conn.live().is_some_and(|live| live.draining.is_none());
        let may_fail_back = carries_calls && conn.is_failed_over() && preferred.takes_failback();
        may_fail_back.then(|| self.failback_at.max(preferred.recovery.hold_until))
    }

    /// Starts to fail back the next failed-over connection, unless a failback is already under way.
    pub(super) fn start_failback(&mut self, now: Duration) {
        if self.is_failing_back() {
            return;
        }
        let is_due = |conn: &Conn| self.failback_time(conn).is_some_and(|at| at <= now);
        let Some(index) = self.conns.iter().position(is_due) else { return };
        let conn = ConnId(index as u16);
        if self.choice.calls[index] == 0 {
            self.fail_back(conn, now);
        } else if let Some(live) = self.conns[index].live_mut() {
            live.draining = Some(now + self.timing.drain_max);
            self.refresh(conn);
        }
    }

    /// Whether a connection is draining or connecting to its preferred path.
    pub(super) fn is_failing_back(&self) -> bool {
        self.conns
            .iter()
            .any(|conn| conn.draining().is_some() || (conn.is_connecting() && !conn.is_failed_over()))
    }

    /// Fails back a drained connection.
    pub(super) fn fail_back(&mut self, conn: ConnId, now: Duration) {
        let preferred = self.conn_ref(conn).preferred;
        self.connect(conn, preferred, now);
    }

    /// Gives up draining a connection that has taken too long.
    pub(super) fn give_up_draining(&mut self, conn: ConnId, now: Duration) {
        if let Some(live) = self.conn_mut(conn).live_mut() {
            live.draining = None;
        }
        self.failback_at = now + self.timing.drain_retry;
        self.refresh(conn);
    }
}

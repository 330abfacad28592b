//! Fails over to foreign paths if all of the table's own paths are down, and fails back.
//!
//! All connections of a loop may be on paths that died while other paths of the mount are alive.
//! The loop's connections then connect to those paths, spread over them; nothing else in the table
//! changes. Connections fail back one at a time, and each is drained first, so that no call has to
//! be moved and the returning path is not overrun.

use super::{Conn, ConnId, Duration, Link, Path, PathId, State, Table};

impl Table {
    /// Fails idle connections over to foreign paths, if no connection of this table is live on its
    /// preferred path.
    pub(super) fn fail_over_idle(&mut self, now: Duration) {
        self.failover_at = None;
        // A failed-over connection that lost its path fails back once its preferred path answers.
        for index in 0..self.conns.len() {
            let Conn { link, preferred, path, .. } = self.conns[index];
            if link == Link::Idle && preferred != path && self.paths[usize::from(preferred.0)].ready {
                self.connect(ConnId(index as u16), preferred, now);
            }
        }
        let on_preferred =
            |conn: &Conn| conn.path == conn.preferred && matches!(conn.link, Link::Live { .. });
        if self.conns.iter().any(on_preferred) {
            return;
        }
        for index in 0..self.conns.len() {
            if self.conns[index].link != Link::Idle {
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
        let tryable = |path: &Path| {
            let due = path.retry_at.is_none_or(|at| at <= now) && path.hold_until <= now;
            !path.owned && (path.status.state != State::Down || due)
        };
        let step = (0..count).find(|step| tryable(&self.paths[(self.failover_next + step) % count]))?;
        let found = (self.failover_next + step) % count;
        self.failover_next = (found + 1) % count;
        Some(PathId(found as u16))
    }

    fn next_foreign_try(&self) -> Option<Duration> {
        let down = self.paths.iter().filter(|path| !path.owned && path.status.state == State::Down);
        down.filter_map(|path| path.retry_at.map(|at| at.max(path.hold_until))).min()
    }

    /// When a failed-over connection may fail back, if its preferred path answers again. A
    /// preferred path may have answered a probe during its hold, if nothing else was usable at that
    /// time.
    pub(super) fn home_at(&self, conn: &Conn) -> Option<Duration> {
        let home = &self.paths[usize::from(conn.preferred.0)];
        let is_failed_over = conn.preferred != conn.path && matches!(conn.link, Link::Live { .. });
        (is_failed_over && conn.draining.is_none() && home.ready).then(|| self.return_at.max(home.hold_until))
    }

    /// Starts to fail back the next failed-over connection, unless a failback is already under way.
    pub(super) fn bring_home(&mut self, now: Duration) {
        if self.on_the_way() {
            return;
        }
        let may_go = |conn: &Conn| self.home_at(conn).is_some_and(|at| at <= now);
        let Some(index) = self.conns.iter().position(may_go) else { return };
        let conn = ConnId(index as u16);
        if self.calls[index] == 0 {
            self.go_home(conn, now);
        } else {
            self.conns[index].draining = Some(now + self.timing.drain_max);
            self.refresh(conn);
        }
    }

    /// Whether a connection is draining or connecting to its preferred path.
    pub(super) fn on_the_way(&self) -> bool {
        self.conns.iter().any(|conn| {
            let connecting = matches!(conn.link, Link::Connecting { .. }) && conn.path == conn.preferred;
            conn.draining.is_some() || connecting
        })
    }

    /// Fails back a drained connection.
    pub(super) fn go_home(&mut self, conn: ConnId, now: Duration) {
        let home = self.conn(conn).preferred;
        self.connect(conn, home, now);
    }
}

//! Makes attempts to connect, and spaces them.
//!
//! There are two kinds of retry. A broken connection of a live path connects again at once if it
//! has lasted, and otherwise with a back-off of its own. A path without connections is tried by
//! probes (`probes`). Only after a reset, which shows that the peer is alive, do its connections
//! connect at once.

use super::{Attempt, Conn, ConnId, Duration, Health, Link, Live, Output, PathId, State, Table};

impl Table {
    /// The connection is established, and was validated to reach the same file system.
    pub fn connected(&mut self, now: Duration, conn: ConnId) {
        let of_conn = self.conn_mut(conn);
        let Link::Connecting(Attempt { since, accepted, .. }) = of_conn.link else { return };
        of_conn.link = Link::Live(Live::new(now));
        let path = of_conn.path;
        let validation = if accepted { now.saturating_sub(since) } else { Duration::ZERO };
        let of_path = self.path_mut(path);
        of_path.responses.validated(now, validation);
        of_path.recovery.validated(now);
        of_path.counters.connects += 1;
        match of_path.state() {
            State::Up => self.refresh(conn),
            State::Suspect => self.clear_suspicion(path, now),
            State::Down | State::Probing => self.path_up(path, now),
        }
        self.start_failback(now);
        self.rearm();
    }

    /// The peer's system has accepted the connection, which is not validated yet: any further delay
    /// is due to the server and not to the route to it.
    pub fn reached(&mut self, now: Duration, conn: ConnId) {
        let Conn { link, path, .. } = *self.conn_ref(conn);
        let Link::Connecting(Attempt { since, is_failback, .. }) = link else { return };
        let until = now + self.connect_timeout(conn, is_failback, now);
        let attempt = Attempt { since: now, until, accepted: true, is_failback };
        self.conn_mut(conn).link = Link::Connecting(attempt);
        self.path_mut(path).responses.note_connect_time(now.saturating_sub(since));
        self.rearm();
    }

    /// Connects a connection to a path. Any previous connection in its slot is gone.
    pub(super) fn connect(&mut self, conn: ConnId, path: PathId, now: Duration) {
        let before = self.conn_ref(conn).path;
        self.enter(conn, path);
        let left = self.path_ref(before);
        if left.members.is_empty() && matches!(left.state(), State::Up | State::Suspect) {
            // No connection is left on the path to notice its death.
            self.set_health(before, Health::Reachable, now);
        }
        let is_failback = self.conn_ref(conn).live().is_some();
        let of_path = self.path_ref(path);
        let until = if !of_path.is_own && of_path.recovery.attempts == 0 {
            now + self.first_connect_timeout()
        } else {
            now + self.connect_timeout(conn, is_failback, now)
        };
        let attempt = Attempt { since: now, until, accepted: false, is_failback };
        self.conn_mut(conn).link = Link::Connecting(attempt);
        self.refresh(conn);
        self.outputs.push_back(if before == path {
            Output::Connect(conn)
        } else {
            Output::FailOver { conn, to: path }
        });
    }

    /// Connects the idle connections that prefer this path.
    pub(super) fn connect_idle(&mut self, path: PathId, now: Duration) {
        for index in 0..self.conns.len() {
            let Conn { link, preferred, .. } = self.conns[index];
            if matches!(link, Link::Idle) && preferred == path {
                self.connect(ConnId(index as u16), path, now);
            }
        }
    }

    /// Does what is due for a connection at this time.
    pub(super) fn advance_conn(&mut self, conn: ConnId, now: Duration) {
        let Conn { link, path, .. } = *self.conn_ref(conn);
        match link {
            Link::Connecting(attempt) if attempt.until <= now => {
                if attempt.accepted {
                    self.path_mut(path).responses.unvalidated += 1;
                }
                self.outputs.push_back(Output::Abort(conn));
                self.connect_failed(conn, attempt, now);
            }
            Link::Waiting { until } if until <= now => self.connect(conn, path, now),
            Link::Live(live) if live.draining.is_some_and(|until| until <= now) => {
                self.give_up_draining(conn, now);
            }
            Link::Idle | Link::Connecting(_) | Link::Waiting { .. } | Link::Live(_) => {}
        }
    }

    pub(super) fn connect_failed(&mut self, conn: ConnId, attempt: Attempt, now: Duration) {
        let path = self.conn_ref(conn).path;
        self.idle(conn);
        if self.has_live(path) {
            self.wait(conn, now);
            return;
        }
        if attempt.is_failback {
            let timing = self.timing;
            let waited = now.saturating_sub(attempt.since);
            self.path_mut(path).recovery.failback_failed(now, waited, &timing);
        }
        let of_path = self.path_ref(path);
        let others_try = of_path.members.iter().any(|conn| self.conn_ref(conn).is_connecting());
        if !others_try && of_path.probe().is_none() {
            self.set_health(path, Health::Down { retry_at: None }, now);
            self.retry_later(path, now);
        }
        self.fail_over_idle(now);
    }

    pub(super) fn idle(&mut self, conn: ConnId) {
        self.conn_mut(conn).link = Link::Idle;
        self.refresh(conn);
    }

    /// Schedules the next attempt of a broken connection of a live path after its back-off.
    pub(super) fn wait(&mut self, conn: ConnId, now: Duration) {
        let attempts = self.conn_ref(conn).attempts;
        let until = now + self.back_off(attempts);
        let of_conn = self.conn_mut(conn);
        of_conn.attempts = attempts.saturating_add(1);
        of_conn.link = Link::Waiting { until };
    }

    /// Schedules the next attempt on a path that is down after its back-off.
    pub(super) fn retry_later(&mut self, path: PathId, now: Duration) {
        let attempts = self.path_ref(path).recovery.attempts;
        let at = now + self.back_off(attempts);
        let of_path = self.path_mut(path);
        of_path.recovery.attempts = attempts.saturating_add(1);
        of_path.set_retry(at);
    }

    /// The back-off doubles with each attempt, up to a bound, and varies by a quarter either way,
    /// so that clients that lost the same server don't reconnect in step.
    fn back_off(&mut self, attempts: u32) -> Duration {
        let longest = self.timing.retry_max;
        let base = self.timing.retry_min.saturating_mul(1 << attempts.min(16)).min(longest);
        let jitter = (self.random() % 512) as u32;
        base * 3 / 4 + base * jitter / 1024
    }

    /// A path that was down, or was never tried, has a live connection.
    fn path_up(&mut self, path: PathId, now: Duration) {
        let of_path = self.path_mut(path);
        let was_down = of_path.counters.deaths > 0;
        if was_down {
            of_path.recovery.returned(now);
        }
        self.set_health(path, Health::Up { ramp_since: was_down.then_some(now) }, now);
        self.refresh_path(path);
        for conn in self.path_ref(path).members.iter() {
            self.ramp(conn, now);
        }
        self.connect_idle(path, now);
    }
}

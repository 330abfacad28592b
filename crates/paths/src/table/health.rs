//! Handles connections that break or fall silent.

use super::{ConnId, Duration, Health, Link, Live, Output, PathId, State, Table};

impl Table {
    /// The connection broke, or its connect failed. Must not be reported for a connection that was
    /// aborted by an [`Output::Abort`].
    pub fn disconnected(&mut self, now: Duration, conn: ConnId) {
        match self.conn_ref(conn).link {
            Link::Live(live) => self.broken(conn, live, now, now),
            Link::Connecting(attempt) => self.connect_failed(conn, attempt, now),
            Link::Idle | Link::Waiting { .. } => {}
        }
        self.rearm();
    }

    /// The driver gives up a call on this connection although the path is alive: the connection is
    /// reset, and its calls move.
    pub fn give_up(&mut self, now: Duration, conn: ConnId) {
        if let Link::Live(live) = self.conn_ref(conn).link {
            self.outputs.push_back(Output::Abort(conn));
            self.broken(conn, live, now, live.last_alive);
            self.rearm();
        }
    }

    /// The driver resets this connection because of what a reply on it contains, and sends the call
    /// of that reply with a back-off. The path works, so this is no failure of the path: the other
    /// calls of the connection move, and it connects again at once.
    pub fn reset(&mut self, now: Duration, conn: ConnId) {
        self.reset_path_works(now, conn, true);
    }

    /// As [`Table::reset`], where no call is sent with a back-off that would space the resets: the
    /// connection has one, from its second reset within [`crate::timing::RETRY_MAX`] on.
    pub fn reset_with_back_off(&mut self, now: Duration, conn: ConnId) {
        self.reset_path_works(now, conn, false);
    }

    fn reset_path_works(&mut self, now: Duration, conn: ConnId, at_once: bool) {
        let Some(&live) = self.conn_ref(conn).live() else {
            return self.disconnected(now, conn);
        };
        let path = self.conn_ref(conn).path;
        self.move_calls(conn, now, now);
        self.idle(conn);
        if !self.has_live(path) {
            self.set_health(path, Health::Reachable, now);
            self.refresh_path(path);
        }
        if at_once {
            self.connect(conn, path, now);
        } else {
            self.connect_or_wait(conn, live, now);
        }
        self.rearm();
    }

    /// Connects a broken connection of a path that works again: at once, or after a back-off if it
    /// has just been established.
    fn connect_or_wait(&mut self, conn: ConnId, was: Live, now: Duration) {
        let stayed = now.saturating_sub(was.since) >= self.timing.retry_max;
        let of_conn = self.conn_mut(conn);
        let path = of_conn.path;
        if stayed || of_conn.attempts == 0 {
            of_conn.attempts = 1;
            self.connect(conn, path, now);
        } else {
            self.wait(conn, now);
        }
    }

    /// Reports the progress of a connection: when its oldest unanswered call was sent on it, if
    /// there is one, and whether bytes were received or acknowledged since the last tick.
    pub fn tick(&mut self, now: Duration, conn: ConnId, oldest_sent_at: Option<Duration>, progress: bool) {
        if self.conn_ref(conn).live().is_none() {
            return;
        }
        self.weigh(conn, now);
        self.review(self.conn_ref(conn).path, now);
        if self.choice.ramping.has(conn) {
            self.ramp(conn, now);
        }
        if progress {
            let waited = oldest_sent_at.map_or(Duration::ZERO, |sent| now.saturating_sub(sent));
            self.note_silence(now, conn, waited);
            self.alive(now, conn);
        } else if let Some(sent_at) = oldest_sent_at {
            self.check_silence(conn, sent_at, now);
        } else if let Some(live) = self.conn_mut(conn).live_mut() {
            // If no call is outstanding, none is overdue; that alone says nothing about the path.
            live.excused = Duration::ZERO;
            if std::mem::take(&mut live.silent) {
                self.refresh(conn);
            }
        }
    }

    /// Judges the silence of a connection whose oldest call was sent at `sent_at`.
    fn check_silence(&mut self, conn: ConnId, sent_at: Duration, now: Duration) {
        let path = self.conn_ref(conn).path;
        let (timeout, silent_max) = (self.timeout(path), self.timing.silent_max);
        let Some(live) = self.conn_mut(conn).live_mut() else { return };
        let silent_since = sent_at.max(live.last_alive);
        let silence = live.silence(now, silent_since);
        if silence > silent_max {
            self.give_up(now, conn);
        } else if silence > timeout {
            live.silent = true;
            self.refresh(conn);
            // Another connection of the path may have shown a sign of life: then only this
            // connection is stuck.
            let of_path = self.path_ref(path);
            let path_silence = silence.min(now.saturating_sub(of_path.responses.last_alive));
            if of_path.state() == State::Up && path_silence > self.timeout_with_path(path) {
                self.suspect(path, now, silent_since);
                self.rearm();
            }
        }
    }

    /// Handles the loss of a live connection: its calls move now, and it connects again.
    fn broken(&mut self, conn: ConnId, was: Live, now: Duration, silent_since: Duration) {
        let path = self.conn_ref(conn).path;
        self.move_calls(conn, now, silent_since);
        self.idle(conn);
        if self.has_live(path) {
            self.connect_or_wait(conn, was, now);
            // The same fault may have broken all of the path's connections without a visible error.
            if self.path_ref(path).state() == State::Up {
                self.suspect(path, now, now);
            }
            return;
        }
        self.set_down(path, now);
        let is_held = now < self.path_ref(path).recovery.hold_until;
        for other in self.path_ref(path).members.iter() {
            match self.conn_ref(other).link {
                Link::Connecting(_) if is_held => {
                    self.outputs.push_back(Output::Abort(other));
                    self.idle(other);
                }
                Link::Waiting { .. } => self.idle(other),
                Link::Idle | Link::Connecting(_) | Link::Live(_) => {}
            }
        }
        if is_held {
            self.retry_later(path, now);
            self.fail_over_idle(now);
        } else {
            self.connect(conn, path, now);
        }
    }

    /// Moves the calls of a lost connection to other connections. Its outstanding bytes no longer
    /// count.
    pub(super) fn move_calls(&mut self, conn: ConnId, now: Duration, silent_since: Duration) {
        let index = usize::from(conn.0);
        let calls = std::mem::take(&mut self.choice.calls[index]);
        if calls > 0 {
            let path = self.conns[index].path;
            self.path_mut(path).counters.moved(calls, now.saturating_sub(silent_since));
        }
        self.choice.load[index] = [0; 2];
        self.outputs.push_back(Output::Move(conn));
    }

    pub(super) fn set_down(&mut self, path: PathId, now: Duration) {
        let timing = self.timing;
        let of_path = self.path_mut(path);
        of_path.recovery.died(now, &timing);
        of_path.counters.deaths += 1;
        of_path.residence = Default::default();
        self.set_health(path, Health::Down { retry_at: None }, now);
        self.refresh_path(path);
    }
}

//! Handles connections and paths that break, fall silent and recover.
//!
//! A path with a live connection is `Up` or `Suspect`; a path without one is `Down`, or `Probing`
//! during an attempt to bring it back. There are two kinds of retry. A broken connection of a live
//! path connects again with a back-off of its own. A path without connections is tried by one probe
//! at a time, and its connections connect once a probe is answered. Only after a reset, which shows
//! that the peer is alive, do they connect at once.

use crate::timing::{HOLD_PER_WAIT, SUSPECT_DEAR_MAX};

use super::{Conn, ConnId, Duration, Link, Output, Path, PathId, State, Table, Timing};

impl Path {
    /// Records how long a connection took to establish. An expensive connection is forgotten as
    /// further connections are established, not with time, because the cost does not change by
    /// itself.
    fn note_making(&mut self, made_in: Duration) {
        self.making = made_in.max(self.making * 3 / 4);
    }
}

impl Table {
    /// The connection is established, and was validated to reach the same file system.
    pub fn connected(&mut self, now: Duration, conn: ConnId) {
        if !matches!(self.conn(conn).link, Link::Connecting { .. }) {
            return;
        }
        let path = self.conn(conn).path;
        let of_conn = self.conn(conn);
        let proving = of_conn.reached.then(|| now.saturating_sub(of_conn.connecting_since));
        of_conn.link = Link::Live { since: now };
        of_conn.last_alive = now;
        of_conn.excused = Duration::ZERO;
        of_conn.silent = false;
        let of_path = self.path_mut(path);
        of_path.silence.note(now, proving.unwrap_or_default());
        of_path.unproved = 0;
        (of_path.return_hold, of_path.hold_until) = (Duration::ZERO, now);
        of_path.last_alive = now;
        of_path.status.connects += 1;
        match of_path.status.state {
            State::Up => self.refresh(conn),
            State::Suspect => self.clear_suspicion(path, now),
            State::Down | State::Probing => self.path_up(path, now),
        }
        self.bring_home(now);
        self.rearm();
    }

    /// The peer's system has accepted the connection, which is not validated yet: any further delay
    /// is due to the server and not to the route to it.
    pub fn reached(&mut self, now: Duration, conn: ConnId) {
        if let Link::Connecting { .. } = self.conn(conn).link {
            let until = now + self.connect_patience(conn, now);
            let of_conn = self.conn(conn);
            let path = of_conn.path;
            let made_in = now.saturating_sub(of_conn.connecting_since);
            (of_conn.reached, of_conn.connecting_since) = (true, now);
            of_conn.link = Link::Connecting { until };
            self.path_mut(path).note_making(made_in);
            self.rearm();
        }
    }

    /// The peer's system has accepted the connection of an [`Output::Probe`].
    pub fn probe_reached(&mut self, now: Duration, path: PathId) {
        let Timing { probe_answer, probe_max, .. } = self.timing;
        let of_path = self.path_mut(path);
        of_path.probe_reached = Some(now);
        if let Some(sent) = of_path.probe_sent {
            of_path.note_making(now.saturating_sub(sent));
            of_path.probe_until = now + of_path.silence.patience(now, probe_answer, probe_max);
            self.rearm();
        }
    }

    /// The driver ran late by this long. A peer that was silent in that time may have sent
    /// something, so the time does not count as silence.
    pub fn late(&mut self, by: Duration) {
        for conn in &mut self.conns {
            match &mut conn.link {
                Link::Live { .. } => conn.excused += by,
                Link::Connecting { until } => *until += by,
                Link::Idle | Link::Waiting { .. } => {}
            }
        }
        for path in &mut self.paths {
            path.probe_until += by;
        }
        self.rearm();
    }

    /// The connection broke, or its connect failed. Must not be reported for a connection that was
    /// aborted by an [`Output::Abort`].
    pub fn disconnected(&mut self, now: Duration, conn: ConnId) {
        match self.conn(conn).link {
            Link::Live { .. } => self.broken(conn, now, now),
            Link::Connecting { .. } => self.connect_failed(conn, now),
            Link::Idle | Link::Waiting { .. } => {}
        }
        self.rearm();
    }

    /// A connection of another table broke on this path: the same fault may have broken this
    /// table's connections without a visible error.
    pub fn doubt(&mut self, now: Duration, path: PathId) {
        if self.paths.get(usize::from(path.0)).is_some_and(|path| path.status.state == State::Up)
            && self.has_live(path)
        {
            self.suspect(path, now, now);
            self.rearm();
        }
    }

    /// The driver gives up a call on this connection although the path is alive: the connection is
    /// reset, and its calls move.
    pub fn give_up(&mut self, now: Duration, conn: ConnId) {
        if self.is_live(conn) {
            let silent_since = self.conn(conn).last_alive;
            self.outputs.push_back(Output::Abort(conn));
            self.broken(conn, now, silent_since);
            self.rearm();
        }
    }

    /// Reports the progress of a connection: when its oldest unanswered call was sent on it, if
    /// there is one, and whether bytes were received or acknowledged since the last tick.
    pub fn tick(&mut self, now: Duration, conn: ConnId, oldest_sent_at: Option<Duration>, progress: bool) {
        if !self.is_live(conn) {
            return;
        }
        self.weigh(conn, now);
        self.review(self.conns[usize::from(conn.0)].path, now);
        if self.ramping.has(conn) {
            self.ramp(conn, now);
        }
        let oldest = oldest_sent_at;
        let Some(oldest_sent_at) = oldest.filter(|_| !progress) else {
            // If no call is outstanding, none is overdue; that alone says nothing about the path.
            if progress {
                let waited = oldest.map_or(Duration::ZERO, |sent| now.saturating_sub(sent));
                self.note_silence(now, conn, waited);
                self.alive(now, conn);
            } else if std::mem::take(&mut self.conn(conn).silent) {
                self.refresh(conn);
            }
            self.conn(conn).excused = Duration::ZERO;
            return;
        };
        let Conn { last_alive, excused, path, .. } = self.conns[usize::from(conn.0)];
        let silent_since = oldest_sent_at.max(last_alive);
        let silence = now.saturating_sub(silent_since).saturating_sub(excused);
        if silence > self.timing.silent_max {
            self.give_up(now, conn);
        } else if silence > self.patience(path) {
            self.conn(conn).silent = true;
            self.refresh(conn);
            let of_path = &self.paths[usize::from(path.0)];
            // Another connection of the path may have shown a sign of life: then only this
            // connection is stuck.
            let path_silent = silence.min(now.saturating_sub(of_path.last_alive));
            if path_silent > self.patience_with_path(path) && of_path.status.state == State::Up {
                self.suspect(path, now, silent_since);
                self.rearm();
            }
        }
    }

    /// The NULL call of an [`Output::Probe`] was answered.
    pub fn probe_answered(&mut self, now: Duration, path: PathId) {
        let usable = self.usable();
        let of_path = self.path_mut(path);
        of_path.last_alive = now;
        // A reply that came too late matters most: that server was slow and not dead.
        let answering = of_path.probe_reached.take().map_or(Duration::ZERO, |at| now.saturating_sub(at));
        of_path.silence.note(now, answering);
        of_path.probe_sent = None;
        match of_path.status.state {
            State::Up => {}
            State::Suspect => {
                let silence = now.saturating_sub(of_path.silent_since);
                of_path.silence.note(now, silence);
                self.clear_suspicion(path, now);
            }
            State::Down if usable && now < of_path.hold_until => {}
            State::Down | State::Probing => {
                let of_path = self.path_mut(path);
                of_path.ready = of_path.owned;
                of_path.retry_at = None;
                self.set_state(path, State::Probing, now);
                self.connect_idle(path, now);
                self.bring_home(now);
            }
        }
        self.rearm();
    }

    /// The connection of the probe was refused or broke. (The table itself enforces the time
    /// limit.)
    pub fn probe_failed(&mut self, now: Duration, path: PathId) {
        if self.path_mut(path).probe_sent.is_some() {
            self.probe_missed(path, now);
            self.rearm();
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
            match self.conn(conn).link {
                Link::Connecting { until } if until <= now => {
                    if self.conn(conn).reached {
                        let path = self.conn(conn).path;
                        self.path_mut(path).unproved += 1;
                    }
                    self.outputs.push_back(Output::Abort(conn));
                    self.connect_failed(conn, now);
                }
                Link::Waiting { until } if until <= now => {
                    let path = self.conn(conn).path;
                    self.connect(conn, path, now);
                }
                _ => {}
            }
            if self.conn(conn).draining.is_some_and(|until| until <= now) {
                self.conn(conn).draining = None;
                self.return_at = now + self.timing.drain_retry;
                self.refresh(conn);
            }
            for path in [self.conn(conn).path, self.conn(conn).preferred] {
                self.advance_path(path, now);
            }
        }
        if self.failover_at.is_some_and(|at| at <= now) {
            self.fail_over_idle(now);
        }
        self.bring_home(now);
        self.rearm();
    }

    fn advance_path(&mut self, path: PathId, now: Duration) {
        let of_path = self.path_mut(path);
        if of_path.probe_sent.is_some() && of_path.probe_until <= now {
            self.probe_missed(path, now);
        }
        if self.retry_time(path).is_some_and(|at| at <= now) {
            self.path_mut(path).retry_at = None;
            if self.path_mut(path).status.state == State::Down {
                self.set_state(path, State::Probing, now);
            }
            self.probe(path, now);
        }
    }

    /// When a path is to be probed again. A hold applies only if there is another path to use.
    fn retry_time(&self, path: PathId) -> Option<Duration> {
        let of_path = &self.paths[usize::from(path.0)];
        match of_path.status.state {
            State::Suspect => of_path.retry_at,
            State::Down if !of_path.owned => None,
            State::Down if self.usable() => of_path.retry_at.map(|at| at.max(of_path.hold_until)),
            State::Down => of_path.retry_at,
            State::Up | State::Probing => None,
        }
    }

    /// How long a connection may be silent with calls in flight.
    fn patience(&self, path: PathId) -> Duration {
        let overdue = self.paths[usize::from(path.0)].latency.overdue_after();
        overdue.clamp(self.timing.suspect_min, self.timing.suspect_max.max(self.timing.suspect_min))
    }

    /// How long a path may be silent: if connections are expensive to establish, as long as
    /// establishing one takes ([`SUSPECT_DEAR_MAX`]).
    fn patience_with_path(&self, path: PathId) -> Duration {
        let patience = self.patience(path);
        if self.timing.probe_per_making == 0 {
            return patience;
        }
        patience.max(self.paths[usize::from(path.0)].making.min(SUSPECT_DEAR_MAX))
    }

    /// How long the connect of this connection, or its path validation, may take. A failback from a
    /// working path does not wait longer with each attempt: the working path could have served its
    /// calls.
    fn connect_patience(&self, conn: ConnId, now: Duration) -> Duration {
        let Timing { connect_timeout, connect_max, .. } = self.timing;
        let Conn { path, returns, .. } = self.conns[usize::from(conn.0)];
        let Path { silence, unproved, .. } = &self.paths[usize::from(path.0)];
        let doublings = if returns { 0 } else { (*unproved).min(8) };
        let least = connect_timeout.saturating_mul(1 << doublings).min(connect_max);
        silence.patience(now, least, connect_max)
    }

    /// How long establishing a connection may take on a path whose cost is not known, judging by
    /// the most expensive path of this table.
    fn making_patience(&self) -> Duration {
        let Timing { probe_per_making, connect_timeout, .. } = self.timing;
        let dearest = self.paths.iter().map(|path| path.making).max().unwrap_or_default();
        dearest.saturating_mul(probe_per_making).min(connect_timeout)
    }

    /// Where connections are expensive to establish, each attempt on a path that is down may take
    /// twice as long as the previous one: an attempt given up too early is wasted, and keeps a slow
    /// server from completing others.
    fn growing_patience(&self, path: PathId) -> Duration {
        let Timing { probe_timeout, probe_per_making, connect_timeout, .. } = self.timing;
        let attempts = self.paths[usize::from(path.0)].attempts;
        let factor = if probe_per_making == 0 { 0 } else { 1 << attempts.min(16) };
        probe_timeout.saturating_mul(factor).min(connect_timeout)
    }

    fn probe(&mut self, path: PathId, now: Duration) {
        let Timing { probe_timeout, probe_max, .. } = self.timing;
        // `attempts` counts attempts on a path that was down.
        let is_suspect = self.paths[usize::from(path.0)].status.state == State::Suspect;
        let growing = if is_suspect { Duration::ZERO } else { self.growing_patience(path) };
        let making = self.making_patience().max(growing);
        let of_path = self.path_mut(path);
        of_path.probe_sent = Some(now);
        of_path.probe_reached = None;
        of_path.probe_until = now + of_path.silence.patience(now, probe_timeout, probe_max).max(making);
        of_path.status.probes += 1;
        self.outputs.push_back(Output::Probe(path));
    }

    fn suspect(&mut self, path: PathId, now: Duration, silent_since: Duration) {
        let of_path = self.path_mut(path);
        of_path.silent_since = silent_since;
        of_path.status.suspicions += 1;
        self.set_state(path, State::Suspect, now);
        self.refresh_path(path);
        self.probe(path, now);
    }

    pub(super) fn clear_suspicion(&mut self, path: PathId, now: Duration) {
        let of_path = self.path_mut(path);
        of_path.probe_sent = None;
        of_path.retry_at = None;
        self.set_state(path, State::Up, now);
        self.refresh_path(path);
        self.rearm();
    }

    fn probe_missed(&mut self, path: PathId, now: Duration) {
        let Some(sent) = self.path_mut(path).probe_sent.take() else { return };
        let timing = self.timing;
        match self.path_mut(path).status.state {
            State::Suspect => {
                let silent_for = now.saturating_sub(self.path_mut(path).silent_since);
                if self.elsewhere(path) || silent_for >= timing.alone_max {
                    self.path_died(path, now);
                } else {
                    // A probe that is refused at once must not be followed at once by the next
                    // probe.
                    self.path_mut(path).retry_at = Some(now.max(sent + timing.probe_timeout));
                }
            }
            State::Probing => {
                self.set_state(path, State::Down, now);
                self.retry_later(path, now);
            }
            State::Up | State::Down => {}
        }
    }

    /// Whether calls could use another path: a path that is up, or one that this table hasn't tried
    /// yet.
    fn elsewhere(&self, path: PathId) -> bool {
        self.paths.iter().enumerate().any(|(index, other)| {
            let untried = !other.owned && other.members.is_empty() && other.status.state == State::Probing;
            index != usize::from(path.0) && (other.status.state == State::Up || untried)
        })
    }

    /// Takes down a silent path that did not answer its probe: its connections are reset, and their
    /// calls move.
    fn path_died(&mut self, path: PathId, now: Duration) {
        let silent_since = self.path_mut(path).silent_since;
        self.set_down(path, now);
        let first = now + self.timing.probe_interval;
        self.path_mut(path).retry_at = Some(first);
        for conn in self.path_mut(path).members.iter() {
            match self.conn(conn).link {
                Link::Live { .. } => {
                    self.outputs.push_back(Output::Abort(conn));
                    self.take_calls(conn, now, silent_since);
                }
                Link::Connecting { .. } => self.outputs.push_back(Output::Abort(conn)),
                Link::Idle | Link::Waiting { .. } => {}
            }
            self.idle(conn);
        }
        self.fail_over_idle(now);
    }

    /// Handles the loss of a live connection: its calls move now, and it connects again.
    fn broken(&mut self, conn: ConnId, now: Duration, silent_since: Duration) {
        let path = self.conn(conn).path;
        if let Link::Live { since } = self.conn(conn).link
            && now.saturating_sub(since) >= self.timing.retry_max
        {
            self.conn(conn).attempts = 0;
        }
        self.take_calls(conn, now, silent_since);
        self.idle(conn);
        if self.has_live(path) {
            match self.conn(conn).attempts {
                0 => self.connect(conn, path, now),
                _ => self.wait(conn, now),
            }
            // The same fault may have broken all of the path's connections without a visible error.
            if self.path_mut(path).status.state == State::Up {
                self.suspect(path, now, now);
            }
            return;
        }
        self.set_down(path, now);
        if now < self.path_mut(path).hold_until {
            for other in self.path_mut(path).members.iter() {
                if let Link::Connecting { .. } = self.conn(other).link {
                    self.outputs.push_back(Output::Abort(other));
                }
                self.idle(other);
            }
            self.retry_later(path, now);
            self.fail_over_idle(now);
        } else {
            for other in self.path_mut(path).members.iter() {
                if let Link::Waiting { .. } = self.conn(other).link {
                    self.idle(other);
                }
            }
            self.connect(conn, path, now);
        }
    }

    /// Moves the calls of a lost connection to other connections. Its outstanding bytes no longer
    /// count.
    fn take_calls(&mut self, conn: ConnId, now: Duration, silent_since: Duration) {
        let index = usize::from(conn.0);
        let (calls, path) = (self.calls[index], self.conns[index].path);
        if calls > 0 {
            self.path_mut(path).status.moved(calls, now.saturating_sub(silent_since));
        }
        self.calls[index] = 0;
        self.load[index] = [0; 2];
        self.outputs.push_back(Output::Move(conn));
    }

    fn connect_failed(&mut self, conn: ConnId, now: Duration) {
        let Conn { path, returns, connecting_since, .. } = self.conns[usize::from(conn.0)];
        self.idle(conn);
        if self.has_live(path) {
            self.wait(conn, now);
            return;
        }
        if returns {
            self.hold_home(path, now, now.saturating_sub(connecting_since));
        }
        let connecting =
            |conn: ConnId| matches!(self.conns[usize::from(conn.0)].link, Link::Connecting { .. });
        let others_try = self.paths[usize::from(path.0)].members.iter().any(connecting);
        if !others_try && self.path_mut(path).probe_sent.is_none() {
            self.path_mut(path).ready = false;
            self.set_state(path, State::Down, now);
            self.retry_later(path, now);
        }
        self.fail_over_idle(now);
    }

    /// Holds a preferred path after a failback to it got no valid reply within `waited`
    /// ([`HOLD_PER_WAIT`]).
    fn hold_home(&mut self, path: PathId, now: Duration, waited: Duration) {
        let Timing { hold_min, hold_max, .. } = self.timing;
        let of_path = self.path_mut(path);
        let longer = (of_path.return_hold * 2).max(waited.saturating_mul(HOLD_PER_WAIT));
        of_path.return_hold = longer.max(hold_min).min(hold_max);
        of_path.hold_until = of_path.hold_until.max(now + of_path.return_hold);
    }

    fn has_live(&self, path: PathId) -> bool {
        self.paths[usize::from(path.0)].members.iter().any(|conn| self.is_live(conn))
    }

    /// Connects a connection to a path. Any previous connection in its slot is gone.
    pub(super) fn connect(&mut self, conn: ConnId, path: PathId, now: Duration) {
        let before = self.conn(conn).path;
        let same = before == path;
        self.enter(conn, path);
        let left = self.path_mut(before);
        if left.members.is_empty() && matches!(left.status.state, State::Up | State::Suspect) {
            // No connection is left on the path to notice its death.
            left.probe_sent = None;
            left.retry_at = None;
            self.set_state(before, State::Probing, now);
        }
        let of_path = &self.paths[usize::from(path.0)];
        // Nothing is known about a foreign path and calls are waiting, so the next path is tried
        // soon.
        let in_haste = !of_path.owned && of_path.attempts == 0;
        self.conn(conn).returns = self.is_live(conn);
        let patience = self.connect_patience(conn, now);
        let hasty = self.timing.probe_timeout.max(self.making_patience());
        let until = now + if in_haste { hasty } else { patience };
        let of_conn = self.conn(conn);
        (of_conn.reached, of_conn.connecting_since) = (false, now);
        of_conn.link = Link::Connecting { until };
        of_conn.silent = false;
        of_conn.draining = None;
        self.refresh(conn);
        self.outputs.push_back(if same {
            Output::Connect(conn)
        } else {
            Output::FailOver { conn, to: path }
        });
    }

    /// Connects the idle connections that prefer this path.
    fn connect_idle(&mut self, path: PathId, now: Duration) {
        for index in 0..self.conns.len() {
            let Conn { link, preferred, .. } = self.conns[index];
            if link == Link::Idle && preferred == path {
                self.connect(ConnId(index as u16), path, now);
            }
        }
    }

    fn idle(&mut self, conn: ConnId) {
        let of_conn = self.conn(conn);
        of_conn.link = Link::Idle;
        of_conn.silent = false;
        of_conn.draining = None;
        self.refresh(conn);
    }

    /// Schedules the next attempt of a broken connection of a live path after its back-off.
    fn wait(&mut self, conn: ConnId, now: Duration) {
        let attempts = self.conn(conn).attempts;
        let until = now + self.back_off(attempts);
        let of_conn = self.conn(conn);
        of_conn.attempts = attempts.saturating_add(1);
        of_conn.link = Link::Waiting { until };
    }

    fn retry_later(&mut self, path: PathId, now: Duration) {
        let attempts = self.path_mut(path).attempts;
        let at = now + self.back_off(attempts);
        let of_path = self.path_mut(path);
        of_path.attempts = attempts.saturating_add(1);
        of_path.retry_at = Some(at);
    }

    /// The back-off doubles with each attempt, up to a bound, and varies by a quarter either way,
    /// so that clients that lost the same server don't reconnect in step.
    pub(super) fn back_off(&mut self, attempts: u32) -> Duration {
        let longest = self.timing.retry_max;
        let base = self.timing.retry_min.saturating_mul(1 << attempts.min(16)).min(longest);
        let jitter = (self.random() % 512) as u32;
        base * 3 / 4 + base * jitter / 1024
    }

    /// A path that was down, or was never tried, has a live connection.
    fn path_up(&mut self, path: PathId, now: Duration) {
        let of_path = self.path_mut(path);
        if of_path.status.deaths > 0 {
            of_path.returned_at = Some(now);
            of_path.ramp_since = Some(now);
        }
        of_path.ready = of_path.owned;
        of_path.retry_at = None;
        of_path.probe_sent = None;
        self.set_state(path, State::Up, now);
        self.refresh_path(path);
        for conn in self.path_mut(path).members.iter() {
            self.ramp(conn, now);
        }
        self.connect_idle(path, now);
    }

    fn set_down(&mut self, path: PathId, now: Duration) {
        let timing = self.timing;
        let of_path = self.path_mut(path);
        let flaps = of_path.returned_at.take().is_some_and(|at| now.saturating_sub(at) < timing.stable_after);
        of_path.hold =
            if flaps { (of_path.hold * 2).clamp(timing.hold_min, timing.hold_max) } else { Duration::ZERO };
        of_path.hold_until = now + of_path.hold;
        if !flaps {
            of_path.attempts = 0;
        }
        of_path.status.deaths += 1;
        of_path.probe_sent = None;
        of_path.ready = false;
        of_path.ramp_since = None;
        of_path.residence = Default::default();
        self.set_state(path, State::Down, now);
        self.refresh_path(path);
    }

    fn set_state(&mut self, path: PathId, to: State, now: Duration) {
        let status = &mut self.path_mut(path).status;
        let from = std::mem::replace(&mut status.state, to);
        if from != to {
            status.since = now;
            self.outputs.push_back(Output::StateChanged { path, from, to });
        }
    }

    /// Computes when the next timer is due. Slow path: looks at all connections, but only after
    /// changes.
    pub(super) fn rearm(&mut self) {
        let mut wake = self.failover_at;
        let leaving = self.on_the_way();
        let mut at = |time: Option<Duration>| {
            wake = match (wake, time) {
                (Some(wake), Some(time)) => Some(wake.min(time)),
                (wake, time) => wake.or(time),
            }
        };
        for conn in &self.conns {
            match conn.link {
                Link::Connecting { until } | Link::Waiting { until } => at(Some(until)),
                Link::Idle | Link::Live { .. } => {}
            }
            at(conn.draining);
            if !leaving {
                at(self.home_at(conn));
            }
            for path in [conn.path, conn.preferred] {
                let Path { probe_sent, probe_until, .. } = self.paths[usize::from(path.0)];
                at(probe_sent.map(|_| probe_until));
                at(self.retry_time(path));
            }
        }
        self.wake = wake;
    }
}

//! Checks paths by probes: suspect paths, and paths that are down.
//!
//! A path without connections is tried by one probe at a time, and its connections connect once a
//! probe is answered.

use super::{Check, Duration, Health, Link, Output, PathId, Probe, State, Table, Timing};

impl Table {
    /// The peer's system has accepted the connection of an [`Output::Probe`].
    pub fn probe_reached(&mut self, now: Duration, path: PathId) {
        let Timing { probe_answer, probe_max, .. } = self.timing;
        let of_path = self.path_mut(path);
        of_path.responses.probe_accepted_at = Some(now);
        if let Some(Probe { sent, .. }) = of_path.probe() {
            of_path.responses.note_connect_time(now.saturating_sub(sent));
            let until = now + of_path.responses.silence.timeout(now, probe_answer, probe_max);
            if let Some(probe) = of_path.probe_mut() {
                probe.until = until;
            }
            self.rearm();
        }
    }

    /// The NULL call of an [`Output::Probe`] was answered.
    pub fn probe_answered(&mut self, now: Duration, path: PathId) {
        let usable = self.usable();
        let of_path = self.path_mut(path);
        of_path.responses.probe_answered(now);
        match of_path.health() {
            Health::Up { .. } => {}
            Health::Suspect { silent_since, .. } => {
                of_path.responses.silence.note(now, now.saturating_sub(silent_since));
                self.clear_suspicion(path, now);
            }
            Health::Down { .. } if usable && now < of_path.recovery.hold_until => {}
            Health::Down { .. } | Health::Untried | Health::Probing { .. } | Health::Reachable => {
                self.set_health(path, Health::Reachable, now);
                self.connect_idle(path, now);
                self.start_failback(now);
            }
        }
        self.rearm();
    }

    /// The connection of the probe was refused or broke. (The table itself enforces the time
    /// limit.)
    pub fn probe_failed(&mut self, now: Duration, path: PathId) {
        if let Some(probe) = self.path_ref(path).probe() {
            self.probe_missed(path, probe, now);
            self.rearm();
        }
    }

    /// A connection of another table broke on this path: the same fault may have broken this
    /// table's connections without a visible error.
    pub fn doubt(&mut self, now: Duration, path: PathId) {
        let is_up = self.paths.get(usize::from(path.0)).is_some_and(|path| path.state() == State::Up);
        if is_up && self.has_live(path) {
            self.suspect(path, now, now);
            self.rearm();
        }
    }

    /// Ends a probe that took too long, and sends the next one when it is due.
    pub(super) fn advance_path(&mut self, path: PathId, now: Duration) {
        if let Some(probe) = self.path_ref(path).probe()
            && probe.until <= now
        {
            self.probe_missed(path, probe, now);
        }
        if self.probe_time(path).is_none_or(|at| now < at) {
            return;
        }
        let was_down = self.path_ref(path).state() == State::Down;
        let probe = self.new_probe(path, now, was_down);
        if was_down {
            self.set_health(path, Health::Probing { probe }, now);
        } else {
            self.path_mut(path).set_check(Check::InFlight(probe));
        }
        self.outputs.push_back(Output::Probe(path));
    }

    /// When a path is to be probed next. A hold applies only if there is another path to use.
    pub(super) fn probe_time(&self, path: PathId) -> Option<Duration> {
        let of_path = self.path_ref(path);
        match of_path.health() {
            Health::Suspect { check: Check::Due(at), .. } => Some(at),
            Health::Down { retry_at } if of_path.is_own => {
                let held = if self.usable() { of_path.recovery.hold_until } else { Duration::ZERO };
                retry_at.map(|at| at.max(held))
            }
            _ => None,
        }
    }

    /// A probe that is sent now. The caller stores the probe and then puts out [`Output::Probe`].
    fn new_probe(&mut self, path: PathId, now: Duration, was_down: bool) -> Probe {
        let until = now + self.probe_timeout(path, now, was_down);
        let of_path = self.path_mut(path);
        of_path.responses.probe_accepted_at = None;
        of_path.counters.probes += 1;
        Probe { sent: now, until }
    }

    pub(super) fn suspect(&mut self, path: PathId, now: Duration, silent_since: Duration) {
        let check = Check::InFlight(self.new_probe(path, now, false));
        let of_path = self.path_mut(path);
        of_path.counters.suspicions += 1;
        let ramp_since = of_path.ramp_since();
        self.set_health(path, Health::Suspect { ramp_since, silent_since, check }, now);
        self.refresh_path(path);
        self.outputs.push_back(Output::Probe(path));
    }

    pub(super) fn clear_suspicion(&mut self, path: PathId, now: Duration) {
        let ramp_since = self.path_ref(path).ramp_since();
        self.set_health(path, Health::Up { ramp_since }, now);
        self.refresh_path(path);
        self.rearm();
    }

    /// The probe in flight was not answered in time, or was refused.
    fn probe_missed(&mut self, path: PathId, probe: Probe, now: Duration) {
        let timing = self.timing;
        match self.path_ref(path).health() {
            Health::Suspect { silent_since, .. } => {
                let silence = now.saturating_sub(silent_since);
                if self.has_alternative(path) || silence >= timing.alone_max {
                    self.path_died(path, now, silent_since);
                } else {
                    // A probe that is refused at once must not be followed at once by the next
                    // probe.
                    let next = now.max(probe.sent + timing.probe_timeout);
                    self.path_mut(path).set_check(Check::Due(next));
                }
            }
            Health::Probing { .. } => {
                self.set_health(path, Health::Down { retry_at: None }, now);
                self.retry_later(path, now);
            }
            Health::Untried | Health::Up { .. } | Health::Down { .. } | Health::Reachable => {}
        }
    }

    /// Whether calls could use another path: a path that is up, or one that this table hasn't tried
    /// yet.
    fn has_alternative(&self, path: PathId) -> bool {
        self.paths.iter().enumerate().any(|(index, other)| {
            let is_untried = !other.is_own && other.members.is_empty() && other.state() == State::Probing;
            index != usize::from(path.0) && (other.state() == State::Up || is_untried)
        })
    }

    /// Takes down a silent path that did not answer its probe: its connections are reset, and their
    /// calls move.
    fn path_died(&mut self, path: PathId, now: Duration, silent_since: Duration) {
        self.set_down(path, now);
        let first = now + self.timing.probe_interval;
        self.path_mut(path).set_retry(first);
        for conn in self.path_ref(path).members.iter() {
            match self.conn_ref(conn).link {
                Link::Live(_) => {
                    self.outputs.push_back(Output::Abort(conn));
                    self.move_calls(conn, now, silent_since);
                }
                Link::Connecting(_) => self.outputs.push_back(Output::Abort(conn)),
                Link::Idle | Link::Waiting { .. } => {}
            }
            self.idle(conn);
        }
        self.fail_over_idle(now);
    }
}

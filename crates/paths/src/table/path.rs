//! One path of a table, in parts: its health, how soon it responds, and when it may be used again
//! after it was down.

use super::leave::Residence;
use super::set::Set;
use crate::silence::SilenceEstimator;
use crate::status::{Counters, Latency, PathStatus, SIZES};
use crate::timing::HOLD_PER_WAIT;
use crate::{NodeId, State, Timing};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Path {
    pub node: NodeId,
    /// The path is the preferred path of some connection of this table.
    pub is_own: bool,
    /// The connections that are on the path now.
    pub members: Set,
    /// The number of `members`.
    pub sharers: u32,
    /// Private, so that every change of state is reported.
    health: Health,
    /// When the path entered its state.
    since: Duration,
    pub responses: Responses,
    pub recovery: Recovery,
    pub latency: Latency,
    /// Whether files that prefer this path use it, by the size of their calls.
    pub residence: [Residence; SIZES],
    pub counters: Counters,
}

/// Whether a path works. Each state holds what only that state needs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Health {
    /// No connection has been established yet.
    Untried,
    /// A connection works.
    Up { ramp_since: Option<Duration> },
    /// A call is overdue since `silent_since`, or a connection broke then.
    Suspect { ramp_since: Option<Duration>, silent_since: Duration, check: Check },
    /// The path is dead and its calls have been moved. The next attempt is due at `retry_at`;
    /// without that time, a connection is being established already.
    Down { retry_at: Option<Duration> },
    /// The path was down, and a probe is in flight.
    Probing { probe: Probe },
    /// The path answered a probe, or its last connection left it while it worked: its connections
    /// may be established.
    Reachable,
}

/// How a suspect path is being checked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Check {
    InFlight(Probe),
    /// The next probe is due then.
    Due(Duration),
}

/// A probe in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub sent: Duration,
    /// The deadline of its reply or, until the peer's system has accepted it, of that.
    pub until: Duration,
}

/// How soon a path and its server have responded recently, which decides how long to wait for them.
#[derive(Debug)]
pub(super) struct Responses {
    pub last_alive: Duration,
    /// The silences from which the path has recovered.
    pub silence: SilenceEstimator,
    /// How long it recently took until the peer's system accepted a connection.
    pub connect_time: Duration,
    /// When the peer's system accepted the last probe that is not answered. The reply may come
    /// after the probe has missed its deadline.
    pub probe_accepted_at: Option<Duration>,
    /// Consecutive connects that were accepted but not validated in time.
    pub unvalidated: u32,
}

/// When a path that was down may be used again: the back-off of attempts, and the hold.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Attempts since the path went down or, if the path flaps, since it began to flap.
    pub attempts: u32,
    /// A flapping path stays down until this time if there is any other path; so does a preferred
    /// path that failed validation.
    pub hold_until: Duration,
    flap_hold: Duration,
    /// The hold after the last failed failback. It is cleared as soon as the path is validated,
    /// unlike the hold of a flapping path.
    failback_hold: Duration,
    /// When the path came up again after it had been down.
    returned_at: Option<Duration>,
}

impl Path {
    pub fn new(node: NodeId, now: Duration) -> Self {
        Self {
            node,
            is_own: false,
            members: Set::EMPTY,
            sharers: 0,
            health: Health::Untried,
            since: now,
            responses: Responses {
                last_alive: now,
                silence: SilenceEstimator::default(),
                connect_time: Duration::ZERO,
                probe_accepted_at: None,
                unvalidated: 0,
            },
            recovery: Recovery::default(),
            latency: Latency::default(),
            residence: [Residence::default(); SIZES],
            counters: Counters::default(),
        }
    }

    pub const fn health(&self) -> Health {
        self.health
    }

    pub const fn state(&self) -> State {
        self.health.state()
    }

    /// Enters a state, and returns the previous one if the two have different names.
    pub fn enter(&mut self, health: Health, now: Duration) -> Option<State> {
        let from = self.state();
        self.health = health;
        if from == health.state() {
            return None;
        }
        self.since = now;
        Some(from)
    }

    /// Whether failed-over connections may fail back to this path.
    pub const fn takes_failback(&self) -> bool {
        self.is_own && matches!(self.health, Health::Up { .. } | Health::Suspect { .. } | Health::Reachable)
    }

    /// Whether the path is worth an attempt by a connection that has no other path.
    pub fn may_be_tried(&self, now: Duration) -> bool {
        match self.health {
            Health::Down { retry_at } => {
                retry_at.is_none_or(|at| at <= now) && self.recovery.hold_until <= now
            }
            _ => true,
        }
    }

    pub const fn ramp_since(&self) -> Option<Duration> {
        match self.health {
            Health::Up { ramp_since } | Health::Suspect { ramp_since, .. } => ramp_since,
            _ => None,
        }
    }

    pub const fn end_ramp(&mut self) {
        if let Health::Up { ramp_since } | Health::Suspect { ramp_since, .. } = &mut self.health {
            *ramp_since = None;
        }
    }

    pub const fn probe(&self) -> Option<Probe> {
        match self.health {
            Health::Probing { probe } | Health::Suspect { check: Check::InFlight(probe), .. } => Some(probe),
            _ => None,
        }
    }

    pub const fn probe_mut(&mut self) -> Option<&mut Probe> {
        match &mut self.health {
            Health::Probing { probe } | Health::Suspect { check: Check::InFlight(probe), .. } => Some(probe),
            _ => None,
        }
    }

    /// Sets how a suspect path is checked next.
    pub const fn set_check(&mut self, next: Check) {
        if let Health::Suspect { check, .. } = &mut self.health {
            *check = next;
        }
    }

    /// Sets when a path that is down is tried next.
    pub const fn set_retry(&mut self, at: Duration) {
        if let Health::Down { retry_at } = &mut self.health {
            *retry_at = Some(at);
        }
    }

    /// Whether a connection on the path was ever established, or has failed.
    pub const fn is_tried(&self) -> bool {
        !matches!(self.health, Health::Untried)
    }

    pub const fn status(&self) -> PathStatus {
        self.counters.status(self.state(), self.since, self.latency.smoothed())
    }
}

impl Health {
    const fn state(self) -> State {
        match self {
            Self::Up { .. } => State::Up,
            Self::Suspect { .. } => State::Suspect,
            Self::Down { .. } => State::Down,
            Self::Untried | Self::Probing { .. } | Self::Reachable => State::Probing,
        }
    }
}

impl Responses {
    /// Records how long a connection took to establish. An expensive connection is forgotten as
    /// further connections are established, not with time, because the cost does not change by
    /// itself.
    pub fn note_connect_time(&mut self, took: Duration) {
        self.connect_time = took.max(self.connect_time * 3 / 4);
    }

    /// A connection was validated. `took` is the time since the peer's system accepted it.
    pub fn validated(&mut self, now: Duration, took: Duration) {
        self.silence.note(now, took);
        self.unvalidated = 0;
        self.last_alive = now;
    }

    pub fn probe_answered(&mut self, now: Duration) {
        self.last_alive = now;
        // A reply that came too late matters most: that server was slow and not dead.
        let took = self.probe_accepted_at.take().map_or(Duration::ZERO, |at| now.saturating_sub(at));
        self.silence.note(now, took);
    }
}

impl Recovery {
    /// A connection was validated.
    pub const fn validated(&mut self, now: Duration) {
        (self.failback_hold, self.hold_until) = (Duration::ZERO, now);
    }

    /// The path is up again after it was down.
    pub const fn returned(&mut self, now: Duration) {
        self.returned_at = Some(now);
    }

    /// The path went down. If it does so soon after its return, it flaps and is held down, longer
    /// each time.
    pub fn died(&mut self, now: Duration, timing: &Timing) {
        let flaps = self.returned_at.take().is_some_and(|at| now.saturating_sub(at) < timing.stable_after);
        if flaps {
            self.flap_hold = (self.flap_hold * 2).clamp(timing.hold_min, timing.hold_max);
        } else {
            self.flap_hold = Duration::ZERO;
            self.attempts = 0;
        }
        self.hold_until = now + self.flap_hold;
    }

    /// A failback to the path got no valid reply within `waited` ([`HOLD_PER_WAIT`]).
    pub fn failback_failed(&mut self, now: Duration, waited: Duration, timing: &Timing) {
        let longer = (self.failback_hold * 2).max(waited.saturating_mul(HOLD_PER_WAIT));
        self.failback_hold = longer.max(timing.hold_min).min(timing.hold_max);
        self.hold_until = self.hold_until.max(now + self.failback_hold);
    }
}

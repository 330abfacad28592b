//! What is known of a path: its state, its counters, how quick it has been.

use std::time::Duration;

/// The health of a path, as one table sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It answers.
    Up,
    /// A call on it is overdue, or one of its connections broke; a probe is under way. It is used only
    /// where nothing is up.
    Suspect,
    /// It is dead; its calls have been moved.
    Down,
    /// Not known to be alive: not connected yet, or dead and being tried again.
    Probing,
}

impl State {
    /// The name in logs, metrics and records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
            Self::Probing => "probing",
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(self.name())
    }
}

/// State and counters of one path in one table. Add them up over the tables of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStatus {
    /// Its state now.
    pub state: State,
    /// Since when it is in that state.
    pub since: Duration,
    /// Calls sent, those sent again after a move included.
    pub calls: u64,
    /// Payload bytes of those calls, as given to [`crate::Table::sent`].
    pub bytes: u64,
    /// How often calls in flight had to leave a connection of this path.
    pub failovers: u64,
    /// How many calls left that way.
    pub moved_calls: u64,
    /// From the last sign of life to the move, the last time that calls had to leave.
    pub gap_last: Duration,
    /// The longest of those gaps.
    pub gap_worst: Duration,
    /// How often it was suspected.
    pub suspicions: u64,
    /// How often it went down.
    pub deaths: u64,
    /// Probes sent to it.
    pub probes: u64,
    /// Connects that succeeded, the first ones included.
    pub connects: u64,
    /// Smoothed time from call to answer.
    pub latency: Duration,
}

impl PathStatus {
    pub(crate) const fn new(now: Duration) -> Self {
        Self {
            state: State::Probing,
            since: now,
            calls: 0,
            bytes: 0,
            failovers: 0,
            moved_calls: 0,
            gap_last: Duration::ZERO,
            gap_worst: Duration::ZERO,
            suspicions: 0,
            deaths: 0,
            probes: 0,
            connects: 0,
            latency: Duration::ZERO,
        }
    }

    pub(crate) fn moved(&mut self, calls: u32, gap: Duration) {
        self.failovers += 1;
        self.moved_calls += u64::from(calls);
        self.gap_last = gap;
        self.gap_worst = self.gap_worst.max(gap);
    }
}

/// Smoothed latency and its deviation, as TCP estimates its round trip (RFC 6298 s2), and the pace: time
/// per unit of load, by size of call, to tell a slow path from a busy one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latency {
    smoothed_ns: u64,
    deviation_ns: u64,
    /// Nanoseconds per [`PACE_UNIT`] of load; 0 while unknown. Small calls, large calls.
    pub pace: [u64; 2],
}

/// Load is counted in bytes; a pace is per 64 KiB of it, so that it stays a whole number on fast paths.
const PACE_UNIT: u64 = 64 << 10;
/// Calls up to this size are paced apart from larger ones: their time is mostly latency, not bandwidth.
const SMALL_BYTES_MAX: u32 = 16 << 10;

impl Latency {
    /// One call of `bytes` was answered after `latency` while `load` (its own included) was outstanding on
    /// its connection.
    pub fn sample(&mut self, latency: Duration, bytes: u32, load: u64) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX >> 16).min(u64::MAX >> 16);
        if self.smoothed_ns == 0 {
            self.smoothed_ns = ns;
            self.deviation_ns = ns / 2;
        } else {
            self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + self.smoothed_ns.abs_diff(ns) / 4;
            self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + ns / 8;
        }
        let pace = (ns.saturating_mul(PACE_UNIT) / load.max(1)).max(1);
        let known = &mut self.pace[usize::from(bytes > SMALL_BYTES_MAX)];
        *known = if *known == 0 { pace } else { *known - *known / 8 + pace / 8 };
    }

    pub const fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns)
    }

    /// The silence that is too long for what this path has been doing.
    pub const fn overdue_after(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns.saturating_add(self.deviation_ns.saturating_mul(4)))
    }
}

//! What is known about a path: its state, its counters and its latency.

use std::time::Duration;

/// The health of a path, as seen by one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The path answers.
    Up,
    /// A call on the path is overdue, or one of its connections broke; a probe is in flight. The
    /// path is used only if no path is up.
    Suspect,
    /// The path is dead; its calls have been moved.
    Down,
    /// Not known to be alive: not connected yet, or dead and being retried.
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

/// State and counters of one path in one table. Sum the counters over the tables of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStatus {
    /// The current state.
    pub state: State,
    /// When the path entered this state.
    pub since: Duration,
    /// Calls sent, including calls sent again after a move.
    pub calls: u64,
    /// Payload bytes of these calls, as passed to [`crate::Table::sent`].
    pub bytes: u64,
    /// How often calls in flight had to be moved off a connection of this path.
    pub failovers: u64,
    /// How many calls were moved in this way.
    pub moved_calls: u64,
    /// Time from the last sign of life to the most recent move.
    pub gap_last: Duration,
    /// The longest of those gaps.
    pub gap_worst: Duration,
    /// How often the path was suspected.
    pub suspicions: u64,
    /// How often the path went down.
    pub deaths: u64,
    /// How often files left the path because it was several times slower than another.
    pub departures: u64,
    /// Probes sent on the path.
    pub probes: u64,
    /// Successful connects, including the first ones.
    pub connects: u64,
    /// Smoothed time from call to reply.
    pub latency: Duration,
}

/// The counters of one path; see [`PathStatus`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub calls: u64,
    pub bytes: u64,
    failovers: u64,
    moved_calls: u64,
    gap_last: Duration,
    gap_worst: Duration,
    pub suspicions: u64,
    pub deaths: u64,
    pub departures: u64,
    pub probes: u64,
    pub connects: u64,
}

impl Counters {
    /// Counts calls that were moved `gap` after the last sign of life.
    pub fn moved(&mut self, calls: u32, gap: Duration) {
        self.failovers += 1;
        self.moved_calls += u64::from(calls);
        self.gap_last = gap;
        self.gap_worst = self.gap_worst.max(gap);
    }

    pub const fn status(&self, state: State, since: Duration, latency: Duration) -> PathStatus {
        let Self { calls, bytes, failovers, moved_calls, gap_last, gap_worst, .. } = *self;
        let Self { suspicions, deaths, departures, probes, connects, .. } = *self;
        PathStatus {
            state,
            since,
            calls,
            bytes,
            failovers,
            moved_calls,
            gap_last,
            gap_worst,
            suspicions,
            deaths,
            departures,
            probes,
            connects,
            latency,
        }
    }
}

/// Smoothed latency and its deviation, estimated as TCP estimates the round-trip time (RFC 6298
/// s2). Also kept by size of call, so that paths that carry different calls can be compared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latency {
    smoothed_ns: u64,
    deviation_ns: u64,
    /// Smoothed nanoseconds of small and of large calls; 0 if unknown.
    pub by_size_ns: [u64; SIZES],
    /// Smoothed bytes in flight at the same time, over all calls on the path.
    pub load_by_size: [u64; SIZES],
    /// When the last call of each size was answered, and how many were answered since a start
    /// chosen by [`super::table`].
    pub sampled_at: [Duration; SIZES],
    pub samples: [u32; SIZES],
}

/// The number of size classes: small and large calls.
pub(crate) const SIZES: usize = 2;

/// Calls up to this size are small: their time is determined by latency rather than by bandwidth.
const SMALL_BYTES_MAX: u32 = 16 << 10;
/// Latencies are capped at this (two years), so that the sums here do not overflow.
const LATENCY_NS_MAX: u64 = u64::MAX >> 8;

/// The size class of a call.
pub(crate) const fn size_of(bytes: u32) -> usize {
    if bytes > SMALL_BYTES_MAX { 1 } else { 0 }
}

impl Latency {
    /// Records that a call of `bytes` was answered after `latency`, while `load` bytes were in
    /// flight on its path.
    pub fn sample(&mut self, now: Duration, latency: Duration, bytes: u32, load: u64) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX).clamp(1, LATENCY_NS_MAX);
        if self.smoothed_ns == 0 {
            self.smoothed_ns = ns;
            self.deviation_ns = ns / 2;
        } else {
            self.deviation_ns = (self.deviation_ns * 3 + self.smoothed_ns.abs_diff(ns)) / 4;
            self.smoothed_ns = (self.smoothed_ns * 7 + ns) / 8;
        }
        let size = size_of(bytes);
        let (known, known_load) = (&mut self.by_size_ns[size], &mut self.load_by_size[size]);
        if *known == 0 {
            (*known, *known_load) = (ns, load);
        } else {
            *known = (*known * 7 + ns) / 8;
            *known_load = (known_load.saturating_mul(7).saturating_add(load)) / 8;
        }
        self.sampled_at[size] = now;
        self.samples[size] = self.samples[size].saturating_add(1);
    }

    /// Discards what is known about calls of this size.
    pub const fn forget(&mut self, size: usize) {
        (self.by_size_ns[size], self.load_by_size[size], self.samples[size]) = (0, 0, 0);
    }

    pub const fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns)
    }

    /// The silence that is too long, given the recent latency of this path.
    pub const fn overdue_after(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns.saturating_add(self.deviation_ns.saturating_mul(4)))
    }
}

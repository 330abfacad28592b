//! What is known of a path: its state, its counters, how quick it has been.

use std::time::Duration;

/// The health of a path, as one table sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It answers.
    Up,
    /// A call on it is overdue, or one of its connections broke; a probe is under way. It is used
    /// only where nothing is up.
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
    /// How often files left it because it was several times slower than another.
    pub departures: u64,
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
            departures: 0,
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

/// Smoothed latency and its deviation, as TCP estimates its round trip (RFC 6298 s2); by size of
/// call too, so that paths can be compared that carry different calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latency {
    smoothed_ns: u64,
    deviation_ns: u64,
    /// Smoothed nanoseconds of small and of large calls; 0 while unknown.
    pub by_size_ns: [u64; SIZES],
    /// Smoothed bytes that were under way meanwhile, of all calls on the path.
    pub load_by_size: [u64; SIZES],
    /// When the last of them was answered, and how many were since a start of [`super::table`]'s
    /// choice.
    pub sampled_at: [Duration; SIZES],
    pub samples: [u32; SIZES],
}

/// Small and large calls.
pub(crate) const SIZES: usize = 2;

/// Calls up to this size are small: their time is latency rather than bandwidth.
const SMALL_BYTES_MAX: u32 = 16 << 10;
/// No latency is longer than this (two years), so that the sums here do not overflow.
const LATENCY_NS_MAX: u64 = u64::MAX >> 8;

/// Which of the two sizes a call is.
pub(crate) const fn size_of(bytes: u32) -> usize {
    if bytes > SMALL_BYTES_MAX { 1 } else { 0 }
}

impl Latency {
    /// One call of `bytes` was answered after `latency`, when `load` bytes were under way on its
    /// path.
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

    /// What was known of calls of this size counts no more.
    pub const fn forget(&mut self, size: usize) {
        (self.by_size_ns[size], self.load_by_size[size], self.samples[size]) = (0, 0, 0);
    }

    pub const fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns)
    }

    /// The silence that is too long for what this path has been doing.
    pub const fn overdue_after(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns.saturating_add(self.deviation_ns.saturating_mul(4)))
    }
}

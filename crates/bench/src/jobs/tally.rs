//! The counters of a load: bytes and latencies by direction, and the times at which operations
//! finished.

use std::time::Duration;

use record::{Latency, LatencyCounts};

use super::Window;

/// The operations of one direction on one loop, within the window.
#[derive(Debug, Clone)]
pub struct Tally {
    /// The number of operations that finished in the window, except the first, which starts the
    /// measurement. If jobs end by their sizes, the number of all operations.
    pub ops: u64,
    /// The bytes of these operations.
    pub bytes: u64,
    /// The number of all operations that finished before the planned end of the window.
    pub finished: u64,
    /// The bytes of these operations.
    pub finished_bytes: u64,
    /// When the first and the last of them finished, since the loop's start.
    pub span: Option<(Duration, Duration)>,
    /// The regression line through the points (time, bytes so far).
    line: Line,
    /// The bytes of all operations that finished, by interval of the window ([`Window::interval`]).
    pub series: Vec<u64>,
    window: Window,
    /// The length of an interval, computed once because a division for each operation costs time.
    interval_ns: u64,
    /// Whether jobs end by their sizes, so that the whole load is measured.
    whole: bool,
    /// Latencies, from the intended start of an operation to its reply.
    pub latency: Latency,
    /// The latencies of the operations that finished, by interval of the window; those that
    /// finished after its end are in the last one, so that a long tail is not lost.
    pub latencies: LatencyCounts,
}

impl Tally {
    pub(super) fn new(window: Window, whole: bool) -> Self {
        let intervals = if whole { 0 } else { window.intervals() };
        Self {
            ops: 0,
            bytes: 0,
            finished: 0,
            finished_bytes: 0,
            span: None,
            line: Line::default(),
            series: vec![0; intervals],
            window,
            interval_ns: u64::try_from(window.interval().as_nanos()).unwrap_or(u64::MAX).max(1),
            whole,
            latency: Latency::new(),
            latencies: LatencyCounts::new(intervals),
        }
    }

    /// Whether the whole load is measured, because its jobs end by their sizes.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.whole
    }

    /// Records the latency of an operation that finished at a time, or was given up then.
    pub(super) fn time(&mut self, at: Duration, latency: Duration) {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency.record_ns(latency_ns);
        if let Some(interval) = self.interval(at) {
            self.latencies.record(interval.min(self.series.len().saturating_sub(1)), latency_ns);
        }
    }

    /// The interval of the window in which a time lies.
    fn interval(&self, at: Duration) -> Option<usize> {
        let since_ns = u64::try_from(at.saturating_sub(self.window.warm).as_nanos()).ok()?;
        usize::try_from(since_ns / self.interval_ns).ok()
    }

    /// Counts a finished operation. The first one starts the span, and its bytes do not count.
    pub(super) fn count(&mut self, at: Duration, bytes: u64, in_time: bool) {
        if in_time {
            self.finished += 1;
            self.finished_bytes += bytes;
        }
        self.line.add(at.as_secs_f64(), bytes as f64);
        if let Some(sum) = self.interval(at).and_then(|interval| self.series.get_mut(interval)) {
            *sum += bytes;
        }
        match &mut self.span {
            None if !self.whole => self.span = Some((at, at)),
            None => {
                self.span = Some((self.window.warm, at));
                self.ops += 1;
                self.bytes += bytes;
            }
            Some((_, last)) => {
                *last = at;
                self.ops += 1;
                self.bytes += bytes;
            }
        }
    }

    /// Bytes and operations per second: the slope of the regression line through the points (time,
    /// bytes so far) at each operation's end. Dividing the bytes by the length of the window would
    /// be wrong by the operations in flight at its ends, and a paced window contains only a few
    /// blocks of each connection. If jobs end by their sizes, no operation is in flight at the end,
    /// and the bytes are divided by the time.
    #[must_use]
    pub fn rates(&self) -> (f64, f64) {
        if self.whole {
            let (first, last) = self.span.unwrap_or_default();
            let seconds = (last - first).as_secs_f64().max(1e-9);
            return (self.bytes as f64 / seconds, self.ops as f64 / seconds);
        }
        let bytes_per_s = self.line.slope();
        let per_op = if self.bytes > 0 { self.ops as f64 / self.bytes as f64 } else { 0.0 };
        (bytes_per_s, bytes_per_s * per_op)
    }
}

/// A line fitted to points as they are added.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    points: f64,
    total: f64,
    time: f64,
    bytes: f64,
    time_squared: f64,
    time_bytes: f64,
}

impl Line {
    #[inline]
    fn add(&mut self, at: f64, bytes: f64) {
        self.total += bytes;
        self.points += 1.0;
        self.time += at;
        self.bytes += self.total;
        self.time_squared += at * at;
        self.time_bytes += at * self.total;
    }

    fn slope(&self) -> f64 {
        let spread = self.points * self.time_squared - self.time * self.time;
        if self.points < 2.0 || spread <= f64::EPSILON {
            return 0.0;
        }
        (self.points * self.time_bytes - self.time * self.bytes) / spread
    }
}

/// The milliseconds of a window in which an operation finished. Merged over all loops, they give
/// the longest time without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionTimes {
    bits: Vec<u64>,
    window: Window,
}

impl CompletionTimes {
    pub(super) fn new(window: Window) -> Self {
        let milliseconds = window.end.saturating_sub(window.warm).as_millis();
        let words = usize::try_from(milliseconds / 64 + 1).unwrap_or(0);
        Self { bits: vec![0; words], window }
    }

    /// Records that an operation finished, at a time within the window.
    #[inline]
    pub(super) fn record(&mut self, at: Duration) {
        let millisecond = at.saturating_sub(self.window.warm).as_millis();
        let word = usize::try_from(millisecond / 64).ok().and_then(|word| self.bits.get_mut(word));
        if let Some(word) = word {
            *word |= 1 << (millisecond % 64);
        }
    }

    /// Adds the times of another loop.
    pub fn merge(&mut self, other: &Self) {
        self.bits.iter_mut().zip(&other.bits).for_each(|(ours, theirs)| *ours |= theirs);
    }

    /// The longest time within the window in which nothing finished, in whole milliseconds.
    #[must_use]
    pub fn longest_gap(&self) -> Duration {
        let milliseconds = self.window.end.saturating_sub(self.window.warm).as_millis();
        self.longest_gap_within(milliseconds)
    }

    /// The longest time in which nothing finished, up to the last operation.
    #[must_use]
    pub fn longest_gap_until_last(&self) -> Duration {
        let last = self.bits.iter().rposition(|word| *word != 0);
        let milliseconds = last.map_or(0, |word| {
            let bits = self.bits.get(word).map_or(0, |bits| u64::BITS - bits.leading_zeros());
            word as u128 * 64 + u128::from(bits)
        });
        self.longest_gap_within(milliseconds)
    }

    fn longest_gap_within(&self, milliseconds: u128) -> Duration {
        let (mut longest, mut current) = (0_u64, 0_u64);
        for millisecond in 0..milliseconds {
            let word = usize::try_from(millisecond / 64).ok().and_then(|word| self.bits.get(word));
            let finished = word.is_some_and(|word| word >> (millisecond % 64) & 1 == 1);
            current = if finished { 0 } else { current + 1 };
            longest = longest.max(current);
        }
        Duration::from_millis(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { warm: Duration::ZERO, end: Duration::from_millis(500) };

    #[test]
    fn bursts_at_a_pace_give_the_pace_itself() {
        // Eight connections each finish a block at the same times, ten times a second.
        let mut tally = Tally::new(WINDOW, false);
        for burst in 0..6 {
            for _ in 0..8 {
                tally.count(Duration::from_millis(100 * burst), 1000, true);
            }
        }
        let (bytes_per_s, iops) = tally.rates();
        assert!((bytes_per_s - 80_000.0).abs() < 1.0, "{bytes_per_s}");
        assert!((iops - 80.0).abs() < 0.1, "{iops}");
        assert_eq!((tally.finished, tally.ops), (48, 47));
        assert_eq!(tally.series.len(), 10, "intervals of 50 ms");
        assert_eq!(tally.series[..4], [8000, 0, 8000, 0], "the first block counts, and the last is beyond");
    }

    #[test]
    fn latencies_are_counted_in_the_interval_in_which_the_operation_finished() {
        let mut tally = Tally::new(WINDOW, false);
        tally.time(Duration::from_millis(10), Duration::from_millis(1));
        tally.time(Duration::from_millis(499), Duration::from_millis(1));
        tally.time(Duration::from_millis(500), Duration::from_millis(1));
        tally.time(Duration::from_millis(5000), Duration::from_millis(1));
        assert_eq!(tally.latency.count(), 4);
        let found = record::LatencyOverTime::of(50.0, &[(0.0, &tally.latencies)]).expect("calls");
        let calls = &found.repeats[0].calls;
        assert_eq!((calls.len(), calls[0].as_str(), calls[9].as_str()), (10, "79:1", "79:3"));
        assert!(calls[1..9].iter().all(String::is_empty), "{calls:?}");
    }

    #[test]
    fn jobs_that_end_by_their_sizes_count_every_operation_and_their_time() {
        let mut tally = Tally::new(WINDOW, true);
        (1..=4).for_each(|op| tally.count(Duration::from_millis(50 * op), 1000, true));
        let (bytes_per_s, iops) = tally.rates();
        assert!((bytes_per_s - 20_000.0).abs() < 1e-6 && (iops - 20.0).abs() < 1e-6);
        assert_eq!((tally.ops, tally.bytes, tally.finished_bytes), (4, 4000, 4000));
    }

    #[test]
    fn nothing_done_is_no_speed() {
        assert_eq!(Tally::new(WINDOW, false).rates(), (0.0, 0.0));
    }

    #[test]
    fn the_longest_gap_is_that_of_all_loops_together() {
        let window = Window { warm: Duration::from_millis(50), end: Duration::from_millis(250) };
        let (mut one, mut other) = (CompletionTimes::new(window), CompletionTimes::new(window));
        assert_eq!(one.longest_gap(), Duration::from_millis(200), "nothing finished at all");
        (50..100).for_each(|at| one.record(Duration::from_millis(at)));
        (180..=250).for_each(|at| one.record(Duration::from_millis(at)));
        assert_eq!(one.longest_gap(), Duration::from_millis(80));
        (90..150).for_each(|at| other.record(Duration::from_millis(at)));
        one.merge(&other);
        assert_eq!(one.longest_gap(), Duration::from_millis(30));
        let mut short = CompletionTimes::new(window);
        [60, 70, 150].iter().for_each(|at| short.record(Duration::from_millis(*at)));
        assert_eq!(short.longest_gap_until_last(), Duration::from_millis(79));
    }
}

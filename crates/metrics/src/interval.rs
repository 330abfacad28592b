//! What happened between two snapshots of a process.

use crate::operations::{Operations, Tally};
use crate::snapshot::{Files, PathState, Snapshot};

/// Why two snapshots have no interval between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IntervalError {
    /// They are of different processes.
    #[error("the snapshots are of different processes, or the process was started again")]
    OtherProcess,
    /// The second is not later than the first.
    #[error("the second snapshot is not later than the first")]
    NotLater,
}

/// What happened between two snapshots.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// The time between them, in seconds.
    pub seconds: f64,
    /// The operations between them.
    pub operations: Operations,
    /// The operations by file, if both snapshots have them.
    pub files: Option<FileActivity>,
    /// The paths as they are now, and what they did between the snapshots.
    pub paths: Vec<PathActivity>,
    /// The processors that each entry of `loops` used: 1 is one whole processor.
    pub cpu: Vec<f64>,
}

/// Operations by file.
#[derive(Debug, Clone, PartialEq)]
pub struct FileActivity {
    /// The time in which they happened, in seconds.
    pub seconds: f64,
    /// The operations.
    pub operations: Operations,
}

/// How far apart two clocks may be that count the same time.
const CLOCKS_MS: u64 = 1_000;

/// What happened to files between two snapshots that are so far apart. If counting began in
/// between, what happened since then.
fn files_between(earlier: &Snapshot, later: &Snapshot, ms: u64) -> Option<FileActivity> {
    let now = later.files.as_ref()?;
    let goes_on = |before: &&Files| now.counted_ms + CLOCKS_MS >= before.counted_ms + ms;
    let (counted_ms, operations) = match earlier.files.as_ref().filter(goes_on) {
        Some(before) => {
            (now.counted_ms.saturating_sub(before.counted_ms), now.operations.since(&before.operations))
        }
        None => (now.counted_ms, now.operations.clone()),
    };
    (counted_ms > 0).then(|| FileActivity { seconds: counted_ms as f64 / 1e3, operations })
}

/// A path, and what it did between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathActivity {
    /// The path as it is now; its counts are since the start.
    pub now: PathState,
    /// Failovers between the snapshots.
    pub failovers: u64,
    /// Calls moved between the snapshots.
    pub moved_calls: u64,
    /// Calls sent again between the snapshots.
    pub retransmissions: u64,
}

/// A tally for each second of an interval, with latencies.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Operations per second.
    pub ops_per_s: f64,
    /// Bytes received per second.
    pub received_bytes_per_s: f64,
    /// Bytes sent per second.
    pub sent_bytes_per_s: f64,
    /// The part of the operations that failed, 0 to 1.
    pub errors: f64,
    /// The median latency in nanoseconds; absent without a measured latency, like those below.
    pub p50_ns: Option<u64>,
    /// The 99th percentile.
    pub p99_ns: Option<u64>,
    /// The longest latency.
    pub max_ns: Option<u64>,
}

impl Rates {
    /// The rates of a tally over this time.
    #[must_use]
    pub fn of(tally: &Tally, seconds: f64) -> Self {
        let each = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Self {
            ops_per_s: each(tally.count),
            received_bytes_per_s: each(tally.received_bytes),
            sent_bytes_per_s: each(tally.sent_bytes),
            errors: if tally.count > 0 { tally.errors as f64 / tally.count as f64 } else { 0.0 },
            p50_ns: tally.latency.quantile_ns(0.5),
            p99_ns: tally.latency.quantile_ns(0.99),
            max_ns: tally.latency.max_ns(),
        }
    }

    /// Bytes received and sent per second.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.received_bytes_per_s + self.sent_bytes_per_s
    }
}

impl Interval {
    /// The interval between two snapshots of one process.
    ///
    /// # Errors
    /// The snapshots are not of one process, or not in this order.
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Result<Self, IntervalError> {
        let identity = |snapshot: &Snapshot| (snapshot.process.pid, snapshot.process.started_unix_ms);
        if identity(earlier) != identity(later) {
            return Err(IntervalError::OtherProcess);
        }
        let ms = later.uptime_ms.checked_sub(earlier.uptime_ms).filter(|ms| *ms > 0);
        let ms = ms.ok_or(IntervalError::NotLater)?;
        let seconds = ms as f64 / 1e3;
        let paths = later.paths.iter().map(|now| {
            let before = earlier.paths.iter().find(|path| path.name == now.name);
            let since = |count: fn(&PathState) -> u64| count(now).saturating_sub(before.map_or(0, count));
            PathActivity {
                failovers: since(|path| path.failovers),
                moved_calls: since(|path| path.moved_calls),
                retransmissions: since(|path| path.retransmissions),
                now: now.clone(),
            }
        });
        let cpu = later.loops.iter().map(|now| {
            let before = earlier.loops.iter().find(|one| one.index == now.index);
            let ns = now.cpu_ns.saturating_sub(before.map_or(0, |before| before.cpu_ns));
            ns as f64 / 1e9 / seconds
        });
        Ok(Self {
            seconds,
            operations: later.operations.since(&earlier.operations),
            files: files_between(earlier, later, ms),
            paths: paths.collect(),
            cpu: cpu.collect(),
        })
    }

    /// From the start of the process to the snapshot.
    #[must_use]
    pub fn since_start(snapshot: &Snapshot) -> Self {
        let mut start = snapshot.clone();
        (start.uptime_ms, start.operations) = (0, Operations::default());
        start.paths.clear();
        start.loops.clear();
        start.files = None;
        start.group = None;
        let mut later = snapshot.clone();
        later.uptime_ms = later.uptime_ms.max(1);
        // The same process, and later.
        Self::between(&start, &later).unwrap_or_else(|_| Self {
            seconds: 0.001,
            operations: Operations::default(),
            files: None,
            paths: Vec::new(),
            cpu: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Dimension;
    use crate::snapshot::example;

    fn later() -> Snapshot {
        let mut later = example();
        later.uptime_ms += 2_000;
        let row = later.operations.iter().next().map(|(key, tally)| (key.clone(), tally.clone())).unwrap();
        later.operations.add(row.0, &row.1);
        later.paths[0].moved_calls += 3;
        later.loops[0].cpu_ns += 1_000_000_000;
        later
    }

    #[test]
    fn an_interval_has_what_happened_within_it() {
        let interval = Interval::between(&example(), &later()).unwrap();
        assert!((interval.seconds - 2.0).abs() < 1e-9);
        let total = interval.operations.total();
        assert_eq!(total.count, 3);
        assert_eq!(interval.operations.by(&[Dimension::Operation], &[]).len(), 1);
        assert_eq!((interval.paths[0].moved_calls, interval.paths[0].failovers), (3, 0));
        assert!((interval.cpu[0] - 0.5).abs() < 1e-9);
        let rates = Rates::of(&total, interval.seconds);
        assert!((rates.ops_per_s - 1.5).abs() < 1e-9);
        assert!(rates.p50_ns.is_some_and(|ns| (150_000..165_000).contains(&ns)), "{rates:?}");
    }

    #[test]
    fn files_are_counted_from_the_first_question_on() {
        let with = |uptime_ms, counted_ms, count| {
            let mut operations = Operations::default();
            let key = crate::Key { file: Some("/a".into()), ..Default::default() };
            operations.add(key, &Tally { count, ..Tally::default() });
            Snapshot { uptime_ms, files: Some(Files { counted_ms, operations }), ..example() }
        };
        let between = |earlier: &Snapshot, later: &Snapshot| {
            let files = Interval::between(earlier, later).unwrap().files?;
            Some((files.seconds, files.operations.total().count))
        };
        let first = with(100_000, 0, 0);
        assert_eq!(between(&example(), &first), None, "nothing is counted yet");
        assert_eq!(between(&first, &with(102_000, 2_000, 10)), Some((2.0, 10)));
        assert_eq!(between(&with(102_000, 2_000, 10), &with(103_000, 3_000, 15)), Some((1.0, 5)));
        // Nobody asked meanwhile, and counting began again.
        assert_eq!(between(&with(103_000, 3_000, 15), &with(200_000, 4_000, 20)), Some((4.0, 20)));
    }

    #[test]
    fn another_process_and_the_wrong_order_are_refused() {
        let mut other = later();
        other.process.started_unix_ms += 1;
        assert_eq!(Interval::between(&example(), &other), Err(IntervalError::OtherProcess));
        assert_eq!(Interval::between(&later(), &example()), Err(IntervalError::NotLater));
        assert_eq!(Interval::between(&example(), &example()), Err(IntervalError::NotLater));
    }

    #[test]
    fn the_first_interval_is_since_the_start() {
        let interval = Interval::since_start(&example());
        assert_eq!(interval.operations.total().count, 153);
        assert!((interval.seconds - 60.0).abs() < 1e-9);
        assert_eq!(interval.paths[0].failovers, 1);
    }
}

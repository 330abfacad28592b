//! What the operations on a directory have counted, for whoever watches while they are made.
//!
//! Each job counts for itself, under a lock that only a reader ever contends for, so that jobs do
//! not wait for each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use metrics::{Key, Latency, SizeClass, Tally};
use record::Direction;

/// The operations on one directory, over all workloads and repeats.
#[derive(Debug, Default)]
pub struct DirectoryCounts {
    jobs: Mutex<Vec<Arc<JobCounts>>>,
}

/// The operations of one job.
#[derive(Debug, Default)]
pub(crate) struct JobCounts(Mutex<BTreeMap<(bool, SizeClass), Counted>>);

#[derive(Debug)]
struct Counted {
    calls: u64,
    errors: u64,
    bytes: u64,
    latency_ns: Histogram<u64>,
}

impl Default for Counted {
    fn default() -> Self {
        Self { calls: 0, errors: 0, bytes: 0, latency_ns: metrics::latency::histogram() }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DirectoryCounts {
    /// The counts of the job with this index in its workload; jobs of later workloads go on with
    /// them.
    pub(crate) fn job(&self, index: usize) -> Arc<JobCounts> {
        let mut jobs = locked(&self.jobs);
        if jobs.len() <= index {
            jobs.resize_with(index + 1, Arc::default);
        }
        jobs.get(index).map(Arc::clone).unwrap_or_default()
    }

    /// What was read and written so far as a snapshot has it, on a path of this name.
    pub fn keyed(&self, path: Option<Arc<str>>) -> impl Iterator<Item = (Key, Tally)> {
        self.operations().into_iter().map(move |(direction, size, tally)| {
            let operation = if direction == Direction::Read { "READ" } else { "WRITE" };
            let operation = Some(operation.into());
            (Key { path: path.clone(), operation, size: Some(size), ..Key::default() }, tally)
        })
    }

    /// The same by direction and size of blocks, in bytes and nanoseconds.
    #[must_use]
    fn operations(&self) -> Vec<(Direction, SizeClass, Tally)> {
        let jobs = locked(&self.jobs).clone();
        let mut sums: BTreeMap<(bool, SizeClass), Tally> = BTreeMap::new();
        for job in jobs {
            for (key, counted) in &*locked(&job.0) {
                sums.entry(*key).or_default().add(&counted.tally(key.0));
            }
        }
        let direction = |writes| if writes { Direction::Write } else { Direction::Read };
        sums.into_iter().map(|((writes, size), tally)| (direction(writes), size, tally)).collect()
    }
}

impl JobCounts {
    /// Counts an operation, which took this long.
    pub(crate) fn count(&self, direction: Direction, bytes: u64, latency: Duration, failed: bool) {
        let mut counts = locked(&self.0);
        let counted = counts.entry((direction == Direction::Write, SizeClass::of(bytes))).or_default();
        counted.calls += 1;
        counted.errors += u64::from(failed);
        counted.bytes += if failed { 0 } else { bytes };
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        counted.latency_ns.saturating_record(metrics::latency::clamped(ns));
    }

    /// Counts the operations of a repeat of another program, which tells of them at its end.
    pub(crate) fn count_all(&self, direction: Direction, ops: u64, bytes: u64, latency: &record::Latency) {
        let Some(block) = bytes.checked_div(ops) else { return };
        let mut counts = locked(&self.0);
        let counted = counts.entry((direction == Direction::Write, SizeClass::of(block))).or_default();
        counted.calls += ops;
        counted.bytes += bytes;
        for (ns, count) in latency.counts() {
            counted.latency_ns.saturating_record_n(metrics::latency::clamped(ns), count);
        }
    }
}

impl Counted {
    /// As others see it: what is written is sent, and what is read is received.
    fn tally(&self, writes: bool) -> Tally {
        let (sent_bytes, received_bytes) = if writes { (self.bytes, 0) } else { (0, self.bytes) };
        Tally {
            count: self.calls,
            errors: self.errors,
            replayed: 0,
            received_bytes,
            sent_bytes,
            latency: Latency::of(&self.latency_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_added_up_by_direction_and_size_of_block() {
        let counts = DirectoryCounts::default();
        let ms = Duration::from_millis(1);
        for index in [1, 0, 1] {
            counts.job(index).count(Direction::Read, 4096, ms, false);
        }
        counts.job(0).count(Direction::Write, 1 << 20, ms, false);
        counts.job(0).count(Direction::Write, 1 << 20, ms, true);
        let mut of_fio = record::Latency::new();
        of_fio.record_many_ns(2_000_000, 10);
        counts.job(2).count_all(Direction::Read, 10, 40_960, &of_fio);
        counts.job(2).count_all(Direction::Write, 0, 0, &record::Latency::new());
        let found = counts.operations();
        assert_eq!(found.len(), 2, "{found:?}");
        let (direction, size, read) = &found[0];
        assert_eq!((*direction, *size), (Direction::Read, SizeClass::of(4096)));
        assert_eq!((read.count, read.received_bytes, read.sent_bytes), (13, 13 * 4096, 0));
        assert_eq!(read.latency.count(), 13);
        let (direction, _, write) = &found[1];
        assert_eq!((*direction, write.count, write.errors), (Direction::Write, 2, 1));
        assert_eq!(write.sent_bytes, 1 << 20, "what failed has moved nothing");
    }
}

//! The load: readers and writers as tasks on the loops of a mount, as threads on a directory, or as
//! a thread on a volume.
//!
//! What is next, and what counts, is here. [`on_loop`] has the operations made by a mount's loop,
//! [`on_threads`] by threads, one for each operation in flight, and [`on_volume`] by one thread
//! that submits to a block volume.
//!
//! A closed load starts an operation when another has finished, so a fixed number is always in
//! flight. An open load starts operations at a rate, whether or not earlier ones have finished. If
//! all buffers are in use, the operation starts late, and its latency counts from its scheduled
//! start.

mod cursor;
mod on_loop;
pub(crate) mod on_threads;
pub(crate) mod on_volume;
mod running;
mod tally;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use client::FileRef;
use record::Direction;

pub use self::cursor::{BlockSizes, Order};
use self::running::Running;
pub use self::tally::{CompletionTimes, Tally};

/// A window in which a direction has finished fewer operations than it has in flight yields no
/// speed: on an emulated or overloaded machine, some tenths of a second may contain none. Such a
/// window is extended, up to this many times its length.
const EXTENDED_WINDOWS_MAX: u32 = 50;
/// A rate that cannot be kept is given up when this many windows have passed since the start.
const LATE_WINDOWS_MAX: u32 = 2;
/// More points of a repeat's throughput would make the record large and the chart no clearer.
pub(crate) const INTERVALS_MAX: u32 = 100;
/// In a shorter interval, the number of blocks completed is mostly chance.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
/// The timer slack of a loop with a rate. The default of 50 us would show in the latencies.
pub(crate) const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;

/// A load without a time ends by its sizes; this bounds it all the same.
pub(crate) const UNTIMED: Duration = Duration::from_secs(24 * 3600);

/// A file of a job, as whoever makes the operations knows it.
#[derive(Debug, Clone, Copy)]
pub struct JobFile<F = FileRef> {
    /// The file.
    pub file: F,
    /// The number of the file within the experiment, which is part of its stamps.
    pub number: u32,
}

/// One loop's part of a job.
#[derive(Debug, Clone)]
pub struct Job<F = FileRef> {
    /// The files, which take turns.
    pub files: Vec<JobFile<F>>,
    /// The bytes that the job accesses in each of its files.
    pub file_bytes: u64,
    /// The share of reads among the operations, in percent.
    pub read_percent: u8,
    /// The order of the blocks.
    pub order: Order,
    /// The sizes of the blocks: of reads and of writes.
    pub blocks: [BlockSizes; 2],
    /// The maximum size of one READ and of one WRITE. A larger block is split.
    pub piece_bytes: [usize; 2],
    /// The number of operations in flight.
    pub depth: u32,
    /// This loop's part of files that several loops work on: every `of`-th block, beginning with
    /// block `part`.
    pub part: u64,
    /// The number of loops that work on the files.
    pub of: u64,
    /// The schedule of an open load; absent for a closed one.
    pub schedule: Option<Schedule>,
    /// The bytes after which the whole job ends, over all loops; `None` if time ends it.
    pub io_bytes: Option<u64>,
    /// The result in which the operations of the job are counted besides the total, if any.
    pub result: Option<usize>,
}

/// The scheduled starts of a job's operations, in seconds since the load's start.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// The first start.
    pub first_s: f64,
    /// The time from one start to the next.
    pub interval_s: f64,
}

/// When a load starts to count and when it stops submitting, since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Operations that finish before this are warm-up.
    pub warm: Duration,
    /// No operation is scheduled after this. A closed load goes on if too few operations have
    /// finished by then.
    pub end: Duration,
}

impl Window {
    /// The latest time at which an operation is started.
    #[must_use]
    pub fn latest(&self) -> Duration {
        (self.end * EXTENDED_WINDOWS_MAX).min(UNTIMED).max(self.end)
    }

    /// The window of a load that ends by its size: all of it is measured.
    #[must_use]
    pub(crate) const fn untimed() -> Self {
        Self { warm: Duration::ZERO, end: UNTIMED }
    }

    /// The interval in which bytes are counted over time.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let measured = self.end.saturating_sub(self.warm);
        (measured / INTERVALS_MAX).max(INTERVAL_MIN.min(measured))
    }

    /// The number of whole intervals.
    #[must_use]
    pub fn intervals(&self) -> usize {
        let measured = self.end.saturating_sub(self.warm).as_nanos();
        usize::try_from(measured / self.interval().as_nanos().max(1)).unwrap_or(0).min(INTERVALS_MAX as usize)
    }
}

/// The results of one loop's load.
#[derive(Debug)]
pub struct Outcome {
    /// The results of reads.
    pub read: Tally,
    /// The results of writes.
    pub write: Tally,
    /// The results of reads and writes by [`Job::result`].
    pub results: Vec<[Tally; 2]>,
    /// The times at which operations finished.
    pub completion_times: CompletionTimes,
    /// The number of stamps checked.
    pub stamps: u64,
    /// The first error.
    pub error: Option<String>,
}

impl Outcome {
    fn new(window: Window, whole: bool, results: usize) -> Self {
        let tally = || Tally::new(window, whole);
        Self {
            read: tally(),
            write: tally(),
            results: (0..results).map(|_| [tally(), tally()]).collect(),
            completion_times: CompletionTimes::new(window),
            stamps: 0,
            error: None,
        }
    }

    /// The tallies in which an operation counts: that of the direction, and that of the result.
    fn tallies(&mut self, direction: Direction, result: Option<usize>) -> impl Iterator<Item = &mut Tally> {
        let of_result = result.and_then(|result| self.results.get_mut(result));
        let (total, of_result) = match direction {
            Direction::Read => (&mut self.read, of_result.map(|[read, _]| read)),
            Direction::Write => (&mut self.write, of_result.map(|[_, write]| write)),
        };
        std::iter::once(total).chain(of_result)
    }
}

/// An operation in flight.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    direction: Direction,
    /// The file, within the job.
    file: usize,
    offset: u64,
    bytes: u64,
    /// The scheduled start, if there is a schedule; since the load's start.
    scheduled: Option<Duration>,
    /// When the operation was started.
    began: Duration,
    /// The number of READs or WRITEs that are still to be answered.
    pieces: u32,
}

impl Default for InFlight {
    fn default() -> Self {
        Self {
            direction: Direction::Read,
            file: 0,
            offset: 0,
            bytes: 0,
            scheduled: None,
            began: Duration::ZERO,
            pieces: 0,
        }
    }
}

/// One loop's part in the extension of a window. The window is extended for all loops of a client
/// as long as one of them has finished too little: speeds over different times must not be added.
#[derive(Debug)]
struct Extension {
    /// The number of loops that have finished too little.
    lacking: Arc<AtomicUsize>,
    is_lacking: bool,
}

impl Extension {
    fn new(lacking: &Arc<AtomicUsize>) -> Self {
        lacking.fetch_add(1, Ordering::SeqCst);
        Self { lacking: Arc::clone(lacking), is_lacking: true }
    }

    /// This loop has finished enough, or does nothing more.
    fn has_enough(&mut self) {
        if std::mem::take(&mut self.is_lacking) {
            self.lacking.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn is_wanted(&self) -> bool {
        self.lacking.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.has_enough();
    }
}

/// The load of one loop: all of its jobs.
#[derive(Debug)]
pub struct Load<F = FileRef> {
    jobs: Vec<Running<F>>,
    window: Window,
    started_at: Duration,
    outcome: Option<Outcome>,
    report: Option<Sender<Outcome>>,
    /// The operations in flight, by slot.
    operations: Vec<InFlight>,
    depth_max: usize,
    /// The tokens of a slot: one for each READ or WRITE of its operation.
    pieces_max: u64,
    in_flight: u32,
    /// Whether the jobs end by their sizes.
    ends: bool,
    /// The number of reads and of writes that closed jobs keep in flight.
    in_flight_wanted: [u64; 2],
    /// This loop's part in the extension of the window.
    extension: Extension,
}

impl<F: Copy> Load<F> {
    /// A load for one loop, with `results` results besides the total. It sends its outcome when the
    /// last operation has finished.
    #[must_use]
    pub fn new(
        jobs: Vec<Job<F>>,
        window: Window,
        results: usize,
        report: Sender<Outcome>,
        lacking: &Arc<AtomicUsize>,
    ) -> Self {
        let depth_max = jobs.iter().map(|job| job.depth as usize).max().unwrap_or(1);
        let ends = jobs.iter().any(|job| job.io_bytes.is_some());
        let in_flight_wanted = [Direction::Read, Direction::Write].map(|direction| {
            let closed = jobs.iter().filter(|job| job.schedule.is_none() && job.has_only(direction));
            closed.map(|job| u64::from(job.depth)).sum()
        });
        Self {
            operations: vec![InFlight::default(); jobs.len() * depth_max],
            pieces_max: jobs.iter().map(Job::pieces_max).max().unwrap_or(1),
            jobs: jobs.into_iter().map(Running::new).collect(),
            window,
            started_at: Duration::ZERO,
            outcome: Some(Outcome::new(window, ends, results)),
            report: Some(report),
            depth_max,
            in_flight: 0,
            ends,
            in_flight_wanted,
            extension: Extension::new(lacking),
        }
    }

    /// Takes the next operation of a job into a slot; `None` if the job has no more.
    fn begin(&mut self, now: Duration, slot: usize, scheduled: Option<Duration>) -> Option<InFlight> {
        let running = self.jobs.get_mut(slot / self.depth_max)?;
        let (direction, file, offset, bytes) = running.next_operation()?;
        let pieces = bytes.div_ceil(running.job.piece_bytes_of(direction) as u64);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let operation = InFlight { direction, file, offset, bytes, scheduled, began: now, pieces };
        *self.operations.get_mut(slot)? = operation;
        self.in_flight += 1;
        Some(operation)
    }

    /// Gives up the operations that should have been started: each counts with the latency it has
    /// by now.
    fn drop_overdue(&mut self, job: usize, since_start: Duration) {
        let (Some(outcome), Some(running)) = (&mut self.outcome, self.jobs.get_mut(job)) else { return };
        while let Some(due) = running.due(self.window.end) {
            running.started += 1;
            if due >= self.window.warm {
                let late = since_start.saturating_sub(due);
                let direction = running.next_direction();
                let tallies = outcome.tallies(direction, running.job.result);
                tallies.for_each(|tally| tally.time(since_start, late));
            }
        }
    }

    /// Whether the window is open: its time is not over, or too few operations have finished.
    fn is_open(&self, since_start: Duration) -> bool {
        since_start <= self.window.end
            || !self.ends && since_start <= self.window.latest() && self.extension.is_wanted()
    }

    /// Notes whether this loop has finished enough operations.
    fn note_progress(&mut self) {
        let [reads, writes] = self.in_flight_wanted;
        let is_enough = self.outcome.as_ref().is_none_or(|it| it.read.ops >= reads && it.write.ops >= writes);
        if is_enough || self.failed() {
            self.extension.has_enough();
        }
    }

    fn failed(&self) -> bool {
        self.outcome.as_ref().is_none_or(|outcome| outcome.error.is_some())
    }

    /// Counts a finished operation.
    fn account(&mut self, now: Duration, slot: usize, latency: Duration) {
        let since_start = now.saturating_sub(self.started_at);
        let counts = since_start >= self.window.warm && self.is_open(since_start);
        let (Some(outcome), Some(running)) = (&mut self.outcome, self.jobs.get(slot / self.depth_max)) else {
            return;
        };
        let operation = self.operations.get(slot).copied().unwrap_or_default();
        let in_time = since_start <= self.window.end;
        for tally in outcome.tallies(operation.direction, running.job.result) {
            // An operation scheduled within the window counts, however late it finished.
            match operation.scheduled {
                Some(scheduled) if scheduled >= self.window.warm => {
                    tally.time(since_start, since_start.saturating_sub(scheduled));
                }
                None if counts => tally.time(since_start, latency),
                _ => {}
            }
            if counts {
                tally.count(since_start, operation.bytes, in_time);
            }
        }
        if counts {
            outcome.completion_times.record(since_start);
        }
    }

    /// Sends the outcome once nothing is in flight and nothing will be started.
    fn end_if_done(&mut self) {
        let due = |running: &Running<F>| running.due(self.window.end).is_some();
        let more = self.in_flight > 0 || (!self.failed() && self.jobs.iter().any(due));
        if more {
            return;
        }
        if let (Some(outcome), Some(report)) = (self.outcome.take(), self.report.take()) {
            // The receiver may have given up.
            let _ = report.send(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_extended_for_all_loops_until_each_has_finished_enough() {
        let lacking = Arc::default();
        let mut loops: Vec<_> = (0..3).map(|_| Extension::new(&lacking)).collect();
        loops[0].has_enough();
        loops[0].has_enough();
        assert!(loops.iter().all(Extension::is_wanted), "two others have too little");
        loops[1].has_enough();
        // A loop that ends by an error does nothing more.
        drop(loops.pop());
        assert!(!loops.iter().any(Extension::is_wanted));
    }
}

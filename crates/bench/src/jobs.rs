//! The load: readers and writers as tasks on the loops of a mount.
//!
//! A closed load starts an operation when another has finished, so a fixed number is always in
//! flight. An open load starts operations at a rate, whether or not earlier ones have finished. If
//! all buffers are in use, the operation starts late, and its latency counts from its scheduled
//! start.

mod tally;

use std::num::NonZeroU64;
use std::sync::mpsc::Sender;
use std::time::Duration;

use client::{Answer, Buffer, Done, FileRef, Io, Op, Task};
use record::{Direction, Pattern};

pub use self::tally::{CompletionTimes, Tally};
use crate::stamps;

/// A window in which a direction has finished fewer operations than it has in flight yields no
/// speed: on an emulated or overloaded machine, some tenths of a second may contain none. Such a
/// window is extended, up to this many times its length.
const EXTENDED_WINDOWS_MAX: u32 = 50;
/// A rate that cannot be kept is given up when this many windows have passed since the start.
const LATE_WINDOWS_MAX: u32 = 2;
/// More points of a repeat's throughput would make the record large and the chart no clearer.
const INTERVALS_MAX: u32 = 100;
/// In a shorter interval, the number of blocks completed is mostly chance.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
/// The timer slack of a loop with a rate. The default of 50 us would show in the latencies.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;

/// The load on one file.
#[derive(Debug, Clone)]
pub struct Job {
    /// The file.
    pub file: FileRef,
    /// The number of the file within the experiment, which is part of its stamps.
    pub number: u32,
    /// Whether the file is read or written.
    pub direction: Direction,
    /// The order of the blocks.
    pub pattern: Pattern,
    /// The size of one operation in bytes.
    pub block_bytes: usize,
    /// The number of blocks of the file.
    pub blocks: u64,
    /// The number of operations in flight.
    pub depth: u32,
    /// This loop's part of a file that several loops work on: every `of`-th block, beginning with
    /// block `part`.
    pub part: u64,
    /// The number of loops that work on the file.
    pub of: u64,
    /// The schedule of an open load; absent for a closed one.
    pub schedule: Option<Schedule>,
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
        self.end * EXTENDED_WINDOWS_MAX
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
    /// The times at which operations finished.
    pub completion_times: CompletionTimes,
    /// The number of stamps checked.
    pub stamps: u64,
    /// The first error.
    pub error: Option<String>,
}

impl Outcome {
    fn tally_mut(&mut self, direction: Direction) -> &mut Tally {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }
}

#[derive(Debug)]
struct Running {
    job: Job,
    next: u64,
    seed: u64,
    /// The number of scheduled operations that were started.
    started: u64,
    /// Unused tokens with their buffers; they wait for the schedule.
    idle: Vec<(u64, Buffer)>,
}

impl Running {
    fn new(job: Job) -> Self {
        // Jobs start at different offsets, so that they do not run in lockstep.
        let seed = (u64::from(job.number) * job.of + job.part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { next: job.part, seed, started: 0, idle: Vec::with_capacity(job.depth as usize), job }
    }

    fn next_offset(&mut self) -> u64 {
        let block = match self.job.pattern {
            Pattern::Sequential => {
                let block = self.next;
                self.next += self.job.of;
                if self.next >= self.job.blocks {
                    self.next = self.job.part;
                }
                block
            }
            Pattern::Random => {
                self.seed =
                    self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (self.seed >> 20) % self.job.blocks.max(1)
            }
        };
        block * self.job.block_bytes as u64
    }

    /// The scheduled start of the next operation, since the load's start. `None` without a
    /// schedule, or after its end.
    fn due(&self, end: Duration) -> Option<Duration> {
        let schedule = self.job.schedule?;
        let seconds = schedule.first_s + self.started as f64 * schedule.interval_s;
        Duration::try_from_secs_f64(seconds).ok().filter(|due| *due < end)
    }
}

/// An operation in flight.
#[derive(Debug, Clone, Copy, Default)]
struct InFlight {
    offset: u64,
    /// The scheduled start, if there is a schedule; since the load's start.
    scheduled: Option<Duration>,
}

/// The load of one loop: all of its jobs.
#[derive(Debug)]
pub struct Load {
    jobs: Vec<Running>,
    window: Window,
    started_at: Duration,
    outcome: Option<Outcome>,
    report: Option<Sender<Outcome>>,
    /// The operations in flight, by token.
    operations: Vec<InFlight>,
    depth_max: usize,
    in_flight: u32,
    /// The number of reads and of writes that closed jobs keep in flight.
    in_flight_wanted: [u64; 2],
}

impl Load {
    /// A load for one loop. It sends its outcome when the last operation has finished.
    #[must_use]
    pub fn new(jobs: Vec<Job>, window: Window, report: Sender<Outcome>) -> Self {
        let depth_max = jobs.iter().map(|job| job.depth as usize).max().unwrap_or(1);
        let in_flight_wanted = [Direction::Read, Direction::Write].map(|direction| {
            let closed = jobs.iter().filter(|job| job.schedule.is_none() && job.direction == direction);
            closed.map(|job| u64::from(job.depth)).sum()
        });
        let (read, write, completion_times) =
            (Tally::new(window), Tally::new(window), CompletionTimes::new(window));
        Self {
            operations: vec![InFlight::default(); jobs.len() * depth_max],
            jobs: jobs.into_iter().map(Running::new).collect(),
            window,
            started_at: Duration::ZERO,
            outcome: Some(Outcome { read, write, completion_times, stamps: 0, error: None }),
            report: Some(report),
            depth_max,
            in_flight: 0,
            in_flight_wanted,
        }
    }

    fn submit(&mut self, io: &mut Io<'_>, token: u64, mut buffer: Buffer, scheduled: Option<Duration>) {
        let slot = token as usize;
        let Some(running) = self.jobs.get_mut(slot / self.depth_max) else { return };
        let offset = running.next_offset();
        if let Some(operation) = self.operations.get_mut(slot) {
            *operation = InFlight { offset, scheduled };
        }
        let file = running.job.file;
        let op = match running.job.direction {
            Direction::Read => Op::Read { file, offset, buffer },
            Direction::Write => {
                stamps::write_stamps(&mut buffer, running.job.number, offset);
                Op::Write { file, offset, buffer }
            }
        };
        self.in_flight += 1;
        io.submit(op, token);
    }

    /// Starts the operations of a job that are due, as long as buffers are free.
    fn start_due(&mut self, io: &mut Io<'_>, job: usize) {
        let since_start = io.now().saturating_sub(self.started_at);
        if self.failed() {
            return;
        }
        if since_start > self.window.end * LATE_WINDOWS_MAX {
            self.drop_overdue(job, since_start);
        }
        while let Some(running) = self.jobs.get_mut(job)
            && let Some(due) = running.due(self.window.end)
            && due <= since_start
            && let Some((token, buffer)) = running.idle.pop()
        {
            running.started += 1;
            self.submit(io, token, buffer, Some(due));
        }
    }

    /// Gives up the operations that should have been started: each counts with the latency it has
    /// by now.
    fn drop_overdue(&mut self, job: usize, since_start: Duration) {
        let (Some(outcome), Some(running)) = (&mut self.outcome, self.jobs.get_mut(job)) else { return };
        while let Some(due) = running.due(self.window.end) {
            running.started += 1;
            if due >= self.window.warm {
                let late = since_start.saturating_sub(due);
                outcome.tally_mut(running.job.direction).time(late);
            }
        }
    }

    /// Whether the window is open: its time is not over, or too few operations have finished.
    fn is_open(&self, since_start: Duration) -> bool {
        let too_little = || {
            let [reads, writes] = self.in_flight_wanted;
            let outcome = self.outcome.as_ref();
            outcome.is_some_and(|outcome| outcome.read.ops < reads || outcome.write.ops < writes)
        };
        since_start <= self.window.end || since_start <= self.window.latest() && too_little()
    }

    fn failed(&self) -> bool {
        self.outcome.as_ref().is_none_or(|outcome| outcome.error.is_some())
    }

    /// Counts a finished operation, and checks the data read.
    fn account(&mut self, now: Duration, slot: usize, done: &Done) -> Result<(), String> {
        let since_start = now.saturating_sub(self.started_at);
        let counts = since_start >= self.window.warm && self.is_open(since_start);
        let Some(outcome) = &mut self.outcome else { return Ok(()) };
        let Some(running) = self.jobs.get_mut(slot / self.depth_max) else { return Ok(()) };
        let InFlight { offset, scheduled } = self.operations.get(slot).copied().unwrap_or_default();
        let bytes = done.buffer.len() as u64;
        match &done.result {
            Err(error) => return Err(format!("file {} at byte {offset}: {error}", running.job.number)),
            Ok(Answer::Read { count, .. }) => {
                if u64::from(*count) != bytes {
                    return Err(format!(
                        "file {} at byte {offset}: {count} bytes read of {bytes}",
                        running.job.number
                    ));
                }
                stamps::check(&done.buffer, running.job.number, offset, false)
                    .map_err(|wrong| wrong.to_string())?;
                outcome.stamps += bytes / stamps::PAGE_BYTES as u64;
            }
            // The load asks for no pipes.
            Ok(Answer::Piped { .. } | Answer::Written | Answer::Results(_)) => {}
        }
        let tally = outcome.tally_mut(running.job.direction);
        // An operation scheduled within the window counts, however late it finished.
        match scheduled {
            Some(scheduled) if scheduled >= self.window.warm => {
                tally.time(since_start.saturating_sub(scheduled))
            }
            None if counts => tally.time(done.latency),
            _ => {}
        }
        if counts {
            tally.count(since_start, bytes, since_start <= self.window.end);
            outcome.completion_times.record(since_start);
        }
        Ok(())
    }

    /// Sends the outcome once nothing is in flight and nothing will be started.
    fn end_if_done(&mut self) {
        let due = |running: &Running| running.due(self.window.end).is_some();
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

impl Task for Load {
    fn start(&mut self, io: &mut Io<'_>) {
        self.started_at = io.now();
        for job in 0..self.jobs.len() {
            let Some(running) = self.jobs.get_mut(job) else { continue };
            let (depth, len) = (running.job.depth as usize, running.job.block_bytes);
            let first = job * self.depth_max;
            let tokens = (first..first + depth.min(self.depth_max)).map(|slot| slot as u64);
            if running.job.schedule.is_some() {
                running.idle.extend(tokens.map(|token| (token, stamps::noise_in(io.buffer(len)))));
                // If this fails, latencies include the default slack.
                let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
                self.start_due(io, job);
            } else {
                tokens.for_each(|token| {
                    let buffer = stamps::noise_in(io.buffer(len));
                    self.submit(io, token, buffer, None);
                });
            }
        }
        self.end_if_done();
    }

    fn finished(&mut self, io: &mut Io<'_>, token: u64, done: Done) {
        let now = io.now();
        self.in_flight -= 1;
        let slot = token as usize;
        if let Err(error) = self.account(now, slot, &done)
            && let Some(outcome) = &mut self.outcome
        {
            outcome.error.get_or_insert(error);
        }
        let job = slot / self.depth_max;
        if let Some(running) = self.jobs.get_mut(job)
            && running.job.schedule.is_some()
        {
            running.idle.push((token, done.buffer));
            self.start_due(io, job);
        } else if self.is_open(now.saturating_sub(self.started_at)) && !self.failed() {
            self.submit(io, token, done.buffer, None);
        }
        self.end_if_done();
    }

    fn wakes_at(&self) -> Option<Duration> {
        if self.failed() {
            return None;
        }
        let waiting = self.jobs.iter().filter(|running| !running.idle.is_empty());
        let due = waiting.filter_map(|running| running.due(self.window.end)).min()?;
        Some(self.started_at + due)
    }

    fn woken(&mut self, io: &mut Io<'_>) {
        (0..self.jobs.len()).for_each(|job| self.start_due(io, job));
        self.end_if_done();
    }

    fn ended(&self) -> bool {
        self.outcome.is_none()
    }
}

//! The load: readers and writers that keep a number of operations in flight, as tasks on the mount's loops.

use std::sync::mpsc::Sender;
use std::time::Duration;

use client::{Answer, Done, FileRef, Io, Op, Task};
use record::{Direction, Latency, Pattern};

use crate::stamps;

/// One file under load.
#[derive(Debug, Clone)]
pub struct Job {
    /// The file.
    pub file: FileRef,
    /// Its number within the experiment, which its stamps bear.
    pub number: u32,
    /// Read or write.
    pub direction: Direction,
    /// In which order.
    pub pattern: Pattern,
    /// Bytes of one operation.
    pub block_bytes: usize,
    /// Blocks of the file.
    pub blocks: u64,
    /// Operations in flight.
    pub depth: u32,
    /// Which part of a file that several loops work on: every `of`-th block, from the `part`-th on.
    pub part: u64,
    /// How many loops work on the file.
    pub of: u64,
}

/// When a load starts to count, and when it stops submitting, from its start on.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Operations that finish before this only warm up.
    pub warm: Duration,
    /// No operation is submitted after this.
    pub end: Duration,
}

/// What one direction did within the window, on one loop.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Operations that finished in the window, but for the first, which opens the measure.
    pub ops: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the first and the last of them finished, from the loop's start on.
    pub span: Option<(Duration, Duration)>,
    /// Sums for the line through (time, bytes so far).
    line: Line,
    /// From submission to answer.
    pub latency: Latency,
    /// Bytes by job, in the order they were given.
    pub bytes_by_job: Vec<u64>,
}

impl Tally {
    fn new() -> Self {
        Self {
            ops: 0,
            bytes: 0,
            span: None,
            line: Line::default(),
            latency: Latency::new(),
            bytes_by_job: Vec::new(),
        }
    }

    /// Counts an operation. The first one opens the span and is not counted among the bytes.
    fn count(&mut self, at: Duration, bytes: u64, latency: Duration) {
        self.latency.record_ns(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        self.line.add(at.as_secs_f64(), bytes as f64);
        match &mut self.span {
            None => self.span = Some((at, at)),
            Some((_, last)) => {
                *last = at;
                self.ops += 1;
                self.bytes += bytes;
            }
        }
    }

    /// Bytes and operations per second: the slope of the straight line through (time, bytes so far) at each
    /// operation's end. A window's bytes over its time would be off by what is in flight at its ends, and at a
    /// pace a window holds only a few blocks of each connection.
    #[must_use]
    pub fn rates(&self) -> (f64, f64) {
        let bytes_per_s = self.line.slope();
        let per_op = if self.bytes > 0 { self.ops as f64 / self.bytes as f64 } else { 0.0 };
        (bytes_per_s, bytes_per_s * per_op)
    }
}

/// A straight line fitted to points as they come.
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

/// What a loop's load did.
#[derive(Debug)]
pub struct Outcome {
    /// Reads.
    pub read: Tally,
    /// Writes.
    pub write: Tally,
    /// Stamps that were checked.
    pub stamps: u64,
    /// The first thing that went wrong.
    pub error: Option<String>,
}

#[derive(Debug)]
struct Running {
    job: Job,
    next: u64,
    seed: u64,
    in_flight: u32,
    bytes: u64,
}

impl Running {
    fn new(job: Job) -> Self {
        // Jobs start at different places, so that they do not march in step.
        let seed = (u64::from(job.number) * job.of + job.part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { next: job.part, seed, in_flight: 0, bytes: 0, job }
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
}

/// All jobs of one loop.
#[derive(Debug)]
pub struct Load {
    jobs: Vec<Running>,
    window: Window,
    started_at: Duration,
    outcome: Option<Outcome>,
    report: Option<Sender<Outcome>>,
    /// Offsets of the operations in flight, by token.
    offsets: Vec<u64>,
    depth_max: usize,
    in_flight: u32,
}

impl Load {
    /// Jobs to run on one loop; the outcome is sent when the last operation has finished.
    #[must_use]
    pub fn new(jobs: Vec<Job>, window: Window, report: Sender<Outcome>) -> Self {
        let depth_max = jobs.iter().map(|job| job.depth as usize).max().unwrap_or(1);
        let outcome = Outcome { read: Tally::new(), write: Tally::new(), stamps: 0, error: None };
        Self {
            offsets: vec![0; jobs.len() * depth_max],
            jobs: jobs.into_iter().map(Running::new).collect(),
            window,
            started_at: Duration::ZERO,
            outcome: Some(outcome),
            report: Some(report),
            depth_max,
            in_flight: 0,
        }
    }

    fn submit(&mut self, io: &mut Io<'_>, token: u64, mut buffer: Vec<u8>) {
        let slot = token as usize;
        let Some(running) = self.jobs.get_mut(slot / self.depth_max) else { return };
        let offset = running.next_offset();
        if let Some(place) = self.offsets.get_mut(slot) {
            *place = offset;
        }
        let file = running.job.file;
        let op = match running.job.direction {
            Direction::Read => Op::Read { file, offset, buffer },
            Direction::Write => {
                stamps::write_stamps(&mut buffer, running.job.number, offset);
                Op::Write { file, offset, buffer }
            }
        };
        running.in_flight += 1;
        self.in_flight += 1;
        io.submit(op, token);
    }

    /// Counts a finished operation and checks what was read.
    fn account(&mut self, now: Duration, slot: usize, done: &Done) -> Result<(), String> {
        let since_start = now.saturating_sub(self.started_at);
        let Some(outcome) = &mut self.outcome else { return Ok(()) };
        let Some(running) = self.jobs.get_mut(slot / self.depth_max) else { return Ok(()) };
        let offset = self.offsets.get(slot).copied().unwrap_or(0);
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
            Ok(Answer::Written | Answer::Results(_)) => {}
        }
        if since_start >= self.window.warm && since_start <= self.window.end {
            let tally = match running.job.direction {
                Direction::Read => &mut outcome.read,
                Direction::Write => &mut outcome.write,
            };
            tally.count(since_start, bytes, done.latency);
            running.bytes += bytes;
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some(mut outcome) = self.outcome.take() {
            for running in &self.jobs {
                match running.job.direction {
                    Direction::Read => outcome.read.bytes_by_job.push(running.bytes),
                    Direction::Write => outcome.write.bytes_by_job.push(running.bytes),
                }
            }
            // Whoever waits for it may have given up.
            if let Some(report) = self.report.take() {
                let _ = report.send(outcome);
            }
        }
    }
}

impl Task for Load {
    fn start(&mut self, io: &mut Io<'_>) {
        self.started_at = io.now();
        for job in 0..self.jobs.len() {
            let Some(running) = self.jobs.get(job) else { continue };
            let (depth, len) = (running.job.depth as usize, running.job.block_bytes);
            for slot in 0..depth.min(self.depth_max) {
                self.submit(io, (job * self.depth_max + slot) as u64, stamps::noise_block(len));
            }
        }
        if self.in_flight == 0 {
            self.end();
        }
    }

    fn finished(&mut self, io: &mut Io<'_>, token: u64, done: Done) {
        let now = io.now();
        self.in_flight -= 1;
        if let Err(error) = self.account(now, token as usize, &done)
            && let Some(outcome) = &mut self.outcome
        {
            outcome.error.get_or_insert(error);
        }
        let failed = self.outcome.as_ref().is_none_or(|outcome| outcome.error.is_some());
        if now.saturating_sub(self.started_at) < self.window.end && !failed {
            self.submit(io, token, done.buffer);
        } else if self.in_flight == 0 {
            self.end();
        }
    }

    fn ended(&self) -> bool {
        self.outcome.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_at_a_pace_give_the_pace_itself() {
        // Eight connections finish a block each at the same moments, ten times a second.
        let mut tally = Tally::new();
        for burst in 0..6 {
            for _ in 0..8 {
                tally.count(Duration::from_millis(100 * burst), 1000, Duration::ZERO);
            }
        }
        let (bytes_per_s, iops) = tally.rates();
        assert!((bytes_per_s - 80_000.0).abs() < 1.0, "{bytes_per_s}");
        assert!((iops - 80.0).abs() < 0.1, "{iops}");
    }

    #[test]
    fn nothing_done_is_no_speed() {
        assert_eq!(Tally::new().rates(), (0.0, 0.0));
    }
}

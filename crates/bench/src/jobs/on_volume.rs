//! A load as a thread that submits to a volume, and takes what has completed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use initiator::{Completion, Operation, Volume};
use record::Direction;

use super::{JobFile, LATE_WINDOWS_MAX, Load};
use crate::directory::counts::JobCounts;
use crate::stamps;

/// How often a thread that waits looks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The memory of a slot. It stays mapped from one operation to the next.
#[derive(Debug, Default)]
struct Memory {
    read: Vec<u8>,
    write: Option<Arc<Vec<u8>>>,
}

/// The thread's part of a load. Files are ranges of the volume, known by where they begin.
pub(crate) struct Driver<'a> {
    load: Load<u64>,
    volume: &'a Volume,
    began: Instant,
    /// Whether the load is over, whatever is still in flight.
    ends: &'a AtomicBool,
    /// Whether the data are those of this experiment.
    is_stamped: bool,
    counts: Option<Arc<JobCounts>>,
    /// By slot.
    memory: Vec<Memory>,
    reply: Sender<Completion>,
    completions: Receiver<Completion>,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(
        load: Load<u64>,
        volume: &'a Volume,
        began: Instant,
        ends: &'a AtomicBool,
        is_stamped: bool,
        counts: Option<Arc<JobCounts>>,
    ) -> Self {
        let memory = (0..load.operations.len()).map(|_| Memory::default()).collect();
        let (reply, completions) = channel();
        Self { load, volume, began, ends, is_stamped, counts, memory, reply, completions }
    }

    /// Runs the load to its end.
    pub(crate) fn run(mut self) {
        self.start();
        self.load.end_if_done();
        while self.load.outcome.is_some() && !self.ends.load(Ordering::Relaxed) {
            match self.completions.recv_timeout(self.timeout()) {
                Ok(completion) => self.finished(completion),
                Err(RecvTimeoutError::Timeout) => {}
                // This has a sender itself.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // What has completed meanwhile is answered before the next wait.
            while let Ok(completion) = self.completions.try_recv() {
                self.finished(completion);
            }
            for job in 0..self.load.jobs.len() {
                self.start_due(job);
            }
            self.load.end_if_done();
        }
    }

    /// The first operations of all jobs.
    fn start(&mut self) {
        for job in 0..self.load.jobs.len() {
            let (first, most) = (job * self.load.depth_max, self.load.depth_max);
            let Some(running) = self.load.jobs.get_mut(job) else { continue };
            let slots = first..first + (running.job.depth as usize).min(most);
            if running.job.schedule.is_some() {
                running.idle.extend(slots);
            } else {
                slots.for_each(|slot| self.submit(slot, None));
            }
        }
    }

    /// How long nothing is due.
    fn timeout(&self) -> Duration {
        let waiting = self.load.jobs.iter().filter(|running| !running.idle.is_empty());
        let due = waiting.filter_map(|running| running.due(self.load.window.end)).min();
        let left = due.map(|due| due.saturating_sub(self.began.elapsed()));
        left.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL)
    }

    /// Starts the operations of a job that are due, as long as slots are free.
    fn start_due(&mut self, job: usize) {
        let now = self.began.elapsed();
        if self.load.failed() {
            return;
        }
        if !self.load.ends && now > self.load.window.end * LATE_WINDOWS_MAX {
            self.load.drop_overdue(job, now);
        }
        let end = self.load.window.end;
        while let Some(running) = self.load.jobs.get_mut(job)
            && let Some(due) = running.due(end)
            && due <= now
            && let Some(slot) = running.idle.pop()
        {
            running.started += 1;
            self.submit(slot, Some(due));
        }
    }

    /// Submits the next operation of a slot, if its job has one.
    fn submit(&mut self, slot: usize, scheduled: Option<Duration>) {
        let Some(operation) = self.load.begin(self.began.elapsed(), slot, scheduled) else { return };
        let Some(running) = self.load.jobs.get(slot / self.load.depth_max) else { return };
        let file = running.job.files.get(operation.file).copied();
        let (Some(JobFile { file: start, number }), Some(memory)) = (file, self.memory.get_mut(slot)) else {
            return;
        };
        let offset = start + operation.offset;
        let bytes = usize::try_from(operation.bytes).unwrap_or(0);
        let wanted = match operation.direction {
            Direction::Read => {
                let mut memory = std::mem::take(&mut memory.read);
                memory.resize(bytes, 0);
                Operation::Read { offset, memory }
            }
            Direction::Write => {
                let kept = memory.write.take().and_then(|data| Arc::try_unwrap(data).ok());
                let mut data = kept.filter(|data| data.len() == bytes).unwrap_or_else(|| {
                    let mut data = vec![0; bytes];
                    stamps::fill_noise(&mut data);
                    data
                });
                if running.whole_pages {
                    stamps::write_stamps(&mut data, number, operation.offset);
                } else {
                    stamps::write_any(&mut data, number, operation.offset);
                }
                let data = memory.write.insert(Arc::new(data));
                Operation::Write { offset, data: Arc::clone(data), durable: false }
            }
        };
        self.volume.submit(wanted, slot as u64, &self.reply);
    }

    /// Counts what has completed, and starts what follows.
    fn finished(&mut self, completion: Completion) {
        let slot = usize::try_from(completion.cookie).unwrap_or(usize::MAX);
        let now = self.began.elapsed();
        let Some(operation) = self.load.operations.get(slot).copied() else { return };
        let latency = now.saturating_sub(operation.began);
        let checked = self.check(slot, completion);
        if let Some(counts) = &self.counts {
            counts.count(operation.direction, operation.bytes, latency, checked.is_err());
        }
        self.load.done(now, slot, latency, checked);
        let is_open = self.load.is_open(now) && !self.load.failed();
        match self.load.jobs.get_mut(slot / self.load.depth_max) {
            Some(running) if running.job.schedule.is_some() => running.idle.push(slot),
            Some(_) if is_open => self.submit(slot, None),
            _ => {}
        }
    }

    /// Keeps the memory, and checks the data that were read. Returns the number of stamps.
    fn check(&mut self, slot: usize, completion: Completion) -> Result<u64, String> {
        let (Some(running), Some(operation)) =
            (self.load.jobs.get(slot / self.load.depth_max), self.load.operations.get(slot))
        else {
            return Ok(0);
        };
        let number = running.job.files.get(operation.file).map_or(0, |file| file.number);
        let memory = completion
            .result
            .map_err(|error| format!("file {number} at byte {}: {error}", operation.offset))?;
        let Some(kept) = self.memory.get_mut(slot).filter(|_| operation.direction == Direction::Read) else {
            return Ok(0);
        };
        kept.read = memory;
        if !self.is_stamped {
            return Ok(0);
        }
        stamps::check_any(&kept.read, number, operation.offset).map_err(|wrong| wrong.to_string())
    }
}

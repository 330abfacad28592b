//! A load as a task on the loop of an attachment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use initiator::{Completion, Io, Operation, Task};
use record::Direction;

use super::{JobFile, LATE_WINDOWS_MAX, Load, TIMER_SLACK_NS};
use crate::directory::counts::JobCounts;
use crate::stamps;

/// The memory of a slot. It stays mapped from one operation to the next.
#[derive(Debug, Default)]
struct Memory {
    read: Vec<u8>,
    write: Option<Arc<Vec<u8>>>,
}

/// A load whose files are ranges of the volume, known by where they begin.
pub(crate) struct VolumeLoad {
    load: Load<u64>,
    began: Instant,
    /// Whether the data are those of this experiment.
    is_stamped: bool,
    counts: Option<Arc<JobCounts>>,
    /// By slot.
    memory: Vec<Memory>,
}

impl VolumeLoad {
    pub(crate) fn new(
        load: Load<u64>,
        began: Instant,
        is_stamped: bool,
        counts: Option<Arc<JobCounts>>,
    ) -> Self {
        let memory = (0..load.operations.len()).map(|_| Memory::default()).collect();
        Self { load, began, is_stamped, counts, memory }
    }

    /// Starts the operations of a job that are due, as long as slots are free.
    fn start_due(&mut self, io: &mut Io<'_>, job: usize) {
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
            self.submit(io, slot, Some(due));
        }
    }

    /// Submits the next operation of a slot, if its job has one.
    fn submit(&mut self, io: &mut Io<'_>, slot: usize, scheduled: Option<Duration>) {
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
        io.submit(wanted, slot as u64);
    }

    /// Counts what has completed, and starts what follows.
    fn count(&mut self, io: &mut Io<'_>, completion: Completion) {
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
            Some(running) if running.job.schedule.is_some() => {
                running.idle.push(slot);
                self.start_due(io, slot / self.load.depth_max);
            }
            Some(_) if is_open => self.submit(io, slot, None),
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

impl Task for VolumeLoad {
    fn start(&mut self, io: &mut Io<'_>) {
        for job in 0..self.load.jobs.len() {
            let (first, most) = (job * self.load.depth_max, self.load.depth_max);
            let Some(running) = self.load.jobs.get_mut(job) else { continue };
            let slots = first..first + (running.job.depth as usize).min(most);
            if running.job.schedule.is_some() {
                running.idle.extend(slots);
                // If this fails, latencies include the default slack.
                let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
                self.start_due(io, job);
            } else {
                slots.for_each(|slot| self.submit(io, slot, None));
            }
        }
        self.load.end_if_done();
    }

    fn finished(&mut self, io: &mut Io<'_>, completion: Completion) {
        self.count(io, completion);
        self.load.end_if_done();
    }

    fn wakes_in(&self) -> Option<Duration> {
        let waiting = self.load.jobs.iter().filter(|running| !running.idle.is_empty());
        let due = waiting.filter_map(|running| running.due(self.load.window.end)).min();
        due.map(|due| due.saturating_sub(self.began.elapsed()))
    }

    fn woken(&mut self, io: &mut Io<'_>) {
        for job in 0..self.load.jobs.len() {
            self.start_due(io, job);
        }
        self.load.end_if_done();
    }

    fn ended(&self) -> bool {
        self.load.outcome.is_none()
    }
}

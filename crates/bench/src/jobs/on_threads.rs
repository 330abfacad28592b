//! A load whose operations are made by threads, one for each operation in flight.
//!
//! Each thread has a slot: it asks for the slot's next operation, makes it, and says how it went.
//! The caller's lock makes these steps one at a time; the operations themselves run at once. Times
//! are since the load's start.

use std::time::Duration;

use record::Direction;

use super::{LATE_WINDOWS_MAX, Load};
use crate::stamps;

/// An operation for a thread to make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation<F> {
    /// Whether to read or to write.
    pub(crate) direction: Direction,
    /// The file.
    pub(crate) file: F,
    /// Its number within the experiment.
    pub(crate) number: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// When to start; `None` for at once.
    pub(crate) scheduled: Option<Duration>,
    /// Whether all blocks consist of whole pages, so that a buffer keeps its noise.
    pub(crate) whole_pages: bool,
}

impl<F: Copy> Load<F> {
    /// The next operation of a slot; `None` if there is none any more.
    pub(crate) fn next(&mut self, now: Duration, slot: usize) -> Option<Operation<F>> {
        if self.failed() {
            return None;
        }
        let job = slot / self.depth_max;
        let scheduled = match self.jobs.get(job)?.job.schedule {
            Some(_) => Some(self.next_due(now, job)?),
            None if self.is_open(now) => None,
            None => return None,
        };
        let operation = self.begin(now, slot, scheduled)?;
        let running = self.jobs.get(job)?;
        let file = running.job.files.get(operation.file)?;
        Some(Operation {
            direction: operation.direction,
            file: file.file,
            number: file.number,
            offset: operation.offset,
            bytes: usize::try_from(operation.bytes).ok()?,
            scheduled,
            whole_pages: running.whole_pages,
        })
    }

    /// Takes the next scheduled start of a job.
    fn next_due(&mut self, now: Duration, job: usize) -> Option<Duration> {
        if !self.ends && now > self.window.end * LATE_WINDOWS_MAX {
            self.drop_overdue(job, now);
        }
        let running = self.jobs.get_mut(job)?;
        let due = running.due(self.window.end)?;
        running.started += 1;
        Some(due)
    }

    /// Counts the operation of a slot, which took this long: the stamps that were checked, or why
    /// it failed.
    pub(crate) fn done(&mut self, now: Duration, slot: usize, latency: Duration, made: Result<u64, String>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(outcome) = &mut self.outcome else { return };
        match made {
            Ok(stamps) => outcome.stamps += stamps,
            Err(error) => {
                outcome.error.get_or_insert(error);
            }
        }
        if !self.failed() {
            self.account(now, slot, latency);
        }
        self.note_progress();
    }

    /// Sends the outcome: the last thread has ended.
    pub(crate) fn end(&mut self) {
        if let (Some(outcome), Some(report)) = (self.outcome.take(), self.report.take()) {
            // The receiver may have given up.
            let _ = report.send(outcome);
        }
    }
}

impl<F> Operation<F> {
    /// Gives a block its content, in a buffer that was filled with noise.
    pub(crate) fn stamp(&self, block: &mut [u8]) {
        if self.whole_pages {
            stamps::write_stamps(block, self.number, self.offset);
        } else {
            stamps::write_any(block, self.number, self.offset);
        }
    }
}

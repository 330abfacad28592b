//! A load as a task on a loop of a mount.

use std::time::Duration;

use client::{Answer, Done, Io, Op, Task};
use fs::Status;
use record::Direction;

use super::{JobFile, LATE_WINDOWS_MAX, Load, TIMER_SLACK_NS};
use crate::error;
use crate::stamps;

impl Load {
    /// Starts the next operation of a job in a slot. Returns false if the job has no more.
    fn submit(&mut self, io: &mut Io<'_>, slot: usize, scheduled: Option<Duration>) -> bool {
        let Some(operation) = self.begin(io.now(), slot, scheduled) else { return false };
        let Some(running) = self.jobs.get_mut(slot / self.depth_max) else { return false };
        let Some(JobFile { file, number }) = running.job.files.get(operation.file).copied() else {
            return false;
        };
        let piece = running.job.piece_bytes_of(operation.direction) as u64;
        for at in 0..u64::from(operation.pieces) {
            let offset = operation.offset + at * piece;
            let len = usize::try_from(piece.min(operation.bytes - at * piece)).unwrap_or(0);
            let mut buffer = running.buffer(io, len);
            let op = match operation.direction {
                Direction::Read => Op::Read { file, offset, buffer },
                Direction::Write => {
                    running.stamp(&mut buffer, number, offset);
                    Op::Write { file, offset, buffer }
                }
            };
            io.submit(op, slot as u64 * self.pieces_max + at);
        }
        true
    }

    /// Starts the operations of a job that are due, as long as slots are free.
    fn start_due(&mut self, io: &mut Io<'_>, job: usize) {
        let since_start = io.now().saturating_sub(self.started_at);
        if self.failed() {
            return;
        }
        if !self.ends && since_start > self.window.end * LATE_WINDOWS_MAX {
            self.drop_overdue(job, since_start);
        }
        while let Some(running) = self.jobs.get_mut(job)
            && let Some(due) = running.due(self.window.end)
            && due <= since_start
            && let Some(slot) = running.idle.pop()
        {
            running.started += 1;
            self.submit(io, slot, Some(due));
        }
    }

    /// Checks the answer to one READ or WRITE, and the data read.
    fn check(&mut self, slot: usize, piece: u64, done: &Done) -> Result<(), String> {
        let (Some(outcome), Some(running)) = (&mut self.outcome, self.jobs.get(slot / self.depth_max)) else {
            return Ok(());
        };
        let operation = self.operations.get(slot).copied().unwrap_or_default();
        let offset = operation.offset + piece * running.job.piece_bytes_of(operation.direction) as u64;
        let number = running.job.files.get(operation.file).map_or(0, |file| file.number);
        let bytes = done.buffer.len() as u64;
        match &done.result {
            Err(error) => {
                let lacks_room =
                    matches!(error, client::Error::Status { status: Status::NoSpace | Status::Quota, .. });
                Err(error::reason(format!("file {number} at byte {offset}: {error}"), lacks_room))
            }
            Ok(Answer::Read { count, .. }) if u64::from(*count) != bytes => {
                Err(format!("file {number} at byte {offset}: {count} bytes read of {bytes}"))
            }
            Ok(Answer::Read { .. }) => {
                let checked = stamps::check_any(&done.buffer, number, offset);
                outcome.stamps += checked.map_err(|wrong| wrong.to_string())?;
                Ok(())
            }
            // The load asks for no pipes.
            Ok(Answer::Piped { .. } | Answer::Written | Answer::Results(_)) => Ok(()),
        }
    }
}

impl Task for Load {
    fn start(&mut self, io: &mut Io<'_>) {
        self.started_at = io.now();
        for job in 0..self.jobs.len() {
            let Some(running) = self.jobs.get_mut(job) else { continue };
            let first = job * self.depth_max;
            let slots = first..first + (running.job.depth as usize).min(self.depth_max);
            if running.job.schedule.is_some() {
                running.idle.extend(slots);
                // If this fails, latencies include the default slack.
                let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
                self.start_due(io, job);
            } else {
                for slot in slots {
                    self.submit(io, slot, None);
                }
            }
        }
        self.end_if_done();
    }

    fn finished(&mut self, io: &mut Io<'_>, token: u64, done: Done) {
        let now = io.now();
        let slot = usize::try_from(token / self.pieces_max).unwrap_or(usize::MAX);
        if let Err(error) = self.check(slot, token % self.pieces_max, &done)
            && let Some(outcome) = &mut self.outcome
        {
            outcome.error.get_or_insert(error);
        }
        let job = slot / self.depth_max;
        let Some(running) = self.jobs.get_mut(job) else { return };
        running.keep(done.buffer);
        let Some(operation) = self.operations.get_mut(slot) else { return };
        operation.pieces = operation.pieces.saturating_sub(1);
        if operation.pieces > 0 {
            return;
        }
        let split = operation.bytes > running.job.piece_bytes_of(operation.direction) as u64;
        let latency = if split { now.saturating_sub(operation.began) } else { done.latency };
        self.in_flight -= 1;
        if !self.failed() {
            self.account(now, slot, latency);
        }
        self.note_progress();
        if let Some(running) = self.jobs.get_mut(job)
            && running.job.schedule.is_some()
        {
            running.idle.push(slot);
            self.start_due(io, job);
        } else if self.is_open(now.saturating_sub(self.started_at)) && !self.failed() {
            self.submit(io, slot, None);
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

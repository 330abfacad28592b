//! Work on the loop of an attachment: who submits there learns of completions without a hand-over
//! between threads.

use crate::request::{Completion, Operation};
use std::fmt::{Debug, Formatter};
use std::time::Duration;

/// Work that runs on the loop of an attachment. It must not wait for anything: all that the
/// attachment does waits for it meanwhile.
///
/// It is dropped once it has ended, and with the attachment, whatever is under way then.
pub trait Task: Send {
    /// Called once, on the loop.
    fn start(&mut self, io: &mut Io<'_>);

    /// Called when an operation of the task has ended.
    fn finished(&mut self, io: &mut Io<'_>, completion: Completion);

    /// In how long [`Task::woken`] is to be called. Called in every round of the loop, so it should
    /// be cheap. `None` means that only completions wake the task.
    fn wakes_in(&self) -> Option<Duration> {
        None
    }

    /// Called when the time is over that [`Task::wakes_in`] has said.
    fn woken(&mut self, _io: &mut Io<'_>) {}

    /// Whether the task will submit no more. It is dropped when what it has submitted has ended.
    fn ended(&self) -> bool;
}

/// A task's access to its volume.
#[derive(Debug)]
pub struct Io<'a> {
    submitted: &'a mut Vec<(Operation, u64)>,
}

impl<'a> Io<'a> {
    pub(crate) const fn new(submitted: &'a mut Vec<(Operation, u64)>) -> Self {
        Self { submitted }
    }

    /// Begins an operation; its completion has this cookie.
    pub fn submit(&mut self, operation: Operation, cookie: u64) {
        self.submitted.push((operation, cookie));
    }
}

/// A task and its volume.
pub(crate) struct Running {
    pub(crate) nsid: u32,
    pub(crate) task: Box<dyn Task>,
    /// Its operations that have not ended.
    pub(crate) outstanding: usize,
}

impl Debug for Running {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("nsid", &self.nsid).field("outstanding", &self.outstanding).finish()
    }
}

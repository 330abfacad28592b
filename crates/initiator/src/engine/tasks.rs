//! Tasks on the loop: they are told of completions once per round, so that what they submit is sent
//! together.

use super::Engine;
use crate::request::{Completion, Reply};
use crate::shared::Message;
use crate::task::{Io, Running, Task};
use std::time::Duration;

impl Engine {
    /// Starts a task.
    pub(super) fn start_task(&mut self, task: Running) {
        let at = self.tasks.insert(task);
        self.with_task(at, |task, io| task.start(io));
    }

    /// Tells whom it concerns how an operation has ended.
    pub(super) fn complete(&mut self, reply: &Reply, completion: Completion) {
        match reply {
            // Who does not wait for it any more has no use for it.
            Reply::Channel(reply) => drop(reply.send(completion)),
            Reply::Task(at) => self.completed.push((*at, completion)),
        }
    }

    /// Tells tasks what has completed, and wakes those whose time has come.
    pub(super) fn run_tasks(&mut self) {
        let is_due = |running: &Running| running.task.wakes_in() == Some(Duration::ZERO);
        let due: Vec<usize> =
            self.tasks.iter().filter(|(_, running)| is_due(running)).map(|(at, _)| at).collect();
        for at in due {
            self.with_task(at, |task, io| task.woken(io));
        }
        // What is refused at once has completed as well.
        while !self.completed.is_empty() {
            for (at, completion) in std::mem::take(&mut self.completed) {
                if let Some(running) = self.tasks.get_mut(at) {
                    running.outstanding -= 1;
                    self.with_task(at, |task, io| task.finished(io, completion));
                }
            }
        }
    }

    /// In how long a task is to be woken.
    pub(super) fn tasks_wake_in(&self) -> Option<Duration> {
        self.tasks.iter().filter_map(|(_, running)| running.task.wakes_in()).min()
    }

    fn with_task(&mut self, at: usize, call: impl FnOnce(&mut dyn Task, &mut Io<'_>)) {
        let Some(running) = self.tasks.get_mut(at) else { return };
        let mut submitted = std::mem::take(&mut self.submitted);
        call(running.task.as_mut(), &mut Io::new(&mut submitted));
        running.outstanding += submitted.len();
        let nsid = running.nsid;
        if running.outstanding == 0 && running.task.ended() {
            self.tasks.remove(at);
        }
        for (operation, cookie) in submitted.drain(..) {
            self.accept(Message { nsid, operation, cookie, reply: Reply::Task(at) });
        }
        self.submitted = submitted;
    }
}

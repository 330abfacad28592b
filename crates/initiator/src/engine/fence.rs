//! Changes whose outcome is not known wait here until their controller is finished.
//!
//! It is finished when the target says so (End Controller, over any connection to the same node),
//! or after the time for which a target may go on without its host.

use super::Engine;
use super::admin::AdminPurpose;
use nvme::Status;
use nvme::end_controller::{EndController, Instance};
use nvme::host::{Command, CommandData};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Fence {
    /// The controller, if its target can be asked.
    instance: Option<Instance>,
    /// When it is finished in any case.
    until: Duration,
    since: Duration,
    /// The request was sent.
    asked: bool,
    parts: Vec<usize>,
}

impl Engine {
    /// A part of a controller that is lost: reads may go on at once.
    pub(super) fn take_back(&mut self, tag: u64, changes: &mut Vec<usize>) {
        let Ok(at) = usize::try_from(tag & !super::ADMIN) else { return };
        if tag & super::ADMIN != 0 {
            let command = self.commands.admin.try_remove(at);
            if let Some(AdminPurpose::End(fence)) = command.map(|command| command.purpose) {
                self.ask_again(fence);
            }
            return;
        }
        let Some(part) = self.commands.parts.get(at) else { return };
        let changes_data =
            self.commands.requests.get(part.request).is_some_and(|request| request.operation.changes());
        if changes_data {
            changes.push(at);
        } else {
            self.waiting.push_front(at);
        }
    }

    pub(super) fn fence(&mut self, until: Duration, instance: Option<Instance>, parts: Vec<usize>) {
        tracing::debug!(?instance, changes = parts.len(), "changes wait until their controller is finished");
        let since = self.now();
        self.fences.insert(Fence { instance, until, since, asked: false, parts });
        self.ask();
    }

    /// The request was not sent, or its connection is lost.
    pub(super) fn ask_again(&mut self, fence: usize) {
        if let Some(fence) = self.fences.get_mut(fence) {
            fence.asked = false;
        }
    }

    /// Asks the node of each controller that is not known to be finished to end it.
    pub(super) fn ask(&mut self) {
        let open = |(at, fence): (usize, &Fence)| {
            fence.instance.filter(|_| !fence.asked).map(|instance| (at, instance))
        };
        let open: Vec<(usize, Instance)> = self.fences.iter().filter_map(open).collect();
        for (fence, instance) in open {
            // Not one that is suspected itself, as long as there is another.
            let same_node = |path: &usize| {
                let controller = self.controller(*path).filter(|one| one.is_live());
                controller.and_then(|one| one.instance()).is_some_and(|one| one.node == instance.node)
            };
            let is_suspect = |path: &usize| self.controller(*path).is_some_and(|one| one.probe.is_some());
            let Some(path) = (0..self.paths.len()).filter(same_node).min_by_key(is_suspect) else { continue };
            if let Some(fence) = self.fences.get_mut(fence) {
                fence.asked = true;
            }
            let sqe = EndController::One(instance).command(0);
            self.submit_admin(path, AdminPurpose::End(fence), Command { sqe, data: CommandData::None });
        }
    }

    /// The answer of the node.
    pub(super) fn fence_answered(&mut self, at: usize, status: Status) {
        if status.is_success() {
            return self.lift(at);
        }
        if let Some(fence) = self.fences.get_mut(at) {
            // Refused: time decides. Otherwise it is asked again with the next tick.
            fence.asked = false;
            if status.dnr() {
                fence.instance = None;
            }
        }
    }

    pub(super) fn tick_fences(&mut self, now: Duration) {
        let over: Vec<usize> =
            self.fences.iter().filter(|(_, fence)| now >= fence.until).map(|(at, _)| at).collect();
        over.into_iter().for_each(|at| self.lift(at));
        self.ask();
    }

    /// The controller is finished: its changes may be sent again, before what came after them.
    fn lift(&mut self, at: usize) {
        let Some(fence) = self.fences.try_remove(at) else { return };
        let waited = self.now().saturating_sub(fence.since);
        tracing::info!(changes = fence.parts.len(), ?waited, "the old controller is finished");
        for part in fence.parts.into_iter().rev() {
            self.waiting.push_front(part);
        }
        self.dispatch();
    }
}

//! Changes of a lost controller wait in [`nvme::host::Fences`] until it is finished: what the loop
//! does for that.

use super::Engine;
use super::admin::AdminPurpose;
use super::path::Path;
use nvme::Cqe;
use nvme::host::{Candidate, FenceId, Lifted, Name};
use std::time::Duration;

impl Engine {
    /// A part of a controller that is lost: reads may go on at once.
    pub(super) fn take_back(&mut self, tag: u64, changes: &mut Vec<usize>) {
        let Ok(at) = usize::try_from(tag & !super::ADMIN) else { return };
        if tag & super::ADMIN != 0 {
            let command = self.commands.admin.try_remove(at);
            if let Some(AdminPurpose::End(fence)) = command.map(|command| command.purpose) {
                let now = self.now();
                self.fences.ask_again(now, fence);
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

    pub(super) fn fence(&mut self, safe: Duration, name: Option<Name>, parts: Vec<usize>) {
        tracing::debug!(?name, changes = parts.len(), "changes wait until their controller is finished");
        self.fences.add(self.now(), safe, name, parts);
        self.shared.set_unfinished(true);
        self.ask();
    }

    /// Has each controller ended that is not known to be finished.
    pub(super) fn ask(&mut self) {
        // What is sent may lose its path.
        while let Some(ask) = self.fences.next_ask(self.now(), &self.candidates()) {
            self.submit_admin(ask.path, AdminPurpose::End(ask.fence), ask.command);
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let of = |path| {
            let controller = self.controller(path).filter(|one| one.is_live())?;
            Some(Candidate { path, name: controller.name()?, is_suspect: controller.health.is_suspect() })
        };
        (0..self.paths.len()).filter_map(of).collect()
    }

    /// The answer of the target.
    pub(super) fn fence_answered(&mut self, fence: FenceId, cqe: &Cqe) {
        if let Some(lifted) = self.fences.handle_answer(self.now(), fence, cqe) {
            self.lift(lifted);
        }
    }

    pub(super) fn tick_fences(&mut self, now: Duration) {
        while let Some(lifted) = self.fences.handle_timeout(now, self.paths.iter().any(Path::is_live)) {
            self.lift(lifted);
        }
        self.ask();
    }

    /// A controller is finished: its changes may be sent again, before what came after them.
    fn lift(&mut self, lifted: Lifted<usize>) {
        let Lifted { changes, waited } = lifted;
        tracing::info!(changes = changes.len(), ?waited, "the old controller is finished");
        self.shared.set_unfinished(!self.fences.is_empty());
        for part in changes.into_iter().rev() {
            self.waiting.push_front(part);
        }
        self.dispatch();
    }
}

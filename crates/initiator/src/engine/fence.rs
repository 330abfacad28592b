//! Changes whose outcome is not known wait here until their controller is finished.
//!
//! It is finished when the target says so, or after the time for which a target may go on without
//! its host. The target is asked over any other connection: one of ours by End Controller, of the
//! same node if there is one, and another one by Cross-Controller Reset if it knows that.

use super::Engine;
use super::admin::AdminPurpose;
use nvme::cross_reset::{Impacted, RESET_IS_OVER};
use nvme::end_controller::{EndController, Instance};
use nvme::host::{Command, CommandData};
use nvme::identify::Controller as Identity;
use nvme::{Cqe, Sqe, Status};
use std::time::Duration;

/// By what the target knows a controller that is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// One of our targets.
    Instance(Instance),
    /// One that knows Cross-Controller Reset.
    Impacted(Impacted),
}

impl Name {
    pub(super) fn of(identity: &Identity) -> Option<Self> {
        let standard = || Impacted::of(identity).map(Self::Impacted);
        Instance::of(identity).map(Self::Instance).or_else(standard)
    }

    fn command(&self) -> Sqe {
        match self {
            Self::Instance(instance) => EndController::One(*instance).command(0),
            Self::Impacted(impacted) => impacted.command(0),
        }
    }

    /// Whether another controller is as good to ask as any, or less so; `None` if it does not know
    /// the command.
    fn rank(&self, other: Self) -> Option<bool> {
        match (self, other) {
            (Self::Instance(one), Self::Instance(other)) => Some(one.node != other.node),
            (Self::Impacted(_), Self::Impacted(_)) => Some(false),
            _ => None,
        }
    }

    /// Whether the answer says that the controller is finished.
    fn is_finished(&self, cqe: &Cqe) -> bool {
        let is_over = matches!(self, Self::Instance(_)) || cqe.result & RESET_IS_OVER != 0;
        cqe.status.is_success() && is_over
    }
}

/// Whether the target may know it later.
fn may_be_asked_again(status: Status) -> bool {
    status.is(Status::CROSS_RESET_IN_PROGRESS)
        || status.is(Status::CROSS_RESET_LIMIT_EXCEEDED)
        || !status.dnr()
}

#[derive(Debug)]
pub(super) struct Fence {
    /// The controller, if its target can be asked.
    name: Option<Name>,
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

    pub(super) fn fence(&mut self, until: Duration, name: Option<Name>, parts: Vec<usize>) {
        tracing::debug!(?name, changes = parts.len(), "changes wait until their controller is finished");
        let since = self.now();
        self.fences.insert(Fence { name, until, since, asked: false, parts });
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
        let open = |(at, fence): (usize, &Fence)| fence.name.filter(|_| !fence.asked).map(|name| (at, name));
        let open: Vec<(usize, Name)> = self.fences.iter().filter_map(open).collect();
        for (fence, name) in open {
            // Its own node first, and not one that is suspected itself. The other node may not know
            // it, and says then that it may be asked again.
            let of = |path: &usize| {
                let controller = self.controller(*path).filter(|one| one.is_live());
                let other = controller.and_then(|one| one.name())?;
                let is_suspect = self.controller(*path).is_some_and(|one| one.health.is_suspect());
                Some((name.rank(other)?, is_suspect))
            };
            let paths = (0..self.paths.len()).filter_map(|path| Some((of(&path)?, path)));
            let Some((_, path)) = paths.min() else { continue };
            if let Some(fence) = self.fences.get_mut(fence) {
                fence.asked = true;
            }
            let command = Command { sqe: name.command(), data: CommandData::None };
            self.submit_admin(path, AdminPurpose::End(fence), command);
        }
    }

    /// The answer of the node.
    pub(super) fn fence_answered(&mut self, at: usize, cqe: &Cqe) {
        let Some(fence) = self.fences.get_mut(at) else { return };
        if fence.name.is_some_and(|name| name.is_finished(cqe)) {
            return self.lift(at);
        }
        // Refused: time decides. Otherwise it is asked again with the next tick.
        fence.asked = false;
        if !may_be_asked_again(cqe.status) {
            fence.name = None;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn standard(cntlid: u16) -> Identity {
        Identity {
            cntlid,
            instance: 1,
            instance_random: [cntlid as u8; 8],
            cross_reset_limit: 1,
            ..Identity::default()
        }
    }

    #[test]
    fn a_target_of_others_is_asked_by_the_standards_command_and_one_of_ours_by_its_own() {
        let [one, other] = [1, 2].map(|cntlid| Name::of(&standard(cntlid)).expect("a name"));
        assert_eq!((one.rank(other), one.command().opcode), (Some(false), 0x38));
        assert_eq!(Name::of(&Identity { cross_reset_limit: 0, ..standard(1) }), None);
        let of_node = |node| {
            let end_signature = nvme::end_controller::END_CONTROLLER_SIGNATURE;
            let identity = Identity { end_signature, end_node: node, end_instance: 5, ..standard(1) };
            Name::of(&identity).expect("a name")
        };
        assert_eq!(of_node(0).command().opcode, 0xc0);
        assert_eq!(of_node(0).rank(of_node(0)), Some(false));
        assert_eq!(of_node(0).rank(of_node(1)), Some(true));
        assert_eq!(one.rank(of_node(0)), None);
    }

    #[test]
    fn a_reset_that_has_only_begun_is_not_the_end() {
        let cqe = |status, result| Cqe { result, sqhd: 0, sqid: 0, cid: 0, status };
        let name = Name::of(&standard(1)).expect("a name");
        assert!(!name.is_finished(&cqe(Status::SUCCESS, 0)) && may_be_asked_again(Status::SUCCESS));
        assert!(name.is_finished(&cqe(Status::SUCCESS, RESET_IS_OVER)));
        assert!(!name.is_finished(&cqe(Status::INVALID_FIELD, RESET_IS_OVER)));
        for (status, again) in [
            (Status::CROSS_RESET_IN_PROGRESS.no_retry(), true),
            (Status::CROSS_RESET_LIMIT_EXCEEDED.no_retry(), true),
            (Status::COMMAND_INTERRUPTED, true),
            (Status::INVALID_FIELD.no_retry(), false),
        ] {
            assert_eq!(may_be_asked_again(status), again, "{status}");
        }
    }
}

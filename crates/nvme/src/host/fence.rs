//! Changes whose outcome is not known wait here until their controller is finished.
//!
//! A host that loses a controller does not know which of the writes that it sent were executed, or
//! will be. A write that is sent again before its controller is finished may be overtaken by its
//! late original, which then destroys newer data. So what was sent waits behind a *fence*.
//!
//! A controller is finished when the target says so, or after the time for which a target may go on
//! without its host ([`safe_time`]). The target is asked over any other connection: one of ours by
//! End Controller, of the same node if there is one, and another one by Cross-Controller Reset if
//! it knows that.
//!
//! Time decides only where the target does not say it. A target that stood still does not count
//! that time against its hosts, so that it may go on with a controller for longer than the safe
//! time. As long as no connection is there, nothing could be sent anyway; the first one that comes
//! back is asked, and has [`ANSWER`] for it.

use super::initiator::{Command, CommandData};
use crate::cross_reset::{Impacted, RESET_IS_OVER};
use crate::end_controller::{EndController, Instance};
use crate::identify::{Controller, ControllerAttributes};
use crate::{Cqe, Sqe, Status};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a target may take to answer what it was asked, also when the safe time is over.
pub const ANSWER: Duration = Duration::from_secs(5);

/// By what the target knows a controller that is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// One of our targets.
    Instance(Instance),
    /// One that knows Cross-Controller Reset.
    Impacted(Impacted),
}

impl Name {
    /// The name of a controller, if another one can be asked to end it.
    #[must_use]
    pub fn of(identity: &Controller) -> Option<Self> {
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

/// How long a target may go on with commands of a host that it does not hear any more. TP4129: it
/// notices after its keep-alive timeout, and within twice of it if any traffic counts (TBKAS); one
/// more is for the host's own clock to begin. CQT is what its commands then take.
#[must_use]
pub fn safe_time(keep_alive: Duration, identity: Option<&Controller>) -> Duration {
    let by_traffic = identity.is_none_or(|one| one.attributes.has(ControllerAttributes::TRAFFIC_KEEPS_ALIVE));
    let quiesce = identity.map_or(0, |one| u64::from(one.quiesce_ms));
    keep_alive * if by_traffic { 3 } else { 2 } + Duration::from_millis(quiesce)
}

/// Identifies a fence. No other one has it later: the answer of a target may come long after its
/// fence was lifted by time, and says nothing of other controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FenceId(u64);

/// A live controller, which can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its path, by the driver's number.
    pub path: usize,
    /// Its name.
    pub name: Name,
    /// Whether it may be lost itself.
    pub is_suspect: bool,
}

/// A request to end a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The fence that it is for.
    pub fence: FenceId,
    /// The path whose admin queue it goes to.
    pub path: usize,
    /// The command.
    pub command: Command,
}

/// Changes that may be sent again, before what came after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifted<C> {
    /// The changes, in their order.
    pub changes: Vec<C>,
    /// How long they have waited.
    pub waited: Duration,
}

#[derive(Debug)]
struct Fence<C> {
    /// The controller, if its target can be asked.
    name: Option<Name>,
    /// When it is finished, if the target cannot say it.
    until: Duration,
    since: Duration,
    /// When the request was sent that is not answered.
    asked: Option<Duration>,
    /// When that was lost with its connection; another one may be there to be asked.
    lost: Option<Duration>,
    changes: Vec<C>,
    /// Others were given up. Those who come later must not be overtaken by them.
    has_failed: bool,
}

impl<C> Fence<C> {
    /// Whether time says that the controller is finished.
    fn is_over(&self, now: Duration, is_reached: bool) -> bool {
        let is_answering = self.asked.or(self.lost).is_some_and(|at| now < at + ANSWER);
        let could_ask = self.name.is_none() || is_reached;
        now >= self.until && could_ask && !is_answering
    }
}

/// The fences of a host; `C` is what it calls a change.
#[derive(Debug)]
pub struct Fences<C> {
    fences: BTreeMap<FenceId, Fence<C>>,
    next: u64,
}

impl<C> Default for Fences<C> {
    fn default() -> Self {
        Self { fences: BTreeMap::new(), next: 0 }
    }
}

impl<C> Fences<C> {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fences.is_empty()
    }

    /// A controller with changes is lost. Where the target cannot say when it is finished, it is
    /// after `safe`.
    pub fn add(&mut self, now: Duration, safe: Duration, name: Option<Name>, changes: Vec<C>) {
        let fence = Fence {
            name,
            until: now + safe,
            since: now,
            asked: None,
            lost: None,
            changes,
            has_failed: false,
        };
        self.fences.insert(FenceId(self.next), fence);
        self.next += 1;
    }

    /// The next request to send, if there is one and a controller to send it to: its own node
    /// first, and not one that is suspected itself. The other node may not know it, and says then
    /// that it may be asked again.
    pub fn next_ask(&mut self, now: Duration, candidates: &[Candidate]) -> Option<Ask> {
        self.fences.iter_mut().filter(|(_, fence)| fence.asked.is_none()).find_map(|(id, fence)| {
            let name = fence.name?;
            let ranked = |one: &Candidate| Some((name.rank(one.name)?, one.is_suspect, one.path));
            let (.., path) = candidates.iter().filter_map(ranked).min()?;
            (fence.asked, fence.lost) = (Some(now), None);
            let command = Command { sqe: name.command(), data: CommandData::None };
            Some(Ask { fence: *id, path, command })
        })
    }

    /// The request was not sent, or its connection is lost.
    pub fn ask_again(&mut self, now: Duration, id: FenceId) {
        if let Some(fence) = self.fences.get_mut(&id) {
            (fence.asked, fence.lost) = (None, Some(now));
        }
    }

    /// Takes out changes that are given up. Until their fence is lifted, nothing else may change
    /// data: [`Fences::holds_all`].
    pub fn give_up(&mut self, mut is_given_up: impl FnMut(&C) -> bool) -> Vec<C> {
        let mut all = Vec::new();
        for fence in self.fences.values_mut() {
            let given_up = fence.changes.extract_if(.., |change| is_given_up(change));
            let before = all.len();
            all.extend(given_up);
            fence.has_failed |= all.len() > before;
        }
        all
    }

    /// Whether changes were given up whose controller is not known to be finished: a late original
    /// could overtake any other change.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        self.fences.values().any(|fence| fence.has_failed)
    }

    /// The target answered a request. Returns what may be sent again.
    pub fn handle_answer(&mut self, now: Duration, id: FenceId, cqe: &Cqe) -> Option<Lifted<C>> {
        let fence = self.fences.get_mut(&id)?;
        if fence.name.is_some_and(|name| name.is_finished(cqe)) {
            return self.lift(now, id);
        }
        // Refused: time decides. Otherwise it is asked again with the next tick.
        fence.asked = None;
        if !may_be_asked_again(cqe.status) {
            fence.name = None;
        }
        None
    }

    /// Time has passed. Returns what may be sent again, one fence at a time. `is_reached` says
    /// whether any controller of the subsystem is live, so that something could be sent.
    pub fn handle_timeout(&mut self, now: Duration, is_reached: bool) -> Option<Lifted<C>> {
        let id = *self.fences.iter().find(|(_, fence)| fence.is_over(now, is_reached))?.0;
        self.lift(now, id)
    }

    /// The controller is finished.
    fn lift(&mut self, now: Duration, id: FenceId) -> Option<Lifted<C>> {
        let fence = self.fences.remove(&id)?;
        Some(Lifted { changes: fence.changes, waited: now.saturating_sub(fence.since) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard(cntlid: u16) -> Controller {
        Controller {
            cntlid,
            instance: 1,
            instance_random: [cntlid as u8; 8],
            cross_reset_limit: 1,
            ..Controller::default()
        }
    }

    fn ours(node: u32, number: u64) -> Name {
        let end_signature = crate::end_controller::END_CONTROLLER_SIGNATURE;
        let identity = Controller { end_signature, end_node: node, end_instance: number, ..standard(1) };
        Name::of(&identity).expect("a name")
    }

    fn answer(status: Status, result: u64) -> Cqe {
        Cqe { result, status, ..Cqe::default() }
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_target_of_others_is_asked_by_the_standards_command_and_one_of_ours_by_its_own() {
        let [one, other] = [1, 2].map(|cntlid| Name::of(&standard(cntlid)).expect("a name"));
        assert_eq!((one.rank(other), one.command().opcode), (Some(false), 0x38));
        assert_eq!(Name::of(&Controller { cross_reset_limit: 0, ..standard(1) }), None);
        assert_eq!(ours(0, 5).command().opcode, 0xc0);
        assert_eq!(ours(0, 5).rank(ours(0, 6)), Some(false));
        assert_eq!(ours(0, 5).rank(ours(1, 6)), Some(true));
        assert_eq!(one.rank(ours(0, 5)), None);
    }

    #[test]
    fn a_reset_that_has_only_begun_is_not_the_end() {
        let name = Name::of(&standard(1)).expect("a name");
        assert!(!name.is_finished(&answer(Status::SUCCESS, 0)) && may_be_asked_again(Status::SUCCESS));
        assert!(name.is_finished(&answer(Status::SUCCESS, RESET_IS_OVER)));
        assert!(!name.is_finished(&answer(Status::INVALID_FIELD, RESET_IS_OVER)));
        for (status, again) in [
            (Status::CROSS_RESET_IN_PROGRESS.no_retry(), true),
            (Status::CROSS_RESET_LIMIT_EXCEEDED.no_retry(), true),
            (Status::COMMAND_INTERRUPTED, true),
            (Status::INVALID_FIELD.no_retry(), false),
        ] {
            assert_eq!(may_be_asked_again(status), again, "{status}");
        }
    }

    #[test]
    fn its_own_node_is_asked_first_and_no_controller_twice_for_one_fence() {
        let mut fences = Fences::default();
        fences.add(secs(0), secs(15), Some(ours(0, 5)), vec!['a']);
        let candidate = |path, node, is_suspect| Candidate { path, name: ours(node, 9), is_suspect };
        assert_eq!(fences.next_ask(secs(1), &[]), None);
        let ask =
            fences.next_ask(secs(1), &[candidate(1, 1, false), candidate(2, 0, true)]).expect("a request");
        assert_eq!(ask.path, 2);
        assert_eq!(fences.next_ask(secs(1), &[candidate(1, 1, false)]), None);
        fences.ask_again(secs(1), ask.fence);
        let ask = fences.next_ask(secs(1), &[candidate(1, 1, false)]).expect("a request");
        assert_eq!(fences.handle_answer(secs(1), ask.fence, &answer(Status::COMMAND_INTERRUPTED, 0)), None);
        let ask = fences.next_ask(secs(1), &[candidate(1, 1, false)]).expect("a request");
        let lifted = fences.handle_answer(secs(2), ask.fence, &answer(Status::SUCCESS, 0));
        assert_eq!(lifted, Some(Lifted { changes: vec!['a'], waited: secs(2) }));
        assert!(fences.is_empty());
    }

    #[test]
    fn a_fence_without_an_answer_is_lifted_by_time() {
        let mut fences = Fences::default();
        fences.add(secs(1), secs(15), None, vec!['a', 'b']);
        fences.add(secs(2), secs(15), Some(ours(0, 5)), vec!['c']);
        assert_eq!(fences.handle_timeout(secs(15), true), None);
        let lifted = fences.handle_timeout(secs(16), true);
        assert_eq!(lifted, Some(Lifted { changes: vec!['a', 'b'], waited: secs(15) }));
        assert_eq!(fences.handle_timeout(secs(16), true), None);
        assert!(!fences.is_empty());
    }

    #[test]
    fn an_answer_that_comes_after_its_fence_was_lifted_by_time_lifts_no_other_one() {
        let mut fences = Fences::default();
        let asked = Candidate { path: 1, name: ours(0, 9), is_suspect: false };
        fences.add(secs(0), secs(15), Some(ours(0, 5)), vec!['a']);
        let late = fences.next_ask(secs(1), &[asked]).expect("a request");
        assert!(fences.handle_timeout(secs(15), true).is_some());
        fences.add(secs(16), secs(15), Some(ours(0, 6)), vec!['b']);
        assert_eq!(fences.handle_answer(secs(17), late.fence, &answer(Status::SUCCESS, 0)), None);
        let ask = fences.next_ask(secs(1), &[asked]).expect("a request");
        let lifted = fences.handle_answer(secs(18), ask.fence, &answer(Status::SUCCESS, 0));
        assert_eq!(lifted.map(|lifted| lifted.changes), Some(vec!['b']));
    }

    #[test]
    fn time_decides_only_when_the_target_could_be_asked_and_has_not_answered() {
        let asked = Candidate { path: 1, name: ours(0, 9), is_suspect: false };
        let mut fences = Fences::default();
        fences.add(secs(0), secs(15), Some(ours(0, 5)), vec!['a']);
        // Nobody is there to be asked, and nobody to send the change to.
        assert_eq!(fences.handle_timeout(secs(16), false), None);
        let ask = fences.next_ask(secs(20), &[asked]).expect("a request");
        assert_eq!(fences.handle_timeout(secs(20), true), None);
        fences.ask_again(secs(20), ask.fence);
        assert_eq!(fences.handle_timeout(secs(21), false), None);
        assert!(fences.next_ask(secs(22), &[asked]).is_some());
        assert_eq!(fences.handle_timeout(secs(26), true), None);
        assert!(fences.handle_timeout(secs(27), true).is_some());
    }

    #[test]
    fn a_target_that_cannot_say_it_is_not_waited_for_beyond_the_safe_time() {
        let asked = Candidate { path: 1, name: ours(1, 9), is_suspect: false };
        let mut fences = Fences::default();
        fences.add(secs(0), secs(15), Some(ours(0, 5)), vec!['a']);
        let ask = fences.next_ask(secs(14), &[asked]).expect("a request");
        assert_eq!(fences.handle_timeout(secs(15), true), None);
        assert_eq!(fences.handle_answer(secs(15), ask.fence, &answer(Status::COMMAND_INTERRUPTED, 0)), None);
        assert!(fences.handle_timeout(secs(15), true).is_some());
        // Another target is there, which does not know the command.
        fences.add(secs(20), secs(15), Some(ours(0, 6)), vec!['b']);
        assert_eq!(fences.next_ask(secs(21), &[]), None);
        assert!(fences.handle_timeout(secs(35), true).is_some());
    }

    #[test]
    fn a_request_that_is_lost_with_its_path_goes_to_another_one_before_time_decides() {
        let asked = Candidate { path: 1, name: ours(1, 9), is_suspect: false };
        let mut fences = Fences::default();
        fences.add(secs(0), secs(15), Some(ours(0, 5)), vec!['a']);
        let ask = fences.next_ask(secs(14), &[asked]).expect("a request");
        fences.ask_again(secs(16), ask.fence);
        assert_eq!(fences.handle_timeout(secs(16), true), None);
        assert!(fences.next_ask(secs(17), &[asked]).is_some());
        assert_eq!(fences.handle_timeout(secs(21), true), None);
        assert!(fences.handle_timeout(secs(22), true).is_some());
        // Nobody else knows the command.
        fences.add(secs(30), secs(15), Some(ours(0, 6)), vec!['b']);
        let ask = fences.next_ask(secs(31), &[asked]).expect("a request");
        fences.ask_again(secs(46), ask.fence);
        assert_eq!(fences.next_ask(secs(46), &[]), None);
        assert_eq!(fences.handle_timeout(secs(50), true), None);
        assert!(fences.handle_timeout(secs(51), true).is_some());
    }

    #[test]
    fn changes_that_are_given_up_keep_all_others_back_until_their_controller_is_finished() {
        let mut fences = Fences::default();
        fences.add(secs(0), secs(15), Some(ours(0, 5)), vec!['a', 'b']);
        fences.add(secs(0), secs(15), Some(ours(0, 6)), vec!['c']);
        assert!(!fences.holds_all());
        assert_eq!(fences.give_up(|change| *change == 'a'), vec!['a']);
        assert!(fences.holds_all());
        assert_eq!(fences.handle_timeout(secs(600), false), None);
        let lifted = fences.handle_timeout(secs(601), true);
        assert_eq!(lifted.map(|lifted| lifted.changes), Some(vec!['b']));
        assert!(!fences.holds_all() && !fences.is_empty());
    }
}

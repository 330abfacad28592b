//! Requests to the other node to end controllers of a host, and what is known without it.
//!
//! While the other node is not connected, it may run all the same. It has no controllers that matter
//! if this node has all volumes, and so the locks of all backings. Whether one of its controllers is
//! finished, as [`EndController::One`] asks, [`Backings::finished`](super::Backings::finished) says.

use super::OtherAnswer;
use nvme::end_controller::EndController;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Endings {
    /// What the partner has not answered.
    asked: BTreeSet<u64>,
}

impl Endings {
    /// The partner was asked.
    pub(super) fn begin(&mut self, id: u64) {
        self.asked.insert(id);
    }

    /// The partner has answered; false if it was not asked.
    pub(super) fn answer(&mut self, id: u64) -> bool {
        self.asked.remove(&id)
    }

    /// The partner's process has ended. Returns what it was asked, and has not answered.
    pub(super) fn partner_ended(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.asked)
    }
}

/// The answer while there is no partner, of a node that is alone with all volumes or not.
pub(super) const fn without_partner(ends: EndController, is_alone: bool) -> OtherAnswer {
    match ends {
        EndController::Older if is_alone => OtherAnswer::Gone,
        EndController::Older | EndController::One(_) => OtherAnswer::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme::end_controller::Instance;

    #[test]
    fn what_the_partner_was_asked_is_answered_once() {
        let mut endings = Endings::default();
        (1..4).for_each(|id| endings.begin(id));
        assert!(endings.answer(2) && !endings.answer(2) && !endings.answer(4));
        assert_eq!(endings.partner_ended(), BTreeSet::from([1, 3]));
        assert!(!endings.answer(1) && endings.partner_ended().is_empty());
    }

    #[test]
    fn a_partner_that_is_not_connected_may_have_controllers_unless_this_node_has_all_volumes() {
        let one = EndController::One(Instance { node: 1, number: 5 });
        assert_eq!(without_partner(EndController::Older, true), OtherAnswer::Gone);
        assert_eq!(without_partner(EndController::Older, false), OtherAnswer::Unknown);
        assert_eq!(without_partner(one, true), OtherAnswer::Unknown);
    }
}

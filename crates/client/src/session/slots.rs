//! The slots of a session that a loop uses. RFC 8881 s2.10.6.1
//!
//! A session has one table of slots for all its connections. Each loop has its own part of it, so
//! that taking a slot needs no lock: every n-th slot, because a server that wants fewer asks for
//! fewer at the end.
//!
//! - A slot has one call at a time. Its number goes up only when it is known that the server has
//!   executed the call; until then every transmission is of the same call.
//! - The first few slots are apart: a connection is validated in them, so that this never waits for
//!   calls that wait for a connection. All validations of a loop are the same call, so one whose
//!   answer was lost is repeated by the next.
//! - A call that is given up leaves its slot parked. SEQUENCE alone, with the same number, finds
//!   out whether the server knows the call; whatever it says, the next number is then the right
//!   one. RFC 8881 s2.10.6.1.3.1
//! - Each call tells the highest slot in which any loop may have a call: above it the server may
//!   free slots. A loop that has learnt that the server wants fewer publishes how far it still
//!   goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nfs4::op::sequence::Success;

use super::Session;
use crate::protocol::nfs4::SlotUse;

/// One in so many slots of a loop may be apart.
const APART_SHARE: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Used,
    Parked,
}

/// The highest slot that each loop may have in use, and one more; 0 where it uses none.
#[derive(Debug, Default)]
pub(crate) struct HighestSlots(Box<[Published]>);

/// In a cache line of its own: a loop with one call at a time writes it twice with each.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Published(AtomicU32);

impl HighestSlots {
    pub(super) fn new(loops_max: usize) -> Self {
        Self((0..loops_max).map(|_| Published::default()).collect())
    }

    /// `end` is the slot after the highest. It is seen before the call that it is published for is
    /// sent.
    fn publish(&self, index: u32, end: u32) {
        if let Some(of) = self.0.get(index as usize) {
            of.0.store(end, Ordering::SeqCst);
        }
    }

    fn of_all(&self, loops: u32) -> Option<u32> {
        let all = self.0.iter().take(loops as usize);
        all.map(|of| of.0.load(Ordering::SeqCst)).max()?.checked_sub(1)
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The number of the next call, or of the one that has the slot.
    next: u32,
    state: State,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Slots {
    generation: u64,
    session: nfs4::SessionId,
    /// The loop, and how many there are.
    part: (u32, u32),
    /// The highest slot that the server has.
    highest: u32,
    /// The highest slot that it wants to be used.
    target: u32,
    slots: Vec<Slot>,
    apart: usize,
    /// How many slots are not free.
    used: usize,
    of_loops: Arc<HighestSlots>,
    /// What this loop has published there.
    published: u32,
}

impl Slots {
    /// The slots of one of the loops, which has so many connections.
    pub(crate) fn new(session: &Session, (index, loops): (usize, usize), connections: usize) -> Self {
        let loops = u32::try_from(loops.max(1)).unwrap_or(1);
        let index = u32::try_from(index).unwrap_or(0) % loops;
        let granted = session.granted.slots;
        let count = granted.saturating_sub(index).div_ceil(loops) as usize;
        let mut slots = vec![Slot { next: 1, state: State::Free }; count];
        if let Some(zero) = slots.first_mut().filter(|_| index == 0) {
            zero.next = session.slot_zero_next;
        }
        let highest = granted.saturating_sub(1);
        let apart = connections.clamp(1, (count / APART_SHARE).max(1));
        Self {
            generation: session.generation,
            session: session.granted.session,
            part: (index, loops),
            highest,
            target: highest,
            slots,
            apart,
            used: 0,
            of_loops: Arc::clone(&session.highest),
            published: 0,
        }
    }

    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    const fn id(&self, at: usize) -> u32 {
        let (index, loops) = self.part;
        at as u32 * loops + index
    }

    /// The index of a slot that is in use.
    fn at(&self, used: &SlotUse) -> Option<usize> {
        let at = (used.slot / self.part.1) as usize;
        let is_current = used.generation == self.generation && self.id(at) == used.slot;
        (is_current && self.slots.get(at).is_some_and(|slot| slot.next == used.sequence)).then_some(at)
    }

    fn using(&self, at: usize, sequence: u32) -> SlotUse {
        let slot = self.id(at);
        let highest_slot = if self.target < self.highest {
            self.of_loops.of_all(self.part.1).unwrap_or(0).max(self.target).max(slot)
        } else {
            self.highest
        };
        SlotUse { generation: self.generation, session: self.session, slot, sequence, highest_slot }
    }

    /// Lets the other loops know how far this one goes.
    fn publish(&mut self) {
        let end = if self.used == 0 {
            0
        } else if self.target < self.highest {
            let highest = self.slots.iter().rposition(|slot| slot.state != State::Free);
            highest.map_or(0, |at| self.id(at) + 1)
        } else {
            self.highest.saturating_add(1)
        };
        if end != self.published {
            self.published = end;
            self.of_loops.publish(self.part.0, end);
        }
    }

    /// Takes a slot for a call; `None` if all are in use that the server wants to be used. A loop
    /// uses at least one.
    pub(crate) fn take(&mut self) -> Option<SlotUse> {
        let within = |at: usize, slots: &Self| at == slots.apart || slots.id(at) <= slots.target;
        let free = |(_, slot): &(usize, &Slot)| slot.state == State::Free;
        let (at, _) = self.slots.iter().enumerate().skip(self.apart).find(free)?;
        within(at, self).then(|| self.mark_used(at)).flatten()
    }

    fn mark_used(&mut self, at: usize) -> Option<SlotUse> {
        let sequence = self.slots.get(at)?.next;
        self.change(at, Slot { next: sequence, state: State::Used });
        Some(self.using(at, sequence))
    }

    /// Takes the slot in which the connection with this index is validated; `None` while another
    /// connection has it.
    pub(crate) fn take_apart(&mut self, connection: usize) -> Option<SlotUse> {
        let at = connection % self.apart.max(1);
        let is_free = self.slots.get(at).is_some_and(|slot| slot.state == State::Free);
        let mut used = is_free.then(|| self.mark_used(at)).flatten()?;
        // The same in each repetition.
        used.highest_slot = self.highest;
        Some(used)
    }

    /// The server has executed the call: the slot is free for the next one.
    pub(crate) fn executed(&mut self, used: &SlotUse) {
        if let Some(at) = self.at(used) {
            self.change(at, Slot { next: used.sequence.wrapping_add(1), state: State::Free });
        }
    }

    /// The server has not executed the call, or it is one that the next use of the slot repeats:
    /// the number is still the next one.
    pub(crate) fn unused(&mut self, used: &SlotUse) {
        self.set(used, State::Free);
    }

    /// The call is given up, and the server may have executed it.
    pub(crate) fn park(&mut self, used: &SlotUse) {
        self.set(used, State::Parked);
    }

    fn set(&mut self, used: &SlotUse, state: State) {
        if let Some(at) = self.at(used) {
            self.change(at, Slot { next: used.sequence, state });
        }
    }

    fn change(&mut self, at: usize, to: Slot) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        let before = std::mem::replace(slot, to);
        self.used += usize::from(to.state != State::Free);
        self.used -= usize::from(before.state != State::Free);
        self.publish();
    }

    /// Takes a parked slot, with the number of the call that was given up.
    pub(crate) fn take_parked(&mut self) -> Option<SlotUse> {
        let at = self.slots.iter().position(|slot| slot.state == State::Parked)?;
        self.mark_used(at)
    }

    /// Notes how many slots the server wants to be used. RFC 8881 s18.46.3
    pub(crate) fn told(&mut self, told: &Success) {
        self.aim_at(told.target_highest_slot);
    }

    /// The server wants no slot beyond this one to be used. RFC 8881 s20.8
    pub(crate) fn aim_at(&mut self, highest: u32) {
        if self.target != highest {
            self.target = highest;
            self.publish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::session;

    fn told(target: u32) -> Success {
        Success {
            session: nfs4::SessionId::default(),
            sequence: 1,
            slot: 0,
            highest_slot: 63,
            target_highest_slot: target,
            flags: 0,
        }
    }

    fn ids(slots: &mut Slots) -> Vec<u32> {
        std::iter::from_fn(|| slots.take()).map(|used| used.slot).collect()
    }

    #[test]
    fn no_two_loops_have_a_slot_in_common_and_together_they_have_all() {
        let session = session(10);
        let mut all = Vec::new();
        for index in 0..3 {
            let mut slots = Slots::new(&session, (index, 3), 1);
            all.push(slots.take_apart(0).unwrap().slot);
            all.extend(ids(&mut slots));
        }
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
    }

    // RFC 8881 s2.10.6.1
    #[test]
    fn the_number_of_a_slot_goes_up_when_its_call_was_executed_and_not_before() {
        let mut slots = Slots::new(&session(8), (0, 1), 1);
        let first = slots.take().unwrap();
        assert_eq!((first.slot, first.sequence), (1, 1), "slot 0 is apart");
        slots.unused(&first);
        assert_eq!(slots.take(), Some(first));
        slots.executed(&first);
        let second = slots.take().unwrap();
        assert_eq!((second.slot, second.sequence), (1, 2));
        slots.executed(&first);
        assert_eq!(slots.take().unwrap().slot, 2, "an old use frees nothing");
    }

    #[test]
    fn a_parked_slot_is_not_used_before_its_outcome_is_known() {
        let mut slots = Slots::new(&session(3), (0, 1), 1);
        let given_up = slots.take().unwrap();
        slots.park(&given_up);
        assert_eq!(ids(&mut slots), [2]);
        let probe = slots.take_parked().unwrap();
        assert_eq!(probe, given_up, "the same number");
        assert_eq!((slots.take_parked(), slots.take()), (None, None));
        slots.executed(&probe);
        assert_eq!(slots.take().unwrap().sequence, given_up.sequence + 1);
    }

    #[test]
    fn a_validation_whose_answer_was_lost_is_repeated_by_the_next_in_its_slot() {
        let mut slots = Slots::new(&session(16), (0, 1), 2);
        let one = slots.take_apart(0).unwrap();
        let other = slots.take_apart(1).unwrap();
        assert_ne!(one.slot, other.slot);
        assert_eq!(slots.take_apart(2), None, "another connection has it");
        slots.unused(&one);
        assert_eq!(slots.take_apart(2), Some(one));
        slots.executed(&one);
        assert_eq!(slots.take_apart(0).unwrap().sequence, one.sequence + 1);
    }

    // RFC 8881 s18.46.3
    #[test]
    fn fewer_slots_are_used_when_the_server_wants_that_but_never_none() {
        let mut slots = Slots::new(&session(16), (1, 2), 1);
        let high = [slots.take(), slots.take()].map(Option::unwrap);
        slots.told(&told(3));
        assert_eq!(slots.take(), None);
        slots.unused(&high[0]);
        let low = slots.take().unwrap();
        assert_eq!((low.slot, low.highest_slot), (3, 5), "slot 5 is still in use");
        slots.told(&told(0));
        slots.unused(&low);
        slots.unused(&high[1]);
        assert_eq!(ids(&mut slots), [3]);
        slots.told(&told(15));
        assert_eq!(ids(&mut slots), [5, 7, 9, 11, 13, 15]);
    }

    // RFC 8881 s2.10.6.1: the server may free slots above the highest that a call tells.
    #[test]
    fn no_slot_that_another_loop_uses_is_above_the_highest_that_a_call_tells() {
        let session = session(16);
        let [mut one, mut other] = [0, 1].map(|index| Slots::new(&session, (index, 2), 1));
        let of_other: Vec<SlotUse> = std::iter::from_fn(|| other.take()).collect();
        assert_eq!(of_other.last().unwrap().slot, 15);
        one.told(&told(3));
        let next = |one: &mut Slots| {
            let used = one.take().unwrap();
            one.executed(&used);
            used.highest_slot
        };
        assert_eq!(next(&mut one), 15, "the other loop does not know of the target yet");
        other.executed(&of_other[6]);
        other.told(&told(3));
        assert_eq!(next(&mut one), 13);
        other.park(&of_other[5]);
        assert_eq!(next(&mut one), 13, "a call that was given up may still run");
        for used in &of_other[1..] {
            other.executed(used);
        }
        assert_eq!(next(&mut one), 3);
        other.told(&told(15));
        let high = std::iter::from_fn(|| other.take()).last().unwrap();
        assert_eq!((high.slot, high.highest_slot), (15, 15));
        assert_eq!(next(&mut one), 15);
        assert_eq!(other.take_apart(0).unwrap().highest_slot, 15);
    }

    #[test]
    fn a_loop_that_uses_no_slot_holds_none_back() {
        let session = session(16);
        let [mut one, mut idle] = [0, 1].map(|index| Slots::new(&session, (index, 2), 1));
        let last = idle.take().unwrap();
        idle.executed(&last);
        one.told(&told(3));
        assert_eq!(one.take().unwrap().highest_slot, 3);
    }

    #[test]
    fn a_use_of_another_session_changes_nothing() {
        let mut old = Slots::new(&session(8), (0, 1), 1);
        let used = old.take().unwrap();
        let next = Session { generation: 1, ..session(8) };
        let mut slots = Slots::new(&next, (0, 1), 1);
        let now = slots.take().unwrap();
        assert_eq!(now.slot, used.slot);
        slots.executed(&used);
        slots.park(&used);
        assert_eq!(slots.take_parked(), None);
        assert_eq!(slots.take().unwrap().slot, now.slot + 1);
    }
}

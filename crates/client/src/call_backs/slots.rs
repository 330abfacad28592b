//! The slots of a session's back channel, with the replies that are kept for retries.
//! RFC 8881 s2.10.6.1, s20.9
//!
//! Every reply is kept, whatever the server says about that: a reply is short, and there are few
//! slots. So a call-back that is sent again after its connection was lost is never executed twice.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use nfs4::Status;

use super::SLOTS_MAX;

/// The last call of a slot.
#[derive(Debug, Clone, Default)]
struct Slot {
    /// Its sequence id; 0 before the first call.
    sequence: u32,
    /// A hash of what was asked.
    asked: u64,
    results: Vec<u8>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct BackSlots {
    slots: Mutex<Vec<Slot>>,
    /// What CB_RECALL_SLOT has said last: the number of such call-backs, and the highest slot.
    recalled: AtomicU64,
}

impl BackSlots {
    /// As many slots as the server may use, but no more than were offered to it.
    pub(crate) fn new(count: u32) -> Self {
        let count = count.clamp(1, SLOTS_MAX) as usize;
        Self { slots: Mutex::new(vec![Slot::default(); count]), recalled: AtomicU64::new(0) }
    }

    /// Runs a call-back in a slot, or returns the results that it had before. `run` is called while
    /// the slots are locked, so no other call-back runs meanwhile; it is told the highest slot.
    ///
    /// # Errors
    /// What CB_SEQUENCE fails with. The slot is as it was.
    pub(super) fn run(
        &self,
        (slot, sequence, highest_slot): (u32, u32, u32),
        asked: &[u8],
        run: impl FnOnce(u32) -> Vec<u8>,
    ) -> Result<Vec<u8>, Status> {
        // A slot is changed when its call is done.
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = u32::try_from(slots.len() - 1).unwrap_or(u32::MAX);
        let Some(slot) = slots.get_mut(slot as usize) else { return Err(Status::BADSLOT) };
        if highest_slot > highest {
            return Err(Status::BAD_HIGH_SLOT);
        }
        let mut hasher = DefaultHasher::new();
        asked.hash(&mut hasher);
        let asked = hasher.finish();
        if sequence == slot.sequence && !slot.results.is_empty() {
            return if asked == slot.asked { Ok(slot.results.clone()) } else { Err(Status::SEQ_FALSE_RETRY) };
        }
        if sequence != slot.sequence.wrapping_add(1) {
            return Err(Status::SEQ_MISORDERED);
        }
        let results = run(highest);
        *slot = Slot { sequence, asked, results: results.clone() };
        Ok(results)
    }

    /// The server wants slots of the fore channel back, beyond this one. RFC 8881 s20.8
    pub(super) fn recall(&self, highest: u32) {
        let count = (self.recalled.load(Ordering::Acquire) >> 32).wrapping_add(1);
        self.recalled.store(count << 32 | u64::from(highest), Ordering::Release);
    }

    /// The highest slot that the server wants to be used, if it has said so since `seen`, which
    /// this brings up to date.
    pub(crate) fn recalled_since(&self, seen: &mut u64) -> Option<u32> {
        let now = self.recalled.load(Ordering::Acquire);
        (std::mem::replace(seen, now) != now).then_some((now & u64::from(u32::MAX)) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(slots: &BackSlots, slot: u32, sequence: u32, asked: &[u8]) -> Result<Vec<u8>, Status> {
        slots.run((slot, sequence, slot), asked, |highest| vec![u8::try_from(highest).unwrap(), asked[0]])
    }

    // RFC 8881 s2.10.6.1.3
    #[test]
    fn a_call_that_is_sent_again_has_the_results_of_before_and_is_not_run_again() {
        let slots = BackSlots::new(4);
        assert_eq!(run(&slots, 2, 1, b"a"), Ok(vec![3, b'a']));
        let again = slots.run((2, 1, 3), b"a", |_| panic!("it is run again"));
        assert_eq!(again, Ok(vec![3, b'a']));
        assert_eq!(run(&slots, 2, 1, b"b"), Err(Status::SEQ_FALSE_RETRY));
        assert_eq!(run(&slots, 2, 2, b"b"), Ok(vec![3, b'b']));
    }

    // RFC 8881 s20.9.3
    #[test]
    fn each_slot_counts_by_itself_and_a_number_out_of_order_changes_nothing() {
        let slots = BackSlots::new(4);
        for wrong in [0, 2, 3, u32::MAX] {
            assert_eq!(run(&slots, 0, wrong, b"a"), Err(Status::SEQ_MISORDERED), "{wrong}");
        }
        assert!(run(&slots, 0, 1, b"a").is_ok() && run(&slots, 1, 1, b"a").is_ok());
        assert_eq!(run(&slots, 0, 3, b"a"), Err(Status::SEQ_MISORDERED));
        assert!(run(&slots, 0, 2, b"a").is_ok());
        assert_eq!(run(&slots, 4, 1, b"a"), Err(Status::BADSLOT));
        assert_eq!(slots.run((0, 3, 4), b"a", |_| Vec::new()), Err(Status::BAD_HIGH_SLOT));
        assert_eq!(run(&slots, u32::MAX, 1, b"a"), Err(Status::BADSLOT));
    }

    #[test]
    fn the_number_of_a_slot_wraps_around() {
        let slots = BackSlots::new(1);
        slots.slots.lock().unwrap()[0] = Slot { sequence: u32::MAX, asked: 0, results: vec![1] };
        assert!(run(&slots, 0, 0, b"a").is_ok());
        assert!(run(&slots, 0, 0, b"a").is_ok(), "a retry");
        assert!(run(&slots, 0, 1, b"a").is_ok());
    }

    #[test]
    fn no_more_slots_are_kept_than_were_offered() {
        let count = |granted| BackSlots::new(granted).slots.lock().unwrap().len();
        assert_eq!([0, 1, 16, u32::MAX].map(count), [1, 1, 16, 16]);
    }

    #[test]
    fn each_loop_learns_once_what_slots_are_recalled() {
        let (slots, mut one, mut other) = (BackSlots::new(1), 0, 0);
        assert_eq!(slots.recalled_since(&mut one), None);
        slots.recall(7);
        slots.recall(5);
        assert_eq!(slots.recalled_since(&mut one), Some(5));
        assert_eq!(slots.recalled_since(&mut one), None);
        slots.recall(5);
        assert_eq!((slots.recalled_since(&mut one), slots.recalled_since(&mut other)), (Some(5), Some(5)));
    }
}

//! What became of a call, and which process has it, in one word.
//!
//! From the top: 30 bits of the call's counter (0 in the table), 22 of the process's generation and
//! 8 of its member number, or 30 of a status; then a bit for doubt and 3 for the phase.

use super::{GENERATION_BITS, Host, Owner};
use crate::STATUS_MAX;
use crate::class::{COUNTER_BITS, Counter};

const PHASE_BITS: u32 = 3;
const DOUBT: u64 = 1 << PHASE_BITS;
const OWNER_SHIFT: u32 = PHASE_BITS + 1;
const MEMBER_BITS: u32 = u8::BITS;
const OWNER_BITS: u32 = MEMBER_BITS + GENERATION_BITS;
const COUNTER_SHIFT: u32 = OWNER_SHIFT + OWNER_BITS;

// The fields fill the word, and a counter fits its field.
const _: () = assert!(COUNTER_SHIFT + COUNTER_BITS == u64::BITS);

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// No call has used this entry yet.
    Empty,
    /// This process has the call and has executed nothing of it. Another process may take it over
    /// at any time.
    Begun(Owner),
    /// This process executes the call, or ended in the middle.
    Started(Owner),
    /// This process has executed the call and writes its reply.
    Writing(Owner),
    /// The call ended with this status, and no more is known; 0 is success.
    Ended(u32),
    /// The call ended, and its reply is in the slot.
    Replied,
    /// A value that is never written here.
    Corrupt(u64),
}

/// A decoded entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub counter: Counter,
    pub phase: Phase,
    /// A process that has ended may have executed the call.
    pub doubt: bool,
}

impl Entry {
    pub fn word(self) -> u64 {
        let owner = |of: Owner| u64::from(of.generation) << MEMBER_BITS | u64::from(of.member);
        let (number, data) = match self.phase {
            Phase::Empty => return 0,
            Phase::Begun(of) => (1, owner(of)),
            Phase::Started(of) => (2, owner(of)),
            Phase::Writing(of) => (3, owner(of)),
            Phase::Ended(status) => (4, u64::from(status)),
            Phase::Replied => (5, 0),
            Phase::Corrupt(word) => return word,
        };
        let data = data & ((1 << OWNER_BITS) - 1);
        let doubt = if self.doubt { DOUBT } else { 0 };
        u64::from(self.counter.value()) << COUNTER_SHIFT | data << OWNER_SHIFT | doubt | number
    }

    pub const fn of(word: u64) -> Self {
        let data = word >> OWNER_SHIFT & ((1 << OWNER_BITS) - 1);
        let owner = Owner { member: data as u8, generation: (data >> MEMBER_BITS) as u32 };
        let phase = match word & ((1 << PHASE_BITS) - 1) {
            0 if word == 0 => Phase::Empty,
            1 => Phase::Begun(owner),
            2 => Phase::Started(owner),
            3 => Phase::Writing(owner),
            4 if data <= STATUS_MAX as u64 => Phase::Ended(data as u32),
            5 if data == 0 => Phase::Replied,
            _ => Phase::Corrupt(word),
        };
        let counter = Counter::new((word >> COUNTER_SHIFT) as u32);
        Self { counter, phase, doubt: word & DOUBT != 0 }
    }

    /// The same call in another phase.
    pub const fn to(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }

    /// What this process does about an entry of the call that it asks for.
    pub fn verdict(self, host: &impl Host) -> Verdict {
        let me = host.me();
        let take = |doubt| Verdict::Take(Self { phase: Phase::Begun(me), doubt, ..self });
        match self.phase {
            Phase::Empty => take(false),
            // Queued in this process.
            Phase::Begun(owner) if owner == me => Verdict::Running,
            // Queued in another process, which may be stopped, and its client has come to this one.
            Phase::Begun(_) => take(self.doubt),
            Phase::Started(owner) | Phase::Writing(owner) if owner == me || host.is_alive(owner) => {
                Verdict::Running
            }
            Phase::Started(_) | Phase::Writing(_) | Phase::Corrupt(_) => take(true),
            Phase::Ended(_) | Phase::Replied => Verdict::Ended,
        }
    }
}

/// See [`Entry::verdict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Replace the entry by this one, and the call is this process's.
    Take(Entry),
    Running,
    Ended,
}

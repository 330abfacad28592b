//! Classes of xids, their counters and their windows.
//!
//! An xid of a Trunkline client is a class in the top 2 bits and a counter of that class in the low
//! 30 bits. Counters wrap and are compared as serial numbers: the counter that is less than half
//! the circle ahead is the newer one.

use rpc::Xid;

/// Calls of [`XidClass::DoneBit`] that a server remembers per client: 64 KiB of entries. A client
/// may run ahead of its oldest outstanding call by half of this: 8,192 writes, at 1 MiB each 8 GiB
/// in flight.
pub const WINDOW_DONE: u32 = 16_384;

/// Calls of [`XidClass::WholeReply`] that a server remembers per client, with replies of about 300
/// bytes. Half of this, 512, is the number of creations and removals that one mount has in flight.
pub const WINDOW_REPLY: u32 = 1_024;

pub(super) const COUNTER_BITS: u32 = 30;
const COUNTER_MASK: u32 = (1 << COUNTER_BITS) - 1;

/// What a server keeps of a call, encoded in the top 2 bits of the xids of Trunkline's clients. The
/// class of a procedure is defined by its program and is the same at both ends; a call whose xid
/// has another class is treated as a foreign client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XidClass {
    /// Nothing: the call changes nothing, so it may be executed twice.
    Repeatable = 0b00,
    /// That the call was executed, and its status: the reply can be rebuilt from the call.
    DoneBit = 0b01,
    /// The whole reply: a second execution would give a different reply.
    WholeReply = 0b10,
}

impl XidClass {
    /// The class of an xid of a Trunkline client; `None` for the fourth value, which is not used.
    #[must_use]
    pub const fn of(xid: Xid) -> Option<Self> {
        match xid.0 >> COUNTER_BITS {
            0b00 => Some(Self::Repeatable),
            0b01 => Some(Self::DoneBit),
            0b10 => Some(Self::WholeReply),
            _ => None,
        }
    }

    pub(super) const fn xid(self, counter: Counter) -> Xid {
        Xid((self as u32) << COUNTER_BITS | counter.0)
    }
}

/// A counter of a class, 30 bits, wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counter(u32);

impl Counter {
    pub const ZERO: Self = Self(0);

    pub const fn new(value: u32) -> Self {
        Self(value & COUNTER_MASK)
    }

    pub const fn of(xid: Xid) -> Self {
        Self::new(xid.0)
    }

    pub const fn value(self) -> u32 {
        self.0
    }

    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }

    /// The number of steps forwards from `older` to this counter.
    pub const fn since(self, older: Self) -> u32 {
        self.0.wrapping_sub(older.0) & COUNTER_MASK
    }

    /// Whether this counter is newer, compared as serial numbers.
    pub const fn is_after(self, other: Self) -> bool {
        let steps = self.since(other);
        steps != 0 && steps < 1 << (COUNTER_BITS - 1)
    }

    /// The index in a ring of `size` entries, a power of two, so that the ring wraps with the
    /// counters.
    pub const fn slot(self, size: u32) -> usize {
        (self.0 % size) as usize
    }
}

// Ring sizes divide the range of counters, and a window is a tiny part of the half that counts as
// older.
const _: () = assert!(WINDOW_DONE.is_power_of_two() && WINDOW_REPLY.is_power_of_two());
const _: () = assert!(WINDOW_DONE <= 1 << (COUNTER_BITS - 10) && WINDOW_REPLY <= WINDOW_DONE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_compare_around_the_end_of_the_circle() {
        let (last, first) = (Counter::new(u32::MAX), Counter::new(0));
        assert_eq!(last.next(), first);
        assert!(first.is_after(last) && !last.is_after(first) && !first.is_after(first));
        assert_eq!(first.since(last), 1);
    }

    #[test]
    fn an_xid_names_its_class_and_the_fourth_does_not_exist() {
        for class in [XidClass::Repeatable, XidClass::DoneBit, XidClass::WholeReply] {
            let xid = class.xid(Counter::new(5));
            assert_eq!((XidClass::of(xid), Counter::of(xid).value()), (Some(class), 5));
        }
        assert_eq!(XidClass::of(Xid(0xc000_0000)), None);
    }
}

//! Classes of xids, their counters and their windows.
//!
//! An xid of our client is a class in the top 2 bits and a counter of that class in the low 30.
//! Counters wrap and are compared as serial numbers: the one less than half the circle ahead is the
//! newer.

use rpc::Xid;

/// Calls of [`XidClass::DoneBit`] that a server remembers for each client: 64 KiB of entries. Half
/// of it is how far a client may run ahead of its oldest outstanding call: 8,192 writes, at 1 MiB
/// each 8 GiB in flight.
pub const WINDOW_DONE: u32 = 16_384;

/// Calls of [`XidClass::WholeReply`] that a server remembers for each client, with their replies of
/// about 300 bytes. Half of it, 512, is how many creations and removals one mount has in flight.
pub const WINDOW_REPLY: u32 = 1_024;

pub(super) const COUNTER_BITS: u32 = 30;
const COUNTER_MASK: u32 = (1 << COUNTER_BITS) - 1;

/// What a server keeps of a call, told by the top 2 bits of our clients' xids. Which class a
/// procedure needs is a matter of its program, the same at both ends; a call whose xid names
/// another is served as one of a foreign client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XidClass {
    /// Nothing: doing it twice is doing it once, and it changes nothing.
    Repeatable = 0b00,
    /// That it was done, and with which status: the reply can be built again from the call.
    DoneBit = 0b01,
    /// The whole reply: a second execution would give another.
    WholeReply = 0b10,
}

impl XidClass {
    /// The class an xid of our client names; `None` for the fourth, which does not exist.
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

/// A number of a class, 30 bits, wrapping.
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

    /// Steps from `older` forwards to this.
    pub const fn since(self, older: Self) -> u32 {
        self.0.wrapping_sub(older.0) & COUNTER_MASK
    }

    /// Whether this is newer, as serial numbers compare.
    pub const fn is_after(self, other: Self) -> bool {
        let steps = self.since(other);
        steps != 0 && steps < 1 << (COUNTER_BITS - 1)
    }

    /// The place in a ring of `size` entries, a power of two, so that the circle closes on it.
    pub const fn slot(self, size: u32) -> usize {
        (self.0 % size) as usize
    }
}

// Rings close on the circle of counters, and a window is a vanishing part of the half that counts
// as older.
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

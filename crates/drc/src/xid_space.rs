//! The client's half of the window: one per mount, for all its connections.
//!
//! A call keeps its xid however often and on whichever path it is sent again. The client never runs
//! further ahead of its oldest outstanding call of a class than half that class's window, so a call
//! that is still waited for is never below the server's window.

use super::class::{Counter, WINDOW_DONE, WINDOW_REPLY, XidClass};
use rpc::Xid;

/// Maximum number of counters from the oldest outstanding call of [`XidClass::DoneBit`] to the
/// next.
pub const AHEAD_DONE_MAX: u32 = WINDOW_DONE / 2;

/// Maximum number of counters from the oldest outstanding call of [`XidClass::WholeReply`] to the
/// next.
pub const AHEAD_REPLY_MAX: u32 = WINDOW_REPLY / 2;

// The server's refusal below its window relies on this, with room for a server that has seen a call
// newer than the client's oldest by a whole half window.
const _: () = assert!(2 * AHEAD_DONE_MAX <= WINDOW_DONE && 2 * AHEAD_REPLY_MAX <= WINDOW_REPLY);
const _: () = assert!(AHEAD_DONE_MAX.is_multiple_of(64) && AHEAD_REPLY_MAX.is_multiple_of(64));

/// Allocates the xids of one mount.
#[derive(Debug)]
pub struct XidSpace {
    repeatable: Counter,
    done: ClassCounters,
    replies: ClassCounters,
}

impl XidSpace {
    /// Starts all counters at `start`, which must be random: a foreign server keys its cache by xid
    /// and address, and would take the first calls of a second mount for replays of the first
    /// mount's calls.
    #[must_use]
    pub fn new(start: u32) -> Self {
        let start = Counter::new(start);
        Self {
            repeatable: start,
            done: ClassCounters::new(start, AHEAD_DONE_MAX),
            replies: ClassCounters::new(start, AHEAD_REPLY_MAX),
        }
    }

    /// An xid for a new call, or none: too far ahead of the oldest outstanding one, so wait for it.
    ///
    /// [`XidClass::Repeatable`] never refuses. Its counter returns after 2^30 calls, 18 minutes at
    /// a million per second; a client that still waits for a call of that number draws again.
    #[must_use]
    pub fn next(&mut self, class: XidClass) -> Option<Xid> {
        let counter = match class {
            XidClass::Repeatable => {
                let counter = self.repeatable;
                self.repeatable = counter.next();
                counter
            }
            XidClass::DoneBit => self.done.allocate()?,
            XidClass::WholeReply => self.replies.allocate()?,
        };
        Some(class.xid(counter))
    }

    /// Marks a call as no longer outstanding: answered, or given up and not to be sent again. Has
    /// no effect on an xid that is not outstanding.
    pub fn complete(&mut self, xid: Xid) {
        match XidClass::of(xid) {
            Some(XidClass::DoneBit) => self.done.complete(Counter::of(xid)),
            Some(XidClass::WholeReply) => self.replies.complete(Counter::of(xid)),
            Some(XidClass::Repeatable) | None => {}
        }
    }

    /// Counters from the oldest outstanding call of the class to the next one to be drawn.
    #[must_use]
    pub const fn ahead(&self, class: XidClass) -> u32 {
        match class {
            XidClass::Repeatable => 0,
            XidClass::DoneBit => self.done.ahead(),
            XidClass::WholeReply => self.replies.ahead(),
        }
    }
}

/// The counters of one class, and a bit for each between the oldest outstanding and the next.
#[derive(Debug)]
struct ClassCounters {
    oldest: Counter,
    next: Counter,
    ahead_max: u32,
    outstanding: Box<[u64]>,
}

impl ClassCounters {
    fn new(start: Counter, ahead_max: u32) -> Self {
        let outstanding = vec![0; ahead_max as usize / 64].into();
        Self { oldest: start, next: start, ahead_max, outstanding }
    }

    const fn ahead(&self) -> u32 {
        self.next.since(self.oldest)
    }

    /// The word and the bit of a counter: the index is in range because of the modulo.
    fn bit(&mut self, counter: Counter) -> (&mut u64, u64) {
        let slot = counter.slot(self.ahead_max);
        (&mut self.outstanding[slot / 64], 1 << (slot % 64))
    }

    fn allocate(&mut self) -> Option<Counter> {
        if self.ahead() >= self.ahead_max {
            return None;
        }
        let drawn = self.next;
        self.next = drawn.next();
        let (word, bit) = self.bit(drawn);
        *word |= bit;
        Some(drawn)
    }

    fn complete(&mut self, counter: Counter) {
        if counter.since(self.oldest) >= self.ahead() {
            return;
        }
        let (word, bit) = self.bit(counter);
        *word &= !bit;
        while self.oldest != self.next {
            let (word, bit) = self.bit(self.oldest);
            if *word & bit != 0 {
                break;
            }
            self.oldest = self.oldest.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_client_waits_when_half_a_window_ahead_of_its_oldest_call() {
        let mut space = XidSpace::new(u32::MAX - 3);
        let first = space.next(XidClass::WholeReply).unwrap();
        for _ in 1..AHEAD_REPLY_MAX {
            let xid = space.next(XidClass::WholeReply).unwrap();
            space.complete(xid);
        }
        assert_eq!(space.next(XidClass::WholeReply), None);
        assert!(space.next(XidClass::DoneBit).is_some(), "classes do not wait for each other");
        space.complete(first);
        assert_eq!(space.ahead(XidClass::WholeReply), 0);
        assert!(space.next(XidClass::WholeReply).is_some());
    }

    #[test]
    fn completing_twice_or_what_was_never_drawn_changes_nothing() {
        let mut space = XidSpace::new(7);
        let first = space.next(XidClass::DoneBit).unwrap();
        let second = space.next(XidClass::DoneBit).unwrap();
        space.complete(second);
        space.complete(second);
        space.complete(Xid(second.0 + 1));
        space.complete(Xid(0xc000_0000));
        assert_eq!(space.ahead(XidClass::DoneBit), 2);
        space.complete(first);
        assert_eq!(space.ahead(XidClass::DoneBit), 0);
    }

    proptest! {
        #[test]
        fn outstanding_calls_never_span_more_than_half_a_window(
            start in any::<u32>(), steps in proptest::collection::vec(any::<(bool, u16)>(), 0..3000),
        ) {
            let mut space = XidSpace::new(start);
            let mut outstanding = Vec::new();
            for (allocate, pick) in steps {
                if allocate || outstanding.is_empty() {
                    outstanding.extend(space.next(XidClass::WholeReply));
                } else {
                    space.complete(outstanding.remove(usize::from(pick) % outstanding.len()));
                }
                let newest = outstanding.last().copied().map(Counter::of);
                for xid in &outstanding {
                    let span = newest.unwrap().since(Counter::of(*xid));
                    prop_assert!(span < AHEAD_REPLY_MAX);
                }
            }
        }
    }
}

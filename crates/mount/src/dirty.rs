//! Data of one file that programs have written and the server does not have yet. Pure: no calls, no clock but what
//! comes in.
//!
//! Extents that were not sent yet do not overlap one another, and are no longer than one WRITE. One that is sent
//! leaves the map and is remembered by its range until the server has it; another that overlaps it waits, or the
//! older data might land last.

use client::Caller;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

/// Data that were not sent yet.
#[derive(Debug)]
pub(crate) struct Extent {
    pub data: Vec<u8>,
    /// For whom they are written.
    pub caller: Option<Arc<Caller>>,
    since: Instant,
    /// Of the oldest write in it.
    turn: u64,
}

/// An extent on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub id: u64,
    pub offset: u64,
    pub extent: Extent,
}

#[derive(Debug)]
struct InFlight {
    id: u64,
    range: Range<u64>,
    turn: u64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    extents: BTreeMap<u64, Extent>,
    in_flight: Vec<InFlight>,
    turn: u64,
    /// Somebody waits for all writes up to this turn.
    wanted: u64,
    next_id: u64,
    waiters: Vec<Waker>,
}

/// Which extents are to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those that fill a WRITE, and what somebody waits for.
    Due,
    /// Also those that are older.
    OlderThan(Instant),
}

impl Dirty {
    /// Nothing waits and nothing is on its way.
    pub(crate) fn is_clean(&self) -> bool {
        self.extents.is_empty() && self.in_flight.is_empty()
    }

    /// Whether any of a range is not on the server yet.
    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        let before = self.extents.range(..range.end).next_back();
        before.is_some_and(|(offset, extent)| offset + extent.data.len() as u64 > range.start)
            || self.is_in_flight(range)
    }

    fn is_in_flight(&self, range: &Range<u64>) -> bool {
        self.in_flight.iter().any(|sent| sent.range.start < range.end && range.start < sent.range.end)
    }

    /// Takes data; gives how many bytes more are held than before.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        caller: &Option<Arc<Caller>>,
        max: usize,
        now: Instant,
    ) -> usize {
        self.turn += 1;
        let (mut at, mut rest, mut more) = (offset, data, 0);
        while !rest.is_empty() {
            let next = self.extents.range(at + 1..).next().map_or(u64::MAX, |(offset, _)| *offset);
            let room = usize::try_from(next - at).unwrap_or(usize::MAX);
            let before = self.extents.range_mut(..=at).next_back();
            let taken = match before {
                Some((start, extent)) if at < start + extent.data.len() as u64 => {
                    let from = (at - start) as usize;
                    let count = rest.len().min(extent.data.len() - from);
                    if let (Some(old), Some(new)) =
                        (extent.data.get_mut(from..from + count), rest.get(..count))
                    {
                        old.copy_from_slice(new);
                    }
                    count
                }
                Some((start, extent))
                    if at == start + extent.data.len() as u64
                        && extent.data.len() < max
                        && extent.caller == *caller =>
                {
                    let count = rest.len().min(room).min(max - extent.data.len());
                    extent.data.extend_from_slice(rest.get(..count).unwrap_or_default());
                    more += count;
                    count
                }
                _ => {
                    let count = rest.len().min(room).min(max);
                    let data = rest.get(..count).unwrap_or_default().to_vec();
                    let extent = Extent { data, caller: caller.clone(), since: now, turn: self.turn };
                    self.extents.insert(at, extent);
                    more += count;
                    count
                }
            };
            at += taken as u64;
            rest = rest.get(taken..).unwrap_or_default();
        }
        more
    }

    /// The extents that may be sent now; each must come back to [`Dirty::sent`].
    pub(crate) fn take(&mut self, which: Which, max: usize) -> Vec<Sending> {
        let wanted = self.wanted;
        let due = |extent: &Extent| {
            let old = matches!(which, Which::OlderThan(time) if extent.since <= time);
            old || extent.data.len() >= max || extent.turn <= wanted
        };
        let offsets: Vec<u64> =
            self.extents.iter().filter(|(_, extent)| due(extent)).map(|(offset, _)| *offset).collect();
        let mut all = Vec::new();
        for offset in offsets {
            let Some(extent) = self.extents.get(&offset) else { continue };
            let range = offset..offset + extent.data.len() as u64;
            if self.is_in_flight(&range) {
                continue;
            }
            let Some(extent) = self.extents.remove(&offset) else { continue };
            self.next_id += 1;
            let id = self.next_id;
            self.in_flight.push(InFlight { id, range, turn: extent.turn });
            all.push(Sending { id, offset, extent });
        }
        all
    }

    /// An extent has arrived, or is lost; wakes who waits for it. What waited behind it may be taken now.
    pub(crate) fn sent(&mut self, id: u64) -> Vec<Waker> {
        self.in_flight.retain(|sent| sent.id != id);
        std::mem::take(&mut self.waiters)
    }

    /// All that is held now is wanted on the server: the turn to wait for.
    pub(crate) fn want_all(&mut self) -> u64 {
        self.wanted = self.turn;
        self.turn
    }

    /// Whether all writes up to a turn have arrived; if not, the waker is kept for the next change.
    pub(crate) fn has_arrived(&mut self, turn: u64, waker: &Waker) -> bool {
        let waits = self.extents.values().any(|extent| extent.turn <= turn)
            || self.in_flight.iter().any(|sent| sent.turn <= turn);
        if waits {
            self.waiters.push(waker.clone());
        }
        !waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 16;

    fn write(dirty: &mut Dirty, offset: u64, data: &[u8]) -> usize {
        dirty.write(offset, data, &None, MAX, Instant::now())
    }

    #[test]
    fn small_writes_that_follow_each_other_become_one() {
        let mut dirty = Dirty::default();
        for at in 0..8 {
            write(&mut dirty, at * 2, b"ab");
        }
        let sent = dirty.take(Which::Due, MAX);
        assert_eq!((sent.len(), sent[0].offset, sent[0].extent.data.len()), (1, 0, 16));
    }

    #[test]
    fn newer_data_wait_until_the_older_have_arrived() {
        let mut dirty = Dirty::default();
        write(&mut dirty, 0, b"old");
        dirty.want_all();
        let first = dirty.take(Which::Due, MAX);
        assert_eq!(first.len(), 1);
        write(&mut dirty, 1, b"new");
        let turn = dirty.want_all();
        assert!(dirty.take(Which::Due, MAX).is_empty());
        assert!(!dirty.has_arrived(turn, Waker::noop()));
        assert_eq!(dirty.sent(first[0].id).len(), 1);
        let second = dirty.take(Which::Due, MAX);
        assert_eq!((second.len(), second[0].offset), (1, 1));
        dirty.sent(second[0].id);
        assert!(dirty.has_arrived(turn, Waker::noop()) && dirty.is_clean());
    }

    proptest! {
        /// Against a file in memory: whatever is written, sent and answered in whatever order, the file ends as if
        /// each write had been done at once, and no bytes are counted twice.
        #[test]
        fn what_arrives_is_what_was_written(
            steps in prop::collection::vec((0_u64..100, 1_usize..40, any::<u8>(), any::<bool>(), any::<prop::sample::Index>()), 1..60)
        ) {
            let (mut dirty, mut model, mut server) = (Dirty::default(), vec![0_u8; 200], vec![0_u8; 200]);
            let (mut flying, mut held): (Vec<Sending>, usize) = (Vec::new(), 0);
            let mut land = |sending: Sending, dirty: &mut Dirty, held: &mut usize| {
                let at = sending.offset as usize;
                server[at..at + sending.extent.data.len()].copy_from_slice(&sending.extent.data);
                *held -= sending.extent.data.len();
                dirty.sent(sending.id);
            };
            for (offset, len, byte, flush, index) in steps {
                model[offset as usize..offset as usize + len].fill(byte);
                held += write(&mut dirty, offset, &vec![byte; len]);
                prop_assert!(dirty.overlaps(&(offset..offset + len as u64)));
                if flush {
                    dirty.want_all();
                }
                flying.extend(dirty.take(Which::Due, MAX));
                if !flying.is_empty() {
                    let sending = flying.swap_remove(index.index(flying.len()));
                    prop_assert!(sending.extent.data.len() <= MAX);
                    land(sending, &mut dirty, &mut held);
                }
            }
            dirty.want_all();
            loop {
                flying.extend(dirty.take(Which::Due, MAX));
                let Some(sending) = flying.pop() else { break };
                land(sending, &mut dirty, &mut held);
            }
            prop_assert!(dirty.is_clean());
            prop_assert_eq!(held, 0);
            prop_assert_eq!(server, model);
        }
    }
}

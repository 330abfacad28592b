//! Data of one file that programs have written and that the server does not have yet. Pure: no
//! calls, and no clock except the times that are passed in.
//!
//! The data are in extents. Extents that were not sent yet do not overlap, and each is at most as
//! long as one WRITE. An extent that is sent leaves the map; its range is remembered until the
//! server has the data. Another extent that overlaps it waits until then, because the server might
//! otherwise execute the older WRITE last. An extent is examined when it becomes due, and when the
//! WRITE that it waited for is answered, never for a write to another range: a file may have
//! thousands of extents.
//!
//! Writes are numbered in the order in which they arrive. The number is called the sequence.

use client::Caller;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

/// The overhead of an extent: its entries here, a task and a call.
pub(crate) const EXTENT_BYTES: usize = 1 << 10;

/// Data that were not sent yet.
#[derive(Debug)]
pub(crate) struct Extent {
    pub data: Vec<u8>,
    /// The user whose credential the WRITE carries.
    pub caller: Option<Arc<Caller>>,
    since: Instant,
    /// The sequence of the oldest write in the extent.
    sequence: u64,
    /// The extent is sent as soon as no WRITE under way overlaps it.
    due: bool,
}

/// An extent to be sent.
#[derive(Debug)]
pub(crate) struct OutgoingExtent {
    pub offset: u64,
    pub extent: Extent,
}

#[derive(Debug)]
struct InFlight {
    end: u64,
    sequence: u64,
    /// Where the extents begin that are due and wait for this WRITE.
    blocks: Vec<u64>,
}

/// See the module's documentation. An extent is identified by the offset at which it begins, and so
/// is a WRITE under way: neither kind overlaps others of its kind.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    extents: BTreeMap<u64, Extent>,
    /// Extents that are not due, oldest first: sequence and offset.
    not_due: BTreeSet<(u64, u64)>,
    /// Extents that are due and not known to wait for a WRITE.
    ready: BTreeSet<u64>,
    in_flight: BTreeMap<u64, InFlight>,
    /// All extents that the server does not have yet, held or under way: sequence and offset.
    unfinished: BTreeSet<(u64, u64)>,
    sequence: u64,
    /// Tasks that wait for all writes up to a sequence.
    waiters: Vec<(u64, Waker)>,
    /// How often an extent was examined to see whether it may be sent.
    #[cfg(test)]
    examined: u64,
}

/// Which extents are to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Extents that fill a WRITE, and those that a task waits for.
    Due,
    /// Also extents that are as old as this, or older.
    OlderThan(Instant),
}

impl Extent {
    /// The bytes that the extent counts in the budget.
    pub(crate) fn cost(&self) -> usize {
        self.data.len() + EXTENT_BYTES
    }
}

impl Dirty {
    /// Whether no data are held or under way.
    pub(crate) fn is_clean(&self) -> bool {
        self.extents.is_empty() && self.in_flight.is_empty()
    }

    /// Where the last data end; 0 if there are none.
    pub(crate) fn end(&self) -> u64 {
        let held = self.extents.last_key_value().map(|(offset, extent)| offset + extent.data.len() as u64);
        let sent = self.in_flight.last_key_value().map(|(_, sent)| sent.end);
        held.max(sent).unwrap_or_default()
    }

    /// Whether the server may not have all data of a range yet.
    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        let before = self.extents.range(..range.end).next_back();
        before.is_some_and(|(offset, extent)| offset + extent.data.len() as u64 > range.start)
            || self.is_in_flight(range)
    }

    fn is_in_flight(&self, range: &Range<u64>) -> bool {
        let before = self.in_flight.range(..range.end).next_back();
        before.is_some_and(|(_, sent)| sent.end > range.start)
    }

    /// Takes data, in extents of at most `max` bytes. Returns how many more bytes are held than
    /// before.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        caller: &Option<Arc<Caller>>,
        max: usize,
        now: Instant,
    ) -> usize {
        self.sequence += 1;
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
                Some((&start, extent))
                    if at == start + extent.data.len() as u64
                        && extent.data.len() < max
                        && extent.caller == *caller =>
                {
                    let count = rest.len().min(room).min(max - extent.data.len());
                    extent.data.extend_from_slice(rest.get(..count).unwrap_or_default());
                    more += count;
                    if extent.data.len() >= max {
                        self.make_due(start);
                    }
                    count
                }
                _ => {
                    let count = rest.len().min(room).min(max);
                    let data = rest.get(..count).unwrap_or_default().to_vec();
                    self.insert(
                        at,
                        Extent {
                            data,
                            caller: caller.clone(),
                            since: now,
                            sequence: self.sequence,
                            due: false,
                        },
                    );
                    if count >= max {
                        self.make_due(at);
                    }
                    more += count + EXTENT_BYTES;
                    count
                }
            };
            at += taken as u64;
            rest = rest.get(taken..).unwrap_or_default();
        }
        more
    }

    fn insert(&mut self, offset: u64, extent: Extent) {
        self.not_due.insert((extent.sequence, offset));
        self.unfinished.insert((extent.sequence, offset));
        self.extents.insert(offset, extent);
    }

    fn make_due(&mut self, offset: u64) {
        if let Some(extent) = self.extents.get_mut(&offset)
            && !std::mem::replace(&mut extent.due, true)
        {
            self.not_due.remove(&(extent.sequence, offset));
            self.ready.insert(offset);
        }
    }

    /// Takes the extents that may be sent now. Each has to be passed to [`Dirty::complete`]
    /// afterwards.
    pub(crate) fn take(&mut self, selection: Selection) -> Vec<OutgoingExtent> {
        if let Selection::OlderThan(time) = selection {
            while let Some(&(_, offset)) = self.not_due.first()
                && self.extents.get(&offset).is_some_and(|extent| extent.since <= time)
            {
                self.make_due(offset);
            }
        }
        let mut all = Vec::new();
        for offset in std::mem::take(&mut self.ready) {
            #[cfg(test)]
            {
                self.examined += 1;
            }
            let Some(extent) = self.extents.get(&offset) else { continue };
            let end = offset + extent.data.len() as u64;
            if let Some((_, sent)) = self.in_flight.range_mut(..end).next_back()
                && sent.end > offset
            {
                sent.blocks.push(offset);
                continue;
            }
            let Some(extent) = self.extents.remove(&offset) else { continue };
            self.in_flight.insert(offset, InFlight { end, sequence: extent.sequence, blocks: Vec::new() });
            all.push(OutgoingExtent { offset, extent });
        }
        all
    }

    /// The WRITE of the extent at this offset has ended, well or not. Extents that waited for it
    /// can be taken now. Returns the tasks whose wait is over.
    pub(crate) fn complete(&mut self, offset: u64) -> Vec<Waker> {
        if let Some(sent) = self.in_flight.remove(&offset) {
            self.unfinished.remove(&(sent.sequence, offset));
            self.ready.extend(sent.blocks);
        }
        let oldest = self.oldest();
        self.waiters.extract_if(.., |(sequence, _)| *sequence < oldest).map(|(_, waker)| waker).collect()
    }

    fn oldest(&self) -> u64 {
        self.unfinished.first().map_or(u64::MAX, |(sequence, _)| *sequence)
    }

    /// Makes everything that is held due. Returns the sequence to wait for.
    pub(crate) fn make_all_due(&mut self) -> u64 {
        for (_, offset) in std::mem::take(&mut self.not_due) {
            self.make_due(offset);
        }
        self.sequence
    }

    /// Whether all writes up to a sequence have ended. If not, the waker is called when they have.
    pub(crate) fn is_flushed(&mut self, sequence: u64, waker: &Waker) -> bool {
        if self.oldest() > sequence {
            return true;
        }
        if !self.waiters.iter().any(|(other, known)| *other == sequence && known.will_wake(waker)) {
            self.waiters.push((sequence, waker.clone()));
        }
        false
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
        let sent = dirty.take(Selection::Due);
        assert_eq!((sent.len(), sent[0].offset, sent[0].extent.data.len()), (1, 0, 16));
    }

    #[test]
    fn newer_data_wait_until_the_older_have_arrived() {
        let mut dirty = Dirty::default();
        write(&mut dirty, 0, b"old");
        dirty.make_all_due();
        let first = dirty.take(Selection::Due);
        assert_eq!(first.len(), 1);
        write(&mut dirty, 1, b"new");
        let sequence = dirty.make_all_due();
        assert!(dirty.take(Selection::Due).is_empty());
        assert!(!dirty.is_flushed(sequence, Waker::noop()));
        // The last WRITE that the task waits for wakes it.
        assert!(dirty.complete(first[0].offset).is_empty());
        let second = dirty.take(Selection::Due);
        assert_eq!((second.len(), second[0].offset), (1, 1));
        assert_eq!(dirty.complete(second[0].offset).len(), 1);
        assert!(dirty.is_flushed(sequence, Waker::noop()) && dirty.is_clean());
    }

    #[test]
    fn a_write_examines_no_extent_but_its_own() {
        const EXTENTS: u64 = 10_000;
        let mut dirty = Dirty::default();
        let mut in_flight = Vec::new();
        for at in 0..EXTENTS {
            // Apart, so that none joins another, and none fills a WRITE.
            write(&mut dirty, at * 100, b"small");
            in_flight.extend(dirty.take(Selection::Due));
        }
        assert_eq!((in_flight.len(), dirty.examined), (0, 0));
        let sequence = dirty.make_all_due();
        in_flight.extend(dirty.take(Selection::Due));
        assert_eq!((in_flight.len() as u64, dirty.examined), (EXTENTS, EXTENTS));
        // The same again while all are under way: each extent is examined once, and waits for the
        // WRITE there.
        for at in 0..EXTENTS {
            write(&mut dirty, at * 100, b"other");
            dirty.make_all_due();
            assert!(dirty.take(Selection::Due).is_empty());
        }
        assert_eq!(dirty.examined, 2 * EXTENTS);
        assert!(!dirty.is_flushed(sequence, Waker::noop()));
        for outgoing in in_flight {
            dirty.complete(outgoing.offset);
            let behind = dirty.take(Selection::Due);
            assert_eq!((behind.len(), behind[0].offset), (1, outgoing.offset));
        }
        assert_eq!(dirty.examined, 3 * EXTENTS);
        assert!(dirty.is_flushed(sequence, Waker::noop()));
    }

    #[test]
    fn what_is_old_is_due_and_what_is_young_is_not() {
        let mut dirty = Dirty::default();
        let began = Instant::now();
        let later = began + std::time::Duration::from_secs(1);
        dirty.write(0, b"old", &None, MAX, began);
        dirty.write(100, b"young", &None, MAX, later + std::time::Duration::from_secs(1));
        assert!(dirty.take(Selection::Due).is_empty());
        let sent = dirty.take(Selection::OlderThan(later));
        assert_eq!((sent.len(), sent[0].offset), (1, 0));
        assert_eq!(dirty.end(), 105);
        assert!(dirty.overlaps(&(100..101)) && dirty.overlaps(&(0..1)) && !dirty.overlaps(&(3..100)));
    }

    proptest! {
        /// Compares with a file in memory. In whatever order data are written, sent and answered,
        /// the file has the content that it would have if each write had been done at once, and no
        /// bytes are counted twice.
        #[test]
        fn what_arrives_is_what_was_written(
            steps in prop::collection::vec((0_u64..100, 1_usize..40, any::<u8>(), any::<bool>(), any::<prop::sample::Index>()), 1..60)
        ) {
            let (mut dirty, mut model, mut server) = (Dirty::default(), vec![0_u8; 200], vec![0_u8; 200]);
            let (mut in_flight, mut held): (Vec<OutgoingExtent>, usize) = (Vec::new(), 0);
            let mut answer = |outgoing: OutgoingExtent, dirty: &mut Dirty, held: &mut usize| {
                let at = outgoing.offset as usize;
                server[at..at + outgoing.extent.data.len()].copy_from_slice(&outgoing.extent.data);
                *held -= outgoing.extent.cost();
                dirty.complete(outgoing.offset);
            };
            for (offset, len, byte, flush, index) in steps {
                model[offset as usize..offset as usize + len].fill(byte);
                held += write(&mut dirty, offset, &vec![byte; len]);
                prop_assert!(dirty.overlaps(&(offset..offset + len as u64)));
                if flush {
                    dirty.make_all_due();
                }
                in_flight.extend(dirty.take(Selection::Due));
                if !in_flight.is_empty() {
                    let outgoing = in_flight.swap_remove(index.index(in_flight.len()));
                    prop_assert!(outgoing.extent.data.len() <= MAX);
                    answer(outgoing, &mut dirty, &mut held);
                }
            }
            dirty.make_all_due();
            loop {
                in_flight.extend(dirty.take(Selection::Due));
                let Some(outgoing) = in_flight.pop() else { break };
                answer(outgoing, &mut dirty, &mut held);
            }
            prop_assert!(dirty.is_clean());
            prop_assert_eq!(held, 0);
            prop_assert_eq!(server, model);
        }
    }
}

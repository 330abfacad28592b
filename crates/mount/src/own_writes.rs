//! When each range of a file was last written from here, so that data that were requested before a
//! write are not given out after it.
//!
//! A write is noted when its data are taken, and again once the server has them: data that were
//! requested in between may be from before or after the write.
//!
//! Pure.

use std::collections::BTreeMap;
use std::ops::Range;

/// The most ranges that are remembered for one file. Beyond that the older half is forgotten, and
/// data that were requested before the last forgotten write are not valid any more.
const RANGES_MAX: usize = 4096;

/// A moment in the order of a file's writes: the number of writes that were noted before it.
pub(crate) type Moment = u64;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    /// From the beginning of each range to its end and the moment at which it was noted. Ranges do
    /// not overlap.
    ranges: BTreeMap<u64, (u64, Moment)>,
    now: Moment,
    /// Data that were requested before this moment are not valid: writes since then may be
    /// forgotten.
    known_since: Moment,
}

impl OwnWrites {
    pub(crate) const fn now(&self) -> Moment {
        self.now
    }

    /// Notes that a range is being written, or has been written.
    pub(crate) fn note(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.now += 1;
        self.make_room_for(&range);
        self.ranges.insert(range.start, (range.end, self.now));
        if self.ranges.len() > RANGES_MAX {
            self.forget_older_half();
        }
    }

    /// Removes a range from those that overlap it.
    fn make_room_for(&mut self, range: &Range<u64>) {
        while let Some((&start, &(end, noted))) = self.ranges.range(..range.end).next_back()
            && end > range.start
        {
            self.ranges.remove(&start);
            if end > range.end {
                self.ranges.insert(range.end, (end, noted));
            }
            if start < range.start {
                self.ranges.insert(start, (range.start, noted));
            }
        }
    }

    fn forget_older_half(&mut self) {
        let mut noted: Vec<Moment> = self.ranges.values().map(|(_, noted)| *noted).collect();
        let (_, middle, _) = noted.select_nth_unstable(RANGES_MAX / 2);
        self.known_since = *middle;
        self.ranges.retain(|_, (_, noted)| *noted > self.known_since);
    }

    /// The parts of a range that were not written since a moment, in order.
    pub(crate) fn untouched(&self, range: Range<u64>, since: Moment) -> Vec<Range<u64>> {
        let mut parts = Vec::new();
        if since < self.known_since {
            return parts;
        }
        let before = self.ranges.range(..range.start).next_back().map(|(start, written)| (*start, *written));
        let within = self.ranges.range(range.clone()).map(|(start, written)| (*start, *written));
        let mut at = range.start;
        for (start, (end, noted)) in before.into_iter().chain(within) {
            if noted <= since || end <= at {
                continue;
            }
            if start > at {
                parts.push(at..start);
            }
            at = end;
        }
        if at < range.end {
            parts.push(at..range.end);
        }
        parts
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "ranges are what is compared")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_written_since_is_cut_out() {
        let mut writes = OwnWrites::default();
        writes.note(10..20);
        let then = writes.now();
        assert_eq!(writes.untouched(0..100, then), [0..100]);
        assert_eq!(writes.untouched(0..100, 0), [0..10, 20..100]);
        writes.note(15..30);
        assert_eq!(writes.untouched(0..100, then), [0..15, 30..100]);
        assert_eq!(writes.untouched(0..100, 0), [0..10, 30..100]);
        assert_eq!(writes.untouched(15..30, then), []);
        writes.note(0..0);
        assert_eq!(writes.untouched(0..40, writes.now()), [0..40]);
    }

    #[test]
    fn what_was_asked_for_before_anything_that_is_forgotten_is_of_no_use() {
        let mut writes = OwnWrites::default();
        for at in 0..=RANGES_MAX as u64 {
            writes.note(at * 10..at * 10 + 5);
        }
        assert!(writes.ranges.len() <= RANGES_MAX);
        assert_eq!(writes.untouched(1_000_000..1_000_001, 1), []);
        assert_eq!(writes.untouched(0..1, writes.now()), [0..1]);
    }

    proptest! {
        /// Compares with a model that has the moment of each byte's last write.
        #[test]
        fn each_byte_counts_for_itself(
            steps in prop::collection::vec((0_u64..60, 0_u64..20), 1..40),
            since in 0_u64..40,
        ) {
            let (mut writes, mut model) = (OwnWrites::default(), [0; 80]);
            for (start, len) in steps {
                writes.note(start..start + len);
                model[start as usize..(start + len) as usize].fill(writes.now());
            }
            let mut found = [false; 80];
            for part in writes.untouched(0..80, since) {
                found[part.start as usize..part.end as usize].fill(true);
            }
            prop_assert_eq!(found, model.map(|noted| noted <= since));
        }
    }
}

//! When each range of a file was last written from here, so that data that were requested before a
//! write are not used after it.
//!
//! A write is recorded when its data are taken, and again once the server has them: data that were
//! requested in between may be from before or after the write.
//!
//! Pure.

use std::collections::BTreeMap;
use std::ops::Range;

/// The most ranges that are remembered for one file. Beyond that the older half is forgotten, and
/// data that were requested before the last forgotten write are not valid any more.
const RANGES_MAX: usize = 4096;

/// A position in the order of a file's writes: the number of writes recorded before it.
pub(crate) type WriteSequence = u64;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    /// From the beginning of each range to its end and the sequence at which it was recorded.
    /// Ranges do not overlap.
    ranges: BTreeMap<u64, (u64, WriteSequence)>,
    current: WriteSequence,
    /// Data that were requested before this sequence are not valid: writes since then may be
    /// forgotten.
    complete_since: WriteSequence,
}

impl OwnWrites {
    pub(crate) const fn current(&self) -> WriteSequence {
        self.current
    }

    /// Records that a range is being written, or has been written.
    pub(crate) fn record(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.current += 1;
        self.cut_out(&range);
        self.ranges.insert(range.start, (range.end, self.current));
        if self.ranges.len() > RANGES_MAX {
            self.forget_older_half();
        }
    }

    /// Removes a range from those that overlap it.
    fn cut_out(&mut self, range: &Range<u64>) {
        while let Some((&start, &(end, sequence))) = self.ranges.range(..range.end).next_back()
            && end > range.start
        {
            self.ranges.remove(&start);
            if end > range.end {
                self.ranges.insert(range.end, (end, sequence));
            }
            if start < range.start {
                self.ranges.insert(start, (range.start, sequence));
            }
        }
    }

    fn forget_older_half(&mut self) {
        let mut sequence: Vec<WriteSequence> = self.ranges.values().map(|(_, sequence)| *sequence).collect();
        let (_, middle, _) = sequence.select_nth_unstable(RANGES_MAX / 2);
        self.complete_since = *middle;
        self.ranges.retain(|_, (_, sequence)| *sequence > self.complete_since);
    }

    /// The parts of a range that were not written since a sequence, in order.
    pub(crate) fn unwritten_since(&self, range: Range<u64>, since: WriteSequence) -> Vec<Range<u64>> {
        let mut parts = Vec::new();
        if since < self.complete_since {
            return parts;
        }
        let before = self.ranges.range(..range.start).next_back().map(|(start, written)| (*start, *written));
        let within = self.ranges.range(range.clone()).map(|(start, written)| (*start, *written));
        let mut at = range.start;
        for (start, (end, sequence)) in before.into_iter().chain(within) {
            if sequence <= since || end <= at {
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
        writes.record(10..20);
        let then = writes.current();
        assert_eq!(writes.unwritten_since(0..100, then), [0..100]);
        assert_eq!(writes.unwritten_since(0..100, 0), [0..10, 20..100]);
        writes.record(15..30);
        assert_eq!(writes.unwritten_since(0..100, then), [0..15, 30..100]);
        assert_eq!(writes.unwritten_since(0..100, 0), [0..10, 30..100]);
        assert_eq!(writes.unwritten_since(15..30, then), []);
        writes.record(0..0);
        assert_eq!(writes.unwritten_since(0..40, writes.current()), [0..40]);
    }

    #[test]
    fn data_that_were_requested_before_a_forgotten_write_are_not_valid() {
        let mut writes = OwnWrites::default();
        for at in 0..=RANGES_MAX as u64 {
            writes.record(at * 10..at * 10 + 5);
        }
        assert!(writes.ranges.len() <= RANGES_MAX);
        assert_eq!(writes.unwritten_since(1_000_000..1_000_001, 1), []);
        assert_eq!(writes.unwritten_since(0..1, writes.current()), [0..1]);
    }

    proptest! {
        /// Compares with a model that has the sequence of each byte's last write.
        #[test]
        fn each_byte_counts_for_itself(
            steps in prop::collection::vec((0_u64..60, 0_u64..20), 1..40),
            since in 0_u64..40,
        ) {
            let (mut writes, mut model) = (OwnWrites::default(), [0; 80]);
            for (start, len) in steps {
                writes.record(start..start + len);
                model[start as usize..(start + len) as usize].fill(writes.current());
            }
            let mut found = [false; 80];
            for part in writes.unwritten_since(0..80, since) {
                found[part.start as usize..part.end as usize].fill(true);
            }
            prop_assert_eq!(found, model.map(|sequence| sequence <= since));
        }
    }
}

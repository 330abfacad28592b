//! Ranges by their first block, in classes of lengths up to each power of two.

use std::collections::BTreeMap;
use std::ops::Range;

/// A class for each power of two up to 2^64.
const CLASSES: usize = 65;

/// Where a range is: its first block, and when it arrived.
type Place = (u64, u64);

/// Which ranges overlap another. Empty ranges are not indexed: they overlap nothing.
#[derive(Debug)]
pub(super) struct Index {
    /// In class `k`, lengths above 2^(k-1) up to 2^k: the end of the range, and its entry.
    classes: [BTreeMap<Place, (u64, usize)>; CLASSES],
    /// A bit for each class that is not empty.
    used: u128,
}

impl Default for Index {
    fn default() -> Self {
        Self { classes: std::array::from_fn(|_| BTreeMap::new()), used: 0 }
    }
}

/// The class of a length that is not 0.
const fn class_of(length: u64) -> usize {
    (u64::BITS - (length - 1).leading_zeros()) as usize
}

/// The longest range in a class.
const fn longest(class: usize) -> u64 {
    if class >= u64::BITS as usize { u64::MAX } else { 1 << class }
}

fn class_of_range(range: &Range<u64>) -> Option<usize> {
    range.end.checked_sub(range.start).filter(|length| *length > 0).map(class_of)
}

impl Index {
    pub(super) fn insert(&mut self, range: &Range<u64>, arrival: u64, entry: usize) {
        let Some(class) = class_of_range(range) else { return };
        self.classes[class].insert((range.start, arrival), (range.end, entry));
        self.used |= 1 << class;
    }

    pub(super) fn remove(&mut self, range: &Range<u64>, arrival: u64) {
        let Some(class) = class_of_range(range) else { return };
        self.classes[class].remove(&(range.start, arrival));
        if self.classes[class].is_empty() {
            self.used &= !(1 << class);
        }
    }

    /// The entries whose ranges overlap `range`, in no particular order.
    pub(super) fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = usize> {
        let (start, end) = (range.start, range.end);
        let used = if start < end { self.used } else { 0 };
        let classes = (0..CLASSES).filter(move |class| used >> class & 1 == 1);
        classes.flat_map(move |class| {
            let from = start.saturating_sub(longest(class) - 1);
            let found = self.classes[class].range((from, 0)..(end, 0));
            found.filter(move |(_, (ends, _))| *ends > start).map(|(_, (_, entry))| *entry)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_in_the_class_of_the_next_power_of_two() {
        for (length, class) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 63, 63), (u64::MAX, 64)] {
            assert_eq!(class_of(length), class, "{length}");
            assert!(length <= longest(class));
        }
    }

    #[test]
    fn ranges_at_both_ends_of_all_numbers_are_found() {
        let mut index = Index::default();
        for (entry, range) in [0..u64::MAX, 0..1, u64::MAX - 1..u64::MAX, 5..5].iter().enumerate() {
            index.insert(range, entry as u64, entry);
        }
        let found = |range: Range<u64>| {
            let mut found: Vec<_> = index.overlapping(&range).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(found(0..1), [0, 1]);
        assert_eq!(found(1..2), [0]);
        assert_eq!(found(u64::MAX - 1..u64::MAX), [0, 2]);
        assert_eq!(found(0..u64::MAX), [0, 1, 2]);
        assert_eq!(found(5..5), [0; 0]);
    }
}

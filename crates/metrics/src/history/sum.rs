//! Adds up many entries without allocating for each.

use super::second::Entry;
use crate::latency::Latency;
use crate::operations::Tally;

/// The places for each doubling of the latency: as many as a histogram of
/// [`crate::latency::histogram`] has bins there, so that no two bins share a place.
const PLACES: u32 = 16;

/// A sum of entries.
#[derive(Debug, Default)]
pub(super) struct Sum {
    counts: Tally,
    /// The end and the count of each bin, by its place. Empty as long as there is no latency.
    bins: Vec<(u64, u64)>,
}

/// The place of a bin. Later bins have later places.
fn place(end: u64) -> usize {
    let doubling = end.max(PLACES.into()).ilog2();
    // The bits that follow the highest one.
    let part = (end.max(PLACES.into()) >> (doubling - PLACES.ilog2())) as u32 - PLACES;
    (doubling * PLACES + part) as usize
}

impl Sum {
    /// Adds an entry.
    pub fn add(&mut self, entry: &Entry<'_>) {
        self.counts.add(&entry.counts());
        for (end, count) in entry.bins() {
            if self.bins.is_empty() {
                self.bins.resize(place(u64::MAX) + 1, (0, 0));
            }
            if let Some(bin) = self.bins.get_mut(place(end)) {
                *bin = (end.max(bin.0), bin.1.saturating_add(count));
            }
        }
    }

    /// All of it.
    pub fn into_tally(self) -> Tally {
        let bins = self.bins.into_iter().filter(|(_, count)| *count > 0);
        Tally { latency: Latency::of_bins(bins), ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::second::Entries;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_sum_is_what_tallies_add_up_to(
            all in prop::collection::vec(prop::collection::vec(1..70_000_000_000_u64, 0..50), 0..8),
        ) {
            let (mut sum, mut expected) = (Sum::default(), Tally::default());
            for latencies in all {
                let mut histogram = crate::latency::histogram();
                latencies.iter().for_each(|ns| histogram.record(crate::latency::clamped(*ns)).unwrap());
                let count = latencies.len() as u64;
                let latency = Latency::of(&histogram);
                let tally = Tally { count, errors: 1, sent_bytes: count * 7, latency, ..Tally::default() };
                let mut entries = Entries::default();
                entries.push(0, &tally);
                entries.for_each(|_, entry| sum.add(entry));
                expected.add(&tally);
            }
            prop_assert_eq!(sum.into_tally(), expected);
        }

        #[test]
        fn places_are_in_order(a in any::<u64>(), b in any::<u64>()) {
            prop_assert!((a <= b) == (place(a) <= place(b)) || place(a) == place(b));
        }
    }

    #[test]
    fn every_bin_of_a_histogram_has_a_place_of_its_own() {
        let scale = crate::latency::histogram();
        let (mut ns, mut last) = (crate::latency::clamped(0), None);
        while ns < crate::latency::clamped(u64::MAX) {
            let end = scale.highest_equivalent(ns);
            assert!(last.is_none_or(|last| place(end) > last), "{end}");
            last = Some(place(end));
            ns = scale.next_non_equivalent(ns);
        }
        assert!(last.is_some_and(|last| last < place(u64::MAX)));
    }
}

//! Latencies as counts of bins: they can be added, subtracted and shown as a heat map.
//!
//! All processes use the bins of one HDR histogram ([`histogram`]), so that bins of different
//! processes are the same.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The shortest latency that is told apart, in nanoseconds.
const NS_MIN: u64 = 64;
/// The longest latency that is told apart: a minute.
const NS_MAX: u64 = 60_000_000_000;
/// One digit: a bin is at most a sixteenth of its value wide.
const DIGITS: u8 = 1;

/// An empty histogram with the bins that all processes use. It takes about 4 KiB.
///
/// # Panics
/// Never: the bounds are constants that the crate allows.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(NS_MIN, NS_MAX, DIGITS).expect("constant bounds")
}

/// A latency in nanoseconds, within the bounds of [`histogram`].
#[must_use]
pub fn clamped(ns: u64) -> u64 {
    ns.clamp(NS_MIN, NS_MAX)
}

/// A number of latencies, by bin. A bin is named by the highest latency in it, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latency {
    /// Bins that are not empty, the shortest latency first.
    bins: Vec<(u64, u64)>,
}

impl Latency {
    /// The bins of a histogram, whatever its own bins are.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let scale = self::histogram();
        let mut bins: Vec<(u64, u64)> = Vec::new();
        for bin in histogram.iter_recorded() {
            let end = scale.highest_equivalent(clamped(bin.value_iterated_to()));
            match bins.last_mut() {
                Some((last, count)) if *last == end => *count += bin.count_at_value(),
                _ => bins.push((end, bin.count_at_value())),
            }
        }
        Self { bins }
    }

    /// Latencies of these bins, which are in order and not empty.
    #[must_use]
    pub(crate) fn of_bins(bins: impl Iterator<Item = (u64, u64)>) -> Self {
        Self { bins: bins.collect() }
    }

    /// The bins that are not empty, the shortest latency first: the highest latency of the bin in
    /// nanoseconds, and the number of latencies in it.
    #[must_use]
    pub fn bins(&self) -> &[(u64, u64)] {
        &self.bins
    }

    /// The number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.bins.iter().map(|(_, count)| count).sum()
    }

    /// Whether there is no latency.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    /// The latency, in nanoseconds, that this part of all does not exceed; `None` if there is no
    /// latency. `part` is between 0 and 1.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * part.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.bins.iter().find_map(|(end, count)| {
            seen += count;
            (seen >= wanted).then_some(*end)
        })
    }

    /// The longest latency in nanoseconds.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        self.bins.last().map(|(end, _)| *end)
    }

    /// An estimate of the sum of all latencies in nanoseconds, from the ends of the bins: at most a
    /// sixteenth too high.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.bins.iter().fold(0, |sum: u64, (end, count)| sum.saturating_add(end.saturating_mul(*count)))
    }

    /// The number of latencies up to this many nanoseconds.
    #[must_use]
    pub fn count_to_ns(&self, ns: u64) -> u64 {
        self.bins.iter().take_while(|(end, _)| *end <= ns).map(|(_, count)| count).sum()
    }

    /// Adds another's latencies.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, u64::saturating_add);
    }

    /// The latencies since `earlier`, which were counted by the same process.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        difference.combine(earlier, u64::saturating_sub);
        difference.bins.retain(|(_, count)| *count > 0);
        difference
    }

    /// Combines each bin with the other's bin of the same end. Both lists are in order.
    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        let mut combined = Vec::with_capacity(self.bins.len().max(other.bins.len()));
        let (mut ours, mut theirs) = (self.bins.iter().peekable(), other.bins.iter().peekable());
        loop {
            let end = match (ours.peek(), theirs.peek()) {
                (Some((a, _)), Some((b, _))) => *a.min(b),
                (Some((end, _)), None) | (None, Some((end, _))) => *end,
                (None, None) => break,
            };
            let take = |bins: &mut std::iter::Peekable<std::slice::Iter<'_, (u64, u64)>>| {
                bins.next_if(|(at, _)| *at == end).map_or(0, |(_, count)| *count)
            };
            combined.push((end, with(take(&mut ours), take(&mut theirs))));
        }
        self.bins = combined;
    }

    /// Whether the bins are in order and no count is zero, as everything here relies on.
    pub(crate) fn is_sound(&self) -> bool {
        self.bins.windows(2).all(|pair| matches!(pair, [(a, _), (b, _)] if a < b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn latency(values: &[u64]) -> Latency {
        let mut histogram = histogram();
        values.iter().for_each(|ns| histogram.saturating_record(clamped(*ns)));
        Latency::of(&histogram)
    }

    proptest! {
        #[test]
        fn a_sum_less_one_part_is_the_other(
            a in prop::collection::vec(1..10_000_000_000u64, 0..40),
            b in prop::collection::vec(1..10_000_000_000u64, 0..40),
        ) {
            let mut sum = latency(&a);
            sum.add(&latency(&b));
            prop_assert!(sum.is_sound());
            prop_assert_eq!(&sum, &latency(&[a.clone(), b.clone()].concat()));
            prop_assert_eq!(sum.since(&latency(&b)), latency(&a));
            prop_assert_eq!(sum.count(), (a.len() + b.len()) as u64);
        }

        #[test]
        fn a_quantile_is_within_a_sixteenth(mut values in prop::collection::vec(1000..1_000_000_000u64, 1..60)) {
            let found = latency(&values).quantile_ns(0.5).unwrap();
            values.sort_unstable();
            let exact = values[(values.len() - 1) / 2];
            prop_assert!(found >= exact && found <= exact + exact / 8, "{} for {}", found, exact);
        }
    }

    #[test]
    fn histograms_with_finer_bins_are_taken_over() {
        let mut fine = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 2).unwrap();
        for ns in [10, 1_000, 1_001, 5_000_000, 120_000_000_000] {
            fine.record(ns).unwrap();
        }
        let latency = Latency::of(&fine);
        assert!(latency.is_sound(), "{latency:?}");
        assert_eq!(latency.count(), 5);
        assert_eq!(latency.bins()[1].1, 2);
        assert_eq!(latency.count_to_ns(2_000), 3);
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(Latency::default().quantile_ns(0.99), None);
        assert_eq!(Latency::default().max_ns(), None);
    }
}

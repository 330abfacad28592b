//! A latency histogram. Each thread fills its own, and they are merged afterwards.
//!
//! The histogram has three significant digits from 1 ns to 1 hour; longer latencies count as an
//! hour. Recording neither allocates nor fails. In JSON the histogram is one line of text, so that
//! records can be merged later without losing percentiles.

use hdrhistogram::Histogram;

use crate::{cell::LatencyUs, json::Error};

/// Latencies above an hour count as an hour; something else is wrong then.
const HIGHEST_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;
/// With fewer samples, the 99.99th percentile means nothing.
const SAMPLES_FOR_P99_99_MIN: u64 = 10_000;

/// A histogram of latencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    histogram: Histogram<u64>,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// An empty histogram (about 270 KB, allocated here once).
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .expect("constant bounds that the histogram accepts");
        Self { histogram }
    }

    /// Records one latency.
    pub fn record_ns(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns);
    }

    /// Records the same latency several times.
    pub fn record_many_ns(&mut self, latency_ns: u64, count: u64) {
        self.histogram.saturating_record_n(latency_ns, count);
    }

    /// The latencies in ascending order, each with its number; to three significant digits.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let lowest = |ns| self.histogram.lowest_equivalent(ns);
        self.histogram.iter_recorded().map(move |it| (lowest(it.value_iterated_to()), it.count_at_value()))
    }

    /// The smallest latency; 0 if there are none.
    pub fn min_ns(&self) -> u64 {
        self.histogram.min()
    }

    /// The largest latency.
    pub fn max_ns(&self) -> u64 {
        self.histogram.max()
    }

    /// The mean latency; 0 if there are none.
    pub fn mean_ns(&self) -> f64 {
        self.histogram.mean()
    }

    /// The standard deviation of the latencies; 0 if there are none.
    pub fn stdev_ns(&self) -> f64 {
        self.histogram.stdev()
    }

    /// Adds the latencies of another histogram.
    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
    }

    /// Removes all latencies and keeps the memory.
    pub fn clear(&mut self) {
        self.histogram.clear();
    }

    /// The number of latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether there are no latencies.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The latency in microseconds that this `fraction` (0 to 1) of the calls did not exceed; 0 if
    /// there are none.
    pub fn percentile_us(&self, fraction: f64) -> f64 {
        self.histogram.value_at_quantile(fraction) as f64 / 1000.0
    }

    /// The percentiles of a record.
    pub fn summary(&self) -> LatencyUs {
        let enough = self.count() >= SAMPLES_FOR_P99_99_MIN;
        LatencyUs {
            p50: self.percentile_us(0.5),
            p90: self.percentile_us(0.9),
            p99: self.percentile_us(0.99),
            p99_9: self.percentile_us(0.999),
            p99_99: enough.then(|| self.percentile_us(0.9999)),
            max: self.histogram.max() as f64 / 1000.0,
            mean: (!self.is_empty()).then(|| self.histogram.mean() / 1000.0),
        }
    }

    /// The histogram as text: `STEP:COUNT` for each value, in ascending order and separated by
    /// spaces. STEP is the difference in nanoseconds to the previous value (to 0 for the first).
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut before = 0;
        for value in self.histogram.iter_recorded() {
            let ns = self.histogram.lowest_equivalent(value.value_iterated_to());
            let gap = if text.is_empty() { "" } else { " " };
            text.push_str(&format!("{gap}{}:{}", ns - before, value.count_at_value()));
            before = ns;
        }
        text
    }

    /// Reads the text that [`Latency::to_text`] writes.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        let mut latency = Self::new();
        let mut ns = 0u64;
        for pair in text.split_ascii_whitespace() {
            let wrong = || Error::Histogram { pair: pair.chars().take(40).collect() };
            let (step, count) = pair.split_once(':').ok_or_else(wrong)?;
            let step: u64 = step.parse().map_err(|_| wrong())?;
            ns = ns.checked_add(step).ok_or_else(wrong)?;
            latency.histogram.saturating_record_n(ns, count.parse().map_err(|_| wrong())?);
        }
        Ok(latency)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_keep_three_significant_digits() {
        let mut latency = Latency::new();
        (1..=10_000u64).for_each(|us| latency.record_ns(us * 1000));
        let summary = latency.summary();
        let near = |value: f64, wanted: f64| (value - wanted).abs() <= wanted / 1000.0;
        assert!(near(summary.p50, 5000.0) && near(summary.p90, 9000.0) && near(summary.p99, 9900.0));
        assert!(near(summary.p99_9, 9990.0) && near(summary.max, 10_000.0));
        assert!(near(summary.p99_99.expect("ten thousand samples are enough"), 9999.0));
    }

    #[test]
    fn few_samples_claim_no_p99_99_and_none_claim_nothing() {
        let mut latency = Latency::new();
        assert_eq!(latency.summary(), LatencyUs::default());
        latency.record_ns(5000);
        assert_eq!(latency.summary().p99_99, None);
    }

    #[test]
    fn a_latency_beyond_an_hour_is_counted_as_an_hour() {
        let mut latency = Latency::new();
        latency.record_ns(u64::MAX);
        latency.record_ns(0);
        assert_eq!(latency.count(), 2);
        let hour_us = 3.6e9;
        assert!((latency.summary().max - hour_us).abs() < hour_us / 500.0);
    }

    #[test]
    fn counts_are_those_that_were_recorded() {
        let mut latency = Latency::new();
        latency.record_many_ns(100, 3);
        latency.record_many_ns(900, 1);
        assert_eq!(latency.counts().collect::<Vec<_>>(), [(100, 3), (900, 1)]);
        assert_eq!((latency.min_ns(), latency.max_ns(), latency.count()), (100, 900, 4));
        assert!((latency.mean_ns() - 300.0).abs() < 1.0 && latency.stdev_ns() > 300.0);
        assert_eq!(Latency::new().mean_ns(), 0.0);
    }

    #[test]
    fn broken_text_is_refused_by_name() {
        for text in ["12", "a:1", "1:", "1:-1", "1:1 x", "18446744073709551615:1 1:1"] {
            assert!(matches!(Latency::from_text(text), Err(Error::Histogram { .. })), "{text}");
        }
        assert!(Latency::from_text("").expect("nothing was counted").is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn text_read_again_is_the_same_histogram(values in prop::collection::vec(0u64..10_000_000_000, 0..200)) {
            let mut latency = Latency::new();
            values.iter().for_each(|ns| latency.record_ns(*ns));
            let again = Latency::from_text(&latency.to_text()).expect("its own text");
            prop_assert_eq!(again.summary().p99, latency.summary().p99);
            prop_assert_eq!(again.to_text(), latency.to_text());
            prop_assert_eq!(again.count(), latency.count());
        }

        #[test]
        fn merged_halves_equal_the_whole(values in prop::collection::vec(0u64..10_000_000_000, 0..200)) {
            let (mut whole, mut halves) = (Latency::new(), [Latency::new(), Latency::new()]);
            for (index, ns) in values.iter().enumerate() {
                whole.record_ns(*ns);
                halves[index % 2].record_ns(*ns);
            }
            let [mut one, other] = halves;
            one.merge(&other);
            prop_assert_eq!(one.to_text(), whole.to_text());
        }
    }
}

//! Latencies over time: how many calls of each interval took how long. A report draws it as a heat
//! map.
//!
//! Bins are four to an octave: bin `4 e + s` has the latencies from 2^e (1 + s/4) ns up to the next
//! bin. In JSON an interval is one line of text, with the bins that have calls only.

use serde::{Deserialize, Serialize};

use crate::json::Error;

/// An interval of a record is so long that all repeats of a cell together have at most this many.
const COLUMNS_MAX: usize = 100;
/// Bins in each octave of latencies.
const BINS_PER_OCTAVE: usize = 4;
/// Latencies of this many octaves of nanoseconds, more than an hour. Longer ones are in the last
/// bin.
const OCTAVES: usize = 42;
/// The most intervals that are read from another process: each takes memory for all bins.
const INTERVALS_MAX: usize = 1000;
const BINS: usize = OCTAVES * BINS_PER_OCTAVE;

/// The latencies of each repeat over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyOverTime {
    /// The length of an interval in milliseconds.
    pub interval_ms: f64,
    /// Each repeat, in the order in which they ran.
    pub repeats: Vec<RepeatLatency>,
}

/// The latencies of one repeat over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RepeatLatency {
    /// When the measured time began, in seconds since the experiment's start.
    pub began_s: f64,
    /// The calls that were completed in each interval, and in the last one also those that ended
    /// after the measured time, by latency: `STEP:COUNT` for each bin that
    /// has calls, in ascending order and separated by spaces. STEP is the difference of the bin's
    /// number to the previous one (to 0 for the first).
    pub calls: Vec<String>,
}

impl LatencyOverTime {
    /// The latencies of repeats, each with its begin in seconds and its counts by intervals of
    /// `interval_ms`; intervals are joined until few enough remain. `None` if nothing was counted.
    pub fn of(interval_ms: f64, repeats: &[(f64, &LatencyCounts)]) -> Option<Self> {
        if repeats.iter().all(|(_, counts)| counts.is_empty()) {
            return None;
        }
        let most = repeats.iter().map(|(_, counts)| counts.intervals()).max()?;
        let joined = most.div_ceil((COLUMNS_MAX / repeats.len().max(1)).max(1)).max(1);
        let repeat = |(began_s, counts): &(f64, &LatencyCounts)| RepeatLatency {
            began_s: *began_s,
            calls: counts.texts(joined),
        };
        Some(Self { interval_ms: interval_ms * joined as f64, repeats: repeats.iter().map(repeat).collect() })
    }
}

impl RepeatLatency {
    /// The calls of each interval: the numbers of the bins, each with its calls.
    pub fn counts(&self) -> Result<Vec<Vec<(usize, u64)>>, Error> {
        self.calls.iter().map(|text| counts_of(text)).collect()
    }
}

fn counts_of(text: &str) -> Result<Vec<(usize, u64)>, Error> {
    let mut bin = 0_usize;
    let pair = |pair: &str| {
        let wrong = || Error::Histogram { pair: pair.chars().take(40).collect() };
        let (step, count) = pair.split_once(':').ok_or_else(wrong)?;
        bin = bin.checked_add(step.parse().map_err(|_| wrong())?).ok_or_else(wrong)?;
        if bin >= BINS {
            return Err(wrong());
        }
        Ok((bin, count.parse().map_err(|_| wrong())?))
    };
    text.split_ascii_whitespace().map(pair).collect()
}

/// Counts of latencies by interval, while they are measured. Counting neither allocates nor fails.
/// Serialized, they are the texts of the intervals, as in [`RepeatLatency::calls`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub struct LatencyCounts {
    /// The bins of one interval after those of the other.
    calls: Vec<u32>,
}

impl LatencyCounts {
    /// No latencies, with room for so many intervals.
    pub fn new(intervals: usize) -> Self {
        Self { calls: vec![0; intervals * BINS] }
    }

    /// The number of intervals.
    pub fn intervals(&self) -> usize {
        self.calls.len() / BINS
    }

    /// Counts a call of an interval; one beyond the last interval is not counted.
    #[inline]
    pub fn record(&mut self, interval: usize, latency_ns: u64) {
        let place = interval.checked_mul(BINS).and_then(|first| first.checked_add(bin_of(latency_ns)));
        if let Some(calls) = place.and_then(|place| self.calls.get_mut(place)) {
            *calls = calls.saturating_add(1);
        }
    }

    /// Counts calls of an interval that took about as long as each other.
    pub fn record_many(&mut self, interval: usize, latency_ns: u64, count: u64) {
        let place = interval.checked_mul(BINS).and_then(|first| first.checked_add(bin_of(latency_ns)));
        if let Some(calls) = place.and_then(|place| self.calls.get_mut(place)) {
            *calls = calls.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Counts in an interval those of `all` calls of all intervals, by latency, that no interval
    /// has.
    pub fn record_rest(&mut self, interval: usize, all: impl Iterator<Item = (u64, u64)>) {
        let mut rest = Self::new(1);
        all.for_each(|(latency_ns, count)| rest.record_many(0, latency_ns, count));
        for (bin, left) in rest.calls.iter_mut().enumerate() {
            let counted =
                self.calls.iter().skip(bin).step_by(BINS).fold(0_u32, |sum, it| sum.saturating_add(*it));
            *left = left.saturating_sub(counted);
        }
        let place = interval.saturating_mul(BINS);
        let places = self.calls.iter_mut().skip(place);
        places.zip(&rest.calls).for_each(|(calls, left)| *calls = calls.saturating_add(*left));
    }

    /// Adds the counts of another loop.
    pub fn merge(&mut self, other: &Self) {
        self.calls.resize(self.calls.len().max(other.calls.len()), 0);
        self.calls.iter_mut().zip(&other.calls).for_each(|(sum, calls)| *sum = sum.saturating_add(*calls));
    }

    fn is_empty(&self) -> bool {
        self.calls.iter().all(|calls| *calls == 0)
    }

    /// The counts as text, of so many intervals together.
    fn texts(&self, joined: usize) -> Vec<String> {
        let text = |intervals: &[u32]| {
            let (mut text, mut before) = (String::new(), 0);
            for bin in 0..BINS {
                let calls: u64 =
                    intervals.iter().skip(bin).step_by(BINS).map(|calls| u64::from(*calls)).sum();
                if calls > 0 {
                    let gap = if text.is_empty() { "" } else { " " };
                    text.push_str(&format!("{gap}{}:{calls}", bin - before));
                    before = bin;
                }
            }
            text
        };
        self.calls.chunks(BINS * joined.max(1)).map(text).collect()
    }
}

impl From<LatencyCounts> for Vec<String> {
    fn from(counts: LatencyCounts) -> Self {
        counts.texts(1)
    }
}

impl TryFrom<Vec<String>> for LatencyCounts {
    type Error = Error;

    fn try_from(texts: Vec<String>) -> Result<Self, Error> {
        if texts.len() > INTERVALS_MAX {
            return Err(Error::Histogram { pair: format!("{} intervals", texts.len()) });
        }
        let mut counts = Self::new(texts.len());
        for (interval, text) in texts.iter().enumerate() {
            for (bin, calls) in counts_of(text)? {
                if let Some(place) = counts.calls.get_mut(interval * BINS + bin) {
                    *place = u32::try_from(calls).unwrap_or(u32::MAX);
                }
            }
        }
        Ok(counts)
    }
}

/// The number of a latency's bin.
#[inline]
fn bin_of(latency_ns: u64) -> usize {
    let ns = latency_ns.max(1);
    let octave = ns.ilog2();
    // The two bits below the highest.
    let part = if octave >= 2 { ns >> (octave - 2) } else { ns << (2 - octave) } & 3;
    (octave as usize * BINS_PER_OCTAVE + part as usize).min(BINS - 1)
}

/// The shortest latency of a bin in microseconds. That of the next bin is where it ends.
pub fn bin_start_us(bin: usize) -> f64 {
    let (octave, part) = (bin / BINS_PER_OCTAVE, bin % BINS_PER_OCTAVE);
    let octave = i32::try_from(octave).unwrap_or(i32::MAX);
    2_f64.powi(octave) * (1.0 + part as f64 / BINS_PER_OCTAVE as f64) / 1e3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counts_read_again_are_those_that_were_recorded() {
        let (mut one, mut other) = (LatencyCounts::new(3), LatencyCounts::new(3));
        one.record(0, 1_000_000);
        one.record(2, 1_000_000);
        other.record(2, 1_000_000);
        other.record(2, 5_000_000);
        other.record(3, 5_000_000);
        one.merge(&other);
        let found = LatencyOverTime::of(50.0, &[(4.0, &one)]).expect("calls");
        assert_eq!((found.interval_ms, found.repeats[0].began_s), (50.0, 4.0));
        assert_eq!(found.repeats[0].calls, ["79:1", "", "79:2 9:1"]);
        let columns = found.repeats[0].counts().expect("its own text");
        assert_eq!(columns, [vec![(79, 1)], vec![], vec![(79, 2), (88, 1)]]);
    }

    #[test]
    fn what_no_interval_has_is_counted_in_one() {
        let mut counts = LatencyCounts::new(2);
        counts.record_many(0, 1_000_000, 3);
        counts.record_many(2, 1_000_000, 9);
        counts.record_rest(1, [(1_000_100, 5), (5_000_000, 2), (9, 0)].into_iter());
        assert_eq!(Vec::from(counts.clone()), ["79:3", "79:2 9:2"], "interval 2 does not exist");
        let before = counts.clone();
        counts.record_rest(1, [(1_000_000, 4)].into_iter());
        counts.record_rest(7, [(1_000_000, 400)].into_iter());
        assert_eq!(counts, before, "fewer than are counted, and no such interval");
    }

    #[test]
    fn intervals_are_joined_until_all_repeats_together_have_few() {
        let mut counts = LatencyCounts::new(100);
        (0..100).for_each(|interval| counts.record(interval, 1000));
        let repeats = vec![(0.0, &counts); 8];
        let found = LatencyOverTime::of(50.0, &repeats).expect("calls");
        assert_eq!(found.interval_ms, 450.0);
        let columns: usize = found.repeats.iter().map(|repeat| repeat.calls.len()).sum();
        assert_eq!(columns, 96);
        let calls = |repeat: &RepeatLatency| {
            let columns = repeat.counts().expect("its own text");
            columns.into_iter().flatten().map(|(_, calls)| calls).sum::<u64>()
        };
        assert!(found.repeats.iter().all(|repeat| calls(repeat) == 100), "none is lost");
        assert_eq!(LatencyOverTime::of(50.0, &[(0.0, &LatencyCounts::new(5))]), None);
        assert_eq!(LatencyOverTime::of(50.0, &[]), None);
    }

    #[test]
    fn counts_from_another_process_are_the_same_and_bounded() {
        let mut counts = LatencyCounts::new(3);
        counts.record(0, 1_000_000);
        counts.record(2, 5_000_000);
        let text = serde_json::to_string(&counts).expect("texts");
        assert_eq!(text, r#"["79:1","","88:1"]"#);
        assert_eq!(serde_json::from_str::<LatencyCounts>(&text).expect("its own text"), counts);
        assert!(serde_json::from_str::<LatencyCounts>(r#"["168:1"]"#).is_err());
        let many = serde_json::to_string(&vec![""; INTERVALS_MAX + 1]).expect("texts");
        assert!(serde_json::from_str::<LatencyCounts>(&many).is_err());
    }

    #[test]
    fn broken_text_is_refused_by_name() {
        for text in ["12", "a:1", "1:", "1:-1", "1:1 x", "168:1", "18446744073709551615:1 1:1"] {
            assert!(matches!(counts_of(text), Err(Error::Histogram { .. })), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_latency_lies_within_its_bin(ns in 1_u64..1 << 41) {
            let (bin, us) = (bin_of(ns), ns as f64 / 1e3);
            prop_assert!(bin_start_us(bin) <= us * 1.000_001 && us < bin_start_us(bin + 1) * 1.000_001);
            prop_assert!(bin_of(ns) <= bin_of(ns + 1));
        }
    }

    #[test]
    fn the_shortest_and_the_longest_latencies_have_bins() {
        assert_eq!([0, 1, 2, 3, 4, u64::MAX].map(bin_of), [0, 0, 4, 6, 8, BINS - 1]);
    }
}

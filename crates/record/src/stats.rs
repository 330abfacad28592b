//! Statistics of a few repeats: median, bootstrap intervals, ratio of interleaved series, fairness,
//! steadiness.
//!
//! Repeats are few (for example eight) and not normally distributed, so all statistics are based on
//! order statistics and resampling. Interleaved repeats are compared pair by pair, which cancels a
//! drift of the machine.

use crate::rng::SplitMix64;

/// The number of resamples of a bootstrap. Each end of a 95 % interval is then determined by 50
/// resamples.
pub const RESAMPLES: usize = 2000;

/// With fewer pairs than this, no difference can be shown at 95 %: of four repeats, even the whole
/// range from the least to the greatest covers the true median in only 87.5 % of cases; of five, in
/// 93.75 %.
pub const PAIRS_FOR_VERDICT_MIN: usize = 5;

/// The number of rounds in the steady-state test (SNIA Solid State Storage Performance Test
/// Specification).
pub const STEADY_ROUNDS: usize = 5;

/// The maximum difference of the greatest and the least of these rounds, relative to their mean.
pub const STEADY_DATA_EXCURSION_MAX: f64 = 0.20;

/// The maximum rise or fall of the regression line over these rounds, relative to their mean.
pub const STEADY_SLOPE_EXCURSION_MAX: f64 = 0.10;

/// The middle value, or the mean of the two middle values; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 0.5)
}

/// The value below which this `fraction` (0 to 1) of the values lie, interpolated between
/// neighbours.
pub fn percentile(values: &[f64], fraction: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile_of_sorted(&sorted, fraction)
}

fn percentile_of_sorted(sorted: &[f64], fraction: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = fraction.clamp(0.0, 1.0) * last as f64;
    let below = sorted.get(place.floor() as usize)?;
    let above = sorted.get(place.ceil() as usize)?;
    Some(below + (above - below) * place.fract())
}

/// The bootstrap 95 % interval of the median. For a single value, both ends are that value; `None`
/// without values.
pub fn interval_95(values: &[f64], seed: u64) -> Option<[f64; 2]> {
    let mut rng = SplitMix64::new(seed);
    bootstrap(|| median_of_resample(values, &mut rng))
}

/// Draws [`RESAMPLES`] statistics and returns the range of the middle 95 % of them; `None` if any
/// of them does not exist, because fewer would be another interval.
fn bootstrap(mut draw: impl FnMut() -> Option<f64>) -> Option<[f64; 2]> {
    let mut drawn = (0..RESAMPLES).map(|_| draw()).collect::<Option<Vec<f64>>>()?;
    drawn.sort_by(f64::total_cmp);
    Some([percentile_of_sorted(&drawn, 0.025)?, percentile_of_sorted(&drawn, 0.975)?])
}

fn median_of_resample(values: &[f64], rng: &mut SplitMix64) -> Option<f64> {
    let resample: Vec<f64> =
        (0..values.len()).filter_map(|_| values.get(rng.below(values.len()))).copied().collect();
    median(&resample)
}

/// The ratio of one series to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median ratio.
    pub ratio: f64,
    /// The bootstrap 95 % interval of the ratio.
    pub interval_95: [f64; 2],
    /// The number of pairs; for series of different runs, the length of the shorter one.
    pub pairs: usize,
}

impl Ratio {
    /// Whether there are enough pairs for a verdict.
    pub fn has_enough_pairs(&self) -> bool {
        self.pairs >= PAIRS_FOR_VERDICT_MIN
    }

    /// Whether the interval lies on one side of 1 and is based on enough pairs.
    pub fn shows_a_difference(&self) -> bool {
        let [low, high] = self.interval_95;
        self.has_enough_pairs() && (low > 1.0 || high < 1.0)
    }
}

/// The ratio `a` over `b` of series whose i-th values were measured next to each other: the median
/// of the pairs' ratios. Pairs whose `b` is not above 0 are left out, and so are values of the
/// longer series without a partner.
pub fn ratio_of_pairs(a: &[f64], b: &[f64], seed: u64) -> Option<Ratio> {
    let ratios: Vec<f64> = a.iter().zip(b).filter(|(_, b)| **b > 0.0).map(|(a, b)| a / b).collect();
    let ratio = median(&ratios)?;
    Some(Ratio { ratio, interval_95: interval_95(&ratios, seed)?, pairs: ratios.len() })
}

/// The ratio `a` over `b` of series measured in different runs: the ratio of the medians, each
/// resampled separately. It cannot tell a difference between routes from a difference between runs.
/// `None` if `b` has so many zeros that the median of a resample may be 0.
pub fn ratio_of_sittings(a: &[f64], b: &[f64], seed: u64) -> Option<Ratio> {
    let over = |a: f64, b: f64| (b > 0.0).then_some(a / b);
    let ratio = over(median(a)?, median(b)?)?;
    let mut rng = SplitMix64::new(seed);
    let interval_95 = bootstrap(|| {
        let a = median_of_resample(a, &mut rng)?;
        over(a, median_of_resample(b, &mut rng)?)
    })?;
    Some(Ratio { ratio, interval_95, pairs: a.len().min(b.len()) })
}

/// Jain's fairness index: 1 if all carry the same, 1/n if one of n carries everything; `None` if
/// nothing was carried.
pub fn jain(loads: &[f64]) -> Option<f64> {
    let sum: f64 = loads.iter().sum();
    let squares: f64 = loads.iter().map(|load| load * load).sum();
    (squares > 0.0).then(|| sum * sum / (loads.len() as f64 * squares))
}

/// How the last rounds of a measurement varied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    /// The difference of the greatest and the least round, relative to their mean.
    pub data_excursion: f64,
    /// The rise or fall of the least-squares line over the rounds, relative to their mean.
    pub slope_excursion: f64,
}

impl Steadiness {
    /// Whether both excursions are within the SNIA limits.
    pub fn is_steady(&self) -> bool {
        self.data_excursion <= STEADY_DATA_EXCURSION_MAX && self.slope_excursion <= STEADY_SLOPE_EXCURSION_MAX
    }
}

/// The SNIA steady-state measures of the last [`STEADY_ROUNDS`] rounds; `None` if there are fewer,
/// or if their mean is not above 0.
pub fn steadiness(rounds: &[f64]) -> Option<Steadiness> {
    let window = rounds.get(rounds.len().checked_sub(STEADY_ROUNDS)?..)?;
    let count = STEADY_ROUNDS as f64;
    let mean = window.iter().sum::<f64>() / count;
    if mean.is_nan() || mean <= 0.0 {
        return None;
    }
    let middle = (count - 1.0) / 2.0;
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (round, value) in window.iter().enumerate() {
        let offset = round as f64 - middle;
        covariance += offset * (value - mean);
        variance += offset * offset;
    }
    let greatest = window.iter().copied().fold(f64::MIN, f64::max);
    let least = window.iter().copied().fold(f64::MAX, f64::min);
    Some(Steadiness {
        data_excursion: (greatest - least) / mean,
        slope_excursion: (covariance / variance * (count - 1.0)).abs() / mean,
    })
}

/// Each amount as a fraction of the sum, for `share_by_node` and `share_by_path`; all 0 if the sum
/// is 0.
pub fn shares(amounts: &[u64]) -> Vec<f64> {
    let sum: f64 = amounts.iter().map(|amount| *amount as f64).sum();
    amounts.iter().map(|amount| if sum > 0.0 { *amount as f64 / sum } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests;

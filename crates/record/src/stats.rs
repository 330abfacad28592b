//! Statistics over a few repeats: median, bootstrap intervals, ratio of interleaved series,
//! fairness, steadiness.
//!
//! Repeats are few (eight, say) and not normally distributed, so everything rests on order
//! statistics and resampling. Interleaved repeats are compared pair by pair, which cancels a
//! machine that drifts.

use crate::rng::SplitMix64;

/// How many resamples a bootstrap draws: the ends of a 95 % interval then rest on 50 resamples
/// each.
pub const RESAMPLES: usize = 2000;

/// With fewer pairs than this, no resampling can show a difference at 95 %: of four repeats even
/// the whole range from least to greatest covers the true median in only 87.5 % of cases; of five,
/// in 93.75 %.
pub const PAIRS_FOR_VERDICT_MIN: usize = 5;

/// How many rounds the steady-state test looks at (SNIA Solid State Storage Performance Test
/// Specification).
pub const STEADY_ROUNDS: usize = 5;

/// How far the greatest and the least of those rounds may lie apart, as a share of their mean.
pub const STEADY_DATA_EXCURSION_MAX: f64 = 0.20;

/// How far the fitted line may rise or fall over those rounds, as a share of their mean.
pub const STEADY_SLOPE_EXCURSION_MAX: f64 = 0.10;

/// The middle value, or the mean of the two middle ones; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 0.5)
}

/// The value below which `fraction` (0 to 1) of the values lie, interpolated between neighbours.
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

/// The bootstrap 95 % interval of the median. Of a single value it is that value twice; `None` of
/// nothing.
pub fn interval_95(values: &[f64], seed: u64) -> Option<[f64; 2]> {
    let mut rng = SplitMix64::new(seed);
    bootstrap(|| median_of_resample(values, &mut rng))
}

/// Draws [`RESAMPLES`] statistics and gives the range that holds the middle 95 % of them.
fn bootstrap(mut draw: impl FnMut() -> Option<f64>) -> Option<[f64; 2]> {
    let mut drawn: Vec<f64> = (0..RESAMPLES).map_while(|_| draw()).collect();
    drawn.sort_by(f64::total_cmp);
    Some([percentile_of_sorted(&drawn, 0.025)?, percentile_of_sorted(&drawn, 0.975)?])
}

fn median_of_resample(values: &[f64], rng: &mut SplitMix64) -> Option<f64> {
    let resample: Vec<f64> =
        (0..values.len()).filter_map(|_| values.get(rng.below(values.len()))).copied().collect();
    median(&resample)
}

/// How many times one series is of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median ratio.
    pub ratio: f64,
    /// Its bootstrap 95 % interval.
    pub interval_95: [f64; 2],
    /// How many pairs (or, of series from different sittings, values of the shorter) it rests on.
    pub pairs: usize,
}

impl Ratio {
    /// Whether the interval lies on one side of 1 and rests on enough pairs to say so.
    pub fn shows_a_difference(&self) -> bool {
        let [low, high] = self.interval_95;
        self.pairs >= PAIRS_FOR_VERDICT_MIN && (low > 1.0 || high < 1.0)
    }
}

/// `a` over `b`, where the i-th values of both were measured next to each other: the median of the
/// pairs' ratios. Pairs whose `b` is not above 0 are left out; the longer series' rest has no
/// partner and is too.
pub fn ratio_of_pairs(a: &[f64], b: &[f64], seed: u64) -> Option<Ratio> {
    let ratios: Vec<f64> = a.iter().zip(b).filter(|(_, b)| **b > 0.0).map(|(a, b)| a / b).collect();
    let ratio = median(&ratios)?;
    Some(Ratio { ratio, interval_95: interval_95(&ratios, seed)?, pairs: ratios.len() })
}

/// `a` over `b` of two sittings: the ratio of the medians, each resampled on its own. It cannot
/// tell a difference between the routes from a difference between the sittings.
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

/// Jain's fairness index: 1 where all carry the same, 1/n where one of n carries everything; `None`
/// where nothing was carried.
pub fn jain(loads: &[f64]) -> Option<f64> {
    let sum: f64 = loads.iter().sum();
    let squares: f64 = loads.iter().map(|load| load * load).sum();
    (squares > 0.0).then(|| sum * sum / (loads.len() as f64 * squares))
}

/// How the last rounds of a measurement moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    /// Greatest less least round, as a share of their mean.
    pub data_excursion: f64,
    /// Rise or fall of the least-squares line over the rounds, as a share of their mean.
    pub slope_excursion: f64,
}

impl Steadiness {
    /// Whether both excursions are within the SNIA limits.
    pub fn is_steady(&self) -> bool {
        self.data_excursion <= STEADY_DATA_EXCURSION_MAX && self.slope_excursion <= STEADY_SLOPE_EXCURSION_MAX
    }
}

/// The SNIA steady-state figures of the last [`STEADY_ROUNDS`] rounds; `None` while there are
/// fewer, or where their mean is not above 0.
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

/// Each amount as a fraction of their sum, for `share_by_node` and `share_by_path`; all 0 where the
/// sum is 0.
pub fn shares(amounts: &[u64]) -> Vec<f64> {
    let sum: f64 = amounts.iter().map(|amount| *amount as f64).sum();
    amounts.iter().map(|amount| if sum > 0.0 { *amount as f64 / sum } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests;

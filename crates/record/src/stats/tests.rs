//! The statistics against values computed by hand, and their properties for arbitrary input.

use proptest::prelude::*;

use super::*;

const EIGHT: [f64; 8] = [3.10, 3.05, 3.20, 3.15, 3.00, 3.12, 3.08, 3.18];

#[test]
fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
    assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[]), None);
}

#[test]
fn percentiles_interpolate_between_neighbours() {
    assert_eq!(percentile(&[10.0, 20.0, 30.0, 40.0, 50.0], 0.9), Some(46.0));
    assert_eq!(percentile(&[10.0, 20.0], 0.0), Some(10.0));
    assert_eq!(percentile(&[10.0, 20.0], 7.0), Some(20.0));
}

#[test]
fn an_interval_holds_the_median_and_repeats_with_its_seed() {
    let interval = interval_95(&EIGHT, 7).expect("eight values have an interval");
    let middle = median(&EIGHT).expect("eight values have a median");
    assert!(interval[0] <= middle && middle <= interval[1], "{interval:?} without {middle}");
    assert!(interval[0] >= 3.00 && interval[1] <= 3.20);
    assert!(interval[1] - interval[0] > 0.03, "an interval of scattered values is not a point: {interval:?}");
    assert_eq!(interval_95(&EIGHT, 7), Some(interval));
    assert_eq!(interval_95(&[2.0], 7), Some([2.0, 2.0]));
    assert_eq!(interval_95(&[], 7), None);
}

#[test]
fn pairs_cancel_a_machine_that_drifts_by_a_third() {
    let b: Vec<f64> = (0..8).map(|round| 3.0 - 0.14 * f64::from(round)).collect();
    let a: Vec<f64> = b.iter().map(|b| b * 1.05).collect();
    let ratio = ratio_of_pairs(&a, &b, 1).expect("eight pairs");
    assert!((ratio.ratio - 1.05).abs() < 1e-9);
    assert!(ratio.shows_a_difference());
    let unpaired = ratio_of_sittings(&a, &b, 1).expect("eight values each");
    assert!(!unpaired.shows_a_difference(), "{unpaired:?}");
}

#[test]
fn four_pairs_show_no_difference_however_large_it_is() {
    let ratio = ratio_of_pairs(&[8.0; 4], &[2.0; 4], 1).expect("four pairs");
    assert_eq!((ratio.ratio, ratio.pairs), (4.0, 4));
    assert!(!ratio.shows_a_difference());
    assert!(ratio_of_pairs(&[8.0; 5], &[2.0; 5], 1).expect("five pairs").shows_a_difference());
}

#[test]
fn pairs_without_a_partner_or_with_a_zero_are_left_out() {
    let ratio = ratio_of_pairs(&[2.0, 4.0, 6.0], &[1.0, 0.0], 1).expect("one pair");
    assert_eq!((ratio.ratio, ratio.pairs), (2.0, 1));
    assert_eq!(ratio_of_pairs(&[1.0], &[0.0], 1), None);
    assert_eq!(ratio_of_sittings(&[1.0], &[0.0], 1), None);
}

#[test]
fn sittings_whose_resamples_may_have_a_median_of_zero_have_no_ratio() {
    let some_zeros = [0.0, 0.0, 0.5, 1.0, 1.5];
    assert_eq!(ratio_of_sittings(&some_zeros, &some_zeros, 1), None);
    let ratio = ratio_of_sittings(&some_zeros, &[1.0; 5], 1).expect("a zero above the line");
    assert_eq!(ratio.interval_95[0], 0.0);
}

#[test]
fn equal_series_show_no_difference() {
    let ratio = ratio_of_pairs(&EIGHT, &[3.12, 3.08, 3.18, 3.10, 3.05, 3.20, 3.15, 3.00], 1).expect("pairs");
    assert!(!ratio.shows_a_difference(), "{ratio:?}");
}

#[test]
fn jains_index_runs_from_one_nth_to_one() {
    assert_eq!(jain(&[1.0, 1.0, 1.0, 1.0]), Some(1.0));
    assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
    assert_eq!(jain(&[0.0, 0.0]), None);
}

#[test]
fn steady_means_within_the_data_and_the_slope_excursion() {
    let steady = steadiness(&[50.0, 100.0, 101.0, 99.0, 100.0, 100.0]).expect("six rounds");
    assert!(steady.is_steady(), "only the last five count: {steady:?}");
    let scattered = steadiness(&[100.0, 121.0, 100.0, 121.0, 100.0]).expect("five rounds");
    assert!((scattered.data_excursion - 21.0 / 108.4).abs() < 1e-9);
    let wide = steadiness(&[88.0, 112.0, 100.0, 112.0, 88.0]).expect("five rounds");
    assert!(wide.slope_excursion < 1e-9 && !wide.is_steady(), "{wide:?}");
    let rising = steadiness(&[94.0, 97.0, 100.0, 103.0, 106.0]).expect("five rounds");
    assert!((rising.slope_excursion - 0.12).abs() < 1e-9 && !rising.is_steady(), "{rising:?}");
    assert_eq!(steadiness(&[1.0; 4]), None);
    assert_eq!(steadiness(&[0.0; 5]), None);
}

#[test]
fn shares_add_up_to_one_or_are_all_zero() {
    assert_eq!(shares(&[1, 1, 2]), vec![0.25, 0.25, 0.5]);
    assert_eq!(shares(&[0, 0]), vec![0.0, 0.0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_interval_lies_within_the_values(values in prop::collection::vec(0.1f64..1e6, 1..12), seed: u64) {
        let [low, high] = interval_95(&values, seed).expect("at least one value");
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        let greatest = values.iter().copied().fold(f64::MIN, f64::max);
        prop_assert!(least <= low && low <= high && high <= greatest);
    }
}

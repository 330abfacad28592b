//! Conditions on invented records: what holds, what noise may have done, and what is an error.

use super::*;
use crate::sample;
use record::Repeat;

/// A sample record whose speeds are multiplied, as of a later build.
fn record_times(factor: f64) -> Record {
    let mut record = sample::record();
    for workload in record.routes.iter_mut().flat_map(|route| &mut route.workloads) {
        for cell in [&mut workload.read, &mut workload.write].into_iter().flatten() {
            cell.gbytes_per_s *= factor;
            cell.repeats.iter_mut().for_each(|repeat| repeat.gbytes_per_s *= factor);
        }
    }
    record
}

fn judge_by(text: &str, after: &Record, basis: Basis) -> Result<Vec<Judgement>, JudgeError> {
    let before = sample::record();
    let checked = Checked { record: after, name: "after.json" };
    let condition: Condition = text.parse().expect("a condition");
    judge(&condition, checked, Some(Checked { record: &before, name: "before.json" }), basis)
}

fn outcomes(text: &str, factor: f64) -> Vec<Outcome> {
    let judged = judge_by(text, &record_times(factor), Basis::Intervals);
    judged.unwrap_or_else(|error| panic!("{text}: {error}")).iter().map(|it| it.outcome).collect()
}

#[test]
fn a_slower_record_fails_in_each_place_that_the_condition_selects() {
    let judged = judge_by("tcp-mp.read < 0.9 * baseline", &record_times(0.8), Basis::Intervals).unwrap();
    let places: Vec<&str> = judged.iter().map(|it| it.place.as_str()).collect();
    assert_eq!(places, ["read of mix-1m, raw", "read of mix-1m, paced", "read of random-4k, raw"]);
    assert!(judged.iter().all(|it| it.outcome == Outcome::Holds), "{judged:?}");
    assert!(judged[0].finding.starts_with("0.80 times before.json (95 %: 0.7"), "{}", judged[0].finding);
    assert_eq!((judged[0].record.as_str(), judged[0].route.as_str()), ("after.json", "tcp-mp"));
    assert_eq!(outcomes("tcp-mp.mix-1m.raw.read < 0.9 * baseline", 0.8), [Outcome::Holds]);
    assert_eq!(outcomes("0.9 * baseline > tcp-mp.mix-1m.raw.read", 0.8), [Outcome::Holds]);
    assert_eq!(outcomes("tcp-mp.mix-1m.raw.read < 0.9 * baseline", 1.0), [Outcome::DoesNotHold]);
}

#[test]
fn a_difference_within_the_noise_fails_nothing() {
    // The raw repeats vary by several percent, the paced ones by less than one.
    assert_eq!(outcomes("tcp.mix-1m.raw.read < baseline", 0.99), [Outcome::NotShown]);
    assert_eq!(outcomes("tcp.mix-1m.paced.read < baseline", 0.95), [Outcome::Holds]);
    let medians = judge_by("tcp.mix-1m.raw.read < baseline", &record_times(0.99), Basis::Medians).unwrap();
    assert_eq!(medians[0].outcome, Outcome::Holds, "medians alone cannot tell noise");
    assert_eq!(medians[0].finding, "0.99 times before.json");
}

#[test]
fn values_are_compared_with_numbers_and_with_other_routes() {
    assert_eq!(outcomes("tcp.mix-1m.raw.read < 2 GB/s", 1.0), [Outcome::DoesNotHold]);
    assert_eq!(outcomes("tcp.mix-1m.raw.read < 4 GB/s", 1.0), [Outcome::Holds]);
    assert_eq!(outcomes("2 * tcp.mix-1m.raw.read < 8 GB/s", 1.0), [Outcome::Holds]);
    assert_eq!(outcomes("tcp.mix-1m.raw.read.p99 > 1 ms", 1.0), [Outcome::Holds]);
    // Paced, four nodes carry four times as much.
    assert_eq!(outcomes("tcp-mp.paced.read < 3.9 * tcp.read", 1.0), [Outcome::DoesNotHold]);
    assert_eq!(outcomes("tcp-mp.paced.read < 4.5 * tcp.read", 1.0), [Outcome::Holds]);
    assert_eq!(outcomes("tcp-mp.read > 5 * tcp.random-4k.read", 1.0), [Outcome::DoesNotHold]);
    let judged = judge_by("tcp-mp.paced.read < 4.5 * tcp.read", &sample::record(), Basis::Intervals).unwrap();
    assert!(judged[0].finding.contains(" times tcp read of mix-1m, paced (95 %: "), "{judged:?}");
}

#[test]
fn what_a_record_lacks_is_an_error_and_never_a_pass() {
    let mut few = sample::record();
    for workload in &mut few.routes[0].workloads {
        workload.read.iter_mut().for_each(|cell| cell.repeats.truncate(3));
    }
    let mut old = sample::record();
    let cells = old.routes[0].workloads.iter_mut().filter_map(|workload| workload.read.as_mut());
    cells.flat_map(|cell| &mut cell.repeats).for_each(|it| (it.p50_us, it.p99_us) = (None, None));
    let mut deeper = sample::record();
    deeper.experiment.workloads[0].depth = 64;
    let mut renamed = sample::record();
    renamed.routes[0].workloads[0].name = "other".into();
    let (mut lost, mut halved, mut skipped) = (sample::record(), sample::record(), sample::record());
    lost.routes[1].workloads.pop();
    halved.routes[1].workloads[0].read = None;
    let random = &mut skipped.routes[1].workloads[2];
    (random.read, random.skipped) = (None, Some("why".into()));
    let (mut silent, mut zeros) = (sample::record(), sample::record());
    let read = |record: &mut Record, times: usize, value: Repeat| {
        let cell = record.routes[0].workloads[0].read.as_mut().expect("reads");
        cell.repeats.iter_mut().take(times).for_each(|repeat| *repeat = value);
    };
    read(&mut silent, 1, Repeat { p50_us: Some(0.0), p99_us: Some(0.0), ..Repeat::default() });
    read(&mut zeros, 4, Repeat::default());
    for (text, record, cause) in [
        ("tcp-m.read < 1", &few, "column 1: after.json has no route `tcp-m`; it has tcp, tcp-mp, rdma"),
        ("rdma.read < 1", &few, "which was skipped: no RDMA device here"),
        (
            "1 > tcp.mix.read",
            &few,
            "column 5: after.json has no workload `mix` on `tcp`; it has mix-1m (raw)",
        ),
        ("tcp.random-4k.paced.read < 1", &few, "has no workload `random-4k` paced on `tcp`"),
        ("tcp.random-4k.write < 1", &few, "has no write of that on `tcp`"),
        ("tcp.read < 1", &few, "has 3 repeats of tcp read of mix-1m, raw; 5 are needed"),
        ("tcp.read.p50 < 1 ms", &old, "has no p50 of each repeat"),
        (
            "tcp-mp.read < 0.9 * baseline",
            &lost,
            "after.json has no read of random-4k, raw of `tcp-mp`, which",
        ),
        ("tcp-mp.read < 0.9 * baseline", &halved, "after.json has no read of mix-1m, raw of `tcp-mp`, which"),
        (
            "tcp-mp.read < 0.9 * baseline",
            &skipped,
            "no read of random-4k, raw, on `tcp-mp`, which was skipped: why",
        ),
        ("tcp-mp.read < 1", &skipped, "which was skipped: why"),
        (
            "tcp.read.p99 > 20 ms",
            &silent,
            "after.json completed no call in a repeat of tcp read p99 of mix-1m",
        ),
        ("tcp-mp.read < 0.9 * tcp.read", &zeros, "is 0 in too many repeats"),
        ("tcp.mix-1m.read < baseline", &deeper, "measured something else: mix-1m: 10 readers and 10 writers"),
        ("tcp.other.read < baseline", &renamed, "before.json has no workload `other` on `tcp`"),
        ("tcp-mp.mix-1m.raw.read < 2 * tcp.read", &renamed, "column 30: after.json has no mix-1m (raw) read"),
    ] {
        let error = judge_by(text, record, Basis::Intervals).expect_err(text).to_string();
        assert!(error.contains(cause), "{text}: {error}");
    }
    assert_eq!(judge_by("tcp.read < 1", &few, Basis::Medians).unwrap().len(), 3);
    assert_eq!(judge_by("tcp.read.p50 < 1 ns", &old, Basis::Medians).unwrap().len(), 3);
    assert!(judge_by("tcp.read.p99 > 20 ms", &silent, Basis::Medians).is_err());
    assert_eq!(judge_by("tcp-mp.write < 1", &skipped, Basis::Intervals).unwrap().len(), 2);
    let condition: Condition = "tcp.read < baseline".parse().unwrap();
    let error = judge(&condition, Checked { record: &old, name: "one.json" }, None, Basis::Intervals);
    assert!(error.unwrap_err().cause.contains("a baseline is needed"));
}

#[test]
fn zeros_that_are_the_same_on_both_sides_fail_nothing() {
    let mut zeros = sample::record();
    let cell = zeros.routes[0].workloads[0].read.as_mut().expect("reads");
    for (repeat, speed) in cell.repeats.iter_mut().zip([0.0, 0.0, 0.5, 1.0, 1.5, 0.0, 0.0, 1.0]) {
        repeat.gbytes_per_s = speed;
    }
    let checked = |name| Checked { record: &zeros, name };
    let other = zeros.clone();
    let before = Checked { record: &other, name: "before.json" };
    let condition: Condition = "tcp.mix-1m.raw.read < 0.9 * baseline".parse().unwrap();
    let error = judge(&condition, checked("after.json"), Some(before), Basis::Intervals);
    assert!(error.unwrap_err().cause.contains("before.json is 0, or is 0 in too many repeats"));
}

#[test]
fn a_latency_is_the_median_of_the_repeats_with_and_without_intervals() {
    let mut record = sample::record();
    let cell = record.routes[0].workloads[0].read.as_mut().expect("reads");
    cell.latency_us.p99 = 77_000.0;
    for basis in [Basis::Intervals, Basis::Medians] {
        let judged = judge_by("tcp.mix-1m.raw.read.p99 > 8 ms", &record, basis).unwrap();
        let finding = &judged[0].finding;
        assert!(finding.starts_with("9.00 ms, the median of the repeats' p99"), "{finding}");
    }
}

#[test]
fn a_speed_of_zero_cannot_be_a_baseline() {
    let zero = record_times(0.0);
    let condition: Condition = "tcp.read < baseline".parse().unwrap();
    let (after, before) = (sample::record(), Checked { record: &zero, name: "before.json" });
    for basis in [Basis::Intervals, Basis::Medians] {
        let error = judge(&condition, Checked { record: &after, name: "after.json" }, Some(before), basis);
        assert!(error.unwrap_err().cause.contains("before.json is 0"));
    }
}

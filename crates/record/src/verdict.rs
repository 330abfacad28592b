//! Which of two routes is faster, as far as the repeats show it.

use serde::{Deserialize, Serialize};

use crate::{
    model::{Half, Record, Workload},
    stats::{self, Ratio},
};

/// A comparison of two routes in one workload and half.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The workload's name.
    pub workload: String,
    /// Raw or paced.
    pub half: Half,
    /// The speed that is compared.
    #[serde(default)]
    pub of: Measure,
    /// The route in question.
    pub a: String,
    /// The route with which `a` is compared.
    pub b: String,
    /// The ratio of `a` to `b`: the median over pairs of interleaved repeats.
    pub ratio: f64,
    /// The bootstrap 95 % interval of the ratio.
    pub interval_95: [f64; 2],
    /// The number of pairs of repeats.
    #[serde(default)]
    pub pairs: usize,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict on `a` compared with `b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval lies above 1.
    Faster,
    /// The whole interval lies below 1.
    Slower,
    /// The interval contains 1.
    #[default]
    NoDifference,
    /// There are fewer than [`stats::PAIRS_FOR_VERDICT_MIN`] pairs.
    TooFewPairs,
}

impl Verdict {
    /// The verdict for a ratio.
    pub fn of(ratio: &Ratio) -> Self {
        match ratio.shows_a_difference() {
            _ if !ratio.has_enough_pairs() => Verdict::TooFewPairs,
            false => Verdict::NoDifference,
            true if ratio.ratio > 1.0 => Verdict::Faster,
            true => Verdict::Slower,
        }
    }
}

impl Comparison {
    /// The verdict. Earlier builds called too few pairs no difference.
    pub fn judged(&self) -> Verdict {
        let few = (1..stats::PAIRS_FOR_VERDICT_MIN).contains(&self.pairs);
        if few { Verdict::TooFewPairs } else { self.verdict }
    }
}

/// The speed that a comparison is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Reads and writes together: the sum of each repeat.
    #[default]
    Both,
    /// Reads only.
    Read,
    /// Writes only.
    Write,
}

impl Workload {
    /// The speed of each repeat in GB/s, of reads, of writes, or of both together. Empty if a
    /// single direction is requested that the workload lacks.
    pub fn speeds(&self, of: Measure) -> Vec<f64> {
        let read = self.read.as_ref().map(|cell| cell.speeds());
        let write = self.write.as_ref().map(|cell| cell.speeds());
        match (of, read, write) {
            (Measure::Both, Some(read), Some(write)) => read.iter().zip(&write).map(|(r, w)| r + w).collect(),
            (Measure::Both | Measure::Read, Some(read), _) => read,
            (Measure::Both | Measure::Write, _, Some(write)) => write,
            _ => Vec::new(),
        }
    }
}

impl Record {
    /// Adds the verdicts on route `a` compared with route `b`, in every workload and half that both
    /// have, for reads and writes together. Earlier verdicts on the same question are replaced.
    pub fn compare(&mut self, a: &str, b: &str, seed: u64) {
        let found = self.comparisons(a, b, seed);
        self.verdicts.retain(|old| {
            !found.iter().any(|new| {
                (&new.workload, new.half, new.of, &new.a, &new.b)
                    == (&old.workload, old.half, old.of, &old.a, &old.b)
            })
        });
        self.verdicts.extend(found);
    }

    fn comparisons(&self, a: &str, b: &str, seed: u64) -> Vec<Comparison> {
        let (Some(route), Some(other)) = (self.route(a), self.route(b)) else { return Vec::new() };
        let compared = route.workloads.iter().filter_map(|workload| {
            let half = workload.half();
            let partner = other.workload(&workload.name, half)?;
            let of = Measure::Both;
            let ratio = stats::ratio_of_pairs(&workload.speeds(of), &partner.speeds(of), seed)?;
            Some(Comparison {
                workload: workload.name.clone(),
                half,
                of,
                a: a.into(),
                b: b.into(),
                ratio: ratio.ratio,
                interval_95: ratio.interval_95,
                pairs: ratio.pairs,
                verdict: Verdict::of(&ratio),
            })
        });
        compared.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Pace, Repeat, Route};

    fn cell(speeds: &[f64]) -> Cell {
        let repeat = |gbytes_per_s: &f64| Repeat { gbytes_per_s: *gbytes_per_s, ..Repeat::default() };
        Cell { repeats: speeds.iter().map(repeat).collect(), ..Cell::default() }
    }

    fn route(name: &str, raw: f64, paced: f64) -> Route {
        let series = |speed: f64| -> Vec<f64> { (0..8).map(|i| speed + 0.01 * f64::from(i % 3)).collect() };
        let workload = |speed, pace| Workload {
            name: "mix-1m".into(),
            pace,
            read: Some(cell(&series(speed))),
            write: Some(cell(&series(speed))),
            ..Workload::default()
        };
        let pace = Some(Pace { gbit_per_s_per_node: 2.0 });
        Route {
            name: name.into(),
            workloads: vec![workload(raw, None), workload(paced, pace)],
            ..Route::default()
        }
    }

    #[test]
    fn each_half_has_its_own_verdict() {
        let mut record =
            Record { routes: vec![route("tcp", 3.0, 0.24), route("tcp-mp", 3.0, 0.96)], ..Record::default() };
        record.compare("tcp-mp", "tcp", 1);
        record.compare("tcp-mp", "tcp", 1);
        assert_eq!(record.verdicts.len(), 2, "the second comparison replaces the first");
        assert_eq!((record.verdicts[0].half, record.verdicts[0].verdict), (Half::Raw, Verdict::NoDifference));
        assert_eq!((record.verdicts[1].half, record.verdicts[1].verdict), (Half::Paced, Verdict::Faster));
        assert!(record.verdicts[1].ratio > 3.8);
        record.compare("tcp", "tcp-mp", 1);
        assert_eq!(record.verdicts[3].verdict, Verdict::Slower);
    }

    #[test]
    fn too_few_pairs_are_a_verdict_of_their_own() {
        let of_repeats = |count: usize| {
            let mut routes = vec![route("tcp", 3.0, 0.24), route("rdma", 6.0, 0.24)];
            for workload in routes.iter_mut().flat_map(|route| &mut route.workloads) {
                let cells = [&mut workload.read, &mut workload.write].into_iter().flatten();
                cells.for_each(|cell| cell.repeats.truncate(count));
            }
            let mut record = Record { routes, ..Record::default() };
            record.compare("rdma", "tcp", 1);
            record.verdicts.into_iter().next()
        };
        let found = of_repeats(4).expect("a comparison");
        assert_eq!((found.verdict, found.pairs), (Verdict::TooFewPairs, 4));
        assert_eq!(of_repeats(5).map(|found| found.verdict), Some(Verdict::Faster));
        assert_eq!(of_repeats(0), None);
        // What earlier builds wrote, and what did not say how many pairs there were.
        let old = |pairs| Comparison { pairs, ..Comparison::default() }.judged();
        assert_eq!([old(3), old(5), old(0)], {
            [Verdict::TooFewPairs, Verdict::NoDifference, Verdict::NoDifference]
        });
        let text = serde_json::to_string(&found.verdict).expect("text");
        assert_eq!(text, "\"too_few_pairs\"");
    }

    #[test]
    fn a_route_that_was_skipped_has_no_verdict() {
        let mut record = Record {
            routes: vec![route("tcp", 3.0, 0.24), Route::skipped("rdma", "no device")],
            ..Record::default()
        };
        record.compare("rdma", "tcp", 1);
        record.compare("nfs-rdma", "tcp", 1);
        assert!(record.verdicts.is_empty());
    }

    #[test]
    fn the_speeds_of_both_are_the_sums_of_each_repeat() {
        let workload =
            Workload { read: Some(cell(&[1.0, 2.0])), write: Some(cell(&[0.5, 0.5])), ..Workload::default() };
        assert_eq!(workload.speeds(Measure::Both), [1.5, 2.5]);
        assert_eq!(workload.speeds(Measure::Write), [0.5, 0.5]);
        let reads = Workload { read: Some(cell(&[1.0])), ..Workload::default() };
        assert_eq!(reads.speeds(Measure::Both), [1.0]);
        assert!(reads.speeds(Measure::Write).is_empty());
    }
}

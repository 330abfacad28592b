//! Calibrated limits, and the check that no result exceeds its limit.

use serde::{Deserialize, Serialize};

use crate::Cell;
use crate::model::Record;

/// How far a result may exceed its limit before the record fails. Both are medians of short runs,
/// and the kernel keeps a pace only to within a burst. A larger excess means that the limit or the
/// result is wrong.
pub const LIMIT_TOLERANCE: f64 = 0.03;

/// A cell that moved all its bytes in less time than this is not compared with a limit: buffers on
/// the way hold as much, and a limit is measured over a longer time.
pub const LIMIT_SECONDS_MIN: f64 = 0.05;

/// The best throughput of the machine or of one route in one shape of traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The shape of traffic: `1 MiB blocks, 10 readers and 10 writers`.
    pub shape: String,
    /// The route to which the limit applies; absent if it applies to the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// How the best try moved its bytes: `sendmsg, one thread per connection`.
    pub mode: String,
    /// The best try's congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// The limit in 10^9 bytes per second.
    pub gbytes_per_s: f64,
    /// The limit in operations per second.
    pub iops: f64,
    /// All tries, including the best.
    #[serde(default)]
    pub tries: Vec<Try>,
}

impl Calibration {
    /// The calibration of a shape. Its limit is the fastest of the tries.
    pub fn of(shape: impl Into<String>, route: Option<String>, tries: Vec<Try>) -> Self {
        let best = tries.iter().max_by(|a, b| a.gbytes_per_s.total_cmp(&b.gbytes_per_s)).cloned();
        let best = best.unwrap_or_default();
        let (mode, congestion) = (best.mode, best.congestion);
        let (gbytes_per_s, iops) = (best.gbytes_per_s, best.iops);
        Self { shape: shape.into(), route, mode, congestion, gbytes_per_s, iops, tries }
    }
}

/// One try of a calibration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Try {
    /// How the try moved its bytes.
    pub mode: String,
    /// The congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// The throughput in 10^9 bytes per second.
    pub gbytes_per_s: f64,
    /// The operations per second.
    pub iops: f64,
}

impl Record {
    /// Fails the record for each cell that exceeds its own limit or the machine's by more than
    /// [`LIMIT_TOLERANCE`]. It may be called repeatedly: a reason is recorded once.
    pub fn check_limits(&mut self) {
        let mut reasons = Vec::new();
        for route in &self.routes {
            for workload in &route.workloads {
                for (direction, cell) in workload.cells() {
                    let limits = [
                        ("its limit", cell.limit_gbytes_per_s),
                        ("the machine's limit", cell.machine_limit_gbytes_per_s),
                    ];
                    for (whose, limit) in limits {
                        let Some(limit) = limit.filter(|_| !is_too_short(cell)) else { continue };
                        if cell.gbytes_per_s > limit * (1.0 + LIMIT_TOLERANCE) {
                            reasons.push(format!(
                                "{} {direction} of {} ({}) reached {:.3} GB/s, above {whose} of {limit:.3} GB/s: \
                                 the limit or the result is wrong",
                                route.name,
                                workload.name,
                                workload.half(),
                                cell.gbytes_per_s,
                            ));
                        }
                    }
                }
            }
        }
        reasons.into_iter().for_each(|reason| self.fail(reason));
    }
}

/// Whether a cell moved its bytes in too short a time for a limit.
fn is_too_short(cell: &Cell) -> bool {
    let seconds = cell.bytes as f64 / (cell.gbytes_per_s * 1e9);
    cell.bytes > 0 && seconds < LIMIT_SECONDS_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pace, Route, Workload};

    fn record_with(gbytes_per_s: f64, limit: f64) -> Record {
        let mut cell = Cell { gbytes_per_s, ..Cell::default() };
        cell.set_limit(limit);
        let pace = Some(Pace { gbit_per_s_per_node: 2.0 });
        let workload = Workload { name: "mix-1m".into(), pace, read: Some(cell), ..Workload::default() };
        let route = Route { name: "tcp".into(), workloads: vec![workload], ..Route::default() };
        Record { routes: vec![route], ..Record::default() }
    }

    #[test]
    fn a_result_above_its_limit_fails_the_record_once() {
        let mut record = record_with(0.30, 0.25);
        record.check_limits();
        record.check_limits();
        assert_eq!(record.failed.len(), 1);
        assert!(
            record.failed[0].contains("tcp read of mix-1m (paced) reached 0.300 GB/s"),
            "{}",
            record.failed[0]
        );
    }

    #[test]
    fn a_load_that_is_over_at_once_is_not_compared_with_a_limit() {
        let failed = |bytes| {
            let mut record = record_with(1.4, 1.3);
            record.routes[0].workloads[0].read.as_mut().unwrap().bytes = bytes;
            record.check_limits();
            record.failed.len()
        };
        assert_eq!([failed(2 << 20), failed(60 << 20), failed(80 << 20)], [0, 0, 1]);
    }

    #[test]
    fn a_result_within_the_tolerance_passes() {
        let mut record = record_with(0.2574, 0.25);
        record.check_limits();
        assert!(record.failed.is_empty(), "{:?}", record.failed);
    }

    #[test]
    fn a_calibration_takes_the_fastest_try() {
        let tried = |mode: &str, gbytes_per_s| Try { mode: mode.into(), gbytes_per_s, ..Try::default() };
        let limit = Calibration::of("1 MiB", None, vec![tried("slow", 1.0), tried("fast", 2.0)]);
        assert_eq!((limit.mode.as_str(), limit.gbytes_per_s, limit.tries.len()), ("fast", 2.0, 2));
        assert_eq!(Calibration::of("1 MiB", None, vec![]).gbytes_per_s, 0.0);
    }
}

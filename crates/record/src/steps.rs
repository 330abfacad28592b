//! Step tests: the same workload with more and more clients or operations in flight, and the step
//! up to which adding more pays (the knee).

use serde::{Deserialize, Serialize};

use crate::model::{Half, Route, Step, Workload};
use crate::stats;
use crate::verdict::Measure;

/// A step that gains less than this share of the first step's gain, each per added unit, no longer
/// pays.
pub const GAIN_SHARE_MIN: f64 = 0.5;

/// What a step test adds from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Clients.
    Clients,
    /// Operations in flight for each reader and writer.
    Depth,
}

impl Unit {
    /// The units of a step.
    pub fn of(self, step: &Step) -> u32 {
        match self {
            Unit::Clients => step.clients,
            Unit::Depth => step.depth,
        }
    }
}

/// The steps of one series on one route, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve<'a> {
    /// The name of the series.
    pub series: &'a str,
    /// What is added.
    pub unit: Unit,
    /// The steps.
    pub points: Vec<Point<'a>>,
    /// The index of the knee: the last step that still pays. `None` if all do, because the knee was
    /// not reached, or if there are fewer than two steps.
    pub knee: Option<usize>,
}

/// One step of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point<'a> {
    /// The results of the step.
    pub workload: &'a Workload,
    /// The number of clients or of operations in flight.
    pub units: u32,
    /// The median speed of reads and writes together in GB/s.
    pub gbytes_per_s: f64,
    /// The median operations per second, reads and writes together.
    pub iops: f64,
    /// The speed gained since the previous step, in GB/s for each added unit. The first step's is
    /// its speed for each of its units.
    pub gain: f64,
}

impl Route {
    /// The curves of the step tests on this route in one half. Steps that were not measured are
    /// left out.
    pub fn curves(&self, half: Half) -> Vec<Curve<'_>> {
        let steps = || {
            let measured = self.workloads.iter().filter(|it| it.half() == half && it.skipped.is_none());
            measured.filter_map(|workload| Some((workload, workload.step.as_ref()?)))
        };
        let mut names: Vec<&str> = Vec::new();
        for (_, step) in steps() {
            if !names.contains(&step.series.as_str()) {
                names.push(&step.series);
            }
        }
        let of = |name| steps().filter(move |(_, step)| step.series == name).collect::<Vec<_>>();
        names.into_iter().map(|name| curve(name, &of(name))).collect()
    }
}

fn curve<'a>(series: &'a str, steps: &[(&'a Workload, &'a Step)]) -> Curve<'a> {
    // Records of older builds do not say it.
    let guess = || {
        let first = steps.first().map(|(_, step)| step.clients);
        let same_clients = steps.iter().all(|(_, step)| Some(step.clients) == first);
        if same_clients { Unit::Depth } else { Unit::Clients }
    };
    let unit = steps.iter().find_map(|(_, step)| step.added).unwrap_or_else(guess);
    let mut points: Vec<Point<'a>> =
        steps.iter().map(|(workload, step)| point(workload, unit.of(step))).collect();
    points.sort_by_key(|point| point.units);
    let (mut units, mut speed) = (0, 0.0);
    for point in &mut points {
        let added = point.units.saturating_sub(units);
        point.gain = if added > 0 { (point.gbytes_per_s - speed) / f64::from(added) } else { 0.0 };
        (units, speed) = (point.units, point.gbytes_per_s);
    }
    let gains: Vec<f64> = points.iter().map(|point| point.gain).collect();
    Curve { series, unit, points, knee: knee(&gains) }
}

fn point(workload: &Workload, units: u32) -> Point<'_> {
    let gbytes_per_s = stats::median(&workload.speeds(Measure::Both)).unwrap_or_default();
    let iops = workload.cells().map(|(_, cell)| cell.iops).sum();
    Point { workload, units, gbytes_per_s, iops, gain: 0.0 }
}

/// The index of the last step before the first one that gains less than [`GAIN_SHARE_MIN`] of what
/// the first step gained, each for an added unit. `None` if there is no such step.
pub fn knee(gains: &[f64]) -> Option<usize> {
    let least = GAIN_SHARE_MIN * gains.first()?;
    gains.iter().position(|gain| *gain < least)?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Repeat};

    fn step(clients: u32, depth: u32, speed: f64) -> Workload {
        let repeats = vec![Repeat { gbytes_per_s: speed, ..Repeat::default() }];
        Workload {
            name: format!("read x{clients} depth {depth}"),
            step: Some(Step { series: "read".into(), clients, depth, added: None }),
            read: Some(Cell { repeats, iops: speed * 1000.0, ..Cell::default() }),
            ..Workload::default()
        }
    }

    fn route(workloads: Vec<Workload>) -> Route {
        Route { workloads, ..Route::default() }
    }

    #[test]
    fn the_knee_is_the_last_step_that_gains_half_of_what_the_first_gained() {
        let route = route(vec![step(1, 4, 1.0), step(2, 4, 2.0), step(4, 4, 3.4), step(8, 4, 3.6)]);
        let curves = route.curves(Half::Raw);
        let curve = &curves[0];
        assert_eq!((curves.len(), curve.series, curve.unit), (1, "read", Unit::Clients));
        let gains: Vec<f64> = curve.points.iter().map(|point| (point.gain * 100.0).round()).collect();
        assert_eq!(gains, [100.0, 100.0, 70.0, 5.0]);
        assert_eq!(curve.knee, Some(2));
        assert_eq!(curve.points[2].iops, 3400.0);
    }

    #[test]
    fn depth_is_what_is_added_if_the_clients_are_the_same() {
        let route = route(vec![step(1, 16, 1.1), step(1, 1, 0.5), step(1, 4, 1.0)]);
        let curve = &route.curves(Half::Raw)[0];
        assert_eq!(curve.unit, Unit::Depth);
        assert_eq!(curve.points.iter().map(|point| point.units).collect::<Vec<_>>(), [1, 4, 16]);
        assert_eq!(curve.knee, Some(0), "three more gain a sixth each of what the first gained");
        assert!(route.curves(Half::Paced).is_empty());
    }

    #[test]
    fn a_step_says_what_is_added_however_few_steps_were_measured() {
        let mut one = step(1, 16, 1.1);
        if let Some(step) = &mut one.step {
            step.added = Some(Unit::Clients);
        }
        let route = route(vec![one]);
        let curve = &route.curves(Half::Raw)[0];
        assert_eq!((curve.unit, curve.points[0].units), (Unit::Clients, 1));
    }

    #[test]
    fn a_curve_that_keeps_rising_has_no_knee() {
        assert_eq!(knee(&[1.0, 0.9, 0.8, 0.5]), None);
        assert_eq!(knee(&[1.0]), None);
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&[0.0, 0.0]), None, "nothing moved");
        assert_eq!(knee(&[1.0, -0.2, 1.0]), Some(0), "a later rise is not waited for");
    }

    #[test]
    fn steps_that_were_not_measured_are_left_out() {
        let lost = Workload { skipped: Some("vm3 was lost".into()), read: None, ..step(4, 4, 0.0) };
        let route = route(vec![step(1, 4, 1.0), step(2, 4, 2.0), lost, Workload::default()]);
        let curves = route.curves(Half::Raw);
        assert_eq!((curves.len(), curves[0].points.len(), curves[0].knee), (1, 2, None));
    }
}

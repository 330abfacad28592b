//! Step tests: the speed by the number of clients or of operations in flight, the gain of each
//! step, and the knee.

use record::{
    Half, Record, Route,
    steps::{Curve, Point, Unit},
};

use crate::{
    chart::{self, Chart},
    number,
    view::SMALL_BLOCK_BYTES_MAX,
};

/// The curves of one series in one half, a row for each step of each route.
pub(crate) struct StepTest<'a> {
    /// `mix-1m, raw`
    pub(crate) title: String,
    /// What is added: `clients`, or `operations in flight of each job`.
    pub(crate) added: &'static str,
    pub(crate) rows: Vec<StepRow<'a>>,
    /// Where the knee of each route is, as sentences.
    pub(crate) knees: Vec<String>,
    pub(crate) chart: Option<Chart>,
    /// The labels of each number: paced, simulated.
    pub(crate) labels: Vec<&'static str>,
}

/// One step of one route.
pub(crate) struct StepRow<'a> {
    pub(crate) route: &'a str,
    pub(crate) units: u32,
    pub(crate) speed: String,
    pub(crate) kiops: String,
    /// The speed gained for each added unit.
    pub(crate) gain: String,
    /// That gain over the first step's: `85 %`.
    pub(crate) of_first: String,
    pub(crate) p99: String,
    pub(crate) is_knee: bool,
}

/// All step tests of a record.
pub(crate) fn step_tests(record: &Record) -> Vec<StepTest<'_>> {
    let mut tests = Vec::new();
    for half in [Half::Raw, Half::Paced] {
        let curves: Vec<(&Route, Curve<'_>)> = record
            .routes
            .iter()
            .flat_map(|route| route.curves(half).into_iter().map(move |it| (route, it)))
            .collect();
        let mut series: Vec<&str> = Vec::new();
        for (_, curve) in &curves {
            if !series.contains(&curve.series) {
                series.push(curve.series);
            }
        }
        for name in series {
            let of_series: Vec<&(&Route, Curve<'_>)> =
                curves.iter().filter(|(_, curve)| curve.series == name).collect();
            tests.extend(step_test(record, half, name, &of_series));
        }
    }
    tests
}

fn step_test<'a>(
    record: &Record,
    half: Half,
    series: &str,
    curves: &[&(&'a Route, Curve<'a>)],
) -> Option<StepTest<'a>> {
    // In a record that does not say it, a route with one step says the least.
    let unit = curves.iter().max_by_key(|(_, curve)| curve.points.len())?.1.unit;
    let points = || curves.iter().flat_map(|(_, curve)| &curve.points);
    let shape = |point: &Point<'_>| {
        record.experiment.workloads.iter().find(|shape| shape.name == point.workload.name)
    };
    let is_small = points().filter_map(shape).any(|shape| shape.block_bytes <= SMALL_BLOCK_BYTES_MAX);
    let simulated = points().any(|point| point.workload.simulated.is_some()).then_some("simulated");
    let paced = (half == Half::Paced).then_some("paced");
    Some(StepTest {
        title: format!("{series}, {half}"),
        added: added(unit, true),
        rows: curves.iter().flat_map(|(route, curve)| rows(&route.name, curve)).collect(),
        knees: curves.iter().map(|(route, curve)| knee(&route.name, curve)).collect(),
        chart: chart::steps(added(unit, true), is_small, curves),
        labels: paced.into_iter().chain(simulated).collect(),
    })
}

/// What is added, of one or of several.
pub(crate) fn added(unit: Unit, several: bool) -> &'static str {
    match (unit, several) {
        (Unit::Clients, true) => "clients",
        (Unit::Clients, false) => "client",
        (Unit::Depth, true) => "operations in flight of each job",
        (Unit::Depth, false) => "operation in flight",
    }
}

fn rows<'a>(route: &'a str, curve: &Curve<'a>) -> Vec<StepRow<'a>> {
    let first = curve.points.first().map_or(0.0, |point| point.gain);
    let row = |(index, point): (usize, &Point<'a>)| StepRow {
        route,
        units: point.units,
        speed: number::fine(point.gbytes_per_s),
        kiops: number::kiops(point.iops),
        gain: number::fine(point.gain),
        of_first: match first > 0.0 {
            true => format!("{} %", number::percent(point.gain / first)),
            false => "-".to_owned(),
        },
        p99: {
            let cells = point.workload.cells().map(|(_, cell)| cell.latency_us.p99);
            number::short_durations(&cells.collect::<Vec<_>>())
        },
        is_knee: curve.knee == Some(index),
    };
    curve.points.iter().enumerate().map(row).collect()
}

/// Where the knee of a route is, as a sentence that claims no more than the steps show.
fn knee(route: &str, curve: &Curve<'_>) -> String {
    let speeds = |point: &Point<'_>| format!("{} GB/s", number::fine(point.gbytes_per_s));
    match curve.knee.and_then(|at| curve.points.get(at)) {
        Some(point) => {
            let (several, one) = (added(curve.unit, point.units != 1), added(curve.unit, false));
            format!(
                "{route}: the knee is at {} {several} ({}); after it, one more {one} adds less than half of \
                 what the first step's did",
                point.units,
                speeds(point),
            )
        }
        None if curve.points.len() < 2 => format!("{route}: one step shows no knee"),
        None => {
            let last = curve.points.last();
            let reached = last.map_or_else(String::new, |it| format!(" ({} at {})", speeds(it), it.units));
            format!("{route}: no knee was reached{reached}; more {} may add more", added(curve.unit, true))
        }
    }
}

/// The speed that a chart shows of a step: operations per second in thousands, or GB/s.
pub(crate) fn height(point: &Point<'_>, is_small: bool) -> f64 {
    if is_small { point.iops / 1000.0 } else { point.gbytes_per_s }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn each_route_has_its_steps_its_gains_and_its_knee() {
        let record = sample::steps();
        let tests = step_tests(&record);
        let titles: Vec<&str> = tests.iter().map(|test| test.title.as_str()).collect();
        assert_eq!(titles, ["read-1m, raw"]);
        let tcp: Vec<&StepRow<'_>> = tests[0].rows.iter().filter(|row| row.route == "tcp").collect();
        let gains: Vec<&str> = tcp.iter().map(|row| row.of_first.as_str()).collect();
        assert_eq!(gains, ["100 %", "90 %", "60 %", "5 %"]);
        assert_eq!(tcp.iter().filter(|row| row.is_knee).map(|row| row.units).collect::<Vec<_>>(), [4]);
        assert!(
            tests[0].knees[0].starts_with("tcp: the knee is at 4 clients (3.10 GB/s); after it, one more")
        );
        assert_eq!(
            tests[0].knees[1],
            "tcp-mp: no knee was reached (8.00 GB/s at 8); more clients may add more"
        );
        let chart = tests[0].chart.as_ref().expect("a chart");
        assert_eq!((chart.lines.len(), chart.lines[0].dots.len()), (2, 4));
        assert_eq!(chart.lines[0].dots.iter().filter(|dot| dot.is_knee).count(), 1);
        let labels: Vec<&str> = chart.x_ticks.iter().map(|tick| tick.label.as_str()).collect();
        assert_eq!(labels, ["1", "2", "4", "8"]);
    }

    #[test]
    fn a_record_without_steps_has_none() {
        assert!(step_tests(&sample::record()).is_empty());
        assert!(step_tests(&Record::default()).is_empty());
    }
}

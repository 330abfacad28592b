//! The line charts of the page as inline SVG: latency by percentile, and throughput over time.
//!
//! A chart is numbers and labels that the template places; it needs no script, font or image. Each
//! route has a colour; the line of a write is dashed.

use record::{Cell, Direction, Latency, Route, steps::Curve};

use crate::{number, steps, view::Group};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 34.0;
/// The approximate number of ticks of a linear axis.
const TICKS: f64 = 5.0;
/// At most so many steps of a step test are labelled.
const UNIT_TICKS_MAX: f64 = 14.0;
/// The number of colours in the style sheet.
const COLOURS: usize = 8;
/// The points of a latency curve.
const CURVE_POINTS: u32 = 60;
/// The labelled percentiles.
const PERCENTILES: [f64; 6] = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99];
/// A percentile is drawn only if at least this many calls are above it.
const CALLS_ABOVE_MIN: f64 = 1.0;

/// A chart.
pub(crate) struct Chart {
    pub(crate) heading: &'static str,
    /// A description for screen readers.
    pub(crate) words: String,
    pub(crate) x_name: &'static str,
    pub(crate) y_name: String,
    pub(crate) x_ticks: Vec<Tick>,
    pub(crate) y_ticks: Vec<Tick>,
    pub(crate) lines: Vec<ChartLine>,
}

/// A tick of an axis, with its grid line.
pub(crate) struct Tick {
    pub(crate) at: String,
    pub(crate) label: String,
}

/// The line of one route in one direction, in one or several pieces.
pub(crate) struct ChartLine {
    /// `route, read`
    pub(crate) name: String,
    /// The number of the colour.
    pub(crate) colour: usize,
    pub(crate) is_dashed: bool,
    /// The points of each piece, as SVG's `points`.
    pub(crate) pieces: Vec<String>,
    /// The steps of a step test.
    pub(crate) dots: Vec<Dot>,
}

/// A step on a line.
pub(crate) struct Dot {
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) is_knee: bool,
}

/// A line before it is placed.
struct Raw {
    name: String,
    colour: usize,
    is_dashed: bool,
    pieces: Vec<Vec<(f64, f64)>>,
}

/// The latency of each route by percentile, both axes logarithmic; `None` without latencies.
pub(crate) fn latency(group: &Group<'_>) -> Option<Chart> {
    let raw = raw_lines(group, |cell| vec![curve(cell)]);
    let (least, greatest) = range(&raw, |(_, us)| us)?;
    let last = range(&raw, |(x, _)| x)?.1.max(nines(99.0));
    let (low, high) = ((least.max(0.001)).log10(), greatest.max(0.001).log10());
    // At least half a decade, so that a flat line does not look steep.
    let (low, high) = if high - low < 0.5 { (low - 0.25, high + 0.25) } else { (low, high) };
    let x = |value: f64| place_x(value - nines(50.0), last - nines(50.0));
    let y = |us: f64| place_y(us.max(0.001).log10() - low, high - low);
    let percentiles = PERCENTILES.iter().filter(|percentile| nines(**percentile) <= last + 1e-9);
    Some(Chart {
        heading: "Latency by percentile",
        words: words("latency by percentile", &raw),
        x_name: "percentile of calls",
        y_name: "latency".to_owned(),
        x_ticks: percentiles
            .map(|percentile| Tick { at: place(x(nines(*percentile))), label: percentile.to_string() })
            .collect(),
        y_ticks: decades(low, high)
            .into_iter()
            .map(|us| Tick { at: place(y(us)), label: number::round_duration(us) })
            .collect(),
        lines: raw.into_iter().map(|line| placed(line, x, y)).collect(),
    })
}

/// The throughput of each route over the time of the experiment, a piece for each repeat; `None` if
/// it is unknown when the repeats ran.
pub(crate) fn throughput(group: &Group<'_>) -> Option<Chart> {
    let raw = raw_lines(group, over_time);
    let (first, last) = range(&raw, |(s, _)| s)?;
    let greatest = range(&raw, |(_, speed)| speed)?.1;
    let (x_step, y_step) = (step(last - first), step(greatest));
    let top = (greatest / y_step).ceil().max(1.0) * y_step;
    let from = (first / x_step).floor() * x_step;
    let until = last.max(from + x_step);
    let x = |s: f64| place_x(s - from, until - from);
    let y = |speed: f64| place_y(speed, top);
    Some(Chart {
        heading: "Throughput over time",
        words: words("throughput over time", &raw),
        x_name: "seconds since the experiment began",
        y_name: "GB/s".to_owned(),
        x_ticks: ticks(from, until, x_step)
            .map(|s| Tick { at: place(x(s)), label: trimmed(s, x_step) })
            .collect(),
        y_ticks: ticks(0.0, top, y_step)
            .map(|speed| Tick { at: place(y(speed)), label: trimmed(speed, y_step) })
            .collect(),
        lines: raw.into_iter().map(|line| placed(line, x, y)).collect(),
    })
}

fn raw_lines(group: &Group<'_>, pieces: impl Fn(&Cell) -> Vec<Vec<(f64, f64)>>) -> Vec<Raw> {
    let mut lines = Vec::new();
    for (index, row) in group.rows.iter().enumerate() {
        for (direction, cell) in row.workload.cells() {
            let mut pieces = pieces(cell);
            // A record of others may contain anything.
            pieces.iter_mut().for_each(|piece| piece.retain(|(x, y)| x.is_finite() && y.is_finite()));
            pieces.retain(|piece| !piece.is_empty());
            if !pieces.is_empty() {
                let name = format!("{}, {direction}", row.route.name);
                let is_dashed = direction == Direction::Write;
                lines.push(Raw { name, colour: index % COLOURS, is_dashed, pieces });
            }
        }
    }
    lines
}

/// The number of nines of a percentile, as a position on the axis: 1 for 90, 2 for 99.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// The latency of a cell in us by the position of the percentile: from its histogram, or from the
/// percentiles of the record.
fn curve(cell: &Cell) -> Vec<(f64, f64)> {
    let all = Latency::from_text(&cell.latency_histogram_ns).unwrap_or_default();
    if all.is_empty() {
        let latency = cell.latency_us;
        let known = [(50.0, latency.p50), (90.0, latency.p90), (99.0, latency.p99), (99.9, latency.p99_9)];
        let last = latency.p99_99.map(|us| (99.99, us));
        let known = known.into_iter().chain(last).filter(|(_, us)| *us > 0.0);
        return known.map(|(percentile, us)| (nines(percentile), us)).collect();
    }
    let most = nines(99.99).min((all.count() as f64 / CALLS_ABOVE_MIN).log10()).max(nines(50.0));
    let from = nines(50.0);
    let at = |index: u32| from + (most - from) * f64::from(index) / f64::from(CURVE_POINTS);
    (0..=CURVE_POINTS).map(at).map(|x| (x, all.percentile_us(1.0 - 10_f64.powf(-x)))).collect()
}

/// The speeds of each repeat at the middles of their intervals; of records without intervals, the
/// speed of each repeat as a level line.
fn over_time(cell: &Cell) -> Vec<Vec<(f64, f64)>> {
    if let Some(throughput) = &cell.throughput {
        let interval_s = throughput.interval_ms / 1e3;
        let speed = |bytes: u64| if interval_s > 0.0 { bytes as f64 / 1e9 / interval_s } else { 0.0 };
        let piece = |repeat: &record::RepeatThroughput| {
            let points = repeat.bytes.iter().enumerate();
            points
                .map(|(index, bytes)| (repeat.began_s + (index as f64 + 0.5) * interval_s, speed(*bytes)))
                .collect()
        };
        return throughput.repeats.iter().map(piece).collect();
    }
    let level = |repeat: &record::Repeat| {
        let began_s = repeat.began_s?;
        Some(vec![(began_s, repeat.gbytes_per_s), (began_s + repeat.seconds, repeat.gbytes_per_s)])
    };
    cell.repeats.iter().filter_map(level).collect()
}

fn range(lines: &[Raw], of: impl Fn((f64, f64)) -> f64) -> Option<(f64, f64)> {
    let all = || lines.iter().flat_map(|line| line.pieces.iter().flatten()).map(|point| of(*point));
    all().next()?;
    Some((all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max)))
}

fn place_x(value: f64, whole: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * part(value, whole)
}

fn place_y(value: f64, whole: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part(value, whole)
}

fn part(value: f64, whole: f64) -> f64 {
    let part = value / whole;
    if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
}

fn place(value: f64) -> String {
    format!("{value:.1}")
}

fn placed(line: Raw, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> ChartLine {
    let points = |piece: &Vec<(f64, f64)>| {
        let points = piece.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value)));
        points.collect::<Vec<_>>().join(" ")
    };
    ChartLine {
        name: line.name,
        colour: line.colour,
        is_dashed: line.is_dashed,
        pieces: line.pieces.iter().map(points).collect(),
        dots: Vec::new(),
    }
}

/// The speed of each route by the number of clients or of operations in flight; `None` if nothing
/// was measured. Operations per second are shown of small blocks.
pub(crate) fn steps(x_name: &'static str, is_small: bool, curves: &[&(&Route, Curve<'_>)]) -> Option<Chart> {
    let line = |(index, (route, curve)): (usize, &&(&Route, Curve<'_>))| {
        let points =
            curve.points.iter().map(|point| (f64::from(point.units), steps::height(point, is_small)));
        let pieces = vec![points.filter(|(_, speed)| speed.is_finite()).collect()];
        Raw { name: route.name.clone(), colour: index % COLOURS, is_dashed: false, pieces }
    };
    let raw: Vec<Raw> = curves.iter().enumerate().map(line).collect();
    let last = range(&raw, |(units, _)| units)?.1;
    let greatest = range(&raw, |(_, speed)| speed)?.1;
    let y_step = step(greatest);
    let top = (greatest / y_step).ceil().max(1.0) * y_step;
    let x = |units: f64| place_x(units, last);
    let y = |speed: f64| place_y(speed, top);
    let mut units: Vec<u32> =
        curves.iter().flat_map(|(_, curve)| &curve.points).map(|point| point.units).collect();
    units.sort_unstable();
    units.dedup();
    let knees = curves.iter().map(|(_, curve)| curve.knee);
    let lines = raw.into_iter().zip(knees).map(|(raw, knee)| {
        let dots = raw.pieces.iter().flatten().enumerate();
        let dots = dots
            .map(|(at, (units, speed))| Dot {
                x: place(x(*units)),
                y: place(y(*speed)),
                is_knee: knee == Some(at),
            })
            .collect();
        ChartLine { dots, ..placed(raw, x, y) }
    });
    Some(Chart {
        heading: "Speed by step",
        words: format!("speed by number of {x_name}, the knee in a ring; the table has the same numbers"),
        x_name,
        y_name: if is_small { "kIOPS" } else { "GB/s" }.to_owned(),
        x_ticks: unit_ticks(&units, last)
            .into_iter()
            .map(|at| Tick { at: place(x(f64::from(at))), label: at.to_string() })
            .collect(),
        y_ticks: ticks(0.0, top, y_step)
            .map(|speed| Tick { at: place(y(speed)), label: trimmed(speed, y_step) })
            .collect(),
        lines: lines.collect(),
    })
}

/// The steps that are labelled, without those too near to the one before.
fn unit_ticks(units: &[u32], last: f64) -> Vec<u32> {
    let mut labelled: Vec<u32> = Vec::new();
    for at in units {
        let far = |before: &u32| f64::from(at - before) >= last / UNIT_TICKS_MAX;
        if labelled.last().is_none_or(far) {
            labelled.push(*at);
        }
    }
    labelled
}

fn words(what: &str, lines: &[Raw]) -> String {
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    format!("{what}: {}", names.join("; "))
}

/// A round step for about [`TICKS`] ticks: 1, 2 or 5 times a power of ten.
fn step(most: f64) -> f64 {
    if !(most > 0.0 && most.is_finite()) {
        return 1.0;
    }
    let power = 10_f64.powf((most / TICKS).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= most / TICKS * 0.999).unwrap_or(power * 10.0)
}

fn ticks(from: f64, until: f64, step: f64) -> impl Iterator<Item = f64> {
    (0..=32).map(move |number| from + f64::from(number) * step).take_while(move |at| *at <= until * 1.0001)
}

/// A tick's number, with as many decimals as its step needs.
fn trimmed(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.decimals$}")
}

/// The values 1, 2 and 5 times each power of ten between two logarithms; only the powers if there
/// would be too many.
pub(crate) fn decades(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high - low > 2.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = (low.floor() as i32)..=(high.ceil() as i32);
    let values = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    values.filter(|value| (low - 1e-9..=high + 1e-9).contains(&value.log10())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample, view};

    #[test]
    fn a_latency_curve_reaches_from_the_median_to_the_last_percentile_that_calls_allow() {
        let mut record = sample::record();
        let cell = record.routes[0].workloads[0].read.as_ref().expect("reads");
        let points = curve(cell);
        assert!((points[0].1 - cell.latency_us.p50).abs() <= cell.latency_us.p50 / 100.0, "{points:?}");
        let last = points.last().expect("points");
        assert!((last.0 - 4.0).abs() < 1e-6, "20,000 calls reach 99.99");
        assert!(points.is_sorted_by(|one, other| one.1 <= other.1));
        let cell = record.routes[0].workloads[0].read.as_mut().expect("reads");
        cell.latency_histogram_ns = "1000:100".into();
        assert!((curve(cell).last().expect("points").0 - 2.0).abs() < 1e-6, "100 calls reach 99");
        cell.latency_histogram_ns.clear();
        assert_eq!(curve(cell).len(), 5, "the percentiles of the record");
    }

    #[test]
    fn records_without_intervals_show_a_level_line_for_each_repeat() {
        let mut record = sample::record();
        let cell = record.routes[0].workloads[0].read.as_mut().expect("reads");
        assert!(over_time(cell)[0].len() > 2);
        cell.throughput = None;
        let lines = over_time(cell);
        assert_eq!(lines.len(), cell.repeats.len());
        assert_eq!(lines[0][0].1, lines[0][1].1);
    }

    #[test]
    fn a_chart_has_ticks_with_units_and_a_line_for_each_route_and_direction() {
        let record = sample::record();
        let blocks = view::blocks(&record);
        let group = &blocks[0].groups[0];
        let chart = latency(group).expect("latencies");
        assert_eq!(chart.lines.len(), 4);
        assert!(chart.y_ticks.len() >= 2, "{:?}", chart.y_ticks.len());
        assert!(chart.y_ticks.iter().all(|tick| tick.label.ends_with('s')));
        assert_eq!(chart.x_ticks.last().expect("ticks").label, "99.99");
        let chart = throughput(group).expect("times");
        assert_eq!((chart.lines.len(), chart.y_ticks[0].label.as_str()), (4, "0"));
    }

    #[test]
    fn numbers_that_no_record_of_ours_has_make_no_broken_chart() {
        let mut record = sample::record();
        for cell in record.routes.iter_mut().flat_map(|route| &mut route.workloads) {
            let Some(read) = &mut cell.read else { continue };
            read.latency_histogram_ns = "x".into();
            read.latency_us.p50 = 1e300;
            read.repeats.iter_mut().for_each(|repeat| repeat.began_s = Some(-1e300));
            read.throughput = None;
        }
        for block in view::blocks(&record) {
            for group in &block.groups {
                for chart in [latency(group), throughput(group)].into_iter().flatten() {
                    let all = chart.lines.iter().flat_map(|line| &line.pieces);
                    assert!(all.into_iter().all(|piece| !piece.contains("NaN") && !piece.contains("inf")));
                }
            }
        }
    }
}

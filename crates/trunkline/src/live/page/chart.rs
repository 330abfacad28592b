//! The panels over time: shapes for SVG. All panels have the same axis of time, and each second (or
//! several together) is a column.

use crate::figures;
use metrics::history::{Group, Moved, Point, Range, View};
use std::fmt::Write as _;

/// The width of a panel in the units of its shapes; the browser stretches it.
pub const WIDTH: f64 = 1000.0;
/// The height of a panel in those units.
pub const HEIGHT: f64 = 100.0;
/// The number of colours for groups.
pub const COLOURS: usize = 10;
/// The number of shades of the heat map.
const SHADES: usize = 8;
/// The fewest bands of the heat map, so that a narrow one is still readable.
const BANDS_MIN: usize = 8;

/// One panel.
#[derive(Debug, Default)]
pub struct Panel {
    /// Names the panel in the document.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The same in a sentence with figures, for those who do not see the shapes.
    pub summary: String,
    /// What stands at the axis, from the top to the bottom.
    pub labels: Vec<String>,
    /// Whether the labels name rows, and do not divide the axis.
    pub has_rows: bool,
    /// The shapes.
    pub shapes: Vec<Shape>,
    /// A column for each point.
    pub columns: Vec<Column>,
}

/// A shape of one colour.
#[derive(Debug, Default)]
pub struct Shape {
    /// Its colour, by the name of the style.
    pub class: String,
    /// Its outline.
    pub d: String,
}

/// What a point in time says.
#[derive(Debug)]
pub struct Column {
    /// The end of its last second, in milliseconds since 1970.
    pub end_ms: u64,
    /// Where it begins.
    pub x: f64,
    /// How wide it is.
    pub width: f64,
    /// What it says.
    pub text: String,
}

/// Where the points of a view are on the axis of time.
struct Axis {
    /// The begin and the end of each point.
    columns: Vec<(f64, f64)>,
    ends_ms: Vec<u64>,
}

impl Axis {
    fn new(range: Range, points: &[Point]) -> Self {
        let length = range.until_ms.saturating_sub(range.from_ms).max(1) as f64;
        let x = |ms: u64| {
            let from = (ms.saturating_sub(range.from_ms)) as f64;
            (from / length * WIDTH).clamp(0.0, WIDTH)
        };
        // Between two seconds is no gap, unless one is missing.
        let near = WIDTH / length * 500.0;
        let mut last = f64::NEG_INFINITY;
        let columns = points.iter().map(|point| {
            let begin = x(point.end_ms.saturating_sub(point.ms));
            let begin = if (begin - last).abs() < near { last } else { begin };
            last = x(point.end_ms);
            (begin, last)
        });
        let ends_ms = points.iter().map(|point| point.end_ms).collect();
        Self { columns: columns.collect(), ends_ms }
    }

    fn columns(&self, texts: impl Iterator<Item = String>) -> Vec<Column> {
        let columns = self.columns.iter().zip(&self.ends_ms).zip(texts);
        let column = |(((x, end), end_ms), text): ((&(f64, f64), &u64), String)| Column {
            end_ms: *end_ms,
            x: *x,
            width: end - x,
            text,
        };
        columns.map(column).collect()
    }
}

/// The class of a group's colour.
pub fn colour(number: usize, group: &Group) -> String {
    if group.rest_of > 0 { "rest".to_owned() } else { format!("c{}", number % COLOURS) }
}

/// What a group is called.
pub fn name(group: &Group) -> String {
    match (&group.value, group.rest_of) {
        (_, 1..) => format!("{} others", group.rest_of),
        (Some(value), _) => value.to_string(),
        (None, _) => "(none)".to_owned(),
    }
}

fn per_s(count: u64, point: &Point) -> f64 {
    if point.ms > 0 { count as f64 * 1e3 / point.ms as f64 } else { 0.0 }
}

/// Operations per second, the groups on top of each other.
pub fn operations(view: &View, range: Range) -> Panel {
    let panel = Panel { id: "operations", title: "Operations per second", ..Panel::default() };
    stacked(panel, view, range, |moved| moved.count, figures::number)
}

/// Bytes per second in both directions, the groups on top of each other.
pub fn throughput(view: &View, range: Range) -> Panel {
    let panel = Panel { id: "throughput", title: "Bytes per second, both directions", ..Panel::default() };
    let bytes = |moved: &Moved| moved.received_bytes.saturating_add(moved.sent_bytes);
    stacked(panel, view, range, bytes, figures::bytes_per_s)
}

fn stacked(
    mut panel: Panel,
    view: &View,
    range: Range,
    of: fn(&Moved) -> u64,
    show: fn(f64) -> String,
) -> Panel {
    let axis = Axis::new(range, &view.points);
    let value = |group: &Group, number: usize| {
        let point = view.points.get(number);
        let moved = group.points.get(number).copied().unwrap_or_default();
        point.map_or(0.0, |point| per_s(of(&moved), point))
    };
    let sums: Vec<f64> =
        (0..view.points.len()).map(|n| view.groups.iter().map(|group| value(group, n)).sum()).collect();
    let highest = sums.iter().copied().fold(0.0, f64::max);
    let end = figures::axis_end(highest);
    panel.labels = [end, end / 2.0, 0.0].map(show).into();
    let mut below = vec![0.0; sums.len()];
    for (number, group) in view.groups.iter().enumerate() {
        let mut d = String::new();
        for ((column, below), n) in axis.columns.iter().zip(&mut below).zip(0..) {
            let height = value(group, n) / end * HEIGHT;
            if height > 0.0 {
                rectangle(&mut d, *column, HEIGHT - *below - height, height);
                *below += height;
            }
        }
        panel.shapes.push(Shape { class: colour(number, group), d });
    }
    let now = sums.last().copied().unwrap_or(0.0);
    panel.summary = format!("{}: {} at the end, at most {}", panel.title, show(now), show(highest));
    panel.columns = axis.columns(view.points.iter().enumerate().map(|(n, point)| {
        let mut said = format!("{} UTC: {}", figures::time_of_day(point.end_ms), show(sums[n]));
        for group in view.groups.iter().filter(|group| value(group, n) > 0.0) {
            _ = write!(said, "; {} {}", name(group), show(value(group, n)));
        }
        said
    }));
    panel
}

fn rectangle(d: &mut String, (x, end): (f64, f64), y: f64, height: f64) {
    _ = write!(d, "M{x:.1} {y:.2}H{end:.1}v{height:.2}H{x:.1}z");
}

/// Bands of the heat map: two for each doubling, from a microsecond up.
fn band(ns: u64) -> usize {
    (2.0 * (ns.max(1000) as f64 / 1e3).log2()).floor() as usize
}

/// Where a band begins, in nanoseconds.
fn band_begin(band: f64) -> f64 {
    1e3 * 2_f64.powf(band / 2.0)
}

/// How many operations of each point took how long.
pub fn latency(view: &View, range: Range) -> Panel {
    let axis = Axis::new(range, &view.points);
    let bins = |point: &Point| point.total.latency.bins().to_vec();
    let bands = view.total.latency.bins().iter().map(|(end, _)| band(*end));
    let first = bands.clone().min().unwrap_or(0).saturating_sub(1);
    let last = bands.max().unwrap_or(0).max(first + BANDS_MIN - 1);
    let count = last - first + 1;
    let mut cells: Vec<Vec<f64>> = Vec::new();
    for point in &view.points {
        let mut column = vec![0.0; count];
        for (end, number) in bins(point) {
            if let Some(cell) = column.get_mut(band(end).saturating_sub(first)) {
                *cell += per_s(number, point);
            }
        }
        cells.push(column);
    }
    let most = cells.iter().flatten().copied().fold(0.0, f64::max);
    let mut shades: Vec<Shape> =
        (1..=SHADES).map(|n| Shape { class: format!("h{n}"), d: String::new() }).collect();
    let height = HEIGHT / count as f64;
    for (column, cells) in axis.columns.iter().zip(&cells) {
        for (row, cell) in cells.iter().enumerate().filter(|(_, cell)| **cell > 0.0) {
            // By the logarithm, so that rare slow operations show beside many fast ones.
            let shade = (cell.ln_1p() / most.ln_1p() * SHADES as f64).ceil() as usize;
            if let Some(shape) = shades.get_mut(shade.clamp(1, SHADES) - 1) {
                rectangle(&mut shape.d, *column, HEIGHT - (row + 1) as f64 * height, height);
            }
        }
    }
    let edges = [1.0, 2.0 / 3.0, 1.0 / 3.0, 0.0];
    let edge = |part: f64| band_begin(first as f64 + part * count as f64);
    let total = &view.total.latency;
    let quantile = |part| figures::latency(total.quantile_ns(part));
    Panel {
        id: "latency",
        title: "Latency: the stronger the colour, the more operations",
        summary: format!("Latency: median {}, 99th percentile {}", quantile(0.5), quantile(0.99)),
        labels: edges.map(|part| figures::latency(Some(edge(part) as u64))).into(),
        has_rows: false,
        shapes: shades,
        columns: axis.columns(view.points.iter().map(|point| {
            let latency = &point.total.latency;
            let of = |part| figures::latency(latency.quantile_ns(part));
            let time = figures::time_of_day(point.end_ms);
            let longest = figures::latency(latency.max_ns());
            format!("{time} UTC: median {}, 99th percentile {}, longest {longest}", of(0.5), of(0.99))
        })),
    }
}

/// The states of the paths over time, a row for each.
pub fn path_states(view: &View, range: Range) -> Panel {
    let axis = Axis::new(range, &view.points);
    let height = HEIGHT / view.paths.len().max(1) as f64;
    let mut shapes: Vec<Shape> = Vec::new();
    for (row, path) in view.paths.iter().enumerate() {
        for (column, state) in axis.columns.iter().zip(&path.states) {
            let Some(state) = *state else { continue };
            let place = shapes.iter().position(|shape| shape.class == state).unwrap_or_else(|| {
                shapes.push(Shape { class: state.to_owned(), d: String::new() });
                shapes.len() - 1
            });
            if let Some(shape) = shapes.get_mut(place) {
                rectangle(&mut shape.d, *column, row as f64 * height + height * 0.1, height * 0.8);
            }
        }
    }
    let said = |n: usize| {
        let states = view.paths.iter().filter_map(|path| {
            let state = path.states.get(n).copied().flatten()?;
            Some(format!("{} {state}", path.name))
        });
        states.collect::<Vec<_>>().join("; ")
    };
    let last = view.paths.iter().map(|path| format!("{} {}", path.name, path.last));
    Panel {
        id: "path-states",
        title: "State of the paths",
        summary: format!("State of the paths at the end: {}", last.collect::<Vec<_>>().join(", ")),
        labels: view.paths.iter().map(|path| path.name.to_string()).collect(),
        has_rows: true,
        shapes,
        columns: axis.columns(
            view.points
                .iter()
                .enumerate()
                .map(|(n, point)| format!("{} UTC: {}", figures::time_of_day(point.end_ms), said(n))),
        ),
    }
}

/// The processors that the process used.
pub fn processors(view: &View, range: Range) -> Panel {
    let axis = Axis::new(range, &view.points);
    let highest = view.points.iter().map(|point| point.cpu).fold(0.0, f64::max);
    let end = figures::axis_end(highest);
    let mut d = String::new();
    for (column, point) in axis.columns.iter().zip(&view.points) {
        let height = point.cpu / end * HEIGHT;
        rectangle(&mut d, *column, HEIGHT - height, height);
    }
    Panel {
        id: "processors",
        title: "Processors used by the event loops",
        summary: format!("Processors used: at most {}", figures::number(highest)),
        labels: [end, end / 2.0, 0.0].map(figures::number).into(),
        has_rows: false,
        shapes: vec![Shape { class: "c0".to_owned(), d }],
        columns: axis.columns(view.points.iter().map(|point| {
            format!("{} UTC: {}", figures::time_of_day(point.end_ms), figures::number(point.cpu))
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::Tally;

    fn view() -> (View, Range) {
        let mut latencies = metrics::latency::histogram();
        latencies.record_n(100_000, 9).unwrap();
        latencies.record_n(9_000_000, 1).unwrap();
        let total = Tally { count: 10, latency: metrics::Latency::of(&latencies), ..Tally::default() };
        let point = |end_ms| Point { end_ms, ms: 1000, cpu: 0.5, total: total.clone() };
        let moved = |count| Moved { count, sent_bytes: count * 1000, ..Moved::default() };
        let group = |value: &str, counts: [u64; 2]| Group {
            value: Some(value.into()),
            points: counts.map(moved).into(),
            ..Group::default()
        };
        let view = View {
            points: vec![point(11_000), point(12_000)],
            groups: vec![group("<a>", [6, 0]), group("b", [4, 10])],
            total,
            ..View::default()
        };
        (view, Range { from_ms: 10_000, until_ms: 20_000 })
    }

    #[test]
    fn groups_stand_on_each_other_in_the_columns_of_their_seconds() {
        let (view, range) = view();
        let panel = operations(&view, range);
        assert_eq!(panel.labels, ["10", "5", "0"]);
        assert_eq!(panel.shapes[0].d, "M0.0 40.00H100.0v60.00H0.0z");
        assert_eq!(panel.shapes[1].d, "M0.0 0.00H100.0v40.00H0.0zM100.0 0.00H200.0v100.00H100.0z");
        assert_eq!(panel.columns.len(), 2);
        assert_eq!(panel.columns[0].text, "00:00:11 UTC: 10; <a> 6; b 4");
        assert_eq!(panel.columns[1].text, "00:00:12 UTC: 10; b 10");
        assert_eq!(throughput(&view, range).labels[0], "10.0 kB/s");
    }

    #[test]
    fn the_heat_map_has_a_cell_for_each_latency_and_shades_by_number() {
        let (view, range) = view();
        let panel = latency(&view, range);
        let cells = |class: &str| {
            panel.shapes.iter().find(|shape| shape.class == class).unwrap().d.matches('M').count()
        };
        assert_eq!(cells("h8"), 2, "{panel:?}");
        assert_eq!((1..8).map(|n| cells(&format!("h{n}"))).sum::<usize>(), 2, "{panel:?}");
        assert!(
            panel.summary.contains("median 1") && panel.summary.contains("99th percentile 9"),
            "{panel:?}"
        );
        for ns in [900, 1_000, 100_000, 60_000_000_000] {
            let found = band(ns) as f64;
            assert!(
                band_begin(found) <= (ns.max(1000) as f64) * 1.0001
                    && band_begin(found + 1.0) > ns as f64 * 0.9999
            );
        }
    }

    #[test]
    fn an_empty_view_has_empty_panels() {
        let range = Range { from_ms: 0, until_ms: 0 };
        for draw in [operations, throughput, latency, path_states, processors] {
            let panel = draw(&View::default(), range);
            assert!(panel.columns.is_empty() && panel.shapes.iter().all(|shape| shape.d.is_empty()));
        }
    }
}

//! Latency over time as heat maps: one for each route and direction, all of a group on one scale.
//!
//! A column is an interval, a row a bin of latencies, and the shade is the share of the interval's
//! calls. Runs of equal cells are one line of a path, which keeps the page small.

use record::{Cell, Record, bin_start_us};

use crate::{
    chart::{self, Tick},
    number,
    view::Group,
};

const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 34.0;
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 230.0;
/// The smallest share of an interval's calls of each shade but the lightest.
const SHADES: [f64; 4] = [0.01, 0.05, 0.15, 0.40];
/// More rows or columns than these are not drawn; a record of ours has fewer.
const COLUMNS_MAX: usize = 400;
/// At least this many rows are drawn, so that a narrow range does not look wide.
const ROWS_MIN: usize = 8;
/// More labels of repeats would overlap.
const LABELS_MAX: usize = 8;

/// What the shades mean, from the lightest.
pub(crate) const LEGEND: [&str; 5] = ["under 1 %", "1 to 5 %", "5 to 15 %", "15 to 40 %", "40 % and more"];

/// A heat map.
pub(crate) struct Heat {
    /// `tcp, read`
    pub(crate) heading: String,
    /// A description for screen readers.
    pub(crate) words: String,
    pub(crate) x_ticks: Vec<Tick>,
    pub(crate) y_ticks: Vec<Tick>,
    /// The width of the lines of `shades`, which is the height of a row.
    pub(crate) row_height: String,
    /// The lines of each shade as the data of an SVG path.
    pub(crate) shades: Vec<Shade>,
    /// The same as a table.
    pub(crate) repeats: Vec<RepeatLine>,
}

/// The cells of one shade.
pub(crate) struct Shade {
    pub(crate) number: usize,
    pub(crate) path: String,
}

/// One repeat in words.
pub(crate) struct RepeatLine {
    pub(crate) began: String,
    pub(crate) calls: String,
    /// The ends of the bins of p50, p99 and the slowest call.
    pub(crate) at_most: [String; 3],
}

/// The calls of one interval: bins with their counts.
type Column = Vec<(usize, u64)>;

/// A cell's columns by repeat, with the begin of each.
struct Map {
    heading: String,
    interval_ms: f64,
    repeats: Vec<(f64, Vec<Column>)>,
}

impl Map {
    fn of(heading: String, cell: &Cell) -> Option<Self> {
        let latencies = cell.latency_over_time.as_ref()?;
        let repeats: Vec<(f64, Vec<Column>)> = (latencies.repeats.iter())
            .map(|repeat| Some((repeat.began_s, repeat.counts().ok()?)))
            .collect::<Option<_>>()?;
        let columns: usize = repeats.iter().map(|(_, columns)| columns.len()).sum();
        let map = Self { heading, interval_ms: latencies.interval_ms, repeats };
        let is_drawable = (1..=COLUMNS_MAX).contains(&columns) && map.range().is_some();
        is_drawable.then_some(map)
    }

    fn bins(&self) -> impl Iterator<Item = usize> + '_ {
        self.repeats.iter().flat_map(|(_, columns)| columns).flatten().map(|(bin, _)| *bin)
    }

    /// The lowest and the highest bin.
    fn range(&self) -> Option<(usize, usize)> {
        Some((self.bins().min()?, self.bins().max()?))
    }
}

/// The heat maps of a group; empty if its record has no latencies over time.
pub(crate) fn heat_maps(group: &Group<'_>) -> Vec<Heat> {
    let cells = group.rows.iter().flat_map(|row| {
        row.workload.cells().map(|(direction, cell)| (format!("{}, {direction}", row.route.name), cell))
    });
    let maps: Vec<Map> = cells.filter_map(|(heading, cell)| Map::of(heading, cell)).collect();
    let lows = maps.iter().filter_map(Map::range).map(|(low, _)| low);
    let highs = maps.iter().filter_map(Map::range).map(|(_, high)| high);
    let (Some(low), Some(high)) = (lows.min(), highs.max()) else { return Vec::new() };
    let rows = Rows { low, count: (high - low + 1).max(ROWS_MIN) };
    maps.iter().map(|map| draw(map, rows)).collect()
}

/// Why cells of a group have no heat map, each with the routes: `fio, ours: its jobs end by their
/// sizes`.
pub(crate) fn lacking(record: &Record, group: &Group<'_>) -> Vec<(String, &'static str)> {
    let mut reasons: Vec<(&'static str, Vec<&str>)> = Vec::new();
    for row in &group.rows {
        for (_, cell) in row.workload.cells().filter(|(_, cell)| cell.latency_over_time.is_none()) {
            let by_fio = row.route.access.as_deref().is_some_and(|access| access.contains("by fio"));
            let reason = if record.trunkline_version.starts_with("fio-") {
                "results of fio say how long operations took, and not when"
            } else if cell.first_done_s.is_some() && cell.throughput.is_none() {
                "its jobs end by their sizes, and not after a time"
            } else if by_fio {
                "fio logged no latencies over time, as in older records and with very many jobs"
            } else {
                "the record has no latencies over time, as older ones"
            };
            let name = row.route.name.as_str();
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) if names.contains(&name) => {}
                Some((_, names)) => names.push(name),
                None => reasons.push((reason, vec![name])),
            }
        }
    }
    reasons.into_iter().map(|(reason, names)| (names.join(", "), reason)).collect()
}

/// The rows of a drawing: bins from `low`.
#[derive(Clone, Copy)]
struct Rows {
    low: usize,
    count: usize,
}

impl Rows {
    fn height(self) -> f64 {
        (HEIGHT - TOP - BOTTOM) / self.count as f64
    }

    /// The y of the lower edge of a bin, or of a place within a bin.
    fn edge(self, bin: f64) -> f64 {
        HEIGHT - BOTTOM - (bin - self.low as f64) * self.height()
    }

    fn ticks(self) -> Vec<Tick> {
        let (least, greatest) = (bin_start_us(self.low), bin_start_us(self.low + self.count));
        let places = chart::decades(least.log10(), greatest.log10()).into_iter().filter_map(|us| {
            let bin = (self.low..=self.low + self.count).rfind(|bin| bin_start_us(*bin) <= us * 1.000_001)?;
            let (from, until) = (bin_start_us(bin), bin_start_us(bin + 1));
            Some((us, self.edge(bin as f64 + (us - from) / (until - from))))
        });
        places.map(|(us, y)| Tick { at: format!("{y:.1}"), label: number::round_duration(us) }).collect()
    }
}

fn draw(map: &Map, rows: Rows) -> Heat {
    let columns: usize = map.repeats.iter().map(|(_, columns)| columns.len()).sum();
    // An empty column parts two repeats, between which other routes ran.
    let width = (WIDTH - LEFT - RIGHT) / (columns + map.repeats.len() - 1).max(1) as f64;
    let mut paths = vec![String::new(); SHADES.len() + 1];
    let mut x_ticks = Vec::new();
    let labelled = map.repeats.len().div_ceil(LABELS_MAX).max(1);
    // Repeats that follow each other within two seconds would have the same whole second.
    let is_dense = map.repeats.windows(2).any(|pair| matches!(pair, [one, next] if next.0 - one.0 < 2.0));
    let mut x = LEFT;
    for (index, (began_s, columns)) in map.repeats.iter().enumerate() {
        // Each repeat has its mark, so that the gap before it does not look like a stall.
        let is_labelled = index % labelled == 0;
        let label = if is_labelled { format!("{began_s:.*}", usize::from(is_dense)) } else { String::new() };
        x_ticks.push(Tick { at: format!("{x:.1}"), label });
        lines(&mut paths, columns, x, width, rows);
        x += (columns.len() + 1) as f64 * width;
    }
    let shades = paths.into_iter().enumerate().filter(|(_, path)| !path.is_empty());
    let repeats: Vec<RepeatLine> =
        map.repeats.iter().map(|(began_s, columns)| repeat_line(*began_s, columns)).collect();
    Heat {
        heading: map.heading.clone(),
        words: words(map, rows, columns),
        x_ticks,
        y_ticks: rows.ticks(),
        row_height: format!("{:.2}", rows.height()),
        shades: shades.map(|(number, path)| Shade { number, path }).collect(),
        repeats,
    }
}

/// Adds the cells of one repeat to the paths of their shades, joined along each row.
fn lines(paths: &mut [String], columns: &[Column], left: f64, width: f64, rows: Rows) {
    let shade = |column: &Column, bin: usize| -> Option<usize> {
        let calls = column.iter().find(|(at, _)| *at == bin)?.1;
        let share = calls as f64 / column.iter().map(|(_, calls)| *calls as f64).sum::<f64>().max(1.0);
        (calls > 0).then(|| SHADES.iter().filter(|least| share >= **least).count())
    };
    for bin in rows.low..rows.low + rows.count {
        let y = rows.edge(bin as f64 + 0.5);
        let row: Vec<Option<usize>> = columns.iter().map(|column| shade(column, bin)).collect();
        let mut at = 0;
        for run in row.chunk_by(|one, other| one == other) {
            if let Some(path) = run.first().copied().flatten().and_then(|shade| paths.get_mut(shade)) {
                let (x, length) = (left + at as f64 * width, run.len() as f64 * width);
                path.push_str(&format!("M{x:.1} {y:.1}h{length:.1}"));
            }
            at += run.len();
        }
    }
}

fn words(map: &Map, rows: Rows, columns: usize) -> String {
    let all: Vec<Column> = map.repeats.iter().flat_map(|(_, columns)| columns.clone()).collect();
    let [half, most, slowest] = at_most(&all).unwrap_or_default();
    format!(
        "heat map of latency over time of {}: {columns} intervals of {:.0} ms in {} repeats, {} bins of \
         latency; half of the calls took at most {half}, 99 % at most {most}, the slowest at most {slowest}",
        map.heading,
        map.interval_ms,
        map.repeats.len(),
        rows.count,
    )
}

fn repeat_line(began_s: f64, columns: &[Column]) -> RepeatLine {
    let calls = columns.iter().flatten().fold(0_u64, |sum, (_, calls)| sum.saturating_add(*calls));
    // A repeat in which nothing completed is a line, too.
    let at_most = at_most(columns).unwrap_or_else(|| ["-"; 3].map(str::to_owned));
    RepeatLine { began: number::plain(began_s), calls: number::thousands(calls), at_most }
}

/// The ends of the bins in which the median, the 99th percentile and the slowest call lie.
fn at_most(columns: &[Column]) -> Option<[String; 3]> {
    let mut bins: Vec<(usize, u64)> = columns.iter().flatten().copied().collect();
    bins.sort_unstable();
    let total = bins.iter().map(|(_, calls)| *calls as f64).sum::<f64>();
    let percentile = |share: f64| {
        let mut below = 0.0;
        let reached = bins.iter().find(|(_, calls)| {
            below += *calls as f64;
            below >= total * share
        });
        reached.or(bins.last()).map(|(bin, _)| number::duration(bin_start_us(bin + 1)))
    };
    Some([percentile(0.5)?, percentile(0.99)?, percentile(1.0)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample, view};

    #[test]
    fn each_route_and_direction_has_a_map_and_all_have_one_scale() {
        let record = sample::record();
        let blocks = view::blocks(&record);
        let maps = heat_maps(&blocks[0].groups[0]);
        let headings: Vec<&str> = maps.iter().map(|map| map.heading.as_str()).collect();
        assert_eq!(headings, ["tcp, read", "tcp, write", "tcp-mp, read", "tcp-mp, write"]);
        assert!(maps.iter().all(|map| map.row_height == maps[0].row_height));
        let labels = |map: &Heat| map.y_ticks.iter().map(|tick| tick.label.clone()).collect::<Vec<_>>();
        assert!(maps.iter().all(|map| labels(map) == labels(&maps[0])) && labels(&maps[0]).len() >= 2);
        assert!(maps[0].words.contains("80 intervals of 100 ms in 8 repeats"), "{}", maps[0].words);
        assert_eq!((maps[0].x_ticks.len(), maps[0].repeats.len()), (8, 8));
        assert!(maps.iter().all(|map| map.shades.iter().all(|shade| shade.path.starts_with('M'))));
    }

    #[test]
    fn the_shade_is_the_share_of_the_interval_and_equal_cells_are_one_line() {
        let mut paths = vec![String::new(); 5];
        let columns = vec![vec![(80, 99), (84, 1)], vec![(80, 198), (84, 2)], vec![], vec![(80, 1)]];
        lines(&mut paths, &columns, 0.0, 10.0, Rows { low: 80, count: 8 });
        assert_eq!(paths[4].matches('M').count(), 2, "two columns are one line, the fourth another");
        assert!(paths[4].contains("h20.0") && paths[4].contains("h10.0"), "{}", paths[4]);
        assert_eq!(paths[1].matches('M').count(), 1, "one percent");
        assert!(paths[0].is_empty() && paths[2].is_empty() && paths[3].is_empty());
    }

    #[test]
    fn each_repeat_has_a_mark_and_a_line_even_if_nothing_completed() {
        let mut record = sample::record();
        let cell = record.routes[0].workloads[0].read.as_mut().expect("reads");
        let latencies = cell.latency_over_time.as_mut().expect("latencies");
        let first = latencies.repeats[0].clone();
        latencies.repeats.extend([first.clone(), first]);
        latencies.repeats[1].calls.iter_mut().for_each(String::clear);
        let map = &heat_maps(&view::blocks(&record)[0].groups[0])[0];
        assert_eq!((map.x_ticks.len(), map.repeats.len()), (10, 10));
        assert_eq!(map.x_ticks.iter().filter(|tick| !tick.label.is_empty()).count(), 5);
        assert_eq!((map.repeats[1].calls.as_str(), map.repeats[1].at_most[2].as_str()), ("0", "-"));
    }

    #[test]
    fn percentiles_are_the_ends_of_bins() {
        let columns = vec![vec![(79, 90)], vec![(79, 8), (88, 1), (92, 1)]];
        let found = at_most(&columns).expect("calls");
        assert_eq!(found, ["1.05 ms", "5.24 ms", "10.5 ms"]);
        assert!(at_most(&[]).is_none());
    }

    #[test]
    fn what_has_no_map_is_named_with_the_reason() {
        let said = |change: &dyn Fn(&mut Record)| {
            let mut record = sample::record();
            change(&mut record);
            let found = lacking(&record, &view::blocks(&record)[0].groups[0]);
            found.into_iter().map(|(names, reason)| format!("{names}: {reason}")).collect::<Vec<_>>()
        };
        let without = |record: &mut Record, routes: usize| {
            for workload in record.routes.iter_mut().take(routes).flat_map(|route| &mut route.workloads) {
                for cell in [&mut workload.read, &mut workload.write].into_iter().flatten() {
                    cell.latency_over_time = None;
                    cell.first_done_s = None;
                }
            }
        };
        assert_eq!(said(&|_| {}), [] as [String; 0]);
        let older = "tcp, tcp-mp: the record has no latencies over time, as older ones";
        assert_eq!(said(&|record| without(record, 2)), [older]);
        let of_each = said(&|record| {
            without(record, 2);
            record.routes[0].access = Some("O_DIRECT on ext4, by fio".into());
            let cell = record.routes[1].workloads[0].read.as_mut().expect("reads");
            (cell.first_done_s, cell.throughput) = (Some(1.0), None);
            record.routes[1].workloads[0].write = None;
        });
        assert!(of_each[0].starts_with("tcp: fio logged no latencies over time"), "{of_each:?}");
        assert!(of_each[1].starts_with("tcp-mp: its jobs end by their sizes"), "{of_each:?}");
        assert_eq!(of_each.len(), 2);
        let of_fio = said(&|record| {
            without(record, 1);
            record.trunkline_version = "fio-3.33".into();
        });
        assert_eq!(of_fio, ["tcp: results of fio say how long operations took, and not when"]);
        let mut record = sample::record();
        without(&mut record, 1);
        let page = crate::html(&[record], &["a.json".to_owned()]);
        assert!(
            page.contains("No heat map of tcp: the record has no latencies over time"),
            "the page says it"
        );
    }

    #[test]
    fn broken_and_absent_latencies_have_no_map() {
        let mut record = sample::record();
        for workload in record.routes.iter_mut().flat_map(|route| &mut route.workloads) {
            workload.read.iter_mut().for_each(|cell| cell.latency_over_time = None);
            for latencies in workload.write.iter_mut().filter_map(|cell| cell.latency_over_time.as_mut()) {
                latencies.repeats[0].calls = vec!["<script>:1".into()];
            }
        }
        let blocks = view::blocks(&record);
        assert!(blocks.iter().flat_map(|block| &block.groups).all(|group| heat_maps(group).is_empty()));
    }
}

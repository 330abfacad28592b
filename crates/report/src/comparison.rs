//! Several records side by side: the same route in the same workload and half, record by record.
//!
//! Only equal shapes under equal conditions are compared. Separate runs differ by more than routes
//! do, so the comparison is about the records, and the page warns against reading more into it.

use record::{Cell, Direction, Record, Route, Verdict, stats};

use crate::{
    number,
    view::{self, Block, Group},
};

/// A fixed seed, so that the same records always give the same report.
const SEED: u64 = 1;

/// The cells of one workload, condition and direction.
pub(crate) struct SideBySide {
    pub(crate) title: String,
    /// The labels of each of its numbers: paced, simulated.
    pub(crate) labels: Vec<&'static str>,
    pub(crate) rows: Vec<SideRow>,
}

/// One route in all records.
pub(crate) struct SideRow {
    pub(crate) route: String,
    /// Its options, paths and nodes, which are the same in all records.
    conditions: String,
    /// A cell for each record, in the order of the records.
    pub(crate) cells: Vec<Option<SideCell>>,
}

/// One route in one record.
pub(crate) struct SideCell {
    pub(crate) speed: String,
    /// How it compares with the first record; absent in that one, and if it lacks the cell.
    pub(crate) times: Option<Times>,
}

/// A speed compared with that of the first record.
pub(crate) struct Times {
    pub(crate) verdict: Verdict,
    /// The repeats of the shorter series.
    pairs: usize,
    /// `0.85 times (95 %: 0.83 to 0.87)`
    pub(crate) ratio: String,
}

impl Times {
    /// The verdict in words.
    pub(crate) fn word(&self) -> String {
        match self.verdict {
            Verdict::Faster => "faster".to_owned(),
            Verdict::Slower => "slower".to_owned(),
            Verdict::NoDifference => "no difference shown".to_owned(),
            Verdict::TooFewPairs => {
                format!("too few repeats ({} of {})", self.pairs, stats::PAIRS_FOR_VERDICT_MIN)
            }
        }
    }

    /// The verdict as a class of the style sheet.
    pub(crate) fn class(&self) -> &'static str {
        match self.verdict {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NoDifference | Verdict::TooFewPairs => "same",
        }
    }
}

/// How many speeds of each later record are faster and slower: `after.json: 1 faster, 2 slower, 5
/// without a difference shown`.
pub(crate) fn totals(tables: &[SideBySide], names: &[String]) -> Vec<String> {
    let total = |(at, name): (usize, &String)| {
        let rows = tables.iter().flat_map(|table| &table.rows);
        let times = rows.filter_map(|row| row.cells.get(at)?.as_ref()?.times.as_ref());
        let mut counts = [0; 4];
        for found in times {
            match found.verdict {
                Verdict::Faster => counts[0] += 1,
                Verdict::Slower => counts[1] += 1,
                Verdict::NoDifference => counts[2] += 1,
                Verdict::TooFewPairs => counts[3] += 1,
            }
        }
        let [faster, slower, same, few] = counts;
        let few_of = if few > 0 { format!(", {few} with too few repeats") } else { String::new() };
        (faster + slower + same + few > 0).then(|| {
            format!("{name}: {faster} faster, {slower} slower, {same} without a difference shown{few_of}")
        })
    };
    names.iter().enumerate().filter_map(total).collect()
}

/// The tables of everything that at least two records measured under equal conditions.
pub(crate) fn side_by_side(records: &[Record]) -> Vec<SideBySide> {
    let mut tables: Vec<(SideBySide, Vec<Vec<Option<&Cell>>>)> = Vec::new();
    for (at, record) in records.iter().enumerate() {
        for Found { title, labels, route, cell } in cells(record) {
            // A route of the same name may be another one.
            let conditions = view::route_conditions(route);
            let index = tables.iter().position(|(table, _)| table.title == title).unwrap_or_else(|| {
                tables.push((SideBySide { title, labels, rows: Vec::new() }, Vec::new()));
                tables.len() - 1
            });
            let Some((table, found)) = tables.get_mut(index) else { continue };
            let is_same = |row: &SideRow| row.route == route.name && row.conditions == conditions;
            let row = table.rows.iter().position(is_same).unwrap_or_else(|| {
                table.rows.push(SideRow { route: route.name.clone(), conditions, cells: Vec::new() });
                found.push(vec![None; records.len()]);
                found.len() - 1
            });
            if let Some(place) = found.get_mut(row).and_then(|row| row.get_mut(at)) {
                *place = Some(cell);
            }
        }
    }
    for (table, found) in &mut tables {
        table.rows.iter_mut().zip(found).for_each(|(row, cells)| row.cells = compare(cells));
        table.rows.retain(|row| row.cells.iter().flatten().count() > 1);
    }
    tables.into_iter().map(|(table, _)| table).filter(|table| !table.rows.is_empty()).collect()
}

/// A cell of a record, with its route, and the title and labels of its table.
struct Found<'a> {
    title: String,
    labels: Vec<&'static str>,
    route: &'a Route,
    cell: &'a Cell,
}

/// Every cell of a record.
fn cells(record: &Record) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    for block in view::blocks(record) {
        for group in &block.groups {
            for direction in [Direction::Read, Direction::Write] {
                for row in &group.rows {
                    let Some(cell) = row.workload.cell(direction) else { continue };
                    let title = table_title(&block, group, direction);
                    found.push(Found { title, labels: group.labels(), route: row.route, cell });
                }
            }
        }
    }
    found
}

fn table_title(block: &Block<'_>, group: &Group<'_>, direction: Direction) -> String {
    let condition = group.condition().unwrap_or_else(|| "raw".to_owned());
    let files = block.file_bytes.map(|bytes| format!(", files of {}", number::bytes(bytes)));
    format!("{}{}; {condition}; {direction}", block.shape, files.unwrap_or_default())
}

fn compare(cells: &[Option<&Cell>]) -> Vec<Option<SideCell>> {
    let base = cells.first().copied().flatten();
    let side = |at: usize, cell: &Cell| {
        let times = base.filter(|_| at > 0).and_then(|base| times(cell, base));
        SideCell { speed: number::fine(cell.gbytes_per_s), times }
    };
    cells.iter().enumerate().map(|(at, cell)| cell.map(|cell| side(at, cell))).collect()
}

fn times(cell: &Cell, base: &Cell) -> Option<Times> {
    let ratio = stats::ratio_of_sittings(&cell.speeds(), &base.speeds(), SEED)?;
    let [low, high] = number::interval_of_ratio(ratio.interval_95);
    let (verdict, times) = (Verdict::of(&ratio), number::ratio(ratio.ratio));
    Some(Times { verdict, pairs: ratio.pairs, ratio: format!("{times} times (95 %: {low} to {high})") })
}

/// A property in which the records differ, with its value in each record.
pub(crate) struct Difference {
    pub(crate) name: &'static str,
    pub(crate) values: Vec<String>,
}

/// The choices of the experiment: `window_ms=1000, repeats=8`.
fn options(record: &Record) -> String {
    let each = record.options.iter().map(|(name, value)| format!("{name}={value}"));
    each.collect::<Vec<_>>().join(", ")
}

/// The routes with their options and nodes: `tcp: nconnect=8, 1 path to 1 node`.
fn routes(record: &Record) -> String {
    let each = record.routes.iter().map(|it| format!("{}: {}", it.name, view::route_conditions(it)));
    each.collect::<Vec<_>>().join("; ")
}

/// How the records' origins differ, so that a reader does not attribute the machine's effect to the
/// code.
pub(crate) fn differences(records: &[Record]) -> Vec<Difference> {
    let properties = records.iter().map(|record| {
        let environment = &record.environment;
        [
            ("version", record.trunkline_version.clone()),
            ("commit", record.commit.clone().unwrap_or_default()),
            ("target", record.experiment.target.clone()),
            ("procedure", record.experiment.procedure.to_string()),
            ("options", options(record)),
            ("routes", routes(record)),
            ("kernel", environment.kernel.clone()),
            ("CPU", environment.cpu_model.clone()),
            ("CPUs", environment.cpus.to_string()),
            ("memory", number::bytes(environment.memory_bytes)),
            ("emulated", environment.emulated.clone().unwrap_or_default()),
            ("result", if record.failed.is_empty() { "good".to_owned() } else { "failed".to_owned() }),
        ]
    });
    let mut found: Vec<Difference> = Vec::new();
    for record in properties {
        for (index, (name, value)) in record.into_iter().enumerate() {
            match found.get_mut(index) {
                Some(difference) => difference.values.push(value),
                None => found.push(Difference { name, values: vec![value] }),
            }
        }
    }
    found.retain(|difference| difference.values.iter().any(|value| Some(value) != difference.values.first()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_later_record_is_shown_as_times_the_first() {
        let (first, mut later) = (sample::record(), sample::record());
        later.commit = Some("bc52d7d".into());
        for route in &mut later.routes {
            for cell in route
                .workloads
                .iter_mut()
                .flat_map(|workload| [&mut workload.read, &mut workload.write])
                .flatten()
            {
                cell.gbytes_per_s *= 2.0;
                cell.repeats.iter_mut().for_each(|repeat| repeat.gbytes_per_s *= 2.0);
            }
        }
        let records = [first, later];
        let tables = side_by_side(&records);
        assert_eq!(tables.len(), 5, "read and write, raw and paced, of the mix; read of the random one");
        assert!(tables[0].title.ends_with("depth 16; raw; read"), "{}", tables[0].title);
        let cells: Vec<&SideCell> = tables[0].rows[0].cells.iter().flatten().collect();
        assert!(cells[0].times.is_none());
        assert!(
            cells[1].times.as_ref().is_some_and(|it| it.ratio.starts_with("2.00 times (95 %: 1.9")),
            "{:?}",
            cells[1].times.as_ref().map(|it| &it.ratio)
        );
        assert!(cells[1].times.as_ref().is_some_and(|it| it.word() == "faster"));
        let names = ["before.json".to_owned(), "after.json".to_owned()];
        let said = totals(&tables, &names);
        assert_eq!(said, ["after.json: 10 faster, 0 slower, 0 without a difference shown"]);
        let differing: Vec<&str> = differences(&records).iter().map(|difference| difference.name).collect();
        assert_eq!(differing, ["commit"]);
    }

    #[test]
    fn too_few_repeats_are_no_verdict() {
        let (first, mut later) = (sample::record(), sample::record());
        for workload in later.routes.iter_mut().flat_map(|route| &mut route.workloads) {
            for cell in [&mut workload.read, &mut workload.write].into_iter().flatten() {
                cell.repeats.truncate(4);
                cell.repeats.iter_mut().for_each(|repeat| repeat.gbytes_per_s /= 2.0);
            }
        }
        let tables = side_by_side(&[first, later]);
        let times: Vec<&Times> = (tables.iter().flat_map(|table| &table.rows))
            .filter_map(|row| row.cells[1].as_ref()?.times.as_ref())
            .collect();
        assert_eq!(times.len(), 10);
        assert!(times.iter().all(|it| it.word() == "too few repeats (4 of 5)" && it.class() == "same"));
        let names = ["a".to_owned(), "b".to_owned()];
        let total = "b: 0 faster, 0 slower, 0 without a difference shown, 10 with too few repeats";
        assert_eq!(totals(&tables, &names), [total]);
    }

    #[test]
    fn what_the_first_record_lacks_is_compared_with_nothing() {
        let (mut first, mut later) = (sample::record(), sample::record());
        first.routes.remove(1);
        later.options.insert("mtu".into(), "9000".into());
        let records = [first, later, sample::record()];
        let tables = side_by_side(&records);
        let row = tables[0].rows.iter().find(|row| row.route == "tcp-mp").expect("in two records");
        assert!(row.cells[0].is_none());
        assert!(row.cells.iter().flatten().all(|cell| cell.times.is_none()), "none is the first");
        assert!(tables[0].rows[0].cells[2].as_ref().is_some_and(|cell| cell.times.is_some()));
        let differing: Vec<&str> = differences(&records).iter().map(|difference| difference.name).collect();
        assert_eq!(differing, ["options", "routes"]);
    }

    #[test]
    fn the_same_name_with_other_options_other_nodes_or_other_files_is_not_the_same() {
        let of = |change: fn(&mut Record)| {
            let mut other = sample::record();
            change(&mut other);
            let compared = side_by_side(&[sample::record(), other]);
            compared.iter().flat_map(|table| &table.rows).filter(|row| row.route == "tcp-mp").count()
        };
        let all = of(|_| {});
        assert!(all > 0);
        assert_eq!(of(|other| other.routes[1].options.push_str(",nconnect=16")), 0);
        assert_eq!(of(|other| other.routes[1].paths.truncate(2)), 0);
        // Another address of the server is the same route.
        let renamed = of(|other| {
            let route = &mut other.routes[1];
            route.options = route.options.replace("127.0.0.", "10.0.0.");
            route.paths.iter_mut().for_each(|path| *path = path.replace("127.0.0.", "10.0.0."));
        });
        assert_eq!(renamed, all);
        let files = of(|other| {
            other.experiment.workloads.iter_mut().for_each(|shape| shape.file_bytes = Some(12_345));
        });
        assert_eq!(files, 0);
    }

    #[test]
    fn directories_are_compared_only_if_the_same_engine_made_the_load_in_the_same_way() {
        let accessed = |access: &str| {
            let mut record = sample::record();
            record.routes[1].access = Some(access.to_owned());
            record
        };
        let compared = |first: &str, second: &str| {
            let records = [accessed(first), accessed(second)];
            let tables = side_by_side(&records);
            let rows = tables.iter().flat_map(|table| &table.rows);
            let found = differences(&records);
            let said = found.iter().find(|difference| difference.name == "routes");
            (rows.filter(|row| row.route == "tcp-mp").count() > 0, said.map(|it| it.values.join(" and ")))
        };
        let ours = "O_DIRECT on ext4, by our threads";
        assert_eq!(compared(ours, ours), (true, None));
        assert_eq!(compared(ours, "O_DIRECT on xfs, by our threads, on each client"), (true, None));
        let (is_compared, said) = compared(ours, "O_DIRECT on ext4, by fio");
        let said = said.unwrap();
        assert!(!is_compared && said.contains("by our threads") && said.contains("by fio"), "{said}");
        assert!(!compared(ours, "buffered on ext4, by our threads").0);
    }

    #[test]
    fn other_shapes_and_single_records_are_not_set_side_by_side() {
        assert!(side_by_side(&[sample::record()]).is_empty());
        let mut deeper = sample::record();
        deeper.experiment.workloads.iter_mut().for_each(|shape| shape.depth *= 2);
        assert!(side_by_side(&[sample::record(), deeper]).is_empty());
    }
}

//! The table that `trunkline bench` prints.
//!
//! A block for each workload: a header, the raw rows, then the paced rows, each group followed by
//! its verdicts. Text that does not fit into the requested columns goes below the rows as
//! sentences, so nothing is lost. Plain ASCII, with colour only if the caller asks for it.

mod canvas;
mod checks;
mod clients;
mod published;
mod side_by_side;

use record::{Direction, Record, Route};

pub use self::{checks::checks, published::published, side_by_side::side_by_side};

use self::canvas::{Canvas, Style, width};
use crate::{
    number,
    view::{self, Block, Group, Row},
};

/// For a narrower terminal, lines have this width.
const COLUMNS_MIN: usize = 60;
/// Longer bars show nothing more.
const BAR_MAX: usize = 16;
/// If the bars would be shorter than this, the evidence goes below the rows.
const BAR_BESIDE_EVIDENCE_MIN: usize = 6;
const INDENT: usize = 2;
const GAP: usize = 2;

/// The record as plain text for a terminal of this many columns.
pub fn render(record: &Record, columns: usize) -> String {
    draw(record, Canvas::new(columns.max(COLUMNS_MIN), false))
}

/// The same as [`render`], with ANSI colours.
pub fn render_ansi(record: &Record, columns: usize) -> String {
    draw(record, Canvas::new(columns.max(COLUMNS_MIN), true))
}

fn draw(record: &Record, mut canvas: Canvas) -> String {
    let head = format!("trunkline bench: {}; {}", record.experiment.target, view::machine(record));
    canvas.paragraph(Style::Plain, 0, "", &head);
    let mut told_why_skipped = false;
    for block in view::blocks(record) {
        canvas.end_line();
        canvas.paragraph(Style::Bold, 0, "", &block.title);
        let table = Table::of(&block, record, canvas.columns());
        table.header(&mut canvas);
        for (index, group) in block.groups.iter().enumerate() {
            table.group(&mut canvas, group, index > 0);
            if index == 0 {
                let routes = record.routes.iter();
                let skipped = routes.filter_map(|route| Some((route, route.skipped.as_deref()?)));
                table.skipped(&mut canvas, skipped, told_why_skipped);
                told_why_skipped = true;
            }
            table.skipped(&mut canvas, group.skipped.iter().copied(), false);
            if let Some(access) = group.access() {
                canvas.paragraph(Style::Plain, INDENT, "access: ", &access);
            }
            if let Some(work) = group.rdma_work() {
                canvas.paragraph(Style::Plain, INDENT, "RDMA for a call: ", &work);
            }
            if let Some(failovers) = group.failovers() {
                let gaps = group
                    .longest_gaps()
                    .map(|gaps| format!("; longest time without a completed call: {gaps}"));
                let text = format!("{failovers}{}", gaps.unwrap_or_default());
                canvas.paragraph(Style::Plain, INDENT, "failovers: ", &text);
            }
            if let Some(ports) = group.ports() {
                canvas.paragraph(Style::Plain, INDENT, "RDMA ports: ", &ports);
            }
            if !table.evidence_beside {
                evidence_below(&mut canvas, group);
            }
            clients::below(&mut canvas, group);
            verdicts(&mut canvas, group);
        }
    }
    clients::steps(&mut canvas, record);
    if !told_why_skipped {
        // Nothing was measured, so no block has given the reason.
        canvas.end_line();
        for route in record.routes.iter() {
            let why = route.skipped.as_deref().unwrap_or("nothing was measured");
            canvas.paragraph(Style::Dim, INDENT, &format!("{}: ", route.name), why);
        }
    }
    if !record.failed.is_empty() {
        canvas.end_line();
        canvas.paragraph(Style::Red, 0, "", "FAILED: do not use these numbers");
        record.failed.iter().for_each(|why| canvas.paragraph(Style::Red, INDENT, "- ", why));
    }
    canvas.finish()
}

fn verdicts(canvas: &mut Canvas, group: &Group<'_>) {
    for verdict in &group.verdicts {
        let lead = format!("{}: ", group.half());
        canvas.paragraph(Style::Bold, INDENT, &lead, &view::sentence(verdict));
    }
}

/// The column widths of one block. All groups of the block share them and stand under one header.
struct Table {
    directions: Vec<Direction>,
    shows_iops: bool,
    route: usize,
    /// The width of operations per second, in each direction's column.
    iops: usize,
    /// The width of the speed, without its mark.
    speed: usize,
    /// The width of the widest mark.
    mark: usize,
    bar: usize,
    of_limit: usize,
    /// The width of the latency; 0 if there is no room for it.
    p99: usize,
    share: usize,
    /// Whether the evidence stands beside the stage or below the rows.
    evidence_beside: bool,
    /// Whether marks are words or their first letters.
    marks_are_words: bool,
}

impl Table {
    fn of(block: &Block<'_>, record: &Record, columns: usize) -> Self {
        let rows = || block.groups.iter().flat_map(|group| group.rows.iter().map(move |row| (group, row)));
        let widest = |header: &str, cell: &dyn Fn(&Group<'_>, &Row<'_>) -> String| {
            rows().map(|(group, row)| width(&cell(group, row))).fold(width(header), usize::max)
        };
        let directions = [Direction::Read, Direction::Write];
        let measured = |direction: &Direction| rows().any(|(_, row)| row.workload.cell(*direction).is_some());
        let skipped = (record.routes.iter())
            .filter(|route| route.skipped.is_some() || route.workloads.iter().any(|it| it.skipped.is_some()));
        let mut table = Self {
            directions: directions.into_iter().filter(measured).collect(),
            shows_iops: block.shows_iops,
            route: skipped
                .map(|route| width(&route.name))
                .fold(widest("route", &|_, row| row.route.name.clone()), usize::max),
            iops: "write kIOPS".len(),
            speed: widest("0.00", &|_, row| longest_speed(row)),
            mark: 0,
            bar: 0,
            of_limit: widest("of limit", &|_, row| row.of_limit()),
            p99: 0,
            share: widest("share by node", &|_, row| view::shares(&row.share_by_node())),
            evidence_beside: true,
            marks_are_words: true,
        };
        let stages = widest("binds", &|_, row| row.binds());
        let beside = widest("binds", &|_, row| binds_with_evidence(row));
        // The layouts from the most informative to the most compact. The last one is used even if
        // it does not fit.
        let p99 = widest("p99", &|_, row| row.p99());
        let layouts = [
            (p99, true, true, beside),
            (p99, true, false, beside),
            (p99, false, true, stages),
            (p99, false, false, stages),
            (0, false, false, stages),
        ];
        for (p99, evidence_beside, marks_are_words, binds) in layouts {
            table.p99 = p99;
            table.mark = widest("", &|group, _| mark(group, marks_are_words));
            table.evidence_beside = evidence_beside;
            table.marks_are_words = marks_are_words;
            table.bar = 0;
            let without_bars = table.width_before_binds() + binds;
            let room = columns.saturating_sub(without_bars) / table.directions.len().max(1);
            // The space between a speed and its bar counts as part of the room, as does the space
            // that the heading leaves.
            let free = table.cell().saturating_sub(table.cell_without_bar());
            table.bar = (room + free).saturating_sub(1).min(BAR_MAX);
            let wanted = if evidence_beside || marks_are_words { BAR_BESIDE_EVIDENCE_MIN } else { 0 };
            if without_bars <= columns && table.bar >= wanted {
                break;
            }
        }
        table
    }

    /// The width of one direction's column: operations per second if shown, speed, mark and bar.
    fn cell(&self) -> usize {
        let bar = if self.bar > 0 { self.bar + 1 } else { 0 };
        (self.cell_without_bar() + bar).max(self.heading(Direction::Write).len())
    }

    fn cell_without_bar(&self) -> usize {
        let iops = if self.shows_iops { self.iops + GAP } else { 0 };
        iops + self.speed + self.mark
    }

    /// The latency's column with its gap, or nothing.
    fn p99(&self, text: &str) -> String {
        let width = self.p99;
        if width > 0 { format!("{text:>width$}{:GAP$}", "") } else { String::new() }
    }

    fn heading(&self, direction: Direction) -> String {
        match self.shows_iops {
            true => format!("{:>2$}{:GAP$}GB/s", format!("{direction} kIOPS"), "", self.iops),
            false => format!("{direction} GB/s"),
        }
    }

    fn width_before_binds(&self) -> usize {
        INDENT
            + self.route
            + GAP
            + self.directions.len() * (self.cell() + GAP)
            + self.of_limit
            + GAP
            + self.p99("").len()
            + self.share
            + GAP
    }

    fn header(&self, canvas: &mut Canvas) {
        canvas.put(Style::Dim, &format!("{:INDENT$}{:2$}", "", "route", self.route + GAP));
        for direction in &self.directions {
            canvas.put(Style::Dim, &format!("{:1$}", self.heading(*direction), self.cell() + GAP));
        }
        let (of_limit, share) = (self.of_limit, self.share + GAP);
        canvas.put(
            Style::Dim,
            &format!(
                "{:>of_limit$}{:GAP$}{}{:share$}binds",
                "of limit",
                "",
                self.p99("p99"),
                "share by node"
            ),
        );
        canvas.end_line();
    }

    fn group(&self, canvas: &mut Canvas, group: &Group<'_>, with_gap: bool) {
        if with_gap {
            canvas.end_line();
        }
        if let Some(condition) = group.condition() {
            let marks = mark(group, false);
            let legend = if self.marks_are_words { String::new() } else { format!(" (each marked {marks})") };
            canvas.paragraph(Style::Plain, INDENT, "", &format!("{condition}{legend}"));
        }
        for row in &group.rows {
            self.row(canvas, group, row);
        }
    }

    fn row(&self, canvas: &mut Canvas, group: &Group<'_>, row: &Row<'_>) {
        canvas.put(Style::Plain, &format!("{:INDENT$}{:2$}", "", row.route.name, self.route + GAP));
        for direction in &self.directions {
            let Some(cell) = row.workload.cell(*direction) else {
                canvas.put(Style::Plain, &format!("{:1$}", "-", self.cell() + GAP));
                continue;
            };
            let mark = mark(group, self.marks_are_words);
            let mut text = String::new();
            if self.shows_iops {
                text = format!("{:>1$}{2:GAP$}", number::kiops(cell.iops), self.iops, "");
            }
            let (digits, marks) = (self.speed, self.mark);
            text.push_str(&format!("{:>digits$}{mark:marks$} ", number::plain(cell.gbytes_per_s)));
            canvas.put(Style::Plain, &text);
            let bar = "#".repeat(bar_length(cell.gbytes_per_s, group.fastest(), self.bar));
            let rest = (self.cell() + GAP).saturating_sub(width(&text));
            let style = if *direction == Direction::Read { Style::Blue } else { Style::Yellow };
            canvas.put(style, &format!("{bar:rest$}"));
        }
        let (of_limit, share) = (self.of_limit, self.share + GAP);
        let shares = view::shares(&row.share_by_node());
        let binds = if self.evidence_beside { binds_with_evidence(row) } else { row.binds() };
        canvas.put(
            Style::Plain,
            &format!(
                "{:>of_limit$}{:GAP$}{}{shares:share$}{binds}",
                row.of_limit(),
                "",
                self.p99(&row.p99())
            ),
        );
        canvas.end_line();
    }

    /// The routes that were not measured. A reason is given once; after that it is "as above".
    fn skipped<'a>(
        &self,
        canvas: &mut Canvas,
        skipped: impl Iterator<Item = (&'a Route, &'a str)>,
        reported_all: bool,
    ) {
        let mut reported: Vec<&str> = Vec::new();
        for (route, why) in skipped {
            let lead = format!("{:1$}", route.name, self.route + GAP);
            let is_reported = reported_all || reported.contains(&why);
            let text = if is_reported { "skipped, as above".to_owned() } else { format!("skipped: {why}") };
            canvas.paragraph(Style::Dim, INDENT, &lead, &text);
            reported.push(why);
        }
    }
}

/// The label of each number of a shaped or simulated group: ` paced`, or `p` where space is short.
fn mark(group: &Group<'_>, words: bool) -> String {
    let labels = group.labels();
    match words {
        true => labels.iter().map(|label| format!(" {label}")).collect(),
        false => labels.iter().filter_map(|label| label.chars().next()).collect(),
    }
}

fn longest_speed(row: &Row<'_>) -> String {
    let speeds = row.workload.cells().map(|(_, cell)| number::plain(cell.gbytes_per_s));
    speeds.max_by_key(String::len).unwrap_or_default()
}

fn binds_with_evidence(row: &Row<'_>) -> String {
    match (row.binds(), row.evidence()) {
        (binds, evidence) if evidence.is_empty() => binds,
        (binds, evidence) => format!("{binds}: {evidence}"),
    }
}

/// The length of a bar. A value above 0 has at least one sign, so that slow is not mistaken for
/// absent.
fn bar_length(value: f64, fastest: f64, longest: usize) -> usize {
    if value <= 0.0 || fastest <= 0.0 {
        return 0;
    }
    ((value / fastest * longest as f64).round() as usize).clamp(1, longest.max(1))
}

/// `CPU binds tcp, tcp-mp: both cores at 99 %`, once for all rows with the same evidence.
fn evidence_below(canvas: &mut Canvas, group: &Group<'_>) {
    let mut reported: Vec<(String, String, Vec<&str>)> = Vec::new();
    for row in &group.rows {
        let (binds, evidence) = (row.binds(), row.evidence());
        match reported.iter_mut().find(|(stage, why, _)| *stage == binds && *why == evidence) {
            Some((_, _, routes)) => routes.push(&row.route.name),
            None => reported.push((binds, evidence, vec![&row.route.name])),
        }
    }
    for (binds, evidence, routes) in reported.iter().filter(|(_, evidence, _)| !evidence.is_empty()) {
        let routes = routes.join(", ");
        let sentence = match binds.as_str() {
            "unknown" => format!("what binds {routes} is unknown: {evidence}"),
            binds => format!("{binds} binds {routes}: {evidence}"),
        };
        canvas.paragraph(Style::Plain, INDENT, "", &sentence);
    }
}

#[cfg(test)]
pub(crate) mod tests;

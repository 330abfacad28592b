//! A view as plain text.

use super::view::{Line, PathLine, View};
use crate::table;
use metrics::Rates;
use std::fmt::Write;

/// The columns of [`process`].
pub const PROCESS_COLUMNS: [&str; 10] =
    ["kind", "pid", "ops/s", "in/s", "out/s", "p50", "p99", "CPUs", "up", "what"];

/// A line of the list of processes.
pub fn process(view: &View) -> Vec<String> {
    let process = &view.snapshot.process;
    vec![
        process.kind.name().to_owned(),
        process.pid.to_string(),
        number(view.total.ops_per_s),
        amount(view.total.received_bytes_per_s),
        amount(view.total.sent_bytes_per_s),
        latency(view.total.p50_ns),
        latency(view.total.p99_ns),
        format!("{:.2}", view.cpu),
        duration(view.snapshot.uptime_ms / 1000),
        process.name.clone(),
    ]
}

/// The columns of [`path`].
pub const PATH_COLUMNS: [&str; 11] =
    ["path", "state", "for", "ops/s", "in/s", "out/s", "share", "p50", "p99", "failovers", "worst gap"];

/// The columns of [`operation`].
pub fn operation_columns(view: &View) -> Vec<String> {
    let columns = ["ops/s", "in/s", "out/s", "share", "p50", "p99", "max", "errors"];
    view.by.iter().map(|by| by.name().to_owned()).chain(columns.map(str::to_owned)).collect()
}

/// One process: a line of totals, its operations, and its paths.
pub fn text(view: &View, lines_max: usize) -> String {
    let mut text = head(view);
    text.push('\n');
    if view.lines.is_empty() {
        text.push_str("no operations\n");
    } else {
        let mut rows = vec![operation_columns(view)];
        rows.extend(view.lines.iter().take(lines_max).map(operation));
        lay_out(&mut text, &rows, view.by.len());
        left_out(&mut text, view.lines.len(), lines_max);
    }
    if !view.paths.is_empty() {
        let mut rows = vec![PATH_COLUMNS.map(str::to_owned).to_vec()];
        rows.extend(view.paths.iter().take(lines_max).map(path));
        lay_out(&mut text, &rows, 2);
        left_out(&mut text, view.paths.len(), lines_max);
    }
    text.push('\n');
    text
}

/// The line of totals: `serve 4711  /data  up 5 min: 12000 ops/s, ...`
pub fn head(view: &View) -> String {
    let process = &view.snapshot.process;
    let Rates { ops_per_s, received_bytes_per_s, sent_bytes_per_s, .. } = view.total;
    format!(
        "{} {}  {}  up {}: {} ops/s, {}/s in, {}/s out, p50 {}, p99 {}, {:.2} CPUs, over {:.1} s",
        process.kind.name(),
        process.pid,
        process.name,
        duration(view.snapshot.uptime_ms / 1000),
        number(ops_per_s),
        amount(received_bytes_per_s),
        amount(sent_bytes_per_s),
        latency(view.total.p50_ns),
        latency(view.total.p99_ns),
        view.cpu,
        view.seconds,
    )
}

fn left_out(text: &mut String, lines: usize, lines_max: usize) {
    if let Some(more) = lines.checked_sub(lines_max).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more; --lines {lines} shows them");
    }
}

/// A line of the table of operations.
pub fn operation(line: &Line) -> Vec<String> {
    let mut cells = line.names.clone();
    cells.extend(rates(&line.rates, line.share));
    cells.push(latency(line.rates.max_ns));
    cells.push(percent(line.rates.errors));
    cells
}

/// A line of the table of paths.
pub fn path(line: &PathLine) -> Vec<String> {
    let now = &line.activity.now;
    let mut cells = vec![now.name.clone(), now.state.clone(), duration(now.since_ms / 1000)];
    cells.extend(rates(&line.rates, line.share));
    cells.push(now.failovers.to_string());
    cells.push(format!("{} ms", now.gap_worst_ms));
    cells
}

fn rates(rates: &Rates, share: f64) -> [String; 6] {
    [
        number(rates.ops_per_s),
        amount(rates.received_bytes_per_s),
        amount(rates.sent_bytes_per_s),
        percent(share),
        latency(rates.p50_ns),
        latency(rates.p99_ns),
    ]
}

/// Operations per second: whole numbers from 100 on.
pub fn number(value: f64) -> String {
    if value >= 100.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Bytes per second, without the "/s".
pub fn amount(bytes: f64) -> String {
    table::bytes(bytes as u64)
}

fn percent(part: f64) -> String {
    // What is there must not look like nothing.
    if part > 0.0 && part < 0.01 { "<1 %".to_owned() } else { format!("{:.0} %", part * 100.0) }
}

/// A latency in the unit that fits: `85 us`, `1.2 ms`, `3.4 s`.
pub fn latency(ns: Option<u64>) -> String {
    let Some(ns) = ns else { return "-".to_owned() };
    let (value, unit) = match ns {
        0..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    if value >= 100.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// A duration in its largest unit: `59 s`, `12 min`, `3 h`, `4 d`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Columns of equal width; the first `words` are aligned to the left.
fn lay_out(text: &mut String, rows: &[Vec<String>], words: usize) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < words { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "  {}", line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::example;
    use super::super::view::{Order, View};
    use super::*;
    use metrics::Interval;

    #[test]
    fn a_process_is_a_line_of_totals_and_a_table() {
        let example = example();
        let view = View::new(&example, &Interval::since_start(&example), &[], &[], Order::Ops);
        let text = text(&view, 1);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].starts_with("serve 7  /a") && lines[0].contains("470 ops/s, 0 B/s in, 20.97 MB/s out")
        );
        assert_eq!(lines[1], "  node   operation  ops/s  in/s  out/s  share  p50  p99  max  errors");
        assert_eq!(lines[2], "  node2  GETATTR      450   0 B    0 B    0 %    -    -    -     0 %");
        assert_eq!(lines[3], "and 1 more; --lines 2 shows them");
    }

    #[test]
    fn latencies_and_durations_have_the_unit_that_fits() {
        assert_eq!(latency(Some(85_400)), "85.4 us");
        assert_eq!(latency(Some(652_739_000)), "653 ms");
        assert_eq!(latency(Some(3_400_000_000)), "3.4 s");
        assert_eq!(latency(None), "-");
        let durations = [59, 720, 10_800, 345_600].map(duration);
        assert_eq!(durations, ["59 s", "12 min", "3 h", "4 d"]);
    }
}

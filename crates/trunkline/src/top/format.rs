//! A view as plain text.

use super::view::{Line, PathLine, View};
use crate::figures::{bytes, duration, latency, number, percent};
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
        bytes(view.total.received_bytes_per_s),
        bytes(view.total.sent_bytes_per_s),
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
    if view.snapshot.silent_ms > 0 {
        let _ = write!(text, "; a loop has not answered for {}", duration(view.snapshot.silent_ms / 1000));
    }
    if let Some(delegations) = delegations(view) {
        let _ = write!(text, "; {delegations}");
    }
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

/// What a server has delegated to a mount: `12 files delegated, 3 recalled`.
pub fn delegations(view: &View) -> Option<String> {
    let value = |name: &str| {
        let found = view.snapshot.gauges.iter().find(|gauge| gauge.name == name);
        found.map_or(0.0, |gauge| gauge.value)
    };
    let (held, recalled) = (value("delegations"), value("delegations_recalled_total"));
    (held > 0.0 || recalled > 0.0).then(|| format!("{held} files delegated, {recalled} recalled"))
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
        bytes(received_bytes_per_s),
        bytes(sent_bytes_per_s),
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
        bytes(rates.received_bytes_per_s),
        bytes(rates.sent_bytes_per_s),
        percent(share),
        latency(rates.p50_ns),
        latency(rates.p99_ns),
    ]
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
            lines[0].starts_with("serve 7  /a") && lines[0].contains("470 ops/s, 0 B/s in, 21.0 MB/s out")
        );
        assert_eq!(lines[1], "  node   operation  ops/s  in/s  out/s  share  p50  p99  max  errors");
        assert_eq!(lines[2], "  node2  GETATTR      450   0 B    0 B    0 %    -    -    -     0 %");
        assert_eq!(lines[3], "and 1 more; --lines 2 shows them");
    }

    #[test]
    fn a_mount_with_delegations_says_so() {
        let mut example = example();
        let delegated = |example: &metrics::Snapshot| {
            delegations(&View::new(example, &Interval::since_start(example), &[], &[], Order::Ops))
        };
        assert_eq!(delegated(&example), None);
        example.gauges.push(metrics::Gauge::new("delegations", "", 12.0));
        example.gauges.push(metrics::Gauge::new("delegations_recalled_total", "", 3.0));
        assert_eq!(delegated(&example).as_deref(), Some("12 files delegated, 3 recalled"));
    }
}

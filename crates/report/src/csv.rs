//! Records as comma-separated values (RFC 4180): a line for each cell and each skipped route, for a
//! spreadsheet or a script. Numbers are as exact as in the record; absent values are empty.
//!
//! A spreadsheet treats text that begins like a formula as one, so such text from a record gets an
//! apostrophe in front, which spreadsheets do not show.

use record::{Cell, Direction, Pattern, Record, Route, Shape, Workload};

/// The columns that describe a cell's record, workload and route.
const COLUMNS_BEFORE: [&str; 19] = [
    "record",
    "made_at",
    "trunkline_version",
    "commit",
    "experiment",
    "failed",
    "workload",
    "pattern",
    "block_bytes",
    "depth",
    "readers",
    "writers",
    "mixed",
    "rate_ops_per_s",
    "half",
    "pace_gbit_per_s_per_node",
    "simulated",
    "route",
    "skipped",
];

/// The columns of the cell itself.
const COLUMNS_OF_CELL: [&str; 31] = [
    "direction",
    "gbytes_per_s",
    "low_95",
    "high_95",
    "iops",
    "p50_us",
    "p90_us",
    "p99_us",
    "p99_9_us",
    "p99_99_us",
    "max_us",
    "mean_us",
    "limit_gbytes_per_s",
    "limit_share",
    "machine_limit_gbytes_per_s",
    "machine_limit_share",
    "binds",
    "evidence",
    "share_by_node",
    "share_by_path",
    "jain_by_node",
    "client_cpu_us_per_op",
    "server_cpu_us_per_op",
    "client_cpu_ns_per_byte",
    "server_cpu_ns_per_byte",
    "ops",
    "bytes",
    "repeats",
    "steady",
    "longest_gap_ms",
    "wrong_blocks",
];

/// The records as comma-separated values with one header, numbered from 1 in their order.
pub fn csv(records: &[Record]) -> String {
    let mut out = String::new();
    line(&mut out, COLUMNS_BEFORE.into_iter().chain(COLUMNS_OF_CELL).map(str::to_owned));
    for (index, record) in records.iter().enumerate() {
        for route in &record.routes {
            if route.skipped.is_some() {
                let before = before(index, record, route, None);
                line(&mut out, before.into_iter().chain(COLUMNS_OF_CELL.map(|_| String::new())));
            }
            for workload in &route.workloads {
                if workload.skipped.is_some() {
                    let before = before(index, record, route, Some(workload));
                    line(&mut out, before.into_iter().chain(COLUMNS_OF_CELL.map(|_| String::new())));
                }
                for (direction, cell) in workload.cells() {
                    let before = before(index, record, route, Some(workload));
                    line(&mut out, before.into_iter().chain(of_cell(workload, direction, cell)));
                }
            }
        }
    }
    out
}

fn before(index: usize, record: &Record, route: &Route, workload: Option<&Workload>) -> [String; 19] {
    let name = workload.map_or("", |workload| workload.name.as_str());
    let shape = record.experiment.workloads.iter().find(|shape| shape.name == name);
    let of_shape = |of: fn(&Shape) -> String| shape.map_or_else(String::new, of);
    [
        (index + 1).to_string(),
        text(&record.made_at),
        text(&record.trunkline_version),
        optional_text(record.commit.as_deref()),
        text(&record.experiment.name),
        text(&record.failed.join("; ")),
        text(name),
        of_shape(|shape| match shape.pattern {
            Pattern::Sequential => "sequential".to_owned(),
            Pattern::Random => "random".to_owned(),
        }),
        of_shape(|shape| shape.block_bytes.to_string()),
        of_shape(|shape| shape.depth.to_string()),
        of_shape(|shape| shape.readers.to_string()),
        of_shape(|shape| shape.writers.to_string()),
        of_shape(|shape| shape.mixed.to_string()),
        of_shape(|shape| optional(shape.rate_ops_per_s)),
        workload.map_or_else(String::new, |workload| workload.half().to_string()),
        optional(workload.and_then(|workload| Some(workload.pace?.gbit_per_s_per_node))),
        optional_text(workload.and_then(|workload| workload.simulated.as_deref())),
        text(&route.name),
        optional_text(workload.and_then(|workload| workload.skipped.as_deref()).or(route.skipped.as_deref())),
    ]
}

fn of_cell(workload: &Workload, direction: Direction, cell: &Cell) -> [String; 31] {
    let [low, high] = cell.interval_95;
    let latency = &cell.latency_us;
    [
        direction.to_string(),
        cell.gbytes_per_s.to_string(),
        low.to_string(),
        high.to_string(),
        cell.iops.to_string(),
        latency.p50.to_string(),
        latency.p90.to_string(),
        latency.p99.to_string(),
        latency.p99_9.to_string(),
        optional(latency.p99_99),
        latency.max.to_string(),
        optional(latency.mean),
        optional(cell.limit_gbytes_per_s),
        optional(cell.limit_share),
        optional(cell.machine_limit_gbytes_per_s),
        optional(cell.machine_limit_share),
        text(cell.binding.stage.label()),
        text(&cell.binding.evidence),
        shares(&cell.share_by_node),
        shares(&cell.share_by_path),
        optional(cell.jain_by_node),
        cell.cpu_us_per_op.client.to_string(),
        optional(cell.cpu_us_per_op.server),
        cell.cpu_ns_per_byte.client.to_string(),
        optional(cell.cpu_ns_per_byte.server),
        cell.ops.to_string(),
        cell.bytes.to_string(),
        cell.repeats.len().to_string(),
        cell.steady.map_or_else(String::new, |steady| steady.to_string()),
        optional(workload.longest_gap_ms),
        workload.verified.map_or_else(String::new, |verified| verified.wrong.to_string()),
    ]
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn optional_text(value: Option<&str>) -> String {
    value.map_or_else(String::new, text)
}

/// Fractions in one field, separated by spaces.
fn shares(shares: &[f64]) -> String {
    shares.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
}

/// Text from a record, made harmless: it is not a formula, and it has no control characters, which
/// could end the line for a simple reader.
fn text(text: &str) -> String {
    let plain: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    if plain.starts_with(['=', '+', '-', '@']) { format!("'{plain}") } else { plain }
}

// RFC 4180 s2: fields with commas or quotes are quoted, quotes doubled, lines end with CR LF.
fn line(out: &mut String, fields: impl Iterator<Item = String>) {
    for (index, field) in fields.enumerate() {
        if index > 0 {
            out.push(',');
        }
        if field.contains([',', '"', ' ']) {
            out.push_str(&format!("\"{}\"", field.replace('"', "\"\"")));
        } else {
            out.push_str(&field);
        }
    }
    out.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// Splits text as an RFC 4180 reader does.
    fn parse(text: &str) -> Vec<Vec<String>> {
        let (mut lines, mut fields, mut field) = (Vec::new(), Vec::new(), String::new());
        let (mut quoted, mut characters) = (false, text.chars().peekable());
        while let Some(character) = characters.next() {
            match (quoted, character) {
                (true, '"') if characters.peek() == Some(&'"') => field.extend(characters.next()),
                (_, '"') => quoted = !quoted,
                (false, ',') => fields.push(std::mem::take(&mut field)),
                (false, '\r') => assert_eq!(characters.peek(), Some(&'\n')),
                (false, '\n') => {
                    fields.push(std::mem::take(&mut field));
                    lines.push(std::mem::take(&mut fields));
                }
                (_, other) => field.push(other),
            }
        }
        assert!(!quoted && field.is_empty() && fields.is_empty(), "the last line ends");
        lines
    }

    fn value<'a>(lines: &'a [Vec<String>], line: usize, column: &str) -> &'a str {
        let at = lines[0].iter().position(|name| name == column).expect("a column of this name");
        &lines[line][at]
    }

    #[test]
    fn each_cell_and_each_skipped_route_has_a_line_that_says_what_the_record_says() {
        let record = sample::record();
        let lines = parse(&csv(&[record.clone(), sample::record()]));
        let cells = record.routes.iter().flat_map(|route| &route.workloads).flat_map(Workload::cells).count();
        let skipped = record.routes.iter().filter(|route| route.skipped.is_some()).count();
        assert_eq!(lines.len(), 1 + 2 * (cells + skipped));
        assert!(lines.iter().all(|line| line.len() == COLUMNS_BEFORE.len() + COLUMNS_OF_CELL.len()));
        let cell = record.routes[0].workloads[0].read.as_ref().unwrap();
        assert_eq!(value(&lines, 1, "gbytes_per_s").parse(), Ok(cell.gbytes_per_s));
        assert_eq!(value(&lines, 1, "p99_9_us").parse(), Ok(cell.latency_us.p99_9));
        assert_eq!(value(&lines, 1, "share_by_node"), "1 0 0 0");
        assert_eq!((value(&lines, 1, "record"), value(&lines, 1, "half")), ("1", "raw"));
        assert_eq!((value(&lines, 1, "route"), value(&lines, 1, "direction")), ("tcp", "read"));
        let last = lines.len() - 1;
        assert_eq!((value(&lines, last, "record"), value(&lines, last, "route")), ("2", "rdma-mp"));
        assert!(value(&lines, last, "skipped").starts_with("no RDMA device here; `trunkline lab vm"));
        assert_eq!(value(&lines, last, "gbytes_per_s"), "");
    }

    #[test]
    fn text_from_a_record_stays_text() {
        let mut hostile = sample::hostile();
        hostile.experiment.name = "=HYPERLINK(\"http://example.net\",\"a, b\")\r\n".into();
        hostile.routes[0].name = "@SUM(1)".into();
        let lines = parse(&csv(&[hostile]));
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
        assert_eq!(value(&lines, 1, "experiment"), "'=HYPERLINK(\"http://example.net\",\"a, b\")  ");
        assert_eq!(value(&lines, 1, "route"), "'@SUM(1)");
        assert!(lines.iter().flatten().all(|field| !field.starts_with(['=', '+', '-', '@'])));
        assert!(lines.iter().flatten().all(|field| !field.contains(char::is_control)));
    }

    #[test]
    fn no_record_gives_the_header_alone() {
        assert_eq!(parse(&csv(&[])).len(), 1);
        assert_eq!(parse(&csv(&[Record::default()])).len(), 1);
    }
}

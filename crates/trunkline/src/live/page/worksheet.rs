//! A sheet as a file: HTML that needs nothing else, CSV with a line for each column and group, or
//! JSON.

use super::chart::{self, Panel};
use super::{COLUMNS, Line, Sheet, Time, render};
use crate::figures;
use askama::Template;
use metrics::history::{Moved, Point};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The form of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Html,
    /// For spreadsheets.
    Csv,
    /// For programs.
    Json,
}

impl Format {
    /// The format of this name; HTML if none is asked for.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn of(name: Option<&str>) -> Result<Self, String> {
        match name {
            None | Some("html") => Ok(Self::Html),
            Some("csv") => Ok(Self::Csv),
            Some("json") => Ok(Self::Json),
            Some(other) => Err(format!("format: `{other}` is none of html, csv and json")),
        }
    }

    /// The ending of the file's name.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }

    /// The type of the content.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Json => "application/json",
        }
    }
}

/// The name of the file: `trunkline-serve-4711-20261126T041842Z.csv`.
pub fn file_name(sheet: &Sheet, format: Format) -> String {
    let time = figures::date_time(sheet.range.until_ms).replace(['-', ':'], "");
    format!("trunkline-{}-{time}.{}", sheet.process.title.replace(' ', "-"), format.ending())
}

/// The content of the file.
pub fn content(sheet: &Sheet, format: Format) -> String {
    match format {
        Format::Html => html(sheet),
        Format::Csv => csv(sheet),
        Format::Json => json(sheet).to_string(),
    }
}

#[derive(Template)]
#[template(path = "live/worksheet.html")]
struct WorksheetTemplate<'a> {
    sheet: &'a Sheet,
    style: &'static str,
    conditions: String,
    from: Time,
    until: Time,
    panels: Vec<Panel>,
    times: Vec<Time>,
    lines: Vec<Line>,
    all: Line,
    columns: [&'static str; 8],
    picture: String,
}

fn html(sheet: &Sheet) -> String {
    let (lines, all) = sheet.lines();
    render(&WorksheetTemplate {
        sheet,
        style: super::STYLE,
        conditions: conditions(sheet),
        from: Time::of(sheet.range.from_ms),
        until: Time::of(sheet.range.until_ms),
        panels: sheet.panels(),
        times: sheet.times(),
        lines,
        all,
        columns: COLUMNS,
        picture: super::picture(&sheet.picture),
    })
}

/// Which operations are shown, in words.
fn conditions(sheet: &Sheet) -> String {
    let conditions = &sheet.request.conditions;
    let words = conditions
        .iter()
        .map(|(dimension, value)| format!("{dimension} {}", value.as_deref().unwrap_or("(none)")));
    let words: Vec<_> = words.collect();
    if words.is_empty() { "all operations".to_owned() } else { words.join(", ") }
}

/// What one line of the CSV file says about a group in a column.
struct Row<'a> {
    point: &'a Point,
    group: &'a str,
    moved: Moved,
    latencies: [Option<u64>; 3],
}

fn csv(sheet: &Sheet) -> String {
    let mut csv = format!(
        "end,end_unix_ms,seconds,{},ops_per_s,errors_per_s,received_bytes_per_s,sent_bytes_per_s,p50_ns,p99_ns,max_ns\n",
        sheet.table_by()
    );
    for (number, point) in sheet.shown().points.iter().enumerate() {
        for group in &sheet.shown().groups {
            let moved = group.points.get(number).copied().unwrap_or_default();
            let name = chart::name(group);
            line(&mut csv, &Row { point, group: &name, moved, latencies: [None; 3] });
        }
        let total = &point.total;
        let moved = Moved {
            count: total.count,
            errors: total.errors,
            received_bytes: total.received_bytes,
            sent_bytes: total.sent_bytes,
        };
        let latency = &total.latency;
        let latencies = [latency.quantile_ns(0.5), latency.quantile_ns(0.99), latency.max_ns()];
        line(&mut csv, &Row { point, group: "all", moved, latencies });
    }
    csv
}

fn line(csv: &mut String, row: &Row<'_>) {
    let Row { point, moved, .. } = row;
    let seconds = point.ms as f64 / 1e3;
    let (end, name) = (figures::date_time(point.end_ms), field(row.group));
    _ = write!(csv, "{end},{},{seconds:.3},{name}", point.end_ms);
    for count in [moved.count, moved.errors, moved.received_bytes, moved.sent_bytes] {
        _ = write!(csv, ",{:.3}", if point.ms > 0 { count as f64 / seconds } else { 0.0 });
    }
    for ns in row.latencies {
        csv.push(',');
        if let Some(ns) = ns {
            _ = write!(csv, "{ns}");
        }
    }
    csv.push('\n');
}

/// A text as a field. Spreadsheets take a text that begins with certain characters for a formula.
fn field(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// The same as values; see docs/MONITORING.md.
pub fn json(sheet: &Sheet) -> Value {
    let view = sheet.shown();
    let conditions = sheet.request.conditions.iter();
    let groups = view.groups.iter().map(|group| {
        let each = |of: fn(&Moved) -> u64| group.points.iter().map(of).collect::<Vec<_>>();
        json!({
            "value": group.value, "others": group.rest_of, "total": group.total,
            "count": each(|moved| moved.count), "errors": each(|moved| moved.errors),
            "received_bytes": each(|moved| moved.received_bytes),
            "sent_bytes": each(|moved| moved.sent_bytes),
        })
    });
    let points = view.points.iter().map(|point| {
        json!({"end_unix_ms": point.end_ms, "ms": point.ms, "cpu": point.cpu, "latency": point.total.latency})
    });
    let paths = sheet.view.paths.iter().map(
        |path| json!({"name": *path.name, "node": *path.node, "state": path.last, "states": path.states}),
    );
    json!({
        "process": {"title": sheet.process.title, "name": sheet.process.name},
        "from_unix_ms": sheet.range.from_ms,
        "until_unix_ms": sheet.range.until_ms,
        "oldest_unix_ms": sheet.all.from_ms,
        "by": sheet.table_by(),
        "where": conditions.map(|(dimension, value)| json!({"dimension": dimension, "value": value}))
            .collect::<Vec<_>>(),
        "dimensions": sheet.dimensions,
        "folded": view.is_folded,
        "points": points.collect::<Vec<_>>(),
        "groups": groups.collect::<Vec<_>>(),
        "paths": paths.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_and_are_no_formulas() {
        for (text, written) in [
            ("node1", "node1"),
            ("a,b", "\"a,b\""),
            ("a\"b\n", "\"a\"\"b\n\""),
            ("=1+1", "'=1+1"),
            ("@x,y", "\"'@x,y\""),
        ] {
            assert_eq!(field(text), written);
        }
    }

    #[test]
    fn formats_have_names() {
        assert_eq!(Format::of(None), Ok(Format::Html));
        assert_eq!(Format::of(Some("csv")), Ok(Format::Csv));
        assert!(Format::of(Some("pdf")).is_err_and(|error| error.contains("`pdf` is none of")));
    }
}

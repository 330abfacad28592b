//! The HTML page: one file that needs no network.
//!
//! The template escapes every text. In case one gets through, a content security policy forbids
//! everything except the page's own style.

use askama::Template;
use record::{Cell, Direction, Record, Route, Verdict};

use crate::{
    chart::{self, Chart},
    comparison::{self, Difference, SideBySide},
    explain::{TERMS, Term},
    number,
    plot::{self, Bar, Column},
    view::{self, Block, Group},
};

/// A mark near the start of each page, by which a page is known as written by this crate.
pub const PAGE_MARK: &str = r#"<meta name="generator" content="trunkline report">"#;

/// The records as one self-contained HTML page; several are compared side by side, by their
/// `names`.
pub fn html(records: &[Record], names: &[String]) -> String {
    let page = Page {
        mark: PAGE_MARK,
        title: records.first().map_or("no record", |record| &record.experiment.name),
        records: (records.iter().enumerate())
            .map(|(index, record)| {
                sheet(record, names.get(index).cloned().unwrap_or_else(|| format!("record {}", index + 1)))
            })
            .collect(),
        differences: comparison::differences(records),
        sides: comparison::side_by_side(records),
        terms: TERMS,
    };
    page.render().expect("the template writes to memory and calls nothing that fails")
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    mark: &'static str,
    title: &'a str,
    records: Vec<Sheet<'a>>,
    differences: Vec<Difference>,
    sides: Vec<SideBySide>,
    terms: &'static [Term],
}

/// One record.
struct Sheet<'a> {
    /// The name of the record's file.
    name: String,
    record: &'a Record,
    machine: String,
    findings: Vec<Finding>,
    sections: Vec<Section>,
    limits: Vec<Limit<'a>>,
    facts: Vec<(&'static str, String)>,
    verified: Option<String>,
    /// Whether any result was checked against a limit.
    has_limits: bool,
}

/// A verdict in the summary.
struct Finding {
    workload: String,
    half: String,
    sentence: String,
    class: &'static str,
    word: &'static str,
}

/// One workload.
struct Section {
    title: String,
    shows_iops: bool,
    panels: Vec<Panel>,
}

/// One half of a workload.
struct Panel {
    heading: String,
    labels: Vec<&'static str>,
    directions: Vec<Lines>,
    findings: Vec<Finding>,
    has_done_times: bool,
    gaps: Option<String>,
    skipped: Vec<(String, String)>,
    charts: Vec<Chart>,
    rdma_work: Option<String>,
    ports: Option<String>,
}

/// All routes in one direction.
struct Lines {
    direction: Direction,
    lines: Vec<Line>,
}

/// One route in one direction.
struct Line {
    route: String,
    bar: Bar,
    speed: String,
    interval: String,
    kiops: String,
    of_limit: String,
    limit: String,
    of_machine: Option<String>,
    shares: String,
    columns: Vec<Column>,
    jain: String,
    stage: String,
    evidence: String,
    latency: [String; 6],
    cpu: [String; 4],
    done: String,
    steady: Option<bool>,
    paths: Vec<(String, String)>,
    repeats: Vec<String>,
}

/// One calibration.
struct Limit<'a> {
    shape: &'a str,
    route: &'a str,
    speed: String,
    kiops: String,
    mode: &'a str,
    congestion: &'a str,
    tries: Vec<Tried<'a>>,
}

/// One try of a calibration.
struct Tried<'a> {
    mode: &'a str,
    congestion: &'a str,
    speed: String,
    kiops: String,
}

fn sheet(record: &Record, name: String) -> Sheet<'_> {
    let blocks = view::blocks(record);
    let mut cells =
        record.routes.iter().flat_map(|route| &route.workloads).flat_map(|workload| workload.cells());
    let all = blocks.iter().flat_map(|block| block.groups.iter());
    let findings =
        all.flat_map(|group| group.verdicts.iter().map(|verdict| finding(group, verdict))).collect();
    Sheet {
        name,
        record,
        machine: view::machine(record),
        findings,
        sections: blocks.iter().map(section).collect(),
        limits: record.limits.iter().map(limit).collect(),
        facts: facts(record),
        verified: verified(record),
        has_limits: cells.any(|(_, cell)| cell.limit_gbytes_per_s.is_some()),
    }
}

fn finding(group: &Group<'_>, verdict: &record::Comparison) -> Finding {
    let (class, word) = match verdict.verdict {
        Verdict::Faster => ("faster", "faster"),
        Verdict::Slower => ("slower", "slower"),
        // The sentence already says so.
        Verdict::NoDifference => ("same", ""),
    };
    Finding {
        workload: verdict.workload.clone(),
        half: group.condition().unwrap_or_else(|| group.half().to_string()),
        sentence: view::sentence(verdict),
        class,
        word,
    }
}

fn section(block: &Block<'_>) -> Section {
    Section {
        title: block.title.clone(),
        shows_iops: block.shows_iops,
        panels: block.groups.iter().map(panel).collect(),
    }
}

fn panel(group: &Group<'_>) -> Panel {
    let cells = || group.rows.iter().flat_map(|row| row.workload.cells().map(|(_, cell)| cell));
    let scale = cells().map(Bar::reach).fold(0.0, f64::max);
    let lines = |direction| {
        let rows = group.rows.iter().filter_map(|row| Some((row.route, row.workload.cell(direction)?)));
        Lines { direction, lines: rows.map(|(route, cell)| line(route, cell, scale)).collect() }
    };
    let directions = [Direction::Read, Direction::Write].map(lines);
    let condition = group.condition().unwrap_or_else(|| "raw: as fast as it goes".to_owned());
    let mut letters = condition.chars();
    Panel {
        heading: letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect(),
        labels: group.labels(),
        directions: directions.into_iter().filter(|lines| !lines.lines.is_empty()).collect(),
        findings: group.verdicts.iter().map(|verdict| finding(group, verdict)).collect(),
        has_done_times: cells().any(|cell| cell.last_done_s.is_some()),
        gaps: group.longest_gaps(),
        skipped: group.skipped.iter().map(|(route, why)| (route.name.clone(), (*why).to_owned())).collect(),
        charts: [chart::throughput(group), chart::latency(group)].into_iter().flatten().collect(),
        rdma_work: group.rdma_work(),
        ports: group.ports(),
    }
}

fn line(route: &Route, cell: &Cell, scale: f64) -> Line {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number::duration);
    let percent = |share: f64| format!("{} %", number::percent(share));
    let latency = cell.latency_us;
    let [low, high] = cell.interval_95.map(number::fine);
    let paths = route.paths.iter().zip(&cell.share_by_path);
    let done = match (cell.first_done_s, cell.last_done_s) {
        (Some(first), Some(last)) => format!("{} to {}", number::fine(first), number::fine(last)),
        _ => "-".to_owned(),
    };
    Line {
        route: route.name.clone(),
        bar: Bar::of(cell, scale),
        speed: number::fine(cell.gbytes_per_s),
        interval: format!("{low} to {high}"),
        kiops: number::kiops(cell.iops),
        of_limit: cell.limit_share.map_or_else(|| "-".to_owned(), percent),
        limit: cell
            .limit_gbytes_per_s
            .map_or_else(|| "not calibrated".to_owned(), |it| format!("of {}", number::fine(it))),
        // If the machine is the limit, its share is already shown.
        of_machine: cell.machine_limit_share.filter(|share| cell.limit_share != Some(*share)).map(percent),
        shares: view::shares(&cell.share_by_node),
        columns: plot::columns(&cell.share_by_node),
        jain: cell.jain_by_node.map(number::ratio).unwrap_or_default(),
        stage: cell.binding.stage.label().to_owned(),
        evidence: cell.binding.evidence.clone(),
        latency: [
            number::duration(latency.p50),
            number::duration(latency.p90),
            number::duration(latency.p99),
            number::duration(latency.p99_9),
            optional(latency.p99_99),
            number::duration(latency.max),
        ],
        cpu: [
            number::duration(cell.cpu_us_per_op.client),
            optional(cell.cpu_us_per_op.server),
            number::fine(cell.cpu_ns_per_byte.client),
            cell.cpu_ns_per_byte.server.map_or_else(|| "-".to_owned(), number::fine),
        ],
        done,
        steady: cell.steady,
        paths: paths.map(|(path, share)| (path.clone(), percent(*share))).collect(),
        repeats: cell.repeats.iter().map(|repeat| number::fine(repeat.gbytes_per_s)).collect(),
    }
}

fn limit(limit: &record::Calibration) -> Limit<'_> {
    let tried = |it: &record::Try| (number::fine(it.gbytes_per_s), number::kiops(it.iops));
    let tries = limit.tries.iter().map(|it| {
        let (speed, kiops) = tried(it);
        Tried { mode: &it.mode, congestion: it.congestion.as_deref().unwrap_or("-"), speed, kiops }
    });
    Limit {
        shape: &limit.shape,
        route: limit.route.as_deref().unwrap_or("any: the machine's"),
        speed: number::fine(limit.gbytes_per_s),
        kiops: number::kiops(limit.iops),
        mode: &limit.mode,
        congestion: limit.congestion.as_deref().unwrap_or("-"),
        tries: tries.collect(),
    }
}

fn facts(record: &Record) -> Vec<(&'static str, String)> {
    let (environment, experiment) = (&record.environment, &record.experiment);
    let facts = [
        ("made", record.made_at.clone()),
        ("Trunkline", record.trunkline_version.clone()),
        ("commit", record.commit.clone().unwrap_or_default()),
        ("target", experiment.target.clone()),
        (
            "procedure",
            format!(
                "{}, {} repeats, {} connections a route",
                experiment.procedure, experiment.repeats, experiment.connections
            ),
        ),
        ("kernel", format!("{} {}", environment.kernel, environment.arch)),
        ("CPU", format!("{} x {}", environment.cpus, environment.cpu_model)),
        ("memory", number::bytes(environment.memory_bytes)),
        (
            "congestion control",
            format!(
                "{} by default; on offer: {}",
                environment.congestion,
                environment.congestion_offered.join(" ")
            ),
        ),
        ("emulated", environment.emulated.clone().unwrap_or_default()),
        ("command", environment.cmdline.clone()),
    ];
    facts.into_iter().filter(|(_, value)| !value.trim().is_empty()).collect()
}

fn verified(record: &Record) -> Option<String> {
    let all =
        || record.routes.iter().flat_map(|route| &route.workloads).filter_map(|workload| workload.verified);
    all().next()?;
    let sum = |field: fn(&record::Verified) -> u64| all().map(|it| field(&it)).sum::<u64>();
    Some(format!(
        "{} stamps checked while timing, {} compared whole, {} wrong blocks",
        number::thousands(sum(|it| it.stamps)),
        number::bytes(sum(|it| it.bytes)),
        number::thousands(sum(|it| it.wrong)),
    ))
}

/// Text for the page, as HTML: escaped, with text in backticks as code, and without line breaks
/// within the interval in brackets.
fn rich(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split('`').peekable();
    let mut is_code = false;
    while let Some(part) = parts.next() {
        // A backtick without a partner starts no code.
        let opens = is_code && parts.peek().is_some();
        let escaped = escape(part);
        match (is_code, opens) {
            (true, true) => out.push_str(&format!("<code>{escaped}</code>")),
            (true, false) => out.push_str(&format!("&#39;{escaped}")),
            _ => out.push_str(&escaped),
        }
        is_code = !is_code;
    }
    unbroken(&out)
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// The text with no-break spaces within `(95 %: 0.99 to 1.02`.
fn unbroken(text: &str) -> String {
    const OPENS: &str = "(95 %: ";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(OPENS) {
        let (before, after) = rest.split_at(at);
        let end = after.find([')', ';']).unwrap_or(OPENS.len());
        let (interval, after) = after.split_at(end);
        out.push_str(before);
        out.push_str(&interval.replace(' ', "\u{a0}"));
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample, terminal::tests::assert_golden};

    fn page(records: &[Record]) -> String {
        html(records, &["before.json".to_owned(), "after.json".to_owned()])
    }

    #[test]
    fn compared_records_are_named_by_their_files() {
        let page = page(&[sample::record(), sample::record()]);
        assert!(page.contains("before.json") && page.contains("after.json"));
        assert!(!page.to_lowercase().contains(">record 1"), "no record has only a number");
    }

    #[test]
    fn the_page_of_a_record_is_the_golden_one() {
        assert_golden("record.html", &page(&[sample::record()]));
    }

    #[test]
    fn the_page_has_contents_charts_and_units_that_adapt() {
        let page = page(&[sample::record()]);
        for link in page.split("href=\"#").skip(1) {
            let anchor = link.split('"').next().expect("the anchor");
            assert_eq!(page.matches(&format!("id=\"{anchor}\"")).count(), 1, "{anchor}");
        }
        assert!(page.contains("<nav"));
        assert_eq!(page.matches("class=\"chart\"").count(), 6, "two for each half of each workload");
        for text in ["latency, us", "NaN", "inf,"] {
            assert!(!page.contains(text), "{text}");
        }
        assert!(page.contains(" ms</td>"), "latencies in ms");
    }

    #[test]
    fn no_backtick_is_left_and_no_interval_breaks_after_its_bracket() {
        let page = page(&[sample::record()]);
        assert!(!page.contains('`'), "backticks are code");
        assert!(page.contains("<code>trunkline lab vm -- trunkline bench</code>"));
        assert!(!page.contains("(95 %: "), "no-break spaces");
        let hostile = rich("`<b>`, `x and (95 %: 1 to 2)");
        let spaced = "(95\u{a0}%:\u{a0}1\u{a0}to\u{a0}2)";
        assert_eq!(hostile, format!("<code>&lt;b&gt;</code>, &#39;x and {spaced}"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = page(&[sample::record(), sample::record()]);
        for outside in ["http:", "https:", "src=", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'"));
    }

    #[test]
    fn text_from_a_record_stays_text() {
        let page =
            html(&[sample::hostile(), sample::record()], &["<script>".to_owned(), "after.json".to_owned()]);
        assert!(!page.contains("<script"), "all markup of the record is escaped");
    }

    #[test]
    fn a_failed_record_says_so_before_any_number() {
        let mut record = sample::record();
        record.fail("a block was wrong");
        let page = page(&[record]);
        let failed = page.find("a block was wrong").expect("the reason is there");
        assert!(failed < page.find("GB/s").expect("numbers are there"));
    }

    #[test]
    fn an_empty_record_and_no_record_have_a_page_too() {
        assert!(page(&[]).contains("</html>"));
        assert!(page(&[Record::default()]).contains("</html>"));
    }
}

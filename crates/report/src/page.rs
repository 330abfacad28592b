//! The HTML page: one file that needs no network.
//!
//! The template escapes every text. In case one gets through, a content security policy forbids
//! everything except the page's own style.

use askama::Template;
use record::{Cell, ClientResult, Direction, PathCounters, Record, Route, Verdict};

use crate::{
    chart::{self, Chart},
    comparison::{self, Difference, SideBySide},
    condition::{Judgement, Outcome, RecordChecks},
    explain::{TERMS, Term},
    heat::{self, Heat},
    number,
    plot::{self, Bar, Column},
    published::{self, Published},
    steps::{self, StepTest},
    view::{self, Block, Group},
};

/// A mark near the start of each page, by which a page is known as written by this crate.
pub const PAGE_MARK: &str = r#"<meta name="generator" content="trunkline report">"#;

/// The records as one self-contained HTML page; several are compared side by side, by their
/// `names`.
pub fn html(records: &[Record], names: &[String]) -> String {
    html_with(records, names, &Additions::default())
}

/// What a report shows beside the records on request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Additions<'a> {
    /// The outcomes of conditions.
    pub checks: &'a [RecordChecks],
    /// Results that others have published.
    pub published: &'a [Published],
}

/// The same as [`html`], with additions.
pub fn html_with(records: &[Record], names: &[String], additions: &Additions<'_>) -> String {
    let names: Vec<String> = (0..records.len())
        .map(|index| names.get(index).cloned().unwrap_or_else(|| format!("record {}", index + 1)))
        .collect();
    let sides = comparison::side_by_side(records);
    let page = Page {
        mark: PAGE_MARK,
        title: records.first().map_or("no record", |record| &record.experiment.name),
        records: records
            .iter()
            .zip(&names)
            .map(|(record, name)| sheet(record, name.clone(), additions))
            .collect(),
        differences: comparison::differences(records),
        totals: comparison::totals(&sides, &names),
        sides,
        checks: additions.checks.iter().map(check_list).collect(),
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
    /// How many speeds of each later record are faster and slower.
    totals: Vec<String>,
    sides: Vec<SideBySide>,
    checks: Vec<CheckList<'a>>,
    terms: &'static [Term],
}

/// One record.
struct Sheet<'a> {
    /// The name of the record's file.
    name: String,
    record: &'a Record,
    machine: String,
    findings: Vec<Finding>,
    steps: Vec<StepTest<'a>>,
    sections: Vec<Section<'a>>,
    limits: Vec<Limit<'a>>,
    facts: Vec<(&'static str, String)>,
    verified: Option<String>,
    /// Whether any result was checked against a limit.
    has_limits: bool,
    published: Vec<Beside<'a>>,
}

/// The outcomes of the conditions on one record.
struct CheckList<'a> {
    name: &'a str,
    failed: &'a [String],
    lines: Vec<CheckLine<'a>>,
}

/// The outcome of a condition in one place.
struct CheckLine<'a> {
    judgement: &'a Judgement,
    class: &'static str,
    word: &'static str,
}

/// A published result beside a record.
struct Beside<'a> {
    result: &'a Published,
    machine: String,
    rows: Vec<published::Beside>,
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
struct Section<'a> {
    title: String,
    shows_iops: bool,
    panels: Vec<Panel<'a>>,
}

/// One half of a workload.
struct Panel<'a> {
    heading: String,
    labels: Vec<&'static str>,
    directions: Vec<Lines>,
    findings: Vec<Finding>,
    has_done_times: bool,
    gaps: Option<String>,
    access: Option<String>,
    failovers: Option<String>,
    /// The paths of each route, if something was moved off one or sent again.
    failing_paths: Vec<(&'a str, &'a PathCounters)>,
    clients: Option<String>,
    client_lines: Vec<(&'a str, ClientLine<'a>)>,
    skipped: Vec<(String, String)>,
    charts: Vec<Chart>,
    heat_maps: Vec<Heat>,
    /// The routes without one, with the reason.
    without_heat_map: Vec<(String, &'static str)>,
    rdma_work: Option<String>,
    ports: Option<String>,
}

/// One client of a route.
struct ClientLine<'a> {
    client: &'a ClientResult,
    share: String,
    gbytes: String,
    later: String,
    done: String,
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

fn sheet<'a>(record: &'a Record, name: String, additions: &Additions<'a>) -> Sheet<'a> {
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
        steps: steps::step_tests(record),
        sections: blocks.iter().map(|block| section(record, block)).collect(),
        limits: record.limits.iter().map(limit).collect(),
        facts: facts(record),
        verified: verified(record),
        has_limits: cells.any(|(_, cell)| cell.limit_gbytes_per_s.is_some()),
        published: additions.published.iter().map(|result| beside(result, record)).collect(),
    }
}

fn beside<'a>(result: &'a Published, record: &Record) -> Beside<'a> {
    Beside { result, machine: published::this_machine(record), rows: result.beside(record) }
}

fn check_list(checks: &RecordChecks) -> CheckList<'_> {
    CheckList {
        name: &checks.name,
        failed: &checks.failed,
        lines: checks.judgements.iter().map(check_line).collect(),
    }
}

fn check_line(judgement: &Judgement) -> CheckLine<'_> {
    let (class, word) = match judgement.outcome {
        Outcome::Holds => ("slower", "failed"),
        Outcome::NotShown => ("same", "not shown"),
        Outcome::DoesNotHold => ("faster", "passed"),
    };
    CheckLine { judgement, class, word }
}

fn finding(group: &Group<'_>, found: &view::Finding<'_>) -> Finding {
    let (class, word) = match found.comparison.judged() {
        Verdict::Faster => ("faster", "faster"),
        Verdict::Slower => ("slower", "slower"),
        // The sentence already says so.
        Verdict::NoDifference | Verdict::TooFewPairs => ("same", ""),
    };
    Finding {
        workload: found.comparison.workload.clone(),
        half: group.condition().unwrap_or_else(|| group.half().to_string()),
        sentence: view::sentence(found),
        class,
        word,
    }
}

fn section<'a>(record: &Record, block: &Block<'a>) -> Section<'a> {
    Section {
        title: block.title.clone(),
        shows_iops: block.shows_iops,
        panels: block.groups.iter().map(|group| panel(record, group)).collect(),
    }
}

fn panel<'a>(record: &Record, group: &Group<'a>) -> Panel<'a> {
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
        failovers: group.failovers(),
        failing_paths: failing_paths(group),
        access: group.access(),
        clients: group.clients(),
        client_lines: client_lines(group),
        skipped: group.skipped.iter().map(|(route, why)| (route.name.clone(), (*why).to_owned())).collect(),
        charts: [chart::throughput(group), chart::latency(group)].into_iter().flatten().collect(),
        heat_maps: heat::heat_maps(group),
        without_heat_map: heat::lacking(record, group),
        rdma_work: group.rdma_work(),
        ports: group.ports(),
    }
}

/// All paths of the routes that moved calls off a path, sent some again, or lost a path.
fn failing_paths<'a>(group: &Group<'a>) -> Vec<(&'a str, &'a PathCounters)> {
    let is_good = |path: &PathCounters| {
        path.failovers == 0 && path.retransmissions == 0 && matches!(path.state.as_str(), "up" | "")
    };
    let failing = group.rows.iter().filter(|row| !row.workload.paths.iter().all(is_good));
    failing.flat_map(|row| row.workload.paths.iter().map(|path| (row.route.name.as_str(), path))).collect()
}

fn client_lines<'a>(group: &Group<'a>) -> Vec<(&'a str, ClientLine<'a>)> {
    let line = |client: &'a ClientResult| ClientLine {
        client,
        share: format!("{} %", number::percent(client.share)),
        gbytes: number::plain(client.bytes as f64 / 1e9),
        later: match client.clock_error_ms > 0.0 {
            true => format!("{} ms", number::plain(client.start_offset_ms)),
            // Nobody has compared the clocks.
            false => "-".to_owned(),
        },
        done: match (client.first_done_s, client.last_done_s) {
            (Some(first), Some(last)) => format!("{} to {}", number::fine(first), number::fine(last)),
            _ => "-".to_owned(),
        },
    };
    let rows = group.rows.iter();
    rows.flat_map(|row| row.workload.clients.iter().map(move |it| (row.route.name.as_str(), line(it))))
        .collect()
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
    let measured = record.routes.iter().filter(|route| route.skipped.is_none());
    let connections = view::connections(record, measured);
    let facts = [
        ("made", record.made_at.clone()),
        ("Trunkline", record.trunkline_version.clone()),
        ("commit", record.commit.clone().unwrap_or_default()),
        ("target", experiment.target.clone()),
        (
            "procedure",
            format!("{}, {} repeats", experiment.procedure, experiment.repeats)
                + &connections.map(|it| format!(", {it} a route")).unwrap_or_default(),
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

/// The shades of the heat maps by number, with what they mean.
fn shades() -> impl Iterator<Item = (usize, &'static str)> {
    heat::LEGEND.into_iter().enumerate()
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
        assert_eq!(page.matches("class=\"chart\"").count(), 6 + 10, "charts, and heat maps of each cell");
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
    fn step_tests_have_their_knee_and_clients_their_remarks() {
        let page = page(&[sample::steps()]);
        assert!(page.contains("tcp: the knee is at 4 clients (3.10 GB/s)"));
        assert_eq!(page.matches("<title>the knee of ").count(), 1, "one route has a knee");
        assert!(page.contains("<b>straggler</b>") && page.contains("<b>lost</b>: the connection ended"));
        assert!(page.contains("vm7 is a straggler with 12 %, vm8 was lost: the connection ended"));
    }

    #[test]
    fn failovers_are_told_by_path_and_only_where_there_are_any() {
        assert!(!page(&[sample::record()]).contains("Failovers"));
        let mut record = sample::record();
        let workload = &mut record.routes[1].workloads[0];
        (workload.paths[1].failovers, workload.paths[1].state) = (1400, "down".into());
        workload.longest_gap_ms = Some(812.0);
        let page = page(&[record]);
        assert!(
            page.contains("tcp-mp 1,400 calls moved to another path, tcp 127.0.0.1 -&#62; 127.0.0.2:2049")
        );
        assert!(page.contains("is down at the end") && page.contains("<b>down</b>"));
        assert_eq!(page.matches("Failovers by path</caption>").count(), 1);
    }

    #[test]
    fn conditions_and_published_results_have_their_places() {
        let record = sample::record();
        let checked = crate::Checked { record: &record, name: "<one>.json" };
        let conditions = ["tcp.mix-1m.raw.read < 9 GB/s", "tcp.mix-1m.raw.read < 3.09"];
        let conditions = conditions.map(|text| text.parse().expect("a condition"));
        let checks = crate::check(&conditions, &[checked], None, crate::Basis::Intervals).expect("judged");
        let results = crate::published();
        let additions = Additions { checks: &checks, published: &results };
        let page = html_with(std::slice::from_ref(&record), &["<one>.json".to_owned()], &additions);
        assert!(page.contains("tcp.mix-1m.raw.read &#60; 9 GB/s") && !page.contains("<one>"));
        for word in ["failed", "not shown"] {
            assert!(page.contains(&format!("<span class=\"verdict\">{word}</span>")), "{word}");
        }
        assert_eq!(page.matches("What does not add up").count(), results.len());
        for link in page.split("href=\"#").skip(1) {
            let anchor = link.split('"').next().expect("the anchor");
            assert_eq!(page.matches(&format!("id=\"{anchor}\"")).count(), 1, "{anchor}");
        }
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

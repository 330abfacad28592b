//! One or several records as Markdown, for an issue, a commit message or a wiki.

use record::{Direction, Record};

use crate::{
    Additions, Published, comparison,
    condition::{Outcome, RecordChecks},
    number, published, steps,
    view::{self, Block, Group},
};

/// The records as Markdown; several are first compared side by side, by their `names`.
pub fn markdown(records: &[Record], names: &[String]) -> String {
    markdown_with(records, names, &Additions::default())
}

/// The same as [`markdown`], with additions.
pub fn markdown_with(records: &[Record], names: &[String], additions: &Additions<'_>) -> String {
    let mut out = String::new();
    if !additions.checks.is_empty() {
        checks(&mut out, additions.checks);
    }
    if records.len() > 1 {
        side_by_side(&mut out, records, names);
    }
    for (index, record) in records.iter().enumerate() {
        one(&mut out, record, names.get(index).filter(|_| records.len() > 1));
        additions.published.iter().for_each(|result| beside(&mut out, result, record));
    }
    out
}

/// The outcomes of conditions.
fn checks(out: &mut String, checks: &[RecordChecks]) {
    out.push_str("# Conditions\n\n");
    for record in checks {
        for why in &record.failed {
            out.push_str(&format!("- **failed**: {} itself: {}\n", escape(&record.name), escape(why)));
        }
        for judgement in &record.judgements {
            let word = match judgement.outcome {
                Outcome::Holds => "**failed**",
                Outcome::NotShown => "not shown",
                Outcome::DoesNotHold => "passed",
            };
            let place = format!("{}: {} {}", record.name, judgement.route, judgement.place);
            let (condition, finding) = (escape(&judgement.condition), escape(&judgement.finding));
            out.push_str(&format!("- {word}: {condition}; {}: {finding}\n", escape(&place)));
        }
    }
    out.push('\n');
}

/// A published result beside a record.
fn beside(out: &mut String, result: &Published, record: &Record) {
    out.push_str(&format!("## Published: {}\n\n", escape(&result.title)));
    let (machine, load) = (escape(&result.machine), escape(&result.load));
    out.push_str(&format!("On another machine: {machine}. {load}.\n\n"));
    let here = escape(&published::this_machine(record));
    row(out, &["route", "what", "published", &here]);
    rule(out, "llll");
    for figure in result.beside(record) {
        let here = if figure.here.is_empty() { "nothing alike".to_owned() } else { figure.here.join("; ") };
        let texts = [&figure.route, &figure.what, &figure.published, &here].map(|text| escape(text));
        row(out, &texts.each_ref().map(String::as_str));
    }
    out.push_str("\nWhat does not add up:\n\n");
    result.doubts.iter().for_each(|doubt| out.push_str(&format!("- {}\n", escape(doubt))));
    out.push('\n');
}

fn one(out: &mut String, record: &Record, name: Option<&String>) {
    let which = name.map_or_else(|| "trunkline bench: ".to_owned(), |name| format!("{}: ", escape(name)));
    out.push_str(&format!("# {which}{}\n\n", escape(&record.experiment.name)));
    let commit =
        record.commit.as_ref().map(|commit| format!(", commit {}", escape(commit))).unwrap_or_default();
    out.push_str(&format!(
        "{}; {}. Trunkline {}{commit}, {}.\n\n",
        escape(&record.experiment.target),
        escape(&view::machine(record)),
        escape(&record.trunkline_version),
        escape(&record.made_at),
    ));
    if !record.failed.is_empty() {
        out.push_str("**FAILED: do not use these numbers.**\n\n");
        record.failed.iter().for_each(|why| out.push_str(&format!("- {}\n", escape(why))));
        out.push('\n');
    }
    for block in view::blocks(record) {
        out.push_str(&format!("## {}\n\n", escape(&block.title)));
        block.groups.iter().for_each(|group| speeds(out, &block, group));
        latencies(out, &block);
    }
    step_tests(out, record);
    skipped(out, record);
    limits(out, record);
}

fn step_tests(out: &mut String, record: &Record) {
    for test in steps::step_tests(record) {
        out.push_str(&format!("## Step test: {}\n\n", escape(&test.title)));
        row(
            out,
            &["route", test.added, "GB/s", "kIOPS", "gain of each added, GB/s", "of the first's", "p99", ""],
        );
        rule(out, "lrrrrrrl");
        let labels: String = test.labels.iter().map(|label| format!(" ({label})")).collect();
        for step in &test.rows {
            let (route, units) = (escape(step.route), step.units.to_string());
            let speed = format!("{}{labels}", step.speed);
            let knee = if step.is_knee { "knee" } else { "" };
            row(out, &[&route, &units, &speed, &step.kiops, &step.gain, &step.of_first, &step.p99, knee]);
        }
        out.push('\n');
        test.knees.iter().for_each(|knee| out.push_str(&format!("- {}\n", escape(knee))));
        out.push('\n');
    }
}

fn speeds(out: &mut String, block: &Block<'_>, group: &Group<'_>) {
    let condition = group.condition().unwrap_or_else(|| "raw".to_owned());
    out.push_str(&format!("{}:\n\n", escape(&condition)));
    let iops = if block.shows_iops { &["kIOPS"][..] } else { &[] };
    row(out, &[&["route", "", "GB/s", "95 %"], iops, &["of limit", "share by node", "binds"]].concat());
    rule(out, if block.shows_iops { "llrrrrll" } else { "llrrrll" });
    let labels: String = group.labels().iter().map(|label| format!(" ({label})")).collect();
    for direction in [Direction::Read, Direction::Write] {
        for line in &group.rows {
            let Some(cell) = line.workload.cell(direction) else { continue };
            let [low, high] = cell.interval_95.map(number::fine);
            let mut texts = vec![
                escape(&line.route.name),
                direction.to_string(),
                format!("{}{labels}", number::fine(cell.gbytes_per_s)),
                format!("{low} to {high}"),
            ];
            if block.shows_iops {
                texts.push(number::kiops(cell.iops));
            }
            texts.push(
                cell.limit_share.map_or_else(|| "-".to_owned(), |it| format!("{} %", number::percent(it))),
            );
            texts.push(view::shares(&cell.share_by_node));
            texts.push(escape(&format!("{}: {}", cell.binding.stage.label(), cell.binding.evidence)));
            row(out, &texts.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    out.push('\n');
    for verdict in &group.verdicts {
        out.push_str(&format!("- **{}: {}**\n", group.half(), escape(&view::sentence(verdict))));
    }
    let gaps = group.longest_gaps();
    if let Some(gaps) = &gaps {
        out.push_str(&format!("- longest time without a completed call: {}\n", escape(gaps)));
    }
    for (route, why) in &group.skipped {
        out.push_str(&format!("- {} was skipped: {}\n", escape(&route.name), escape(why)));
    }
    let more = [
        ("Failovers", group.failovers()),
        ("Access", group.access()),
        ("Clients", group.clients()),
        ("RDMA for a call", group.rdma_work()),
        ("RDMA ports", group.ports()),
    ];
    for (name, text) in &more {
        if let Some(text) = text {
            out.push_str(&format!("- {name}: {}\n", escape(text)));
        }
    }
    let has_lines = gaps.is_some() || more.iter().any(|(_, text)| text.is_some());
    if !group.verdicts.is_empty() || !group.skipped.is_empty() || has_lines {
        out.push('\n');
    }
}

fn latencies(out: &mut String, block: &Block<'_>) {
    out.push_str("Latency in us, CPU in us per operation:\n\n");
    row(
        out,
        &["half", "route", "", "p50", "p90", "p99", "p99.9", "p99.99", "max", "client CPU", "server CPU"],
    );
    rule(out, "lllrrrrrrrr");
    for group in &block.groups {
        for line in &group.rows {
            for (direction, cell) in line.workload.cells() {
                let latency = cell.latency_us;
                let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number::us);
                let texts = [
                    group.half().to_string(),
                    escape(&line.route.name),
                    direction.to_string(),
                    number::us(latency.p50),
                    number::us(latency.p90),
                    number::us(latency.p99),
                    number::us(latency.p99_9),
                    optional(latency.p99_99),
                    number::us(latency.max),
                    number::us(cell.cpu_us_per_op.client),
                    optional(cell.cpu_us_per_op.server),
                ];
                row(out, &texts.each_ref().map(String::as_str));
            }
        }
    }
    out.push('\n');
}

fn skipped(out: &mut String, record: &Record) {
    let mut found = false;
    for route in &record.routes {
        if let Some(why) = &route.skipped {
            out.push_str(&format!("- {} was skipped: {}\n", escape(&route.name), escape(why)));
            found = true;
        }
    }
    if found {
        out.push('\n');
    }
}

fn limits(out: &mut String, record: &Record) {
    if record.limits.is_empty() {
        return;
    }
    out.push_str("## Limits, as calibrated\n\n");
    row(out, &["shape", "route", "GB/s", "kIOPS", "mode", "congestion control", "tries"]);
    rule(out, "llrrllr");
    for limit in &record.limits {
        let texts = [
            escape(&limit.shape),
            limit.route.as_ref().map_or_else(|| "any".to_owned(), |route| escape(route)),
            number::fine(limit.gbytes_per_s),
            number::kiops(limit.iops),
            escape(&limit.mode),
            limit.congestion.as_ref().map_or_else(|| "-".to_owned(), |name| escape(name)),
            limit.tries.len().to_string(),
        ];
        row(out, &texts.each_ref().map(String::as_str));
    }
    out.push('\n');
}

fn side_by_side(out: &mut String, records: &[Record], raw_names: &[String]) {
    out.push_str("# Records side by side\n\n");
    out.push_str("Different sittings: the same machine may drift by a third between two.\n\n");
    let names: Vec<String> = raw_names.iter().map(|name| escape(name)).collect();
    let header = |first: &str| -> Vec<String> {
        [first.to_owned()].into_iter().chain(names.iter().cloned()).collect()
    };
    let table = |out: &mut String, lines: Vec<Vec<String>>| {
        for (index, line) in lines.iter().enumerate() {
            row(out, &line.iter().map(String::as_str).collect::<Vec<_>>());
            if index == 0 {
                rule(out, &"l".repeat(line.len()));
            }
        }
        out.push('\n');
    };
    let mut lines = vec![header("")];
    let made = records.iter().map(|record| escape(&record.made_at));
    lines.push(["made".to_owned()].into_iter().chain(made).collect());
    for difference in comparison::differences(records) {
        let values = difference.values.iter().map(|value| escape(value));
        lines.push([difference.name.to_owned()].into_iter().chain(values).collect());
    }
    table(out, lines);
    let sides = comparison::side_by_side(records);
    for total in comparison::totals(&sides, raw_names) {
        out.push_str(&format!("- {}\n", escape(&total)));
    }
    out.push('\n');
    for side in sides {
        out.push_str(&format!("{}, GB/s:\n\n", escape(&side.title)));
        let labels: String = side.labels.iter().map(|label| format!(" ({label})")).collect();
        let mut lines = vec![header("route")];
        for line in &side.rows {
            let cells = line.cells.iter().map(|cell| match cell {
                None => "-".to_owned(),
                Some(cell) => match &cell.times {
                    None => format!("{}{labels}", cell.speed),
                    Some(times) => {
                        format!("{}{labels}: {}, {}", cell.speed, times.word(), times.ratio)
                    }
                },
            });
            lines.push([escape(&line.route)].into_iter().chain(cells).collect());
        }
        table(out, lines);
    }
}

fn row(out: &mut String, cells: &[&str]) {
    out.push_str(&format!("| {} |\n", cells.join(" | ")));
}

fn rule(out: &mut String, alignment: &str) {
    let cells: Vec<&str> = alignment.chars().map(|it| if it == 'r' { "--:" } else { "---" }).collect();
    out.push_str(&format!("| {} |\n", cells.join(" | ")));
}

/// Escapes text: nothing in it starts markup or ends a cell or a line.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' => {
                out.push('\\');
                out.push(character);
            }
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample, terminal::tests::assert_golden};

    #[test]
    fn the_markdown_of_a_record_is_the_golden_one() {
        assert_golden("record.md", &markdown(&[sample::record()], &[]));
    }

    #[test]
    fn two_records_are_set_side_by_side_first() {
        let text =
            markdown(&[sample::record(), sample::record()], &["before.json".into(), "after|.json".into()]);
        assert!(text.starts_with("# Records side by side"));
        assert!(
            text.contains(
                "| tcp-mp | 0.977 (paced) | 0.977 (paced): no difference shown, 1.00 times (95 %: "
            ),
            "{text}"
        );
        assert!(text.contains("\n# after\\|.json: four-routes"));
    }

    #[test]
    fn text_from_a_record_stays_text() {
        let text = markdown(&[sample::hostile()], &[]);
        assert!(
            !text.contains("<script>") && !text.contains("\n# pwned") && !text.contains('\u{1b}'),
            "{text}"
        );
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        for line in text.lines().filter(|line| line.starts_with('|')) {
            assert!([8, 9, 12].contains(&columns(line)), "{line}");
        }
    }
}

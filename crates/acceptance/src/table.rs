//! The table that people read: one line for each row, then each mark and the value found.

use std::fmt::Write;

use super::record::{AcceptanceRecord, LIMIT, Line, Mark, OURS, Series};

/// Returns the median of a series in the unit of the row.
fn figure(line: &Line, series: &Series) -> String {
    let Some(per_s) = series.median_of(|sample| Some(sample.per_s)) else {
        return if series.failed.is_some() { "failed".into() } else { "-".into() };
    };
    let disturbed = if series.counts().0 == 0 { "?" } else { "" };
    match line.block {
        Some(block) if block >= 64 << 10 => format!("{:.2} GB/s{disturbed}", per_s * block as f64 / 1e9),
        _ => format!("{:.1} k/s{disturbed}", per_s / 1e3),
    }
}

fn mark(mark: &Mark) -> String {
    let Mark { what, asked, at_most, found, doubt } = mark;
    let wanted = format!("{} {}", if *at_most { "at most" } else { "at least" }, number(*asked));
    match (found, mark.reached()) {
        (Some(found), None) => {
            let doubt = doubt.as_deref().unwrap_or_default();
            format!("doubtful   {} {what} ({wanted}): {doubt}", number(*found))
        }
        (Some(found), Some(true)) => format!("reached    {} {what} ({wanted})", number(*found)),
        (Some(found), _) => {
            let short = if *at_most { found / asked - 1.0 } else { 1.0 - found / asked };
            format!("short {:3.0} % {} {what} ({wanted})", short * 100.0, number(*found))
        }
        (None, _) => format!("not known  {what} ({wanted})"),
    }
}

fn number(value: f64) -> String {
    if value < 0.1 { format!("{value:.3}") } else { format!("{value:.2}") }
}

/// Renders the whole table.
#[must_use]
pub fn render(figures: &AcceptanceRecord) -> String {
    let mut text = String::new();
    let environment = &figures.environment;
    let _ = writeln!(
        text,
        "{} CPUs ({}), {}; loopback, {} repetitions, {:.0} s\n",
        environment.cpus, environment.cpu_model, environment.kernel, figures.repeats, figures.took_s
    );
    let _ = writeln!(text, "{:<40}{:>13}{:>13}   others", "medians", LIMIT, OURS);
    for line in &figures.lines {
        let of = |who| line.series(who).map_or_else(|| "-".into(), |series| figure(line, series));
        let others: Vec<String> = line
            .series
            .iter()
            .filter(|series| series.who != LIMIT && series.who != OURS)
            .map(|series| format!("{} {}", series.who, figure(line, series)))
            .collect();
        let _ = writeln!(text, "{:<40}{:>13}{:>13}   {}", line.title, of(LIMIT), of(OURS), others.join("; "));
    }
    let (mut reached, mut all) = (0, 0);
    let _ = writeln!(text, "\nwhat is asked, and what was found");
    for line in figures.lines.iter().filter(|line| !line.marks.is_empty()) {
        let _ = writeln!(text, "{}", line.title);
        for one in &line.marks {
            let _ = writeln!(text, "  {}", mark(one));
            all += 1;
            reached += u32::from(one.reached() == Some(true));
        }
    }
    let _ = writeln!(text, "\n{reached} of {all} marks reached");
    let disturbed: usize = figures
        .lines
        .iter()
        .flat_map(|line| &line.series)
        .map(|series| {
            let (is_undisturbed, all) = series.counts();
            all - is_undisturbed
        })
        .sum();
    if disturbed > 0 {
        let _ = writeln!(
            text,
            "{disturbed} runs were dropped: others had more than a tenth of the processors (a `?` marks a figure of such \
             runs alone)"
        );
    }
    for line in &figures.lines {
        for series in line.series.iter() {
            if let Some(reason) = &series.failed {
                let _ = writeln!(text, "{}, {}: {reason}", line.title, series.who);
            }
        }
    }
    for note in &figures.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

//! IO500 runs as text: the stated and the computed scores, then phase by phase.

use super::table::{Table, printable, wrap};
use crate::io500::{Comparison, Run, Score, TopologyLimits, agrees};
use std::fmt::Write;

/// Runs side by side.
#[must_use]
pub fn runs(comparison: &Comparison, columns: usize) -> String {
    let mut text = String::new();
    let letters: Vec<_> = ('A'..='Z').take(comparison.runs.len()).map(String::from).collect();
    for ((run, letter), topology) in comparison.runs.iter().zip(&letters).zip(&comparison.topologies) {
        text.push_str(&head(run, letter, topology.as_ref(), columns));
        if let Some(on) = topology {
            text.push_str(&wrap("   limits  ", &limits(on), columns));
        }
        for warning in &run.warnings {
            text.push_str(&wrap("   note: ", &printable(warning), columns));
        }
    }
    let has_limits = comparison.topologies.iter().any(Option::is_some);
    let mut headings = vec!["<phase".to_owned(), "<unit".to_owned()];
    for (index, letter) in letters.iter().enumerate() {
        headings.push(letter.clone());
        if index > 0 {
            headings.push(format!("{letter}/A"));
        }
        if has_limits {
            headings.extend([format!("limit {letter}"), format!("of it {letter}")]);
        }
    }
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    for row in &comparison.rows {
        let mut cells = vec![row.phase.to_owned(), row.unit.name().to_owned()];
        for index in 0..comparison.runs.len() {
            let at = |values: &[Option<f64>]| values.get(index).copied().flatten();
            cells.push(number(at(&row.values)));
            if index > 0 {
                cells.push(at(&row.of_first).map_or_else(|| "-".to_owned(), |share| format!("{share:.2}")));
            }
            if has_limits {
                cells.push(number(at(&row.limits)));
                cells.push(
                    at(&row.of_limit)
                        .map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
                );
            }
        }
        table.row(cells);
    }
    let _ = write!(text, "\n{}", table.render());
    if !comparison.notes.is_empty() {
        text.push('\n');
    }
    for note in &comparison.notes {
        text.push_str(&wrap("note: ", note, columns));
    }
    text
}

fn head(run: &Run, letter: &str, topology: Option<&TopologyLimits>, columns: usize) -> String {
    let version =
        run.version.as_ref().map_or_else(String::new, |version| format!(", {}", printable(version)));
    let on = topology.map_or_else(String::new, |topology| format!(", on {}", printable(&topology.name)));
    let mut text = format!("{letter}  {}{version}{on}\n", printable(&run.name));
    let _ = writeln!(text, "   score   {}", scores(&run.score));
    if let Some(stated) = &run.stated {
        let verdict = match agrees(run) {
            Some(true) => "the same within rounding",
            _ => "NOT the same",
        };
        text.push_str(&wrap("   stated  ", &format!("{}: {verdict}", scores(stated)), columns));
    }
    text
}

fn limits(on: &TopologyLimits) -> String {
    format!(
        "read {:.3} GiB/s by {}; write {:.3} GiB/s by {}",
        on.read.gib_per_s, on.read.why, on.write.gib_per_s, on.write.why
    )
}

fn scores(score: &Score) -> String {
    format!(
        "bandwidth {:.6} GiB/s, IOPS {:.6} kIOPS, total {:.6}",
        score.bandwidth_gib_s, score.iops_kiops, score.total
    )
}

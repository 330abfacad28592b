//! Capacity as text: the result first, then its computation.

use super::table::{Table, wrap};
use crate::size::{Answer, Sizing};
use crate::units::trim;
use std::fmt::Write;

/// A sizing.
#[must_use]
pub fn sizing(sizing: &Sizing, columns: usize) -> String {
    let spares = match sizing.hot_spares {
        0 => String::new(),
        1 => ", and 1 hot spare".to_owned(),
        many => format!(", and {many} hot spares"),
    };
    let files = match (sizing.files_tb, sizing.files_tib) {
        (Some(tb), Some(tib)) => format!(", {tb:.1} TB = {tib:.1} TiB of it for files"),
        _ => String::new(),
    };
    let mut text = format!(
        "{:.1} TB = {:.1} TiB usable{files}: {} drives of {} TB, {}{spares}\n\n",
        sizing.usable_tb,
        sizing.usable_tib,
        sizing.drives,
        trim(sizing.drive_tb),
        sizing.scheme.title()
    );
    let mut table = Table::new(&["", "TB", "TiB", "<"]);
    for step in &sizing.steps {
        table.row(vec![
            step.what.clone(),
            format!("{:.2}", step.tb),
            format!("{:.2}", step.tib),
            step.arithmetic.clone(),
        ]);
    }
    text.push_str(&table.render());
    text.push('\n');
    for warning in &sizing.warnings {
        text.push_str(&wrap("note: ", warning, columns));
    }
    let _ = write!(text, "{}", wrap("source: ", &sizing.source, columns));
    text
}

/// Arrays that meet a need, best first; at most this many.
#[must_use]
pub fn candidates(answer: &Answer, shown: usize, columns: usize) -> String {
    let mut text = String::new();
    if let Some(best) = answer.candidates.first() {
        let _ = writeln!(
            text,
            "{} array{} of {} drives of {} TB, {}: {:.1} TB = {:.1} TiB, {:.1} GB/s read, {:.1} GB/s written",
            best.arrays,
            if best.arrays == 1 { "" } else { "s" },
            best.drives,
            trim(best.drive_tb),
            best.scheme.title(),
            best.usable_tb,
            best.usable_tib,
            best.read_gbytes_per_s,
            best.write_gbytes_per_s
        );
        text.push_str(&wrap("  decided by ", &best.needed_for, columns));
        text.push('\n');
    }
    let mut table =
        Table::new(&["arrays", "<each", "TB", "TiB", "read GB/s", "write GB/s", "<why not first"]);
    for (place, one) in answer.candidates.iter().take(shown).enumerate() {
        table.row(vec![
            one.arrays.to_string(),
            format!("{} x {} TB {}", one.drives, trim(one.drive_tb), one.scheme),
            format!("{:.1}", one.usable_tb),
            format!("{:.1}", one.usable_tib),
            format!("{:.1}", one.read_gbytes_per_s),
            format!("{:.1}", one.write_gbytes_per_s),
            if place == 0 { "best".to_owned() } else { one.why.clone() },
        ]);
    }
    text.push_str(&table.render());
    let left = answer.candidates.len().saturating_sub(shown);
    if left > 0 {
        let _ = writeln!(text, "  {left} more: --all");
    }
    text.push('\n');
    for note in &answer.notes {
        text.push_str(&wrap("note: ", note, columns));
    }
    text
}

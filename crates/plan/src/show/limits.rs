//! Limits as text: the binding stage first, then every stage with its computation.

use super::table::{Table, printable, rate, wrap};
use crate::limits::{Curve, Direction, Limits, Stage, StageNeed};
use std::fmt::Write;

/// Limits.
#[must_use]
pub fn limits(limits: &Limits, columns: usize) -> String {
    let mut text = format!("{}\n", printable(&limits.name));
    for (what, bound) in [("read ", &limits.read), ("write", &limits.write)] {
        let line =
            format!("{:.3} GB/s = {:.3} GiB/s, bound by {}", bound.gbytes_per_s, bound.gib_per_s, bound.why);
        text.push_str(&wrap(&format!("  {what}  "), &line, columns));
    }
    text.push('\n');
    let mut table = Table::new(&["<stage", "<of", "line GB/s", "read GB/s", "write GB/s", "<binds"]);
    for stage in &limits.stages {
        let binds: Vec<_> = [(&limits.read, "read"), (&limits.write, "write")]
            .into_iter()
            .filter_map(|(bound, word)| bound.binds.contains(&stage.name).then_some(word))
            .collect();
        table.row(vec![
            stage.name.title().to_owned(),
            count_of(stage.count, stage.of),
            rate(stage.line_gbytes_per_s),
            rate(stage.read_gbytes_per_s),
            rate(stage.write_gbytes_per_s),
            binds.join(", "),
        ]);
    }
    text.push_str(&table.render());
    text.push('\n');
    for stage in &limits.stages {
        text.push_str(&wrap(&format!("  {}: ", stage.name.title()), &computation(stage), columns));
    }
    for note in &limits.notes {
        text.push_str(&wrap("note: ", note, columns));
    }
    if let Some(source) = &limits.source {
        text.push_str(&wrap("source: ", &printable(source), columns));
    }
    text
}

/// A count with its noun: `1 port`, `8 ports`, `2 switches`.
fn count_of(count: u32, of: &str) -> String {
    let one = of.strip_suffix("ches").map(|stem| format!("{stem}ch"));
    let one = one.unwrap_or_else(|| of.trim_end_matches('s').to_owned());
    if count == 1 { format!("1 {one}") } else { format!("{count} {of}") }
}

fn computation(stage: &Stage) -> String {
    let modes = [Direction::Read, Direction::Write].map(|direction| match direction {
        Direction::Read => stage.read_mode.as_deref(),
        Direction::Write => stage.write_mode.as_deref(),
    });
    let modes: Vec<_> = modes.into_iter().flatten().collect();
    let modes = if modes.is_empty() { String::new() } else { format!("; {}", modes.join("; ")) };
    format!("{}{modes} ({})", stage.arithmetic, stage.source)
}

/// A curve.
#[must_use]
pub fn curve(curve: &Curve) -> String {
    let mut text = format!("\nlimit over {}\n", curve.over);
    let mut table = Table::new(&[curve.over.name(), "read GB/s", "<bound by", "write GB/s", "<bound by"]);
    for point in &curve.points {
        table.row(vec![
            point.count.to_string(),
            format!("{:.3}", point.read.gbytes_per_s),
            stages(&point.read.binds),
            format!("{:.3}", point.write.gbytes_per_s),
            stages(&point.write.binds),
        ]);
    }
    let _ = write!(text, "{}", table.render());
    text
}

fn stages(names: &[crate::limits::StageName]) -> String {
    names.iter().map(|name| name.title()).collect::<Vec<_>>().join(", ")
}

/// The required numbers of each stage's parts.
#[must_use]
pub fn stage_needs(found: &[StageNeed]) -> String {
    let mut text = String::from("\nto carry what is needed\n");
    let mut table = Table::new(&["<stage", "has", "needs", "<of", "<because"]);
    for one in found {
        table.row(vec![
            one.stage.title().to_owned(),
            one.have.to_string(),
            one.need.to_string(),
            format!("{}{}", one.of, if one.need > one.have { "  <- short" } else { "" }),
            one.arithmetic.clone(),
        ]);
    }
    text.push_str(&table.render());
    text
}

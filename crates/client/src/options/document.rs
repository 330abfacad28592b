//! The documentation of the mount options, made from the table.

use super::{Effect, Group, OPTIONS, OptionSpec};
use std::fmt::Write;

/// `docs/MOUNT-OPTIONS.md`.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(
        "# Mount options\n\n\
         Made from the table in `crates/client/src/options/table.rs`; change it there, and run\n\
         `UPDATE=1 cargo test -p trunkline-client --test option_docs`.\n\n\
         Options are separated by commas and stand in any order. Of the same one given twice, and of pairs\n\
         such as `hard` and `soft`, the last counts. Unknown options are errors; options that cannot hold\n\
         together are refused.\n",
    );
    for group in Group::ALL {
        let _ = write!(out, "\n## {}\n\n", group.title());
        let others = group == Group::Others;
        if others {
            out.push_str(
                "Accepted, so that existing lines work as they are. `trunkline mount` warns of those that have no effect\n\
                 here; for the others nothing is to be done.\n\n\
                 | option | value | warns | why |\n|---|---|---|---|\n",
            );
        } else {
            out.push_str("| option | value | default | meaning |\n|---|---|---|---|\n");
        }
        for spec in OPTIONS.iter().filter(|spec| spec.group == group) {
            let value = cell(&spec.kind.expected());
            let meaning = cell(&meaning(spec));
            let _ = match others {
                true => writeln!(out, "| `{}` | {value} | {} | {meaning} |", spec.name, warns(spec.effect)),
                false => writeln!(out, "| `{}` | {value} | {} | {meaning} |", spec.name, cell(spec.default)),
            };
        }
    }
    out
}

/// One line for each option that does something, for `--help` and terminals.
#[must_use]
pub fn help() -> String {
    let mut out = String::new();
    for spec in OPTIONS.iter().filter(|spec| spec.effect == Effect::Works) {
        let _ = writeln!(out, "  {:20} {}", spec.name, spec.doc.replace('`', ""));
    }
    out
}

fn meaning(spec: &OptionSpec) -> String {
    let space = if spec.doc.is_empty() { "" } else { " " };
    match spec.effect {
        Effect::Works => spec.doc.to_owned(),
        Effect::Noted(why) | Effect::Holds(why) if spec.group == Group::Others => why.to_owned(),
        Effect::Holds(why) => format!("{}{space}It holds anyway: {why}.", spec.doc),
        Effect::Noted(why) => format!("{}{space}No effect here: {why}.", spec.doc),
        Effect::Refused(why) => format!("{}{space}Refused: {why}.", spec.doc),
    }
}

const fn warns(effect: Effect) -> &'static str {
    match effect {
        Effect::Noted(_) => "yes",
        Effect::Works | Effect::Holds(_) | Effect::Refused(_) => "",
    }
}

/// A bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

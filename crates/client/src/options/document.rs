//! The documentation of the mount options, made from the table.

use super::{Effect, Group, OPTIONS, OptionSpec};
use std::fmt::Write;

/// `docs/MOUNT-OPTIONS.md`.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(
        "# Mount options\n\n\
         Generated from the table in `crates/client/src/options/table.rs`. To change this page, change the\n\
         table and run `UPDATE=1 cargo test -p client --test option_docs`.\n\n\
         Options are separated by commas, in any order. If an option is given twice, or both of a pair such\n\
         as `hard` and `soft` are given, the last counts. Unknown options are errors; contradictory\n\
         options are refused.\n",
    );
    for group in Group::ALL {
        let _ = write!(out, "\n## {}\n\n", group.title());
        let others = group == Group::Others;
        if others {
            out.push_str(
                "These options are accepted, so that existing lines keep working. `trunkline mount` warns of those that\n\
                 have no effect here; the others need no action.\n\n\
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

/// Columns of [`help`], and of the names in it.
const HELP_COLUMNS: usize = 80;
const NAME_COLUMNS: usize = 22;

/// Each option that does something, with what it means and its default, for `--help` and terminals.
#[must_use]
pub fn help() -> String {
    let mut out = String::new();
    for group in Group::ALL {
        let mut works =
            OPTIONS.iter().filter(|spec| spec.group == group && spec.effect == Effect::Works).peekable();
        if works.peek().is_some() {
            let _ = writeln!(out, "{}:", group.title());
        }
        for spec in works {
            let default = match spec.default {
                "" => String::new(),
                default => format!(" [default: {default}]"),
            };
            let mut line = format!("  {:1$}", spec.name, NAME_COLUMNS - 2);
            for word in format!("{}{default}", spec.doc).replace('`', "").split(' ') {
                if line.chars().count() + 1 + word.chars().count() > HELP_COLUMNS {
                    let _ = writeln!(out, "{}", line.trim_end());
                    line = " ".repeat(NAME_COLUMNS);
                }
                line.push_str(word);
                line.push(' ');
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
    out
}

fn meaning(spec: &OptionSpec) -> String {
    let space = if spec.doc.is_empty() { "" } else { " " };
    match spec.effect {
        Effect::Works => spec.doc.to_owned(),
        Effect::Noted(why) | Effect::Holds(why) if spec.group == Group::Others => why.to_owned(),
        Effect::Holds(why) => format!("{}{space}Always in effect: {why}.", spec.doc),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_each_option_that_works_and_no_other_within_the_columns() {
        let help = help();
        let names: Vec<&str> = help
            .lines()
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        let works: Vec<&str> = Group::ALL
            .iter()
            .flat_map(|group| OPTIONS.iter().filter(move |spec| spec.group == *group))
            .filter(|spec| spec.effect == Effect::Works)
            .map(|spec| spec.name)
            .collect();
        assert_eq!(names, works);
        for name in ["nconnect", "nolock", "allow_other", "sync", "nocto", "retry"] {
            assert!(works.contains(&name), "{name}");
        }
        let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > HELP_COLUMNS).collect();
        assert!(long.is_empty(), "{long:?}");
        assert!(help.contains("[default: 600]"), "{help}");
    }
}

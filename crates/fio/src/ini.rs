//! The lines of a job file: sections and their options.

use crate::Context;
use crate::error::{Fault, Result};

/// The values of all lines after their variables are replaced. A variable that stands in each line
/// of a file can make much of little.
const EXPANDED_BYTES_MAX: usize = 16 << 20;

/// A section: `[name]` and the lines below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) entries: Vec<Entry>,
}

/// A line with an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Absent if the option stands alone.
    pub(crate) value: Option<String>,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Splits a job file into its sections. A comment begins with `#` or `;`, anywhere in a line.
pub(crate) fn sections(text: &str, context: &Context) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    let mut room = EXPANDED_BYTES_MAX;
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let content = raw.split(['#', ';']).next().unwrap_or_default();
        let trimmed = content.trim();
        if trimmed.is_empty() {
            continue;
        }
        let indent = content.len() - content.trim_start().len();
        let column = content.get(..indent).map_or(0, |blanks| blanks.chars().count()) + 1;
        if let Some(rest) = trimmed.strip_prefix('[') {
            let name = section_name(rest).map_err(|fault| fault.at(line, column))?;
            sections.push(Section { name, line, entries: Vec::new() });
            continue;
        }
        let entry = entry(trimmed, context, &mut room, line, column)?;
        match sections.last_mut() {
            Some(section) => section.entries.push(entry),
            None => {
                let cause = format!("the option {} stands before the first section", entry.name);
                let advice = "a line `[global]` above it";
                return Err(Fault::new(cause, advice).at(line, column));
            }
        }
    }
    Ok(sections)
}

fn section_name(rest: &str) -> std::result::Result<String, Fault> {
    let Some(name) = rest.strip_suffix(']') else {
        return Err(Fault::new(format!("the section [{rest} has no end"), "`]` at the end of that line"));
    };
    match name.trim() {
        "" => Err(Fault::new("a section without a name", "a name for the job, as in `[job1]`")),
        name => Ok(name.to_owned()),
    }
}

fn entry(text: &str, context: &Context, room: &mut usize, line: usize, column: usize) -> Result<Entry> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name.trim_end(), Some(value.trim_start())),
        None => (text, None),
    };
    if text.starts_with("include ") {
        let fault =
            Fault::new("`include` of another file is not supported", "the lines of that file instead");
        return Err(fault.at(line, column));
    }
    let value = value.map(|value| expand(value, context, room).map_err(|fault| fault.at(line, column)));
    Ok(Entry { name: name.to_owned(), value: value.transpose()?, line, column })
}

/// Replaces each `${NAME}` by the value of the environment variable. `room` is the number of bytes
/// that this and the lines below may still have.
fn expand(value: &str, context: &Context, room: &mut usize) -> std::result::Result<String, Fault> {
    let (mut expanded, mut rest) = (String::new(), value);
    let mut take = |bytes: usize| {
        *room = room.checked_sub(bytes).ok_or_else(|| {
            let cause = format!("the values of all lines have more than {} MiB", EXPANDED_BYTES_MAX >> 20);
            Fault::new(cause, "shorter values of the environment variables, or fewer lines with them")
        })?;
        Ok(())
    };
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else {
            return Err(Fault::new(format!("`${{{after}` has no end"), "`}` after the variable's name"));
        };
        let Some(found) = context.environment.get(name) else {
            let cause = format!("the environment variable {name} is not set");
            return Err(Fault::new(cause, format!("{name}=VALUE before the command")));
        };
        take(before.len() + found.len())?;
        expanded.push_str(before);
        expanded.push_str(found);
        rest = behind;
    }
    take(rest.len())?;
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Section>> {
        let environment = [("SIZE".to_owned(), "4k".to_owned())].into();
        sections(text, &Context { environment })
    }

    #[test]
    fn sections_options_and_comments_are_told_apart() {
        let text =
            "; first\n[global]\n  bs = 1M # block size\ntime_based\n\n[a] ; a job\nsize=${SIZE}x${SIZE}\n";
        let found = read(text).unwrap();
        assert_eq!(found.len(), 2);
        let shown: Vec<(&str, Option<&str>)> = found
            .iter()
            .flat_map(|section| &section.entries)
            .map(|entry| (entry.name.as_str(), entry.value.as_deref()))
            .collect();
        assert_eq!(shown, [("bs", Some("1M")), ("time_based", None), ("size", Some("4kx4k"))]);
        assert_eq!((found[0].entries[0].line, found[0].entries[0].column), (3, 3));
        assert_eq!((found[1].name.as_str(), found[1].line), ("a", 6));
    }

    #[test]
    fn variables_cannot_make_a_file_endless() {
        let environment = [("LONG".to_owned(), "x".repeat(1 << 17))].into();
        let context = Context { environment };
        let lines = |number: usize| format!("[a]\n{}", "directory=${LONG}\n".repeat(number));
        assert_eq!(sections(&lines(128), &context).unwrap()[0].entries.len(), 128);
        let error = sections(&lines(129), &context).unwrap_err();
        assert_eq!((error.line, error.cause.contains("16 MiB")), (130, true), "{error}");
        let error = sections(&format!("[a]\nname={}", "${LONG}".repeat(200)), &context).unwrap_err();
        assert_eq!(error.line, 2);
    }

    #[test]
    fn broken_lines_are_refused_with_their_place_and_what_to_do() {
        for (text, line, cause) in [
            ("bs=4k\n[a]\n", 1, "before the first section"),
            ("[a\nbs=4k\n", 1, "has no end"),
            ("[]\n", 1, "without a name"),
            ("[a]\ninclude b.fio\n", 2, "include"),
            ("[a]\nsize=${NONE}\n", 2, "NONE is not set"),
            ("[a]\nsize=${SIZE\n", 2, "has no end"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.line == line && error.cause.contains(cause), "{text}: {error}");
            assert!(!error.advice.is_empty());
        }
    }
}

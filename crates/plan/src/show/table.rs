//! Aligned columns, and sentences wrapped to the width.

use std::fmt::Write;

/// The space between columns.
const GAP: &str = "  ";

/// A table. The first column and those marked for it are left-aligned, numbers right-aligned.
#[derive(Debug, Default)]
pub(super) struct Table {
    left: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// The headings; one that begins with `<` marks a left-aligned column.
    pub(super) fn new(headings: &[&str]) -> Self {
        let left = headings
            .iter()
            .enumerate()
            .map(|(index, heading)| index == 0 || heading.starts_with('<'))
            .collect();
        let row = headings.iter().map(|heading| heading.trim_start_matches('<').to_owned()).collect();
        Self { left, rows: vec![row] }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(super) fn render(&self) -> String {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<_> = (0..count).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                line.push_str(GAP);
                let _ = if self.left.get(column).copied().unwrap_or_default() {
                    write!(line, "{cell:<width$}")
                } else {
                    write!(line, "{cell:>width$}")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A sentence after a mark, in lines of at most this many columns.
pub(super) fn wrap(mark: &str, sentence: &str, columns: usize) -> String {
    let indent = " ".repeat(mark.chars().count());
    let room = columns.saturating_sub(indent.len()).max(20);
    let mut lines: Vec<String> = vec![String::new()];
    for word in sentence.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= room {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
        .iter()
        .enumerate()
        .map(|(number, line)| format!("{}{line}\n", if number == 0 { mark } else { &indent }))
        .collect()
}

/// Escapes foreign text, so that it can neither move the cursor of a terminal nor reverse the
/// direction of reading.
pub(super) fn printable(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .map(|c| if c.is_control() || turns(c) { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

/// A speed, or `-` without one.
pub(super) fn rate(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_text_shows_what_it_has_instead_of_doing_it() {
        assert_eq!(printable("a\u{1b}[2J\u{9b}\u{202e}b\u{2067}é"), "a\\u{1b}[2J\\u{9b}\\u{202e}b\\u{2067}é");
    }
}

//! Formats tables of statistics.

/// A number of bytes in decimal units, with at least three digits: `17 B`, `4.21 MB`.
pub fn bytes(bytes: u64) -> String {
    let units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match units.into_iter().find(|(_, unit)| bytes as f64 >= *unit) {
        Some((name, unit)) => format!("{:.2} {name}", bytes as f64 / unit),
        None => format!("{bytes} B"),
    }
}

/// Formats rows; the first is the header. The first `words` columns are left-aligned, the others
/// right-aligned.
pub fn lay_out<const COLUMNS: usize>(text: &mut String, rows: &[[String; COLUMNS]], words: usize) {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column).unwrap_or_default();
            if column < words {
                line.push_str(&format!("{cell:width$}  "));
            } else {
                line.push_str(&format!("{cell:>width$}  "));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_decimal() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_048_576), "1.05 MB");
    }

    #[test]
    fn words_stand_to_the_left_and_numbers_to_the_right() {
        let mut text = String::new();
        lay_out(&mut text, &[["path", "calls"], ["a", "7"]].map(|row| row.map(str::to_owned)), 1);
        assert_eq!(text, "path  calls\na         7\n");
    }
}

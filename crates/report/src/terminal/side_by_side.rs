//! Several records compared with the first, for a terminal.

use record::Record;

use super::canvas::{Canvas, Style, width};
use crate::comparison::{self, SideBySide};

/// The comparison of several records as text of this many columns, with ANSI colours if `ansi`;
/// empty for fewer than two.
pub fn side_by_side(records: &[Record], names: &[String], columns: usize, ansi: bool) -> String {
    if records.len() < 2 {
        return String::new();
    }
    let mut canvas = Canvas::new(columns.max(super::COLUMNS_MIN), ansi);
    let first = names.first().map_or("the first record", String::as_str);
    canvas.paragraph(Style::Bold, 0, "", &format!("{} records, compared with {first}", records.len()));
    let warning = "different sittings: the same machine may drift by a third between two";
    canvas.paragraph(Style::Dim, super::INDENT, "", warning);
    for difference in comparison::differences(records) {
        let values = difference.values.join(" | ");
        canvas.paragraph(Style::Plain, super::INDENT, &format!("{}: ", difference.name), &values);
    }
    let tables = comparison::side_by_side(records);
    for table in &tables {
        canvas.end_line();
        rows(&mut canvas, table, names);
    }
    canvas.end_line();
    if tables.is_empty() {
        let nothing = "nothing was measured alike in two of them: workloads, conditions or routes differ";
        canvas.paragraph(Style::Bold, 0, "", nothing);
    }
    for total in comparison::totals(&tables, names) {
        canvas.paragraph(Style::Bold, 0, "", &total);
    }
    canvas.finish()
}

fn rows(canvas: &mut Canvas, table: &SideBySide, names: &[String]) {
    canvas.paragraph(Style::Plain, 0, "", &format!("{}, GB/s", table.title));
    let route_width = table.rows.iter().map(|row| width(&row.route)).max().unwrap_or_default();
    let name_width = names.iter().map(|name| width(name)).max().unwrap_or_default();
    let labels: String = table.labels.iter().map(|label| format!(" {label}")).collect();
    for row in &table.rows {
        let mut route = row.route.as_str();
        for (cell, name) in row.cells.iter().zip(names) {
            let Some(cell) = cell else { continue };
            let lead = format!("{route:route_width$}  {name:name_width$}  ");
            let (style, found) = match &cell.times {
                None => (Style::Plain, format!("{}{labels}", cell.speed)),
                Some(times) => {
                    let style = match times.class() {
                        "slower" => Style::Red,
                        "faster" => Style::Blue,
                        _ => Style::Plain,
                    };
                    (style, format!("{}{labels} {}, {}", cell.speed, times.word(), times.ratio))
                }
            };
            canvas.paragraph(style, super::INDENT, &lead, &found);
            route = "";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn each_speed_has_its_verdict_and_all_are_counted() {
        let (first, mut later, third) = (sample::record(), sample::record(), sample::record());
        let cells = later.routes[0].workloads.iter_mut().filter_map(|workload| workload.read.as_mut());
        for repeat in cells.flat_map(|cell| &mut cell.repeats) {
            repeat.gbytes_per_s /= 2.0;
        }
        later.commit = Some("bc52d7d".into());
        let names = ["before.json", "after.json", "again.json"].map(str::to_owned);
        let text = side_by_side(&[first, later, third], &names, 100, false);
        for line in [
            "3 records, compared with before.json",
            "  commit: 34adb40 | bc52d7d | 34adb40",
            "  tcp     before.json  3.06\n",
            "          after.json   3.06 slower, 0.50 times (95 %: 0.4",
            "          again.json   3.06 no difference shown, 1.00 times (95 %: 0.9",
            "after.json: 0 faster, 3 slower, 7 without a difference shown",
            "again.json: 0 faster, 0 slower, 10 without a difference shown",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.lines().all(|line| width(line) <= 100), "{text}");
    }

    #[test]
    fn one_record_is_compared_with_nothing_and_hostile_names_command_nothing() {
        assert_eq!(side_by_side(&[sample::record()], &["a".to_owned()], 80, false), "");
        let names = ["\u{1b}[31m".to_owned(), "b".to_owned()];
        let text = side_by_side(&[sample::hostile(), sample::hostile()], &names, 80, false);
        assert!(!text.contains('\u{1b}') && !text.contains("\n# pwned"), "{text}");
    }
}

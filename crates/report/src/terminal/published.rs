//! A published result beside a record, for a terminal.

use record::Record;

use super::canvas::{Canvas, Style, width};
use crate::{Published, published::this_machine};

/// A published result beside a record, as text of this many columns, with ANSI colours if `ansi`.
pub fn published(result: &Published, record: &Record, columns: usize, ansi: bool) -> String {
    let mut canvas = Canvas::new(columns.max(super::COLUMNS_MIN), ansi);
    canvas.paragraph(Style::Bold, 0, "", &format!("published: {}", result.title));
    canvas.paragraph(Style::Plain, super::INDENT, "", &format!("on another machine: {}", result.machine));
    canvas.paragraph(Style::Plain, super::INDENT, "", &result.load);
    canvas.paragraph(Style::Plain, super::INDENT, "", &format!("beside {}", this_machine(record)));
    let rows = result.beside(record);
    let route_width = rows.iter().map(|row| width(&row.route)).max().unwrap_or_default();
    for row in &rows {
        let lead = format!("{:route_width$}  ", row.route);
        canvas.paragraph(Style::Plain, super::INDENT, &lead, &format!("{}: {}", row.what, row.published));
        let below = super::INDENT + width(&lead);
        let nothing = ["nothing alike".to_owned()];
        let here = if row.here.is_empty() { &nothing[..] } else { &row.here };
        here.iter().for_each(|value| canvas.paragraph(Style::Blue, below, "here: ", value));
    }
    canvas.paragraph(Style::Bold, super::INDENT, "", "what does not add up:");
    result.doubts.iter().for_each(|doubt| canvas.paragraph(Style::Plain, super::INDENT, "- ", doubt));
    canvas.end_line();
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn each_figure_has_the_values_that_are_alike_and_all_doubts_are_told() {
        let results = crate::published();
        let result = results.iter().find(|it| it.name == "powerscale-f210").expect("a result");
        let text = published(result, &sample::record(), 80, false);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            "on another machine: four PowerScale F210",
            "beside this record (2 CPUs, Linux 6.18.44)",
            "tcp-mp reads and writes together, sequential, 1 MiB blocks: 8.20 GB/s (nodes 0.72,",
            "here: 1.95 GB/s (mix-1m, paced at 2 Gbit/s a node)",
            "here: nothing alike",
            "- Routes were not measured alike:",
        ] {
            assert!(words.contains(said), "{said}: {text}");
        }
        assert!(text.lines().all(|line| width(line) <= 80), "{text}");
    }
}

//! The outcomes of conditions, for a terminal.

use super::canvas::{Canvas, Style};
use crate::condition::{Outcome, RecordChecks};

/// The outcomes of all conditions as text of this many columns, with ANSI colours if `ansi`.
pub fn checks(checks: &[RecordChecks], columns: usize, ansi: bool) -> String {
    let mut canvas = Canvas::new(columns.max(super::COLUMNS_MIN), ansi);
    for record in checks {
        let is_shown = !record.failed.is_empty() || !record.judgements.is_empty();
        if is_shown {
            canvas.paragraph(Style::Bold, 0, "", &format!("conditions on {}", record.name));
        }
        for why in &record.failed {
            canvas.paragraph(Style::Red, super::INDENT, "FAILED     ", &format!("the record itself: {why}"));
        }
        let mut last = "";
        for judgement in &record.judgements {
            if judgement.condition != last {
                canvas.paragraph(Style::Plain, super::INDENT, "", &judgement.condition);
                last = &judgement.condition;
            }
            let (style, word) = match judgement.outcome {
                Outcome::Holds => (Style::Red, "FAILED     "),
                Outcome::NotShown => (Style::Yellow, "not shown  "),
                Outcome::DoesNotHold => (Style::Plain, "passed     "),
            };
            let found = format!("{} {}: {}", judgement.route, judgement.place, judgement.finding);
            canvas.paragraph(style, 2 * super::INDENT, word, &found);
        }
    }
    canvas.paragraph(Style::Bold, 0, "", &summary(checks));
    canvas.finish()
}

/// The outcomes in one sentence.
fn summary(checks: &[RecordChecks]) -> String {
    let count = |outcome| checks.iter().map(|record| record.count(outcome)).sum::<usize>();
    let failed = checks.iter().filter(|record| !record.failed.is_empty()).count();
    let [holds, not_shown, passed] = [Outcome::Holds, Outcome::NotShown, Outcome::DoesNotHold].map(count);
    let mut parts = vec![format!("{holds} failed, {not_shown} not shown, {passed} passed")];
    if failed > 0 {
        parts.push(format!("{failed} of the records failed by themselves: do not use their numbers"));
    }
    if not_shown > 0 {
        parts.push("not shown: the median fulfils the condition, but not the whole interval".to_owned());
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        condition::{Basis, Checked, check},
        sample,
    };

    #[test]
    fn each_outcome_is_told_with_its_finding_and_all_are_counted() {
        let mut record = sample::record();
        record.fail("a block\u{1b}[2J was wrong");
        let texts = ["tcp.mix-1m.raw.read < 9 GB/s", "tcp.mix-1m.raw.read < 3.09", "tcp-mp.write < 0.1"];
        let conditions = texts.map(|text| text.parse().expect("a condition"));
        let checked = Checked { record: &record, name: "after.json" };
        let found = check(&conditions, &[checked], None, Basis::Intervals).expect("judged");
        let text = checks(&found, 80, false);
        for line in [
            "conditions on after.json",
            "  FAILED     the record itself: a block?[2J was wrong",
            "    FAILED     tcp read of mix-1m, raw: 3.06 GB/s (95 %: ",
            "    not shown  tcp read of mix-1m, raw: 3.06 GB/s (95 %: ",
            "    passed     tcp-mp write of mix-1m, paced: 0.9",
            "1 failed, 1 not shown, 2 passed; 1 of the records failed by themselves",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(checks(&found, 80, true).contains("\u{1b}[1;31m"), "failures are red");
    }
}

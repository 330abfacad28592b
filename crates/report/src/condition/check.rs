//! All conditions on all records, as a report shows them and as a CI reads them.

use super::{Basis, Checked, Condition, JudgeError, Judgement, Outcome, judge};

/// What was found about one record.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordChecks {
    /// The name of the record.
    pub name: String,
    /// The reasons not to trust the record; any of them fails the check.
    pub failed: Vec<String>,
    /// The conditions, in each place that they select.
    pub judgements: Vec<Judgement>,
}

impl RecordChecks {
    /// Whether the record failed, or a condition holds.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty() || self.count(Outcome::Holds) > 0
    }

    /// The number of judgements with an outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.judgements.iter().filter(|judgement| judgement.outcome == outcome).count()
    }
}

/// Judges each condition on each record. The baseline, which may be one of the records, is not
/// compared with itself.
///
/// # Errors
/// The first condition that cannot be judged, and why.
pub fn check<'a>(
    conditions: &'a [Condition],
    records: &[Checked<'_>],
    baseline: Option<Checked<'_>>,
    basis: Basis,
) -> Result<Vec<RecordChecks>, (&'a Condition, JudgeError)> {
    let is_baseline =
        |checked: &Checked<'_>| baseline.is_some_and(|base| std::ptr::eq(base.record, checked.record));
    let mut found: Vec<RecordChecks> = records.iter().map(of_record).collect();
    for condition in conditions {
        let mut judged = 0;
        for (checked, found) in records.iter().zip(&mut found) {
            if condition.needs_baseline() && is_baseline(checked) {
                continue;
            }
            judged += 1;
            let judgements =
                judge(condition, *checked, baseline, basis).map_err(|error| (condition, error))?;
            found.judgements.extend(judgements);
        }
        if judged == 0 {
            return Err((condition, JudgeError::no_baseline(1)));
        }
    }
    // Values of a baseline that failed prove nothing, so it fails the check, too.
    let unlisted = baseline.filter(|base| !records.iter().any(|it| std::ptr::eq(it.record, base.record)));
    found.extend(unlisted.as_ref().map(of_record).filter(RecordChecks::has_failed));
    Ok(found)
}

fn of_record(checked: &Checked<'_>) -> RecordChecks {
    let (name, failed) = (checked.name.to_owned(), checked.record.failed.clone());
    RecordChecks { name, failed, judgements: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn conditions(texts: &[&str]) -> Vec<Condition> {
        texts.iter().map(|text| text.parse().expect("a condition")).collect()
    }

    #[test]
    fn the_baseline_is_checked_by_numbers_but_not_with_itself() {
        let (before, after) = (sample::record(), sample::record());
        let before = Checked { record: &before, name: "before.json" };
        let after = Checked { record: &after, name: "after.json" };
        let conditions = conditions(&["tcp.mix-1m.read < baseline", "tcp.mix-1m.raw.read < 9"]);
        let found = check(&conditions, &[before, after], Some(before), Basis::Intervals).expect("judged");
        let judged: Vec<usize> = found.iter().map(|checks| checks.judgements.len()).collect();
        assert_eq!(judged, [1, 3]);
        assert!(found.iter().all(RecordChecks::has_failed));
        let (condition, error) = check(&conditions, &[before], Some(before), Basis::Intervals).unwrap_err();
        assert_eq!(condition.text(), "tcp.mix-1m.read < baseline");
        assert!(error.cause.contains("a baseline is needed"), "{error}");
    }

    #[test]
    fn a_record_that_failed_fails_without_any_condition() {
        let (mut before, after) = (sample::record(), sample::record());
        before.fail("a block was wrong");
        let before = Checked { record: &before, name: "before.json" };
        let after = Checked { record: &after, name: "after.json" };
        let found = check(&[], &[after], None, Basis::Intervals).expect("judged");
        assert!(!found[0].has_failed());
        let found = check(&[], &[before], None, Basis::Intervals).expect("judged");
        assert!(found[0].has_failed());
        let found = check(&[], &[after], Some(before), Basis::Intervals).expect("judged");
        assert_eq!((found.len(), found[1].name.as_str(), found[1].has_failed()), (2, "before.json", true));
    }
}

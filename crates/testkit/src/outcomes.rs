//! The outcomes of the cases of a test suite published by others, and the verdict on them.
//!
//! Nothing passes silently: a case that did not run is named with its reason, a case that was ended
//! is a failure, and a suite in which too few cases ran has failed.

use std::fmt::Write;
use std::time::Duration;

/// A case that is known to fail, and why.
pub type ExpectedFailure = (&'static str, &'static str);

/// The outcome of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The case ran and found nothing.
    Passed,
    /// The case ran and failed; with its output.
    Failed(String),
    /// The case did not run, for this reason.
    Skipped(String),
    /// The case had not ended after this time and was killed; with its output.
    Hung(Duration, String),
}

/// The outcomes of all cases of a suite. Prints each as it is recorded.
#[derive(Debug)]
pub struct Outcomes {
    suite: &'static str,
    cases: Vec<(String, Outcome)>,
}

impl Outcomes {
    /// No outcomes yet.
    #[must_use]
    pub const fn of(suite: &'static str) -> Self {
        Self { suite, cases: Vec::new() }
    }

    /// Records the outcome of a case and prints it, if it is not one of many that passed.
    pub fn record(&mut self, case: impl Into<String>, outcome: Outcome) {
        let (suite, case) = (self.suite, case.into());
        match &outcome {
            Outcome::Passed => println!("{suite} {case} passed"),
            Outcome::Failed(_) => println!("{suite} {case} FAILED"),
            Outcome::Skipped(why) => println!("{suite} {case} skipped: {why}"),
            Outcome::Hung(after, _) => println!("{suite} {case} HUNG and was killed after {after:?}"),
        }
        self.cases.push((case, outcome));
    }

    /// Records that this many cases passed, without printing their names.
    pub fn record_passed(&mut self, cases: impl IntoIterator<Item = String>) {
        self.cases.extend(cases.into_iter().map(|case| (case, Outcome::Passed)));
    }

    /// Prints the figures and ends the test unless every failure is expected and at least
    /// `ran_min` cases ran.
    ///
    /// # Panics
    /// If the suite has failed; the message names the cases and has their output.
    #[track_caller]
    pub fn conclude(&self, expected: &[ExpectedFailure], ran_min: usize) {
        match self.verdict(expected, ran_min) {
            Ok(figures) => println!("{figures}"),
            Err(complaint) => panic!("{complaint}"),
        }
    }

    /// The figures of a suite that passed, or what is wrong.
    fn verdict(&self, expected: &[ExpectedFailure], ran_min: usize) -> Result<String, String> {
        let reason =
            |case: &str| expected.iter().find(|(known, _)| *known == case).map(|(_, reason)| *reason);
        let mut complaint = String::new();
        let mut notes = String::new();
        let (mut passed, mut skipped, mut failed) = (0_usize, 0_usize, 0_usize);
        for (case, outcome) in &self.cases {
            // Writing to a string cannot fail.
            let _ = match (outcome, reason(case)) {
                (Outcome::Passed, known) => {
                    passed += 1;
                    known.map_or(Ok(()), |_| writeln!(notes, "  {case} passed, and is listed as a failure"))
                }
                (Outcome::Skipped(_), _) => {
                    skipped += 1;
                    Ok(())
                }
                (Outcome::Failed(_), Some(reason)) => {
                    failed += 1;
                    writeln!(notes, "  {case} failed as expected: {reason}")
                }
                (Outcome::Failed(output), None) => writeln!(complaint, "{case} failed:\n{output}"),
                (Outcome::Hung(after, output), _) => {
                    writeln!(complaint, "{case} was killed after {after:?}:\n{output}")
                }
            };
        }
        let ran = self.cases.len() - skipped;
        if ran < ran_min {
            let _ = writeln!(complaint, "only {ran} cases ran, and {ran_min} must; the others were skipped");
        }
        let suite = self.suite;
        let figures = format!(
            "{suite}: {ran} cases ran, {passed} passed, {failed} failed as expected, {skipped} skipped\n{notes}"
        );
        if complaint.is_empty() { Ok(figures) } else { Err(format!("{complaint}{figures}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: &[ExpectedFailure] = &[("known", "a limit")];

    fn verdict(cases: &[(&str, Outcome)], ran_min: usize) -> Result<String, String> {
        let mut outcomes = Outcomes::of("theirs");
        cases.iter().for_each(|(case, outcome)| outcomes.record(*case, outcome.clone()));
        outcomes.verdict(EXPECTED, ran_min)
    }

    fn failed() -> Outcome {
        Outcome::Failed("its output".to_owned())
    }

    #[test]
    fn expected_failures_and_skips_are_counted_and_named() {
        let skipped = Outcome::Skipped("no device".to_owned());
        let cases = [("one", Outcome::Passed), ("known", failed()), ("two", skipped)];
        let said = verdict(&cases, 2).unwrap();
        assert!(said.contains("2 cases ran, 1 passed, 1 failed as expected, 1 skipped"), "{said}");
        assert!(said.contains("known failed as expected: a limit"), "{said}");
    }

    #[test]
    fn an_unexpected_failure_fails_the_suite_with_its_output() {
        let said = verdict(&[("known", failed()), ("other", failed())], 0).unwrap_err();
        assert!(said.contains("other failed:\nits output"), "{said}");
        assert!(!said.contains("known failed:"), "{said}");
    }

    #[test]
    fn a_case_that_was_expected_to_fail_may_pass_and_says_so() {
        let said = verdict(&[("known", Outcome::Passed)], 1).unwrap();
        assert!(said.contains("known passed, and is listed as a failure"), "{said}");
    }

    #[test]
    fn a_case_that_hangs_fails_the_suite_even_if_it_may_fail() {
        let hung = Outcome::Hung(Duration::from_secs(3), "stuck here".to_owned());
        let said = verdict(&[("known", hung)], 0).unwrap_err();
        assert!(said.contains("known was killed after 3s:\nstuck here"), "{said}");
    }

    #[test]
    fn a_suite_that_skips_too_much_fails() {
        let skipped = Outcome::Skipped("no device".to_owned());
        let said = verdict(&[("one", Outcome::Passed), ("two", skipped)], 2).unwrap_err();
        assert!(said.contains("only 1 cases ran, and 2 must"), "{said}");
    }
}

//! The outcomes of conditions as JUnit XML, as CI systems read it: a suite for each record, and a
//! test case for each place of each condition. A case fails if its condition holds, and is skipped
//! if that is not shown.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::condition::{Judgement, Outcome, RecordChecks};

/// The outcomes as one document. The first case of each suite is the record itself.
pub fn junit(checks: &[RecordChecks]) -> String {
    let mut report = Report::new("trunkline report");
    for record in checks {
        let mut suite = TestSuite::new(record.name.as_str());
        suite.add_test_case(of_record(record));
        suite.add_test_cases(record.judgements.iter().map(case));
        report.add_test_suite(suite);
    }
    report.to_string().expect("the document is written to memory, and has text without NUL only")
}

fn of_record(record: &RecordChecks) -> TestCase {
    let status = match record.failed.first() {
        None => TestCaseStatus::success(),
        Some(first) => failure(first, &record.failed.join("\n")),
    };
    let mut case = TestCase::new("the record can be trusted", status);
    case.set_classname("record");
    case
}

fn case(judgement: &Judgement) -> TestCase {
    let found = format!("{} {}: {}", judgement.route, judgement.place, judgement.finding);
    let status = match judgement.outcome {
        Outcome::Holds => failure(&judgement.finding, &format!("{}\n{found}", judgement.condition)),
        Outcome::NotShown => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(format!("not shown: {found}"));
            status
        }
        Outcome::DoesNotHold => TestCaseStatus::success(),
    };
    let name = format!("{}: {} {}", judgement.condition, judgement.route, judgement.place);
    let mut case = TestCase::new(name, status);
    case.set_classname(judgement.route.as_str());
    let word = if judgement.outcome == Outcome::NotShown { "not shown: " } else { "" };
    case.set_system_out(format!("{word}{found}"));
    case
}

fn failure(message: &str, description: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message).set_description(description);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        condition::{Basis, Checked, check},
        sample,
    };

    fn document(text: &str, record: &record::Record) -> String {
        let conditions = [text.parse().expect("a condition")];
        let checked = Checked { record, name: "after.json" };
        junit(&check(&conditions, &[checked], None, Basis::Intervals).expect("judged"))
    }

    #[test]
    fn a_condition_that_holds_is_a_failed_case_and_any_other_a_passed_one() {
        let xml = document("tcp.mix-1m.read < 2 GB/s", &sample::record());
        assert!(xml.contains(r#"<testsuite name="after.json" tests="3""#), "{xml}");
        assert!(xml.contains(r#"failures="1""#), "{xml}");
        let name = "tcp.mix-1m.read &lt; 2 GB/s: tcp read of mix-1m, paced";
        let (_, failed) = xml.split_once(name).expect("the case of the paced half");
        assert!(failed.contains(r#"<failure message="0.24"#), "{xml}");
        assert!(xml.contains("the record can be trusted"), "{xml}");
    }

    #[test]
    fn a_condition_that_noise_may_have_fulfilled_is_a_skipped_case() {
        let xml = document("tcp.mix-1m.raw.read < 3.07 GB/s", &sample::record());
        assert!(xml.contains(r#"<skipped message="not shown: tcp read of mix-1m, raw: 3.0"#), "{xml}");
        assert!(xml.contains(r#"disabled="1""#) && !xml.contains("<failure"), "{xml}");
    }

    #[test]
    fn a_record_that_failed_is_a_failed_case() {
        let mut record = sample::record();
        record.fail("a block was wrong");
        let xml = document("tcp.read < 0.0001 GB/s", &record);
        assert!(xml.contains(r#"<failure message="a block was wrong""#), "{xml}");
    }

    #[test]
    fn text_from_a_record_stays_text() {
        let mut record = sample::hostile();
        record.routes[0].name = "<evil>&\u{1b}".into();
        let xml = document("\"<evil>&\u{1b}\".read < 9 GB/s", &record);
        assert!(!xml.contains("<evil>") && !xml.contains('\u{1b}') && !xml.contains("<script"), "{xml}");
    }
}

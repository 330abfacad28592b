//! pjdfstest in its shell version: what POSIX says of each call on names and attributes, in
//! thousands of numbered tests.

use crate::cases::{Ended, Place, Store, contained, run, suite};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{ExpectedFailure, Outcome, Outcomes};

/// Tests that may fail, each with the reason; docs/TESTING.md lists the same.
const EXPECTED_FAILURES: &[ExpectedFailure] =
    &[("utimensat/09.t 5", "NFS version 3 has no times after 2106: 32 bits of seconds, unsigned")];
/// The suite's own mark of a test that it expects to fail.
const MARKED: &str = concat!("# TO", "DO");
/// The tests that must run. The suite has 8,798.
const RAN_MIN: usize = 8_500;
/// The longest duration of one file. On an idle machine the slowest takes less than 20 seconds.
const FILE_TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn pjdfstest_passes_on_memory() {
    on(Store::Mem);
}

#[test]
fn pjdfstest_passes_on_a_directory() {
    on(Store::Dir);
}

fn on(store: Store) {
    let tests = suite().join("tests");
    let place = Place::on(store);
    let mut outcomes = Outcomes::of("pjdfstest");
    for file in files(&tests) {
        let mut command = contained("exec sh \"$1\"");
        command.arg(&file).current_dir(&place.mount.directory);
        let ended = run(command, FILE_TIMEOUT);
        record(&mut outcomes, &file.strip_prefix(&tests).unwrap().display().to_string(), &ended);
    }
    outcomes.conclude(EXPECTED_FAILURES, RAN_MIN);
}

/// The files with tests, sorted.
fn files(tests: &Path) -> Vec<PathBuf> {
    let entries = |directory: &Path| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let groups = entries(tests).filter(|path| path.is_dir());
    let mut files: Vec<_> = groups.flat_map(|group| entries(&group).collect::<Vec<_>>()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "t"));
    files.sort();
    files
}

/// Records the result of each test that a file has announced ("1..7") and reported ("ok 3", "not ok
/// 4 - what"), in the Test Anything Protocol.
fn record(outcomes: &mut Outcomes, file: &str, ended: &Ended) {
    if ended.status.is_none() {
        return outcomes.record(file, Outcome::Hung(FILE_TIMEOUT, ended.tail()));
    }
    let plan = ended.output.lines().find_map(|line| line.strip_prefix("1.."));
    let count: Option<usize> = plan.and_then(|plan| plan.split(' ').next()?.parse().ok());
    let planned = match count {
        None => return outcomes.record(file, Outcome::Failed(ended.tail())),
        Some(0) => return outcomes.record(file, Outcome::Skipped(plan.unwrap_or_default().to_owned())),
        Some(planned) => planned,
    };
    let mut reported = 0;
    let mut passed = Vec::new();
    for line in ended.output.lines() {
        let Some(result) = line.strip_prefix("not ").unwrap_or(line).strip_prefix("ok ") else { continue };
        reported += 1;
        let number = result.split_whitespace().next().unwrap_or_default();
        let case = format!("{file} {number}");
        if line.starts_with("ok ") || line.contains(MARKED) {
            passed.push(case);
        } else {
            outcomes.record(case, Outcome::Failed(line.to_owned()));
        }
    }
    println!("pjdfstest {file}: {} of {planned} passed", passed.len());
    outcomes.record_passed(passed);
    if reported != planned {
        outcomes.record(file, Outcome::Failed(format!("{reported} results\n{}", ended.tail())));
    }
}

//! The groups of the Connectathon tests: what NFS clients and servers of several vendors were
//! tested with against each other.

use std::process::ExitStatus;
use std::time::Duration;
use testkit::{Outcome, Outcomes};

/// A group of tests. The first failure ends a group.
pub struct Group {
    pub name: &'static str,
    /// The arguments of the suite's program.
    pub arguments: [&'static str; 2],
    /// What the group prints at its end, if all its tests passed.
    success: &'static str,
    /// What each test of the group prints when it has passed, and how often that must be.
    passed: (&'static str, usize),
}

pub const GROUPS: &[Group] = &[
    Group {
        name: "basic",
        arguments: ["-b", "-t"],
        success: "Congratulations, you passed the basic tests!",
        passed: (" ok.", 9),
    },
    Group {
        name: "general",
        arguments: ["-g", "-a"],
        success: "General tests complete",
        passed: (" real", 6),
    },
    Group { name: "special", arguments: ["-s", "-a"], success: "Special tests complete", passed: ("", 0) },
    // Locks, once with the types of small files and once with those of large files.
    Group {
        name: "lock",
        arguments: ["-l", "-a"],
        success: "Congratulations, you passed the locking tests!",
        passed: (" 0/0 fail (pass/total)", 4),
    },
];
/// What a test prints that needs a function of another system.
const NOT_AVAILABLE: &str = "not available on this platform";

/// Records how a group ended: `status` is `None` if it did not end within this time.
pub fn record(
    outcomes: &mut Outcomes,
    group: &Group,
    status: Option<ExitStatus>,
    output: &str,
    within: Duration,
) {
    // The beginning of a long output says little about a failure.
    const TAIL_BYTES: usize = 8192;
    let from = output.ceil_char_boundary(output.len().saturating_sub(TAIL_BYTES));
    let tail = format!("{status:?}\n{}", &output[from..]);
    let Some(status) = status else {
        return outcomes.record(group.name, Outcome::Hung(within, tail));
    };
    let (sign, times) = group.passed;
    let complete = output.lines().any(|line| line == group.success)
        && (times == 0 || output.matches(sign).count() >= times);
    let passed = status.success() && complete;
    outcomes.record(group.name, if passed { Outcome::Passed } else { Outcome::Failed(tail) });
    for line in output.lines().filter(|line| line.contains(NOT_AVAILABLE)) {
        outcomes.record(format!("a test of {}", group.name), Outcome::Skipped(line.to_owned()));
    }
}

//! The Connectathon tests: what NFS clients and servers of several vendors were tested with against
//! each other.

use crate::cases::{Ended, Place, Store, contained, run, suite};
use std::time::Duration;
use testkit::{Outcome, Outcomes};

/// A group of tests. The first failure ends a group.
struct Group {
    name: &'static str,
    /// The arguments of the suite's program.
    arguments: [&'static str; 2],
    /// What the group prints at its end, if all its tests passed.
    success: &'static str,
    /// What each test of the group prints when it has passed, and how often that must be.
    passed: (&'static str, usize),
}

const GROUPS: &[Group] = &[
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
/// The longest duration of a group. On an idle machine the slowest takes 20 seconds.
const GROUP_TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn cthon04_passes_on_memory() {
    on(Store::Mem);
}

#[test]
fn cthon04_passes_on_a_directory() {
    on(Store::Dir);
}

fn on(store: Store) {
    let root = suite();
    let place = Place::on(store);
    let mut outcomes = Outcomes::of("cthon04");
    for group in GROUPS {
        let mut command = contained("exec sh ./runtests \"$@\"");
        command.args(group.arguments).arg(place.mount.path("cthon04")).current_dir(&root);
        record(&mut outcomes, group, &run(command, GROUP_TIMEOUT));
    }
    outcomes.conclude(&[], GROUPS.len());
}

fn record(outcomes: &mut Outcomes, group: &Group, ended: &Ended) {
    let Some(status) = ended.status else {
        return outcomes.record(group.name, Outcome::Hung(GROUP_TIMEOUT, ended.tail()));
    };
    let (sign, times) = group.passed;
    let complete = ended.output.lines().any(|line| line == group.success)
        && (times == 0 || ended.output.matches(sign).count() >= times);
    let passed = status.success() && complete;
    outcomes.record(group.name, if passed { Outcome::Passed } else { Outcome::Failed(ended.tail()) });
    for line in ended.output.lines().filter(|line| line.contains(NOT_AVAILABLE)) {
        outcomes.record(format!("a test of {}", group.name), Outcome::Skipped(line.to_owned()));
    }
}

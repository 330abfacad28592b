//! xfstests: the cases of its groups "auto" and "quick" that are for every file system.

use crate::cases::{contained, suite};
use crate::fixture::Server;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::{ExpectedFailure, Outcome, Outcomes, Process, Stream};

/// The groups whose cases run.
const GROUPS: [&str; 2] = ["auto", "quick"];
/// Cases that do not run.
const LEFT_OUT: &[u16] = &[
    551, // takes half an hour of random asynchronous writes
    650, // takes processors of the machine off line
];
/// A variable with cases to run instead of all: `generic/001 generic/112`.
const CASES: &str = "TRUNKLINE_SUITE_CASES";
/// Cases that may fail, each with the reason; docs/TESTING.md lists the same.
const EXPECTED_FAILURES: &[ExpectedFailure] = &[
    ("generic/003", ACCESS_TIMES),
    ("generic/035", "a directory that was replaced while open is stale: NFS has no open directories"),
    ("generic/120", ACCESS_TIMES),
    ("generic/258", "NFS version 3 has no times before 1970"),
    ("generic/294", REMOUNT),
    ("generic/306", REMOUNT),
    ("generic/394", RESOURCE),
    ("generic/452", REMOUNT),
    (
        "generic/504",
        "fails on local file systems too: /proc/locks of a namespace hides locks of ended processes",
    ),
    ("generic/564", RESOURCE),
];
const ACCESS_TIMES: &str = "the server keeps the access times, and options of the mount do not change that";
const RESOURCE: &str = "fails on local file systems too, where root lacks CAP_SYS_RESOURCE";
const REMOUNT: &str = "remount is not implemented: unmount and mount again";
/// The cases that must run. The others need what NFS version 3 or FUSE does not have.
const RAN_MIN: usize = 90;
/// The longest duration of a case.
const CASE_TIMEOUT: Duration = Duration::from_secs(1800);
/// What xfstests says of a case during which the kernel logged a warning.
const KERNEL_LOG: &str = "_check_dmesg:";
/// The interval between checks whether a further case has ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The script that runs in the namespaces. The programs of [`prepare`] are added to the machine's
/// programs only there. Mounts of other tests, which could have the same names, are not there.
const SCRIPT: &str = "umount --lazy --all --types fuse.trunkline\n\
    mount -t overlay -o lowerdir=\"$WORK/sbin:/usr/sbin\" overlay /usr/sbin\n\
    export HOST_OPTIONS=\"$WORK/local.config\" PATH=\"/usr/sbin:$PATH\"\n\
    exec ./check \"$@\"";

#[test]
fn xfstests_pass_where_they_can_run() {
    let root = suite();
    let server = Server::start_with(2, testkit::free_port(), &["/test", "/scratch"]);
    let work = server.mount_point("xfstests");
    prepare(&work, &server);
    let mut outcomes = Outcomes::of("xfstests");
    let chosen = std::env::var(CASES).ok();
    let mut cases = cases(&root, chosen.as_deref());
    let ran_min = if chosen.is_some() { 0 } else { RAN_MIN };
    while !cases.is_empty() {
        run(&root, &work, &mut cases, &mut outcomes);
    }
    outcomes.conclude(EXPECTED_FAILURES, ran_min);
}

/// The cases of the groups, in the order in which they run; if some are `chosen`, only those.
fn cases(root: &Path, chosen: Option<&str>) -> Vec<String> {
    let list = fs::read_to_string(root.join("tests/generic/group.list")).expect("xfstests is built");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let of_groups = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let number: u16 = words.next()?.parse().ok()?;
        let of_groups = words.any(|group| GROUPS.contains(&group));
        let case = format!("generic/{number:03}");
        let is_chosen = chosen.is_none_or(|chosen| chosen.split_whitespace().any(|one| one == case));
        (of_groups && is_chosen && !LEFT_OUT.contains(&number)).then_some(case)
    });
    of_groups.collect()
}

/// Runs these cases until all have ended or one hangs, and takes those that have ended or hung off
/// the list.
fn run(root: &Path, work: &Path, cases: &mut Vec<String>, outcomes: &mut Outcomes) {
    let mut command = contained(SCRIPT);
    command.args(&*cases).env("WORK", work).current_dir(root);
    let mut process = Process::spawn(command);
    let before = cases.len();
    let mut last_end = Instant::now();
    loop {
        let ended = process.wait_at_most(LOOK_EVERY).is_some();
        let left = cases.len();
        take_ended(work, &process.output(Stream::Out), cases, outcomes);
        if ended {
            assert!(cases.len() < before, "{}", process.all_output());
            return;
        }
        if cases.len() < left {
            last_end = Instant::now();
        }
        if last_end.elapsed() > CASE_TIMEOUT {
            process.kill();
            let hung = cases.remove(0);
            return outcomes.record(hung, Outcome::Hung(CASE_TIMEOUT, process.all_output()));
        }
    }
}

/// Records the cases that have ended. When a case ends, a line with its name is complete; when the
/// next one has begun, nothing more is said of it.
fn take_ended(work: &Path, said: &str, cases: &mut Vec<String>, outcomes: &mut Outcomes) {
    while let Some(case) = cases.first() {
        let line = said.lines().find(|line| line.split_whitespace().next() == Some(case));
        let Some(line) = line else { return };
        outcomes.record(case.clone(), outcome(work, case, line));
        cases.remove(0);
    }
}

/// The outcome of a case by its line, which ends with the seconds that it took if it has passed.
fn outcome(work: &Path, case: &str, line: &str) -> Outcome {
    let last = line.split_whitespace().last().and_then(|last| last.strip_suffix('s'));
    let took_seconds = last.is_some_and(|seconds| seconds.parse::<u32>().is_ok());
    // The kernel's log is one for all that happens on the machine.
    let kernel_said = line.contains(KERNEL_LOG) && !line.contains("failed") && !line.contains("mismatch");
    if let Some((_, reason)) = line.split_once("[not run]") {
        Outcome::Skipped(reason.trim().to_owned())
    } else if took_seconds || kernel_said {
        if kernel_said {
            println!("xfstests {case}: the kernel logged something meanwhile, see dmesg");
        }
        Outcome::Passed
    } else {
        let file = work.join("results").join(format!("{case}.out.bad"));
        let output = fs::read(file).unwrap_or_default();
        Outcome::Failed(format!("{line}\n{}", String::from_utf8_lossy(&output)))
    }
}

/// Writes the configuration of xfstests, and the programs with which it mounts and lists file
/// systems.
fn prepare(work: &Path, server: &Server) {
    let made = ["sbin", "test", "scratch"].map(|name| work.join(name));
    made.iter().for_each(|directory| fs::create_dir(directory).unwrap());
    let [sbin, test, scratch] = made;
    symlink(env!("CARGO_BIN_EXE_trunkline"), sbin.join("mount.fuse.trunkline")).unwrap();
    // xfstests knows FUSE, but not the subtypes of FUSE file systems.
    let df = sbin.join("df");
    fs::write(&df, "#!/bin/sh\n/usr/bin/df \"$@\" | sed 's/fuse\\.trunkline/fuse/'\n").unwrap();
    fs::set_permissions(&df, fs::Permissions::from_mode(0o755)).unwrap();
    let options = server.options("nolock");
    let config: [(&str, String); 9] = [
        ("FSTYP", "fuse".to_owned()),
        ("FUSE_SUBTYP", ".trunkline".to_owned()),
        ("TEST_DEV", "127.0.0.1:/test".to_owned()),
        ("TEST_DIR", test.display().to_string()),
        ("SCRATCH_DEV", "127.0.0.1:/scratch".to_owned()),
        ("SCRATCH_MNT", scratch.display().to_string()),
        ("MOUNT_OPTIONS", format!("-o {options}")),
        ("TEST_FS_MOUNT_OPTS", format!("-o {options}")),
        ("RESULT_BASE", work.join("results").display().to_string()),
    ];
    let lines: Vec<_> = config.iter().map(|(name, value)| format!("export {name}=\"{value}\"\n")).collect();
    fs::write(work.join("local.config"), lines.concat()).unwrap();
    let readable: PathBuf = work.parent().unwrap().to_owned();
    fs::set_permissions(readable, fs::Permissions::from_mode(0o755)).unwrap();
}

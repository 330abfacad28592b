//! `trunkline bench --io500` with a small program in the place of io500: it reads the settings as
//! io500 does, and writes files of the shape that io500 2026 (commit 02091cf) wrote. The suite
//! `io500` of `cargo xtask test` runs the real program.

use super::text;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use testkit::Process;

/// Writes a file where the data go, and the results of a run. Each write phase takes the stonewall
/// time; below 300 s it is marked as invalid, and so is the score.
const PROGRAM: &str = include_str!("../support/io500.sh");

struct Fixture {
    directory: tempfile::TempDir,
    targets: Vec<PathBuf>,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let targets = ["tcp", "tcp-mp"].map(|name| directory.path().join(name)).to_vec();
        targets.iter().for_each(|target| std::fs::create_dir(target).unwrap());
        let suite = directory.path().join("suite");
        std::fs::create_dir(&suite).unwrap();
        executable(&suite.join("io500"), PROGRAM);
        Self { directory, targets }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["bench", "--io500", "--suite-dir", "suite", "--io500-results", "results"]);
        command.args(options).args(&self.targets).current_dir(self.path());
        command
    }

    fn run(&self, options: &[&str]) -> Output {
        self.command(options).output().unwrap()
    }

    fn ini(&self, text: &str) {
        std::fs::write(self.path().join("my.ini"), text).unwrap();
    }

    /// Whether nothing is left in the targets.
    fn is_clean(&self) -> bool {
        self.targets.iter().all(|target| std::fs::read_dir(target).unwrap().next().is_none())
    }
}

fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn each_route_has_a_run_and_a_short_one_is_marked_as_invalid() {
    let fixture = Fixture::new();
    fixture.ini("[ior-easy]\nblockSize = 1g\n");
    let output = fixture.run(&["--io500-seconds", "5", "--io500-ini", "my.ini"]);
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    for needle in [
        "A  tcp, 02091cf",
        "B  tcp-mp, 02091cf",
        "score   bandwidth 1.224745 GiB/s, IOPS 19.293573 kIOPS, total 4.861039",
        "the run marks its score as invalid",
        "ior-easy-write wrote for less than 300 s",
        "mdtest-hard-write wrote for less than 300 s",
    ] {
        assert!(said.contains(needle), "{needle}: {said}");
    }
    let file = |name: &str| std::fs::read_to_string(fixture.path().join("results").join(name)).unwrap();
    let settings = file("tcp/trunkline.ini");
    assert!(settings.contains("stonewall-time = 5") && settings.contains("blockSize = 1g"), "{settings}");
    assert!(settings.contains(&format!("datadir = {}/trunkline-io500-", fixture.targets[0].display())));
    assert!(
        file("tcp-mp/output.txt").contains("[SCORE ]") && file("tcp/result_summary.txt").contains("find")
    );
    let comparison: serde_json::Value = serde_json::from_str(&file("comparison.json")).unwrap();
    assert_eq!(comparison["runs"].as_array().unwrap().len(), 2);
    assert_eq!(comparison["rows"][0]["of_first"][1], 1.0);
    assert!(fixture.is_clean());
    let again = fixture.run(&[]);
    assert_eq!(again.status.code(), Some(2), "results are not overwritten: {}", text(&again.stderr));
}

#[test]
fn a_run_of_the_full_time_is_valid_and_stands_beside_limits_and_published_runs() {
    let fixture = Fixture::new();
    let output = fixture.run(&["--published", "--preset", "ef600-ddp24"]);
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("invalid") && !said.contains("less than 300 s"), "{said}");
    assert!(said.contains("published: EF600, DDP of 24 drives") && said.contains("limit A"), "{said}");
    let settings = std::fs::read_to_string(fixture.path().join("results/tcp/trunkline.ini")).unwrap();
    assert!(!settings.contains("stonewall-time"), "{settings}");
}

#[test]
fn a_route_that_fails_is_named_with_what_io500_said() {
    let fixture = Fixture::new();
    fixture.ini("[global]\nverbosity = 9\n");
    let output = fixture.run(&["--io500-ini", "my.ini"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for route in ["tcp", "tcp-mp"] {
        let failed = format!("FAILED: {route}: cannot run IO500: it ended with exit status: 28; it said: ");
        assert!(said.contains(&failed), "{said}");
    }
    assert!(said.contains("IOR: No space left on device"), "{said}");
    assert!(fixture.is_clean(), "the data are removed");
}

#[test]
fn a_signal_ends_io500_and_removes_its_data() {
    let fixture = Fixture::new();
    fixture.ini("[global]\nverbosity = 8\n");
    let mut bench = Process::spawn(fixture.command(&["--io500-ini", "my.ini"]));
    let deadline = Instant::now() + Duration::from_secs(60);
    while fixture.is_clean() {
        assert!(Instant::now() < deadline && bench.is_running(), "{}", bench.all_output());
        std::thread::yield_now();
    }
    bench.signal(Signal::INT);
    let ended = bench.wait(Duration::from_secs(60));
    assert_eq!(ended.code(), Some(130), "{}", bench.all_output());
    assert!(fixture.is_clean());
}

#[test]
fn a_signal_during_the_second_route_keeps_the_run_of_the_first() {
    let fixture = Fixture::new();
    fixture.ini("[global]\nverbosity = 7\n");
    let mut bench = Process::spawn(fixture.command(&["--io500-ini", "my.ini"]));
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::fs::read_dir(&fixture.targets[1]).unwrap().next().is_none() {
        assert!(Instant::now() < deadline && bench.is_running(), "{}", bench.all_output());
        std::thread::yield_now();
    }
    bench.signal(Signal::INT);
    let ended = bench.wait(Duration::from_secs(60));
    let said = bench.all_output();
    assert_eq!(ended.code(), Some(130), "{said}");
    let note = "ended early by a signal, while tcp-mp ran, which has no result";
    assert!(said.contains("A  tcp, 02091cf") && said.contains(note), "{said}");
    let sentence =
        "error: ended by a signal; the finished runs are in results/comparison.json; the files are removed\n";
    assert!(said.contains(sentence) && said.contains("the other routes"), "{said}");
    let comparison = std::fs::read_to_string(fixture.path().join("results/comparison.json")).unwrap();
    let comparison: serde_json::Value = serde_json::from_str(&comparison).unwrap();
    assert_eq!(comparison["runs"].as_array().unwrap().len(), 1);
    assert_eq!(comparison["runs"][0]["name"], "tcp");
    let notes = comparison["notes"].as_array().unwrap();
    assert!(notes.iter().any(|it| it == note), "{notes:?}");
    assert!(fixture.is_clean());
}

#[test]
fn what_cannot_run_is_said_before_anything_is_made() {
    let fixture = Fixture::new();
    let none = fixture.path().join("none");
    std::fs::create_dir(&none).unwrap();
    fixture.ini("[global]\ndatadir = /x\n");
    let refused = |options: &[&str]| {
        let output = fixture.run(options);
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let said = refused(&["--io500-ini", "my.ini"]);
    assert!(said.contains("line 2: datadir is set by this program"), "{said}");
    assert!(refused(&["--quick"]).contains("--quick does not go with --io500"));
    assert!(refused(&["--repeats", "2"]).contains("--repeats does not go with --io500"));
    for options in [
        &["--metrics", "127.0.0.1:0"][..],
        &["--metrics-file", "last.prom"],
        &["--no-report"],
        &["--force"],
        &["--nodes-on", "127.0.1.1"],
    ] {
        let said = refused(options);
        assert!(said.contains(options[0]) && said.contains("does not go with --io500"), "{said}");
    }
    assert!(!fixture.path().join("last.prom").exists());
    let said = refused(&["--mpirun", "no-such-mpirun -np 2"]);
    assert!(!said.contains("error") || said.contains("no-such-mpirun"), "{said}");
    std::fs::remove_file(fixture.path().join("suite/io500")).unwrap();
    assert!(refused(&[]).contains("there is no program io500 in suite"));
    assert!(fixture.is_clean());
    for options in [&["--io500-seconds", "3"][..], &["--published", "--quick"]] {
        let mut alone = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        let output = alone.arg("bench").args(options).current_dir(fixture.path()).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("--io500"), "it needs --io500: {said}");
    }
}

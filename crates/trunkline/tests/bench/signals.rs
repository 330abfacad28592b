//! How a run ends at signals: by a closed terminal, and at once when what it waits for never comes.

use super::{endless_experiment, text};
use rustix::process::{Signal, kill_process};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{Process, require_program, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(60);

/// The endless experiment, by a program that gets SIGHUP even if these tests run under `nohup`.
pub fn bench(directory: &Path) -> Command {
    let mut command = Command::new("env");
    command
        .args([
            "--default-signal=HUP",
            env!("CARGO_BIN_EXE_trunkline"),
            "bench",
            "endless.toml",
            "--record",
            "never.json",
        ])
        .current_dir(directory);
    command
}

/// Waits until something is true.
fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_second_signal_ends_a_run_whose_server_hangs_and_says_what_remains() {
    let directory = temp_dir("bench-signals");
    let (server, export) = endless_experiment(directory.path());
    let mount = client::Mount::connect(&export, "").unwrap();
    let entries = || mount.read_directory(mount.root()).unwrap();
    let mut bench = Process::spawn(bench(directory.path()));
    wait_until("no files", || !entries().is_empty());
    server.signal(Signal::STOP);
    bench.signal(Signal::INT);
    bench.wait_for_line("a second signal ends it at once", TIMEOUT);
    bench.signal(Signal::TERM);
    let ended = bench.wait(TIMEOUT);
    let said = bench.all_output();
    server.signal(Signal::CONT);
    assert_eq!(ended.code(), Some(143), "{said}");
    assert!(said.contains("error: ended at once by a second signal; no record is written\n"), "{said}");
    let made = format!("{export}/trunkline-bench-{}", bench.id());
    assert!(said.contains(&format!("  cause: {made} is not removed\n")), "{said}");
    let advice = format!("trunkline rm -r {made}");
    assert!(said.contains(&format!("  try:   {advice}\n")), "{said}");
    // What it says to do removes it.
    let mut words = advice.split(' ').skip(1);
    let output = Command::new(env!("CARGO_BIN_EXE_trunkline")).args(&mut words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(entries(), []);
}

#[test]
fn a_second_signal_ends_a_run_whose_directory_hangs_and_says_what_remains() {
    let _ = require_program("fusermount3");
    let directory = temp_dir("bench-signals");
    let (_server, export) = endless_experiment(directory.path());
    let mounted = directory.path().join("mnt");
    std::fs::create_dir(&mounted).unwrap();
    let mut mount = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    mount.args(["mount", "-f", &export]).arg(&mounted);
    let mut mount = Process::spawn(mount);
    mount.wait_for_line(" on ", TIMEOUT);
    let experiment = std::fs::read_to_string(directory.path().join("endless.toml")).unwrap();
    let experiment =
        experiment.replace("name = 'one'", &format!("name = 'one'\ntarget = '{}'", mounted.display()));
    std::fs::write(directory.path().join("endless.toml"), experiment).unwrap();
    let mut bench = Process::spawn(bench(directory.path()));
    let made = mounted.join(format!("trunkline-bench-{}", bench.id()));
    wait_until("no files", || made.join("mixed.3").exists());
    mount.signal(Signal::STOP);
    bench.signal(Signal::HUP);
    bench.wait_for_line("a second signal ends it at once", TIMEOUT);
    bench.signal(Signal::INT);
    bench.wait_for_line("  try:   rm -r ", TIMEOUT);
    // The kernel holds a process that has files open on a mount until that answers.
    mount.signal(Signal::CONT);
    let ended = bench.wait(TIMEOUT);
    let said = bench.all_output();
    assert_eq!(ended.code(), Some(130), "{said}");
    assert!(said.contains(&format!("  cause: {} is not removed\n", made.display())), "{said}");
    assert!(said.contains(&format!("  try:   rm -r {}\n", made.display())), "{said}");
    std::fs::remove_dir_all(&made).unwrap();
    mount.signal(Signal::TERM);
    assert!(mount.wait(TIMEOUT).success(), "{}", mount.all_output());
}

#[test]
fn a_run_ends_when_its_terminal_is_closed_and_removes_its_files() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let directory = temp_dir("bench-signals");
    let (_server, export) = endless_experiment(directory.path());
    let mount = client::Mount::connect(&export, "").unwrap();
    let entries = || mount.read_directory(mount.root()).unwrap();
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let [stdin, stdout, stderr] = [0; 3].map(|_| Stdio::from(theirs.try_clone().unwrap()));
    let mut command = bench(directory.path());
    let mut bench = command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().unwrap();
    drop((command, theirs));
    wait_until("no files", || !entries().is_empty());
    // What is written to the terminal from here on is an error.
    drop(ours);
    kill_process(rustix::process::Pid::from_child(&bench), Signal::HUP).unwrap();
    wait_until("bench runs on", || bench.try_wait().unwrap().is_some());
    assert_eq!(bench.wait().unwrap().code(), Some(129));
    assert_eq!(entries(), []);
}

#[test]
fn a_closed_terminal_does_not_end_a_run_under_nohup() {
    let directory = temp_dir("bench-signals");
    let (_server, export) = endless_experiment(directory.path());
    let mount = client::Mount::connect(&export, "").unwrap();
    let entries = || mount.read_directory(mount.root()).unwrap();
    let mut command = Command::new("sh");
    let script = "trap '' HUP; exec \"$0\" bench endless.toml --record never.json";
    command.args(["-c", script, env!("CARGO_BIN_EXE_trunkline")]).current_dir(directory.path());
    let mut bench = Process::spawn(command);
    wait_until("no files", || !entries().is_empty());
    bench.signal(Signal::HUP);
    // If the first had counted, the second would end it at once, and the files would stay.
    bench.signal(Signal::TERM);
    let ended = bench.wait(TIMEOUT);
    let said = bench.all_output();
    assert_eq!(ended.code(), Some(143), "{said}");
    assert!(said.contains("the files are removed, and no record is written"), "{said}");
    assert_eq!(entries(), [], "{said}");
}

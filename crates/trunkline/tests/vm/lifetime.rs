//! Tests labs that end: by themselves, on request, and killed. None leaves anything behind.

use crate::{alone, lab, spec, trunkline};
use lab::vm::{Error, Event, Vm};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::{Deadline, Process, Stream, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(300);

/// The longest time that a boot may take.
const BOOT_TIMEOUT: Duration = Duration::from_secs(600);

fn lab_vm(arguments: &[&str]) -> Process {
    let mut command = Command::new(trunkline());
    command.args(["lab", "vm", "--accel", "tcg"]).args(arguments);
    Process::spawn(command)
}

/// The QEMU process that this process started.
fn qemu_of(owner: u32) -> Option<u32> {
    let children = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let name = stat.split_once('(')?.1.split_once(')')?.0.to_owned();
        let parent: u32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        (parent == owner && name.starts_with("qemu")).then_some(pid)
    });
    children.min()
}

fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !matches!(rest.trim().chars().next(), None | Some('Z' | 'X')))
}

#[test]
fn a_command_gets_its_input_and_returns_its_output_and_status() {
    let _turn = alone();
    let guest = lab().client();
    let mut command = Command::new("sh");
    command.args(["-c", "cat; echo $WORD; echo told >&2; exit 7"]).env("WORD", "said").current_dir("/");
    let running = guest.spawn(&command).expect("the guest runs");
    running.input(b"heard\n");
    running.end_input();
    let output = running.output().expect("the command ends");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "heard\nsaid\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "told\n");
}

#[test]
fn a_signal_ends_a_command_with_its_children() {
    let _turn = alone();
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & echo up; wait"]);
    let mut running = lab().client().spawn(&command).expect("the guest runs");
    assert_eq!(running.next_within(TIMEOUT).expect("the command runs"), Some(Event::Out(b"up\n".to_vec())));
    running.signal(Signal::KILL);
    let status = running.wait(drop).expect("the command ends");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
}

#[test]
fn a_command_that_does_not_exist_is_refused_by_name() {
    let _turn = alone();
    let outcome = lab().client().output(&Command::new("/no/such/program"));
    assert!(matches!(outcome, Err(Error::Refused { ref command, .. }) if command == "/no/such/program"));
}

#[test]
fn files_written_by_a_guest_are_lost_except_in_directories_named_as_writable() {
    let _turn = alone();
    let directory = temp_dir("vm");
    let named = directory.path().to_str().expect("the path is UTF-8");
    let script = format!("echo kept > {named}/kept; echo lost > /root/lost-in-a-guest; echo up; sleep 1000");
    let mut process = lab_vm(&["--write", named, "--", "sh", "-c", &script]);
    process.wait_for_line("up", BOOT_TIMEOUT);
    let qemu = qemu_of(process.id()).expect("QEMU is its child");
    assert_eq!(std::fs::read_to_string(directory.path().join("kept")).expect("the file exists"), "kept\n");
    assert!(!Path::new("/root/lost-in-a-guest").exists());
    let status = process.terminate(TIMEOUT);
    assert_eq!(status.code(), Some(143), "{}", process.output(Stream::Err));
    assert!(!runs(qemu), "QEMU ended before the command did");
}

#[test]
fn a_guest_ends_with_an_owner_that_is_killed() {
    let _turn = alone();
    let mut process = lab_vm(&["--", "sleep", "1000"]);
    let qemu = Deadline::wait_until("QEMU", BOOT_TIMEOUT, || qemu_of(process.id()));
    process.signal(Signal::KILL);
    process.wait(TIMEOUT);
    Deadline::wait_until("the end of QEMU", TIMEOUT, || (!runs(qemu)).then_some(()));
}

#[test]
fn the_error_of_a_guest_that_does_not_boot_shows_the_end_of_its_console() {
    let _turn = alone();
    let outcome = Vm::start(&lab::vm::Spec { program: "/no/such/program".into(), ..spec() });
    let error = outcome.expect_err("there is no agent").to_string();
    assert!(error.contains("not found") && error.contains("status 127"), "{error}");
}

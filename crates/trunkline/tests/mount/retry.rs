//! Tests mounts of servers that do not run yet: `retry`, `bg` and `fg`.

use crate::fixture::{MOUNT_TIMEOUT, Server, is_mounted, text, unmount_all_below, wait_until_nobody_serves};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use testkit::{Deadline, Process, TempDir};

/// A directory to mount on, and a port on which no server runs yet.
struct RetryFixture {
    at: PathBuf,
    port: u16,
    directory: TempDir,
}

impl RetryFixture {
    fn new() -> Self {
        let directory = testkit::temp_dir("retry");
        let at = directory.path().join("mnt");
        fs::create_dir(&at).unwrap();
        Self { at, port: testkit::free_port(), directory }
    }

    /// `trunkline mount` of this export.
    fn mount_of(&self, export: &str, options: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.arg("mount");
        self.finish(command, export, options)
    }

    fn mount(&self, options: &str) -> Command {
        self.mount_of("/export", options)
    }

    /// The same command as mount(8) runs it.
    fn helper(&self, options: &str) -> Command {
        let helper = self.directory.path().join("mount.trunkline");
        if !helper.is_symlink() {
            symlink(env!("CARGO_BIN_EXE_trunkline"), &helper).unwrap();
        }
        self.finish(Command::new(helper), "/export", options)
    }

    fn finish(&self, mut command: Command, export: &str, options: &str) -> Command {
        let options = format!("port={},mountport={},nolock,{options}", self.port, self.port);
        command.arg(format!("127.0.0.1:{export}")).arg(&self.at).args(["-o", &options]);
        command
    }

    fn wait_until_mounted(&self) {
        Deadline::wait_until("the directory to be mounted", MOUNT_TIMEOUT, || {
            is_mounted(&self.at).then_some(())
        });
    }

    /// Uses the directory and unmounts it.
    fn use_and_unmount(&self) {
        fs::write(self.at.join("f"), b"kept").unwrap();
        assert_eq!(fs::read(self.at.join("f")).unwrap(), b"kept");
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        let unmounted = command.arg("umount").arg(&self.at).output().unwrap();
        assert!(unmounted.status.success() && !is_mounted(&self.at), "{unmounted:?}");
        wait_until_nobody_serves(&self.at);
    }
}

impl Drop for RetryFixture {
    fn drop(&mut self) {
        unmount_all_below(self.directory.path());
    }
}

#[test]
fn a_server_that_starts_late_is_mounted_when_it_runs() {
    let place = RetryFixture::new();
    let mut mounting = Process::spawn(place.mount("retry=5"));
    let said = mounting.wait_for_line("trying again", MOUNT_TIMEOUT);
    assert!(said.contains("does not accept connections"), "{said}");
    assert!(said.ends_with("; trying again, for 5 minutes"), "{said}");
    let _server = Server::start_at(1, place.port);
    assert!(mounting.wait(MOUNT_TIMEOUT).success(), "{}", mounting.all_output());
    assert_eq!(mounting.all_output().matches("trying again").count(), 1, "the message is printed once");
    place.use_and_unmount();
}

#[test]
fn without_retry_one_attempt_is_made() {
    let place = RetryFixture::new();
    let one_try = |mut command: Command| {
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains("does not accept connections") && !said.contains("trying again"), "{said}");
        output.status.code()
    };
    assert_eq!(one_try(place.mount("ro")), Some(1));
    assert_eq!(one_try(place.mount("retry=0")), Some(1));
    assert_eq!(one_try(place.mount("bg,retry=0")), Some(1));
    assert_eq!(one_try(place.helper("retry=0")), Some(32));
}

#[test]
fn under_mount_8_the_retries_last_two_minutes_and_end_with_the_command() {
    let place = RetryFixture::new();
    let mounting = Process::spawn(place.helper("ro"));
    mounting.wait_for_line("; trying again, for 2 minutes", MOUNT_TIMEOUT);
    mounting.signal(Signal::KILL);
    // The serving process has the output of the killed process, and ends by itself.
    mounting.wait_for_line("error: interrupted", MOUNT_TIMEOUT);
}

#[test]
fn signals_end_the_retries_in_the_foreground() {
    for (signal, status) in [(Signal::TERM, 128 + 15), (Signal::INT, 128 + 2)] {
        let place = RetryFixture::new();
        let mut command = place.mount("retry=5");
        command.arg("-f");
        let mut mounting = Process::spawn(command);
        mounting.wait_for_line("trying again", MOUNT_TIMEOUT);
        mounting.signal(signal);
        assert_eq!(mounting.wait(MOUNT_TIMEOUT).code(), Some(status), "{}", mounting.all_output());
    }
}

#[test]
fn with_bg_the_command_succeeds_at_once_and_the_mount_follows_the_server() {
    let place = RetryFixture::new();
    // `output` waits until no process has the pipes open, so the background process must have
    // closed them.
    let output = place.mount("bg,retry=5").output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && !is_mounted(&place.at), "{said}");
    assert!(said.contains("does not accept connections"), "{said}");
    assert!(said.ends_with("; trying again in the background, for 5 minutes\n"), "{said}");
    let _server = Server::start_at(1, place.port);
    place.wait_until_mounted();
    place.use_and_unmount();
}

#[test]
fn with_bg_a_directory_that_does_not_exist_yet_is_waited_for() {
    let place = RetryFixture::new();
    let _server = Server::start_at(1, place.port);
    fs::remove_dir(&place.at).unwrap();
    let output = place.mount("bg,retry=5").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::create_dir(&place.at).unwrap();
    place.wait_until_mounted();
    place.use_and_unmount();
}

#[test]
fn refused_mounts_are_not_retried() {
    let place = RetryFixture::new();
    let refused = |mut command: Command, needle: &str| {
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(needle) && !said.contains("trying again"), "{said}");
    };
    refused(place.mount("retry=5,frobnicate"), "frobnicate");
    fs::remove_dir(&place.at).unwrap();
    // This is refused before the command waits for the server, which does not run either.
    refused(place.mount("retry=5"), "mkdir");
    fs::create_dir(&place.at).unwrap();
    let _server = Server::start_at(1, place.port);
    refused(place.mount_of("/other", "retry=5"), "no such export");
    refused(place.mount_of("/other", "bg"), "no such export");
}

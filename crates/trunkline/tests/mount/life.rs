//! Tests how a mount begins and ends.

use crate::fixture::{MOUNT_TIMEOUT, Server, is_mounted, shell, text, wait_until_nobody_serves};
use rustix::fs::{FileType, Mode};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use testkit::{Deadline, Process};

fn trunkline(arguments: &[&str]) -> Output {
    // Standard output and error are pipes here: a background process that kept them open would
    // block this call.
    Command::new(env!("CARGO_BIN_EXE_trunkline")).args(arguments).output().unwrap()
}

#[test]
fn a_background_mount_is_ready_when_the_command_returns_and_ends_with_umount() {
    let server = Server::start(2);
    let directory = server.mount_point("mnt");
    let at = directory.to_str().unwrap();
    // `output` waits until no process has the pipes open, so the background process must have
    // closed them.
    let mounted = trunkline(&["mount", "127.0.0.1:/export", at, "-o", &server.options("nolock")]);
    assert!(mounted.status.success() && mounted.stdout.is_empty(), "{mounted:?}");
    let shown = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = shown.lines().find(|line| line.contains(at)).expect("the directory is mounted");
    assert!(line.starts_with("127.0.0.1:/export ") && line.contains(" fuse.trunkline rw,"), "{line}");
    // The file is written by another program, because the files that this program has open are
    // inherited for a moment by every program that another test starts, and then the mount is busy.
    shell(&directory, "printf kept > f");
    let unmounted = trunkline(&["umount", at]);
    assert!(unmounted.status.success(), "{unmounted:?}");
    assert!(!is_mounted(&directory) && !directory.join("f").exists());
    wait_until_nobody_serves(&directory);
    // Mounts again to see what is on the server.
    let again = server.mount("again", "");
    assert_eq!(fs::read(again.path("f")).unwrap(), b"kept");
}

#[test]
fn sigusr1_prints_the_paths_and_the_gauges_and_changes_nothing() {
    let server = Server::start(2);
    let mount = server.mount("mnt", "");
    let data = vec![1; 1_000_000];
    let files: Vec<File> = (0..4)
        .map(|number| {
            let mut file = File::create(mount.path(&format!("f{number}"))).unwrap();
            file.write_all(&data).unwrap();
            file.sync_all().unwrap();
            file
        })
        .collect();
    let said = mount.statistics();
    let paths: Vec<Vec<&str>> =
        said.lines().skip(1).take(2).map(|line| line.split_whitespace().collect()).collect();
    for (path, node) in paths.iter().zip(["127.0.0.1", "127.0.0.2"]) {
        assert!(path.iter().any(|word| word.contains(node)) && path.contains(&"up"), "{said}");
    }
    assert!(said.contains("sent again elsewhere: 0 taken for done, 0 in doubt, 0 that"), "{said}");
    assert!(said.contains(" 4 open files, 0 open directories, 0 B unsent, 0 B read ahead, "), "{said}");
    drop(files);
    Deadline::wait_until("the files to be closed", MOUNT_TIMEOUT, || {
        mount.statistics().contains(" 0 open files, ").then_some(())
    });
    assert_eq!(fs::read(mount.path("f3")).unwrap(), data);
}

/// Otherwise a message that the serving process wants to write would wait for that process itself.
#[test]
fn a_log_file_in_the_mounted_directory_is_refused_and_the_mount_works() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let (at, log) = (directory.to_str().unwrap(), directory.join("log"));
    let options = server.options("nolock");
    let log = log.to_str().unwrap();
    let mounted = trunkline(&["mount", "127.0.0.1:/export", at, "--log-file", log, "-o", &options]);
    let said = text(&mounted.stderr);
    assert!(mounted.status.success() && said.contains("no log file"), "{said}");
    assert_eq!(shell(&directory, "printf kept > f; cat f"), "kept");
    assert!(trunkline(&["umount", at]).status.success());
}

#[test]
fn a_log_file_that_is_a_pipe_delays_neither_the_mount_nor_its_end() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let (at, log) = (directory.to_str().unwrap(), server.mount_point("logs").join("pipe"));
    rustix::fs::mknodat(rustix::fs::CWD, &log, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (log, options) = (log.to_str().unwrap(), server.options("nolock"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(["mount", "127.0.0.1:/export", at, "--log-file", log, "-o", &options]);
    assert!(Process::spawn(command).wait(MOUNT_TIMEOUT).success());
    // The file is written by another program, because the files that this program has open are
    // inherited for a moment by every program that another test starts, and then the mount is busy.
    shell(&directory, "echo kept > f");
    assert!(trunkline(&["umount", at]).status.success());
    wait_until_nobody_serves(&directory);
}

#[test]
fn the_command_that_mounts_reports_what_prevents_the_mount() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let at = directory.to_str().unwrap();
    let port = server.port;
    let no_port = testkit::free_port();
    let cases = [
        (format!("127.0.0.1:/export {at} -o port={no_port}"), "does not accept connections"),
        (format!("127.0.0.1:/other {at} -o port={port}"), "/other"),
        (format!("127.0.0.1:/export {at} -o port={port},nconect=2"), "nconnect"),
        (format!("127.0.0.1:/export {at}/absent -o port={port}"), "mkdir"),
        (format!("nonsense {at}"), "SERVER:/EXPORT"),
    ];
    for (arguments, needle) in cases {
        let arguments: Vec<&str> = std::iter::once("mount").chain(arguments.split(' ')).collect();
        let output = trunkline(&arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(needle), "{arguments:?}: {said}");
        assert!(said.contains("\n  try:   "), "{arguments:?}: {said}");
        assert!(!is_mounted(&directory));
    }
    let not_mounted = trunkline(&["umount", at]);
    assert_eq!(not_mounted.status.code(), Some(1));
    assert!(text(&not_mounted.stderr).contains("trunkline status"), "{not_mounted:?}");
}

#[test]
fn as_mount_trunkline_the_program_accepts_what_fstab_and_mount_8_pass() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let helper = directory.with_file_name("mount.trunkline");
    symlink(env!("CARGO_BIN_EXE_trunkline"), &helper).unwrap();
    let options = server.options("rw,_netdev,nofail,nosuid,noauto,x-systemd.automount,relatime");
    let call = |flags: &str| {
        let mut command = Command::new(&helper);
        command.arg("127.0.0.1:/export").arg(&directory).args([flags, "-o", &options]);
        command.output().unwrap()
    };
    assert!(call("-f").status.success() && !is_mounted(&directory), "-f mounts nothing");
    let output = call("-n");
    assert!(output.status.success(), "{output:?}");
    assert!(is_mounted(&directory));
    let shown = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = shown.lines().find(|line| line.contains(directory.to_str().unwrap())).unwrap_or_default();
    assert!(line.contains("nosuid"), "{line}");
    assert!(trunkline(&["umount", directory.to_str().unwrap()]).status.success());
}

#[test]
fn sigterm_and_sigint_write_pending_data_and_unmount() {
    let server = Server::start(1);
    for signal in [Signal::TERM, Signal::INT] {
        let mut mount = server.mount(&format!("{signal:?}"), "");
        let mut open = File::create(mount.path("f")).unwrap();
        open.write_all(format!("{signal:?}").as_bytes()).unwrap();
        mount.process.signal(signal);
        let status = mount.process.wait(MOUNT_TIMEOUT);
        assert!(status.success() && !is_mounted(&mount.directory), "{status}");
        drop(open);
        let again = server.mount(&format!("again-{signal:?}"), "");
        assert_eq!(fs::read_to_string(again.path("f")).unwrap(), format!("{signal:?}"));
    }
}

/// Waits until each thread has stopped, which a thread does when it runs next.
fn wait_until_stopped(process: &Process) {
    let tasks = || fs::read_dir(format!("/proc/{}/task", process.id())).unwrap().flatten();
    let is_stopped = |task: &Path| {
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    Deadline::wait_until("the process to stop", MOUNT_TIMEOUT, || {
        tasks().all(|task| is_stopped(&task.path())).then_some(())
    });
}

#[test]
fn a_second_signal_unmounts_without_the_server() {
    let server = Server::start(1);
    let mut mount = server.mount("mnt", "");
    let mut open = File::create(mount.path("f")).unwrap();
    server.process.signal(Signal::STOP);
    wait_until_stopped(&server.process);
    open.write_all(b"never to arrive").unwrap();
    mount.process.signal(Signal::TERM);
    mount.process.wait_for_line("a second signal gives that up", MOUNT_TIMEOUT);
    assert!(mount.process.is_running() && is_mounted(&mount.directory));
    mount.process.signal(Signal::INT);
    let status = mount.process.wait(MOUNT_TIMEOUT);
    assert_eq!(status.code(), Some(128 + Signal::INT.as_raw()));
    assert!(!is_mounted(&mount.directory));
    assert!(mount.process.all_output().contains("is lost"));
    server.process.signal(Signal::CONT);
}

#[test]
fn a_server_that_freezes_under_load_loses_nothing() {
    let server = Server::start(4);
    let mount = server.mount("mnt", "timeo=20");
    let sources = server.mount_point("sources");
    let data = |writer: u8| -> Vec<u8> { (0..4 << 20).map(|at: usize| (at >> 9) as u8 ^ writer).collect() };
    let writers: Vec<_> = (0..4_u8)
        .map(|writer| {
            let (source, target) = (sources.join(format!("f{writer}")), mount.path(&format!("f{writer}")));
            fs::write(&source, data(writer)).unwrap();
            // Separate processes write: a program that this process starts inherits its open files
            // and closes them when it runs, and closing a file of the mount waits until the server
            // answers.
            let script = "for turn in 1 2 3 4; do dd if=$0 of=$1 bs=4M conv=fsync status=none; done";
            let mut command = Command::new("sh");
            command.args(["-euc", script]).args([source, target]);
            Process::spawn(command)
        })
        .collect();
    for _ in 0..3 {
        server.process.signal(Signal::STOP);
        // This is how long the server is stopped; there is no event to wait for while everything is
        // stopped.
        shell(Path::new("/"), "sleep 0.7");
        server.process.signal(Signal::CONT);
    }
    for mut writer in writers {
        assert!(writer.wait(MOUNT_TIMEOUT).success(), "{}", writer.all_output());
    }
    for writer in 0..4 {
        assert!(fs::read(mount.path(&format!("f{writer}"))).unwrap() == data(writer), "file {writer}");
    }
}

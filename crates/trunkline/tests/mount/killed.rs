//! Tests what remains of a mount whose process was killed: a directory that answers ENOTCONN, and a
//! line in the log.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server, is_mounted, shell, text, wait_until_nobody_serves};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::Deadline;

/// A directory with a file that is hidden while a mount covers the directory.
fn place(server: &Server) -> PathBuf {
    let directory = server.mount_point("mnt");
    fs::write(directory.join("local"), "").unwrap();
    directory
}

fn mount(server: &Server, directory: &Path, options: &str) -> Mounted {
    Mounted::start("127.0.0.1:/export", directory.to_owned(), &server.options(options))
}

fn trunkline(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trunkline")).args(arguments).arg(directory).output().unwrap()
}

#[track_caller]
fn assert_is_dead<T: std::fmt::Debug>(outcome: io::Result<T>) {
    let error = outcome.expect_err("the dead mount answers");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()), "{error}");
}

/// The process with this role of a mount in the background.
fn process_of(directory: &Path, role: &str) -> Pid {
    let (directory, role) = (directory.to_str().unwrap(), format!("TRUNKLINE_MOUNT_ROLE={role}"));
    let has = |path: PathBuf, word: &str| {
        fs::read(path).is_ok_and(|text| text.split(|byte| *byte == 0).any(|part| part == word.as_bytes()))
    };
    let mut processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let found =
        processes.find(|path| has(path.join("cmdline"), directory) && has(path.join("environ"), &role));
    let number = found.expect("the process runs").file_name().unwrap().to_str().unwrap().parse().unwrap();
    Pid::from_raw(number).unwrap()
}

/// The pipe that the watcher reads. It does not end while any process has it open for writing.
fn pipe_of_watcher(mount: &Mounted) -> File {
    let path = format!("/proc/{}/fd/0", process_of(&mount.directory, "watcher").as_raw_nonzero());
    File::options().write(true).open(path).unwrap()
}

#[test]
fn a_killed_mount_answers_enotconn_until_it_is_mounted_again() {
    let server = Server::start(1);
    let directory = place(&server);
    let mut dead = mount(&server, &directory, "nolock");
    fs::write(directory.join("f"), "kept").unwrap();
    let open = File::create(directory.join("open")).unwrap();
    dead.process.kill();
    dead.process.wait_for_line("was killed", MOUNT_TIMEOUT);
    let said = dead.process.all_output();
    assert!(said.contains("answers ENOTCONN; `trunkline mount` again or `umount "), "{said}");
    assert!(is_mounted(&directory));
    assert_is_dead(fs::read_dir(&directory).map(|_| ()));
    assert_is_dead(fs::write(directory.join("lost"), "in the wrong place"));
    assert_is_dead(open.sync_all());
    drop(open);

    let again = mount(&server, &directory, "nolock");
    // The file is read by another program, because the files that this program has open are
    // inherited for a moment by every program that another test starts, and then the mount is busy.
    assert_eq!(shell(Path::new("/"), &format!("cat {}/f", directory.display())), "kept");
    assert!(!directory.join("local").exists());
    // The dead mount was removed first, so nothing is left beneath the new one.
    assert!(trunkline(&["umount"], &directory).status.success() && !is_mounted(&directory));
    assert_eq!(again.names(), ["local"], "the directory beneath is as it was");
}

#[test]
fn umount_ends_a_killed_mount() {
    let server = Server::start(1);
    let directory = place(&server);
    for umount in [&["umount"][..], &["umount", "--lazy"], &[]] {
        let mut dead = mount(&server, &directory, "nolock");
        dead.process.kill();
        dead.process.wait_for_line("was killed", MOUNT_TIMEOUT);
        assert!(is_mounted(&directory), "{umount:?}");
        match umount {
            // The umount(8) of the system.
            [] => drop(shell(Path::new("/"), &format!("umount {}", directory.display()))),
            ours => assert!(trunkline(ours, &directory).status.success(), "{umount:?}"),
        }
        assert!(!is_mounted(&directory) && directory.join("local").exists(), "{umount:?}");
    }
}

#[test]
fn the_log_of_a_mount_in_the_background_says_that_it_was_killed() {
    let server = Server::start(1);
    let directory = place(&server);
    let at = directory.to_str().unwrap();
    let log = server.mount_point("logs").join("log");
    // Replaces the logger(1) of the system: it writes its input to the same file.
    let logger = log.with_file_name("logger");
    fs::write(&logger, format!("#!/bin/sh\nexec cat >> {}\n", log.display())).unwrap();
    fs::set_permissions(&logger, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", log.parent().unwrap().display(), std::env::var("PATH").unwrap());
    for log_file in [&["--log-file", "log"][..], &[]] {
        let _ = fs::remove_file(&log);
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["mount", "127.0.0.1:/export", at, "-o", &server.options("nolock")]);
        command.args(log_file).env("PATH", &path).current_dir(log.parent().unwrap());
        let mounted = command.output().unwrap();
        assert!(mounted.status.success(), "{}", text(&mounted.stderr));
        kill_process(process_of(&directory, "background"), Signal::KILL).unwrap();
        Deadline::wait_until("the line in the log", MOUNT_TIMEOUT, || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            said.contains(&format!("{at} answers ENOTCONN")).then_some(())
        });
        assert!(is_mounted(&directory));
        assert!(trunkline(&["umount"], &directory).status.success() && !is_mounted(&directory));
        wait_until_nobody_serves(&directory);
    }
}

#[test]
fn with_auto_unmount_a_killed_mount_is_unmounted() {
    let server = Server::start(1);
    let directory = place(&server);
    let mut dead = mount(&server, &directory, "nolock,auto_unmount");
    let open = File::create(directory.join("open")).unwrap();
    dead.process.kill();
    dead.process.wait_for_line("was unmounted, as auto_unmount asks for", MOUNT_TIMEOUT);
    assert!(!is_mounted(&directory) && directory.join("local").exists());
    assert_is_dead(open.sync_all());
}

#[test]
fn auto_unmount_unmounts_only_its_own_mount() {
    let server = Server::start(1);
    let directory = place(&server);
    let mut covered = mount(&server, &directory, "nolock,auto_unmount");
    shell(Path::new("/"), &format!("mount -t tmpfs none {0}; touch {0}/above", directory.display()));
    covered.process.kill();
    covered.process.wait_for_line("cannot be unmounted", MOUNT_TIMEOUT);
    assert!(directory.join("above").exists());
    shell(Path::new("/"), &format!("umount {}", directory.display()));
    assert_is_dead(fs::read_dir(&directory).map(|_| ()));
    assert!(trunkline(&["umount"], &directory).status.success());
    wait_until_nobody_serves(&directory);

    // A new mount takes the place and the numbers of the dead one before the watcher looks.
    let dead = mount(&server, &directory, "nolock,auto_unmount");
    let pipe = pipe_of_watcher(&dead);
    dead.process.signal(Signal::KILL);
    shell(Path::new("/"), &format!("umount --lazy {}", directory.display()));
    let fresh = mount(&server, &directory, "nolock");
    fs::write(fresh.path("f"), "kept").unwrap();
    drop(pipe);
    dead.process.wait_for_line("was killed", MOUNT_TIMEOUT);
    assert_eq!(fs::read_to_string(directory.join("f")).unwrap(), "kept");
    assert!(is_mounted(&directory));
}

/// The kernel reuses the numbers of a mount, also for a mount on another directory.
#[test]
fn auto_unmount_unmounts_no_other_dead_mount() {
    let server = Server::start(1);
    let gone = mount(&server, &place(&server), "nolock,auto_unmount");
    let pipe = pipe_of_watcher(&gone);
    gone.process.signal(Signal::KILL);
    shell(Path::new("/"), &format!("umount --lazy {}", gone.directory.display()));
    let mut other = mount(&server, &server.mount_point("other"), "nolock");
    other.process.kill();
    other.process.wait_for_line("was killed", MOUNT_TIMEOUT);
    drop(pipe);
    gone.process.wait_for_line("was killed", MOUNT_TIMEOUT);
    assert!(is_mounted(&other.directory));
    assert_is_dead(fs::read_dir(&other.directory).map(|_| ()));
}

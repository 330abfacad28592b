//! Tests locks that the server of a mount keeps: between mounts, by ranges, waited
//! for, over a restart of the server, and lost.

use crate::fixture::{MOUNT_TIMEOUT, Server, shell, try_shell, unmount_all_below};
use crate::mounts::{Mounted, compiled};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use testkit::{ServerProcess, TempDir, temp_dir};

/// A program that locks ranges of a file as it is told.
struct Locker {
    process: Child,
    said: Receiver<String>,
}

impl Locker {
    fn start(program: &Path, file: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (sender, said) = channel();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let locker = Self { process, said };
        assert_eq!(locker.answer(), "open");
        locker
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn answer(&self) -> String {
        self.said.recv_timeout(MOUNT_TIMEOUT).unwrap()
    }

    #[track_caller]
    fn says(&mut self, line: &str, expected: &str) {
        self.tell(line);
        assert_eq!(self.answer(), expected, "{line}");
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits until the program is in the kernel, waiting for a lock.
    fn is_waiting(&self) {
        testkit::Deadline::wait_until("the program to wait", MOUNT_TIMEOUT, || {
            if let Ok(answer) = self.said.try_recv() {
                panic!("the program does not wait: {answer}");
            }
            let stack = fs::read_to_string(format!("/proc/{}/stack", self.process.id())).unwrap_or_default();
            stack.contains("fuse_").then_some(())
        });
    }

    fn end(mut self) {
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// A server, and two mounts of its export.
fn two_mounts() -> (Server, [Mounted; 2]) {
    let server = Server::start(2);
    let mounts = ["vers=4.2", "vers=4.1"].map(|options| server.mount(options, options));
    (server, mounts)
}

#[test]
fn locks_of_ranges_exclude_programs_of_other_mounts() {
    let ((_server, [one, other]), (_built, program)) = (two_mounts(), compiled("locker.c"));
    let mut a = Locker::start(&program, &one.path("f"));
    let mut b = Locker::start(&program, &other.path("f"));
    let mut c = Locker::start(&program, &one.path("f"));
    a.says("try w 0 10", "ok");
    for locker in [&mut b, &mut c] {
        locker.says("try w 5 10", "busy");
        locker.says("try r 9 1", "busy");
        locker.says("test r 5 10", "w 0 10");
        locker.says("try r 10 10", "ok");
        locker.says("test w 30 1", "free");
    }
    a.says("try w 10 1", "busy");
    a.says("try r 10 5", "ok");
    // A part is released, and the rest is made shared.
    a.says("try u 0 4", "ok");
    b.says("try w 0 4", "ok");
    a.says("try r 4 6", "ok");
    c.says("try r 4 6", "ok");
    c.says("try w 4 6", "busy");
    // To the end of the file, wherever that is.
    b.says("try w 1000 0", "ok");
    a.says("test r 99999999 1", "w 1000 0");
    // A close releases what the process has locked, and so does its end.
    b.end();
    a.says("try w 1000 0", "ok");
    a.signal(rustix::process::Signal::KILL);
    c.says("wait w 1000 0", "ok");
}

/// By NLM, and against those of version 4.
#[test]
fn locks_of_version_3_exclude_programs_of_other_mounts() {
    let server = Server::start(2);
    let mounts = [("one", "vers=3"), ("two", "vers=3"), ("three", "vers=4.2")]
        .map(|(name, options)| server.mount(name, options));
    let (_built, program) = compiled("locker.c");
    let [mut a, mut b, mut c] = mounts.each_ref().map(|mount| Locker::start(&program, &mount.path("f")));
    a.says("try w 0 10", "ok");
    for locker in [&mut b, &mut c] {
        locker.says("try r 9 1", "busy");
        locker.says("test r 5 10", "w 0 10");
        locker.says("try r 10 10", "ok");
    }
    a.says("try w 10 1", "busy");
    b.tell("wait w 0 5");
    b.is_waiting();
    a.says("try u 0 0", "ok");
    assert_eq!(b.answer(), "ok");
    c.says("try w 4 1", "busy");
    // A close releases what the process has locked, and so does its end.
    b.signal(rustix::process::Signal::KILL);
    c.says("wait w 0 5", "ok");
    c.end();
    a.says("wait w 0 0", "ok");
}

#[test]
fn a_lock_is_waited_for_and_a_signal_ends_the_wait() {
    let ((_server, [one, other]), (_built, program)) = (two_mounts(), compiled("locker.c"));
    let mut a = Locker::start(&program, &one.path("f"));
    let mut near = Locker::start(&program, &one.path("f"));
    let mut far = Locker::start(&program, &other.path("f"));
    a.says("try w 0 0", "ok");
    for locker in [&mut near, &mut far] {
        locker.tell("wait r 0 0");
        locker.is_waiting();
        locker.signal(rustix::process::Signal::ALARM);
        assert_eq!(locker.answer(), "interrupted");
        // Nothing is left of the wait.
        a.says("try w 0 0", "ok");
        locker.tell("wait r 0 0");
        locker.is_waiting();
    }
    a.says("try u 0 0", "ok");
    assert_eq!([near.answer(), far.answer()], ["ok", "ok"]);
    a.says("try w 0 0", "busy");
    // Who is killed while it waits leaves nothing either.
    near.says("try u 0 0", "ok");
    near.tell("wait w 0 0");
    near.is_waiting();
    near.signal(rustix::process::Signal::KILL);
    near.process.wait().unwrap();
    far.says("try u 0 0", "ok");
    a.says("wait w 0 0", "ok");
}

#[test]
fn what_is_written_under_a_lock_is_read_under_the_next() {
    let ((_server, [one, other]), (_built, program)) = (two_mounts(), compiled("locker.c"));
    let mut a = Locker::start(&program, &one.path("f"));
    let mut b = Locker::start(&program, &other.path("f"));
    a.says("write 0 00000", "ok");
    for round in 0..30 {
        let (from, to) = if round % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        from.says("wait w 0 5", "ok");
        from.says(&format!("write 0 {:05}", round + 1), "ok");
        from.says("try u 0 5", "ok");
        to.says("wait r 0 5", "ok");
        to.says("read 0 5", &format!("{:05}", round + 1));
        to.says("try u 0 5", "ok");
    }
}

#[test]
fn flock_excludes_programs_of_other_mounts() {
    let (_server, [one, other]) = two_mounts();
    fs::write(one.path("f"), "").unwrap();
    let busy = |mount: &Mounted, how: &str| {
        !try_shell(&mount.directory, &format!("flock {how} -n -E 9 f true || test $? != 9")).status.success()
    };
    let held = fs::File::open(other.path("f")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockShared).unwrap();
    assert!(busy(&one, "-x") && !busy(&one, "-s"));
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(busy(&one, "-x") && busy(&one, "-s") && busy(&other, "-s"));
    drop(held);
    shell(&one.directory, "flock -x -w 60 f true");
    // Two descriptors of one process are two owners.
    let [mine, too] = [0, 1].map(|_| fs::File::open(one.path("f")).unwrap());
    rustix::fs::flock(&mine, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let tried = rustix::fs::flock(&too, rustix::fs::FlockOperation::NonBlockingLockShared);
    assert_eq!(tried, Err(rustix::io::Errno::AGAIN));
    rustix::fs::flock(&mine, rustix::fs::FlockOperation::Unlock).unwrap();
    rustix::fs::flock(&too, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
}

#[test]
fn locks_of_an_open_file_description_end_with_it() {
    let ((_server, [one, other]), (_built, program)) = (two_mounts(), compiled("locker.c"));
    let mut a = Locker::start(&program, &one.path("f"));
    let mut b = Locker::start(&program, &other.path("f"));
    a.says("ofd w 0 10", "ok");
    // The process is another owner than its description.
    a.says("try w 5 10", "busy");
    b.says("try w 5 10", "busy");
    a.end();
    b.says("wait w 5 10", "ok");
}

#[test]
fn a_wait_that_ends_leaves_what_was_locked_before() {
    let ((_server, [one, other]), (_built, program)) = (two_mounts(), compiled("locker.c"));
    let mut a = Locker::start(&program, &one.path("f"));
    let mut b = Locker::start(&program, &other.path("f"));
    b.says("try r 0 10", "ok");
    a.says("try r 5 10", "ok");
    for _ in 0..10 {
        a.tell("wait w 0 20");
        a.is_waiting();
        a.signal(rustix::process::Signal::ALARM);
        assert_eq!(a.answer(), "interrupted");
        b.says("try w 14 1", "busy");
        b.says("try w 15 1", "ok");
        b.says("try u 15 1", "ok");
    }
}

/// Each close is followed by the lock of another program, whose call may be under way by then.
#[test]
fn short_programs_of_one_mount_exclude_each_other_and_those_of_another() {
    const EACH: usize = 40;
    let (_server, [one, other]) = two_mounts();
    fs::write(one.path("n"), "0\n").unwrap();
    fs::write(one.path("f"), "").unwrap();
    let script = format!("for i in $(seq {EACH}); do flock f sh -c 'read n < n; echo $((n + 1)) > n'; done");
    std::thread::scope(|scope| {
        for mount in [&one, &one, &one, &other] {
            scope.spawn(|| drop(shell(&mount.directory, &script)));
        }
    });
    assert_eq!(fs::read_to_string(other.path("n")).unwrap(), format!("{}\n", 4 * EACH));
}

#[test]
fn local_locks_stay_on_the_host_with_version_4_too() {
    let (server, (_built, program)) = (Server::start(1), compiled("locker.c"));
    let [one, other] = ["one", "other"].map(|name| server.mount(name, "vers=4.2,nolock"));
    let [mut a, mut b] = [&one, &other].map(|mount| Locker::start(&program, &mount.path("f")));
    let mut c = Locker::start(&program, &one.path("f"));
    a.says("try w 0 0", "ok");
    c.says("try w 0 0", "busy");
    b.says("try w 0 0", "ok");
}

#[test]
fn sqlite_on_two_mounts_loses_no_transaction() {
    const EACH: usize = 40;
    let (_server, mounts) = two_mounts();
    shell(&mounts[0].directory, "sqlite3 db 'create table t (who, what)'");
    std::thread::scope(|scope| {
        // Two programs in each mount.
        for (who, mount) in mounts.iter().chain(&mounts).enumerate() {
            scope.spawn(move || {
                let script = format!(
                    "for i in $(seq {EACH}); do sqlite3 -cmd '.timeout 60000' db \"insert into t values ({who}, $i)\"; done"
                );
                shell(&mount.directory, &script);
            });
        }
    });
    let wanted = format!(
        "test \"$(sqlite3 db 'select count(*) from t; pragma integrity_check')\" = \"$(printf '{}\\nok')\"",
        4 * EACH
    );
    mounts.iter().for_each(|mount| drop(shell(&mount.directory, &wanted)));
}

/// A directory that a server serves, which can be killed and started again.
struct Restarted {
    directory: TempDir,
    port: u16,
    server: Option<ServerProcess>,
}

impl Restarted {
    fn start() -> Self {
        let directory = temp_dir("locks");
        for name in ["served", "state", "one", "other"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        fs::set_permissions(directory.path().join("state"), fs::Permissions::from_mode(0o700)).unwrap();
        let mut this = Self { directory, port: 0, server: None };
        let program = || Command::new(env!("CARGO_BIN_EXE_trunkline"));
        let server = ServerProcess::start_on_free_port(program, |port| this.arguments(port));
        (this.port, this.server) = (server.port(), Some(server));
        this
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn arguments(&self, port: u16) -> Vec<String> {
        let [served, state] = ["served", "state"].map(|name| self.at(name).display().to_string());
        let listen = format!("127.0.0.1:{port}");
        [
            "--no-root-squash",
            "--nfs-versions",
            "3,4.2",
            "--listen",
            &listen,
            "--dir",
            &served,
            "--state",
            &state,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn mount(&self, name: &str) -> Mounted {
        Mounted::start("127.0.0.1:/export", self.at(name), &format!("vers=4.2,port={}", self.port))
    }

    /// Kills the server, and starts another after this.
    fn restart(&mut self, meanwhile: impl FnOnce(&Self)) {
        self.server.take().unwrap().process.kill();
        meanwhile(self);
        let program = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        self.server = Some(ServerProcess::start(program, &self.arguments(self.port)));
    }
}

impl Drop for Restarted {
    fn drop(&mut self) {
        unmount_all_below(self.directory.path());
    }
}

#[test]
fn locks_are_kept_over_a_restart_of_the_server() {
    let (mut served, (_built, program)) = (Restarted::start(), compiled("locker.c"));
    let (one, other) = (served.mount("one"), served.mount("other"));
    let mut a = Locker::start(&program, &one.path("f"));
    let mut b = Locker::start(&program, &other.path("f"));
    a.says("try w 0 10", "ok");
    a.says("try r 20 10", "ok");
    b.says("try r 25 10", "ok");
    for _ in 0..2 {
        served.restart(|_| {});
        b.says("try w 0 10", "busy");
        b.says("try w 20 1", "busy");
        a.says("write 0 still", "ok");
        a.says("try w 29 1", "busy");
    }
    a.says("try u 0 0", "ok");
    b.says("wait w 0 30", "ok");
    b.says("read 0 5", "still");
}

#[test]
fn programs_whose_locks_are_lost_are_told() {
    let (mut served, (_built, program)) = (Restarted::start(), compiled("locker.c"));
    let one = served.mount("one");
    let mut a = Locker::start(&program, &one.path("f"));
    let mut b = Locker::start(&program, &one.path("g"));
    a.says("try w 0 10", "ok");
    // Without its record of clients the server believes nobody who reclaims.
    served.restart(|served| drop(shell(&served.at("state"), "rm */nfs4-clients")));
    one.process.wait_for_line("the server has lost locks of a file", MOUNT_TIMEOUT);
    for line in ["write 0 wrong", "try r 20 1"] {
        a.says(line, "Input/output error");
    }
    b.says("write 0 right", "ok");
    b.says("try w 0 10", "ok");
    a.says("try u 0 0", "ok");
    a.says("wait w 0 10", "ok");
    a.says("write 0 right", "ok");
    a.says("read 0 5", "right");
}

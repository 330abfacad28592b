//! Tests a server that does not answer: which processes wait, what ends the wait, and which data
//! are kept.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server, compiled, shell};
use crate::semantics::pattern;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use testkit::{Deadline, Process, require_program};

const ETIMEDOUT: Option<i32> = Some(110);

/// Waits until a process is in the kernel waiting for a reply of the mount.
fn wait_until_it_waits(process: u32) {
    Deadline::wait_until("the process to wait", MOUNT_TIMEOUT, || {
        let of = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
        (of("stack") + &of("wchan")).contains("request_wait_answer").then_some(())
    });
}

/// Stops the server; no thread of the server runs when this returns.
fn freeze(server: &Server) {
    server.process.signal(Signal::STOP);
    Deadline::wait_until("the server to stop", MOUNT_TIMEOUT, || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.process.id())).unwrap();
        let stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
        // The state follows the name, which is in parentheses. proc(5)
        stats.into_iter().all(|stat| stat.rsplit(") ").next().unwrap().starts_with('T')).then_some(())
    });
}

fn ends(mut process: Child) {
    Deadline::wait_until("the process to end", MOUNT_TIMEOUT, || process.try_wait().unwrap());
}

#[test]
fn a_process_that_waits_for_a_silent_server_can_be_killed() {
    let server = Server::start(1);
    let mount = server.mount("mnt", "");
    fs::write(mount.path("f"), b"1").unwrap();
    freeze(&server);
    for signal in [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP] {
        // The parent may ignore some of these signals, as nohup(1) makes it do.
        let mut command = Command::new("env");
        command.args(["--default-signal", "cat"]).arg(mount.path("f"));
        let waiting = command.stdout(Stdio::null()).spawn().unwrap();
        wait_until_it_waits(waiting.id());
        kill_process(Pid::from_child(&waiting), signal).unwrap();
        ends(waiting);
    }
    server.process.signal(Signal::CONT);
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"1", "the mount works again");
}

/// Waits until the mount has looked for killed processes among those that wait. The second process
/// here is killed after the look that found the first, so it is found by a later look, which covers
/// everything that was in flight before this call. They ask for new names, since a file may be
/// cached under a delegation.
fn wait_until_it_has_looked(mount: &Mounted) {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    for _ in 0..2 {
        let name = format!("absent-{}", NAMES.fetch_add(1, Ordering::Relaxed));
        let mut stat = Command::new("stat");
        let waiting =
            stat.arg(mount.path(&name)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until_it_waits(waiting.id());
        kill_process(Pid::from_child(&waiting), Signal::KILL).unwrap();
        ends(waiting);
    }
}

#[test]
fn an_asynchronous_read_gets_its_data_after_its_thread_has_ended() {
    let server = Server::start(1);
    let mount = server.mount("mnt", "actimeo=600");
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join("async_read");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/async_read.c");
    shell(built.path(), &format!("cc -O1 -Wall -Werror -pthread -o {} {source}", program.display()));
    fs::write(mount.path("f"), vec![b'a'; 1 << 20]).unwrap();
    for is_seen_alive in [false, true] {
        let mut command = Command::new(&program);
        command.arg(mount.path("f"));
        let mut reader = Process::spawn(command);
        reader.wait_for_line("open", MOUNT_TIMEOUT);
        // Fills the cache, so that the kernel asks for nothing before the read begins.
        assert_eq!(fs::metadata(mount.path("f")).unwrap().len(), 1 << 20);
        freeze(&server);
        reader.signal(Signal::USR1);
        reader.wait_for_line("begun", MOUNT_TIMEOUT);
        if is_seen_alive {
            wait_until_it_has_looked(&mount);
        }
        reader.signal(Signal::USR1);
        reader.wait_for_line("the thread has ended", MOUNT_TIMEOUT);
        wait_until_it_has_looked(&mount);
        server.process.signal(Signal::CONT);
        let said = reader.wait_for_line("written", MOUNT_TIMEOUT);
        assert_eq!(said, "read 1048576, 1048576 as they were written");
        assert!(reader.wait(MOUNT_TIMEOUT).success());
    }
}

#[test]
fn a_signal_ends_a_copy_after_what_is_under_way() {
    const ALL: u64 = 256 << 20;
    const PIECE: u64 = 16 << 20;
    let (_built, program) = compiled("copier.c");
    let server = Server::start(1);
    let mount = server.mount("mnt", "vers=4.2,nolock");
    fs::write(mount.path("source"), vec![7; ALL as usize]).unwrap();
    let mut command = Command::new(&program);
    command.arg(mount.path("source")).arg(mount.path("target"));
    let mut copier = Process::spawn(command);
    copier.wait_for_line("open", MOUNT_TIMEOUT);
    freeze(&server);
    copier.signal(Signal::USR1);
    copier.wait_for_line("begun", MOUNT_TIMEOUT);
    wait_until_it_waits(copier.id());
    copier.signal(Signal::USR1);
    server.process.signal(Signal::CONT);
    let said = copier.wait_for_line("copied", MOUNT_TIMEOUT);
    let count: u64 = said.trim_start_matches("copied ").parse().unwrap_or_else(|_| panic!("{said}"));
    assert!(count > 0 && count < ALL && count.is_multiple_of(PIECE), "{count}");
    assert!(copier.wait(MOUNT_TIMEOUT).success());
    assert_eq!(fs::metadata(mount.path("target")).unwrap().len(), count);
}

/// Whoever looks at a mount uses it for that moment, and an unmount fails then. The watcher of a
/// mount in a directory that does not answer would not end.
#[test]
fn the_watcher_of_a_mount_does_not_look_at_its_directory() {
    let server = Server::start(1);
    let mount = server.mount("mnt", "nolock,noac,lookupcache=none");
    let directory = mount.path("directory");
    fs::create_dir(&directory).unwrap();
    freeze(&server);
    let mut command = Command::new("sh");
    command.args(["-c", "echo bye | \"$0\" mount 127.0.0.1:/export \"$1\"", env!("CARGO_BIN_EXE_trunkline")]);
    command.arg(&directory);
    let variables = ["TRUNKLINE_MOUNT_ROLE", "TRUNKLINE_MOUNT_DIRECTORY"];
    command.env(variables[0], "watcher").env(variables[1], &directory);
    let mut watcher = Process::spawn(command);
    assert!(watcher.wait(MOUNT_TIMEOUT).success(), "{}", watcher.all_output());
    server.process.signal(Signal::CONT);
}

#[test]
fn a_signal_that_a_process_handles_does_not_interrupt_its_wait() {
    const SCRIPT: &str = "$| = 1; $SIG{USR1} = sub { print \"handled\\n\" }; print \"begin\\n\"; \
                          open(my $f, '<', $ARGV[0]) or die \"open: $!\"; \
                          defined(sysread($f, my $data, 10)) or die \"read: $!\"; print \"read $data\\n\"";
    let server = Server::start(1);
    let mount = server.mount("mnt", "");
    fs::write(mount.path("f"), b"1").unwrap();
    freeze(&server);
    let mut command = Command::new(require_program("perl"));
    command.args(["-e", SCRIPT]).arg(mount.path("f"));
    let mut reader = Process::spawn(command);
    reader.wait_for_line("begin", MOUNT_TIMEOUT);
    wait_until_it_waits(reader.id());
    reader.signal(Signal::USR1);
    wait_until_it_waits(reader.id());
    assert!(reader.is_running(), "{}", reader.all_output());
    server.process.signal(Signal::CONT);
    assert!(reader.wait(MOUNT_TIMEOUT).success(), "{}", reader.all_output());
    let said = reader.all_output();
    assert!(said.contains("handled") && said.contains("read 1"), "{said}");
}

#[test]
fn data_written_by_a_process_before_it_was_killed_reach_the_server() {
    let server = Server::start(1);
    let mount = server.mount("mnt", "");
    let data = pattern(300_000, 1);
    let source = server.mount_point("sources").join("f");
    fs::write(&source, &data).unwrap();
    File::create(mount.path("f")).unwrap();
    // The data are in the process of the mount, and the program still has the file open.
    let script = "exec 3> \"$1\"; cat \"$0\" >&3; echo written; exec sleep 1000";
    let mut command = Command::new("sh");
    command.args(["-euc", script]).arg(source).arg(mount.path("f"));
    let mut writer = Process::spawn(command);
    writer.wait_for_line("written", MOUNT_TIMEOUT);
    freeze(&server);
    writer.signal(Signal::KILL);
    writer.wait(MOUNT_TIMEOUT);
    server.process.signal(Signal::CONT);
    let other = server.mount("other", "");
    Deadline::wait_until("the data to be on the server", MOUNT_TIMEOUT, || {
        (fs::read(other.path("f")).unwrap() == data).then_some(())
    });
}

#[test]
fn a_write_waits_when_too_much_data_wait_for_the_server() {
    const MIB: usize = 1 << 20;
    const HELD_MIB: u64 = 64;
    let piece = |at: u64| pattern(MIB, at as u8);
    let server = Server::start(1);
    let mount = server.mount("mnt", "");
    // A file that a process reads below. That process is ended after two seconds, and the writer
    // must wait all that time.
    fs::write(mount.path("g"), piece(0)).unwrap();
    // This process has no file of the mount open: each process that it starts would close a copy,
    // and wait for the server.
    let mut writer = Command::new("dd");
    writer.args(["bs=1M", "iflag=fullblock", "conv=fsync"]).arg(format!("of={}", mount.path("f").display()));
    let mut writer = writer.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    Deadline::wait_until("the file to be open", MOUNT_TIMEOUT, || mount.path("f").exists().then_some(()));
    freeze(&server);
    let taken = Arc::new(AtomicU64::new(0));
    let (counter, mut to) = (Arc::clone(&taken), writer.stdin.take().unwrap());
    let giving = std::thread::spawn(move || {
        for at in 0..3 * HELD_MIB {
            to.write_all(&piece(at)).unwrap();
            counter.store(at + 1, Ordering::Relaxed);
        }
    });
    let taken = || taken.load(Ordering::Relaxed);
    Deadline::wait_until("much to be written", MOUNT_TIMEOUT, || (taken() >= HELD_MIB - 4).then_some(()));
    let mut waits = Command::new("timeout");
    waits.args(["--signal=KILL", "2", "dd", "bs=1M", "iflag=direct", "of=/dev/null"]);
    waits.arg(format!("if={}", mount.path("g").display())).stderr(Stdio::null());
    assert!(!waits.status().unwrap().success(), "the server does not answer");
    // The margin is data on the way to write(2): in the writer, and in the pipe to the writer.
    assert!(taken() <= HELD_MIB + 3, "{} MiB were written", taken());
    server.process.signal(Signal::CONT);
    giving.join().unwrap();
    ends(writer);
    let seen = fs::read(server.mount("other", "").path("f")).unwrap();
    assert!((0..).zip(seen.chunks(MIB)).all(|(at, seen)| seen == piece(at)));
    assert_eq!(seen.len() as u64, 3 * HELD_MIB * MIB as u64);
}

#[test]
fn the_log_says_once_that_no_path_answers_however_many_loops_wait() {
    const SAID: &str = "no path has answered";
    let server = Server::start(1);
    let mount = server.mount("mnt", "nconnect=8");
    let data = pattern(16 << 20, 1);
    fs::write(mount.path("f"), &data).unwrap();
    freeze(&server);
    // Long reads are spread over all loops.
    let read = |seconds: &str| {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", seconds, "dd", "bs=1M", "iflag=direct", "of=/dev/null"]);
        command.arg(format!("if={}", mount.path("f").display())).stderr(Stdio::null()).spawn().unwrap()
    };
    let readers: Vec<Child> = (0..8).map(|_| read("1000")).collect();
    mount.process.wait_for_line(SAID, MOUNT_TIMEOUT);
    // Longer than the time after the first message in which any other loop would print its own.
    assert!(!read("4").wait().unwrap().success());
    server.process.signal(Signal::CONT);
    readers.into_iter().for_each(ends);
    mount.process.wait_for_line("a path answers again", MOUNT_TIMEOUT);
    let said = mount.process.all_output();
    assert_eq!(said.matches(SAID).count(), 1, "{said}");
}

#[test]
fn with_soft_calls_end_with_etimedout() {
    let server = Server::start(1);
    let mount = server.mount("mnt", "soft,timeo=2,retrans=1,noac");
    let mut file = File::options().read(true).write(true).create_new(true).open(mount.path("f")).unwrap();
    file.write_all(b"1").unwrap();
    file.sync_all().unwrap();
    freeze(&server);
    let mut data = [0];
    assert_eq!(fs::metadata(mount.path("f")).unwrap_err().raw_os_error(), ETIMEDOUT);
    assert_eq!(File::create(mount.path("g")).unwrap_err().raw_os_error(), ETIMEDOUT);
    assert_eq!(fs::read_dir(&mount.directory).map(drop).unwrap_err().raw_os_error(), ETIMEDOUT);
    assert_eq!(file.read_exact_at(&mut data, 0).unwrap_err().raw_os_error(), ETIMEDOUT);
    assert_eq!(file.write_at(b"2", 0).unwrap_err().raw_os_error(), ETIMEDOUT);
    server.process.signal(Signal::CONT);
    // From here on the mount works as before.
    Deadline::wait_until("the server to answer again", MOUNT_TIMEOUT, || fs::metadata(mount.path("f")).ok());
    file.write_all_at(b"3", 0).unwrap();
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"3");
}

#[test]
fn with_soft_lost_data_are_reported_at_fsync() {
    let server = Server::start(1);
    let mount = server.mount("mnt", "soft,timeo=2,retrans=1");
    let mut file = File::create(mount.path("f")).unwrap();
    file.write_all(b"1").unwrap();
    freeze(&server);
    file.write_all(b"2").unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), ETIMEDOUT);
    server.process.signal(Signal::CONT);
    file.sync_all().expect("each error is reported once");
}

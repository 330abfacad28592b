//! Tests `cp` with sources and targets that are no files: pipes, devices, descriptors and `-` are
//! read and written in place and never replaced.

use super::fixtures::{TIMEOUT, TestServer, fails, make_file, pattern, prints, run, trunkline};
use super::summary::without_summary;
use ::fs::{SetAttributes, Special};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use testkit::{Deadline, Process, Stream, temp_dir};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn pipe(path: &Path) -> &str {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    text(path)
}

/// Reads all data that come through a pipe.
fn reader(path: &Path) -> JoinHandle<Vec<u8>> {
    let path = path.to_owned();
    thread::spawn(move || fs::read(path).unwrap())
}

/// Runs a shell script; `$T` is the program, `$1` the argument.
fn shell(script: &str, argument: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-euc", script, "sh", argument]).env("T", env!("CARGO_BIN_EXE_trunkline"));
    command.env_remove("TRUNKLINE_LOG").output().unwrap()
}

#[track_caller]
fn assert_done(output: &Output) {
    let said = without_summary(&String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
}

/// Runs the program with this standard input; returns its output.
fn fed(arguments: &[&str], data: &[u8]) -> Output {
    let mut command = trunkline(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, data) = (child.stdin.take().unwrap(), data.to_vec());
    // The program may end without reading.
    let feeding = thread::spawn(move || drop(stdin.write_all(&data)));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    output
}

#[track_caller]
fn assert_same(got: &[u8], wanted: &[u8]) {
    assert!(got == wanted, "{} bytes, and {} were wanted", got.len(), wanted.len());
}

#[test]
fn a_dash_is_standard_input_and_standard_output() {
    let served = TestServer::start();
    let data = pattern(5_000_001, 1);
    assert_done(&fed(&["cp", "-", &served.url("/data")], &data));
    assert_done(&fed(&["cp", "--verify", "-", &served.url("/data")], &data));
    assert_done(&fed(&["cp", "-", &served.url("/empty")], b""));
    for name in ["-", "/dev/stdout"] {
        let output = trunkline(&["cp", &served.url("/data"), name]).output().unwrap();
        assert_done(&output);
        assert_same(&output.stdout, &data);
    }
    assert_eq!(prints(&["cp", &served.url("/empty"), "-"]), "");
    assert_eq!(prints(&["ls", "-a", &served.url("")]), "data\nempty\n");
    let output = fed(&["cp", "-", &served.url("/")], b"x");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("it has no name"), "{said}");
}

#[test]
fn a_pipe_is_written_and_read_and_stays_a_pipe() {
    let served = TestServer::start();
    let place = temp_dir("streams");
    let at = |name: &str| place.path().join(name);
    let data = pattern(3_000_001, 2);
    make_file(&served.mount(), "/data", &data);
    pipe(&at("pipe"));
    symlink("pipe", at("link")).unwrap();
    for name in ["pipe", "link"] {
        let reading = reader(&at("pipe"));
        prints(&["cp", &served.url("/data"), text(&at(name))]);
        assert_same(&reading.join().unwrap(), &data);
    }
    let (to, sent) = (at("pipe"), data.clone());
    let writing = thread::spawn(move || fs::write(to, sent).unwrap());
    prints(&["cp", "--verify", text(&at("pipe")), &served.url("/copy")]);
    writing.join().unwrap();
    let output = trunkline(&["cat", &served.url("/copy")]).output().unwrap();
    assert_same(&output.stdout, &data);
    assert!(fs::symlink_metadata(at("pipe")).unwrap().file_type().is_fifo());
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn descriptors_of_the_shell_are_used_from_their_current_position() {
    let served = TestServer::start();
    make_file(&served.mount(), "/data", b"data\n");
    let place = temp_dir("streams");
    let out = place.path().join("out");
    for name in ["/dev/stdout", "/dev/fd/1", "-", "/dev/fd/7 7>&1", "/proc/self/fd/1"] {
        let script = format!("{{ echo before; $T cp \"$1\" {name}; echo after; }} > {}", text(&out));
        assert_done(&shell(&script, &served.url("/data")));
        assert_eq!(fs::read_to_string(&out).unwrap(), "before\ndata\nafter\n", "{name}");
    }
    for name in ["/dev/stdin", "/dev/fd/0", "-", "/dev/fd/7 7<&0"] {
        fs::write(&out, "one\ntwo\n").unwrap();
        // The shell reads no further than the end of the line.
        let script = format!("{{ read line; $T cp {name} \"$1\"; }} < {}", text(&out));
        assert_done(&shell(&script, &served.url("/back")));
        assert_eq!(prints(&["cat", &served.url("/back")]), "two\n", "{name}");
    }
    let closed = fails(&["cp", &served.url("/data"), "/dev/fd/77"]);
    assert!(closed.contains("Bad file descriptor"), "{closed}");
}

#[test]
fn a_device_is_written_and_stays_a_device() {
    let served = TestServer::start();
    make_file(&served.mount(), "/data", &pattern(100_000, 3));
    let place = temp_dir("streams");
    let device = |name: &str, minor| {
        let path = place.path().join(name);
        let made = mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(1, minor));
        made.ok().and_then(|()| File::options().write(true).open(&path).ok()).map(|_| path)
    };
    // Copies of /dev/null and /dev/full, so that a failed test does not damage those of the
    // machine.
    let (Some(null), Some(full)) = (device("null", 3), device("full", 7)) else {
        return eprintln!("skipped: no device may be made and used here");
    };
    prints(&["cp", &served.url("/data"), text(&null)]);
    let err = fails(&["cp", &served.url("/data"), text(&full)]);
    assert!(err.contains("cannot write it: No space left on device"), "{err}");
    for path in [&null, &full] {
        assert!(fs::symlink_metadata(path).unwrap().file_type().is_char_device());
    }
    prints(&["cp", text(&null), &served.url("/nothing")]);
    assert!(prints(&["stat", &served.url("/nothing")]).contains("size          0 bytes"));
}

#[test]
fn a_file_that_reports_a_wrong_length_is_read_to_its_end() {
    let served = TestServer::start();
    // A file that reports the length of a page; not every machine has it.
    if let Ok(text) = fs::read_to_string("/sys/kernel/fscaps") {
        prints(&["cp", "/sys/kernel/fscaps", &served.url("/fscaps")]);
        assert_eq!(prints(&["cat", &served.url("/fscaps")]), text);
    }
    prints(&["cp", "/proc/version", &served.url("/version")]);
    assert_eq!(prints(&["cat", &served.url("/version")]), fs::read_to_string("/proc/version").unwrap());
}

#[test]
fn a_hole_is_written_to_standard_output_as_zeros() {
    let served = TestServer::start();
    let mount = served.mount();
    make_file(&mount, "/sparse", b"start");
    let (file, _) = mount.resolve(b"/sparse").unwrap();
    mount
        .set_attributes(file, SetAttributes { size: Some(3 << 20), ..SetAttributes::default() }, None)
        .unwrap();
    let output = trunkline(&["cp", &served.url("/sparse"), "-"]).output().unwrap();
    assert_done(&output);
    assert_same(&output.stdout, &[&b"start"[..], &vec![0; (3 << 20) - 5]].concat());
}

#[test]
fn a_pipe_or_socket_is_never_replaced_by_a_file() {
    let served = TestServer::start();
    let mount = served.mount();
    make_file(&mount, "/data", b"data");
    let mode = SetAttributes::mode(0o600);
    mount.make_special(mount.root(), b"pipe", Special::Fifo, mode).unwrap();
    let place = temp_dir("streams");
    let at = |name: &str| place.path().join(name);
    pipe(&at("data"));
    fs::write(at("file"), "file").unwrap();
    let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for (from, to, words) in [
        (served.url("/data"), place.path().to_owned(), "a file cannot replace a named pipe"),
        (
            text(&at("file")).to_owned(),
            PathBuf::from(served.url("/pipe")),
            "a file cannot replace a named pipe",
        ),
        (served.url("/data"), at("socket"), "it is a socket"),
        (served.url("/pipe"), at("new"), "it is a named pipe"),
    ] {
        let err = fails(&["cp", &from, text(&to)]);
        assert!(err.contains(words), "{err}");
    }
    let err = fails(&["cp", "/proc/version", &served.url("/pipe")]);
    assert!(err.contains("a file cannot replace a named pipe"), "{err}");
    drop(socket);
    assert!(fs::symlink_metadata(at("data")).unwrap().file_type().is_fifo());
    assert!(prints(&["ls", "-l", &served.url("")]).contains("prw-------"));
    assert_eq!(prints(&["ls", "-a", &served.url("")]), "data\npipe\n");
}

#[test]
fn cp_to_a_reader_that_closes_early_fails() {
    let served = TestServer::start();
    make_file(&served.mount(), "/data", &pattern(20 << 20, 4));
    let mut command = trunkline(&["cp", &served.url("/data"), "-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let status = Deadline::wait_until("the end of cp", TIMEOUT, || child.try_wait().unwrap());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("its reader ended after ") && said.contains("  try:   "), "{said}");
}

#[test]
fn a_signal_ends_the_wait_for_the_other_end_of_a_pipe() {
    let served = TestServer::start();
    make_file(&served.mount(), "/data", b"data");
    let place = temp_dir("streams");
    let path = place.path().join("pipe");
    let waiting = pipe(&path);
    for arguments in [[&served.url("/data"), waiting], [waiting, &served.url("/copy")]] {
        // The program has begun when it catches SIGTERM.
        let mut process = Process::spawn(trunkline(&["-vv", "cp", arguments[0], arguments[1]]));
        Deadline::wait_until("signals are caught", TIMEOUT, || {
            catches(process.id(), Signal::TERM).then_some(())
        });
        process.signal(Signal::TERM);
        assert_eq!(process.wait(TIMEOUT).code(), Some(143), "{}", process.output(Stream::Err));
    }
    assert_eq!(prints(&["ls", "-a", &served.url("")]), "data\n");
}

fn catches(id: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|mask| mask & 1 << (signal.as_raw() - 1) != 0)
}

#[test]
fn options_that_streams_do_not_support_are_refused() {
    let place = temp_dir("streams");
    let path = place.path().join("pipe");
    let fifo = pipe(&path);
    for arguments in [
        &["-r", "h:/x", "-"][..],
        &["-a", "h:/x", fifo],
        &["-r", "-", "h:/x"],
        &["h:/x", "h:/y", "-"],
        &["--verify", "h:/x", "-"],
        &["--verify", "h:/x", fifo],
        &["--resume", "h:/x", "-"],
        &["--resume", "-", "h:/x"],
        &["--resume", fifo, "h:/x"],
        &["-", "-", "h:/x"],
        &["-", "-"],
        &["-", "./x"],
    ] {
        let (code, out, err) = run(&[&["cp"], arguments].concat());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        assert!(err.contains("error: cannot copy like this\n") && err.contains("  try:   "), "{err}");
    }
}

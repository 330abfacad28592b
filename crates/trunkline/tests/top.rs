//! Tests `trunkline top` and the snapshots of running processes.

#[path = "top/benches.rs"]
mod benches;

use client::Mount;
use metrics::{Dimension, Key, SizeClass, Snapshot};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Deadline, Process, Stream, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one READ and one WRITE.
const BLOCK: usize = 64 << 10;

/// The program with a runtime directory of its own. For root that is /run.
fn trunkline(runtime: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments).env("XDG_RUNTIME_DIR", runtime).env_remove("TRUNKLINE_LOG");
    command
}

fn run(runtime: &Path, arguments: &[&str]) -> Output {
    trunkline(runtime, arguments).output().unwrap()
}

fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A server, and the URL of its export.
fn serve(runtime: &Path) -> (Process, String) {
    let server = Process::spawn(trunkline(runtime, &["serve", "--mem", "64MiB", "--listen", "127.0.0.1:0"]));
    server.wait_for_line("ready", TIMEOUT);
    let out = server.output(Stream::Out);
    let line = out.lines().find_map(|line| line.strip_prefix("listening on ")).unwrap();
    let url = format!("nfs://{}/export", line.split(' ').next().unwrap());
    (server, url)
}

/// Three WRITEs, five READs, and a LOOKUP that fails.
fn load(mount: &Mount) {
    let file = mount.create_file(b"/file", 0o644).unwrap();
    for block in 0..3 {
        file.write_at(vec![7; BLOCK], (block * BLOCK) as u64).wait().result.unwrap();
    }
    for _ in 0..5 {
        file.read_at(vec![0; BLOCK], 0).wait().result.unwrap();
    }
    assert!(mount.open(b"/absent").is_err());
}

fn snapshot_of(runtime: &Path, pid: &str) -> Snapshot {
    let output = run(runtime, &["top", pid, "--batch", "0", "--json"]);
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    Snapshot::from_json(&output.stdout).unwrap()
}

#[test]
fn a_server_counts_by_client_export_operation_and_size() {
    let runtime = temp_dir("top");
    let (server, url) = serve(runtime.path());
    load(&Mount::connect(&url, "nolock").unwrap());
    let snapshot = snapshot_of(runtime.path(), &server.id().to_string());
    assert_eq!((snapshot.process.pid, snapshot.process.name.as_str()), (server.id(), "/export"));
    let key = |operation: &str| Key {
        node: Some("node1".into()),
        client: Some("127.0.0.1".into()),
        export: Some("/export".into()),
        operation: Some(operation.into()),
        size: Some(SizeClass::To64K),
        ..Key::default()
    };
    let read = snapshot.operations.of(&key("READ")).unwrap();
    assert_eq!((read.count, read.errors, read.latency.count()), (5, 0, 5));
    assert!(read.sent_bytes > (5 * BLOCK) as u64 && read.received_bytes < BLOCK as u64);
    let write = snapshot.operations.of(&key("WRITE")).unwrap();
    assert_eq!(write.count, 3);
    assert!(write.received_bytes > (3 * BLOCK) as u64);
    let of_lookup = [(Dimension::Operation, "LOOKUP".to_owned())];
    assert!(snapshot.operations.by(&[], &of_lookup).total().errors >= 1);
    // The NULL calls of the mount are about no export.
    let exports = snapshot.operations.by(&[Dimension::Export], &[]);
    assert!(exports.of(&Key::default()).is_some_and(|none| none.count > 0));
}

#[test]
fn batches_are_printed_as_text_and_as_csv() {
    let runtime = temp_dir("top");
    let (server, url) = serve(runtime.path());
    load(&Mount::connect(&url, "nolock").unwrap());
    let pid = server.id().to_string();
    let by_client =
        run(runtime.path(), &["top", &pid, "--batch", "0", "--by", "client", "--where", "operation=READ"]);
    let shown = text_of(&by_client.stdout);
    assert!(shown.starts_with(&format!("serve {pid}  /export  up ")), "{shown}");
    let line = shown.lines().find(|line| line.trim_start().starts_with("127.0.0.1")).unwrap();
    assert!(line.contains("100 %"), "{shown}");
    let csv = run(runtime.path(), &["top", &pid, "--batch", "1", "--interval", "0.1", "--csv"]);
    let lines: Vec<_> = text_of(&csv.stdout).lines().collect();
    assert!(lines[0].starts_with("time,pid,kind,name,seconds,table,node,client,"), "{lines:?}");
    assert_eq!(lines.len(), 1, "nothing happened in the interval: {lines:?}");
}

#[test]
fn a_server_counts_by_file_while_somebody_asks_and_names_files_by_their_paths() {
    let runtime = temp_dir("top");
    let export = runtime.path().join("data");
    std::fs::create_dir_all(export.join("sub")).unwrap();
    let arguments = ["serve", "--dir", export.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let server = Process::spawn({
        let mut command = trunkline(runtime.path(), &arguments);
        command.args(["--state", runtime.path().to_str().unwrap(), "--export", "/export"]);
        command.args(["--allow", "127.0.0.0/8", "--no-root-squash"]);
        command
    });
    server.wait_for_line("ready", TIMEOUT);
    let out = server.output(Stream::Out);
    let listen = out.lines().find_map(|line| line.strip_prefix("listening on ")).unwrap();
    let url = format!("nfs://{}/export", listen.split(' ').next().unwrap());
    let mount = Mount::connect(&url, "nolock").unwrap();
    let file = mount.create_file(b"/sub/one", 0o644).unwrap();
    let pid = server.id().to_string();
    let by_file = || {
        let arguments = ["top", &pid, "--batch", "1", "--interval", "0.3", "--by", "file,operation", "--csv"];
        let output = run(runtime.path(), &arguments);
        text_of(&output.stdout).to_owned()
    };
    // What happened before anybody asked is not told.
    file.write_at(vec![7; BLOCK], 0).wait().result.unwrap();
    assert!(!by_file().contains("/export/sub/one"));
    let stop = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&stop);
    let load = std::thread::spawn(move || {
        while !ends.load(Ordering::Acquire) {
            file.read_at(vec![0; BLOCK], 0).wait().result.unwrap();
        }
    });
    let csv = Deadline::wait_until("reads of the file", TIMEOUT, || {
        Some(by_file()).filter(|csv| csv.contains("READ,,/export/sub/one"))
    });
    stop.store(true, Ordering::Release);
    load.join().unwrap();
    let line = csv.lines().nth(1).unwrap();
    assert!(line.contains("READ,,/export/sub/one") && line.contains(",1,0,"), "all of it: {csv}");
    // A client does not count by file, and the snapshot of a server has files only if asked.
    assert!(snapshot_of(runtime.path(), &pid).files.is_none());
}

/// The status and the body of an answer to `GET path`.
fn get(address: &str, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn the_metrics_address_answers_prometheus_and_top() {
    let runtime = temp_dir("top");
    let last = runtime.path().join("last.prom");
    let mut server = Process::spawn(trunkline(
        runtime.path(),
        &[
            "serve",
            "--mem",
            "64MiB",
            "--listen",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
            "--metrics-file",
            last.to_str().unwrap(),
        ],
    ));
    server.wait_for_line("ready", TIMEOUT);
    let out = server.output(Stream::Out);
    let of = |prefix: &str| out.lines().find_map(|line| line.strip_prefix(prefix)).unwrap().to_owned();
    let address = of("metrics on http://").trim_end_matches("/metrics").to_owned();
    let listen = of("listening on ");
    load(&Mount::connect(&format!("nfs://{}/export", listen.split(' ').next().unwrap()), "nolock").unwrap());
    let reads = "trunkline_operations_total{node=\"node1\",export=\"/export\",operation=\"READ\"} 5";
    let (status, text) = get(&address, "/metrics", &address);
    assert!(status == 200 && text.contains(reads), "{status} {text}");
    for (path, host, expected) in [
        ("/health", "localhost", 200),
        ("/ready", "127.0.0.1", 200),
        ("/snapshot?by=node", "localhost", 200),
        ("/snapshot?by=user", "localhost", 400),
        ("/absent", "localhost", 404),
        ("/metrics", "evil.example", 421),
    ] {
        assert_eq!(get(&address, path, host).0, expected, "{path} {host}");
    }
    let (_, by_node) = get(&address, "/snapshot?by=node", "localhost");
    assert_eq!(Snapshot::from_json(by_node.as_bytes()).unwrap().operations.len(), 1);
    let top = run(runtime.path(), &["top", &address, "--batch", "0"]);
    assert!(text_of(&top.stdout).contains("READ"), "{top:?}");
    // Another process cannot have the same address, and says so before it serves anybody.
    let second =
        run(runtime.path(), &["serve", "--mem", "1MiB", "--listen", "127.0.0.1:0", "--metrics", &address]);
    let said = text_of(&second.stderr);
    assert!(said.contains("cannot answer on the metrics address") && said.contains("try:"), "{said}");
    assert!(server.terminate(TIMEOUT).success());
    assert!(std::fs::read_to_string(last).unwrap().contains(reads));
}

#[test]
fn the_last_metrics_are_written_though_nobody_asked_for_any() {
    let runtime = temp_dir("top");
    let last = runtime.path().join("last.prom");
    let arguments = ["serve", "--mem", "64MiB", "--listen", "127.0.0.1:0", "--metrics-file"];
    let mut server = Process::spawn({
        let mut command = trunkline(runtime.path(), &arguments);
        command.arg(&last);
        command
    });
    server.wait_for_line("ready", TIMEOUT);
    let out = server.output(Stream::Out);
    let listen = out.lines().find_map(|line| line.strip_prefix("listening on ")).unwrap();
    load(&Mount::connect(&format!("nfs://{}/export", listen.split(' ').next().unwrap()), "nolock").unwrap());
    assert!(server.terminate(TIMEOUT).success());
    let text = std::fs::read_to_string(last).unwrap();
    assert!(text.contains("operation=\"READ\"} 5"), "{text}");
}

#[test]
fn a_token_that_others_can_read_or_guess_is_refused() {
    let runtime = temp_dir("top");
    let token = runtime.path().join("token");
    for (content, mode, cause) in
        [("0123456789abcdef", 0o644, "others than its owner"), ("short", 0o600, "16 or more")]
    {
        std::fs::write(&token, content).unwrap();
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(mode)).unwrap();
        let output = run(
            runtime.path(),
            &[
                "serve",
                "--mem",
                "1MiB",
                "--listen",
                "127.0.0.1:0",
                "--metrics",
                "127.0.0.1:0",
                "--metrics-token",
                token.to_str().unwrap(),
            ],
        );
        assert!(!output.status.success() && text_of(&output.stderr).contains(cause), "{output:?}");
    }
}

#[test]
fn the_configuration_file_may_name_the_metrics_address_and_the_command_line_wins() {
    let runtime = temp_dir("top");
    let file = runtime.path().join("serve.toml");
    let text = "[[node]]\nlisten = [\"127.0.0.1:0\"]\n[metrics]\nlisten = \"127.0.0.1:0\"\n\
        [[export]]\npath = \"/data\"\nmem = \"1MiB\"\nallow = [\"127.0.0.0/8\"]\n";
    std::fs::write(&file, text).unwrap();
    let config = file.to_str().unwrap();
    let port = testkit::free_port();
    let address = format!("127.0.0.1:{port}");
    for (more, said) in [(&[][..], "127.0.0.1:"), (&["--metrics", &address], &format!("{address}/"))] {
        let arguments = [&["serve", "-c", config], more].concat();
        let server = Process::spawn(trunkline(runtime.path(), &arguments));
        let line = server.wait_for_line("metrics on", TIMEOUT);
        assert!(line.starts_with(&format!("metrics on http://{said}")), "{line}");
    }
    let token = ["serve", "--mem", "1MiB", "--listen", "127.0.0.1:0", "--metrics-token", config];
    let output = run(runtime.path(), &token);
    assert!(text_of(&output.stderr).contains("--metrics"), "{output:?}");
}

#[test]
fn in_a_terminal_it_takes_the_screen_until_q_is_pressed() {
    let runtime = temp_dir("top");
    let (server, url) = serve(runtime.path());
    load(&Mount::connect(&url, "nolock").unwrap());
    let pid = server.id().to_string();
    let mut script = Command::new("script");
    let top = format!("stty rows 30 cols 120; {} top {pid}", env!("CARGO_BIN_EXE_trunkline"));
    script.args(["--quiet", "--return", "--command", &top, "/dev/null"]);
    script.env("XDG_RUNTIME_DIR", runtime.path()).env("TERM", "xterm").env_remove("TRUNKLINE_LOG");
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keys, screen) = (script.stdin.take().unwrap(), Screen::of(script.stdout.take().unwrap()));
    screen.wait_for("sorted by ops");
    keys.write_all(b"s?").unwrap();
    // Spaces that were there before are not drawn again.
    screen.wait_for("Ctrl-C");
    keys.write_all(b"q").unwrap();
    assert!(script.wait().unwrap().success());
    screen.wait_for("\u{1b}[?1049l");
}

/// What a program draws on its terminal.
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Screen {
    fn of(mut output: ChildStdout) -> Self {
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let screen = Self(Arc::clone(&drawn));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                drawn.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        screen
    }

    fn wait_for(&self, text: &str) {
        Deadline::wait_until(text, TIMEOUT, || {
            String::from_utf8_lossy(&self.0.lock().unwrap()).contains(text).then_some(())
        });
    }
}

#[test]
fn what_cannot_be_watched_is_an_error_that_says_why() {
    let runtime = temp_dir("top");
    for (arguments, cause) in [
        (&["top", "1", "--batch", "1"][..], "it is no trunkline serve, mount, bench or agent"),
        (&["top", "nonsense"], "the number of a process, or the metrics address"),
        (&["top", "127.0.0.1:1", "--batch", "0"], "Connection refused"),
        (&["top", "--by", "user"], "`user` is no dimension"),
        (&["top", "--where", "client"], "a dimension and its value"),
        (&["top", "--interval", "0"], "from 0.1 to 3600"),
        (&["top", "--by", "file", "--sort", "p99"], "no latencies"),
        (&["top", "--where", "file=/data/a", "--sort", "p99", "--batch", "1"], "no latencies"),
        (&["top", "--json"], "--batch"),
    ] {
        let output = run(runtime.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text_of(&output.stderr);
        assert!(said.contains(cause), "{arguments:?}: {said}");
    }
}

/// A program that is not of the terminal's session gets no signal when the terminal is closed.
#[test]
fn the_full_screen_ends_with_its_terminal() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let runtime = temp_dir("top");
    let (server, _) = serve(runtime.path());
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = trunkline(runtime.path(), &["top", &server.id().to_string()]);
    command.env("TERM", "xterm");
    let ends = [0; 3].map(|_| Stdio::from(theirs.try_clone().unwrap()));
    let [stdin, stdout, stderr] = ends;
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    let mut top = command.spawn().unwrap();
    drop((command, theirs));
    let mut ours = std::fs::File::from(ours);
    // The program has switched to the screen of its own, and will wait for keys.
    let mut drawn = Vec::new();
    while !String::from_utf8_lossy(&drawn).contains("\x1b[?1049h") {
        let mut some = [0; 4096];
        let len = ours.read(&mut some).unwrap();
        drawn.extend_from_slice(&some[..len]);
    }
    drop(ours);
    let status = Deadline::wait_until("top to end", TIMEOUT, || top.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
}

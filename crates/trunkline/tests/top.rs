//! Tests `trunkline top` and the snapshots of running processes.

use client::Mount;
use metrics::{Dimension, Key, SizeClass, Snapshot};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use testkit::{Process, Stream, temp_dir};

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

fn text(bytes: &[u8]) -> &str {
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
    assert!(output.status.success(), "{}", text(&output.stderr));
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
    let shown = text(&by_client.stdout);
    assert!(shown.starts_with(&format!("serve {pid}  /export  up ")), "{shown}");
    let line = shown.lines().find(|line| line.trim_start().starts_with("127.0.0.1")).unwrap();
    assert!(line.contains("100 %"), "{shown}");
    let csv = run(runtime.path(), &["top", &pid, "--batch", "1", "--interval", "0.1", "--csv"]);
    let lines: Vec<_> = text(&csv.stdout).lines().collect();
    assert!(lines[0].starts_with("time,pid,kind,name,seconds,table,node,client,"), "{lines:?}");
    assert_eq!(lines.len(), 1, "nothing happened in the interval: {lines:?}");
}

#[test]
fn what_cannot_be_watched_is_an_error_that_says_why() {
    let runtime = temp_dir("top");
    for (arguments, cause) in [
        (&["top", "1", "--batch", "1"][..], "it is no trunkline serve, mount or bench of this user"),
        (&["top", "nonsense"], "the number of a process"),
        (&["top", "--by", "file"], "`file` is no dimension"),
        (&["top", "--where", "client"], "a dimension and its value"),
        (&["top", "--interval", "0"], "from 0.1 to 3600"),
        (&["top", "--json"], "--batch"),
    ] {
        let output = run(runtime.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(cause), "{arguments:?}: {said}");
    }
}

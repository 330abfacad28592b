//! Agents that cannot be used: the message has the cause and what to do, and nothing has happened.

use super::fixture::{WORKLOAD, trunkline, write_key};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;
use testkit::{Process, ServerProcess, TempDir, temp_dir};

const TIMEOUT: std::time::Duration = super::TIMEOUT;

struct Place {
    directory: TempDir,
    server: ServerProcess,
}

impl Place {
    fn start() -> Self {
        let directory = temp_dir("refusals");
        write_key(&directory.path().join("key"), "0123456789abcdef");
        let server = ServerProcess::start_on_free_port(trunkline, |port| {
            ["--mem", "64MiB", "--listen", &format!("127.0.0.1:{port}")].map(str::to_owned).to_vec()
        });
        Self { directory, server }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The message of an experiment that is refused, after which the server has no files.
    fn refused(&self, options: &[&str]) -> String {
        let server = format!("nfs://127.0.0.1:{}/export", self.server.port());
        let text = format!("target.server = \"{server}\"\n[[route]]\nname = \"tcp\"\n{WORKLOAD}");
        fs::write(self.path().join("experiment.toml"), text).unwrap();
        let mut command = trunkline();
        command.args(["bench", "experiment.toml", "--record", "record.json"]).args(options);
        let output: Output = command.current_dir(self.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(!self.path().join("record.json").exists(), "nothing half-written");
        let listed = trunkline().args(["ls", &server]).output().unwrap();
        assert!(listed.status.success() && listed.stdout.is_empty(), "{listed:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn agent(&self, key: &str) -> (Process, String) {
        let mut command = trunkline();
        command.args(["agent", "--listen", "127.0.0.1:0", "--key", key]).current_dir(self.path());
        let agent = Process::spawn(command);
        let line = agent.wait_for_line("ready on", TIMEOUT);
        (agent, line.trim_start_matches("ready on ").trim().to_owned())
    }
}

fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is missing in:\n{message}");
    }
}

#[test]
fn an_agent_with_another_key_and_one_that_is_not_there_are_named_together() {
    let place = Place::start();
    write_key(&place.path().join("other"), "another key of 16 bytes");
    let (_agent, address) = place.agent("other");
    let missing = format!("gone=127.0.0.1:{}", testkit::free_port());
    let clients = format!("{address},{missing}");
    let message = place.refused(&["--client-key", "key", "--client", &clients]);
    assert_says(
        &message,
        &[&format!("cannot use client {address}, nor gone"), "it has another key", "--key FILE"],
    );
    let message = place.refused(&["--client-key", "key", "--client", &missing]);
    assert_says(&message, &["client gone (127.0.0.1:", "Connection refused", "trunkline agent --listen"]);
}

#[test]
fn an_agent_for_one_experiment_waits_on_when_another_agent_was_refused() {
    let place = Place::start();
    let mut command = trunkline();
    command.args(["agent", "--listen", "127.0.0.1:0", "--key", "key", "--once"]).current_dir(place.path());
    let mut once = Process::spawn(command);
    let line = once.wait_for_line("ready on", TIMEOUT);
    let address = line.trim_start_matches("ready on ").trim().to_owned();
    let clients = format!("{address},gone=127.0.0.1:{}", testkit::free_port());
    let message = place.refused(&["--client-key", "key", "--client", &clients]);
    assert_says(&message, &["cannot use client gone"]);
    once.wait_for_line("has ended", TIMEOUT);
    assert!(once.is_running(), "{}", once.all_output());
    let server = format!("nfs://127.0.0.1:{}/export", place.server.port());
    let text = format!(
        "repeats = 2\nwindow_ms = 50\ntarget.server = \"{server}\"\n[[route]]\nname = \"tcp\"\n{WORKLOAD}"
    );
    fs::write(place.path().join("good.toml"), text).unwrap();
    let mut command = trunkline();
    command.args(["bench", "good.toml", "--no-report", "--client-key", "key", "--client", &address]);
    command.current_dir(place.path()).output().unwrap();
    assert!(once.wait(TIMEOUT).success(), "{}", once.all_output());
}

#[test]
fn a_key_is_needed_and_must_be_closed_to_others() {
    let place = Place::start();
    let message = place.refused(&["--client", "127.0.0.1"]);
    assert_says(&message, &["no key for the clients", "--client-key FILE"]);
    let message = place.refused(&["--client", "127.0.0.1", "--client-key", "absent"]);
    assert_says(&message, &["cannot use the key absent", "No such file", "head -c 32 /dev/urandom"]);
    fs::write(place.path().join("open"), "0123456789abcdef").unwrap();
    let message = place.refused(&["--client", "127.0.0.1", "--client-key", "open"]);
    assert_says(&message, &["other users may read", "chmod 600"]);
}

#[test]
fn an_agent_of_another_version_and_what_is_no_agent_are_told_apart() {
    let place = Place::start();
    let answering = |line: &'static str| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let mut reader = BufReader::new(socket);
                let _ = writeln!(reader.get_mut(), "{line}");
                let _ = reader.read_line(&mut String::new());
            }
        });
        address
    };
    let hello = r#"{"trunkline":"agent","protocol":99,"version":"9.9.9","nonce":"00"}"#;
    let message = place.refused(&["--client-key", "key", "--client", &answering(hello)]);
    assert_says(
        &message,
        &["it speaks version 99 of the protocol (Trunkline 9.9.9)", "the same version of Trunkline"],
    );
    let message = place.refused(&["--client-key", "key", "--client", &answering("SSH-2.0-OpenSSH_9.2p1")]);
    assert_says(&message, &["something else than was expected", "another program listens on port"]);
}

#[test]
fn an_agent_serves_others_while_strangers_hold_connections() {
    let place = Place::start();
    let (mut agent, address) = place.agent("key");
    let strangers: Vec<_> = (0..40).filter_map(|_| std::net::TcpStream::connect(&address).ok()).collect();
    for mut stranger in &strangers {
        let _ = stranger.write_all(&[b'x'; 100]);
    }
    assert!(agent.is_running());
    let key = place.path().join("key");
    let server = format!("nfs://127.0.0.1:{}/export", place.server.port());
    let text = format!(
        "repeats = 2\nwindow_ms = 50\ntarget.server = \"{server}\"\n[[route]]\nname = \"tcp\"\n{WORKLOAD}"
    );
    fs::write(place.path().join("good.toml"), text).unwrap();
    let mut command = trunkline();
    command.args(["bench", "good.toml", "--no-report", "--client", &address, "--client-key"]).arg(key);
    let output = command.current_dir(place.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("tcp clients: "), "{output:?}");
    drop(strangers);
}

#[test]
fn an_agent_ends_after_one_experiment_if_asked_and_at_a_signal() {
    let place = Place::start();
    let (mut agent, _) = place.agent("key");
    assert!(agent.terminate(TIMEOUT).success(), "{}", agent.all_output());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = trunkline();
    command.args(["agent", "--listen", &address, "--key"]).arg(place.path().join("key"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_says(&String::from_utf8_lossy(&output.stderr), &["cannot listen on", "ss -ltnp"]);
    let output = trunkline().arg("agent").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "nothing listens by default");
}

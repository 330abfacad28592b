//! A server with files, and runs of the program on it.

use super::summary::without_summary;
use client::{Mount, Settings};
use fs::{FileHandle, SetAttributes};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use testkit::{Process, Stream};

/// Ends a test that hangs; no test takes nearly as long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// A server that ends when dropped.
#[derive(Debug)]
pub(crate) struct TestServer(testkit::ServerProcess);

impl TestServer {
    /// One node on 127.0.0.1 with space for small files.
    pub(crate) fn start() -> Self {
        Self::with(&["--mem", "64MiB", "--listen", "127.0.0.1:0"])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self(testkit::ServerProcess::start(trunkline(&[]), arguments))
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.0.addresses
    }

    /// The URL of a path below the export.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("nfs://{}/export{path}", self.0.addresses[0])
    }

    /// A mount with our client library, to create files.
    pub(crate) fn mount(&self) -> Mount {
        let address = self.0.addresses[0];
        Mount::with_settings(Settings::new(address.ip(), address.port(), "/export"))
            .expect("the client mounts")
    }
}

pub(crate) fn make_file(mount: &Mount, path: &str, data: &[u8]) {
    let file = mount.create_file(path.as_bytes(), 0o644).expect("a file");
    file.write_all_at(data, 0).expect("written");
}

pub(crate) fn make_directory(mount: &Mount, parent: FileHandle, name: &[u8]) -> FileHandle {
    let attributes = SetAttributes::mode(0o755);
    mount.make_directory(parent, name, attributes).expect("a directory").0
}

pub(crate) fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments);
    for name in ["TRUNKLINE_LOG", "TRUNKLINE_LAB", "COLUMNS"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command that ends by itself.
pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut process = Process::spawn(trunkline(arguments));
    let status = process.wait(TIMEOUT);
    (status.code(), process.output(Stream::Out), process.output(Stream::Err))
}

/// Runs a command that must succeed with no output on standard error but the summary of `cp`;
/// returns standard output.
#[track_caller]
pub(crate) fn prints(arguments: &[&str]) -> String {
    let (code, out, err) = run(arguments);
    let err = without_summary(&err);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{arguments:?}: {out}");
    out
}

/// Runs a command that must fail with status 1 and an error of the usual form; returns the error.
#[track_caller]
pub(crate) fn fails(arguments: &[&str]) -> String {
    let (code, out, err) = run(arguments);
    let err = without_summary(&err);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}: {err}");
    let lines: Vec<_> = err.lines().collect();
    assert!(lines.first().is_some_and(|line| line.starts_with("error: ")), "{err}");
    assert!(lines.iter().any(|line| line.starts_with("  cause: ")), "{err}");
    assert!(lines.last().is_some_and(|line| line.starts_with("  try:   ")), "{err}");
    assert!(!err.contains("panicked"), "{err}");
    err
}

/// Bytes that depend on the position and the seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len.div_ceil(8)).flatten().take(len).collect()
}

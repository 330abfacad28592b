//! Debian's libnfs: its programs, and our load program that uses it.

use crate::fixtures::{EXPORT, TIMEOUT, run};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use testkit::{Process, Stream, TempDir, require_program, temp_dir};

/// An export as libnfs names it.
#[derive(Debug, Clone)]
pub(crate) struct Export {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) mount_port: u16,
    pub(crate) path: String,
}

impl Export {
    /// The export of our server, with NFS and MOUNT on one port.
    pub(crate) fn ours(address: IpAddr, port: u16) -> Self {
        Self { address, port, mount_port: port, path: EXPORT.to_owned() }
    }

    /// The URL of a path within the export.
    pub(crate) fn url(&self, within: &str) -> String {
        let Self { address, port, mount_port, path } = self;
        format!("nfs://{address}{path}{within}?nfsport={port}&mountport={mount_port}")
    }
}

/// Runs `nfs-ls` recursively; returns its output.
pub(crate) fn list(export: &Export, within: &str) -> String {
    let mut command = Command::new(require_program("nfs-ls"));
    command.args(["-R", &export.url(within)]);
    run(command)
}

/// Runs `nfs-cp`: one side is a URL, the other a local path.
pub(crate) fn copy(from: &str, to: &str) {
    let mut command = Command::new(require_program("nfs-cp"));
    command.args([from, to]);
    run(command);
}

/// Runs `nfs-cat`; returns bytes, since the output need not be text.
pub(crate) fn cat(export: &Export, within: &str) -> Vec<u8> {
    let output = Command::new(require_program("nfs-cat"))
        .arg(export.url(within))
        .output()
        .unwrap_or_else(|error| panic!("nfs-cat: {error}"));
    assert!(output.status.success(), "nfs-cat {within}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The parameters of a run of the load program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) mode: &'a str,
    pub(crate) block: u32,
    pub(crate) depth: u32,
    pub(crate) connections: u32,
    pub(crate) seconds: &'a str,
    pub(crate) file_mib: u32,
}

impl Load<'_> {
    fn command(&self, export: &Export) -> Command {
        let numbers = [self.block, self.depth, self.connections].map(|number| number.to_string());
        let mut command = Command::new(load_program());
        command
            .args([&export.address.to_string(), &export.port.to_string(), &export.mount_port.to_string()])
            .args([&export.path, self.mode])
            .args(&numbers)
            .args([self.seconds, &self.file_mib.to_string()]);
        command
    }

    /// Runs the program, which fails if a block is wrong.
    #[track_caller]
    pub(crate) fn run(&self, export: &Export) -> LoadLine {
        LoadLine(run(self.command(export)))
    }

    /// Runs the program, which must fail with status 1; returns its error.
    #[track_caller]
    pub(crate) fn run_to_a_failure(&self, export: &Export) -> String {
        let mut process = Process::spawn(self.command(export));
        assert_eq!(process.wait(TIMEOUT).code(), Some(1), "{}", process.all_output());
        process.output(Stream::Err)
    }
}

/// The output of the load program.
#[derive(Debug)]
pub(crate) struct LoadLine(String);

impl LoadLine {
    /// The number after `name=`.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> f64 {
        let mut pairs = self.0.split_whitespace().filter_map(|word| word.split_once('='));
        let found = pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok());
        found.unwrap_or_else(|| panic!("no number {name} in {:?}", self.0))
    }
}

/// The load program, compiled once for all tests.
fn load_program() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = BUILT.get_or_init(|| {
        let header = Path::new("/usr/include/nfsc/libnfs.h");
        assert!(header.exists(), "libnfs's header is not installed; try: apt-get install libnfs-dev");
        let place = temp_dir("load");
        let program = place.path().join("load");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/load.c");
        let mut command = Command::new(require_program("cc"));
        command.args(["-O2", "-Wall", "-Wextra", "-Werror"]).arg(source).args(["-lnfs", "-lpthread", "-o"]);
        command.arg(&program);
        run(command);
        (place, program)
    });
    program
}

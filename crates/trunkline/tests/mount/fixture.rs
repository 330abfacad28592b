//! A server of our own and its mounts, which end with the test.

pub use crate::mounts::*;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::server_process::{configuration, write_configuration};
use testkit::{Deadline, Process, ServerProcess, Stream, TempDir};

/// The store of an export.
const MEM: &str = "mem = \"1GiB\"";
const VERSIONS: &str = "versions = [\"3\", \"4.1\", \"4.2\"]\n";

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_trunkline"))
}

/// A group of nodes in one process.
pub struct Server {
    pub process: Process,
    pub port: u16,
    nodes: u8,
    /// The NFS version of its mounts, as an option, if that matters.
    version: &'static str,
    directory: TempDir,
}

impl Server {
    pub fn start(nodes: u8) -> Self {
        Self::start_on(nodes, MEM)
    }

    /// A server whose export is on this store.
    pub fn start_on(nodes: u8, store: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("group.toml");
        let text = |port| VERSIONS.to_owned() + &configuration(nodes, port, &[("/export", store)]);
        let arguments = |port| write_configuration(&file, &text(port));
        Self::of(nodes, ServerProcess::start_on_free_port(program, arguments), directory)
    }

    /// A server that delegates files. What was recalled is not delegated again within its lease,
    /// for which tests would have to wait.
    pub fn start_delegating(nodes: u8) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("group.toml");
        let export = [("/export", "mem = \"1GiB\"\ndelegations = true")];
        let text = |port| format!("lease_s = 8\n{VERSIONS}{}", configuration(nodes, port, &export));
        let arguments = |port| write_configuration(&file, &text(port));
        Self::of(nodes, ServerProcess::start_on_free_port(program, arguments), directory)
    }

    /// A server of version 3 alone, whose mounts' calls can be told apart by their procedures.
    pub fn start_version_3(nodes: u8) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("group.toml");
        let text = |port| configuration(nodes, port, &[("/export", MEM)]);
        let arguments = |port| write_configuration(&file, &text(port));
        let server = ServerProcess::start_on_free_port(program, arguments);
        let mut server = Self::of(nodes, server, directory);
        server.version = "vers=3,";
        server
    }

    /// A server that locks nothing for version 3.
    pub fn start_without_locks(nodes: u8) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("group.toml");
        let text = |port| "nlm = false\n".to_owned() + &configuration(nodes, port, &[("/export", MEM)]);
        let arguments = |port| write_configuration(&file, &text(port));
        Self::of(nodes, ServerProcess::start_on_free_port(program, arguments), directory)
    }

    /// A server whose export's store may lie in the given directory, which is removed with the
    /// server.
    pub fn start_in(nodes: u8, store: impl Fn(&Path) -> String) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("group.toml");
        let store = store(directory.path());
        let text = |port| VERSIONS.to_owned() + &configuration(nodes, port, &[("/export", &store)]);
        let arguments = |port| write_configuration(&file, &text(port));
        Self::of(nodes, ServerProcess::start_on_free_port(program, arguments), directory)
    }

    /// A server with a port that is known before it starts.
    pub fn start_at(nodes: u8, port: u16) -> Self {
        Self::start_with(nodes, port, &["/export"])
    }

    /// A server with these exports.
    pub fn start_with(nodes: u8, port: u16, exports: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let exports: Vec<(&str, &str)> = exports.iter().map(|export| (*export, MEM)).collect();
        let text = VERSIONS.to_owned() + &configuration(nodes, port, &exports);
        let arguments = write_configuration(&directory.path().join("group.toml"), &text);
        Self::of(nodes, ServerProcess::start(program(), &arguments), directory)
    }

    fn of(nodes: u8, served: ServerProcess, directory: TempDir) -> Self {
        Self { port: served.port(), process: served.process, nodes, version: "", directory }
    }

    /// Mount options that reach all nodes.
    pub fn options(&self, more: &str) -> String {
        let (version, port, nodes) = (self.version, self.port, self.nodes);
        let comma = if more.is_empty() { "" } else { "," };
        format!("{version}port={port},nconnect={nodes},remoteports=127.0.0.1-127.0.0.{nodes}{comma}{more}")
    }

    /// The number of calls of a procedure that the server has answered.
    pub fn calls(&self, procedure: &str) -> u64 {
        let number = |row: &Vec<String>| row[2].parse::<u64>().unwrap_or_else(|_| panic!("{row:?}"));
        self.statistics_of(procedure).iter().map(number).sum()
    }

    /// The number of calls of version 4 that the server has answered.
    pub fn compounds(&self) -> u64 {
        let rows = self.statistics_of("NFS4").into_iter().filter(|row| row[2] == "COMPOUND");
        rows.map(|row| row[3].parse::<u64>().unwrap_or_else(|_| panic!("{row:?}"))).sum()
    }

    /// The number of bytes in its replies to a procedure, to about three digits.
    pub fn sent_bytes(&self, procedure: &str) -> f64 {
        let number = |row: &Vec<String>| {
            let unit = match row[8].as_str() {
                "B" => 1.0,
                "kB" => 1e3,
                "MB" => 1e6,
                "GB" => 1e9,
                _ => panic!("{row:?}"),
            };
            row[7].parse::<f64>().unwrap_or_else(|_| panic!("{row:?}")) * unit
        };
        self.statistics_of(procedure).iter().map(number).sum()
    }

    /// The words of the lines of a procedure in the statistics, one line for each node.
    fn statistics_of(&self, procedure: &str) -> Vec<Vec<String>> {
        // The last line of the statistics.
        const END: &str = "connections ended by a bug of ours";
        let said = || self.process.output(Stream::Err);
        let tables = said().matches(END).count();
        self.process.signal(Signal::USR1);
        let all = Deadline::wait_until("statistics", MOUNT_TIMEOUT, || {
            Some(said()).filter(|said| said.matches(END).count() > tables)
        });
        let table = all.trim_end().rsplit(END).nth(1).unwrap_or_default();
        let rows = table.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        rows.filter(|row| row.first().is_some_and(|node| node.starts_with("node")) && row[1] == procedure)
            .collect()
    }

    /// A path beside the mounted directories.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Creates a directory to mount on.
    pub fn mount_point(&self, name: &str) -> PathBuf {
        let directory = self.path(name);
        std::fs::create_dir(&directory).unwrap();
        directory
    }

    /// Mounts in the foreground.
    pub fn mount(&self, name: &str, options: &str) -> Mounted {
        Mounted::start("127.0.0.1:/export", self.mount_point(name), &self.options(options))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A mount that a failed test has left would wait for this server, and so would the cleanup.
        unmount_all_below(self.directory.path());
    }
}

/// A server with two nodes and one mount, with local locks.
pub fn mounted() -> (Server, Mounted) {
    let server = Server::start(2);
    let mount = server.mount("mnt", "nolock");
    (server, mount)
}

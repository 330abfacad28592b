//! A server of our own and mounts of it, which end with the test.

use rustix::mount::UnmountFlags;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use testkit::{Process, TempDir};

/// Long: the machine may be slow and loaded.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A group of nodes in one process.
pub struct Server {
    pub process: Process,
    pub port: u16,
    nodes: u8,
    directory: TempDir,
}

impl Server {
    pub fn start(nodes: u8) -> Self {
        let (directory, port) = (tempfile::tempdir().unwrap(), testkit::free_port());
        let mut config = String::new();
        for node in 1..=nodes {
            config.push_str(&format!(
                "[[node]]\nname = \"node{node}\"\nlisten = [\"127.0.0.{node}:{port}\"]\n"
            ));
        }
        config.push_str(
            "[[export]]\npath = \"/export\"\nmem = \"1GiB\"\nallow = [\"127.0.0.0/8\"]\nrw = true\nroot_squash = false\n",
        );
        let file = directory.path().join("group.toml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["serve", "-c"]).arg(file);
        let process = Process::spawn(command);
        process.wait_for_line("ready", PATIENCE);
        Self { process, port, nodes, directory }
    }

    /// Options that reach all nodes.
    pub fn options(&self, more: &str) -> String {
        let (port, nodes) = (self.port, self.nodes);
        let comma = if more.is_empty() { "" } else { "," };
        format!("port={port},nconnect={nodes},remoteports=127.0.0.1-127.0.0.{nodes}{comma}{more}")
    }

    /// A new directory to mount on.
    pub fn mount_point(&self, name: &str) -> PathBuf {
        let directory = self.directory.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        directory
    }

    /// Mounts in the foreground.
    pub fn mount(&self, name: &str, options: &str) -> Mounted {
        let directory = self.mount_point(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["mount", "-f", "127.0.0.1:/export"]).arg(&directory);
        command.args(["-o", &self.options(options)]);
        let process = Process::spawn(command);
        process.wait_for_line("mounted", PATIENCE);
        Mounted { process, directory }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whatever a test that failed has left mounted would wait for this server, and so would its cleaning up.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = |line: &&str| {
            line.split(' ').nth(1).is_some_and(|at| Path::new(at).starts_with(self.directory.path()))
        };
        for line in mounts.lines().filter(ours) {
            let _ = rustix::mount::unmount(line.split(' ').nth(1).unwrap_or_default(), UnmountFlags::DETACH);
        }
    }
}

/// A directory that is mounted.
pub struct Mounted {
    pub process: Process,
    pub directory: PathBuf,
}

impl Mounted {
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn names(&self) -> Vec<String> {
        names_in(&self.directory)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It may be unmounted already.
        let _ = rustix::mount::unmount(&self.directory, UnmountFlags::DETACH);
    }
}

/// A server with two nodes and one mount, with locks that stay here.
pub fn mounted() -> (Server, Mounted) {
    let server = Server::start(2);
    let mount = server.mount("mnt", "nolock");
    (server, mount)
}

/// The names in a directory, in order.
pub fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether something is mounted on a directory.
pub fn is_mounted(directory: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == directory.to_str())
}

/// Runs a shell script in a directory; it must succeed.
#[track_caller]
pub fn shell(directory: &Path, script: &str) -> String {
    let output = try_shell(directory, script);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{script}: {}\n{out}\n{err}", output.status);
    out
}

pub fn try_shell(directory: &Path, script: &str) -> Output {
    Command::new("sh").args(["-euc", script]).current_dir(directory).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

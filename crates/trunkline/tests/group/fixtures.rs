//! A group of processes over one directory, and the calls to them.

use crate::peer::{Peer, SOON, encoded};
use nfs3::{DirOpArgs, FileHandle, Sattr3, proc};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Process, Stream, TempDir, free_port_on, temp_dir};

pub const EXPORT: &str = "/export";

pub fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments);
    for name in ["TRUNKLINE_LOG", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC"] {
        command.env_remove(name);
    }
    command
}

/// A directory to serve, one for the group, and one for the keys of handles.
pub struct Directories {
    at: TempDir,
    versions: &'static str,
    is_exclusive: bool,
}

impl Directories {
    pub fn new(name: &str) -> Self {
        Self::with_versions(name, "3")
    }

    /// For nodes that serve these versions of NFS.
    pub fn with_versions(name: &str, versions: &'static str) -> Self {
        // In a tmpfs if there is one. The file system of /tmp may be an overlay, on which each
        // process numbers the names itself, so a listing that continues at another node would have
        // to restart.
        let at = match Path::new("/dev/shm").is_dir() {
            true => tempfile::Builder::new().prefix(&format!("trunkline-{name}-")).tempdir_in("/dev/shm"),
            false => Ok(temp_dir(name)),
        };
        let at = at.expect("a directory");
        std::fs::create_dir(at.path().join("served")).expect("a directory");
        Self { at, versions, is_exclusive: false }
    }

    /// For nodes that give delegations.
    pub fn exclusive(self) -> Self {
        Self { is_exclusive: true, ..self }
    }

    pub fn served(&self) -> PathBuf {
        self.at.path().join("served")
    }

    pub fn group(&self) -> PathBuf {
        self.at.path().join("group")
    }

    pub fn path(&self, name: &str) -> String {
        self.at.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// The arguments of a node of the group.
    pub fn arguments(&self, listen: SocketAddr) -> Vec<String> {
        let listen = listen.to_string();
        let (dir, group, state) = (self.path("served"), self.path("group"), self.path("state"));
        let words = [
            "serve",
            "--dir",
            &dir,
            "--state",
            &state,
            "--group",
            &group,
            "--listen",
            &listen,
            "--no-root-squash",
            "--loops",
            "1",
            "--nfs-versions",
            self.versions,
        ];
        let more = self.is_exclusive.then_some("--delegations");
        words.into_iter().chain(more).map(str::to_owned).collect()
    }
}

/// A process of a group.
pub struct Node {
    pub address: SocketAddr,
    process: Option<Process>,
    arguments: Vec<String>,
}

impl Node {
    /// Starts the `number`th node, on its own address.
    pub fn start(directories: &Directories, number: u8) -> Self {
        let ip = [127, 0, 0, number].into();
        Self::start_at(directories, SocketAddr::new(ip, free_port_on(ip)))
    }

    pub fn start_at(directories: &Directories, address: SocketAddr) -> Self {
        let mut node = Self { address, process: None, arguments: directories.arguments(address) };
        node.restart();
        node
    }

    pub fn restart(&mut self) {
        self.process = Some(testkit::ServerProcess::start(trunkline(&[]), &self.arguments[1..]).process);
    }

    /// Kills the node with SIGKILL, and returns when it has ended.
    pub fn kill(&mut self) {
        self.end(rustix::process::Signal::KILL);
    }

    /// Ends the node by a signal, and returns when it has ended.
    pub fn end(&mut self, signal: rustix::process::Signal) {
        let mut process = self.process.take().expect("the node runs");
        process.signal(signal);
        process.wait(SOON);
    }

    /// Whether the node says that it listens in the place of another one.
    pub fn listens_for(&self, other: SocketAddr) -> bool {
        let said = self.process().output(Stream::Err);
        said.lines().any(|line| {
            line.contains("this one listens on its address") && line.contains(&format!("{other} "))
        })
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the node runs")
    }

    /// Whether the process itself has a connection at its address, and no other process has one
    /// there: one that has listened in its place gives its connections back a little later.
    pub fn has_its_connections(&self) -> bool {
        let IpAddr::V4(ip) = self.address.ip() else { panic!("the nodes of tests have IPv4 addresses") };
        let local = format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), self.address.port());
        let table = std::fs::read_to_string("/proc/net/tcp").expect("a table of connections");
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        // Columns: number, local address, remote address, state, ..., inode in the tenth.
        let established = rows.filter(|row| row.len() > 9 && row[1] == local && row[3] == "01");
        let there: Vec<String> = established.map(|row| format!("socket:[{}]", row[9])).collect();
        let own = std::fs::read_dir(format!("/proc/{}/fd", self.process().id())).expect("it runs");
        let own = own.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        let own: Vec<_> = own.map(|link| link.to_string_lossy().into_owned()).collect();
        !there.is_empty() && there.iter().all(|socket| own.contains(socket))
    }

    pub fn connect(&self, id: u64) -> Peer {
        Peer::of_ours(self.address, id)
    }

    /// How many replies to a procedure came from the cache.
    pub fn replayed(&self, procedure: &str) -> u64 {
        let process = self.process();
        process.signal(rustix::process::Signal::USR1);
        process.wait_for_line("calls refused", SOON);
        let table = process.output(Stream::Err);
        let row = table.lines().rfind(|line| line.split_whitespace().nth(1) == Some(procedure));
        let cell = row.and_then(|row| row.split_whitespace().nth(4)).unwrap_or("0");
        cell.parse().unwrap_or_else(|_| panic!("{table}"))
    }
}

/// Creates a file in the served directory.
pub fn file(directories: &Directories, name: &str, content: &[u8]) {
    std::fs::write(directories.served().join(name), content).expect("a file");
}

pub fn exists(directories: &Directories, name: &str) -> bool {
    Path::new(&directories.served().join(name)).exists()
}

fn at(directory: FileHandle, name: &[u8]) -> DirOpArgs<'_> {
    DirOpArgs { directory, name }
}

pub fn remove(root: FileHandle, name: &[u8]) -> Vec<u8> {
    encoded(&proc::remove::Args { object: at(root, name) })
}

pub fn mkdir(root: FileHandle, name: &[u8]) -> Vec<u8> {
    encoded(&proc::mkdir::Args { location: at(root, name), attributes: Sattr3::default() })
}

pub fn rename(root: FileHandle, from: &[u8], to: &[u8]) -> Vec<u8> {
    encoded(&proc::rename::Args { from: at(root, from), to: at(root, to) })
}

pub fn create_exclusive(root: FileHandle, name: &[u8], verifier: [u8; 8]) -> Vec<u8> {
    let how = proc::create::How::Exclusive(verifier);
    encoded(&proc::create::Args { location: at(root, name), how })
}

pub fn create_guarded(root: FileHandle, name: &[u8], mode: u32) -> Vec<u8> {
    let how = proc::create::How::Guarded(Sattr3 { mode: Some(mode), ..Sattr3::default() });
    encoded(&proc::create::Args { location: at(root, name), how })
}

pub fn rmdir(root: FileHandle, name: &[u8]) -> Vec<u8> {
    encoded(&proc::rmdir::Args { object: at(root, name) })
}

pub fn link(root: FileHandle, file: FileHandle, name: &[u8]) -> Vec<u8> {
    encoded(&proc::link::Args { file, link: at(root, name) })
}

pub fn symlink(root: FileHandle, name: &[u8]) -> Vec<u8> {
    let args =
        proc::symlink::Args { location: at(root, name), attributes: Sattr3::default(), target: b"target" };
    encoded(&args)
}

pub fn lookup(root: FileHandle, name: &[u8]) -> Vec<u8> {
    encoded(&proc::lookup::Args { what: at(root, name) })
}

pub fn write(file: FileHandle, data: &[u8]) -> Vec<u8> {
    let count = u32::try_from(data.len()).expect("short");
    let stable = proc::write::Stable::Unstable;
    let mut args = encoded(&proc::write::ArgsHead { file, offset: 0, count, stable, data_len: count });
    args.extend_from_slice(data);
    args.resize(args.len().next_multiple_of(4), 0);
    args
}

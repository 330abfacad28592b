//! Disks of guests: volumes and files of an NFS server, each attached on a socket.

use crate::image::{DISK_BYTES, image};
use crate::{PATIENCE, run};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use testkit::{Deadline, Process, free_port, require_program};

const HOST: &str = "nqn.2026-11.test:host";
const SUBSYSTEM: &str = "nqn.2026-11.test:store";

/// What the disks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Volumes of one process, on two addresses.
    Volume,
    /// Volumes of two processes, a node each.
    Pair,
    /// Files of an NFS server, with these mount options.
    NfsFile(&'static str),
}

/// Servers, and attachments of their disks.
#[derive(Debug)]
pub struct Storage {
    kind: Kind,
    /// Where direct I/O is possible.
    directory: TempDir,
    /// A short path, which a socket needs.
    sockets: TempDir,
    addresses: [String; 2],
    /// The server, or both nodes of a pair.
    pub servers: Vec<Process>,
    pub attached: Vec<Process>,
}

impl Storage {
    /// Starts servers of this many disks, and attaches each. A disk has nothing on it.
    pub fn start(kind: Kind, disks: usize) -> Self {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let sockets = TempDir::new().expect("a directory");
        let addresses = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
        let mut storage = Self { kind, directory, sockets, addresses, servers: vec![], attached: vec![] };
        std::fs::create_dir(storage.path("export")).expect("a directory");
        for disk in 0..disks {
            File::create(storage.file(disk)).and_then(|file| file.set_len(DISK_BYTES)).expect("a file");
        }
        storage.configure(disks);
        let servers = if kind == Kind::Pair { 2 } else { 1 };
        storage.servers = (0..servers).map(|server| storage.serve(server)).collect();
        if kind == Kind::Pair {
            storage.wait_for_owner(0);
        }
        storage.attached = (0..disks).map(|disk| storage.attach(disk)).collect();
        storage
    }

    /// The same with the guests' root file system on each disk, written by way of its socket.
    pub fn with_images(kind: Kind, disks: usize) -> Self {
        let storage = Self::start(kind, disks);
        (0..disks).for_each(|disk| storage.fill(disk));
        storage
    }

    /// Writes the guests' root file system to a disk.
    pub fn fill(&self, disk: usize) {
        run(Command::new(require_program("nbdcopy")).arg(image()).arg(self.uri(disk)));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file beneath a disk.
    pub fn file(&self, disk: usize) -> PathBuf {
        self.path(&format!("export/disk-{disk}.img"))
    }

    /// The bytes that the file takes of its file system.
    pub fn allocated_bytes(&self, disk: usize) -> u64 {
        std::fs::metadata(self.file(disk)).expect("a file").blocks() * 512
    }

    pub fn socket(&self, disk: usize) -> String {
        self.sockets.path().join(format!("disk-{disk}.sock")).display().to_string()
    }

    /// A disk in the words of NBD's programs.
    pub fn uri(&self, disk: usize) -> String {
        format!("nbd+unix:///?socket={}", self.socket(disk))
    }

    /// A directory for sockets of others.
    pub fn sockets(&self) -> &Path {
        self.sockets.path()
    }

    /// Writes the configuration of the server of volumes.
    fn configure(&self, disks: usize) {
        let [a, b] = &self.addresses;
        let both = match self.kind {
            Kind::Pair => {
                format!("{{ address = \"{a}\", node = \"A\" }}, {{ address = \"{b}\", node = \"B\" }}")
            }
            Kind::Volume | Kind::NfsFile(_) => format!("\"{a}\", \"{b}\""),
        };
        let state = self.path("state").display().to_string();
        let mut text =
            format!("nqn = \"{SUBSYSTEM}\"\nstate = \"{state}\"\nallow = [\"{HOST}\"]\nlisten = [{both}]\n");
        for disk in 0..disks {
            text += &format!("[[volume]]\nsource = \"{}\"\n", self.file(disk).display());
        }
        std::fs::write(self.path("block.toml"), text).expect("a file");
    }

    /// Starts a server: the first, or the second node of a pair.
    pub fn serve(&self, server: usize) -> Process {
        let config = self.path("block.toml").display().to_string();
        let export = self.path("export").display().to_string();
        let [address, _] = &self.addresses;
        let node = ["A", "B"][server];
        match self.kind {
            Kind::Volume => start(&["block", "serve", "-c", &config]),
            Kind::Pair => start(&["block", "serve", "-c", &config, "--node", node]),
            Kind::NfsFile(_) => start(&[
                "serve",
                "--listen",
                address,
                "--dir",
                &export,
                "--export",
                "/export",
                "--no-root-squash",
            ]),
        }
    }

    /// Attaches a disk on its socket.
    pub fn attach(&self, disk: usize) -> Process {
        let (socket, [a, b]) = (self.socket(disk), &self.addresses);
        match self.kind {
            Kind::Volume | Kind::Pair => {
                let namespace = (disk + 1).to_string();
                let paths = ["block", "attach", "--connect", a, "--connect", b, "--hostnqn", HOST];
                let names = ["--nqn", SUBSYSTEM, "--namespace", &namespace, "--socket", &socket];
                start(&[&paths[..], &names[..]].concat())
            }
            Kind::NfsFile(options) => {
                let place = format!("nfs://{a}/export/disk-{disk}.img?{options}");
                start(&["attach", &place, "--socket", &socket])
            }
        }
    }

    /// Waits until a node of the pair owns the first volume and serves it.
    pub fn wait_for_owner(&self, node: usize) {
        let name = ["A", "B"][node];
        let pid = self.servers[node].id().to_string();
        Deadline::wait_until(&format!("{name} to serve"), PATIENCE, || {
            let output = trunkline(&["block", "list", "--json", "--pid", &pid]).output().expect("it runs");
            let list: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
            (list[0]["owner"] == name && list[0]["reach"] == "serving").then_some(())
        });
    }

    /// Ends the attachments and then the servers, each of its own will.
    #[track_caller]
    pub fn end(&mut self) {
        for mut process in self.attached.drain(..).chain(self.servers.drain(..)) {
            let status = process.terminate(PATIENCE);
            assert!(status.success(), "{status}: {}", process.all_output());
        }
    }
}

fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments).env_remove("TRUNKLINE_LOG");
    command
}

fn start(arguments: &[&str]) -> Process {
    let process = Process::spawn(trunkline(arguments));
    process.wait_for_line("ready", PATIENCE);
    process
}

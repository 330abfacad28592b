//! Two processes that serve one directory, and a mount over a path to each, all with a metrics
//! address; for tests that watch them.

use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::{Process, ServerProcess, TempDir, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(120);
/// The address of the second node.
pub const NODE: &str = "127.0.0.2";

/// See the module's documentation.
pub struct WatchedMount {
    mount: Process,
    /// The metrics address of the mount.
    pub metrics: String,
    pub directory: PathBuf,
    pub nodes: Vec<Node>,
    port: u16,
    files: TempDir,
}

/// A process that serves.
pub struct Node {
    server: ServerProcess,
    /// Its metrics address.
    pub metrics: String,
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_trunkline"))
}

impl WatchedMount {
    pub fn start() -> Self {
        let files = temp_dir("watched");
        for name in ["data", "state", "mnt"] {
            std::fs::create_dir(files.path().join(name)).unwrap();
        }
        let port = testkit::free_port();
        let nodes = ["127.0.0.1", NODE].map(|address| node(files.path(), address, port)).into();
        let directory = files.path().join("mnt");
        let metrics = format!("127.0.0.1:{}", testkit::free_port());
        let options =
            format!("nolock,port={port},nconnect=2,remoteports=127.0.0.1~{NODE},wsize=65536,spread_writes");
        let mut command = program();
        command.args(["mount", "-f", "--metrics", &metrics, "-o", &options, "127.0.0.1:/export"]);
        command.arg(&directory);
        let mount = Process::spawn(command);
        mount.wait_for_line("mounted 127.0.0.1:/export on ", TIMEOUT);
        Self { mount, metrics, directory, nodes, port, files }
    }

    /// Kills the second node. The group has given its address up, so the other one does not listen
    /// there.
    pub fn kill_node(&mut self) {
        let address = format!("group/addresses/{NODE}:{}", self.port);
        std::fs::remove_file(self.files.path().join(address)).unwrap();
        self.nodes[1].server.process.kill();
    }

    /// Has the second node stand still: its connections stay, and nothing answers on them.
    #[allow(dead_code, reason = "not every test has a silent node")]
    pub fn silence_node(&self, is_silent: bool) {
        let signal = if is_silent { Signal::STOP } else { Signal::CONT };
        self.nodes[1].server.process.signal(signal);
    }

    /// Starts the second node again.
    pub fn restart_node(&mut self) {
        self.nodes[1] = node(self.files.path(), NODE, self.port);
    }
}

impl Drop for WatchedMount {
    fn drop(&mut self) {
        // The mount may be gone already.
        let _ = rustix::mount::unmount(&self.directory, rustix::mount::UnmountFlags::DETACH);
        let _ = self.mount.wait_at_most(TIMEOUT);
    }
}

fn node(files: &Path, address: &str, port: u16) -> Node {
    let [data, state, group] = ["data", "state", "group"].map(|name| files.join(name).display().to_string());
    let listen = format!("{address}:{port}");
    let metrics = format!("127.0.0.1:{}", testkit::free_port());
    let words = [
        ["--dir", &data],
        ["--state", &state],
        ["--group", &group],
        ["--export", "/export"],
        ["--allow", "127.0.0.0/8"],
        ["--listen", &listen],
        ["--metrics", &metrics],
    ];
    let mut arguments = words.concat();
    arguments.push("--no-root-squash");
    Node { server: ServerProcess::start(program(), &arguments), metrics: metrics.clone() }
}

//! Where the cases of a suite run, and how: on a mount of our server, each in namespaces of its own
//! and within a time limit.

use crate::fixture::Server;
use crate::mounts::Mounted;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;
use testkit::{Process, TempDir, require_program, temp_dir};

/// The directory of the suite.
pub fn suite() -> PathBuf {
    let named = std::env::var_os("TRUNKLINE_SUITE_DIR");
    named.expect("TRUNKLINE_SUITE_DIR names the suite's directory; cargo xtask test --suite-dir DIR").into()
}

/// The memory of a server: LTP writes a file of 1 GiB and copies it.
const MEM: &str = "mem = \"3GiB\"";

/// What the server stores files in. The stores number and list names differently.
#[derive(Debug, Clone, Copy)]
pub enum Store {
    Mem,
    Dir,
}

/// A server of two nodes and its mount, in which every user may create files, as in /tmp. Even if
/// this program is killed, the directory is unmounted. The fields are dropped in this order.
pub struct Place {
    pub mount: Mounted,
    _server: Server,
    _served: TempDir,
}

impl Place {
    pub fn on(store: Store) -> Self {
        let served = temp_dir("served");
        let server = match store {
            Store::Mem => Server::start_on(2, MEM),
            Store::Dir => Server::start_on(2, &format!("dir = {:?}", served.path().display().to_string())),
        };
        let mount = server.mount("mnt", "nolock,auto_unmount");
        let permit = |directory: &Path, mode| {
            fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
        };
        permit(mount.directory.parent().unwrap(), 0o755);
        permit(&mount.directory, 0o1777);
        Self { mount, _server: server, _served: served }
    }
}

/// A command that runs a shell script in namespaces of mounts and processes, so that nothing that
/// the script starts or mounts is left when the script ends or is killed.
pub fn contained(script: &str) -> Command {
    let mut command = Command::new(require_program("unshare"));
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"]);
    command
}

/// How a command ended, and its output.
pub struct Ended {
    /// `None` if the command was killed because its time was over.
    pub status: Option<ExitStatus>,
    pub output: String,
}

impl Ended {
    /// The end of the output: the beginning of a long one says little about a failure.
    pub fn tail(&self) -> String {
        const TAIL_BYTES: usize = 8192;
        let from = self.output.ceil_char_boundary(self.output.len().saturating_sub(TAIL_BYTES));
        format!("{:?}\n{}", self.status, &self.output[from..])
    }
}

/// Runs a command to its end, or kills it with all its processes.
pub fn run(command: Command, within: Duration) -> Ended {
    let mut process = Process::spawn(command);
    let status = process.wait_at_most(within);
    if status.is_none() {
        process.kill();
    }
    Ended { status, output: process.all_output() }
}

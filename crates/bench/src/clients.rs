//! Experiments with many clients: agents on other machines run the load, and this process
//! coordinates them.
//!
//! [`agent`] is the agent's side, `fleet` the coordinator's; `link` is the connection between the
//! two, `message` what they say. An agent makes load on the server under test and does
//! nothing else: no message makes it run a command, and it reads and writes files only in
//! directories that its owner allows, of its own making (`directories`).

pub mod agent;
mod directories;
mod fleet;
mod handshakes;
mod key;
mod link;
mod merge;
mod message;
mod remote_files;
mod sample_bounds;
mod spec;
mod told;

pub use self::directories::AllowedDirectories;
pub(crate) use self::fleet::{Failure, Fleet, Load, Run};
pub use self::key::Key;
pub(crate) use self::merge::add_paths;
pub use self::remote_files::RemoteDirectory;
pub(crate) use self::remote_files::RemoteFiles;
pub use self::spec::{AGENT_PORT, ClientSpec, Place};
pub use self::told::ClientLoad;

/// The command that starts agents at `ssh:HOST`. It asks nothing, and ends 20 s after the machine
/// has stopped answering.
pub const SSH_COMMAND: &str = "ssh -T -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=4";

/// How clients are reached.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The file with the key that agents on TCP ports share with this process.
    pub key: Option<std::path::PathBuf>,
    /// The command that starts an agent at `ssh:HOST`; [`SSH_COMMAND`] if empty. The host and the
    /// agent's command line follow it.
    pub ssh: Vec<String>,
    /// The program on those hosts; `trunkline` if empty.
    pub program: String,
    /// The directories there that are measured: an agent that this process starts allows them.
    pub directories: Vec<std::path::PathBuf>,
}

//! Why a process cannot join a group, with advice for each cause.

use std::io;
use std::path::PathBuf;

/// Why a process cannot join a group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The directory or the file in it cannot be created or opened.
    #[error("{}: {error}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The directory may be used by other hosts, whose processes share no memory with this process.
    #[error("{} is on a network file system", path.display())]
    Network {
        /// The directory.
        path: PathBuf,
    },
    /// The directory or file belongs to another user.
    #[error("{} belongs to user {owner}, and this server runs as user {user}", path.display())]
    Owner {
        /// The directory or the file.
        path: PathBuf,
        /// The user that owns it.
        owner: u32,
        /// The user that this process runs as.
        user: u32,
    },
    /// Other users may change it, and could have replies sent that no call produced.
    #[error("{} may be changed by others: its mode is {mode:04o}", path.display())]
    Mode {
        /// The directory or the file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is not a file of a group.
    #[error("{} is not a reply cache of ours", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is a file of a group, but damaged.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// Processes of another version run in the group.
    #[error("another version of trunkline serves the group of {}: its file has version {theirs}, and this one's {ours}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        theirs: u64,
        /// The version that this process knows.
        ours: u64,
    },
    /// The processes that run in the group serve NFS version 4, or lock files by NLM, and this one
    /// would not, or the other way round.
    #[error("the nodes of the group of {} serve other versions of NFS than this one, or lock by NLM as it does not", path.display())]
    Versions {
        /// The path of the file.
        path: PathBuf,
    },
    /// The state of clients of NFS version 4 in the file cannot be used.
    #[error("{}: {error}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        error: state::OpenError,
    },
    /// The processes that run in the group have another lease.
    #[error("the nodes of the group of {} have a lease of {theirs_s} s, and this one {ours_s} s", path.display())]
    Lease {
        /// The path of the file.
        path: PathBuf,
        /// Seconds of the others.
        theirs_s: u64,
        /// Seconds of this process.
        ours_s: u64,
    },
    /// Processes of another host, or from before a restart of this host, have the file.
    #[error("another host serves the group of {}, and memory is shared within one host only", path.display())]
    Host {
        /// The file.
        path: PathBuf,
    },
    /// The processes would not serve the same exports.
    #[error("{what}")]
    Exports {
        /// How the exports differ.
        what: String,
    },
    /// The store does not keep the key of its handles.
    #[error("export {export} is in memory, which other processes cannot serve")]
    Memory {
        /// The path of the export.
        export: String,
    },
    /// The shared directory would itself be exported.
    #[error("{} lies within the exported directory of {export}", path.display())]
    Inside {
        /// The directory.
        path: PathBuf,
        /// The export's path.
        export: String,
    },
    /// The group has no room for another process.
    #[error("as many processes as a group may have serve it: {}", drc::shared::MEMBERS_MAX)]
    Full,
    /// Another process is in the middle of a change and does not finish it.
    #[error("another process has had {} locked for long", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

impl GroupError {
    /// What to do.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Io { error, .. } if error.kind() == io::ErrorKind::StorageFull => {
                "free 32 MiB there, or another directory, like /run/trunkline".into()
            }
            Self::Io { .. } | Self::Network { .. } => {
                "a directory on a local file system that this user can write to, like /run/trunkline".into()
            }
            Self::Owner { .. } => "a directory of the user that all nodes of the group run as".into(),
            Self::Mode { path, .. } => format!("chmod go-w {}        or another directory", path.display()),
            Self::Foreign { .. } => "a directory of the group's own".into(),
            Self::Damaged { path, .. } => {
                format!("stop all nodes of the group, then rm {}; they begin a new one", path.display())
            }
            Self::Versions { .. } => {
                "the same `versions` and `nlm` in all nodes; to change them, stop all nodes of the group first".into()
            }
            Self::Lease { theirs_s, .. } => {
                format!("lease_s = {theirs_s}; to change it, stop all nodes of the group first")
            }
            Self::State { error: state::OpenError::NoMemory, .. } => {
                "free 64 MiB there, or another directory, like /run/trunkline".into()
            }
            Self::State { error: state::OpenError::Version { .. }, .. } => {
                "stop all nodes of the group, then start them with one version".into()
            }
            Self::State { path, .. } => {
                format!("stop all nodes of the group, then rm {}; they begin a new one", path.display())
            }
            Self::Version { .. } => "stop all nodes of the group, then start them with one version".into(),
            Self::Host { .. } => "a directory of this host's own; hosts share no reply cache".into(),
            Self::Exports { .. } => {
                "the same exports with the same `state` in all nodes of a group; another directory for another group".into()
            }
            Self::Memory { .. } => "`dir` exports in a group of processes; one process serves nodes in memory".into(),
            Self::Inside { .. } => "a directory that is not exported, like /run/trunkline".into(),
            Self::Full => "more nodes in each process".into(),
            Self::Busy { path } => format!("fuser -v {}        shows who has it", path.display()),
        }
    }
}

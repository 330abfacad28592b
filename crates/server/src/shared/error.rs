//! Why a process cannot be part of a group, each with what to do about it.

use std::io;
use std::path::PathBuf;

/// Why a process cannot be part of a group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The directory or the file in it cannot be made or opened.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// Other hosts may have it, whose processes share no memory with this one's.
    #[error("{} is on a network file system", path.display())]
    Network {
        /// The directory.
        path: PathBuf,
    },
    /// Somebody else owns it.
    #[error("{} belongs to user {owner}, and this server runs as user {user}", path.display())]
    Owner {
        /// The directory or the file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who runs this.
        user: u32,
    },
    /// Others may change it, who could have answers given that no call had.
    #[error("{} may be changed by others: its mode is {mode:04o}", path.display())]
    Mode {
        /// The directory or the file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is no file of a group.
    #[error("{} is not a reply cache of ours", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is one of ours and damaged.
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
        /// The version of what is in it.
        theirs: u64,
        /// The version that this process knows.
        ours: u64,
    },
    /// Processes of another host, or of before a restart of this one, have the file.
    #[error("another host serves the group of {}, and memory is shared within one host only", path.display())]
    Host {
        /// The file.
        path: PathBuf,
    },
    /// The processes would not serve the same.
    #[error("{what}")]
    Exports {
        /// Where they differ.
        what: String,
    },
    /// The store keeps no key of its handles.
    #[error("export {export} is in memory, which other processes cannot serve")]
    Memory {
        /// Its path.
        export: String,
    },
    /// What is shared would be exported itself.
    #[error("{} lies within the exported directory of {export}", path.display())]
    Inside {
        /// The directory.
        path: PathBuf,
        /// The export's path.
        export: String,
    },
    /// There is no place for one more process.
    #[error("as many processes as a group may have serve it: {}", drc::shared::MEMBERS_MAX)]
    Full,
    /// Somebody else is in the middle of a change and does not go on.
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

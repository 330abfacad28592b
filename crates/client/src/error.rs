//! The errors of a mount, split by which side is at fault.

use std::net::SocketAddr;
use std::time::Duration;

use fs::Status;

use crate::options::{OptionError, TargetError};

/// Why an operation of a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with an error; the same call will get the same reply.
    #[error("{} ({operation}: {status})", status_words(*status))]
    Status {
        /// The procedure.
        operation: &'static str,
        /// The server's status.
        status: Status,
    },
    /// The server does not do this for this file, or not now, which says nothing about others.
    #[error("{operation}: the server does not do this for this file, or not now: {reason}")]
    Declined {
        /// The procedure.
        operation: &'static str,
        /// The server's reason, or why its answer is not used.
        reason: String,
    },
    /// The server refused the call before executing it.
    #[error("{operation}: the server refused the call: {reason}")]
    Refused {
        /// The procedure.
        operation: &'static str,
        /// The server's reason.
        reason: String,
    },
    /// The server sent something that its protocol does not allow. The server is at fault; another
    /// path may help.
    #[error("{operation}: the server's answer makes no sense: {reason}")]
    PeerMisbehaved {
        /// The procedure.
        operation: &'static str,
        /// What is wrong with the reply.
        reason: String,
    },
    /// No reply within the time limit of a soft mount (`timeo`, `retrans`). A retry may help.
    #[error("{operation}: no answer within {waited:?}")]
    TimedOut {
        /// The procedure.
        operation: &'static str,
        /// How long the call was tried.
        waited: Duration,
    },
    /// An invalid mount option.
    #[error("bad mount option")]
    Options(#[from] OptionError),
    /// A target that cannot be parsed.
    #[error("bad target")]
    Target(#[from] TargetError),
    /// The target could not be mounted from any address of the server.
    #[error("cannot mount {target}")]
    Mount {
        /// The target.
        target: String,
        /// The cause.
        #[source]
        cause: MountError,
    },
    /// A path could not be resolved beyond a name in it.
    #[error("{path}: {cause}")]
    Step {
        /// The path up to that name, on the server.
        path: String,
        /// The error for that name.
        #[source]
        cause: Box<Error>,
    },
    /// The mount was closed while the call was waiting.
    #[error("the mount is closed")]
    Closed,
    /// The local system refused.
    #[error("{what}")]
    Io {
        /// What was attempted.
        what: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The caller asked for something impossible.
    #[error("{0}")]
    Misuse(String),
}

impl Error {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn retry_may_help(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Io { .. } => true,
            Self::Step { cause, .. } => cause.retry_may_help(),
            _ => false,
        }
    }

    /// Copies the error for another call that it applies to.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Status { operation, status } => Self::Status { operation, status: *status },
            Self::Refused { operation, reason } => Self::Refused { operation, reason: reason.clone() },
            Self::Declined { operation, reason } => Self::Declined { operation, reason: reason.clone() },
            Self::PeerMisbehaved { operation, reason } => {
                Self::PeerMisbehaved { operation, reason: reason.clone() }
            }
            other => Self::Misuse(other.to_string()),
        }
    }

    /// The server's status, if the server returned one.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Step { cause, .. } => cause.status(),
            _ => None,
        }
    }
}

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The local machine lacks what RDMA needs.
    #[error("this machine has no RDMA to offer")]
    NoRdma {
        /// What is missing.
        #[source]
        cause: transport::rdma::Error,
    },
    /// No RDMA connection to an address can be established, or the connection gets no reply.
    #[error("no connection to {address} over RDMA{here}")]
    Rdma {
        /// The address.
        address: SocketAddr,
        /// The devices that were considered, for display; empty where they don't matter.
        here: String,
        /// The cause.
        #[source]
        cause: transport::rdma::Error,
    },
    /// The server's name has no address.
    #[error("no address for {host}")]
    Resolve {
        /// The name.
        host: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A name in `localports` is not an interface with an address, or the local system refused.
    #[error("{0}")]
    Local(String),
    /// Nothing accepts connections at the address.
    #[error("{address} does not accept connections")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The connection was accepted, but there was no reply.
    #[error("{address} accepts connections, but does not answer")]
    Silent {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The MOUNT program refused.
    #[error("{address} refuses the export {export}: {reason}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// The export.
        export: String,
        /// The server's reason.
        reason: String,
    },
    /// The export is an object that nothing can be mounted from.
    #[error("{export} is not a directory but {what}")]
    NotDirectory {
        /// The export.
        export: String,
        /// The kind of the object, with its article.
        what: &'static str,
    },
    /// No export contains the path.
    #[error("no export of {address} holds {path}; it exports {exports}")]
    NoExport {
        /// The address.
        address: SocketAddr,
        /// The path.
        path: String,
        /// The server's exports, for display.
        exports: String,
    },
    /// MOUNT does not answer at the port of NFS, and rpcbind does not know its port.
    #[error("MOUNT is not found: {here}; {reason}")]
    NoMountProgram {
        /// The address that was tried first.
        address: SocketAddr,
        /// The error there.
        here: String,
        /// What rpcbind answered, or why it did not answer.
        reason: String,
    },
    /// The address answers, but does not speak NFS version 3 with MOUNT.
    #[error("{address} does not speak NFS version 3: {reason}")]
    Protocol {
        /// The address.
        address: SocketAddr,
        /// What was wrong with the reply.
        reason: String,
    },
    /// The address answers, but does not speak NFS version 4.
    #[error("{address} does not speak NFS version 4: {reason}")]
    NoVersion4 {
        /// The address.
        address: SocketAddr,
        /// What was wrong with the reply.
        reason: String,
    },
    /// The server speaks NFS version 4, but not this minor version.
    #[error("{address} does not speak NFS version 4.{minor}")]
    NoMinorVersion {
        /// The address.
        address: SocketAddr,
        /// The minor version.
        minor: u32,
    },
    /// A path leads to another file system.
    #[error("the path to {address} is refused: {reason}")]
    OtherFileSystem {
        /// The address.
        address: SocketAddr,
        /// What differs.
        reason: String,
    },
    /// No path could be connected in time.
    #[error("no path came up within {0:?}")]
    NoPath(Duration),
}

impl MountError {
    /// Whether the machine at the address is up, but nothing listens there.
    pub(crate) fn is_refused(&self) -> bool {
        let refused = std::io::ErrorKind::ConnectionRefused;
        matches!(self, Self::Connect { source, .. } if source.kind() == refused)
    }

    /// Whether the server did not answer at an address, so that another address may do so. An
    /// answer is final: another node or address would give the same.
    pub(crate) fn is_of_address(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Silent { .. }
            | Self::Rdma { .. }
            | Self::NoPath(_)
            | Self::Resolve { .. }
            | Self::Local(_)
            | Self::OtherFileSystem { .. } => true,
            // This machine lacks RDMA for every address.
            Self::NoRdma { .. }
            | Self::Refused { .. }
            | Self::NotDirectory { .. }
            | Self::NoExport { .. }
            | Self::NoMountProgram { .. }
            | Self::NoVersion4 { .. }
            | Self::NoMinorVersion { .. }
            | Self::Protocol { .. } => false,
        }
    }

    /// Whether the same mount may succeed later: the server is not up yet, or cannot be reached. A
    /// refusal by the server is final.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        use transport::rdma::Error as Rdma;
        match self {
            Self::Connect { source, .. } => is_unreachable(source),
            Self::Resolve { source, .. } => is_for_now(source),
            Self::Silent { .. } | Self::NoMountProgram { .. } | Self::NoPath(_) => true,
            Self::Rdma { cause, .. } => {
                matches!(cause, Rdma::NotListening(_) | Rdma::Unreachable(_) | Rdma::Closed | Rdma::Broken(_))
            }
            Self::NoRdma { .. }
            | Self::Local(_)
            | Self::Refused { .. }
            | Self::NotDirectory { .. }
            | Self::NoExport { .. }
            | Self::NoVersion4 { .. }
            | Self::NoMinorVersion { .. }
            | Self::Protocol { .. }
            | Self::OtherFileSystem { .. } => false,
        }
    }
}

/// Whether the server or the route to it is down, as opposed to a refusal by the local machine.
fn is_unreachable(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::AddrNotAvailable
            | ErrorKind::TimedOut
    )
}

/// Whether no name server answered (EAI_AGAIN), as opposed to the name being unknown. The standard
/// library keeps only the resolver's message: glibc's, then musl's.
fn is_for_now(error: &std::io::Error) -> bool {
    let said = error.to_string();
    ["Temporary failure in name resolution", "Try again"].iter().any(|words| said.contains(words))
}

/// The result of an operation of a mount.
pub type Result<T> = std::result::Result<T, Error>;

/// A status in words, as users know them from their own system.
#[must_use]
pub const fn status_words(status: Status) -> &'static str {
    match status {
        Status::NotPermitted => "operation not permitted",
        Status::NotFound => "no such file or directory",
        Status::Io => "input/output error on the server",
        Status::NoAddress => "no such device or address",
        Status::Access => "permission denied",
        Status::Exists => "it exists already",
        Status::CrossDevice => "not within one file system",
        Status::NoDevice => "no such device",
        Status::NotDirectory => "not a directory",
        Status::IsDirectory => "it is a directory",
        Status::Invalid => "invalid argument",
        Status::FileTooBig => "file too large",
        Status::NoSpace => "no space left on the server",
        Status::ReadOnly => "read-only file system",
        Status::TooManyLinks => "too many links",
        Status::NameTooLong => "name too long",
        Status::NotEmpty => "directory not empty",
        Status::Quota => "disk quota exceeded",
        Status::Stale => "the file is gone from the server (stale handle)",
        Status::Remote => "it lies on another server",
        Status::BadHandle => "the server does not know the file handle",
        Status::NotSync => "it has changed meanwhile",
        Status::BadCookie => "the directory has changed meanwhile",
        Status::NotSupported => "the server does not support it",
        Status::TooSmall => "the answer is too long",
        Status::ServerFault => "a fault of the server",
        Status::BadType => "the server has no objects of that type",
        Status::NoXattr => "no such extended attribute",
        Status::XattrTooBig => "the value of the extended attribute is too long",
        Status::Later => "the server is busy, try later",
        Status::Other(_) => "the server refuses",
    }
}

//! What can go wrong with a mount, split by whose fault it is.

use std::net::SocketAddr;
use std::time::Duration;

use fs::Status;

use crate::options::{OptionError, TargetError};

/// Why an operation of a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with an error; the same call will get the same answer.
    #[error("{} ({operation}: {status})", status_words(*status))]
    Status {
        /// The procedure.
        operation: &'static str,
        /// What the server said.
        status: Status,
    },
    /// The server refused the call before executing it.
    #[error("{operation}: the server refused the call: {reason}")]
    Refused {
        /// The procedure.
        operation: &'static str,
        /// Its reason.
        reason: String,
    },
    /// The server sent what its protocol does not allow. Its fault; another path may help.
    #[error("{operation}: the server's answer makes no sense: {reason}")]
    PeerMisbehaved {
        /// The procedure.
        operation: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// No answer within the time of a soft mount (`timeo`, `retrans`). A retry can help.
    #[error("{operation}: no answer within {waited:?}")]
    TimedOut {
        /// The procedure.
        operation: &'static str,
        /// How long it was tried.
        waited: Duration,
    },
    /// A mount option that cannot be.
    #[error("bad mount option")]
    Options(#[from] OptionError),
    /// A target that cannot be understood.
    #[error("bad target")]
    Target(#[from] TargetError),
    /// No address of the server can be mounted from.
    #[error("cannot mount {target}")]
    Mount {
        /// What was to be mounted.
        target: String,
        /// Why.
        #[source]
        cause: MountError,
    },
    /// A path leads no further than to a name in it.
    #[error("{path}: {cause}")]
    Step {
        /// The path up to that name, on the server.
        path: String,
        /// What the server said of it.
        #[source]
        cause: Box<Error>,
    },
    /// The mount was closed while the call was waiting.
    #[error("the mount is closed")]
    Closed,
    /// This machine refused.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The caller asked for what cannot be.
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

    /// The same error for another call that it speaks for.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Status { operation, status } => Self::Status { operation, status: *status },
            Self::Refused { operation, reason } => Self::Refused { operation, reason: reason.clone() },
            Self::PeerMisbehaved { operation, reason } => {
                Self::PeerMisbehaved { operation, reason: reason.clone() }
            }
            other => Self::Misuse(other.to_string()),
        }
    }

    /// The server's status, when it gave one.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Step { cause, .. } => cause.status(),
            _ => None,
        }
    }
}

/// Why a mount could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// This machine lacks what RDMA needs.
    #[error("this machine has no RDMA to offer")]
    NoRdma {
        /// What is missing.
        #[source]
        cause: transport::rdma::Error,
    },
    /// No connection over RDMA can be made to an address, or none that answers.
    #[error("no connection to {address} over RDMA{here}")]
    Rdma {
        /// Where.
        address: SocketAddr,
        /// The devices that were looked at, for people; empty where they don't matter.
        here: String,
        /// Why.
        #[source]
        cause: transport::rdma::Error,
    },
    /// The server's name has no address.
    #[error("no address for {host}")]
    Resolve {
        /// The name.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A name that `localports` lists is no interface with an address.
    #[error("{0}")]
    Local(String),
    /// Nobody accepts connections there.
    #[error("{address} does not accept connections")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A connection, but no answer.
    #[error("{address} accepts connections, but does not answer")]
    Silent {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The MOUNT program refused.
    #[error("{address} refuses the export {export}: {reason}")]
    Refused {
        /// Where.
        address: SocketAddr,
        /// Which export.
        export: String,
        /// What it said.
        reason: String,
    },
    /// No export holds the path.
    #[error("no export of {address} holds {path}; it exports {exports}")]
    NoExport {
        /// Where.
        address: SocketAddr,
        /// The path.
        path: String,
        /// What it exports, for people.
        exports: String,
    },
    /// MOUNT is not where NFS is, and nobody says where else.
    #[error("MOUNT is not found: {here}; {reason}")]
    NoMountProgram {
        /// Where it was looked for first.
        address: SocketAddr,
        /// What happened there.
        here: String,
        /// What rpcbind said, or why it said nothing.
        reason: String,
    },
    /// Something answers, but not NFS version 3 with MOUNT.
    #[error("{address} does not speak NFS version 3: {reason}")]
    Protocol {
        /// Where.
        address: SocketAddr,
        /// What it said.
        reason: String,
    },
    /// A path leads to another file system.
    #[error("the path to {address} is refused: {reason}")]
    OtherFileSystem {
        /// Where.
        address: SocketAddr,
        /// What differs.
        reason: String,
    },
    /// No path could be connected in time.
    #[error("no path came up within {0:?}")]
    NoPath(Duration),
}

impl MountError {
    /// Whether the same mount may succeed later: the server is not up yet, or not within reach.
    /// What a server said stays said.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        use transport::rdma::Error as Rdma;
        match self {
            Self::Connect { source, .. } => is_away(source),
            Self::Resolve { source, .. } => is_for_now(source),
            Self::Silent { .. } | Self::NoMountProgram { .. } | Self::NoPath(_) => true,
            Self::Rdma { cause, .. } => {
                matches!(cause, Rdma::NotListening(_) | Rdma::Unreachable(_) | Rdma::Closed | Rdma::Broken(_))
            }
            Self::NoRdma { .. }
            | Self::Local(_)
            | Self::Refused { .. }
            | Self::NoExport { .. }
            | Self::Protocol { .. }
            | Self::OtherFileSystem { .. } => false,
        }
    }
}

/// Whether a server, or the way to it, is away; what this machine refuses is something else.
fn is_away(error: &std::io::Error) -> bool {
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

/// Whether no name server answered (EAI_AGAIN), rather than said that there is no such name. The
/// standard library keeps the resolver's words alone: glibc's, then musl's.
fn is_for_now(error: &std::io::Error) -> bool {
    let said = error.to_string();
    ["Temporary failure in name resolution", "Try again"].iter().any(|words| said.contains(words))
}

/// The result of an operation of a mount.
pub type Result<T> = std::result::Result<T, Error>;

/// A status in words, as people know them from their own system.
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
        Status::Later => "the server is busy, try later",
        Status::Other(_) => "the server refuses",
    }
}

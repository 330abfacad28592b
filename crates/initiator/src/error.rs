//! What callers are told, and why connections are lost.

use nvme::host::{DiscoveryError, Failure, Purpose};
use nvme::pdu::{FatalError, Malformed};
use nvme::rdma::{BadResponse, RejectStatus};
use nvme::{Address, Status};
use std::time::Duration;

/// Why a request or an attachment failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No address was given.
    #[error("no address to connect to")]
    NoAddress,
    /// A loop could not be started.
    #[error("cannot start: {0}")]
    Start(String),
    /// No address led to a controller in time.
    #[error("no controller within {within:?}: {causes}")]
    Unreachable {
        /// How long was tried.
        within: Duration,
        /// What each address said.
        causes: String,
    },
    /// There is no discovery service at an address.
    #[error("no discovery service at {address}: {cause}")]
    NoDiscovery {
        /// The address.
        address: Address,
        /// What was wrong.
        cause: String,
    },
    /// The target refuses the host, or what it asks for: trying again does not help.
    #[error("{address} refuses: {refusal}")]
    Refused {
        /// The address.
        address: Address,
        /// Why.
        refusal: Refusal,
    },
    /// The subsystem has no such namespace.
    #[error("there is no namespace {nsid}; the subsystem has {present:?}")]
    NoNamespace {
        /// The namespace.
        nsid: u32,
        /// Those that there are.
        present: Vec<u32>,
    },
    /// The subsystem shows the namespace, and no path that is connected serves it.
    #[error("no connected path serves namespace {nsid} within {within:?}: {by}")]
    NotServed {
        /// The namespace.
        nsid: u32,
        /// How long was waited.
        within: Duration,
        /// What each of these paths says.
        by: String,
    },
    /// Beyond the end of the volume, or not a multiple of its blocks.
    #[error("{bytes} bytes at {offset} are not blocks of the volume")]
    OutOfRange {
        /// The first byte.
        offset: u64,
        /// The length.
        bytes: u64,
    },
    /// No path served the request in time.
    #[error("no path for {0:?}")]
    NoPath(Duration),
    /// Every path says that the namespace is lost to it.
    #[error("every path has lost the namespace for good (ANA persistent loss)")]
    PersistentLoss,
    /// The controller says that the command cannot succeed.
    #[error("the command failed: {0}")]
    Command(Status),
    /// The controller has no such command.
    #[error("the controller does not have this command")]
    Unsupported,
    /// The attachment ended.
    #[error("the attachment has ended")]
    Ended,
    /// Discovery failed.
    #[error("discovery: {0}")]
    Discovery(#[from] DiscoveryError),
}

/// Why an address cannot be used, however often it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The target refuses the host, or what it asks for.
    #[error("{0}")]
    Connect(Status),
    /// The address is that of another subsystem.
    #[error("there is no subsystem of this name: {0}")]
    NoSubsystem(Status),
    /// The target wants to know who the host is.
    #[error("this host has to authenticate, and has no secret")]
    SecretNeeded,
    /// One of both does not have the secret that the other one knows.
    #[error("authentication has failed: {0}")]
    NotAuthenticated(chap::Failure),
    /// The target does not prove who it is.
    #[error("the target does not authenticate hosts, so it cannot prove who it is")]
    NoProof,
}

impl Refusal {
    /// Whether a connection was lost for good.
    pub(crate) const fn of(lost: &Lost) -> Option<Self> {
        match lost {
            Lost::Failed(Failure::Command(Purpose::Connect, status)) if status.dnr() => {
                Some(Self::Connect(*status))
            }
            Lost::Failed(Failure::NoSubsystem(status)) if status.dnr() => Some(Self::NoSubsystem(*status)),
            Lost::Refused(refusal) => Some(*refusal),
            _ => None,
        }
    }
}

/// Why a connection or a controller is lost.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("not connected in time")]
    ConnectTimeout,
    #[error("{0}")]
    Socket(std::io::Error),
    #[error("{0}")]
    Rdma(transport::rdma::Error),
    #[error("the controller refuses a connection over RDMA: {0:?}")]
    Rejected(RejectStatus),
    #[error("the controller broke the protocol: {0}")]
    Response(BadResponse),
    #[error("the controller closed the connection")]
    Closed,
    #[error("the controller broke the protocol: {0}")]
    Malformed(Malformed),
    #[error("the controller ended the connection: {0:?}")]
    Terminated(FatalError),
    #[error("{0}")]
    Failed(Failure),
    #[error("{0}")]
    Refused(Refusal),
    #[error("cannot compute for authentication: {0}")]
    Compute(std::io::Error),
    #[error("the controller is silent")]
    Silent,
    #[error("I/O queue {0} is silent")]
    QueueSilent(u16),
    #[error("a command was not completed in time")]
    CommandTimeout,
    #[error("older controllers of this host were not ended: {0}")]
    NotEnded(Status),
    #[error("the controller takes no command")]
    Misuse,
}

//! Why a target does not start.

use nvme::controller::{Node, VolumeError};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a target does not start. Nothing of it is left then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The address cannot be listened on over RDMA.
    #[error("cannot listen on {address} over RDMA")]
    ListenRdma {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: transport::rdma::Error,
    },
    /// Discovery tells hosts where to connect, and this is no place.
    #[error("{0} is not an address that discovery can tell hosts: it stands for every address of this host")]
    Unspecified(SocketAddr),
    /// There is nothing to listen on.
    #[error("no address to listen on")]
    NoAddress,
    /// A volume cannot be a namespace.
    #[error("volume {name}")]
    Volume {
        /// The volume.
        name: String,
        /// Why.
        source: VolumeError,
    },
    /// Two volumes have one identity, so that hosts would take them for one.
    #[error("volumes {0} and {1} have the same UUID")]
    Identity(String, String),
    /// A volume is owned by a node that has no address.
    #[error("volume {name} is owned by node {node}, which has no address")]
    Owner {
        /// The volume.
        name: String,
        /// The node.
        node: Node,
    },
    /// There are two nodes, A and B.
    #[error("there is no node {0}; a pair has the nodes A and B")]
    Node(Node),
    /// A process that is one node of a pair has the addresses of that node.
    #[error("a process that is one node of two needs addresses of that node, and no others")]
    Split,
    /// The backing is not what hosts were told of the volume.
    #[error("volume {name} is not what hosts were told: it is smaller, or has other properties")]
    Facts {
        /// The volume.
        name: String,
    },
    /// The reservations of a volume are not known: to serve it would forget them.
    #[error("the reservations of volume {name} are not known")]
    Reservations {
        /// The volume.
        name: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The process of the other node could not forward commands to this one.
    #[error("cannot listen on {path}")]
    Forward {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system refused a thread or a descriptor.
    #[error("cannot start a loop")]
    Loop(#[source] io::Error),
}

//! Why a target does not start.

use nvme::controller::VolumeError;
use std::io;
use std::net::SocketAddr;

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
    /// The system refused a thread or a descriptor.
    #[error("cannot start a loop")]
    Loop(#[source] io::Error),
}

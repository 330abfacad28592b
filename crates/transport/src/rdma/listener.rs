//! Accepts RDMA connections.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rpcrdma::connect::Offer;
use verbs::{EventChannel, EventKind, Identifier};

use super::{Endpoint, Error, Options};

/// Maximum number of connections that wait to be taken.
const BACKLOG: u16 = 256;

/// Listens on an address. The descriptor is readable when a connection request is waiting.
#[derive(Debug)]
pub struct Listener {
    identifier: Identifier,
    address: SocketAddr,
    channel: Arc<EventChannel>,
}

/// A connection request. Dropping it refuses the connection.
#[derive(Debug)]
pub struct Incoming {
    identifier: Identifier,
    peer: SocketAddr,
    local: SocketAddr,
    private_data: Vec<u8>,
    reads_allowed: u8,
}

impl Listener {
    /// Starts to listen. A wildcard address accepts connections on every device.
    ///
    /// # Errors
    /// Missing libraries or devices, an address that no device has, or one that is in use.
    pub fn bind(address: SocketAddr) -> Result<Self, Error> {
        let channel = EventChannel::new()?;
        let identifier = Identifier::new(&channel)?;
        identifier.listen(address, BACKLOG)?;
        let address = identifier.local_address().unwrap_or(address);
        Ok(Self { identifier, address, channel })
    }

    /// The address of the listener; a port given as 0 is replaced by the chosen port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes the next connection request, if there is one.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn take(&self) -> Result<Option<Incoming>, Error> {
        while let Some(event) = self.channel.poll()? {
            // Events of requests that have not been taken yet are received here too.
            if event.kind == EventKind::DeviceRemoval && event.token == self.identifier.token() {
                return Err(Error::DeviceGone);
            }
            let Some(identifier) = event.incoming.filter(|_| event.token == self.identifier.token()) else {
                // An event of a request that has not been taken yet, for example because the client
                // gave up. It is ignored here.
                continue;
            };
            // A request without IP addresses is ignored.
            if let (Some(peer), Some(local)) = (identifier.peer_address(), identifier.local_address()) {
                return Ok(Some(Incoming {
                    identifier,
                    peer,
                    local,
                    private_data: event.private_data,
                    reads_allowed: event.reads_allowed,
                }));
            }
        }
        Ok(None)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Incoming {
    /// The address of the client.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The local address to which the client connected.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// What the client said with its request. Padded by some transports.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Creates an endpoint with its own descriptors, on the thread that is to own it. Post
    /// receives, then call [`Endpoint::accept`].
    ///
    /// # Errors
    /// Errors of the system, mostly because too much memory would have to be locked.
    pub fn prepare<T>(self, options: &Options) -> Result<Endpoint<T>, Error> {
        let Self { identifier, peer, local, private_data, reads_allowed } = self;
        let offer = Offer::decode(&private_data);
        Endpoint::incoming(identifier, (local, peer), &offer, reads_allowed, options)
    }

    /// Refuses the connection.
    pub fn refuse(self) {
        self.refuse_with(&[]);
    }

    /// Refuses the connection, and says why in the words of the protocol.
    pub fn refuse_with(self, private_data: &[u8]) {
        // If the client is already gone, there is no one to refuse.
        let _ = self.identifier.reject(private_data);
    }
}

//! Where connections over RDMA arrive.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rpcrdma::connect::Offer;
use verbs::{EventChannel, EventKind, Identifier};

use super::{Endpoint, Error, Options};

/// Connections that may wait to be taken.
const BACKLOG: u16 = 256;

/// Listens on an address. Its descriptor is readable when somebody wants to connect.
#[derive(Debug)]
pub struct Listener {
    identifier: Identifier,
    address: SocketAddr,
    channel: Arc<EventChannel>,
}

/// Somebody who wants to connect. Dropped, they are refused.
#[derive(Debug)]
pub struct Incoming {
    identifier: Identifier,
    peer: SocketAddr,
    local: SocketAddr,
    offer: Offer,
    reads_allowed: u8,
}

impl Listener {
    /// Listens. A wildcard address takes connections on every device.
    ///
    /// # Errors
    /// Libraries or devices that are missing, an address that no device has, one that is taken.
    pub fn bind(address: SocketAddr) -> Result<Self, Error> {
        let channel = EventChannel::new()?;
        let identifier = Identifier::new(&channel)?;
        identifier.listen(address, BACKLOG)?;
        let address = identifier.local_address().unwrap_or(address);
        Ok(Self { identifier, address, channel })
    }

    /// Where it listens; a port given as 0 is the one that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next who wants to connect, if somebody does.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn take(&self) -> Result<Option<Incoming>, Error> {
        while let Some(event) = self.channel.poll()? {
            // What happens to one that was not taken over yet is told here too.
            if event.kind == EventKind::DeviceRemoval && event.token == self.identifier.token() {
                return Err(Error::DeviceGone);
            }
            let Some(identifier) = event.incoming.filter(|_| event.token == self.identifier.token()) else {
                // What became of one that was not taken over yet: it is refused by that already.
                continue;
            };
            // One without addresses is no connection of the Internet's.
            if let (Some(peer), Some(local)) = (identifier.peer_address(), identifier.local_address()) {
                let offer = Offer::decode(&event.private_data);
                return Ok(Some(Incoming {
                    identifier,
                    peer,
                    local,
                    offer,
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
    /// Who it is.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// To which of our addresses they came.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Makes an endpoint of it, with its own descriptors, on whichever thread shall have it. Post
    /// receives, then [`Endpoint::accept`].
    ///
    /// # Errors
    /// The system's refusal, above all of memory that would have to be locked.
    pub fn prepare<T>(self, options: &Options) -> Result<Endpoint<T>, Error> {
        let Self { identifier, peer, local, offer, reads_allowed } = self;
        Endpoint::incoming(identifier, (local, peer), &offer, reads_allowed, options)
    }

    /// Says no.
    pub fn refuse(self) {
        // One that is gone already has its answer.
        let _ = self.identifier.reject();
    }
}

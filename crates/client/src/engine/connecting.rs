//! A connection that is being made: the only place of the engine that tells TCP from RDMA.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use transport::poll::{Interest, Poller};
use transport::{Limits, Stream, socket};

use crate::connector::{ConnectId, ConnectRequest, ConnectResults, Purpose, Wire};
use crate::options::Proto;
use crate::route::{PathEnd, Route};

/// See the module's documentation.
#[derive(Debug)]
pub(super) enum Connecting {
    /// The system connects this socket and says when that has ended.
    Socket(OwnedFd),
    /// Another thread makes the connection, whose result has this id.
    Requested(ConnectId),
}

impl Connecting {
    /// Starts to connect to the other end of a path.
    pub(super) fn start(
        route: &Route,
        end: &PathEnd,
        purpose: Purpose,
        (poller, token): (&Poller, u64),
        connect_results: &Arc<ConnectResults>,
    ) -> io::Result<Self> {
        match end.proto {
            Proto::Rdma => {
                let request = ConnectRequest {
                    local: end.local,
                    remote: end.remote,
                    purpose,
                    to: Arc::clone(connect_results),
                };
                Ok(Self::Requested(route.connector.connect(request)))
            }
            Proto::Tcp => {
                let socket = route.connect(end)?;
                poller.add(&socket, token, Interest::WRITE)?;
                Ok(Self::Socket(socket))
            }
        }
    }

    /// Whether the connection is this one.
    pub(super) fn is(&self, id: ConnectId) -> bool {
        matches!(self, Self::Requested(requested) if *requested == id)
    }

    /// Handles an event of the socket: the attempt has ended. Returns the connection, which accepts
    /// records up to `record_bytes_max`.
    pub(super) fn ended(self, poller: &Poller, record_bytes_max: usize) -> io::Result<Wire> {
        let Self::Socket(socket) = self else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        socket::connect_result(socket.as_fd())?;
        // It is added again once it is known what to wait for.
        poller.remove(&socket)?;
        Ok(Wire::Tcp(Stream::new(socket, Limits { record_bytes_max })))
    }

    /// Gives up the attempt.
    pub(super) fn give_up(self, route: &Route) {
        match self {
            Self::Socket(socket) => drop(socket),
            Self::Requested(id) => route.connector.cancel(id),
        }
    }
}

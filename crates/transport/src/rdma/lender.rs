//! A client's end of an RDMA connection that knows no RPC: messages both ways, and memory that the
//! server reads and writes.
//!
//! The memory belongs to the connection ([`Lender::buffer`]); what its owner has elsewhere is
//! copied in and out. A server that uses a buffer later than its protocol allows therefore reaches
//! data of this connection only, and nothing any more once the connection was dropped.
//!
//! When the connection ends, [`Lender::end`] gives what is left: dropping that destroys the queue
//! pair, and then the memory.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use verbs::Access;

use super::{Buffer, Endpoint, Error, Event, Offer, Options, Room, SIGNALLED_EACH, forget};
use crate::Remains;
use crate::poll::{Interest, Poller};

/// Work never needs to be named: the server's message says when its memory is free again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Never {}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The server has accepted: [`Lender::peer_data`].
    Connected,
    /// A message: [`Lender::message`].
    Message,
}

/// See the module's documentation.
pub struct Lender {
    endpoint: Endpoint<Never>,
    receives: u32,
    /// Whether the poller knows both descriptors.
    is_watched: bool,
    inbox: Vec<u8>,
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lender").field("peer", &self.endpoint.peer()).finish_non_exhaustive()
    }
}

impl Lender {
    /// Starts to connect, with these private data.
    ///
    /// # Errors
    /// Missing libraries or devices, or an address that no device reaches.
    pub fn connect(server: SocketAddr, room: &Room, private_data: &[u8]) -> Result<Self, Error> {
        let offer =
            Offer { send_bytes: room.send_bytes, receive_bytes: room.receive_bytes, invalidation: false };
        let sends = room.sends.max(SIGNALLED_EACH as u32 + 1);
        let options = Options {
            offer,
            receives: room.receives,
            work: sends,
            sends,
            reads_made: 0,
            pool_bytes_max: room.pool_bytes_max,
            ..Options::default()
        };
        let endpoint = Endpoint::connect_with(None, server, &options, private_data)?;
        Ok(Self { endpoint, receives: room.receives, is_watched: false, inbox: Vec::new() })
    }

    /// Adds the descriptor that there is at first to a poller, for reading.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        poller.add(self.endpoint.fds().0, token, Interest::READ)
    }

    /// Adds the descriptor that there is once the route is known, if it is there and was not added.
    /// To be called after each [`Lender::poll`] until the connection is made.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn watch(&mut self, poller: &Poller, token: u64) -> io::Result<()> {
        if let (false, Some(completions)) = (self.is_watched, self.endpoint.fds().1) {
            poller.add(completions, token, Interest::READ)?;
            self.is_watched = true;
        }
        Ok(())
    }

    /// Records that a descriptor was readable.
    pub const fn wake(&mut self) {
        self.endpoint.wake();
    }

    /// What has happened next; `None` if there is nothing: then wait for the descriptors. Each
    /// message leaves room for another one.
    ///
    /// # Errors
    /// Why the connection has ended, or could not be made.
    pub fn poll(&mut self) -> Result<Option<Heard>, Error> {
        match self.endpoint.poll(&mut self.inbox)? {
            Some(Event::Connected(_)) => {
                // The server says nothing before it was asked.
                self.endpoint.post_receives(self.receives)?;
                Ok(Some(Heard::Connected))
            }
            Some(Event::Received) => {
                self.endpoint.post_receives(1)?;
                Ok(Some(Heard::Message))
            }
            Some(Event::Done(never)) => match never {},
            None => Ok(None),
        }
    }

    /// The last message that was reported.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.inbox
    }

    /// What the server said as it accepted or refused. Padded by some transports.
    #[must_use]
    pub fn peer_data(&self) -> &[u8] {
        self.endpoint.peer_data()
    }

    /// Memory that the server may read or write once a message has named it; `None` while too much
    /// is in use. Its content is arbitrary. It is used again when it was dropped: not before the
    /// server is done with it.
    ///
    /// # Errors
    /// More than may be locked, or a connection without a route.
    pub fn buffer(&self, bytes: usize, access: Access) -> Result<Option<Buffer>, Error> {
        self.endpoint.buffer(bytes, access)
    }

    /// Sends a message that consists of these pieces, which are copied.
    ///
    /// # Errors
    /// A message that is too long, or an error of the system.
    pub fn send(&mut self, pieces: &[&[u8]]) -> Result<(), Error> {
        self.endpoint.send(pieces, None, None)
    }

    /// Makes a poller forget the connection, and ends it: the server is told, and nothing that was
    /// posted is sent any more. What is left is dropped on a thread that may wait.
    #[must_use]
    pub fn end(self, poller: &Poller) -> Remains {
        let (events, completions) = self.endpoint.fds();
        let fds: [Option<BorrowedFd<'_>>; 2] = [Some(events), completions];
        forget(fds, poller);
        self.endpoint.disconnect();
        Remains::of(self)
    }
}

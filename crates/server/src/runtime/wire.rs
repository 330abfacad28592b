//! The transport of a connection: a stream over TCP, or calls and replies over RDMA.

use super::call_sink::Incoming;
use super::mailbox::{Link, Peers};
use crate::replies::{Payload, Pinned};
use std::io;
use std::os::fd::BorrowedFd;
use transport::poll::{Interest, Poller};
use transport::rdma::{Counters, Responder};
use transport::socket;
use transport::{Error, Flushed, Received, Scratch, Sink, Stream, Transport};

/// The longest record of a client without any export, which may not ask for anything longer: a call
/// with the largest credential and a path of the largest length. RFC 5531 s8.2, RFC 1813 s5.1.3
pub(super) const STRANGER_RECORD_BYTES_MAX: usize = 4 << 10;

/// See the module's documentation.
#[expect(
    clippy::large_enum_variant,
    reason = "streams are what there is most of; they need no pointer to follow"
)]
pub(super) enum Wire {
    Tcp(Stream<Payload, Incoming>),
    Rdma(Box<Responder<Payload>>),
}

impl Wire {
    /// Wraps an accepted link; records of the client are at most `record_bytes_max` long.
    pub fn new(link: Link, record_bytes_max: usize) -> Self {
        match link {
            Link::Tcp(socket) => Self::Tcp(Stream::new(socket, transport::Limits { record_bytes_max })),
            Link::Rdma(mut responder) => {
                responder.set_record_bound(record_bytes_max);
                Self::Rdma(responder)
            }
        }
    }

    /// Registers the connection with a poller.
    pub fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => poller.add(stream.fd(), token, Interest::READ),
            Self::Rdma(responder) => {
                let fds = responder.fds().map_err(io::Error::other)?;
                fds.into_iter().try_for_each(|fd| poller.add(fd, token, Interest::READ))
            }
        }
    }

    /// The socket, if there is one.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => Some(stream.fd()),
            Self::Rdma(_) => None,
        }
    }

    pub const fn is_rdma(&self) -> bool {
        matches!(self, Self::Rdma(_))
    }

    pub fn set_record_bound(&mut self, bytes: usize) {
        match self {
            Self::Tcp(stream) => stream.set_record_bound(bytes),
            Self::Rdma(responder) => responder.set_record_bound(bytes),
        }
    }

    pub fn receive(
        &mut self,
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = Incoming>,
        budget_bytes: usize,
    ) -> Result<Received, Error> {
        match self {
            Self::Tcp(stream) => stream.receive(scratch, sink, budget_bytes),
            // A client has few enough calls outstanding that one turn receives all of them.
            Self::Rdma(responder) => Ok(responder.receive(sink)?),
        }
    }

    pub fn push(&mut self, payload: Payload, payload_len: usize, head: impl FnOnce(&mut Vec<u8>)) {
        match self {
            Self::Tcp(stream) => stream.push(payload, payload_len, head),
            Self::Rdma(responder) => responder.push(payload, payload_len, head),
        }
    }

    /// Sends queued replies, over TCP no more than about `budget_bytes`: over RDMA the device sends
    /// in parallel.
    pub fn flush(&mut self, budget_bytes: usize) -> Result<Flushed, Error> {
        match self {
            Self::Tcp(stream) => stream.flush_some(&Pinned, budget_bytes),
            Self::Rdma(responder) => {
                Ok(if responder.flush(&Pinned)? { Flushed::All } else { Flushed::PeerIsFull })
            }
        }
    }

    pub fn queued_bytes(&self) -> usize {
        match self {
            Self::Tcp(stream) => stream.queued_bytes(),
            Self::Rdma(responder) => responder.queued_bytes(),
        }
    }

    pub fn queued_records(&self) -> usize {
        match self {
            Self::Tcp(stream) => stream.queued_records(),
            Self::Rdma(responder) => responder.queued_records(),
        }
    }

    /// Memory that the connection holds: queued replies, and the received part of an incomplete
    /// record. RDMA Reads of client memory have a bound of their own.
    pub fn holds(&self) -> usize {
        match self {
            Self::Tcp(stream) => stream.queued_bytes() + stream.held_bytes() + stream.landing_bytes(),
            Self::Rdma(responder) => responder.queued_bytes(),
        }
    }

    /// Asks whether the peer is still alive, where the system does not.
    pub fn ask(&mut self) -> Result<(), Error> {
        match self {
            Self::Tcp(_) => Ok(()),
            Self::Rdma(responder) => Ok(responder.ask()?),
        }
    }

    pub fn within_record(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.within_record(),
            // A message is received whole or not at all.
            Self::Rdma(_) => false,
        }
    }

    /// Bytes that were sent and that the peer has not acknowledged; `None` where the system does
    /// not say. `unsent`: over RDMA, not all replies are known to have reached the client.
    pub fn unacknowledged_bytes(&self, unsent: bool) -> Option<u64> {
        match self {
            Self::Tcp(stream) => socket::unacknowledged_bytes(stream.fd()).ok().map(|bytes| bytes as u64),
            Self::Rdma(_) => (!unsent).then_some(0),
        }
    }

    /// Whether both sides may still send.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Tcp(stream) => socket::tcp_info(stream.fd()).is_ok_and(|info| info.is_established),
            // The end of the connection is reported as an error of the next turn.
            Self::Rdma(_) => true,
        }
    }

    /// Whether the peer has closed the connection in order.
    pub fn is_closed_by_peer(&self) -> bool {
        match self {
            Self::Tcp(stream) => socket::tcp_info(stream.fd()).is_ok_and(|info| info.is_closed_by_peer),
            // A disconnection does not make earlier sends fail; a failed send is reported
            // otherwise, and ends the connection differently.
            Self::Rdma(_) => true,
        }
    }

    /// RDMA counters of the connection.
    pub fn rdma(&self) -> Counters {
        match self {
            Self::Tcp(_) => Counters::default(),
            Self::Rdma(responder) => responder.counters(),
        }
    }

    pub fn incomplete_bytes(&self) -> usize {
        match self {
            Self::Tcp(stream) => stream.incomplete_bytes(),
            Self::Rdma(_) => 0,
        }
    }

    /// Ends the connection; with `reset`, nothing more is delivered. This also returns memory to
    /// its store that a payload was being received into. Connections over RDMA end on another
    /// thread, and the poller forgets them before.
    pub fn end(self, reset: bool, poller: &Poller, peers: &Peers) {
        match self {
            Self::Tcp(stream) if reset => drop(stream.abort()),
            Self::Tcp(stream) => drop(stream),
            Self::Rdma(responder) => {
                for fd in responder.fds().into_iter().flatten() {
                    // A descriptor that was never registered need not be removed.
                    let _ = poller.remove(fd);
                }
                peers.end_over_rdma(responder);
            }
        }
    }
}

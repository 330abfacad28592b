//! RDMA connections, as both ends drive them from an event loop.
//!
//! An [`Endpoint`] is one end of a connection: it owns the queue pair, a ring of receives, room for
//! sends and a pool of registered memory ([`Buffer`]), and carries out the outputs of the state
//! machines of `rpcrdma`. It knows nothing about calls.
//!
//! - A server creates a [`Listener`], takes [`Incoming`] connections from it, and turns each into
//!   an endpoint on the loop that is to own it: [`Incoming::prepare`], [`Endpoint::post_receives`],
//!   [`Endpoint::accept`].
//! - A client begins with [`Endpoint::connect`] and posts receives once [`Event::Connected`]
//!   reports what was agreed.
//! - Both wait for [`Endpoint::fds`] (both descriptors under one token, readable only), call
//!   [`Endpoint::wake`] when one of them is readable, and then [`Endpoint::poll`] until it returns
//!   nothing more. Each received message uses one place in the ring: post a receive for it.
//! - Work is posted at any time, in order, and never blocks: work without room waits in the
//!   endpoint. An owner that needs to know when a piece of work is done gives it a tag, which is
//!   returned in [`Event::Done`]. Work without a tag is done when later work is done, and its
//!   buffers are kept until then: let a send follow writes.
//! - A client may lend memory of a caller to the server for the time of one call:
//!   `endpoint/lending.rs`.
//! - Any error ends the connection. Drop the endpoint then: this destroys the queue pair first, so
//!   that afterwards no peer can access the memory of its buffers, even if another owner still
//!   holds one. This is the fence before such memory is used again.
//!
//! [`Requester`] is a client's connection built on an endpoint, [`Responder`] a server's: calls and
//! replies, as the state machines of `rpcrdma` frame them. [`Lender`] is a client's connection for
//! a protocol that is not RPC, and [`Carrier`] a server's.
//!
//! Everything runs on the calling thread; nothing blocks except the system calls that create and
//! destroy objects.

mod call;
mod carrier;
mod direct;
mod domain;
mod endpoint;
mod lender;
mod listener;
mod pool;
mod requester;
mod responder;

pub use carrier::{Carrier, Moved, Outgoing, Remote, Room};
pub use direct::Pieces;
pub use endpoint::Endpoint;
pub use lender::{Heard, Lender};
pub use listener::{Incoming, Listener};
pub use pool::{Buffer, Part};
pub use requester::{Connecting, Requester};
pub use responder::Responder;
pub use rpcrdma::connect::{Agreed, Offer};
pub use verbs::{Access, Error as VerbsError};

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::poll::Poller;
use crate::{Slices, Source};

/// The port of NFS over RDMA. RFC 8267 s7
pub const NFS_PORT: u16 = 20049;

/// The options of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What is offered to the peer: sizes of messages.
    pub offer: Offer,
    /// Places in the ring of receives, each for one message of the offered size.
    pub receives: u32,
    /// Pieces of work that may be posted at a time; further work waits.
    pub work: u32,
    /// Messages that may be in flight at a time; further messages wait. Must exceed
    /// [`SIGNALLED_EACH`].
    pub sends: u32,
    /// RDMA reads of the peer's memory that this end has in flight at a time, as far as the peer
    /// allows. The largest number means the device's limit, here and below.
    pub reads_made: u8,
    /// RDMA reads of this end's memory that are served at a time.
    pub reads_served: u8,
    /// Maximum size of the pool of registered memory, in bytes.
    pub pool_bytes_max: usize,
    /// Memory windows that a client has at most, to lend memory of its callers to the server.
    pub windows: u32,
    /// How long each step of resolving the route to a server may take.
    pub resolve_within: Duration,
}

/// At least one of this many consecutive pieces of work without a tag has a completion.
pub const SIGNALLED_EACH: usize = 16;

/// A rejection because nothing listens: the reason on InfiniBand and RoCE, and iWARP's error
/// number.
const NOBODY_LISTENS: [i32; 2] = [8, -libc::ECONNREFUSED];

impl Default for Options {
    fn default() -> Self {
        Self {
            offer: Offer::default(),
            receives: 64,
            work: 256,
            sends: 96,
            reads_made: u8::MAX,
            reads_served: u8::MAX,
            pool_bytes_max: 32 << 20,
            windows: 0,
            resolve_within: Duration::from_secs(2),
        }
    }
}

/// An event at an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<T> {
    /// The endpoint is connected, with these parameters. A server's endpoint may receive before
    /// this event.
    Connected(Agreed),
    /// A message was received; it is in the given inbox.
    Received,
    /// The work with this tag and all work posted before it are done.
    Done(T),
}

/// The counters of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent.
    pub sends: u64,
    /// Messages received.
    pub receives: u64,
    /// Receives posted.
    pub places: u64,
    /// RDMA writes posted.
    pub writes: u64,
    /// Bytes of the RDMA writes.
    pub written_bytes: u64,
    /// RDMA reads posted.
    pub reads: u64,
    /// Bytes of the RDMA reads.
    pub read_bytes: u64,
    /// Payload bytes that this process copied between the owner's memory and the endpoint's.
    pub copied_bytes: u64,
    /// Pieces of memory that were lent to the peer for one call, by a memory window.
    pub lent: u64,
    /// Completions handled, of work and of receives.
    pub completions: u64,
    /// How often the completion queue was armed, to be woken by the next completion.
    pub arms: u64,
    /// Completion events, which are interrupts of a device.
    pub notices: u64,
}

impl Counters {
    /// Adds the counters of another endpoint.
    pub const fn add(&mut self, other: &Self) {
        self.sends += other.sends;
        self.receives += other.receives;
        self.places += other.places;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.copied_bytes += other.copied_bytes;
        self.lent += other.lent;
        self.completions += other.completions;
        self.arms += other.arms;
        self.notices += other.notices;
    }

    /// Work requests posted: messages, RDMA writes and reads, and receives.
    #[must_use]
    pub const fn work(&self) -> u64 {
        self.sends + self.writes + self.reads + self.places
    }
}

/// Why a connection has ended or could not be established.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the libraries or the system: [`verbs::Error`] says which side is at fault, and
    /// how to fix it.
    #[error(transparent)]
    Verbs(#[from] verbs::Error),
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer has RDMA, but nothing accepts connections there.
    #[error("nobody takes connections over RDMA at {0}")]
    NotListening(SocketAddr),
    /// The peer does not answer.
    #[error("{0} does not answer over RDMA: it has no RDMA device, or is not there")]
    Unreachable(SocketAddr),
    /// Work failed: the peer is gone, or did not permit this access to its memory.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The peer no longer acknowledged what was sent.
    #[error("the peer fell silent: {0}")]
    Unacknowledged(String),
    /// The device was removed.
    #[error("the RDMA device was removed")]
    DeviceGone,
    /// The peer violated the protocol.
    #[error("{0}")]
    Protocol(#[from] rpcrdma::client::CloseReason),
    /// The peer, a client, violated the protocol.
    #[error("{0}")]
    Client(#[from] rpcrdma::server::CloseReason),
    /// The caller misused the interface.
    #[error("{0}")]
    Misuse(&'static str),
    /// The caller made an invalid call.
    #[error(transparent)]
    Call(#[from] rpcrdma::client::Misuse),
    /// The caller sent an invalid message in the other direction.
    #[error(transparent)]
    Reverse(#[from] rpcrdma::reverse::Misuse),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Makes a poller forget the descriptors of a connection that ends: they are closed later, on
/// another thread.
fn forget(fds: [Option<BorrowedFd<'_>>; 2], poller: &Poller) {
    for fd in fds.into_iter().flatten() {
        // A descriptor that was never registered need not be removed.
        let _ = poller.remove(fd);
    }
}

/// Whether an RPC message is a call: its second word is 0. RFC 5531 s9
fn is_call(message: &[u8]) -> bool {
    message.get(4..8) == Some(&[0; 4])
}

/// A message with its payload and padding, which goes inline.
fn inline<P>(mut head: Vec<u8>, payload: &P, source: &impl Source<P>) -> Vec<u8> {
    let mut pieces = Slices::new();
    source.slices(payload, &mut pieces);
    pieces.iter().for_each(|piece| head.extend_from_slice(piece));
    head.resize(head.len().next_multiple_of(4), 0);
    head
}

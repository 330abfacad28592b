//! Connections over RDMA, as both ends drive them from an event loop.
//!
//! An [`Endpoint`] is one end of a connection: it owns the queue pair, a ring of receives, room for
//! sends and a pool of registered memory ([`Buffer`]), and does what the machines of `rpcrdma` put
//! out. It knows no calls.
//!
//! - A server makes a [`Listener`], takes [`Incoming`] from it, and turns that into an endpoint on
//!   the loop that shall have it: [`Incoming::prepare`], [`Endpoint::post_receives`],
//!   [`Endpoint::accept`].
//! - A client begins with [`Endpoint::connect`] and posts receives once [`Event::Connected`] says
//!   what was agreed.
//! - Both wait for [`Endpoint::fds`] (both descriptors under one token, readable only), call
//!   [`Endpoint::wake`] when one of them is, and then [`Endpoint::poll`] until it says nothing
//!   more. Each message that is received leaves one place in the ring: post a receive for it.
//! - Work is posted at any time, in order, and never blocks: what has no room yet waits in the
//!   endpoint. Who needs to know that a piece of work is done gives it a tag, and gets that back in
//!   [`Event::Done`]. Work without a tag is done when work behind it is, and its buffers are kept
//!   until then: let a send follow writes.
//! - Any error ends the connection. Drop the endpoint then: that ends the queue pair first, so that
//!   afterwards no peer reaches the memory of its buffers, whoever still holds one. This is the
//!   fence before such memory is used again.
//!
//! [`Requester`] is a client's connection on top of it, [`Responder`] a server's: calls and
//! replies, as the machines of `rpcrdma` frame them.
//!
//! Everything runs on the thread that calls; nothing blocks but what the system does to make and
//! end objects.

mod endpoint;
mod listener;
mod pool;
mod requester;
mod responder;

pub use endpoint::Endpoint;
pub use listener::{Incoming, Listener};
pub use pool::{Buffer, Part};
pub use requester::{Expect, Requester};
pub use responder::Responder;
pub use rpcrdma::connect::{Agreed, Offer};
pub use verbs::{Access, Error as VerbsError};

use std::net::SocketAddr;
use std::time::Duration;

/// The port of NFS over RDMA. RFC 8267 s7
pub const NFS_PORT: u16 = 20049;

/// What an endpoint is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What is told to the other end: sizes of messages.
    pub offer: Offer,
    /// Places in the ring of receives, each for one message of the offered size.
    pub receives: u32,
    /// Pieces of work that may be posted at a time; more wait.
    pub work: u32,
    /// Messages that may be under way at a time; more wait. More than [`SIGNALLED_EACH`].
    pub sends: u32,
    /// RDMA reads of the other end's memory that we have under way at a time, as far as it allows.
    /// The highest number is what our device can do, here and below.
    pub reads_made: u8,
    /// RDMA reads of our memory that we serve at a time.
    pub reads_served: u8,
    /// The most bytes of the pool of registered memory.
    pub pool_bytes_max: usize,
    /// How long each step of finding the way to a server may take.
    pub resolve_within: Duration,
}

/// Of so many pieces of work without a tag at least one has a completion.
pub const SIGNALLED_EACH: usize = 16;

/// A rejection because nobody listens: InfiniBand's and RoCE's reason, and iWARP's error number.
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
            resolve_within: Duration::from_secs(2),
        }
    }
}

/// What happened at an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<T> {
    /// It is connected: this holds between both ends. An endpoint of a server may receive before it
    /// hears this.
    Connected(Agreed),
    /// A message was received; it is in the inbox that was given.
    Received,
    /// The work with this tag is done, and all that was posted before it.
    Done(T),
}

/// What an endpoint has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent.
    pub sends: u64,
    /// Messages received.
    pub receives: u64,
    /// Places posted for messages to be received.
    pub places: u64,
    /// RDMA writes posted, and their bytes.
    pub writes: u64,
    /// Bytes of those.
    pub written_bytes: u64,
    /// RDMA reads posted, and their bytes.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Completions taken, of work and of receives.
    pub completions: u64,
    /// Times that the completion queue was armed, so as to be woken by the next completion.
    pub arms: u64,
    /// Notices of completions, which are interrupts of a device.
    pub notices: u64,
}

impl Counters {
    /// Adds what another endpoint has done.
    pub const fn add(&mut self, other: &Self) {
        self.sends += other.sends;
        self.receives += other.receives;
        self.places += other.places;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.completions += other.completions;
        self.arms += other.arms;
        self.notices += other.notices;
    }

    /// Work requests posted: messages, RDMA writes and reads, and places for messages.
    #[must_use]
    pub const fn work(&self) -> u64 {
        self.sends + self.writes + self.reads + self.places
    }
}

/// Why there is no connection any more, or none at all. Each of these ends it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the libraries or the system said: [`verbs::Error`] tells whose fault it is, and what
    /// mends it.
    #[error(transparent)]
    Verbs(#[from] verbs::Error),
    /// The other end closed it.
    #[error("the peer closed the connection")]
    Closed,
    /// The other end has RDMA, but nobody waits for connections there.
    #[error("nobody takes connections over RDMA at {0}")]
    NotListening(SocketAddr),
    /// The other end does not answer.
    #[error("{0} does not answer over RDMA: it has no RDMA device, or is not there")]
    Unreachable(SocketAddr),
    /// Work failed: the other end is gone, or refused to have its memory read or written like that.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The device goes away.
    #[error("the RDMA device was removed")]
    DeviceGone,
    /// The other end breaks the protocol.
    #[error("{0}")]
    Protocol(#[from] rpcrdma::client::CloseReason),
    /// The other end, a client, breaks the protocol.
    #[error("{0}")]
    Client(#[from] rpcrdma::server::CloseReason),
    /// The caller asked for something that makes no sense.
    #[error("{0}")]
    Misuse(&'static str),
    /// The caller made a call that makes no sense.
    #[error(transparent)]
    Call(#[from] rpcrdma::client::Misuse),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

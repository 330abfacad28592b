//! Carries RPC records whose payload is marked, so that each transport can move payload in its own
//! way.
//!
//! A loop drives a [`Transport`], which hands received records to a [`Sink`]. The sink may provide
//! memory for a record's payload ([`Sink::choose_receive_buffer`]). The transport sends heads
//! together with payload that is gathered from its [`Source`]. Messages go both ways: each end
//! sends calls and replies.
//!
//! [`Stream`] is a stream socket: TCP, or within a process with [`Stream::pair`]. How records are
//! told apart there is its parameter ([`framing`]). [`rdma::Requester`] and [`rdma::Responder`] are
//! the ends of a connection over RDMA. [`AnyTransport`] is one or the other. [`Faulty`] adds faults
//! to any transport for tests.
//!
//! Invariants: one thread owns a transport; nothing here blocks; a record's length is checked
//! against its bound before memory is allocated for it; a warm stream allocates nothing.

pub mod address;
mod any;
pub mod busy;
mod connection;
pub mod descriptors;
pub mod fault;
pub mod framing;
mod inbound;
mod outbound;
mod pipe;
pub mod poll;
pub mod rdma;
pub mod socket;
mod stream;
pub mod threads;

use std::io::{IoSlice, IoSliceMut};

use smallvec::SmallVec;

pub use address::{Address, AddressError, parse_with_port};
pub use any::AnyTransport;
pub use connection::{Ended, Expect, PayloadPlace, ReceiveBuffer, Remains, Sink, Source, Transport};
pub use fault::{Fault, Faulty};
pub use inbound::{Received, Scratch};
pub use outbound::Flushed;
pub use pipe::Pipe;
pub use stream::{Limits, Stream};

/// Records at least this long are offered to [`Sink::choose_receive_buffer`]; for shorter ones a
/// copy costs less than a separate receive.
pub const DIRECT_BYTES_MIN: usize = 16 << 10;

/// [`Sink::choose_receive_buffer`] sees at least this much of a record: an RPC head with the
/// largest credential and verifier (RFC 5531 s8.2: 400 bytes each) and the arguments before the
/// payload.
pub const HEAD_BYTES_MIN: usize = 1024;

/// Number of pieces that a send gathers without allocating memory for the list.
pub(crate) const INLINE_PIECES: usize = 128;

/// The gathered pieces of a send.
pub type Slices<'a> = SmallVec<[IoSlice<'a>; INLINE_PIECES]>;

/// Pieces of memory to receive into.
pub type SlicesMut<'a> = SmallVec<[IoSliceMut<'a>; 20]>;

/// Why a transport is finished. Each of these errors ends the connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer closed the connection in order, between records.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer closed in the middle of a record.
    #[error("the peer closed the connection within a record")]
    Truncated,
    /// The peer sent something that the framing does not allow here, or more than the bound.
    #[error("bad record: {0}")]
    Record(#[from] framing::FramingError),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// An RDMA connection broke, or its peer violated the protocol.
    #[error(transparent)]
    Rdma(#[from] rdma::Error),
    /// A fault injected by a test.
    #[error("an injected fault cut the connection")]
    Injected,
}

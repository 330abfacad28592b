//! Carries RPC records whose payload is marked, so that each transport can move payload in its own
//! way.
//!
//! A loop drives a [`Transport`], which hands received records to a [`Sink`]. The sink may provide
//! memory for a record's payload ([`Sink::place`]). The transport sends heads together with payload
//! that is gathered from its [`Source`]. [`Stream`] is record marking over a stream socket (RFC
//! 5531 s11): TCP, or within a process with [`Stream::pair`]. [`Faulty`] adds faults to any
//! transport for tests.
//!
//! Invariants: one thread owns a transport; nothing here blocks; a record's length is checked
//! against its bound before memory is allocated for it; a warm stream allocates nothing.

pub mod address;
pub mod busy;
pub mod descriptors;
pub mod fault;
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
pub use fault::{Fault, Faulty};
pub use inbound::{Received, Scratch, TAIL_BYTES_MAX};
pub use outbound::Flushed;
pub use pipe::Pipe;
pub use stream::{Limits, Stream};

/// Records at least this long are offered to [`Sink::place`]; for shorter ones a copy costs less
/// than a separate receive.
pub const DIRECT_BYTES_MIN: usize = 16 << 10;

/// [`Sink::place`] sees at least this much of a record: an RPC head with the largest credential and
/// verifier (RFC 5531 s8.2: 400 bytes each) and the arguments before the payload.
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
    /// The peer sent something that RFC 5531 s11 does not allow here, or more than the bound.
    #[error("bad record: {0}")]
    Record(#[from] rpc::record::RecordError),
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

/// Memory into which a payload is received.
pub trait ReceiveBuffer {
    /// Appends the pieces that are still to be filled; the first `from` bytes are already there.
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>);

    /// A pipe that takes the payload instead, if the transport is a stream.
    fn pipe(&mut self) -> Option<&mut Pipe> {
        None
    }

    /// Leaves the pipe, which takes no more: its contents are moved to memory, and so is the rest
    /// of the payload. Afterwards [`ReceiveBuffer::pipe`] returns `None`.
    ///
    /// # Errors
    /// If the contents of the pipe cannot be read back: the payload is lost.
    fn leave_pipe(&mut self) -> std::io::Result<()> {
        // A receive buffer with a pipe implements this.
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Where the payload of a record is to be received.
#[derive(Debug)]
pub struct Place<L> {
    /// The offset of the payload's first byte in the record.
    pub at: usize,
    /// The payload's length, without padding.
    pub len: usize,
    /// The receive buffer, exactly `len` bytes.
    pub receive_buffer: L,
}

/// Receives the records of a connection for its owner.
pub trait Sink {
    /// The memory that the sink provides for payloads.
    type ReceiveBuffer: ReceiveBuffer;

    /// Offers to receive the payload of a long record in place. `head` is the record's beginning,
    /// at least [`HEAD_BYTES_MIN`] bytes. If this returns `None`, the record is assembled and
    /// passed to [`Sink::record`]. The same happens, and the receive buffer is dropped, if more
    /// than [`TAIL_BYTES_MAX`] bytes follow the payload.
    fn place(&mut self, head: &[u8], record_len: usize) -> Option<Place<Self::ReceiveBuffer>>;

    /// Called before each receive: the records passed to the sink until the next call of this were
    /// received at once.
    fn receiving(&mut self) {}

    /// Takes a whole record.
    fn record(&mut self, record: &[u8]);

    /// Takes a record whose payload was received in place: `head` before it, `tail` (padding) after
    /// it.
    fn received(&mut self, head: &[u8], receive_buffer: Self::ReceiveBuffer, tail: &[u8]);

    /// Whether the sink accepts the next record. After `false` the owner calls
    /// [`Transport::receive`] again once the sink can accept more, without waiting for the socket:
    /// records may be waiting in the transport.
    fn wants_more(&self) -> bool {
        true
    }
}

/// Finds the bytes of a queued payload. The queue holds only `P`, so that the payload is not moved.
pub trait Source<P> {
    /// Appends the pieces of a payload.
    fn slices<'a>(&'a self, payload: &'a P, out: &mut Slices<'a>);
}

/// A connection that a loop drives. `P` names a queued payload, `L` is a receive buffer.
pub trait Transport<P, L: ReceiveBuffer> {
    /// Receives until nothing is waiting, the sink wants no more, or `budget_bytes` have been
    /// received.
    ///
    /// # Errors
    /// Any [`Error`]; the connection is then finished.
    fn receive(
        &mut self,
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
        budget_bytes: usize,
    ) -> Result<Received, Error>;

    /// Queues a record: the bytes that `head` appends, then `payload_len` bytes of payload with
    /// their padding.
    fn push(&mut self, payload: P, payload_len: usize, head: impl FnOnce(&mut Vec<u8>));

    /// Sends queued records, as far as the peer accepts them; returns true if everything was sent.
    ///
    /// # Errors
    /// Any [`Error`]; the connection is then finished.
    fn flush(&mut self, source: &impl Source<P>) -> Result<bool, Error>;

    /// Bytes queued and not yet accepted by the system.
    fn queued_bytes(&self) -> usize;
}

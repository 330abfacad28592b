//! Carries RPC records whose payload is marked, so that each transport can move payload its own
//! way.
//!
//! [`Transport`] is what a loop drives: it hands received records to a [`Sink`], which may name
//! memory for a record's payload ([`Sink::place`]), and it sends heads with their payload gathered
//! from wherever it lies ([`Source`]). [`Stream`] is record marking over a stream socket (RFC 5531
//! s11): TCP, or within a process with [`Stream::pair`]. [`Faulty`] decorates any transport with
//! faults for tests.
//!
//! Invariants: one thread owns a transport; nothing here blocks; a record's length is held against
//! its bound before memory is taken for it; a warm stream allocates nothing.

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

pub use fault::{Fault, Faulty};
pub use inbound::{Received, Scratch, TAIL_BYTES_MAX};
pub use outbound::Flushed;
pub use pipe::Pipe;
pub use stream::{Limits, Stream};

/// Records at least this long are offered to [`Sink::place`]; below it a copy costs less than a
/// receive of its own.
pub const DIRECT_BYTES_MIN: usize = 16 << 10;

/// [`Sink::place`] sees at least this much of a record: an RPC head with the largest credential and
/// verifier (RFC 5531 s8.2: 400 bytes each) and the arguments before the payload.
pub const HEAD_BYTES_MIN: usize = 1024;

/// Pieces that a send gathers without taking memory for their list.
pub(crate) const INLINE_PIECES: usize = 128;

/// Gathered pieces of a send.
pub type Slices<'a> = SmallVec<[IoSlice<'a>; INLINE_PIECES]>;

/// Pieces of memory to receive into.
pub type SlicesMut<'a> = SmallVec<[IoSliceMut<'a>; 20]>;

/// Why a transport is finished. Each of these ends the connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer closed in good order, between records.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer closed in the middle of a record.
    #[error("the peer closed the connection within a record")]
    Truncated,
    /// The peer sent what RFC 5531 s11 does not allow here, or more than the bound.
    #[error("bad record: {0}")]
    Record(#[from] rpc::record::RecordError),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A connection over RDMA broke, or its peer broke the protocol.
    #[error(transparent)]
    Rdma(#[from] rdma::Error),
    /// A fault that a test asked for.
    #[error("an injected fault cut the connection")]
    Injected,
}

/// Memory that a payload is received into.
pub trait ReceiveBuffer {
    /// The pieces that are still to be filled, the first `from` bytes being there already.
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>);

    /// A pipe that takes the payload instead, where the transport is a stream.
    fn pipe(&mut self) -> Option<&mut Pipe> {
        None
    }

    /// The pipe takes no more: what it has goes to memory, as will the rest. Afterwards
    /// [`ReceiveBuffer::pipe`] gives none.
    ///
    /// # Errors
    /// When what is in the pipe cannot be had back: the payload is lost.
    fn leave_pipe(&mut self) -> std::io::Result<()> {
        // Whoever has a pipe can leave it.
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Where the payload of a record is to be received.
#[derive(Debug)]
pub struct Place<L> {
    /// The payload's first byte within the record.
    pub at: usize,
    /// The payload's length, without padding.
    pub len: usize,
    /// Its memory, exactly `len` bytes.
    pub receive_buffer: L,
}

/// What the owner of a connection does with received records.
pub trait Sink {
    /// The memory it can offer.
    type ReceiveBuffer: ReceiveBuffer;

    /// Offers to receive the payload of a long record in place. `head` is the record's beginning,
    /// at least [`HEAD_BYTES_MIN`] bytes. `None`: the record is assembled and comes by
    /// [`Sink::record`]. So it is with a place that more than [`TAIL_BYTES_MAX`] bytes follow: its
    /// landing is dropped.
    fn place(&mut self, head: &[u8], record_len: usize) -> Option<Place<Self::ReceiveBuffer>>;

    /// More is about to be received. What comes until this is called again was received at once.
    fn receiving(&mut self) {}

    /// Takes a whole record.
    fn record(&mut self, record: &[u8]);

    /// Takes a record whose payload was received in place: `head` before it, `tail` (padding) after
    /// it.
    fn received(&mut self, head: &[u8], receive_buffer: Self::ReceiveBuffer, tail: &[u8]);

    /// Whether the next record may come. After a `false` the owner calls [`Transport::receive`]
    /// again once it can take more, without waiting for the socket: records may be waiting here.
    fn wants_more(&self) -> bool {
        true
    }
}

/// Finds the bytes of a queued payload. The queue holds only `P`, so that payload stays where it
/// is.
pub trait Source<P> {
    /// Appends the pieces of a payload.
    fn slices<'a>(&'a self, payload: &'a P, out: &mut Slices<'a>);
}

/// What a loop drives. `P` names a queued payload, `L` is memory for received ones.
pub trait Transport<P, L: ReceiveBuffer> {
    /// Receives until nothing is waiting, the sink wants no more, or `budget_bytes` have come.
    ///
    /// # Errors
    /// Any [`Error`]; the connection is then finished.
    fn receive(
        &mut self,
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
        budget_bytes: usize,
    ) -> Result<Received, Error>;

    /// Queues a record: what `head` appends, then `payload_len` bytes of payload with their
    /// padding.
    fn push(&mut self, payload: P, payload_len: usize, head: impl FnOnce(&mut Vec<u8>));

    /// Sends what is queued, as far as the peer takes it; true when all is sent.
    ///
    /// # Errors
    /// Any [`Error`]; the connection is then finished.
    fn flush(&mut self, source: &impl Source<P>) -> Result<bool, Error>;

    /// Bytes queued and not yet taken by the system.
    fn queued_bytes(&self) -> usize;
}

//! How records are told apart in a stream of bytes: a parameter of [`Stream`](crate::Stream).
//!
//! Each protocol over a stream puts a header before its records (RPC: a record mark; NVMe/TCP: the
//! common header of a PDU) and may let something follow them (padding, a digest). The stream knows
//! neither; it asks its [`Framing`], which the compiler knows, so nothing is dispatched or
//! allocated for it.

mod record_marking;

pub use record_marking::RecordMarking;

use std::fmt::Debug;

/// No framing has more bytes after a record's payload than this.
pub(crate) const TAIL_BYTES_ROOM: usize = 8;

/// Why received bytes are no record. The peer is at fault, and the bytes that follow have no
/// meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// The record is longer than its bound.
    #[error("record of at least {bytes} bytes, the bound is {max}")]
    TooLong {
        /// The announced length.
        bytes: u64,
        /// The bound.
        max: usize,
    },
    /// The header is not valid.
    #[error("{0}")]
    Malformed(String),
}

/// What a header says about the record behind it.
#[derive(Debug)]
pub enum Frame<A> {
    /// The record is contiguous.
    Whole {
        /// Bytes at the front that are not part of the record.
        skip: usize,
        /// Bytes of the record after them.
        len: usize,
    },
    /// The record is cut into several parts with a header each: the slow path. The assembler takes
    /// all bytes, from the first header on.
    Parts(A),
}

/// Puts records together that are cut into parts.
pub trait Assemble: Debug {
    /// Takes from `bytes` until the record is complete or `bytes` is empty, and advances `bytes`.
    ///
    /// # Errors
    /// [`FramingError`]; the connection is then finished.
    fn feed(&mut self, bytes: &mut &[u8]) -> Result<Option<&[u8]>, FramingError>;

    /// Bytes of memory held for the record.
    fn held_bytes(&self) -> usize;

    /// What was received of the record.
    fn beginning(&self) -> &[u8];
}

/// For a framing that never cuts a record.
impl Assemble for std::convert::Infallible {
    fn feed(&mut self, _bytes: &mut &[u8]) -> Result<Option<&[u8]>, FramingError> {
        match *self {}
    }

    fn held_bytes(&self) -> usize {
        match *self {}
    }

    fn beginning(&self) -> &[u8] {
        match *self {}
    }
}

/// The bytes that follow the payload of a sent record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trailer {
    bytes: [u8; TAIL_BYTES_ROOM],
    len: u8,
}

impl Trailer {
    /// This many zeroes, at most eight.
    #[must_use]
    pub const fn zeroes(len: usize) -> Self {
        let len = if len < TAIL_BYTES_ROOM { len } else { TAIL_BYTES_ROOM };
        Self { bytes: [0; TAIL_BYTES_ROOM], len: len as u8 }
    }

    /// These bytes, at most eight.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut this = Self::zeroes(bytes.len());
        for (place, byte) in this.bytes.iter_mut().zip(bytes) {
            *place = *byte;
        }
        this
    }

    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len()).unwrap_or_default()
    }
}

/// How records are framed.
pub trait Framing: Debug {
    /// The most bytes that follow the payload of a record that is received in place.
    const TAIL_BYTES_MAX: usize;

    /// Whether a short record may be sent before long ones that were queued earlier.
    const MAY_OVERTAKE: bool;

    /// Puts records together that are cut into parts.
    type Assembler: Assemble;

    /// Parses the header at the front of `bytes`; `None` if more bytes are needed for that.
    ///
    /// # Errors
    /// [`FramingError`]: also if the record is longer than `record_bytes_max`. Nothing has been
    /// allocated for it then.
    fn parse(bytes: &[u8], record_bytes_max: usize) -> Result<Option<Frame<Self::Assembler>>, FramingError>;

    /// The part of `bytes` that belongs to the record whose header [`Framing::parse`] refused;
    /// empty if the framing does not say.
    fn beginning(_bytes: &[u8]) -> &[u8] {
        &[]
    }

    /// Appends what stands before the head of a record that is to be sent; its length may not be
    /// known yet.
    fn begin(heads: &mut Vec<u8>);

    /// Completes the header of the record that starts at `start` in `heads` and whose head is now
    /// there, for `payload_len` bytes of payload. Returns what follows the payload. A framing with
    /// a digest of the payload takes it from the end of the head, where its caller has put it.
    fn seal(heads: &mut Vec<u8>, start: usize, payload_len: usize) -> Trailer;
}

#[cfg(test)]
mod tests;

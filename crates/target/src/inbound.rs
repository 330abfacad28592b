//! The receiving half of a connection: where the bytes of the stream belong.
//!
//! It knows the parts of a PDU but not what they mean; [`Connection`](crate::connection::Connection)
//! does.

use nvme::digest::DIGEST_BYTES;
use nvme::pdu::{HEADER_BYTES_MIN, Layout};
use std::time::Instant;

/// Received along with data that go to their place: a few headers. More could be data that have to
/// be copied.
pub(crate) const BESIDE_DATA_BYTES: usize = 2048;
/// Fewer missing data than this are copied from the scratch memory: a receive of their own costs
/// more.
pub(crate) const DIRECT_BYTES_MIN: usize = 16 << 10;
/// The scratch memory of a loop.
pub(crate) const SCRATCH_BYTES: usize = 64 << 10;

/// Where data are placed.
#[derive(Debug)]
pub(crate) enum Place {
    /// Nowhere: their command was answered already.
    Nowhere,
    /// In memory of their own, as data of admin commands.
    Own(Vec<u8>),
    /// In the buffers of the I/O command with this tag, from this byte on.
    Command { tag: u16, offset: usize },
    /// In the memory of the admin command with this tag.
    Admin { tag: u16, offset: usize },
    /// In the memory of the message of authentication.
    Authentication { offset: usize },
}

/// Data that are being received.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) place: Place,
    pub(crate) bytes: usize,
    pub(crate) filled: usize,
    pub(crate) trailer: [u8; DIGEST_BYTES],
    pub(crate) trailer_bytes: usize,
    pub(crate) trailer_filled: usize,
}

impl Data {
    pub(crate) fn new(layout: &Layout, place: Place) -> Self {
        let trailer_bytes = if layout.has_data_digest { DIGEST_BYTES } else { 0 };
        let bytes = layout.data_bytes as usize;
        Self { place, bytes, filled: 0, trailer: [0; DIGEST_BYTES], trailer_bytes, trailer_filled: 0 }
    }

    pub(crate) const fn missing(&self) -> usize {
        self.bytes - self.filled
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.missing() == 0 && self.trailer_filled == self.trailer_bytes
    }

    /// Takes the digest from the front of `bytes`, as far as it is there.
    pub(crate) fn take_trailer<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (now, rest) = bytes.split_at(bytes.len().min(self.trailer_bytes - self.trailer_filled));
        if let Some(place) = self.trailer.get_mut(self.trailer_filled..self.trailer_filled + now.len()) {
            place.copy_from_slice(now);
        }
        self.trailer_filled += now.len();
        rest
    }

    pub(crate) fn received_digest(&self) -> &[u8] {
        self.trailer.get(..self.trailer_bytes).unwrap_or_default()
    }
}

/// What the next bytes belong to.
#[derive(Debug)]
pub(crate) enum State {
    /// A header, with its digest and the padding behind it.
    Head,
    /// The data of a PDU, and their digest.
    Data(Data),
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) state: State,
    /// The beginning of a PDU.
    pub(crate) head: Vec<u8>,
    pub(crate) layout: Option<Layout>,
    /// Bytes that were received while no commands were wanted.
    pub(crate) unparsed: Vec<u8>,
    /// Since when a PDU is incomplete.
    pub(crate) since: Option<Instant>,
}

impl Inbound {
    pub(crate) const fn new() -> Self {
        Self { state: State::Head, head: Vec::new(), layout: None, unparsed: Vec::new(), since: None }
    }

    /// Whether a part of a PDU was received.
    pub(crate) const fn within_pdu(&self) -> bool {
        !self.head.is_empty() || matches!(self.state, State::Data(_))
    }

    /// Appends to the head until it has this many bytes; returns the rest, and whether it has.
    pub(crate) fn fill_head<'a>(&mut self, bytes: &'a [u8], wanted: usize) -> (&'a [u8], bool) {
        let (now, rest) = bytes.split_at(bytes.len().min(wanted.saturating_sub(self.head.len())));
        self.head.extend_from_slice(now);
        (rest, self.head.len() >= wanted)
    }

    /// The first bytes of the PDU.
    pub(crate) fn first(&self) -> [u8; HEADER_BYTES_MIN] {
        let mut first = [0; HEADER_BYTES_MIN];
        for (place, byte) in first.iter_mut().zip(&self.head) {
            *place = *byte;
        }
        first
    }
}

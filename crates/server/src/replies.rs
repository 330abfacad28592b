//! The replies of one batch, between the handlers that write them and the connection that sends
//! them.
//!
//! Heads lie one after another in one buffer that a loop reuses; a READ's payload stays in the
//! store's pinned memory ([`Payload`]) until the system has taken it.

use memory::Registrar;
use smallvec::SmallVec;
use store::Segment;
use transport::rdma::Pieces;
use transport::{Slices, Source};

/// Pinned views of a store's memory, in order.
pub(crate) type Payload = SmallVec<[Segment; 1]>;

/// A buffer above this size is given back after its batch.
const KEEP_BYTES: usize = 256 << 10;

/// Finds the bytes of a payload: they are in the payload itself.
pub(crate) struct Pinned;

impl Source<Payload> for Pinned {
    #[inline]
    fn slices<'a>(&'a self, payload: &'a Payload, out: &mut Slices<'a>) {
        out.extend(payload.iter().map(Segment::for_kernel));
    }

    fn pieces<'a>(&self, payload: &'a Payload, with: Option<&Registrar>, out: &mut Pieces<'a>) -> bool {
        payload.iter().all(|segment| segment.piece(with).map(|piece| out.push(piece)).is_some())
    }
}

#[derive(Debug, Clone, Copy)]
struct Span {
    head_end: usize,
    payload_len: usize,
}

/// The replies of one batch.
#[derive(Default)]
pub(crate) struct Replies {
    heads: Vec<u8>,
    spans: Vec<Span>,
    payloads: Vec<Payload>,
    bytes: usize,
}

impl Replies {
    /// Where the next head goes. End it with [`push`](Self::push), or cut it off again.
    pub const fn heads(&mut self) -> &mut Vec<u8> {
        &mut self.heads
    }

    /// Ends a reply; its head has been appended to [`heads`](Self::heads). Says how long it is.
    #[inline]
    pub fn push(&mut self, payload: Payload, payload_len: usize) -> usize {
        let start = self.spans.last().map_or(0, |span| span.head_end);
        let len = self.heads.len() - start + payload_len + xdr::padding(payload_len);
        self.bytes += len;
        self.spans.push(Span { head_end: self.heads.len(), payload_len });
        self.payloads.push(payload);
        len
    }

    /// Bytes of all replies.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Hands the replies over in order, each with its head, payload and payload length, and is
    /// empty then.
    #[inline]
    pub fn drain(&mut self, mut take: impl FnMut(&[u8], Payload, usize)) {
        let mut start = 0;
        for (span, payload) in self.spans.drain(..).zip(self.payloads.drain(..)) {
            take(self.heads.get(start..span.head_end).unwrap_or_default(), payload, span.payload_len);
            start = span.head_end;
        }
        self.clear();
    }

    /// Drops what is there.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.payloads.clear();
        self.heads.clear();
        self.heads.shrink_to(KEEP_BYTES);
        self.bytes = 0;
    }
}

//! The sending half of a stream: heads in one buffer, payload in place, many records in one send.
//!
//! Where the framing allows that, a short record overtakes long ones that have not started: a
//! COMMIT or a GETATTR does not wait behind megabytes of payload. After a limited number of
//! consecutive short records, a long one is sent.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::framing::{Framing, Trailer};
use crate::{Error, INLINE_PIECES, Slices, Source};

/// Number of pieces of a typical large record: a head, 1 MiB in blocks of 64 KiB that starts within
/// a block, and padding.
const RECORD_PIECES: usize = 19;
/// Once this many pieces are gathered, no more records are added; the system limit is 1,024.
/// Together with the pieces of one more record they fit the stack.
const GATHER_PIECES: usize = INLINE_PIECES - RECORD_PIECES;
/// Sent heads are removed from the buffer once they take this much.
const COMPACT_BYTES: usize = 64 << 10;
/// An empty buffer larger than this is freed.
const KEEP_BYTES: usize = 16 << 10;
/// An empty queue with room for more records than this is freed, so that an idle connection holds
/// little memory.
const KEEP_RECORDS: usize = 128;

/// A record with at least this much payload is long. The limit is low so that a COMMIT need not
/// wait behind a queue of small writes either.
const LONG_BYTES_MIN: usize = 4 << 10;
/// Number of consecutive short records that may overtake before a long one is sent.
const OVERTAKES_MAX: u32 = 64;

#[derive(Debug)]
struct Queued<P> {
    /// Position of the head in the buffer of heads.
    head_at: usize,
    head_len: usize,
    payload_len: usize,
    payload: P,
    /// What follows the payload.
    trailer: Trailer,
}

impl<P> Queued<P> {
    const fn is_long(&self) -> bool {
        self.payload_len >= LONG_BYTES_MIN
    }

    fn len(&self) -> usize {
        self.head_len + self.payload_len + self.trailer.len()
    }
}

/// The sending half of a stream.
#[derive(Debug)]
pub(crate) struct Outbound<P, F> {
    queue: VecDeque<Queued<P>>,
    heads: Vec<u8>,
    /// Bytes of the first queued record that were sent.
    sent: usize,
    queued_bytes: usize,
    /// Long records in the queue of which nothing was sent.
    long: usize,
    /// Short records that have overtaken since the last long record was sent.
    overtakes: u32,
    framing: PhantomData<fn() -> F>,
}

impl<P, F: Framing> Outbound<P, F> {
    pub(crate) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            heads: Vec::new(),
            sent: 0,
            queued_bytes: 0,
            long: 0,
            overtakes: 0,
            framing: PhantomData,
        }
    }

    pub(crate) const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(crate) fn queued_records(&self) -> usize {
        self.queue.len()
    }

    /// Memory of the queued records. A short record takes more in the queue than its bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.queued_bytes + self.queue.len() * size_of::<Queued<P>>()
    }

    pub(crate) fn push(&mut self, payload: P, payload_len: usize, head: impl FnOnce(&mut Vec<u8>)) {
        let start = self.heads.len();
        F::begin(&mut self.heads);
        head(&mut self.heads);
        let trailer = F::seal(&mut self.heads, start, payload_len);
        let head_len = self.heads.len() - start;
        let queued = Queued { head_at: start, head_len, payload_len, payload, trailer };
        self.queued_bytes += queued.len();
        if queued.is_long() {
            self.long += 1;
            self.queue.push_back(queued);
        } else {
            let place = self.place_of_short();
            self.queue.insert(place, queued);
        }
    }

    /// The queue index for a short record: before the first long record that has not started,
    /// unless that was overtaken often enough. Searches the queue only if there is such a record,
    /// and then only a limited number of times for each: for a peer that does not read, pushes must
    /// not become ever more expensive.
    fn place_of_short(&mut self) -> usize {
        let end = self.queue.len();
        if !F::MAY_OVERTAKE || self.long == 0 || self.overtakes >= OVERTAKES_MAX {
            return end;
        }
        let begun = usize::from(self.sent > 0);
        let place = self.queue.iter().skip(begun).position(Queued::is_long).map_or(end, |at| at + begun);
        self.overtakes += 1;
        place
    }

    /// The payloads of records that were not sent completely.
    pub(crate) fn unsent(&self) -> impl Iterator<Item = &P> {
        self.queue.iter().filter(|queued| queued.payload_len > 0).map(|queued| &queued.payload)
    }

    /// Sends until everything is sent, the peer accepts no more, or `budget_bytes` are sent; the
    /// piece of memory in which the budget ends is sent whole.
    pub(crate) fn flush(
        &mut self,
        fd: BorrowedFd<'_>,
        source: &impl Source<P>,
        budget_bytes: usize,
    ) -> Result<Flushed, Error> {
        let mut left = budget_bytes;
        while !self.queue.is_empty() {
            if left == 0 {
                return Ok(Flushed::OutOfBudget);
            }
            let (outcome, gathered) = self.send_once(fd, source, left)?;
            match outcome {
                Ok(sent) => {
                    self.advance(sent);
                    if sent < gathered {
                        return Ok(Flushed::PeerIsFull);
                    }
                    left = left.saturating_sub(sent);
                }
                Err(Errno::AGAIN) => return Ok(Flushed::PeerIsFull),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::Io(errno.into())),
            }
        }
        Ok(Flushed::All)
    }

    /// The pieces of the first records in the queue, up to about this many unsent bytes.
    fn gather<'a>(&'a self, source: &'a impl Source<P>, budget_bytes: usize) -> Result<Slices<'a>, Error> {
        let mut pieces = Slices::new();
        let mut left = self.sent.saturating_add(budget_bytes);
        for queued in &self.queue {
            if pieces.len() > GATHER_PIECES || left == 0 {
                break;
            }
            left = left.saturating_sub(queued.len());
            let head = queued.head_at..queued.head_at + queued.head_len;
            pieces.push(IoSlice::new(self.heads.get(head).unwrap_or_default()));
            if queued.payload_len > 0 {
                let before = pieces.len();
                source.slices(&queued.payload, &mut pieces);
                let here: usize =
                    pieces.get(before..).unwrap_or_default().iter().map(|piece| piece.len()).sum();
                // The header has announced this many bytes: with fewer or more, the rest of the
                // stream would be garbled.
                if here != queued.payload_len {
                    return Err(Error::Io(std::io::ErrorKind::InvalidData.into()));
                }
            }
            if queued.trailer.len() > 0 {
                pieces.push(IoSlice::new(queued.trailer.as_bytes()));
            }
        }
        Ok(pieces)
    }

    /// Gathers and sends once; also returns how many bytes were offered.
    fn send_once(
        &self,
        fd: BorrowedFd<'_>,
        source: &impl Source<P>,
        budget_bytes: usize,
    ) -> Result<(Outcome, usize), Error> {
        let mut pieces = self.gather(source, budget_bytes)?;
        let mut unsent = pieces.as_mut_slice();
        IoSlice::advance_slices(&mut unsent, self.sent);
        let (mut count, mut gathered) = (0, 0);
        for piece in unsent.iter().take(PIECES_MAX) {
            if gathered >= budget_bytes {
                break;
            }
            count += 1;
            gathered += piece.len();
        }
        let unsent = unsent.get(..count).unwrap_or_default();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Ok((rustix::net::sendmsg(fd, unsent, &mut SendAncillaryBuffer::default(), flags), gathered))
    }

    fn advance(&mut self, sent: usize) {
        self.queued_bytes = self.queued_bytes.saturating_sub(sent);
        let begun = self.sent > 0;
        self.sent += sent;
        let mut leaving_begun = begun;
        while let Some(first) = self.queue.front()
            && self.sent >= first.len()
        {
            self.sent -= first.len();
            if first.is_long() {
                self.long -= usize::from(!leaving_begun);
                self.overtakes = 0;
            }
            leaving_begun = false;
            self.queue.pop_front();
        }
        // The record at the front has started now, unless it had started before.
        let begins = self.sent > 0 && !leaving_begun;
        self.long -= usize::from(begins && self.queue.front().is_some_and(Queued::is_long));
        if self.queue.is_empty() {
            self.heads.clear();
            self.heads.shrink_to(KEEP_BYTES);
            self.queue.shrink_to(KEEP_RECORDS);
        } else if self.heads.len() >= 2 * COMPACT_BYTES {
            let sent = self.queue.iter().map(|queued| queued.head_at).min().unwrap_or(0);
            if sent >= COMPACT_BYTES {
                self.heads.drain(..sent);
                self.queue.iter_mut().for_each(|queued| queued.head_at -= sent);
            }
        }
    }
}

/// How a flush ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing is left.
    All,
    /// The peer, or the system on its behalf, takes no more for now.
    PeerIsFull,
    /// The budget is used up; more is queued.
    OutOfBudget,
}

/// The result of a send.
type Outcome = rustix::io::Result<usize>;

/// The system's limit on the pieces of a send (IOV_MAX).
const PIECES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::RecordMarking;

    /// Payload in blocks of 64 KiB that starts within a block.
    struct Blocks(Vec<u8>);

    impl Source<()> for Blocks {
        fn slices<'a>(&'a self, (): &'a (), out: &mut Slices<'a>) {
            let (first, rest) = self.0.split_at(5);
            out.push(IoSlice::new(first));
            out.extend(rest.chunks(64 << 10).map(IoSlice::new));
        }
    }

    #[test]
    fn a_queue_of_large_reads_is_gathered_without_an_allocation() {
        let source = Blocks(vec![0; (1 << 20) - 3]);
        for small in 0..RECORD_PIECES {
            let mut outbound = Outbound::<(), RecordMarking>::new();
            // The large records then start at each distance from the limit of pieces.
            (0..small).for_each(|_| outbound.push((), 0, |head| head.push(0)));
            (0..32).for_each(|_| outbound.push((), source.0.len(), |head| head.push(0)));
            let pieces = outbound.gather(&source, usize::MAX).unwrap();
            assert!(pieces.len() > GATHER_PIECES, "{}", pieces.len());
            assert!(!pieces.spilled(), "{} pieces", pieces.len());
        }
    }
}

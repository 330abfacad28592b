//! The sending half of a connection: heads in one buffer, data where the volume has them.

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Instant;
use volumes::{Payload, Segment};

/// The most pieces of one send; the system takes 1024.
const PIECES_MAX: usize = 512;
/// Pieces of a send for which no memory is allocated.
const PIECES_INLINE: usize = 64;
/// Heads that are sent are removed once they take this much, and an empty buffer that is larger is
/// freed.
const HEADS_BYTES: usize = 32 << 10;
/// What a turn sends for one connection before others have theirs.
const TURN_BYTES: usize = 4 << 20;

type Slices<'a> = SmallVec<[IoSlice<'a>; PIECES_INLINE]>;

/// A part of the stream: heads, and data behind them.
#[derive(Debug)]
struct Part {
    heads: Range<usize>,
    payload: Payload,
    payload_bytes: usize,
    digest: Option<[u8; 4]>,
    /// Memory that is given back when it is sent.
    reserved: usize,
}

impl Part {
    fn bytes(&self) -> usize {
        self.heads.len() + self.payload_bytes + self.digest.map_or(0, |digest| digest.len())
    }

    const fn is_open(&self) -> bool {
        self.payload_bytes == 0 && self.digest.is_none()
    }
}

/// How a flush ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Everything is sent.
    All,
    /// The peer takes no more now.
    PeerIsFull,
    /// There is more to send, and others wait for their turn.
    OutOfTurn,
}

/// What is to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// The heads of all parts; state machines append here.
    pub(crate) heads: Vec<u8>,
    /// How far `heads` belongs to parts.
    sealed: usize,
    parts: VecDeque<Part>,
    /// Bytes of the first part that were sent.
    sent: usize,
    /// Since when the first part waits.
    since: Option<Instant>,
}

impl Outbound {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.sealed == self.heads.len()
    }

    /// Bytes of heads that were not sent.
    pub(crate) const fn head_bytes(&self) -> usize {
        self.heads.len()
    }

    /// Since when the peer has not taken what is first.
    pub(crate) const fn since(&self) -> Option<Instant> {
        self.since
    }

    /// What was appended to `heads` becomes a part.
    fn seal(&mut self) {
        let heads = self.sealed..self.heads.len();
        self.sealed = self.heads.len();
        if heads.is_empty() {
            return;
        }
        match self.parts.back_mut() {
            Some(last) if last.is_open() => last.heads.end = heads.end,
            _ => {
                let payload = Payload::new();
                self.parts.push_back(Part { heads, payload, payload_bytes: 0, digest: None, reserved: 0 });
            }
        }
    }

    /// Data follow the heads that were appended.
    pub(crate) fn push(&mut self, payload: Payload, digest: Option<[u8; 4]>, reserved: usize) {
        self.seal();
        let payload_bytes = payload.iter().map(Segment::len).sum();
        match self.parts.back_mut() {
            Some(last) if last.is_open() => {
                (last.payload, last.payload_bytes) = (payload, payload_bytes);
                (last.digest, last.reserved) = (digest, reserved);
            }
            _ => {
                let heads = self.sealed..self.sealed;
                self.parts.push_back(Part { heads, payload, payload_bytes, digest, reserved });
            }
        }
    }

    /// Drops everything; returns the memory that is free with it.
    pub(crate) fn clear(&mut self) -> usize {
        let reserved = self.parts.iter().map(|part| part.reserved).sum();
        *self = Self::default();
        reserved
    }

    /// Sends as far as the peer takes it. Memory that is free with it is added to `freed`.
    pub(crate) fn flush(
        &mut self,
        fd: BorrowedFd<'_>,
        now: Instant,
        freed: &mut usize,
    ) -> io::Result<Flushed> {
        self.seal();
        let mut left = TURN_BYTES;
        while !self.parts.is_empty() {
            self.since.get_or_insert(now);
            if left == 0 {
                return Ok(Flushed::OutOfTurn);
            }
            let (pieces, offered) = self.gather();
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::sendmsg(fd, &pieces, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => {
                    drop(pieces);
                    self.advance(sent, now, freed);
                    if sent < offered {
                        return Ok(Flushed::PeerIsFull);
                    }
                    left = left.saturating_sub(sent);
                }
                Err(Errno::AGAIN) => return Ok(Flushed::PeerIsFull),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.since = None;
        Ok(Flushed::All)
    }

    /// The pieces of the first parts, and their length.
    fn gather(&self) -> (Slices<'_>, usize) {
        let mut pieces = Slices::new();
        let mut offered = 0;
        for part in &self.parts {
            if pieces.len() + part.payload.len() + 2 > PIECES_MAX && !pieces.is_empty() {
                break;
            }
            pieces.push(IoSlice::new(self.heads.get(part.heads.clone()).unwrap_or_default()));
            pieces.extend(part.payload.iter().map(|segment| IoSlice::new(segment.as_bytes())));
            if let Some(digest) = &part.digest {
                pieces.push(IoSlice::new(digest));
            }
            offered += part.bytes();
        }
        let mut unsent = pieces.as_mut_slice();
        IoSlice::advance_slices(&mut unsent, self.sent);
        let unsent: Slices<'_> = unsent.iter().take(PIECES_MAX).copied().collect();
        let bytes = unsent.iter().map(|piece| piece.len()).sum::<usize>();
        debug_assert!(bytes <= offered, "no more than the parts have");
        (unsent, bytes)
    }

    fn advance(&mut self, sent: usize, now: Instant, freed: &mut usize) {
        self.sent += sent;
        while let Some(first) = self.parts.front() {
            if self.sent < first.bytes() {
                break;
            }
            self.sent -= first.bytes();
            *freed += first.reserved;
            self.parts.pop_front();
            self.since = Some(now);
        }
        let start = self.parts.front().map_or(self.sealed, |first| first.heads.start);
        if start == self.heads.len() {
            self.heads.clear();
            self.heads.shrink_to(HEADS_BYTES);
            self.sealed = 0;
            for part in &mut self.parts {
                part.heads = 0..0;
            }
        } else if start >= HEADS_BYTES {
            self.heads.drain(..start);
            self.sealed -= start;
            for part in &mut self.parts {
                part.heads = part.heads.start - start..part.heads.end - start;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory::Buffers;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    fn payload(byte: u8, bytes: usize) -> Payload {
        let mut buffer = Arc::new(Buffers::default()).take(bytes);
        buffer.fill(byte);
        std::iter::once(Segment::from(buffer)).collect()
    }

    #[test]
    fn heads_data_and_digests_arrive_in_order_however_the_peer_reads() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (mut outbound, mut expected, mut received, mut freed) =
            (Outbound::default(), Vec::new(), Vec::new(), 0);
        for round in 0..200_u8 {
            let head = vec![round; 24 + usize::from(round)];
            outbound.heads.extend_from_slice(&head);
            expected.extend_from_slice(&head);
            if round % 3 != 0 {
                let bytes = usize::from(round) * 700 + 1;
                let digest = (round % 2 == 0).then_some([round; 4]);
                outbound.push(payload(round, bytes), digest, bytes);
                expected.resize(expected.len() + bytes, round);
                expected.extend(digest.into_iter().flatten());
            }
            if round % 5 == 0 {
                outbound.flush(ours.as_fd(), Instant::now(), &mut freed).unwrap();
                let mut some = vec![0; 5000];
                let count = theirs.read(&mut some).unwrap();
                received.extend_from_slice(&some[..count]);
            }
        }
        while received.len() < expected.len() {
            outbound.flush(ours.as_fd(), Instant::now(), &mut freed).unwrap();
            let mut some = vec![0; 100_000];
            let count = theirs.read(&mut some).unwrap();
            received.extend_from_slice(&some[..count]);
        }
        assert!(received == expected);
        assert_eq!(outbound.flush(ours.as_fd(), Instant::now(), &mut freed).unwrap(), Flushed::All);
        assert!(outbound.is_empty() && outbound.since().is_none() && outbound.head_bytes() == 0);
        let reserved: usize =
            (0..200_usize).filter(|round| round % 3 != 0).map(|round| round * 700 + 1).sum();
        assert_eq!(freed, reserved, "all memory was given back");
    }
}

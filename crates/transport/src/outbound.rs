//! The sending half of a stream: heads in one buffer, payload wherever it lies, many records in one send.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rpc::record::{MARK_BYTES, Mark};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::{Error, Slices, Source};

/// Pieces gathered into one send; the system's own bound is 1,024. This many fit the stack.
const GATHER_PIECES: usize = 120;
/// Heads already sent are dropped from the buffer when they are this much.
const COMPACT_BYTES: usize = 64 << 10;
/// An empty buffer above this size is given back.
const KEEP_BYTES: usize = 16 << 10;

#[derive(Debug)]
struct Queued<P> {
    head_len: usize,
    payload_len: usize,
    payload: P,
}

impl<P> Queued<P> {
    fn len(&self) -> usize {
        self.head_len + self.payload_len + xdr_padding(self.payload_len)
    }
}

const fn xdr_padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// The sending half of a stream.
#[derive(Debug)]
pub(crate) struct Outbound<P> {
    queue: VecDeque<Queued<P>>,
    heads: Vec<u8>,
    /// Heads before this are sent.
    heads_start: usize,
    /// Bytes of the first queued record that are sent.
    sent: usize,
    queued_bytes: usize,
}

impl<P> Outbound<P> {
    pub(crate) const fn new() -> Self {
        Self { queue: VecDeque::new(), heads: Vec::new(), heads_start: 0, sent: 0, queued_bytes: 0 }
    }

    pub(crate) const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(crate) fn push(&mut self, payload: P, payload_len: usize, head: impl FnOnce(&mut Vec<u8>)) {
        let start = self.heads.len();
        self.heads.extend_from_slice(&[0; MARK_BYTES]);
        head(&mut self.heads);
        let head_len = self.heads.len() - start;
        let queued = Queued { head_len, payload_len, payload };
        let len = queued.len() - MARK_BYTES;
        let mark = Mark { last: true, len: u32::try_from(len).unwrap_or(u32::MAX) };
        if let Some(place) = self.heads.get_mut(start..start + MARK_BYTES) {
            place.copy_from_slice(&mark.encode());
        }
        self.queued_bytes += queued.len();
        self.queue.push_back(queued);
    }

    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>, source: &impl Source<P>) -> Result<bool, Error> {
        while !self.queue.is_empty() {
            let (outcome, gathered) = self.send_once(fd, source);
            match outcome {
                Ok(sent) => {
                    self.advance(sent);
                    if sent < gathered {
                        return Ok(false);
                    }
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::Io(errno.into())),
            }
        }
        Ok(true)
    }

    /// Gathers and sends once; also tells how many bytes were offered.
    fn send_once(&self, fd: BorrowedFd<'_>, source: &impl Source<P>) -> (rustix::io::Result<usize>, usize) {
        let mut pieces = Slices::new();
        let mut head_at = self.heads_start;
        for queued in &self.queue {
            if pieces.len() >= GATHER_PIECES {
                break;
            }
            let head_end = head_at + queued.head_len;
            pieces.push(IoSlice::new(self.heads.get(head_at..head_end).unwrap_or_default()));
            head_at = head_end;
            if queued.payload_len > 0 {
                source.slices(&queued.payload, &mut pieces);
                let padding = xdr_padding(queued.payload_len);
                if padding > 0 {
                    pieces.push(IoSlice::new(ZEROS.get(..padding).unwrap_or_default()));
                }
            }
        }
        let mut unsent = pieces.as_mut_slice();
        IoSlice::advance_slices(&mut unsent, self.sent);
        let unsent = if unsent.len() > PIECES_MAX { unsent.split_at_mut(PIECES_MAX).0 } else { unsent };
        let gathered = unsent.iter().map(|piece| piece.len()).sum();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        (rustix::net::sendmsg(fd, unsent, &mut SendAncillaryBuffer::default(), flags), gathered)
    }

    fn advance(&mut self, sent: usize) {
        self.queued_bytes = self.queued_bytes.saturating_sub(sent);
        self.sent += sent;
        while let Some(first) = self.queue.front()
            && self.sent >= first.len()
        {
            self.sent -= first.len();
            self.heads_start += first.head_len;
            self.queue.pop_front();
        }
        if self.queue.is_empty() {
            self.heads.clear();
            self.heads_start = 0;
            self.heads.shrink_to(KEEP_BYTES);
        } else if self.heads_start >= COMPACT_BYTES {
            self.heads.drain(..self.heads_start);
            self.heads_start = 0;
        }
    }
}

/// The system's bound on the pieces of a send (IOV_MAX).
const PIECES_MAX: usize = 1024;
const ZEROS: &[u8] = &[0; 3];

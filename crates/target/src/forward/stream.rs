//! One connection between the processes: heads and their payload, in and out.

use super::wire::{HEAD_BYTES, Message};
use crate::outbound::{Flushed, Outbound};
use memory::Buffer;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;
use transport::poll::{Interest, Poller};
use volumes::Payload;

/// Memory for heads and short payloads that are received together.
const INPUT_BYTES: usize = 64 << 10;

/// Buffers that a payload is received into.
pub(crate) type Parts = SmallVec<[Buffer; 1]>;

/// A payload that is being received.
#[derive(Debug)]
struct Incoming {
    parts: Parts,
    bytes: usize,
    filled: usize,
}

/// What was received.
#[derive(Debug)]
pub(crate) enum Next {
    /// A head. If it has payload, [`Stream::expect`] says where that goes.
    Message(Message),
    /// A payload is complete.
    Payload(Parts),
    /// Nothing more for now.
    Nothing,
    /// The other process has closed the connection, or has ended.
    End,
    /// It says what this version does not.
    Malformed,
}

#[derive(Debug)]
pub(crate) struct Stream {
    socket: OwnedFd,
    outbound: Outbound,
    input: Vec<u8>,
    /// What of the input was not used.
    from: usize,
    until: usize,
    incoming: Option<Incoming>,
    interest: Interest,
}

impl Stream {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            outbound: Outbound::default(),
            input: vec![0; INPUT_BYTES],
            from: 0,
            until: 0,
            incoming: None,
            interest: Interest::READ,
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The payload of the last head goes there.
    pub(crate) fn expect(&mut self, parts: Parts, bytes: usize) {
        self.incoming = Some(Incoming { parts, bytes, filled: 0 });
    }

    /// What comes next.
    pub(crate) fn next(&mut self) -> io::Result<Next> {
        loop {
            if let Some(incoming) = &mut self.incoming {
                let rest = self.input.get(self.from..self.until).unwrap_or_default();
                self.from += incoming.fill(rest);
                if let Some(done) = self.incoming.take_if(|incoming| incoming.filled == incoming.bytes) {
                    return Ok(Next::Payload(done.parts));
                }
            } else if let Some(head) = self.input.get(self.from..self.until).and_then(<[u8]>::first_chunk) {
                let message = Message::decode(head);
                self.from += HEAD_BYTES;
                return Ok(message.map_or(Next::Malformed, Next::Message));
            }
            match self.read() {
                Ok(0) => return Ok(Next::End),
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(Next::Nothing),
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(Next::End),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// One system call: what is missing of a payload, and what follows it.
    fn read(&mut self) -> Result<usize, Errno> {
        self.input.copy_within(self.from..self.until, 0);
        (self.from, self.until) = (0, self.until - self.from);
        let mut slices: SmallVec<[IoSliceMut<'_>; 24]> = SmallVec::new();
        let mut direct = 0;
        if let Some(incoming) = &mut self.incoming {
            direct = incoming.bytes - incoming.filled;
            slices.extend(incoming.missing(direct).map(IoSliceMut::new));
        }
        slices.push(IoSliceMut::new(self.input.get_mut(self.until..).unwrap_or_default()));
        let got = rustix::io::readv(&self.socket, &mut slices)?;
        drop(slices);
        if let Some(incoming) = &mut self.incoming {
            incoming.filled += got.min(direct);
        }
        self.until += got.saturating_sub(direct);
        Ok(got)
    }

    /// Sends a head whose payload, if it has one, is in these bytes.
    pub(crate) fn put(&mut self, message: &Message, payload: &[u8]) {
        self.outbound.heads.extend_from_slice(&message.encode());
        self.outbound.heads.extend_from_slice(payload);
    }

    /// Sends a head and a payload where that is. `reserved` is given back when it is sent.
    pub(crate) fn push(&mut self, message: &Message, payload: Payload, reserved: usize) {
        self.outbound.heads.extend_from_slice(&message.encode());
        self.outbound.push(payload, None, reserved);
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// Sends what the other process takes; returns how much was given back.
    pub(crate) fn flush(&mut self, now: Instant) -> io::Result<(Flushed, usize)> {
        let mut freed = 0;
        let flushed = self.outbound.flush(self.socket.as_fd(), now, &mut freed)?;
        Ok((flushed, freed))
    }

    /// Waits for what there is to be done.
    pub(crate) fn wait(&mut self, poller: &Poller, token: u64, flushed: Flushed) {
        let wanted = Interest { read: true, write: matches!(flushed, Flushed::PeerIsFull) };
        // One that cannot be changed stays in the set, and is asked in the next round.
        if wanted != self.interest && poller.modify(&self.socket, token, wanted).is_ok() {
            self.interest = wanted;
        }
    }
}

impl Incoming {
    /// The memory that is not filled, `bytes` in all.
    fn missing(&mut self, bytes: usize) -> impl Iterator<Item = &mut [u8]> {
        let (mut skip, mut left) = (self.filled, bytes);
        self.parts.iter_mut().filter_map(move |buffer| {
            let start = skip.min(buffer.len());
            skip -= start;
            let end = buffer.len().min(start + left);
            left -= end - start;
            buffer.get_mut(start..end).filter(|part| !part.is_empty())
        })
    }

    /// Copies what there is; returns how much that was.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.bytes - self.filled);
        let mut rest = bytes.get(..count).unwrap_or_default();
        for part in self.missing(count) {
            let (now, later) = rest.split_at(part.len().min(rest.len()));
            if let Some(place) = part.get_mut(..now.len()) {
                place.copy_from_slice(now);
            }
            rest = later;
        }
        self.filled += count;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory::Buffers;
    use std::sync::Arc;
    use volumes::Segment;

    fn pair() -> [Stream; 2] {
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let kind = rustix::net::SocketType::STREAM;
        let (one, other) =
            rustix::net::socketpair(rustix::net::AddressFamily::UNIX, kind, flags, None).unwrap();
        [one, other].map(Stream::new)
    }

    /// Payloads of any length, in several parts, with heads before and after them.
    #[test]
    fn heads_and_payloads_come_as_they_were_sent() {
        let [mut ours, mut theirs] = pair();
        let buffers = Arc::new(Buffers::default());
        let mut random = fastrand::Rng::with_seed(5);
        let bytes_of = |round: usize| (round * 7919) % (256 << 10);
        let (mut sent, mut taken) = (0, 0);
        let mut expected: std::collections::VecDeque<Vec<u8>> = std::collections::VecDeque::new();
        let mut within = false;
        while taken < 200 {
            if sent < 200 && expected.len() < 4 {
                let data: Vec<u8> = (0..bytes_of(sent)).map(|_| random.u8(..)).collect();
                let message = Message::Answer {
                    id: sent as u16,
                    status: nvme::Status::SUCCESS,
                    first: nvme::Status::SUCCESS,
                    bytes: data.len() as u32,
                };
                if sent % 2 == 0 {
                    ours.put(&message, &data);
                } else {
                    let mut buffer = buffers.take(data.len());
                    buffer.copy_from_slice(&data);
                    ours.push(&message, Payload::from_iter([Segment::from(buffer)]), data.len());
                }
                expected.push_back(data);
                sent += 1;
            }
            ours.flush(Instant::now()).unwrap();
            match theirs.next().unwrap() {
                Next::Message(Message::Answer { id, bytes, .. }) => {
                    assert_eq!((usize::from(id), bytes as usize), (taken, expected[0].len()));
                    within = bytes > 0;
                    if within {
                        let half = bytes as usize / 2;
                        let parts = [buffers.take(half), buffers.take(bytes as usize - half)];
                        theirs.expect(parts.into_iter().collect(), bytes as usize);
                    } else {
                        expected.pop_front();
                        taken += 1;
                    }
                }
                Next::Payload(parts) => {
                    let data: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                    assert!(within && data == expected.pop_front().unwrap());
                    taken += 1;
                }
                Next::Nothing => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(!ours.has_output());
        drop(ours);
        assert!(matches!(theirs.next().unwrap(), Next::End));
    }

    #[test]
    fn what_is_no_head_is_malformed() {
        let [ours, mut theirs] = pair();
        rustix::io::write(ours.socket(), &[9; HEAD_BYTES]).unwrap();
        assert!(matches!(theirs.next().unwrap(), Next::Malformed));
    }
}

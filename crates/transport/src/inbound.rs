//! The receiving half of a stream: records with their payload received in place.
//!
//! Short records are received many at a time into the loop's scratch memory and handed on without a
//! copy. A long record's payload is received directly into the memory that the sink provides; the
//! same receive takes the first bytes of the next record along, so that a run of long records costs
//! one receive each. Alternatively the payload goes to a pipe that the sink provides, without
//! passing through memory.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::framing::{Assemble, Frame, Framing, FramingError, TAIL_BYTES_ROOM};
use crate::{DIRECT_BYTES_MIN, Error, HEAD_BYTES_MIN, PayloadPlace, ReceiveBuffer, Sink, SlicesMut};

/// Bytes received along with a payload: a few heads. More would be payload that must be copied.
const AFTER_PAYLOAD_BYTES: usize = 2048;
/// Memory that a connection keeps for the bytes after a payload while its owner handles the
/// payload.
const UNPARSED_KEPT_BYTES: usize = 2 * AFTER_PAYLOAD_BYTES;
/// Scratch memory of a loop: one receive holds 15 WRITE calls of 4 KiB, or 500 READ calls. With
/// more scratch memory, bytes copied out of the socket would no longer be in the processor's
/// nearest caches when they are copied on from here (docs/decisions/0002-event-loop.md).
const SCRATCH_BYTES: usize = 64 << 10;
/// Memory that the connections of a loop receive into in turn.
#[derive(Debug)]
pub struct Scratch(Vec<u8>);

impl Scratch {
    /// Allocates the memory.
    #[must_use]
    pub fn new() -> Self {
        Self(vec![0; SCRATCH_BYTES])
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// The result of one call of `receive`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes taken from the socket.
    pub bytes: usize,
    /// Whether the budget ended the receive, so that more may be waiting.
    pub more: bool,
    /// Whether queued records may be sent that could not be sent before: over RDMA, because replies
    /// have returned credits and memory. Over a stream it is the poller that says so.
    pub may_send: bool,
}

/// What the next bytes belong to.
#[derive(Debug)]
enum State<L, A> {
    /// A header and the beginning of a record; `partial` holds the bytes received so far.
    Head,
    /// A long record without a receive buffer: `partial` grows to `needed` bytes, of which the
    /// first `skip` are not part of the record.
    Whole { needed: usize, skip: usize },
    /// Payload that is received in place; `partial` holds the record's head.
    Payload { place: PayloadPlace<L>, filled: usize, tail_len: usize },
    /// What follows such a payload.
    Tail { place: PayloadPlace<L>, tail: Tail },
    /// A record in several parts: the slow path.
    Parts(Box<A>),
}

/// Padding or a digest that follows a payload.
#[derive(Debug, Default)]
struct Tail {
    bytes: [u8; TAIL_BYTES_ROOM],
    len: usize,
    here: usize,
}

impl Tail {
    fn of(len: usize) -> Self {
        Self { len: len.min(TAIL_BYTES_ROOM), ..Self::default() }
    }

    /// Takes the missing bytes from the front of `bytes`; returns the rest.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (now, rest) = bytes.split_at(bytes.len().min(self.len - self.here));
        if let Some(place) = self.bytes.get_mut(self.here..self.here + now.len()) {
            place.copy_from_slice(now);
        }
        self.here += now.len();
        rest
    }
}

/// The receiving half of a stream.
#[derive(Debug)]
pub(crate) struct Inbound<L, F: Framing> {
    state: State<L, F::Assembler>,
    partial: Vec<u8>,
    record_bytes_max: usize,
    /// Bytes received while the sink wanted no more, starting at the beginning of a record.
    unparsed: Vec<u8>,
    /// The last record was long: receive little more than a head at a time.
    long_records: bool,
}

impl<L: ReceiveBuffer, F: Framing> Inbound<L, F> {
    pub(crate) fn new(record_bytes_max: usize) -> Self {
        Self {
            state: State::Head,
            partial: Vec::new(),
            record_bytes_max,
            unparsed: Vec::new(),
            long_records: false,
        }
    }

    pub(crate) const fn set_record_bound(&mut self, record_bytes_max: usize) {
        self.record_bytes_max = record_bytes_max;
    }

    /// The receive buffer of an incomplete payload, when the connection is given up.
    pub(crate) fn into_receive_buffer(self) -> Option<L> {
        match self.state {
            State::Payload { place, .. } | State::Tail { place, .. } => Some(place.receive_buffer),
            State::Head | State::Whole { .. } | State::Parts(_) => None,
        }
    }

    /// Bytes held for incomplete records.
    pub(crate) fn held_bytes(&self) -> usize {
        let fragments = if let State::Parts(assembler) = &self.state { assembler.held_bytes() } else { 0 };
        self.partial.capacity() + self.unparsed.capacity() + fragments
    }

    /// Bytes received of an incomplete record, wherever they are.
    pub(crate) fn incomplete_bytes(&self) -> usize {
        let elsewhere = match &self.state {
            State::Payload { filled, .. } => *filled,
            State::Tail { place, .. } => place.len,
            State::Parts(assembler) => assembler.held_bytes(),
            State::Head | State::Whole { .. } => 0,
        };
        self.partial.len() + self.unparsed.len() + elsewhere
    }

    /// The size of the receive buffer in use.
    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        match &self.state {
            State::Payload { place, .. } | State::Tail { place, .. } => place.len,
            State::Head | State::Whole { .. } | State::Parts(_) => 0,
        }
    }

    /// While a long record is incomplete: how much memory it will take in addition to what is held.
    /// A record in several parts may become as long as any.
    pub(crate) fn long_record(&self) -> Option<usize> {
        match &self.state {
            State::Head => None,
            State::Whole { needed, .. } => Some(needed.saturating_sub(self.partial.capacity())),
            State::Payload { .. } | State::Tail { .. } => Some(0),
            State::Parts(assembler) => Some(self.record_bytes_max.saturating_sub(assembler.held_bytes())),
        }
    }

    /// Whether bytes were received that the sink did not want yet.
    pub(crate) const fn holds_unparsed(&self) -> bool {
        !self.unparsed.is_empty()
    }

    /// Whether part of a record has been received.
    pub(crate) fn within_record(&self) -> bool {
        !matches!(self.state, State::Head) || !self.partial.is_empty() || !self.unparsed.is_empty()
    }

    pub(crate) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
        budget_bytes: usize,
    ) -> Result<Received, Error> {
        let mut received = Received::default();
        if !self.unparsed.is_empty() {
            let mut held = std::mem::take(&mut self.unparsed);
            self.parse(&held, sink)?;
            if self.unparsed.is_empty() && held.capacity() <= UNPARSED_KEPT_BYTES {
                held.clear();
                self.unparsed = held;
            }
        }
        while sink.wants_more() {
            sink.receiving();
            let (wanted, got) = match &self.state {
                State::Payload { .. } => self.receive_payload(fd, scratch, sink)?,
                State::Whole { needed, skip } => {
                    let (needed, skip) = (*needed, *skip);
                    self.receive_whole(fd, (needed, skip), scratch, sink)?
                }
                State::Head | State::Tail { .. } | State::Parts(_) => {
                    let left = budget_bytes.saturating_sub(received.bytes);
                    self.receive_scratch(fd, scratch, sink, left)?
                }
            };
            received.bytes += got;
            // A short receive emptied the socket; another would only return that nothing is
            // waiting.
            if got < wanted {
                return Ok(received);
            }
            if received.bytes >= budget_bytes {
                received.more = true;
                return Ok(received);
            }
        }
        Ok(received)
    }

    /// Receives payload in place, and what follows it into scratch.
    fn receive_payload(
        &mut self,
        fd: BorrowedFd<'_>,
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
    ) -> Result<(usize, usize), Error> {
        let State::Payload { place, filled, .. } = &mut self.state else { return Ok((0, 0)) };
        let missing = place.len - *filled;
        if let Some(pipe) = place.receive_buffer.pipe() {
            let mut outcome = pipe.take_from(fd, missing);
            if outcome == Err(Errno::AGAIN) && has_bytes(fd) {
                // Bytes arrived in the meantime, or the pipe is full, or the bytes are behind
                // urgent data, before which splice(2) stops for ever and which a receive skips.
                outcome = pipe.take_from(fd, missing);
                if outcome == Err(Errno::AGAIN) {
                    place.receive_buffer.leave_pipe()?;
                    // Nothing was received: try again, into memory.
                    return Ok((0, 0));
                }
            }
            let got = check(outcome, true)?;
            *filled += got;
            if got == missing {
                self.finish_payload(&[], sink)?;
            }
            // The pipe takes what it has room for, so a short splice does not mean that the socket
            // is empty.
            return Ok((got.max(1), got));
        }
        let after = scratch.0.get_mut(..AFTER_PAYLOAD_BYTES).unwrap_or_default();
        let wanted = missing + after.len();
        let mut slices = SlicesMut::new();
        place.receive_buffer.unfilled(*filled, &mut slices);
        slices.push(IoSliceMut::new(after));
        let got = check(rustix::io::readv(fd, &mut slices), true)?;
        drop(slices);
        let State::Payload { filled, .. } = &mut self.state else { return Ok((0, 0)) };
        *filled += got.min(missing);
        let extra = got.saturating_sub(missing);
        if got >= missing {
            self.finish_payload(scratch.0.get(..extra).unwrap_or_default(), sink)?;
        }
        Ok((wanted, got))
    }

    /// Completes the payload; `rest` follows it. If there is no padding, the record is complete
    /// too.
    fn finish_payload(&mut self, rest: &[u8], sink: &mut impl Sink<ReceiveBuffer = L>) -> Result<(), Error> {
        match std::mem::replace(&mut self.state, State::Head) {
            State::Payload { place, tail_len, .. } => {
                self.state = State::Tail { place, tail: Tail::of(tail_len) };
                self.parse(rest, sink)
            }
            other => {
                self.state = other;
                Ok(())
            }
        }
    }

    /// Receives the rest of a long record without a receive buffer.
    fn receive_whole(
        &mut self,
        fd: BorrowedFd<'_>,
        (needed, skip): (usize, usize),
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
    ) -> Result<(usize, usize), Error> {
        let have = self.partial.len();
        // Through scratch, so that a peer that sends byte by byte costs no more memory than it
        // sends.
        let room = scratch.0.get_mut(..needed.saturating_sub(have).min(SCRATCH_BYTES)).unwrap_or_default();
        let wanted = room.len();
        let got = self.check(rustix::io::read(fd, &mut *room))?;
        if self.partial.capacity() - have < got {
            // Grows with the received bytes, so that a mark alone takes no memory, and never beyond
            // the record.
            self.partial.reserve_exact(got.max(have).min(needed - have));
        }
        self.partial.extend_from_slice(room.get(..got).unwrap_or_default());
        if self.partial.len() == needed {
            let record = std::mem::take(&mut self.partial);
            self.state = State::Head;
            sink.record(record.get(skip..).unwrap_or_default());
        }
        Ok((wanted, got))
    }

    /// Receives heads and short records. A small budget bounds the receive: what the sink does not
    /// want yet must be kept.
    fn receive_scratch(
        &mut self,
        fd: BorrowedFd<'_>,
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
        budget_bytes: usize,
    ) -> Result<(usize, usize), Error> {
        // In the state Tail, `partial` is a head to keep, not bytes to continue with.
        let kept = if matches!(self.state, State::Head) { self.partial.len() } else { 0 };
        let bytes_max = if self.long_records { 0 } else { budget_bytes }.max(AFTER_PAYLOAD_BYTES);
        let limit = kept.saturating_add(bytes_max).min(scratch.0.len());
        let room = scratch.0.get_mut(kept..limit).unwrap_or_default();
        let wanted = room.len();
        let got = self.check(rustix::io::read(fd, &mut *room))?;
        if got == 0 {
            return Ok((wanted, 0));
        }
        if got == wanted {
            self.long_records = false;
        }
        if kept > 0 {
            let start = scratch.0.get_mut(..kept).unwrap_or_default();
            start.copy_from_slice(&self.partial);
            self.partial.clear();
        }
        self.parse(scratch.0.get(..kept + got).unwrap_or_default(), sink)?;
        Ok((wanted, got))
    }

    /// Converts the result of a receive to a number of bytes: nothing waiting is 0, the end of the
    /// stream is an error.
    fn check(&self, outcome: rustix::io::Result<usize>) -> Result<usize, Error> {
        check(outcome, self.within_record())
    }

    /// Hands on the records in `bytes` and keeps the beginning of the last one.
    fn parse(&mut self, bytes: &[u8], sink: &mut impl Sink<ReceiveBuffer = L>) -> Result<(), Error> {
        let mut rest = bytes;
        loop {
            rest = match std::mem::replace(&mut self.state, State::Head) {
                State::Tail { place, mut tail } => {
                    let after = tail.take(rest);
                    if tail.here < tail.len {
                        self.state = State::Tail { place, tail };
                        return Ok(());
                    }
                    let head = std::mem::take(&mut self.partial);
                    sink.received(
                        &head,
                        place.receive_buffer,
                        tail.bytes.get(..tail.len).unwrap_or_default(),
                    );
                    self.partial = head;
                    self.partial.clear();
                    after
                }
                State::Parts(mut assembler) => {
                    let mut rest = rest;
                    match assembler.feed(&mut rest) {
                        Ok(Some(record)) => sink.record(record),
                        Ok(None) => self.state = State::Parts(assembler),
                        Err(error) => {
                            let beginning = assembler.beginning();
                            // A first fragment that is refused is not in the assembler.
                            sink.bad_record(if beginning.is_empty() { rest } else { beginning }, &error);
                            return Err(error.into());
                        }
                    }
                    rest
                }
                state => {
                    self.state = state;
                    match self.parse_record(rest, sink)? {
                        Some(after) => after,
                        None => return Ok(()),
                    }
                }
            };
            if rest.is_empty() {
                return Ok(());
            }
            if !sink.wants_more() && matches!(self.state, State::Head) {
                self.unparsed.extend_from_slice(rest);
                return Ok(());
            }
        }
    }

    /// Parses one record at the start of `bytes`; `None` if the record is incomplete and was kept.
    fn parse_record<'a>(
        &mut self,
        bytes: &'a [u8],
        sink: &mut impl Sink<ReceiveBuffer = L>,
    ) -> Result<Option<&'a [u8]>, Error> {
        let frame = F::parse(bytes, self.record_bytes_max)
            .inspect_err(|error| sink.bad_record(F::beginning(bytes), error));
        let (skip, len) = match frame? {
            // Nothing would ever be taken from the bytes.
            Some(Frame::Whole { skip: 0, len: 0 }) => {
                return Err(FramingError::Malformed("a record of no bytes".to_owned()).into());
            }
            Some(Frame::Whole { skip, len }) => (skip, len),
            Some(Frame::Parts(assembler)) => {
                self.state = State::Parts(Box::new(assembler));
                return Ok(Some(bytes));
            }
            None => {
                self.partial.extend_from_slice(bytes);
                return Ok(None);
            }
        };
        let after = bytes.get(skip..).unwrap_or_default();
        self.long_records |= len >= DIRECT_BYTES_MIN;
        if let Some((record, after)) = after.split_at_checked(len) {
            self.long_records = len >= DIRECT_BYTES_MIN;
            sink.record(record);
            return Ok(Some(after));
        }
        if len >= DIRECT_BYTES_MIN && after.len() >= HEAD_BYTES_MIN {
            self.begin_long(bytes, skip, len, sink)?;
        } else {
            self.partial.extend_from_slice(bytes);
        }
        Ok(None)
    }

    /// Starts a long record whose head is complete: asks the sink for a receive buffer.
    fn begin_long(
        &mut self,
        bytes: &[u8],
        skip: usize,
        len: usize,
        sink: &mut impl Sink<ReceiveBuffer = L>,
    ) -> Result<(), Error> {
        const { assert!(F::TAIL_BYTES_MAX <= TAIL_BYTES_ROOM) };
        let record = bytes.get(skip..).unwrap_or_default();
        let place = sink.choose_receive_buffer(record, len).filter(|place| {
            let end = place.at.saturating_add(place.len);
            place.at <= record.len() && end <= len && len - end <= F::TAIL_BYTES_MAX
        });
        let Some(mut place) = place else {
            self.partial.extend_from_slice(bytes);
            self.state = State::Whole { needed: skip + len, skip };
            return Ok(());
        };
        let (head, payload) = record.split_at(place.at);
        self.partial.extend_from_slice(head);
        // The record is incomplete, but its payload may be complete: then only padding is missing.
        let here = payload.len().min(place.len);
        copy_into(&mut place.receive_buffer, payload.get(..here).unwrap_or_default())?;
        let tail_len = len - place.at - place.len;
        self.state = if here == place.len {
            let mut tail = Tail::of(tail_len);
            tail.take(payload.get(here..).unwrap_or_default());
            State::Tail { tail, place }
        } else {
            State::Payload { place, filled: here, tail_len }
        };
        Ok(())
    }
}

/// Copies the beginning of a payload that was received with its head.
fn copy_into(receive_buffer: &mut impl ReceiveBuffer, mut bytes: &[u8]) -> Result<(), Error> {
    if let Some(pipe) = receive_buffer.pipe() {
        if bytes.is_empty() || pipe.put(bytes) == Ok(bytes.len()) {
            return Ok(());
        }
        receive_buffer.leave_pipe()?;
    }
    let mut slices = SlicesMut::new();
    receive_buffer.unfilled(0, &mut slices);
    for slice in &mut slices {
        let (now, later) = bytes.split_at(bytes.len().min(slice.len()));
        if let Some(target) = slice.get_mut(..now.len()) {
            target.copy_from_slice(now);
        }
        bytes = later;
    }
    Ok(())
}

/// Whether a receive would return anything.
fn has_bytes(fd: BorrowedFd<'_>) -> bool {
    rustix::net::recv(fd, &mut [0_u8], RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok_and(|(got, _)| got > 0)
}

/// Converts the result of a receive to a number of bytes: nothing waiting is 0, the end of the
/// stream is an error.
fn check(outcome: rustix::io::Result<usize>, within_record: bool) -> Result<usize, Error> {
    match outcome {
        Ok(0) if within_record => Err(Error::Truncated),
        Ok(0) => Err(Error::Closed),
        Ok(got) => Ok(got),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(errno) => Err(Error::Io(errno.into())),
    }
}

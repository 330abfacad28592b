//! A stream socket: TCP, or a pair within one process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::framing::{Framing, RecordMarking};
use crate::inbound::{Inbound, Received, Scratch};
use crate::outbound::{Flushed, Outbound};
use crate::poll::{Interest, Poller};
use crate::{Ended, Error, Expect, ReceiveBuffer, Remains, Sink, Source, Transport, socket};

/// The limits of what a stream accepts from its peer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest record.
    pub record_bytes_max: usize,
}

/// A connection that carries records over a stream socket. `F` tells the records apart.
#[derive(Debug)]
pub struct Stream<P, L, F: Framing = RecordMarking> {
    socket: OwnedFd,
    inbound: Inbound<L, F>,
    outbound: Outbound<P, F>,
}

impl<P, L: ReceiveBuffer, F: Framing> Stream<P, L, F> {
    /// Creates a stream over a connected, non-blocking socket.
    #[must_use]
    pub fn new(socket: OwnedFd, limits: Limits) -> Self {
        Self { socket, inbound: Inbound::new(limits.record_bytes_max), outbound: Outbound::new() }
    }

    /// Creates two connected streams within this process.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn pair(limits: Limits) -> io::Result<(Self, Self)> {
        let (one, other) = socket::pair()?;
        Ok((Self::new(one, limits), Self::new(other, limits)))
    }
}

impl<P, L: ReceiveBuffer, F: Framing> Transport<P, L> for Stream<P, L, F> {
    fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        poller.add(&self.socket, token, Interest::READ)
    }

    fn set_interest(&self, poller: &Poller, token: u64, interest: Interest) -> io::Result<()> {
        poller.modify(&self.socket, token, interest)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    #[inline]
    fn receive(
        &mut self,
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
        budget_bytes: usize,
    ) -> Result<Received, Error> {
        self.inbound.receive(self.socket.as_fd(), scratch, sink, budget_bytes)
    }

    #[inline]
    fn push(&mut self, payload: P, payload_len: usize, _expect: Expect, head: impl FnOnce(&mut Vec<u8>)) {
        self.outbound.push(payload, payload_len, head);
    }

    #[inline]
    fn flush(&mut self, source: &impl Source<P>, budget_bytes: usize) -> Result<Flushed, Error> {
        self.outbound.flush(self.socket.as_fd(), source, budget_bytes)
    }

    fn needs_flush(&self) -> bool {
        self.outbound.queued_records() > 0
    }

    fn queued_bytes(&self) -> usize {
        self.outbound.queued_bytes()
    }

    fn queued_records(&self) -> usize {
        self.outbound.queued_records()
    }

    fn unsent(&self, each: impl FnMut(&P)) {
        self.outbound.unsent().for_each(each);
    }

    fn held_bytes(&self) -> usize {
        self.outbound.held_bytes() + self.inbound.held_bytes() + self.inbound.receive_buffer_bytes()
    }

    fn long_record(&self) -> Option<usize> {
        self.inbound.long_record()
    }

    fn set_record_bound(&mut self, record_bytes_max: usize) {
        self.inbound.set_record_bound(record_bytes_max);
    }

    fn within_record(&self) -> bool {
        self.inbound.within_record()
    }

    fn may_hold_records(&self) -> bool {
        self.inbound.holds_unparsed() || rustix::io::ioctl_fionread(&self.socket).is_ok_and(|bytes| bytes > 0)
    }

    fn since_data(&self) -> Option<Duration> {
        socket::tcp_info(self.socket.as_fd()).ok().map(|info| info.since_data)
    }

    fn incomplete_bytes(&self) -> usize {
        self.inbound.incomplete_bytes()
    }

    fn progress(&self) -> u64 {
        socket::tcp_info(self.socket.as_fd()).map_or(0, |info| info.acknowledged_bytes)
    }

    fn unacknowledged_bytes(&self) -> Option<u64> {
        socket::unacknowledged_bytes(self.socket.as_fd()).ok().map(|bytes| bytes as u64)
    }

    fn acknowledges_after_close(&self) -> bool {
        true
    }

    fn is_open(&self) -> bool {
        socket::tcp_info(self.socket.as_fd()).is_ok_and(|info| info.is_established)
    }

    fn is_closed_by_peer(&self) -> bool {
        socket::tcp_info(self.socket.as_fd()).is_ok_and(|info| info.is_closed_by_peer)
    }

    fn is_watched(&self) -> bool {
        true
    }

    fn ask(&mut self) -> Result<(), Error> {
        // The system watches the peer ([`socket::set_deadlines`]).
        Ok(())
    }

    fn copies_payload(&self) -> bool {
        false
    }

    fn may_move(&self) -> bool {
        true
    }

    fn end(self, reset: bool, _poller: &Poller) -> Ended<L> {
        if reset {
            // A socket that is already gone needs no reset.
            let _ = socket::reset_on_close(self.socket.as_fd());
        }
        // A poller forgets a socket that is closed.
        Ended { receive_buffer: self.inbound.into_receive_buffer(), remains: Remains::default() }
    }
}

#[cfg(test)]
mod tests;

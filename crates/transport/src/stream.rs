//! Record marking over a stream socket: TCP, or a pair within one process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::inbound::{Inbound, Received, Scratch};
use crate::outbound::{Flushed, Outbound};
use crate::{Error, ReceiveBuffer, Sink, Source, Transport, socket};

/// The limits of what a stream accepts from its peer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest record, summed over its fragments.
    pub record_bytes_max: usize,
}

/// A connection that carries records over a stream socket.
#[derive(Debug)]
pub struct Stream<P, L> {
    socket: OwnedFd,
    inbound: Inbound<L>,
    outbound: Outbound<P>,
}

impl<P, L: ReceiveBuffer> Stream<P, L> {
    /// Creates a stream over a connected, non-blocking socket.
    #[must_use]
    pub fn new(socket: OwnedFd, limits: Limits) -> Self {
        Self { socket, inbound: Inbound::new(limits.record_bytes_max), outbound: Outbound::new() }
    }

    /// Creates two connected streams within this process.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn pair(limits: Limits) -> std::io::Result<(Self, Self)> {
        let (one, other) = socket::pair()?;
        Ok((Self::new(one, limits), Self::new(other, limits)))
    }

    /// The socket, for polling and for queries.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Bytes held for incomplete records.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.inbound.held_bytes()
    }

    /// Changes the maximum size of the records that start from now on.
    pub const fn set_record_bound(&mut self, record_bytes_max: usize) {
        self.inbound.set_record_bound(record_bytes_max);
    }

    /// Size of the sink's receive buffer that is in use.
    #[must_use]
    pub fn landing_bytes(&self) -> usize {
        self.inbound.landing_bytes()
    }

    /// Bytes received of an incomplete record.
    #[must_use]
    pub fn incomplete_bytes(&self) -> usize {
        self.inbound.incomplete_bytes()
    }

    /// Records that are queued and not sent completely. Each costs memory, however short it is.
    #[must_use]
    pub fn queued_records(&self) -> usize {
        self.outbound.queued_records()
    }

    /// Whether a part of a record, but not all of it, was received.
    #[must_use]
    pub fn within_record(&self) -> bool {
        self.inbound.within_record()
    }

    /// The payloads of queued records that were not sent completely.
    pub fn unsent(&self) -> impl Iterator<Item = &P> {
        self.outbound.unsent()
    }

    /// Sends queued records, as far as the peer accepts them, but no more than about
    /// `budget_bytes`: the piece of memory in which the budget ends is sent whole.
    ///
    /// # Errors
    /// Any [`Error`]; the connection is then finished.
    #[inline]
    pub fn flush_some(&mut self, source: &impl Source<P>, budget_bytes: usize) -> Result<Flushed, Error> {
        self.outbound.flush(self.socket.as_fd(), source, budget_bytes)
    }

    /// Resets the connection: nothing that is queued here or in the system is delivered later.
    /// Returns the receive buffer of an incomplete payload.
    pub fn abort(self) -> Option<L> {
        // A socket that is already gone needs no reset.
        let _ = socket::reset_on_close(self.socket.as_fd());
        self.inbound.into_landing()
    }
}

impl<P, L: ReceiveBuffer> Transport<P, L> for Stream<P, L> {
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
    fn push(&mut self, payload: P, payload_len: usize, head: impl FnOnce(&mut Vec<u8>)) {
        self.outbound.push(payload, payload_len, head);
    }

    #[inline]
    fn flush(&mut self, source: &impl Source<P>) -> Result<bool, Error> {
        Ok(self.flush_some(source, usize::MAX)? == Flushed::All)
    }

    fn queued_bytes(&self) -> usize {
        self.outbound.queued_bytes()
    }
}

#[cfg(test)]
mod tests;

//! Record marking over a stream socket: TCP, or a pair within one process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::inbound::{Inbound, Received, Scratch};
use crate::outbound::{Flushed, Outbound};
use crate::{Error, ReceiveBuffer, Sink, Source, Transport, socket};

/// What a stream accepts from its peer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest record, over the sum of its fragments.
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
    /// Takes a connected, non-blocking socket.
    #[must_use]
    pub fn new(socket: OwnedFd, limits: Limits) -> Self {
        Self { socket, inbound: Inbound::new(limits.record_bytes_max), outbound: Outbound::new() }
    }

    /// Two ends of a connection within this process.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn pair(limits: Limits) -> std::io::Result<(Self, Self)> {
        let (one, other) = socket::pair()?;
        Ok((Self::new(one, limits), Self::new(other, limits)))
    }

    /// The socket, to wait for and to ask about.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Bytes held for incomplete records.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.inbound.held_bytes()
    }

    /// Changes the bound of the records that begin from now on.
    pub const fn set_record_bound(&mut self, record_bytes_max: usize) {
        self.inbound.set_record_bound(record_bytes_max);
    }

    /// Memory of the sink's that a payload is being received into.
    #[must_use]
    pub fn landing_bytes(&self) -> usize {
        self.inbound.landing_bytes()
    }

    /// Bytes that have come of a record that is not complete.
    #[must_use]
    pub fn incomplete_bytes(&self) -> usize {
        self.inbound.incomplete_bytes()
    }

    /// Records queued and not yet sent whole. Each costs memory of its own, however short it is.
    #[must_use]
    pub fn queued_records(&self) -> usize {
        self.outbound.queued_records()
    }

    /// Whether part of a record has come and the rest has not.
    #[must_use]
    pub fn within_record(&self) -> bool {
        self.inbound.within_record()
    }

    /// The payloads of queued records that have not been sent whole.
    pub fn unsent(&self) -> impl Iterator<Item = &P> {
        self.outbound.unsent()
    }

    /// Sends what is queued, as far as the peer takes it, but no more than about `budget_bytes`:
    /// the piece of memory that they end in is sent whole.
    ///
    /// # Errors
    /// Any [`Error`]; the connection is then finished.
    #[inline]
    pub fn flush_some(&mut self, source: &impl Source<P>, budget_bytes: usize) -> Result<Flushed, Error> {
        self.outbound.flush(self.socket.as_fd(), source, budget_bytes)
    }

    /// Resets the connection: nothing that is queued here or in the system is delivered later.
    /// Gives back memory that a payload was being received into.
    pub fn abort(self) -> Option<L> {
        // A socket that is gone already needs no reset.
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

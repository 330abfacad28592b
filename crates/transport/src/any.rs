//! A connection over TCP or over RDMA.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::framing::{Framing, RecordMarking};
use crate::poll::{Interest, Poller};
use crate::rdma::Counters;
use crate::{
    Ended, Error, Expect, Flushed, ReceiveBuffer, Received, Scratch, Sink, Source, Stream, Transport,
};

/// A connection over TCP or over RDMA. `R` is this end of a connection over RDMA:
/// [`Requester`](crate::rdma::Requester) or [`Responder`](crate::rdma::Responder).
#[derive(Debug)]
pub enum AnyTransport<P, L, R, F: Framing = RecordMarking> {
    /// Over TCP, or within one process. Most connections are streams, so they need no pointer.
    Tcp(Stream<P, L, F>),
    /// Over RDMA.
    Rdma(Box<R>),
}

/// Asks the transport that there is.
macro_rules! either {
    ($this:expr, $transport:ident => $answer:expr) => {
        match $this {
            Self::Tcp($transport) => $answer,
            Self::Rdma($transport) => $answer,
        }
    };
}

impl<P, L, R, F> Transport<P, L> for AnyTransport<P, L, R, F>
where
    L: ReceiveBuffer,
    R: Transport<P, L>,
    F: Framing,
{
    fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        either!(self, transport => transport.register(poller, token))
    }

    fn set_interest(&self, poller: &Poller, token: u64, interest: Interest) -> io::Result<()> {
        either!(self, transport => transport.set_interest(poller, token, interest))
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        either!(self, transport => transport.socket())
    }

    fn wake(&mut self) {
        either!(self, transport => transport.wake());
    }

    #[inline]
    fn receive(
        &mut self,
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
        budget_bytes: usize,
    ) -> Result<Received, Error> {
        either!(self, transport => transport.receive(scratch, sink, budget_bytes))
    }

    #[inline]
    fn push(&mut self, payload: P, payload_len: usize, expect: Expect, head: impl FnOnce(&mut Vec<u8>)) {
        either!(self, transport => transport.push(payload, payload_len, expect, head));
    }

    #[inline]
    fn flush(&mut self, source: &impl Source<P>, budget_bytes: usize) -> Result<Flushed, Error> {
        either!(self, transport => transport.flush(source, budget_bytes))
    }

    fn has_unseen(&self) -> bool {
        either!(self, transport => transport.has_unseen())
    }

    fn needs_flush(&self) -> bool {
        either!(self, transport => transport.needs_flush())
    }

    fn queued_bytes(&self) -> usize {
        either!(self, transport => transport.queued_bytes())
    }

    fn queued_records(&self) -> usize {
        either!(self, transport => transport.queued_records())
    }

    fn unsent(&self, each: impl FnMut(&P)) {
        either!(self, transport => transport.unsent(each));
    }

    fn held_bytes(&self) -> usize {
        either!(self, transport => transport.held_bytes())
    }

    fn long_record(&self) -> Option<usize> {
        either!(self, transport => transport.long_record())
    }

    fn set_record_bound(&mut self, record_bytes_max: usize) {
        either!(self, transport => transport.set_record_bound(record_bytes_max));
    }

    fn within_record(&self) -> bool {
        either!(self, transport => transport.within_record())
    }

    fn may_hold_records(&self) -> bool {
        either!(self, transport => transport.may_hold_records())
    }

    fn since_data(&self) -> Option<Duration> {
        either!(self, transport => transport.since_data())
    }

    fn incomplete_bytes(&self) -> usize {
        either!(self, transport => transport.incomplete_bytes())
    }

    fn progress(&self) -> u64 {
        either!(self, transport => transport.progress())
    }

    fn unacknowledged_bytes(&self) -> Option<u64> {
        either!(self, transport => transport.unacknowledged_bytes())
    }

    fn acknowledges_after_close(&self) -> bool {
        either!(self, transport => transport.acknowledges_after_close())
    }

    fn is_open(&self) -> bool {
        either!(self, transport => transport.is_open())
    }

    fn is_closed_by_peer(&self) -> bool {
        either!(self, transport => transport.is_closed_by_peer())
    }

    fn is_watched(&self) -> bool {
        either!(self, transport => transport.is_watched())
    }

    fn ask(&mut self) -> Result<(), Error> {
        either!(self, transport => transport.ask())
    }

    fn copies_payload(&self) -> bool {
        either!(self, transport => transport.copies_payload())
    }

    fn may_move(&self) -> bool {
        either!(self, transport => transport.may_move())
    }

    fn counters(&self) -> Counters {
        either!(self, transport => transport.counters())
    }

    fn end(self, reset: bool, poller: &Poller) -> Ended<L> {
        match self {
            Self::Tcp(stream) => stream.end(reset, poller),
            Self::Rdma(transport) => transport.end(reset, poller),
        }
    }
}

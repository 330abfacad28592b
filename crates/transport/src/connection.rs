//! A connection as its loop drives it, whatever carries it.
//!
//! [`Transport`] is implemented by a [`Stream`](crate::Stream) and by both ends of a connection
//! over RDMA ([`Requester`](crate::rdma::Requester), [`Responder`](crate::rdma::Responder)). A
//! client and a server hold [`AnyTransport`](crate::AnyTransport) and never ask which it is: where
//! a question has no meaning for one transport, the answer is the default here, with its reason.
//!
//! Messages go both ways: each end pushes calls and replies, and its [`Sink`] gets both.

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use memory::{Registered, Registrar, Scatter};

use crate::framing::FramingError;
use crate::pipe::Pipe;
use crate::poll::{Interest, Poller};
use crate::rdma::{Counters, Pieces};
use crate::{Error, Flushed, Received, Scratch, Slices, SlicesMut};

/// Memory into which a payload is received.
pub trait ReceiveBuffer {
    /// Appends the pieces that are still to be filled; the first `from` bytes are already there.
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>);

    /// Appends the memory for a device, in order, so that RDMA fills it where it is; returns false
    /// if some of it cannot be registered.
    #[must_use]
    fn registered(&mut self, _with: &Registrar, _out: &mut Scatter) -> bool {
        false
    }

    /// A pipe that takes the payload instead, if the transport is a stream.
    fn pipe(&mut self) -> Option<&mut Pipe> {
        None
    }

    /// Leaves the pipe, which takes no more: its contents are moved to memory, and so is the rest
    /// of the payload. Afterwards [`ReceiveBuffer::pipe`] returns `None`.
    ///
    /// # Errors
    /// If the contents of the pipe cannot be read back: the payload is lost.
    fn leave_pipe(&mut self) -> io::Result<()> {
        // A receive buffer with a pipe implements this.
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Where the payload of a record is to be received.
#[derive(Debug)]
pub struct PayloadPlace<L> {
    /// The offset of the payload's first byte in the record.
    pub at: usize,
    /// The payload's length, without padding.
    pub len: usize,
    /// The receive buffer, exactly `len` bytes.
    pub receive_buffer: L,
}

/// Receives the records of a connection for its owner.
pub trait Sink {
    /// The memory that the sink provides for payloads.
    type ReceiveBuffer: ReceiveBuffer;

    /// Offers to receive the payload of a long record in place. `head` is the record's beginning,
    /// at least [`HEAD_BYTES_MIN`](crate::HEAD_BYTES_MIN) bytes. If this returns `None`, the record
    /// is assembled and passed to [`Sink::record`]. The same happens, and the receive buffer is
    /// dropped, if more bytes follow the payload than the framing allows
    /// ([`Framing::TAIL_BYTES_MAX`](crate::framing::Framing::TAIL_BYTES_MAX)).
    fn choose_receive_buffer(
        &mut self,
        head: &[u8],
        record_len: usize,
    ) -> Option<PayloadPlace<Self::ReceiveBuffer>>;

    /// Called before each receive: the records passed to the sink until the next call of this were
    /// received at once.
    fn receiving(&mut self) {}

    /// Takes a whole record.
    fn record(&mut self, record: &[u8]);

    /// Takes a record whose payload was received in place: `head` before it, `tail` (padding) after
    /// it.
    fn received(&mut self, head: &[u8], receive_buffer: Self::ReceiveBuffer, tail: &[u8]);

    /// The transport at the peer's end refused a pushed record, which begins with this word (an RPC
    /// message begins with its xid). The peer has not seen the record. A stream never calls this:
    /// nothing at its other end looks at a record before the peer does.
    fn refused(&mut self, _xid: u32, _reason: &dyn std::fmt::Display) {}

    /// A record is refused by the framing, which ends the connection: [`Transport::receive`]
    /// returns the error next. `beginning` is what was received of the record, possibly nothing;
    /// it tells which call the record answers.
    fn bad_record(&mut self, _beginning: &[u8], _error: &FramingError) {}

    /// Whether the sink accepts the next record. After `false` the owner calls
    /// [`Transport::receive`] again once the sink can accept more, without waiting for the socket:
    /// records may be waiting in the transport.
    fn wants_more(&self) -> bool {
        true
    }
}

/// Finds the bytes of a queued payload. The queue holds only `P`, so that the payload is not moved.
pub trait Source<P> {
    /// Appends the pieces of a payload.
    fn slices<'a>(&'a self, payload: &'a P, out: &mut Slices<'a>);

    /// The memory of a call as a device addresses it, if it can be registered: what the call sends
    /// or, if it sends no payload, what the payload of its reply is received into, which is then
    /// the receive buffer that the sink offers for the reply. A requester over RDMA lends the
    /// memory to the server: the source leaves it alone until the sink has the reply or the
    /// connection was ended ([`Transport::end`]). `None` has the payload copied.
    #[must_use]
    fn memory(&self, _payload: &P, _with: &Registrar) -> Option<Registered> {
        None
    }

    /// Appends the pieces of a payload for a responder over RDMA, with their registrations if a
    /// registrar is given; returns false if this process may not access some of them. A source
    /// whose payloads no responder sends has none.
    #[must_use]
    fn pieces<'a>(&self, _payload: &'a P, _with: Option<&Registrar>, _out: &mut Pieces<'a>) -> bool {
        false
    }
}

/// What a pushed record expects in reply. Over RDMA a requester offers memory for it (RFC 8166
/// s4.3.3); a stream ignores it, and so does a responder, whose records are replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expect {
    /// Maximum size of the reply's payload that is placed directly.
    pub payload_max: u32,
    /// Maximum size of the reply without that payload.
    pub reply_max: u32,
}

/// What is left of a connection that has ended.
#[derive(Debug)]
pub struct Ended<L> {
    /// The receive buffer of an incomplete payload.
    pub receive_buffer: Option<L>,
    /// What a loop should not free itself.
    pub remains: Remains,
}

/// Resources of a connection that has ended, which take long to free: queue pairs and registered
/// memory. Dropping this frees them, on a thread that may wait.
#[derive(Debug, Default)]
pub struct Remains(Option<Box<dyn Any + Send>>);

impl Remains {
    /// These resources.
    pub(crate) fn of(resources: impl Any + Send) -> Self {
        Self(Some(Box::new(resources)))
    }

    /// Whether there is nothing to free.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// A connection that a loop drives. `P` names a queued payload, `L` is a receive buffer.
///
/// The owner registers the connection with a poller, and calls [`Transport::receive`] once: what
/// was received before is not reported. When a descriptor is readable, it calls [`Transport::wake`]
/// and then flushes and receives. Any [`Error`] finishes the connection, which its owner then ends.
pub trait Transport<P, L: ReceiveBuffer>: Sized {
    /// Adds the connection's descriptors to a poller, all under one token, for reading.
    ///
    /// # Errors
    /// If the system refuses.
    fn register(&self, poller: &Poller, token: u64) -> io::Result<()>;

    /// Changes what the poller waits for.
    ///
    /// # Errors
    /// If the system refuses.
    fn set_interest(&self, _poller: &Poller, _token: u64, _interest: Interest) -> io::Result<()> {
        // An RDMA device reports everything through descriptors that become readable, also that
        // there is room to send.
        Ok(())
    }

    /// The socket, for options and queries. RDMA has none: a device sends at its own rate, and
    /// nothing can be peeked at.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Records that a descriptor was readable. A stream need not know: it asks the system each
    /// time.
    fn wake(&mut self) {}

    /// Receives until nothing is waiting, the sink wants no more, or `budget_bytes` have been
    /// received. Over RDMA the budget is not needed: a peer may have only as much outstanding as
    /// its credits allow.
    ///
    /// # Errors
    /// Any [`Error`]; the connection is then finished.
    fn receive(
        &mut self,
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
        budget_bytes: usize,
    ) -> Result<Received, Error>;

    /// Queues a record: the bytes that `head` appends, then `payload_len` bytes of payload with
    /// their padding.
    fn push(&mut self, payload: P, payload_len: usize, expect: Expect, head: impl FnOnce(&mut Vec<u8>));

    /// Sends queued records, as far as the peer accepts them, but on a stream no more than about
    /// `budget_bytes`: the piece of memory in which the budget ends is sent whole. Over RDMA the
    /// device sends in parallel.
    ///
    /// # Errors
    /// Any [`Error`]; the connection is then finished.
    fn flush(&mut self, source: &impl Source<P>, budget_bytes: usize) -> Result<Flushed, Error>;

    /// Whether the peer's messages came, or have been read, since the last [`Transport::receive`],
    /// and no descriptor will become readable for them: then receive again.
    fn has_unseen(&self) -> bool {
        false
    }

    /// Whether [`Transport::flush`] has something to do. Over RDMA it always may have: it handles
    /// the device's events.
    fn needs_flush(&self) -> bool {
        true
    }

    /// Bytes queued and not yet accepted by the system or the device.
    fn queued_bytes(&self) -> usize;

    /// Records that are queued and not sent completely. Each costs memory, however short it is.
    fn queued_records(&self) -> usize;

    /// Calls `each` with the payload of each queued record that was not sent completely. Over RDMA
    /// nobody needs to know: a device sends whole messages, and a reply to a call that was not sent
    /// matches none.
    fn unsent(&self, _each: impl FnMut(&P)) {}

    /// Memory that the connection holds: queued records, and the received part of an incomplete
    /// record. Over RDMA, memory for messages and payload has a bound of its own.
    fn held_bytes(&self) -> usize {
        self.queued_bytes()
    }

    /// While a long record is incomplete: how much memory it will take in addition to what is held,
    /// as far as its length is known. Over RDMA a message is received whole.
    fn long_record(&self) -> Option<usize> {
        None
    }

    /// Changes the maximum size of the records that are received from now on. Over RDMA a requester
    /// needs no bound: each call says how long its reply may be.
    fn set_record_bound(&mut self, _record_bytes_max: usize) {}

    /// Whether a part of a record, but not all of it, was received. Over RDMA a message is received
    /// whole or not at all.
    fn within_record(&self) -> bool {
        false
    }

    /// Whether whole records may have been received that the sink has not taken, here or in the
    /// system. Over RDMA that is not known.
    fn may_hold_records(&self) -> bool {
        true
    }

    /// How long ago the peer's data last arrived at this host, received or not; `None` where that
    /// is not known, as over RDMA.
    fn since_data(&self) -> Option<Duration> {
        None
    }

    /// Bytes received of an incomplete record.
    fn incomplete_bytes(&self) -> usize {
        0
    }

    /// A number that grows whenever the peer's system or device has acknowledged something.
    fn progress(&self) -> u64;

    /// Bytes that were sent and that the peer has not acknowledged; `None` where that is not known.
    fn unacknowledged_bytes(&self) -> Option<u64>;

    /// Whether the peer can still acknowledge what was sent before it closed the connection. Over
    /// RDMA a closed connection delivers nothing any more.
    fn acknowledges_after_close(&self) -> bool {
        false
    }

    /// Whether both ends may still send. Over RDMA the end of the connection is reported as an
    /// error of the next turn.
    fn is_open(&self) -> bool {
        true
    }

    /// Whether the peer has closed the connection in order. Over RDMA a disconnection does not make
    /// earlier sends fail; a failed send is reported otherwise, and ends the connection
    /// differently.
    fn is_closed_by_peer(&self) -> bool {
        true
    }

    /// Whether the system finds out by itself that the peer is gone. It does not over RDMA: the
    /// owner asks.
    fn is_watched(&self) -> bool {
        false
    }

    /// Asks whether the peer is still alive; if it is gone, the connection breaks.
    ///
    /// # Errors
    /// Any [`Error`]; the connection is then finished.
    fn ask(&mut self) -> Result<(), Error>;

    /// Whether payload is copied before it is sent. Over RDMA it is, so it must be in memory of
    /// this process, and not in pages of a file that another process may cut off.
    fn copies_payload(&self) -> bool {
        true
    }

    /// Whether the connection may go to another loop while nothing of it is pending. Over RDMA it
    /// stays: its completions wake the loop that polled it last.
    fn may_move(&self) -> bool {
        false
    }

    /// The counters of an RDMA device.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Ends the connection, which the poller forgets. With `reset`, nothing that is queued here or
    /// in the system is delivered later, and nothing that the peer still sends reaches memory that
    /// is used again. Memory that was lent to the peer ([`Source::memory`]) is the owner's again
    /// when this returns.
    fn end(self, reset: bool, poller: &Poller) -> Ended<L>;
}

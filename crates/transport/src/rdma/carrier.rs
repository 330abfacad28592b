//! A server's end of an RDMA connection that knows no RPC: messages both ways, and payload that it
//! moves between its own memory and memory that the peer has named in a message.
//!
//! The owner gives a payload away while it is moved: what is fetched comes back when it is all
//! there ([`Moved::Fetched`]), what is written is dropped once the peer has it. So nobody else
//! touches memory that a device accesses. A payload is moved where it is, as far as its memory can
//! be registered; other payload is copied through a pool of the connection.
//!
//! When the connection ends, [`Carrier::end`] gives what is left: dropping that destroys the queue
//! pair, and then the payload that was under way. Afterwards nothing that was posted reads or
//! writes that memory any more, nor the peer's.
//!
//! Bounds are the owner's: it has one message of the peer in each receive that it has posted, and
//! gives as much payload as it wants under way.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use memory::{Registered, Registrar, Scatter};
use rpcrdma::header::Segment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smallvec::SmallVec;
use verbs::Access;

use super::direct::{Pieces, overlaps, unregistered_bytes};
use super::{Buffer, Endpoint, Error, Event, Incoming, Offer, Options, Part, SIGNALLED_EACH, forget};
use crate::poll::{Interest, Poller};
use crate::{ReceiveBuffer, Remains, SlicesMut};

/// Memory in more pieces than this is not read into piece by piece: copying costs less than so many
/// RDMA reads. 1 MiB has 17 pieces of 64 KiB at most.
const READ_PIECES_MAX: usize = 20;

/// Payload for the peer. It stays what it is, where it is, until it is dropped.
pub trait Outgoing {
    /// Appends the pieces, in order, with their registrations as far as they can be registered.
    fn pieces<'a>(&'a self, with: Option<&Registrar>, out: &mut Pieces<'a>);
}

/// Memory of the peer, as it has named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The address as the peer counts.
    pub address: u64,
    /// The length in bytes, at least one.
    pub bytes: u32,
    /// The key.
    pub key: u32,
}

/// What a connection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Receives.
    pub receives: u32,
    /// The longest message of the peer, in bytes.
    pub receive_bytes: u32,
    /// Messages to the peer at a time; further ones wait.
    pub sends: u32,
    /// The longest of them, in bytes.
    pub send_bytes: u32,
    /// Memory for payload that cannot be registered where it is, in bytes.
    pub pool_bytes_max: usize,
}

/// What has happened.
#[derive(Debug)]
pub enum Moved<L> {
    /// The peer is connected.
    Connected,
    /// A message: [`Carrier::message`].
    Message,
    /// The payload with this tag is here.
    Fetched {
        /// The tag.
        tag: u16,
        /// The memory that was given.
        into: L,
    },
    /// The peer has a message, and the payload that it followed; this many bytes were charged for
    /// it.
    Sent(usize),
}

/// Work whose end matters.
#[derive(Debug)]
enum Tag<P> {
    Read(u16),
    /// A message, with the payload that was written before it and what was charged for that.
    Sent(Option<P>, usize),
}

/// A message that follows payload.
struct Reply<P> {
    to: Remote,
    payload: P,
    charge: usize,
    message: Vec<u8>,
    invalidate: Option<u32>,
}

enum Job<P> {
    /// The payload with this tag, which is in `fetching`.
    Fetch(u16, Remote),
    Reply(Reply<P>),
}

/// Payload that is being fetched.
struct Fetching<L> {
    tag: u16,
    into: L,
    /// Where it is read, if not there.
    through: Option<(Buffer, usize)>,
}

/// See the module's documentation. `P` is payload for the peer, `L` memory for the peer's.
pub struct Carrier<P, L> {
    /// First, so that the endpoint and its queue pair are dropped first.
    endpoint: Endpoint<Tag<P>>,
    fetching: Vec<Fetching<L>>,
    /// What waits for memory of the pool, in order.
    waiting: VecDeque<Job<P>>,
    /// The reply that is being posted: what is posted of it already must not outlive its payload.
    current: Option<Reply<P>>,
    sends_under_way: usize,
    send_bytes: u32,
    inbox: Vec<u8>,
}

impl<P, L> fmt::Debug for Carrier<P, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier").field("peer", &self.endpoint.peer()).finish_non_exhaustive()
    }
}

impl<P: Outgoing, L: ReceiveBuffer> Carrier<P, L> {
    /// Accepts a client with these private data. All receives are posted.
    ///
    /// # Errors
    /// Errors of the system, mostly because too much memory would have to be locked.
    pub fn accept(incoming: Incoming, room: &Room, private_data: &[u8]) -> Result<Self, Error> {
        let offer =
            Offer { send_bytes: room.send_bytes, receive_bytes: room.receive_bytes, invalidation: false };
        let sends = room.sends.max(SIGNALLED_EACH as u32 + 1);
        let options = Options {
            offer,
            receives: room.receives,
            sends,
            // Each message may follow payload in several writes; more of them wait.
            work: sends * 2,
            pool_bytes_max: room.pool_bytes_max,
            ..Options::default()
        };
        let mut endpoint = incoming.prepare(&options)?;
        endpoint.post_receives(room.receives)?;
        endpoint.accept_with(private_data)?;
        Ok(Self {
            endpoint,
            fetching: Vec::new(),
            waiting: VecDeque::new(),
            current: None,
            sends_under_way: 0,
            send_bytes: room.send_bytes,
            inbox: Vec::new(),
        })
    }

    /// Adds its descriptors to a poller, all under one token, for reading.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        let (events, completions) = self.endpoint.fds();
        [Some(events), completions]
            .into_iter()
            .flatten()
            .try_for_each(|fd: BorrowedFd<'_>| poller.add(fd, token, Interest::READ))
    }

    /// Records that a descriptor was readable.
    pub const fn wake(&mut self) {
        self.endpoint.wake();
    }

    /// What has happened next; `None` if there is nothing: then wait for the descriptors.
    ///
    /// # Errors
    /// Why the connection has ended.
    pub fn poll(&mut self) -> Result<Option<Moved<L>>, Error> {
        let Some(event) = self.endpoint.poll(&mut self.inbox)? else { return Ok(None) };
        Ok(Some(match event {
            Event::Connected(_) => Moved::Connected,
            Event::Received => Moved::Message,
            Event::Done(Tag::Sent(payload, charge)) => {
                self.sends_under_way -= 1;
                drop(payload);
                self.begin_waiting()?;
                Moved::Sent(charge)
            }
            Event::Done(Tag::Read(tag)) => {
                let into = self.fetched(tag)?;
                self.begin_waiting()?;
                Moved::Fetched { tag, into }
            }
        }))
    }

    /// The last message that was reported.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.inbox
    }

    /// Lets the peer send this many further messages.
    ///
    /// # Errors
    /// More than there is room for, or an error of the system.
    pub fn post_receives(&mut self, count: u32) -> Result<(), Error> {
        self.endpoint.post_receives(count)
    }

    /// Messages that the peer does not have yet, also those that follow payload.
    #[must_use]
    pub fn sends_under_way(&self) -> usize {
        self.sends_under_way + self.waiting.iter().filter(|job| matches!(job, Job::Reply(_))).count()
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.endpoint.work_under_way() == 0 && self.waiting.is_empty()
    }

    /// Sends a message, which may end a right that the peer has given.
    ///
    /// # Errors
    /// A message that is too long, or an error of the system.
    pub fn send(&mut self, message: &[u8], invalidate: Option<u32>) -> Result<(), Error> {
        self.endpoint.send(&[message], invalidate, Some(Tag::Sent(None, 0)))?;
        self.sends_under_way += 1;
        Ok(())
    }

    /// Writes a payload, which is not empty, into the peer's memory, and sends a message after it.
    ///
    /// # Errors
    /// A payload that is longer than the peer's memory, or an error of the system.
    pub fn reply(
        &mut self,
        to: Remote,
        (payload, charge): (P, usize),
        message: &[u8],
        invalidate: Option<u32>,
    ) -> Result<(), Error> {
        // Before any work is posted that the payload must outlive.
        if u32::try_from(message.len()).map_or(true, |bytes| bytes > self.send_bytes) {
            return Err(Error::Misuse("the message is longer than there is room for"));
        }
        let message = message.to_vec();
        self.waiting.push_back(Job::Reply(Reply { to, payload, charge, message, invalidate }));
        self.begin_waiting()
    }

    /// Fetches a payload from the peer's memory. The memory for it has the length of the peer's,
    /// and no other payload that is being fetched has this tag.
    ///
    /// # Errors
    /// An error of the system.
    pub fn fetch(&mut self, tag: u16, from: Remote, into: L) -> Result<(), Error> {
        self.fetching.push(Fetching { tag, into, through: None });
        self.waiting.push_back(Job::Fetch(tag, from));
        self.begin_waiting()
    }

    /// Whether something has happened to the connection itself that was not looked at: probably it
    /// has ended.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let (events, _) = self.endpoint.fds();
        let mut fds = [PollFd::new(&events, PollFlags::IN)];
        // Where it cannot be asked, it counts as ended.
        !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }

    /// Makes a poller forget the connection, and ends it: the peer is told. What is left is dropped
    /// on a thread that may wait.
    #[must_use]
    pub fn end(self, poller: &Poller) -> Remains
    where
        P: Send + 'static,
        L: Send + 'static,
    {
        let (events, completions) = self.endpoint.fds();
        forget([Some(events.as_fd()), completions], poller);
        self.endpoint.disconnect();
        Remains::of(self)
    }

    /// Begins what waits, as far as there is memory.
    fn begin_waiting(&mut self) -> Result<(), Error> {
        while let Some(job) = self.waiting.pop_front() {
            let kept = match job {
                Job::Fetch(tag, from) if !self.begin_fetch(tag, from)? => Some(Job::Fetch(tag, from)),
                Job::Reply(reply) => self.begin_reply(reply)?.map(Job::Reply),
                Job::Fetch(..) => None,
            };
            if let Some(job) = kept {
                self.waiting.push_front(job);
                break;
            }
        }
        Ok(())
    }

    /// Posts the reads for a payload; false if there is no memory for them now.
    fn begin_fetch(&mut self, tag: u16, from: Remote) -> Result<bool, Error> {
        let Self { endpoint, fetching, .. } = self;
        let Some(wanted) = fetching.iter_mut().find(|fetching| fetching.tag == tag) else { return Ok(true) };
        let mut memory = Scatter::new();
        let is_registered = match endpoint.registrar() {
            Some(registrar) => wanted.into.registered(registrar, &mut memory),
            None => false,
        };
        let bytes: usize = memory.iter().map(|part| part.bytes).sum();
        let whole = usize::try_from(from.bytes).unwrap_or(usize::MAX);
        if !is_registered || memory.len() > READ_PIECES_MAX || bytes != whole {
            let Some(buffer) = endpoint.buffer(whole, Access::Local)? else { return Ok(false) };
            wanted.through = Some((buffer.clone(), whole));
            let part = Part { buffer, from: 0, bytes: from.bytes };
            endpoint.read(from.address, from.key, part, Some(Tag::Read(tag)))?;
            return Ok(true);
        }
        let segment = Segment { handle: from.key, length: from.bytes, offset: from.address };
        let reads = overlaps(&[segment], &memory);
        for (at, (from, to)) in reads.iter().enumerate() {
            let tag = (at + 1 == reads.len()).then_some(Tag::Read(tag));
            // SAFETY: the memory is left alone in `fetching` until the last of these reads is done,
            // and dropped after the endpoint if the connection ends before.
            unsafe { endpoint.read_registered(from.offset, from.handle, to, tag)? };
        }
        Ok(true)
    }

    /// The memory of a payload that is here now.
    fn fetched(&mut self, tag: u16) -> Result<L, Error> {
        let at = self.fetching.iter().position(|fetching| fetching.tag == tag);
        let at = at.ok_or(Error::Misuse("a payload came that was not fetched"))?;
        let Fetching { mut into, through, .. } = self.fetching.swap_remove(at);
        let Some((buffer, bytes)) = through else { return Ok(into) };
        let mut pieces = SlicesMut::new();
        into.unfilled(0, &mut pieces);
        let mut from = 0;
        for piece in &mut pieces {
            let length = piece.len().min(bytes - from);
            if let Some(piece) = piece.get_mut(..length) {
                buffer.read(from, piece)?;
            }
            from += length;
        }
        drop(pieces);
        self.endpoint.count_copied(from);
        Ok(into)
    }

    /// Posts the writes of a payload and the message that follows them; gives the reply back if
    /// there is no memory for it now.
    fn begin_reply(&mut self, reply: Reply<P>) -> Result<Option<Reply<P>>, Error> {
        let Self { endpoint, current, .. } = self;
        let reply = current.insert(reply);
        let mut pieces = Pieces::new();
        reply.payload.pieces(endpoint.registrar(), &mut pieces);
        let bytes: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
        if bytes == 0 || u32::try_from(bytes).map_or(true, |bytes| bytes > reply.to.bytes) {
            return Err(Error::Misuse("a payload that does not fit the peer's memory"));
        }
        let through_pool = unregistered_bytes(&pieces);
        let buffer = if through_pool > 0 { endpoint.buffer(through_pool, Access::Local)? } else { None };
        if through_pool > 0 && buffer.is_none() {
            drop(pieces);
            return Ok(current.take());
        }
        let mut registered: SmallVec<[Registered; 20]> = SmallVec::new();
        let mut copied = 0;
        for piece in pieces.iter().filter(|piece| !piece.bytes.is_empty()) {
            registered.push(match (piece.registered, &buffer) {
                (Some(part), _) => part,
                (None, Some(buffer)) => {
                    buffer.write(copied, piece.bytes)?;
                    copied += piece.bytes.len();
                    buffer.registered(copied - piece.bytes.len(), piece.bytes.len())
                }
                (None, None) => return Err(Error::Misuse("a payload without memory")),
            });
        }
        // SAFETY: the payload stays in `current` and then in the tag of the send that follows;
        // either is dropped after the endpoint's queue pair if the connection ends before. The
        // endpoint keeps the buffer.
        unsafe {
            endpoint.write_registered(reply.to.address, reply.to.key, &registered, buffer.as_ref(), None)?;
        }
        drop(pieces);
        endpoint.count_copied(copied);
        if let Some(Reply { payload, charge, message, invalidate, .. }) = current.take() {
            endpoint.send(&[&message], invalidate, Some(Tag::Sent(Some(payload), charge)))?;
            self.sends_under_way += 1;
        }
        Ok(None)
    }
}

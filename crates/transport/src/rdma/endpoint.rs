//! One end of a connection: its queue pair and all work posted there.

#![allow(unsafe_code)]

mod lending;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use memory::{Registered, Registrar};
use rpcrdma::connect::{Agreed, Offer};
use smallvec::{SmallVec, smallvec};
use verbs::{
    Access, Capacity, Completion, Domain, EventChannel, EventKind, Identifier, Queue, Region, Slice, Terms,
    Work,
};

pub(super) use lending::Lent;
use lending::Windows;

use super::domain::SharedDomain;
use super::pool::{Buffer, Part, Pool};
use super::{Counters, Error, Event, NOBODY_LISTENS, Options, SIGNALLED_EACH};

/// Marks the numbers of receives; other numbers count work.
const RECEIVE: u64 = 1 << 63;
/// Extra completions beyond those of work and receives: there are none, but a queue must not be
/// filled to its last place.
const SPARE_COMPLETIONS: u32 = 16;
/// Pieces of memory that one RDMA write of a server gathers, where the device allows: 1 MiB in
/// extents of 64 KiB takes four writes, and a place in the queue stays within 128 bytes.
const GATHERED_MAX: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Resolving the route to the server.
    Resolving,
    /// Has a queue pair and is being connected.
    Opening,
    /// The peer has accepted.
    Connected,
}

/// Places of equal size in one region.
#[derive(Debug)]
struct Places {
    region: Region,
    bytes: u32,
    free: Vec<u32>,
}

impl Places {
    fn new(domain: &Arc<Domain>, count: u32, bytes: u32) -> Result<Self, verbs::Error> {
        let whole = u64::from(count) * u64::from(bytes);
        let whole =
            usize::try_from(whole).map_err(|_| verbs::Error::Misuse("too much memory for messages"))?;
        let region = Region::new(domain, whole, Access::Local)?;
        Ok(Self { region, bytes, free: (0..count).rev().collect() })
    }

    fn at(&self, place: u32) -> usize {
        usize::try_from(u64::from(place) * u64::from(self.bytes)).unwrap_or(usize::MAX)
    }

    fn slice(&self, place: u32, bytes: u32) -> Result<Slice, verbs::Error> {
        self.region.slice(self.at(place), bytes)
    }
}

/// Posted work, in order.
#[derive(Debug)]
struct Posted<T> {
    number: u64,
    tag: Option<T>,
    place: Option<u32>,
    _keeps: Option<Buffer>,
    /// The work binds a window. An invalidation also fails if the server did it at the same time,
    /// and says nothing of the device.
    binds_window: bool,
}

#[derive(Debug)]
enum Job {
    Send { bytes: Vec<u8>, invalidate: Option<u32> },
    Move { work: Work, slices: Slices, keeps: Option<Buffer> },
}

/// The memory of one RDMA write or read.
type Slices = SmallVec<[Slice; GATHERED_MAX as usize]>;

/// The resources on a device, known once the route is.
#[derive(Debug)]
struct OnDevice {
    ring: Places,
    sends: Places,
    pool: Pool,
    queue: Arc<Queue>,
    /// Pieces of memory that one RDMA write gathers.
    gathered: usize,
    /// The domain of a server.
    shared: Option<Arc<SharedDomain>>,
    /// The windows of a client, where its device has them.
    windows: Option<Windows>,
}

/// One end of a connection. `T` identifies pieces of work to their owner.
#[derive(Debug)]
pub struct Endpoint<T> {
    // The fields are dropped in this order: first the queue pair, so that nothing is transferred
    // any more, then memory.
    identifier: Identifier,
    on_device: Option<OnDevice>,
    channel: Arc<EventChannel>,
    posted: VecDeque<Posted<T>>,
    waiting: VecDeque<(Job, Option<T>)>,
    done: VecDeque<T>,
    completions: Vec<Completion>,
    /// The number of completions handled.
    taken: usize,
    options: Options,
    state: State,
    agreed: Option<Agreed>,
    reads_made: u8,
    local: Option<SocketAddr>,
    peer: SocketAddr,
    /// What is said to the peer instead of the offer.
    private_data: Option<Box<[u8]>>,
    /// What the peer said as it accepted or refused.
    peer_data: Vec<u8>,
    number: u64,
    /// Pieces of work at the end of `posted` that will have no completion of their own.
    unsignalled: usize,
    /// Some of these keep a buffer.
    unsignalled_keeps: bool,
    armed: bool,
    /// A descriptor was readable, and nothing has been found since.
    woken: bool,
    counters: Counters,
}

impl<T> Endpoint<T> {
    /// Starts to connect to a server, from a local address if given (its port may be 0).
    ///
    /// # Errors
    /// Missing libraries or devices, or an address that no device has.
    pub fn connect(local: Option<SocketAddr>, peer: SocketAddr, options: &Options) -> Result<Self, Error> {
        let identifier = Identifier::new(&EventChannel::new()?)?;
        identifier.resolve(local, peer, options.resolve_within)?;
        Ok(Self::new(identifier, (local, peer), State::Resolving, *options))
    }

    /// Like [`Endpoint::connect`], with private data of another protocol than RPC.
    ///
    /// # Errors
    /// As for [`Endpoint::connect`].
    pub fn connect_with(
        local: Option<SocketAddr>,
        peer: SocketAddr,
        options: &Options,
        private_data: &[u8],
    ) -> Result<Self, Error> {
        let mut endpoint = Self::connect(local, peer, options)?;
        endpoint.private_data = Some(private_data.into());
        Ok(endpoint)
    }

    pub(super) fn incoming(
        mut identifier: Identifier,
        (local, peer): (SocketAddr, SocketAddr),
        offer: &Offer,
        reads_allowed: u8,
        options: &Options,
    ) -> Result<Self, Error> {
        identifier.migrate(&EventChannel::new()?)?;
        let mut endpoint = Self::new(identifier, (Some(local), peer), State::Opening, *options);
        endpoint.agreed = Some(options.offer.agree(offer));
        if options.reads_made != u8::MAX {
            endpoint.reads_made = options.reads_made.min(reads_allowed);
        }
        match endpoint.make_queue_pair() {
            Ok(()) => Ok(endpoint),
            // If a client gives up before it is accepted, the system reports no event, and then
            // fails everything as invalid. A failing rejection distinguishes this from a device
            // that lacks something: there is no one left to reject.
            Err(_) if endpoint.identifier.reject(&[]).is_err() => Err(Error::Closed),
            Err(error) => Err(error),
        }
    }

    fn new(
        identifier: Identifier,
        (local, peer): (Option<SocketAddr>, SocketAddr),
        state: State,
        options: Options,
    ) -> Self {
        Self {
            channel: Arc::clone(identifier.channel()),
            identifier,
            on_device: None,
            posted: VecDeque::new(),
            waiting: VecDeque::new(),
            done: VecDeque::new(),
            completions: Vec::new(),
            taken: 0,
            state,
            agreed: None,
            reads_made: options.reads_made,
            options,
            local,
            peer,
            private_data: None,
            peer_data: Vec::new(),
            number: 0,
            unsignalled: 0,
            unsignalled_keeps: false,
            armed: false,
            woken: true,
            counters: Counters::default(),
        }
    }

    fn make_queue_pair(&mut self) -> Result<(), Error> {
        let options = &self.options;
        // A client is still resolving its route. It must not share a domain: its server has the
        // keys to memory in it.
        let serves = self.state == State::Opening;
        let shared = match self.local.filter(|_| serves) {
            Some(local) => Some(SharedDomain::on(&self.identifier, local)?),
            None => None,
        };
        let domain = match &shared {
            Some(shared) => Arc::clone(&shared.domain),
            None => Domain::on(&self.identifier)?,
        };
        let queue = Queue::on(&self.identifier, options.work + options.receives + SPARE_COMPLETIONS)?;
        let mut slices = if serves { GATHERED_MAX } else { 1 };
        let capacity = |slices| Capacity { work: options.work, receives: options.receives, slices };
        let mut made = self.identifier.create_queue_pair(&domain, &queue, &queue, capacity(slices));
        if made.is_err() && slices > 1 {
            slices = 1;
            made = self.identifier.create_queue_pair(&domain, &queue, &queue, capacity(slices));
        }
        made?;
        self.on_device = Some(OnDevice {
            ring: Places::new(&domain, options.receives, options.offer.receive_bytes)?,
            sends: Places::new(&domain, options.sends, options.offer.send_bytes)?,
            pool: Pool::new(&domain, options.pool_bytes_max),
            queue,
            gathered: usize::try_from(slices).unwrap_or(1),
            windows: if serves { None } else { Windows::on(&domain, options.windows) },
            shared,
        });
        Ok(())
    }

    /// Accepts a client, after receives were posted.
    ///
    /// # Errors
    /// Errors of the system, or a client that is gone.
    pub fn accept(&mut self) -> Result<(), Error> {
        self.accept_with(&self.options.offer.encode())
    }

    /// Accepts a client with private data of another protocol than RPC, after receives were posted.
    ///
    /// # Errors
    /// Errors of the system, or a client that is gone.
    pub fn accept_with(&mut self, private_data: &[u8]) -> Result<(), Error> {
        let (reads_served, reads_made) = (self.options.reads_served, self.reads_made);
        match self.identifier.accept(&Terms { private_data, reads_served, reads_made }) {
            // The parameters are valid: the client has given up in the meantime.
            Err(verbs::Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::InvalidInput => {
                Err(Error::Closed)
            }
            other => Ok(other?),
        }
    }

    /// The descriptors to wait for until readable: events of the connection, and, once the route is
    /// known, completions. A server has the second descriptor at once, a client from the first
    /// [`Endpoint::poll`] after the route is known.
    #[must_use]
    pub fn fds(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        (self.channel.as_fd(), self.on_device.as_ref().map(|on_device| on_device.queue.as_fd()))
    }

    /// The local address, once it is known.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        self.identifier.local_address().or(self.local)
    }

    /// The address of the peer.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The parameters agreed with the peer, once they are known: on a server at once.
    #[must_use]
    pub const fn agreed(&self) -> Option<Agreed> {
        self.agreed
    }

    /// What the peer said as it accepted or refused. Padded by some transports.
    #[must_use]
    pub fn peer_data(&self) -> &[u8] {
        &self.peer_data
    }

    /// The counters of this endpoint.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Number of pieces of work that are posted or wait to be posted.
    #[must_use]
    pub fn work_under_way(&self) -> usize {
        self.posted.len() + self.waiting.len()
    }

    /// Bytes of messages that wait to be sent.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        let bytes = |job: &Job| if let Job::Send { bytes, .. } = job { bytes.len() } else { 0 };
        self.waiting.iter().map(|(job, _)| bytes(job)).sum()
    }

    /// Returns registered memory of at least this many bytes; `None` while too much of the pool is
    /// in use, which ends as work completes and buffers are dropped.
    ///
    /// # Errors
    /// More than may be locked, or an endpoint that has no device yet.
    pub fn buffer(&self, bytes: usize, access: Access) -> Result<Option<Buffer>, Error> {
        Ok(self.on_device()?.pool.take(bytes, access)?)
    }

    /// Posts this many receives.
    ///
    /// # Errors
    /// More than the ring has free places.
    pub fn post_receives(&mut self, count: u32) -> Result<(), Error> {
        let on_device = self.on_device.as_mut().ok_or(NO_DEVICE)?;
        for _ in 0..count {
            let place = on_device.ring.free.pop().ok_or(Error::Misuse("the ring of receives is full"))?;
            let slice = on_device.ring.slice(place, on_device.ring.bytes)?;
            self.identifier.post_receive(RECEIVE | u64::from(place), slice)?;
            self.counters.places += 1;
        }
        Ok(())
    }

    /// Sends a message that consists of these pieces, which are copied.
    ///
    /// # Errors
    /// A message that is longer than was offered, or an error of the system.
    pub fn send(&mut self, pieces: &[&[u8]], invalidate: Option<u32>, tag: Option<T>) -> Result<(), Error> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let room = self.on_device()?.sends.bytes;
        let fits = u32::try_from(bytes).ok().filter(|bytes| *bytes <= room);
        let bytes = fits.ok_or(Error::Misuse("the message is longer than was offered"))?;
        if self.waiting.is_empty() && self.has_room() {
            let on_device = self.on_device.as_mut().ok_or(NO_DEVICE)?;
            if let Some(place) = on_device.sends.free.pop() {
                let mut at = on_device.sends.at(place);
                for piece in pieces {
                    on_device.sends.region.write(at, piece)?;
                    at += piece.len();
                }
                return self.post_send(place, bytes, invalidate, tag);
            }
        }
        self.waiting.push_back((Job::Send { bytes: pieces.concat(), invalidate }, tag));
        self.post_waiting()
    }

    /// What memory of stores is registered with, on a server, or memory of callers, on a client
    /// whose device has memory windows.
    #[must_use]
    pub fn registrar(&self) -> Option<&Registrar> {
        let on_device = self.on_device.as_ref()?;
        match &on_device.shared {
            Some(shared) => Some(&shared.registrar),
            None => on_device.windows.as_ref().map(Windows::registrar),
        }
    }

    /// Counts payload that was copied for this endpoint.
    pub const fn count_copied(&mut self, bytes: usize) {
        self.counters.copied_bytes += bytes as u64;
    }

    /// Writes a part of a buffer into the peer's memory.
    ///
    /// # Errors
    /// A part that is not in its buffer, or an error of the system.
    pub fn write(&mut self, address: u64, key: u32, part: Part, tag: Option<T>) -> Result<(), Error> {
        self.count_written(part.bytes);
        self.move_part(Work::Write { address, key }, part, tag)
    }

    /// Writes registered memory, gathered, into the peer's memory. A buffer of this endpoint that
    /// some of it is in is kept. Nothing to write is an error: its tag would never come back.
    ///
    /// # Errors
    /// An error of the system.
    ///
    /// # Safety
    /// The memory does not change until this work, or work posted after it, is done, or this
    /// endpoint has been dropped.
    pub unsafe fn write_registered(
        &mut self,
        address: u64,
        key: u32,
        memory: &[Registered],
        keeps: Option<&Buffer>,
        mut tag: Option<T>,
    ) -> Result<(), Error> {
        let groups = memory.chunks(self.on_device()?.gathered);
        let (mut at, last) = (address, groups.len().checked_sub(1).ok_or(NOTHING_TO_MOVE)?);
        for (place, group) in groups.enumerate() {
            // SAFETY: by the caller.
            let slices = group.iter().map(|part| unsafe { slice_of(part) });
            let slices = slices.collect::<Result<Slices, Error>>()?;
            let bytes: u32 = slices.iter().map(Slice::bytes).sum();
            self.count_written(bytes);
            let tag = if place == last { tag.take() } else { None };
            let work = Work::Write { address: at, key };
            self.waiting.push_back((Job::Move { work, slices, keeps: keeps.cloned() }, tag));
            at = at.wrapping_add(u64::from(bytes));
        }
        self.post_waiting()
    }

    /// Fills registered memory from the peer's memory.
    ///
    /// # Errors
    /// An error of the system.
    ///
    /// # Safety
    /// Nobody else accesses the memory until this work, or work posted after it, is done, or this
    /// endpoint has been dropped.
    pub unsafe fn read_registered(
        &mut self,
        address: u64,
        key: u32,
        memory: &Registered,
        tag: Option<T>,
    ) -> Result<(), Error> {
        // SAFETY: by the caller.
        let slice = unsafe { slice_of(memory) }?;
        self.counters.reads += 1;
        self.counters.read_bytes += u64::from(slice.bytes());
        let (work, slices) = (Work::Read { address, key }, smallvec![slice]);
        self.waiting.push_back((Job::Move { work, slices, keeps: None }, tag));
        self.post_waiting()
    }

    /// Fills a part of a buffer from the peer's memory.
    ///
    /// # Errors
    /// A part that is not in its buffer, or an error of the system.
    pub fn read(&mut self, address: u64, key: u32, part: Part, tag: Option<T>) -> Result<(), Error> {
        self.counters.reads += 1;
        self.counters.read_bytes += u64::from(part.bytes);
        self.move_part(Work::Read { address, key }, part, tag)
    }

    /// Probes the peer's device, unless work is in flight, which serves the same purpose: posts a
    /// write of no bytes, which is acknowledged and needs no memory. If the peer is gone, the write
    /// fails in time.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn ask(&mut self, tag: T) -> Result<(), Error> {
        if self.posted.is_empty() {
            self.identifier.post(self.number, Work::Write { address: 0, key: 0 }, &[], true, false)?;
            self.note_posted(true, Some(tag), None, None);
        }
        Ok(())
    }

    /// Records that a descriptor was readable.
    pub const fn wake(&mut self) {
        self.woken = true;
    }

    /// Returns the next event; `None` if there is none: then wait for the descriptors. A received
    /// message is in `inbox`.
    ///
    /// # Errors
    /// Why the connection has ended, or could not be established.
    pub fn poll(&mut self, inbox: &mut Vec<u8>) -> Result<Option<Event<T>>, Error> {
        loop {
            if let Some(tag) = self.done.pop_front() {
                return Ok(Some(Event::Done(tag)));
            }
            if let Some(completion) = self.completions.get(self.taken).cloned() {
                self.taken += 1;
                if let Some(event) = self.complete(&completion, inbox)? {
                    return Ok(Some(event));
                }
            } else if !self.take_completions()? {
                break;
            }
        }
        if !self.woken && self.state == State::Connected {
            return Ok(None);
        }
        // A wake-up without a completion is about the connection.
        self.woken = false;
        self.take_connection_event()
    }

    /// Ends the connection: the peer is notified, and nothing is transferred any more. Dropping the
    /// endpoint does the same and frees all resources.
    pub fn disconnect(&self) {
        // An endpoint that is not connected has nothing to end.
        let _ = self.identifier.disconnect();
    }

    fn on_device(&self) -> Result<&OnDevice, Error> {
        self.on_device.as_ref().ok_or(NO_DEVICE)
    }

    /// Whether another piece of work may be posted.
    fn has_room(&self) -> bool {
        self.posted.len() < usize::try_from(self.options.work).unwrap_or(usize::MAX)
    }

    fn count_written(&mut self, bytes: u32) {
        self.counters.writes += 1;
        self.counters.written_bytes += u64::from(bytes);
    }

    fn move_part(&mut self, work: Work, part: Part, tag: Option<T>) -> Result<(), Error> {
        let slices = smallvec![part.buffer.region().slice(part.from, part.bytes)?];
        self.waiting.push_back((Job::Move { work, slices, keeps: Some(part.buffer) }, tag));
        self.post_waiting()
    }

    /// Posts waiting work, as far as there is room.
    fn post_waiting(&mut self) -> Result<(), Error> {
        while self.has_room() && !self.waiting.is_empty() {
            let on_device = self.on_device.as_mut().ok_or(NO_DEVICE)?;
            let sends = &mut on_device.sends;
            if matches!(self.waiting.front(), Some((Job::Send { .. }, _))) && sends.free.is_empty() {
                return Ok(());
            }
            match self.waiting.pop_front() {
                Some((Job::Send { bytes, invalidate }, tag)) => {
                    let Some(place) = sends.free.pop() else { return Ok(()) };
                    sends.region.write(sends.at(place), &bytes)?;
                    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    self.post_send(place, length, invalidate, tag)?;
                }
                Some((Job::Move { work, slices, keeps }, tag)) => {
                    self.post_move(work, &slices, keeps, tag)?;
                }
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn post_send(
        &mut self,
        place: u32,
        bytes: u32,
        invalidate: Option<u32>,
        tag: Option<T>,
    ) -> Result<(), Error> {
        self.counters.sends += 1;
        let few_left = self.on_device()?.sends.free.len() < SIGNALLED_EACH / 2;
        let signalled = self.is_to_signal(tag.is_some() || self.unsignalled_keeps || few_left);
        let slice = self.on_device()?.sends.slice(place, bytes)?;
        let posted = self.identifier.post(self.number, Work::Send { invalidate }, &[slice], signalled, false);
        // Also if it failed: the tag may keep memory of work that was posted before.
        self.note_posted(signalled, tag, Some(place), None);
        Ok(posted?)
    }

    fn post_move(
        &mut self,
        work: Work,
        slices: &[Slice],
        keeps: Option<Buffer>,
        tag: Option<T>,
    ) -> Result<(), Error> {
        let signalled = self.is_to_signal(tag.is_some());
        let posted = self.identifier.post(self.number, work, slices, signalled, false);
        // As above.
        self.note_posted(signalled, tag, None, keeps);
        Ok(posted?)
    }

    const fn is_to_signal(&self, asked: bool) -> bool {
        asked || self.unsignalled + 1 >= SIGNALLED_EACH
    }

    fn note_posted(&mut self, signalled: bool, tag: Option<T>, place: Option<u32>, keeps: Option<Buffer>) {
        self.unsignalled = if signalled { 0 } else { self.unsignalled + 1 };
        self.unsignalled_keeps = !signalled && (self.unsignalled_keeps || keeps.is_some());
        self.posted.push_back(Posted { number: self.number, tag, place, _keeps: keeps, binds_window: false });
        self.number = (self.number + 1) & !RECEIVE;
    }

    /// Marks the work posted last as that of a window.
    fn mark_window(&mut self) {
        if let Some(last) = self.posted.back_mut() {
            last.binds_window = true;
        }
    }

    /// Returns whether there are more completions to handle. If there are none, the next one makes
    /// the descriptor readable.
    fn take_completions(&mut self) -> Result<bool, Error> {
        self.completions.clear();
        self.taken = 0;
        let Some(on_device) = &self.on_device else { return Ok(false) };
        let mut found = on_device.queue.poll(&mut self.completions)?;
        if found == 0 && (self.woken || !self.armed) {
            // A completion event that is not taken would wake the loop again and again.
            let notices = on_device.queue.take_notices()?;
            self.counters.notices += u64::from(notices);
            if notices > 0 || !self.armed {
                on_device.queue.arm()?;
                self.armed = true;
                self.counters.arms += 1;
                found = on_device.queue.poll(&mut self.completions)?;
            }
        }
        self.counters.completions += found as u64;
        if found > 0 {
            (self.armed, self.woken) = (false, false);
        }
        Ok(found > 0)
    }

    fn complete(&mut self, completion: &Completion, inbox: &mut Vec<u8>) -> Result<Option<Event<T>>, Error> {
        if let Some(failure) = &completion.failure {
            if self.posted.iter().any(|posted| posted.number == completion.id && posted.binds_window) {
                lending::note_failure(failure);
            }
            return Err(match self.why_broken(failure) {
                Error::Broken(failure) if completion.unacknowledged => Error::Unacknowledged(failure),
                other => other,
            });
        }
        if completion.id & RECEIVE == 0 {
            return self.complete_work(completion.id).map(|()| None);
        }
        self.counters.receives += 1;
        if let Some(key) = completion.invalidated {
            self.was_invalidated(key);
        }
        let ring = &mut self.on_device.as_mut().ok_or(NO_DEVICE)?.ring;
        let place = u32::try_from(completion.id & !RECEIVE).map_err(|_| NO_DEVICE)?;
        inbox.resize(usize::try_from(completion.bytes).map_err(|_| NO_DEVICE)?, 0);
        ring.region.read(ring.at(place), inbox)?;
        ring.free.push(place);
        Ok(Some(Event::Received))
    }

    /// Completes this work and all work posted before it.
    fn complete_work(&mut self, number: u64) -> Result<(), Error> {
        let sends = &mut self.on_device.as_mut().ok_or(NO_DEVICE)?.sends;
        while let Some(posted) = self.posted.pop_front() {
            sends.free.extend(posted.place);
            self.done.extend(posted.tag);
            if posted.number == number {
                break;
            }
        }
        self.unsignalled = self.unsignalled.min(self.posted.len());
        self.post_waiting()
    }

    /// Work also fails because the peer has closed: then return that as the cause.
    fn why_broken(&mut self, failure: &str) -> Error {
        while let Ok(Some(event)) = self.channel.poll() {
            match event.kind {
                EventKind::Disconnected => return Error::Closed,
                EventKind::DeviceRemoval => return Error::DeviceGone,
                _ => {}
            }
        }
        Error::Broken(failure.to_owned())
    }

    fn take_connection_event(&mut self) -> Result<Option<Event<T>>, Error> {
        while let Some(event) = self.channel.poll()? {
            if matches!(event.kind, EventKind::Established | EventKind::Rejected) {
                self.peer_data.clone_from(&event.private_data);
            }
            match event.kind {
                EventKind::AddressResolved => self.identifier.resolve_route(self.options.resolve_within)?,
                EventKind::RouteResolved => self.begin_to_connect()?,
                EventKind::Established => {
                    let agreed = match self.agreed {
                        Some(agreed) => agreed,
                        None => self.options.offer.agree(&Offer::decode(&event.private_data)),
                    };
                    (self.state, self.agreed) = (State::Connected, Some(agreed));
                    return Ok(Some(Event::Connected(agreed)));
                }
                EventKind::AddressError if event.status == -libc::ENODEV => {
                    return Err(verbs::Error::NoRoute(self.peer).into());
                }
                EventKind::Rejected if NOBODY_LISTENS.contains(&event.status) => {
                    return Err(Error::NotListening(self.peer));
                }
                EventKind::Rejected => return Err(verbs::Error::Refused(event.status).into()),
                EventKind::AddressError
                | EventKind::RouteError
                | EventKind::ConnectError
                | EventKind::Unreachable => return Err(Error::Unreachable(self.peer)),
                EventKind::Disconnected => return Err(Error::Closed),
                EventKind::DeviceRemoval => return Err(Error::DeviceGone),
                EventKind::ConnectRequest | EventKind::Other(_) => {}
            }
        }
        Ok(None)
    }

    fn begin_to_connect(&mut self) -> Result<(), Error> {
        self.make_queue_pair()?;
        self.state = State::Opening;
        let offer = self.options.offer.encode();
        let private_data = self.private_data.as_deref().unwrap_or(&offer);
        let Options { reads_served, reads_made, .. } = self.options;
        self.identifier.connect(&Terms { private_data, reads_served, reads_made })?;
        Ok(())
    }
}

impl<T> Drop for Endpoint<T> {
    fn drop(&mut self) {
        self.disconnect();
        if self.has_lent() {
            self.end_lending();
        }
    }
}

/// # Safety
/// As for the work that the slice is for.
unsafe fn slice_of(memory: &Registered) -> Result<Slice, Error> {
    let bytes = u32::try_from(memory.bytes).map_err(|_| Error::Misuse("too much memory for one work"))?;
    // SAFETY: by the caller.
    Ok(unsafe { Slice::registered(memory.start, bytes, memory.key) })
}

/// The call came too early.
const NO_DEVICE: Error = Error::Misuse("the connection has no device yet");

const NOTHING_TO_MOVE: Error = Error::Misuse("there is nothing to move");

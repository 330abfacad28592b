//! An RDMA connection: capsules come as messages, data are read from and written to memory that
//! the host has named in them.
//!
//! ```text
//!  WRITE   capsule ─> RDMA READ into the buffers that go to the drive ─> submitted ─> response
//!  READ    capsule ─> executed ─> RDMA WRITE from the volume's segments, and the response after it
//! ```
//!
//! Buffers that the device fills or reads are the connection's until it is done. When the
//! connection ends, they go where the queue pair is destroyed, and are free after it; only then is
//! the queue reported as closed ([`Link::is_released`](super::link::Link::is_released)).

use super::authentication::AUTHENTICATION_TAG;
use super::{Connection, Context, EndReason, Role};
use crate::inbound::Place;
use memory::{Buffer, Registrar, Scatter};
use nvme::fabrics::FabricsType;
use nvme::rdma::{Capsule, HostMemory, Request};
use nvme::tcp::{ADMIN_CAPSULE_DATA_BYTES, Incoming, Progress};
use nvme::{AdminOpcode, Cqe, Sqe, Status};
use smallvec::SmallVec;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};
use transport::poll::Poller;
use transport::rdma::{Carrier, Error, Moved, Outgoing, Pieces, Remote};
use transport::{ReceiveBuffer, Remains, SlicesMut};
use volumes::Payload;

/// How long a host has from the connection to a Connect that succeeds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Memory that data of the host are fetched into.
#[derive(Debug)]
pub(crate) enum Into {
    Buffers(SmallVec<[Buffer; 1]>),
    Bytes(Vec<u8>),
}

impl ReceiveBuffer for Into {
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>) {
        debug_assert_eq!(from, 0, "a device fetches all of it");
        match self {
            Self::Buffers(buffers) => out.extend(buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer))),
            Self::Bytes(bytes) => out.push(IoSliceMut::new(bytes)),
        }
    }

    fn registered(&mut self, with: &Registrar, out: &mut Scatter) -> bool {
        let Self::Buffers(buffers) = self else { return false };
        let before = out.len();
        out.extend(buffers.iter().filter_map(|buffer| buffer.registered(with)));
        out.len() - before == buffers.len()
    }
}

/// Data for the host.
#[derive(Debug)]
pub(crate) enum Data {
    Blocks(Payload),
    Bytes(Vec<u8>),
}

impl Outgoing for Data {
    fn pieces<'a>(&'a self, with: Option<&Registrar>, out: &mut Pieces<'a>) {
        match self {
            Self::Blocks(payload) => out.extend(payload.iter().map(|segment| segment.piece(with))),
            Self::Bytes(bytes) => out.push(memory::Piece::unregistered(bytes)),
        }
    }
}

/// The connection as its device has it.
pub(crate) type Device = Carrier<Data, Into>;

#[derive(Debug)]
enum State {
    Open(Box<Device>),
    /// Closed; the loop takes it, and has it destroyed.
    Closed(Box<Device>),
    Destroying,
    Destroyed,
}

/// An RDMA connection.
#[derive(Debug)]
pub(crate) struct RdmaLink {
    state: State,
    request: Request,
    /// When it must be connected.
    deadline: Option<Duration>,
    /// The host's memory for the commands that are outstanding, by their identifiers.
    memories: Vec<(u16, HostMemory)>,
    /// Receives that were used and not posted again.
    owed: u32,
    /// Memory of the loop's budget that is free once the host has its data, or the queue pair is
    /// destroyed.
    charged: usize,
    /// Since when something is under way and nothing has ended.
    since: Option<Instant>,
    failure: Option<Error>,
}

impl RdmaLink {
    pub(crate) fn new(device: Box<Device>, request: Request, now: Duration) -> Self {
        Self {
            state: State::Open(device),
            request,
            deadline: Some(now + CONNECT_TIMEOUT),
            memories: Vec::new(),
            owed: 0,
            charged: 0,
            since: None,
            failure: None,
        }
    }

    pub(crate) fn register(&self, poller: &Poller, token: u64) -> std::io::Result<()> {
        match &self.state {
            State::Open(device) => device.register(poller, token),
            _ => Ok(()),
        }
    }

    /// The queue that the host has asked for.
    pub(super) const fn qid(&self) -> u16 {
        self.request.qid
    }

    pub(super) const fn is_closed(&self) -> bool {
        !matches!(self.state, State::Open(_))
    }

    pub(super) const fn is_released(&self) -> bool {
        matches!(self.state, State::Destroyed)
    }

    /// What is to be destroyed, once: it is taken from the poller.
    pub(crate) fn take_remains(&mut self, poller: &Poller) -> Option<Remains> {
        match std::mem::replace(&mut self.state, State::Destroying) {
            State::Closed(device) => Some(device.end(poller)),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// The queue pair is destroyed. Returns the memory that is free with it.
    pub(super) fn destroyed(&mut self) -> usize {
        self.state = State::Destroyed;
        std::mem::take(&mut self.charged)
    }

    pub(super) fn close(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Destroying) {
            State::Open(device) => State::Closed(device),
            other => other,
        };
    }

    /// Memory of the loop's budget is free only when the queue pair is destroyed.
    pub(super) const fn charge(&mut self, bytes: usize) {
        self.charged += bytes;
    }

    /// Uses the device; a failure is told by the next [`flush`](Self::flush).
    fn try_with(&mut self, act: impl FnOnce(&mut Device) -> Result<(), Error>) {
        if let State::Open(device) = &mut self.state
            && let Err(error) = act(device)
        {
            self.failure.get_or_insert(error);
        }
    }

    /// The memory that a command has named, which is its no more.
    fn take_memory(&mut self, cid: u16) -> Option<HostMemory> {
        let at = self.memories.iter().position(|(of, _)| *of == cid)?;
        Some(self.memories.swap_remove(at).1)
    }

    fn memory(&self, cid: u16) -> Option<HostMemory> {
        self.memories.iter().find(|(of, _)| *of == cid).map(|(_, memory)| *memory)
    }

    pub(super) fn respond(&mut self, cqe: &Cqe) {
        let memory = self.take_memory(cqe.cid);
        self.try_with(|device| device.send(&cqe.encode(), invalidated(memory)));
    }

    /// A command ends without an answer: its memory is not touched any more. What is being fetched
    /// from there is fetched.
    pub(super) fn forget(&mut self, cid: u16) {
        self.take_memory(cid);
    }

    pub(super) fn accept(&mut self, cqe: &Cqe) {
        self.deadline = None;
        self.respond(cqe);
    }

    pub(super) fn answer(&mut self, cqe: &Cqe, data: &[u8]) {
        self.reply(cqe, Data::Bytes(data.to_vec()), 0);
    }

    pub(super) fn send(&mut self, cqe: &Cqe, payload: Payload, reserved: usize) {
        self.charged += reserved;
        self.reply(cqe, Data::Blocks(payload), reserved);
    }

    fn reply(&mut self, cqe: &Cqe, data: Data, reserved: usize) {
        let Some(memory) = self.take_memory(cqe.cid) else {
            self.failure.get_or_insert(Error::Misuse("data for a command that has named no memory"));
            return;
        };
        let invalidate = invalidated(Some(memory));
        self.try_with(|device| device.reply(remote(memory), (data, reserved), &cqe.encode(), invalidate));
    }

    pub(super) fn fetch_buffers(&mut self, tag: u16, cid: u16, buffers: SmallVec<[Buffer; 1]>) {
        self.fetch(tag, cid, Into::Buffers(buffers));
    }

    pub(super) fn fetch_bytes(&mut self, tag: u16, cid: u16, bytes: Vec<u8>) {
        self.fetch(tag, cid, Into::Bytes(bytes));
    }

    fn fetch(&mut self, tag: u16, cid: u16, into: Into) {
        let Some(memory) = self.memory(cid) else {
            self.failure.get_or_insert(Error::Misuse("data of a command that has named no memory"));
            return;
        };
        self.try_with(|device| device.fetch(tag, remote(memory), into));
    }

    /// Lets the host send further commands; closes a connection that lingers and has said
    /// everything.
    pub(super) fn flush(&mut self, now: Instant, lingers: bool) -> Result<(), Error> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let State::Open(device) = &mut self.state else { return Ok(()) };
        // A host that takes no responses gets no further receives, so that responses are bounded.
        if self.owed > 0 && device.sends_under_way() <= self.request.commands() as usize {
            device.post_receives(std::mem::take(&mut self.owed))?;
        }
        if device.is_idle() {
            self.since = None;
            if lingers {
                self.close();
            }
        } else {
            self.since.get_or_insert(now);
        }
        Ok(())
    }

    pub(super) fn handle_timeout(&mut self, now: Duration) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    pub(super) const fn since(&self) -> Option<Instant> {
        self.since
    }

    pub(super) fn is_established(&self) -> bool {
        matches!(&self.state, State::Open(device) if !device.has_news())
    }

    /// What has happened next.
    fn poll(&mut self) -> Result<Option<Moved<Into>>, Error> {
        let State::Open(device) = &mut self.state else { return Ok(None) };
        let moved = device.poll()?;
        match &moved {
            Some(Moved::Message) => self.owed += 1,
            Some(Moved::Sent(_) | Moved::Fetched { .. }) => self.since = None,
            Some(Moved::Connected) | None => {}
        }
        Ok(moved)
    }

    fn message(&self) -> &[u8] {
        match &self.state {
            State::Open(device) => device.message(),
            _ => &[],
        }
    }
}

/// The key that a response ends: the host has asked for it, and has named the key.
fn invalidated(memory: Option<HostMemory>) -> Option<u32> {
    memory.filter(|memory| memory.invalidate).map(|memory| memory.key)
}

const fn remote(memory: HostMemory) -> Remote {
    Remote { address: memory.address, bytes: memory.bytes, key: memory.key }
}

impl Connection {
    /// Takes what has come.
    pub(super) fn receive_capsules(&mut self, context: &mut Context<'_>) {
        if let super::Link::Rdma(link) = &mut self.link
            && let State::Open(device) = &mut link.state
        {
            device.wake();
        }
        if let Err(reason) = self.try_receive_capsules(context) {
            self.end(&reason, context);
        }
    }

    fn try_receive_capsules(&mut self, context: &mut Context<'_>) -> Result<(), EndReason> {
        while let super::Link::Rdma(link) = &mut self.link
            && let Some(moved) = link.poll()?
        {
            match moved {
                Moved::Connected => {}
                Moved::Sent(bytes) => {
                    link.charged = link.charged.saturating_sub(bytes);
                    self.give_back(bytes, context);
                }
                // A connection that ends executes nothing any more.
                Moved::Message if self.is_open() => self.take_capsule(context)?,
                Moved::Fetched { tag, into } if self.is_open() => self.fetched(tag, into, context)?,
                Moved::Message | Moved::Fetched { .. } => {}
            }
        }
        Ok(())
    }

    fn take_capsule(&mut self, context: &mut Context<'_>) -> Result<(), EndReason> {
        let super::Link::Rdma(link) = &mut self.link else { return Ok(()) };
        let capsule = Capsule::decode(link.message()).map_err(|_| EndReason::NoCapsule)?;
        let sqe = capsule.sqe;
        link.memories.extend(capsule.memory.map(|memory| (sqe.cid, memory)));
        let is_pending = matches!(self.role, Role::Pending);
        if is_pending && (!is_connect(&sqe) || self.connecting.is_some()) {
            return Err(EndReason::Sequence);
        }
        let data = match capsule.data {
            Ok(data) => data,
            Err(status) => return self.refuse(&sqe, status, context),
        };
        let place = self.take_command(&sqe, data, context)?;
        let super::Link::Rdma(link) = &self.link else { return Ok(()) };
        let bytes = link.message().get(capsule.in_capsule).unwrap_or_default();
        match (place, &mut self.role) {
            (Place::Command { tag, offset }, Role::Io(io)) => {
                io.fill(tag, offset, bytes);
                self.received(tag, context);
                Ok(())
            }
            (Place::Own(mut memory), _) => {
                memory.extend_from_slice(bytes);
                self.finish_capsule(&memory, Progress::Complete, context)
            }
            _ => Ok(()),
        }
    }

    /// Connect, whose data are in the host's memory.
    pub(super) fn fetch_connect(
        &mut self,
        sqe: &Sqe,
        data: Incoming,
        context: &mut Context<'_>,
    ) -> Result<(), EndReason> {
        match (data, &mut self.link) {
            (Incoming::OnRequest(bytes), super::Link::Rdma(link)) if bytes <= ADMIN_CAPSULE_DATA_BYTES => {
                self.connecting = Some(*sqe);
                link.fetch_bytes(0, sqe.cid, vec![0; bytes as usize]);
                Ok(())
            }
            // Over TCP, Connect has its data in the capsule. NVMe over Fabrics, "Connect Command"
            _ => self.refuse(sqe, Status::SGL_INVALID_TYPE.no_retry(), context),
        }
    }

    /// The data of a command are here.
    fn fetched(&mut self, tag: u16, into: Into, context: &mut Context<'_>) -> Result<(), EndReason> {
        match (into, &mut self.role) {
            (Into::Bytes(bytes), _) if tag == AUTHENTICATION_TAG => {
                self.finish_authentication_data(&bytes, Progress::Complete, context)
            }
            (Into::Buffers(buffers), Role::Io(io)) => {
                io.fetched(tag, buffers);
                self.received(tag, context);
                Ok(())
            }
            (Into::Bytes(bytes), Role::Admin(admin)) => {
                if let Some(sqe) = admin.take_transfer(tag) {
                    self.execute_admin(&sqe, &bytes, context);
                }
                Ok(())
            }
            (Into::Bytes(bytes), Role::Pending) => self.finish_capsule(&bytes, Progress::Complete, context),
            _ => Ok(()),
        }
    }

    /// Its queue pair is destroyed, and all memory that its device had is free.
    pub(crate) fn destroyed(&mut self, context: &mut Context<'_>) {
        if let super::Link::Rdma(link) = &mut self.link {
            let freed = link.destroyed();
            self.give_back(freed, context);
        }
        self.report_if_closed(context);
    }

    /// What the loop is to have destroyed.
    pub(crate) fn take_remains(&mut self, poller: &Poller) -> Option<Remains> {
        match &mut self.link {
            super::Link::Tcp(_) => None,
            super::Link::Rdma(link) => link.take_remains(poller),
        }
    }
}

fn is_connect(sqe: &Sqe) -> bool {
    AdminOpcode(sqe.opcode) == AdminOpcode::FABRICS && FabricsType::of(sqe) == FabricsType::CONNECT
}

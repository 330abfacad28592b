//! The commands of an I/O queue.
//!
//! ```text
//!  taken ── memory? ──> Waiting ──> Receiving ── all data ──> submitted ──> Executing ──> answered
//!        └─ data in the capsule ────────┘
//! ```

mod forward;
mod fused;
mod reserve;

use super::{Connection, Context, EndReason, Link, Role, digest_of};
use crate::controllers::{Connected, Queue};
use crate::inbound::{Data, Place};
use crate::mailbox::Token;
use crate::shares::{Pass, Shares};
use crate::status::{self, Kind};
use memory::Buffer;
use nvme::controller::{Action, IoQueue, Operation, Request, Reservation, Reserve, Tag};
use nvme::tcp::{Incoming, Progress};
use nvme::{HostId, Nqn, Sqe, Status};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use volumes::{Command, Fault, Owner, Payload, Refusal, Segment, Volume};

/// A change that is older than this when it begins has its connection looked at again. A host may
/// reset a path and have newer data acknowledged on another one within milliseconds.
pub(crate) const FRESH: Duration = Duration::from_millis(1);

/// The tag of a command in the queue of its loop: its connection, and its tag there.
pub(crate) const fn tag_of(token: Token, tag: u16) -> u64 {
    (token.key() as u64) << 16 | tag as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// For memory, or for a place in the queue of the volumes.
    Waiting,
    /// For data that the host was asked for, or that follow in the capsule.
    Receiving,
    /// In the queue of the volumes.
    Executing,
    /// With the controllers.
    Reserving,
    /// With the process of the other node.
    Forwarded,
    /// For the other half of its pair, or for the data of that.
    Held,
}

/// What a command does.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// Something with blocks of a volume.
    Blocks(Request),
    /// Something with its reservations.
    Reserve(Reservation),
}

impl Work {
    const fn tag(&self) -> Tag {
        match self {
            Self::Blocks(request) => request.tag,
            Self::Reserve(reservation) => reservation.tag,
        }
    }

    const fn data_bytes(&self) -> u32 {
        match self {
            Self::Blocks(request) => request.data_bytes,
            Self::Reserve(reservation) => reservation.data_bytes,
        }
    }

    /// Whether its data come from the host.
    const fn takes_data(&self) -> bool {
        match self {
            Self::Blocks(request) => {
                use Operation::{Compare, CompareAndWrite, Deallocate, Write};
                matches!(request.operation, Write { .. } | Compare | CompareAndWrite { .. } | Deallocate)
            }
            Self::Reserve(reservation) => !matches!(reservation.command, Reserve::Report(_)),
        }
    }

    /// The volume, and the first block of it.
    const fn place(&self) -> (u64, u64) {
        match self {
            Self::Blocks(request) => (request.volume.0, request.start),
            Self::Reserve(reservation) => (reservation.volume.0, 0),
        }
    }
}

#[derive(Debug)]
struct Slot {
    work: Work,
    cid: u16,
    /// When it came, at the earliest, or when its data were asked for.
    since: Instant,
    stage: Stage,
    /// All data of the host are here.
    is_received: bool,
    in_capsule: bool,
    /// It is the first half of a pair.
    is_first: bool,
    buffers: SmallVec<[Buffer; 1]>,
    /// What there was no place for.
    command: Option<Command>,
    /// What it has of the memory for data, until they are sent.
    reserved: usize,
    /// The same, until it has ended.
    shared: usize,
    /// A change of reservations has ended it before it began, or, while it is executed, is
    /// answered only after it.
    refused: Option<Status>,
}

/// The state of an I/O queue.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) queue: Queue,
    /// The names of its host.
    host: Arc<(Nqn, HostId)>,
    pub(crate) machine: IoQueue,
    traffic: Arc<AtomicBool>,
    /// By tag.
    slots: Vec<Option<Slot>>,
    /// Commands that wait for memory or for a place.
    waiting: VecDeque<u16>,
    owners: SmallVec<[(u64, Owner); 2]>,
    /// Commands whose data were asked for.
    asked: usize,
    /// What the volumes have of the connection's memory.
    shares: Shares,
}

/// Whether a command has taken its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Started {
    Yes,
    /// It waits for memory, as all that come after it do.
    NoMemory,
    /// It waits for its volume, which has its share of memory or places, or cannot be reached now.
    NoPlace,
}

impl Io {
    pub(crate) fn new(connected: Connected, host: (Nqn, HostId), shares: Shares) -> Self {
        let entries = connected.accepted.queue.entries() as usize;
        Self {
            queue: connected.queue,
            host: Arc::new(host),
            machine: IoQueue::new(connected.accepted.queue, connected.accepted.view),
            traffic: connected.traffic,
            slots: std::iter::repeat_with(|| None).take(entries).collect(),
            waiting: VecDeque::new(),
            owners: SmallVec::new(),
            asked: 0,
            shares,
        }
    }

    pub(crate) const fn expects_data(&self) -> bool {
        self.asked > 0
    }

    pub(crate) fn receives_since(&self) -> Option<Instant> {
        if self.asked == 0 {
            return None;
        }
        let receiving = |slot: &&Slot| slot.stage == Stage::Receiving;
        self.slots.iter().flatten().filter(receiving).map(|slot| slot.since).min()
    }

    fn slot(&mut self, tag: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(tag))?.as_mut()
    }

    /// The parts of a command's buffers from `from` on, `bytes` in all.
    fn parts(slot: &mut Slot, from: usize, bytes: usize) -> impl Iterator<Item = &mut [u8]> {
        let (mut skip, mut left) = (from, bytes);
        slot.buffers.iter_mut().filter_map(move |buffer| {
            let start = skip.min(buffer.len());
            skip -= start;
            let end = buffer.len().min(start + left);
            left -= end - start;
            buffer.get_mut(start..end).filter(|part| !part.is_empty())
        })
    }

    /// Appends the memory that is to be filled.
    pub(crate) fn unfilled<'a>(
        &'a mut self,
        tag: u16,
        from: usize,
        bytes: usize,
        out: &mut SmallVec<[IoSliceMut<'a>; 24]>,
    ) {
        if let Some(slot) = self.slot(tag) {
            out.extend(Self::parts(slot, from, bytes).map(IoSliceMut::new));
        }
    }

    pub(crate) fn fill(&mut self, tag: u16, from: usize, bytes: &[u8]) {
        let Some(slot) = self.slot(tag) else { return };
        let mut rest = bytes;
        for part in Self::parts(slot, from, bytes.len()) {
            let (now, later) = rest.split_at(part.len().min(rest.len()));
            if let Some(place) = part.get_mut(..now.len()) {
                place.copy_from_slice(now);
            }
            rest = later;
        }
    }

    /// A device has filled the buffers of a command.
    pub(crate) fn fetched(&mut self, tag: u16, buffers: SmallVec<[Buffer; 1]>) {
        self.asked = self.asked.saturating_sub(1);
        if let Some(slot) = self.slot(tag) {
            slot.buffers = buffers;
        }
    }

    /// What commands have set aside that are not executed; they give it back no more. A device may
    /// be filling it.
    pub(crate) fn take_reserved(&mut self) -> usize {
        let slots = self.slots.iter_mut().flatten().filter(|slot| slot.stage != Stage::Executing);
        slots.map(|slot| std::mem::take(&mut slot.reserved)).sum()
    }

    /// Takes a command out.
    fn remove(&mut self, tag: u16, context: &mut Context<'_>) -> Option<Slot> {
        let slot = self.slots.get_mut(usize::from(tag)).and_then(Option::take)?;
        leave(&slot, &mut self.shares, context);
        context.has_room = true;
        Some(slot)
    }

    /// Sets memory aside for the data of a command; [`Started::Yes`] if it has it.
    fn reserve_memory(&mut self, tag: u16, held: &mut usize, context: &mut Context<'_>) -> Started {
        let needed = self.asked_bytes(tag);
        let Some(slot) = self.slots.get_mut(usize::from(tag)).and_then(Option::as_mut) else {
            return Started::Yes;
        };
        if needed == 0 || slot.reserved > 0 {
            return Started::Yes;
        }
        let volume = slot.work.place().0 as usize;
        if !self.shares.may_take(volume, needed) || !context.budget.volumes.may_take(volume, needed) {
            return Started::NoPlace;
        }
        if !context.budget.take(needed, held) {
            return Started::NoMemory;
        }
        self.shares.take(volume, needed);
        context.budget.volumes.take(volume, needed);
        (slot.reserved, slot.shared) = (needed, needed);
        Started::Yes
    }

    /// The owner of this connection's commands on a volume.
    fn owner(&mut self, id: u64, volume: &Volume) -> Option<Owner> {
        if let Some((_, owner)) = self.owners.iter().find(|(known, _)| *known == id) {
            return Some(*owner);
        }
        let owner = volume.open_owner().ok()?;
        self.owners.push((id, owner));
        Some(owner)
    }

    /// The owner of its commands on a volume is gone with the volume's backing.
    pub(super) fn forget_owner(&mut self, id: u64) {
        self.owners.retain(|(known, _)| *known != id);
    }

    /// Ends the queue: what is not with the volumes or with the other process is dropped. Returns how
    /// many volumes and forwarded commands drain.
    pub(crate) fn end(&mut self, token: Token, held: &mut usize, context: &mut Context<'_>) -> usize {
        self.waiting.clear();
        self.asked = 0;
        let has_not_begun = |slot: &mut Slot| !matches!(slot.stage, Stage::Executing | Stage::Forwarded);
        for slot in &mut self.slots {
            if let Some(slot) = slot.take_if(has_not_begun) {
                leave(&slot, &mut self.shares, context);
                context.budget.give_back(slot.reserved, held);
            }
        }
        context.has_room = true;
        context.needs_turn = true;
        let mut drains = self.cancel_forwarded(token, context);
        for (id, owner) in std::mem::take(&mut self.owners) {
            let volumes = context.volumes;
            if let Some(volume) = volumes.get(id as usize).and_then(Option::as_ref)
                && context.queue.drain(volume, owner, tag_of(token, 0))
            {
                drains += 1;
            }
        }
        drains
    }
}

impl Connection {
    /// A command of an I/O queue. Says where its data belong.
    pub(super) fn take_io(
        &mut self,
        sqe: &Sqe,
        data: Incoming,
        context: &mut Context<'_>,
    ) -> Result<Place, EndReason> {
        let Role::Io(io) = &mut self.role else { return Ok(Place::Nowhere) };
        if !io.traffic.load(Ordering::Relaxed) {
            io.traffic.store(true, Ordering::Relaxed);
        }
        let action = io.machine.handle_command(sqe);
        let failed = io.machine.take_failed_half();
        if failed.is_some() {
            self.fail_half(failed, context);
        }
        let Role::Io(io) = &mut self.role else { return Ok(Place::Nowhere) };
        let is_first = matches!(action, Ok(Action::Hold(_)));
        let work = match action {
            Ok(Action::Execute(request) | Action::Hold(request)) => Work::Blocks(request),
            Ok(Action::Reserve(reservation)) => Work::Reserve(reservation),
            Ok(Action::Respond(cqe)) => {
                self.link.respond(&cqe);
                return Ok(Place::Nowhere);
            }
            Ok(Action::Disconnect(cqe)) => {
                self.link.respond(&cqe);
                return Err(EndReason::Disconnected);
            }
            Err(violation) => {
                let queue = io.queue;
                context.shared.controllers.violation(self.place.event_loop, queue);
                return Err(EndReason::Violation(violation));
            }
        };
        let tag = work.tag().0;
        let in_capsule = Self::in_capsule(data);
        let mut slot = Slot {
            work,
            cid: sqe.cid,
            since: self.behind_since.unwrap_or(context.now),
            stage: Stage::Waiting,
            is_received: !work.takes_data(),
            in_capsule: in_capsule.is_some(),
            is_first,
            buffers: SmallVec::new(),
            command: None,
            reserved: 0,
            shared: 0,
            refused: None,
        };
        if let Some(bytes) = in_capsule.filter(|_| !slot.is_received) {
            // Its memory was set aside when the queue was connected.
            slot.stage = Stage::Receiving;
            slot.buffers = receive_buffers(&work, bytes as usize, context);
        } else if is_first {
            slot.stage = Stage::Held;
        } else {
            io.waiting.push_back(tag);
        }
        let place = match slot.stage {
            Stage::Receiving => Place::Command { tag, offset: 0 },
            _ => Place::Nowhere,
        };
        let waits = slot.stage == Stage::Waiting;
        if let Some(empty) = io.slots.get_mut(usize::from(tag)) {
            *empty = Some(slot);
        }
        if waits {
            self.start_waiting(context);
        }
        Ok(place)
    }

    /// Data of a command are placed: whether its digest is right, and whether there are more.
    pub(super) fn finish_io_data(&mut self, tag: u16, offset: usize, data: &Data) -> Progress {
        let (Role::Io(io), Link::Tcp(stream)) = (&mut self.role, &mut self.link) else {
            return Progress::More;
        };
        let Some(slot) = io.slot(tag) else { return Progress::More };
        let in_capsule = slot.in_capsule;
        let parts = Io::parts(slot, offset, data.bytes).map(|part| &*part);
        if in_capsule {
            let computed = digest_of(&stream.machine, parts);
            return stream.machine.handle_capsule_data(computed, data.received_digest());
        }
        let progress = stream.handle_data(tag, parts, data);
        if progress != Progress::More {
            io.asked = io.asked.saturating_sub(1);
        }
        progress
    }

    /// All data of a command are here.
    pub(super) fn received(&mut self, tag: u16, context: &mut Context<'_>) {
        let Role::Io(io) = &mut self.role else { return };
        let Some(slot) = io.slot(tag) else { return };
        if let Some(status) = slot.refused {
            return self.complete(tag, status, context);
        }
        if slot.is_first {
            return self.first_is_received(tag, context);
        }
        slot.is_received = true;
        slot.stage = Stage::Waiting;
        let has_memory = slot.reserved > 0;
        // Before those that wait for memory, unless it does as well: what those have that are here
        // may be what it waits for.
        if has_memory || io.asked_bytes(tag) == 0 {
            io.waiting.push_front(tag);
        } else {
            io.waiting.push_back(tag);
        }
        self.start_waiting(context);
    }

    /// Starts commands that wait, in their order, until one has to wait for memory. Those of a volume
    /// that has no place do not stop the others.
    pub(crate) fn start_waiting(&mut self, context: &mut Context<'_>) {
        let mut pass = Pass::default();
        while self.is_open()
            && let Role::Io(io) = &mut self.role
            && let Some((tag, volume)) = pass.next(&mut io.waiting, |tag| place_of(&io.slots, tag))
        {
            let started = self.start(tag, context);
            if started != Started::Yes
                && let Role::Io(io) = &mut self.role
            {
                pass.put_back(&mut io.waiting, tag, volume);
            }
            if started == Started::NoMemory {
                return;
            }
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(&self.role, Role::Io(io) if !io.waiting.is_empty())
    }

    /// Takes the next step of a command, if it does not have to wait.
    fn start(&mut self, tag: u16, context: &mut Context<'_>) -> Started {
        let Role::Io(io) = &mut self.role else { return Started::Yes };
        let started = io.reserve_memory(tag, &mut self.held, context);
        if started != Started::Yes {
            return started;
        }
        self.ask_for_first(tag, context);
        let Role::Io(io) = &mut self.role else { return Started::Yes };
        let Some(slot) = io.slot(tag) else { return Started::Yes };
        if !slot.is_received {
            let bytes = slot.work.data_bytes();
            slot.buffers = receive_buffers(&slot.work, bytes as usize, context);
            (slot.stage, slot.since) = (Stage::Receiving, context.now);
            self.link.ask(tag, slot.cid, bytes, &mut slot.buffers);
            io.asked += 1;
            return Started::Yes;
        }
        if self.waits_for_first(tag) || self.submit(tag, context) { Started::Yes } else { Started::NoPlace }
    }

    /// Hands a command to its volume; false if there is no place for it now.
    fn submit(&mut self, tag: u16, context: &mut Context<'_>) -> bool {
        let work = match &self.role {
            Role::Io(io) => io.slots.get(usize::from(tag)).and_then(Option::as_ref).map(|slot| slot.work),
            _ => None,
        };
        let Some(work) = work else { return true };
        let request = match work {
            Work::Blocks(request) => request,
            // Its owner knows what is reserved.
            Work::Reserve(reservation) if context.volume(reservation.volume.0).is_none() => {
                return self.forward(tag, context);
            }
            // Its host may have sent it again elsewhere, and others after it.
            Work::Reserve(_) if self.connected_at(tag, context.late).is_none() => {
                self.complete(tag, Status::ABORT_REQUESTED, context);
                return true;
            }
            Work::Reserve(reservation) => {
                self.reserve(&reservation, context);
                return true;
            }
        };
        let Role::Io(io) = &mut self.role else { return true };
        let volumes = context.volumes;
        let Some(volume) = volumes.get(request.volume.0 as usize).and_then(Option::as_ref) else {
            return self.forward(tag, context);
        };
        let place = request.volume.0 as usize;
        if !context.places.may_take(place, 1) {
            return false;
        }
        let command = match command_of(io, &request) {
            Ok(Some(command)) => command,
            Ok(None) => {
                self.complete(tag, Status::SUCCESS, context);
                return true;
            }
            Err(status) => {
                self.complete(tag, status, context);
                return true;
            }
        };
        let Some(owner) = io.owner(request.volume.0, volume) else {
            self.complete(tag, Status::COMMAND_INTERRUPTED, context);
            return true;
        };
        let submitted = context.queue.submit(volume, owner, tag_of(self.place.token, tag), command);
        let Some(slot) = io.slot(tag) else { return true };
        match submitted.map_err(|rejected| (rejected.why, rejected.command)) {
            Ok(()) => {
                slot.stage = Stage::Executing;
                context.places.take(place, 1);
                context.needs_turn = true;
            }
            Err((Refusal::Full, command)) => {
                slot.command = Some(command);
                return false;
            }
            Err((Refusal::OutOfRange, _)) => {
                self.complete(tag, Status::LBA_OUT_OF_RANGE.no_retry(), context);
            }
            Err((Refusal::Length, _)) => self.complete(tag, Status::INVALID_FIELD.no_retry(), context),
            Err((Refusal::Drained, _)) => self.complete(tag, Status::ABORT_REQUESTED, context),
        }
        true
    }

    /// When the host of a command that is about to begin was last known to be connected; `None` if
    /// its connection has ended, since the host may then have sent it again elsewhere. That is asked
    /// of the system where it may not have been seen yet: the command has waited, or the loop was
    /// `late`. The time is that of the clock, not of the round, in which the loop may have stood
    /// still. A read that comes late harms nobody.
    pub(crate) fn connected_at(&self, tag: u16, late: bool) -> Option<Instant> {
        let Role::Io(io) = &self.role else { return None };
        let slot = io.slots.get(usize::from(tag)).and_then(Option::as_ref).filter(|_| self.is_open())?;
        let now = Instant::now();
        let is_fresh = |at: &Instant| now.duration_since(*at) < FRESH;
        if kind(slot.work) == Kind::Read {
            return Some(now);
        }
        if !late && is_fresh(&slot.since) {
            return Some(slot.since);
        }
        self.established_at.get().filter(is_fresh).or_else(|| {
            self.established_at.set(self.link.is_established().then_some(now));
            self.established_at.get()
        })
    }

    pub(crate) const fn is_io(&self) -> bool {
        matches!(self.role, Role::Io(_))
    }

    /// A command has ended.
    pub(crate) fn done(&mut self, tag: u16, result: Result<Payload, Fault>, context: &mut Context<'_>) {
        if self.pair_is_done(tag, &result, context) {
            return;
        }
        let Role::Io(io) = &mut self.role else { return };
        let Some(slot) = io.slot(tag) else { return };
        let (kind, refused) = (kind(slot.work), slot.refused);
        match result {
            Ok(payload) if kind == Kind::Read => self.send(tag, payload, context),
            Ok(_) => self.complete(tag, Status::SUCCESS, context),
            Err(fault) => {
                let refused = refused.filter(|_| fault == Fault::Cancelled);
                let status = refused.unwrap_or_else(|| status::of_fault(fault, kind));
                self.complete(tag, status, context);
            }
        }
    }

    /// Answers a command. If it is half of a pair, the other half fails.
    pub(super) fn complete(&mut self, tag: u16, status: Status, context: &mut Context<'_>) {
        if let Some(slot) = self.answer_io(tag, status, context) {
            self.fail_other_half(tag, &slot, context);
        }
    }

    /// Answers a command; returns what it was.
    fn answer_io(&mut self, tag: u16, status: Status, context: &mut Context<'_>) -> Option<Slot> {
        let Role::Io(io) = &mut self.role else { return None };
        let slot = io.remove(tag, context)?;
        if let Some(cqe) = io.machine.complete(Tag(tag), status)
            && matches!(self.phase, super::Phase::Open)
        {
            self.link.respond(&cqe);
        }
        self.give_back(slot.reserved, context);
        Some(slot)
    }

    /// Answers a READ with its data, from where the volume has them.
    fn send(&mut self, tag: u16, payload: Payload, context: &mut Context<'_>) {
        let Role::Io(io) = &mut self.role else { return };
        let Some(slot) = io.remove(tag, context) else { return };
        let cqe = io.machine.complete(Tag(tag), Status::SUCCESS);
        let Some(cqe) = cqe.filter(|_| matches!(self.phase, super::Phase::Open)) else {
            return self.give_back(slot.reserved, context);
        };
        self.link.send(&cqe, slot.work.data_bytes(), payload, slot.reserved);
    }
}

/// The volume of a command.
fn place_of(slots: &[Option<Slot>], tag: u16) -> Option<usize> {
    let slot = slots.get(usize::from(tag)).and_then(Option::as_ref)?;
    Some(slot.work.place().0 as usize)
}

/// A command gives back what it has of what the volumes share.
fn leave(slot: &Slot, of_connection: &mut Shares, context: &mut Context<'_>) {
    let volume = slot.work.place().0 as usize;
    of_connection.give_back(volume, slot.shared);
    context.budget.volumes.give_back(volume, slot.shared);
    if slot.stage == Stage::Executing {
        context.places.give_back(volume, 1);
    }
}

/// The buffers that the data of a command are received into.
fn receive_buffers(work: &Work, bytes: usize, context: &Context<'_>) -> SmallVec<[Buffer; 1]> {
    let (volume, start) = work.place();
    let Some(volume) = context.volume(volume) else {
        return SmallVec::from_iter([context.buffers.take(bytes)]);
    };
    context.queue.receive_buffers(volume, start, bytes)
}

/// What a volume is asked for; nothing if there is nothing to do. Takes the command's buffers.
fn command_of(io: &mut Io, request: &Request) -> Result<Option<Command>, Status> {
    let Request { start: lba, blocks, .. } = *request;
    if let Some(command) = io.slot(request.tag.0).and_then(|slot| slot.command.take()) {
        return Ok(Some(command));
    }
    let buffers = match io.slot(request.tag.0) {
        Some(slot) if matches!(request.operation, Operation::Write { .. } | Operation::Compare) => {
            std::mem::take(&mut slot.buffers)
        }
        _ => SmallVec::new(),
    };
    Ok(Some(match request.operation {
        Operation::Read => Command::Read { lba, blocks },
        Operation::Write { durable } => {
            Command::Write { lba, payload: buffers.into_iter().map(Segment::from).collect(), durable }
        }
        Operation::Compare => {
            Command::Compare { lba, payload: buffers.into_iter().map(Segment::from).collect() }
        }
        Operation::CompareAndWrite { durable, compare } => io.command_of_pair(request, compare, durable)?,
        Operation::Flush => Command::Flush,
        Operation::WriteZeroes { deallocate, durable } => {
            Command::WriteZeroes { lba, blocks: blocks.into(), deallocate, durable }
        }
        Operation::Deallocate => {
            let slot = io.slots.get(usize::from(request.tag.0)).and_then(Option::as_ref);
            let data = slot.and_then(|slot| slot.buffers.first()).map_or(&[][..], |buffer| &buffer[..]);
            let ranges = io.machine.ranges(request.tag, data)?;
            let ranges: SmallVec<[std::ops::Range<u64>; 1]> =
                ranges.map(|range| range.start..range.start + u64::from(range.count)).collect();
            if ranges.is_empty() {
                return Ok(None);
            }
            Command::Discard { ranges }
        }
    }))
}

/// What has failed, if it has.
const fn kind(work: Work) -> Kind {
    match work {
        Work::Blocks(Request { operation: Operation::Read, .. }) => Kind::Read,
        Work::Blocks(Request {
            operation: Operation::Flush | Operation::WriteZeroes { durable: true, .. },
            ..
        }) => Kind::Flush,
        _ => Kind::Change,
    }
}

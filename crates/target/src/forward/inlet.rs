//! The end of a loop that executes what the process of the other node forwards to it.
//!
//! ```text
//!  head ──> Receiving ── payload ──> Waiting ──> Executing or Reserving ──> answered
//!                                      │  ^
//!                  it has waited: Asking  still connected
//! ```
//!
//! Everything is answered, also what is not executed, unless the other process has ended: then what
//! has not begun is dropped, as for a host whose connection has ended.

mod execute;

use super::door;
use super::stream::{Next, Parts, Stream};
use super::wire::{Command, Message, Operation};
use super::{COMMANDS_MAX, HOSTS_MAX, WINDOW_BYTES};
use crate::connection::Context;
use crate::mailbox::{Place, Token};
use crate::outbound::Flushed;
use crate::shares::Pass;
use nvme::controller::{GuestId, Node, View};
use nvme::{HostId, Nqn, Status};
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use transport::poll::Poller;
use volumes::{Owner, Payload};

/// Messages that are taken before others have their turn.
const MESSAGES_MAX: usize = 256;
/// How often it is asked whether the host of a command is still there. If the answer is too old
/// each time, the command is not executed.
const ASKS_MAX: u8 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// For its payload.
    Receiving,
    /// For a place in the queue of the volumes.
    Waiting,
    /// Until it is known whether its host is still connected.
    Asking,
    /// In the queue of the volumes.
    Executing,
    /// With the controllers.
    Reserving,
}

#[derive(Debug)]
struct Slot {
    command: Command,
    stage: Stage,
    parts: Parts,
    /// What there was no place for.
    submits: Option<volumes::Command>,
    /// The volume in whose queue it has a place.
    place: Option<usize>,
    asks: u8,
    /// A change of reservations or of the owner has ended it before it began, or, while it is
    /// executed, is answered only after it.
    refused: Option<Status>,
}

/// What a payload belongs to.
#[derive(Debug, Clone, Copy)]
enum Current {
    Host { host: u32, host_id: HostId },
    Command(u16),
}

#[derive(Debug)]
struct Guest {
    id: GuestId,
    view: Arc<View>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The other process has not said who it is.
    Greeting,
    /// What came by an earlier connection of the same loop is still executed.
    Queued,
    Open,
    /// The target stops: nothing more is taken, and what has begun is answered.
    Stopping,
    Ended,
}

/// Why a connection of the other node ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the other process has closed it, or has ended")]
    Closed,
    #[error("the other process speaks another version of what nodes of a pair say")]
    Malformed,
    #[error("the target stops")]
    Stop,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Inlet {
    pub(crate) place: Place,
    node: Node,
    phase: Phase,
    /// `None` once it is closed.
    stream: Option<Stream>,
    watch: Option<OwnedFd>,
    /// What the controllers know it by.
    number: Option<u64>,
    hosts: BTreeMap<u32, Guest>,
    /// By identifier.
    slots: Vec<Option<Slot>>,
    waiting: VecDeque<u16>,
    owners: SmallVec<[(u64, Owner); 2]>,
    current: Option<Current>,
    /// Payload that it has here.
    used: usize,
    drains: usize,
    /// Whether the other process was there when it was asked in this turn.
    is_there: Cell<Option<bool>>,
    /// More may be waiting to be received without a further event.
    pub(crate) has_more: bool,
}

impl Inlet {
    /// A connection of the process of the other node than this one.
    pub(crate) fn new(place: Place, socket: OwnedFd, node: Node) -> Self {
        Self {
            place,
            node,
            phase: Phase::Greeting,
            stream: Some(Stream::new(socket)),
            watch: None,
            number: None,
            hosts: BTreeMap::new(),
            slots: std::iter::repeat_with(|| None).take(COMMANDS_MAX).collect(),
            waiting: VecDeque::new(),
            owners: SmallVec::new(),
            current: None,
            used: 0,
            drains: 0,
            is_there: Cell::new(None),
            has_more: false,
        }
    }

    pub(crate) const fn token(&self) -> Token {
        self.place.token
    }

    /// Whether it can be forgotten.
    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Ended) && self.drains == 0
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn slot(&mut self, id: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(id))?.as_mut()
    }

    /// A turn of the volumes begins: whether the other process is there is asked anew.
    pub(crate) fn begin_turn(&self) {
        self.is_there.set(None);
    }

    /// Whether what the other process has sent may begin. What it may have sent was submitted
    /// before it is asked, so a host that sends it again, because the other process has ended
    /// since, comes after it.
    pub(crate) fn admits(&self) -> bool {
        let (Some(stream), Some(watch)) = (&self.stream, &self.watch) else { return false };
        let is_there = self.is_there.get().unwrap_or_else(|| door::is_there(stream.socket(), watch.as_fd()));
        self.is_there.set(Some(is_there));
        is_there
    }

    /// Receives what is waiting, up to the share of a turn.
    pub(crate) fn receive(&mut self, context: &mut Context<'_>) {
        self.has_more = false;
        match self.phase {
            Phase::Greeting => self.greet(context),
            Phase::Queued | Phase::Open => {
                if let Err(end) = self.take(context) {
                    self.end(&end, context);
                }
            }
            Phase::Stopping | Phase::Ended => {}
        }
    }

    fn greet(&mut self, context: &mut Context<'_>) {
        let Some(stream) = &self.stream else { return };
        match door::greet(stream.socket()) {
            Ok(None) => {}
            Ok(Some((Message::Hello { node, instance, outlet }, watch))) if node != self.node => {
                self.watch = Some(watch);
                let controllers = &context.shared.controllers;
                let (number, is_first) = controllers.open_inlet(self.place, instance, outlet);
                self.number = Some(number);
                self.phase = Phase::Queued;
                if is_first {
                    self.welcome(context);
                }
                self.has_more = true;
            }
            Ok(Some(_)) => self.end(&End::Malformed, context),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => self.end(&End::Malformed, context),
            Err(error) => self.end(&End::Io(error), context),
        }
    }

    /// The other process may send commands.
    pub(crate) fn welcome(&mut self, context: &mut Context<'_>) {
        let Some(stream) = self.stream.as_mut().filter(|_| self.phase == Phase::Queued) else { return };
        self.phase = Phase::Open;
        let [commands, window] = [COMMANDS_MAX, WINDOW_BYTES].map(|most| most as u32);
        let instance = context.shared.controllers.instance;
        stream.put(&Message::Welcome { node: self.node, instance, commands, window }, &[]);
    }

    fn take(&mut self, context: &mut Context<'_>) -> Result<(), End> {
        for _ in 0..MESSAGES_MAX {
            let Some(stream) = &mut self.stream else { return Ok(()) };
            match stream.next()? {
                Next::Nothing => return Ok(()),
                Next::End => return Err(End::Closed),
                Next::Malformed => return Err(End::Malformed),
                Next::Message(_) if self.phase == Phase::Queued => return Err(End::Malformed),
                Next::Message(message) => self.handle(message, context).ok_or(End::Malformed)?,
                Next::Payload(parts) => self.received(parts, context).ok_or(End::Malformed)?,
            }
        }
        self.has_more = true;
        Ok(())
    }

    /// A head; `None` if it may not be said.
    fn handle(&mut self, message: Message, context: &mut Context<'_>) -> Option<()> {
        match message {
            Message::Host { host, host_id, bytes } => {
                let may = bytes > 0 && self.hosts.len() < HOSTS_MAX && !self.hosts.contains_key(&host);
                let stream = self.stream.as_mut().filter(|_| may)?;
                self.current = Some(Current::Host { host, host_id });
                let bytes = bytes as usize;
                stream.expect(SmallVec::from_iter([context.buffers.take(bytes)]), bytes);
            }
            Message::HostGone { host } => {
                let is_idle = self.slots.iter().flatten().all(|slot| slot.command.host != host);
                let guest = self.hosts.remove(&host).filter(|_| is_idle)?;
                context.shared.controllers.close_guest(guest.id);
            }
            Message::Command(command) => self.handle_command(command, context)?,
            // It may be answered already.
            Message::Cancel { id } => self.cancel(id, context),
            Message::Fresh { id, stamp } => {
                if let Some(slot) = self.slot(id).filter(|slot| slot.stage == Stage::Asking) {
                    (slot.command.stamp, slot.stage) = (stamp, Stage::Waiting);
                    self.waiting.push_back(id);
                    self.start_waiting(context);
                }
            }
            Message::Hello { .. }
            | Message::Welcome { .. }
            | Message::Ask { .. }
            | Message::Answer { .. } => {
                return None;
            }
        }
        Some(())
    }

    fn handle_command(&mut self, command: Command, context: &mut Context<'_>) -> Option<()> {
        let has_room = self.used == 0 || self.used + command.cost() <= WINDOW_BYTES;
        let empty = self.slots.get_mut(usize::from(command.id)).filter(|slot| slot.is_none())?;
        if !has_room || !self.hosts.contains_key(&command.host) {
            return None;
        }
        let (parts, submits) = (Parts::new(), None);
        let stage = Stage::Receiving;
        *empty = Some(Slot { command, stage, parts, submits, place: None, asks: 0, refused: None });
        self.used += command.cost();
        if command.bytes == 0 {
            self.wait(command.id, context);
            return Some(());
        }
        let parts = self.parts_for(&command, context);
        self.current = Some(Current::Command(command.id));
        self.stream.as_mut()?.expect(parts, command.bytes as usize);
        Some(())
    }

    /// The buffers that a payload is received into.
    fn parts_for(&self, command: &Command, context: &Context<'_>) -> Parts {
        let bytes = command.bytes as usize;
        let at = self.volume_of(command).and_then(|at| context.volume(at));
        match (command.operation, at) {
            (Operation::Write { .. } | Operation::Compare, Some(volume)) => {
                context.queue.receive_buffers(volume, command.start, bytes)
            }
            (Operation::CompareAndWrite { .. }, _) => {
                let half = bytes / 2;
                [context.buffers.take(half), context.buffers.take(bytes - half)].into_iter().collect()
            }
            _ => SmallVec::from_iter([context.buffers.take(bytes)]),
        }
    }

    /// The driver's name of the volume of a command, if its host sees it.
    fn volume_of(&self, command: &Command) -> Option<u64> {
        let guest = self.hosts.get(&command.host)?;
        guest.view.namespace(command.nsid).map(|namespace| namespace.volume.0)
    }

    /// A payload is complete; `None` if it may not be this.
    fn received(&mut self, parts: Parts, context: &mut Context<'_>) -> Option<()> {
        match self.current.take()? {
            Current::Host { host, host_id } => {
                let name: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                let name = Nqn::new(std::str::from_utf8(&name).ok()?).ok()?;
                let (id, view) = context.shared.controllers.open_guest(self.place, name, host_id);
                self.hosts.insert(host, Guest { id, view });
            }
            Current::Command(id) => {
                self.slot(id)?.parts = parts;
                self.wait(id, context);
            }
        }
        Some(())
    }

    fn wait(&mut self, id: u16, context: &mut Context<'_>) {
        if let Some(slot) = self.slot(id) {
            slot.stage = Stage::Waiting;
            self.waiting.push_back(id);
            self.start_waiting(context);
        }
    }

    /// Starts commands that wait, in their order. Those of a volume that has no place do not stop the
    /// others.
    pub(crate) fn start_waiting(&mut self, context: &mut Context<'_>) {
        let mut pass = Pass::default();
        let nsid_of = |slots: &[Option<Slot>], id: u16| {
            let slot = slots.get(usize::from(id)).and_then(Option::as_ref)?;
            Some(slot.command.nsid as usize)
        };
        while let Some((id, nsid)) = pass.next(&mut self.waiting, |id| nsid_of(&self.slots, id)) {
            if !self.start(id, context) {
                pass.put_back(&mut self.waiting, id, nsid);
            }
        }
    }

    fn ask(&mut self, id: u16) {
        let (Some(stream), Some(Some(slot))) = (&mut self.stream, self.slots.get_mut(usize::from(id))) else {
            return;
        };
        slot.asks += 1;
        slot.stage = Stage::Asking;
        stream.put(&Message::Ask { id }, &[]);
    }

    /// The host of a command has gone.
    fn cancel(&mut self, id: u16, context: &mut Context<'_>) {
        let tag = self.tag_of(id);
        let Some(slot) = self.slot(id) else { return };
        match slot.stage {
            Stage::Waiting | Stage::Asking => {
                self.waiting.retain(|waiting| *waiting != id);
                self.refuse(id, Status::ABORT_REQUESTED, context);
            }
            Stage::Executing if context.queue.cancel(tag) => context.needs_turn = true,
            Stage::Receiving | Stage::Executing | Stage::Reserving => {}
        }
    }

    /// Answers a command that was not executed.
    fn refuse(&mut self, id: u16, status: Status, context: &mut Context<'_>) {
        self.answer(id, (status, status), Payload::new(), context);
    }

    /// Answers a command, with what was read.
    fn answer(
        &mut self,
        id: u16,
        (status, first): (Status, Status),
        payload: Payload,
        context: &mut Context<'_>,
    ) {
        let Some(slot) = self.slots.get_mut(usize::from(id)).and_then(Option::take) else { return };
        if let Some(place) = slot.place {
            context.places.give_back(place, 1);
        }
        context.has_room = true;
        let cost = slot.command.cost();
        let bytes = payload.iter().map(volumes::Segment::len).sum::<usize>();
        let Some(stream) = &mut self.stream else { return };
        let message = Message::Answer { id, status, first, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) };
        if bytes > 0 {
            stream.push(&message, payload, cost);
        } else {
            stream.put(&message, &[]);
            self.used = self.used.saturating_sub(cost);
        }
    }

    /// The host of this name may do something else from now on.
    pub(crate) fn set_view(&mut self, id: GuestId, view: Arc<View>) {
        if let Some(guest) = self.hosts.values_mut().find(|guest| guest.id == id) {
            guest.view = view;
        }
    }

    pub(crate) fn has_output(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::has_output) || self.phase == Phase::Stopping
    }

    /// Sends what there is; false if the rest has to wait for others.
    pub(crate) fn flush(&mut self, poller: &Poller, context: &mut Context<'_>) -> bool {
        let token = self.token().0;
        let Some(stream) = &mut self.stream else { return true };
        match stream.flush(context.now) {
            Ok((flushed, freed)) => {
                stream.wait(poller, token, flushed);
                self.used = self.used.saturating_sub(freed);
                let is_over = self.phase == Phase::Stopping && self.slots.iter().all(Option::is_none);
                if is_over && flushed == Flushed::All {
                    self.end(&End::Stop, context);
                }
                flushed != Flushed::OutOfTurn
            }
            Err(error) => {
                self.end(&End::Io(error), context);
                true
            }
        }
    }

    /// The target stops: what has not begun is refused.
    pub(crate) fn stop(&mut self, context: &mut Context<'_>) {
        match self.phase {
            Phase::Greeting | Phase::Queued => self.end(&End::Stop, context),
            Phase::Open => {
                self.phase = Phase::Stopping;
                self.waiting.clear();
                for id in 0..COMMANDS_MAX as u16 {
                    let Some(stage) = self.slot(id).map(|slot| slot.stage) else { continue };
                    if matches!(stage, Stage::Receiving | Stage::Waiting | Stage::Asking) {
                        self.refuse(id, Status::ANA_TRANSITION, context);
                    }
                }
            }
            Phase::Stopping | Phase::Ended => {}
        }
    }

    /// Ends the connection. What had not begun is dropped.
    fn end(&mut self, end: &End, context: &mut Context<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        tracing::info!(%end, loop_index = self.place.event_loop, "connection of the other node ended");
        self.phase = Phase::Ended;
        (self.stream, self.watch) = (None, None);
        self.waiting.clear();
        for slot in &mut self.slots {
            slot.take_if(|slot| slot.stage != Stage::Executing);
        }
        for guest in self.hosts.values() {
            context.shared.controllers.end_guest(guest.id);
        }
        (context.has_room, context.needs_turn) = (true, true);
        let tag = self.tag_of(0);
        for (at, owner) in std::mem::take(&mut self.owners) {
            let volumes = context.volumes;
            if let Some(volume) = volumes.get(at as usize).and_then(Option::as_ref)
                && context.queue.drain(volume, owner, tag)
            {
                self.drains += 1;
            }
        }
        if self.drains == 0 {
            self.report_closed(context);
        }
    }

    /// A volume has nothing of this connection any more.
    pub(crate) fn drained(&mut self, context: &mut Context<'_>) {
        self.drains = self.drains.saturating_sub(1);
        if self.drains == 0 {
            self.report_closed(context);
        }
    }

    /// Nothing that came here is executed any more.
    fn report_closed(&mut self, context: &Context<'_>) {
        for (_, guest) in std::mem::take(&mut self.hosts) {
            context.shared.controllers.close_guest(guest.id);
        }
        if let Some(number) = self.number.take() {
            context.shared.controllers.close_inlet(number);
        }
    }
}

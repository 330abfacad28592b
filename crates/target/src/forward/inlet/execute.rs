//! From a command that is here as a whole to its answer.

use super::{ASKS_MAX, Inlet, Operation, Slot, Stage};
use crate::connection::{Context, tag_of};
use crate::forward::{FRESH, Route, clock};
use crate::mailbox::Token;
use crate::status::{self, Kind};
use nvme::controller::{GuestId, Reserve, VolumeView};
use nvme::io::DsmRange;
use nvme::{Sqe, Status};
use smallvec::SmallVec;
use std::time::Duration;
use volumes::{Command, Fault, Owner, Payload, Refusal, Segment, Volume};

/// What an operation does to blocks: reads and writes them.
const fn access(operation: Operation) -> (bool, bool) {
    match operation {
        Operation::Read | Operation::Compare => (true, false),
        Operation::CompareAndWrite { .. } => (true, true),
        Operation::Reserve { .. } => (false, false),
        _ => (false, true),
    }
}

/// Whether a host may do it now.
fn allowed(namespace: &VolumeView, operation: Operation) -> Result<(), Status> {
    let (reads, writes) = access(operation);
    if let Some(status) = namespace.ana.refusal() {
        return Err(status);
    }
    if reads && !namespace.may_read || writes && !namespace.may_write {
        return Err(Status::RESERVATION_CONFLICT.no_retry());
    }
    let changes = writes && operation != Operation::Flush;
    if changes && namespace.write_protected {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.no_retry());
    }
    Ok(())
}

impl Inlet {
    pub(super) fn tag_of(&self, id: u16) -> u64 {
        tag_of(self.token(), id)
    }

    /// Takes the next step of a command; false if it has to wait for a place.
    pub(super) fn start(&mut self, id: u16, context: &mut Context<'_>) -> bool {
        let Some(slot) = self.slots.get(usize::from(id)).and_then(Option::as_ref) else { return true };
        let (command, asks) = (slot.command, slot.asks);
        let at = match self.check(slot, context) {
            Ok(at) => at,
            Err(status) => {
                self.refuse(id, status, context);
                return true;
            }
        };
        // It takes its place in the order of its blocks now. Its host may have sent it again before
        // if it was not connected any more.
        if Duration::from_nanos(clock().saturating_sub(command.stamp)) > FRESH {
            if asks >= ASKS_MAX {
                self.refuse(id, Status::ANA_TRANSITION, context);
            } else {
                self.ask(id);
            }
            return true;
        }
        if let Operation::Reserve { opcode, arguments } = command.operation {
            self.reserve(id, (opcode, arguments), context);
            return true;
        }
        let volumes = context.volumes;
        let Some(volume) = volumes.get(at as usize).and_then(Option::as_ref) else {
            self.refuse(id, Status::ANA_TRANSITION, context);
            return true;
        };
        if !context.places.may_take(at as usize, 1) {
            return false;
        }
        let submits = match self.slot(id).map(|slot| slot.command_for(volume)) {
            Some(Ok(submits)) => submits,
            Some(Err(status)) => {
                self.refuse(id, status, context);
                return true;
            }
            None => return true,
        };
        self.submit(id, (at, volume), submits, context)
    }

    /// The volume of a command that may be executed here, now.
    fn check(&self, slot: &Slot, context: &Context<'_>) -> Result<u64, Status> {
        let command = &slot.command;
        let guest = self.hosts.get(&command.host).ok_or(Status::INTERNAL_ERROR)?;
        // Without DNR: the other process may know more of who sees what, or less, for a moment.
        let namespace = guest.view.namespace(command.nsid).ok_or(Status::INVALID_NAMESPACE)?;
        let at = namespace.volume.0;
        let route = context.routes.get(at as usize).copied().unwrap_or(Route::Nowhere);
        if route != Route::Here(command.epoch) {
            return Err(Status::ANA_TRANSITION);
        }
        allowed(namespace, command.operation)?;
        Ok(at)
    }

    fn submit(
        &mut self,
        id: u16,
        (at, volume): (u64, &Volume),
        submits: Command,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(owner) = self.owner(at, volume) else {
            self.refuse(id, Status::COMMAND_INTERRUPTED, context);
            return true;
        };
        let submitted = context.queue.submit(volume, owner, self.tag_of(id), submits);
        let Some(slot) = self.slot(id) else { return true };
        match submitted.map_err(|rejected| (rejected.why, rejected.command)) {
            Ok(()) => {
                slot.stage = Stage::Executing;
                slot.place = Some(at as usize);
                context.places.take(at as usize, 1);
                context.needs_turn = true;
            }
            Err((Refusal::Full, command)) => {
                slot.submits = Some(command);
                return false;
            }
            Err((Refusal::OutOfRange, _)) => self.refuse(id, Status::LBA_OUT_OF_RANGE.no_retry(), context),
            Err((Refusal::Length, _)) => self.refuse(id, Status::INVALID_FIELD.no_retry(), context),
            Err((Refusal::Drained, _)) => self.refuse(id, Status::ANA_TRANSITION, context),
        }
        true
    }

    /// The owner of this connection's commands on a volume.
    fn owner(&mut self, at: u64, volume: &Volume) -> Option<Owner> {
        if let Some((_, owner)) = self.owners.iter().find(|(known, _)| *known == at) {
            return Some(*owner);
        }
        let owner = volume.open_owner().ok()?;
        self.owners.push((at, owner));
        Some(owner)
    }

    /// The backing of a volume is gone, and nothing of this connection is executed there.
    pub(crate) fn forget_volume(&mut self, at: u64) {
        self.owners.retain(|(known, _)| *known != at);
    }

    /// A command has ended.
    pub(crate) fn done(&mut self, id: u16, result: Result<Payload, Fault>, context: &mut Context<'_>) {
        let Some(slot) = self.slot(id) else { return };
        let (operation, refused) = (slot.command.operation, slot.refused);
        let (status, payload) = match result {
            Ok(payload) if operation == Operation::Read => ((Status::SUCCESS, Status::SUCCESS), payload),
            Ok(_) => ((Status::SUCCESS, Status::SUCCESS), Payload::new()),
            Err(Fault::Cancelled) if let Some(status) = refused => ((status, status), Payload::new()),
            Err(fault) => {
                let kind = match operation {
                    Operation::Read => Kind::Read,
                    Operation::Flush | Operation::WriteZeroes { durable: true, .. } => Kind::Flush,
                    _ => Kind::Change,
                };
                let status = status::of_fault(fault, kind);
                let both = match operation {
                    Operation::CompareAndWrite { .. } => {
                        let (first, second) = status::of_fault_of_pair(fault);
                        (second, first)
                    }
                    _ => (status, status),
                };
                (both, Payload::new())
            }
        };
        self.answer(id, status, payload, context);
    }

    /// Gives a command of reservations to the controllers.
    fn reserve(&mut self, id: u16, (opcode, arguments): (u8, u64), context: &mut Context<'_>) {
        let Some(slot) = self.slot(id) else { return };
        let (nsid, host) = (slot.command.nsid, slot.command.host);
        let sqe =
            Sqe { cdw10: arguments as u32, cdw11: (arguments >> 32) as u32, ..Sqe::new(opcode, 0, nsid) };
        let Some(command) = Reserve::of(&sqe) else {
            return self.refuse(id, Status::INVALID_OPCODE.no_retry(), context);
        };
        slot.stage = Stage::Reserving;
        let data: Vec<u8> = slot.parts.iter().flat_map(|part| part.iter().copied()).collect();
        let Some(guest) = self.hosts.get(&host).map(|guest| guest.id) else { return };
        let here = self.place.event_loop;
        context.shared.controllers.reserve_for_guest(here, (guest, id), nsid, command, &data);
    }

    /// A command of reservations has ended.
    pub(crate) fn reserved(
        &mut self,
        guest: GuestId,
        id: u16,
        result: Result<Vec<u8>, Status>,
        context: &mut Context<'_>,
    ) {
        let host = self.slot(id).filter(|slot| slot.stage == Stage::Reserving).map(|slot| slot.command.host);
        let is_its = |host| self.hosts.get(&host).is_some_and(|known| known.id == guest);
        if !host.is_some_and(is_its) {
            return;
        }
        let (status, data) = match result {
            Ok(data) => (Status::SUCCESS, data),
            Err(status) => (status, Vec::new()),
        };
        let mut payload = Payload::new();
        if !data.is_empty() {
            let mut buffer = context.buffers.take(data.len());
            buffer.copy_from_slice(&data);
            payload.push(Segment::from(buffer));
        }
        self.answer(id, (status, status), payload, context);
    }

    /// A change of reservations or of the owner holds from now on: commands on the namespace that
    /// it does not allow and that have not begun are refused, those that the queue still has are
    /// appended to `begun`.
    pub(crate) fn fence(&mut self, nsid: u32, begun: &mut Vec<(Token, u16)>, context: &mut Context<'_>) {
        let token = self.token();
        let mut refused: SmallVec<[(u16, Status); 8]> = SmallVec::new();
        for (id, slot) in (0..).zip(&mut self.slots) {
            let Some(slot) = slot.as_mut().filter(|slot| slot.command.nsid == nsid) else { continue };
            let view = self.hosts.get(&slot.command.host).map(|guest| &guest.view);
            let namespace = view.and_then(|view| view.namespace(nsid));
            let allowed = namespace.map_or(Err(Status::INVALID_NAMESPACE), |namespace| {
                allowed(namespace, slot.command.operation)
            });
            let Err(status) = allowed else { continue };
            match slot.stage {
                // It is checked when its payload is here.
                Stage::Receiving | Stage::Reserving => continue,
                Stage::Waiting | Stage::Asking => refused.push((id, status)),
                // Also what is cancelled here is in the queue until its end has come from there.
                Stage::Executing => {
                    context.needs_turn |= context.queue.cancel(tag_of(token, id));
                    begun.push((token, id));
                }
            }
            slot.refused = Some(status);
        }
        self.waiting.retain(|id| refused.iter().all(|(gone, _)| gone != id));
        for (id, status) in refused {
            self.refuse(id, status, context);
        }
    }

    /// Whether a command is still executed that a change of reservations waits for.
    pub(crate) fn is_fenced_off(&self, id: u16) -> bool {
        let slot = self.slots.get(usize::from(id)).and_then(Option::as_ref);
        slot.is_some_and(|slot| slot.stage == Stage::Executing && slot.refused.is_some())
    }
}

impl Slot {
    /// What a volume is asked for. Takes the payload.
    fn command_for(&mut self, volume: &Volume) -> Result<Command, Status> {
        if let Some(command) = self.submits.take() {
            return Ok(command);
        }
        let mut parts = std::mem::take(&mut self.parts);
        let crate::forward::wire::Command { start: lba, blocks, answer_bytes, .. } = self.command;
        let payload = |parts: super::Parts| -> Payload { parts.into_iter().map(Segment::from).collect() };
        Ok(match self.command.operation {
            Operation::Read => {
                let bytes = u64::from(blocks) * u64::from(volume.block_size().bytes());
                if bytes != u64::from(answer_bytes) {
                    return Err(Status::INVALID_FIELD.no_retry());
                }
                Command::Read { lba, blocks }
            }
            Operation::Write { durable } => Command::Write { lba, payload: payload(parts), durable },
            Operation::Compare => Command::Compare { lba, payload: payload(parts) },
            Operation::CompareAndWrite { durable } => {
                let written = parts.pop().map(Segment::from);
                let (expected, written) = (payload(parts), written.into_iter().collect());
                Command::CompareAndWrite { lba, expected, payload: written, durable }
            }
            Operation::Flush => Command::Flush,
            Operation::WriteZeroes { deallocate, durable } => {
                Command::WriteZeroes { lba, blocks: blocks.into(), deallocate, durable }
            }
            Operation::Deallocate => {
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                let range = |range: DsmRange| range.start..range.start.saturating_add(u64::from(range.count));
                Command::Discard { ranges: DsmRange::list(&bytes).map(range).collect() }
            }
            Operation::Reserve { .. } => return Err(Status::INTERNAL_ERROR),
        })
    }
}

//! Commands for volumes of the process of the other node: they are received as others are, and
//! executed there.

use super::{Connection, Io, Role, Stage, Work};
use crate::connection::Context;
use crate::forward::{Answered, Flight, Route, Sending, Sent};
use nvme::Status;
use nvme::controller::{Operation, Request};
use std::time::{Duration, Instant};
use volumes::{Payload, Segment};

/// How long commands wait for a connection to the owner, who is there. It takes no time, unless
/// something is wrong.
const PATIENCE: Duration = Duration::from_secs(2);

impl Connection {
    /// Sends a command to the owner of its volume; false if it has to wait for that.
    pub(super) fn forward(&mut self, tag: u16, context: &mut Context<'_>) -> bool {
        let connected_at = self.connected_at(tag, context.late);
        let Role::Io(io) = &mut self.role else { return true };
        let Some(slot) = io.slot(tag) else { return true };
        let work = slot.work;
        let at = work.place().0 as usize;
        let Some(Route::There(epoch)) = context.routes.get(at).copied() else {
            // Nobody has its backing now.
            self.complete(tag, Status::ANA_TRANSITION, context);
            return true;
        };
        // Its host may have sent it again elsewhere.
        let Some(connected_at) = connected_at else {
            self.complete(tag, Status::ABORT_REQUESTED, context);
            return true;
        };
        let cost = work.data_bytes() as usize + io.first(tag).map_or(0, |_| work.data_bytes() as usize);
        match context.outlet.room(at, cost, context.now) {
            Sent::Yes => {}
            // Not inaccessible: the ANA log would have to say so as well.
            Sent::Down(since) if since > PATIENCE => {
                self.complete(tag, Status::ANA_TRANSITION, context);
                return true;
            }
            Sent::Full | Sent::Down(_) => return false,
        }
        let payload = match io.payload_of(tag, &work, context) {
            Ok(Some(payload)) => payload,
            Ok(None) => {
                self.complete(tag, Status::SUCCESS, context);
                return true;
            }
            Err(status) => {
                self.complete(tag, status, context);
                return true;
            }
        };
        let Some(nsid) = io.machine.nsid(work.tag()) else { return true };
        let flight = Flight { token: self.place.token, tag, at, epoch };
        let command = command_for(&work, nsid, epoch, payload.iter().map(Segment::len).sum());
        if context.outlet.send(Sending { flight, host: &io.host, connected_at, command, payload }) {
            if let Some(slot) = io.slot(tag) {
                slot.stage = Stage::Forwarded;
            }
            context.has_output = true;
        } else {
            self.complete(tag, Status::ANA_TRANSITION, context);
        }
        true
    }

    /// A forwarded command has ended, or the owner wants to know whether its host is still there.
    pub(crate) fn forwarded(&mut self, tag: u16, answered: Answered, context: &mut Context<'_>) {
        let (status, first, payload) = match answered {
            Answered::Asked { id } => {
                context.has_output = true;
                let now = Instant::now();
                if self.is_open() && self.link.is_established() {
                    return context.outlet.confirm(id, now);
                }
                return context.outlet.cancel(self.place.token, tag);
            }
            Answered::ByOwner { status, first, payload } => (status, first, payload),
            Answered::Settled => (Status::ANA_TRANSITION, Status::ANA_TRANSITION, None),
        };
        let Role::Io(io) = &mut self.role else { return };
        let half = io.first(tag);
        let Some(slot) = io.slot(tag).filter(|slot| slot.stage == Stage::Forwarded) else { return };
        let expects_data = !slot.work.takes_data() && slot.work.data_bytes() > 0;
        if !self.is_open() {
            self.answer_io(tag, status, context);
            return self.drained(context);
        }
        if let Some(half) = half {
            self.answer_io(half, first, context);
            self.answer_io(tag, status, context);
            return;
        }
        match payload {
            Some(buffer) if expects_data && status.is_success() => {
                self.send(tag, Payload::from_iter([Segment::from(buffer)]), context);
            }
            None if expects_data && status.is_success() => {
                self.complete(tag, Status::INTERNAL_ERROR, context);
            }
            _ => self.complete(tag, status, context),
        }
    }
}

impl Io {
    /// The commands that are with the other process; they are not to be begun any more.
    pub(super) fn cancel_forwarded(&self, token: crate::mailbox::Token, context: &mut Context<'_>) -> usize {
        let is_there =
            |slot: &Option<super::Slot>| slot.as_ref().is_some_and(|slot| slot.stage == Stage::Forwarded);
        let mut count = 0;
        for (tag, _) in (0..).zip(&self.slots).filter(|(_, slot)| is_there(slot)) {
            context.outlet.cancel(token, tag);
            context.has_output = true;
            count += 1;
        }
        count
    }

    /// What is sent along with a command; `None` if there is nothing to do. Takes its buffers.
    fn payload_of(
        &mut self,
        tag: u16,
        work: &Work,
        context: &Context<'_>,
    ) -> Result<Option<Payload>, Status> {
        let first = self.first(tag);
        let mut payload = Payload::new();
        if let Work::Blocks(Request { operation: Operation::Deallocate, tag, .. }) = work {
            let data = self.slot(tag.0).map(|slot| std::mem::take(&mut slot.buffers)).unwrap_or_default();
            let data = data.first().map_or(&[][..], |buffer| &buffer[..]);
            let mut ranges = Vec::new();
            for range in self.machine.ranges(*tag, data)? {
                ranges.extend_from_slice(&range.encode());
            }
            if ranges.is_empty() {
                return Ok(None);
            }
            let mut buffer = context.buffers.take(ranges.len());
            buffer.copy_from_slice(&ranges);
            payload.push(Segment::from(buffer));
            return Ok(Some(payload));
        }
        for tag in first.into_iter().chain([tag]) {
            let slot = self.slot(tag).ok_or(Status::INTERNAL_ERROR)?;
            payload.extend(std::mem::take(&mut slot.buffers).into_iter().map(Segment::from));
        }
        Ok(Some(payload))
    }
}

/// What the other process is asked for, as far as it is known here.
fn command_for(work: &Work, nsid: u32, epoch: u64, bytes: usize) -> crate::forward::wire::Command {
    use crate::forward::wire::{Command, Operation as Asked};
    let answer_bytes = if work.takes_data() { 0 } else { work.data_bytes() };
    let (operation, start, blocks) = match work {
        Work::Blocks(request) => {
            let operation = match request.operation {
                Operation::Read => Asked::Read,
                Operation::Write { durable } => Asked::Write { durable },
                Operation::Compare => Asked::Compare,
                Operation::CompareAndWrite { durable, .. } => Asked::CompareAndWrite { durable },
                Operation::Flush => Asked::Flush,
                Operation::WriteZeroes { deallocate, durable } => Asked::WriteZeroes { deallocate, durable },
                Operation::Deallocate => Asked::Deallocate,
            };
            (operation, request.start, request.blocks)
        }
        Work::Reserve(reservation) => {
            let sqe = reservation.command.command(nsid);
            (Asked::Reserve { opcode: sqe.opcode, arguments: sqe.cdw10_11() }, 0, 0)
        }
    };
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Command { id: 0, host: 0, nsid, epoch, stamp: 0, operation, start, blocks, bytes, answer_bytes }
}

//! Fused Compare and Write. The second half acts for both: it sets memory aside for both, asks for
//! the data of both, and is executed when both are here.
//!
//! ```text
//!  first half    taken ──> Held ──────> asked for, Receiving ──> Held ──────────────┐
//!  second half            taken ──> Waiting ──> Receiving ──> Held or Waiting ──> Executing
//! ```

use super::{Connection, Io, Role, Slot, Stage, Work, receive_buffers};
use crate::connection::Context;
use crate::status;
use nvme::Status;
use nvme::controller::{Operation, Request, Tag};
use volumes::{Command, Fault, Payload, Segment};

/// The tag of the first half, if the command is a second one.
const fn first_of(work: &Work) -> Option<u16> {
    match work {
        Work::Blocks(Request { operation: Operation::CompareAndWrite { compare, .. }, .. }) => {
            Some(compare.0)
        }
        _ => None,
    }
}

impl Slot {
    /// The memory that is set aside before the host is asked for data.
    const fn asked_bytes(&self) -> usize {
        if self.in_capsule { 0 } else { self.work.data_bytes() as usize }
    }

    /// The other half is answered, and its tag may be that of another command soon.
    const fn leave_pair(&mut self) {
        self.is_first = false;
        if let Work::Blocks(request) = &mut self.work
            && let Operation::CompareAndWrite { durable, .. } = request.operation
        {
            request.operation = Operation::Write { durable };
        }
    }
}

impl Io {
    /// The tag of the first half of a pair, by that of its second one.
    pub(super) fn first(&self, tag: u16) -> Option<u16> {
        let slot = self.slots.get(usize::from(tag)).and_then(Option::as_ref)?;
        first_of(&slot.work)
    }

    /// The tag of the second half of a pair, by that of its first one.
    fn second(&self, tag: u16) -> Option<u16> {
        let is_second = |slot: &Option<Slot>| {
            slot.as_ref().is_some_and(|slot| first_of(&slot.work).is_some_and(|first| first == tag))
        };
        (0..).zip(&self.slots).find_map(|(at, slot)| is_second(slot).then_some(at))
    }

    /// What a command needs before its data are asked for, together with its first half.
    pub(super) fn asked_bytes(&self, tag: u16) -> usize {
        let of = |tag: u16| {
            let slot = self.slots.get(usize::from(tag)).and_then(Option::as_ref);
            slot.map_or(0, Slot::asked_bytes)
        };
        of(tag) + self.first(tag).map_or(0, of)
    }

    /// What a volume is asked for by a pair. Takes the data of both halves.
    pub(super) fn command_of_pair(
        &mut self,
        request: &Request,
        compare: Tag,
        durable: bool,
    ) -> Result<Command, Status> {
        let mut payload_of = |tag: u16| -> Option<Payload> {
            let buffers = std::mem::take(&mut self.slot(tag)?.buffers);
            Some(buffers.into_iter().map(Segment::from).collect())
        };
        let (expected, payload) = (payload_of(compare.0), payload_of(request.tag.0));
        let (Some(expected), Some(payload)) = (expected, payload) else {
            return Err(Status::INTERNAL_ERROR);
        };
        Ok(Command::CompareAndWrite { lba: request.start, expected, payload, durable })
    }
}

impl Connection {
    /// A first half that has no second one ends.
    pub(in crate::connection) fn fail_half(
        &mut self,
        failed: Option<(Tag, Status)>,
        context: &mut Context<'_>,
    ) {
        if let Some((tag, status)) = failed {
            self.give_up(tag.0, status, context);
        }
    }

    /// Answers a half whose pair is not executed, at once or when its data are here, as its host
    /// expects.
    fn give_up(&mut self, tag: u16, status: Status, context: &mut Context<'_>) {
        let Role::Io(io) = &mut self.role else { return };
        let Some(slot) = io.slot(tag) else { return };
        if slot.stage == Stage::Receiving {
            slot.refused.get_or_insert(status);
            return slot.leave_pair();
        }
        io.waiting.retain(|waiting| *waiting != tag);
        self.complete(tag, status, context);
    }

    /// Asks for the data of the first half of a pair, if they did not come with it. The memory for
    /// them was set aside.
    pub(super) fn ask_for_first(&mut self, tag: u16, context: &Context<'_>) {
        let Role::Io(io) = &mut self.role else { return };
        let Some(first) = io.first(tag) else { return };
        let Some(slot) = io.slot(first) else { return };
        if slot.is_received || slot.stage != Stage::Held {
            return;
        }
        let bytes = slot.work.data_bytes();
        slot.buffers = receive_buffers(&slot.work, bytes as usize, context);
        (slot.stage, slot.since) = (Stage::Receiving, context.now);
        self.link.ask(first, slot.cid, bytes, &mut slot.buffers);
        io.asked += 1;
    }

    /// Whether a second half has to wait for the data of its first one; then it is held.
    pub(super) fn waits_for_first(&mut self, tag: u16) -> bool {
        let Role::Io(io) = &mut self.role else { return false };
        let Some(first) = io.first(tag) else { return false };
        let waits = io.slot(first).is_some_and(|slot| !slot.is_received);
        if waits && let Some(slot) = io.slot(tag) {
            slot.stage = Stage::Held;
        }
        waits
    }

    /// The data of a first half are here: it is held, and its second half may go on.
    pub(super) fn first_is_received(&mut self, tag: u16, context: &mut Context<'_>) {
        let Role::Io(io) = &mut self.role else { return };
        let Some(slot) = io.slot(tag) else { return };
        slot.is_received = true;
        slot.stage = Stage::Held;
        if let Some(second) = io.second(tag)
            && let Some(slot) = io.slot(second).filter(|slot| slot.stage == Stage::Held)
        {
            slot.stage = Stage::Waiting;
            io.waiting.push_front(second);
            self.start_waiting(context);
        }
    }

    /// A command has been answered that was not executed with its other half: that one fails too.
    pub(super) fn fail_other_half(&mut self, tag: u16, slot: &Slot, context: &mut Context<'_>) {
        let Role::Io(io) = &self.role else { return };
        let other = if slot.is_first { io.second(tag) } else { first_of(&slot.work) };
        if let Some(other) = other {
            self.give_up(other, Status::FAILED_FUSED, context);
        }
    }

    /// A pair has ended: both halves are answered. False if the command is no pair.
    pub(super) fn pair_is_done(
        &mut self,
        tag: u16,
        result: &Result<Payload, Fault>,
        context: &mut Context<'_>,
    ) -> bool {
        let Role::Io(io) = &mut self.role else { return false };
        let Some(first) = io.first(tag) else { return false };
        let refused = io.slot(tag).and_then(|slot| slot.refused);
        let (of_first, of_second) = match result {
            Ok(_) => (Status::SUCCESS, Status::SUCCESS),
            Err(Fault::Cancelled) if let Some(status) = refused => (status, status),
            Err(fault) => status::of_fault_of_pair(*fault),
        };
        self.answer_io(first, of_first, context);
        self.answer_io(tag, of_second, context);
        true
    }
}

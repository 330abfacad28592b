//! What reservations do to the commands of an I/O queue, and the end of their own commands.

use super::{Connection, Role, Stage, Work, receive_buffers, tag_of};
use crate::connection::Context;
use crate::mailbox::Token;
use nvme::Status;
use nvme::controller::{Operation, Reservation, Tag};
use smallvec::SmallVec;
use volumes::{Payload, Segment};

impl Connection {
    /// Gives a command of reservations to the controllers.
    pub(super) fn reserve(&mut self, reservation: &Reservation, context: &Context<'_>) {
        let Role::Io(io) = &mut self.role else { return };
        let queue = io.queue;
        let Some(slot) = io.slot(reservation.tag.0) else { return };
        slot.stage = Stage::Reserving;
        let data: Vec<u8> = slot.buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        context.shared.controllers.reserve(self.place.event_loop, queue, reservation, &data);
    }

    /// A change of reservations holds from now on: commands on the namespace that it does not allow
    /// and that have not begun are refused, those that the queue still has are appended to `begun`.
    ///
    /// A command whose data are on their way is answered when they are here, as its host expects.
    pub(crate) fn fence(&mut self, nsid: u32, begun: &mut Vec<(Token, u16)>, context: &mut Context<'_>) {
        let token = self.place.token;
        let Role::Io(io) = &mut self.role else { return };
        let mut waiting: SmallVec<[(u16, Status); 8]> = SmallVec::new();
        for (tag, slot) in (0..).zip(&mut io.slots) {
            let Some(slot) = slot else { continue };
            let Work::Blocks(request) = slot.work else { continue };
            if io.machine.nsid(Tag(tag)) != Some(nsid) {
                continue;
            }
            let Err(status) = io.machine.still_allows(Tag(tag), request.operation) else { continue };
            slot.refused = Some(status);
            match slot.stage {
                Stage::Waiting => waiting.push((tag, status)),
                // Also what is cancelled here is in the queue until its end has come from there.
                Stage::Executing => {
                    context.needs_turn |= context.queue.cancel(tag_of(token, tag));
                    begun.push((token, tag));
                }
                // The second half of a pair acts for both.
                Stage::Held if request.operation == Operation::Compare => slot.refused = None,
                Stage::Held => waiting.push((tag, status)),
                // Its owner says how it ends.
                Stage::Forwarded => slot.refused = None,
                Stage::Receiving | Stage::Reserving => {}
            }
        }
        io.waiting.retain(|tag| waiting.iter().all(|(refused, _)| refused != tag));
        for (tag, status) in waiting {
            self.complete(tag, status, context);
        }
    }

    /// Whether a command is still executed that a change of reservations waits for.
    pub(crate) fn is_fenced_off(&self, tag: u16) -> bool {
        let Role::Io(io) = &self.role else { return false };
        let slot = io.slots.get(usize::from(tag)).and_then(Option::as_ref);
        slot.is_some_and(|slot| slot.stage == Stage::Executing && slot.refused.is_some())
    }

    /// A command of reservations has ended.
    pub(crate) fn reserved(&mut self, tag: u16, result: Result<Vec<u8>, Status>, context: &mut Context<'_>) {
        let Role::Io(io) = &mut self.role else { return };
        let Some(slot) = io.slot(tag).filter(|slot| slot.stage == Stage::Reserving) else { return };
        match result {
            Ok(data) if !slot.work.takes_data() => {
                let mut payload = Payload::new();
                let mut rest = &data[..];
                for mut buffer in receive_buffers(&slot.work, data.len(), context) {
                    let (now, later) = rest.split_at(buffer.len().min(rest.len()));
                    if let Some(place) = buffer.get_mut(..now.len()) {
                        place.copy_from_slice(now);
                    }
                    rest = later;
                    payload.push(Segment::from(buffer));
                }
                self.send(tag, payload, context);
            }
            Ok(_) => self.complete(tag, Status::SUCCESS, context),
            Err(status) => self.complete(tag, status, context),
        }
    }
}

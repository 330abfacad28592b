//! I/O queues: what is outstanding on a queue, and whether an I/O command may be executed.
//!
//! A command is checked completely before the first byte of its data is asked for: namespace, ANA
//! state, range, length, and that its SGL has that length. NVM Command Set, "NVM Command Set
//! Commands"; NVMe Base, "Status Field Definition".

use super::fused::First;
use super::namespace::{View, VolumeId, VolumeView};
use super::reservations::Reserve;
use crate::command::{FUSE_MASK, PSDT_MASK, PSDT_SGL, SQHD_NO_FLOW_CONTROL};
use crate::fabrics::FabricsType;
use crate::io::{Blocks, DatasetManagement, DsmRange, IoFlags};
use crate::{Cqe, IoOpcode, NSID_ALL, Sqe, Status};
use std::sync::Arc;

/// A host that does not keep to the rules of its queue; the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// More commands outstanding than the queue has entries.
    #[error("more than {0} commands are outstanding on the queue")]
    Full(u32),
}

/// A submission queue: how many commands are outstanding, and how far the controller has taken
/// them. NVMe over Fabrics, "Submission Queue Flow Control"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubmissionQueue {
    entries: u32,
    flow_control: bool,
    head: u32,
    outstanding: u32,
}

impl SubmissionQueue {
    /// A queue of SQSIZE as Connect has it: the number of entries minus one.
    #[must_use]
    pub fn new(sqsize: u16, flow_control: bool) -> Self {
        Self { entries: u32::from(sqsize) + 1, flow_control, head: 0, outstanding: 0 }
    }

    /// The number of entries.
    #[must_use]
    pub const fn entries(&self) -> u32 {
        self.entries
    }

    /// The number of commands that were taken and not completed.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// A command was received.
    ///
    /// # Errors
    /// [`Violation`].
    pub const fn take(&mut self) -> Result<(), Violation> {
        if self.outstanding >= self.entries {
            return Err(Violation::Full(self.entries));
        }
        self.outstanding += 1;
        Ok(())
    }

    /// A command is completed; returns its SQHD.
    pub fn complete(&mut self) -> u16 {
        self.outstanding = self.outstanding.saturating_sub(1);
        if !self.flow_control {
            return SQHD_NO_FLOW_CONTROL;
        }
        self.head = (self.head + 1) % self.entries;
        u16::try_from(self.head).unwrap_or_default()
    }

    /// The commands that were taken and not completed end without an answer, except for one.
    pub(super) const fn drop_others(&mut self) {
        let others = self.outstanding.saturating_sub(1);
        self.outstanding -= others;
        self.skip(others);
    }

    /// The host may use so many entries again whose commands are not completed.
    pub(super) const fn skip(&mut self, count: u32) {
        self.head = (self.head + count % self.entries) % self.entries;
    }
}

/// Identifies an outstanding command of a queue. Tags of completed commands are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u16);

/// What to do with the blocks of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read them. The data, all of them, go to the host before the completion.
    Read,
    /// Write them.
    Write {
        /// Complete only when they are durable.
        durable: bool,
    },
    /// Compare them with the data of the host, which gets
    /// [`COMPARE_FAILURE`](Status::COMPARE_FAILURE) where they differ.
    Compare,
    /// Write them if they hold what the host expects: the first half of a pair and the second one,
    /// which has this request. No other command may see or change the blocks in between. Complete
    /// both halves.
    CompareAndWrite {
        /// As of a write.
        durable: bool,
        /// The first half, whose data are what the host expects.
        compare: Tag,
    },
    /// Make all completed writes durable. Without blocks.
    Flush,
    /// Write zeroes.
    WriteZeroes {
        /// The blocks may be deallocated instead, if they read as zeroes then.
        deallocate: bool,
        /// Complete only when they are durable.
        durable: bool,
    },
    /// Deallocate ranges, which come as data: [`IoQueue::ranges`] checks them.
    Deallocate,
}

/// A command that may be executed. Complete it by [`IoQueue::complete`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub tag: Tag,
    /// The volume.
    pub volume: VolumeId,
    /// What to do.
    pub operation: Operation,
    /// The first block.
    pub start: u64,
    /// The number of blocks; 0 for Flush and Deallocate.
    pub blocks: u32,
    /// The data that move, in bytes: what is read, or what the host sends. 0 if none do.
    pub data_bytes: u32,
}

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Execute it.
    Execute(Request),
    /// Take its data if they come with it, but do nothing: it is the first half of a pair. It ends
    /// with the [second one](Operation::CompareAndWrite), or by [`IoQueue::take_failed_half`], or
    /// by [`IoQueue::complete`] if its data are no good.
    Hold(Request),
    /// Give it to [`Subsystem::reserve`](super::Subsystem::reserve), with the data that the host
    /// sends.
    Reserve(Reservation),
    /// Answer with this completion. Data that came with the command are dropped.
    Respond(Cqe),
    /// Answer with this completion, then end the queue: the host disconnected it.
    Disconnect(Cqe),
}

/// A command of reservations. Complete it by [`IoQueue::complete`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The command.
    pub tag: Tag,
    /// The namespace.
    pub nsid: u32,
    /// The volume.
    pub volume: VolumeId,
    /// What it asks for.
    pub command: Reserve,
    /// The data that move, in bytes: to the host for a report, else from it.
    pub data_bytes: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    nsid: u32,
    ranges: u32,
}

/// One I/O queue of a controller.
#[derive(Debug)]
pub struct IoQueue {
    view: Arc<View>,
    queue: SubmissionQueue,
    /// By tag: the identifier of the outstanding command, above 16 bits if there is none. Apart
    /// from the slots, so that a look-up reads few cache lines.
    cids: Vec<u32>,
    slots: Vec<Slot>,
    free: Vec<u16>,
    traffic: bool,
    pub(super) first: Option<First>,
    pub(super) failed_half: Option<(Tag, Status)>,
}

const NO_CID: u32 = u32::MAX;

impl IoQueue {
    /// The queue that Connect has made, with the view that came with it.
    #[must_use]
    pub fn new(queue: SubmissionQueue, view: Arc<View>) -> Self {
        let entries = usize::try_from(queue.entries()).unwrap_or(usize::MAX).min(1 << 16);
        let free = (0..=u16::MAX).take(entries).rev().collect();
        let slots = vec![Slot { nsid: 0, ranges: 0 }; entries];
        let cids = vec![NO_CID; entries];
        Self { view, queue, cids, slots, free, traffic: false, first: None, failed_half: None }
    }

    /// From now on commands are checked against this view. Those that are being executed go on.
    pub fn set_view(&mut self, view: Arc<View>) {
        self.view = view;
    }

    /// The number of commands that were taken and not completed.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        self.queue.outstanding()
    }

    /// Whether commands were received since the last call of this: traffic keeps a controller
    /// alive.
    pub const fn take_traffic(&mut self) -> bool {
        std::mem::replace(&mut self.traffic, false)
    }

    /// Takes a command.
    ///
    /// # Errors
    /// [`Violation`]: the connection ends.
    pub fn handle_command(&mut self, sqe: &Sqe) -> Result<Action, Violation> {
        self.traffic = true;
        self.queue.take()?;
        if sqe.flags & FUSE_MASK != 0 || self.first.is_some() {
            return Ok(self.pair(sqe));
        }
        Ok(self.single(sqe))
    }

    /// A command that is not half of a pair.
    pub(super) fn single(&mut self, sqe: &Sqe) -> Action {
        if self.is_outstanding(sqe.cid) {
            return Action::Respond(self.answer(sqe.cid, Status::COMMAND_ID_CONFLICT.no_retry()));
        }
        let opcode = IoOpcode(sqe.opcode);
        if opcode == IoOpcode::FABRICS {
            return self.fabrics(sqe);
        }
        if let Some(command) = Reserve::of(sqe).filter(|_| self.view.reservations) {
            return match self.check_reservation(sqe, command) {
                Ok(reservation) => Action::Reserve(reservation),
                Err(status) => Action::Respond(self.answer(sqe.cid, status)),
            };
        }
        match self.check(sqe, opcode) {
            Ok(request) => Action::Execute(request),
            Err(status) => Action::Respond(self.answer(sqe.cid, status)),
        }
    }

    pub(super) fn is_outstanding(&self, cid: u16) -> bool {
        self.cids.contains(&u32::from(cid))
    }

    /// Answers a command with this status: one that the transport found unsuitable, or that the
    /// driver has dealt with itself, as with those of authentication.
    ///
    /// # Errors
    /// [`Violation`]: the connection ends.
    pub fn refuse(&mut self, sqe: &Sqe, status: Status) -> Result<Cqe, Violation> {
        self.traffic = true;
        self.queue.take()?;
        self.pair_is_refused(sqe);
        Ok(self.answer(sqe.cid, status))
    }

    /// Completes a command. A command that is not outstanding has no completion.
    pub fn complete(&mut self, tag: Tag, status: Status) -> Option<Cqe> {
        let cid = self.cids.get_mut(usize::from(tag.0))?;
        let outstanding = u16::try_from(std::mem::replace(cid, NO_CID)).ok()?;
        self.free.push(tag.0);
        self.first_has_ended(tag);
        // Only for failures that pass, and only if the host has said that it waits.
        let passes = status.is(Status::COMMAND_INTERRUPTED) || status.is(Status::NAMESPACE_NOT_READY);
        let status = if passes && self.view.retry_delays { status.with_retry_delay(1) } else { status };
        Some(self.answer(outstanding, status))
    }

    /// The namespace of an outstanding command.
    #[must_use]
    pub fn nsid(&self, tag: Tag) -> Option<u32> {
        self.slots.get(usize::from(tag.0)).map(|slot| slot.nsid)
    }

    /// Whether a command that was taken under an earlier view may be executed under this one too,
    /// as far as reservations and the ANA state are concerned.
    ///
    /// # Errors
    /// The status to complete it with instead.
    pub fn still_allows(&self, tag: Tag, operation: Operation) -> Result<(), Status> {
        let nsid = self.nsid(tag).ok_or(Status::INTERNAL_ERROR)?;
        // A host that sees the namespace no more has no rights there.
        let namespace = self.view.namespace(nsid).ok_or(Status::INVALID_NAMESPACE.no_retry())?;
        if let Some(status) = namespace.ana.refusal() {
            return Err(status);
        }
        let may = match operation {
            Operation::Read | Operation::Compare => namespace.may_read,
            Operation::CompareAndWrite { .. } => namespace.may_read && namespace.may_write,
            _ => namespace.may_write,
        };
        if may { Ok(()) } else { Err(Status::RESERVATION_CONFLICT.no_retry()) }
    }

    /// Checks the ranges of a [`Operation::Deallocate`], all before the first is executed.
    ///
    /// # Errors
    /// The status to complete the command with.
    pub fn ranges<'a>(
        &self,
        tag: Tag,
        data: &'a [u8],
    ) -> Result<impl Iterator<Item = DsmRange> + 'a, Status> {
        let slot = self.slots.get(usize::from(tag.0)).ok_or(Status::INTERNAL_ERROR)?;
        // The view may have changed since the command came.
        let namespace = self.view.namespace(slot.nsid).ok_or(Status::INVALID_NAMESPACE.no_retry())?;
        let count = usize::try_from(slot.ranges).unwrap_or(usize::MAX);
        let Some(data) = data.get(..count.saturating_mul(DsmRange::BYTES)) else {
            return Err(Status::SGL_INVALID_LENGTH.no_retry());
        };
        if !DsmRange::list(data).all(|range| range.is_within(namespace.blocks)) {
            return Err(Status::LBA_OUT_OF_RANGE.no_retry());
        }
        Ok(DsmRange::list(data).filter(|range| range.count > 0))
    }

    pub(super) fn answer(&mut self, cid: u16, status: Status) -> Cqe {
        Cqe { result: 0, sqhd: self.queue.complete(), sqid: 0, cid, status }
    }

    /// On an I/O queue there are Disconnect and, after Connect, nothing else. NVMe over Fabrics,
    /// "Disconnect Command"
    fn fabrics(&mut self, sqe: &Sqe) -> Action {
        match FabricsType::of(sqe) {
            FabricsType::DISCONNECT => Action::Disconnect(self.answer(sqe.cid, Status::SUCCESS)),
            FabricsType::CONNECT => {
                Action::Respond(self.answer(sqe.cid, Status::COMMAND_SEQUENCE_ERROR.no_retry()))
            }
            _ => Action::Respond(self.answer(sqe.cid, Status::INVALID_OPCODE.no_retry())),
        }
    }

    /// The request of a command, or the status to answer at once.
    pub(super) fn check(&mut self, sqe: &Sqe, opcode: IoOpcode) -> Result<Request, Status> {
        let fails = |status: Status| Err(status.no_retry());
        let writes = match opcode {
            IoOpcode::READ | IoOpcode::COMPARE | IoOpcode::FLUSH => false,
            IoOpcode::WRITE | IoOpcode::WRITE_ZEROES | IoOpcode::DATASET_MANAGEMENT => true,
            _ => return fails(Status::INVALID_OPCODE),
        };
        let namespace = self.reached(sqe)?;
        // Flush is one of the commands that write.
        let reads = matches!(opcode, IoOpcode::READ | IoOpcode::COMPARE);
        let may = if reads { namespace.may_read } else { namespace.may_write };
        if !may {
            return fails(Status::RESERVATION_CONFLICT);
        }
        if writes && namespace.write_protected {
            return fails(Status::NAMESPACE_WRITE_PROTECTED);
        }
        let sgl_bytes = sqe.sgl.length().ok_or(Status::SGL_INVALID_TYPE.no_retry())?;
        let mut ranges = 0;
        let request = match opcode {
            IoOpcode::DATASET_MANAGEMENT => {
                let arguments = DatasetManagement::of(sqe);
                // Hints need no answer but success.
                if !arguments.deallocate {
                    return Err(Status::SUCCESS);
                }
                ranges = arguments.ranges;
                // Linux sends room for all ranges that there may be, however many it uses.
                let needed = ranges * DsmRange::BYTES as u32;
                if !(needed..=DsmRange::LIST_BYTES_MAX).contains(&sgl_bytes) {
                    return fails(Status::SGL_INVALID_LENGTH);
                }
                Request { operation: Operation::Deallocate, data_bytes: sgl_bytes, ..empty(&namespace) }
            }
            IoOpcode::FLUSH => empty(&namespace),
            _ => self.check_blocks(sqe, opcode, &namespace, sgl_bytes)?,
        };
        Ok(Request { tag: self.admit(sqe, ranges)?, ..request })
    }

    /// The namespace of a command, if it can be reached here.
    pub(super) fn reached(&self, sqe: &Sqe) -> Result<VolumeView, Status> {
        if sqe.flags & PSDT_MASK != PSDT_SGL {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        let namespace = match self.view.namespace(sqe.nsid) {
            Some(namespace) if sqe.nsid != NSID_ALL => *namespace,
            _ => return Err(Status::INVALID_NAMESPACE.no_retry()),
        };
        // Without DNR: another path may serve it.
        namespace.ana.refusal().map_or(Ok(namespace), Err)
    }

    /// The tag of a command that is outstanding from now on.
    fn admit(&mut self, sqe: &Sqe, ranges: u32) -> Result<Tag, Status> {
        let tag = self.free.pop().ok_or(Status::INTERNAL_ERROR)?;
        if let Some(cid) = self.cids.get_mut(usize::from(tag)) {
            *cid = sqe.cid.into();
        }
        if let Some(slot) = self.slots.get_mut(usize::from(tag)) {
            *slot = Slot { nsid: sqe.nsid, ranges };
        }
        Ok(Tag(tag))
    }

    fn check_reservation(&mut self, sqe: &Sqe, command: Reserve) -> Result<Reservation, Status> {
        let volume = self.reached(sqe)?.volume;
        let data_bytes = command.data_bytes();
        if data_bytes > u64::from(self.view.transfer_bytes) {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        if sqe.sgl.length().map(u64::from) != Some(data_bytes) {
            return Err(Status::SGL_INVALID_LENGTH.no_retry());
        }
        let data_bytes = u32::try_from(data_bytes).unwrap_or(u32::MAX);
        Ok(Reservation { tag: self.admit(sqe, 0)?, nsid: sqe.nsid, volume, command, data_bytes })
    }

    fn check_blocks(
        &self,
        sqe: &Sqe,
        opcode: IoOpcode,
        namespace: &VolumeView,
        sgl_bytes: u32,
    ) -> Result<Request, Status> {
        let blocks = Blocks::of(sqe);
        if blocks.flags.0 & IoFlags::PROTECTION.0 != 0 {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        if !blocks.are_within(namespace.blocks) {
            return Err(Status::LBA_OUT_OF_RANGE.no_retry());
        }
        let durable = blocks.flags.has(IoFlags::FORCE_UNIT_ACCESS);
        let deallocate = blocks.flags.has(IoFlags::DEALLOCATE);
        let (operation, moves) = match opcode {
            IoOpcode::READ => (Operation::Read, true),
            IoOpcode::WRITE => (Operation::Write { durable }, true),
            IoOpcode::COMPARE => (Operation::Compare, true),
            _ => (Operation::WriteZeroes { deallocate, durable }, false),
        };
        let data_bytes = if moves { u64::from(blocks.count) << namespace.block_shift } else { 0 };
        if data_bytes > u64::from(self.view.transfer_bytes) {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        // Some hosts leave an SGL with commands that move nothing.
        if moves && data_bytes != u64::from(sgl_bytes) {
            return Err(Status::SGL_INVALID_LENGTH.no_retry());
        }
        let data_bytes = u32::try_from(data_bytes).unwrap_or(u32::MAX);
        let (start, blocks) = (blocks.start, blocks.count);
        Ok(Request { operation, start, blocks, data_bytes, ..empty(namespace) })
    }
}

/// A request without blocks.
const fn empty(namespace: &VolumeView) -> Request {
    Request {
        tag: Tag(0),
        volume: namespace.volume,
        operation: Operation::Flush,
        start: 0,
        blocks: 0,
        data_bytes: 0,
    }
}

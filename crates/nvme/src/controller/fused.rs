//! Fused Compare and Write: two commands that stand next to each other in their submission queue
//! and are one atomic operation. NVMe Base, "Fused Operation"; NVM Command Set, "Fused Operation".
//!
//! The first half is held until the second one is there, so that nothing is asked for and no memory
//! is taken for half a pair. Then both are executed as [`Operation::CompareAndWrite`], or neither
//! is. Each half has a completion of its own.

use super::queue::{Action, IoQueue, Operation, Request, Tag};
use crate::command::{FUSE_FIRST, FUSE_MASK, FUSE_SECOND};
use crate::io::Blocks;
use crate::{IoOpcode, Sqe, Status};

/// The most blocks of a pair. One is what a drive writes wholly or not at all where power fails;
/// more than one could be found half written.
pub const FUSED_BLOCKS_MAX: u16 = 1;

/// The last command of a queue, if that was the first half of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// It waits for the second half.
    Waits(Tag, Sqe),
    /// It was refused, or has failed since.
    Failed,
}

impl First {
    const fn tag(self) -> Option<Tag> {
        match self {
            Self::Waits(tag, _) => Some(tag),
            Self::Failed => None,
        }
    }
}

/// The statuses of the first half and of the second one, where a pair is not executed.
type Failed = (Status, Status);

impl IoQueue {
    /// The first half of a pair that can be none any more, and the status to complete it with. To
    /// be asked for after each command that was taken or refused.
    pub const fn take_failed_half(&mut self) -> Option<(Tag, Status)> {
        self.failed_half.take()
    }

    /// A command that is half of a pair, or that follows a first half.
    pub(super) fn pair(&mut self, sqe: &Sqe) -> Action {
        match (sqe.flags & FUSE_MASK, self.leave_first(sqe)) {
            (0, _) => self.single(sqe),
            (FUSE_FIRST, _) => match self.check_first(sqe) {
                Ok(request) => {
                    self.first = Some(First::Waits(request.tag, *sqe));
                    Action::Hold(request)
                }
                Err(status) => {
                    self.first = Some(First::Failed);
                    Action::Respond(self.answer(sqe.cid, status))
                }
            },
            (FUSE_SECOND, Some(First::Waits(tag, compare))) => match self.check_second(sqe, tag, &compare) {
                Ok(request) => Action::Execute(request),
                Err((first, second)) => {
                    self.failed_half = Some((tag, first));
                    Action::Respond(self.answer(sqe.cid, second))
                }
            },
            (FUSE_SECOND, Some(First::Failed)) => Action::Respond(self.answer(sqe.cid, Status::FAILED_FUSED)),
            (FUSE_SECOND, None) => Action::Respond(self.answer(sqe.cid, Status::MISSING_FUSED.no_retry())),
            _ => Action::Respond(self.answer(sqe.cid, Status::INVALID_FIELD.no_retry())),
        }
    }

    /// A command comes, and what was the last one is not the last any more. A first half without
    /// its second one ends.
    fn leave_first(&mut self, sqe: &Sqe) -> Option<First> {
        let first = self.first.take();
        if sqe.flags & FUSE_MASK != FUSE_SECOND
            && let Some(tag) = first.and_then(First::tag)
        {
            self.failed_half = Some((tag, Status::MISSING_FUSED.no_retry()));
        }
        first
    }

    /// A command was refused before it came here.
    pub(super) fn pair_is_refused(&mut self, sqe: &Sqe) {
        let first = self.leave_first(sqe);
        match sqe.flags & FUSE_MASK {
            FUSE_FIRST => self.first = Some(First::Failed),
            FUSE_SECOND => {
                let tag = first.and_then(First::tag);
                self.failed_half = tag.map(|tag| (tag, Status::FAILED_FUSED));
            }
            _ => {}
        }
    }

    /// A command ends: as a first half it has no second one any more.
    pub(super) fn first_has_ended(&mut self, tag: Tag) {
        if self.first.and_then(First::tag) == Some(tag) {
            self.first = Some(First::Failed);
        }
    }

    fn check_first(&mut self, sqe: &Sqe) -> Result<Request, Status> {
        if self.is_outstanding(sqe.cid) {
            return Err(Status::COMMAND_ID_CONFLICT.no_retry());
        }
        // There is no other pair.
        if IoOpcode(sqe.opcode) != IoOpcode::COMPARE {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        if Blocks::of(sqe).count > FUSED_BLOCKS_MAX.into() {
            return Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.no_retry());
        }
        self.check(sqe, IoOpcode::COMPARE)
    }

    fn check_second(&mut self, sqe: &Sqe, tag: Tag, compare: &Sqe) -> Result<Request, Failed> {
        let invalid = Status::INVALID_FIELD.no_retry();
        let fails = |second: Status| (Status::FAILED_FUSED, second);
        if self.is_outstanding(sqe.cid) {
            return Err(fails(Status::COMMAND_ID_CONFLICT.no_retry()));
        }
        if IoOpcode(sqe.opcode) != IoOpcode::WRITE {
            return Err(fails(invalid));
        }
        let (ours, theirs) = (Blocks::of(sqe), Blocks::of(compare));
        // NVM Command Set, "Fused Operation": both are aborted.
        if (sqe.nsid, ours.start, ours.count) != (compare.nsid, theirs.start, theirs.count) {
            return Err((invalid, invalid));
        }
        // What the host may do can have changed since the first half came.
        let may_compare = self.reached(compare).and_then(|_| self.still_allows(tag, Operation::Compare));
        may_compare.map_err(|status| (status, Status::FAILED_FUSED))?;
        let request = self.check(sqe, IoOpcode::WRITE).map_err(fails)?;
        let Operation::Write { durable } = request.operation else { return Err(fails(invalid)) };
        Ok(Request { operation: Operation::CompareAndWrite { durable, compare: tag }, ..request })
    }
}

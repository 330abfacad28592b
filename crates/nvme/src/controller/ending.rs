//! End Controller at the target: a request waits until the controllers that it names are gone.

use super::subsystem::{CloseReason, Subsystem};
use crate::command::{FUSE_MASK, PSDT_MASK, PSDT_SGL};
use crate::end_controller::{EndController, Instance};
use crate::{Sqe, Status};

/// How many requests of one controller may wait.
const WAITING_MAX: usize = 16;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Who asked, and the identifier of the command.
    cntlid: u16,
    cid: u16,
    /// The instances that are not gone yet.
    numbers: Vec<u64>,
}

impl Subsystem {
    /// Instances are numbered from here on. A driver gives each start of its process another base,
    /// so that no instance is ever met again.
    pub const fn set_instance_base(&mut self, base: u64) {
        self.next_instance = base;
    }

    /// Ends controllers; the answer comes when they are gone.
    pub(super) fn end_controllers(&mut self, cntlid: u16, sqe: &Sqe) -> Result<(), Status> {
        if sqe.flags & FUSE_MASK != 0 || sqe.flags & PSDT_MASK != PSDT_SGL {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        if self.ending.iter().filter(|waiting| waiting.cntlid == cntlid).count() >= WAITING_MAX {
            return Err(Status::COMMAND_INTERRUPTED);
        }
        let asker = self.controllers.get(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        let (host, host_id, own) = (&asker.host, asker.host_id, asker.instance);
        let ends: Vec<(u16, u64)> = match EndController::of(sqe) {
            EndController::Older => self
                .controllers
                .iter()
                .filter(|(_, one)| one.host == *host && one.host_id == host_id && one.instance < own)
                .map(|(cntlid, one)| (*cntlid, one.instance))
                .collect(),
            EndController::One(Instance { node, number }) => {
                // Of another node's controllers nothing is known here.
                if node != self.config.node.0 || number == own {
                    return Err(Status::INVALID_FIELD.no_retry());
                }
                let named = self.controllers.iter().find(|(_, one)| one.instance == number);
                if named.is_some_and(|(_, one)| one.host != *host || one.host_id != host_id) {
                    return Err(Status::INVALID_FIELD.no_retry());
                }
                named.map(|(cntlid, _)| (*cntlid, number)).into_iter().collect()
            }
        };
        for (cntlid, _) in &ends {
            self.end(*cntlid, CloseReason::Superseded);
        }
        let numbers = ends.into_iter().map(|(_, number)| number).collect();
        self.ending.push(Waiting { cntlid, cid: sqe.cid, numbers });
        // Those that had no queue left are gone already.
        self.answer_endings();
        Ok(())
    }

    /// Answers the requests whose controllers are all gone.
    pub(super) fn answer_endings(&mut self) {
        let controllers = &self.controllers;
        let mut ending = std::mem::take(&mut self.ending);
        ending.retain(|waiting| controllers.contains_key(&waiting.cntlid));
        for waiting in &mut ending {
            let is_there = |number: &u64| controllers.values().any(|one| one.instance == *number);
            waiting.numbers.retain(is_there);
        }
        let (answered, waiting) = ending.into_iter().partition(|waiting| waiting.numbers.is_empty());
        self.ending = waiting;
        let answered: Vec<Waiting> = answered;
        for Waiting { cntlid, cid, .. } in answered {
            self.respond_ended(cntlid, cid);
        }
    }
}

//! End Controller and Cross-Controller Reset at the target: a request waits until the controllers
//! that it names are gone, here and, if the nodes of a pair are two processes, at the other one.

use super::ana::Node;
use super::subsystem::{CloseReason, Output, Subsystem};
use crate::command::{AdminOpcode, FUSE_MASK, PSDT_MASK, PSDT_SGL};
use crate::cross_reset::{Impacted, RESET_IS_OVER};
use crate::end_controller::{EndController, Instance};
use crate::{HostId, Nqn, Sqe, Status};

/// How many requests of one controller may wait.
pub(super) const WAITING_MAX: usize = 16;
/// How many requests of the other node may wait.
const OTHERS_MAX: usize = 1024;

/// CIU of a controller with this instance: not 0.
pub(super) fn uniquifier(instance: u64) -> u8 {
    u8::try_from(instance % 255 + 1).unwrap_or(1)
}

/// What one node asks the other one, which is another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndRequest {
    /// Which request. No process uses a number twice, nor one of an earlier process.
    pub id: u64,
    /// The host whose controllers end.
    pub host: Nqn,
    /// Its identifier.
    pub host_id: HostId,
    /// Which of them; [`EndController::Older`] are all that it has there.
    pub ends: EndController,
}

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    /// A controller, the identifier of its command, and the result of that when it succeeds.
    Controller(u16, u16, u64),
    /// A controller whose command was dropped, and for which the other node was asked.
    Dropped(u16),
    /// The other node, with this number.
    OtherNode(u64),
}

impl Asker {
    /// The controller here that has asked.
    const fn cntlid(self) -> Option<u16> {
        match self {
            Self::Controller(cntlid, ..) | Self::Dropped(cntlid) => Some(cntlid),
            Self::OtherNode(_) => None,
        }
    }
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    asker: Asker,
    /// The instances that are not gone yet.
    numbers: Vec<u64>,
    /// What the other node was asked, and has not answered.
    elsewhere: Option<u64>,
}

impl Subsystem {
    /// What a command names.
    fn ends(&self, sqe: &Sqe) -> Result<EndController, Status> {
        if AdminOpcode(sqe.opcode) != AdminOpcode::CROSS_CONTROLLER_RESET {
            return Ok(EndController::of(sqe));
        }
        let Impacted { cntlid, uniquifier: ciu, random: number } = Impacted::of_command(sqe);
        let is_here = self.config.cntlids.values().any(|range| range.contains(&cntlid));
        // There is one other.
        let other = (0..self.config.nodes).find(|node| !self.config.cntlids.contains_key(&Node(*node)));
        let node = if is_here { Some(self.end_node()) } else { other.filter(|_| self.config.is_split) };
        let found = self.controllers.iter().find(|(_, one)| one.instance == number);
        let is_it = found.is_none_or(|(id, _)| *id == cntlid);
        match node.filter(|_| is_it && ciu == uniquifier(number)) {
            Some(node) => Ok(EndController::One(Instance { node, number })),
            None => Err(Status::INVALID_FIELD.no_retry()),
        }
    }

    /// Instances are numbered from here on. A driver gives each start of its process another base,
    /// so that no instance is met again before the host is booted again.
    pub const fn set_instance_base(&mut self, base: u64) {
        self.next_instance = base;
        self.next_end_request = base;
    }

    /// Who may be asked to end the controllers that are here: the first of their nodes, whichever
    /// they belong to.
    pub(super) fn end_node(&self) -> u32 {
        self.config.cntlids.first_key_value().map_or(0, |(node, _)| node.0)
    }

    /// The process of another node has ended, and nothing is executed for it any more: its
    /// controllers with instances below this one are finished.
    pub fn set_finished(&mut self, end_node: u32, below: u64) {
        self.finished.insert(end_node, below);
    }

    /// Ends controllers; the answer comes when they are gone.
    pub(super) fn end_controllers(&mut self, cntlid: u16, sqe: &Sqe) -> Result<(), Status> {
        if sqe.flags & FUSE_MASK != 0 || sqe.flags & PSDT_MASK != PSDT_SGL {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        let is_reset = AdminOpcode(sqe.opcode) == AdminOpcode::CROSS_CONTROLLER_RESET;
        let is_own = |waiting: &&Waiting| waiting.asker.cntlid() == Some(cntlid);
        if self.ending.iter().filter(is_own).count() >= WAITING_MAX {
            let limit = Status::CROSS_RESET_LIMIT_EXCEEDED;
            return Err(if is_reset { limit } else { Status::COMMAND_INTERRUPTED });
        }
        let ends = self.ends(sqe)?;
        let asker = self.controllers.get(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        let (host, host_id, own) = (asker.host.clone(), asker.host_id, asker.instance);
        let (here, asks_other) = match ends {
            EndController::Older => (self.all_of(&host, host_id, own), self.config.is_split),
            EndController::One(named) if self.is_finished(named) => (Vec::new(), false),
            EndController::One(named) if named.number == own => {
                return Err(Status::INVALID_FIELD.no_retry());
            }
            // Only the other process knows its controllers.
            EndController::One(named) if self.config.is_split && named.node != self.end_node() => {
                (Vec::new(), true)
            }
            EndController::One(named) => (self.named(&host, host_id, named)?, false),
        };
        let elsewhere = asks_other.then(|| {
            let id = self.next_end_request;
            self.next_end_request += 1;
            self.outputs.push_back(Output::AskOther(EndRequest { id, host, host_id, ends }));
            id
        });
        let result = if is_reset { RESET_IS_OVER } else { 0 };
        self.end_and_wait(Asker::Controller(cntlid, sqe.cid, result), here, elsewhere);
        Ok(())
    }

    /// The other node has answered what it was [asked](Output::AskOther).
    pub fn handle_other_answered(&mut self, id: u64, status: Status) {
        let Some(at) = self.ending.iter().position(|waiting| waiting.elsewhere == Some(id)) else { return };
        if status.is_success() {
            if let Some(waiting) = self.ending.get_mut(at) {
                waiting.elsewhere = None;
            }
            return self.answer_endings();
        }
        let waiting = self.ending.swap_remove(at);
        self.answer_ending(waiting.asker, status);
    }

    /// The other node asks to end controllers of a host. The answer, [`Output::AnswerOther`], comes
    /// when they are gone.
    pub fn end_for_other(&mut self, request: &EndRequest) {
        let EndRequest { id, host, host_id, ends } = request;
        let is_others = |waiting: &&Waiting| matches!(waiting.asker, Asker::OtherNode(_));
        let has_room = self.ending.iter().filter(is_others).count() < OTHERS_MAX;
        let here = match ends {
            _ if !has_room => Err(Status::COMMAND_INTERRUPTED),
            EndController::Older => Ok(self.all_of(host, *host_id, u64::MAX)),
            EndController::One(named) => self.named(host, *host_id, *named),
        };
        let asker = Asker::OtherNode(*id);
        match here {
            Ok(here) => self.end_and_wait(asker, here, None),
            Err(status) => self.answer_ending(asker, status),
        }
    }

    /// The other node's process has ended, and with it those who asked there.
    pub fn forget_other(&mut self) {
        self.ending.retain(|waiting| !matches!(waiting.asker, Asker::OtherNode(_)));
    }

    /// The controllers here of a host with instances below this one.
    fn all_of(&self, host: &Nqn, host_id: HostId, below: u64) -> Vec<(u16, u64)> {
        let of = self.controllers.iter().filter(|(_, one)| one.host == *host && one.host_id == host_id);
        of.filter(|(_, one)| one.instance < below).map(|(cntlid, one)| (*cntlid, one.instance)).collect()
    }

    /// The controller here that a host names, if it is still there.
    fn named(&self, host: &Nqn, host_id: HostId, named: Instance) -> Result<Vec<(u16, u64)>, Status> {
        let found = self.controllers.iter().find(|(_, one)| one.instance == named.number);
        let is_others = found.is_some_and(|(_, one)| one.host != *host || one.host_id != host_id);
        if named.node != self.end_node() || is_others {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        Ok(found.map(|(cntlid, _)| (*cntlid, named.number)).into_iter().collect())
    }

    /// Whether a controller of the other node is known to be finished.
    fn is_finished(&self, named: Instance) -> bool {
        self.finished.get(&named.node).is_some_and(|below| named.number < *below)
    }

    fn end_and_wait(&mut self, asker: Asker, ends: Vec<(u16, u64)>, elsewhere: Option<u64>) {
        for (cntlid, _) in &ends {
            self.end(*cntlid, CloseReason::Superseded);
        }
        let numbers = ends.into_iter().map(|(_, number)| number).collect();
        self.ending.push(Waiting { asker, numbers, elsewhere });
        // Those that had no queue left are gone already.
        self.answer_endings();
    }

    /// Answers the requests whose controllers are all gone.
    pub(super) fn answer_endings(&mut self) {
        let controllers = &self.controllers;
        let mut ending = std::mem::take(&mut self.ending);
        ending.retain(|waiting| {
            let cntlid = waiting.asker.cntlid();
            cntlid.is_none_or(|cntlid| controllers.contains_key(&cntlid))
        });
        for waiting in &mut ending {
            let is_there = |number: &u64| controllers.values().any(|one| one.instance == *number);
            waiting.numbers.retain(is_there);
        }
        let is_over = |waiting: &Waiting| waiting.numbers.is_empty() && waiting.elsewhere.is_none();
        let (answered, waiting): (Vec<_>, _) = ending.into_iter().partition(is_over);
        self.ending = waiting;
        for Waiting { asker, .. } in answered {
            self.answer_ending(asker, Status::SUCCESS);
        }
    }

    fn answer_ending(&mut self, asker: Asker, status: Status) {
        match asker {
            Asker::Controller(cntlid, cid, result) => {
                let result = if status.is_success() { result } else { 0 };
                self.respond_late(cntlid, cid, status, result);
            }
            Asker::Dropped(_) => {}
            Asker::OtherNode(id) => self.outputs.push_back(Output::AnswerOther { id, status }),
        }
    }

    /// The requests of a controller are not answered any more; what they end goes on to end.
    /// Returns the identifiers of the commands. What the other node was asked for counts until it
    /// answers, so that a host that resets its controller again and again cannot ask without bound.
    pub(super) fn drop_endings(&mut self, cntlid: u16) -> Vec<u16> {
        let mut dropped = Vec::new();
        self.ending.retain_mut(|waiting| match waiting.asker {
            Asker::Controller(of, cid, _) if of == cntlid => {
                dropped.push(cid);
                waiting.asker = Asker::Dropped(cntlid);
                waiting.numbers.clear();
                waiting.elsewhere.is_some()
            }
            _ => true,
        });
        dropped
    }
}

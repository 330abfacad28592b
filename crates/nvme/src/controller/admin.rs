//! Commands on the admin queue.

use super::association::Draining;
use super::config::Kind;
use super::queue::Violation;
use super::subsystem::{CloseReason, Output, QueueId, Subsystem};
use crate::command::{FUSE_MASK, PSDT_MASK, PSDT_SGL};
use crate::end_controller::END_CONTROLLER;
use crate::fabrics::{FabricsType, Property};
use crate::log_page::ErrorEntry;
use crate::register::{
    CAP, CC, CRTO, CSTS, Capabilities, Configuration, ReadyTimeouts, Shutdown, VS, Version,
};
use crate::{AdminOpcode, Cqe, Direction, Sqe, Status};
use std::time::Duration;

/// The version that controllers have.
pub(super) const VERSION: Version = Version::V2_0;

/// CAP.TO and CRTO: how long a controller may take until it is ready, in units of 500 ms. The I/O
/// queues of its last life must be closed by then.
const READY_500_MS: u8 = 30;

/// What a command answers: a result and data, or a status.
pub(super) struct Answer {
    pub(super) result: u64,
    pub(super) data: Vec<u8>,
}

impl Answer {
    /// Success, without anything.
    pub(super) const NONE: Self = Self { result: 0, data: Vec::new() };

    /// This result.
    pub(super) const fn result(result: u64) -> Self {
        Self { result, data: Vec::new() }
    }

    /// These data.
    pub(super) const fn data(data: Vec<u8>) -> Self {
        Self { result: 0, data }
    }
}

impl Subsystem {
    /// A command on a controller's admin queue, with the data that came for it. At most one output
    /// answers it; an event request waits.
    pub fn handle_command(&mut self, now: Duration, cntlid: u16, sqe: &Sqe, data: &[u8]) {
        if !self.take_command(cntlid) {
            return;
        }
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        if AdminOpcode(sqe.opcode) == AdminOpcode::ASYNC_EVENT_REQUEST && controller.is_ready() {
            return self.wait_for_event(cntlid, sqe.cid);
        }
        let ends =
            sqe.opcode == END_CONTROLLER || AdminOpcode(sqe.opcode) == AdminOpcode::CROSS_CONTROLLER_RESET;
        if ends && self.config.kind == Kind::Io && controller.is_ready() {
            if let Err(status) = self.end_controllers(cntlid, sqe) {
                self.note_error(cntlid, sqe, status);
                self.respond(cntlid, sqe.cid, status, Answer::NONE);
            }
            return;
        }
        if self.sets_persistence(cntlid, sqe) {
            if let Err(status) = self.set_persistence(cntlid, sqe) {
                self.note_error(cntlid, sqe, status);
                self.respond(cntlid, sqe.cid, status, Answer::NONE);
            }
            return;
        }
        match self.execute(now, cntlid, sqe, data) {
            Ok(answer) => self.respond(cntlid, sqe.cid, Status::SUCCESS, answer),
            Err(status) => {
                self.note_error(cntlid, sqe, status);
                self.respond(cntlid, sqe.cid, status, Answer::NONE);
            }
        }
        // After the answer, since the host may have waited for it to read what has changed.
        self.send_events(cntlid);
    }

    /// A command on a controller's admin queue that the transport found unsuitable, or that came
    /// before authentication: it is answered with this status.
    pub fn refuse_command(&mut self, cntlid: u16, sqe: &Sqe, status: Status) {
        if self.take_command(cntlid) {
            self.note_error(cntlid, sqe, status);
            self.respond(cntlid, sqe.cid, status, Answer::NONE);
        }
    }

    /// A command on a controller's admin queue that the driver has executed itself, such as those
    /// of authentication: it is answered with these data, possibly none.
    pub fn answer_command(&mut self, cntlid: u16, sqe: &Sqe, data: Vec<u8>) {
        if self.take_command(cntlid) {
            self.respond(cntlid, sqe.cid, Status::SUCCESS, Answer::data(data));
        }
    }

    /// Whether the controller has a queue from which a command may be taken.
    fn take_command(&mut self, cntlid: u16) -> bool {
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return false };
        if controller.ends() {
            return false;
        }
        let Some(queue) = &mut controller.admin else { return false };
        if let Err(Violation::Full(_)) = queue.take() {
            self.end(cntlid, CloseReason::Violation);
            return false;
        }
        controller.note_traffic();
        true
    }

    fn execute(&mut self, now: Duration, cntlid: u16, sqe: &Sqe, data: &[u8]) -> Result<Answer, Status> {
        let controller = self.controllers.get_mut(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        if sqe.flags & FUSE_MASK != 0 || sqe.flags & PSDT_MASK != PSDT_SGL {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        let opcode = AdminOpcode(sqe.opcode);
        if opcode == AdminOpcode::FABRICS {
            return self.execute_fabrics(now, cntlid, sqe);
        }
        if !controller.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.no_retry());
        }
        let room = sqe.sgl.length().ok_or(Status::SGL_INVALID_TYPE.no_retry())?;
        if room > self.config.limits.transfer_bytes {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        let is_io = self.config.kind == Kind::Io;
        let mut answer = match opcode {
            AdminOpcode::IDENTIFY => self.identify(cntlid, sqe)?,
            AdminOpcode::GET_LOG_PAGE => self.log_page(now, cntlid, sqe, room)?,
            AdminOpcode::SET_FEATURES => self.set_feature(now, cntlid, sqe, data)?,
            AdminOpcode::GET_FEATURES => self.feature(now, cntlid, sqe)?,
            AdminOpcode::KEEP_ALIVE => {
                controller.restart_timer(now);
                Answer::NONE
            }
            AdminOpcode::ABORT if is_io => self.abort(cntlid, sqe),
            _ => return Err(Status::INVALID_OPCODE.no_retry()),
        };
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        if answer.data.len() > room {
            return Err(Status::SGL_INVALID_LENGTH.no_retry());
        }
        // Success with fewer bytes than the host asked for makes newer kernels reset.
        if sqe.direction() == Direction::ToHost {
            answer.data.resize(room, 0);
        }
        Ok(answer)
    }

    fn execute_fabrics(&mut self, now: Duration, cntlid: u16, sqe: &Sqe) -> Result<Answer, Status> {
        match FabricsType::of(sqe) {
            FabricsType::PROPERTY_GET => self.property(cntlid, &Property::of(sqe)),
            FabricsType::PROPERTY_SET => self.set_property(now, cntlid, &Property::of(sqe)),
            FabricsType::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR.no_retry()),
            // Only I/O queues are ended so.
            FabricsType::DISCONNECT => Err(Status::DISCONNECT_INVALID_QUEUE_TYPE.no_retry()),
            _ => Err(Status::INVALID_OPCODE.no_retry()),
        }
    }

    fn property(&self, cntlid: u16, property: &Property) -> Result<Answer, Status> {
        let controller = self.controllers.get(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        let value = match (property.offset, property.is_8_bytes) {
            (CAP, Some(true)) => self.capabilities().encode(),
            (VS, Some(false)) => VERSION.0.into(),
            (CC, Some(false)) => controller.configuration.0.into(),
            (CSTS, Some(false)) => controller.status.encode().into(),
            (CRTO, Some(false)) => {
                let timeout = u16::from(READY_500_MS);
                let timeouts =
                    ReadyTimeouts { with_media_500_ms: timeout, independent_of_media_500_ms: timeout };
                timeouts.encode().into()
            }
            _ => return Err(Status::INVALID_FIELD.no_retry()),
        };
        Ok(Answer::result(value))
    }

    fn set_property(&mut self, now: Duration, cntlid: u16, property: &Property) -> Result<Answer, Status> {
        if (property.offset, property.is_8_bytes) != (CC, Some(false)) {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        let controller = self.controllers.get_mut(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        let closing = controller.draining != Draining::No;
        let new = Configuration(property.value as u32);
        if let Some(requests) = controller.configure(now, new) {
            self.drop_commands(cntlid, requests);
            if !closing {
                let shutdown = new.shutdown() != Shutdown::None;
                let reason = if shutdown { CloseReason::Shutdown } else { CloseReason::Reset };
                self.close_io(cntlid, reason);
            }
            self.renew_view(cntlid);
            self.settle(now, cntlid);
        }
        Ok(Answer::NONE)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mqes: u16::try_from(self.mqes()).unwrap_or(u16::MAX),
            timeout_500_ms: READY_500_MS,
            subsystem_reset: false,
            nvm_command_set: true,
            command_sets: true,
            ready_with_media: true,
            ready_independent_of_media: false,
        }
    }

    /// Abort: a request for events is taken back. What was admitted is not aborted, which bit 0 of
    /// the result says. NVMe Base, "Abort Command"
    fn abort(&mut self, cntlid: u16, sqe: &Sqe) -> Answer {
        let (sqid, cid) = (sqe.cdw10 as u16, (sqe.cdw10 >> 16) as u16);
        let controller = self.controllers.get_mut(&cntlid);
        if sqid == 0 && controller.is_some_and(|controller| controller.events.abort(cid)) {
            self.respond(cntlid, cid, Status::ABORT_REQUESTED, Answer::NONE);
            return Answer::result(0);
        }
        Answer::result(1)
    }

    fn wait_for_event(&mut self, cntlid: u16, cid: u16) {
        let most = usize::from(self.config.limits.async_events.max(1));
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        if controller.events.waiting() >= most {
            let status = Status::ASYNC_EVENT_LIMIT_EXCEEDED.no_retry();
            return self.respond(cntlid, cid, status, Answer::NONE);
        }
        controller.events.wait(cid);
        self.send_events(cntlid);
    }

    /// Ends requests for events as far as there are events.
    pub(super) fn send_events(&mut self, cntlid: u16) {
        while let Some((cid, event)) = self.controllers.get_mut(&cntlid).and_then(|one| one.events.next()) {
            self.respond(cntlid, cid, Status::SUCCESS, Answer::result(event.result()));
        }
    }

    fn respond(&mut self, cntlid: u16, cid: u16, status: Status, answer: Answer) {
        let queue = self.controllers.get_mut(&cntlid).and_then(|controller| controller.admin.as_mut());
        let Some(queue) = queue else { return };
        let cqe = Cqe { result: answer.result, sqhd: queue.complete(), sqid: 0, cid, status };
        self.outputs.push_back(Output::Respond { cntlid, cqe, data: answer.data });
    }

    /// Answers a request that had to wait, such as for the end of the controllers that it named.
    pub(super) fn respond_late(&mut self, cntlid: u16, cid: u16, status: Status, result: u64) {
        self.respond(cntlid, cid, status, Answer::result(result));
    }

    fn note_error(&mut self, cntlid: u16, sqe: &Sqe, status: Status) {
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            let (cid, nsid) = (sqe.cid, sqe.nsid);
            controller.note_error(ErrorEntry { cid, status, nsid, ..ErrorEntry::default() });
        }
    }

    /// The host does not keep to the rules of this queue: its controller ends.
    pub fn handle_violation(&mut self, queue: QueueId) {
        self.end(queue.cntlid, CloseReason::Violation);
    }
}

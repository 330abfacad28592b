//! The commands of an admin queue, and Connect. They are rare; their data have memory of their own.

use super::{Authentication, Connection, Context, EndReason, Link, Role};
use crate::controllers::{Controllers, Queue};
use crate::inbound::{Data, Place};
use nvme::controller::{Refusal, Subsystem};
use nvme::fabrics::{Connect, ConnectAttributes, ConnectData, InvalidParameter};
use nvme::tcp::{ADMIN_CAPSULE_DATA_BYTES, Incoming, Progress};
use nvme::{AdminOpcode, Direction, Sqe, Status};
use std::collections::VecDeque;
use std::time::Instant;

/// Commands whose data were asked for, at a time: as many as an admin queue of Linux has entries.
const TRANSFERS_MAX: usize = 32;

/// What an answer takes beside its data.
const ANSWER_BYTES: usize = 64;

/// A command whose data come on request.
#[derive(Debug)]
struct Transfer {
    sqe: Sqe,
    memory: Vec<u8>,
    since: Instant,
    /// The controller was reset since: the data, which the host may still send, are dropped.
    is_dropped: bool,
}

/// The answers that a queue will get from the controllers: memory that is not queued for the host
/// yet.
#[derive(Debug, Default)]
struct Owed {
    /// The identifiers of the commands, and the most bytes of their answers.
    answers: VecDeque<(u16, usize)>,
    bytes: usize,
}

impl Owed {
    fn add(&mut self, sqe: &Sqe) {
        let room = if sqe.direction() == Direction::ToHost { sqe.sgl.length() } else { None };
        let bytes = match AdminOpcode(sqe.opcode) {
            // These are answered when something happens, and are bounded by the controller.
            AdminOpcode::ASYNC_EVENT_REQUEST => 0,
            _ => ANSWER_BYTES.saturating_add(room.map_or(0, |room| room as usize)),
        };
        self.answers.push_back((sqe.cid, bytes));
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn settle(&mut self, cid: u16) {
        let at = self.answers.iter().position(|(owed, _)| *owed == cid);
        if let Some((_, bytes)) = at.and_then(|at| self.answers.remove(at)) {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }
}

/// The state of an admin queue.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) queue: Queue,
    owed: Owed,
    /// By tag.
    transfers: Vec<Option<Transfer>>,
    /// The command whose data follow in its capsule.
    capsule: Option<Sqe>,
    /// How often the controller was reset.
    resets: u64,
}

impl Admin {
    fn new(queue: Queue) -> Self {
        Self { queue, owed: Owed::default(), transfers: Vec::new(), capsule: None, resets: 0 }
    }

    /// The most bytes of the answers that are under way.
    pub(crate) const fn owed_bytes(&self) -> usize {
        self.owed.bytes
    }

    /// An answer of the controllers is queued for the host, or there is none.
    pub(crate) fn settle(&mut self, cid: u16) {
        self.owed.settle(cid);
    }

    /// Hands a command to the controllers, with the data that came for it. Returns whether it has
    /// reset the controller.
    fn command(&mut self, here: usize, controllers: &Controllers, sqe: &Sqe, data: &[u8]) -> bool {
        self.owed.add(sqe);
        let resets = controllers.command(here, self.queue, sqe, data);
        std::mem::replace(&mut self.resets, resets) != resets
    }

    /// The commands whose data are still received are dropped. Returns their identifiers.
    fn drop_transfers(&mut self) -> Vec<u16> {
        let current = self.transfers.iter_mut().flatten().filter(|transfer| !transfer.is_dropped);
        let dropped = current.map(|transfer| {
            transfer.is_dropped = true;
            transfer.sqe.cid
        });
        dropped.collect()
    }

    /// Has the controllers answer a command with a status.
    pub(crate) fn refuse(&mut self, here: usize, controllers: &Controllers, sqe: &Sqe, status: Status) {
        self.owed.add(sqe);
        controllers.refuse(here, self.queue, sqe, status);
    }

    /// Has the controllers answer a command that was executed before.
    pub(crate) fn answer(&mut self, here: usize, controllers: &Controllers, sqe: &Sqe, data: Vec<u8>) {
        self.owed.add(sqe);
        controllers.answer(here, self.queue, sqe, data);
    }

    pub(crate) fn receives_since(&self) -> Option<Instant> {
        let current = self.transfers.iter().flatten().filter(|transfer| !transfer.is_dropped);
        current.map(|transfer| transfer.since).min()
    }

    /// All data of a command are here: the command, unless it was dropped.
    pub(crate) fn take_transfer(&mut self, tag: u16) -> Option<Sqe> {
        let transfer = self.transfers.get_mut(usize::from(tag)).and_then(Option::take)?;
        (!transfer.is_dropped).then_some(transfer.sqe)
    }

    pub(crate) fn fill(&mut self, tag: u16, at: usize, bytes: &[u8]) {
        let transfer = self.transfers.get_mut(usize::from(tag)).and_then(Option::as_mut);
        let place = transfer.and_then(|transfer| transfer.memory.get_mut(at..at + bytes.len()));
        if let Some(place) = place {
            place.copy_from_slice(bytes);
        }
    }
}

impl Role {
    /// Whether the next PDU may have data that go to their place.
    pub(crate) fn expects_data(&self) -> bool {
        matches!(self, Self::Io(io) if io.expects_data())
    }
}

impl Connection {
    /// A command of an admin queue, or Connect. Says where its data belong.
    pub(super) fn take_admin(
        &mut self,
        sqe: &Sqe,
        data: Incoming,
        context: &mut Context<'_>,
    ) -> Result<Place, EndReason> {
        if let Some(bytes) = Self::in_capsule(data) {
            match &mut self.role {
                Role::Admin(admin) => admin.capsule = Some(*sqe),
                _ => self.connecting = Some(*sqe),
            }
            // The layout has bounded it.
            return Ok(Place::Own(Vec::with_capacity(bytes as usize)));
        }
        let Role::Admin(admin) = &mut self.role else {
            self.fetch_connect(sqe, data, context)?;
            return Ok(Place::Nowhere);
        };
        let Incoming::OnRequest(bytes) = data else {
            if Subsystem::asks_for_io_counts(sqe) {
                context.shared.update_io_counts();
            }
            self.execute_admin(sqe, &[], context);
            return Ok(Place::Nowhere);
        };
        let tag = admin.transfers.iter().position(Option::is_none).unwrap_or(admin.transfers.len());
        if bytes > ADMIN_CAPSULE_DATA_BYTES || tag >= TRANSFERS_MAX {
            self.refuse(sqe, Status::INVALID_FIELD.no_retry(), context)?;
            return Ok(Place::Nowhere);
        }
        let memory = vec![0; bytes as usize];
        let mut transfer = Transfer { sqe: *sqe, memory, since: context.now, is_dropped: false };
        self.link.ask_for_admin(tag as u16, sqe.cid, bytes, &mut transfer.memory);
        match admin.transfers.get_mut(tag) {
            Some(place) => *place = Some(transfer),
            None => admin.transfers.push(Some(transfer)),
        }
        Ok(Place::Nowhere)
    }

    /// Executes a command of an admin queue. If it resets the controller, those that were received
    /// before end: the controllers drop what they have, and this what they do not have yet.
    pub(super) fn execute_admin(&mut self, sqe: &Sqe, data: &[u8], context: &Context<'_>) {
        let Role::Admin(admin) = &mut self.role else { return };
        if !admin.command(self.place.event_loop, &context.shared.controllers, sqe, data) {
            return;
        }
        let mut dropped = admin.drop_transfers();
        dropped.extend(self.authentication.as_mut().and_then(|one| one.drop_message()));
        context.shared.controllers.drop_awaited(admin.queue, dropped.len());
        for cid in dropped {
            self.link.forget(cid);
        }
    }

    /// Answers a command with a status.
    pub(super) fn refuse(
        &mut self,
        sqe: &Sqe,
        status: Status,
        context: &mut Context<'_>,
    ) -> Result<(), EndReason> {
        match &mut self.role {
            Role::Io(io) => {
                let cqe = io.machine.refuse(sqe, status).map_err(EndReason::Violation)?;
                let failed = io.machine.take_failed_half();
                self.link.respond(&cqe);
                self.fail_half(failed, context);
            }
            Role::Admin(admin) => {
                admin.refuse(self.place.event_loop, &context.shared.controllers, sqe, status);
            }
            Role::Pending => {
                let cqe = nvme::Cqe { cid: sqe.cid, status, ..nvme::Cqe::default() };
                self.link.respond(&cqe);
                return Err(EndReason::Refused(status));
            }
        }
        Ok(())
    }

    /// The data of an admin command or of Connect, from its capsule.
    pub(super) fn finish_capsule(
        &mut self,
        memory: &[u8],
        progress: Progress,
        context: &mut Context<'_>,
    ) -> Result<(), EndReason> {
        if self.is_authenticating_by_capsule() {
            return self.finish_authentication_data(memory, progress, context);
        }
        let sqe = match &mut self.role {
            Role::Admin(admin) => admin.capsule.take(),
            _ => self.connecting.take(),
        };
        let Some(sqe) = sqe else { return Ok(()) };
        match (progress, &mut self.role) {
            (Progress::Failed(status), _) => self.refuse(&sqe, status, context),
            (_, Role::Admin(_)) => {
                self.execute_admin(&sqe, memory, context);
                Ok(())
            }
            (_, _) => self.connect(&sqe, memory, context),
        }
    }

    pub(super) fn finish_admin_data(
        &mut self,
        tag: u16,
        offset: usize,
        data: &Data,
        context: &mut Context<'_>,
    ) -> Result<(), EndReason> {
        let (Role::Admin(admin), Link::Tcp(stream)) = (&mut self.role, &mut self.link) else {
            return Ok(());
        };
        let place = admin.transfers.get_mut(usize::from(tag));
        let Some(Some(transfer)) = place.as_deref() else { return Ok(()) };
        let part = transfer.memory.get(offset..offset + data.bytes).unwrap_or_default();
        let progress = stream.handle_data(tag, std::iter::once(part), data);
        if progress == Progress::More {
            return Ok(());
        }
        let Some(transfer) = place.and_then(Option::take) else { return Ok(()) };
        let Transfer { sqe, memory, is_dropped, .. } = transfer;
        match progress {
            _ if is_dropped => Ok(()),
            Progress::Failed(status) => self.refuse(&sqe, status, context),
            _ => {
                self.execute_admin(&sqe, &memory, context);
                Ok(())
            }
        }
    }

    /// A host that was refused does not show why: the log does.
    fn explain(&self, data: &ConnectData, refusal: &Refusal, context: &Context<'_>) {
        let host = match data.host() {
            Ok(host) => host,
            Err(error) => {
                tracing::warn!(peer = %self.peer, %error, "refused: its host gives no valid name (HOSTNQN)");
                return;
            }
        };
        if let Some(other) = context.shared.controllers.other_with_id(&host, data.host_id) {
            tracing::warn!(
                peer = %self.peer, %host, host_id = %data.host_id, %other,
                "refused: another host has its host identifier, and reservations belong to it; \
                 write a new one (uuidgen) to /etc/nvme/hostid of one of them"
            );
            return;
        }
        let why = match refusal.parameter {
            Some(InvalidParameter::HOSTNQN) => "the target does not allow this host, or it was fenced",
            Some(InvalidParameter::HOST_ID) => {
                "the target expects another host identifier of it (/etc/nvme/hostid)"
            }
            Some(InvalidParameter::SUBNQN) => "there is no subsystem of this name here",
            _ => return,
        };
        let subsystem = data.subsystem().map_or_else(|_| "no valid name".to_owned(), |name| name.to_string());
        tracing::warn!(peer = %self.peer, %host, %subsystem, "refused: {why}");
    }

    /// The connection becomes a queue, or ends.
    fn connect(&mut self, sqe: &Sqe, memory: &[u8], context: &mut Context<'_>) -> Result<(), EndReason> {
        let Ok(data) = ConnectData::decode(memory) else {
            return self.refuse(sqe, Status::SGL_INVALID_LENGTH.no_retry(), context);
        };
        let arguments = Connect::of(sqe);
        let is_admin = arguments.qid == 0;
        let shared = context.shared;
        // What its receives are made for.
        if let Link::Rdma(link) = &self.link
            && link.qid() != arguments.qid
        {
            return self.refuse(sqe, Status::CONNECT_INVALID_PARAMETERS.no_retry(), context);
        }
        // Without DNR: another host may give its queues up.
        if !is_admin && !self.has_capsules && !shared.reserve_capsules() {
            return self.refuse(sqe, Status::CONNECT_CONTROLLER_BUSY, context);
        }
        self.has_capsules = !is_admin;
        let port = (self.node, self.link.transport());
        let mut connected = match shared.controllers.connect(self.place, port, self.peer, sqe, &data) {
            Ok(connected) => connected,
            Err(refusal) => {
                self.explain(&data, &refusal, context);
                self.link.respond(&refusal.completion(sqe.cid));
                return Err(EndReason::Refused(refusal.status));
            }
        };
        let Ok(host) = data.host() else { return self.refuse(sqe, Status::INTERNAL_ERROR, context) };
        if let Some(gate) = connected.gate.take() {
            let until = context.now + shared.limits.authentication;
            self.authentication = Some(Box::new(Authentication::new(gate, host.clone(), until)));
        }
        let flow_control = !arguments.attributes.has(ConnectAttributes::DISABLE_SQ_FLOW);
        self.link.accept(is_admin, flow_control, &connected.accepted.cqe);
        tracing::info!(peer = %self.peer, queue = ?connected.queue, %host, "connected");
        self.role = if is_admin {
            Role::Admin(Admin::new(connected.queue))
        } else {
            let shares = context.budget.shares_of_connection();
            Role::Io(Box::new(super::Io::new(connected, (host, data.host_id), shares)))
        };
        Ok(())
    }
}

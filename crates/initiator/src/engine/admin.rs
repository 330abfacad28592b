//! Bringing a controller up, and the commands of its admin queue.

use super::{ADMIN, Engine};
use crate::error::{Lost, Refusal};
use crate::queue::{Payload, Slice};
use nvme::fabrics::Property;
use nvme::host::{Command, CommandData, FenceId, HostOutput, Initiator, Limits, safe_time};
use nvme::identify::{Cns, CommandSet, IDENTIFY_BYTES, Identify, Namespace};
use nvme::register::CSTS;
use nvme::{AdminOpcode, Cqe, Sgl, Sqe};
use std::sync::Arc;
use std::time::Duration;

/// What an admin command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdminPurpose {
    /// The machine's, by its own name.
    Machine(u32),
    /// Whether the controller lives, or an I/O queue of it.
    Probe,
    /// Identify Namespace.
    Namespace(u32),
    /// The end of the older controllers of this host.
    Older,
    /// The end of the controller of this fence.
    End(FenceId),
    /// Authentication on the queue with this token.
    Authenticate(usize),
}

/// A command of an admin queue, or Connect, or what an I/O queue is asked.
#[derive(Debug)]
pub(super) struct AdminCommand {
    pub(super) path: usize,
    pub(super) purpose: AdminPurpose,
    pub(super) room: Vec<u8>,
    sent_at: Duration,
}

impl Engine {
    /// When those requests to end controllers were sent that this path has not answered.
    pub(super) fn requests_to_end(&self, path: usize) -> impl Iterator<Item = Duration> + '_ {
        let ends = |purpose| matches!(purpose, AdminPurpose::Older | AdminPurpose::End(_));
        let of_path = move |command: &&AdminCommand| command.path == path && ends(command.purpose);
        self.commands.admin.iter().map(|(_, command)| command).filter(of_path).map(|command| command.sent_at)
    }

    pub(super) fn submit_admin(&mut self, path: usize, purpose: AdminPurpose, command: Command) {
        let Some(token) = self.controller(path).map(|controller| controller.admin) else { return };
        self.submit_on(token, path, purpose, command);
    }

    pub(super) fn submit_on(&mut self, token: usize, path: usize, purpose: AdminPurpose, command: Command) {
        let sent_at = self.now();
        let (payload, room) = match command.data {
            CommandData::None => (Payload::None, Vec::new()),
            CommandData::Send(data) => {
                let bytes = data.len();
                (Payload::Send(Slice { memory: Arc::new(data), start: 0, bytes }), Vec::new())
            }
            CommandData::Receive(bytes) => (Payload::Receive(bytes), vec![0; bytes as usize]),
        };
        let at = self.commands.admin.insert(AdminCommand { path, purpose, room, sent_at });
        let Some(slot) = self.slots.get_mut(token) else { return };
        if slot.queue.submit(&command.sqe, ADMIN | at as u64, payload).is_err() {
            // It was not sent, and nobody else knows of it.
            self.commands.admin.try_remove(at);
            if let AdminPurpose::End(fence) = purpose {
                let now = self.now();
                self.fences.ask_again(now, fence);
            }
            return self.lose(path, &Lost::Misuse);
        }
        self.flush(token);
    }

    pub(super) fn probe(&mut self, path: usize, now: Duration) {
        if let Some(controller) = self.controller_mut(path) {
            controller.health.probe = Some(now);
        }
        let sqe = Sqe::new(AdminOpcode::KEEP_ALIVE.0, 0, 0);
        self.submit_admin(path, AdminPurpose::Probe, Command { sqe, data: CommandData::None });
    }

    /// Asks a controller on an I/O queue whether that lives. Only admin queues have properties: the
    /// answer is an error, and no drive is waited for. NVMe over Fabrics, "Property Get Command"
    pub(super) fn probe_queue(&mut self, token: usize, path: usize, now: Duration) {
        let Some(slot) = self.slots.get_mut(token).filter(|slot| slot.queue.room() > 0) else { return };
        slot.health.probe = Some(now);
        let sqe = Property::get(0, CSTS, false);
        self.submit_on(token, path, AdminPurpose::Probe, Command { sqe, data: CommandData::None });
    }

    /// A connection takes commands.
    pub(super) fn queue_ready(&mut self, token: usize) {
        let now = self.now();
        let Some(path) = self.slots.get(token).map(|slot| slot.path) else { return };
        let config = self.host_config(path);
        let Some(controller) = self.controller_mut(path) else { return };
        if controller.admin == token {
            controller.initiator = Some(Initiator::new(now, config));
            return self.pump(path);
        }
        let Some(at) = controller.connecting.iter().position(|(one, ..)| *one == token) else { return };
        let (token, id, command) = controller.connecting.swap_remove(at);
        controller.io.push(token);
        self.submit_on(token, path, AdminPurpose::Machine(id), command);
    }

    /// Does what the machine of a controller asks for.
    pub(super) fn pump(&mut self, path: usize) {
        loop {
            let initiator = self.controller_mut(path).and_then(|controller| controller.initiator.as_mut());
            let Some(output) = initiator.and_then(Initiator::poll_output) else { return };
            match output {
                HostOutput::Admin { id, command } => {
                    self.submit_admin(path, AdminPurpose::Machine(id), command);
                }
                HostOutput::Authenticate { id, qid } => self.authenticate(path, id, qid),
                HostOutput::ConnectIo { id, qid, command } => {
                    match self.open_queue(path, qid, self.config.entries) {
                        Ok(token) => {
                            if let Some(controller) = self.controller_mut(path) {
                                controller.connecting.push((token, id, command));
                            }
                        }
                        Err(lost) => self.lose(path, &lost),
                    }
                }
                HostOutput::Live(limits) => self.live(path, limits),
                HostOutput::Namespaces(nsids) => self.namespaces_listed(path, &nsids),
                HostOutput::Ana(log) => {
                    if let Some(controller) = self.controller_mut(path) {
                        controller.set_ana(log);
                    }
                    self.dispatch();
                }
                // An I/O controller has no discovery log.
                HostOutput::DiscoveryChanged => {}
                HostOutput::Failed(failure) => self.lose(path, &Lost::Failed(failure)),
            }
        }
    }

    fn live(&mut self, at: usize, limits: Limits) {
        let now = self.now();
        if !self.is_proved(at) {
            return self.lose(at, &Lost::Refused(Refusal::NoProof));
        }
        let Some(path) = self.paths.get_mut(at) else { return };
        path.back_off = Duration::ZERO;
        (path.last, path.refused) = (None, None);
        let address = path.address;
        let Some(controller) = path.controller_mut() else { return };
        controller.limits = Some(limits);
        for token in &controller.io {
            if let Some(slot) = self.slots.get_mut(*token) {
                slot.queue.set_capsule_data_bytes(limits.capsule_data_bytes);
            }
        }
        let instance = controller.instance();
        let safe = safe_time(self.config.earlier_keep_alive(), controller.identity());
        tracing::info!(%address, cntlid = limits.cntlid, queues = limits.io_queues, "controller connected");
        self.transfer_bytes = self.transfer_bytes.min(limits.transfer_bytes.unwrap_or(u64::MAX)).max(4096);
        if self.has_begun {
            return self.ask();
        }
        if instance.is_some() {
            return self.ask_older(at);
        }
        if self.config.after_crash.is_some() {
            self.changes_from = now + safe;
            tracing::warn!(wait = ?safe, "the target cannot say when older controllers are finished: changes wait");
        }
        self.begin();
    }

    pub(super) fn begin(&mut self) {
        self.has_begun = true;
        self.shared.set_settled_at(self.epoch + self.changes_from);
        self.dispatch();
        self.tick();
    }

    fn namespaces_listed(&mut self, path: usize, nsids: &[u32]) {
        let Some(controller) = self.controller_mut(path) else { return };
        controller.namespaces.retain(|nsid, _| nsids.contains(nsid));
        controller.listed = Some(nsids.to_vec());
        controller.unasked = nsids.iter().rev().copied().collect();
        if !controller.is_asked {
            self.ask_for_namespace(path);
        }
        self.publish();
    }

    /// Asks for the next namespace.
    fn ask_for_namespace(&mut self, path: usize) {
        let Some(controller) = self.controller_mut(path) else { return };
        let next = controller.unasked.pop();
        controller.is_asked = next.is_some();
        let Some(nsid) = next else { return };
        let identify = Identify { cns: Cns::NAMESPACE, cntid: 0, command_set: CommandSet::NVM, nsid };
        let sqe = identify.command(0, Sgl::NONE);
        let data = CommandData::Receive(IDENTIFY_BYTES as u32);
        self.submit_admin(path, AdminPurpose::Namespace(nsid), Command { sqe, data });
    }

    pub(super) fn admin_completed(&mut self, tag: u64, cqe: &Cqe) {
        let now = self.now();
        let at = usize::try_from(tag).unwrap_or(usize::MAX);
        let Some(AdminCommand { path, purpose, room, .. }) = self.commands.admin.try_remove(at) else {
            return;
        };
        match purpose {
            AdminPurpose::Machine(id) => {
                let controller = self.controller_mut(path);
                if let Some(initiator) = controller.and_then(|controller| controller.initiator.as_mut()) {
                    initiator.handle_completion(now, id, cqe, &room);
                }
                self.pump(path);
            }
            AdminPurpose::Authenticate(token) => self.authentication_completed(token, cqe, room),
            AdminPurpose::Probe => {}
            AdminPurpose::Namespace(nsid) => {
                if cqe.status.is_success() {
                    self.namespace_identified(path, nsid, &room);
                }
                self.ask_for_namespace(path);
            }
            AdminPurpose::Older if cqe.status.is_success() => self.begin(),
            AdminPurpose::Older => self.older_refused(path, cqe.status),
            AdminPurpose::End(fence) => self.fence_answered(fence, cqe),
        }
    }

    fn namespace_identified(&mut self, path: usize, nsid: u32, data: &[u8]) {
        let Ok(namespace) = Namespace::decode(data) else { return };
        let names = (namespace.nguid, namespace.eui64, namespace.lba_format().shift);
        let known = self.shared.namespace(nsid).map(|known| (known.nguid, known.eui64, known.block_shift));
        let Some(controller) = self.controller_mut(path) else { return };
        if namespace.size > 0 && !has_usable_size(&namespace) {
            controller.namespaces.remove(&nsid);
            tracing::error!(
                nsid,
                blocks = namespace.size,
                shift = namespace.lba_format().shift,
                "this path has a volume whose size makes no sense: it is not used"
            );
            return;
        }
        // Another volume under a known number: writing there would destroy it.
        if namespace.size == 0 || known.is_some_and(|known| known != names) {
            controller.namespaces.remove(&nsid);
            if namespace.size > 0 {
                tracing::error!(nsid, "this path has another volume under this number: it is not used");
            }
            return;
        }
        controller.namespaces.insert(nsid, namespace);
        let limits = controller.limits;
        self.shared.set_namespace(nsid, &namespace, limits.as_ref());
        self.publish();
        self.dispatch();
    }
}

/// Blocks of 512 bytes to 64 KiB, and no more bytes than a file may have.
fn has_usable_size(namespace: &Namespace) -> bool {
    let shift = u32::from(namespace.lba_format().shift);
    (9..=16).contains(&shift) && namespace.size <= i64::MAX.unsigned_abs() >> shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_usable_if_its_bytes_can_be_counted() {
        let namespace = |shift: u8, size: u64| {
            let mut namespace = Namespace { size, ..Namespace::default() };
            namespace.formats[0].shift = shift;
            namespace
        };
        for (shift, size, expected) in [
            (9, 1, true),
            (12, 1 << 50, true),
            (16, 1 << 46, true),
            (12, 1 << 51, false),
            (8, 1, false),
            (17, 1, false),
            (64, 1, false),
            (255, 1, false),
        ] {
            assert_eq!(has_usable_size(&namespace(shift, size)), expected, "{size} blocks, {shift}");
        }
    }
}

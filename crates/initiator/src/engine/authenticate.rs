//! Authentication on the queues of a controller, by [`chap::Host`]. What a challenge needs is
//! computed on a thread of its own: with a large group, it takes tens of milliseconds, and commands
//! on other paths go on meanwhile.

use super::admin::AdminPurpose;
use super::path::Controller;
use super::{Engine, Slot};
use crate::config::Secrets;
use crate::error::{Lost, Refusal};
use chap::message::RECEIVED_BYTES_MAX;
use chap::{Credentials, Entropy, Host, Next};
use nvme::host::{Command, CommandData, Failure, Purpose};
use nvme::{Cqe, Sgl};
use std::sync::Arc;

/// Authentication on a queue.
#[derive(Debug)]
pub(super) struct Authenticating {
    /// What the machine of the controller calls it.
    id: u32,
    /// `None` while something is computed.
    host: Option<Host>,
}

/// What was computed for a queue.
#[derive(Debug)]
pub(super) struct Computed {
    token: usize,
    serial: u64,
    host: Host,
}

impl Engine {
    /// The controller asks for it on this queue.
    pub(super) fn authenticate(&mut self, path: usize, id: u32, qid: u16) {
        let Some(Secrets { host, controller, algorithms }) = &self.config.secrets else {
            return self.lose(path, &Lost::Refused(Refusal::SecretNeeded));
        };
        let credentials = Credentials {
            host: self.config.host.clone(),
            subsystem: self.config.subsystem.clone(),
            host_secret: host.clone(),
            controller_secret: controller.clone(),
        };
        let algorithms = Arc::clone(algorithms);
        let Some(token) = self.token_of(path, qid) else { return self.lose(path, &Lost::Misuse) };
        // What fits into a capsule of an I/O queue, only Identify has said.
        let identity = self.controller(path).and_then(Controller::identity).filter(|_| qid > 0);
        let capsule_data_bytes = identity.map(|one| (one.ioccsz.saturating_mul(16)).saturating_sub(64));
        let Some(slot) = self.slots.get_mut(token) else { return };
        if let Some(bytes) = capsule_data_bytes {
            slot.queue.set_capsule_data_bytes(bytes);
        }
        // A connection has one transaction.
        let transaction = slot.serial as u16;
        let host = Some(Host::new(Arc::new(credentials), algorithms, transaction));
        slot.authentication = Some(Authenticating { id, host });
        self.proceed(token);
    }

    fn token_of(&self, path: usize, qid: u16) -> Option<usize> {
        let controller = self.controller(path)?;
        let tokens = controller.io.iter().chain([&controller.admin]);
        tokens.copied().find(|token| self.slots.get(*token).is_some_and(|slot| slot.qid == qid))
    }

    /// Does what is due on a queue.
    fn proceed(&mut self, token: usize) {
        let now = self.now();
        let Some(Slot { path, qid, authentication, .. }) = self.slots.get_mut(token) else { return };
        let (path, qid) = (*path, *qid);
        let Some(Authenticating { id, host: Some(host) }) = authentication else { return };
        let (sqe, data) = match host.next() {
            Next::Send(message) => {
                let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
                (chap::command::send(0, Sgl::NONE, length), CommandData::Send(message.to_vec()))
            }
            Next::Receive => {
                let room = u32::try_from(RECEIVED_BYTES_MAX).unwrap_or(u32::MAX);
                (chap::command::receive(0, Sgl::NONE, room), CommandData::Receive(room))
            }
            Next::Failed(failure) => {
                return self.lose(path, &Lost::Refused(Refusal::NotAuthenticated(failure)));
            }
            Next::Authenticated => {
                let id = *id;
                *authentication = None;
                tracing::debug!(qid, "authenticated");
                let Some(controller) = self.controller_mut(path) else { return };
                controller.authenticated += 1;
                if let Some(initiator) = &mut controller.initiator {
                    initiator.handle_authenticated(now, id);
                }
                return self.pump(path);
            }
        };
        self.submit_on(token, path, AdminPurpose::Authenticate(token), Command { sqe, data });
    }

    /// A command of authentication has ended, with what was received.
    pub(super) fn authentication_completed(&mut self, token: usize, cqe: &Cqe, data: Vec<u8>) {
        let Some(slot) = self.slots.get_mut(token) else { return };
        let (path, qid, serial) = (slot.path, slot.qid, slot.serial);
        if !cqe.status.is_success() {
            let failure = Failure::Command(Purpose::Authenticate(qid), cqe.status);
            return self.lose(path, &Lost::Failed(failure));
        }
        let Some(authentication) = &mut slot.authentication else { return };
        let Some(mut host) = authentication.host.take() else { return };
        if matches!(host.next(), Next::Send(_)) {
            host.handle_sent();
            authentication.host = Some(host);
            return self.proceed(token);
        }
        let entropy = match Entropy::generate(&mut self.sequence, getrandom::fill) {
            Ok(entropy) => entropy,
            Err(error) => return self.lose(path, &Lost::Compute(std::io::Error::other(error))),
        };
        // Above all what ends it: the controller closes the connection after it.
        if !host.takes_long(&data) {
            host.handle_received(&data, &entropy);
            authentication.host = Some(host);
            return self.proceed(token);
        }
        let (sender, shared) = (self.computed.0.clone(), Arc::clone(&self.shared));
        let compute = move || {
            host.handle_received(&data, &entropy);
            // The loop may have ended.
            let _ = sender.send(Computed { token, serial, host });
            shared.waker.wake();
        };
        let thread = std::thread::Builder::new().name("initiator-auth".to_owned());
        if let Err(error) = thread.spawn(compute) {
            self.lose(path, &Lost::Compute(error));
        }
    }

    /// Goes on with what was computed.
    pub(super) fn take_computed(&mut self) {
        while let Ok(Computed { token, serial, host }) = self.computed.1.try_recv() {
            let slot = self.slots.get_mut(token).filter(|slot| slot.serial == serial);
            let Some(authentication) = slot.and_then(|slot| slot.authentication.as_mut()) else { continue };
            authentication.host = Some(host);
            self.proceed(token);
        }
    }

    /// Whether the controller has proved who it is on each queue, where this host demands it.
    pub(super) fn is_proved(&self, path: usize) -> bool {
        let demands = self.config.secrets.as_ref().is_some_and(|secrets| secrets.controller.is_some());
        let Some(controller) = self.controller(path) else { return false };
        !demands || controller.authenticated > controller.io.len()
    }
}

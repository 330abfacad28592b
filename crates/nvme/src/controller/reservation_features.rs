//! The features of reservations. NVMe Base, "Reservation Notification Mask (Feature Identifier
//! 82h)", "Reservation Persistence (Feature Identifier 83h)".
//!
//! A change of persistence takes its turn among the commands of reservations of each volume, since
//! it is answered only when it is durable.

use super::association::Association;
use super::config::Kind;
use super::reservations::{Ask, Asker};
use super::subsystem::Subsystem;
use crate::command::{FUSE_MASK, PSDT_MASK, PSDT_SGL};
use crate::feature::{Feature, FeatureId, NotificationMask, PERSIST_THROUGH_POWER_LOSS};
use crate::{AdminOpcode, NSID_ALL, Sqe, Status};
use std::collections::BTreeMap;

/// A Set Features of persistence that is not answered.
#[derive(Debug)]
pub(super) struct Persisting {
    pub(super) cntlid: u16,
    cid: u16,
    /// The volumes that are not done.
    left: usize,
    status: Status,
}

/// The namespaces that a feature is set for: one, or all that the host sees.
fn named(controller: &Association, nsid: u32) -> Result<Vec<u32>, Status> {
    let seen = controller.view.namespaces().iter().map(|namespace| namespace.nsid);
    if nsid == NSID_ALL {
        return Ok(seen.collect());
    }
    one(controller, nsid).map(|nsid| vec![nsid])
}

fn one(controller: &Association, nsid: u32) -> Result<u32, Status> {
    let seen = controller.view.namespace(nsid);
    seen.map(|namespace| namespace.nsid).ok_or(Status::INVALID_NAMESPACE.no_retry())
}

/// A value is that of one namespace.
fn read(controller: &Association, nsid: u32) -> Result<u32, Status> {
    if nsid == NSID_ALL {
        return Err(Status::INVALID_FIELD.no_retry());
    }
    one(controller, nsid)
}

impl Association {
    pub(super) fn mask_notifications(&mut self, nsid: u32, value: u32) -> Result<(), Status> {
        let mask = NotificationMask(value & NotificationMask::ALL.0);
        let masks = named(self, nsid)?.into_iter().map(|nsid| (nsid, mask));
        self.notification_masks.extend(masks);
        Ok(())
    }

    pub(super) fn notification_mask(&self, nsid: u32) -> Result<NotificationMask, Status> {
        let nsid = read(self, nsid)?;
        Ok(self.notification_masks.get(&nsid).copied().unwrap_or_default())
    }
}

impl Subsystem {
    /// Whether a command is a change of persistence, which is answered later.
    pub(super) fn sets_persistence(&self, cntlid: u16, sqe: &Sqe) -> bool {
        let is_ready = self.controllers.get(&cntlid).is_some_and(Association::is_ready);
        is_ready
            && self.config.reservations
            && self.config.kind == Kind::Io
            && AdminOpcode(sqe.opcode) == AdminOpcode::SET_FEATURES
            && Feature::of(sqe).id == FeatureId::RESERVATION_PERSISTENCE
    }

    /// Changes persistence; the answer comes when it is durable for each namespace that is named.
    pub(super) fn set_persistence(&mut self, cntlid: u16, sqe: &Sqe) -> Result<(), Status> {
        let Feature { save, value, nsid, .. } = Feature::of(sqe);
        if sqe.flags & FUSE_MASK != 0 || sqe.flags & PSDT_MASK != PSDT_SGL {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        if save {
            return Err(Status::FEATURE_NOT_SAVEABLE.no_retry());
        }
        let controller = self.controllers.get(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        let nsids = named(controller, nsid)?;
        let number = self.next_persisting;
        self.next_persisting += 1;
        // One more than there are, so that it is answered here if there is none.
        let request = Persisting { cntlid, cid: sqe.cid, left: nsids.len() + 1, status: Status::SUCCESS };
        self.persisting.insert(number, request);
        let persistent = value & PERSIST_THROUGH_POWER_LOSS != 0;
        for nsid in nsids {
            self.ask(nsid, Asker::Feature(number), Ask::Persistence(persistent));
        }
        self.persistence_is_set(number, None);
        Ok(())
    }

    /// One of the volumes of a request is done.
    pub(super) fn persistence_is_set(&mut self, number: u64, failure: Option<Status>) {
        let Some(request) = self.persisting.get_mut(&number) else { return };
        request.left = request.left.saturating_sub(1);
        if let Some(status) = failure.filter(|_| request.status.is_success()) {
            request.status = status;
        }
        if request.left == 0
            && let Some(Persisting { cntlid, cid, status, .. }) = self.persisting.remove(&number)
        {
            self.respond_late(cntlid, cid, status, 0);
        }
    }

    /// The changes of a controller are not answered any more, and those that wait for their turn
    /// are not executed. Returns the identifiers of the commands.
    pub(super) fn drop_persisting(&mut self, cntlid: u16) -> Vec<u16> {
        let of_controller = |_: &u64, request: &mut Persisting| request.cntlid == cntlid;
        let dropped: BTreeMap<u64, Persisting> = self.persisting.extract_if(.., of_controller).collect();
        self.forget_asker(|asker| matches!(asker, Asker::Feature(number) if dropped.contains_key(number)));
        dropped.into_values().map(|request| request.cid).collect()
    }

    /// PTPL of a namespace.
    pub(super) fn persistence(&self, controller: &Association, nsid: u32) -> Result<u32, Status> {
        let nsid = read(controller, nsid)?;
        if self.volumes.get(&nsid).is_some_and(|volume| self.is_elsewhere(volume.owner)) {
            return Err(Status::ANA_INACCESSIBLE);
        }
        let volume = self.reservations.get(&nsid);
        Ok(u32::from(volume.is_some_and(|volume| volume.state.is_persistent())))
    }
}

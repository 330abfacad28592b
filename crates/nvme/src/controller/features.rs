//! What Set Features changes and Get Features answers. NVMe Base, "Set Features Command".

use super::admin::Answer;
use super::association::Association;
use super::config::Kind;
use super::subsystem::Subsystem;
use crate::feature::{Feature, FeatureId, HostBehavior, QueueCounts, Select, Timestamp};
use crate::identify::AsyncEvents;
use crate::{Sqe, Status};
use std::time::Duration;

/// The features of controllers for input and output.
pub(super) const IO_FEATURES: [FeatureId; 11] = [
    FeatureId::ARBITRATION,
    FeatureId::POWER_MANAGEMENT,
    FeatureId::TEMPERATURE_THRESHOLD,
    FeatureId::ERROR_RECOVERY,
    FeatureId::VOLATILE_WRITE_CACHE,
    FeatureId::NUMBER_OF_QUEUES,
    FeatureId::ASYNC_EVENTS,
    FeatureId::TIMESTAMP,
    FeatureId::KEEP_ALIVE,
    FeatureId::HOST_BEHAVIOR,
    FeatureId::HOST_ID,
];

/// The features of controllers with reservations.
pub(super) const RESERVATION_FEATURES: [FeatureId; 2] =
    [FeatureId::RESERVATION_MASK, FeatureId::RESERVATION_PERSISTENCE];

/// The features of discovery controllers.
const DISCOVERY_FEATURES: [FeatureId; 2] = [FeatureId::ASYNC_EVENTS, FeatureId::KEEP_ALIVE];

/// EXHID of the host identifier: it has 128 bits.
const EXTENDED_HOST_ID: u32 = 1;

/// What Get Features says of a feature: bit 2 if it can be changed. None is saved by a command.
const CHANGEABLE: u64 = 1 << 2;

/// Bit 1: it is one of each namespace.
const OF_NAMESPACES: u64 = 1 << 1;

impl Subsystem {
    /// The features that there are.
    pub(super) fn io_features(&self) -> impl Iterator<Item = FeatureId> {
        let of_reservations = RESERVATION_FEATURES.into_iter().filter(|_| self.config.reservations);
        IO_FEATURES.into_iter().chain(of_reservations)
    }

    fn known(&self, id: FeatureId) -> Result<(), Status> {
        let known = match self.config.kind {
            Kind::Io => self.io_features().any(|one| one == id),
            Kind::Discovery => DISCOVERY_FEATURES.contains(&id),
        };
        if known { Ok(()) } else { Err(Status::INVALID_FIELD.no_retry()) }
    }

    pub(super) fn set_feature(
        &mut self,
        now: Duration,
        cntlid: u16,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<Answer, Status> {
        let Feature { id, save, value, nsid, .. } = Feature::of(sqe);
        self.known(id)?;
        if save {
            return Err(Status::FEATURE_NOT_SAVEABLE.no_retry());
        }
        let limits = self.config.limits;
        let controller = self.controllers.get_mut(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        match id {
            FeatureId::NUMBER_OF_QUEUES => return grant_queues(controller, value, limits.io_queues),
            FeatureId::ASYNC_EVENTS => controller.events.wanted = AsyncEvents(value),
            FeatureId::KEEP_ALIVE => {
                let keep_alive = Association::rounded(value);
                if keep_alive > limits.keep_alive {
                    return Err(Status::KEEP_ALIVE_INVALID.no_retry());
                }
                controller.keep_alive = keep_alive;
                controller.restart_timer(now);
            }
            FeatureId::TIMESTAMP => {
                let set = Timestamp::decode(data).map_err(|_| Status::SGL_INVALID_LENGTH.no_retry())?;
                controller.timestamp = Some((Timestamp::set_by_host(set.milliseconds()), now));
            }
            FeatureId::HOST_BEHAVIOR => {
                let set = HostBehavior::decode(data).map_err(|_| Status::SGL_INVALID_LENGTH.no_retry())?;
                controller.retry_delays = set.retry_delays & 1 != 0;
                self.renew_view(cntlid);
            }
            // Over fabrics Connect has set it.
            FeatureId::HOST_ID => return Err(Status::COMMAND_SEQUENCE_ERROR.no_retry()),
            FeatureId::RESERVATION_MASK => controller.mask_notifications(nsid, value)?,
            // The cache of the backend is as it is, on.
            FeatureId::VOLATILE_WRITE_CACHE if value & 1 == 0 => {
                return Err(Status::FEATURE_NOT_CHANGEABLE.no_retry());
            }
            FeatureId::VOLATILE_WRITE_CACHE => {}
            // There is one power state.
            FeatureId::POWER_MANAGEMENT if value & 0x1f != 0 => {
                return Err(Status::INVALID_FIELD.no_retry());
            }
            _ => {
                controller.kept.insert(id.0, value);
            }
        }
        Ok(Answer::NONE)
    }

    pub(super) fn feature(&self, now: Duration, cntlid: u16, sqe: &Sqe) -> Result<Answer, Status> {
        let Feature { id, select, value, nsid, .. } = Feature::of(sqe);
        self.known(id)?;
        let controller = self.controllers.get(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        match select {
            Select::CURRENT => {}
            Select::CAPABILITIES if RESERVATION_FEATURES.contains(&id) => {
                return Ok(Answer::result(CHANGEABLE | OF_NAMESPACES));
            }
            Select::CAPABILITIES => {
                let fixed = matches!(id, FeatureId::HOST_ID | FeatureId::VOLATILE_WRITE_CACHE);
                return Ok(Answer::result(if fixed { 0 } else { CHANGEABLE }));
            }
            // Nothing is saved; defaults are only of interest where values can be saved.
            _ => return Err(Status::INVALID_FIELD.no_retry()),
        }
        Ok(match id {
            FeatureId::NUMBER_OF_QUEUES => {
                let granted = u32::from(controller.granted.unwrap_or(self.config.limits.io_queues));
                Answer::result(QueueCounts { submission: granted, completion: granted }.encode().into())
            }
            FeatureId::ASYNC_EVENTS => Answer::result(controller.events.wanted.0.into()),
            FeatureId::KEEP_ALIVE => {
                Answer::result(u64::try_from(controller.keep_alive.as_millis()).unwrap_or(u64::MAX))
            }
            FeatureId::TIMESTAMP => Answer::data(timestamp(now, controller).encode().to_vec()),
            FeatureId::HOST_BEHAVIOR => {
                let retry_delays = controller.retry_delays.into();
                Answer::data(HostBehavior { retry_delays, lba_formats: 0 }.encode().to_vec())
            }
            FeatureId::HOST_ID => {
                // The short form has no room for it.
                if value & EXTENDED_HOST_ID == 0 {
                    return Err(Status::INVALID_FIELD.no_retry());
                }
                Answer::data(controller.host_id.0.to_vec())
            }
            FeatureId::VOLATILE_WRITE_CACHE => Answer::result(1),
            FeatureId::RESERVATION_MASK => Answer::result(controller.notification_mask(nsid)?.0.into()),
            FeatureId::RESERVATION_PERSISTENCE => Answer::result(self.persistence(controller, nsid)?.into()),
            _ => Answer::result(controller.kept.get(&id.0).copied().unwrap_or_default().into()),
        })
    }
}

/// Number of Queues: only before the first I/O queue is connected.
fn grant_queues(controller: &mut Association, value: u32, most: u16) -> Result<Answer, Status> {
    if !controller.io.is_empty() {
        return Err(Status::COMMAND_SEQUENCE_ERROR.no_retry());
    }
    let asked = QueueCounts::decode(value).ok_or(Status::INVALID_FIELD.no_retry())?;
    let queues = asked.submission.min(asked.completion).min(u32::from(most.max(1)));
    controller.granted = u16::try_from(queues).ok();
    Ok(Answer::result(QueueCounts { submission: queues, completion: queues }.encode().into()))
}

/// What the host has set, and the time since then.
fn timestamp(now: Duration, controller: &Association) -> Timestamp {
    let Some((set, at)) = controller.timestamp else { return Timestamp::default() };
    let passed = u64::try_from(now.saturating_sub(at).as_millis()).unwrap_or(u64::MAX);
    Timestamp::set_by_host(set.milliseconds().saturating_add(passed))
}

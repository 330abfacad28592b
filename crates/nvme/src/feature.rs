//! Features: settings of a controller that hosts read and change. NVMe Base, "Set Features
//! Command", "Get Features Command", "Asynchronous Event Request Command".

use crate::command::{AdminOpcode, Sqe};
use crate::identify::AsyncEvents;
use crate::layout::{flags, layout, numbers};
use crate::log_page::{LogId, ReservationEvent};
use crate::sgl::Sgl;

numbers! {
    /// The identifier of a feature (FID).
    pub struct FeatureId(u8) {
        /// Arbitration.
        ARBITRATION = 0x01,
        /// Power management.
        POWER_MANAGEMENT = 0x02,
        /// Temperature threshold.
        TEMPERATURE_THRESHOLD = 0x04,
        /// Error recovery.
        ERROR_RECOVERY = 0x05,
        /// Volatile write cache.
        VOLATILE_WRITE_CACHE = 0x06,
        /// Number of queues.
        NUMBER_OF_QUEUES = 0x07,
        /// Which events the host wants.
        ASYNC_EVENTS = 0x0b,
        /// Timestamp.
        TIMESTAMP = 0x0e,
        /// Keep-alive timer.
        KEEP_ALIVE = 0x0f,
        /// What the host supports.
        HOST_BEHAVIOR = 0x16,
        /// Host identifier.
        HOST_ID = 0x81,
        /// Which notifications of reservations the host does not want.
        RESERVATION_MASK = 0x82,
        /// Whether reservations persist through power loss.
        RESERVATION_PERSISTENCE = 0x83,
        /// Namespace write protection.
        WRITE_PROTECTION = 0x84,
    }
}

numbers! {
    /// Which value Get Features reads (SEL).
    pub struct Select(u8) {
        /// The current one.
        CURRENT = 0,
        /// The default.
        DEFAULT = 1,
        /// The saved one.
        SAVED = 2,
        /// Which of them there are.
        CAPABILITIES = 3,
    }
}

/// The arguments of Set Features and Get Features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// The feature.
    pub id: FeatureId,
    /// SV of Set Features: keep the value beyond a reset.
    pub save: bool,
    /// SEL of Get Features.
    pub select: Select,
    /// Dword 11: the value.
    pub value: u32,
    /// The namespace.
    pub nsid: u32,
}

impl Feature {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        Self {
            id: FeatureId(sqe.cdw10 as u8),
            save: sqe.cdw10 >> 31 != 0,
            select: Select((sqe.cdw10 >> 8 & 7) as u8),
            value: sqe.cdw11,
            nsid: sqe.nsid,
        }
    }

    /// Set Features of this value.
    #[must_use]
    pub fn set(cid: u16, id: FeatureId, value: u32, sgl: Sgl) -> Sqe {
        let sqe = Sqe::new(AdminOpcode::SET_FEATURES.0, cid, 0);
        Sqe { sgl, cdw10: id.0.into(), cdw11: value, ..sqe }
    }

    /// Get Features of the current value.
    #[must_use]
    pub fn get(cid: u16, id: FeatureId, value: u32, sgl: Sgl) -> Sqe {
        Sqe { opcode: AdminOpcode::GET_FEATURES.0, ..Self::set(cid, id, value, sgl) }
    }
}

/// The number of I/O queues that a host asks for and a controller grants. "Number of Queues"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueCounts {
    /// Submission queues, from 1 on.
    pub submission: u32,
    /// Completion queues, from 1 on.
    pub completion: u32,
}

impl QueueCounts {
    /// Reads dword 11 of the command or the result; `None` for the value FFFFh, which is not
    /// allowed.
    #[must_use]
    pub const fn decode(value: u32) -> Option<Self> {
        let (submission, completion) = (value & 0xffff, value >> 16);
        if submission == 0xffff || completion == 0xffff {
            return None;
        }
        Some(Self { submission: submission + 1, completion: completion + 1 })
    }

    /// Dword 11 of the command, or the result. Counts of 0 count as 1, the smallest.
    #[must_use]
    pub fn encode(self) -> u32 {
        let field = |count: u32| count.clamp(1, 0xffff) - 1;
        field(self.submission) | field(self.completion) << 16
    }
}

layout! {
    /// What a host supports, the data of feature 16h. "Host Behavior Support"
    pub struct HostBehavior[512] {
        /// ACRE: the host waits as CRD says before it retries.
        retry_delays: u8 = 0,
        /// LBAFEE: LBA formats beyond the first 16.
        lba_formats: u8 = 2,
    }
}

layout! {
    /// The data of the Timestamp feature.
    pub struct Timestamp[8] {
        /// Milliseconds since 1970, the lower 32 bits.
        low: u32 = 0,
        /// The upper 16 bits.
        high: u16 = 4,
        /// Bits 3:1: where the time comes from, 1 if a host has set it.
        origin: u8 = 6,
    }
}

impl Timestamp {
    /// A time that a host has set.
    #[must_use]
    pub const fn set_by_host(milliseconds: u64) -> Self {
        Self { low: milliseconds as u32, high: (milliseconds >> 32) as u16, origin: 1 << 1 }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn milliseconds(&self) -> u64 {
        self.low as u64 | (self.high as u64) << 32
    }
}

flags! {
    /// Which notifications of reservations a host does not want, the value of feature 82h.
    /// "Reservation Notification Mask (Feature Identifier 82h)"
    pub struct NotificationMask(u32) {
        /// REGPRE: a registration was preempted.
        REGISTRATION_PREEMPTED = 1 << 1,
        /// RESREL: a reservation was released.
        RESERVATION_RELEASED = 1 << 2,
        /// RESPRE: a reservation was preempted.
        RESERVATION_PREEMPTED = 1 << 3,
    }
}

impl NotificationMask {
    /// Everything that may be masked.
    pub const ALL: Self =
        Self(Self::REGISTRATION_PREEMPTED.0 | Self::RESERVATION_RELEASED.0 | Self::RESERVATION_PREEMPTED.0);

    /// Whether this event is masked.
    #[must_use]
    pub const fn covers(self, event: ReservationEvent) -> bool {
        let bit = match event {
            ReservationEvent::REGISTRATION_PREEMPTED => Self::REGISTRATION_PREEMPTED,
            ReservationEvent::RESERVATION_RELEASED => Self::RESERVATION_RELEASED,
            ReservationEvent::RESERVATION_PREEMPTED => Self::RESERVATION_PREEMPTED,
            _ => Self::NONE,
        };
        self.0 & bit.0 != 0
    }
}

/// PTPL, the value of feature 83h: reservations persist through power loss. "Reservation
/// Persistence (Feature Identifier 83h)"
pub const PERSIST_THROUGH_POWER_LOSS: u32 = 1;

numbers! {
    /// The type of an event.
    pub struct EventType(u8) {
        /// An error.
        ERROR = 0,
        /// Health.
        HEALTH = 1,
        /// A notice.
        NOTICE = 2,
        /// An event of the command set: reservations.
        COMMAND_SET = 6,
    }
}

/// An event: the result of an Asynchronous Event Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The type.
    pub kind: EventType,
    /// What happened, within the type.
    pub information: u8,
    /// The log page to read, which also clears the event.
    pub log: LogId,
}

impl Event {
    /// Namespaces came, went or changed.
    pub const NAMESPACE_CHANGED: Self = Self::notice(0x00, LogId::CHANGED_NAMESPACES);
    /// An ANA state changed.
    pub const ANA_CHANGED: Self = Self::notice(0x03, LogId::ANA);
    /// The discovery log changed.
    pub const DISCOVERY_CHANGED: Self = Self::notice(0xf0, LogId::DISCOVERY);

    /// The log of notifications of reservations is not empty.
    pub const RESERVATIONS: Self =
        Self { kind: EventType::COMMAND_SET, information: 0x00, log: LogId::RESERVATIONS };

    const fn notice(information: u8, log: LogId) -> Self {
        Self { kind: EventType::NOTICE, information, log }
    }

    /// The bit by which hosts ask for the event; none for events that are not asked for.
    #[must_use]
    pub const fn mask(&self) -> AsyncEvents {
        if self.kind.0 != EventType::NOTICE.0 {
            return AsyncEvents::NONE;
        }
        match self.information {
            0x00 => AsyncEvents::NAMESPACE_CHANGED,
            0x03 => AsyncEvents::ANA_CHANGED,
            0xf0 => AsyncEvents::DISCOVERY_CHANGED,
            _ => AsyncEvents::NONE,
        }
    }

    /// The result of the completion.
    #[must_use]
    pub fn result(&self) -> u64 {
        u64::from(self.kind.0) | u64::from(self.information) << 8 | u64::from(self.log.0) << 16
    }

    /// Reads the result of a completion.
    #[must_use]
    pub const fn of(result: u64) -> Self {
        Self {
            kind: EventType(result as u8 & 7),
            information: (result >> 8) as u8,
            log: LogId((result >> 16) as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_features() {
        let sqe = Feature::set(1, FeatureId::NUMBER_OF_QUEUES, 0x0003_0003, Sgl::NONE);
        assert_eq!(sqe.encode()[40..48], [7, 0, 0, 0, 3, 0, 3, 0]);
        let id = FeatureId::NUMBER_OF_QUEUES;
        let read = Feature { id, save: false, select: Select::CURRENT, value: 0x0003_0003, nsid: 0 };
        assert_eq!(Feature::of(&sqe), read);
        let get = Feature::get(1, FeatureId::KEEP_ALIVE, 0, Sgl::NONE);
        assert_eq!((get.opcode, get.cdw10), (0x0a, 0x0f));
        let saved = Feature::of(&Sqe { cdw10: 0x8000_0306, ..sqe });
        assert_eq!((saved.save, saved.select), (true, Select::CAPABILITIES));
    }

    #[test]
    fn queues_are_counted_from_zero() {
        let counts = QueueCounts { submission: 4, completion: 2 };
        assert_eq!(counts.encode(), 0x0001_0003);
        assert_eq!(QueueCounts::decode(0x0001_0003), Some(counts));
        assert_eq!(QueueCounts::decode(0xffff), None);
        assert_eq!(QueueCounts::decode(0xffff_0000), None);
        assert_eq!(QueueCounts { submission: 0, completion: 70_000 }.encode(), 0xfffe_0000);
    }

    #[test]
    fn events_name_their_log_page() {
        assert_eq!(Event::NAMESPACE_CHANGED.result(), 0x04_00_02);
        assert_eq!(Event::ANA_CHANGED.result(), 0x0c_03_02);
        assert_eq!(Event::DISCOVERY_CHANGED.result(), 0x70_f0_02);
        for event in [Event::NAMESPACE_CHANGED, Event::ANA_CHANGED, Event::DISCOVERY_CHANGED] {
            assert_eq!(Event::of(event.result()), event);
        }
        assert_eq!(Event::DISCOVERY_CHANGED.mask(), AsyncEvents::DISCOVERY_CHANGED);
    }

    #[test]
    fn a_timestamp_has_48_bits() {
        let time = Timestamp::set_by_host(0x0123_4567_89ab);
        assert_eq!(time.encode(), [0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 2, 0]);
        assert_eq!(Timestamp::decode(&time.encode()).map(|time| time.milliseconds()), Ok(0x0123_4567_89ab));
        assert_eq!(HostBehavior { retry_delays: 1, lba_formats: 0 }.encode()[..3], [1, 0, 0]);
    }
}

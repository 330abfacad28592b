//! Reservations: the four commands, and the data of the report. NVMe Base, "Reservation Register",
//! "Reservation Acquire", "Reservation Release", "Reservation Report".
//!
//! [`Reservations`] is who has registered for a volume and who holds a reservation of it.

mod state;

pub use state::{Change, Notice, REGISTRANTS_MAX, Reservations, RestoreError};

use crate::Short;
use crate::command::{IoOpcode, Sqe};
use crate::layout::{layout, numbers};
use crate::nqn::HostId;
use crate::sgl::Sgl;

numbers! {
    /// RTYPE: what a reservation excludes.
    pub struct ReservationType(u8) {
        /// There is none.
        NONE = 0,
        /// Only the holder writes.
        WRITE_EXCLUSIVE = 1,
        /// Only the holder reads and writes.
        EXCLUSIVE_ACCESS = 2,
        /// Only registrants write.
        WRITE_EXCLUSIVE_REGISTRANTS = 3,
        /// Only registrants read and write.
        EXCLUSIVE_ACCESS_REGISTRANTS = 4,
        /// Only registrants write, and each of them holds the reservation.
        WRITE_EXCLUSIVE_ALL = 5,
        /// Only registrants read and write, and each of them holds the reservation.
        EXCLUSIVE_ACCESS_ALL = 6,
    }
}

numbers! {
    /// RREGA: what Reservation Register does.
    pub struct RegisterAction(u8) {
        /// Registers a key.
        REGISTER = 0,
        /// Removes the registration.
        UNREGISTER = 1,
        /// Replaces the key.
        REPLACE = 2,
    }
}

numbers! {
    /// RACQA: what Reservation Acquire does.
    pub struct AcquireAction(u8) {
        /// Acquires.
        ACQUIRE = 0,
        /// Takes away.
        PREEMPT = 1,
        /// Takes away, and aborts the commands of those from whom it is taken.
        PREEMPT_AND_ABORT = 2,
    }
}

numbers! {
    /// RRELA: what Reservation Release does.
    pub struct ReleaseAction(u8) {
        /// Releases.
        RELEASE = 0,
        /// Removes the reservation and all registrations.
        CLEAR = 1,
    }
}

numbers! {
    /// CPTPL: whether reservations persist through power loss.
    pub struct Persistence(u8) {
        /// As before.
        NO_CHANGE = 0,
        /// They do not.
        VOLATILE = 2,
        /// They do.
        PERSISTENT = 3,
    }
}

const IGNORE_EXISTING_KEY: u32 = 1 << 3;

layout! {
    /// The data of Reservation Register and of Reservation Acquire.
    pub struct Keys[16] {
        /// CRKEY: the key that the host has registered.
        current: u64 = 0,
        /// NRKEY or PRKEY: the new key, or that of the registrants that are preempted.
        other: u64 = 8,
    }
}

layout! {
    /// The data of Reservation Release.
    pub struct Key[8] {
        /// CRKEY: the key that the host has registered.
        current: u64 = 0,
    }
}

/// The arguments of Reservation Register. Its data are [`Keys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// RREGA.
    pub action: RegisterAction,
    /// IEKEY: the current key is not compared.
    pub ignore_existing_key: bool,
    /// CPTPL.
    pub persistence: Persistence,
}

impl Register {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        Self {
            action: RegisterAction(sqe.cdw10 as u8 & 7),
            ignore_existing_key: sqe.cdw10 & IGNORE_EXISTING_KEY != 0,
            persistence: Persistence((sqe.cdw10 >> 30) as u8),
        }
    }

    /// The command.
    #[must_use]
    pub fn command(&self, cid: u16, nsid: u32, sgl: Sgl) -> Sqe {
        let persistence = u32::from(self.persistence.0) << 30;
        let cdw10 = u32::from(self.action.0) | ignoring(self.ignore_existing_key) | persistence;
        Sqe { sgl, cdw10, ..Sqe::new(IoOpcode::RESERVATION_REGISTER.0, cid, nsid) }
    }
}

/// The arguments of Reservation Acquire. Its data are [`Keys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acquire {
    /// RACQA.
    pub action: AcquireAction,
    /// IEKEY: the current key is not compared.
    pub ignore_existing_key: bool,
    /// RTYPE.
    pub kind: ReservationType,
}

impl Acquire {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        Self {
            action: AcquireAction(sqe.cdw10 as u8 & 7),
            ignore_existing_key: sqe.cdw10 & IGNORE_EXISTING_KEY != 0,
            kind: ReservationType((sqe.cdw10 >> 8) as u8),
        }
    }

    /// The command.
    #[must_use]
    pub fn command(&self, cid: u16, nsid: u32, sgl: Sgl) -> Sqe {
        let kind = u32::from(self.kind.0) << 8;
        let cdw10 = u32::from(self.action.0) | ignoring(self.ignore_existing_key) | kind;
        Sqe { sgl, cdw10, ..Sqe::new(IoOpcode::RESERVATION_ACQUIRE.0, cid, nsid) }
    }
}

/// The arguments of Reservation Release. Its data are a [`Key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// RRELA.
    pub action: ReleaseAction,
    /// IEKEY: the current key is not compared.
    pub ignore_existing_key: bool,
    /// RTYPE.
    pub kind: ReservationType,
}

impl Release {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        Self {
            action: ReleaseAction(sqe.cdw10 as u8 & 7),
            ignore_existing_key: sqe.cdw10 & IGNORE_EXISTING_KEY != 0,
            kind: ReservationType((sqe.cdw10 >> 8) as u8),
        }
    }

    /// The command.
    #[must_use]
    pub fn command(&self, cid: u16, nsid: u32, sgl: Sgl) -> Sqe {
        let kind = u32::from(self.kind.0) << 8;
        let cdw10 = u32::from(self.action.0) | ignoring(self.ignore_existing_key) | kind;
        Sqe { sgl, cdw10, ..Sqe::new(IoOpcode::RESERVATION_RELEASE.0, cid, nsid) }
    }
}

fn ignoring(existing_key: bool) -> u32 {
    if existing_key { IGNORE_EXISTING_KEY } else { 0 }
}

/// The arguments of Reservation Report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetReport {
    /// NUMD plus one, times four: how many bytes are asked for.
    pub bytes: u64,
    /// EDS: the extended form, for host identifiers of 128 bits.
    pub extended: bool,
}

impl GetReport {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        Self { bytes: (sqe.cdw10 as u64 + 1) * 4, extended: sqe.cdw11 & 1 != 0 }
    }

    /// The command.
    #[must_use]
    pub fn command(&self, cid: u16, nsid: u32, sgl: Sgl) -> Sqe {
        let cdw10 = self.bytes.div_ceil(4).saturating_sub(1) as u32;
        let sqe = Sqe::new(IoOpcode::RESERVATION_REPORT.0, cid, nsid);
        Sqe { sgl, cdw10, cdw11: self.extended.into(), ..sqe }
    }
}

layout! {
    /// The head of an extended report.
    pub struct ReportHead[64] {
        /// GEN: counts changes of registrations and preemptions.
        generation: u32 = 0,
        /// RTYPE.
        kind: ReservationType = 4,
        /// REGSTRNT: the number of registrants that follow.
        registrants: u16 = 5,
        /// PTPLS: 1 if reservations persist through power loss.
        persistent: u8 = 9,
    }
}

layout! {
    /// A registrant in an extended report.
    pub struct Registrant[64] {
        /// The controller; FFFFh in the dynamic controller model if the host is not connected.
        cntlid: u16 = 0,
        /// RCSTS: bit 0 if the host holds the reservation.
        holds: u8 = 2,
        /// The key.
        key: u64 = 8,
        /// The host.
        host_id: HostId = 16,
    }
}

/// The data of an extended report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// GEN.
    pub generation: u32,
    /// RTYPE.
    pub kind: ReservationType,
    /// Whether reservations persist through power loss.
    pub persistent: bool,
    /// The registrants, at most 65535.
    pub registrants: Vec<Registrant>,
}

impl Report {
    /// The report.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let registrants = u16::try_from(self.registrants.len()).unwrap_or(u16::MAX);
        let Self { generation, kind, persistent, .. } = *self;
        let head = ReportHead { generation, kind, registrants, persistent: persistent.into() };
        let mut bytes = head.encode().to_vec();
        for registrant in self.registrants.iter().take(registrants.into()) {
            bytes.extend_from_slice(&registrant.encode());
        }
        bytes
    }

    /// Reads a whole report.
    ///
    /// # Errors
    /// [`Short`] if it ends before its last registrant.
    pub fn decode(bytes: &[u8]) -> Result<Self, Short> {
        let head = ReportHead::decode(bytes)?;
        let mut rest = bytes.get(ReportHead::BYTES..).unwrap_or_default();
        let mut registrants = Vec::new();
        for _ in 0..head.registrants {
            registrants.push(Registrant::decode(rest)?);
            rest = rest.get(Registrant::BYTES..).unwrap_or_default();
        }
        let ReportHead { generation, kind, persistent, .. } = head;
        Ok(Self { generation, kind, persistent: persistent != 0, registrants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_as_linux_sends_it() {
        let register = Register {
            action: RegisterAction::REGISTER,
            ignore_existing_key: true,
            persistence: Persistence::PERSISTENT,
        };
        let sqe = register.command(1, 2, Sgl::NONE);
        assert_eq!((sqe.opcode, sqe.cdw10), (0x0d, 0xc000_0008));
        assert_eq!(Register::of(&sqe), register);
        let keys = Keys { current: 1, other: 2 };
        assert_eq!(keys.encode(), [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn acquire_and_release_name_the_type() {
        let acquire = Acquire {
            action: AcquireAction::PREEMPT_AND_ABORT,
            ignore_existing_key: false,
            kind: ReservationType::EXCLUSIVE_ACCESS_ALL,
        };
        let sqe = acquire.command(1, 2, Sgl::NONE);
        assert_eq!((sqe.opcode, sqe.cdw10), (0x11, 0x0602));
        assert_eq!(Acquire::of(&sqe), acquire);
        let release = Release {
            action: ReleaseAction::CLEAR,
            ignore_existing_key: true,
            kind: ReservationType::WRITE_EXCLUSIVE,
        };
        let sqe = release.command(1, 2, Sgl::NONE);
        assert_eq!((sqe.opcode, sqe.cdw10), (0x15, 0x0109));
        assert_eq!(Release::of(&sqe), release);
        assert_eq!(Key { current: 3 }.encode()[0], 3);
    }

    #[test]
    fn a_report_in_its_extended_form() {
        let arguments = GetReport { bytes: 128, extended: true };
        let sqe = arguments.command(1, 2, Sgl::NONE);
        assert_eq!((sqe.opcode, sqe.cdw10, sqe.cdw11), (0x0e, 31, 1));
        assert_eq!(GetReport::of(&sqe), arguments);
        let registrant = Registrant { cntlid: 0x0102, holds: 1, key: 3, host_id: HostId([4; 16]) };
        let report = Report {
            generation: 5,
            kind: ReservationType::WRITE_EXCLUSIVE,
            persistent: true,
            registrants: vec![registrant],
        };
        let bytes = report.encode();
        assert_eq!(bytes[..10], [5, 0, 0, 0, 1, 1, 0, 0, 0, 1]);
        assert_eq!(bytes[64..73], [2, 1, 1, 0, 0, 0, 0, 0, 3]);
        assert_eq!((bytes[80], bytes[95], bytes.len()), (4, 4, 128));
        assert_eq!(Report::decode(&bytes), Ok(report));
        assert_eq!(Report::decode(&bytes[..127]), Err(Short { needed: 64, got: 63 }));
    }
}

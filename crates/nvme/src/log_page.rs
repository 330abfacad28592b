//! Log pages and how they are read. NVMe Base, "Get Log Page Command".
//!
//! Any part of a log may be read: [`GetLogPage::part`] is the one place where offset and length are
//! computed, for logs of any size.

mod ana;
mod discovery;
mod effects;
mod health;
mod namespaces;

pub use ana::{ANA_GROUP_BYTES, ANA_HEAD_BYTES, AnaGroup, AnaLog, AnaLogError, AnaState};
pub use discovery::{
    AddressFamily, DISCOVERY_ENTRY_BYTES, DISCOVERY_HEAD_BYTES, DiscoveryEntry, DiscoveryHead, DiscoveryLog,
    EntryFlags, RdmaSubtype, SubsystemType, TransportRequirements, TransportType,
};
pub use effects::{CommandEffects, Effects, SupportedPages};
pub use health::{ErrorEntry, FirmwareSlots, Health};
pub use namespaces::{CHANGED_NAMESPACES_MAX, ChangedNamespaces, ReservationEvent, ReservationNotification};

use crate::command::{AdminOpcode, Sqe};
use crate::layout::numbers;
use crate::sgl::Sgl;

numbers! {
    /// The identifier of a log page (LID).
    pub struct LogId(u8) {
        /// Which log pages there are.
        SUPPORTED_PAGES = 0x00,
        /// Errors.
        ERRORS = 0x01,
        /// Health (SMART).
        HEALTH = 0x02,
        /// Firmware slots.
        FIRMWARE = 0x03,
        /// Namespaces that changed since the log was last read.
        CHANGED_NAMESPACES = 0x04,
        /// The commands that are supported, and their effects.
        COMMAND_EFFECTS = 0x05,
        /// Asymmetric namespace access.
        ANA = 0x0c,
        /// The features that are supported, and their effects.
        FEATURE_EFFECTS = 0x12,
        /// The outcome of Cross-Controller Resets (TP8028).
        CROSS_CONTROLLER_RESET = 0x1e,
        /// Discovery.
        DISCOVERY = 0x70,
        /// Notifications of reservations.
        RESERVATIONS = 0x80,
    }
}

/// LSP of the ANA log: group descriptors only, without their NSIDs (RGO).
pub const ANA_GROUPS_ONLY: u8 = 1;

/// The arguments of Get Log Page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetLogPage {
    /// The log page.
    pub log: LogId,
    /// LSP: a parameter whose meaning depends on the log page.
    pub parameter: u8,
    /// RAE: reading does not clear the event of the log page.
    pub retain_event: bool,
    /// NUMD plus one, times four: how many bytes are asked for.
    pub bytes: u64,
    /// LPO: the first byte that is asked for.
    pub offset: u64,
    /// The namespace; [`crate::NSID_ALL`] for the controller.
    pub nsid: u32,
}

impl GetLogPage {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        let numd = (sqe.cdw10 >> 16) as u64 | ((sqe.cdw11 & 0xffff) as u64) << 16;
        Self {
            log: LogId(sqe.cdw10 as u8),
            parameter: (sqe.cdw10 >> 8 & 0x7f) as u8,
            retain_event: sqe.cdw10 >> 15 & 1 != 0,
            bytes: (numd + 1) * 4,
            offset: sqe.cdw12_13(),
            nsid: sqe.nsid,
        }
    }

    /// The command. The length is rounded up to a multiple of four.
    #[must_use]
    pub fn command(&self, cid: u16, sgl: Sgl) -> Sqe {
        let numd = self.bytes.div_ceil(4).saturating_sub(1) as u32;
        let retain = u32::from(self.retain_event) << 15;
        Sqe {
            sgl,
            cdw10: u32::from(self.log.0) | u32::from(self.parameter & 0x7f) << 8 | retain | numd << 16,
            cdw11: numd >> 16,
            cdw12: self.offset as u32,
            cdw13: (self.offset >> 32) as u32,
            ..Sqe::new(AdminOpcode::GET_LOG_PAGE.0, cid, self.nsid)
        }
    }

    /// The part of a log that is asked for, as many bytes as that are; what is beyond the end of
    /// the log is zero. `None` if the part begins beyond the end, or not at a multiple of four.
    #[must_use]
    pub fn part(&self, log: &[u8]) -> Option<Vec<u8>> {
        let (start, bytes) = (usize::try_from(self.offset).ok()?, usize::try_from(self.bytes).ok()?);
        if !start.is_multiple_of(4) {
            return None;
        }
        let rest = log.get(start..)?;
        let mut part = rest.get(..bytes).unwrap_or(rest).to_vec();
        part.resize(bytes, 0);
        Some(part)
    }
}

#[cfg(test)]
mod tests;

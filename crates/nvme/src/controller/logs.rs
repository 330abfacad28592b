//! What Get Log Page answers. NVMe Base, "Get Log Page Command".

use super::admin::Answer;
use super::association::Association;
use super::config::Kind;
use super::subsystem::Subsystem;
use crate::command::{AdminOpcode, IoOpcode};
use crate::cross_reset::LOG_HEADER_BYTES;
use crate::feature::Event;
use crate::layout::text;
use crate::log_page::{
    ANA_GROUP_BYTES, ANA_GROUPS_ONLY, ANA_HEAD_BYTES, CommandEffects, Effects, FirmwareSlots, GetLogPage,
    Health, LogId, SupportedPages,
};
use crate::{NSID_ALL, Sqe, Status};
use std::time::Duration;

/// The log pages of controllers for input and output.
const IO_LOGS: [LogId; 10] = [
    LogId::SUPPORTED_PAGES,
    LogId::ERRORS,
    LogId::HEALTH,
    LogId::FIRMWARE,
    LogId::CHANGED_NAMESPACES,
    LogId::COMMAND_EFFECTS,
    LogId::ANA,
    LogId::FEATURE_EFFECTS,
    LogId::CROSS_CONTROLLER_RESET,
    LogId::RESERVATIONS,
];

/// The commands of the admin queue.
const ADMIN_COMMANDS: [AdminOpcode; 8] = [
    AdminOpcode::GET_LOG_PAGE,
    AdminOpcode::IDENTIFY,
    AdminOpcode::ABORT,
    AdminOpcode::SET_FEATURES,
    AdminOpcode::GET_FEATURES,
    AdminOpcode::ASYNC_EVENT_REQUEST,
    AdminOpcode::KEEP_ALIVE,
    AdminOpcode::CROSS_CONTROLLER_RESET,
];

/// A temperature that raises no warning, in kelvins.
const TEMPERATURE: u16 = 300;

/// 512 bytes, a thousand times: the unit in which health counts data.
const DATA_UNIT_BYTES: u64 = 512_000;

/// What the namespaces of a subsystem have moved, for its health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Commands that have read.
    pub reads: u64,
    /// Commands that have written.
    pub writes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
}

impl Subsystem {
    /// What was moved until now. To be said before a command that [asks for
    /// it](Self::asks_for_io_counts).
    pub const fn set_io_counts(&mut self, counts: IoCounts) {
        self.io_counts = counts;
    }

    /// Whether the answer to a command of an admin queue has these counts in it.
    #[must_use]
    pub fn asks_for_io_counts(sqe: &Sqe) -> bool {
        AdminOpcode(sqe.opcode) == AdminOpcode::GET_LOG_PAGE && GetLogPage::of(sqe).log == LogId::HEALTH
    }

    pub(super) fn log_page(
        &mut self,
        now: Duration,
        cntlid: u16,
        sqe: &Sqe,
        room: u32,
    ) -> Result<Answer, Status> {
        let arguments = GetLogPage::of(sqe);
        // Before anything is made for it.
        if arguments.bytes > u64::from(room) {
            return Err(Status::SGL_INVALID_LENGTH.no_retry());
        }
        let log = match (self.config.kind, arguments.log) {
            (Kind::Discovery, LogId::DISCOVERY) => return self.discovery_log(cntlid, &arguments),
            (Kind::Io, log) if self.io_logs().any(|one| one == log) => {
                self.io_log(now, cntlid, &arguments)?
            }
            _ => return Err(Status::INVALID_LOG_PAGE.no_retry()),
        };
        let part = arguments.part(&log).ok_or(Status::INVALID_FIELD.no_retry())?;
        self.log_was_read(cntlid, &arguments);
        Ok(Answer::data(part))
    }

    fn io_log(&self, now: Duration, cntlid: u16, arguments: &GetLogPage) -> Result<Vec<u8>, Status> {
        let controller = self.controllers.get(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        Ok(match arguments.log {
            LogId::SUPPORTED_PAGES => SupportedPages::of(self.io_logs().map(|log| log.0)).encode().to_vec(),
            LogId::ERRORS => controller.errors.iter().flat_map(|entry| entry.encode()).collect(),
            LogId::HEALTH => {
                // There is none for single namespaces.
                if !matches!(arguments.nsid, 0 | NSID_ALL) {
                    return Err(Status::INVALID_FIELD.no_retry());
                }
                self.health(now, controller).encode().to_vec()
            }
            LogId::FIRMWARE => {
                let revision_1 = text(&self.config.firmware, b' ');
                FirmwareSlots { active: 1, revision_1 }.encode().to_vec()
            }
            LogId::RESERVATIONS => controller.notifications.oldest().encode().to_vec(),
            LogId::CHANGED_NAMESPACES => controller.changed.encode().to_vec(),
            LogId::COMMAND_EFFECTS => effects(self.config.reservations).encode().to_vec(),
            // Each command is completed when its reset is over, so there is never an entry.
            LogId::CROSS_CONTROLLER_RESET => vec![0; LOG_HEADER_BYTES],
            LogId::FEATURE_EFFECTS => {
                SupportedPages::of(self.io_features().map(|feature| feature.0)).encode().to_vec()
            }
            _ => {
                let mut log = self.ana_log(controller).encode(arguments.parameter & ANA_GROUPS_ONLY != 0);
                log.resize(log.len().max(self.ana_log_bytes_max()), 0);
                log
            }
        })
    }

    /// The length of an ANA log with all groups and namespaces that there may be. Tools read so
    /// much of it, in parts.
    fn ana_log_bytes_max(&self) -> usize {
        let namespaces = usize::try_from(self.config.limits.nsid).unwrap_or(usize::MAX);
        ANA_HEAD_BYTES + self.group_changes.len() * ANA_GROUP_BYTES + namespaces.saturating_mul(4)
    }

    fn io_logs(&self) -> impl Iterator<Item = LogId> {
        let has = self.config.reservations;
        IO_LOGS.into_iter().filter(move |log| has || *log != LogId::RESERVATIONS)
    }

    /// Reading a log clears its event, unless the host retains it.
    fn log_was_read(&mut self, cntlid: u16, arguments: &GetLogPage) {
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        if arguments.retain_event {
            return;
        }
        match arguments.log {
            LogId::CHANGED_NAMESPACES => {
                controller.has_read_changes();
                controller.events.unmask(Event::NAMESPACE_CHANGED);
            }
            LogId::ANA => controller.events.unmask(Event::ANA_CHANGED),
            LogId::RESERVATIONS => {
                controller.events.unmask(Event::RESERVATIONS);
                if controller.notifications.remove_oldest() {
                    controller.events.raise(Event::RESERVATIONS);
                }
            }
            LogId::DISCOVERY => controller.events.unmask(Event::DISCOVERY_CHANGED),
            _ => {}
        }
    }

    fn health(&self, now: Duration, controller: &Association) -> Health {
        Health {
            temperature: TEMPERATURE,
            available_spare: 100,
            data_units_read: self.io_counts.read_bytes.div_ceil(DATA_UNIT_BYTES).into(),
            data_units_written: self.io_counts.written_bytes.div_ceil(DATA_UNIT_BYTES).into(),
            host_reads: self.io_counts.reads.into(),
            host_writes: self.io_counts.writes.into(),
            power_on_hours: u128::from(now.saturating_sub(self.began).as_secs() / 3600),
            error_entries: controller.error_count.into(),
            ..Health::default()
        }
    }

    fn discovery_log(&mut self, cntlid: u16, arguments: &GetLogPage) -> Result<Answer, Status> {
        let records = self.records_for(cntlid);
        let controller = self.controllers.get_mut(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        // A log that is read in parts is that of its beginning.
        if arguments.offset == 0 || controller.discovery.is_none() {
            controller.discovery = Some(records.encode());
        }
        let log = controller.discovery.as_deref().unwrap_or_default();
        let part = arguments.part(log).ok_or(Status::INVALID_FIELD.no_retry())?;
        self.log_was_read(cntlid, arguments);
        Ok(Answer::data(part))
    }
}

/// What the commands do.
fn effects(reservations: bool) -> CommandEffects {
    let mut effects = CommandEffects::default();
    let mut set = |opcode: u8, is_io: bool, value: Effects| {
        let table = if is_io { &mut effects.io } else { &mut effects.admin };
        if let Some(place) = table.get_mut(usize::from(opcode)) {
            *place = value;
        }
    };
    ADMIN_COMMANDS.iter().for_each(|opcode| set(opcode.0, false, Effects::SUPPORTED));
    set(crate::end_controller::END_CONTROLLER, false, Effects::SUPPORTED);
    for opcode in [IoOpcode::READ, IoOpcode::COMPARE, IoOpcode::FLUSH] {
        set(opcode.0, true, Effects::SUPPORTED);
    }
    for opcode in [IoOpcode::WRITE, IoOpcode::WRITE_ZEROES, IoOpcode::DATASET_MANAGEMENT] {
        set(opcode.0, true, Effects::SUPPORTED.with(Effects::CHANGES_BLOCKS));
    }
    let of_reservations = [
        IoOpcode::RESERVATION_REGISTER,
        IoOpcode::RESERVATION_REPORT,
        IoOpcode::RESERVATION_ACQUIRE,
        IoOpcode::RESERVATION_RELEASE,
    ];
    for opcode in of_reservations.into_iter().filter(|_| reservations) {
        set(opcode.0, true, Effects::SUPPORTED);
    }
    effects
}

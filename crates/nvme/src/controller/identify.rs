//! What Identify answers. NVMe Base, "Identify Command".

use super::admin::{Answer, VERSION};
use super::association::Association;
use super::config::{KEEP_ALIVE_UNIT_100_MS, Kind};
use super::ending::{WAITING_MAX, uniquifier};
use super::fused::FUSED_BLOCKS_MAX;
use super::namespace::Volume;
use super::subsystem::Subsystem;
use crate::Transport;
use crate::end_controller::END_CONTROLLER_SIGNATURE;
use crate::identify::{
    AnaCapabilities, AsyncEvents, Cns, CntrlType, CommandSet, CommandSets, Controller, ControllerAttributes,
    Descriptors, FUSES_COMPARE_AND_WRITE, IDENTIFY_BYTES, Identify, IndependentNamespace, LbaFormat,
    LogPageAttributes, MultiPath, NSTAT_READY, Namespace, NamespaceFeatures, NamespaceList, NvmController,
    NvmNamespace, OptionalCommands, RESCAP_ALL, SglSupport, Shared, VWC_PRESENT,
};
use crate::layout::text;
use crate::{NSID_ALL, Sqe, Status};

/// VWC bits 2:1: Flush for all namespaces is not supported.
const VWC_NO_BROADCAST: u8 = 2 << 1;

/// DLFEAT: deallocated blocks read as zeroes.
const DLFEAT_ZEROES: u8 = 1;

/// DLFEAT: Write Zeroes may deallocate.
const DLFEAT_WRITE_ZEROES: u8 = 1 << 3;

impl Subsystem {
    pub(super) fn identify(&self, cntlid: u16, sqe: &Sqe) -> Result<Answer, Status> {
        let controller = self.controllers.get(&cntlid).ok_or(Status::INTERNAL_ERROR)?;
        let arguments = Identify::of(sqe);
        if sqe.sgl.length() != Some(IDENTIFY_BYTES as u32) {
            return Err(Status::SGL_INVALID_LENGTH.no_retry());
        }
        if self.config.kind == Kind::Discovery && arguments.cns != Cns::CONTROLLER {
            return Err(Status::INVALID_FIELD.no_retry());
        }
        let data = match arguments.cns {
            Cns::CONTROLLER => self.identify_controller(cntlid, controller).encode(),
            Cns::NAMESPACE => self.identify_namespace(controller, arguments.nsid)?.encode(),
            Cns::ACTIVE_NAMESPACES => active(controller, arguments.nsid)?.encode(),
            Cns::NAMESPACE_DESCRIPTORS => {
                let (_, volume) = self.volume(controller, arguments.nsid)?;
                Descriptors { ids: volume.ids, command_set: Some(CommandSet::NVM) }.encode()
            }
            Cns::COMMAND_SETS => CommandSets::NVM.encode(),
            Cns::INDEPENDENT_NAMESPACE => self.independent(controller, arguments.nsid)?.encode(),
            Cns::COMMAND_SET_CONTROLLER | Cns::COMMAND_SET_NAMESPACE | Cns::COMMAND_SET_ACTIVE_NAMESPACES => {
                self.of_command_set(controller, &arguments)?
            }
            _ => return Err(Status::INVALID_FIELD.no_retry()),
        };
        Ok(Answer::data(data.to_vec()))
    }

    /// The structures that the NVM command set has; there is no other.
    fn of_command_set(
        &self,
        controller: &Association,
        arguments: &Identify,
    ) -> Result<[u8; IDENTIFY_BYTES], Status> {
        if arguments.command_set != CommandSet::NVM {
            return Err(Status::INVALID_IO_COMMAND_SET.no_retry());
        }
        match arguments.cns {
            Cns::COMMAND_SET_CONTROLLER => Ok(self.nvm_limits().encode()),
            Cns::COMMAND_SET_NAMESPACE => {
                self.volume(controller, arguments.nsid)?;
                Ok(NvmNamespace::default().encode())
            }
            _ => Ok(active(controller, arguments.nsid)?.encode()),
        }
    }

    /// A volume that the host sees.
    fn volume(&self, controller: &Association, nsid: u32) -> Result<(u32, &Volume), Status> {
        let seen = controller.view.namespace(nsid).filter(|_| nsid != NSID_ALL);
        let volume = seen.and_then(|_| self.volumes.get(&nsid));
        volume.map(|volume| (nsid, volume)).ok_or(Status::INVALID_NAMESPACE.no_retry())
    }

    fn identify_controller(&self, cntlid: u16, controller: &Association) -> Controller {
        let (config, limits) = (&self.config, &self.config.limits);
        // 4 KiB times a power of two.
        let mdts = (limits.transfer_bytes / 4096).max(1).ilog2();
        let common = Controller {
            serial: text(&config.serial, b' '),
            model: text(&config.model, b' '),
            firmware: text(&config.firmware, b' '),
            mdts: u8::try_from(mdts).unwrap_or_default(),
            cntlid,
            version: VERSION,
            async_event_limit: limits.async_events.max(1) - 1,
            log_pages: LogPageAttributes::EXTENDED,
            error_log_entries: super::association::ERRORS_MAX as u8 - 1,
            keep_alive_100_ms: KEEP_ALIVE_UNIT_100_MS,
            attributes: ControllerAttributes::HOST_ID_128.with(ControllerAttributes::TRAFFIC_KEEPS_ALIVE),
            maxcmd: u16::try_from(self.mqes() + 1).unwrap_or(u16::MAX),
            sgls: sgls(controller),
            subnqn: config.nqn.encode(),
            ioccsz: 4 + controller.port.capsule_data_bytes / 16,
            iorcsz: 1,
            msdbd: 1,
            ..Controller::default()
        };
        match config.kind {
            Kind::Io => self.io_controller(controller, common),
            Kind::Discovery => Controller {
                kind: CntrlType::DISCOVERY,
                events: AsyncEvents::DISCOVERY_CHANGED,
                discovery_type: 1,
                ..common
            },
        }
    }

    fn io_controller(&self, controller: &Association, common: Controller) -> Controller {
        let limits = &self.config.limits;
        // Of all volumes: a host reads it once, and may see more of them later.
        let cached = self.volumes.values().any(|volume| volume.volatile_cache);
        let optional = OptionalCommands::COMPARE
            .with(OptionalCommands::DATASET_MANAGEMENT)
            .with(OptionalCommands::WRITE_ZEROES)
            .with(OptionalCommands::TIMESTAMP);
        let groups = u32::try_from(self.group_changes.len()).unwrap_or(u32::MAX);
        Controller {
            kind: CntrlType::IO,
            multi_path: MultiPath::PORTS.with(MultiPath::CONTROLLERS).with(MultiPath::ANA),
            events: AsyncEvents::NAMESPACE_CHANGED.with(AsyncEvents::ANA_CHANGED),
            retry_delays_100_ms: [1, 0, 0],
            abort_limit: 3,
            // One slot, which is read only.
            firmware_slots: 1 << 1 | 1,
            log_pages: common
                .log_pages
                .with(LogPageAttributes::COMMAND_EFFECTS)
                .with(LogPageAttributes::SUPPORTED_PAGES),
            warning_temperature: 0x0157,
            critical_temperature: 0x0175,
            ana_transition_s: u8::try_from(limits.ana_transition.as_secs()).unwrap_or(u8::MAX),
            ana: AnaCapabilities::OPTIMIZED
                .with(AnaCapabilities::NON_OPTIMIZED)
                .with(AnaCapabilities::INACCESSIBLE)
                .with(AnaCapabilities::PERSISTENT_LOSS)
                .with(AnaCapabilities::CHANGE),
            ana_group_max: groups,
            ana_groups: groups,
            sqes: 0x66,
            cqes: 0x44,
            nn: limits.nsid,
            mnan: limits.nsid,
            optional_commands: if self.config.reservations {
                optional.with(OptionalCommands::RESERVATIONS)
            } else {
                optional
            },
            fuses: FUSES_COMPARE_AND_WRITE,
            acwu: FUSED_BLOCKS_MAX - 1,
            vwc: if cached { VWC_PRESENT | VWC_NO_BROADCAST } else { VWC_NO_BROADCAST },
            ofcs: 1,
            instance: uniquifier(controller.instance),
            instance_random: controller.instance.to_le_bytes(),
            cross_reset_limit: WAITING_MAX as u8,
            end_signature: END_CONTROLLER_SIGNATURE,
            end_node: self.end_node(),
            end_instance: controller.instance,
            ..common
        }
    }

    /// Optional commands are bounded by their ranges only, whatever data they would stand for.
    fn nvm_limits(&self) -> NvmController {
        NvmController { dsm_ranges: 255, ..NvmController::default() }
    }

    fn identify_namespace(&self, controller: &Association, nsid: u32) -> Result<Namespace, Status> {
        // All namespaces: what they have in common, of which there is nothing. An NSID that is not
        // active is a structure of zeroes, and one that cannot be is an error.
        if nsid == NSID_ALL || nsid == 0 || nsid > self.config.limits.nsid {
            return Err(Status::INVALID_NAMESPACE.no_retry());
        }
        let Ok((_, volume)) = self.volume(controller, nsid) else { return Ok(Namespace::default()) };
        let mut formats = [LbaFormat::default(); 16];
        if let Some(format) = formats.first_mut() {
            format.shift = volume.block_shift;
        }
        let zeroes = DLFEAT_ZEROES | DLFEAT_WRITE_ZEROES;
        let preferred = volume.preferred_blocks;
        Ok(Namespace {
            size: volume.blocks,
            capacity: volume.blocks,
            utilization: volume.blocks,
            features: if preferred > 0 { NamespaceFeatures::OPTIMAL_IO } else { NamespaceFeatures::NONE },
            shared: Shared::SHARED,
            reservations: self.rescap(),
            deallocation: if volume.deallocated_reads_zero { zeroes } else { 0 },
            noiob: preferred,
            npwg: preferred.saturating_sub(1),
            npwa: preferred.saturating_sub(1),
            nows: preferred.saturating_sub(1),
            ana_group: self.group_of(nsid),
            attributes: volume.write_protected.into(),
            nguid: volume.ids.nguid.unwrap_or_default(),
            eui64: volume.ids.eui64.unwrap_or_default(),
            formats,
            ..Namespace::default()
        })
    }

    /// RESCAP.
    const fn rescap(&self) -> u8 {
        if self.config.reservations { RESCAP_ALL } else { 0 }
    }

    fn independent(&self, controller: &Association, nsid: u32) -> Result<IndependentNamespace, Status> {
        let (_, volume) = self.volume(controller, nsid)?;
        Ok(IndependentNamespace {
            shared: Shared::SHARED,
            reservations: self.rescap(),
            ana_group: self.group_of(nsid),
            attributes: volume.write_protected.into(),
            state: NSTAT_READY,
            ..IndependentNamespace::default()
        })
    }
}

/// The NSIDs that the host sees above the given one.
fn active(controller: &Association, above: u32) -> Result<NamespaceList, Status> {
    // These two cannot be followed by an NSID.
    if above >= NSID_ALL - 1 {
        return Err(Status::INVALID_NAMESPACE.no_retry());
    }
    Ok(NamespaceList::above(above, controller.view.namespaces.iter().map(|namespace| namespace.nsid)))
}

fn sgls(controller: &Association) -> SglSupport {
    let mut sgls = match controller.port.transport {
        Transport::Tcp => SglSupport::SUPPORTED.with(SglSupport::TRANSPORT),
        Transport::Rdma => SglSupport::SUPPORTED.with(SglSupport::KEYED),
    };
    if controller.port.capsule_data_bytes >= 16 {
        sgls = sgls.with(SglSupport::IN_CAPSULE);
    }
    sgls
}

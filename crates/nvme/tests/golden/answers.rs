//! What the kernel's target answers: each structure decoded to what nvme-cli has printed of it, and
//! encoded again to the same bytes.

use crate::capture::{Capture, Exchange};
use crate::commands::{SUBSYSTEM, nqn};
use nvme::fabrics::{Connected, FabricsType, InvalidParameter};
use nvme::feature::{Event, QueueCounts};
use nvme::identify::{
    AnaCapabilities, AsyncEvents, Cns, CntrlType, CommandSet, Controller, ControllerAttributes, Descriptors,
    Identify, LbaFormat, LogPageAttributes, MultiPath, Namespace, NamespaceFeatures, NamespaceIds,
    NamespaceList, NvmController, OptionalCommands, SglSupport, Shared, VWC_PRESENT,
};
use nvme::log_page::{
    AddressFamily, AnaGroup, AnaLog, AnaState, ChangedNamespaces, CommandEffects, DiscoveryEntry,
    DiscoveryLog, Effects, EntryFlags, ErrorEntry, GetLogPage, Health, LogId, SubsystemType,
    TransportRequirements, TransportType,
};
use nvme::register::{Capabilities, Version};
use nvme::{AdminOpcode, IoOpcode, Nqn, NqnError, Status};
use std::collections::BTreeSet;

/// Where a structure of the kernel has other bytes than ours: fields that are not declared here,
/// since nobody uses them.
const CONTROLLER_UNDECLARED: [(usize, u8); 6] = [
    // RAB, the recommended arbitration burst.
    (72, 6),
    // NWPC: a namespace can be write protected.
    (531, 1),
    // The only power state: 25 W, entered in 16 us and left in 4 us.
    (2048, 0xc4),
    (2049, 0x09),
    (2052, 16),
    (2056, 4),
];

fn admin(one: &Exchange, opcode: AdminOpcode) -> bool {
    one.qid == 0 && AdminOpcode(one.sqe.opcode) == opcode
}

/// The answers to Identify with this CNS during a command.
fn identified(exchanges: &[Exchange], cns: Cns) -> Vec<Vec<u8>> {
    let of = |one: &&Exchange| admin(one, AdminOpcode::IDENTIFY) && Identify::of(&one.sqe).cns == cns;
    exchanges.iter().filter(of).map(|one| one.to_host.clone()).filter(|data| !data.is_empty()).collect()
}

/// The parts of this log that were read during a command.
fn logged(exchanges: &[Exchange], log: LogId) -> Vec<Vec<u8>> {
    let of = |one: &&Exchange| admin(one, AdminOpcode::GET_LOG_PAGE) && GetLogPage::of(&one.sqe).log == log;
    exchanges.iter().filter(of).map(|one| one.to_host.clone()).collect()
}

/// The bytes that differ: where, and what the kernel has there.
fn differences(kernel: &[u8], ours: &[u8]) -> Vec<(usize, u8)> {
    assert_eq!(kernel.len(), ours.len());
    let both = kernel.iter().zip(ours).enumerate();
    both.filter(|(_, (kernel, ours))| kernel != ours).map(|(at, (kernel, _))| (at, *kernel)).collect()
}

/// The descriptors of a list, whatever their order.
fn each(list: &[u8]) -> BTreeSet<&[u8]> {
    let mut found = BTreeSet::new();
    let mut rest = list;
    while let [_, length, ..] = rest
        && *length > 0
    {
        let (descriptor, next) = rest.split_at(4 + usize::from(*length));
        assert!(found.insert(descriptor));
        rest = next;
    }
    assert!(rest.iter().all(|byte| *byte == 0));
    found
}

#[test]
fn every_structure_of_identify_encodes_to_the_same_bytes() {
    let mut controllers = 0;
    for capture in Capture::all() {
        let exchanges = capture.exchanges();
        for data in identified(&exchanges, Cns::CONTROLLER) {
            let controller = Controller::decode(&data).expect("whole");
            let is_io = controller.kind == CntrlType::IO;
            let undeclared = if is_io { CONTROLLER_UNDECLARED.to_vec() } else { Vec::new() };
            assert_eq!(differences(&data, &controller.encode()), undeclared, "{}", capture.name);
            controllers += 1;
        }
        for data in identified(&exchanges, Cns::NAMESPACE) {
            assert_eq!(Namespace::decode(&data).expect("whole").encode()[..], data);
        }
        for data in identified(&exchanges, Cns::ACTIVE_NAMESPACES) {
            assert_eq!(NamespaceList::decode(&data).encode()[..], data);
        }
        for data in identified(&exchanges, Cns::COMMAND_SET_CONTROLLER) {
            assert_eq!(data, NvmController::default().encode(), "the kernel's target has no limits");
        }
        for data in identified(&exchanges, Cns::NAMESPACE_DESCRIPTORS) {
            let descriptors = Descriptors::decode(&data).expect("valid");
            assert_eq!(Descriptors::decode(&descriptors.encode()), Ok(descriptors));
            // The order of descriptors is free: the kernel has the UUID before the NGUID.
            assert_eq!(each(&descriptors.encode()), each(&data));
        }
    }
    assert!(controllers > 10, "{controllers}");
}

#[test]
fn every_log_encodes_to_the_same_bytes() {
    let mut logs = 0;
    for capture in Capture::all() {
        let exchanges = capture.exchanges();
        let reads = exchanges.iter().filter(|one| admin(one, AdminOpcode::GET_LOG_PAGE));
        for (arguments, data) in reads.map(|one| (GetLogPage::of(&one.sqe), &one.to_host)) {
            assert_eq!(data.len() as u64, arguments.bytes);
            let mut encoded = match arguments.log {
                // A part that has no group.
                LogId::ANA if data.len() == 16 => continue,
                LogId::ANA => AnaLog::decode(data).expect("valid").encode(false),
                LogId::HEALTH => Health::decode(data).expect("whole").encode().to_vec(),
                LogId::COMMAND_EFFECTS => CommandEffects::decode(data).encode().to_vec(),
                LogId::CHANGED_NAMESPACES => {
                    ChangedNamespaces::decode(data).expect("few changed").encode().to_vec()
                }
                LogId::ERRORS => {
                    let entries = data.chunks_exact(ErrorEntry::BYTES);
                    entries.flat_map(|entry| ErrorEntry::decode(entry).expect("whole").encode()).collect()
                }
                // The head alone is read first.
                LogId::DISCOVERY if data.len() == 1024 => continue,
                LogId::DISCOVERY => DiscoveryLog::decode(data).expect("whole").encode(),
                log => panic!("{log:?}"),
            };
            // Room for groups and namespaces that are not there. The kernel takes no offset into
            // the ANA log: it answers with the beginning each time.
            encoded.resize(data.len(), 0);
            assert_eq!(encoded, *data, "{}: {arguments:?}", capture.name);
            logs += 1;
        }
    }
    assert!(logs > 30, "{logs}");
}

#[test]
fn a_controller_is_what_nvme_id_ctrl_prints() {
    let data = identified(&Capture::named("commands").during("nvme id-ctrl /dev/nvme0"), Cns::CONTROLLER);
    let ana = AnaCapabilities::OPTIMIZED
        .with(AnaCapabilities::NON_OPTIMIZED)
        .with(AnaCapabilities::INACCESSIBLE)
        .with(AnaCapabilities::PERSISTENT_LOSS)
        .with(AnaCapabilities::CHANGE);
    let expected = Controller {
        serial: *b"0123456789abcdef    ",
        model: *b"Golden                                  ",
        firmware: *b"6.1.0-57",
        multi_path: MultiPath::PORTS.with(MultiPath::CONTROLLERS).with(MultiPath::ANA),
        cntlid: 1,
        version: Version::V1_3,
        events: AsyncEvents::NAMESPACE_CHANGED.with(AsyncEvents::ANA_CHANGED),
        attributes: ControllerAttributes::HOST_ID_128.with(ControllerAttributes::TRAFFIC_KEEPS_ALIVE),
        kind: CntrlType::IO,
        abort_limit: 3,
        async_event_limit: 3,
        firmware_slots: 3,
        // Bit 0: there is a log of health for each namespace.
        log_pages: LogPageAttributes::COMMAND_EFFECTS
            .with(LogPageAttributes::EXTENDED)
            .with(LogPageAttributes(1)),
        error_log_entries: 127,
        keep_alive_100_ms: 10,
        ana_transition_s: 10,
        ana,
        ana_group_max: 128,
        ana_groups: 128,
        sqes: 0x66,
        cqes: 0x44,
        maxcmd: 1024,
        nn: 1024,
        optional_commands: OptionalCommands::DATASET_MANAGEMENT.with(OptionalCommands::WRITE_ZEROES),
        vwc: VWC_PRESENT,
        sgls: SglSupport::SUPPORTED.with(SglSupport::IN_CAPSULE),
        mnan: 1024,
        subnqn: nqn(SUBSYSTEM).encode(),
        ioccsz: 1028,
        iorcsz: 1,
        msdbd: 1,
        ..Controller::default()
    };
    assert_eq!(Controller::decode(&data[0]), Ok(expected));
}

#[test]
fn a_namespace_is_what_nvme_id_ns_prints() {
    let capture = Capture::named("commands");
    let data = identified(&capture.during("nvme id-ns /dev/nvme0n1"), Cns::NAMESPACE);
    let mut formats = [LbaFormat::default(); 16];
    formats[0].shift = 9;
    let expected = Namespace {
        size: 0x2_0000,
        capacity: 0x2_0000,
        utilization: 0x2_0000,
        features: NamespaceFeatures::ATOMICITY.with(NamespaceFeatures::OPTIMAL_IO),
        shared: Shared::SHARED,
        npdg: 7,
        npda: 7,
        ana_group: 1,
        nguid: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes(),
        formats,
        ..Namespace::default()
    };
    assert_eq!(Namespace::decode(&data[0]), Ok(expected));
    let exchanges = capture.during("at the target: echo 1 > namespaces/2/enable");
    let second = identified(&exchanges, Cns::NAMESPACE).pop().expect("the second namespace is last");
    let second = Namespace::decode(&second).expect("whole");
    assert_eq!((second.size, second.ana_group, second.lba_format().shift), (0x2000, 2, 12));
}

#[test]
fn the_names_and_the_lists_of_namespaces() {
    let capture = Capture::named("commands");
    let descriptors = |note: &str| {
        identified(&capture.during(note), Cns::NAMESPACE_DESCRIPTORS).pop().expect("descriptors")
    };
    let uuid = |last: u8| Some(u128::from(last).to_be_bytes());
    let nguid = Some(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes());
    let expected = |nguid, uuid| {
        Ok(Descriptors { ids: NamespaceIds { eui64: None, nguid, uuid }, command_set: Some(CommandSet::NVM) })
    };
    let first = descriptors("nvme ns-descs /dev/nvme0n1");
    assert_eq!(Descriptors::decode(&first), expected(nguid, uuid(0xa1)));
    let enabled = "at the target: echo 1 > namespaces/2/enable";
    assert_eq!(Descriptors::decode(&descriptors(enabled)), expected(None, uuid(0xb2)));
    let list = |note: &str| {
        let data = identified(&capture.during(note), Cns::ACTIVE_NAMESPACES).pop().expect("a list");
        NamespaceList::decode(&data).0
    };
    assert_eq!(list("nvme list-ns /dev/nvme0"), [1]);
    assert_eq!(list(enabled), [1, 2]);
    let changed = logged(&capture.during(enabled), LogId::CHANGED_NAMESPACES);
    assert_eq!(ChangedNamespaces::decode(&changed[0]), Some(NamespaceList(vec![2])));
    let unchanged = logged(&capture.during("nvme changed-ns-list-log /dev/nvme0"), LogId::CHANGED_NAMESPACES);
    assert_eq!(ChangedNamespaces::decode(&unchanged[0]), Some(NamespaceList::default()));
}

#[test]
fn the_discovery_log_is_what_nvme_discover_prints() {
    let log = logged(&Capture::named("discovery").exchanges(), LogId::DISCOVERY).pop().expect("a log");
    let log = DiscoveryLog::decode(&log).expect("whole");
    assert_eq!((log.generation, log.entries.len()), (2, 2));
    let expected =
        [(SubsystemType::CURRENT_DISCOVERY, Nqn::discovery()), (SubsystemType::NVM, nqn(SUBSYSTEM))];
    for (entry, (kind, subsystem)) in log.entries.iter().zip(expected) {
        let DiscoveryEntry { transport, family, subsystem_type, requirements, port, cntlid, .. } = *entry;
        assert_eq!((transport, family, subsystem_type), (TransportType::TCP, AddressFamily::IPV4, kind));
        assert_eq!((requirements, entry.flags), (TransportRequirements::DISABLE_SQ_FLOW, EntryFlags::NONE));
        assert_eq!((port, cntlid, entry.admin_queue_size), (1, 0xffff, 32));
        assert_eq!((entry.address(), entry.service()), (b"127.0.0.1".as_slice(), b"4420".as_slice()));
        assert_eq!((entry.subsystem(), entry.subtype), (Ok::<_, NqnError>(subsystem), [0; 256]));
    }
}

#[test]
fn the_logs_are_what_nvme_cli_prints() {
    let capture = Capture::named("commands");
    let log = |note: &str, log| logged(&capture.during(note), log).remove(0);
    let health = Health { data_units_read: 1, host_reads: 3, ..Health::default() };
    assert_eq!(Health::decode(&log("nvme smart-log /dev/nvme0", LogId::HEALTH)), Ok(health));
    let ana = |changes, first, nsids: &[u32]| {
        let group = |id, state, nsids: &[u32]| AnaGroup { id, changes, state, nsids: nsids.to_vec() };
        let groups = vec![group(1, first, &[1]), group(2, AnaState::INACCESSIBLE, nsids)];
        Ok(AnaLog { changes, groups })
    };
    let printed = log("nvme ana-log /dev/nvme0", LogId::ANA);
    assert_eq!(AnaLog::decode(&printed), ana(1, AnaState::OPTIMIZED, &[]));
    let changed = log("at the target: echo non-optimized > ana_groups/1/ana_state", LogId::ANA);
    assert_eq!(AnaLog::decode(&changed), ana(2, AnaState::NON_OPTIMIZED, &[]));
    let enabled = log("at the target: echo 1 > namespaces/2/enable", LogId::ANA);
    assert_eq!(AnaLog::decode(&enabled), ana(2, AnaState::NON_OPTIMIZED, &[2]));
    // The host has read it, for itself and for tools.
    let effects = logged(&capture.exchanges(), LogId::COMMAND_EFFECTS).remove(0);
    let effects = CommandEffects::decode(&effects);
    let supported = |table: &[Effects; 256]| -> Vec<usize> {
        (0..256).filter(|opcode| table[*opcode].has(Effects::SUPPORTED)).collect()
    };
    assert_eq!(supported(&effects.admin), [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18]);
    assert_eq!(supported(&effects.io), [0x00, 0x01, 0x02, 0x08, 0x09]);
    let errors = log("nvme error-log /dev/nvme0 -e 2", LogId::ERRORS);
    let errors =
        errors.chunks_exact(ErrorEntry::BYTES).map(|entry| ErrorEntry::decode(entry).expect("whole"));
    let errors: Vec<_> = errors.map(|one| (one.count, one.sqid, one.status, one.lba, one.nsid)).collect();
    let status = Status::INTERNAL_ERROR.no_retry();
    assert_eq!(errors, [(9, 1, status, 0x1_ffff, 1), (8, 1, status, 0x2_0000, 1)]);
}

#[test]
fn features_and_properties_have_the_values_that_nvme_cli_prints() {
    let capture = Capture::named("commands");
    let result = |note: &str| {
        // The host may have commands of its own under way.
        let arguments = [AdminOpcode::GET_FEATURES, AdminOpcode::SET_FEATURES, AdminOpcode::FABRICS];
        let asked = |one: &Exchange| arguments.iter().any(|opcode| admin(one, *opcode));
        let one = capture.during(note).into_iter().find(asked).expect("a command");
        let cqe = one.cqe.expect("a completion");
        assert_eq!(cqe.status, Status::SUCCESS, "{note}");
        cqe.result
    };
    let queues = result("nvme get-feature /dev/nvme0 -f 7");
    assert_eq!(queues, 0x007f_007f);
    let all = QueueCounts { submission: 128, completion: 128 };
    assert_eq!(QueueCounts::decode(queues as u32), Some(all));
    assert_eq!(result("nvme get-feature /dev/nvme0 -f 0xf"), 2000);
    assert_eq!(result("nvme get-feature /dev/nvme0 -f 0xb"), 0x900);
    assert_eq!(result("nvme get-feature /dev/nvme0 -f 6"), 1);
    assert_eq!(result("nvme get-feature /dev/nvme0 -f 0x84 -n 1"), 1);
    // The timeout of the controller from now on, in seconds.
    assert_eq!(result("nvme set-feature /dev/nvme0 -f 0xf -v 3000"), 3);
    let capabilities = Capabilities {
        mqes: 1023,
        timeout_500_ms: 15,
        subsystem_reset: false,
        nvm_command_set: true,
        command_sets: true,
        ready_with_media: false,
        ready_independent_of_media: false,
    };
    let cap = result("nvme get-property /dev/nvme0 -o 0");
    assert_eq!((cap, Capabilities::decode(cap)), (0x0820_0f00_03ff, capabilities));
    // CQR, which fabrics demands, is clear.
    assert_eq!(capabilities.encode(), cap | 1 << 16);
    assert_eq!(result("nvme get-property /dev/nvme0 -o 8"), u64::from(Version::V1_3.0));
    assert_eq!(result("nvme get-property /dev/nvme0 -o 0x14"), 0x0046_0061);
    assert_eq!(result("nvme get-property /dev/nvme0 -o 0x1c"), 1);
}

#[test]
fn failures_have_the_status_that_nvme_cli_prints() {
    let status = |capture: &Capture, note: &str| {
        let one = capture.during(note).pop().expect("a command");
        one.cqe.expect("a completion").status
    };
    let capture = Capture::named("commands");
    let disk = "/dev/nvme0n1";
    for (note, expected) in [
        (format!("nvme verify {disk} -s 0 -c 7"), Status::INVALID_OPCODE.with_more().no_retry()),
        (
            format!("nvme io-passthru {disk} --opcode=0x85 -n 1"),
            Status::INVALID_OPCODE.with_more().no_retry(),
        ),
        (
            "nvme admin-passthru /dev/nvme0 --opcode=0x24".to_owned(),
            Status::INVALID_OPCODE.with_more().no_retry(),
        ),
        (format!("nvme read {disk} -s 131072 -c 7 -z 4096"), Status::INTERNAL_ERROR.with_more().no_retry()),
        (format!("nvme write {disk} -s 131071 -c 7 -z 4096"), Status::INTERNAL_ERROR.with_more().no_retry()),
    ] {
        assert_eq!(status(&capture, &note), expected, "{note}");
    }
    // The same write, while the namespace is protected and afterwards.
    let writes = |one: &&Exchange| one.qid == 1 && IoOpcode(one.sqe.opcode) == IoOpcode::WRITE;
    let written: Vec<Status> = capture
        .during(&format!("nvme write {disk} -s 8 -c 7 -z 4096"))
        .iter()
        .filter(writes)
        .map(|one| one.cqe.expect("a completion").status)
        .collect();
    assert_eq!(written, [Status::NAMESPACE_WRITE_PROTECTED.with_more(), Status::SUCCESS]);
}

#[test]
fn connect_is_answered_with_the_controller_or_with_the_parameter_at_fault() {
    let connected = |name: &str| {
        let connect = Capture::named(name).exchanges().remove(0);
        assert_eq!(FabricsType::of(&connect.sqe), FabricsType::CONNECT);
        connect.cqe.expect("a completion")
    };
    let cqe = connected("commands");
    assert_eq!((cqe.status, Connected::of(cqe.result)), (Status::SUCCESS, Connected::new(1)));
    let cqe = connected("unknown_subsystem");
    assert_eq!(cqe.status, Status::CONNECT_INVALID_PARAMETERS.no_retry());
    assert_eq!(InvalidParameter::of(cqe.result), InvalidParameter::SUBNQN);
    let cqe = connected("refused_host");
    assert_eq!(cqe.status, Status::CONNECT_INVALID_HOST.no_retry());
    assert_eq!(InvalidParameter::of(cqe.result), InvalidParameter::HOSTNQN);
}

#[test]
fn events_name_what_changed() {
    let events = |name: &str| -> Vec<Event> {
        let exchanges = Capture::named(name).exchanges();
        let asked = exchanges.iter().filter(|one| admin(one, AdminOpcode::ASYNC_EVENT_REQUEST));
        let answers = asked.filter_map(|one| one.cqe).filter(|cqe| cqe.status.is_success());
        answers.map(|cqe| Event::of(cqe.result)).collect()
    };
    let (namespaces, ana) = (Event::NAMESPACE_CHANGED, Event::ANA_CHANGED);
    // Write protection twice, the ANA state, and a namespace that comes and goes.
    assert_eq!(events("commands"), [namespaces, namespaces, ana, namespaces, namespaces]);
    assert_eq!(events("discovery_event"), [Event::DISCOVERY_CHANGED]);
}

/// Tools read the ANA log in parts. Of the kernel's target each part is the beginning of the log.
#[test]
fn the_ana_log_of_the_kernel_has_no_offsets() {
    let parts = logged(&Capture::named("commands").during("nvme ana-log /dev/nvme0"), LogId::ANA);
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [4096, 4096, 16]);
    assert!(parts.iter().all(|part| part[..16] == parts[0][..16] && part[0] == 1));
}

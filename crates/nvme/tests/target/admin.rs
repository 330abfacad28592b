//! Identify, logs, features, events and Abort. NVMe Base, "Admin Command Set".

use crate::support::{Target, host_id, only, volume};
use nvme::controller::{IoCounts, Kind, Node, Output, Reach, Volume, VolumeError};
use nvme::feature::{Event, Feature, FeatureId, HostBehavior, Select, Timestamp};
use nvme::identify::{
    AsyncEvents, Cns, CommandSet, CommandSets, ControllerAttributes, Descriptors, Identify,
    IndependentNamespace, MultiPath, Namespace, NamespaceList, NvmController, OptionalCommands, SglSupport,
};
use nvme::log_page::{
    AnaLog, AnaState, ChangedNamespaces, CommandEffects, Effects, ErrorEntry, FirmwareSlots, Health, LogId,
};
use nvme::register::Configuration;
use nvme::{AdminOpcode, NSID_ALL, Sgl, Sqe, Status};
use std::time::Duration;

/// Asks for all events that a controller for input and output has.
fn listen(target: &mut Target, cntlid: u16) {
    let wanted = AsyncEvents::NAMESPACE_CHANGED.with(AsyncEvents::ANA_CHANGED);
    target.set_feature(cntlid, FeatureId::ASYNC_EVENTS, wanted.0).expect("set");
}

fn events(target: &mut Target) -> Vec<(u16, Event)> {
    target.answers().into_iter().map(|(cqe, _)| (cqe.cid, Event::of(cqe.result))).collect()
}

/// What makes the Linux kernel refuse a controller, one by one.
#[test]
fn identify_controller_has_all_that_linux_insists_on() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let controller = target.identify_controller(cntlid);
    assert_eq!(controller.cntlid, cntlid);
    assert!(controller.keep_alive_100_ms > 0);
    assert_eq!((controller.ioccsz, controller.iorcsz, controller.icdoff), (4 + 8192 / 16, 1, 0));
    let sgls = controller.sgls;
    assert!(sgls.has(SglSupport::SUPPORTED) && sgls.has(SglSupport::IN_CAPSULE));
    let multi_path = controller.multi_path;
    assert!(multi_path.has(MultiPath::CONTROLLERS) && multi_path.has(MultiPath::ANA));
    assert!(controller.mnan > 0 && controller.mnan <= controller.nn);
    // One of each node, and three for what is away.
    assert_eq!((controller.ana_groups, controller.ana_group_max), (5, 5));
    assert_eq!((controller.sqes, controller.cqes, controller.maxcmd), (0x66, 0x44, 128));
    // 4 KiB times 2 to the power of 8.
    assert_eq!(controller.mdts, 8);
    assert!(controller.attributes.has(ControllerAttributes::TRAFFIC_KEEPS_ALIVE));
    assert_eq!(&controller.serial, b"0001                ");
    assert_eq!(&controller.subnqn[..21], b"nqn.2026-11.test:arra");
}

#[test]
fn a_write_cache_is_reported_as_the_backends_have_it_also_of_volumes_that_the_host_may_see_later() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    assert_eq!(target.identify_controller(cntlid).vwc & 1, 0);
    let hidden = Volume { volatile_cache: true, hosts: only(&["other"]), ..volume(2) };
    target.subsystem.set_volume(2, hidden).expect("good");
    // A host reads it when it connects, and does not flush later if it was not there.
    assert_eq!(target.identify_controller(cntlid).vwc & 1, 1);
}

#[test]
fn namespaces_are_those_that_the_host_sees() {
    let mut target = Target::of(Kind::Io);
    target.subsystem.set_volume(3, Volume { hosts: only(&["a"]), ..volume(3) }).expect("good");
    target.subsystem.set_volume(5, Volume { hosts: only(&["bb"]), ..volume(5) }).expect("good");
    let (a, b) = (target.enabled("a"), target.enabled("bb"));
    let list = |target: &mut Target, cntlid, above| {
        let data = target.identify(cntlid, Cns::ACTIVE_NAMESPACES, above).expect("a list");
        NamespaceList::decode(&data).0
    };
    assert_eq!(list(&mut target, a, 0), [1, 3]);
    assert_eq!(list(&mut target, a, 1), [3]);
    assert_eq!(list(&mut target, b, 0), [1, 5]);
    let invalid = Err(Status::INVALID_NAMESPACE.no_retry());
    assert_eq!(target.identify(a, Cns::ACTIVE_NAMESPACES, NSID_ALL), invalid);
    assert_eq!(target.identify(a, Cns::ACTIVE_NAMESPACES, NSID_ALL - 1), invalid);
    assert_eq!(target.identify(a, Cns::NAMESPACE_DESCRIPTORS, 5), invalid);
    assert_eq!(target.identify(a, Cns::INDEPENDENT_NAMESPACE, 5), invalid);
    assert_eq!(target.identify(a, Cns::NAMESPACE, 5), Ok(vec![0; 4096]), "inactive: all zero");
    for nsid in [0, 1025, NSID_ALL] {
        assert_eq!(target.identify(a, Cns::NAMESPACE, nsid), invalid, "{nsid}");
    }
}

#[test]
fn a_namespace_says_its_size_its_names_and_its_group() {
    let mut target = Target::of(Kind::Io);
    let volume = Volume { owner: Node(1), preferred_blocks: 2048, write_protected: true, ..volume(3) };
    target.subsystem.set_volume(3, volume.clone()).expect("good");
    let cntlid = target.enabled("h");
    let data = target.identify(cntlid, Cns::NAMESPACE, 3).expect("a namespace");
    let namespace = Namespace::decode(&data).expect("whole");
    assert_eq!((namespace.size, namespace.capacity, namespace.ana_group), (1000, 1000, 2));
    assert_eq!((namespace.lba_format().shift, namespace.deallocation, namespace.attributes), (9, 9, 1));
    assert_eq!((namespace.noiob, namespace.npwg, namespace.nows), (2048, 2047, 2047));
    let data = target.identify(cntlid, Cns::NAMESPACE_DESCRIPTORS, 3).expect("names");
    let names = Descriptors { ids: volume.ids, command_set: Some(CommandSet::NVM) };
    assert_eq!(Descriptors::decode(&data), Ok(names));
    let data = target.identify(cntlid, Cns::INDEPENDENT_NAMESPACE, 3).expect("a namespace");
    let independent = IndependentNamespace::decode(&data).expect("whole");
    assert_eq!((independent.ana_group, independent.attributes, independent.state), (2, 1, 1));
}

#[test]
fn of_command_sets_there_is_nvm() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let data = target.identify(cntlid, Cns::COMMAND_SETS, 0).expect("a structure");
    assert_eq!(CommandSets::decode(&data), CommandSets::NVM);
    let data = target.identify(cntlid, Cns::COMMAND_SET_CONTROLLER, 0).expect("limits");
    assert_eq!(NvmController::decode(&data).map(|limits| limits.dsm_ranges), Ok(255));
    assert_eq!(target.identify(cntlid, Cns::COMMAND_SET_NAMESPACE, 1), Ok(vec![0; 4096]));
    let data = target.identify(cntlid, Cns::COMMAND_SET_ACTIVE_NAMESPACES, 0).expect("a list");
    assert_eq!(NamespaceList::decode(&data).0, [1]);
    let zoned =
        Identify { cns: Cns::COMMAND_SET_CONTROLLER, cntid: 0, command_set: CommandSet::ZONED, nsid: 0 };
    let refused = target.read(cntlid, zoned.command(0, Sgl::Transport { length: 4096 }));
    assert_eq!(refused, Err(Status::INVALID_IO_COMMAND_SET.no_retry()));
    assert_eq!(target.identify(cntlid, Cns(0x77), 0), Err(Status::INVALID_FIELD.no_retry()));
}

#[test]
fn what_is_not_done_is_not_advertised_and_refused() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let controller = target.identify_controller(cntlid);
    let optional = OptionalCommands::COMPARE
        .with(OptionalCommands::DATASET_MANAGEMENT)
        .with(OptionalCommands::WRITE_ZEROES)
        .with(OptionalCommands::TIMESTAMP);
    assert_eq!((controller.optional_commands, controller.oacs), (optional, 0));
    for opcode in [0x00, 0x0d, 0x10, 0x39, 0x80, 0x84, 0xc4] {
        let (cqe, _) = target.command(cntlid, Sqe::new(opcode, 0, 0), &[]);
        assert_eq!(cqe.status, Status::INVALID_OPCODE.no_retry(), "{opcode:#x}");
    }
    let data = target.log(cntlid, LogId::COMMAND_EFFECTS, 0, 4096).expect("the log");
    let effects = CommandEffects::decode(&data);
    let supported = |table: &[Effects; 256]| -> Vec<usize> {
        (0..256).filter(|opcode| table[*opcode].has(Effects::SUPPORTED)).collect()
    };
    assert_eq!(supported(&effects.admin), [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x38, 0xc0]);
    assert_eq!(supported(&effects.io), [0x00, 0x01, 0x02, 0x05, 0x08, 0x09]);
}

#[test]
fn data_that_do_not_fit_the_hosts_memory_are_refused_and_never_fewer_than_asked() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let identify = Identify { cns: Cns::CONTROLLER, cntid: 0, command_set: CommandSet::NVM, nsid: 0 };
    let short = target.read(cntlid, identify.command(0, Sgl::Transport { length: 4095 }));
    assert_eq!(short, Err(Status::SGL_INVALID_LENGTH.no_retry()));
    let get = Feature::get(0, FeatureId::HOST_ID, 1, Sgl::Transport { length: 4096 });
    let data = target.read(cntlid, get).expect("the host identifier");
    assert_eq!((data.len(), &data[..17]), (4096, [&host_id("h").0[..], &[0]].concat().as_slice()));
    let huge = Feature::get(0, FeatureId::HOST_ID, 1, Sgl::Transport { length: u32::MAX });
    assert_eq!(target.read(cntlid, huge), Err(Status::INVALID_FIELD.no_retry()));
    let other = Feature::get(0, FeatureId::HOST_ID, 1, Sgl::Other([0x20; 16]));
    assert_eq!(target.read(cntlid, other), Err(Status::SGL_INVALID_TYPE.no_retry()));
}

#[test]
fn logs_of_health_errors_and_firmware() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    target.command(cntlid, Sqe::new(0xc4, 0, 9), &[]);
    target.now += Duration::from_secs(7200);
    let health = target.log(cntlid, LogId::HEALTH, 0, 512).expect("health");
    let health = Health::decode(&health).expect("whole");
    assert_eq!((health.critical_warning, health.power_on_hours, health.error_entries), (0, 2, 1));
    let counts = IoCounts { reads: 3, writes: 4, read_bytes: 512_000, written_bytes: 512_001 };
    target.subsystem.set_io_counts(counts);
    let health = target.log(cntlid, LogId::HEALTH, 0, 512).expect("health");
    let health = Health::decode(&health).expect("whole");
    assert_eq!((health.host_reads, health.host_writes), (3, 4));
    assert_eq!((health.data_units_read, health.data_units_written), (1, 2));
    let errors = target.log(cntlid, LogId::ERRORS, 0, 128);
    let entry = ErrorEntry::decode(&errors.expect("errors")).expect("whole");
    assert_eq!((entry.count, entry.nsid, entry.status), (1, 9, Status::INVALID_OPCODE.no_retry()));
    let firmware = target.log(cntlid, LogId::FIRMWARE, 0, 512).expect("slots");
    assert_eq!(FirmwareSlots::decode(&firmware).map(|slots| slots.active), Ok(1));
    let none = target.log(cntlid, LogId(0x77), 0, 512);
    assert_eq!(none, Err(Status::INVALID_LOG_PAGE.no_retry()));
    let behind = target.log(cntlid, LogId::HEALTH, 516, 512);
    assert_eq!(behind, Err(Status::INVALID_FIELD.no_retry()));
}

#[test]
fn the_error_log_is_bounded() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    for _ in 0..40 {
        target.command(cntlid, Sqe::new(0xc4, 0, 9), &[]);
    }
    let limit = usize::from(target.identify_controller(cntlid).error_log_entries) + 1;
    let errors = target.log(cntlid, LogId::ERRORS, 0, 4096).expect("errors");
    let counts: Vec<u64> =
        errors.chunks(64).map(|entry| ErrorEntry::decode(entry).expect("whole").count).collect();
    assert_eq!((counts[0], counts[limit - 1], counts[limit]), (40, 41 - limit as u64, 0));
}

#[test]
fn the_ana_log_has_a_group_for_each_node_with_what_the_host_sees() {
    let mut target = Target::of(Kind::Io);
    target.subsystem.set_volume(3, Volume { owner: Node(1), ..volume(3) }).expect("good");
    target
        .subsystem
        .set_volume(4, Volume { owner: Node(1), hosts: only(&["x"]), ..volume(4) })
        .expect("good");
    let cntlid = target.enabled("h");
    let data = target.log(cntlid, LogId::ANA, 0, 16 + 2 * 32 + 2 * 4).expect("the log");
    let log = AnaLog::decode(&data).expect("a log");
    let groups: Vec<_> = log.groups.iter().map(|one| (one.id, one.state, one.nsids.clone())).collect();
    assert_eq!(groups, [(1, AnaState::OPTIMIZED, vec![1]), (2, AnaState::NON_OPTIMIZED, vec![3])]);
    // nvme-cli reads, in parts of 4096 bytes, what groups and namespaces may take at most.
    let identity =
        nvme::identify::Controller::decode(&target.identify(cntlid, Cns::CONTROLLER, 0).expect("its data"));
    let identity = identity.expect("a controller");
    let most = 16 + 32 * identity.ana_groups + 4 * identity.mnan;
    let rest = target.log(cntlid, LogId::ANA, 4096, most - 4096).expect("a part");
    assert!(!rest.is_empty() && rest.iter().all(|byte| *byte == 0));
    let behind = target.log(cntlid, LogId::ANA, u64::from(most) + 4, 4);
    assert_eq!(behind, Err(Status::INVALID_FIELD.no_retry()));
    target.subsystem.set_reach(target.now, Node(1), Reach::Moving);
    target.outputs();
    let data = target.log(cntlid, LogId::ANA, 0, 120).expect("the log");
    let moved = AnaLog::decode(&data).expect("a log");
    assert!(moved.changes > log.changes && moved.groups[1].changes > log.groups[1].changes);
    let groups: Vec<_> = moved.groups.iter().map(|one| (one.id, one.state, one.nsids.clone())).collect();
    let nothing = (2, AnaState::NON_OPTIMIZED, vec![]);
    assert_eq!(groups, [(1, AnaState::OPTIMIZED, vec![1]), nothing, (3, AnaState::CHANGE, vec![3])]);
}

#[test]
fn an_event_is_told_once_until_its_log_is_read() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    listen(&mut target, cntlid);
    assert_eq!(target.wait_for_event(cntlid, 100), []);
    target.subsystem.set_volume(2, volume(2)).expect("good");
    assert_eq!(events(&mut target), [(100, Event::NAMESPACE_CHANGED)]);
    // The ANA event waits for a request of its own; the other kind is masked.
    assert_eq!(target.wait_for_event(cntlid, 101)[0].0.result, Event::ANA_CHANGED.result());
    target.subsystem.set_volume(4, volume(4)).expect("good");
    assert_eq!(target.wait_for_event(cntlid, 102), []);
    let retained = target.log_retaining(cntlid, LogId::CHANGED_NAMESPACES, 0, 4096, true).expect("a log");
    assert_eq!(ChangedNamespaces::decode(&retained).expect("few").0, [2, 4]);
    assert_eq!(events(&mut target), [], "still masked");
    target.log(cntlid, LogId::CHANGED_NAMESPACES, 0, 4096).expect("a log");
    target.subsystem.remove_volume(4);
    assert_eq!(events(&mut target), [(102, Event::NAMESPACE_CHANGED)]);
    let changed = target.log(cntlid, LogId::CHANGED_NAMESPACES, 0, 4096).expect("a log");
    assert_eq!(ChangedNamespaces::decode(&changed).expect("few").0, [4], "only what is new");
}

#[test]
fn a_host_that_does_not_listen_gets_no_events_and_one_that_cannot_see_neither() {
    let mut target = Target::of(Kind::Io);
    let deaf = target.enabled("h");
    let blind = target.enabled("other");
    listen(&mut target, blind);
    target.wait_for_event(deaf, 1);
    target.wait_for_event(blind, 2);
    target.subsystem.set_volume(2, Volume { hosts: only(&["h"]), ..volume(2) }).expect("good");
    let views: Vec<u16> = target
        .outputs()
        .into_iter()
        .map(|output| match output {
            Output::View { cntlid, .. } => cntlid,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(views, [deaf]);
}

#[test]
fn event_requests_are_bounded_dropped_by_a_reset_and_can_be_aborted() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let limit = u16::from(target.identify_controller(cntlid).async_event_limit) + 1;
    for cid in 0..limit {
        assert_eq!(target.wait_for_event(cntlid, cid), []);
    }
    let refused = target.wait_for_event(cntlid, 77);
    assert_eq!(refused[0].0.status, Status::ASYNC_EVENT_LIMIT_EXCEEDED.no_retry());
    let abort = Sqe { cdw10: 2 << 16, ..Sqe::new(AdminOpcode::ABORT.0, 50, 0) };
    let answers = target.send(cntlid, abort, &[]);
    assert_eq!((answers[0].0.cid, answers[0].0.status), (2, Status::ABORT_REQUESTED));
    assert_eq!((answers[1].0.cid, answers[1].0.result), (50, 0));
    let answers = target.send(cntlid, abort, &[]);
    assert_eq!((answers[0].0.cid, answers[0].0.result), (50, 1), "not aborted: it is not there");
    target.configure(cntlid, Configuration::default());
    target.configure(cntlid, Configuration::ENABLE);
    listen(&mut target, cntlid);
    target.subsystem.set_volume(2, volume(2)).expect("good");
    assert_eq!(events(&mut target), [], "no request is left to answer");
}

#[test]
fn queues_are_granted_before_the_first_one_is_connected() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let queues = FeatureId::NUMBER_OF_QUEUES;
    assert_eq!(target.set_feature(cntlid, queues, 0x03e7_03e7), Ok(0x003f_003f), "64 of 1000");
    assert_eq!(target.set_feature(cntlid, queues, 0x0001_0003), Ok(0x0001_0001), "the fewer of both");
    assert_eq!(target.set_feature(cntlid, queues, 0xffff), Err(Status::INVALID_FIELD.no_retry()));
    target.connect_io("h", cntlid, 2);
    let late = target.set_feature(cntlid, queues, 0);
    assert_eq!(late, Err(Status::COMMAND_SEQUENCE_ERROR.no_retry()));
}

#[test]
fn features_are_read_as_they_were_set() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let get = |target: &mut Target, id| {
        let (cqe, _) = target.command(cntlid, Feature::get(0, id, 0, Sgl::NONE), &[]);
        (cqe.status, cqe.result)
    };
    for id in [FeatureId::ARBITRATION, FeatureId::TEMPERATURE_THRESHOLD, FeatureId::ERROR_RECOVERY] {
        target.set_feature(cntlid, id, 0x1234).expect("set");
        assert_eq!(get(&mut target, id), (Status::SUCCESS, 0x1234));
    }
    target.set_feature(cntlid, FeatureId::KEEP_ALIVE, 15_500).expect("set");
    assert_eq!(get(&mut target, FeatureId::KEEP_ALIVE), (Status::SUCCESS, 16_000));
    let long = target.set_feature(cntlid, FeatureId::KEEP_ALIVE, u32::MAX);
    assert_eq!(long, Err(Status::KEEP_ALIVE_INVALID.no_retry()));
    let time = Timestamp::set_by_host(1_000_000).encode();
    target.set_feature_data(cntlid, FeatureId::TIMESTAMP, 0, &time).expect("set");
    target.now += Duration::from_millis(234);
    let read = target.read(cntlid, Feature::get(0, FeatureId::TIMESTAMP, 0, Sgl::Transport { length: 8 }));
    assert_eq!(Timestamp::decode(&read.expect("a time")).expect("whole").milliseconds(), 1_000_234);
    let short = target.set_feature_data(cntlid, FeatureId::TIMESTAMP, 0, &time[..7]);
    assert_eq!(short, Err(Status::SGL_INVALID_LENGTH.no_retry()));
}

#[test]
fn features_that_cannot_be_set_say_why() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    for (id, value, status) in [
        (FeatureId::HOST_ID, 0, Status::COMMAND_SEQUENCE_ERROR),
        (FeatureId::VOLATILE_WRITE_CACHE, 0, Status::FEATURE_NOT_CHANGEABLE),
        (FeatureId::POWER_MANAGEMENT, 1, Status::INVALID_FIELD),
        (FeatureId::RESERVATION_MASK, 0, Status::INVALID_FIELD),
        (FeatureId(0x7f), 0, Status::INVALID_FIELD),
    ] {
        assert_eq!(target.set_feature(cntlid, id, value), Err(status.no_retry()), "{id:?}");
    }
    let set = Feature::set(0, FeatureId::ERROR_RECOVERY, 0, Sgl::NONE);
    let (cqe, _) = target.command(cntlid, Sqe { cdw10: set.cdw10 | 1 << 31, ..set }, &[]);
    assert_eq!(cqe.status, Status::FEATURE_NOT_SAVEABLE.no_retry());
    let short_id = Feature::get(0, FeatureId::HOST_ID, 0, Sgl::Transport { length: 8 });
    assert_eq!(target.read(cntlid, short_id), Err(Status::INVALID_FIELD.no_retry()));
    let capabilities = |id: FeatureId| {
        let get = Feature::get(0, id, 0, Sgl::NONE);
        Sqe { cdw10: get.cdw10 | u32::from(Select::CAPABILITIES.0) << 8, ..get }
    };
    assert_eq!(target.command(cntlid, capabilities(FeatureId::KEEP_ALIVE), &[]).0.result, 4);
    assert_eq!(target.command(cntlid, capabilities(FeatureId::HOST_ID), &[]).0.result, 0);
}

#[test]
fn a_host_says_that_it_waits_and_its_queues_learn_it() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let behavior = HostBehavior { retry_delays: 1, lba_formats: 0 }.encode();
    target.set_feature_data(cntlid, FeatureId::HOST_BEHAVIOR, 0, &behavior).expect("set");
    let read = Feature::get(0, FeatureId::HOST_BEHAVIOR, 0, Sgl::Transport { length: 512 });
    assert_eq!(target.read(cntlid, read).expect("read")[0], 1);
    assert_eq!(target.identify_controller(cntlid).retry_delays_100_ms[0], 1);
}

#[test]
fn a_volume_that_cannot_be_a_namespace_is_refused() {
    let mut target = Target::of(Kind::Io);
    let set = |target: &mut Target, nsid, volume| target.subsystem.set_volume(nsid, volume);
    let range = |nsid| Err(VolumeError::Nsid { nsid, max: 1024 });
    assert_eq!(set(&mut target, 0, volume(2)), range(0));
    assert_eq!(set(&mut target, 1025, volume(2)), range(1025));
    let blocks = Volume { block_shift: 13, ..volume(2) };
    assert_eq!(set(&mut target, 2, blocks), Err(VolumeError::BlockSize(13)));
    assert_eq!(set(&mut target, 1, volume(2)), Err(VolumeError::Identity(1)));
    let other_blocks = Volume { block_shift: 12, ..volume(1) };
    assert_eq!(set(&mut target, 1, other_blocks), Err(VolumeError::Identity(1)));
    assert_eq!(set(&mut target, 1, Volume { blocks: 2000, ..volume(1) }), Ok(()), "it may grow");
}

#[test]
fn a_volume_appears_to_a_host_and_disappears_while_others_notice_nothing() {
    let mut target = Target::of(Kind::Io);
    target.subsystem.set_volume(2, Volume { hosts: only(&["a"]), ..volume(2) }).expect("good");
    let (a, b) = (target.enabled("a"), target.enabled("bb"));
    for cntlid in [a, b] {
        listen(&mut target, cntlid);
        assert_eq!(target.wait_for_event(cntlid, cntlid), []);
    }
    target.subsystem.set_hosts(2, only(&["a", "bb"]));
    assert_eq!(events(&mut target), [(b, Event::NAMESPACE_CHANGED)]);
    let changed = target.log(b, LogId::CHANGED_NAMESPACES, 0, 4096).expect("a log");
    assert_eq!(ChangedNamespaces::decode(&changed).expect("few").0, [2]);
    assert!(target.identify(b, Cns::NAMESPACE_DESCRIPTORS, 2).is_ok());
    target.subsystem.set_hosts(2, only(&["bb"]));
    assert_eq!(events(&mut target), [(a, Event::NAMESPACE_CHANGED)]);
    let gone = Err(Status::INVALID_NAMESPACE.no_retry());
    assert_eq!(target.identify(a, Cns::NAMESPACE_DESCRIPTORS, 2), gone);
    // The host has not looked, so it would take another volume under the NSID for this one.
    target.subsystem.remove_volume(2);
    let set = |target: &mut Target| target.subsystem.set_volume(2, volume(3));
    assert_eq!(set(&mut target), Err(VolumeError::Remembered(2)));
    for cntlid in [a, b] {
        target.log(cntlid, LogId::CHANGED_NAMESPACES, 0, 4096).expect("a log");
    }
    assert_eq!(set(&mut target), Ok(()));
    target.outputs();
    target.subsystem.set_hosts(9, only(&["a"]));
    assert_eq!(target.outputs(), [], "there is no such volume");
}

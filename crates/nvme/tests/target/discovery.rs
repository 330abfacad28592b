//! The discovery controller. NVMe Base, "Discovery Controller".

use crate::support::{Target, config, connect_command, nqn, only};
use nvme::controller::{Access, CloseReason, Kind, Record};
use nvme::fabrics::{CNTLID_DYNAMIC, ConnectData, InvalidParameter};
use nvme::feature::FeatureId;
use nvme::identify::{AsyncEvents, Cns, CntrlType};
use nvme::log_page::{DiscoveryEntry, DiscoveryLog, LogId};
use nvme::{HostId, Nqn, Status};
use std::time::Duration;

fn record(port: u16, hosts: Access) -> Record {
    Record { entry: DiscoveryEntry { port, ..DiscoveryEntry::default() }, hosts }
}

fn read(target: &mut Target, cntlid: u16) -> DiscoveryLog {
    let bytes = target.log(cntlid, LogId::DISCOVERY, 0, 8192).expect("the log");
    DiscoveryLog::decode(&bytes).expect("whole")
}

fn ports(log: &DiscoveryLog) -> Vec<u16> {
    log.entries.iter().map(|entry| entry.port).collect()
}

#[test]
fn both_names_lead_to_it() {
    let mut target = Target::new(config(Kind::Discovery));
    assert!(target.subsystem.answers_to(&nqn("array")) && target.subsystem.answers_to(&Nqn::discovery()));
    let data = ConnectData::new(HostId([1; 16]), CNTLID_DYNAMIC, &Nqn::discovery(), &nqn("h"));
    let connect = connect_command(0, 31, 0);
    let now = target.now;
    target.subsystem.connect(now, crate::support::TCP, 0, &connect, &data).expect("accepted");
    let io = Target::of(Kind::Io);
    assert!(!io.subsystem.answers_to(&Nqn::discovery()));
}

#[test]
fn it_says_what_it_is_and_has_no_io_queues() {
    let mut target = Target::of(Kind::Discovery);
    let cntlid = target.enabled("h");
    let controller = target.identify_controller(cntlid);
    assert_eq!((controller.kind, controller.discovery_type), (CntrlType::DISCOVERY, 1));
    assert_eq!(controller.events, AsyncEvents::DISCOVERY_CHANGED);
    assert!(controller.ioccsz >= 4 && controller.keep_alive_100_ms > 0);
    let other = target.identify(cntlid, Cns::ACTIVE_NAMESPACES, 0);
    assert_eq!(other, Err(Status::INVALID_FIELD.no_retry()));
    assert_eq!(target.log(cntlid, LogId::HEALTH, 0, 512), Err(Status::INVALID_LOG_PAGE.no_retry()));
    let queues = target.set_feature(cntlid, FeatureId::NUMBER_OF_QUEUES, 0);
    assert_eq!(queues, Err(Status::INVALID_FIELD.no_retry()));
    let refusal = target.try_connect("h", cntlid, &connect_command(1, 31, 0)).expect_err("refused");
    assert_eq!(refusal.parameter, Some(InvalidParameter::QID));
}

#[test]
fn each_host_sees_its_own_records() {
    let mut target = Target::of(Kind::Discovery);
    let records = vec![record(1, Access::Any), record(2, only(&["a"])), record(3, only(&["bb"]))];
    target.subsystem.set_records(records);
    let (a, b) = (target.enabled("a"), target.enabled("bb"));
    assert_eq!(ports(&read(&mut target, a)), [1, 2]);
    assert_eq!(ports(&read(&mut target, b)), [1, 3]);
}

#[test]
fn a_change_is_one_for_those_who_see_it() {
    let mut target = Target::of(Kind::Discovery);
    target.subsystem.set_records(vec![record(1, Access::Any)]);
    let (a, b) = (target.enabled("a"), target.enabled("bb"));
    for cntlid in [a, b] {
        let wanted = AsyncEvents::DISCOVERY_CHANGED.0;
        target.set_feature(cntlid, FeatureId::ASYNC_EVENTS, wanted).expect("set");
        assert_eq!(target.wait_for_event(cntlid, 500), []);
    }
    let before = [read(&mut target, a).generation, read(&mut target, b).generation];
    target.subsystem.set_records(vec![record(1, Access::Any), record(2, only(&["a"]))]);
    let events: Vec<_> = target.answers().into_iter().map(|(cqe, _)| (cqe.cid, cqe.result)).collect();
    assert_eq!(events, [(500, 0x0070_f002)], "one event, for one host");
    let after = [read(&mut target, a).generation, read(&mut target, b).generation];
    assert!(after[0] > before[0] && after[1] == before[1]);
    target.subsystem.set_records(vec![record(1, Access::Any), record(2, only(&["a"]))]);
    assert_eq!(target.answers(), [], "the same again is no change");
}

#[test]
fn without_keep_alive_a_silent_host_is_gone_after_two_minutes() {
    let mut target = Target::of(Kind::Discovery);
    let connect = connect_command(0, 31, 0);
    let accepted = target.try_connect("h", CNTLID_DYNAMIC, &connect).expect("accepted");
    target.pass(Duration::from_secs(119));
    assert_eq!(target.closed(), []);
    target.pass(Duration::from_secs(1));
    assert_eq!(target.closed(), [(accepted.id, CloseReason::KeepAlive)]);
}

//! Connect, and how controllers end. NVMe over Fabrics, "Connect Command".

use crate::support::{TCP, Target, config, connect_command, host_id, nqn, only};
use nvme::controller::{CloseReason, Config, Kind, Limits, Node, Output, Port, QueueId, Refusal};
use nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, Connected, InvalidParameter};
use nvme::{HostId, Nqn, Status, Transport};
use std::time::Duration;

#[test]
fn an_admin_queue_gets_a_controller_of_its_own() {
    let mut target = Target::of(Kind::Io);
    let accepted = target.try_connect("h", CNTLID_DYNAMIC, &connect_command(0, 31, 5000)).expect("accepted");
    assert_eq!(accepted.id, QueueId { cntlid: 1, qid: 0 });
    assert_eq!((accepted.queue.entries(), accepted.queue.outstanding()), (32, 0));
    assert_eq!((accepted.cqe.cid, accepted.cqe.status, accepted.cqe.sqhd), (7, Status::SUCCESS, 1));
    let connected = Connected::new(1);
    assert_eq!(Connected::of(accepted.cqe.result), connected);
    assert_eq!(target.connect("h"), 2, "another one for the same host");
    assert_eq!(target.subsystem.controllers().count(), 2);
}

#[test]
fn a_queue_without_flow_control_has_no_head() {
    let mut target = Target::of(Kind::Io);
    let attributes = ConnectAttributes::DISABLE_SQ_FLOW;
    let connect = Connect { attributes, ..connect_command(0, 31, 0) };
    let accepted = target.try_connect("h", CNTLID_DYNAMIC, &connect).expect("accepted");
    assert_eq!(accepted.cqe.sqhd, 0xffff);
}

/// Each parameter that can be wrong, and where the refusal says that it is.
#[test]
fn a_wrong_parameter_is_named() {
    let good = connect_command(0, 31, 0);
    let mut target = Target::of(Kind::Io);
    let data = target.data("h", CNTLID_DYNAMIC);
    for (connect, data, parameter) in [
        (Connect { sqsize: 0, ..good }, data, InvalidParameter::SQSIZE),
        (Connect { sqsize: 128, ..good }, data, InvalidParameter::SQSIZE),
        (Connect { kato_ms: 601_000, ..good }, data, InvalidParameter::KATO),
        (good, ConnectData { cntlid: 5, ..data }, InvalidParameter::CNTLID),
        (good, ConnectData { host_id: HostId::default(), ..data }, InvalidParameter::HOST_ID),
        (good, ConnectData { subnqn: nqn("other").encode(), ..data }, InvalidParameter::SUBNQN),
        (good, ConnectData { subnqn: [b'n'; 256], ..data }, InvalidParameter::SUBNQN),
        (good, ConnectData { hostnqn: [0; 256], ..data }, InvalidParameter::HOSTNQN),
    ] {
        let refusal = target.subsystem.connect(target.now, TCP, 3, &connect, &data).expect_err("refused");
        let cqe = refusal.completion(3);
        assert_eq!(cqe.status, Status::CONNECT_INVALID_PARAMETERS.no_retry());
        assert_eq!((cqe.cid, InvalidParameter::of(cqe.result)), (3, parameter));
    }
    let format = Connect { recfmt: 1, ..good };
    let refusal = target.try_connect("h", CNTLID_DYNAMIC, &format).expect_err("refused");
    assert_eq!(refusal.status, Status::CONNECT_INCOMPATIBLE_FORMAT.no_retry());
    assert_eq!(target.subsystem.controllers().count(), 0, "nothing is left of them");
}

#[test]
fn an_io_queue_needs_its_own_host_and_an_enabled_controller() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.connect("h");
    let connect = connect_command(1, 127, 0);
    let early = target.try_connect("h", cntlid, &connect).expect_err("not enabled");
    assert_eq!(early.status, Status::COMMAND_SEQUENCE_ERROR.no_retry());
    let cntlid = target.enabled("h");
    let mut refused = |host: &str, cntlid, connect: &Connect| {
        target.try_connect(host, cntlid, connect).expect_err("refused").parameter
    };
    assert_eq!(refused("other", cntlid, &connect), Some(InvalidParameter::HOSTNQN));
    assert_eq!(refused("h", 99, &connect), Some(InvalidParameter::CNTLID));
    assert_eq!(refused("h", CNTLID_DYNAMIC, &connect), Some(InvalidParameter::CNTLID));
    assert_eq!(refused("h", cntlid, &connect_command(65, 127, 0)), Some(InvalidParameter::QID));
    let mut data = target.data("h", cntlid);
    data.host_id = HostId([9; 16]);
    let refusal = target.subsystem.connect(target.now, TCP, 3, &connect, &data).expect_err("refused");
    assert_eq!(refusal.parameter, Some(InvalidParameter::HOST_ID));
    let rdma = Port { transport: Transport::Rdma, capsule_data_bytes: 0, ..TCP };
    let data = target.data("h", cntlid);
    target.subsystem.connect(target.now, rdma, 3, &connect, &data).expect_err("another transport");
    let accepted = target.connect_io("h", cntlid, 1);
    assert_eq!((accepted.id.qid, accepted.view.namespaces().len()), (1, 1));
    let twice = target.try_connect("h", cntlid, &connect).expect_err("in use");
    assert_eq!(twice.status, Status::COMMAND_SEQUENCE_ERROR.no_retry());
}

#[test]
fn hosts_take_no_more_controllers_than_the_limits() {
    let limits = Limits { controllers: 3, controllers_per_host: 2, ..Limits::default() };
    let mut config = config(Kind::Io);
    config.limits = limits;
    let mut target = Target::new(config);
    let connect = connect_command(0, 31, 0);
    target.connect("a");
    target.connect("a");
    let refusal = target.try_connect("a", CNTLID_DYNAMIC, &connect).expect_err("its own limit");
    assert_eq!(refusal.status, Status::CONNECT_CONTROLLER_BUSY, "without DNR");
    target.connect("bb");
    let refusal = target.try_connect("ccc", CNTLID_DYNAMIC, &connect).expect_err("the limit of all");
    assert_eq!(refusal.status, Status::CONNECT_CONTROLLER_BUSY);
}

#[test]
fn identifiers_go_round_within_their_range() {
    let mut config = config(Kind::Io);
    config.cntlids = [(Node(0), 10..=12)].into();
    let mut target = Target::new(config);
    assert_eq!(target.connect("h"), 10);
    target.queue_closed(10, 0);
    assert_eq!(target.outputs(), [Output::Released { cntlid: 10 }]);
    assert_eq!([target.connect("h"), target.connect("h"), target.connect("h")], [11, 12, 10]);
    let connect = connect_command(0, 31, 0);
    target.try_connect("h", CNTLID_DYNAMIC, &connect).expect_err("all in use");
}

#[test]
fn the_end_of_the_admin_queue_ends_the_controller_once_its_io_queues_are_closed() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    for qid in [1, 2] {
        target.connect_io("h", cntlid, qid);
    }
    target.queue_closed(cntlid, 0);
    let reason = CloseReason::AdminQueueGone;
    let queue = |qid| (QueueId { cntlid, qid }, reason);
    assert_eq!(target.closed(), [queue(1), queue(2)]);
    target.queue_closed(cntlid, 1);
    assert_eq!(target.outputs(), []);
    let late = target.try_connect("h", cntlid, &connect_command(1, 127, 0)).expect_err("it is ending");
    assert_eq!(late.parameter, Some(InvalidParameter::CNTLID));
    target.queue_closed(cntlid, 2);
    assert_eq!(target.outputs(), [Output::Released { cntlid }]);
    target.queue_closed(cntlid, 2);
    assert_eq!(target.outputs(), [], "what is gone is gone");
}

#[test]
fn an_io_queue_may_end_alone_and_come_back() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    target.connect_io("h", cntlid, 1);
    target.queue_closed(cntlid, 1);
    assert_eq!(target.outputs(), []);
    target.connect_io("h", cntlid, 1);
}

#[test]
fn a_host_that_is_no_longer_allowed_loses_its_controllers_and_gets_no_new_one() {
    let mut target = Target::of(Kind::Io);
    let (good, bad) = (target.enabled("good"), target.enabled("bad"));
    target.connect_io("bad", bad, 1);
    target.subsystem.set_access(only(&["good"]));
    let reason = CloseReason::Access;
    let queue = |qid| (QueueId { cntlid: bad, qid }, reason);
    assert_eq!(target.closed(), [queue(1), queue(0)]);
    let refusal = target.try_connect("bad", CNTLID_DYNAMIC, &connect_command(0, 31, 0)).expect_err("refused");
    assert_eq!(refusal.status, Status::CONNECT_INVALID_HOST.no_retry());
    assert!(target.status(good).ready);
}

#[test]
fn keep_alive_timeouts_are_rounded_up_and_counted_from_the_last_command() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    target.set_feature(cntlid, nvme::feature::FeatureId::KEEP_ALIVE, 1500).expect("set");
    assert_eq!(target.subsystem.poll_timeout(), Some(Duration::from_secs(2)));
    target.pass(Duration::from_millis(1999));
    assert_eq!(target.closed(), []);
    target.pass(Duration::from_millis(1));
    // Nothing was received after the timer was set.
    assert_eq!(target.closed(), [(QueueId { cntlid, qid: 0 }, CloseReason::KeepAlive)]);
    assert_eq!(target.subsystem.poll_timeout(), None);
}

/// NVMe Base, "Keep Alive": the timer is active while the controller is enabled and ready.
#[test]
fn a_host_may_be_silent_for_longer_than_its_keep_alive_timeout_before_it_enables_the_controller() {
    let mut target = Target::of(Kind::Io);
    let connect = |target: &mut Target| {
        target.try_connect("h", CNTLID_DYNAMIC, &connect_command(0, 31, 5000)).expect("accepted").id.cntlid
    };
    let (slow, gone) = (connect(&mut target), connect(&mut target));
    target.pass(Duration::from_secs(100));
    target.configure(slow, nvme::register::Configuration::ENABLE);
    assert!(target.status(slow).ready);
    target.outputs();
    let closed = |cntlid| [(QueueId { cntlid, qid: 0 }, CloseReason::KeepAlive)];
    // Reading its status was a command.
    target.pass(Duration::from_secs(5));
    assert_eq!(target.closed(), []);
    target.pass(Duration::from_secs(5));
    assert_eq!(target.closed(), closed(slow));
    target.pass(Duration::from_secs(10));
    assert_eq!(target.closed(), closed(gone), "two minutes");
}

#[test]
fn a_controller_without_keep_alive_stays() {
    let mut target = Target::of(Kind::Io);
    let connect = connect_command(0, 31, 0);
    target.try_connect("h", CNTLID_DYNAMIC, &connect).expect("accepted");
    assert_eq!(target.subsystem.poll_timeout(), None);
    target.pass(Duration::from_secs(100_000));
    assert_eq!(target.closed(), []);
}

#[test]
fn too_many_admin_commands_end_the_controller() {
    let mut config = config(Kind::Io);
    config.limits.async_events = 50;
    let mut target = Target::new(config);
    let cntlid = target.enabled("h");
    for cid in 0..32 {
        assert_eq!(target.wait_for_event(cntlid, cid), []);
    }
    target.subsystem.handle_command(target.now, cntlid, &nvme::Sqe::new(0x18, 99, 0), &[]);
    assert_eq!(target.closed(), [(QueueId { cntlid, qid: 0 }, CloseReason::Violation)]);
}

/// NVMe Base, "Host Identifier": registrations belong to it, so two hosts must not share one.
#[test]
fn two_hosts_with_one_identifier_are_not_connected_at_a_time() {
    let mut target = Target::of(Kind::Io);
    let first = target.enabled("first");
    let mut data = target.data("second", CNTLID_DYNAMIC);
    data.host_id = host_id("first");
    let connect = connect_command(0, 31, 0);
    let refusal = target.subsystem.connect(target.now, TCP, 0, &connect, &data).expect_err("refused");
    // Without DNR, since the first host may go.
    let expected =
        Refusal { status: Status::CONNECT_INVALID_PARAMETERS, parameter: Some(InvalidParameter::HOST_ID) };
    assert_eq!(refusal, expected);
    assert_eq!(target.subsystem.holder_of(host_id("first")), Some(&nqn("first")));
    target.enabled("first");
    target.queue_closed(first, 0);
    assert!(target.subsystem.connect(target.now, TCP, 0, &connect, &data).is_err(), "it has another one");
    let second = target.subsystem.controllers().next().expect("the other one").0;
    target.queue_closed(second, 0);
    target.subsystem.connect(target.now, TCP, 0, &connect, &data).expect("free");
}

#[test]
fn a_host_whose_identifier_is_known_has_no_other_and_nobody_else_has_it() {
    let mut config = config(Kind::Io);
    config.host_ids.insert(nqn("known"), host_id("known"));
    let mut target = Target::new(config);
    let connect = connect_command(0, 31, 0);
    let good = target.data("known", CNTLID_DYNAMIC);
    for (data, is_final) in [
        (ConnectData { host_id: HostId([3; 16]), ..good }, true),
        (ConnectData { host_id: host_id("known"), ..target.data("other", CNTLID_DYNAMIC) }, false),
    ] {
        let refusal = target.subsystem.connect(target.now, TCP, 0, &connect, &data).expect_err("refused");
        assert_eq!(refusal.parameter, Some(InvalidParameter::HOST_ID));
        assert_eq!(refusal.status.dnr(), is_final);
    }
    target.subsystem.connect(target.now, TCP, 0, &connect, &good).expect("accepted");
    target.connect("other");
}

/// The other node is another process, which tells this one who has an identifier there.
#[test]
fn an_identifier_of_a_host_at_the_other_node_is_no_other_hosts() {
    let split = |node: u32| Config {
        is_split: true,
        cntlids: [(Node(node), if node == 0 { 1..=100 } else { 201..=300 })].into(),
        ..config(Kind::Io)
    };
    let told = |outputs: Vec<Output>| -> Vec<(HostId, Option<Nqn>)> {
        let told = |output| match output {
            Output::HostId { host_id, host } => Some((host_id, host)),
            _ => None,
        };
        outputs.into_iter().filter_map(told).collect()
    };
    let mut target = Target::new(split(0));
    // It is told when the first controller comes and when the last one has gone.
    let first = target.connect("a");
    assert_eq!(told(target.outputs()), [(host_id("a"), Some(nqn("a")))]);
    let second = target.connect("a");
    assert_eq!(told(target.outputs()), []);
    target.subsystem.tell_host_ids();
    assert_eq!(told(target.outputs()), [(host_id("a"), Some(nqn("a")))]);
    target.queue_closed(first, 0);
    assert_eq!(told(target.outputs()), []);
    target.queue_closed(second, 0);
    assert_eq!(told(target.outputs()), [(host_id("a"), None)]);

    target.subsystem.set_host_elsewhere(host_id("b"), Some(nqn("c")));
    let refusal = target.try_connect("b", CNTLID_DYNAMIC, &connect_command(0, 31, 0)).unwrap_err();
    assert_eq!(refusal.parameter, Some(InvalidParameter::HOST_ID));
    assert!(!refusal.status.dnr(), "the other host may end");
    assert_eq!(target.subsystem.holder_of(host_id("b")), Some(&nqn("c")));
    target.subsystem.set_host_elsewhere(host_id("b"), Some(nqn("b")));
    target.connect("b");
    target.subsystem.set_host_elsewhere(host_id("d"), Some(nqn("x")));
    target.subsystem.set_host_elsewhere(host_id("d"), None);
    target.connect("d");
    target.subsystem.set_host_elsewhere(host_id("e"), Some(nqn("x")));
    target.subsystem.forget_hosts_elsewhere();
    target.connect("e");

    // Both have connected at once: that of the first node stays.
    for (node, closed) in [(0, 0), (1, 1)] {
        let mut target = Target::new(split(node));
        let port = Port { node: Node(node), ..TCP };
        let data = target.data("a", CNTLID_DYNAMIC);
        let connect = connect_command(0, 31, 5000);
        target.subsystem.connect(target.now, port, 7, &connect, &data).expect("accepted");
        target.subsystem.set_host_elsewhere(host_id("a"), Some(nqn("x")));
        let reasons: Vec<_> = target.closed().into_iter().map(|(_, reason)| reason).collect();
        assert_eq!(reasons, vec![CloseReason::HostId; closed], "node {node}");
    }
}

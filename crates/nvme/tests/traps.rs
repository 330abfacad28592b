//! What other targets and hosts got wrong: each test is named for the rule that follows from it.

use nvme::controller::{
    Action, CloseReason, IoQueue, Kind, Limits, Node, Output, QueueId, Reach, Record, SubmissionQueue,
    Volume, state,
};
use nvme::fabrics::CNTLID_DYNAMIC;
use nvme::feature::{Event, FeatureId, HostBehavior};
use nvme::identify::AsyncEvents;
use nvme::io::{Blocks, IoFlags};
use nvme::log_page::{AnaState, DISCOVERY_ENTRY_BYTES, DiscoveryEntry, DiscoveryHead, LogId};
use nvme::pdu::{CapsuleCmd, Digests, FatalError, H2cData, IcReq, Malformed, Sender};
use nvme::reservation::{Keys, Persistence, Register, RegisterAction, Report, Reservations};
use nvme::tcp::{Received, Settings, TargetConnection, ToHost};
use nvme::{Cqe, HostId, IoOpcode, Sgl, Sqe, Status};
use proptest::prelude::*;
use std::time::Duration;
use support::{Target, config, connect_command, only, volume};

#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "target/support.rs"]
mod support;

fn connection() -> TargetConnection {
    let settings = Settings { capsule_data_bytes: 4096, transfer_bytes: 8192 };
    let mut connection = TargetConnection::new(Duration::ZERO, settings);
    let sgl = Sgl::InCapsule { offset: 0, length: 1024 };
    let mut connect = Vec::new();
    let sqe = connect_command(1, 31, 0).command(0, sgl);
    CapsuleCmd { sqe }.encode(Sender::default(), 1024, &mut connect);
    let digests = Digests::default();
    feed(&mut connection, &IcReq { hpda: 0, digests, maxr2t: 0 }.encode()).expect("an ICReq");
    feed(&mut connection, &connect).expect("a Connect");
    connection.accept(false, true, &Cqe::default(), &mut Vec::new());
    connection
}

fn feed(connection: &mut TargetConnection, bytes: &[u8]) -> Result<Received, Malformed> {
    let layout = connection.layout(bytes[..8].try_into().expect("eight bytes"))?;
    let header = &bytes[..layout.header_bytes()];
    connection.handle_header(Duration::ZERO, &layout, header, &mut Vec::new())
}

fn read(cid: u16, length: u32) -> Sqe {
    let blocks = Blocks { start: 0, count: 8, flags: IoFlags::NONE };
    blocks.command(IoOpcode::READ, cid, 1, Sgl::Transport { length })
}

// An old write was executed after its retry on another path.
#[test]
fn a_controllers_identifier_is_free_only_when_none_of_its_commands_can_have_an_effect() {
    let mut config = config(Kind::Io);
    config.cntlids = [(Node(0), 1..=1)].into();
    let mut target = Target::new(config);
    let cntlid = target.enabled("h");
    target.connect_io("h", cntlid, 1);
    target.pass(Duration::from_secs(5));
    // The commands that enabled it were traffic.
    target.pass(Duration::from_secs(5));
    let reason = CloseReason::KeepAlive;
    let queue = |qid| (QueueId { cntlid, qid }, reason);
    assert_eq!(target.closed(), [queue(1), queue(0)]);
    target.queue_closed(cntlid, 0);
    let connect = connect_command(0, 31, 5000);
    let early = target.try_connect("h", CNTLID_DYNAMIC, &connect).expect_err("commands still drain");
    assert_eq!(early.status, Status::CONNECT_CONTROLLER_BUSY, "so that the host tries again");
    target.queue_closed(cntlid, 1);
    assert_eq!(target.outputs(), [Output::Released { cntlid }]);
    assert_eq!(target.connect("h"), cntlid);
}

// Fused Compare and Write was advertised by a backend that could not do it. Here a pair is one
// operation of the volume, and no half of it is ever one.
#[test]
fn half_of_a_pair_is_not_executed() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    assert_eq!(target.identify_controller(cntlid).fuses, 1);
    let accepted = target.connect_io("h", cntlid, 1);
    let mut queue = IoQueue::new(accepted.queue, accepted.view);
    let mut held = 0;
    for opcode in 0..=u8::MAX {
        for fuse in 1..=3 {
            let sqe = Sqe { flags: 0x40 | fuse, opcode, cdw12: 0, ..read(1, 512) };
            match queue.handle_command(&sqe) {
                Ok(Action::Respond(cqe)) => assert!(!cqe.status.is_success()),
                Ok(Action::Hold(request)) => {
                    assert_eq!((opcode, fuse), (5, 1), "the first half of the only pair");
                    assert!(queue.complete(request.tag, Status::ABORT_REQUESTED).is_some());
                    held += 1;
                }
                other => panic!("executed: {other:?}"),
            }
        }
    }
    assert_eq!(held, 1);
}

proptest! {
    // Queues were refused because a number from zero was compared with one from one.
    #[test]
    fn a_queue_of_as_many_entries_as_mqes_promises_is_accepted(
        entries in 32..=65536_u32,
        sqsize in any::<u16>(),
    ) {
        let mut config = config(Kind::Io);
        config.limits.queue_entries = entries;
        let mut target = Target::new(config);
        let connect = connect_command(0, 31, 0);
        let cntlid = target.try_connect("h", CNTLID_DYNAMIC, &connect).expect("accepted").id.cntlid;
        let mqes = target.property(cntlid, nvme::register::CAP, true).expect("CAP") & 0xffff;
        prop_assert_eq!(mqes + 1, u64::from(entries));
        for (sqsize, fits) in [
            (sqsize, sqsize > 0 && u64::from(sqsize) <= mqes),
            (mqes as u16, true),
            ((mqes as u16).saturating_add(1), mqes == 65535),
        ] {
            let connect = connect_command(0, sqsize, 0);
            let accepted = target.try_connect("h", CNTLID_DYNAMIC, &connect);
            prop_assert_eq!(accepted.is_ok(), fits);
            if let Ok(accepted) = accepted {
                prop_assert_eq!(accepted.queue.entries(), u32::from(sqsize) + 1);
            }
        }
    }

    // Memory was taken for a length before it was compared with the limit.
    #[test]
    fn no_length_of_an_sgl_leads_to_more_data_than_the_limit(length in any::<u32>(), count in any::<u16>()) {
        let mut target = Target::of(Kind::Io);
        let big = Volume { blocks: u64::MAX, ..volume(2) };
        target.subsystem.set_volume(2, big).expect("good");
        let cntlid = target.enabled("h");
        let accepted = target.connect_io("h", cntlid, 1);
        let mut queue = IoQueue::new(accepted.queue, accepted.view);
        let sqe = Sqe { nsid: 2, cdw12: count.into(), ..read(1, length) };
        match queue.handle_command(&sqe).expect("room") {
            Action::Execute(request) => {
                prop_assert_eq!(request.data_bytes, length);
                prop_assert!(request.data_bytes <= Limits::default().transfer_bytes);
            }
            Action::Respond(cqe) => prop_assert!(!cqe.status.is_success()),
            Action::Hold(_) | Action::Reserve(_) | Action::Disconnect(_) => prop_assert!(false),
        }
    }
}

fn records(count: u16) -> Vec<Record> {
    let record = |port| Record {
        entry: DiscoveryEntry { port, ..DiscoveryEntry::default() },
        hosts: nvme::controller::Access::Any,
    };
    (1..=count).map(record).collect()
}

// The discovery log was filled in part, or had garbage in its fourth record.
#[test]
fn a_discovery_log_of_any_length_is_read_whole_as_hosts_read_it() {
    for count in [0, 1, 3, 4, 5, 100, 200] {
        let mut target = Target::of(Kind::Discovery);
        target.subsystem.set_records(records(count));
        let cntlid = target.enabled("h");
        // Linux reads 16 bytes, libnvme a head and then pieces of 4 KiB.
        let head = target.log(cntlid, LogId::DISCOVERY, 0, 16).expect("the beginning");
        assert_eq!(head[8..16], u64::from(count).to_le_bytes());
        let mut ports = Vec::new();
        let mut offset = 1024;
        while ports.len() < usize::from(count) {
            let part = target.log(cntlid, LogId::DISCOVERY, offset, 4096).expect("a part");
            let entries =
                part.chunks(DISCOVERY_ENTRY_BYTES).map(|entry| DiscoveryEntry::decode(entry).expect("whole"));
            ports.extend(entries.map(|entry| entry.port));
            offset += 4096;
        }
        ports.truncate(count.into());
        assert_eq!(ports, (1..=count).collect::<Vec<_>>());
    }
}

// The log changed between two reads of its parts.
#[test]
fn the_parts_of_a_discovery_log_are_those_of_its_beginning() {
    let mut target = Target::of(Kind::Discovery);
    target.subsystem.set_records(records(3));
    let cntlid = target.enabled("h");
    let generation = |target: &mut Target| {
        let head = target.log(cntlid, LogId::DISCOVERY, 0, 1024).expect("the head");
        DiscoveryHead::decode(&head).expect("whole")
    };
    let before = generation(&mut target);
    target.subsystem.set_records(records(1));
    let third = target.log(cntlid, LogId::DISCOVERY, 3 * 1024, 1024).expect("still there");
    assert_eq!(DiscoveryEntry::decode(&third).expect("whole").port, 3);
    let after = generation(&mut target);
    assert!(after.generation != before.generation && after.entries == 1);
}

// A keep-alive timeout on a discovery controller was refused.
#[test]
fn a_discovery_controller_with_keep_alive_is_persistent_and_tells_changes() {
    let mut target = Target::of(Kind::Discovery);
    let cntlid = target.enabled("h");
    let wanted = AsyncEvents::DISCOVERY_CHANGED.0;
    target.set_feature(cntlid, FeatureId::ASYNC_EVENTS, wanted).expect("set");
    assert_eq!(target.wait_for_event(cntlid, 9), []);
    for _ in 0..100 {
        target.pass(Duration::from_secs(4));
        let (cqe, _) = target.command(cntlid, Sqe::new(0x18, 0, 0), &[]);
        assert_eq!(cqe.status, Status::SUCCESS);
    }
    target.subsystem.set_records(records(1));
    let events = target.answers();
    assert_eq!((events[0].0.cid, events[0].0.result), (9, Event::DISCOVERY_CHANGED.result()));
}

// Hosts were dropped because the target itself was busy.
#[test]
fn time_in_which_this_process_stood_still_is_no_silence_of_a_host() {
    let mut target = Target::of(Kind::Io);
    target.enabled("h");
    target.pass(Duration::from_secs(5));
    target.subsystem.handle_stall(Duration::from_secs(60));
    target.pass(Duration::from_secs(60));
    assert_eq!(target.closed(), []);
    target.pass(Duration::from_secs(5));
    assert_eq!(target.closed().len(), 1);
}

// A host with traffic on its I/O queues only was dropped (TBKAS).
#[test]
fn traffic_on_any_queue_keeps_a_controller_alive() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    for _ in 0..10 {
        target.now += Duration::from_secs(5);
        target.subsystem.handle_timeout(target.now, |asked| asked == cntlid);
        assert_eq!(target.closed(), []);
    }
    target.pass(Duration::from_secs(5));
    assert_eq!(target.closed().len(), 1);
}

// A new namespace never appeared where ANA was on.
#[test]
fn a_change_of_namespaces_is_also_an_event_of_ana() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let wanted = AsyncEvents::NAMESPACE_CHANGED.with(AsyncEvents::ANA_CHANGED);
    target.set_feature(cntlid, FeatureId::ASYNC_EVENTS, wanted.0).expect("set");
    target.wait_for_event(cntlid, 1);
    target.wait_for_event(cntlid, 2);
    target.subsystem.set_volume(2, volume(2)).expect("good");
    let events: Vec<u64> = target.answers().into_iter().map(|(cqe, _)| cqe.result).collect();
    assert_eq!(events, [Event::NAMESPACE_CHANGED.result(), Event::ANA_CHANGED.result()]);
}

// After a failback every path was inaccessible.
#[test]
fn a_node_that_can_serve_says_so_and_one_path_is_optimized_where_the_owner_serves() {
    for owner in [Node(0), Node(1)] {
        let states = [Node(0), Node(1)].map(|here| state(owner, here, Reach::Serving));
        let optimized = states.iter().filter(|state| **state == AnaState::OPTIMIZED).count();
        assert_eq!(optimized, 1);
        assert!(states.iter().all(|state| state.refusal().is_none()));
        for here in [Node(0), Node(1)] {
            assert_eq!(state(owner, here, Reach::Moving), AnaState::CHANGE);
            assert_eq!(state(owner, here, Reach::Unreachable), AnaState::INACCESSIBLE);
            assert_eq!(state(owner, here, Reach::Lost), AnaState::PERSISTENT_LOSS);
        }
    }
}

// A state of change that does not end makes Linux reset.
#[test]
fn a_change_of_ownership_is_over_after_anatt() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    target.subsystem.set_reach(target.now, Node(0), Reach::Moving);
    let anatt = Duration::from_secs(target.identify_controller(cntlid).ana_transition_s.into());
    let accepted = target.connect_io("h", cntlid, 1);
    let state = |view: &nvme::controller::View| view.namespace(1).map(|one| one.ana);
    assert_eq!(state(&accepted.view), Some(AnaState::CHANGE));
    target.now += anatt;
    target.subsystem.handle_timeout(target.now, |_| true);
    let views: Vec<_> = target.outputs();
    let [Output::View { view, .. }] = views.as_slice() else { panic!("{views:?}") };
    assert_eq!(state(view), Some(AnaState::INACCESSIBLE));
}

// A registrant disconnected, and the next report read freed memory.
#[test]
fn a_registration_belongs_to_a_host_and_not_to_its_controllers() {
    let mut state = Reservations::default();
    let (action, persistence) = (RegisterAction::REGISTER, Persistence::PERSISTENT);
    let register = Register { action, ignore_existing_key: true, persistence };
    let host = HostId([1; 16]);
    state.register(host, &register, &Keys { current: 0, other: 7 }).expect("registered");
    let connected = state.report(|_| vec![3, 4]);
    let gone = state.report(|_| vec![]);
    let cntlids = |report: &Report| report.registrants.iter().map(|one| one.cntlid).collect::<Vec<_>>();
    assert_eq!((cntlids(&connected), cntlids(&gone)), (vec![3, 4], vec![0xffff]));
    assert!(gone.registrants.iter().all(|one| one.host_id == host && one.key == 7));
}

// That no reservations had been saved was taken for an error.
#[test]
fn nothing_saved_is_nothing_reserved() {
    let nothing = Reservations::default().report(|_| vec![]);
    assert_eq!(Reservations::restore(&nothing), Ok(Reservations::default()));
}

// An NSID stood for another volume while hosts were connected.
#[test]
fn an_nsid_is_used_again_only_when_each_host_has_seen_that_it_was_free() {
    let mut target = Target::of(Kind::Io);
    let (a, b) = (target.enabled("a"), target.enabled("bb"));
    target.subsystem.remove_volume(1);
    assert!(target.subsystem.set_volume(1, volume(2)).is_err());
    target.outputs();
    target.log(a, LogId::CHANGED_NAMESPACES, 0, 4096).expect("a log");
    assert!(target.subsystem.set_volume(1, volume(2)).is_err(), "the other host has not looked");
    target.queue_closed(b, 0);
    assert_eq!(target.subsystem.set_volume(1, volume(2)), Ok(()), "it is gone");
    target.subsystem.remove_volume(1);
    assert_eq!(target.subsystem.set_volume(1, volume(2)), Ok(()), "the same volume may come back");
}

// Hosts tried for ten minutes to reach a target that had been removed.
#[test]
fn a_host_that_may_not_connect_is_told_not_to_try_again() {
    let mut config = config(Kind::Io);
    config.access = only(&["a"]);
    let mut target = Target::new(config);
    let refusal = target.try_connect("bb", CNTLID_DYNAMIC, &connect_command(0, 31, 0)).expect_err("refused");
    assert!(refusal.status.dnr());
}

// Transient errors used up the five retries of a host.
#[test]
fn a_failure_that_passes_has_a_retry_delay_for_hosts_that_wait_and_never_dnr() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let accepted = target.connect_io("h", cntlid, 1);
    let mut queue = IoQueue::new(accepted.queue, accepted.view);
    let fail = |queue: &mut IoQueue, status| {
        let Ok(Action::Execute(request)) = queue.handle_command(&read(1, 4096)) else { panic!("refused") };
        queue.complete(request.tag, status).expect("outstanding").status
    };
    assert_eq!(fail(&mut queue, Status::COMMAND_INTERRUPTED), Status::COMMAND_INTERRUPTED);
    let behavior = HostBehavior { retry_delays: 1, lba_formats: 0 }.encode();
    target.subsystem.handle_command(
        target.now,
        cntlid,
        &nvme::feature::Feature::set(
            1,
            FeatureId::HOST_BEHAVIOR,
            0,
            Sgl::InCapsule { offset: 0, length: 512 },
        ),
        &behavior,
    );
    for output in target.outputs() {
        if let Output::View { view, .. } = output {
            queue.set_view(view);
        }
    }
    let delayed = fail(&mut queue, Status::COMMAND_INTERRUPTED);
    assert_eq!((delayed.retry_delay(), delayed.dnr()), (1, false));
    assert!(target.identify_controller(cntlid).retry_delays_100_ms[0] > 0, "in units of 100 ms");
    assert_eq!(fail(&mut queue, Status::WRITE_FAULT).retry_delay(), 0);
}

// A digest was not mirrored, so that hosts refused to connect.
#[test]
fn the_digests_of_a_connection_are_those_that_the_host_asked_for() {
    for field in 0..4 {
        let digests = Digests::decode(field);
        let mut connection = TargetConnection::new(Duration::ZERO, Settings::default());
        let request = IcReq { hpda: 0, digests, maxr2t: 0 }.encode();
        let layout = connection.layout(request[..8].try_into().expect("eight")).expect("valid");
        let mut out = Vec::new();
        connection.handle_header(Duration::ZERO, &layout, &request, &mut out).expect("an ICReq");
        assert_eq!((out.len(), out[10], out[11]), (128, 0, field), "and CPDA is 0");
        let maxh2cdata = u32::from_le_bytes(out[12..16].try_into().expect("four"));
        assert!(maxh2cdata >= 4096 && maxh2cdata.is_multiple_of(4));
    }
}

// H2CData with a wild tag, offset or length crashed targets.
#[test]
fn data_that_were_not_asked_for_end_the_connection_before_a_byte_is_placed() {
    let good = H2cData { cccid: 5, ttag: 3, offset: 0, length: 4096, last: false };
    for (what, data, expected) in [
        ("a tag without a transfer", H2cData { ttag: 2, ..good }, Malformed::header(10)),
        ("a tag beyond all", H2cData { ttag: 0xffff, ..good }, Malformed::header(10)),
        ("the tag of another command", H2cData { cccid: 6, ..good }, Malformed::header(8)),
        ("an offset ahead", H2cData { offset: 4, ..good }, Malformed::of(FatalError::DATA_OUT_OF_RANGE)),
        (
            "a sum that wraps",
            H2cData { offset: u32::MAX, ..good },
            Malformed::of(FatalError::DATA_OUT_OF_RANGE),
        ),
        ("LAST before the end", H2cData { last: true, ..good }, Malformed::header(1)),
        ("no LAST at the end", H2cData { length: 8192, ..good }, Malformed::header(1)),
        (
            "more than MAXH2CDATA",
            H2cData { length: 8196, ..good },
            Malformed::of(FatalError::DATA_TRANSFER_LIMIT_EXCEEDED),
        ),
    ] {
        let mut connection = connection();
        connection.ask(3, 5, 10_000, &mut Vec::new());
        let mut bytes = Vec::new();
        data.encode(Sender::default(), &mut bytes);
        assert_eq!(feed(&mut connection, &bytes), Err(expected), "{what}");
    }
    // Less than MAXH2CDATA, and more than this R2T asks for.
    for last in [false, true] {
        let mut connection = connection();
        connection.ask(3, 5, 1000, &mut Vec::new());
        let mut bytes = Vec::new();
        H2cData { length: 4096, last, ..good }.encode(Sender::default(), &mut bytes);
        let expected = Err(Malformed::of(FatalError::DATA_OUT_OF_RANGE));
        assert_eq!(feed(&mut connection, &bytes), expected, "last: {last}");
    }
    let mut connection = connection();
    connection.ask(3, 5, 10_000, &mut Vec::new());
    let mut bytes = Vec::new();
    good.encode(Sender::default(), &mut bytes);
    assert_eq!(feed(&mut connection, &bytes), Ok(Received::Data { tag: 3, offset: 0, length: 4096 }));
    assert!(feed(&mut connection, &bytes).is_err(), "the data before are not placed");
    connection.handle_data(3, None, &[], &mut Vec::new());
    assert!(feed(&mut connection, &bytes).is_err(), "and not twice");
}

// The offsets of data for the host jumped.
#[test]
fn data_for_the_host_follow_one_another_and_end_once() {
    let connection = connection();
    for (total, parts) in
        [(1, vec![1]), (10_000, vec![4096, 4096, 4096]), (8192, vec![8192]), (5, vec![2, 9])]
    {
        let (mut data, mut next, mut lasts) = (ToHost::new(9, total), 0, 0);
        for length in parts {
            let mut out = Vec::new();
            let sent = connection.send_data(&mut data, length, &Cqe::default(), &mut out);
            assert_eq!(sent.offset, next);
            next += sent.length;
            lasts += u32::from(out[1] & 4 != 0);
            assert_eq!(sent.respond, data.left() == 0);
        }
        assert_eq!((next, lasts), (total, 1));
    }
}

// A queue with more entries than tags would wait for ever.
#[test]
fn the_largest_queue_has_a_tag_for_each_entry() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let accepted = target.connect_io("h", cntlid, 1);
    let mut queue = IoQueue::new(SubmissionQueue::new(0xffff, false), accepted.view);
    for cid in 0..=2000 {
        assert!(matches!(queue.handle_command(&read(cid, 4096)), Ok(Action::Execute(_))));
    }
}

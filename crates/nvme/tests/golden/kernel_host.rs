//! The kernel's host on our target: every command is taken, and answered with the bytes of the
//! kernel's target, except where a difference is named here.

use crate::capture::{Capture, End, Event, Exchange, Packet};
use crate::our_target::{BLOCKS, Target};
use nvme::command::SQHD_NO_FLOW_CONTROL;
use nvme::controller::{Access, Kind, Record};
use nvme::fabrics::{FabricsType, Property};
use nvme::feature::{Event as Notice, Feature, FeatureId};
use nvme::identify::{Cns, Identify};
use nvme::io::Blocks;
use nvme::log_page::{DiscoveryLog, GetLogPage, LogId};
use nvme::pdu::Pdu;
use nvme::register::{CAP, CSTS, VS};
use nvme::{AdminOpcode, Cqe, IoOpcode, Sqe, Status};
use std::collections::{BTreeMap, BTreeSet};

/// A capture whose host speaks with our target.
struct Run {
    target: Target,
    /// The events that the kernel's target has told.
    told: Vec<Notice>,
    /// The commands that were sent and not completed.
    outstanding: BTreeMap<(u16, u16), Exchange>,
}

impl Run {
    fn new(target: Target) -> Self {
        Self { target, told: Vec::new(), outstanding: BTreeMap::new() }
    }

    /// Everything until the end; `answered` gets each PDU of the kernel's target.
    fn until_the_end(&mut self, capture: &Capture, mut answered: impl FnMut(&mut Self, &Packet)) {
        let mut exchanges = capture.exchanges().into_iter();
        for event in &capture.events {
            match event {
                Event::Note(note) => self.target.apply(note),
                Event::Closed(qid) => self.target.closed(*qid),
                Event::Packet(packet) if packet.from == End::Target => answered(self, packet),
                Event::Packet(packet) => {
                    let is_command = matches!(packet.pdu, Pdu::CapsuleCmd(_));
                    let exchange = if is_command { exchanges.next() } else { None };
                    self.target.receive(packet, exchange.as_ref());
                    let all = exchange.map(|one| ((one.qid, one.sqe.cid), one));
                    self.outstanding.extend(all);
                }
            }
        }
    }

    /// Compares a PDU of the kernel's target with ours of the same command.
    fn compare(&mut self, kernel: &Packet) {
        let one = kernel.cid().map(|cid| self.outstanding[&(kernel.qid, cid)].clone());
        if let (Some(one), Pdu::CapsuleResp(response)) = (&one, kernel.pdu)
            && AdminOpcode(one.sqe.opcode) == AdminOpcode::ASYNC_EVENT_REQUEST
            && one.qid == 0
        {
            // At the end the kernel aborts the request.
            let is_event = response.cqe.status.is_success();
            self.told.extend(is_event.then(|| Notice::of(response.cqe.result)));
            return;
        }
        let is_quiet = self.told.is_empty() && self.target.told.is_empty();
        let connection = self.target.connections.get_mut(&kernel.qid).expect("a connection");
        let is_like = |ours: &Packet| (ours.layout.kind, ours.cid()) == (kernel.layout.kind, kernel.cid());
        let at = connection.ours.iter().position(is_like);
        let ours = connection.ours.remove(at.unwrap_or_else(|| panic!("not answered: {one:?}")));
        match (one, kernel.pdu, ours.pdu) {
            (Some(one), Pdu::CapsuleResp(theirs), Pdu::CapsuleResp(response)) => {
                let cqe = response.cqe;
                let mut expected = expected(&one, &theirs.cqe, connection.flow_control, cqe.result);
                // Events come at other times.
                if one.qid == 0 && !is_quiet && connection.flow_control {
                    expected.sqhd = cqe.sqhd;
                }
                assert_eq!(cqe, expected, "{}: {:?}", one.note, one.sqe);
                if cqe == theirs.cqe {
                    assert_eq!(ours.bytes, kernel.bytes);
                }
            }
            (one, _, _) => {
                assert_eq!(ours.head(), kernel.head());
                one.iter().for_each(|one| compare_data(one, kernel.data(), ours.data()));
            }
        }
    }
}

/// What we answer where the kernel's target answers so.
fn expected(one: &Exchange, kernel: &Cqe, flow_control: bool, result: u64) -> Cqe {
    // SQID is reserved over fabrics; the kernel fills it in.
    let mut cqe = Cqe { sqid: 0, ..*kernel };
    // Without flow control SQHD means nothing. After Connect the kernel has 0 there.
    if !flow_control {
        cqe.sqhd = SQHD_NO_FLOW_CONTROL;
    }
    // The kernel says that its error log has more, and allows to try a protected write again.
    if !kernel.status.is_success() {
        cqe.status = Status::of(kernel.status.code()).no_retry();
    }
    if one.qid == 0 {
        expected_of_admin(&one.sqe, &mut cqe, result);
    } else if kernel.status.is(Status::INTERNAL_ERROR) {
        // A range beyond the end, which the kernel leaves to its block device.
        assert!(!Blocks::of(&one.sqe).are_within(BLOCKS));
        cqe.status = Status::LBA_OUT_OF_RANGE.no_retry();
    }
    cqe
}

fn expected_of_admin(sqe: &Sqe, cqe: &mut Cqe, result: u64) {
    let Feature { id, value, .. } = Feature::of(sqe);
    let sets = AdminOpcode(sqe.opcode) == AdminOpcode::SET_FEATURES;
    let (property, is_get) = (Property::of(sqe), FabricsType::of(sqe) == FabricsType::PROPERTY_GET);
    match AdminOpcode(sqe.opcode) {
        // Write protection is not a feature here.
        AdminOpcode::SET_FEATURES | AdminOpcode::GET_FEATURES if id == FeatureId::WRITE_PROTECTION => {
            (cqe.result, cqe.status) = (0, Status::INVALID_FIELD.no_retry());
        }
        // Queues are granted as the host asks for them, here one; the kernel says its most.
        AdminOpcode::SET_FEATURES | AdminOpcode::GET_FEATURES if id == FeatureId::NUMBER_OF_QUEUES => {
            assert!(cqe.result == 0x007f_007f && value == 0);
            cqe.result = 0;
        }
        // The kernel repeats what was set.
        AdminOpcode::SET_FEATURES if id == FeatureId::ASYNC_EVENTS => {
            assert_eq!(cqe.result, u64::from(value));
            cqe.result = 0;
        }
        // The kernel says it in seconds.
        AdminOpcode::SET_FEATURES if id == FeatureId::KEEP_ALIVE => cqe.result = 0,
        // What a namespace is in the NVM command set: the kernel does not know it.
        AdminOpcode::IDENTIFY if Identify::of(sqe).cns == Cns::COMMAND_SET_NAMESPACE => {
            assert_eq!(cqe.status, Status::INVALID_FIELD.no_retry());
            cqe.status = Status::SUCCESS;
        }
        // After a shutdown the kernel's target also says that it is not ready.
        AdminOpcode::FABRICS if is_get && property.offset == CSTS && cqe.result == 8 => cqe.result = 9,
        // Each controller has capabilities and a version of its own.
        AdminOpcode::FABRICS if is_get && [CAP, VS].contains(&property.offset) => {
            assert_ne!(cqe.result, result);
            cqe.result = result;
        }
        _ => assert!(!sets, "{id:?}"),
    }
}

/// Data that do not depend on whose target it is are the same.
fn compare_data(one: &Exchange, kernel: &[u8], ours: &[u8]) {
    assert_eq!(ours.len(), kernel.len());
    let (cns, log) = (Identify::of(&one.sqe).cns, GetLogPage::of(&one.sqe).log);
    let first = match AdminOpcode(one.sqe.opcode) {
        _ if one.qid > 0 => 0,
        AdminOpcode::IDENTIFY if cns == Cns::ACTIVE_NAMESPACES => 0,
        AdminOpcode::GET_LOG_PAGE if log == LogId::CHANGED_NAMESPACES => 0,
        // All but the generation.
        AdminOpcode::GET_LOG_PAGE if log == LogId::DISCOVERY => 8,
        _ => return,
    };
    assert_eq!(ours[first..], kernel[first..], "{}: {:?}", one.note, one.sqe);
}

/// The records of the log that the kernel has told.
fn records(capture: &Capture) -> Vec<Record> {
    let exchanges = capture.exchanges();
    let log = exchanges.iter().find(|one| one.sqe.opcode == 0x02 && one.to_host.len() > 1024);
    let log = DiscoveryLog::decode(&log.expect("a log").to_host).expect("whole");
    log.entries.into_iter().map(|entry| Record { entry, hosts: Access::Any }).collect()
}

fn target(capture: &Capture) -> Target {
    if !capture.name.contains("/discovery") {
        return Target::new(Kind::Io);
    }
    let mut target = Target::new(Kind::Discovery);
    target.subsystem.set_records(records(capture));
    target
}

#[test]
fn our_target_answers_the_kernels_host_as_the_kernels_target_does() {
    for capture in Capture::all() {
        let mut run = Run::new(target(&capture));
        if capture.name.contains("refused_host") {
            run.target.subsystem.set_access(Access::Only(BTreeSet::new()));
        }
        run.until_the_end(&capture, Run::compare);
        // What the kernel did not know has data here.
        for left in run.target.connections.values().flat_map(|connection| &connection.ours) {
            let one = &run.outstanding[&(left.qid, left.cid().expect("of a command"))];
            assert_eq!(Identify::of(&one.sqe).cns, Cns::COMMAND_SET_NAMESPACE, "{left:?}");
        }
        // Ours also says that the ANA log has changed when namespaces have.
        for event in [Notice::NAMESPACE_CHANGED, Notice::ANA_CHANGED, Notice::DISCOVERY_CHANGED] {
            let count = |told: &[Notice]| told.iter().filter(|told| **told == event).count();
            let (kernels, ours) = (count(&run.told), count(&run.target.told));
            let is_more = event == Notice::ANA_CHANGED && ours > kernels;
            assert!(ours == kernels || is_more, "{}: {ours} and {kernels} of {event:?}", capture.name);
        }
        assert_eq!(run.target.subsystem.controllers().count(), 0, "{}: the host has left", capture.name);
    }
}

#[test]
fn a_bit_that_flips_on_the_way_to_our_target_fails_its_write_where_data_have_a_digest() {
    let mut failed = 0;
    for capture in Capture::all() {
        let has_digest = capture.packets().any(|packet| packet.layout.has_data_digest);
        let mut run = Run::new(target(&capture));
        run.target.spoils = has_digest;
        run.until_the_end(&capture, |_, _| {});
        for left in run.target.connections.get(&1).iter().flat_map(|connection| &connection.ours) {
            let Pdu::CapsuleResp(response) = left.pdu else { continue };
            let one = &run.outstanding[&(1, response.cqe.cid)];
            if has_digest && IoOpcode(one.sqe.opcode) == IoOpcode::WRITE {
                assert_eq!(response.cqe.status, Status::TRANSIENT_TRANSPORT_ERROR, "{}", one.note);
                failed += 1;
            }
        }
    }
    // One in a capsule and one on request in each capture with digests of data.
    assert_eq!(failed, 6);
}

//! The kernel's target with our host: our end of a connection sends the bytes of the kernel's host,
//! takes every PDU of the kernel's target, and reports each completion as it came.
//!
//! Our host chooses identifiers of commands itself: they stand in place of the kernel's.

use crate::capture::{CAPSULE_DATA_BYTES, Capture, End, Event, Packet, TRANSFER_BYTES};
use nvme::digest;
use nvme::fabrics::FabricsType;
use nvme::host::HostData;
use nvme::pdu::Pdu;
use nvme::tcp::{HostConnection, HostReceived, HostSettings};
use nvme::{AdminOpcode, Cqe, Direction, Sqe, Status};
use std::collections::{BTreeMap, VecDeque};

/// Our end of a connection.
struct Connection {
    wire: HostConnection,
    /// Our identifiers of commands, by the kernel's.
    cids: BTreeMap<u16, u16>,
    /// The heads of data that we have sent, as far as the kernel has not sent the like.
    sent: VecDeque<Vec<u8>>,
    /// The outcome of each command that has ended.
    completed: Vec<(Sqe, Status)>,
    outstanding: BTreeMap<u16, Sqe>,
}

/// A PDU with another identifier of its command, and the digest that its header has then.
fn renamed(packet: &Packet, cid: u16) -> Vec<u8> {
    let at = match packet.pdu {
        Pdu::CapsuleCmd(_) => 10,
        Pdu::CapsuleResp(_) => 20,
        _ => 8,
    };
    let mut bytes = packet.bytes.clone();
    bytes[at..at + 2].copy_from_slice(&cid.to_le_bytes());
    let hlen = usize::from(packet.layout.hlen);
    if packet.layout.has_header_digest {
        let digest = digest::of(&bytes[..hlen]).to_bytes();
        bytes[hlen..hlen + digest.len()].copy_from_slice(&digest);
    }
    bytes
}

impl Connection {
    /// Begins as the kernel's host did.
    fn begun(packet: &Packet) -> Self {
        let Pdu::IcReq(request) = packet.pdu else { panic!("{:?}", packet.pdu) };
        let entries = if packet.qid == 0 { 32 } else { 128 };
        let settings = HostSettings { digests: request.digests, entries, transfer_bytes: TRANSFER_BYTES };
        let mut sent = Vec::new();
        let wire = HostConnection::new(settings, &mut sent);
        assert_eq!(sent, packet.bytes);
        Self {
            wire,
            cids: BTreeMap::new(),
            sent: VecDeque::new(),
            completed: Vec::new(),
            outstanding: BTreeMap::new(),
        }
    }

    /// Submits the command that the kernel's host has sent, or sends the data.
    fn send(&mut self, packet: &Packet) {
        let Pdu::CapsuleCmd(command) = packet.pdu else {
            let cid = self.cids[&packet.cid().expect("of a command")];
            let sent = self.sent.pop_front().expect("our host sends data when it is asked to");
            assert_eq!(sent, renamed(packet, cid)[..packet.head().len()]);
            return;
        };
        let sqe = command.sqe;
        let bytes = sqe.sgl.length().expect("a length");
        let data = match sqe.direction() {
            _ if bytes == 0 => HostData::None,
            Direction::ToController => HostData::ToController(bytes),
            _ => HostData::FromController(bytes),
        };
        let mut sent = Vec::new();
        let submitted = self.wire.submit(&sqe, data, &mut sent).expect("room");
        assert_eq!(sent, renamed(packet, submitted.cid)[..packet.head().len()]);
        assert_eq!(submitted.in_capsule as usize, packet.data().len());
        assert_eq!(submitted.digest, packet.layout.has_data_digest);
        self.cids.insert(sqe.cid, submitted.cid);
        self.outstanding.insert(submitted.cid, sqe);
    }

    /// Takes a PDU of the kernel's target; a bit of its data may have changed on the way.
    fn receive(&mut self, packet: &Packet, spoils: bool) {
        let ours = packet.cid().map(|cid| self.cids[&cid]);
        let bytes = ours.map_or(packet.bytes.clone(), |cid| renamed(packet, cid));
        let cid = ours.unwrap_or_default();
        let first = bytes.first_chunk().expect("eight bytes");
        let layout = self.wire.layout(first).expect("the kernel keeps the rules");
        let received = self.wire.handle_header(&layout, &bytes[..layout.header_bytes()]);
        match received.expect("the kernel keeps the rules") {
            HostReceived::Ready => assert_eq!(ours, None),
            HostReceived::Data { cid: of, offset, length } => {
                assert_eq!((of, offset, length as usize), (cid, 0, packet.data().len()));
                let mut data = packet.data().to_vec();
                data[0] ^= u8::from(spoils);
                let ended = self.wire.handle_data(cid, Some(digest::of(&data)), packet.data_digest());
                ended.iter().for_each(|cqe| self.complete(cqe));
            }
            HostReceived::Asked { cid: of } => {
                assert_eq!(of, cid);
                let mut head = Vec::new();
                while let Some(sent) = self.wire.send_data(cid, &mut head) {
                    assert_eq!(sent.digest, packet.sender.digests.data);
                    self.sent.push_back(std::mem::take(&mut head));
                }
            }
            HostReceived::Completed(cqe) => {
                let Pdu::CapsuleResp(response) = packet.pdu else { panic!("{:?}", packet.pdu) };
                let status = if spoils { cqe.status } else { response.cqe.status };
                assert_eq!(cqe, Cqe { cid, status, ..response.cqe });
                self.complete(&cqe);
            }
            HostReceived::Terminated(term) => panic!("{term:?}"),
        }
    }

    fn complete(&mut self, cqe: &Cqe) {
        let sqe = self.outstanding.remove(&cqe.cid).expect("outstanding");
        self.completed.push((sqe, cqe.status));
        let is_connect =
            AdminOpcode(sqe.opcode) == AdminOpcode::FABRICS && FabricsType::of(&sqe) == FabricsType::CONNECT;
        let is_admin = sqe.cdw10 == 0;
        if is_connect && !is_admin {
            self.wire.set_capsule_data_bytes(CAPSULE_DATA_BYTES);
        }
    }
}

/// Our host's connections, in place of those of a capture.
fn run(capture: &Capture, spoils: bool) -> BTreeMap<u16, Connection> {
    let mut connections = BTreeMap::new();
    for event in &capture.events {
        let Event::Packet(packet) = event else { continue };
        let begin = || Connection::begun(packet);
        if packet.layout.kind == nvme::pdu::PduType::IC_REQ {
            connections.insert(packet.qid, begin());
            continue;
        }
        let connection: &mut Connection = connections.get_mut(&packet.qid).expect("begun");
        match packet.from {
            End::Host => connection.send(packet),
            End::Target => connection.receive(packet, spoils),
        }
    }
    connections
}

#[test]
fn our_host_sends_the_bytes_of_the_kernels_host_and_takes_those_of_the_kernels_target() {
    for capture in Capture::all() {
        let connections = run(&capture, false);
        let commands = capture.exchanges().len();
        let completed: usize = connections.values().map(|connection| connection.completed.len()).sum();
        assert_eq!(completed, commands, "{}: every command ends", capture.name);
        for connection in connections.values() {
            assert!(connection.sent.is_empty() && connection.wire.outstanding() == 0, "{}", capture.name);
        }
    }
}

#[test]
fn a_bit_that_flips_on_the_way_to_our_host_fails_its_command_where_data_have_a_digest() {
    let mut failed = 0;
    for capture in Capture::all() {
        let has_digest = capture.packets().any(|packet| packet.layout.has_data_digest);
        let connections = run(&capture, true);
        let right = run(&capture, false);
        for (spoiled, right) in connections.values().zip(right.values()) {
            for ((sqe, status), (_, expected)) in spoiled.completed.iter().zip(&right.completed) {
                let has_data = sqe.direction() == Direction::ToHost && sqe.sgl.length() != Some(0);
                if has_digest && has_data && expected.is_success() {
                    assert_eq!(*status, Status::TRANSIENT_TRANSPORT_ERROR, "{}", capture.name);
                    failed += 1;
                } else {
                    assert_eq!(status, expected, "{}", capture.name);
                }
            }
        }
    }
    assert!(failed > 50, "{failed}");
}

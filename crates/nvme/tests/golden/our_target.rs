//! Our target, as far as a driver is needed for what the kernel's host sends: the machines of
//! connections, of the subsystem and of I/O queues. It executes everything at once.

use crate::capture::{CAPSULE_DATA_BYTES, End, Exchange, Packet, TRANSFER_BYTES, packet};
use crate::commands::{SUBSYSTEM, nqn};
use nvme::controller::{
    Accepted, Access, Action, CloseReason, Config, IoQueue, Kind, Limits, Node, Operation, Output, Port,
    QueueId, Reach, Request, Subsystem, Volume, VolumeId,
};
use nvme::digest;
use nvme::fabrics::{Connect, ConnectAttributes, ConnectData};
use nvme::feature::{Event as Notice, Feature, FeatureId};
use nvme::identify::NamespaceIds;
use nvme::pdu::Pdu;
use nvme::tcp::{Incoming, Progress, Received, Settings, TargetConnection, ToHost};
use nvme::{AdminOpcode, Cqe, Sqe, Status, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The blocks of the first namespace, of 512 bytes.
pub const BLOCKS: u64 = 0x2_0000;

const NOW: Duration = Duration::ZERO;
const PORT: Port = Port { node: Node::A, transport: Transport::Tcp, capsule_data_bytes: CAPSULE_DATA_BYTES };
/// MAXH2CDATA is that of the kernel.
const SETTINGS: Settings = Settings { capsule_data_bytes: CAPSULE_DATA_BYTES, transfer_bytes: 0x40_0000 };

enum Queue {
    None,
    Admin(u16),
    Io(QueueId, IoQueue),
}

/// A command whose data were asked for.
struct Asked {
    request: Request,
    cid: u16,
}

pub struct Connection {
    wire: TargetConnection,
    queue: Queue,
    pub flow_control: bool,
    asked: BTreeMap<u16, Asked>,
    /// Bytes that we have sent.
    sent: Vec<u8>,
    /// The same by PDU, as far as the kernel has not sent the like.
    pub ours: Vec<Packet>,
}

/// Our target, with the namespaces of the captures.
pub struct Target {
    pub subsystem: Subsystem,
    pub connections: BTreeMap<u16, Connection>,
    /// The requests for events.
    requests: BTreeSet<(u16, u16)>,
    /// The events that we have told.
    pub told: Vec<Notice>,
    /// A bit of all data for an I/O queue changes on the way.
    pub spoils: bool,
}

fn config(kind: Kind) -> Config {
    let limits = Limits { transfer_bytes: TRANSFER_BYTES, queue_entries: 1024, ..Limits::default() };
    Config {
        nqn: nqn(SUBSYSTEM),
        kind,
        serial: "0123456789abcdef".to_owned(),
        model: "Golden".to_owned(),
        firmware: "1.0".to_owned(),
        // As many ANA groups as the kernel has, so that the ANA log is as long as its host thinks.
        nodes: 128,
        // The kernel gives each controller of the captures this identifier.
        cntlids: [(Node::A, 1..=1)].into(),
        is_split: false,
        access: Access::Any,
        host_ids: BTreeMap::new(),
        reservations: false,
        limits,
    }
}

fn volume(nsid: u8, blocks: u64, block_shift: u8) -> Volume {
    let uuid = Some(u128::from(nsid).to_be_bytes());
    Volume {
        id: VolumeId(nsid.into()),
        ids: NamespaceIds { eui64: None, nguid: None, uuid },
        blocks,
        block_shift,
        owner: Node::A,
        hosts: Access::Any,
        write_protected: false,
        volatile_cache: true,
        deallocated_reads_zero: true,
        preferred_blocks: 0,
    }
}

impl Target {
    pub fn new(kind: Kind) -> Self {
        let mut subsystem = Subsystem::new(NOW, config(kind));
        if kind == Kind::Io {
            subsystem.set_volume(1, volume(1, BLOCKS, 9)).expect("a good volume");
        }
        let (connections, requests, told) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        Self { subsystem, connections, requests, told, spoils: false }
    }

    /// Does at our target what was done at the kernel's.
    pub fn apply(&mut self, note: &str) {
        let Some(note) = note.strip_prefix("at the target: ") else { return };
        match note {
            "echo non-optimized > ana_groups/1/ana_state" => {
                assert!(self.subsystem.set_owner(NOW, 1, Node::B, Reach::Serving));
            }
            "echo 1 > namespaces/2/enable" => {
                self.subsystem.set_volume(2, volume(2, 0x2000, 12)).expect("a good volume");
            }
            "echo 0 > namespaces/2/enable" => self.subsystem.remove_volume(2),
            "another subsystem is linked to the port" => self.subsystem.set_records(Vec::new()),
            _ => panic!("{note}"),
        }
        self.carry_out();
    }

    fn connection(&mut self, qid: u16) -> &mut Connection {
        self.connections.entry(qid).or_insert_with(|| Connection {
            wire: TargetConnection::new(NOW, SETTINGS),
            queue: Queue::None,
            flow_control: true,
            asked: BTreeMap::new(),
            sent: Vec::new(),
            ours: Vec::new(),
        })
    }

    /// Takes a PDU of the kernel's host; `exchange` is what it belongs to, if it is a command.
    pub fn receive(&mut self, packet: &Packet, exchange: Option<&Exchange>) {
        let spoils = self.spoils && packet.qid > 0 && self.connection(packet.qid).is_running();
        let connection = self.connection(packet.qid);
        let first = packet.bytes.first_chunk().expect("eight bytes");
        let layout = connection.wire.layout(first).expect("the kernel keeps the rules");
        let received = connection.wire.handle_header(NOW, &layout, packet.header(), &mut connection.sent);
        let mut data = packet.data().to_vec();
        if let Some(byte) = data.first_mut().filter(|_| spoils) {
            *byte ^= 1;
        }
        match received.expect("the kernel keeps the rules") {
            Received::Initialized => {}
            Received::Command { sqe, data: incoming } => {
                let exchange = exchange.expect("a command");
                self.command(packet, exchange, &sqe, incoming, &data);
            }
            Received::Data { tag, offset: _, length } => {
                assert_eq!(length as usize, data.len());
                let (computed, digest) = (Some(digest::of(&data)), packet.data_digest());
                let progress = connection.wire.handle_data(tag, computed, digest, &mut connection.sent);
                let status = status(progress);
                let Asked { request, cid } = connection.asked.remove(&tag).expect("it was asked for");
                connection.execute(&request, cid, &data, &[], status);
            }
            other => panic!("{other:?}"),
        }
        self.carry_out();
    }

    fn command(&mut self, packet: &Packet, exchange: &Exchange, sqe: &Sqe, incoming: Incoming, data: &[u8]) {
        let connection = self.connection(packet.qid);
        let mut progress = Progress::Complete;
        if let Incoming::InCapsule(_) = incoming {
            let computed = Some(digest::of(data));
            progress = connection.wire.handle_capsule_data(computed, packet.data_digest());
        }
        match &mut connection.queue {
            Queue::None => self.connect(packet.qid, sqe, data),
            Queue::Admin(cntlid) => {
                let cntlid = *cntlid;
                assert_eq!(progress, Progress::Complete);
                if AdminOpcode(sqe.opcode) == AdminOpcode::ASYNC_EVENT_REQUEST {
                    self.requests.insert((packet.qid, sqe.cid));
                }
                self.subsystem.handle_command(NOW, cntlid, sqe, data);
                self.protect(sqe);
            }
            Queue::Io(_, queue) => match queue.handle_command(sqe).expect("room") {
                Action::Respond(cqe) => connection.wire.respond(&cqe, &mut connection.sent),
                Action::Execute(request) => match incoming {
                    // Under the tag that the kernel has chosen.
                    Incoming::OnRequest(bytes) => {
                        let tag = exchange.asked[0].ttag;
                        connection.wire.ask(tag, sqe.cid, bytes, &mut connection.sent);
                        connection.asked.insert(tag, Asked { request, cid: sqe.cid });
                    }
                    _ => connection.execute(&request, sqe.cid, data, &exchange.to_host, status(progress)),
                },
                other => panic!("{other:?}"),
            },
        }
    }

    /// Write protection is configured here, where the kernel has a feature for it.
    fn protect(&mut self, sqe: &Sqe) {
        let Feature { id, value, nsid, .. } = Feature::of(sqe);
        if AdminOpcode(sqe.opcode) == AdminOpcode::SET_FEATURES && id == FeatureId::WRITE_PROTECTION {
            let volume = Volume { write_protected: value == 1, ..volume(1, BLOCKS, 9) };
            self.subsystem.set_volume(nsid, volume).expect("a good volume");
        }
    }

    fn connect(&mut self, qid: u16, sqe: &Sqe, data: &[u8]) {
        let (connect, data) = (Connect::of(sqe), ConnectData::decode(data).expect("whole"));
        let accepted = self.subsystem.connect(NOW, PORT, sqe.cid, &connect, &data);
        let connection = self.connection(qid);
        match accepted {
            Ok(Accepted { id, queue, view, cqe }) => {
                connection.flow_control = !connect.attributes.has(ConnectAttributes::DISABLE_SQ_FLOW);
                let (is_admin, flow_control) = (qid == 0, connection.flow_control);
                connection.wire.accept(is_admin, flow_control, &cqe, &mut connection.sent);
                connection.queue = match is_admin {
                    true => Queue::Admin(id.cntlid),
                    false => Queue::Io(id, IoQueue::new(queue, view)),
                };
            }
            Err(refusal) => connection.wire.respond(&refusal.completion(sqe.cid), &mut connection.sent),
        }
    }

    /// Does what the subsystem asks for, and sorts what was sent.
    fn carry_out(&mut self) {
        while let Some(output) = self.subsystem.poll_output() {
            match output {
                Output::Respond { cqe, data, .. } => {
                    let connection = self.connection(0);
                    connection.send(&cqe, &data);
                }
                Output::View { view, .. } => {
                    for connection in self.connections.values_mut() {
                        if let Queue::Io(_, queue) = &mut connection.queue {
                            queue.set_view(Arc::clone(&view));
                        }
                    }
                }
                // The host closes it too.
                Output::Close { queue: QueueId { qid: 1, .. }, reason: CloseReason::Shutdown } => {}
                // The requests for events of a host that shuts down.
                Output::Released { .. } | Output::Dropped { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        for (qid, connection) in &mut self.connections {
            let sent = std::mem::take(&mut connection.sent);
            let mut rest = sent.as_slice();
            while !rest.is_empty() {
                let digests = connection.wire.digests();
                let (packet, length) = packet(*qid, End::Target, rest, digests).expect("a PDU");
                rest = &rest[length..];
                match packet.pdu {
                    Pdu::CapsuleResp(response) if self.requests.contains(&(*qid, response.cqe.cid)) => {
                        self.told.push(Notice::of(response.cqe.result));
                    }
                    _ => connection.ours.push(packet),
                }
            }
        }
    }

    /// The host has closed a connection.
    pub fn closed(&mut self, qid: u16) {
        let queue = match &self.connection(qid).queue {
            Queue::None => return,
            Queue::Admin(cntlid) => QueueId { cntlid: *cntlid, qid },
            Queue::Io(id, _) => *id,
        };
        self.subsystem.handle_queue_closed(NOW, queue);
        self.carry_out();
    }
}

fn status(progress: Progress) -> Status {
    match progress {
        Progress::Complete => Status::SUCCESS,
        Progress::Failed(status) => status,
        Progress::More => panic!("the kernel sends all data at once"),
    }
}

impl Connection {
    fn is_running(&self) -> bool {
        !matches!(self.queue, Queue::None)
    }

    /// Ends a command of an I/O queue. What is read is what the kernel has read.
    fn execute(&mut self, request: &Request, cid: u16, data: &[u8], read: &[u8], status: Status) {
        let Queue::Io(_, queue) = &mut self.queue else { panic!("no I/O queue") };
        if request.operation == Operation::Deallocate && status.is_success() {
            let ranges = queue.ranges(request.tag, data).expect("within the namespace");
            assert!(ranges.count() > 0);
        }
        let cqe = queue.complete(request.tag, status).expect("outstanding");
        assert_eq!(cqe.cid, cid);
        let read = if request.operation == Operation::Read { read } else { &[] };
        self.send(&cqe, read);
    }

    /// Sends data at once, and the completion if they do not imply it.
    fn send(&mut self, cqe: &Cqe, data: &[u8]) {
        if data.is_empty() {
            return self.wire.respond(cqe, &mut self.sent);
        }
        let mut rest = ToHost::new(cqe.cid, data.len() as u32);
        let sent = self.wire.send_data(&mut rest, u32::MAX, cqe, &mut self.sent);
        self.sent.extend_from_slice(data);
        if sent.digest {
            self.sent.extend(digest::of(data).to_bytes());
        }
        if sent.respond {
            self.wire.respond(cqe, &mut self.sent);
        }
    }
}

//! A target in memory: one volume with content, more without. Commands are executed one at a time
//! in any order, and never for a controller that was reported as finished.

use crate::{Link, client, path_of};
use fastrand::Rng;
use nvme::controller::{
    Accepted, Access, Action, Config, EndRequest, IoQueue, Kind, Limits, Node, Operation, Output, Port,
    QueueId, Request, Subsystem, Volume, VolumeId,
};
use nvme::cross_reset::Impacted;
use nvme::digest::{self, Digest};
use nvme::end_controller::{END_CONTROLLER, EndController};
use nvme::fabrics::{Connect, ConnectData};
use nvme::identify::NamespaceIds;
use nvme::tcp::{Incoming, Progress, Received, Settings, TargetConnection, ToHost};
use nvme::{AdminOpcode, Cqe, HostId, Nqn, Sqe, Status, Transport};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The node at whose port a connection is.
const fn node(link: Link) -> Node {
    Node(path_of(link) as u32)
}

/// A target that stood still for longer than this ends its I/O connections before it reads what has
/// come on them, as the real one does.
const STALL: Duration = Duration::from_secs(4);

const SETTINGS: Settings = Settings { capsule_data_bytes: 4096, transfer_bytes: 16_384 };

enum Queue {
    None,
    Admin(u16),
    Io(QueueId, IoQueue),
}

/// Where the instances of a process begin: its node, shifted.
const NODE_SHIFT: u32 = 32;

/// A command whose data are not all there, or that waits to be executed.
struct Task {
    request: Request,
    data: Vec<u8>,
    is_ready: bool,
    /// The device has not executed it before.
    due: Duration,
}

/// What was written: the first block, and the data.
pub type Written = (u64, Vec<u8>);

struct Connection {
    wire: TargetConnection,
    queue: Queue,
    received: Vec<u8>,
    sent: Vec<u8>,
    tasks: Vec<Task>,
    broken: bool,
}

/// What one process of a pair says to the other one.
enum Between {
    Ask(EndRequest),
    Answer(u64, Status),
    HostId(HostId, Option<Nqn>),
}

pub struct Server {
    /// One for both nodes, or one for each if they are two processes.
    machines: Vec<Subsystem>,
    /// To each process from the other one, with the time of its arrival.
    between: [VecDeque<(Duration, Between)>; 2],
    connections: BTreeMap<Link, Connection>,
    content: Vec<u8>,
    closed: Vec<Link>,
    extra: bool,
    /// How long the device may take for a command, in milliseconds.
    pub latency_ms: u64,
    /// Time in which it stood still does not count against hosts.
    pub forgives_stalls: bool,
    pub written: Vec<Written>,
    /// How many controllers each process had, and the number of each that there is.
    instances: [u64; 2],
    instance_of: BTreeMap<u16, u64>,
    /// What the commands name that end controllers, by controller and identifier.
    ends: BTreeMap<(u16, u16), Vec<u64>>,
    /// The controllers that were reported as finished.
    finished: BTreeSet<u64>,
}

impl Server {
    pub fn new(now: Duration, is_split: bool) -> Self {
        let both = BTreeMap::from([(Node(0), 1..=1000), (Node(1), 1001..=2000)]);
        let of_node = |node: u32| {
            let mut machine = machine(now, [(Node(node), both[&Node(node)].clone())].into(), true);
            machine.set_instance_base(u64::from(node) << NODE_SHIFT);
            machine
        };
        let machines = if is_split { vec![of_node(0), of_node(1)] } else { vec![machine(now, both, false)] };
        let content = vec![0; client::BLOCKS as usize * client::BLOCK];
        Self {
            machines,
            between: Default::default(),
            connections: BTreeMap::new(),
            content,
            closed: Vec::new(),
            extra: false,
            latency_ms: 0,
            forgives_stalls: true,
            written: Vec::new(),
            instances: [0, 0],
            instance_of: BTreeMap::new(),
            ends: BTreeMap::new(),
            finished: BTreeSet::new(),
        }
    }

    /// The process that has a controller.
    fn at(&self, cntlid: u16) -> usize {
        usize::from(self.machines.len() > 1 && cntlid > 1000)
    }

    fn of(&mut self, cntlid: u16) -> &mut Subsystem {
        let at = self.at(cntlid);
        &mut self.machines[at]
    }

    pub fn content(&self) -> &[u8] {
        &self.content
    }

    pub fn controllers(&self) -> usize {
        self.machines.iter().map(|machine| machine.controllers().count()).sum()
    }

    pub fn namespaces(&self) -> Vec<u32> {
        if self.extra { vec![1, 2] } else { vec![1] }
    }

    /// A second volume comes or goes.
    pub fn change_namespaces(&mut self) {
        self.extra = !self.extra;
        if self.extra {
            self.machines.iter_mut().for_each(|one| one.set_volume(2, volume(2)).expect("good"));
        } else {
            self.machines.iter_mut().for_each(|one| one.remove_volume(2));
        }
    }

    pub fn take_sent(&mut self) -> Vec<(Link, Vec<u8>)> {
        let live = self.connections.iter_mut().filter(|(_, one)| !one.broken);
        live.map(|(link, one)| (*link, std::mem::take(&mut one.sent))).collect()
    }

    pub fn has_to_send(&self) -> bool {
        self.connections.values().any(|one| !one.sent.is_empty() || !one.received.is_empty())
    }

    /// Connections that this end closes.
    pub fn take_closed(&mut self) -> Vec<Link> {
        std::mem::take(&mut self.closed)
    }

    pub fn break_link(&mut self, now: Duration, link: Link) {
        let Some(connection) = self.connections.get_mut(&link) else { return };
        if connection.broken {
            return;
        }
        connection.broken = true;
        // What was received and not begun is never executed. What was begun is waited for.
        connection.received.clear();
        connection.tasks.retain(|task| task.is_ready);
        self.drain(now, link);
    }

    pub fn links(&self) -> Vec<Link> {
        self.connections.iter().filter(|(_, one)| !one.broken).map(|(link, _)| *link).collect()
    }

    /// Goes on after it stood still for this long. Returns the connections that it ends.
    pub fn resume(&mut self, now: Duration, lost: Duration) -> Vec<Link> {
        if self.forgives_stalls {
            self.machines.iter_mut().for_each(|one| one.handle_stall(lost));
        }
        let is_io = |link: &Link| matches!(self.connections[link].queue, Queue::Io(..));
        let ends: Vec<Link> = self.links().into_iter().filter(|link| lost > STALL && is_io(link)).collect();
        ends.iter().for_each(|link| self.break_link(now, *link));
        ends
    }

    pub fn break_all(&mut self, now: Duration) {
        for link in self.connections.keys().copied().collect::<Vec<_>>() {
            self.break_link(now, link);
        }
    }

    /// Executes what is left.
    pub fn finish(&mut self, now: Duration, random: &mut Rng) {
        for _ in 0..10_000 {
            self.work(now, random);
        }
        assert!(self.connections.is_empty());
    }

    /// A broken connection is gone when nothing of it is executed.
    fn drain(&mut self, now: Duration, link: Link) {
        let Some(connection) = self.connections.get(&link) else { return };
        if !connection.broken || !connection.tasks.is_empty() {
            return;
        }
        let connection = self.connections.remove(&link).expect("there");
        let queue = match connection.queue {
            Queue::None => return,
            Queue::Admin(cntlid) => QueueId { cntlid, qid: 0 },
            Queue::Io(id, _) => id,
        };
        self.of(queue.cntlid).handle_queue_closed(now, queue);
    }

    pub fn receive(&mut self, now: Duration, link: Link, bytes: &[u8], random: &mut Rng, spoils: u64) {
        let new = || Connection {
            wire: TargetConnection::new(now, SETTINGS),
            queue: Queue::None,
            received: Vec::new(),
            sent: Vec::new(),
            tasks: Vec::new(),
            broken: false,
        };
        let connection = self.connections.entry(link).or_insert_with(new);
        if connection.broken {
            return;
        }
        connection.received.extend_from_slice(bytes);
        loop {
            let connection = self.connections.get_mut(&link).expect("there");
            let Some(first) = connection.received.first_chunk() else { return };
            let layout = connection.wire.layout(first).expect("our host keeps the rules");
            let pdu_bytes = layout.pdu_bytes() as usize;
            if connection.received.len() < pdu_bytes {
                return;
            }
            let pdu: Vec<u8> = connection.received.drain(..pdu_bytes).collect();
            let header = &pdu[..layout.header_bytes()];
            let received = connection.wire.handle_header(now, &layout, header, &mut connection.sent);
            let start = usize::from(layout.data_offset);
            let mut data = pdu[start..start + layout.data_bytes as usize].to_vec();
            let digest = &pdu[start + data.len()..];
            let is_io = matches!(connection.queue, Queue::Io(..));
            spoil(&mut data, random, if is_io { spoils } else { 0 });
            self.act(now, link, received.expect("our host keeps the rules"), data, digest);
            self.begin(now, link, random);
        }
    }

    /// The device begins with the commands whose data are all there.
    fn begin(&mut self, now: Duration, link: Link, random: &mut Rng) {
        let Some(connection) = self.connections.get_mut(&link) else { return };
        for task in &mut connection.tasks {
            if task.is_ready && task.due == Duration::MAX {
                let most = if random.u8(..10) == 0 { self.latency_ms } else { self.latency_ms.min(2) };
                task.due = now + Duration::from_millis(random.u64(..=most));
            }
        }
    }

    fn act(&mut self, now: Duration, link: Link, received: Received, data: Vec<u8>, digest: &[u8]) {
        let connection = self.connections.get_mut(&link).expect("there");
        match received {
            Received::Initialized => {}
            Received::Command { sqe, data: incoming } => {
                if let Incoming::InCapsule(_) = incoming {
                    let computed = Some(digest::of(&data));
                    let progress = connection.wire.handle_capsule_data(computed, digest);
                    if let Progress::Failed(status) = progress {
                        return self.refuse(link, &sqe, status);
                    }
                }
                match &connection.queue {
                    Queue::None => self.connect(now, link, &sqe, &data),
                    Queue::Admin(cntlid) => {
                        let cntlid = *cntlid;
                        assert!(!matches!(incoming, Incoming::OnRequest(_)), "admin data fit into capsules");
                        self.note_ends(cntlid, &sqe);
                        self.of(cntlid).handle_command(now, cntlid, &sqe, &data);
                    }
                    Queue::Io(..) => self.io(link, &sqe, incoming, data),
                }
            }
            Received::Unsuitable { sqe, status } => self.refuse(link, &sqe, status),
            Received::Data { tag, offset, length } => {
                let task =
                    connection.tasks.iter_mut().find(|task| task.request.tag.0 == tag).expect("a task");
                let place = offset as usize..(offset + length) as usize;
                task.data[place].copy_from_slice(&data);
                let computed: Option<Digest> = Some(digest::of(&data));
                match connection.wire.handle_data(tag, computed, digest, &mut connection.sent) {
                    Progress::More => {}
                    Progress::Complete => task.is_ready = true,
                    Progress::Failed(status) => {
                        let tag = task.request.tag;
                        connection.tasks.retain(|task| task.request.tag != tag);
                        let Queue::Io(_, queue) = &mut connection.queue else { panic!("no I/O queue") };
                        let cqe = queue.complete(tag, status).expect("outstanding");
                        connection.wire.respond(&cqe, &mut connection.sent);
                    }
                }
            }
            Received::Terminated(term) => panic!("our host is content: {term:?}"),
        }
    }

    /// Notes what a command names whose answer says that controllers are finished.
    fn note_ends(&mut self, cntlid: u16, sqe: &Sqe) {
        let own = self.instance_of[&cntlid];
        let named = if sqe.opcode == END_CONTROLLER {
            match EndController::of(sqe) {
                EndController::Older => {
                    let other = 1 - self.at(cntlid) as u64;
                    let first = other << NODE_SHIFT;
                    let of_other = first..first + self.instances[other as usize];
                    ((1 - other) << NODE_SHIFT..own).chain(of_other).collect()
                }
                EndController::One(named) => vec![named.number],
            }
        } else if AdminOpcode(sqe.opcode) == AdminOpcode::CROSS_CONTROLLER_RESET {
            vec![Impacted::of_command(sqe).random]
        } else {
            return;
        };
        self.ends.insert((cntlid, sqe.cid), named);
    }

    fn refuse(&mut self, link: Link, sqe: &Sqe, status: Status) {
        let connection = self.connections.get_mut(&link).expect("there");
        match &mut connection.queue {
            Queue::None => {
                let cqe = Cqe { cid: sqe.cid, status, ..Cqe::default() };
                connection.wire.respond(&cqe, &mut connection.sent);
            }
            Queue::Admin(cntlid) => {
                let cntlid = *cntlid;
                self.of(cntlid).refuse_command(cntlid, sqe, status);
            }
            Queue::Io(_, queue) => {
                let cqe = queue.refuse(sqe, status).expect("room");
                connection.wire.respond(&cqe, &mut connection.sent);
            }
        }
    }

    fn connect(&mut self, now: Duration, link: Link, sqe: &Sqe, data: &[u8]) {
        let data = ConnectData::decode(data).expect("whole");
        let connect = Connect::of(sqe);
        let port = Port { node: node(link), transport: Transport::Tcp, capsule_data_bytes: 4096 };
        let at = if self.machines.len() > 1 { path_of(link) } else { 0 };
        let accepted = self.machines[at].connect(now, port, sqe.cid, &connect, &data);
        let connection = self.connections.get_mut(&link).expect("there");
        match accepted {
            Ok(Accepted { id, queue, view, cqe }) => {
                let flow_control = !connect.attributes.has(nvme::fabrics::ConnectAttributes::DISABLE_SQ_FLOW);
                connection.wire.accept(id.qid == 0, flow_control, &cqe, &mut connection.sent);
                if id.qid == 0 {
                    let number = (at as u64) << NODE_SHIFT | self.instances[at];
                    self.instance_of.insert(id.cntlid, number);
                    self.instances[at] += 1;
                }
                let io = |id| Queue::Io(id, IoQueue::new(queue, view));
                connection.queue = if id.qid == 0 { Queue::Admin(id.cntlid) } else { io(id) };
            }
            Err(refusal) => {
                connection.wire.respond(&refusal.completion(sqe.cid), &mut connection.sent);
                self.closed.push(link);
            }
        }
    }

    fn io(&mut self, link: Link, sqe: &Sqe, incoming: Incoming, data: Vec<u8>) {
        let connection = self.connections.get_mut(&link).expect("there");
        let Queue::Io(_, queue) = &mut connection.queue else { panic!("no I/O queue") };
        match queue.handle_command(sqe).expect("our host keeps the rules") {
            Action::Execute(request) => {
                let (data, is_ready) = match incoming {
                    Incoming::OnRequest(bytes) => {
                        connection.wire.ask(request.tag.0, sqe.cid, bytes, &mut connection.sent);
                        (vec![0; bytes as usize], false)
                    }
                    _ => (data, true),
                };
                connection.tasks.push(Task { request, data, is_ready, due: Duration::MAX });
            }
            Action::Respond(cqe) => connection.wire.respond(&cqe, &mut connection.sent),
            Action::Hold(_) | Action::Reserve(_) | Action::Disconnect(_) => panic!("our host does none"),
        }
    }

    /// Executes one command, perhaps, and carries out what the subsystem asks for.
    pub fn work(&mut self, now: Duration, random: &mut Rng) {
        let links: Vec<Link> = self.connections.keys().copied().collect();
        if !links.is_empty() {
            let link = links[random.u64(..links.len() as u64) as usize];
            self.execute_one(now, link, random);
            self.drain(now, link);
        }
        for (link, connection) in &mut self.connections {
            if connection.wire.handle_timeout(now) {
                self.closed.push(*link);
            }
        }
        for at in 0..self.machines.len() {
            let connections = &mut self.connections;
            self.machines[at].handle_timeout(now, |cntlid| {
                let traffic = |one: &mut Connection| match &mut one.queue {
                    Queue::Io(id, queue) if id.cntlid == cntlid => queue.take_traffic(),
                    _ => false,
                };
                connections.values_mut().fold(false, |any, one| traffic(one) | any)
            });
            self.hear_other(now, at);
            while let Some(output) = self.machines[at].poll_output() {
                self.carry_out(now, at, output, random);
            }
        }
    }

    /// Takes what the other process has said to this one.
    fn hear_other(&mut self, now: Duration, at: usize) {
        while let Some((_, said)) = self.between[at].pop_front_if(|(arrives, _)| now >= *arrives) {
            match said {
                Between::Ask(request) => self.machines[at].end_for_other(&request),
                Between::Answer(id, status) => self.machines[at].handle_other_answered(id, status),
                Between::HostId(host_id, host) => self.machines[at].set_host_elsewhere(host_id, host),
            }
        }
    }

    fn tell_other(&mut self, now: Duration, at: usize, said: Between, random: &mut Rng) {
        let most = if random.u8(..5) == 0 { 1_000 } else { 5 };
        let last = self.between[1 - at].back().map_or(now, |(arrives, _)| *arrives);
        let arrives = last.max(now + Duration::from_millis(random.u64(..most)));
        self.between[1 - at].push_back((arrives, said));
    }

    fn execute_one(&mut self, now: Duration, link: Link, random: &mut Rng) {
        let connection = self.connections.get_mut(&link).expect("there");
        let is_due = |task: &Task| task.is_ready && now >= task.due;
        let ready: Vec<usize> =
            (0..connection.tasks.len()).filter(|at| is_due(&connection.tasks[*at])).collect();
        let Some(at) = ready.get(random.u64(..ready.len().max(1) as u64) as usize) else { return };
        let Task { request, data, .. } = connection.tasks.swap_remove(*at);
        let start = request.start as usize * client::BLOCK;
        let range = start..start + request.blocks as usize * client::BLOCK;
        let Queue::Io(id, _) = &connection.queue else { panic!("no I/O queue") };
        let instance = self.instance_of[&id.cntlid];
        assert!(!self.finished.contains(&instance), "controller {instance} was reported as finished");
        match request.operation {
            Operation::Write { .. } => {
                self.content[range.clone()].copy_from_slice(&data);
                self.written.push((request.start, data));
            }
            Operation::WriteZeroes { .. } => self.content[range.clone()].fill(0),
            _ => {}
        }
        let Queue::Io(_, queue) = &mut connection.queue else { panic!("no I/O queue") };
        let cqe = queue.complete(request.tag, Status::SUCCESS).expect("outstanding");
        if connection.broken {
            return;
        }
        if request.operation != Operation::Read {
            return connection.wire.respond(&cqe, &mut connection.sent);
        }
        send(connection, &cqe, &self.content[range], random);
    }

    fn carry_out(&mut self, now: Duration, at: usize, output: Output, random: &mut Rng) {
        match output {
            Output::Respond { cntlid, cqe, data } => {
                let named = self.ends.remove(&(cntlid, cqe.cid));
                self.finished.extend(named.filter(|_| cqe.status.is_success()).into_iter().flatten());
                let is_admin = |one: &&mut Connection| matches!(one.queue, Queue::Admin(id) if id == cntlid);
                let Some(connection) = self.connections.values_mut().find(is_admin) else { return };
                if data.is_empty() {
                    connection.wire.respond(&cqe, &mut connection.sent);
                } else {
                    send(connection, &cqe, &data, &mut Rng::with_seed(0));
                }
            }
            Output::View { cntlid, view } => {
                for connection in self.connections.values_mut() {
                    match &mut connection.queue {
                        Queue::Io(id, queue) if id.cntlid == cntlid => {
                            queue.set_view(std::sync::Arc::clone(&view));
                        }
                        _ => {}
                    }
                }
            }
            Output::Close { queue, .. } => {
                let is_it = |one: &Connection| match &one.queue {
                    Queue::None => false,
                    Queue::Admin(cntlid) => *cntlid == queue.cntlid && queue.qid == 0,
                    Queue::Io(id, _) => *id == queue,
                };
                self.closed
                    .extend(self.connections.iter().filter(|(_, one)| is_it(one)).map(|(link, _)| *link));
            }
            Output::Dropped { cntlid, cid } => {
                self.ends.remove(&(cntlid, cid));
            }
            Output::Released { cntlid } => self.ends.retain(|(of, _), _| *of != cntlid),
            Output::Save { .. }
            | Output::Fence { .. }
            | Output::Reserved { .. }
            | Output::GuestView { .. }
            | Output::GuestReserved { .. } => panic!("our host does not reserve"),
            Output::AskOther(request) => self.tell_other(now, at, Between::Ask(request), random),
            Output::AnswerOther { id, status } => {
                self.tell_other(now, at, Between::Answer(id, status), random);
            }
            Output::HostId { host_id, host } => {
                self.tell_other(now, at, Between::HostId(host_id, host), random);
            }
        }
    }
}

/// Sends data in parts of any length, and the completion if they do not imply it.
fn send(connection: &mut Connection, cqe: &Cqe, data: &[u8], random: &mut Rng) {
    let mut rest = ToHost::new(cqe.cid, data.len() as u32);
    while rest.left() > 0 {
        let part = if random.u64(..1000) < 500 { 1 + random.u64(..5000) as u32 } else { u32::MAX };
        let sent = connection.wire.send_data(&mut rest, part, cqe, &mut connection.sent);
        let part = &data[sent.offset as usize..(sent.offset + sent.length) as usize];
        connection.sent.extend_from_slice(part);
        if sent.digest {
            connection.sent.extend(digest::of(part).to_bytes());
        }
        if sent.respond {
            connection.wire.respond(cqe, &mut connection.sent);
        }
    }
}

/// Changes a byte of data, sometimes.
pub fn spoil(data: &mut [u8], random: &mut Rng, in_thousand: u64) {
    if !data.is_empty() && (random.u64(..1000) < in_thousand) {
        let at = random.u64(..data.len() as u64) as usize;
        data[at] ^= 0x40;
    }
}

/// The controllers of a process, which has these nodes.
fn machine(now: Duration, cntlids: BTreeMap<Node, RangeInclusive<u16>>, is_split: bool) -> Subsystem {
    let limits = Limits { transfer_bytes: client::TRANSFER_BYTES, ..Limits::default() };
    let config = Config {
        nqn: Nqn::new(client::SUBSYSTEM).expect("valid"),
        kind: Kind::Io,
        serial: "1".to_owned(),
        model: "m".to_owned(),
        firmware: "1".to_owned(),
        nodes: 2,
        cntlids,
        is_split,
        access: Access::Any,
        host_ids: BTreeMap::new(),
        reservations: false,
        limits,
    };
    let mut subsystem = Subsystem::new(now, config);
    subsystem.set_volume(1, volume(1)).expect("good");
    subsystem
}

fn volume(id: u64) -> Volume {
    Volume {
        id: VolumeId(id),
        ids: NamespaceIds { eui64: None, nguid: None, uuid: Some([id as u8; 16]) },
        blocks: client::BLOCKS,
        block_shift: 9,
        owner: Node(0),
        hosts: Access::Any,
        write_protected: false,
        volatile_cache: false,
        deallocated_reads_zero: true,
        preferred_blocks: 0,
    }
}

//! A host that brings a controller up and reads and writes, and knows what each block may contain.

use crate::Link;
use crate::server::spoil;
use fastrand::Rng;
use nvme::digest;
use nvme::host::HostData;
use nvme::host::{CommandData, HostConfig, HostOutput, Initiator, Retry, Role, retry};
use nvme::io::{Blocks, IoFlags};
use nvme::pdu::Digests;
use nvme::tcp::{HostConnection, HostReceived, HostSettings};
use nvme::{Cqe, HostId, IoOpcode, Nqn, Sgl, Sqe};
use std::collections::BTreeMap;
use std::time::Duration;

pub const SUBSYSTEM: &str = "nqn.2026-11.test:array";
pub const BLOCK: usize = 512;
pub const BLOCKS: u64 = 2048;
pub const TRANSFER_BYTES: u32 = 65_536;
const QUEUES: u16 = 2;

/// A command of the user: blocks, and what they will contain (a stamp), or are read.
#[derive(Debug, Clone, Copy)]
struct Io {
    start: u64,
    count: u32,
    write: Option<u8>,
}

enum Purpose {
    Admin { id: u32, data: Vec<u8>, send: bool },
    Io { io: Io, data: Vec<u8> },
}

struct Connection {
    wire: HostConnection,
    received: Vec<u8>,
    sent: Vec<u8>,
    /// By identifier.
    outstanding: BTreeMap<u16, Purpose>,
    /// The Connect to send when the connection is ready.
    connect: Option<(u32, Sqe, Vec<u8>)>,
    is_io: bool,
}

pub struct Client {
    config: HostConfig,
    digests: Digests,
    initiator: Initiator,
    connections: BTreeMap<Link, Connection>,
    next_link: Link,
    /// What each block may contain: one stamp, or two if a write to it has an unknown outcome.
    may_be: Vec<Vec<u8>>,
    busy: Vec<bool>,
    /// What was refused for a while and is to be sent again.
    again: Vec<Io>,
    pub namespaces: Vec<u32>,
    pub reads: u64,
    pub writes: u64,
    pub retries: u64,
    stopped: bool,
    lost: bool,
}

impl Client {
    pub fn new(now: Duration, digests: Digests, flow_control: bool) -> Self {
        let config = HostConfig {
            host: Nqn::new("nqn.2026-11.test:host").expect("valid"),
            host_id: HostId([7; 16]),
            subsystem: Nqn::new(SUBSYSTEM).expect("valid"),
            role: Role::Io { queues: QUEUES },
            entries: 8,
            keep_alive: Duration::from_secs(5),
            flow_control,
            keyed: false,
        };
        let mut client = Self {
            initiator: Initiator::new(now, config.clone()),
            config,
            digests,
            connections: BTreeMap::new(),
            next_link: 0,
            may_be: vec![vec![0]; BLOCKS as usize],
            busy: vec![false; BLOCKS as usize],
            again: Vec::new(),
            namespaces: Vec::new(),
            reads: 0,
            writes: 0,
            retries: 0,
            stopped: false,
            lost: false,
        };
        client.open(false, None);
        client
    }

    fn open(&mut self, is_io: bool, connect: Option<(u32, Sqe, Vec<u8>)>) {
        let mut sent = Vec::new();
        let entries = if is_io { self.config.entries } else { 32 };
        let settings = HostSettings { digests: self.digests, entries, transfer_bytes: 1 << 20 };
        let wire = HostConnection::new(settings, &mut sent);
        let (received, outstanding) = (Vec::new(), BTreeMap::new());
        let connection = Connection { wire, received, sent, outstanding, connect, is_io };
        self.connections.insert(self.next_link, connection);
        self.next_link += 1;
    }

    pub fn links(&self) -> Vec<Link> {
        self.connections.keys().rev().copied().collect()
    }

    pub fn is_live(&self) -> bool {
        self.initiator.is_live() && !self.lost
    }

    /// Begins nothing new.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether all that was begun has ended, and the host waits for events only.
    pub fn is_idle(&self) -> bool {
        let idle = |one: &Connection| one.sent.is_empty() && one.outstanding.len() == usize::from(!one.is_io);
        self.is_live() && self.again.is_empty() && self.connections.values().all(idle)
    }

    pub fn has_lost(&self) -> bool {
        self.lost
    }

    /// A connection broke: nothing more comes of this controller.
    pub fn lost(&mut self, link: Link) {
        if self.connections.contains_key(&link) {
            self.lost = true;
        }
    }

    /// The old controller is gone: its writes were executed or never will be.
    pub fn begin_again(&mut self, now: Duration) {
        for connection in std::mem::take(&mut self.connections).into_values() {
            for purpose in connection.outstanding.into_values() {
                if let Purpose::Io { io, .. } = purpose {
                    self.settle(io, true);
                }
            }
        }
        self.lost = false;
        self.initiator = Initiator::new(now, self.config.clone());
        self.open(false, None);
    }

    /// A command is over. A write of unknown outcome adds to what its blocks may contain.
    fn settle(&mut self, io: Io, unknown: bool) {
        for block in io.start..io.start + u64::from(io.count) {
            self.busy[block as usize] = false;
            if let Some(stamp) = io.write {
                let may_be = &mut self.may_be[block as usize];
                if !unknown {
                    may_be.clear();
                }
                may_be.push(stamp);
            }
        }
    }

    /// Every block contains what it may.
    pub fn compare(&self, content: &[u8]) {
        for (block, may_be) in self.may_be.iter().enumerate() {
            check(block as u64, may_be, &content[block * BLOCK..(block + 1) * BLOCK]);
        }
    }

    pub fn take_sent(&mut self) -> Vec<(Link, Vec<u8>)> {
        if self.lost {
            return Vec::new();
        }
        self.connections.iter_mut().map(|(link, one)| (*link, std::mem::take(&mut one.sent))).collect()
    }

    pub fn work(&mut self, now: Duration, random: &mut Rng) {
        if self.lost {
            return;
        }
        self.initiator.handle_timeout(now);
        self.drain();
        if let Some(io) = self.again.pop() {
            self.submit(io, random);
        } else if self.is_live() && !self.stopped && (random.u64(..1000) < 400) {
            let count = if random.u64(..1000) < 300 { 1 + random.u64(..128) } else { 1 + random.u64(..12) };
            let start = random.u64(..BLOCKS - count);
            let free = (start..start + count).all(|block| !self.busy[block as usize]);
            if free {
                let write = (random.u64(..1000) < 500).then(|| random.u64(..256) as u8);
                self.submit(Io { start, count: count as u32, write }, random);
            }
        }
    }

    fn submit(&mut self, io: Io, random: &mut Rng) {
        let links: Vec<Link> =
            self.connections.iter().filter(|(_, one)| one.is_io).map(|(link, _)| *link).collect();
        let link = links[random.u64(..links.len() as u64) as usize];
        let connection = self.connections.get_mut(&link).expect("there");
        let bytes = io.count as usize * BLOCK;
        let blocks = Blocks { start: io.start, count: io.count, flags: IoFlags::NONE };
        let (opcode, data, moves) = match io.write {
            Some(stamp) => (IoOpcode::WRITE, stamped(io, stamp), HostData::ToController(bytes as u32)),
            None => (IoOpcode::READ, vec![0; bytes], HostData::FromController(bytes as u32)),
        };
        let sqe = blocks.command(opcode, 0, 1, Sgl::NONE);
        let Ok(submitted) = connection.wire.submit(&sqe, moves, &mut connection.sent) else {
            // The queue is full: whoever retries does so later.
            if (io.start..io.start + u64::from(io.count)).any(|block| self.busy[block as usize]) {
                self.again.push(io);
            }
            return;
        };
        (io.start..io.start + u64::from(io.count)).for_each(|block| self.busy[block as usize] = true);
        append(connection, &data[..submitted.in_capsule as usize], submitted.digest);
        connection.outstanding.insert(submitted.cid, Purpose::Io { io, data });
    }

    /// Carries out what the initiator asks for.
    fn drain(&mut self) {
        while let Some(output) = self.initiator.poll_output() {
            match output {
                HostOutput::Admin { id, command } => {
                    self.admin(id, &command.sqe, command.data);
                }
                HostOutput::ConnectIo { id, command, .. } => {
                    let CommandData::Send(data) = command.data else { panic!("Connect has data") };
                    self.open(true, Some((id, command.sqe, data)));
                }
                HostOutput::Live(limits) => {
                    assert_eq!(limits.transfer_bytes, Some(TRANSFER_BYTES.into()));
                    for connection in self.connections.values_mut().filter(|one| one.is_io) {
                        connection.wire.set_capsule_data_bytes(limits.capsule_data_bytes);
                    }
                }
                HostOutput::Namespaces(namespaces) => self.namespaces = namespaces,
                HostOutput::Ana(log) => assert_eq!(log.groups.len(), 2),
                HostOutput::DiscoveryChanged | HostOutput::Authenticate { .. } => {
                    panic!("not of this controller")
                }
                HostOutput::Failed(failure) => panic!("{failure}"),
            }
        }
    }

    fn admin(&mut self, id: u32, sqe: &Sqe, data: CommandData) {
        let connection = self.connections.values_mut().find(|one| !one.is_io).expect("an admin queue");
        let (moves, data, send) = match data {
            CommandData::None => (HostData::None, Vec::new(), false),
            CommandData::Send(data) => (HostData::ToController(data.len() as u32), data, true),
            CommandData::Receive(bytes) => (HostData::FromController(bytes), vec![0; bytes as usize], false),
        };
        let Ok(submitted) = connection.wire.submit(sqe, moves, &mut connection.sent) else {
            // Only the first command may come before the connection is ready.
            assert!(connection.connect.is_none(), "the admin queue has room");
            connection.connect = Some((id, *sqe, data));
            return;
        };
        append(connection, &data[..submitted.in_capsule as usize], submitted.digest);
        connection.outstanding.insert(submitted.cid, Purpose::Admin { id, data, send });
    }

    pub fn receive(&mut self, now: Duration, link: Link, bytes: &[u8], random: &mut Rng, spoils: u64) {
        let Some(connection) = self.connections.get_mut(&link).filter(|_| !self.lost) else { return };
        let spoils = if connection.is_io { spoils } else { 0 };
        connection.received.extend_from_slice(bytes);
        loop {
            let connection = self.connections.get_mut(&link).expect("there");
            let next = next_pdu(&mut connection.wire, &mut connection.received);
            let Some((received, mut data, digest)) = next else { return };
            spoil(&mut data, random, spoils);
            self.act(now, link, received, &data, &digest);
        }
    }

    fn act(&mut self, now: Duration, link: Link, received: HostReceived, bytes: &[u8], digest: &[u8]) {
        let connection = self.connections.get_mut(&link).expect("there");
        match received {
            HostReceived::Ready => {
                let Some((id, sqe, data)) = connection.connect.take() else { return };
                let moves = HostData::ToController(data.len() as u32);
                let submitted = connection.wire.submit(&sqe, moves, &mut connection.sent).expect("ready");
                append(connection, &data, submitted.digest);
                connection.outstanding.insert(submitted.cid, Purpose::Admin { id, data, send: true });
            }
            HostReceived::Data { cid, offset, length } => {
                let place = offset as usize..(offset + length) as usize;
                match connection.outstanding.get_mut(&cid).expect("outstanding") {
                    Purpose::Admin { data, .. } | Purpose::Io { data, .. } => {
                        data[place].copy_from_slice(bytes);
                    }
                }
                let computed = Some(digest::of(bytes));
                if let Some(cqe) = connection.wire.handle_data(cid, computed, digest) {
                    self.completed(now, link, &cqe);
                }
            }
            HostReceived::Asked { cid } => {
                let Some(Purpose::Io { data, .. }) = connection.outstanding.get(&cid) else {
                    panic!("no write")
                };
                let data = data.clone();
                while let Some(sent) = connection.wire.send_data(cid, &mut connection.sent) {
                    let range = sent.offset as usize..(sent.offset + sent.length) as usize;
                    append(connection, &data[range], sent.digest);
                }
            }
            HostReceived::Completed(cqe) => self.completed(now, link, &cqe),
            HostReceived::Terminated(term) => panic!("our target is content: {term:?}"),
        }
    }

    fn completed(&mut self, now: Duration, link: Link, cqe: &Cqe) {
        let connection = self.connections.get_mut(&link).expect("there");
        match connection.outstanding.remove(&cqe.cid).expect("outstanding") {
            Purpose::Admin { id, data, send } => {
                if !cqe.status.is_success() && retry(cqe.status, [0; 3]) == Retry::Elsewhere && !send {
                    panic!("admin data are not spoiled here");
                }
                self.initiator.handle_completion(now, id, cqe, if send { &[] } else { &data });
                self.drain();
            }
            Purpose::Io { io, data } => match retry(cqe.status, [0; 3]) {
                Retry::Done => {
                    self.settle(io, false);
                    match io.write {
                        Some(_) => self.writes += 1,
                        None => self.read(io, &data),
                    }
                }
                Retry::Elsewhere => {
                    self.retries += 1;
                    self.again.push(io);
                }
                other => panic!("{}: {other:?}", cqe.status),
            },
        }
    }

    fn read(&mut self, io: Io, data: &[u8]) {
        self.reads += 1;
        for (at, bytes) in data.chunks(BLOCK).enumerate() {
            let block = io.start + at as u64;
            check(block, &self.may_be[block as usize], bytes);
        }
    }
}

fn append(connection: &mut Connection, data: &[u8], digest: bool) {
    connection.sent.extend_from_slice(data);
    if digest {
        connection.sent.extend(digest::of(data).to_bytes());
    }
}

/// Blocks that differ by their place and their stamp; stamp 0 is a block of zeroes.
fn stamped(io: Io, stamp: u8) -> Vec<u8> {
    (io.start..io.start + u64::from(io.count)).flat_map(|block| pattern(block, stamp)).collect()
}

fn pattern(block: u64, stamp: u8) -> [u8; BLOCK] {
    if stamp == 0 {
        return [0; BLOCK];
    }
    std::array::from_fn(|at| (at as u64 ^ block).wrapping_mul(stamp.into()) as u8 | 1)
}

fn check(block: u64, may_be: &[u8], bytes: &[u8]) {
    assert!(
        may_be.iter().any(|stamp| pattern(block, *stamp) == bytes),
        "block {block} is none of {may_be:?}"
    );
}

/// The next whole PDU of our target: what it is, its data, and their digest.
pub fn next_pdu(wire: &mut HostConnection, bytes: &mut Vec<u8>) -> Option<(HostReceived, Vec<u8>, Vec<u8>)> {
    let layout = wire.layout(bytes.first_chunk()?).expect("our target keeps the rules");
    let pdu_bytes = layout.pdu_bytes() as usize;
    if bytes.len() < pdu_bytes {
        return None;
    }
    let mut pdu: Vec<u8> = bytes.drain(..pdu_bytes).collect();
    let received = wire.handle_header(&layout, &pdu[..layout.header_bytes()]);
    let mut data = pdu.split_off(usize::from(layout.data_offset));
    let digest = data.split_off(layout.data_bytes as usize);
    Some((received.expect("our target keeps the rules"), data, digest))
}

//! A host over RDMA that does what a test says, and no more: it waits for nothing by itself.

use nvme::host::{CommandData, HostConfig, HostData, HostOutput, Initiator, Role};
use nvme::io::{Blocks, IoFlags};
use nvme::rdma::{HostMemory, HostPlace, HostQueue, RECFMT, Request};
use nvme::{Cqe, HostId, IoOpcode, Nqn, Sgl, Sqe, Status};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use transport::poll::{Events, Poller};
use transport::rdma::{Access, Buffer, Heard, Lender, Room};

pub const BLOCK: usize = 4096;
/// Only a hang takes so long, also in an emulated machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
const ENTRIES: u16 = 64;
const CAPSULE_DATA_BYTES: usize = 4096;

/// One connection.
pub struct Queue {
    lender: Option<Lender>,
    poller: Poller,
    /// With the memory of each command, and how much of it is received.
    machine: HostQueue<(Option<Buffer>, usize)>,
    done: BTreeMap<u16, (Cqe, Vec<u8>)>,
}

impl Queue {
    fn open(address: SocketAddr, qid: u16, entries: u16) -> Self {
        let room = Room {
            receives: entries.into(),
            receive_bytes: Cqe::BYTES as u32,
            sends: entries.into(),
            send_bytes: (Sqe::BYTES + CAPSULE_DATA_BYTES) as u32,
            pool_bytes_max: 64 << 20,
        };
        let request =
            Request { recfmt: RECFMT, qid, receive_queue: entries, send_queue: entries - 1, cntlid: 0 };
        let lender = Lender::connect(address, &room, &request.encode()).expect("a device");
        let poller = Poller::new().expect("a poller");
        lender.register(&poller, 0).expect("it is watched");
        let machine = HostQueue::new(entries);
        let mut queue = Self { lender: Some(lender), poller, machine, done: BTreeMap::new() };
        while queue.hear(PATIENCE).expect("a connection") != Some(Heard::Connected) {}
        queue
    }

    fn lender(&mut self) -> &mut Lender {
        self.lender.as_mut().expect("it was not ended")
    }

    /// What happens next; `None` if nothing does for this long.
    fn hear(&mut self, within: Duration) -> Result<Option<Heard>, transport::rdma::Error> {
        let until = Instant::now() + within;
        loop {
            self.lender().wake();
            let heard = self.lender().poll()?;
            if let Some(lender) = &mut self.lender {
                lender.watch(&self.poller, 0).expect("it is watched");
            }
            if heard.is_some() {
                return Ok(heard);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.poller.wait(&mut Events::new(), Some(left)).expect("it waits");
        }
    }

    pub fn submit(&mut self, sqe: &Sqe, data: CommandData) -> u16 {
        let (kind, send) = match data {
            CommandData::None => (HostData::None, Vec::new()),
            CommandData::Send(data) => (HostData::ToController(data.len() as u32), data),
            CommandData::Receive(bytes) => (HostData::FromController(bytes), Vec::new()),
        };
        let is_in_capsule = self.machine.is_in_capsule(kind);
        let (place, buffer, bytes) = match kind {
            HostData::None => (HostPlace::None, None, 0),
            HostData::ToController(bytes) if is_in_capsule => (HostPlace::InCapsule(bytes), None, 0),
            HostData::ToController(bytes) | HostData::FromController(bytes) => {
                let access = if send.is_empty() { Access::RemoteWrite } else { Access::RemoteRead };
                let buffer = self.lender().buffer(bytes as usize, access).expect("memory").expect("room");
                buffer.write(0, &send).expect("it fits");
                let (address, key) = (buffer.region().address(), buffer.region().remote_key());
                let memory = HostMemory { address, bytes, key, invalidate: false };
                let received = if send.is_empty() { bytes as usize } else { 0 };
                (HostPlace::Memory(memory), Some(buffer), received)
            }
        };
        let sqe = self.machine.submit(sqe, place, (buffer, bytes)).expect("room");
        let in_capsule: &[u8] = if is_in_capsule { &send } else { &[] };
        self.lender().send(&[&sqe.encode(), in_capsule]).expect("a connection");
        sqe.cid
    }

    fn answered(&mut self) {
        let message = self.lender().message().to_vec();
        let (cqe, (buffer, bytes)) = self.machine.handle_response(&message).expect("an answer");
        let mut data = vec![0; bytes];
        if let Some(buffer) = buffer {
            buffer.read(0, &mut data).expect("its bytes");
        }
        self.done.insert(cqe.cid, (cqe, data));
    }

    /// Waits for the end of a command.
    pub fn wait(&mut self, cid: u16) -> (Cqe, Vec<u8>) {
        loop {
            if let Some(done) = self.done.remove(&cid) {
                return done;
            }
            assert_eq!(self.hear(PATIENCE).expect("a connection"), Some(Heard::Message));
            self.answered();
        }
    }

    /// Whether the end of a command has come already.
    pub fn is_done(&self, cid: u16) -> bool {
        self.done.contains_key(&cid)
    }

    /// Ends the connection.
    pub fn end(&mut self) {
        let lender = self.lender.take().expect("it was not ended");
        drop(lender.end(&self.poller));
    }

    /// Waits until the target has ended the connection.
    pub fn wait_for_end(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.hear(until.saturating_duration_since(Instant::now())).is_ok() {
            assert!(Instant::now() < until, "the target does not end the connection");
        }
    }
}

pub fn blocks(opcode: IoOpcode, start: u64, count: usize) -> Sqe {
    Blocks { start, count: count as u32, flags: IoFlags::NONE }.command(opcode, 0, 1, Sgl::NONE)
}

/// A host with a controller and one I/O queue.
pub struct Host {
    pub admin: Queue,
    pub io: Queue,
}

pub fn host_config() -> HostConfig {
    let nqn = |name| Nqn::new(name).expect("a name");
    HostConfig {
        host: nqn("nqn.2026-11.test:host"),
        host_id: HostId([7; 16]),
        subsystem: nqn("nqn.2026-11.test:array"),
        role: Role::Io { queues: 1 },
        entries: ENTRIES,
        keep_alive: PATIENCE,
        flow_control: false,
        keyed: true,
    }
}

impl Host {
    pub fn connect(address: SocketAddr, config: HostConfig) -> Self {
        let began = Instant::now();
        let mut admin = Queue::open(address, 0, 32);
        let mut io = None;
        let mut ids = BTreeMap::new();
        let mut initiator = Initiator::new(began.elapsed(), config);
        let mut limits = None;
        loop {
            while let Some(output) = initiator.poll_output() {
                match output {
                    HostOutput::Admin { id, command } => {
                        ids.insert(admin.submit(&command.sqe, command.data), id);
                    }
                    HostOutput::ConnectIo { id, qid, command } => {
                        let mut queue = Queue::open(address, qid, ENTRIES);
                        let cid = queue.submit(&command.sqe, command.data);
                        let (cqe, data) = queue.wait(cid);
                        initiator.handle_completion(began.elapsed(), id, &cqe, &data);
                        io = Some(queue);
                    }
                    HostOutput::Live(found) => limits = Some(found),
                    HostOutput::Namespaces(nsids) => assert_eq!(nsids, [1]),
                    HostOutput::Ana(_) | HostOutput::DiscoveryChanged => {}
                    HostOutput::Authenticate { .. } => panic!("this host has no secret"),
                    HostOutput::Failed(failure) => panic!("{failure}"),
                }
            }
            if let (Some(limits), Some(mut io)) = (limits, io.take()) {
                let most = (CAPSULE_DATA_BYTES as u32).min(limits.capsule_data_bytes);
                io.machine.set_capsule_data_bytes(most);
                return Self { admin, io };
            }
            let due = initiator.poll_timeout().map_or(PATIENCE, |at| at.saturating_sub(began.elapsed()));
            match admin.hear(due.max(Duration::from_millis(1))).expect("a connection") {
                Some(_) => admin.answered(),
                None => initiator.handle_timeout(began.elapsed()),
            }
            while let Some((cid, (cqe, data))) = admin.done.pop_first() {
                let id = ids.remove(&cid).expect("it was sent");
                initiator.handle_completion(began.elapsed(), id, &cqe, &data);
            }
        }
    }

    pub fn read(&mut self, start: u64, count: usize) -> Vec<u8> {
        let bytes = CommandData::Receive((count * BLOCK) as u32);
        let cid = self.io.submit(&blocks(IoOpcode::READ, start, count), bytes);
        let (cqe, data) = self.io.wait(cid);
        assert_eq!(cqe.status, Status::SUCCESS);
        data
    }
}

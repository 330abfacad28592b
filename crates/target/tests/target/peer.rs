//! Targets with volumes of memory, and hosts that connect to them.

use nvme::digest;
use nvme::host::HostData;
use nvme::host::{CommandData, Failure, HostConfig, HostOutput, Initiator, Limits, Role};
use nvme::io::{Blocks, DatasetManagement, DsmRange, IoFlags};
use nvme::log_page::{AnaGroup, AnaState};
use nvme::pdu::{Digests, HEADER_BYTES_MIN};
use nvme::tcp::{HostConnection, HostReceived, HostSettings};
use nvme::{Cqe, HostId, IoOpcode, Nqn, Sgl, Sqe, Status};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use target::{Access, Config, Export, Node, Target};
use volumes::{BlockSize, Identity, Volume};

pub const SUBSYSTEM: &str = "nqn.2026-11.test:array";
pub const HOST: &str = "nqn.2026-11.test:host";
pub const BLOCK: usize = 4096;
pub const VOLUME_BYTES: u64 = 64 << 20;
/// Nothing here takes longer, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn nqn(name: &str) -> Nqn {
    Nqn::new(name).unwrap()
}

pub fn config() -> Config {
    let mut config = Config::new(nqn(SUBSYSTEM), "1234", Access::Any, vec!["127.0.0.1:0".parse().unwrap()]);
    config.loops = 2;
    // Where the tests of all crates share two processors, loops are late.
    config.limits.stall = Duration::from_secs(30);
    // A connection that is waited for where its host has gone is there until the test fails.
    config.limits.last_words = Duration::from_secs(3600);
    config
}

pub fn export(nsid: u32, volume: Volume) -> Export {
    Export { nsid, volume, hosts: Access::Any, owner: Node::A }
}

pub fn memory_volume(id: u8) -> Volume {
    let drive = drives::Drive::memory(VOLUME_BYTES, VOLUME_BYTES);
    Volume::new("v", Identity::of_uuid([id; 16]), &drive, Some(BlockSize::B4096)).unwrap()
}

/// A target with one volume of memory.
pub fn start() -> Target {
    start_with(&config())
}

pub fn start_with(config: &Config) -> Target {
    Target::start(config, &[export(1, memory_volume(1))]).unwrap()
}

/// One connection of a host.
pub struct Queue {
    pub stream: TcpStream,
    pub machine: HostConnection,
    /// What outstanding commands send, and room for what they receive, by identifier.
    outstanding: BTreeMap<u16, (Vec<u8>, Vec<u8>)>,
    done: BTreeMap<u16, (Cqe, Vec<u8>)>,
    /// Spoil the digests of data that are sent.
    pub spoils: bool,
}

impl Queue {
    pub fn open(address: SocketAddr, digests: Digests, entries: u16) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut out = Vec::new();
        let settings = HostSettings { digests, entries, transfer_bytes: 2 << 20 };
        let machine = HostConnection::new(settings, &mut out);
        let mut queue =
            Self { stream, machine, outstanding: BTreeMap::new(), done: BTreeMap::new(), spoils: false };
        queue.stream.write_all(&out).unwrap();
        assert_eq!(queue.receive().unwrap(), HostReceived::Ready);
        queue
    }

    /// Sends a command; returns its identifier.
    pub fn submit(&mut self, sqe: &Sqe, data: CommandData) -> u16 {
        self.try_submit(sqe, data).unwrap()
    }

    /// The same, where the target may have closed the connection.
    pub fn try_submit(&mut self, sqe: &Sqe, data: CommandData) -> std::io::Result<u16> {
        let mut out = Vec::new();
        let cid = self.prepare(sqe, data, &mut out);
        self.stream.write_all(&out)?;
        Ok(cid)
    }

    /// Appends a command to what is to be sent; returns its identifier.
    pub fn prepare(&mut self, sqe: &Sqe, data: CommandData, out: &mut Vec<u8>) -> u16 {
        let (send, receive) = match data {
            CommandData::None => (Vec::new(), Vec::new()),
            CommandData::Send(bytes) => (bytes, Vec::new()),
            CommandData::Receive(bytes) => (Vec::new(), vec![0; bytes as usize]),
        };
        let kind = match (send.len() as u32, receive.len() as u32) {
            (0, 0) => HostData::None,
            (0, bytes) => HostData::FromController(bytes),
            (bytes, _) => HostData::ToController(bytes),
        };
        let submitted = self.machine.submit(sqe, kind, out).unwrap();
        let in_capsule = &send[..submitted.in_capsule as usize];
        out.extend_from_slice(in_capsule);
        if submitted.digest {
            out.extend_from_slice(&self.digest(in_capsule));
        }
        self.outstanding.insert(submitted.cid, (send, receive));
        submitted.cid
    }

    fn digest(&self, data: &[u8]) -> [u8; 4] {
        let mut digest = digest::of(data).to_bytes();
        digest[0] ^= u8::from(self.spoils);
        digest
    }

    /// Receives one PDU, and sends what it asks for.
    pub fn receive(&mut self) -> std::io::Result<HostReceived> {
        let received = self.receive_only()?;
        if let HostReceived::Asked { cid } = received {
            self.send_asked(cid, usize::MAX);
        }
        Ok(received)
    }

    /// Receives one PDU.
    pub fn receive_only(&mut self) -> std::io::Result<HostReceived> {
        let mut first = [0; HEADER_BYTES_MIN];
        self.stream.read_exact(&mut first)?;
        let layout = self.machine.layout(&first).unwrap();
        let mut pdu = vec![0; layout.pdu_bytes() as usize];
        pdu[..HEADER_BYTES_MIN].copy_from_slice(&first);
        self.stream.read_exact(&mut pdu[HEADER_BYTES_MIN..])?;
        let received = self.machine.handle_header(&layout, &pdu[..layout.header_bytes()]).unwrap();
        match received {
            HostReceived::Data { cid, offset, length } => {
                let from = usize::from(layout.data_offset);
                let data = &pdu[from..from + length as usize];
                let place = &mut self.outstanding.get_mut(&cid).unwrap().1;
                place[offset as usize..][..length as usize].copy_from_slice(data);
                let trailer = &pdu[from + length as usize..];
                if let Some(cqe) = self.machine.handle_data(cid, Some(digest::of(data)), trailer) {
                    self.complete(cqe);
                }
            }
            HostReceived::Completed(cqe) => self.complete(cqe),
            HostReceived::Asked { .. } | HostReceived::Ready | HostReceived::Terminated(_) => {}
        }
        Ok(received)
    }

    /// Sends data that were asked for, no more than this many bytes of each PDU.
    pub fn send_asked(&mut self, cid: u16, most: usize) {
        let mut out = Vec::new();
        while let Some(sent) = self.machine.send_data(cid, &mut out) {
            let data = &self.outstanding[&cid].0[sent.offset as usize..][..sent.length as usize];
            out.extend_from_slice(&data[..data.len().min(most)]);
            if sent.digest {
                out.extend_from_slice(&self.digest(data));
            }
        }
        self.stream.write_all(&out).unwrap();
    }

    fn complete(&mut self, cqe: Cqe) {
        let (_, received) = self.outstanding.remove(&cqe.cid).unwrap();
        self.done.insert(cqe.cid, (cqe, received));
    }

    /// Waits for the end of a command.
    pub fn wait(&mut self, cid: u16) -> (Cqe, Vec<u8>) {
        loop {
            if let Some(done) = self.done.remove(&cid) {
                return done;
            }
            let received = self.receive().unwrap();
            assert!(!matches!(received, HostReceived::Terminated(_)), "{received:?}");
        }
    }

    /// Whether the end of a command has come already.
    pub fn is_done(&self, cid: u16) -> bool {
        self.done.contains_key(&cid)
    }

    pub fn command(&mut self, sqe: &Sqe, data: CommandData) -> (Cqe, Vec<u8>) {
        let cid = self.submit(sqe, data);
        self.wait(cid)
    }

    pub fn write(&mut self, nsid: u32, start: u64, data: &[u8]) -> Status {
        let sqe = blocks(IoOpcode::WRITE, nsid, start, data.len() / BLOCK, IoFlags::NONE);
        self.command(&sqe, CommandData::Send(data.to_vec())).0.status
    }

    pub fn read(&mut self, nsid: u32, start: u64, count: usize) -> Vec<u8> {
        let sqe = blocks(IoOpcode::READ, nsid, start, count, IoFlags::NONE);
        let (cqe, data) = self.command(&sqe, CommandData::Receive((count * BLOCK) as u32));
        assert_eq!(cqe.status, Status::SUCCESS);
        data
    }

    pub fn trim(&mut self, nsid: u32, ranges: &[(u64, u32)]) -> Status {
        let arguments = DatasetManagement { ranges: ranges.len() as u32, deallocate: true };
        let mut data: Vec<u8> = ranges
            .iter()
            .flat_map(|(start, count)| DsmRange { attributes: 0, count: *count, start: *start }.encode())
            .collect();
        if ranges.len() > 1 {
            // As Linux does.
            data.resize(DsmRange::LIST_BYTES_MAX as usize, 0xff);
        }
        self.command(&arguments.command(0, nsid, NO_SGL), CommandData::Send(data)).0.status
    }

    /// Waits until the target has closed the connection.
    pub fn wait_for_end(&mut self) {
        let mut rest = Vec::new();
        // A reset is an end as well.
        let end = self.stream.read_to_end(&mut rest).map_err(|error| error.kind());
        assert!(matches!(end, Ok(_) | Err(std::io::ErrorKind::ConnectionReset)), "{end:?}");
    }
}

const NO_SGL: Sgl = Sgl::Transport { length: 0 };

pub fn blocks(opcode: IoOpcode, nsid: u32, start: u64, count: usize, flags: IoFlags) -> Sqe {
    Blocks { start, count: count as u32, flags }.command(opcode, 0, nsid, NO_SGL)
}

/// A host with a controller.
pub struct Host {
    pub admin: Queue,
    pub io: Vec<Queue>,
    pub limits: Limits,
    pub namespaces: Vec<u32>,
    /// The state of each namespace, as the ANA log has it that was read last.
    pub ana: BTreeMap<u32, AnaState>,
    /// Admin commands that were sent, by identifier, and what the initiator calls them.
    ids: BTreeMap<u16, u32>,
    began: Instant,
    initiator: Initiator,
    waits_for_ana: bool,
}

pub fn host_config(queues: u16) -> HostConfig {
    HostConfig {
        host: nqn(HOST),
        host_id: HostId([7; 16]),
        subsystem: nqn(SUBSYSTEM),
        role: Role::Io { queues },
        entries: 64,
        keep_alive: Duration::from_secs(120),
        flow_control: false,
        keyed: false,
    }
}

impl Host {
    /// Connects with this many I/O queues.
    pub fn connect(target: &Target, queues: u16) -> Self {
        Self::connect_with(target, host_config(queues), Digests::default()).unwrap()
    }

    pub fn connect_with(target: &Target, config: HostConfig, digests: Digests) -> Result<Self, Failure> {
        Self::connect_to(target.addresses()[0], config, digests)
    }

    pub fn connect_to(address: SocketAddr, config: HostConfig, digests: Digests) -> Result<Self, Failure> {
        let entries = config.entries;
        let (discovers, began) = (config.role == Role::Discovery, Instant::now());
        let mut host = Self {
            admin: Queue::open(address, digests, 32),
            io: Vec::new(),
            limits: Limits {
                cntlid: 0,
                transfer_bytes: None,
                capsule_data_bytes: 0,
                io_queues: 0,
                entries: 0,
                commands: nvme::identify::OptionalCommands::NONE,
                volatile_cache: false,
                retry_delays_100_ms: [0; 3],
            },
            namespaces: Vec::new(),
            ana: BTreeMap::new(),
            ids: BTreeMap::new(),
            began,
            initiator: Initiator::new(Duration::ZERO, config),
            waits_for_ana: false,
        };
        host.run(address, digests, entries, discovers)?;
        Ok(host)
    }

    /// Waits until the host knows of other namespaces.
    pub fn wait_for_namespaces(&mut self, target: &Target) -> Result<(), Failure> {
        self.run(target.addresses()[0], Digests::default(), 0, false)
    }

    /// Waits until the host has read the ANA log.
    pub fn wait_for_ana(&mut self, target: &Target) -> Result<(), Failure> {
        self.waits_for_ana = true;
        let outcome = self.run(target.addresses()[0], Digests::default(), 0, false);
        self.waits_for_ana = false;
        outcome
    }

    /// Does what the initiator asks for until it is connected and knows its namespaces.
    fn run(
        &mut self,
        address: SocketAddr,
        digests: Digests,
        entries: u16,
        discovers: bool,
    ) -> Result<(), Failure> {
        let (began, waits_for_ana) = (self.began, self.waits_for_ana);
        let host = self;
        let mut is_complete = false;
        while !is_complete {
            while let Some(output) = host.initiator.poll_output() {
                match output {
                    HostOutput::Admin { id, command } => {
                        let cid = host.admin.submit(&command.sqe, command.data);
                        host.ids.insert(cid, id);
                    }
                    HostOutput::ConnectIo { id, command, .. } => {
                        let mut queue = Queue::open(address, digests, entries);
                        let (cqe, data) = queue.command(&command.sqe, command.data);
                        host.initiator.handle_completion(began.elapsed(), id, &cqe, &data);
                        host.io.push(queue);
                    }
                    HostOutput::Live(limits) => {
                        host.limits = limits;
                        host.io.iter_mut().for_each(|queue| {
                            queue.machine.set_capsule_data_bytes(limits.capsule_data_bytes);
                        });
                        is_complete = discovers;
                    }
                    HostOutput::Namespaces(namespaces) => {
                        host.namespaces = namespaces;
                        is_complete = true;
                    }
                    HostOutput::Ana(log) => {
                        let of = |group: &AnaGroup| {
                            let state = group.state;
                            group.nsids.iter().map(|nsid| (*nsid, state)).collect::<Vec<_>>()
                        };
                        host.ana = log.groups.iter().flat_map(of).collect();
                        is_complete |= waits_for_ana;
                    }
                    HostOutput::Authenticate { qid, .. } => panic!("queue {qid}: this host has no secret"),
                    HostOutput::DiscoveryChanged => {}
                    HostOutput::Failed(failure) => return Err(failure),
                }
            }
            if !is_complete {
                host.wait_for_admin();
            }
        }
        Ok(())
    }

    /// Waits for an answer on the admin queue, or until the initiator has something to do.
    fn wait_for_admin(&mut self) {
        let left = self.initiator.poll_timeout().map(|at| at.saturating_sub(self.began.elapsed()));
        let left = left.unwrap_or(PATIENCE).max(Duration::from_millis(1));
        self.admin.stream.set_read_timeout(Some(left)).unwrap();
        let is_readable = self.admin.stream.peek(&mut [0]).is_ok();
        self.admin.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        if !is_readable {
            return self.initiator.handle_timeout(self.began.elapsed());
        }
        self.admin.receive().unwrap();
        while let Some((cid, (cqe, data))) = self.admin.done.pop_first() {
            let id = self.ids.remove(&cid).unwrap();
            self.initiator.handle_completion(self.began.elapsed(), id, &cqe, &data);
        }
    }
}

/// Waits until nothing of any host is left.
pub fn wait_until_empty(target: &Target) {
    testkit::Deadline::wait_until("an empty target", PATIENCE, || {
        let usage = target.usage();
        let is_empty = usage.connections == 0 && usage.controllers == 0;
        (is_empty && usage.io_queues == 0 && usage.commands == 0).then_some(())
    });
}

pub fn random_bytes(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all = vec![0; bytes];
    random.fill(&mut all);
    all
}

//! A host with two paths. It drives what the loop of an attachment drives, without its sockets:
//! [`Initiator`], [`HostConnection`] and [`Fences`], which say what is sent when. Modelled here
//! after that loop: when a path is lost, when it is tried again, and that reads of a lost
//! controller are sent again at once.

use super::user::User;
use crate::client::{BLOCK, SUBSYSTEM, next_pdu};
use crate::{Link, path_of};
use fastrand::Rng;
use nvme::end_controller::EndController;
use nvme::fabrics::Property;
use nvme::host::{
    Candidate, Command, CommandData, FenceId, Fences, HostConfig, HostData, HostOutput, Initiator, Lifted,
    Name, Retry, Role, retry, safe_time,
};
use nvme::identify::Controller as Identity;
use nvme::io::{Blocks, IoFlags};
use nvme::pdu::Digests;
use nvme::register::CSTS;
use nvme::tcp::{HostConnection, HostReceived, HostSettings};
use nvme::{AdminOpcode, Cqe, HostId, IoOpcode, Nqn, Sgl, Sqe, digest};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub const KEEP_ALIVE: Duration = Duration::from_secs(5);
const QUEUES: u16 = 2;
const ENTRIES: u16 = 8;
/// A connection that owes an answer for this long is asked whether it lives.
const SUSPECT: Duration = Duration::from_millis(250);
/// How long it may be silent then, beside another path and alone.
const SILENT: (Duration, Duration) = (Duration::from_millis(350), Duration::from_secs(5));
const COMMAND: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(3);
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
const OLDER_AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Purpose {
    Machine(u32),
    Probe,
    /// The end of what an earlier process of the host has left.
    Older,
    End(FenceId),
    User(u64),
}

struct Sent {
    purpose: Purpose,
    data: Vec<u8>,
    sends: bool,
    at: Duration,
}

struct Connection {
    wire: HostConnection,
    is_io: bool,
    received: Vec<u8>,
    sent: Vec<u8>,
    /// By identifier.
    outstanding: BTreeMap<u16, Sent>,
    heard: Duration,
    probe: Option<Duration>,
}

struct Controller {
    /// From when the admin queue takes commands.
    initiator: Option<Initiator>,
    admin: Link,
    io: Vec<Link>,
    connecting: BTreeMap<Link, (u32, Command)>,
    opened: Duration,
}

#[derive(Default)]
struct Path {
    controller: Option<Controller>,
    again_at: Duration,
    back_off: Duration,
}

/// By which command the target ends a controller that the host has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knows {
    EndController,
    CrossReset,
    /// By none: time decides.
    Nothing,
}

/// How a host of one seed is.
#[derive(Debug, Clone, Copy)]
pub struct Traits {
    pub digests: Digests,
    pub flow_control: bool,
    pub target_knows: Knows,
}

pub struct Host {
    pub traits: Traits,
    pub user: User,
    connections: BTreeMap<Link, Connection>,
    paths: [Path; 2],
    next_link: Link,
    closed: Vec<Link>,
    waiting: VecDeque<u64>,
    fences: Fences<u64>,
    /// Controllers of an earlier process are finished.
    has_begun: bool,
    older_since: Option<Duration>,
    older_at: Option<Duration>,
    pub lost: u64,
    pub fenced: u64,
    pub lifted_by_answer: u64,
    pub lifted_by_time: u64,
    pub waited_most: Duration,
}

impl Host {
    pub fn new(traits: Traits) -> Self {
        Self {
            traits,
            user: User::new(),
            connections: BTreeMap::new(),
            paths: Default::default(),
            next_link: 0,
            closed: Vec::new(),
            waiting: VecDeque::new(),
            fences: Fences::default(),
            has_begun: traits.target_knows == Knows::Nothing,
            older_since: None,
            older_at: None,
            lost: 0,
            fenced: 0,
            lifted_by_answer: 0,
            lifted_by_time: 0,
            waited_most: Duration::ZERO,
        }
    }

    fn config(&self) -> HostConfig {
        HostConfig {
            host: Nqn::new("nqn.2026-11.test:host").expect("valid"),
            host_id: HostId([7; 16]),
            subsystem: Nqn::new(SUBSYSTEM).expect("valid"),
            role: Role::Io { queues: QUEUES },
            entries: ENTRIES,
            keep_alive: KEEP_ALIVE,
            flow_control: self.traits.flow_control,
            keyed: false,
        }
    }

    /// The connections that there are.
    pub fn links(&self) -> Vec<Link> {
        self.connections.keys().copied().collect()
    }

    /// Those that were given up since.
    pub fn take_closed(&mut self) -> Vec<Link> {
        std::mem::take(&mut self.closed)
    }

    pub fn take_sent(&mut self) -> Vec<(Link, Vec<u8>)> {
        self.connections.iter_mut().map(|(link, one)| (*link, std::mem::take(&mut one.sent))).collect()
    }

    /// Nothing is under way, and both paths are there.
    pub fn is_idle(&self) -> bool {
        self.user.is_idle() && self.fences.is_empty() && (0..2).all(|path| self.is_live(path))
    }

    fn is_live(&self, path: usize) -> bool {
        let controller = self.paths[path].controller.as_ref();
        controller.and_then(|one| one.initiator.as_ref()).is_some_and(Initiator::is_live)
    }

    fn identity(&self, path: usize) -> Option<&Identity> {
        self.paths[path].controller.as_ref()?.initiator.as_ref()?.controller()
    }

    fn name(&self, path: usize) -> Option<Name> {
        let identity = *self.identity(path)?;
        match self.traits.target_knows {
            Knows::EndController => Name::of(&identity),
            Knows::CrossReset => Name::of(&Identity { end_signature: [0; 8], ..identity }),
            Knows::Nothing => None,
        }
    }

    /// The host is killed, and starts again.
    pub fn restart(&mut self, now: Duration) {
        self.closed.extend(std::mem::take(&mut self.connections).into_keys());
        self.paths = Default::default();
        self.user.forget();
        (self.waiting, self.fences) = (VecDeque::new(), Fences::default());
        (self.has_begun, self.older_since, self.older_at) = (false, None, None);
        self.tick(now);
    }

    fn connect(&mut self, now: Duration, path: usize, is_io: bool) -> Link {
        let link = (path as Link) << 24 | self.next_link;
        self.next_link += 1;
        let mut sent = Vec::new();
        let entries = if is_io { ENTRIES } else { 32 };
        let settings = HostSettings { digests: self.traits.digests, entries, transfer_bytes: 1 << 20 };
        let wire = HostConnection::new(settings, &mut sent);
        let (received, outstanding) = (Vec::new(), BTreeMap::new());
        let connection = Connection { wire, is_io, received, sent, outstanding, heard: now, probe: None };
        self.connections.insert(link, connection);
        link
    }

    /// Looks at the time.
    pub fn tick(&mut self, now: Duration) {
        for path in 0..2 {
            self.tick_path(now, path);
        }
        if self.older_at.is_some_and(|at| now >= at)
            && let Some(path) = (0..2).find(|path| self.is_live(*path))
        {
            self.ask_older(now, path);
        }
        let is_reached = (0..2).any(|path| self.is_live(path));
        while let Some(lifted) = self.fences.handle_timeout(now, is_reached) {
            self.lifted_by_time += 1;
            self.lift(lifted);
        }
        self.ask(now);
    }

    fn tick_path(&mut self, now: Duration, path: usize) {
        // Until older controllers are finished, one path at a time: the next one would end this
        // one's.
        let may_open = self.has_begun || self.paths.iter().all(|path| path.controller.is_none());
        let Some(controller) = &mut self.paths[path].controller else {
            if now >= self.paths[path].again_at && may_open {
                let admin = self.connect(now, path, false);
                let (io, connecting) = (Vec::new(), BTreeMap::new());
                let controller = Controller { initiator: None, admin, io, connecting, opened: now };
                self.paths[path].controller = Some(controller);
            }
            return;
        };
        let Some(initiator) = &mut controller.initiator else {
            if now >= controller.opened + CONNECT {
                self.lose(now, path);
            }
            return;
        };
        initiator.handle_timeout(now);
        self.pump(now, path);
        self.check_health(now, path);
    }

    /// A connection that owes answers and says nothing is asked, and its path lost if it does not
    /// answer.
    fn check_health(&mut self, now: Duration, path: usize) {
        if !self.is_live(path) {
            return;
        }
        let limit = if self.is_live(1 - path) { SILENT.0 } else { SILENT.1 };
        let owes = |sent: &Sent| matches!(sent.purpose, Purpose::User(_) | Purpose::End(_) | Purpose::Older);
        let mut probes = Vec::new();
        for (link, one) in self.connections.iter().filter(|(link, _)| path_of(**link) == path) {
            let owing = one.outstanding.values().filter(|sent| owes(sent));
            let Some(oldest) = owing.map(|sent| sent.at).min() else { continue };
            let is_silent = one.probe.is_some_and(|asked| now >= asked + limit);
            if is_silent || now >= oldest + COMMAND {
                return self.lose(now, path);
            }
            if one.probe.is_none() && now >= one.heard.max(oldest) + SUSPECT {
                probes.push((*link, one.is_io));
            }
        }
        for (link, is_io) in probes {
            let connection = self.connections.get_mut(&link).expect("there");
            connection.probe = Some(now);
            let keep_alive = Sqe::new(AdminOpcode::KEEP_ALIVE.0, 0, 0);
            let sqe = if is_io { Property::get(0, CSTS, false) } else { keep_alive };
            self.submit(now, link, Purpose::Probe, &Command { sqe, data: CommandData::None });
        }
    }

    /// A controller is lost: its reads are sent again at once, its writes when it is finished.
    fn lose(&mut self, now: Duration, path: usize) {
        let (safe, name) = (safe_time(KEEP_ALIVE, self.identity(path)), self.name(path));
        if self.paths[path].controller.take().is_none() {
            return;
        }
        self.lost += 1;
        let mut writes = Vec::new();
        for link in self.links().into_iter().filter(|link| path_of(*link) == path) {
            self.closed.push(link);
            for sent in self.connections.remove(&link).expect("there").outstanding.into_values() {
                match sent.purpose {
                    Purpose::User(id) if self.user.io(id).write.is_some() => writes.push(id),
                    Purpose::User(id) => self.waiting.push_front(id),
                    Purpose::End(fence) => self.fences.ask_again(now, fence),
                    Purpose::Machine(_) | Purpose::Probe | Purpose::Older => {}
                }
            }
        }
        let back_off = (self.paths[path].back_off * 2).clamp(BACK_OFF.0, BACK_OFF.1);
        (self.paths[path].back_off, self.paths[path].again_at) = (back_off, now + back_off);
        if !writes.is_empty() {
            self.fenced += 1;
            self.fences.add(now, safe, name, writes);
            self.ask(now);
        }
    }

    /// The other end of a connection is gone.
    pub fn ended(&mut self, now: Duration, link: Link) {
        if self.connections.contains_key(&link) {
            self.lose(now, path_of(link));
        }
    }

    fn ask(&mut self, now: Duration) {
        while let Some(ask) = self.fences.next_ask(now, &self.candidates()) {
            let admin = self.paths[ask.path].controller.as_ref().expect("live").admin;
            self.submit(now, admin, Purpose::End(ask.fence), &ask.command);
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let of = |path: usize| {
            let name = self.name(path).filter(|_| self.is_live(path))?;
            let admin = self.paths[path].controller.as_ref()?.admin;
            Some(Candidate { path, name, is_suspect: self.connections[&admin].probe.is_some() })
        };
        (0..2).filter_map(of).collect()
    }

    fn ask_older(&mut self, now: Duration, path: usize) {
        self.older_at = None;
        self.older_since.get_or_insert(now);
        let admin = self.paths[path].controller.as_ref().expect("live").admin;
        let sqe = EndController::Older.command(0);
        self.submit(now, admin, Purpose::Older, &Command { sqe, data: CommandData::None });
    }

    fn lift(&mut self, lifted: Lifted<u64>) {
        self.waited_most = self.waited_most.max(lifted.waited);
        lifted.changes.into_iter().rev().for_each(|id| self.waiting.push_front(id));
    }

    /// The user begins a command.
    pub fn begin(&mut self, random: &mut Rng) {
        let id = self.user.begin(random);
        self.waiting.extend(id);
    }

    /// Sends what waits, on any queue of any path that has room.
    pub fn dispatch(&mut self, now: Duration, random: &mut Rng) {
        while self.has_begun
            && let Some(id) = self.waiting.pop_front()
        {
            let has_room = |link: &Link| {
                let connection = &self.connections[link];
                let is_usable = connection.is_io && self.is_live(path_of(*link));
                is_usable && connection.wire.outstanding() + 2 < ENTRIES.into()
            };
            let free: Vec<Link> = self.links().into_iter().filter(has_room).collect();
            let Some(link) = random.choice(free) else { return self.waiting.push_front(id) };
            let io = self.user.io(id);
            let blocks = Blocks { start: io.start, count: io.count, flags: IoFlags::NONE };
            let (opcode, data) = match io.write {
                Some(_) => (IoOpcode::WRITE, CommandData::Send(io.data())),
                None => (IoOpcode::READ, CommandData::Receive(io.count * BLOCK as u32)),
            };
            let sqe = blocks.command(opcode, 0, 1, Sgl::NONE);
            self.submit(now, link, Purpose::User(id), &Command { sqe, data });
        }
    }

    fn submit(&mut self, now: Duration, link: Link, purpose: Purpose, command: &Command) {
        let connection = self.connections.get_mut(&link).expect("there");
        let (moves, data, sends) = match &command.data {
            CommandData::None => (HostData::None, Vec::new(), false),
            CommandData::Send(data) => (HostData::ToController(data.len() as u32), data.clone(), true),
            CommandData::Receive(bytes) => {
                (HostData::FromController(*bytes), vec![0; *bytes as usize], false)
            }
        };
        let submitted = connection.wire.submit(&command.sqe, moves, &mut connection.sent).expect("room");
        append(connection, &data[..submitted.in_capsule as usize], submitted.digest);
        connection.outstanding.insert(submitted.cid, Sent { purpose, data, sends, at: now });
    }

    /// Does what the machine of a controller asks for.
    fn pump(&mut self, now: Duration, path: usize) {
        loop {
            let Some(controller) = &mut self.paths[path].controller else { return };
            let admin = controller.admin;
            let Some(output) = controller.initiator.as_mut().and_then(Initiator::poll_output) else { return };
            match output {
                HostOutput::Admin { id, command } => {
                    self.submit(now, admin, Purpose::Machine(id), &command);
                }
                HostOutput::ConnectIo { id, command, .. } => {
                    let link = self.connect(now, path, true);
                    let controller = self.paths[path].controller.as_mut().expect("there");
                    controller.connecting.insert(link, (id, command));
                }
                HostOutput::Live(limits) => {
                    self.paths[path].back_off = Duration::ZERO;
                    let io = self.paths[path].controller.as_ref().expect("there").io.clone();
                    for link in io {
                        let connection = self.connections.get_mut(&link).expect("there");
                        connection.wire.set_capsule_data_bytes(limits.capsule_data_bytes);
                    }
                    if self.has_begun { self.ask(now) } else { self.ask_older(now, path) }
                }
                HostOutput::Namespaces(_) | HostOutput::Ana(_) => {}
                HostOutput::Failed(_) => self.lose(now, path),
                HostOutput::DiscoveryChanged | HostOutput::Authenticate { .. } => {
                    panic!("not of this controller")
                }
            }
        }
    }

    pub fn receive(&mut self, now: Duration, link: Link, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&link) else { return };
        connection.received.extend_from_slice(bytes);
        (connection.heard, connection.probe) = (now, None);
        // A completion may end the path.
        while let Some(connection) = self.connections.get_mut(&link) {
            let next = next_pdu(&mut connection.wire, &mut connection.received);
            let Some((received, data, digest)) = next else { return };
            self.act(now, link, received, &data, &digest);
        }
    }

    fn act(&mut self, now: Duration, link: Link, received: HostReceived, bytes: &[u8], digest: &[u8]) {
        let connection = self.connections.get_mut(&link).expect("there");
        match received {
            HostReceived::Ready => self.ready(now, link),
            HostReceived::Data { cid, offset, length } => {
                let sent = connection.outstanding.get_mut(&cid).expect("outstanding");
                sent.data[offset as usize..(offset + length) as usize].copy_from_slice(bytes);
                if let Some(cqe) = connection.wire.handle_data(cid, Some(digest::of(bytes)), digest) {
                    self.completed(now, link, &cqe);
                }
            }
            HostReceived::Asked { cid } => {
                let data = connection.outstanding[&cid].data.clone();
                while let Some(sent) = connection.wire.send_data(cid, &mut connection.sent) {
                    let range = sent.offset as usize..(sent.offset + sent.length) as usize;
                    append(connection, &data[range], sent.digest);
                }
            }
            HostReceived::Completed(cqe) => self.completed(now, link, &cqe),
            HostReceived::Terminated(term) => panic!("our target is content: {term:?}"),
        }
    }

    /// A connection takes commands.
    fn ready(&mut self, now: Duration, link: Link) {
        let (path, config) = (path_of(link), self.config());
        let Some(controller) = &mut self.paths[path].controller else { return };
        if controller.admin == link {
            controller.initiator = Some(Initiator::new(now, config));
            return self.pump(now, path);
        }
        let (id, command) = controller.connecting.remove(&link).expect("connecting");
        controller.io.push(link);
        self.submit(now, link, Purpose::Machine(id), &command);
    }

    fn completed(&mut self, now: Duration, link: Link, cqe: &Cqe) {
        let path = path_of(link);
        let connection = self.connections.get_mut(&link).expect("there");
        let Sent { purpose, data, sends, .. } =
            connection.outstanding.remove(&cqe.cid).expect("a completion is of an outstanding command");
        match purpose {
            Purpose::Machine(id) => {
                let controller = self.paths[path].controller.as_mut().expect("there");
                let initiator = controller.initiator.as_mut().expect("there");
                initiator.handle_completion(now, id, cqe, if sends { &[] } else { &data });
                self.pump(now, path);
            }
            Purpose::Probe => {}
            Purpose::Older if cqe.status.is_success() => self.has_begun = true,
            Purpose::Older => self.older_at = Some(now + OLDER_AGAIN),
            Purpose::End(fence) => {
                if let Some(lifted) = self.fences.handle_answer(now, fence, cqe) {
                    self.lifted_by_answer += 1;
                    self.lift(lifted);
                }
            }
            Purpose::User(id) => match retry(cqe.status, [0; 3]) {
                Retry::Done => self.user.done(id, &data),
                // The controller says that it is finished with it.
                Retry::Elsewhere | Retry::Here(_) => self.waiting.push_back(id),
                Retry::Never => panic!("{}", cqe.status),
            },
        }
    }
}

fn append(connection: &mut Connection, data: &[u8], has_digest: bool) {
    connection.sent.extend_from_slice(data);
    if has_digest {
        connection.sent.extend(digest::of(data).to_bytes());
    }
}

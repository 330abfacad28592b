//! The controllers of the target, and where their queues are.
//!
//! Two state machines, one for input and output and one for discovery, behind one lock: what they
//! decide is rare, and short. What they ask of a queue is posted to its loop while the lock is
//! held, so that loops see it in the order in which it was decided.

mod forwarded;

use crate::config::{
    CAPSULE_DATA_BYTES, Config, HostSecret, Hosts, Listen, QUEUE_ENTRIES, RDMA_CAPSULE_DATA_BYTES,
    TRANSFER_BYTES, cntlids,
};
use crate::discovery;
use crate::error::Error;
use crate::forward::{Route, clock};
use crate::mailbox::{Mailbox, Message, Place};
use crate::namespace::Namespace;
use crate::pair::OtherNode;
use crate::report::ControllerState;
use crate::reservations::Saver;
use crate::target::Shared;
use chap::{Algorithms, Credentials, Gate};
use forwarded::Forwarded;
use nvme::controller::{
    Accepted, Access, IoCounts, Kind, Limits, Node, Output, Port, QueueId, Reach, Refusal, Reservation,
    Subsystem, VolumeError,
};
use nvme::fabrics::{Connect, ConnectData};
use nvme::{HostId, Nqn, Sqe, Status, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use volumes::{Identity, Volume};

const MODEL: &str = "Trunkline";
const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// Which state machine a queue belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    Io,
    Discovery,
}

/// A queue of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Queue {
    pub(crate) service: Service,
    pub(crate) id: QueueId,
}

/// A queue that was connected.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) queue: Queue,
    pub(crate) accepted: Accepted,
    /// Set by the loop of an I/O queue for each command; asked when keep-alive expires.
    pub(crate) traffic: Arc<AtomicBool>,
    /// What its host must pass before its commands are served.
    pub(crate) gate: Option<Box<Gate>>,
}

#[derive(Debug)]
struct State {
    io: Subsystem,
    discovery: Subsystem,
    places: BTreeMap<Queue, Place>,
    traffic: BTreeMap<u16, Arc<AtomicBool>>,
    /// The loops that still execute what a change of reservations has ended, by NSID.
    fences: BTreeMap<u32, usize>,
    /// The loops that still have the backing of a volume that is given away, by NSID.
    gives: BTreeMap<u32, usize>,
    /// The loops end: nothing is waited for any more.
    is_over: bool,
    /// Where the host of each controller connects from: by its admin queue.
    peers: BTreeMap<Queue, SocketAddr>,
    secrets: BTreeMap<Nqn, HostSecret>,
    forwarded: Forwarded,
    /// The process of the other node, if it is another one.
    other: Option<OtherNode>,
}

impl State {
    const fn of(&mut self, service: Service) -> &mut Subsystem {
        match service {
            Service::Io => &mut self.io,
            Service::Discovery => &mut self.discovery,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Controllers {
    began: Instant,
    /// Where the instances of its controllers begin.
    pub(crate) instance: u64,
    state: Mutex<State>,
    mailboxes: Vec<Arc<Mailbox>>,
    subsystem: Nqn,
    /// Where hosts connect, here and elsewhere.
    ports: Vec<Listen>,
    /// Those that have an address.
    nodes: BTreeSet<Node>,
    /// By NSID.
    known: BTreeMap<u32, Known>,
    saver: Option<Saver>,
    /// What [`Controllers::give`] waits for may have happened.
    changed: Condvar,
}

/// What is known of a volume.
#[derive(Debug)]
struct Known {
    name: String,
    identity: Identity,
    /// Its place among all.
    at: usize,
}

impl Controllers {
    pub(crate) fn new(
        config: &Config,
        (namespaces, is_split): (&[Namespace], bool),
        ports: &[Listen],
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> Result<Self, Error> {
        let nodes = config.nodes();
        if is_split && nodes.len() != 1 {
            return Err(Error::Split);
        }
        if let Some(unknown) = nodes.iter().find(|node| **node > Node::B) {
            return Err(Error::Node(*unknown));
        }
        let of_io = of_config(config, (Kind::Io, is_split), config.subsystem.clone());
        let mut io = Subsystem::new(Duration::ZERO, of_io);
        let instance = instance_base();
        io.set_instance_base(instance);
        check(namespaces)?;
        for (at, namespace) in namespaces.iter().enumerate() {
            let (name, nsid, owner) = (namespace.facts.name.clone(), namespace.nsid, namespace.owner);
            // Hosts would have no best way to it.
            if !is_split && !nodes.contains(&owner) {
                return Err(Error::Owner { name, node: owner });
            }
            io.set_volume(nsid, namespace.volume(at)).map_err(|source| Error::Volume { name, source })?;
            if is_split {
                io.set_owner(Duration::ZERO, nsid, owner, Reach::Moving);
            } else {
                restore(&mut io, namespace, config)?;
            }
        }
        let of_discovery = of_config(config, (Kind::Discovery, is_split), Nqn::discovery());
        let mut discovery = Subsystem::new(Duration::ZERO, of_discovery);
        let ports: Vec<Listen> = ports.iter().chain(&config.elsewhere).copied().collect();
        discovery.set_records(discovery::records(&config.subsystem, &ports, &config.hosts));
        let subsystem = config.subsystem.clone();
        let known = |(at, namespace): (usize, &Namespace)| {
            let (name, identity) = (namespace.facts.name.clone(), namespace.facts.identity);
            (namespace.nsid, Known { name, identity, at })
        };
        let state = State {
            io,
            discovery,
            places: BTreeMap::new(),
            traffic: BTreeMap::new(),
            fences: BTreeMap::new(),
            gives: BTreeMap::new(),
            is_over: false,
            peers: BTreeMap::new(),
            secrets: config.secrets.clone(),
            forwarded: Forwarded::default(),
            other: None,
        };
        Ok(Self {
            began: Instant::now(),
            instance,
            state: Mutex::new(state),
            mailboxes,
            subsystem,
            ports,
            nodes,
            known: namespaces.iter().enumerate().map(known).collect(),
            saver: config.reservations.clone().map(Saver::new),
            changed: Condvar::new(),
        })
    }

    /// The time of the state machines.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The controllers for input and output and for discovery.
    pub(crate) fn count(&self) -> usize {
        let state = self.state();
        state.io.controllers().count() + state.discovery.controllers().count()
    }

    /// Connects a queue.
    pub(crate) fn connect(
        &self,
        place: Place,
        (node, transport): (Node, Transport),
        peer: SocketAddr,
        sqe: &Sqe,
        data: &ConnectData,
    ) -> Result<Connected, Refusal> {
        let capsule_data_bytes = match transport {
            Transport::Tcp => CAPSULE_DATA_BYTES,
            Transport::Rdma => RDMA_CAPSULE_DATA_BYTES,
        };
        let port = Port { node, transport, capsule_data_bytes };
        let (now, mut state) = (self.now(), self.state());
        let for_discovery = data.subsystem().is_ok_and(|name| state.discovery.answers_to(&name));
        let service = if for_discovery { Service::Discovery } else { Service::Io };
        let mut accepted = state.of(service).connect(now, port, sqe.cid, &Connect::of(sqe), data)?;
        let gate = if service == Service::Io { self.gate(&state, data) } else { None };
        if gate.is_some() {
            accepted.cqe.result = Gate::announce(accepted.cqe.result);
        }
        let queue = Queue { service, id: accepted.id };
        state.places.insert(queue, place);
        if accepted.id.qid == 0 {
            state.peers.insert(queue, peer);
        }
        let traffic = match service {
            Service::Io => Arc::clone(state.traffic.entry(accepted.id.cntlid).or_default()),
            Service::Discovery => Arc::default(),
        };
        self.deliver(&mut state, service, place.event_loop);
        if let Some(first) = self.mailboxes.first() {
            first.post(Message::Tick, place.event_loop != 0);
        }
        Ok(Connected { queue, accepted, traffic, gate })
    }

    /// What stands before a queue of this host.
    fn gate(&self, state: &State, data: &ConnectData) -> Option<Box<Gate>> {
        let (credentials, algorithms) = self.credentials(state, &data.host().ok()?)?;
        Some(Box::new(Gate::new(credentials, algorithms)))
    }

    /// What this host is authenticated by, if it must be.
    fn credentials(&self, state: &State, host: &Nqn) -> Option<(Arc<Credentials>, Arc<Algorithms>)> {
        let secret = state.secrets.get(host)?;
        Some((Arc::new(secret.credentials(host, &self.subsystem)), Arc::clone(&secret.algorithms)))
    }

    /// A transaction on a queue of this host begins with the secrets of now. One that has none any
    /// more must still prove that it is the one that has connected.
    pub(crate) fn renew(&self, gate: &mut Gate, host: &Nqn) {
        if let Some((credentials, algorithms)) = self.credentials(&self.state(), host) {
            gate.renew(credentials, algorithms);
        }
    }

    /// The host that has this identifier, if it is not this one.
    pub(crate) fn other_with_id(&self, host: &Nqn, host_id: HostId) -> Option<Nqn> {
        self.state().io.holder_of(host_id).filter(|holder| *holder != host).cloned()
    }

    /// Who owns the volume with this NSID, and how the owner is reached.
    pub(crate) fn owner(&self, nsid: u32) -> Option<(Node, Reach)> {
        self.state().io.owner(nsid)
    }

    /// All controllers, and where their hosts connect from.
    pub(crate) fn reports(&self) -> Vec<ControllerState> {
        let state = self.state();
        let of = |service, machine: &Subsystem| {
            let peer = |cntlid| state.peers.get(&Queue { service, id: QueueId { cntlid, qid: 0 } }).copied();
            machine.reports().map(|report| ControllerState { peer: peer(report.cntlid), report }).collect()
        };
        let all: [Vec<_>; 2] = [of(Service::Io, &state.io), of(Service::Discovery, &state.discovery)];
        all.concat()
    }

    /// Changes which hosts there are, and tells them what has changed for them.
    pub(crate) fn set_hosts(&self, hosts: &Hosts) {
        let mut state = self.state();
        state.io.set_host_ids(hosts.ids.clone());
        state.io.set_access(hosts.access.clone());
        state.secrets.clone_from(&hosts.secrets);
        for (nsid, hosts) in &hosts.volumes {
            state.io.set_hosts(*nsid, hosts.clone());
        }
        state.discovery.set_records(discovery::records(&self.subsystem, &self.ports, &hosts.access));
        // From no loop: each of them is woken.
        self.deliver(&mut state, Service::Io, usize::MAX);
        self.deliver(&mut state, Service::Discovery, usize::MAX);
    }

    /// Gives a volume to another node, and tells hosts. Returns whether that is a change.
    pub(crate) fn set_owner(&self, nsid: u32, owner: Node) -> Result<bool, Error> {
        let Some(known) = self.known.get(&nsid) else { return Ok(false) };
        if !self.nodes.contains(&owner) {
            return Err(Error::Owner { name: known.name.clone(), node: owner });
        }
        let mut state = self.state();
        let is_change = state.io.set_owner(self.now(), nsid, owner, Reach::Serving);
        // From no loop: each of them is woken.
        self.deliver(&mut state, Service::Io, usize::MAX);
        Ok(is_change)
    }

    /// What the volumes have moved until now, for health.
    pub(crate) fn set_io_counts(&self, counts: volumes::IoCounts) {
        let volumes::IoCounts { reads, writes, read_bytes, written_bytes } = counts;
        self.state().io.set_io_counts(IoCounts { reads, writes, read_bytes, written_bytes });
    }

    /// A command on an admin queue, with its data. Returns how often its controller was
    /// [reset](Subsystem::resets).
    pub(crate) fn command(&self, here: usize, queue: Queue, sqe: &Sqe, data: &[u8]) -> u64 {
        let (now, mut state) = (self.now(), self.state());
        state.of(queue.service).handle_command(now, queue.id.cntlid, sqe, data);
        self.deliver(&mut state, queue.service, here);
        state.of(queue.service).resets(queue.id.cntlid)
    }

    /// So many commands of an admin queue, whose data were awaited, ended with the reset of their
    /// controller.
    pub(crate) fn drop_awaited(&self, queue: Queue, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.state().of(queue.service).drop_awaited(queue.id.cntlid, count);
    }

    /// A command on an admin queue that is answered with this status.
    pub(crate) fn refuse(&self, here: usize, queue: Queue, sqe: &Sqe, status: Status) {
        let mut state = self.state();
        state.of(queue.service).refuse_command(queue.id.cntlid, sqe, status);
        self.deliver(&mut state, queue.service, here);
    }

    /// A command on an admin queue that was executed before, and is answered with these data.
    pub(crate) fn answer(&self, here: usize, queue: Queue, sqe: &Sqe, data: Vec<u8>) {
        let mut state = self.state();
        state.of(queue.service).answer_command(queue.id.cntlid, sqe, data);
        self.deliver(&mut state, queue.service, here);
    }

    /// A queue whose host is not authenticated ends, after what was answered on it.
    pub(crate) fn not_authenticated(&self, place: Place) {
        if let Some(mailbox) = self.mailboxes.get(place.event_loop) {
            mailbox.post(Message::NotAuthenticated { token: place.token }, false);
        }
    }

    /// A command of reservations, with the data that came for it. Its end is posted to its loop.
    pub(crate) fn reserve(&self, here: usize, queue: Queue, reservation: &Reservation, data: &[u8]) {
        let Reservation { tag, nsid, command, .. } = *reservation;
        let mut state = self.state();
        state.io.reserve(queue.id, tag, nsid, command, data);
        self.deliver(&mut state, Service::Io, here);
    }

    /// A loop executes nothing any more that a change of reservations has ended.
    pub(crate) fn fenced(&self, here: usize, nsid: u32) {
        let mut state = self.state();
        let Some(left) = state.fences.get_mut(&nsid) else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            state.fences.remove(&nsid);
            state.io.handle_fenced(nsid);
            self.deliver(&mut state, Service::Io, here);
            self.changed.notify_all();
        }
    }

    /// The reservations of a volume were saved, or could not be.
    pub(crate) fn saved(&self, nsid: u32, is_durable: bool) {
        let mut state = self.state();
        state.io.handle_saved(nsid, is_durable);
        // From no loop: each of them is woken.
        self.deliver(&mut state, Service::Io, usize::MAX);
        self.changed.notify_all();
    }

    /// The backing of a volume is here from now on, with what was reserved of it. Hosts may use it
    /// once they are told that it is reached.
    pub(crate) fn take(&self, nsid: u32, volume: &Volume) -> Result<(), Error> {
        let Some(known) = self.known.get(&nsid) else { return Ok(()) };
        let failed = |source| Error::Reservations { name: known.name.clone(), source };
        let saved = self.saver.as_ref().map(|saver| saver.load(&known.identity)).transpose();
        let saved = saved.map_err(|error| failed(error.into()))?.flatten();
        let mut state = self.state();
        let taken = state.io.take_reservations(nsid, saved.as_ref());
        taken.map_err(|error| failed(error.into()))?;
        for mailbox in &self.mailboxes {
            mailbox.post(Message::Taken { at: known.at, volume: volume.clone() }, true);
        }
        Ok(())
    }

    /// A volume moves away: hosts are told, and what was begun ends. Returns when no loop has its
    /// backing any more, and its reservations are saved.
    pub(crate) fn give(&self, nsid: u32) {
        let Some(known) = self.known.get(&nsid) else { return };
        let mut state = self.state();
        if let Some((owner, _)) = state.io.owner(nsid) {
            state.io.set_owner(self.now(), nsid, owner, Reach::Moving);
        }
        self.deliver(&mut state, Service::Io, usize::MAX);
        state.gives.insert(nsid, self.mailboxes.len());
        for mailbox in &self.mailboxes {
            mailbox.post(Message::Give { nsid, at: known.at }, true);
        }
        while !state.is_over && (state.gives.contains_key(&nsid) || state.io.is_reserving(nsid)) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A loop does not have the backing of a volume any more.
    pub(crate) fn given(&self, nsid: u32) {
        let mut state = self.state();
        let Some(left) = state.gives.get_mut(&nsid) else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            state.gives.remove(&nsid);
            self.changed.notify_all();
        }
    }

    /// The loops have ended, or will.
    pub(crate) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    /// Who owns a volume from now on, since which epoch, and how it is reached.
    pub(crate) fn set_reach(&self, nsid: u32, (owner, epoch): (Node, u64), reach: Reach) {
        let Some(known) = self.known.get(&nsid) else { return };
        let route = match reach {
            Reach::Serving if self.nodes.contains(&owner) => Route::Here(epoch),
            Reach::Serving => Route::There(epoch),
            Reach::Moving | Reach::Unreachable | Reach::Lost => Route::Nowhere,
        };
        let mut state = self.state();
        state.io.set_owner(self.now(), nsid, owner, reach);
        // From no loop: each of them is woken. The views come before the route.
        self.deliver(&mut state, Service::Io, usize::MAX);
        for mailbox in &self.mailboxes {
            mailbox.post(Message::Reach { at: known.at, nsid, route }, true);
        }
    }

    /// Starts the thread that saves, if something is to be saved.
    pub(crate) fn start_saver(&self, shared: &Arc<Shared>) -> std::io::Result<Option<JoinHandle<()>>> {
        self.saver.as_ref().map_or(Ok(None), |saver| saver.start(shared))
    }

    pub(crate) fn stop_saver(&self) {
        if let Some(saver) = &self.saver {
            saver.stop();
        }
    }

    /// The host does not keep to the rules of this queue.
    pub(crate) fn violation(&self, here: usize, queue: Queue) {
        let mut state = self.state();
        state.of(queue.service).handle_violation(queue.id);
        self.deliver(&mut state, queue.service, here);
    }

    /// The connection of a queue is closed, and nothing of it is executed any more.
    pub(crate) fn closed(&self, here: usize, queue: Queue) {
        let (now, mut state) = (self.now(), self.state());
        state.places.remove(&queue);
        state.peers.remove(&queue);
        state.of(queue.service).handle_queue_closed(now, queue.id);
        self.deliver(&mut state, queue.service, here);
    }

    /// Time has passed, of which the process stood still for a part. Returns whether there are
    /// controllers whose time runs.
    pub(crate) fn tick(&self, here: usize, lost: Duration) -> bool {
        let (now, mut state) = (self.now(), self.state());
        if !lost.is_zero() {
            state.io.handle_stall(lost);
            state.discovery.handle_stall(lost);
        }
        let State { io, discovery, traffic, .. } = &mut *state;
        let had_traffic =
            |cntlid: u16| traffic.get(&cntlid).is_some_and(|flag| flag.swap(false, Ordering::Relaxed));
        io.handle_timeout(now, had_traffic);
        discovery.handle_timeout(now, |_| false);
        self.deliver(&mut state, Service::Io, here);
        self.deliver(&mut state, Service::Discovery, here);
        state.io.controllers().next().is_some() || state.discovery.controllers().next().is_some()
    }

    /// Posts what a state machine asks for to the loops that it concerns.
    fn deliver(&self, state: &mut State, service: Service, here: usize) {
        let post = |place: Option<&Place>, message: &dyn Fn(&Place) -> Message| {
            let Some(place) = place else { return };
            if let Some(mailbox) = self.mailboxes.get(place.event_loop) {
                mailbox.post(message(place), place.event_loop != here);
            }
        };
        while let Some(output) = state.of(service).poll_output() {
            match output {
                Output::Respond { cntlid, cqe, data } => {
                    let admin = Queue { service, id: QueueId { cntlid, qid: 0 } };
                    let Some(place) = state.places.get(&admin) else { continue };
                    let Some(mailbox) = self.mailboxes.get(place.event_loop) else { continue };
                    mailbox
                        .post(Message::Respond { token: place.token, cqe, data }, place.event_loop != here);
                }
                Output::Dropped { cntlid, cid } => {
                    let place = state.places.get(&Queue { service, id: QueueId { cntlid, qid: 0 } });
                    post(place, &|place| Message::Dropped { token: place.token, cid });
                }
                Output::Close { queue: id, reason } => {
                    let place = state.places.get(&Queue { service, id });
                    post(place, &|place| Message::Close { token: place.token, reason });
                }
                Output::View { cntlid, view } => {
                    let of = |qid| Queue { service, id: QueueId { cntlid, qid } };
                    for place in state.places.range(of(1)..=of(u16::MAX)).map(|(_, place)| place) {
                        post(Some(place), &|place| Message::View {
                            token: place.token,
                            view: Arc::clone(&view),
                        });
                    }
                }
                Output::Save { nsid, report } => {
                    let asked = self.saver.as_ref().zip(self.known.get(&nsid));
                    if !asked.is_some_and(|(saver, known)| saver.save(nsid, known.identity, report)) {
                        state.io.handle_saved(nsid, false);
                    }
                }
                // After the views that were posted before it.
                Output::Fence { nsid } => {
                    state.fences.insert(nsid, self.mailboxes.len());
                    for (at, mailbox) in self.mailboxes.iter().enumerate() {
                        mailbox.post(Message::Fence { nsid }, at != here);
                    }
                }
                Output::Reserved { queue: id, tag, result } => {
                    let Some(place) = state.places.get(&Queue { service, id }) else { continue };
                    let Some(mailbox) = self.mailboxes.get(place.event_loop) else { continue };
                    let message = Message::Reserved { token: place.token, tag: tag.0, result };
                    mailbox.post(message, place.event_loop != here);
                }
                Output::GuestView { guest, view } => {
                    let place = state.forwarded.guests.get(&guest);
                    post(place, &|place| Message::GuestView {
                        token: place.token,
                        guest,
                        view: Arc::clone(&view),
                    });
                }
                Output::GuestReserved { guest, tag, result } => {
                    let Some(place) = state.forwarded.guests.get(&guest) else { continue };
                    let Some(mailbox) = self.mailboxes.get(place.event_loop) else { continue };
                    let message = Message::GuestReserved { token: place.token, guest, tag: tag.0, result };
                    mailbox.post(message, place.event_loop != here);
                }
                Output::AskOther(request) => match &state.other {
                    Some(other) => other.end(request),
                    None => state.io.handle_other_answered(request.id, Status::COMMAND_INTERRUPTED),
                },
                Output::AnswerOther { id, status } => {
                    if let Some(other) = &state.other {
                        other.ended(id, status);
                    }
                }
                Output::HostId { host_id, host } => {
                    if let Some(other) = &state.other {
                        other.tell_host_id(host_id, host);
                    }
                }
                Output::Released { cntlid } => {
                    tracing::debug!(cntlid, ?service, "controller released");
                    if service == Service::Io {
                        state.traffic.remove(&cntlid);
                    }
                }
            }
        }
    }
}

/// Where the instances of this process begin: a restart exceeds it. The time of day would not,
/// where somebody sets it back: then controllers that live would be taken for those of the process
/// before. It is above the times of day that earlier versions took.
pub(crate) fn instance_base() -> u64 {
    (1 << 62) + clock()
}

fn of_config(config: &Config, (kind, is_split): (Kind, bool), nqn: Nqn) -> nvme::controller::Config {
    let limits = Limits {
        io_queues: config.limits.io_queues,
        queue_entries: QUEUE_ENTRIES,
        transfer_bytes: TRANSFER_BYTES,
        ..Limits::default()
    };
    nvme::controller::Config {
        nqn,
        kind,
        serial: config.serial.clone(),
        model: MODEL.to_owned(),
        firmware: FIRMWARE.to_owned(),
        nodes: if is_split { 2 } else { config.nodes().last().map_or(0, |last| last.0) + 1 },
        cntlids: config.nodes().into_iter().map(|node| (node, cntlids(node))).collect(),
        is_split,
        // Who may not connect finds an empty discovery log, as another may learn nothing of it.
        host_ids: config.host_ids.clone(),
        reservations: config.reservations.is_some() && kind == Kind::Io,
        access: if kind == Kind::Io { config.hosts.clone() } else { Access::Any },
        limits,
    }
}

/// The reservations of a volume, as far as they were to persist.
fn restore(io: &mut Subsystem, namespace: &Namespace, config: &Config) -> Result<(), Error> {
    let Some(store) = &config.reservations else { return Ok(()) };
    let facts = &namespace.facts;
    let failed = |source| Error::Reservations { name: facts.name.clone(), source };
    let saved = store.load(&facts.identity).map_err(|error| failed(error.into()))?;
    match saved.filter(|saved| saved.persistent) {
        Some(saved) => io.restore_reservations(namespace.nsid, &saved).map_err(|error| failed(error.into())),
        None => Ok(()),
    }
}

/// Two namespaces have neither one number nor one identity.
fn check(namespaces: &[Namespace]) -> Result<(), Error> {
    for (at, namespace) in namespaces.iter().enumerate() {
        let (facts, nsid) = (&namespace.facts, namespace.nsid);
        for other in namespaces.iter().take(at) {
            if other.facts.identity.uuid == facts.identity.uuid {
                return Err(Error::Identity(other.facts.name.clone(), facts.name.clone()));
            }
            if other.nsid == nsid {
                return Err(Error::Volume { name: facts.name.clone(), source: VolumeError::Identity(nsid) });
            }
        }
    }
    Ok(())
}

//! The controllers of the target, and where their queues are.
//!
//! Two state machines, one for input and output and one for discovery, behind one lock: what they
//! decide is rare, and short. What they ask of a queue is posted to its loop while the lock is
//! held, so that loops see it in the order in which it was decided.

use crate::config::{CAPSULE_DATA_BYTES, Config, Export, Hosts, QUEUE_ENTRIES, TRANSFER_BYTES};
use crate::discovery;
use crate::error::Error;
use crate::mailbox::{Mailbox, Message, Place};
use nvme::controller::{
    Accepted, Access, Kind, Limits, Output, Port, QueueId, Refusal, Subsystem, Transport, Volume,
    VolumeError, VolumeId,
};
use nvme::fabrics::{Connect, ConnectData};
use nvme::identify::NamespaceIds;
use nvme::{HostId, Nqn, Sqe, Status};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

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
}

#[derive(Debug)]
struct State {
    io: Subsystem,
    discovery: Subsystem,
    places: BTreeMap<Queue, Place>,
    traffic: BTreeMap<u16, Arc<AtomicBool>>,
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
    state: Mutex<State>,
    mailboxes: Vec<Arc<Mailbox>>,
    subsystem: Nqn,
    addresses: Vec<SocketAddr>,
}

impl Controllers {
    pub(crate) fn new(
        config: &Config,
        exports: &[Export],
        addresses: &[SocketAddr],
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> Result<Self, Error> {
        let mut io = Subsystem::new(Duration::ZERO, of_config(config, Kind::Io, config.subsystem.clone()));
        io.set_instance_base(instance_base());
        for (at, export) in exports.iter().enumerate() {
            let twin = exports
                .iter()
                .take(at)
                .find(|other| other.volume.identity().uuid == export.volume.identity().uuid);
            let name = export.volume.name().to_owned();
            if let Some(twin) = twin {
                return Err(Error::Identity(twin.volume.name().to_owned(), name));
            }
            if exports.iter().take(at).any(|other| other.nsid == export.nsid) {
                return Err(Error::Volume { name, source: VolumeError::Identity(export.nsid) });
            }
            io.set_volume(export.nsid, namespace(at, export, config))
                .map_err(|source| Error::Volume { name, source })?;
        }
        let mut discovery =
            Subsystem::new(Duration::ZERO, of_config(config, Kind::Discovery, Nqn::discovery()));
        discovery.set_records(discovery::records(&config.subsystem, addresses, &config.hosts));
        let (subsystem, addresses) = (config.subsystem.clone(), addresses.to_vec());
        let state = State { io, discovery, places: BTreeMap::new(), traffic: BTreeMap::new() };
        Ok(Self { began: Instant::now(), state: Mutex::new(state), mailboxes, subsystem, addresses })
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
    pub(crate) fn connect(&self, place: Place, sqe: &Sqe, data: &ConnectData) -> Result<Connected, Refusal> {
        let port = Port { transport: Transport::Tcp, capsule_data_bytes: CAPSULE_DATA_BYTES };
        let (now, mut state) = (self.now(), self.state());
        let for_discovery = data.subsystem().is_ok_and(|name| state.discovery.answers_to(&name));
        let service = if for_discovery { Service::Discovery } else { Service::Io };
        let accepted = state.of(service).connect(now, port, sqe.cid, &Connect::of(sqe), data)?;
        let queue = Queue { service, id: accepted.id };
        state.places.insert(queue, place);
        let traffic = match service {
            Service::Io => Arc::clone(state.traffic.entry(accepted.id.cntlid).or_default()),
            Service::Discovery => Arc::default(),
        };
        self.deliver(&mut state, service, place.event_loop);
        if let Some(first) = self.mailboxes.first() {
            first.post(Message::Tick, place.event_loop != 0);
        }
        Ok(Connected { queue, accepted, traffic })
    }

    /// The host that has this identifier, if it is not this one.
    pub(crate) fn other_with_id(&self, host: &Nqn, host_id: HostId) -> Option<Nqn> {
        self.state().io.holder_of(host_id).filter(|holder| *holder != host).cloned()
    }

    /// Changes which hosts there are, and tells them what has changed for them.
    pub(crate) fn set_hosts(&self, hosts: &Hosts) {
        let mut state = self.state();
        state.io.set_host_ids(hosts.ids.clone());
        state.io.set_access(hosts.access.clone());
        for (nsid, hosts) in &hosts.volumes {
            state.io.set_hosts(*nsid, hosts.clone());
        }
        state.discovery.set_records(discovery::records(&self.subsystem, &self.addresses, &hosts.access));
        // From no loop: each of them is woken.
        self.deliver(&mut state, Service::Io, usize::MAX);
        self.deliver(&mut state, Service::Discovery, usize::MAX);
    }

    /// A command on an admin queue, with its data.
    pub(crate) fn command(&self, here: usize, queue: Queue, sqe: &Sqe, data: &[u8]) {
        let (now, mut state) = (self.now(), self.state());
        state.of(queue.service).handle_command(now, queue.id.cntlid, sqe, data);
        self.deliver(&mut state, queue.service, here);
    }

    /// A command on an admin queue that is answered with this status.
    pub(crate) fn refuse(&self, here: usize, queue: Queue, sqe: &Sqe, status: Status) {
        let mut state = self.state();
        state.of(queue.service).refuse_command(queue.id.cntlid, sqe, status);
        self.deliver(&mut state, queue.service, here);
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
                // There are no commands of reservations: the configuration says so.
                Output::Save { .. } | Output::Fence { .. } | Output::Reserved { .. } => {}
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

/// Where the instances of this process begin: nanoseconds since 1970, which a restart exceeds.
fn instance_base() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or_default()
}

fn of_config(config: &Config, kind: Kind, nqn: Nqn) -> nvme::controller::Config {
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
        node: config.node,
        nodes: config.node.0 + 1,
        cntlids: config.cntlids.clone(),
        // Who may not connect finds an empty discovery log, as another may learn nothing of it.
        host_ids: config.host_ids.clone(),
        reservations: false,
        access: if kind == Kind::Io { config.hosts.clone() } else { Access::Any },
        limits,
    }
}

/// A volume as the state machine knows it; its identifier is its place among the exports.
fn namespace(at: usize, export: &Export, config: &Config) -> Volume {
    let volume = &export.volume;
    let identity = volume.identity();
    let preferred = volume.optimal_transfer().filter(|blocks| blocks.is_power_of_two());
    Volume {
        id: VolumeId(at as u64),
        ids: NamespaceIds { eui64: None, nguid: Some(identity.nguid), uuid: Some(identity.uuid) },
        blocks: volume.blocks(),
        block_shift: volume.block_size().bytes().trailing_zeros() as u8,
        owner: config.node,
        hosts: export.hosts.clone(),
        write_protected: false,
        volatile_cache: volume.has_volatile_write_cache(),
        deallocated_reads_zero: volume.discard_zeroes(),
        preferred_blocks: preferred.and_then(|blocks| u16::try_from(blocks).ok()).unwrap_or(0),
    }
}

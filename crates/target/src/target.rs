//! A running target.

use crate::authenticator::Authenticator;
use crate::config::{Config, Export, Hosts, Limits, Listen, QUEUE_CAPSULE_BYTES};
use crate::controllers::Controllers;
use crate::error::Error;
use crate::event_loop::{EventLoop, Parts, WAKER};
use crate::forward::{Numbers, Partner, WINDOW_BYTES, door};
use crate::mailbox::{Mailbox, Message};
use crate::namespace::{Facts, Namespace};
use crate::pair::{EndRequest, OtherAnswer, OtherNode, Record};
use crate::rdma_acceptor::{self, RdmaAcceptor};
use crate::report::{Overview, Watcher};
use crate::reservations::SAVER;
use memory::Buffers;
use nvme::controller::{Node, Reach};
use nvme::{HostId, Nqn, Transport};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use transport::poll::{Poller, Waker};
use volumes::Volume;

/// Commands of one loop that the volumes have at a time.
const QUEUE_DEPTH: usize = 1024;

/// What the loops share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) controllers: Controllers,
    /// Those whose backing is here, in the order of the NSIDs.
    volumes: Mutex<Vec<Option<Volume>>>,
    /// The NSIDs of the volumes, in their order, and what hosts are told of them.
    pub(crate) known: Vec<(u32, Facts)>,
    pub(crate) limits: Limits,
    /// The node that this process is, if it is one only.
    pub(crate) node: Node,
    /// Memory that is set aside for data in capsules of the I/O queues.
    pub(crate) capsule_bytes: AtomicUsize,
    /// Connections of each loop.
    pub(crate) loads: Vec<AtomicUsize>,
    /// The system's numbers of the loops' threads; 0 until a loop runs.
    pub(crate) threads: Vec<AtomicI32>,
    /// Makes and destroys connections over RDMA, if there is an address for them.
    pub(crate) rdma: Option<RdmaAcceptor>,
    pub(crate) authenticator: Authenticator,
    failure: Mutex<Option<String>>,
}

impl Shared {
    /// The volumes whose backing is here, by their places.
    pub(crate) fn volumes(&self) -> MutexGuard<'_, Vec<Option<Volume>>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts for health what the volumes have moved here.
    pub(crate) fn update_io_counts(&self) {
        let mut all = volumes::IoCounts::default();
        self.volumes().iter().flatten().for_each(|volume| all.add(&volume.io_counts()));
        self.controllers.set_io_counts(all);
    }

    /// Sets memory aside for the capsules of one I/O queue.
    pub(crate) fn reserve_capsules(&self) -> bool {
        let most = self.limits.memory_bytes / 2;
        let more = |used: usize| Some(used + QUEUE_CAPSULE_BYTES).filter(|used| *used <= most);
        self.capsule_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives that back.
    pub(crate) fn release_capsules(&self) {
        self.capsule_bytes.fetch_sub(QUEUE_CAPSULE_BYTES, Ordering::Relaxed);
    }
}

/// What a target has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Connections.
    pub connections: usize,
    /// Controllers, also those for discovery.
    pub controllers: usize,
    /// I/O queues.
    pub io_queues: usize,
    /// Commands that the volumes have taken and not ended.
    pub commands: usize,
}

/// A target that serves. Dropping it stops it.
#[derive(Debug)]
pub struct Target {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    addresses: Vec<SocketAddr>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The thread that makes and destroys connections over RDMA.
    acceptor: Mutex<Option<JoinHandle<()>>>,
    /// The thread that computes what authentication needs.
    authenticator: Mutex<Option<JoinHandle<()>>>,
}

impl Target {
    /// Listens, and starts the loops.
    ///
    /// # Errors
    /// [`Error`]
    pub fn start(config: &Config, exports: &[Export]) -> Result<Self, Error> {
        let namespaces: Vec<Namespace> = exports.iter().map(Export::namespace).collect();
        let volumes = exports.iter().map(|export| Some(export.volume.clone())).collect();
        Self::begin(config, (&namespaces, None), volumes)
    }

    /// Listens as one node of two whose other node is another process, and starts the loops. No
    /// backing is here, and hosts are told that the volumes move, until
    /// [`set_backing`](Self::set_backing) and [`set_reach`](Self::set_reach) say otherwise. Commands
    /// for volumes of the other node are forwarded to it by sockets in the directory of the pair,
    /// where no other process is this node.
    ///
    /// # Errors
    /// [`Error`]
    pub fn start_node(config: &Config, namespaces: &[Namespace], directory: &Path) -> Result<Self, Error> {
        Self::begin(config, (namespaces, Some(directory)), vec![None; namespaces.len()])
    }

    fn begin(
        config: &Config,
        (namespaces, directory): (&[Namespace], Option<&Path>),
        volumes: Vec<Option<Volume>>,
    ) -> Result<Self, Error> {
        transport::descriptors::raise_limit();
        let count = config.loops.max(1);
        // Before anything listens.
        let mut ways = Ways::open(config, directory, count)?;
        let (listeners, ports) = listen(&config.listen)?;
        let (rdma, commands) = RdmaAcceptor::new();
        let has_rdma = ports.iter().any(|port| port.transport == Transport::Rdma);
        let (mut pollers, mut mailboxes) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let poller = Poller::new().map_err(Error::Loop)?;
            mailboxes.push(Arc::new(Mailbox::new(Waker::new(&poller, WAKER).map_err(Error::Loop)?)));
            pollers.push(poller);
        }
        let controllers =
            Controllers::new(config, (namespaces, directory.is_some()), &ports, mailboxes.clone())?;
        let shared = Arc::new(Shared {
            controllers,
            volumes: Mutex::new(volumes),
            known: namespaces.iter().map(|one| (one.nsid, one.facts.clone())).collect(),
            limits: config.limits.clone(),
            node: ways.node,
            capsule_bytes: AtomicUsize::new(0),
            loads: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            threads: (0..count).map(|_| AtomicI32::new(0)).collect(),
            rdma: has_rdma.then_some(rdma),
            authenticator: Authenticator::new(),
            failure: Mutex::new(None),
        });
        // What has started is stopped if the rest does not.
        let addresses = ports.iter().map(|port| port.address).collect();
        let target = Self {
            shared,
            mailboxes,
            addresses,
            threads: Mutex::default(),
            acceptor: Mutex::default(),
            authenticator: Mutex::default(),
        };
        let started = target.shared.authenticator.start(target.mailboxes.clone());
        *target.authenticator() = started.map_err(Error::Loop)?;
        if has_rdma {
            let started = rdma_acceptor::start(commands, &target.shared, target.mailboxes.clone());
            *target.acceptor() = Some(started.map_err(Error::Loop)?);
        }
        let mut listeners = Some(listeners);
        for (index, poller) in pollers.into_iter().enumerate() {
            let listeners = listeners.take().unwrap_or_default();
            let way = ways.next(target.shared.controllers.instance);
            target.start_loop(index, poller, (listeners, way)).map_err(Error::Loop)?;
        }
        let saver = target.shared.controllers.start_saver(&target.shared).map_err(Error::Loop)?;
        target.threads().extend(saver);
        Ok(target)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acceptor(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn authenticator(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.authenticator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_loop(
        &self,
        index: usize,
        poller: Poller,
        (listeners, way): (Vec<(Listener, Node)>, Option<Way>),
    ) -> std::io::Result<()> {
        let limits = &self.shared.limits;
        let buffers = Arc::new(Buffers::default());
        let queue = volumes::Queue::new(QUEUE_DEPTH, limits.engine, Arc::clone(&buffers))?;
        let Some(mailbox) = self.mailboxes.get(index).cloned() else { return Ok(()) };
        let event_loop = EventLoop::new(Parts {
            index,
            poller,
            mailboxes: self.mailboxes.clone(),
            mailbox,
            shared: Arc::clone(&self.shared),
            queue,
            volumes: self.shared.volumes().clone(),
            budget_bytes: Self::budget(limits.memory_bytes / 2 / self.mailboxes.len().max(1), way.is_some()),
            listeners,
            buffers,
            way,
        })?;
        let shared = Arc::clone(&self.shared);
        let run = move || {
            if let Some(thread) = shared.threads.get(index) {
                thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            }
            if let Err(error) = event_loop.run() {
                tracing::error!(%error, index, "a loop of the target failed");
                let mut failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
                *failure = Some(error.to_string());
            }
        };
        self.threads().push(std::thread::Builder::new().name(format!("target-{index}")).spawn(run)?);
        Ok(())
    }

    /// What a loop has for its own hosts, if it has so much: a part is set aside for the other node.
    const fn budget(bytes: usize, is_split: bool) -> usize {
        let aside = if !is_split {
            0
        } else if bytes / 2 < WINDOW_BYTES {
            bytes / 2
        } else {
            WINDOW_BYTES
        };
        bytes - aside
    }

    /// Where hosts connect.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Why a loop has failed, if one has: the target does not serve its connections any more.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes which hosts there are. Hosts learn what has changed for them; controllers of hosts
    /// that may not connect any more end. Commands that were taken before go on.
    pub fn set_hosts(&self, hosts: &Hosts) {
        self.shared.controllers.set_hosts(hosts);
    }

    /// Gives a volume to another node, and tells hosts which ports are the best way to it from now
    /// on. Commands go on. Returns whether that is a change.
    ///
    /// # Errors
    /// [`Error::Owner`] if the node has no address.
    pub fn set_owner(&self, nsid: u32, owner: Node) -> Result<bool, Error> {
        self.shared.controllers.set_owner(nsid, owner)
    }

    /// A volume has its backing here from now on; hosts may use it when
    /// [`set_reach`](Self::set_reach) says that it is served. What was reserved is loaded. To be
    /// called where that may take its time.
    ///
    /// # Errors
    /// [`Error::Facts`] if hosts were told something else of the volume, [`Error::Reservations`].
    pub fn set_backing(&self, nsid: u32, volume: &Volume) -> Result<(), Error> {
        let Some(at) = self.shared.known.iter().position(|(known, _)| *known == nsid) else { return Ok(()) };
        if !self.shared.known.get(at).is_some_and(|(_, facts)| facts.hold_of(volume)) {
            return Err(Error::Facts { name: volume.name().to_owned() });
        }
        self.shared.controllers.take(nsid, volume)?;
        if let Some(place) = self.shared.volumes().get_mut(at) {
            *place = Some(volume.clone());
        }
        Ok(())
    }

    /// The backing of a volume goes away: hosts are told that it moves, commands that have begun
    /// are finished and all others refused, which is waited for. Then nothing here has the volume.
    pub fn remove_backing(&self, nsid: u32) {
        self.shared.controllers.give(nsid);
        let at = self.shared.known.iter().position(|(known, _)| *known == nsid);
        if let Some(at) = at {
            drop(self.shared.volumes().get_mut(at).and_then(Option::take));
        }
    }

    /// Tells hosts who owns a volume and how it is reached, where the nodes are two processes. Its
    /// commands are executed here if this node serves it, and forwarded if the other one does.
    pub fn set_reach(&self, nsid: u32, record: Record, reach: Reach) {
        self.shared.controllers.set_reach(nsid, (record.owner, record.epoch), reach);
    }

    /// Nothing is executed any more for controllers of the other node with instances below this
    /// one: End Controller says so to hosts.
    pub fn set_finished(&self, node: Node, before: u64) {
        self.shared.controllers.set_finished(node, before);
    }

    /// The process of the other node is reached like this, where the nodes are two processes.
    pub fn set_other(&self, other: OtherNode) {
        self.shared.controllers.set_other(other);
    }

    /// The other node's process is connected: it is told which hosts are here.
    pub fn other_connected(&self) {
        self.shared.controllers.other_connected();
    }

    /// A host of the other node has this identifier, which no other host may have; or none has it
    /// any more.
    pub fn set_host_elsewhere(&self, host_id: HostId, host: Option<Nqn>) {
        self.shared.controllers.set_host_elsewhere(host_id, host);
    }

    /// The other node asks to end controllers of a host; it is answered when they are gone.
    pub fn end_for_other(&self, request: &EndRequest) {
        self.shared.controllers.end_for_other(request);
    }

    /// How the other node has ended controllers, as it was asked.
    pub fn other_answered(&self, id: u64, answer: OtherAnswer) {
        self.shared.controllers.other_answered(id, answer);
    }

    /// The other node's process has ended, and waits for no answers any more.
    pub fn other_ended(&self) {
        self.shared.controllers.other_ended();
    }

    /// What it has now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            connections: self.shared.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum(),
            controllers: self.shared.controllers.count(),
            io_queues: self.shared.capsule_bytes.load(Ordering::Relaxed) / QUEUE_CAPSULE_BYTES,
            commands: self.shared.volumes().iter().flatten().map(Volume::commands).sum(),
        }
    }

    /// What it serves and to whom, in full.
    #[must_use]
    pub fn overview(&self) -> Overview {
        Overview::of(&self.shared)
    }

    /// Reads the same from other threads.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        Watcher(Arc::downgrade(&self.shared))
    }

    /// Ends all connections; waits, a few seconds at most, for commands that have begun.
    pub fn stop(&self) {
        self.shared.controllers.end();
        for mailbox in &self.mailboxes {
            mailbox.post(Message::Stop, true);
        }
        let mut threads = std::mem::take(&mut *self.threads());
        // Who saves ends after the loops, which ask for it.
        let saver = threads.pop_if(|thread| thread.thread().name() == Some(SAVER));
        for thread in threads {
            // A loop that has panicked has ended.
            let _ = thread.join();
        }
        let acceptor = self.acceptor().take();
        if let (Some(thread), Some(acceptor)) = (acceptor, &self.shared.rdma) {
            acceptor.stop();
            let _ = thread.join();
        }
        if let Some(thread) = self.authenticator().take() {
            self.shared.authenticator.stop();
            let _ = thread.join();
        }
        if let Some(saver) = saver {
            self.shared.controllers.stop_saver();
            let _ = saver.join();
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What connections come from.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(OwnedFd),
    Rdma(Box<transport::rdma::Listener>),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Rdma(listener) => listener.as_fd(),
        }
    }
}

/// What a loop needs to forward commands, and to take those that are forwarded to this node.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) partner: Partner,
    pub(crate) numbers: Numbers,
    /// Of the first loop.
    pub(crate) door: Option<OwnedFd>,
}

/// What all loops need for that; nothing where this process is both nodes.
struct Ways {
    node: Node,
    path: PathBuf,
    numbers: Vec<Numbers>,
    door: Option<OwnedFd>,
}

impl Ways {
    fn open(config: &Config, directory: Option<&Path>, loops: usize) -> Result<Self, Error> {
        let node = config.nodes().first().copied().unwrap_or(Node::A);
        let Some(directory) = directory else {
            return Ok(Self { node, path: PathBuf::new(), numbers: Vec::new(), door: None });
        };
        let other = if node == Node::A { Node::B } else { Node::A };
        let numbers = (0..loops).map(|_| Numbers::set_aside(config.limits.connections, loops));
        let numbers = numbers.collect::<Result<_, _>>().map_err(Error::Loop)?;
        let path = door::path(directory, node);
        let door = door::listen(&path).map_err(|source| Error::Forward { path, source })?;
        Ok(Self { node, path: door::path(directory, other), numbers, door: Some(door) })
    }

    /// What the next loop needs.
    fn next(&mut self, instance: u64) -> Option<Way> {
        let numbers = self.numbers.pop()?;
        let outlet = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let partner = Partner { node: self.node, instance, outlet, path: self.path.clone() };
        Some(Way { partner, numbers, door: self.door.take() })
    }
}

/// The listeners of all addresses, each with its node.
type Listeners = Vec<(Listener, Node)>;

/// Listens, and says where: with the port that was chosen, if none was asked for.
fn listen(asked: &[Listen]) -> Result<(Listeners, Vec<Listen>), Error> {
    if asked.is_empty() {
        return Err(Error::NoAddress);
    }
    let (mut listeners, mut ports) = (Vec::new(), Vec::new());
    for port in asked {
        if port.address.ip().is_unspecified() {
            return Err(Error::Unspecified(port.address));
        }
        let (listener, address) = listen_on(port)?;
        listeners.push((listener, port.node));
        ports.push(Listen { address, ..*port });
    }
    Ok((listeners, ports))
}

fn listen_on(port: &Listen) -> Result<(Listener, SocketAddr), Error> {
    let address = port.address;
    match port.transport {
        Transport::Tcp => {
            let listening = transport::socket::listen(address).and_then(|listener| {
                let bound = transport::socket::local_address(listener.as_fd())?;
                Ok((Listener::Tcp(listener), bound))
            });
            listening.map_err(|source| Error::Listen { address, source })
        }
        Transport::Rdma => {
            let listener = transport::rdma::Listener::bind(address);
            let listener = listener.map_err(|source| Error::ListenRdma { address, source })?;
            let bound = listener.address();
            Ok((Listener::Rdma(Box::new(listener)), bound))
        }
    }
}

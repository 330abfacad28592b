//! A running server: its start, its operations, and its end.

use crate::clock;
use crate::config::{Config, ExportConfig, LOOPS_MAX, ListenAddress, NfsVersions, StoreConfig};
use crate::error::Error;
use crate::export::Reloaded;
use crate::group::Group;
use crate::rpcbind::{Advertisement, Rpcbind};
use crate::runtime::Datagrams;
use crate::runtime::WorkerPool;
use crate::runtime::{BoundListener, EventLoop, Mailboxes, Message, bind, bind_rdma};
use crate::statistics::{FileId, Statistics};
use crate::takeover::{OwnAddresses, Takeover, bind_own};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use store::Store;
use transport::busy::BusyPoll;
use transport::poll::{Poller, Waker};
use transport::socket;

/// Descriptors besides those of connections: listeners, loops, standard streams, what the program
/// has open.
const OTHER_DESCRIPTORS: u64 = 256;
/// The least connections, however low the limit of descriptors is.
const CONNECTIONS_MIN: usize = 16;

/// When the server ends at once, how long it waits for calls that wait for their stores.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// A node by its index in the configuration, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// Reads the counters of a server, as long as there is one.
#[derive(Debug, Clone)]
pub struct StatisticsReader {
    names: Vec<String>,
    group: Weak<Group>,
    mailboxes: Weak<Mailboxes>,
}

impl StatisticsReader {
    /// The counters since the start; `None` once the server has ended. A connection that moves from
    /// one loop to another meanwhile may be missing, or counted twice. Each loop answers between
    /// two pieces of work; loops that have ended are missing.
    #[must_use]
    pub fn read(&self) -> Option<Statistics> {
        self.read_by_file(None)
    }

    /// The same, with the calls by file if a time is given. The loops count by file from the first
    /// question on, and until nobody has asked for that time.
    #[must_use]
    pub fn read_by_file(&self, by_file: Option<Duration>) -> Option<Statistics> {
        let (group, mailboxes) = (self.group.upgrade()?, self.mailboxes.upgrade()?);
        let (sender, receiver) = mpsc::channel();
        mailboxes.send_all(|| Message::Report(by_file, sender.clone()));
        drop(sender);
        // The channel ends when each loop has answered, or has ended and dropped the question.
        let mut reports: Vec<_> = receiver.iter().collect();
        reports.sort_by_key(|report| report.index);
        let served = group.exports();
        let exports: Vec<_> = served.configs().into_iter().map(|one| (one.fsid, one.path)).collect();
        let path_of = |file: FileId| served.path_of(file.export, file.object);
        let (held_bytes, held_bytes_max) = group.budget.held();
        let statistics = Statistics::new(self.names.iter().cloned(), &exports, &path_of, reports);
        Some(Statistics { held_bytes, held_bytes_max, ..statistics })
    }
}

/// A running group of nodes. Dropping it ends it at once; [`drain`](Self::drain) ends it
/// gracefully.
#[derive(Debug)]
pub struct Server {
    names: Vec<String>,
    group: Arc<Group>,
    /// The configuration as last read, as far as it could be applied.
    config: Mutex<Config>,
    mailboxes: Arc<Mailboxes>,
    worker_pool: Arc<WorkerPool>,
    threads: Vec<JoinHandle<()>>,
    datagrams: Option<Datagrams>,
    /// With `rpcbind`.
    advertisement: Option<Advertisement>,
    /// In a group of processes.
    takeover: Option<Takeover>,
    /// By node, with the ports that were assigned at the start.
    addresses: Vec<Vec<SocketAddr>>,
    /// The same over RDMA.
    rdma_addresses: Vec<Vec<SocketAddr>>,
}

impl Server {
    /// Starts all nodes and returns once they accept.
    ///
    /// # Errors
    /// [`Error`]: each says what to do about it. Nothing runs then.
    pub fn start(config: Config) -> Result<Self, Error> {
        Self::start_with(config, |_| None)
    }

    /// Starts all nodes as [`start`](Self::start) does; `own` may return a store of the caller for
    /// an export, instead of the store that the configuration names.
    ///
    /// # Errors
    /// [`Error`]: each says what to do about it. Nothing runs then.
    pub fn start_with(
        config: Config,
        own: impl FnMut(&ExportConfig) -> Option<Box<dyn Store>>,
    ) -> Result<Self, Error> {
        Self::launch(config, own, Vec::new())
    }

    /// Starts all nodes as [`start`](Self::start) does, on sockets that already listen, for those
    /// addresses of the configuration that have one. Each socket must match an address.
    ///
    /// # Errors
    /// [`Error`]: each says what to do about it. Nothing runs then.
    pub fn start_on(config: Config, sockets: Vec<TcpListener>) -> Result<Self, Error> {
        Self::launch(config, |_| None, sockets)
    }

    fn launch(
        mut config: Config,
        own: impl FnMut(&ExportConfig) -> Option<Box<dyn Store>>,
        sockets: Vec<TcpListener>,
    ) -> Result<Self, Error> {
        config.check()?;
        config.check_host()?;
        config.limits.connections_max = connections_within_descriptors(&config);
        // Before RDMA: it may change the thread's credentials (`store::keep_identity`).
        let group = Arc::new(Group::new(&config, own)?);
        let own = OwnAddresses::claim(&config, group.reply_cache.shared(), &sockets)?;
        let mut bound = listen(&config, sockets)?;
        let streams: Vec<_> = bound.iter().map(|listener| listener.address).collect();
        let (rdma_addresses, mut bound_rdma) = listen_rdma(&config)?;
        let served = (group.versions, group.serves_nlm());
        let rpcbind = Rpcbind::start(&config, served, &streams, &rdma_addresses.concat())?;
        if let (Some(name), Some(first)) = (&config.congestion, bound.first()) {
            check_congestion(first, name)?;
        }
        let tcp = streams.iter().map(|address| ListenAddress::Tcp(*address));
        let over_rdma = rdma_addresses.iter().flatten().map(|address| ListenAddress::Rdma(*address));
        group.addresses.set_own(tcp.chain(over_rdma).collect());
        let addresses = by_node(&bound, config.nodes.len());
        bound.append(&mut bound_rdma);
        let loops = loop_count(&config);
        let busy_poll = config.busy_poll;
        let (pollers, wakers) = pollers(loops)?;
        let names = config.nodes.iter().map(|node| node.name.clone()).collect();
        let mailboxes = Arc::new(Mailboxes::new(wakers));
        if let Some(state) = &group.nfs4 {
            state.start_call_backs(Arc::downgrade(&group), Arc::<Mailboxes>::clone(&mailboxes));
        }
        let worker_pool = Arc::new(WorkerPool::new(Arc::clone(&group), Arc::clone(&mailboxes)));
        let mut server = Self {
            group: Arc::clone(&group),
            config: Mutex::new(config),
            names,
            mailboxes,
            worker_pool,
            threads: Vec::with_capacity(loops),
            addresses,
            rdma_addresses,
            datagrams: None,
            advertisement: None,
            takeover: None,
        };
        // Some operations of version 4.2 take long on every store.
        if group.exports().may_block() || group.versions.has_v4() {
            server.worker_pool.start().map_err(|error| Error::System { what: "a thread", error })?;
        }
        if !rpcbind.sockets.is_empty() {
            let mailboxes = Arc::clone(&server.mailboxes);
            server.datagrams = Some(Datagrams::start(rpcbind.sockets, Arc::clone(&group), mailboxes)?);
        }
        // On a failure the drop of `server` ends the loops that run already.
        server.start_loops(pollers, bound, busy_poll)?;
        let mailboxes = Arc::clone(&server.mailboxes);
        server.takeover = own.map(|own| Takeover::start(own, &group, &mailboxes)).transpose()?;
        server.advertisement = match (rpcbind.registration, rpcbind.pending) {
            (Some(registration), _) => Some(Advertisement::now(registration, &group, &mailboxes)?),
            (None, Some(pending)) => Some(Advertisement::later(pending, group, mailboxes)?),
            (None, None) => None,
        };
        Ok(server)
    }

    /// Starts the loops, of which the first accepts for all.
    fn start_loops(
        &mut self,
        pollers: Vec<Poller>,
        mut bound: Vec<BoundListener>,
        busy_poll: Duration,
    ) -> Result<(), Error> {
        let over_rdma = self.rdma_addresses.iter().any(|of_node| !of_node.is_empty());
        for (index, poller) in pollers.into_iter().enumerate() {
            let (mailboxes, pool) = (Arc::clone(&self.mailboxes), Arc::clone(&self.worker_pool));
            let (group, busy) = (Arc::clone(&self.group), BusyPoll::new(busy_poll));
            let mut event_loop = EventLoop::new(index, group, mailboxes, pool, poller, busy);
            let listening = event_loop.listen(std::mem::take(&mut bound));
            listening.map_err(|error| Error::System { what: "waiting for connections", error })?;
            self.threads.push(start_loop(index, event_loop, over_rdma)?);
        }
        Ok(())
    }

    /// The addresses on which the server listens, node by node; a port given as 0 is replaced by
    /// the assigned one.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.concat()
    }

    /// The addresses on which one node listens.
    #[must_use]
    pub fn node_addresses(&self, node: NodeId) -> &[SocketAddr] {
        self.addresses.get(node.0).map(Vec::as_slice).unwrap_or_default()
    }

    /// The addresses on which one node listens over RDMA.
    #[must_use]
    pub fn node_rdma_addresses(&self, node: NodeId) -> &[SocketAddr] {
        self.rdma_addresses.get(node.0).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether clients find the server by program number: `None` unless this was requested, `false`
    /// while another process of the group is registered.
    #[must_use]
    pub fn is_registered(&self) -> Option<bool> {
        self.advertisement.as_ref().map(Advertisement::is_registered)
    }

    /// Whether files are locked for clients of NFS version 3. If that was configured, the log says
    /// why they are not.
    #[must_use]
    pub fn serves_nlm(&self) -> bool {
        self.group.serves_nlm()
    }

    /// The versions of NFS that are served. If version 4 was configured and is not among them, the
    /// log says why.
    #[must_use]
    pub fn versions(&self) -> NfsVersions {
        self.group.versions
    }

    /// The number of nodes.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.addresses.len()
    }

    /// The counters since the start; see [`StatisticsReader::read`].
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics_reader().read().unwrap_or_default()
    }

    /// Reads the counters without this value, as others do while it is being ended.
    #[must_use]
    pub fn statistics_reader(&self) -> StatisticsReader {
        StatisticsReader {
            names: self.names.clone(),
            group: Arc::downgrade(&self.group),
            mailboxes: Arc::downgrade(&self.mailboxes),
        }
    }

    /// Stops a node as if its host had died: nothing is accepted, connections are reset, and the
    /// calls they hold are not executed. Returns when that is done.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`].
    pub fn stop_node(&self, node: NodeId) -> Result<(), Error> {
        if node.0 >= self.nodes() {
            return Err(Error::NoSuchNode(node.0));
        }
        // The listener is removed first: connections accepted until then have been given to the
        // loops before the loops are notified.
        self.notify_and_wait(|done| self.mailboxes.send(0, Message::Unlisten(node.0, done)));
        self.set_stopped(node, true);
        // Twice: a connection that was moving between two loops has arrived by the second time.
        for _ in 0..2 {
            self.notify_and_wait(|done| self.mailboxes.send_all(|| Message::ResetNode(node.0, done.clone())));
        }
        Ok(())
    }

    /// Starts a stopped node again, on its previous addresses. A running node stays as it is.
    ///
    /// # Errors
    /// [`Error::Listen`] when an address was taken meanwhile (also by the node itself, if it runs).
    pub fn start_node(&self, node: NodeId) -> Result<(), Error> {
        let addresses = self.addresses.get(node.0).ok_or(Error::NoSuchNode(node.0))?;
        let tcp = addresses.iter().map(|address| bind(node.0, *address));
        let rdma = self.node_rdma_addresses(node).iter().map(|address| bind_rdma(node.0, *address));
        let bound = tcp.chain(rdma).collect::<Result<_, _>>()?;
        self.set_stopped(node, false);
        let (sender, receiver) = mpsc::channel();
        self.mailboxes.send(0, Message::Listen(bound, sender));
        match receiver.recv() {
            Ok(Err(error)) => Err(Error::System { what: "waiting for connections", error }),
            Ok(Ok(())) | Err(mpsc::RecvError) => Ok(()),
        }
    }

    fn set_stopped(&self, node: NodeId, is_stopped: bool) {
        if let Some(node) = self.group.nodes.get(node.0) {
            node.set_stopped(is_stopped);
        }
    }

    /// Applies the changes that are possible while the server runs, without dropping a client:
    /// added exports, the rules of all exports, and the nodes' pacing rates. Other changes are
    /// reported, and the previous values stay.
    ///
    /// # Errors
    /// [`Error`]: the configuration makes no sense, or workers cannot be started. Then nothing has
    /// changed.
    pub fn reload(&self, mut config: Config) -> Result<Reloaded, Error> {
        config.check()?;
        config.check_host()?;
        let mut current = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let (exports, mut report) = self.group.exports().reloaded(&config, self.group.reply_cache.shared());
        if exports.may_block() {
            self.worker_pool.start().map_err(|error| Error::System { what: "a thread", error })?;
        }
        config.exports = exports.configs();
        current.keep(&mut config, &mut report);
        for (index, (old, new)) in current.nodes.iter().zip(&config.nodes).enumerate() {
            if old.pace_bytes_per_s != new.pace_bytes_per_s
                && let Some(node) = self.group.nodes.get(index)
            {
                report.changed.push(format!("node {} has another pace", new.name));
                node.set_pace(new.pace_bytes_per_s);
                self.mailboxes.send_all(|| Message::Repace(index));
            }
        }
        let exports = Arc::new(exports);
        self.group.set_exports(Arc::clone(&exports));
        self.notify_and_wait(|done| {
            self.mailboxes.send_all(|| Message::Exports(Arc::clone(&exports), done.clone()));
        });
        *current = config;
        Ok(report)
    }

    /// Ends gracefully: stops accepting, answers received calls, closes, and joins its threads.
    /// Work that is not done after `timeout` is cut off.
    pub fn drain(mut self, timeout: Duration) {
        let deadline = clock::now() + timeout;
        if let Some(takeover) = &mut self.takeover {
            takeover.stop();
        }
        self.mailboxes.send_all(|| Message::Drain(deadline));
        self.join(deadline.max(clock::now() + SHUTDOWN_TIMEOUT));
    }

    fn notify_and_wait(&self, notify: impl FnOnce(mpsc::Sender<()>)) {
        let (sender, receiver) = mpsc::channel();
        notify(sender);
        // Nothing is ever sent: the channel ends when every loop has taken its message and dropped
        // the sender.
        let _ = receiver.recv();
    }

    /// Joins all threads; a worker that waits for its store beyond `deadline` is left behind.
    fn join(&mut self, deadline: Duration) {
        // First no more clients are directed here, and others may listen on the addresses.
        self.takeover = None;
        if let Some(advertisement) = &mut self.advertisement {
            advertisement.leave();
        }
        self.datagrams = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a loop of the server ended by a panic");
            }
        }
        self.worker_pool.end(deadline);
        if let Some(state) = &self.group.nfs4 {
            state.end(deadline);
        }
        self.mailboxes.stop_rdma_acceptor(deadline);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.mailboxes.send_all(|| Message::Stop);
        self.join(clock::now() + SHUTDOWN_TIMEOUT);
    }
}

/// Listens on all addresses, on the given sockets where there is one.
fn listen(config: &Config, sockets: Vec<TcpListener>) -> Result<Vec<BoundListener>, Error> {
    let mut given = Vec::new();
    for socket in sockets {
        let address = socket.local_addr();
        let address = address.map_err(|error| Error::System { what: "a socket's address", error })?;
        given.push((address, socket));
    }
    let mut bound = Vec::new();
    for (node, of_node) in config.nodes.iter().enumerate() {
        for address in &of_node.listen {
            let place = given.iter().position(|(other, _)| other == address);
            bound.push(match place {
                Some(place) => BoundListener::on(node, given.swap_remove(place).1)?,
                None => bind_own(config.group.is_some(), || bind(node, *address))?,
            });
        }
    }
    match given.first() {
        Some((address, _)) => Err(Error::Unclaimed { address: *address }),
        None => Ok(bound),
    }
}

/// Runs a loop on a thread of its own. A thread with RDMA descriptors must keep its identity.
fn start_loop(index: usize, event_loop: EventLoop, over_rdma: bool) -> Result<JoinHandle<()>, Error> {
    let run = move || {
        if over_rdma {
            store::keep_identity();
        }
        event_loop.run();
    };
    let thread = std::thread::Builder::new().name(format!("tl-serve-{index}")).spawn(run);
    thread.map_err(|error| Error::System { what: "a thread", error })
}

/// Listens on all addresses over RDMA, and returns the addresses node by node.
fn listen_rdma(config: &Config) -> Result<(Vec<Vec<SocketAddr>>, Vec<BoundListener>), Error> {
    let (mut addresses, mut bound) = (vec![Vec::new(); config.nodes.len()], Vec::new());
    for (node, (of_node, bound_addresses)) in config.nodes.iter().zip(&mut addresses).enumerate() {
        for address in &of_node.listen_rdma {
            let listener = bind_own(config.group.is_some(), || bind_rdma(node, *address))?;
            bound_addresses.push(listener.address);
            bound.push(listener);
        }
    }
    Ok((addresses, bound))
}

/// One for each processor if the configuration does not say.
fn loop_count(config: &Config) -> usize {
    let own = || std::thread::available_parallelism().map_or(1, usize::from);
    config.loops.unwrap_or_else(own).min(LOOPS_MAX)
}

/// The addresses of listeners, for each of so many nodes.
fn by_node(bound: &[BoundListener], nodes: usize) -> Vec<Vec<SocketAddr>> {
    let mut addresses = vec![Vec::new(); nodes];
    for listener in bound {
        if let Some(of_node) = addresses.get_mut(listener.node) {
            of_node.push(listener.address);
        }
    }
    addresses
}

/// The poller and the waker of each loop.
fn pollers(loops: usize) -> Result<(Vec<Poller>, Vec<Waker>), Error> {
    let mut pollers = Vec::with_capacity(loops);
    let mut wakers = Vec::with_capacity(loops);
    for _ in 0..loops {
        let poller = Poller::new().map_err(|error| Error::System { what: "an epoll descriptor", error })?;
        let waker = Waker::new(&poller, EventLoop::waker_token());
        wakers.push(waker.map_err(|error| Error::System { what: "an event descriptor", error })?);
        pollers.push(poller);
    }
    Ok((pollers, wakers))
}

/// Tries a congestion control on a listener, so that a wrong name is an error at the start and not
/// a silent failure on every connection.
fn check_congestion(listener: &BoundListener, name: &str) -> Result<(), Error> {
    socket::set_congestion(listener.fd(), name).map_err(|error| Error::Congestion {
        name: name.to_owned(),
        offered: socket::congestion_controls().join(", "),
        error,
    })
}

/// How many of the configured connections the limit of open descriptors has room for, after this
/// process's soft limit is raised as far as they need and the hard limit allows. Directories keep
/// up to half of the descriptors for their files (`DirStore`). With fewer connections than
/// configured, idle ones give way before descriptors run out.
fn connections_within_descriptors(config: &Config) -> usize {
    let configured = config.limits.connections_max;
    let has_files = config.exports.iter().any(|export| matches!(export.store, StoreConfig::Dir { .. }));
    let files_share = if has_files { 2 } else { 1 };
    let wanted = configured as u64 * files_share + OTHER_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
        // The limit that is in force afterwards decides.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    }
    let Some(current) = getrlimit(Resource::Nofile).current else { return configured };
    let room = usize::try_from(current.saturating_sub(OTHER_DESCRIPTORS) / files_share);
    let allowed = configured.min(room.unwrap_or(configured).max(CONNECTIONS_MIN));
    if allowed < configured {
        tracing::warn!(
            limit = current,
            "the limit of open files has room for {allowed} connections instead of {configured} (`connections`); raise \
             it to {wanted}: LimitNOFILE= of the service, or ulimit -n"
        );
    }
    allowed
}

#[cfg(test)]
mod tests;

//! A mount: the root of an export, reached over every path of its route.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fs::{FileHandle, FileKind, FileSystemInfo};
use memory::Buffers;
use paths::{ConnSpec, NodeId, PathId, PathSpec, Placement, Timing};
use transport::Address;

use crate::bootstrap::{PathKind, Root, bootstrap_at_any_address, directory, find_port, first_asked};
use crate::buffer::Buffer;
use crate::call::{Caller, FileRef, Op};
use crate::connector::RdmaConnector;
use crate::engine::Setup;
use crate::error::{Error, MountError, Result};
use crate::locks::{LockOwner, Locks};
use crate::nlm::NlmLocks;
use crate::node_health::{FilePlacement, NodeHealth};
use crate::options::{Proto, Remote, Version};
use crate::owners::Owners;
use crate::path_failures::PathFailures;
use crate::path_losses::PathLosses;
use crate::protocol::Protocol;
use crate::protocol::nfs4::TRANSFER_MIN;
use crate::route::{LoopsWithoutPath, PathEnd, PathValidation, PathValidations, Route};
use crate::session::{MountSession, SessionKeeper};
use crate::settings::Settings;
use crate::shard::{ExternalDriver, Shard, Task};
use crate::slot::Pending;
use crate::statistics::{PathCounters, PathStatistics, Replays, Statistics};

/// How long all loops together may take to tell their statistics.
const STATISTICS_TIMEOUT: Duration = Duration::from_secs(1);
/// A mount waits this long for all of its paths; later paths are used once they come up.
const PATHS_TIMEOUT: Duration = Duration::from_millis(1500);
/// A mount waits longer for its first path: its server has answered already, and a busy server
/// takes time.
const FIRST_PATH_TIMEOUT: Duration = Duration::from_secs(20);
/// RDMA connections take longer to establish: address and route resolution, and queue pairs on both
/// sides.
const RDMA_PATHS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long connecting one RDMA connection may take.
const RDMA_CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// A mounted export. Cheap to clone; dropping the last clone closes the connections.
#[derive(Debug, Clone)]
pub struct Mount {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shards: Vec<Shard>,
    /// Ended after the loops.
    session: Option<MountSession>,
    /// The names of owners, which version 4 has.
    owners: Option<Owners>,
    /// The locks of a mount of version 3.
    nlm: Option<NlmLocks>,
    protocol: Protocol,
    route: Arc<Route>,
    root: Root,
    placement: Mutex<FilePlacement>,
    next_file: AtomicU64,
    next_shard: AtomicU64,
    /// An external driver drives the first loop.
    externally_driven: AtomicBool,
    settings: Settings,
}

/// The route over these paths.
fn route(settings: &Settings, paths: Vec<PathEnd>) -> Route {
    Route {
        server: settings.target_name(),
        mixed: settings.mixes(),
        congestion: settings.congestion.clone(),
        reserved_port: settings.reserved_port,
        soft_timeout: settings.soft_timeout(),
        validations: PathValidations::new(paths.len()),
        path_failures: PathFailures::new(paths.len()),
        path_losses: PathLosses::default(),
        node_health: NodeHealth::new(paths.iter().map(|end| end.node)),
        loops_without_path: LoopsWithoutPath::default(),
        registrable: Arc::new(Buffers::apart()),
        connector: Box::new(RdmaConnector::default()),
        paths,
    }
}

/// Starts the loops of a mount, each with its connections.
fn start_loops(
    settings: &Settings,
    (protocol, session): (Protocol, Option<&MountSession>),
    route: &Arc<Route>,
    root: &Root,
    by_loop: Vec<Vec<ConnSpec>>,
) -> std::result::Result<Vec<Shard>, MountError> {
    let mut shards = Vec::new();
    let loops = by_loop.len();
    for (index, connections) in by_loop.into_iter().enumerate() {
        // To the server's reply cache each loop is a separate client with its own xid space.
        let identity = crate::random_u64();
        let setup = Setup {
            protocol,
            session: session.map(|session| (Arc::clone(session.keeper()), (index, loops))),
            table: paths::Config {
                paths: route.paths.iter().map(|end| PathSpec { node: end.node }).collect(),
                connections,
                metadata_apart: settings.mdconnect > 0,
                spread_reads: settings.spread_reads,
                spread_writes: settings.spread_writes,
                timing: timing(settings),
                seed: crate::random_u64(),
            },
            route: Arc::clone(route),
            credential: credential(settings, identity),
            identity,
            read_only: settings.read_only,
            closes_time_min: settings.closes_time_min,
            first_xid: crate::random_u64() as u32,
            root: root.handle,
            root_attributes: root.attributes,
        };
        let shard = Shard::start(index, setup, settings.busy_poll)
            .map_err(|error| MountError::Local(error.to_string()))?;
        shards.push(shard);
    }
    Ok(shards)
}

/// A mount needs a directory: a server may return any object for an export.
fn check_is_directory(root: &Root) -> std::result::Result<(), MountError> {
    let what = match root.attributes.kind {
        FileKind::Directory => return Ok(()),
        FileKind::Regular => "a file",
        FileKind::Symlink => "a symbolic link",
        FileKind::BlockDevice | FileKind::CharacterDevice => "a device",
        FileKind::Socket => "a socket",
        FileKind::Fifo => "a named pipe",
    };
    Err(MountError::NotDirectory { export: String::from_utf8_lossy(&root.export).into_owned(), what })
}

impl Mount {
    /// Mounts `HOST:/EXPORT` or `nfs://HOST/EXPORT` with options as `mount -o` takes them.
    ///
    /// # Errors
    /// Options that cannot be parsed, and [`Error::Mount`] with the cause.
    pub fn connect(target: &str, options: &str) -> Result<Self> {
        Self::with_settings(Settings::from_options(target, options)?)
    }

    /// Mounts with explicit settings; [`Mount::connect`] derives them from a target and mount
    /// options.
    ///
    /// # Errors
    /// [`Error::Mount`] with the cause.
    pub fn with_settings(settings: Settings) -> Result<Self> {
        let target = settings.target_name();
        let refused = match Self::try_mount(settings.clone(), PathKind::Export) {
            Err(refused @ MountError::Refused { .. }) => refused,
            other => return other.map_err(|cause| Error::Mount { target, cause }),
        };
        // A path through symbolic links or `..` is resolved here, as the other commands do; then
        // MOUNT is asked for the directory.
        let cause = match Self::real_export(&settings) {
            Some(export) if export != settings.export => {
                let settings = Settings { export, ..settings };
                match Self::try_mount(settings, PathKind::Export) {
                    Ok(mount) => return Ok(mount),
                    Err(cause) => cause,
                }
            }
            _ => refused,
        };
        Err(Error::Mount { target, cause })
    }

    /// The real path of a directory that is not itself an export.
    fn real_export(settings: &Settings) -> Option<Vec<u8>> {
        let (mount, below) = Self::with_settings_below(settings.clone()).ok()?;
        mount.real_path(&below).ok()
    }

    /// Mounts the export that contains a path, and returns the part of the path below the export.
    /// The server determines the export: the longest listed export that is a prefix of the path or,
    /// if there is none, the longest prefix of the path that the server mounts.
    ///
    /// # Errors
    /// As [`Mount::connect`], and [`MountError::NoExport`].
    pub fn connect_below(target: &str, options: &str) -> Result<(Self, Vec<u8>)> {
        Self::with_settings_below(Settings::from_options(target, options)?)
    }

    /// As [`Mount::connect_below`]; `settings.export` is the path.
    ///
    /// # Errors
    /// As [`Mount::connect_below`].
    pub fn with_settings_below(settings: Settings) -> Result<(Self, Vec<u8>)> {
        let target = settings.target_name();
        let mount =
            Self::try_mount(settings, PathKind::Below).map_err(|cause| Error::Mount { target, cause })?;
        let below = mount.inner.root.below.clone();
        Ok((mount, below))
    }

    fn try_mount(settings: Settings, kind: PathKind) -> std::result::Result<Self, MountError> {
        check(&settings)?;
        let asking = credential(&settings, crate::random_u64());
        let (mut settings, root, begun) = bootstrap_at_any_address(settings, kind, &asking)?;
        if kind == PathKind::Export {
            check_is_directory(&root)?;
        }
        settings.export.clone_from(&root.export);
        if let Some(found) = root.found {
            note_ports(&mut settings, found);
        }
        let paths = path_ends(&settings);
        let start = first_remote(&settings);
        let session = begun.map(|begun| MountSession::keep(begun, &settings, &asking)).transpose()?;
        if let Some(session) = &session {
            settings.version = Version::V4(Some(session.keeper().minor()));
            settings.loops = settings.loops.min(session.keeper().current().loops_max());
        }
        let route = Arc::new(route(&settings, paths));
        let by_loop = connections_by_loop(&settings, start);
        let sizes = transfer_sizes(&settings, &root);
        let protocol =
            session.as_ref().map_or(Protocol::NFS3, |session| session.protocol(by_loop.len(), sizes));
        let used: Vec<PathId> = by_loop.iter().flatten().map(|connection| connection.path).collect();
        let shards = start_loops(&settings, (protocol, session.as_ref()), &route, &root, by_loop)?;
        let nodes = settings.nodes_of_remotes();
        let first = nodes.get(usize::from(start)).copied().unwrap_or(0);
        let count = nodes.iter().max().map_or(1, |last| last.saturating_add(1));
        let placement = Mutex::new(FilePlacement::new(Placement::new(count, first)));
        let (next_file, next_shard) = (AtomicU64::new(1), AtomicU64::new(0));
        let externally_driven = AtomicBool::new(false);
        let owners = session
            .is_some()
            .then(|| Owners::new(settings.owner_domain.clone().unwrap_or_else(crate::owners::of_this_host)));
        let nlm = session.is_none().then(|| NlmLocks::new(settings.clone()));
        let inner = Inner {
            shards,
            session,
            owners,
            nlm,
            protocol,
            route,
            root,
            placement,
            next_file,
            next_shard,
            externally_driven,
            settings,
        };
        let mount = Self { inner: Arc::new(inner) };
        mount.await_paths(&used)?;
        Ok(mount)
    }

    /// Waits until the paths are validated: a path to another file system fails the mount, a late
    /// path does not. Paths without a connection of their own, which serve only failover, are not
    /// waited for.
    fn await_paths(&self, used: &[PathId]) -> std::result::Result<(), MountError> {
        let timeout = if self.inner.settings.uses_rdma() { RDMA_PATHS_TIMEOUT } else { PATHS_TIMEOUT };
        let validations = self.inner.route.validations.wait(used, timeout, FIRST_PATH_TIMEOUT);
        for ((index, validation), end) in (0_u16..).zip(&validations).zip(&self.inner.route.paths) {
            match validation {
                PathValidation::Refused(reason) => {
                    return Err(MountError::OtherFileSystem { address: end.remote, reason: reason.clone() });
                }
                PathValidation::Unknown if used.contains(&PathId(index)) => {
                    tracing::warn!(address = %end.remote, "path is not up yet");
                }
                PathValidation::Unknown | PathValidation::Good => {}
            }
        }
        if validations.iter().any(|validation| matches!(validation, PathValidation::Good)) {
            Ok(())
        } else {
            Err(MountError::NoPath(FIRST_PATH_TIMEOUT.max(timeout)))
        }
    }

    /// Ends a mount of version 4 at the server, which then forgets its client: for programs that
    /// end while something still holds the mount. Waits for two seconds at most. Later calls get no
    /// answer. Without a session this does nothing. RFC 8881 s18.37, s18.50
    pub fn end_session(&self) {
        if let Some(session) = &self.inner.session {
            self.return_delegations();
            session.end();
        }
    }

    /// Has `listener` called when the server says that a lock of a file may be free that somebody
    /// waits for. It is called on a loop, must not wait, and is set once. Needs
    /// [`Settings::call_backs`]. RFC 8881 s20.11
    pub fn on_lock_available(&self, listener: impl Fn(FileHandle) + Send + Sync + 'static) {
        if let Some(session) = &self.inner.session {
            session.keeper().call_backs().listen_for_locks(listener);
        }
    }

    pub(crate) fn session_keeper(&self) -> Option<&Arc<SessionKeeper>> {
        self.inner.session.as_ref().map(MountSession::keeper)
    }

    pub(crate) fn owners(&self) -> Option<&Owners> {
        self.inner.owners.as_ref()
    }

    pub(crate) fn locks(&self) -> Option<&Arc<Locks>> {
        self.inner.session.as_ref().map(MountSession::locks)
    }

    /// Whether an owner may have locks of a file. Most owners never lock, so this is asked before
    /// their locks are ended.
    #[must_use]
    pub fn may_have_locks(&self, file: FileHandle, owner: LockOwner) -> bool {
        self.nlm().is_none_or(|locks| locks.knows(file, owner))
    }

    pub(crate) fn nlm(&self) -> Option<&NlmLocks> {
        self.inner.nlm.as_ref()
    }

    /// Whether the server has lost locks of a file that a program of this mount takes for held.
    #[must_use]
    #[inline]
    pub fn has_lost_locks(&self, file: FileHandle) -> bool {
        self.locks().is_some_and(|locks| locks.are_lost(file))
            || self.nlm().is_some_and(|locks| locks.are_lost(file))
    }

    /// The server and the export, for display.
    #[must_use]
    pub fn name(&self) -> String {
        self.inner.settings.target_name()
    }

    /// The path of the export on its server.
    pub(crate) fn export(&self) -> &[u8] {
        &self.inner.settings.export
    }

    /// The directory that MOUNT returns for a path; `None` if MOUNT refuses, or can no longer be
    /// reached.
    pub(crate) fn directory_by_mount(&self, path: &[u8]) -> Option<FileHandle> {
        if self.inner.session.is_some() {
            // Version 4 has no such program.
            return None;
        }
        let settings = &self.inner.settings;
        let credential = credential(settings, crate::random_u64());
        let answered = first_asked(settings)
            .iter()
            .find_map(|remote| directory(settings, remote, path, &credential).ok());
        answered.and_then(std::result::Result::ok)
    }

    /// The addresses of the server's nodes.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.inner.settings.remotes.iter().map(|remote| remote.address).collect()
    }

    /// The port of NFS.
    #[must_use]
    pub fn port(&self) -> u16 {
        let settings = &self.inner.settings;
        settings.remotes.first().map_or(settings.port, |remote| settings.address_of(remote).port())
    }

    /// The file protocol that the server speaks.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.inner.protocol
    }

    /// The information that the server returned about the export's file system when it was mounted.
    #[must_use]
    pub fn info(&self) -> &FileSystemInfo {
        &self.inner.root.info
    }

    /// The root directory's handle.
    #[must_use]
    pub fn root(&self) -> FileHandle {
        self.inner.root.handle
    }

    /// The settings of the mount, with all defaults.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The maximum size of one READ and of one WRITE, in bytes.
    #[must_use]
    pub fn transfer_sizes(&self) -> (u32, u32) {
        transfer_sizes(&self.inner.settings, &self.inner.root)
    }

    /// Returns a reference to a file for reads and writes, and places the file on the node with the
    /// fewest files.
    #[must_use]
    pub fn file_ref(&self, handle: FileHandle) -> FileRef {
        let number = self.inner.next_file.fetch_add(1, Ordering::Relaxed);
        let mut placement = self.inner.placement.lock().unwrap_or_else(PoisonError::into_inner);
        let home = placement.place(number, &self.inner.route.node_health);
        FileRef { handle, number, home: Some(home) }
    }

    /// Returns a reference to a file that is read and written over all paths at once and is placed
    /// on no node.
    #[must_use]
    pub fn spread_file_ref(&self, handle: FileHandle) -> FileRef {
        FileRef { handle, number: self.inner.next_file.fetch_add(1, Ordering::Relaxed), home: None }
    }

    /// Releases a file that is no longer used, and its placement.
    pub fn release(&self, file: &FileRef) {
        self.inner.placement.lock().unwrap_or_else(PoisonError::into_inner).release(file.number);
    }

    /// The number of loops of the mount, over which tasks may be spread.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.inner.shards.len()
    }

    /// Runs a task on a loop.
    pub fn spawn(&self, index: usize, task: Box<dyn Task>) {
        if let Some(shard) = self.inner.shards.get(index % self.inner.shards.len().max(1)) {
            shard.spawn(task);
        }
    }

    /// Lets a thread that waits for a descriptor to become readable drive the first loop meanwhile;
    /// one thread at a time.
    ///
    /// # Errors
    /// If the loop has ended, or the system refuses.
    pub fn external_driver(&self, waits_for: OwnedFd) -> std::io::Result<ExternalDriver> {
        let shard = self.inner.shards.first().ok_or(std::io::ErrorKind::NotFound)?;
        let external_driver = shard.external_driver(waits_for)?;
        self.inner.externally_driven.store(true, Ordering::Relaxed);
        Ok(external_driver)
    }

    /// Whether any path uses RDMA.
    #[must_use]
    pub fn uses_rdma(&self) -> bool {
        self.inner.settings.uses_rdma()
    }

    /// Memory of `len` bytes and unspecified content for a READ or a WRITE. If a path of the mount
    /// is over RDMA and the length is worth it, a server reads and writes this memory where it is;
    /// any other memory is copied. Dropping the buffer returns the memory to the mount.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Buffer {
        self.inner.route.buffer(len)
    }

    /// Like [`Mount::buffer`], but `None` if the memory would be copied over every path.
    #[must_use]
    pub fn registrable_buffer(&self, len: usize) -> Option<Buffer> {
        self.inner.route.registrable_buffer(len)
    }

    /// Submits an operation from any thread.
    pub fn submit(&self, op: Op) -> Pending {
        self.submit_as(op, None)
    }

    /// Submits an operation from any thread, on behalf of `caller` if it is not the mount's own
    /// user.
    pub fn submit_as(&self, op: Op, caller: Option<Arc<Caller>>) -> Pending {
        let turn = self.turn_of(&op);
        self.submit_to(turn, op, caller)
    }

    /// Like [`Mount::submit_as`], but submits to the loop that an external driver drives. This
    /// saves context switches there, but gives that loop work that other loops could do in
    /// parallel. If there has never been an external driver, this is [`Mount::submit_as`].
    pub fn submit_to_driver(&self, op: Op, caller: Option<Arc<Caller>>) -> Pending {
        if self.inner.externally_driven.load(Ordering::Relaxed) {
            self.submit_to(0, op, caller)
        } else {
            self.submit_as(op, caller)
        }
    }

    /// Chooses the loop of an operation. All writes to a file go to one loop as a rule, so that one
    /// COMMIT can cover them.
    fn turn_of(&self, op: &Op) -> u64 {
        match op {
            Op::Read { .. } | Op::ReadToPipe { .. } | Op::Call(_) => {
                self.inner.next_shard.fetch_add(1, Ordering::Relaxed)
            }
            Op::Write { file, .. } => file.number,
        }
    }

    fn submit_to(&self, turn: u64, op: Op, caller: Option<Arc<Caller>>) -> Pending {
        let count = self.inner.shards.len() as u64;
        let index = usize::try_from(turn % count.max(1)).unwrap_or(0);
        match self.inner.shards.get(index) {
            Some(shard) => shard.submit(op, caller),
            None => unreachable_pending(),
        }
    }

    /// The statistics of the mount so far. Of a loop that does not answer within a second, those
    /// that it gave before.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut paths: Vec<PathStatistics> = (0_u16..)
            .zip(&self.inner.route.paths)
            .map(|(index, end)| PathStatistics {
                name: self.inner.route.path_name(PathId(index)),
                node: end.node.0,
                counters: PathCounters::default(),
                status: Vec::new(),
                ages: Vec::new(),
                lost_for: self.inner.route.path_losses.lost_for(PathId(index), Instant::now()),
            })
            .collect();
        let (mut cpu, mut threads, mut silent_for) = (Duration::ZERO, Vec::new(), Duration::ZERO);
        let (mut replays, mut rdma) = (Replays::default(), transport::rdma::Counters::default());
        let deadline = Instant::now() + STATISTICS_TIMEOUT;
        // All loops are asked before the first answer is waited for.
        let asked: Vec<_> = self.inner.shards.iter().map(|shard| (shard, shard.ask())).collect();
        let answers = asked.iter().filter_map(|(shard, asked)| {
            let answer = shard.answer(asked, deadline.saturating_duration_since(Instant::now()));
            silent_for = silent_for.max(answer.silent_for);
            answer.statistics
        });
        for shard in answers {
            cpu += shard.cpu;
            threads.push(shard.thread);
            replays.add(&shard.replays);
            rdma.add(&shard.rdma);
            for ((path, counters), status) in paths.iter_mut().zip(&shard.counters).zip(shard.status) {
                path.counters.add(counters);
                path.ages.extend(status.map(|status| shard.now.saturating_sub(status.since)));
                path.status.extend(status);
            }
        }
        let delegations = self.delegation_counts();
        Statistics { paths, replays, rdma, cpu, threads, silent_for, delegations }
    }
}

/// Checks settings that may not come from options, which have bounds of their own.
fn check(settings: &Settings) -> std::result::Result<(), MountError> {
    let connections = usize::from(settings.nconnect) + usize::from(settings.mdconnect);
    if settings.nconnect == 0 || connections > paths::CONNECTIONS_MAX {
        let max = paths::CONNECTIONS_MAX;
        return Err(MountError::Local(format!("{connections} connections; a mount has 1 to {max}")));
    }
    if settings.remotes.is_empty() {
        return Err(MountError::Local("no remote address".into()));
    }
    let paths = settings.remotes.len().saturating_mul(settings.locals.len().max(1));
    if paths > usize::from(u16::MAX) {
        return Err(MountError::Local(format!("{paths} paths; a mount has {} at most", u16::MAX)));
    }
    Ok(())
}

/// When paths are suspected, retried and given up.
fn timing(settings: &Settings) -> Timing {
    let mut timing = Timing { silent_max: settings.timeo, ..Timing::default() };
    if settings.uses_rdma() {
        timing.connect_timeout = timing.connect_timeout.max(RDMA_CONNECT_TIMEOUT);
        timing.probe_per_connect_time = paths::timing::PROBE_PER_CONNECT_TIME;
    }
    timing
}

/// A mount always has a loop: settings without one were refused before.
fn unreachable_pending() -> Pending {
    Pending::new().0
}

/// The credential of all calls of one loop that name no caller.
pub(crate) fn credential(settings: &Settings, identity: u64) -> Vec<u8> {
    let mut encoded = Vec::new();
    let caller = Caller { uid: settings.uid, gid: settings.gid, gids: settings.gids.clone() };
    crate::engine::encode_credential(&mut encoded, identity, &caller);
    encoded
}

/// Notes the port of NFS at an address, as its rpcbind knows it. Other remotes where nothing
/// listens at the usual port are looked for in the same way: each host has an rpcbind of its own.
fn note_ports(settings: &mut Settings, found: SocketAddr) {
    let ports: Vec<Option<u16>> = settings
        .remotes
        .iter()
        .map(|remote| match remote.port {
            None if remote.address == Address::from(found) => Some(found.port()),
            None if settings.proto_of(remote) == Proto::Tcp => find_port(settings, remote),
            port => port,
        })
        .collect();
    for (remote, port) in settings.remotes.iter_mut().zip(ports) {
        remote.port = port;
    }
}

/// The remote of connection 0: a hash of the local address, so that clients spread over the
/// remotes.
fn first_remote(settings: &Settings) -> u16 {
    let count = settings.remotes.len().max(1);
    let offset = settings.remotes_offset.unwrap_or_else(|| {
        let local = settings.locals.first().map(Address::to_string);
        let local = local.or_else(|| local_address_to(settings).map(|local| local.to_string()));
        hash(&local.unwrap_or_else(|| settings.server.to_string()))
    });
    u16::try_from(offset as usize % count).unwrap_or(0)
}

/// A hash whose values for consecutive addresses differ modulo any small number.
fn hash(address: &str) -> u32 {
    address.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)))
}

/// The local address from which packets to the first remote leave. Nothing is sent to learn it.
fn local_address_to(settings: &Settings) -> Option<IpAddr> {
    let remote = settings.address_of(settings.remotes.first()?);
    let any: IpAddr =
        if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// All paths: each local address to each remote address.
fn path_ends(settings: &Settings) -> Vec<PathEnd> {
    let per_node = u64::from(settings.connections_per_node()).max(1);
    let pace = settings.pace_bytes_per_s.map(|rate| (rate / per_node).max(1));
    let locals: Vec<Option<Address>> = if settings.locals.is_empty() {
        vec![None]
    } else {
        settings.locals.iter().copied().map(Some).collect()
    };
    let nodes = settings.nodes_of_remotes();
    let end = |local: Option<Address>, (node, remote): (&u16, &Remote)| PathEnd {
        node: NodeId(*node),
        local,
        proto: settings.proto_of(remote),
        remote: settings.address_of(remote),
        pace,
    };
    locals
        .iter()
        .flat_map(|local| nodes.iter().zip(&settings.remotes).map(move |remote| end(*local, remote)))
        .collect()
}

fn transfer_sizes(settings: &Settings, root: &Root) -> (u32, u32) {
    let info = &root.info;
    (transfer_size(settings.rsize, info.read.max), transfer_size(settings.wsize, info.write.max))
}

/// The size of one call: the requested size, or less if the server says so. A limit below
/// [`TRANSFER_MIN`] is ignored: transferring a byte or nothing per call would be useless. RFC 1813
/// s3.3.19
fn transfer_size(wished: u32, told: u32) -> u32 {
    if told < TRANSFER_MIN { wished } else { wished.min(told) }
}

/// The connections of each loop. Connection i goes to remote i mod R from local (i div R) mod L.
/// Whole rounds over the remotes go to one loop, so that each loop reaches every node if there are
/// enough connections.
fn connections_by_loop(settings: &Settings, start: u16) -> Vec<Vec<ConnSpec>> {
    let remotes = u16::try_from(settings.remotes.len().max(1)).unwrap_or(u16::MAX);
    let locals = u16::try_from(settings.locals.len().max(1)).unwrap_or(u16::MAX);
    let total = settings.nconnect + settings.mdconnect;
    let nodes = settings.nodes_of_remotes();
    let loops = settings.loops.clamp(1, usize::from(settings.nconnect.max(1)));
    let mut shards: Vec<Vec<ConnSpec>> = vec![Vec::new(); loops];
    for index in 0..total {
        let metadata = index >= settings.nconnect;
        let at = |count: u16| usize::from(count);
        let remote = paths::remote_of(at(index), at(remotes), at(start)) as u16;
        let node = nodes.get(usize::from(remote)).copied().unwrap_or(0);
        let local = paths::local_of(at(index), at(remotes), at(locals)) as u16;
        let path = PathId(local * remotes + remote);
        let spec = ConnSpec { path, node: NodeId(node), metadata };
        let rounds = settings.nconnect.div_ceil(remotes);
        let turn = if usize::from(rounds) >= loops { index / remotes } else { index };
        // Every loop sends metadata calls, so metadata connections are distributed over the loops.
        let turn = if metadata { index - settings.nconnect } else { turn };
        if let Some(shard) = shards.get_mut(usize::from(turn) % loops) {
            shard.push(spec);
        }
    }
    shards.retain(|connections| connections.iter().any(|spec| !spec.metadata));
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_lower_the_transfer_size_to_a_minimum() {
        assert_eq!(transfer_size(1 << 20, 65536), 65536);
        assert_eq!(transfer_size(4096, 65536), 4096);
        assert_eq!(transfer_size(1 << 20, TRANSFER_MIN), TRANSFER_MIN);
        for told in [0, 1, TRANSFER_MIN - 1] {
            assert_eq!(transfer_size(1 << 20, told), 1 << 20);
        }
    }

    #[test]
    fn clients_with_consecutive_addresses_start_at_different_remotes() {
        for count in 2..=8_u32 {
            let starts = |address: &dyn Fn(u32) -> String| {
                let all = (1..=count).map(|client| hash(&address(client)) % count);
                all.collect::<std::collections::BTreeSet<_>>().len()
            };
            assert_eq!(starts(&|client| format!("10.0.0.{client}")), count as usize);
            assert!(starts(&|client| format!("10.0.{client}.2")) > 1, "{count} remotes");
            assert!(starts(&|client| format!("fd00::{client}:7")) > 1, "{count} remotes");
        }
    }
}

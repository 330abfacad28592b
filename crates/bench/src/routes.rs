//! The routes of an experiment: ready to be mounted, or skipped with a reason.

use std::net::{IpAddr, UdpSocket};

use client::options::Version;
use client::{Address, Mount, Settings};
use initiator::Transport as BlockTransport;
use plan::link::Transport;
use record::{PathCounters, Record, Route};
use serde::{Deserialize, Serialize};

use crate::binding::steps::Behind;
use crate::clients::RemoteDirectory;
use crate::directory::DirectoryRoute;
use crate::directory::kernel_mount::Failure;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, RouteSpec, Target};
use crate::group::{Group, GroupAddresses};
use crate::progress::Progress;
use crate::volume::{EmbeddedVolume, VolumeOptions, VolumeRoute, VolumeTarget};
use crate::watch::{RouteMount, Watch};
use crate::workload::PlannedWorkload;

/// A route that can be mounted.
///
/// The route is mounted again for each repeat. A node paces what it sends over all of its
/// connections, so a route that does not run must have none.
#[derive(Debug)]
pub struct ReadyRoute {
    /// The name of the route.
    pub name: String,
    /// How the route is reached.
    pub access: Access,
    /// The clients of the route, as indices into those of the experiment; empty if this process is
    /// the client.
    pub clients: Vec<usize>,
    /// The number of nodes that the route uses.
    pub nodes: usize,
    /// The addresses of all nodes of the target.
    pub node_names: Vec<String>,
    /// The node to which each path of the route leads, among all nodes of the target.
    pub node_of_path: Vec<usize>,
    /// Whether the route leads to the embedded group.
    pub is_embedded: bool,
    /// Whose files the route uses.
    pub(crate) files: FilesOf,
    workloads: Option<Vec<usize>>,
    watch: Watch,
}

/// Whose files a route uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FilesOf {
    /// Those on the target of the experiment, with all other routes to it.
    Experiment,
    /// Its own, because it has a server or a directory of its own.
    Route,
    /// Those on a volume, with all other routes to that volume.
    Volume(String),
}

/// How a route is reached.
#[derive(Debug)]
pub enum Access {
    /// A server or an embedded group, by a mount of the client library.
    Mount(Box<MountAccess>),
    /// A directory.
    Directory(DirectoryRoute),
    /// A directory of each client.
    Remote(RemoteDirectory),
    /// A block volume.
    Volume(Box<VolumeRoute>),
}

/// A route that the client library mounts.
#[derive(Debug)]
pub struct MountAccess {
    /// How a client mounts the route.
    pub plan: MountPlan,
    settings: Settings,
}

/// How a client mounts a route. It says all that a client on another machine needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPlan {
    target: String,
    options: String,
    /// The addresses of the embedded group, if the route leads there.
    pub group: Option<GroupAddresses>,
    pace_bytes_per_s: Option<u64>,
    congestion: Option<String>,
}

impl MountPlan {
    /// The export that the route leads to, as in `nfs://HOST/EXPORT`.
    pub(crate) fn location(&self) -> &str {
        self.target.trim_end_matches('/')
    }

    /// The settings of the mount.
    ///
    /// # Errors
    /// Those of the options.
    pub fn settings(&self) -> client::Result<Settings> {
        let options = match &self.group {
            Some(group) => format!("noresvport,{},{}", port_options(group.port, &self.options), self.options),
            None => self.options.clone(),
        };
        let mut settings = Settings::from_options(&self.target, options.trim_end_matches(','))?;
        if let Some(group) = &self.group {
            group.redirect(&mut settings);
        }
        settings.pace_bytes_per_s = self.pace_bytes_per_s;
        if let Some(congestion) = &self.congestion {
            settings.congestion = Some(congestion.clone());
        }
        Ok(settings)
    }
}

impl ReadyRoute {
    /// Whether the route has this workload.
    #[must_use]
    pub fn has_workload(&self, index: usize) -> bool {
        self.workloads.as_ref().is_none_or(|workloads| workloads.contains(&index))
    }

    fn settings(&self) -> Option<&Settings> {
        match &self.access {
            Access::Mount(mounted) => Some(&mounted.settings),
            Access::Directory(_) | Access::Remote(_) | Access::Volume(_) => None,
        }
    }

    /// Whether the route uses RDMA.
    #[must_use]
    pub fn is_rdma(&self) -> bool {
        match &self.access {
            Access::Mount(mounted) => mounted.settings.uses_rdma(),
            Access::Directory(directory) => directory.is_rdma,
            Access::Volume(volume) => volume.uses(BlockTransport::Rdma),
            Access::Remote(_) => false,
        }
    }

    /// Whether the route uses both transports.
    #[must_use]
    pub fn mixes(&self) -> bool {
        match &self.access {
            Access::Volume(volume) => volume.uses(BlockTransport::Rdma) && volume.uses(BlockTransport::Tcp),
            _ => self.settings().is_some_and(Settings::mixes),
        }
    }

    /// The transport of the payload, which determines how much of a link the headers use.
    #[must_use]
    pub fn transport(&self) -> Transport {
        // If the route uses both, the headers of TCP take more of a link.
        if self.is_rdma() && !self.mixes() {
            return if speaks_ethernet() { Transport::RoceV2 } else { Transport::InfiniBand };
        }
        let is_ipv6 = match &self.access {
            Access::Volume(volume) => volume.addresses().iter().all(|address| address.socket.is_ipv6()),
            _ => self
                .settings()
                .is_some_and(|settings| settings.remotes.iter().all(|remote| remote.address.is_ipv6())),
        };
        if is_ipv6 { Transport::TcpIpv6 } else { Transport::Tcp }
    }

    /// How a directory is accessed, in the form of the record; `None` for a mount of the client
    /// library.
    #[must_use]
    pub fn access_text(&self) -> Option<String> {
        match &self.access {
            Access::Mount(_) => None,
            Access::Directory(directory) => Some(directory.describe()),
            Access::Volume(volume) => Some(volume.describe()),
            // The clients are asked later.
            Access::Remote(_) => None,
        }
    }

    /// The connections of the route's mount on each client, as far as they are known.
    fn connections(&self) -> Option<u32> {
        match &self.access {
            Access::Mount(mounted) => Some(mounted.settings.nconnect.into()),
            Access::Directory(directory) => directory.connections(),
            Access::Volume(volume) => Some(volume.connections()),
            Access::Remote(_) => None,
        }
    }

    /// What a reader must know about the results of a workload.
    #[must_use]
    pub fn note(&self, workload: &PlannedWorkload) -> Option<String> {
        match &self.access {
            Access::Mount(_) => None,
            Access::Directory(directory) => directory.note(workload),
            Access::Remote(directory) => directory.note(workload),
            Access::Volume(volume) => volume.note(),
        }
    }

    /// The export that the route leads to, as in `nfs://HOST/EXPORT`; `None` for a directory.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        match &self.access {
            Access::Mount(mounted) => Some(mounted.plan.location()),
            Access::Directory(_) | Access::Remote(_) | Access::Volume(_) => None,
        }
    }

    /// The host of the server, as the route names it.
    pub(crate) fn host(&self) -> &str {
        let place = self.location().unwrap_or_default();
        let place = place.strip_prefix("nfs://").unwrap_or(place);
        place.split('/').next().unwrap_or(place).trim_end_matches(':')
    }

    /// What is behind the route. The processors of this machine are seen, and with them those of a
    /// server on it if all clients are on it too.
    pub(crate) fn behind(&self, clients_are_here: bool) -> Behind {
        match &self.access {
            Access::Mount(_) if self.is_embedded => Behind::Seen,
            Access::Mount(mounted) => {
                let mut remotes = mounted.settings.remotes.iter();
                let is_here = clients_are_here && remotes.all(|remote| is_of_this_host(remote.address.ip()));
                if is_here { Behind::Seen } else { Behind::Server }
            }
            Access::Directory(directory) => directory.behind(),
            Access::Volume(volume) => volume.behind(),
            Access::Remote(_) => Behind::Directory,
        }
    }

    /// Mounts the route.
    ///
    /// # Errors
    /// [`Error::Route`]; for a route to a directory, [`Error::Refused`].
    pub fn mount(&self) -> Result<RouteMount> {
        let wrap = |cause| Error::Route { route: self.name.clone(), cause: Box::new(cause) };
        let Some(settings) = self.settings() else {
            let cause = "the client library mounts servers, not directories or volumes";
            return Err(Error::refused(format!("cannot mount {}", self.name), cause, "nfs://HOST/EXPORT"));
        };
        let mount = Mount::with_settings(settings.clone()).map_err(wrap)?;
        Ok(RouteMount::new(mount, &self.name, &self.watch))
    }
}

/// Adds the counters of a mount's paths. The port of an embedded group is left out of their names,
/// because it differs between the halves.
pub fn add_counters(sum: &mut Vec<PathCounters>, mount: &Mount, group: Option<&GroupAddresses>) {
    let port = group.map(|group| format!(":{}", group.port)).unwrap_or_default();
    let paths = mount.statistics().paths;
    sum.resize_with(paths.len().max(sum.len()), PathCounters::default);
    for (sum, path) in sum.iter_mut().zip(paths) {
        let counters = &path.counters;
        sum.path = path.name.strip_suffix(&port).unwrap_or(&path.name).to_owned();
        sum.state = path.state().map_or_else(String::new, |state| state.name().to_owned());
        sum.calls += counters.read.calls + counters.write.calls + counters.metadata.calls;
        sum.bytes += counters.payload_bytes();
        sum.retransmissions += counters.retransmissions;
        sum.failovers += path.status.iter().map(|status| status.moved_calls).sum::<u64>();
    }
}

/// Whether this host has the address: only then can a socket be bound to it.
pub(crate) fn is_of_this_host(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Whether the options ask for RDMA.
#[must_use]
pub fn is_rdma(options: &str) -> bool {
    let names = |option: &str| match option.split_once('=') {
        Some(("remoteports", list)) => list.split('~').any(|piece| piece.starts_with("rdma:")),
        _ => option == "rdma" || option.starts_with("proto=rdma"),
    };
    options.split(',').map(str::trim).any(names)
}

/// Whether the options of our mount ask for NFS version 4. Options that make no sense are refused
/// elsewhere.
pub(crate) fn is_version_4(options: &str) -> bool {
    Settings::from_options("nfs://127.0.0.1/", options).is_ok_and(|it| matches!(it.version, Version::V4(_)))
}

/// The options that lead a mount with these options to a port of our server: version 4 has no
/// MOUNT.
pub(crate) fn port_options(port: u16, options: &str) -> String {
    if is_version_4(options) { format!("port={port}") } else { format!("port={port},mountport={port}") }
}

/// Whether the RDMA devices of this machine are on Ethernet. If there are both kinds, the less
/// favourable one is assumed.
fn speaks_ethernet() -> bool {
    let devices = verbs::devices().unwrap_or_default();
    devices.iter().flat_map(|device| &device.ports).any(|port| port.active && port.ethernet)
}

/// The reason why a route over RDMA is not in the paced half.
pub const NOT_PACED: &str = "a pace is kept by TCP sockets, and RDMA has none";
/// The reason why a route to a volume is not there.
const VOLUME_NOT_PACED: &str = "the embedded target has no pace";
/// The reason why it has no clients.
const NOT_ON_CLIENTS: &str = "agents attach no volumes";

/// Why a route is not in the paced half, if it is not.
pub(crate) fn not_paced(spec: &RouteSpec, experiment: &Experiment) -> Option<&'static str> {
    match spec.target(experiment) {
        Target::Volume(_) => Some(VOLUME_NOT_PACED),
        _ => is_rdma(&spec.options).then_some(NOT_PACED),
    }
}

/// The reason why a route cannot run here, if it cannot.
fn skipped(options: &str, target: &Target) -> Option<String> {
    if !is_rdma(options) {
        return None;
    }
    let found = crate::rdma::addresses();
    match target {
        // Which local addresses reach an external server shows when the route is mounted.
        Target::Server(_) if verbs::devices().is_ok_and(|devices| !devices.is_empty()) => None,
        Target::Directory(_) => None,
        // The kernel needs no library.
        Target::Kernel(_) if has_rdma_device() => None,
        Target::Kernel(_) => Some("this machine has no RDMA device".to_owned()),
        _ => found.err(),
    }
}

fn has_rdma_device() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

/// The route in the form of the record, before it is measured.
#[must_use]
pub fn describe(spec: &RouteSpec, experiment: &Experiment) -> Route {
    let target = spec.target(experiment);
    if matches!(target, Target::Volume(_)) && !experiment.clients.is_empty() {
        return Route { options: spec.options.clone(), ..Route::skipped(&spec.name, NOT_ON_CLIENTS) };
    }
    // Whether other machines have RDMA devices shows when they are asked.
    let here = experiment.clients.is_empty() || matches!(target, Target::Embedded { .. });
    if let Some(reason) = here.then(|| skipped(&spec.options, target)).flatten() {
        return Route { options: spec.options.clone(), ..Route::skipped(&spec.name, reason) };
    }
    Route { name: spec.name.clone(), options: spec.options.clone(), ..Route::default() }
}

/// What of the experiment runs in this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EmbeddedServers<'a> {
    /// The embedded group.
    pub(crate) group: Option<&'a Group>,
    /// The embedded target.
    pub(crate) volume: Option<&'a EmbeddedVolume>,
}

/// The routes that can run here; the record has the reasons of others, and how directories are
/// accessed.
///
/// # Errors
/// [`Error::Route`] with the first route whose options are invalid; [`Error::Directory`] or
/// [`Error::Refused`] with the first directory or mount of the kernel that cannot be used.
pub(crate) fn ready(
    specs: &[&RouteSpec],
    experiment: &Experiment,
    embedded: EmbeddedServers<'_>,
    pace_bytes_per_s: Option<u64>,
    congestion: Option<&str>,
    progress: &Progress,
    record: &mut Record,
) -> Result<Vec<ReadyRoute>> {
    let mut ready = Vec::new();
    for spec in specs {
        match one(spec, experiment, embedded, pace_bytes_per_s, congestion, progress)? {
            Ok(route) => ready.push(route),
            Err(reason) => {
                let described = record.routes.iter_mut().find(|described| described.name == spec.name);
                described.into_iter().for_each(|described| described.skipped = Some(reason.clone()));
            }
        }
    }
    for route in &mut record.routes {
        let ready = ready.iter().find(|ready: &&ReadyRoute| ready.name == route.name);
        route.connections = ready.and_then(ReadyRoute::connections).or(route.connections);
        route.access = ready.and_then(ReadyRoute::access_text).or(route.access.take());
        // Of a directory, the file system says how it is mounted.
        if let (true, Some(Access::Directory(directory))) =
            (route.options.is_empty(), ready.map(|it| &it.access))
        {
            route.options = directory.nfs_options().unwrap_or_default();
        }
    }
    Ok(ready)
}

/// A route; or why it has no result, where that is no error.
fn one(
    spec: &RouteSpec,
    experiment: &Experiment,
    embedded: EmbeddedServers<'_>,
    pace_bytes_per_s: Option<u64>,
    congestion: Option<&str>,
    progress: &Progress,
) -> Result<std::result::Result<ReadyRoute, String>> {
    let target = match spec.target(experiment) {
        Target::Server(server) => server.clone(),
        Target::Embedded { .. } => "127.0.0.1:/bench".into(),
        Target::Directory(path) if !experiment.clients.is_empty() => {
            let directory = RemoteDirectory::new(path.clone(), spec.load(experiment).direct);
            return Ok(Ok(of_directory(spec, Access::Remote(directory), experiment, progress.watch())));
        }
        Target::Directory(path) => {
            let directory = DirectoryRoute::open(&spec.name, path, spec.load(experiment))?;
            return Ok(Ok(of_local(spec, directory, experiment, progress)));
        }
        Target::Volume(target) => {
            let route = of_volume(spec, target, experiment, embedded.volume, progress.watch());
            return match route {
                // A device cannot always reach itself.
                Err(Error::Volume { cause, .. }) if is_rdma(&spec.options) => Ok(Err(cause.to_string())),
                route => route.map(Ok),
            };
        }
        Target::Kernel(server) => return of_kernel(spec, server, experiment, progress),
    };
    let is_embedded = matches!(spec.target(experiment), Target::Embedded { .. });
    let group = embedded.group.filter(|_| is_embedded).map(|group| &group.at);
    let wrap = |cause| Error::Route { route: spec.name.clone(), cause: Box::new(cause) };
    let plan = MountPlan {
        target,
        options: spec.options.clone(),
        group: group.cloned(),
        pace_bytes_per_s,
        congestion: congestion.filter(|_| is_embedded).map(str::to_owned),
    };
    let settings = plan.settings().map_err(wrap)?;
    let of_remotes: Vec<usize> = match group {
        Some(group) => settings.remotes.iter().map(|remote| group.node_of(&settings, remote)).collect(),
        None => settings.nodes_of_remotes().into_iter().map(usize::from).collect(),
    };
    let all = group.map_or_else(
        || nodes_named(&settings),
        |group| group.nodes.iter().map(|address| (*address).into()).collect(),
    );
    // The paths of a mount: each local address with each remote one.
    let node_of_path = of_remotes.repeat(settings.locals.len().max(1));
    // Connection i goes to remote address i mod R, so with fewer connections than addresses some
    // are unused.
    let used = of_remotes.iter().collect::<std::collections::BTreeSet<_>>().len();
    let nodes = used.min(usize::from(settings.nconnect)).max(1);
    let node_names = all.iter().map(ToString::to_string).collect();
    Ok(Ok(ReadyRoute {
        name: spec.name.clone(),
        access: Access::Mount(Box::new(MountAccess { plan, settings })),
        clients: experiment.clients_of(spec),
        nodes,
        node_names,
        node_of_path,
        is_embedded,
        files: if spec.target.is_some() { FilesOf::Route } else { FilesOf::Experiment },
        workloads: experiment.workloads_of(spec),
        watch: progress.watch().clone(),
    }))
}

/// A route by a mount of the kernel.
fn of_kernel(
    spec: &RouteSpec,
    server: &str,
    experiment: &Experiment,
    progress: &Progress,
) -> Result<std::result::Result<ReadyRoute, String>> {
    let load = spec.load(experiment);
    match DirectoryRoute::mount(&spec.name, server, &spec.options, load, progress.stop()) {
        Ok(directory) => Ok(Ok(of_local(spec, directory, experiment, progress))),
        Err(Failure::NoMultipath(reason)) => Ok(Err(reason)),
        Err(Failure::Other(error)) => Err(error),
    }
}

/// A route to a volume. Each of its addresses is a node.
fn of_volume(
    spec: &RouteSpec,
    target: &VolumeTarget,
    experiment: &Experiment,
    embedded: Option<&EmbeddedVolume>,
    watch: &Watch,
) -> Result<ReadyRoute> {
    let options = VolumeOptions::parse(&spec.options, target).map_err(|fault| {
        Error::refused(format!("cannot use the route {}", spec.name), fault, crate::volume::options::FORM)
    })?;
    let volume = VolumeRoute::open(&spec.name, target, &options, embedded, watch)?;
    let is_embedded = *target == VolumeTarget::Embedded;
    let name = |address: &initiator::Address| address.socket.ip().to_string();
    let node_names = match embedded.filter(|_| is_embedded) {
        Some(embedded) => embedded.addresses(options.transport()).map(|address| name(&address)).collect(),
        None => volume.addresses().iter().map(name).collect(),
    };
    let nodes = volume.addresses().len();
    let mut workloads = experiment.workloads_of(spec);
    for (index, workload) in experiment.planned().iter().enumerate() {
        if workloads.as_ref().is_some_and(|own| !own.contains(&index)) {
            continue;
        }
        if volume.skips(workload).is_some() {
            workloads
                .get_or_insert_with(|| (0..experiment.planned().len()).collect())
                .retain(|it| *it != index);
        } else {
            volume.check(workload)?;
        }
    }
    Ok(ReadyRoute {
        name: spec.name.clone(),
        files: FilesOf::Volume(volume.key()),
        access: Access::Volume(Box::new(volume)),
        clients: Vec::new(),
        nodes,
        node_names,
        node_of_path: (0..nodes).collect(),
        is_embedded,
        workloads,
        watch: watch.clone(),
    })
}

/// A route to a directory of this machine.
fn of_local(
    spec: &RouteSpec,
    directory: DirectoryRoute,
    experiment: &Experiment,
    progress: &Progress,
) -> ReadyRoute {
    let directory = directory.watched(progress.watch());
    of_directory(spec, Access::Directory(directory), experiment, progress.watch())
}

/// A route to a directory, here or on clients, whose nodes are not known.
fn of_directory(spec: &RouteSpec, access: Access, experiment: &Experiment, watch: &Watch) -> ReadyRoute {
    let remote = matches!(access, Access::Remote(_));
    ReadyRoute {
        name: spec.name.clone(),
        access,
        clients: if remote { experiment.clients_of(spec) } else { Vec::new() },
        nodes: 1,
        node_names: Vec::new(),
        node_of_path: Vec::new(),
        is_embedded: false,
        files: FilesOf::Route,
        workloads: experiment.workloads_of(spec),
        watch: watch.clone(),
    }
}

/// The address of each node, which is the node's name in the record.
fn nodes_named(settings: &Settings) -> Vec<Address> {
    let mut named: Vec<Address> = Vec::new();
    for (remote, node) in settings.remotes.iter().zip(settings.nodes_of_remotes()) {
        if usize::from(node) == named.len() {
            named.push(remote.address);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_by_version_4_are_known_by_their_options() {
        for options in ["vers=4.2", "nconnect=2,vers=4", "nfsvers=4.1,remoteports=127.0.0.1-127.0.0.2"] {
            assert!(is_version_4(options), "{options}");
        }
        for options in ["", "nconnect=4", "vers=3", "vers=5", "vers=4.2,vers=3"] {
            assert!(!is_version_4(options), "{options}");
        }
    }

    #[test]
    fn addresses_of_this_host_are_told_from_others() {
        for here in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert!(is_of_this_host(here.parse().unwrap()), "{here}");
        }
        // Addresses for documentation. RFC 5737, RFC 3849
        for elsewhere in ["192.0.2.1", "198.51.100.7", "2001:db8::1"] {
            assert!(!is_of_this_host(elsewhere.parse().unwrap()), "{elsewhere}");
        }
    }
}

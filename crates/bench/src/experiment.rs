//! The definition of an experiment: routes, workloads, repeats. It is either built in, or read from
//! a TOML file.

mod check;
mod file;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use plan::link::Transport;
use record::{Pattern, Procedure};
use serde::Deserialize;

pub(crate) use self::check::{IN_FLIGHT_BYTES_MAX, RATE_MAX, THREADS_MAX};
use crate::clients::ClientSpec;
use crate::error::ExperimentError;
use crate::targets;
use crate::volume::{VolumeOptions, VolumeTarget};
use crate::workload::{self, PlannedWorkload};

/// A route: a name and mount options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteSpec {
    /// The name in the table.
    pub name: String,
    /// Mount options, as for `mount -o`.
    pub options: String,
    /// The group of clients that run this route; all clients if absent.
    pub clients: Option<String>,
    /// The server of this route, if routes of the experiment have servers of their own. Such a
    /// route has its own files.
    pub target: Option<Target>,
    /// The workloads of this route, as indices; `None` if it has all.
    pub workloads: Option<Vec<usize>>,
    /// How a directory is measured, where that differs from the experiment's
    /// ([`Experiment::directories`]).
    pub engine: Option<EngineChoice>,
    /// Whether a directory's files are read and written past the page cache.
    pub direct: Option<bool>,
}

impl RouteSpec {
    /// How the directory of this route is measured.
    #[must_use]
    pub fn load(&self, experiment: &Experiment) -> DirectoryLoad {
        let DirectoryChoice { engine, direct } = experiment.directories;
        let engine = self.engine.unwrap_or(engine).resolve(!experiment.clients.is_empty());
        DirectoryLoad { engine, direct: self.direct.unwrap_or(direct) }
    }

    /// The connections for READ and WRITE of this route, if its options say it.
    #[must_use]
    pub(crate) fn connections(&self, experiment: &Experiment) -> u32 {
        match self.volume(experiment) {
            Some((target, options)) => options.connections(target),
            None => crate::cells::connections(&self.options),
        }
    }

    /// The volume of this route and its options, if it leads to one. Options that make no sense are
    /// refused when the experiment is checked.
    pub(crate) fn volume<'a>(
        &'a self,
        experiment: &'a Experiment,
    ) -> Option<(&'a VolumeTarget, VolumeOptions)> {
        let Target::Volume(target) = self.target(experiment) else { return None };
        Some((target, VolumeOptions::parse(&self.options, target).ok()?))
    }

    /// Whether it leads to a volume that is not to be overwritten.
    fn is_only_read(&self, experiment: &Experiment) -> bool {
        self.volume(experiment).is_some_and(|(_, options)| !options.overwrite)
    }

    /// The server of this route.
    #[must_use]
    pub fn target<'a>(&'a self, experiment: &'a Experiment) -> &'a Target {
        self.target.as_ref().unwrap_or(&experiment.target)
    }
}

/// What is to make the load on directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// [`Engine::Ours`].
    #[default]
    Ours,
    /// [`Engine::Fio`].
    Fio,
    /// fio where it is installed and new enough, and this machine makes the load; else ours.
    Auto,
}

impl EngineChoice {
    /// The engine that it is on this machine, or on clients: agents run no programs.
    fn resolve(self, on_clients: bool) -> Engine {
        match self {
            Self::Fio => Engine::Fio,
            Self::Auto if !on_clients && crate::fio_program::is_usable() => Engine::Fio,
            Self::Ours | Self::Auto => Engine::Ours,
        }
    }
}

/// What is to make the load on directories, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectoryChoice {
    /// What makes the load.
    pub engine: EngineChoice,
    /// Whether files are read and written past the page cache (O_DIRECT).
    pub direct: bool,
}

impl Default for DirectoryChoice {
    fn default() -> Self {
        Self { engine: EngineChoice::default(), direct: true }
    }
}

/// What makes the load on a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Threads of this process, one for each operation in flight.
    #[default]
    Ours,
    /// The installed program `fio`.
    Fio,
}

/// How a directory is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectoryLoad {
    /// What makes the load.
    pub engine: Engine,
    /// Whether files are read and written past the page cache (O_DIRECT).
    pub direct: bool,
}

impl Default for DirectoryLoad {
    fn default() -> Self {
        Self { engine: Engine::Ours, direct: true }
    }
}

/// A named group of clients.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientGroup {
    /// The name by which routes refer to the group.
    pub name: String,
    /// The names of its clients, in the order in which a step test adds them.
    pub clients: Vec<String>,
}

/// The steps of a step test: what is added from one to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Steps {
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// Numbers of operations in flight for each reader and writer.
    pub depth: Vec<u32>,
}

/// A workload.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// The name in the table.
    pub name: String,
    /// Sequential or random.
    #[serde(default)]
    pub pattern: Pattern,
    /// The size of one operation: `"1MiB"`.
    #[serde(deserialize_with = "size")]
    pub block: u64,
    /// The number of operations in flight for each reader and writer.
    pub depth: u32,
    /// The number of readers that run at once, each with its own file.
    #[serde(default)]
    pub readers: u32,
    /// The number of writers that run at once, each with its own file.
    #[serde(default)]
    pub writers: u32,
    /// The size of each file: `"64MiB"`.
    #[serde(deserialize_with = "size")]
    pub file: u64,
    /// The operations per second that all readers and writers together start, whether or not
    /// earlier ones have finished. If absent, each operation starts as soon as another has
    /// finished.
    #[serde(default)]
    pub rate: Option<f64>,
    /// The bytes that each reader and writer moves in a repeat, which ends then; if absent, time
    /// ends it.
    #[serde(default, deserialize_with = "optional_size")]
    pub io: Option<u64>,
    /// Whether all clients read the same files.
    #[serde(default)]
    pub shared: bool,
    /// The steps, if the workload is a step test.
    #[serde(default)]
    pub steps: Option<Steps>,
}

impl WorkloadSpec {
    /// The same without its writers; `None` if nothing is left.
    fn reads(&self) -> Option<Self> {
        let name = self.name.replace("mix", "read");
        (self.readers > 0).then(|| Self { name, writers: 0, ..self.clone() })
    }
}

/// The speeds of an external network, from which limits are computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Links {
    /// The speed of each node's link, in bits per second in each direction.
    pub node_bits_per_s: Option<u64>,
    /// The speed of each client's link.
    pub client_bits_per_s: Option<u64>,
    /// The MTU of the links, which are Ethernet. With an MTU, a limit is what the headers leave for
    /// payload; without one, the full line rate.
    pub mtu: Option<u32>,
}

impl Links {
    /// The maximum throughput of a route between this many nodes and clients in each direction, in
    /// 10^9 bytes per second.
    #[must_use]
    pub fn gbytes_per_s(&self, nodes: usize, clients: usize, transport: Transport) -> Option<f64> {
        let of_nodes = self.node_bits_per_s.map(|bits| bits as f64 * nodes as f64);
        let of_clients = self.client_bits_per_s.map(|bits| bits as f64 * clients as f64);
        let least = of_nodes.into_iter().chain(of_clients).reduce(f64::min)?;
        // The MTU was checked when the file was read.
        let payload = self.mtu.and_then(|mtu| plan::link::payload_bits_per_s(least, transport, mtu).ok());
        Some(payload.unwrap_or(least) / 8e9)
    }

    /// The reason why the MTU is invalid, if it is.
    fn fault(&self) -> Option<String> {
        let mtu = self.mtu?;
        if self.node_bits_per_s.or(self.client_bits_per_s).is_none() {
            return Some(
                "limits.mtu: it says what a link carries, so `link` or `client_link` goes with it".into(),
            );
        }
        match plan::link::efficiency(Transport::Tcp, mtu) {
            Ok(_) => None,
            Err(plan::Error::Refused(refusal)) => Some(format!("limits.mtu = {mtu}: {}", refusal.rule)),
            Err(error) => Some(format!("limits.mtu = {mtu}: {error}")),
        }
    }
}

/// The server under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A group of nodes in this process, on loopback.
    Embedded {
        /// The number of nodes.
        nodes: u8,
        /// The maximum size of the memory store.
        mem_bytes: u64,
        /// The address of each node; empty for loopback.
        addresses: Vec<IpAddr>,
    },
    /// An external server: `HOST:/EXPORT`.
    Server(String),
    /// A directory of this machine.
    Directory(PathBuf),
    /// An external server, mounted by the kernel's client.
    Kernel(String),
    /// A block volume, by our host.
    Volume(VolumeTarget),
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded { nodes, addresses, .. } if addresses.is_empty() => {
                write!(out, "embedded group of {nodes} nodes, memory store, loopback")
            }
            Self::Embedded { nodes, addresses, .. } => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                write!(out, "embedded group of {nodes} nodes, memory store, on {}", addresses.join(", "))
            }
            Self::Server(server) => out.write_str(server),
            Self::Directory(path) => write!(out, "directory {}", path.display()),
            Self::Kernel(server) => write!(out, "{server} by the kernel's client"),
            Self::Volume(volume) => volume.fmt(out),
        }
    }
}

/// The embedded group of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedded<'a> {
    /// The number of nodes.
    pub nodes: u8,
    /// The maximum size of the memory store.
    pub mem_bytes: u64,
    /// The address of each node; empty for loopback.
    pub addresses: &'a [IpAddr],
}

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The name of the experiment.
    pub name: String,
    /// Quick, standard or thorough.
    pub procedure: Procedure,
    /// The server under test.
    pub target: Target,
    /// The clients ([`crate::clients::ClientSpec`]); empty if this process is the client.
    pub clients: Vec<ClientSpec>,
    /// Named groups of clients.
    pub groups: Vec<ClientGroup>,
    /// The routes, in the order of the table.
    pub routes: Vec<RouteSpec>,
    /// The workloads.
    pub workloads: Vec<WorkloadSpec>,
    /// The workloads of fio job files, which replace [`Experiment::workloads`].
    pub job_files: Vec<PlannedWorkload>,
    /// The number of repeats of each cell.
    pub repeats: u32,
    /// The measured time of one repeat.
    pub window: Duration,
    /// The warm-up before the measured time.
    pub warm: Duration,
    /// The pace of each node in the paced half, in bits per second; absent if there is no paced
    /// half.
    pub pace_bits_per_s: Option<u64>,
    /// The measured time of a paced repeat of large blocks. Small blocks need less time, because
    /// more of them fit into a window.
    pub paced_window: Duration,
    /// The links to an external server.
    pub links: Links,
    /// How directories are measured, unless a route says otherwise.
    pub directories: DirectoryChoice,
    /// The time of each try of the calibration.
    pub calibrate: Duration,
}

fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    server::config::size::parse_bytes(&text).map_err(serde::de::Error::custom)
}

fn optional_size<'de, D>(deserializer: D) -> std::result::Result<Option<u64>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    size(deserializer).map(Some)
}

fn built_in_workload(
    name: &str,
    pattern: Pattern,
    block: u64,
    depth: u32,
    jobs: (u32, u32),
    file: u64,
) -> WorkloadSpec {
    WorkloadSpec {
        name: name.into(),
        pattern,
        block,
        depth,
        readers: jobs.0,
        writers: jobs.1,
        file,
        ..WorkloadSpec::default()
    }
}

impl Experiment {
    /// The experiment of a plain `trunkline bench`: the four routes on an embedded group.
    #[must_use]
    pub fn built_in(procedure: Procedure) -> Self {
        const MIB: u64 = 1 << 20;
        let mix = built_in_workload("mix-1m", Pattern::Sequential, MIB, 2, (10, 10), 32 * MIB);
        let random_read = built_in_workload("randread-4k", Pattern::Random, 4096, 32, (4, 0), 64 * MIB);
        let workloads = if procedure == Procedure::Quick {
            vec![mix, random_read]
        } else {
            vec![
                mix,
                built_in_workload("read-64k", Pattern::Sequential, 64 << 10, 16, (4, 0), 64 * MIB),
                built_in_workload("write-64k", Pattern::Sequential, 64 << 10, 16, (0, 4), 64 * MIB),
                random_read,
                built_in_workload("randwrite-4k", Pattern::Random, 4096, 32, (0, 4), 64 * MIB),
            ]
        };
        let (repeats, window, paced_window) = match procedure {
            Procedure::Quick => (8, 200, 400),
            Procedure::Standard => (8, 350, 400),
            Procedure::Thorough => (10, 2000, 2000),
        };
        let route = |name: &str, options: &str| RouteSpec {
            name: name.into(),
            options: options.into(),
            ..RouteSpec::default()
        };
        Self {
            name: "four routes".into(),
            procedure,
            target: Target::Embedded { nodes: 4, mem_bytes: 2 << 30, addresses: Vec::new() },
            clients: Vec::new(),
            groups: Vec::new(),
            routes: vec![
                route("tcp", "nconnect=8"),
                route("tcp-mp", "nconnect=8,remoteports=127.0.0.1-127.0.0.4"),
                route("rdma", "proto=rdma,nconnect=8"),
                route("rdma-mp", "proto=rdma,nconnect=8,remoteports=127.0.0.1-127.0.0.4"),
            ],
            workloads,
            job_files: Vec::new(),
            repeats,
            window: Duration::from_millis(window),
            warm: Duration::from_millis(60),
            pace_bits_per_s: Some(1_000_000_000),
            paced_window: Duration::from_millis(paced_window),
            links: Links::default(),
            directories: DirectoryChoice::default(),
            calibrate: Duration::from_millis(if procedure == Procedure::Thorough { 1000 } else { 200 }),
        }
    }

    /// The built-in workloads on these targets, each of which is a route.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) with the first text that is no target.
    pub fn on_targets(targets: &[String], procedure: Procedure) -> crate::Result<Self> {
        let base = Self::built_in(procedure);
        let routes = targets::routes(targets).map_err(|(text, cause)| {
            let form = "a directory, nfs://HOST/EXPORT?OPTIONS, kernel:nfs://HOST/EXPORT?OPTIONS, \
                 nvme-tcp://ADDR:PORT/NQN?OPTIONS, nvme-rdma://..., group:?OPTIONS or volume:?OPTIONS";
            crate::Error::refused(format!("cannot measure {text}"), cause, form)
        })?;
        let target = routes.first().and_then(|route| route.target.clone());
        Ok(Self {
            name: "targets".into(),
            target: target.unwrap_or_else(|| base.target.clone()),
            workloads: match routes.iter().any(|route| route.is_only_read(&base)) {
                true => base.workloads.iter().filter_map(WorkloadSpec::reads).collect(),
                false => base.workloads.clone(),
            },
            routes,
            pace_bits_per_s: None,
            ..base
        })
    }

    /// Has the nodes of the embedded group listen on these addresses.
    ///
    /// # Errors
    /// [`ExperimentError::Value`] if there is no embedded group, or not one address for each node.
    pub(crate) fn listen_on(&mut self, given: &[IpAddr]) -> std::result::Result<(), ExperimentError> {
        match &mut self.target {
            Target::Embedded { nodes, addresses, .. } if given.len() == usize::from(*nodes) => {
                *addresses = given.to_vec();
                Ok(())
            }
            Target::Embedded { nodes, .. } => {
                let reason =
                    format!("--nodes-on: {} addresses for {nodes} nodes; give one for each", given.len());
                Err(ExperimentError::Value(reason))
            }
            other => {
                let reason = format!("--nodes-on: {other} is not an embedded group");
                Err(ExperimentError::Value(reason))
            }
        }
    }

    /// The workloads as they are run, a workload for each step of a step test.
    #[must_use]
    pub fn planned(&self) -> Vec<PlannedWorkload> {
        if self.job_files.is_empty() {
            let clients = self.routes.iter().map(|route| self.clients_of(route).len()).max().unwrap_or(0);
            self.workloads.iter().flat_map(|spec| workload::planned(spec, clients)).collect()
        } else {
            self.job_files.clone()
        }
    }

    /// The clients of a route, as indices into [`Experiment::clients`]; empty if this process is
    /// the client.
    #[must_use]
    pub fn clients_of(&self, route: &RouteSpec) -> Vec<usize> {
        let Some(group) = &route.clients else { return (0..self.clients.len()).collect() };
        let group = self.groups.iter().find(|known| known.name == *group);
        let names = group.map(|group| group.clients.as_slice()).unwrap_or_default();
        let index = |name: &String| self.clients.iter().position(|client| client.name == *name);
        names.iter().filter_map(index).collect()
    }

    /// The workloads of a route, as indices; `None` if it has all. A route with fewer clients does
    /// not have the steps that need more.
    #[must_use]
    pub fn workloads_of(&self, route: &RouteSpec) -> Option<Vec<usize>> {
        if self.clients.is_empty() {
            return route.workloads.clone();
        }
        let clients = self.clients_of(route).len();
        let fits = |workload: &PlannedWorkload| workload.step.is_none() || workload.clients <= clients;
        let is_own = |index: &usize| route.workloads.as_ref().is_none_or(|own| own.contains(index));
        let planned = self.planned();
        let fitting = planned.iter().enumerate().filter(|(_, it)| fits(it)).map(|(index, _)| index);
        Some(fitting.filter(is_own).collect())
    }

    /// The embedded group, if a route uses one.
    #[must_use]
    pub fn embedded(&self) -> Option<Embedded<'_>> {
        self.routes.iter().find_map(|route| match route.target(self) {
            Target::Embedded { nodes, mem_bytes, addresses } => {
                Some(Embedded { nodes: *nodes, mem_bytes: *mem_bytes, addresses })
            }
            Target::Server(_) | Target::Directory(_) | Target::Kernel(_) | Target::Volume(_) => None,
        })
    }
}

#[cfg(test)]
mod tests;

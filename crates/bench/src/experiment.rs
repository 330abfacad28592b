//! The definition of an experiment: routes, workloads, repeats. It is either built in, or read from
//! a TOML file.

mod file;

use std::fmt;
use std::time::Duration;

use plan::link::Transport;
use record::{Pattern, Procedure};
use serde::Deserialize;

use crate::error::ExperimentError;
use crate::workload::PlannedWorkload;

/// Blocks are whole pages, because each page carries a stamp.
const BLOCK_BYTES_MULTIPLE: u64 = crate::stamps::PAGE_BYTES as u64;
/// The largest block, which is one READ or WRITE.
const BLOCK_BYTES_MAX: u64 = 1 << 20;
/// The maximum size of all blocks in flight together: each has a buffer.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 30;

/// The highest rate of a workload in operations per second. No loop could submit more.
const RATE_MAX: f64 = 1e8;
/// The longest measured time of a repeat, in milliseconds: one hour.
const WINDOW_MS_MAX: u128 = 3_600_000;

/// A route: a name and mount options.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// The name in the table.
    pub name: String,
    /// Mount options, as for `mount -o`.
    #[serde(default)]
    pub options: String,
    /// The server of this route, if routes of the experiment have servers of their own. Such a
    /// route has its own files.
    #[serde(skip)]
    pub target: Option<Target>,
    /// The workloads of this route, as indices; `None` if it has all.
    #[serde(skip)]
    pub workloads: Option<Vec<usize>>,
}

impl RouteSpec {
    /// The server of this route.
    #[must_use]
    pub fn target<'a>(&'a self, experiment: &'a Experiment) -> &'a Target {
        self.target.as_ref().unwrap_or(&experiment.target)
    }
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Deserialize)]
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
}

/// The speeds of an external network, from which limits are computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Links {
    /// The speed of each node's link, in bits per second in each direction.
    pub node_bits_per_s: Option<u64>,
    /// The speed of the client's link.
    pub client_bits_per_s: Option<u64>,
    /// The MTU of the links, which are Ethernet. With an MTU, a limit is what the headers leave for
    /// payload; without one, the full line rate.
    pub mtu: Option<u32>,
}

impl Links {
    /// The maximum throughput of a route over this many nodes in each direction, in 10^9 bytes per
    /// second.
    #[must_use]
    pub fn gbytes_per_s(&self, nodes: usize, transport: Transport) -> Option<f64> {
        let of_nodes = self.node_bits_per_s.map(|bits| bits as f64 * nodes as f64);
        let of_client = self.client_bits_per_s.map(|bits| bits as f64);
        let least = of_nodes.into_iter().chain(of_client).reduce(f64::min)?;
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
    },
    /// An external server: `HOST:/EXPORT`.
    Server(String),
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded { nodes, .. } => {
                write!(out, "embedded group of {nodes} nodes, memory store, loopback")
            }
            Self::Server(server) => out.write_str(server),
        }
    }
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
    /// The time of each try of the calibration.
    pub calibrate: Duration,
}

fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    server::config::size::parse_bytes(&text).map_err(serde::de::Error::custom)
}

fn workload(
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
        rate: None,
    }
}

impl Experiment {
    /// The experiment of a plain `trunkline bench`: the four routes on an embedded group.
    #[must_use]
    pub fn built_in(procedure: Procedure) -> Self {
        const MIB: u64 = 1 << 20;
        let mix = workload("mix-1m", Pattern::Sequential, MIB, 2, (10, 10), 32 * MIB);
        let random_read = workload("randread-4k", Pattern::Random, 4096, 32, (4, 0), 64 * MIB);
        let workloads = if procedure == Procedure::Quick {
            vec![mix, random_read]
        } else {
            vec![
                mix,
                workload("read-64k", Pattern::Sequential, 64 << 10, 16, (4, 0), 64 * MIB),
                workload("write-64k", Pattern::Sequential, 64 << 10, 16, (0, 4), 64 * MIB),
                random_read,
                workload("randwrite-4k", Pattern::Random, 4096, 32, (0, 4), 64 * MIB),
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
            target: None,
            workloads: None,
        };
        Self {
            name: "four routes".into(),
            procedure,
            target: Target::Embedded { nodes: 4, mem_bytes: 2 << 30 },
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
            calibrate: Duration::from_millis(if procedure == Procedure::Thorough { 1000 } else { 200 }),
        }
    }

    /// The workloads as they are run.
    #[must_use]
    pub fn planned(&self) -> Vec<PlannedWorkload> {
        if self.job_files.is_empty() {
            self.workloads.iter().map(PlannedWorkload::from).collect()
        } else {
            self.job_files.clone()
        }
    }

    /// The number of nodes of the embedded group and the size of its memory store, if a route uses
    /// one.
    #[must_use]
    pub fn embedded(&self) -> Option<(u8, u64)> {
        self.routes.iter().find_map(|route| match route.target(self) {
            Target::Embedded { nodes, mem_bytes } => Some((*nodes, *mem_bytes)),
            Target::Server(_) => None,
        })
    }

    fn check(&self) -> std::result::Result<(), ExperimentError> {
        let value = |reason: String| Err(ExperimentError::Value(reason));
        if self.routes.is_empty() {
            return value("no [[route]]: give at least one, with a name and mount options".into());
        }
        if let Target::Embedded { nodes, .. } = self.target
            && !(1..=16).contains(&nodes)
        {
            return value(format!("target.nodes = {nodes}: 1 to 16 fit here"));
        }
        if matches!(self.target, Target::Server(_)) && self.pace_bits_per_s.is_some() {
            return value("pace: only an embedded group can be paced; its nodes pace what they send".into());
        }
        if matches!(self.target, Target::Embedded { .. }) && self.links != Links::default() {
            return value("limits: an embedded group has no links; what loopback carries is measured".into());
        }
        if let Some(fault) = self.links.fault() {
            return value(fault);
        }
        if !(1..=WINDOW_MS_MAX).contains(&self.window.as_millis()) {
            return value(format!("window_ms = {}: 1 to {WINDOW_MS_MAX}", self.window.as_millis()));
        }
        if !(1..=1000).contains(&self.repeats) {
            return value(format!("repeats = {}: 1 to 1000", self.repeats));
        }
        for (index, route) in self.routes.iter().enumerate() {
            if self.routes.iter().take(index).any(|other| other.name == route.name) {
                return value(format!("two routes are called {}", route.name));
            }
        }
        for (index, workload) in self.workloads.iter().enumerate() {
            if self.workloads.iter().take(index).any(|other| other.name == workload.name) {
                return value(format!("two workloads are called {}", workload.name));
            }
        }
        self.workloads.iter().try_for_each(WorkloadSpec::check)
    }
}

impl WorkloadSpec {
    fn check(&self) -> std::result::Result<(), ExperimentError> {
        let reason = if self.block == 0
            || !self.block.is_multiple_of(BLOCK_BYTES_MULTIPLE)
            || self.block > BLOCK_BYTES_MAX
        {
            format!("block = {} bytes: a multiple of 4 KiB, at most 1 MiB", self.block)
        } else if self.file < self.block {
            format!("file = {} bytes: at least one block", self.file)
        } else if !(1..=1024).contains(&self.depth) {
            format!("depth = {}: 1 to 1024", self.depth)
        } else if !(1..=1024).contains(&self.readers.saturating_add(self.writers)) {
            format!("{} readers and {} writers: 1 to 1024 together", self.readers, self.writers)
        } else if u64::from(self.readers + self.writers) * u64::from(self.depth) * self.block
            > IN_FLIGHT_BYTES_MAX
        {
            "more than 4 GiB in flight: lower depth, readers or writers".into()
        } else if let Some(rate) =
            self.rate.filter(|rate| !(rate.is_finite() && *rate > 0.0 && *rate <= RATE_MAX))
        {
            format!("rate = {rate}: operations per second, above 0 and at most {RATE_MAX:e}")
        } else {
            return Ok(());
        };
        Err(ExperimentError::Value(format!("workload {}: {reason}", self.name)))
    }
}

#[cfg(test)]
mod tests;

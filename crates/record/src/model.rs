//! The record and its tree: routes, workloads, and what is counted per path.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    cell::{Cell, LatencyUs},
    environment::{Environment, Experiment},
    limits::Calibration,
    verdict::Comparison,
};

/// The version this build writes and reads. Added fields do not change it; a changed meaning does.
pub const VERSION: u32 = 1;

/// What one experiment measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`].
    pub version: u32,
    /// When the experiment ended, UTC, RFC 3339; see [`crate::rfc3339`].
    pub made_at: String,
    /// Trunkline's version.
    pub trunkline_version: String,
    /// The commit it was built from; absent outside a checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// What was asked for.
    pub experiment: Experiment,
    /// Where it ran.
    pub environment: Environment,
    /// The experiment's options beyond its workloads, by name.
    pub options: BTreeMap<String, String>,
    /// What the machine and the routes can carry at most, as calibrated here.
    pub limits: Vec<Calibration>,
    /// The routes, measured or skipped, in the order in which they were asked for.
    pub routes: Vec<Route>,
    /// Which route is faster, by workload and half.
    #[serde(default)]
    pub verdicts: Vec<Comparison>,
    /// Why these results must not be trusted; empty in a good record.
    #[serde(default)]
    pub failed: Vec<String>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            version: VERSION,
            made_at: String::new(),
            trunkline_version: String::new(),
            commit: None,
            experiment: Experiment::default(),
            environment: Environment::default(),
            options: BTreeMap::new(),
            limits: Vec::new(),
            routes: Vec::new(),
            verdicts: Vec::new(),
            failed: Vec::new(),
        }
    }
}

impl Record {
    /// The route of this name.
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.iter().find(|route| route.name == name)
    }

    /// Notes why these results must not be trusted, once for each reason.
    pub fn fail(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        if !self.failed.contains(&reason) {
            self.failed.push(reason);
        }
    }
}

/// One route: all the paths that one mount uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// Its name: `tcp`, `tcp-mp`, `rdma`, `rdma-mp` or the experiment's own.
    pub name: String,
    /// Why it was not measured; absent where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Its mount options, as after `-o`.
    #[serde(default)]
    pub options: String,
    /// The group's nodes, which `share_by_node` follows.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// The route's paths, which `share_by_path` follows.
    #[serde(default)]
    pub paths: Vec<String>,
    /// What was measured over it.
    #[serde(default)]
    pub workloads: Vec<Workload>,
}

impl Route {
    /// A route that was not measured, and why.
    pub fn skipped(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), skipped: Some(reason.into()), ..Self::default() }
    }

    /// The workload of this name in this half.
    pub fn workload(&self, name: &str, half: Half) -> Option<&Workload> {
        self.workloads.iter().find(|workload| workload.name == name && workload.half() == half)
    }
}

/// One workload over one route, raw or paced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The name of a [`crate::Shape`] of the experiment.
    pub name: String,
    /// The pace it was held to; absent in the raw half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Why it was not measured; absent where it was. A route that was measured in no workload says
    /// so itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// What about these numbers is simulated, shaped or emulated (`shaped links, tbf 1 Gbit/s`);
    /// absent where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<String>,
    /// What its readers reached; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Cell>,
    /// What its writers reached; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Cell>,
    /// How the data were verified; absent where they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// The longest time within a measured window in which no call was completed, in milliseconds:
    /// what a failover cost, where one happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_gap_ms: Option<f64>,
    /// What each path counted meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathCounters>,
    /// What each port of this machine's RDMA devices counted meanwhile, as evidence of where the
    /// traffic went; empty where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortCounters>,
    /// Other counters of both ends.
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub counters: Counters,
}

impl Workload {
    /// Raw, or paced.
    pub fn half(&self) -> Half {
        if self.pace.is_some() { Half::Paced } else { Half::Raw }
    }

    /// The cell of one direction.
    pub fn cell(&self, direction: Direction) -> Option<&Cell> {
        match direction {
            Direction::Read => self.read.as_ref(),
            Direction::Write => self.write.as_ref(),
        }
    }

    /// The cells there are.
    pub fn cells(&self) -> impl Iterator<Item = (Direction, &Cell)> {
        [Direction::Read, Direction::Write].into_iter().filter_map(|it| Some((it, self.cell(it)?)))
    }
}

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the nodes to the client.
    Read,
    /// From the client to the nodes.
    Write,
}

impl fmt::Display for Direction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Direction::Read => "read",
            Direction::Write => "write",
        })
    }
}

/// The two halves of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// As fast as it goes.
    #[default]
    Raw,
    /// Held to a rate per node that the machine can clearly exceed, so that the number of nodes
    /// shows.
    Paced,
}

impl fmt::Display for Half {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Half::Raw => "raw",
            Half::Paced => "paced",
        })
    }
}

/// The pace of the paced half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// What each node may carry in each direction, in 10^9 bits per second.
    pub gbit_per_s_per_node: f64,
}

impl Pace {
    /// The most that `nodes` carry at this pace in one direction, in 10^9 bytes per second.
    pub fn gbytes_per_s(&self, nodes: usize) -> f64 {
        self.gbit_per_s_per_node / 8.0 * nodes as f64
    }
}

/// How the data of a workload were verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Blocks of 4 KiB whose stamp was checked during the timed run.
    pub stamps: u64,
    /// Bytes that were compared whole in the untimed pass.
    pub bytes: u64,
    /// Blocks that were wrong; any fails the record.
    pub wrong: u64,
}

/// What one path counted during a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathCounters {
    /// The path: one of the route's `paths`.
    pub path: String,
    /// Its state at the end: `up`, `suspect`, `down` or `probing`.
    pub state: String,
    /// Calls answered.
    pub calls: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Calls sent again on the same path.
    pub retransmissions: u64,
    /// Calls that were moved away from it.
    pub failovers: u64,
    /// Latencies of its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<LatencyUs>,
}

/// What a port of an RDMA device counted during a workload. A device counts bytes, packets or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortCounters {
    /// Device and port: `mlx5_0/1`.
    pub port: String,
    /// Bytes sent (`port_xmit_data`, which counts words of four bytes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Bytes received (`port_rcv_data`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Packets sent (`port_xmit_packets`, or `sent_pkts` of Soft-RoCE).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_packets: Option<u64>,
    /// Packets received (`port_rcv_packets`, or `rcvd_pkts`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_packets: Option<u64>,
    /// Whatever else it counted, by the kernel's names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, u64>,
}

impl PortCounters {
    /// Adds what was counted in another repeat.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = match (*sum, more) {
                (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
                (one, other) => one.or(other),
            };
        };
        add(&mut self.sent_bytes, other.sent_bytes);
        add(&mut self.received_bytes, other.received_bytes);
        add(&mut self.sent_packets, other.sent_packets);
        add(&mut self.received_packets, other.received_packets);
        for (name, count) in &other.others {
            let sum = self.others.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
    }
}

/// Counters of both ends by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// The client's.
    pub client: BTreeMap<String, u64>,
    /// The servers', summed.
    pub server: BTreeMap<String, u64>,
}

impl Counters {
    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.client.is_empty() && self.server.is_empty()
    }
}

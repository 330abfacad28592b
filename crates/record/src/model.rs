//! The record and its parts: routes, workloads, and counters of paths and ports.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    cell::{Cell, LatencyUs},
    clients::ClientResult,
    environment::{Environment, Experiment},
    limits::Calibration,
    steps::Unit,
    verdict::Comparison,
};

/// The version that this build writes and reads. An added field does not change the version; a
/// changed meaning does.
pub const VERSION: u32 = 1;

/// The results of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`].
    pub version: u32,
    /// When the experiment ended, in UTC as of RFC 3339; see [`crate::rfc3339`].
    pub made_at: String,
    /// Trunkline's version.
    pub trunkline_version: String,
    /// The commit of which Trunkline was built; absent if it was built outside a checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The definition of the experiment.
    pub experiment: Experiment,
    /// Where the experiment ran.
    pub environment: Environment,
    /// The experiment's options beyond its workloads, by name.
    pub options: BTreeMap<String, String>,
    /// The calibrated limits of the machine and of the routes.
    pub limits: Vec<Calibration>,
    /// The routes, measured or skipped, in the order of the experiment.
    pub routes: Vec<Route>,
    /// Which route is faster, by workload and half.
    #[serde(default)]
    pub verdicts: Vec<Comparison>,
    /// The reasons not to trust these results; empty in a good record.
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
    /// The connections of a route on each client: the recorded ones, or in records without them
    /// those that the options of its mount ask for. `None` if it has no mount of NFS, or nobody
    /// knows.
    pub fn connections(&self, route: &Route) -> Option<u32> {
        let is_mounted = match &route.access {
            // Records of fio have neither a mount nor options.
            None => self.experiment.connections > 0,
            Some(access) => {
                !route.options.is_empty() && (access.contains("NFS client") || access.contains(" on nfs"))
            }
        };
        let asked = || route.options.split(',').find_map(|it| it.strip_prefix("nconnect=")?.parse().ok());
        route.connections.or_else(|| is_mounted.then(|| asked().unwrap_or(1)))
    }

    /// The route with this name.
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.iter().find(|route| route.name == name)
    }

    /// Records a reason not to trust these results. Each reason is recorded once.
    pub fn fail(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        if !self.failed.contains(&reason) {
            self.failed.push(reason);
        }
    }
}

/// One route: the paths that one mount uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// The name: `tcp`, `tcp-mp`, `rdma`, `rdma-mp` or one of the experiment's own.
    pub name: String,
    /// Why the route was not measured; absent if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The mount options, as after `-o`.
    #[serde(default)]
    pub options: String,
    /// How the files of a directory are accessed (`O_DIRECT on nfs, by our threads`); absent if
    /// the client library accesses a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// The connections of the route's mount on each client; absent if it has none that are known,
    /// as a directory on a local disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// The nodes of the group, in the order of `share_by_node`.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// The paths of the route, in the order of `share_by_path`.
    #[serde(default)]
    pub paths: Vec<String>,
    /// The results of the workloads.
    #[serde(default)]
    pub workloads: Vec<Workload>,
}

impl Route {
    /// A route that was not measured, with the reason.
    pub fn skipped(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), skipped: Some(reason.into()), ..Self::default() }
    }

    /// The workload with this name in this half.
    pub fn workload(&self, name: &str, half: Half) -> Option<&Workload> {
        self.workloads.iter().find(|workload| workload.name == name && workload.half() == half)
    }
}

/// One workload on one route, raw or paced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The name of a [`crate::Shape`] of the experiment.
    pub name: String,
    /// The step, if the workload is part of a step test; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// The pace; absent in the raw half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Why the workload was not measured; absent if it was. A route that was measured in no
    /// workload has its own reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// What is simulated, shaped or emulated in these results (`shaped links, tbf 1 Gbit/s`);
    /// absent if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<String>,
    /// What a reader must know about these results: that buffered reads measure the page cache;
    /// absent if there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The results of the readers; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Cell>,
    /// The results of the writers; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Cell>,
    /// How the data were verified; absent if they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// The longest time within a measured window in which no call completed, in milliseconds. If a
    /// path failed over meanwhile, this is what the failover cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_gap_ms: Option<f64>,
    /// Each client's part; empty if this machine was the only client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientResult>,
    /// The counters of each path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathCounters>,
    /// The counters of each port of this machine's RDMA devices, as evidence of where the traffic
    /// went; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortCounters>,
    /// Other counters of client and server.
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub counters: Counters,
}

impl Workload {
    /// The half to which the workload belongs.
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

    /// The cells that exist.
    pub fn cells(&self) -> impl Iterator<Item = (Direction, &Cell)> {
        [Direction::Read, Direction::Write].into_iter().filter_map(|it| Some((it, self.cell(it)?)))
    }
}

/// A step of a step test. Each step is a workload of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The name of the workload without the step, which all steps of a test share.
    pub series: String,
    /// The number of clients; 1 if this machine is the only one.
    pub clients: u32,
    /// The number of operations in flight for each reader and writer.
    pub depth: u32,
    /// What the test adds from step to step; absent in records of older builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Unit>,
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
    /// Without a limit on the rate.
    #[default]
    Raw,
    /// With a rate per node that the machine can clearly exceed, so that the number of nodes shows.
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
    /// The maximum rate of each node in each direction, in 10^9 bits per second.
    pub gbit_per_s_per_node: f64,
}

impl Pace {
    /// The maximum throughput of `nodes` at this pace in one direction, in 10^9 bytes per second.
    pub fn gbytes_per_s(&self, nodes: usize) -> f64 {
        self.gbit_per_s_per_node / 8.0 * nodes as f64
    }
}

/// How the data of a workload were verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Blocks of 4 KiB whose stamp was checked during the timed run.
    pub stamps: u64,
    /// Bytes that were compared completely in the untimed pass.
    pub bytes: u64,
    /// The number of wrong blocks; any fails the record.
    pub wrong: u64,
}

/// The counters of one path during a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathCounters {
    /// The path: one of the route's `paths`.
    pub path: String,
    /// Its state at the end: `up`, `suspect`, `down` or `probing`.
    pub state: String,
    /// Calls that were answered.
    pub calls: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Calls sent again on the same path.
    pub retransmissions: u64,
    /// Calls that were moved to another path.
    pub failovers: u64,
    /// The latencies of the path's calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<LatencyUs>,
}

/// The counters of a port of an RDMA device during a workload. A device counts bytes, packets or
/// both.
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
    /// All other counters, by the kernel's names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, u64>,
}

impl PortCounters {
    /// Adds the counters of another repeat.
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

/// Other counters of client and server, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// The client's counters.
    pub client: BTreeMap<String, u64>,
    /// The servers' counters, summed.
    pub server: BTreeMap<String, u64>,
}

impl Counters {
    /// Whether there are no counters.
    pub fn is_empty(&self) -> bool {
        self.client.is_empty() && self.server.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_of_a_route_are_recorded_or_those_of_its_options() {
        let route = |access: Option<&str>, options: &str, connections| Route {
            access: access.map(str::to_owned),
            options: options.into(),
            connections,
            ..Route::default()
        };
        let mut record = Record::default();
        record.experiment.connections = 4;
        for (access, options, recorded, expected) in [
            (None, "vers=4.2,nconnect=4", None, Some(4)),
            (None, "nconnect=4", Some(2), Some(2)),
            (None, "hard", None, Some(1)),
            (Some("O_DIRECT on the kernel's NFS client, by fio"), "nconnect=4", None, Some(4)),
            (Some("O_DIRECT on nfs4, by fio"), "vers=4.2,proto=tcp", None, Some(1)),
            (Some("O_DIRECT on nfs4, by fio, on each client"), "", None, None),
            (Some("O_DIRECT on ext4, by our threads"), "", None, None),
        ] {
            assert_eq!(
                record.connections(&route(access, options, recorded)),
                expected,
                "{options} {access:?}"
            );
        }
        record.experiment.connections = 0;
        assert_eq!(record.connections(&route(None, "", None)), None, "a record of fio");
    }
}

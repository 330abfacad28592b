//! A cell of the comparison: the results of one route in one workload, reading or writing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Latency, LatencyOverTime, stats};

/// The results of one route in one direction of one workload. All values are of the measured time
/// only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Median speed of the repeats, payload only, in 10^9 bytes per second.
    pub gbytes_per_s: f64,
    /// Median operations per second.
    pub iops: f64,
    /// Bootstrap 95 % interval of `gbytes_per_s`.
    pub interval_95: [f64; 2],
    /// Latencies of all repeats together.
    pub latency_us: LatencyUs,
    /// Fraction of the bytes that each node carried, in the order of the route's `nodes`.
    pub share_by_node: Vec<f64>,
    /// Fraction of the bytes that each path carried, in the order of the route's `paths`.
    pub share_by_path: Vec<f64>,
    /// The most that this route can carry in this shape of traffic; absent if it was not
    /// calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_gbytes_per_s: Option<f64>,
    /// `gbytes_per_s` over `limit_gbytes_per_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_share: Option<f64>,
    /// The most that the machine can carry in this shape of traffic, on any route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_limit_gbytes_per_s: Option<f64>,
    /// `gbytes_per_s` over `machine_limit_gbytes_per_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_limit_share: Option<f64>,
    /// The limit that binds the cell, and the evidence.
    pub binding: Binding,
    /// CPU time per operation.
    pub cpu_us_per_op: CpuPerOp,
    /// CPU time per byte of payload.
    #[serde(default)]
    pub cpu_ns_per_byte: CpuPerByte,
    /// Payload bytes of all repeats.
    #[serde(default)]
    pub bytes: u64,
    /// Operations of all repeats.
    #[serde(default)]
    pub ops: u64,
    /// When the first worker ran out of work, in seconds since the start; absent in timed
    /// workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_done_s: Option<f64>,
    /// When the last worker ran out of work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_done_s: Option<f64>,
    /// Jain's fairness index of `share_by_node`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain_by_node: Option<f64>,
    /// Whether the last rounds were steady; absent if the procedure does not wait for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady: Option<bool>,
    /// Each repeat, in the order in which they ran.
    #[serde(default)]
    pub repeats: Vec<Repeat>,
    /// The bytes of each repeat over time; absent in records of older builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// The latencies of each repeat over time; absent in records of older builds, and if jobs end
    /// by their sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_over_time: Option<LatencyOverTime>,
    /// All latencies, as written by [`Latency::to_text`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub latency_histogram_ns: String,
}

impl Cell {
    /// A cell with the speed, interval, latencies and sums of its repeats; the other fields are
    /// empty.
    pub fn of(repeats: Vec<Repeat>, latency: &Latency, seed: u64) -> Self {
        let speeds: Vec<f64> = repeats.iter().map(|repeat| repeat.gbytes_per_s).collect();
        let rates: Vec<f64> = repeats.iter().map(|repeat| repeat.iops).collect();
        Self {
            gbytes_per_s: stats::median(&speeds).unwrap_or_default(),
            iops: stats::median(&rates).unwrap_or_default(),
            interval_95: stats::interval_95(&speeds, seed).unwrap_or_default(),
            latency_us: latency.summary(),
            latency_histogram_ns: latency.to_text(),
            bytes: repeats.iter().map(|repeat| repeat.bytes).sum(),
            ops: repeats.iter().map(|repeat| repeat.ops).sum(),
            repeats,
            ..Self::default()
        }
    }

    /// Sets the shares and Jain's index from the bytes that each node and each path carried.
    pub fn set_shares(&mut self, bytes_by_node: &[u64], bytes_by_path: &[u64]) {
        self.share_by_node = stats::shares(bytes_by_node);
        self.share_by_path = stats::shares(bytes_by_path);
        self.jain_by_node = stats::jain(&self.share_by_node);
    }

    /// Sets the limit of this route, and the share of the limit that was reached.
    pub fn set_limit(&mut self, limit_gbytes_per_s: f64) {
        self.limit_gbytes_per_s = Some(limit_gbytes_per_s);
        self.limit_share = share_of(self.gbytes_per_s, limit_gbytes_per_s);
    }

    /// Sets the limit of the whole machine, and the share of the limit that was reached.
    pub fn set_machine_limit(&mut self, limit_gbytes_per_s: f64) {
        self.machine_limit_gbytes_per_s = Some(limit_gbytes_per_s);
        self.machine_limit_share = share_of(self.gbytes_per_s, limit_gbytes_per_s);
    }

    /// Sets the CPU time per operation and per byte from the CPU time of this many operations and
    /// bytes. If reads and writes ran at the same time, these are the operations and bytes of both,
    /// because their CPU times cannot be told apart. The server's CPU time is `None` if the server
    /// is external and its time unknown.
    pub fn set_cpu(&mut self, client: Duration, server: Option<Duration>, ops: u64, bytes: u64) {
        let over = |time: Duration, amount: u64, scale: f64| match amount {
            0 => 0.0,
            amount => time.as_secs_f64() * scale / amount as f64,
        };
        let per_op = |time| over(time, ops, 1e6);
        let per_byte = |time| over(time, bytes, 1e9);
        self.cpu_us_per_op = CpuPerOp { client: per_op(client), server: server.map(per_op) };
        self.cpu_ns_per_byte = CpuPerByte { client: per_byte(client), server: server.map(per_byte) };
    }

    /// The speed of each repeat in GB/s, in the order in which they ran.
    pub fn speeds(&self) -> Vec<f64> {
        self.repeats.iter().map(|repeat| repeat.gbytes_per_s).collect()
    }
}

fn share_of(value: f64, limit: f64) -> Option<f64> {
    (limit > 0.0).then_some(value / limit)
}

/// Latency percentiles in microseconds, from the intended start of a call to its complete reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyUs {
    /// Half of the calls took at most this long.
    pub p50: f64,
    /// 90 % of the calls took at most this long.
    pub p90: f64,
    /// 99 % of the calls took at most this long.
    pub p99: f64,
    /// 99.9 % of the calls took at most this long.
    pub p99_9: f64,
    /// 99.99 % of the calls took at most this long; absent with fewer than 10,000 calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_99: Option<f64>,
    /// The latency of the slowest call.
    pub max: f64,
    /// The mean latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
}

/// One repeat of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Speed in 10^9 bytes per second.
    pub gbytes_per_s: f64,
    /// Operations per second.
    pub iops: f64,
    /// The measured time in seconds.
    pub seconds: f64,
    /// Bytes of payload.
    pub bytes: u64,
    /// The number of operations.
    pub ops: u64,
    /// When the repeat began, in seconds since the experiment's start. This shows how the repeats
    /// were interleaved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_s: Option<f64>,
    /// The median latency in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// The 99th latency percentile in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
}

/// The payload of each repeat over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// The length of an interval in milliseconds.
    pub interval_ms: f64,
    /// Each repeat, in the order in which they ran.
    pub repeats: Vec<RepeatThroughput>,
}

/// The payload of one repeat over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RepeatThroughput {
    /// When the measured time began, in seconds since the experiment's start.
    pub began_s: f64,
    /// The bytes that were completed in each interval of the measured time.
    pub bytes: Vec<u64>,
}

impl Repeat {
    /// A repeat that moved this many bytes in this many operations within a time.
    pub fn of(bytes: u64, ops: u64, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        let rate = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        Self { gbytes_per_s: rate(bytes) / 1e9, iops: rate(ops), seconds, bytes, ops, ..Self::default() }
    }
}

/// The limit that binds a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The stage whose limit was reached first.
    pub stage: Stage,
    /// The measurement that shows it, as a short phrase: `both cores at 99 %`.
    pub evidence: String,
}

impl Binding {
    /// A binding limit and its evidence.
    pub fn new(stage: Stage, evidence: impl Into<String>) -> Self {
        Self { stage, evidence: evidence.into() }
    }
}

/// A stage on the way from the caller's memory to the store. Unknown names, from newer builds, are
/// kept as [`Stage::Other`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// A network link at its rate.
    Link,
    /// The pace that the experiment set.
    Pace,
    /// The rate that the experiment requested.
    Rate,
    /// All cores of a machine that client and servers share.
    Cpu,
    /// The CPU of one node.
    NodeCpu,
    /// The client's CPU.
    ClientCpu,
    /// One path of several.
    Path,
    /// The calls in flight: depth over latency (Little's law).
    Slots,
    /// The store.
    Store,
    /// A drive.
    Drive,
    /// PCI Express.
    Pcie,
    /// Memory bandwidth.
    Memory,
    /// No stage was seen at its limit.
    #[default]
    Unknown,
    /// A stage that this build does not know.
    #[serde(untagged)]
    Other(String),
}

impl Stage {
    /// The stage as shown to a reader.
    pub fn label(&self) -> &str {
        match self {
            Stage::Link => "link",
            Stage::Pace => "pace",
            Stage::Rate => "rate",
            Stage::Cpu => "CPU",
            Stage::NodeCpu => "node CPU",
            Stage::ClientCpu => "client CPU",
            Stage::Path => "one path",
            Stage::Slots => "slots",
            Stage::Store => "store",
            Stage::Drive => "drive",
            Stage::Pcie => "PCIe",
            Stage::Memory => "memory",
            Stage::Unknown => "unknown",
            Stage::Other(name) => name,
        }
    }
}

/// CPU time per operation in microseconds. If reads and writes run at the same time, it is the CPU
/// time of both divided by the operations of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuPerOp {
    /// Of the client.
    pub client: f64,
    /// Of all servers together; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<f64>,
}

/// CPU time per byte of payload in nanoseconds, counted as in [`CpuPerOp`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuPerByte {
    /// Of the client.
    pub client: f64,
    /// Of all servers together; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_takes_medians_and_sums_from_its_repeats() {
        let repeat = |bytes: u64| Repeat::of(bytes, bytes / 1_000_000, Duration::from_secs(2));
        let mut latency = Latency::new();
        latency.record_ns(2_000_000);
        let mut cell =
            Cell::of(vec![repeat(2_000_000_000), repeat(6_000_000_000), repeat(4_000_000_000)], &latency, 1);
        assert_eq!(
            (cell.gbytes_per_s, cell.iops, cell.bytes, cell.ops),
            (2.0, 2000.0, 12_000_000_000, 12_000)
        );
        assert_eq!(cell.speeds(), [1.0, 3.0, 2.0]);
        cell.set_limit(4.0);
        assert_eq!(cell.limit_share, Some(0.5));
        cell.set_shares(&[3, 1], &[2, 1, 1]);
        assert_eq!((cell.share_by_node[0], cell.jain_by_node), (0.75, Some(0.8)));
        cell.set_cpu(Duration::from_secs(12), None, cell.ops, cell.bytes);
        assert_eq!((cell.cpu_us_per_op.client, cell.cpu_ns_per_byte.client), (1000.0, 1.0));
        assert_eq!(cell.cpu_us_per_op.server, None);
    }

    #[test]
    fn nothing_measured_gives_zeros_and_no_panic() {
        let mut cell = Cell::of(vec![], &Latency::new(), 1);
        cell.set_limit(0.0);
        cell.set_cpu(Duration::from_secs(1), Some(Duration::ZERO), 0, 0);
        assert_eq!((cell.gbytes_per_s, cell.limit_share, cell.cpu_us_per_op.client), (0.0, None, 0.0));
        assert_eq!(Repeat::of(1, 1, Duration::ZERO).gbytes_per_s, 0.0);
    }

    #[test]
    fn a_stage_this_build_does_not_know_survives() {
        let stage: Stage = serde_json::from_str("\"switch_buffer\"").expect("any name is a stage");
        assert_eq!(stage, Stage::Other("switch_buffer".into()));
        assert_eq!(serde_json::to_string(&stage).expect("a name"), "\"switch_buffer\"");
        assert_eq!(serde_json::to_string(&Stage::NodeCpu).expect("a name"), "\"node_cpu\"");
        assert_eq!(serde_json::from_str::<Stage>("\"node_cpu\"").expect("a name"), Stage::NodeCpu);
    }
}

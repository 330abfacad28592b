//! Where and how an experiment ran: the machine, the procedure and the workloads' shapes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The machine an experiment ran on. It names no host, user or address, so that a record can be
/// shown around.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Kernel name and release: `Linux 6.18.44`.
    pub kernel: String,
    /// Machine architecture: `x86_64`.
    pub arch: String,
    /// The processor's own name.
    pub cpu_model: String,
    /// How many CPUs the process may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The system's default TCP congestion control.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub congestion: String,
    /// Congestion controls that the kernel offers.
    pub congestion_offered: Vec<String>,
    /// The command that made the record, as it was typed.
    pub cmdline: String,
    /// What emulates this machine (`QEMU TCG`); absent on real or hardware-virtualized processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Its name: that of the file, or `four-routes` for the built-in one.
    pub name: String,
    /// How thorough it was.
    #[serde(default)]
    pub procedure: Procedure,
    /// What was measured: `embedded group of 4 nodes, memory store, loopback`.
    #[serde(default)]
    pub target: String,
    /// Repeats of each cell.
    #[serde(default)]
    pub repeats: u32,
    /// Connections of each route: the same for all, or the comparison would be unfair.
    #[serde(default)]
    pub connections: u32,
    /// The workloads, in the order in which a report shows them.
    #[serde(default)]
    pub workloads: Vec<Shape>,
}

/// How thorough an experiment was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Procedure {
    /// `--quick`: fewer workloads and short repeats.
    Quick,
    /// Neither quick nor thorough.
    #[default]
    Standard,
    /// `--thorough`: until steady, all calibrations.
    Thorough,
}

impl fmt::Display for Procedure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Procedure::Quick => "quick",
            Procedure::Standard => "standard",
            Procedure::Thorough => "thorough",
        })
    }
}

/// The shape of a workload's traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Its name, by which routes and verdicts refer to it: `mix-1m`.
    pub name: String,
    /// Sequential or random.
    #[serde(default)]
    pub pattern: Pattern,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Operations in flight for each reader and writer.
    pub depth: u32,
    /// Readers that run at once, each with a file of its own.
    pub readers: u32,
    /// Writers that run at once, each with a file of its own.
    pub writers: u32,
    /// Bytes of each file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Operations per second that all readers and writers together start, whether or not the last
    /// are done; absent where each operation starts as soon as another is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_ops_per_s: Option<f64>,
    /// What else a reader of the report should know: `fio job files/mix.fio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// In which order a workload's operations touch their file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One block after the other.
    #[default]
    Sequential,
    /// Any block next.
    Random,
}

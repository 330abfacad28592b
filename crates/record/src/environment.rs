//! Where and how an experiment ran: the machine, the procedure, and the shapes of the workloads.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The machine on which an experiment ran. It contains no name of a host or user and no address, so
/// that a record can be published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Kernel name and release: `Linux 6.18.44`.
    pub kernel: String,
    /// Machine architecture: `x86_64`.
    pub arch: String,
    /// The processor's model name.
    pub cpu_model: String,
    /// The number of CPUs that the process may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The system's default TCP congestion control.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub congestion: String,
    /// Congestion controls that the kernel offers.
    pub congestion_offered: Vec<String>,
    /// The command that made the record, as typed.
    pub cmdline: String,
    /// What emulates this machine (`QEMU TCG`); absent on real or hardware-virtualized processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
}

/// The definition of the experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The name: that of the file, or `four-routes` for the built-in experiment.
    pub name: String,
    /// The procedure.
    #[serde(default)]
    pub procedure: Procedure,
    /// The server under test: `embedded group of 4 nodes, memory store, loopback`.
    #[serde(default)]
    pub target: String,
    /// The number of repeats of each cell.
    #[serde(default)]
    pub repeats: u32,
    /// The greatest number of connections of a route that our client mounts; see
    /// [`crate::Record::connections`] for that of each.
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
    /// The name by which routes and verdicts refer to the shape: `mix-1m`.
    pub name: String,
    /// Sequential or random.
    #[serde(default)]
    pub pattern: Pattern,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Operations in flight for each reader and writer.
    pub depth: u32,
    /// The number of readers that run at once, each with its own file.
    pub readers: u32,
    /// The number of writers that run at once, each with its own file.
    pub writers: u32,
    /// The number of jobs that both read and write.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mixed: u32,
    /// The share of reads among the operations of those jobs, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_percent: Option<u8>,
    /// Bytes of each file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// The operations per second that all readers and writers together start, whether or not
    /// earlier ones have finished; absent if each operation starts as soon as another has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_ops_per_s: Option<f64>,
    /// Anything else that a reader of the report should know: `fio job files/mix.fio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

// serde gives the field by reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The order in which a workload accesses its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One block after the other.
    #[default]
    Sequential,
    /// The blocks in random order.
    Random,
}

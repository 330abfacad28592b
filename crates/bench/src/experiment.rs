//! What is to be measured: routes, workloads, repeats. Built in for a first look, or from a TOML file.

use std::path::Path;
use std::time::Duration;

use record::{Pattern, Procedure};
use serde::Deserialize;

use crate::error::{Error, ExperimentError, Result};

/// Every block starts and ends with whole pages, which carry the stamps.
const BLOCK_BYTES_MULTIPLE: u64 = crate::stamps::PAGE_BYTES as u64;
/// The largest block: one READ or WRITE.
const BLOCK_BYTES_MAX: u64 = 1 << 20;
/// Blocks in flight, over all jobs, at most: each has a buffer.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 30;

/// A route: a name and mount options.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// How the table calls it.
    pub name: String,
    /// Mount options, as `mount -o` takes them.
    #[serde(default)]
    pub options: String,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// How the table calls it.
    pub name: String,
    /// Sequential or random.
    #[serde(default)]
    pub pattern: Pattern,
    /// Bytes of one operation: `"1MiB"`.
    #[serde(deserialize_with = "size")]
    pub block: u64,
    /// Operations in flight for each reader and writer.
    pub depth: u32,
    /// Readers that run at once, each with a file of its own.
    #[serde(default)]
    pub readers: u32,
    /// Writers that run at once, each with a file of its own.
    #[serde(default)]
    pub writers: u32,
    /// Bytes of each file: `"64MiB"`.
    #[serde(deserialize_with = "size")]
    pub file: u64,
}

/// What is measured against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A group of nodes in this process, on loopback.
    Embedded {
        /// How many nodes.
        nodes: u8,
        /// The memory store's bound.
        mem_bytes: u64,
    },
    /// Somebody's server: `HOST:/EXPORT`.
    Server(String),
}

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// Quick, standard or thorough.
    pub procedure: Procedure,
    /// What is measured against.
    pub target: Target,
    /// The routes, in the order of the table.
    pub routes: Vec<RouteSpec>,
    /// The workloads.
    pub workloads: Vec<WorkloadSpec>,
    /// Repeats of each cell.
    pub repeats: u32,
    /// The measured time of one repeat.
    pub window: Duration,
    /// Time before it that only warms up.
    pub warm: Duration,
    /// Pace of each node in the paced half, in bits per second; absent: no such half.
    pub pace_bits_per_s: Option<u64>,
    /// Measured time of a paced repeat of large blocks; small ones need less, as a window holds more of them.
    pub paced_window: Duration,
    /// Speed of the link to somebody's server, in bits per second: its limit.
    pub link_bits_per_s: Option<u64>,
    /// Time of each try of the calibration.
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
    WorkloadSpec { name: name.into(), pattern, block, depth, readers: jobs.0, writers: jobs.1, file }
}

impl Experiment {
    /// What `trunkline bench` measures by itself: the four routes on an embedded group.
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
        let route = |name: &str, options: &str| RouteSpec { name: name.into(), options: options.into() };
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
            repeats,
            window: Duration::from_millis(window),
            warm: Duration::from_millis(60),
            pace_bits_per_s: Some(1_000_000_000),
            paced_window: Duration::from_millis(paced_window),
            link_bits_per_s: None,
            calibrate: Duration::from_millis(if procedure == Procedure::Thorough { 1000 } else { 200 }),
        }
    }

    /// Reads an experiment file; docs/EXPERIMENTS.md describes it.
    ///
    /// # Errors
    /// [`Error::Experiment`] with the place and the reason.
    pub fn from_file(path: &Path, procedure: Procedure) -> Result<Self> {
        let wrap = |cause| Error::Experiment { file: path.display().to_string(), cause };
        let text = std::fs::read_to_string(path).map_err(|error| wrap(error.into()))?;
        Self::from_toml(&text, procedure).map_err(wrap)
    }

    /// Reads an experiment from TOML.
    ///
    /// # Errors
    /// The place and the reason.
    pub fn from_toml(text: &str, procedure: Procedure) -> std::result::Result<Self, ExperimentError> {
        let file: File = toml::from_str(text)?;
        let base = Self::built_in(procedure);
        let value = |reason: String| ExperimentError::Value(reason);
        let rate = |text: Option<String>| {
            text.map(|text| server::config::size::parse_rate(&text).map(|bytes| bytes * 8)).transpose()
        };
        let target = match (file.target.server, file.target.nodes) {
            (Some(server), None) => Target::Server(server),
            (None, nodes) => {
                let mem = file.target.mem.unwrap_or_else(|| "2GiB".into());
                let mem_bytes =
                    server::config::size::parse_bytes(&mem).map_err(|error| value(error.to_string()))?;
                Target::Embedded { nodes: nodes.unwrap_or(4), mem_bytes }
            }
            (Some(_), Some(_)) => {
                return Err(value("target: give either `server` or `nodes`, not both".into()));
            }
        };
        let experiment = Self {
            name: file.name.unwrap_or_else(|| "experiment".into()),
            target,
            routes: file.route,
            workloads: if file.workload.is_empty() { base.workloads.clone() } else { file.workload },
            repeats: file.repeats.unwrap_or(base.repeats),
            window: file.window_ms.map_or(base.window, Duration::from_millis),
            paced_window: file.window_ms.map_or(base.paced_window, Duration::from_millis),
            pace_bits_per_s: rate(file.pace).map_err(|error| value(format!("pace: {error}")))?,
            link_bits_per_s: rate(file.limits.link)
                .map_err(|error| value(format!("limits.link: {error}")))?,
            ..base
        };
        experiment.check()?;
        Ok(experiment)
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
        if !(1..=1000).contains(&self.repeats) {
            return value(format!("repeats = {}: 1 to 1000", self.repeats));
        }
        for (index, route) in self.routes.iter().enumerate() {
            if self.routes.iter().take(index).any(|other| other.name == route.name) {
                return value(format!("two routes are called {}", route.name));
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
        } else if !(1..=1024).contains(&(self.readers + self.writers)) {
            format!("{} readers and {} writers: 1 to 1024 together", self.readers, self.writers)
        } else if u64::from(self.readers + self.writers) * u64::from(self.depth) * self.block
            > IN_FLIGHT_BYTES_MAX
        {
            "more than 4 GiB in flight: lower depth, readers or writers".into()
        } else {
            return Ok(());
        };
        Err(ExperimentError::Value(format!("workload {}: {reason}", self.name)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    #[serde(default)]
    target: TargetTable,
    #[serde(default)]
    route: Vec<RouteSpec>,
    #[serde(default)]
    workload: Vec<WorkloadSpec>,
    repeats: Option<u32>,
    window_ms: Option<u64>,
    pace: Option<String>,
    #[serde(default)]
    limits: LimitsTable,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct TargetTable {
    server: Option<String>,
    nodes: Option<u8>,
    mem: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LimitsTable {
    link: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_experiment_file_is_understood() {
        let experiment = Experiment::from_toml(
            r#"
            name = "our array"
            repeats = 4
            window_ms = 500
            target.server = "10.0.0.1:/data"
            limits.link = "25Gbit/s"
            [[route]]
            name = "tcp-mp"
            options = "nconnect=8,remoteports=10.0.0.1-10.0.0.4"
            [[workload]]
            name = "backup"
            block = "1MiB"
            depth = 8
            writers = 4
            file = "1GiB"
            "#,
            Procedure::Standard,
        )
        .unwrap();
        assert_eq!(experiment.target, Target::Server("10.0.0.1:/data".into()));
        assert_eq!(experiment.link_bits_per_s, Some(25_000_000_000));
        assert_eq!(experiment.workloads[0].file, 1 << 30);
        assert_eq!((experiment.repeats, experiment.routes.len()), (4, 1));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let route = "[[route]]\nname = \"tcp\"\n";
        for (text, needle) in [
            ("", "no [[route]]"),
            ("colour = 1", "colour"),
            ("repeats = 0\n[[route]]\nname = \"tcp\"", "repeats = 0"),
            (&format!("{route}{route}"), "two routes"),
            (&format!("pace = \"1Gbit/s\"\ntarget.server = \"a:/b\"\n{route}"), "pace"),
            (&format!("target.nodes = 99\n{route}"), "nodes = 99"),
            (
                &format!("{route}[[workload]]\nname='w'\nblock='5000'\ndepth=1\nreaders=1\nfile='1MiB'"),
                "block = 5000",
            ),
            (
                &format!("{route}[[workload]]\nname='w'\nblock='4KiB'\ndepth=0\nreaders=1\nfile='1MiB'"),
                "depth = 0",
            ),
            (
                &format!("{route}[[workload]]\nname='w'\nblock='4KiB'\ndepth=1\nfile='1MiB'"),
                "0 readers and 0 writers",
            ),
        ] {
            let error = Experiment::from_toml(text, Procedure::Standard).unwrap_err().to_string();
            assert!(error.contains(needle), "{text}: {error}");
        }
    }

    #[test]
    fn the_built_in_experiments_are_sound() {
        for procedure in [Procedure::Quick, Procedure::Standard, Procedure::Thorough] {
            Experiment::built_in(procedure).check().unwrap();
        }
    }
}

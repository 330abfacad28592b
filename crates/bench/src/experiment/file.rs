//! Experiment files: TOML, as described in docs/EXPERIMENTS.md. A missing value is that of the
//! built-in experiment.

use std::path::Path;
use std::time::Duration;

use record::Procedure;
use serde::Deserialize;

use super::{ClientGroup, Experiment, Links, RouteSpec, Target, WorkloadSpec};
use crate::clients::ClientSpec;
use crate::error::{Error, ExperimentError, Result};

impl Experiment {
    /// Reads an experiment file, see docs/EXPERIMENTS.md.
    ///
    /// # Errors
    /// [`Error::Experiment`] with the position and the reason.
    pub fn from_file(path: &Path, procedure: Procedure) -> Result<Self> {
        let wrap = |cause| Error::Experiment { file: path.display().to_string(), cause };
        let text = std::fs::read_to_string(path).map_err(|error| wrap(error.into()))?;
        Self::from_toml(&text, procedure).map_err(wrap)
    }

    /// Reads an experiment from TOML.
    ///
    /// # Errors
    /// The position and the reason.
    pub fn from_toml(text: &str, procedure: Procedure) -> std::result::Result<Self, ExperimentError> {
        let file: File = toml::from_str(text)?;
        let base = Self::built_in(procedure);
        let value = |reason: String| ExperimentError::Value(reason);
        let rate = |key: &str, text: Option<String>| {
            let parsed = text.map(|text| server::config::size::parse_rate(&text)).transpose();
            let parsed = parsed.map_err(|error| value(format!("{key}: {error}")))?;
            match parsed {
                Some(0) => Err(value(format!("{key}: more than nothing"))),
                other => Ok(other.map(|bytes_per_s| bytes_per_s.saturating_mul(8))),
            }
        };
        let addresses = file.target.addresses;
        let target = match (file.target.server, file.target.nodes) {
            (Some(_), None) if file.target.mem.is_some() => {
                return Err(value("target.mem: only an embedded group has a memory store to size".into()));
            }
            (Some(_), None) if !addresses.is_empty() => {
                return Err(value(
                    "target.addresses: only the nodes of an embedded group listen on them".into(),
                ));
            }
            (Some(server), None) => Target::Server(server),
            (None, nodes) => {
                let mem = file.target.mem.unwrap_or_else(|| "2GiB".into());
                let mem_bytes =
                    server::config::size::parse_bytes(&mem).map_err(|error| value(error.to_string()))?;
                let of_addresses = u8::try_from(addresses.len()).ok().filter(|count| *count > 0);
                Target::Embedded { nodes: nodes.or(of_addresses).unwrap_or(4), mem_bytes, addresses }
            }
            (Some(_), Some(_)) => {
                return Err(value("target: give either `server` or `nodes`, not both".into()));
            }
        };
        let experiment = Self {
            name: file.name.unwrap_or_else(|| "experiment".into()),
            target,
            clients: file
                .clients
                .iter()
                .map(|text| text.parse::<ClientSpec>())
                .collect::<std::result::Result<_, _>>()
                .map_err(value)?,
            groups: file.client_group,
            routes: file.route,
            workloads: if file.workload.is_empty() { base.workloads.clone() } else { file.workload },
            repeats: file.repeats.unwrap_or(base.repeats),
            window: file.window_ms.map_or(base.window, Duration::from_millis),
            paced_window: file.window_ms.map_or(base.paced_window, Duration::from_millis),
            pace_bits_per_s: rate("pace", file.pace)?,
            links: Links {
                node_bits_per_s: rate("limits.link", file.limits.link)?,
                client_bits_per_s: rate("limits.client_link", file.limits.client_link)?,
                mtu: file.limits.mtu,
            },
            ..base
        };
        experiment.check()?;
        Ok(experiment)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    #[serde(default)]
    target: TargetTable,
    #[serde(default)]
    clients: Vec<String>,
    #[serde(default)]
    client_group: Vec<ClientGroup>,
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
    #[serde(default)]
    addresses: Vec<std::net::IpAddr>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LimitsTable {
    link: Option<String>,
    client_link: Option<String>,
    mtu: Option<u32>,
}

//! Experiment files: TOML, as described in docs/EXPERIMENTS.md. A missing value is that of the
//! built-in experiment.

use std::path::Path;
use std::time::Duration;

use record::Procedure;
use serde::Deserialize;

use super::{ClientGroup, DirectoryChoice, EngineChoice, Experiment, Links, RouteSpec, Target, WorkloadSpec};
use crate::clients::ClientSpec;
use crate::error::{Error, ExperimentError, Result};
use crate::targets;

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
            routes: file
                .route
                .into_iter()
                .map(RouteTable::into_spec)
                .collect::<std::result::Result<_, _>>()
                .map_err(value)?,
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
            directories: DirectoryChoice { engine: file.engine, direct: file.direct.unwrap_or(true) },
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
    route: Vec<RouteTable>,
    #[serde(default)]
    workload: Vec<WorkloadSpec>,
    repeats: Option<u32>,
    window_ms: Option<u64>,
    pace: Option<String>,
    #[serde(default)]
    limits: LimitsTable,
    #[serde(default)]
    engine: EngineChoice,
    direct: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteTable {
    name: String,
    #[serde(default)]
    options: String,
    clients: Option<String>,
    target: Option<String>,
    engine: Option<EngineChoice>,
    direct: Option<bool>,
}

impl RouteTable {
    fn into_spec(self) -> std::result::Result<RouteSpec, String> {
        let Self { name, mut options, clients, target, engine, direct } = self;
        let parsed = target.as_deref().map(targets::parse).transpose();
        let parsed = parsed.map_err(|cause| format!("route {name}: target: {cause}"))?;
        if let Some(own) = parsed.as_ref().map(|it| it.options.as_str()).filter(|own| !own.is_empty()) {
            options = format!("{own},{options}").trim_end_matches(',').to_owned();
        }
        let target = parsed.map(|parsed| parsed.target);
        Ok(RouteSpec { name, options, clients, target, engine, direct, workloads: None })
    }
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

//! The TOML form of a configuration, and its errors: file, line, what is wrong, what to do.

use super::ListenAddress;
use super::{
    ANONYMOUS_ID, Config, ExportConfig, LEASE, Limits, MetricsConfig, Network, NfsVersions, NodeConfig,
    StoreConfig, WORKERS, network, size,
};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;
use transport::busy::BUSY_POLL_DEFAULT;

/// An error in a configuration. It displays as DESIGN has errors: a sentence, the cause, what to
/// try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<String>,
    line: Option<usize>,
    cause: String,
    advice: String,
}

impl ConfigError {
    pub(super) fn without_line(cause: String, advice: &str) -> Self {
        Self { file: None, line: None, cause, advice: advice.to_owned() }
    }

    pub(super) fn unreadable(file: String, error: &std::io::Error) -> Self {
        let cause = format!("it cannot be opened: {error}");
        Self { file: Some(file), line: None, cause, advice: "check the path after -c".to_owned() }
    }

    /// A short sentence that says what failed.
    #[must_use]
    pub fn sentence(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("cannot use the configuration {file}, line {line}"),
            (Some(file), None) => format!("cannot use the configuration {file}"),
            (None, _) => "cannot serve like this".to_owned(),
        }
    }

    /// The cause.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// What to do.
    #[must_use]
    pub fn advice(&self) -> &str {
        &self.advice
    }

    /// The line at fault, counted from 1.
    #[must_use]
    pub const fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  cause: {}\n  try:   {}", self.sentence(), self.cause, self.advice)
    }
}

impl std::error::Error for ConfigError {}

/// A value that is written as text and parsed by our own parser.
fn text<'de, D, T, E>(deserializer: D, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    E: fmt::Display,
{
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(D::Error::custom)
}

#[derive(Debug, Clone, Copy)]
struct Bytes(u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, size::parse_bytes).map(Self)
    }
}

#[derive(Debug, Clone, Copy)]
struct Rate(u64);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, size::parse_rate).map(Self)
    }
}

/// The clients that one entry of `allow` stands for.
struct Clients(Vec<Network>);

impl<'de> Deserialize<'de> for Clients {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        network::clients(&text).map(Self).map_err(D::Error::custom)
    }
}

struct Versions(NfsVersions);

impl<'de> Deserialize<'de> for Versions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        NfsVersions::of_names(names.iter().map(String::as_str)).map(Self).map_err(D::Error::custom)
    }
}

struct Listen(ListenAddress);

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| text.parse();
        text(deserializer, parse).map(Self)
    }
}

fn with_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let parse = |text: &str| transport::parse_with_port(text).map_err(|error| error.to_string());
    text(deserializer, parse)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    node: Vec<Node>,
    #[serde(default)]
    export: Vec<Spanned<Export>>,
    loops: Option<usize>,
    workers: Option<usize>,
    #[serde(default)]
    rpcbind: bool,
    group: Option<PathBuf>,
    versions: Option<Versions>,
    lease_s: Option<u64>,
    #[serde(default = "yes")]
    nlm: bool,
    #[serde(default = "yes")]
    layouts: bool,
    congestion: Option<String>,
    busy_poll_us: Option<u64>,
    #[serde(default)]
    limits: LimitsSection,
    metrics: Option<MetricsSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsSection {
    #[serde(deserialize_with = "with_port")]
    listen: SocketAddr,
    token: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    name: Option<String>,
    listen: Vec<Listen>,
    pace: Option<Rate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Export {
    path: String,
    mem: Option<Bytes>,
    dir: Option<PathBuf>,
    state: Option<PathBuf>,
    #[serde(default)]
    server_groups: bool,
    #[serde(default)]
    rw: bool,
    #[serde(default = "yes")]
    root_squash: bool,
    #[serde(default)]
    all_squash: bool,
    #[serde(default = "anonymous")]
    anonuid: u32,
    #[serde(default = "anonymous")]
    anongid: u32,
    /// Without `allow` no client may connect: nothing is open by default.
    #[serde(default)]
    allow: Vec<Clients>,
    #[serde(default)]
    secure: bool,
    /// Without it they are given where nobody but the server changes the files: in memory.
    delegations: Option<bool>,
    fsid: Option<u32>,
    owner_uid: Option<u32>,
    owner_gid: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LimitsSection {
    connections: Option<usize>,
    queued: Option<Bytes>,
    held: Option<Bytes>,
    partial_record_ms: Option<u64>,
    stall_ms: Option<u64>,
}

const fn yes() -> bool {
    true
}

const fn anonymous() -> u32 {
    ANONYMOUS_ID
}

impl LimitsSection {
    fn resolve(&self) -> Limits {
        let default = Limits::default();
        let size = |bytes: Option<Bytes>| bytes.and_then(|bytes| usize::try_from(bytes.0).ok());
        Limits {
            connections_max: self.connections.unwrap_or(default.connections_max),
            queued_bytes_max: size(self.queued).unwrap_or(default.queued_bytes_max),
            held_bytes_max: size(self.held).unwrap_or(default.held_bytes_max),
            partial_record_ms_max: self.partial_record_ms.unwrap_or(default.partial_record_ms_max),
            stall_ms_max: self.stall_ms.unwrap_or(default.stall_ms_max),
        }
    }
}

impl Export {
    /// The store of the export: exactly one store, with its own keys and without keys of another.
    fn store(&self) -> Result<StoreConfig, ConfigError> {
        let fault = |what: &str, advice: &str| {
            Err(ConfigError::without_line(format!("export {} {what}", self.path.escape_debug()), advice))
        };
        match (&self.mem, &self.dir) {
            (Some(mem), None) if self.state.is_none() && !self.server_groups => Ok(StoreConfig::Mem {
                bytes: mem.0,
                owner_uid: self.owner_uid.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
                owner_gid: self.owner_gid.unwrap_or_else(|| rustix::process::getegid().as_raw()),
            }),
            (Some(_), None) => fault(
                "has `state` or `server_groups` with a store in memory",
                "remove it: it belongs to `dir`",
            ),
            (None, Some(path)) if self.owner_uid.is_some() || self.owner_gid.is_some() => fault(
                "has an owner given and a directory, which has its own",
                &format!("remove `owner_uid` and `owner_gid`; chown {}", path.display()),
            ),
            (None, Some(path)) => Ok(StoreConfig::Dir {
                path: path.clone(),
                state: self.state.clone(),
                server_groups: self.server_groups,
            }),
            (Some(_), Some(_)) => fault("has `mem` and `dir`", "keep one of them"),
            (None, None) => {
                fault("does not say what is behind it", "add `dir = \"/srv/data\"` or `mem = \"2GiB\"`")
            }
        }
    }

    fn resolve(self, index: usize) -> Result<ExportConfig, ConfigError> {
        // By default the fsid of an export is its position in the file; administrators who reorder
        // exports set it explicitly.
        let place = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        let store = self.store()?;
        Ok(ExportConfig {
            delegations: self.delegations.unwrap_or(self.mem.is_some()),
            store,
            path: self.path,
            read_only: !self.rw,
            root_squash: self.root_squash,
            all_squash: self.all_squash,
            anonuid: self.anonuid,
            anongid: self.anongid,
            allow: self.allow.into_iter().flat_map(|clients| clients.0).collect(),
            secure: self.secure,
            fsid: self.fsid.unwrap_or(place),
        })
    }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count()
}

/// The advice for an error that the TOML parser found.
fn advice(message: &str) -> &'static str {
    if message.contains("unknown field") {
        "correct the name, or remove the line"
    } else if message.contains("missing field") {
        "add the line"
    } else if message.contains("invalid type") || message.contains("invalid value") {
        "give a value of that kind"
    } else {
        "correct the line"
    }
}

pub(super) fn parse(text: &str, file: &str) -> Result<Config, ConfigError> {
    let at = |span: Option<Range<usize>>| span.map(|span| line_of(text, &span));
    let read: File = toml::from_str(text).map_err(|error| ConfigError {
        file: Some(file.to_owned()),
        line: at(error.span()),
        cause: error.message().trim_end().replace('\n', "; "),
        advice: advice(error.message()).to_owned(),
    })?;
    let node = |(index, node): (usize, Node)| NodeConfig {
        name: node.name.unwrap_or_else(|| format!("node{}", index + 1)),
        listen: node.listen.iter().filter_map(|listen| listen.0.tcp()).collect(),
        listen_rdma: node.listen.iter().filter_map(|listen| listen.0.rdma()).collect(),
        pace_bytes_per_s: node.pace.map(|rate| rate.0),
    };
    let mut config = Config {
        nodes: read.node.into_iter().enumerate().map(node).collect(),
        exports: Vec::new(),
        loops: read.loops,
        workers: read.workers.unwrap_or(WORKERS),
        rpcbind: read.rpcbind.then_some(rpc::portmap::PORT),
        group: read.group,
        may_leave_v4: read.versions.is_none(),
        versions: read.versions.map_or_else(NfsVersions::default, |versions| versions.0),
        lease: read.lease_s.map_or(LEASE, Duration::from_secs),
        nlm: read.nlm,
        layouts: read.layouts,
        clients_rpcbind: rpc::portmap::PORT,
        congestion: read.congestion,
        busy_poll: read.busy_poll_us.map_or(BUSY_POLL_DEFAULT, Duration::from_micros),
        limits: read.limits.resolve(),
        metrics: read.metrics.map(|MetricsSection { listen, token }| MetricsConfig { listen, token }),
    };
    let in_file = |error: ConfigError, line| ConfigError { file: Some(file.to_owned()), line, ..error };
    config.check_nodes().map_err(|error| in_file(error, None))?;
    for (index, export) in read.export.into_iter().enumerate() {
        let line = at(Some(export.span()));
        let export = export.into_inner().resolve(index).map_err(|error| in_file(error, line))?;
        config.exports.push(export);
        // The whole configuration is checked after each export, so that an error which an export
        // causes is reported on its line.
        if !config.nodes.is_empty() {
            config.check().map_err(|error| in_file(error, line))?;
        }
    }
    config.check().map_err(|error| in_file(error, None))?;
    Ok(config)
}

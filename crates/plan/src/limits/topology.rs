//! A topology: what stands between the drives and the clients, as a file or flags give it.

use crate::Scheme;
use crate::error::{Error, Result};
use crate::link::{Link, Pcie, Transport};
use serde::{Deserialize, Serialize};

/// A topology. Tables follow plain keys, so the order here is that of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Where its figures come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// How payload travels; what one expects on the servers' ports when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// The MTU; what one expects of the transport when absent. For `roce`, Ethernet's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The drives of one array or node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drives: Option<Drives>,
    /// How they are protected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<Raid>,
    /// The controllers of one array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<Controller>,
    /// Arrays or nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// What lies between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
    /// Clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<Clients>,
}

/// The drives of one array or node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drives {
    /// How many.
    pub count: u32,
    /// What one reads, in GB/s; the guide's drive when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_gbytes_per_s: Option<f64>,
    /// What one writes, in GB/s; the guide's drive when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_gbytes_per_s: Option<f64>,
}

/// How drives are protected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raid {
    /// The scheme.
    pub scheme: Scheme,
    /// KiB of a stripe on one drive; as `plan layout` chooses it when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_kib: Option<u32>,
    /// The hosts' largest request, in KiB (`max_sectors_kb`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_kib: Option<u32>,
    /// Controllers that serve each volume group: 2 use all PCIe paths, 1 does not.
    #[serde(default = "two")]
    pub controllers_per_group: u32,
}

const fn one() -> u32 {
    1
}

const fn two() -> u32 {
    2
}

impl Raid {
    /// A scheme with everything else as usual.
    #[must_use]
    pub const fn new(scheme: Scheme) -> Self {
        Self { scheme, segment_kib: None, request_kib: None, controllers_per_group: 2 }
    }
}

/// The controllers of one array, together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// A known model, `ef600`; its figures hold where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What they read, in GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_gbytes_per_s: Option<f64>,
    /// What they read when each volume group is served by one of them only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_one_controller_gbytes_per_s: Option<f64>,
    /// What they write through a mirrored cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_gbytes_per_s: Option<f64>,
    /// What they write when full stripes are accelerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_full_stripe_gbytes_per_s: Option<f64>,
}

impl Controller {
    /// The EF600's.
    #[must_use]
    pub fn ef600() -> Self {
        Self { model: Some("ef600".to_owned()), ..Self::default() }
    }
}

/// Arrays or nodes, all alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// How many.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Ports of each.
    #[serde(default = "one")]
    pub ports: u32,
    /// What a port is.
    pub link: Link,
    /// What one node's processors carry, in GB/s, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_gbytes_per_s: Option<f64>,
    /// The slots of each node's adapters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
}

/// What lies between servers and clients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// The narrowest place that all bytes pass, each way, in Gbit/s.
    pub gbit_per_s: f64,
}

/// Clients, all alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// How many.
    pub count: u32,
    /// Ports of each.
    #[serde(default = "one")]
    pub ports: u32,
    /// What a port is; the servers' when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Server ports that the clients use; all when absent. One path is one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<u32>,
    /// Tasks of each that read or write at once; not a limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// What one task carries, in GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_gbytes_per_s: Option<f64>,
    /// What one client's processors carry, in GB/s, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_gbytes_per_s: Option<f64>,
    /// The slots of each client's adapters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
}

impl Topology {
    /// Reads a topology from TOML.
    ///
    /// # Errors
    /// No TOML, or keys that mean nothing.
    pub fn from_toml(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| {
            let text = error.to_string();
            // The reader shows the faulty line between its sentences; one line has to do.
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_excerpt(line));
            Error::Topology { cause: flatten(&lines.collect::<Vec<_>>().join(": ")) }
        })
    }

    /// The topology as TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("numbers and names always have a form in TOML")
    }

    /// How payload travels.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        let of_port = || self.server.as_ref().map(|server| server.link.usual_transport());
        self.transport.or_else(of_port)
    }

    /// The MTU.
    #[must_use]
    pub fn mtu(&self) -> Option<u32> {
        self.mtu.or_else(|| self.transport().map(Transport::usual_mtu))
    }
}

fn is_excerpt(line: &str) -> bool {
    line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().starts_with('|')
}

/// A value that is refused brings its own cause and advice; in a file they become one sentence.
fn flatten(text: &str) -> String {
    text.replace(": cause: ", ": ").replace(": try:   ", "; nearest: ")
}

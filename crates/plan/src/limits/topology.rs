//! A topology: everything between the drives and the clients, as given by a file or by options.

use crate::Scheme;
use crate::error::{Error, Result};
use crate::link::{Link, Pcie, Transport};
use serde::{Deserialize, Serialize};

/// A topology. Tables follow plain keys, so the fields are in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The name of the topology.
    #[serde(default)]
    pub name: String,
    /// The source of its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The transport of the payload; if absent, the usual one on the servers' ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// The MTU; if absent, the usual one of the transport. For `roce`, the MTU of Ethernet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The drives of one array or node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drives: Option<Drives>,
    /// The protection of the drives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<Raid>,
    /// The controllers of one array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<Controller>,
    /// The arrays or nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// The network between servers and clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
    /// The clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<Clients>,
}

/// The drives of one array or node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drives {
    /// The number of drives.
    pub count: u32,
    /// The read throughput of one drive, in GB/s; if absent, that of the guide's drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_gbytes_per_s: Option<f64>,
    /// The write throughput of one drive, in GB/s; if absent, that of the guide's drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_gbytes_per_s: Option<f64>,
}

/// The protection of drives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raid {
    /// The scheme.
    pub scheme: Scheme,
    /// The size of a segment in KiB; if absent, as chosen by `plan layout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_kib: Option<u32>,
    /// The largest request of the hosts, in KiB (`max_sectors_kb`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_kib: Option<u32>,
    /// The number of controllers that serve each volume group: 2 use all PCIe paths, 1 does not.
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
    /// A scheme with default values for everything else.
    #[must_use]
    pub const fn new(scheme: Scheme) -> Self {
        Self { scheme, segment_kib: None, request_kib: None, controllers_per_group: 2 }
    }
}

/// The controllers of one array, together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// A known model, `ef600`, whose values apply if none are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The read throughput, in GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_gbytes_per_s: Option<f64>,
    /// The read throughput if each volume group is served by only one of the controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_one_controller_gbytes_per_s: Option<f64>,
    /// The write throughput through a mirrored cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_gbytes_per_s: Option<f64>,
    /// The write throughput if full stripes are accelerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_full_stripe_gbytes_per_s: Option<f64>,
}

impl Controller {
    /// The controllers of the EF600.
    #[must_use]
    pub fn ef600() -> Self {
        Self { model: Some("ef600".to_owned()), ..Self::default() }
    }
}

/// Arrays or nodes, all equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The number of nodes.
    #[serde(default = "one")]
    pub nodes: u32,
    /// The number of ports of each node.
    #[serde(default = "one")]
    pub ports: u32,
    /// The kind of port.
    pub link: Link,
    /// The measured throughput of one node's processors, in GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_gbytes_per_s: Option<f64>,
    /// The PCIe slots of each node's adapters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
}

/// The network between servers and clients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// The narrowest point that all bytes pass, in each direction, in Gbit/s.
    pub gbit_per_s: f64,
}

/// Clients, all equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// The number of clients.
    pub count: u32,
    /// The number of ports of each client.
    #[serde(default = "one")]
    pub ports: u32,
    /// The kind of port; if absent, the servers'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// The number of server ports that the clients use; if absent, all. One path leads to one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<u32>,
    /// The number of tasks of each client that read or write at once; if absent, tasks are no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// The throughput of one task, in GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_gbytes_per_s: Option<f64>,
    /// The measured throughput of one client's processors, in GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_gbytes_per_s: Option<f64>,
    /// The PCIe slots of each client's adapters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
}

impl Topology {
    /// Reads a topology from TOML.
    ///
    /// # Errors
    /// A text that is not TOML, or has unknown keys.
    pub fn from_toml(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| {
            let text = error.to_string();
            // The parser's message contains an excerpt of the faulty line; it is shortened to one
            // line.
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_excerpt(line));
            Error::Topology { cause: flatten(&lines.collect::<Vec<_>>().join(": ")) }
        })
    }

    /// The topology as TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("numbers and names always have a form in TOML")
    }

    /// The transport of the payload.
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

/// A refused value has its own cause and advice; in the error of a file they become one sentence.
fn flatten(text: &str) -> String {
    text.replace(": cause: ", ": ").replace(": try:   ", "; nearest: ")
}

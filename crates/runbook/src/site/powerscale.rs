//! `[powerscale]`: a Dell PowerScale cluster, used over NFS with and without RDMA.

use super::At;
use serde::Deserialize;

/// A cluster.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PowerScale {
    /// Its name, for comments and mount points.
    pub(crate) name: At<String>,
    /// The version of OneFS.
    pub(crate) onefs: At<String>,
    /// The administrator's account, who is given the privileges.
    pub(crate) administrator: At<String>,
    #[serde(default = "groupnet")]
    pub(crate) groupnet: At<String>,
    #[serde(default = "subnet")]
    pub(crate) subnet: At<String>,
    #[serde(default = "pool")]
    pub(crate) pool: At<String>,
    #[serde(default = "zone")]
    pub(crate) zone: At<String>,
    /// The prefix length of the subnet.
    pub(crate) prefix_length: At<u8>,
    #[serde(default = "mtu")]
    pub(crate) mtu: At<u32>,
    /// The nodes with their interfaces.
    pub(crate) nodes: At<Vec<At<Node>>>,
    /// The directory that is exported.
    pub(crate) export: At<String>,
    /// The account that writes, on the cluster and on the clients.
    pub(crate) user: At<String>,
    /// Its UID on both sides.
    pub(crate) uid: At<u32>,
    /// The access pattern of the directory.
    #[serde(default)]
    pub(crate) access_pattern: AccessPattern,
    /// Whether inline deduplication is off while a benchmark runs.
    #[serde(default)]
    pub(crate) benchmark: bool,
    /// Whether NFSv4 is enabled.
    #[serde(default)]
    pub(crate) nfsv4: Option<At<bool>>,
    /// Connections of a mount.
    #[serde(default = "nconnect")]
    pub(crate) nconnect: At<u32>,
}

fn text(text: &str) -> At<String> {
    At::new(0..0, text.to_owned())
}

fn groupnet() -> At<String> {
    text("groupnet0")
}

fn subnet() -> At<String> {
    text("rdmasubnet")
}

fn pool() -> At<String> {
    text("rdmapool")
}

fn zone() -> At<String> {
    text("System")
}

fn mtu() -> At<u32> {
    At::new(0..0, 9000)
}

// A test by Dell's users has 32 connections over four nodes.
fn nconnect() -> At<u32> {
    At::new(0..0, 32)
}

/// A node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    /// The logical node number.
    pub(crate) lnn: At<u32>,
    /// The interface.
    pub(crate) interface: At<String>,
    /// Its address.
    pub(crate) address: At<String>,
}

/// How OneFS reads ahead and lays files out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AccessPattern {
    #[default]
    Default,
    Streaming,
    Random,
}

impl AccessPattern {
    /// The name that `isi set -a` takes.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Streaming => "streaming",
            Self::Random => "random",
        }
    }
}

//! `[[array]]`: a NetApp EF600.

use super::At;
use serde::Deserialize;

/// An array.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Array {
    /// What the names of pools, groups and volumes begin with.
    pub(crate) name: At<String>,
    /// The name of the array as hosts show it.
    #[serde(default)]
    pub(crate) label: Option<At<String>>,
    /// The host interface: `infiniband` or `roce`.
    #[serde(default)]
    pub(crate) fabric: Fabric,
    /// Whether switches are between hosts and array: `fabric` or `direct`.
    #[serde(default)]
    pub(crate) topology: Topology,
    /// The addresses of the management ports of A and B.
    pub(crate) management: At<Vec<At<String>>>,
    /// The DNS domain for /etc/hosts.
    #[serde(default)]
    pub(crate) domain: Option<At<String>>,
    /// The version of SANtricity.
    #[serde(default)]
    pub(crate) firmware: Option<At<String>>,
    /// `ddp` or `raid6`.
    pub(crate) scheme: At<String>,
    /// The number of drives.
    pub(crate) drives: At<i64>,
    /// The capacity of a drive in TB.
    #[serde(default)]
    pub(crate) drive_tb: Option<At<f64>>,
    /// The order of slots: `centre` or `ends`.
    #[serde(default)]
    pub(crate) order: Option<At<String>>,
    /// The slots, instead of chosen ones.
    #[serde(default)]
    pub(crate) slots: Option<At<String>>,
    /// The number of volumes.
    #[serde(default)]
    pub(crate) volumes: Option<At<i64>>,
    /// The capacity of each volume, with its unit.
    #[serde(default)]
    pub(crate) volume: Option<At<String>>,
    /// KiB of a stripe on one drive.
    #[serde(default)]
    pub(crate) segment_kib: Option<At<u32>>,
    /// The netmask of the host ports; RoCE only.
    #[serde(default)]
    pub(crate) subnet_mask: Option<At<String>>,
    /// The MTU of the host ports; RoCE only.
    #[serde(default)]
    pub(crate) mtu: Option<At<u32>>,
    /// The host ports.
    pub(crate) ports: At<Vec<At<Port>>>,
}

/// A host port of a controller.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Port {
    /// The controller.
    pub(crate) controller: Controller,
    /// The label of the port: `1a`, `1b`, `2a` or `2b`.
    pub(crate) port: At<String>,
    /// The address.
    pub(crate) address: At<String>,
    /// The name in /etc/hosts.
    #[serde(default)]
    pub(crate) name: Option<At<String>>,
}

/// A controller of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Controller {
    A,
    B,
}

impl Controller {
    pub(crate) const fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }
}

/// The network of the host ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Fabric {
    #[default]
    Infiniband,
    Roce,
}

/// What is between hosts and array.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Topology {
    /// Switches: each host reaches each port.
    #[default]
    Fabric,
    /// Cables: each host has one port of each controller.
    Direct,
}

//! `[scale]`: a Spectrum Scale cluster in SAN mode, on the volumes of the site's arrays.

use super::At;
use serde::Deserialize;

/// A cluster.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scale {
    /// The name of the cluster.
    pub(crate) cluster: At<String>,
    /// The name of the file system.
    pub(crate) file_system: At<String>,
    /// Where nodes mount it.
    pub(crate) mount_point: At<String>,
    /// KiB of a block.
    #[serde(default = "block_kib")]
    pub(crate) block_kib: At<u32>,
    /// The hosts that keep their state: quorum and manager nodes.
    pub(crate) managers: At<Vec<At<String>>>,
    /// The failure group of the first array; the others follow.
    #[serde(default = "failure_group")]
    pub(crate) failure_group: u16,
    /// The number of nodes for which the file system is laid out; the hosts of the site, if absent.
    #[serde(default)]
    pub(crate) nodes: Option<u32>,
    /// Memory for the file system's cache, in GiB.
    #[serde(default = "pagepool_gib")]
    pub(crate) pagepool_gib: u32,
    /// Ports for RDMA among nodes, such as `mlx5_0/1`.
    #[serde(default)]
    pub(crate) verbs_ports: Option<At<String>>,
    /// The largest and the preallocated number of inodes.
    #[serde(default)]
    pub(crate) inodes: Option<At<[u64; 2]>>,
    /// Whether free space is given back to the array.
    #[serde(default)]
    pub(crate) reclaim: Option<At<bool>>,
}

// Deploying NetApp EF600, figure 34.
fn block_kib() -> At<u32> {
    At::new(0..0, 1024)
}

const fn failure_group() -> u16 {
    1
}

// Deploying NetApp EF600, figure 29.
const fn pagepool_gib() -> u32 {
    4
}

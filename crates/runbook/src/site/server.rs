//! `[[server]]`: a Linux machine that serves files or volumes.

use super::{At, Transport, nvme_port};
use serde::Deserialize;

/// A server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    /// Its name.
    pub(crate) name: At<String>,
    /// The kernel's NFS server.
    #[serde(default)]
    pub(crate) nfs: Option<At<Nfs>>,
    /// The kernel's NVMe-oF target.
    #[serde(default)]
    pub(crate) nvmet: Option<At<Nvmet>>,
    /// Trunkline's NFS server.
    #[serde(default)]
    pub(crate) trunkline: Option<At<Trunkline>>,
}

/// The kernel's NFS server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nfs {
    /// Whether it listens over RDMA too.
    #[serde(default)]
    pub(crate) rdma: bool,
    /// The number of its threads.
    #[serde(default = "threads")]
    pub(crate) threads: At<u32>,
    /// What it exports.
    pub(crate) exports: At<Vec<At<NfsExport>>>,
}

/// Debian's 8 threads are few where many connections carry large requests.
fn threads() -> At<u32> {
    At::new(0..0, 64)
}

/// An export of the kernel's server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NfsExport {
    /// The directory.
    pub(crate) path: At<String>,
    /// Addresses and networks that may mount it.
    pub(crate) clients: At<Vec<At<String>>>,
    /// Whether clients may write.
    #[serde(default)]
    pub(crate) rw: bool,
    /// Whether root of a client stays root.
    #[serde(default)]
    pub(crate) no_root_squash: bool,
    /// The number of the file system, where it has no UUID.
    #[serde(default)]
    pub(crate) fsid: Option<At<u32>>,
}

/// The kernel's NVMe-oF target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nvmet {
    /// The name of the subsystem.
    pub(crate) nqn: At<String>,
    /// Whether hosts that are not in the site file may connect.
    #[serde(default)]
    pub(crate) allow_any_host: bool,
    /// The volumes; numbered by their place unless they say otherwise.
    pub(crate) namespaces: At<Vec<At<Namespace>>>,
    /// The addresses.
    pub(crate) ports: At<Vec<At<NvmetPort>>>,
}

/// A volume of a target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Namespace {
    /// A block device, or a file.
    pub(crate) device: At<String>,
    /// The number by which hosts know the volume; its place in the list, if absent.
    #[serde(default)]
    pub(crate) nsid: Option<At<u32>>,
    /// The group of namespaces whose path states change together.
    #[serde(default = "first_group")]
    pub(crate) ana_group: At<u32>,
}

fn first_group() -> At<u32> {
    At::new(0..0, 1)
}

/// An address of a target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NvmetPort {
    /// The address.
    pub(crate) address: At<String>,
    /// The transport.
    pub(crate) transport: Transport,
    /// The port.
    #[serde(default = "nvme_port")]
    pub(crate) port: u16,
    /// The groups to which this is an optimized path; to all others it is a non-optimized one. All
    /// groups, if absent.
    #[serde(default)]
    pub(crate) optimized: Option<At<Vec<u32>>>,
}

/// Trunkline's NFS server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trunkline {
    /// The addresses, each a node.
    pub(crate) addresses: At<Vec<At<String>>>,
    /// The port over TCP.
    #[serde(default = "nfs_port")]
    pub(crate) port: At<u16>,
    /// The port over RDMA; without it there is none.
    #[serde(default)]
    pub(crate) rdma_port: Option<At<u16>>,
    /// What it exports.
    pub(crate) exports: At<Vec<At<TrunklineExport>>>,
}

// RFC 7530 s3.1
fn nfs_port() -> At<u16> {
    At::new(0..0, 2049)
}

/// An export of Trunkline's server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrunklineExport {
    /// The path that clients mount.
    pub(crate) path: At<String>,
    /// The directory; this or `mem`.
    #[serde(default)]
    pub(crate) dir: Option<At<String>>,
    /// The capacity of a store in memory.
    #[serde(default)]
    pub(crate) mem: Option<At<String>>,
    /// Addresses and networks that may mount it.
    pub(crate) clients: At<Vec<At<String>>>,
    /// Whether clients may write.
    #[serde(default)]
    pub(crate) rw: bool,
    /// Whether root of a client stays root.
    #[serde(default)]
    pub(crate) no_root_squash: bool,
}

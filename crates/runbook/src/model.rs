//! The site after all checks: names expanded, defaults filled in, volumes laid out. Everything that
//! makes files reads this and nothing else.

use crate::site::{Topology, Transport};
use plan::layout::{Layout, Volume};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A site.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) hosts: Vec<Host>,
    /// What all hosts have in common, if there are hosts.
    pub(crate) connect: Option<Connect>,
    pub(crate) arrays: Vec<Array>,
    pub(crate) servers: Vec<Server>,
    pub(crate) powerscale: Option<PowerScale>,
    pub(crate) scale: Option<Scale>,
}

/// How hosts connect to NVMe-oF targets.
#[derive(Debug)]
pub(crate) struct Connect {
    pub(crate) has_native_multipath: bool,
    pub(crate) delay_s: u32,
    pub(crate) wait_s: u32,
    pub(crate) queue_size: u32,
    pub(crate) ctrl_loss_s: u32,
    /// `max_sectors_kb`, if it is to be set.
    pub(crate) request_kib: Option<u32>,
    pub(crate) iopolicy: &'static str,
}

/// A Linux host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) interface: String,
    /// Whether its NVMe driver joins paths; all hosts that have paths agree.
    pub(crate) has_native_multipath: bool,
    /// Present on a host that has NVMe-oF targets.
    pub(crate) nqn: String,
    /// The paths of the host.
    pub(crate) portals: Vec<Portal>,
    /// Present on a client that connects from several addresses.
    pub(crate) local: Option<LocalPorts>,
}

/// The addresses from which a client connects.
#[derive(Debug)]
pub(crate) struct LocalPorts {
    /// As the mount option `localports` has them.
    pub(crate) text: String,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Host {
    /// The label of the host's initiator in an array, and the name of its interface in /etc/hosts.
    /// Neither may have the dot of an interface of a partition or VLAN (`ib0.8001`).
    pub(crate) fn initiator(&self) -> String {
        format!("{}-{}", self.name, self.interface).replace('.', "-")
    }
}

/// An address at which a target answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Portal {
    pub(crate) target: String,
    pub(crate) transport: Transport,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

impl Portal {
    /// Whether a host that connects to one of the two reaches the other.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        (self.transport, self.address, self.port) == (other.transport, other.address, other.port)
    }
}

/// An EF600.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) topology: Topology,
    pub(crate) management: [Ipv4Addr; 2],
    pub(crate) domain: Option<String>,
    pub(crate) firmware: Option<String>,
    pub(crate) subnet_mask: Option<Ipv4Addr>,
    pub(crate) mtu: Option<u32>,
    pub(crate) ports: Vec<Port>,
    pub(crate) layout: Layout,
    pub(crate) script: String,
    pub(crate) settings: String,
}

impl Array {
    /// The name of the group of all hosts.
    pub(crate) fn host_group(&self) -> String {
        format!("{}_hg1", self.name)
    }

    /// The volumes in the order of their LUNs, which count from 1.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = (usize, &Volume)> {
        (1..).zip(self.layout.groups.iter().flat_map(|group| &group.volumes))
    }
}

/// A host port of an array.
#[derive(Debug)]
pub(crate) struct Port {
    /// `a` or `b`.
    pub(crate) controller: char,
    /// `1a`, `1b`, `2a` or `2b`.
    pub(crate) label: String,
    /// The number of the port on its controller, from 1.
    pub(crate) channel: usize,
    pub(crate) address: Ipv4Addr,
    /// The name in /etc/hosts.
    pub(crate) name: String,
}

/// A Linux machine that serves files or volumes.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) nfs: Option<Nfs>,
    pub(crate) nvmet: Option<Nvmet>,
    pub(crate) trunkline: Option<Trunkline>,
}

/// The kernel's NFS server.
#[derive(Debug)]
pub(crate) struct Nfs {
    pub(crate) is_over_rdma: bool,
    pub(crate) threads: u32,
    pub(crate) exports: Vec<Export>,
}

/// Trunkline's NFS server.
#[derive(Debug)]
pub(crate) struct Trunkline {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    pub(crate) rdma_port: Option<u16>,
    pub(crate) exports: Vec<Export>,
}

impl Trunkline {
    /// Where it listens over TCP at an address.
    pub(crate) fn tcp(&self, address: &IpAddr) -> SocketAddr {
        SocketAddr::new(*address, self.port)
    }

    /// Where it listens over RDMA at an address.
    pub(crate) fn rdma(&self, address: &IpAddr) -> Option<SocketAddr> {
        Some(SocketAddr::new(*address, self.rdma_port?))
    }
}

/// What a server exports.
#[derive(Debug)]
pub(crate) struct Export {
    /// The path that clients mount.
    pub(crate) path: String,
    /// The directory; none for a store in memory.
    pub(crate) dir: Option<String>,
    pub(crate) mem: Option<String>,
    pub(crate) clients: Vec<String>,
    pub(crate) is_writable: bool,
    pub(crate) keeps_root: bool,
    pub(crate) fsid: Option<u32>,
}

/// The kernel's NVMe-oF target.
#[derive(Debug)]
pub(crate) struct Nvmet {
    pub(crate) nqn: String,
    pub(crate) allows_any_host: bool,
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) ports: Vec<NvmetPort>,
    /// All groups, in order.
    pub(crate) groups: Vec<u32>,
}

/// A volume of a target.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// The number by which hosts know the volume.
    pub(crate) nsid: u32,
    pub(crate) device: String,
    pub(crate) group: u32,
}

/// An address of a target.
#[derive(Debug)]
pub(crate) struct NvmetPort {
    pub(crate) portal: Portal,
    pub(crate) optimized: Vec<u32>,
}

/// A PowerScale cluster.
#[derive(Debug)]
pub(crate) struct PowerScale {
    pub(crate) name: String,
    pub(crate) administrator: String,
    /// With the groupnet: `groupnet0.rdmasubnet`.
    pub(crate) subnet: String,
    /// With groupnet and subnet.
    pub(crate) pool: String,
    pub(crate) zone: String,
    pub(crate) prefix_length: u8,
    pub(crate) mtu: u32,
    pub(crate) nodes: Vec<NasNode>,
    pub(crate) export: String,
    pub(crate) user: String,
    pub(crate) uid: u32,
    pub(crate) access_pattern: &'static str,
    pub(crate) is_for_benchmark: bool,
    pub(crate) has_nfsv4: bool,
    pub(crate) nconnect: u32,
}

impl PowerScale {
    /// The address that a mount names.
    pub(crate) fn first(&self) -> Ipv4Addr {
        self.nodes.first().map_or(Ipv4Addr::UNSPECIFIED, |node| node.address)
    }

    /// The addresses as ranges A-B, joined by a separator: neighbours in one range.
    pub(crate) fn ranges(&self, separator: &str, is_single_short: bool) -> String {
        let mut all: Vec<u32> = self.nodes.iter().map(|node| node.address.into()).collect();
        all.sort_unstable();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for address in all {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == address => *last = address,
                _ => ranges.push((address, address)),
            }
        }
        let show = |(first, last): (u32, u32)| {
            let (first, last) = (Ipv4Addr::from(first), Ipv4Addr::from(last));
            if first == last && is_single_short { first.to_string() } else { format!("{first}-{last}") }
        };
        ranges.into_iter().map(show).collect::<Vec<_>>().join(separator)
    }

    /// The interfaces of the pool, as `--ifaces` takes them.
    pub(crate) fn interfaces(&self) -> String {
        let all: Vec<_> = self.nodes.iter().map(|node| format!("{}:{}", node.lnn, node.interface)).collect();
        all.join(",")
    }
}

/// A node of a PowerScale cluster.
#[derive(Debug)]
pub(crate) struct NasNode {
    pub(crate) lnn: u32,
    pub(crate) interface: String,
    pub(crate) address: Ipv4Addr,
}

/// A Spectrum Scale cluster.
#[derive(Debug)]
pub(crate) struct Scale {
    pub(crate) cluster: String,
    pub(crate) file_system: String,
    pub(crate) mount_point: String,
    pub(crate) block_kib: u32,
    pub(crate) managers: Vec<String>,
    pub(crate) failure_group: u16,
    pub(crate) nodes: u32,
    pub(crate) pagepool_gib: u32,
    pub(crate) verbs_ports: Option<String>,
    /// The largest and the preallocated number.
    pub(crate) inodes: Option<[u64; 2]>,
    pub(crate) has_reclaim: bool,
}

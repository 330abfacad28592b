//! Finds out from captured facts whether a host is ready for network storage.
//!
//! A *capture* is the output of a command or the text of files, with a fixed name ([`CAPTURES`]).
//! The program makes the captures of its own host, or reads those of another from a directory. The
//! rules ([`check()`]) know nothing but captures. So each rule is tested with the output that a
//! host or an array printed, and a host without Trunkline can be checked too.

#![forbid(unsafe_code)]

mod capture;
mod finding;
mod not_seen;
mod parse;
mod rules;

use std::net::IpAddr;

pub use capture::{CAPTURES, Capture, Captured, Evidence, How, tree_line};
pub use finding::{Finding, Status, worst};
pub use not_seen::{NotSeen, is_judged, not_seen};
pub use rules::{planned_accounts, server_clock};

/// What the user expects of the host.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Paths of each NVMe namespace, subsystem and multipath device; with `portals` only of those
    /// that are reached through one of them.
    pub paths: Option<usize>,
    /// The addresses of NVMe targets to which the host should be connected.
    pub portals: Vec<Portal>,
    /// The addresses that the host should have, each with its interface.
    pub addresses: Vec<(String, IpAddr)>,
    /// The NQN by which targets know the host.
    pub host_nqn: Option<String>,
    /// Whether the NVMe driver joins the paths; if not, DM-Multipath does.
    pub native_multipath: Option<bool>,
    /// The interfaces that carry storage; if there are none, those of RDMA ports with addresses.
    pub interfaces: Vec<String>,
    /// The MTU of these interfaces, in bytes.
    pub mtu: Option<u32>,
    /// The full stripe of volumes, in bytes.
    pub stripe_bytes: Option<u64>,
    /// The volumes that targets have for the host.
    pub volumes: Vec<TargetVolumes>,
    /// The PowerScale cluster whose client the host is.
    pub cluster: Option<Cluster>,
}

/// The volumes of one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetVolumes {
    /// The name of the target, as in [`Portal::target`].
    pub target: String,
    /// The name of the array, as it shows it to hosts; none for another target.
    pub array: Option<String>,
    /// The volumes, in the order of their numbers.
    pub all: Vec<PlannedVolume>,
}

/// A volume of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedVolume {
    /// The namespace by which hosts know it.
    pub nsid: u32,
    /// The name that its array or its server has for it.
    pub name: String,
}

/// A PowerScale cluster, and what a client of it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// The name, for people, and of the directory below `/mnt`.
    pub name: String,
    /// The pool of addresses, with groupnet and subnet.
    pub pool: String,
    /// The access zone of the pool.
    pub zone: String,
    /// The nodes.
    pub nodes: Vec<ClusterNode>,
    /// The exported directory.
    pub export: String,
    /// The addresses from which the client comes.
    pub clients: Vec<IpAddr>,
    /// The account that writes, and its UID on the cluster.
    pub user: (String, u32),
}

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// The logical node number.
    pub lnn: u32,
    /// The interface in the pool.
    pub interface: String,
    /// An address of the pool. OneFS chooses the node that has it.
    pub address: IpAddr,
}

/// An address of an NVMe target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portal {
    /// The name of the target, for people.
    pub target: String,
    /// `rdma` or `tcp`, as `nvme connect -t` takes it.
    pub transport: &'static str,
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The NQN of the subsystem there, if the plan has it.
    pub nqn: Option<String>,
    /// The volumes there, by the number of their namespace, and whether this is an optimized path
    /// to each; empty if the plan does not say it.
    pub states: Vec<(u32, bool)>,
}

/// What all rules find, in the order of the areas.
pub fn check(evidence: &Evidence, expected: &Expected) -> Vec<Finding> {
    rules::all(evidence, expected)
}

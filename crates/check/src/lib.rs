//! Finds out from captured facts whether a host is ready for network storage.
//!
//! A *capture* is the output of a command or the text of files, with a fixed name ([`CAPTURES`]).
//! The program makes the captures of its own host, or reads those of another from a directory. The
//! rules ([`check()`]) know nothing but captures. So each rule is tested with the output that a
//! host or an array printed, and a host without Trunkline can be checked too.

#![forbid(unsafe_code)]

mod capture;
mod finding;
mod parse;
mod rules;

use std::net::IpAddr;

pub use capture::{CAPTURES, Capture, Captured, Evidence, How, tree_line};
pub use finding::{Finding, Status, worst};
pub use rules::server_clock;

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
}

/// What all rules find, in the order of the areas.
pub fn check(evidence: &Evidence, expected: &Expected) -> Vec<Finding> {
    rules::all(evidence, expected)
}

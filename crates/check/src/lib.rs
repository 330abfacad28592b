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

pub use capture::{CAPTURES, Capture, Captured, Evidence, How, tree_line};
pub use finding::{Finding, Status, worst};

/// What the user expects of the host.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Paths of each NVMe namespace and of each multipath device.
    pub paths: Option<usize>,
    /// The interfaces that carry storage; if there are none, those of RDMA ports with addresses.
    pub interfaces: Vec<String>,
    /// The MTU of these interfaces, in bytes.
    pub mtu: Option<u32>,
    /// The full stripe of volumes, in bytes.
    pub stripe_bytes: Option<u64>,
}

/// What all rules find, in the order of the areas.
pub fn check(evidence: &Evidence, expected: &Expected) -> Vec<Finding> {
    rules::all(evidence, expected)
}

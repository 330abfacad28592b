//! `[hosts]` and `[[host]]`: Linux hosts that connect to NVMe-oF targets or mount file systems.

use super::At;
use serde::Deserialize;

/// What all hosts have in common.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hosts {
    /// The operating system, unless a host has its own.
    pub(crate) os: At<Os>,
    /// The network interface, unless a host has its own.
    pub(crate) interface: At<String>,
    /// What the NQNs of hosts begin with; name, `-` and interface follow.
    #[serde(default)]
    pub(crate) nqn_prefix: Option<At<String>>,
    /// The longest random delay before a host connects.
    #[serde(default = "connect_delay_s")]
    pub(crate) connect_delay_s: u32,
    /// How long a host waits for all its paths.
    #[serde(default = "connect_wait_s")]
    pub(crate) connect_wait_s: u32,
    /// Entries of an I/O queue.
    #[serde(default = "queue_size")]
    pub(crate) queue_size: At<u32>,
    /// How long a lost controller is reconnected before it is given up.
    #[serde(default = "ctrl_loss_s")]
    pub(crate) ctrl_loss_s: u32,
    /// The largest request (`max_sectors_kb`).
    #[serde(default)]
    pub(crate) request_kib: Option<At<u32>>,
    /// How native multipath chooses among optimized paths: round-robin unless it is given.
    #[serde(default)]
    pub(crate) iopolicy: Option<At<IoPolicy>>,
}

// Deploying NetApp EF600, Lenovo Press 2021, section Discovering and Connecting to the EF600, asks
// for a random delay and gives no number.
const fn connect_delay_s() -> u32 {
    30
}

const fn connect_wait_s() -> u32 {
    180
}

// Deploying NetApp EF600, figures 20 and 21.
fn queue_size() -> At<u32> {
    At::new(0..0, 1024)
}

const fn ctrl_loss_s() -> u32 {
    3600
}

/// A host, or several with numbers in their names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// The name; `cmp[01-54]` stands for 54 hosts.
    pub(crate) name: At<String>,
    /// The address; the first one, if there are several hosts.
    pub(crate) address: At<String>,
    /// The operating system.
    #[serde(default)]
    pub(crate) os: Option<At<Os>>,
    /// The network interface.
    #[serde(default)]
    pub(crate) interface: Option<At<String>>,
    /// The whole NQN.
    #[serde(default)]
    pub(crate) nqn: Option<At<String>>,
    /// The addresses from which a client of PowerScale with several interfaces connects.
    #[serde(default)]
    pub(crate) localports: Option<At<String>>,
}

/// An operating system. A rebuild of RHEL counts as the RHEL that it is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Os {
    Rhel7,
    Rhel8,
    Rhel9,
    Rhel10,
    Debian12,
    Debian13,
    Ubuntu2204,
    Ubuntu2404,
}

impl Os {
    /// Whether paths are joined by the NVMe driver. RHEL 7 joins them by DM-Multipath.
    pub(crate) const fn has_native_multipath(self) -> bool {
        !matches!(self, Self::Rhel7)
    }

    /// Whether the kernel has the policy `queue-depth`, which came with Linux 6.11.
    pub(crate) const fn has_queue_depth(self) -> bool {
        matches!(self, Self::Rhel10 | Self::Debian13)
    }

    /// The name in a site file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rhel7 => "rhel7",
            Self::Rhel8 => "rhel8",
            Self::Rhel9 => "rhel9",
            Self::Rhel10 => "rhel10",
            Self::Debian12 => "debian12",
            Self::Debian13 => "debian13",
            Self::Ubuntu2204 => "ubuntu2204",
            Self::Ubuntu2404 => "ubuntu2404",
        }
    }
}

/// A policy of native multipath.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum IoPolicy {
    Numa,
    RoundRobin,
    QueueDepth,
}

impl IoPolicy {
    /// The name that the kernel reads.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Numa => "numa",
            Self::RoundRobin => "round-robin",
            Self::QueueDepth => "queue-depth",
        }
    }
}

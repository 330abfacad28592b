//! What a subsystem is told when it is made, and the bounds of what hosts may take.

use super::Node;
use crate::{HostId, Nqn, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The port over which a host connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// The node whose port it is.
    pub node: Node,
    /// The transport.
    pub transport: Transport,
    /// The most data in a capsule of an I/O queue, in bytes; a multiple of 16.
    pub capsule_data_bytes: u32,
}

/// Which hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Every host.
    Any,
    /// These hosts, by their names. A name is a claim, no proof.
    Only(BTreeSet<Nqn>),
    /// Every host but these.
    AnyBut(BTreeSet<Nqn>),
}

impl Access {
    /// Whether this host is among them.
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        match self {
            Self::Any => true,
            Self::Only(hosts) => hosts.contains(host),
            Self::AnyBut(hosts) => !hosts.contains(host),
        }
    }

    /// The same without these hosts.
    #[must_use]
    pub fn without(&self, refused: &BTreeSet<Nqn>) -> Self {
        match self {
            _ if refused.is_empty() => self.clone(),
            Self::Any => Self::AnyBut(refused.clone()),
            Self::Only(hosts) => Self::Only(hosts.difference(refused).cloned().collect()),
            Self::AnyBut(hosts) => Self::AnyBut(hosts.union(refused).cloned().collect()),
        }
    }
}

/// What the controllers of a subsystem are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Input and output.
    Io,
    /// Discovery. The subsystem also answers to the well-known name.
    Discovery,
}

/// What a subsystem is.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name.
    pub nqn: Nqn,
    /// What its controllers are for.
    pub kind: Kind,
    /// The serial number, at most 20 ASCII characters. The same on every node.
    pub serial: String,
    /// The model, at most 40 ASCII characters.
    pub model: String,
    /// The revision, at most 8 ASCII characters.
    pub firmware: String,
    /// The number of nodes; each is an ANA group.
    pub nodes: u32,
    /// The nodes that are here, and the identifiers of the controllers at their ports. Those of two
    /// nodes must be disjoint: Linux refuses a subsystem with two controllers of one identifier.
    pub cntlids: BTreeMap<Node, RangeInclusive<u16>>,
    /// Whether each node is a process of its own. What is reserved of a volume is then known to its
    /// owner only, to whom the driver forwards commands, and always made durable, since the volume
    /// may go to another process.
    pub is_split: bool,
    /// Which hosts may connect.
    pub access: Access,
    /// The host identifiers of some hosts: a host of such a name with another one is refused.
    pub host_ids: BTreeMap<Nqn, HostId>,
    /// Whether the driver executes [`Action::Reserve`](super::Action::Reserve); else the commands
    /// of reservations are unknown.
    pub reservations: bool,
    /// Bounds.
    pub limits: Limits,
}

/// Bounds of what hosts may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Controllers at a time.
    pub controllers: usize,
    /// Controllers of one host (host name and host identifier) at a time, so that one host cannot
    /// take all.
    pub controllers_per_host: usize,
    /// I/O queues of a controller.
    pub io_queues: u16,
    /// Entries of a queue, at least 32 and at most 65536.
    pub queue_entries: u32,
    /// Data of one command, in bytes: 4096 times a power of two.
    pub transfer_bytes: u32,
    /// The largest NSID.
    pub nsid: u32,
    /// Asynchronous Event Requests of a controller.
    pub async_events: u8,
    /// The longest keep-alive timeout that a host may ask for.
    pub keep_alive: Duration,
    /// How long a group may be in the ANA state of change. Linux resets a controller at twice this
    /// time.
    pub ana_transition: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            controllers: 1024,
            controllers_per_host: 64,
            io_queues: 64,
            queue_entries: 128,
            // Linux then sends whole stripes of 8 x 128 KiB.
            transfer_bytes: 1 << 20,
            nsid: 1024,
            // Linux has one outstanding, SPDK as many as it may.
            async_events: 4,
            keep_alive: Duration::from_secs(600),
            ana_transition: Duration::from_secs(10),
        }
    }
}

/// How long a controller that is not enabled may stay without a command, if its host asked for a
/// keep-alive timeout: that counts for controllers that are enabled, and a host may have to compute
/// for long before, to authenticate.
pub(super) const DISABLED_IDLE: Duration = Duration::from_secs(120);

/// How long a discovery controller without a keep-alive timeout may stay without a command. Linux
/// and libnvme read the log and leave.
pub(super) const DISCOVERY_IDLE: Duration = Duration::from_secs(120);

/// KAS: the granularity of keep-alive timeouts, in units of 100 ms.
pub(super) const KEEP_ALIVE_UNIT_100_MS: u16 = 10;

/// The most entries of an admin queue that the discovery log promises. NVMe over Fabrics,
/// "Discovery Log Page Entry" (ASQSZ)
pub(super) const ADMIN_ENTRIES_MIN: u32 = 32;

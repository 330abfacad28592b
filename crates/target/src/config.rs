//! What a target is told when it starts, and the bounds of what hosts may take.

use crate::namespace::{Facts, Namespace};
use crate::reservations::ReservationStore;
use chap::{Algorithms, Credentials, Secret};
use nvme::controller::{Access, Node};
use nvme::{HostId, Nqn, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use volumes::{Choice, Volume};

/// The most data in a capsule of an I/O queue over TCP, in bytes: a whole 4 KiB or 8 KiB write.
pub const CAPSULE_DATA_BYTES: u32 = 8192;
/// The same over RDMA, where each capsule has a receive as well: both together take no more than
/// [`QUEUE_CAPSULE_BYTES`]. A 4 KiB write needs no RDMA READ.
pub(crate) const RDMA_CAPSULE_DATA_BYTES: u32 = 4096;
/// The most data of one command, in bytes, and of one R2T.
pub(crate) const TRANSFER_BYTES: u32 = 1 << 20;
/// The most entries of a queue. Linux takes no more than 128 by itself.
pub(crate) const QUEUE_ENTRIES: u32 = 128;
/// The most data in capsules that one I/O queue can have outstanding.
pub(crate) const QUEUE_CAPSULE_BYTES: usize = CAPSULE_DATA_BYTES as usize * QUEUE_ENTRIES as usize;

// A command with data fits the budget of a loop whatever its limits are.
const _: () = assert!(TRANSFER_BYTES as usize <= volumes_transfer_bytes());

const fn volumes_transfer_bytes() -> usize {
    drives::TRANSFER_BYTES_MAX
}

/// A volume under the NSID that hosts know it by.
#[derive(Debug, Clone)]
pub struct Export {
    /// The NSID, from 1 on.
    pub nsid: u32,
    /// The volume.
    pub volume: Volume,
    /// Which hosts see it, of those that may connect.
    pub hosts: Access,
    /// The node that owns it: its ports are the best way to the volume.
    pub owner: Node,
}

impl Export {
    pub(crate) fn namespace(&self) -> Namespace {
        let (facts, hosts) = (Facts::of(&self.volume), self.hosts.clone());
        Namespace { nsid: self.nsid, facts, hosts, owner: self.owner }
    }
}

/// Where hosts connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The address. A port of 0 is any free one.
    pub address: SocketAddr,
    /// How hosts connect there.
    pub transport: Transport,
    /// The node whose port it is.
    pub node: Node,
}

impl From<SocketAddr> for Listen {
    /// A TCP port of the first node.
    fn from(address: SocketAddr) -> Self {
        Self { address, transport: Transport::Tcp, node: Node::A }
    }
}

/// The identifiers of a node's controllers. Those of two nodes are disjoint, also where they are
/// two processes; those from FFF0h on stand for something else. NVMe Base, "Controller ID"
pub(crate) const fn cntlids(node: Node) -> RangeInclusive<u16> {
    match node {
        Node::A => 1..=0x7fff,
        _ => 0x8000..=0xffef,
    }
}

/// How a host and the target prove to each other who they are. `Debug` shows no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSecret {
    /// What the host must have to use its queues.
    pub host: Secret,
    /// What the target has; without it, a host that wants proof is refused.
    pub controller: Option<Secret>,
    /// What is accepted, the preferred first.
    pub algorithms: Arc<Algorithms>,
}

impl HostSecret {
    /// What a queue of this host is authenticated by.
    pub(crate) fn credentials(&self, host: &Nqn, subsystem: &Nqn) -> Credentials {
        Credentials {
            host: host.clone(),
            subsystem: subsystem.clone(),
            host_secret: self.host.clone(),
            controller_secret: self.controller.clone(),
        }
    }
}

/// Which hosts there are, where that changes while a target runs.
#[derive(Debug, Clone)]
pub struct Hosts {
    /// Which hosts may connect.
    pub access: Access,
    /// The host identifiers of some hosts; hosts that are connected keep theirs.
    pub ids: BTreeMap<Nqn, HostId>,
    /// The secrets of the hosts that must authenticate. Queues that are connected stay, and use them
    /// when their host authenticates again.
    pub secrets: BTreeMap<Nqn, HostSecret>,
    /// Which hosts see a volume, by NSID; those that are not named stay as they are.
    pub volumes: Vec<(u32, Access)>,
}

/// What a target is.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the subsystem.
    pub subsystem: Nqn,
    /// Its serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Which hosts may connect, by their names.
    pub hosts: Access,
    /// The host identifiers of some hosts, which must not come with another one.
    pub host_ids: BTreeMap<Nqn, HostId>,
    /// The secrets of the hosts that must authenticate. All others that may connect need not, so
    /// that a host is only kept out where all that may connect have one.
    pub secrets: BTreeMap<Nqn, HostSecret>,
    /// Where hosts connect.
    pub listen: Vec<Listen>,
    /// Where hosts connect to the other node, if that is another process: discovery tells them.
    pub elsewhere: Vec<Listen>,
    /// The number of loops; at least one.
    pub loops: usize,
    /// Who keeps reservations over restarts. Without it there are none, and hosts are told so.
    pub reservations: Option<Arc<dyn ReservationStore>>,
    /// Bounds.
    pub limits: Limits,
}

impl Config {
    /// One node, for these hosts, on these addresses; a loop for each processor.
    #[must_use]
    pub fn new(subsystem: Nqn, serial: &str, hosts: Access, listen: Vec<SocketAddr>) -> Self {
        let loops = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            subsystem,
            serial: serial.to_owned(),
            hosts,
            host_ids: BTreeMap::new(),
            secrets: BTreeMap::new(),
            listen: listen.into_iter().map(Listen::from).collect(),
            elsewhere: Vec::new(),
            loops,
            reservations: None,
            limits: Limits::default(),
        }
    }

    /// The nodes that have an address.
    pub(crate) fn nodes(&self) -> BTreeSet<Node> {
        self.listen.iter().map(|listen| listen.node).collect()
    }
}

/// Bounds of what hosts may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time, whatever they are.
    pub connections: usize,
    /// Memory for data of commands, in bytes: half for data that are asked for or sent, half for
    /// those in capsules, of which each I/O queue takes 1 MiB.
    pub memory_bytes: usize,
    /// The I/O queues of a controller.
    pub io_queues: u16,
    /// How long a host may take for data that were asked of it, or for what was sent to it.
    pub transfer: Duration,
    /// How long a host may take to authenticate a queue, without the time that its messages take
    /// here.
    pub authentication: Duration,
    /// How long a connection that ends in order may take to deliver its last words.
    pub last_words: Duration,
    /// A command that has waited longer than this because its loop stood still is not begun, and
    /// its connection ends: its host may have sent it again elsewhere. Less than the shortest
    /// keep-alive timeout in use.
    pub stall: Duration,
    /// How files and devices are read and written.
    pub engine: Choice,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            memory_bytes: 1 << 30,
            io_queues: 32,
            transfer: Duration::from_secs(30),
            // A kernel tries its algorithms out before it uses them for the first time: seconds.
            authentication: Duration::from_secs(30),
            last_words: Duration::from_secs(2),
            stall: Duration::from_secs(4),
            engine: Choice::Automatic,
        }
    }
}

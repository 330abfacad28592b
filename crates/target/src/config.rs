//! What a target is told when it starts, and the bounds of what hosts may take.

use nvme::controller::{Access, Node};
use nvme::{HostId, Nqn};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use volumes::{Choice, Volume};

/// The most data in a capsule of an I/O queue, in bytes: a whole 4 KiB or 8 KiB write.
pub(crate) const CAPSULE_DATA_BYTES: u32 = 8192;
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
}

/// Which hosts there are, where that changes while a target runs.
#[derive(Debug, Clone)]
pub struct Hosts {
    /// Which hosts may connect.
    pub access: Access,
    /// The host identifiers of some hosts; hosts that are connected keep theirs.
    pub ids: BTreeMap<Nqn, HostId>,
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
    /// This node.
    pub node: Node,
    /// The identifiers of this node's controllers; another node of the subsystem has others.
    pub cntlids: RangeInclusive<u16>,
    /// Which hosts may connect, by their names.
    pub hosts: Access,
    /// The host identifiers of some hosts, which must not come with another one.
    pub host_ids: BTreeMap<Nqn, HostId>,
    /// Where hosts connect. A port of 0 is any free one.
    pub listen: Vec<SocketAddr>,
    /// The number of loops; at least one.
    pub loops: usize,
    /// Bounds.
    pub limits: Limits,
}

impl Config {
    /// Controllers of the first node, for these hosts, on these addresses; a loop for each
    /// processor.
    #[must_use]
    pub fn new(subsystem: Nqn, serial: &str, hosts: Access, listen: Vec<SocketAddr>) -> Self {
        let loops = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            subsystem,
            serial: serial.to_owned(),
            node: Node(0),
            cntlids: 1..=0x7fff,
            hosts,
            host_ids: BTreeMap::new(),
            listen,
            loops,
            limits: Limits::default(),
        }
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
            stall: Duration::from_secs(4),
            engine: Choice::Automatic,
        }
    }
}

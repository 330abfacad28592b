//! Volumes as namespaces: what a subsystem knows of them, and the picture of them that a host's
//! queues have.

use super::{Access, Node};
use crate::identify::NamespaceIds;
use crate::log_page::AnaState;

/// The driver's own name for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(pub u64);

/// A volume that is a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The driver's name for it.
    pub id: VolumeId,
    /// Its names, the same on every node. They never change under an NSID, since hosts take the
    /// volume for the same one.
    pub ids: NamespaceIds,
    /// The number of blocks.
    pub blocks: u64,
    /// The size of a block as a power of two, from 9 to 12: Linux takes no others.
    pub block_shift: u8,
    /// The node that owns it.
    pub owner: Node,
    /// Which hosts see it.
    pub hosts: Access,
    /// Whether writes are refused.
    pub write_protected: bool,
    /// Whether completed writes may be lost without Flush: the truth of the backend.
    pub volatile_cache: bool,
    /// Whether blocks that were deallocated read as zeroes.
    pub deallocated_reads_zero: bool,
    /// The preferred length and alignment of writes, in blocks; 0 for none. Reported as NOIOB,
    /// NPWG and NOWS.
    pub preferred_blocks: u16,
}

/// A namespace as the queues of one host see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeView {
    /// The NSID.
    pub nsid: u32,
    /// The driver's name for the volume.
    pub volume: VolumeId,
    /// The number of blocks.
    pub blocks: u64,
    /// The size of a block as a power of two.
    pub block_shift: u8,
    /// How this node reaches it.
    pub ana: AnaState,
    /// Whether writes are refused.
    pub write_protected: bool,
    /// Whether a reservation lets the host read.
    pub may_read: bool,
    /// Whether a reservation lets the host write, and flush.
    pub may_write: bool,
}

/// What the queues of a controller may do. A new one replaces it whenever something changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The namespaces, by ascending NSID.
    pub(super) namespaces: Vec<VolumeView>,
    /// The most data of one command, in bytes.
    pub(super) transfer_bytes: u32,
    /// Whether the host waits as completions tell it (ACRE).
    pub(super) retry_delays: bool,
    /// Whether there are commands of reservations.
    pub(super) reservations: bool,
}

impl View {
    /// The namespaces, by ascending NSID.
    #[must_use]
    pub fn namespaces(&self) -> &[VolumeView] {
        &self.namespaces
    }

    /// A namespace.
    #[must_use]
    pub fn namespace(&self, nsid: u32) -> Option<&VolumeView> {
        let place = self.namespaces.binary_search_by_key(&nsid, |namespace| namespace.nsid).ok()?;
        self.namespaces.get(place)
    }
}

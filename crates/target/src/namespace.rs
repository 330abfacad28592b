//! What hosts are told of a volume: known also while its backing is not open here.

use nvme::controller::{Access, Node};
use nvme::identify::NamespaceIds;
use volumes::{BlockSize, Identity, Volume};

/// What Identify says of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Its name, for people.
    pub name: String,
    /// By what hosts recognize it.
    pub identity: Identity,
    /// The size of a block.
    pub block: BlockSize,
    /// The number of blocks.
    pub blocks: u64,
    /// Whether completed writes may be lost without a flush.
    pub volatile_cache: bool,
    /// Whether discarded blocks read as zeros.
    pub discard_zeroes: bool,
    /// The number of blocks of a transfer that the drive likes.
    pub optimal_transfer: Option<u32>,
}

impl Facts {
    /// Those of a volume.
    #[must_use]
    pub fn of(volume: &Volume) -> Self {
        Self {
            name: volume.name().to_owned(),
            identity: volume.identity(),
            block: volume.block_size(),
            blocks: volume.blocks(),
            volatile_cache: volume.has_volatile_write_cache(),
            discard_zeroes: volume.discard_zeroes(),
            optimal_transfer: volume.optimal_transfer(),
        }
    }

    /// Whether a volume keeps what hosts were told by these.
    #[must_use]
    pub fn hold_of(&self, volume: &Volume) -> bool {
        let is = Self::of(volume);
        is.identity == self.identity
            && is.block == self.block
            && is.blocks >= self.blocks
            && (self.volatile_cache || !is.volatile_cache)
            && (is.discard_zeroes || !self.discard_zeroes)
    }
}

/// A volume under the NSID that hosts know it by, whose backing another process may have.
#[derive(Debug, Clone)]
pub struct Namespace {
    /// The NSID, from 1 on.
    pub nsid: u32,
    /// What hosts are told of it.
    pub facts: Facts,
    /// Which hosts see it, of those that may connect.
    pub hosts: Access,
    /// The node that owns it, as far as it is known.
    pub owner: Node,
}

impl Namespace {
    /// As the state machine knows it; its identifier is its place among all.
    pub(crate) fn volume(&self, at: usize) -> nvme::controller::Volume {
        let facts = &self.facts;
        let preferred = facts.optimal_transfer.filter(|blocks| blocks.is_power_of_two());
        let Identity { uuid, nguid } = facts.identity;
        nvme::controller::Volume {
            id: nvme::controller::VolumeId(at as u64),
            ids: NamespaceIds { eui64: None, nguid: Some(nguid), uuid: Some(uuid) },
            blocks: facts.blocks,
            block_shift: facts.block.bytes().trailing_zeros() as u8,
            owner: self.owner,
            hosts: self.hosts.clone(),
            write_protected: false,
            volatile_cache: facts.volatile_cache,
            deallocated_reads_zero: facts.discard_zeroes,
            preferred_blocks: preferred.and_then(|blocks| u16::try_from(blocks).ok()).unwrap_or(0),
        }
    }
}

//! What Identify says for a command set: NVM is the only one here. NVMe Base, "I/O Command Set
//! Independent Identify Namespace", "Identify I/O Command Set"; NVM Command Set, "I/O Command Set
//! Specific Identify Controller Data Structure (CNS 06h, CSI 00h)".

use super::Shared;
use crate::layout::{Field, layout, numbers, store};

numbers! {
    /// CSI: an I/O command set.
    pub struct CommandSet(u8) {
        /// NVM.
        NVM = 0x00,
        /// Key value.
        KEY_VALUE = 0x01,
        /// Zoned namespaces.
        ZONED = 0x02,
    }
}

layout! {
    /// The limits of optional commands of the NVM command set (CNS 06h).
    pub struct NvmController[4096] {
        /// VSL: the most data of Verify, 4 KiB times 2 to the power of this; 0 for no limit.
        verify_size: u8 = 0,
        /// WZSL: likewise of Write Zeroes.
        write_zeroes_size: u8 = 1,
        /// DMRL: the most ranges of Dataset Management; 0 for no limit.
        dsm_ranges: u8 = 3,
        /// DMRSL: the most blocks of one range; 0 for no limit.
        dsm_range_blocks: u32 = 4,
        /// DMSL: the most blocks of all ranges; 0 for no limit.
        dsm_blocks: u64 = 8,
    }
}

layout! {
    /// A namespace as the NVM command set has it (CNS 05h). Only protection information has more to
    /// say, which there is none of here.
    pub struct NvmNamespace[4096] {
        /// LBSTM: the mask of storage tags.
        storage_tag_mask: u64 = 0,
    }
}

layout! {
    /// A namespace, whatever its command set (CNS 08h).
    pub struct IndependentNamespace[4096] {
        /// NSFEAT: bit 3 if the NGUID is never used again.
        features: u8 = 0,
        /// NMIC.
        shared: Shared = 1,
        /// RESCAP.
        reservations: u8 = 2,
        /// ANAGRPID.
        ana_group: u32 = 4,
        /// NSATTR: bit 0 for write protected.
        attributes: u8 = 8,
        /// NSTAT: bit 0 if the namespace is ready.
        state: u8 = 14,
    }
}

/// NSTAT of a namespace that is ready.
pub const NSTAT_READY: u8 = 1;

/// The combinations of command sets that a controller supports (CNS 1Ch): 512 sets of bits, one for
/// each command set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandSets {
    /// The first combination; bit 0 is NVM. Others are not there.
    pub first: u64,
}

impl CommandSets {
    /// NVM alone.
    pub const NVM: Self = Self { first: 1 };

    /// Reads the first combination.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        Self { first: crate::layout::load(bytes, 0) }
    }

    /// The structure.
    #[must_use]
    pub fn encode(&self) -> [u8; 4096] {
        let mut bytes = [0; 4096];
        store(&self.first, &mut bytes, 0);
        bytes
    }
}

const _: () =
    assert!(NvmController::BYTES == super::IDENTIFY_BYTES && <NvmNamespace as Field>::BYTES == 4096);

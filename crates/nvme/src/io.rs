//! Commands of the NVM command set that address blocks. NVM Command Set, "Read", "Write",
//! "Compare", "Write Zeroes", "Verify", "Dataset Management".

use crate::command::{IoOpcode, Sqe};
use crate::layout::{flags, layout};
use crate::sgl::Sgl;

flags! {
    /// The bits of dword 12 beside the length.
    pub struct IoFlags(u32) {
        /// DEAC of Write Zeroes: the blocks should be deallocated.
        DEALLOCATE = 1 << 25,
        /// PRINFO: anything of protection information.
        PROTECTION = 0xf << 26,
        /// FUA: the data are durable before the command completes.
        FORCE_UNIT_ACCESS = 1 << 30,
        /// LR: limited retry.
        LIMITED_RETRY = 1 << 31,
    }
}

/// The blocks of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// SLBA: the first block.
    pub start: u64,
    /// NLB plus one: the number of blocks, from 1 to 65536.
    pub count: u32,
    /// The flags.
    pub flags: IoFlags,
}

impl Blocks {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        let count = (sqe.cdw12 & 0xffff) + 1;
        Self { start: sqe.cdw10_11(), count, flags: IoFlags(sqe.cdw12 & 0xffff_0000) }
    }

    /// The command. Counts of 0 count as 1, the smallest.
    #[must_use]
    pub fn command(&self, opcode: IoOpcode, cid: u16, nsid: u32, sgl: Sgl) -> Sqe {
        let count = self.count.clamp(1, 0x1_0000) - 1;
        Sqe {
            sgl,
            cdw10: self.start as u32,
            cdw11: (self.start >> 32) as u32,
            cdw12: count | self.flags.0 & 0xffff_0000,
            ..Sqe::new(opcode.0, cid, nsid)
        }
    }

    /// Whether the blocks are within a namespace of this many.
    #[must_use]
    pub const fn are_within(&self, blocks: u64) -> bool {
        match self.start.checked_add(self.count as u64) {
            Some(end) => end <= blocks,
            None => false,
        }
    }
}

/// The most ranges of one Dataset Management command.
pub const DSM_RANGES_MAX: u32 = 256;

/// AD of Dataset Management: the ranges are not needed any more.
pub const DSM_DEALLOCATE: u32 = 1 << 2;

layout! {
    /// A range of Dataset Management.
    pub struct DsmRange[16] {
        /// Attributes, which are hints.
        attributes: u32 = 0,
        /// The number of blocks, which may be 0.
        count: u32 = 4,
        /// The first block.
        start: u64 = 8,
    }
}

impl DsmRange {
    /// The most data of one command, in bytes.
    pub const LIST_BYTES_MAX: u32 = DSM_RANGES_MAX * Self::BYTES as u32;

    /// Whether the range is within a namespace of this many blocks.
    #[must_use]
    pub const fn is_within(&self, blocks: u64) -> bool {
        match self.start.checked_add(self.count as u64) {
            Some(end) => end <= blocks,
            None => false,
        }
    }

    /// Reads ranges; what is not a whole range at the end is ignored.
    pub fn list(bytes: &[u8]) -> impl Iterator<Item = Self> + '_ {
        bytes.chunks_exact(Self::BYTES).map(crate::layout::Field::load)
    }
}

/// Dataset Management: the number of ranges in the data, from 1 to 256, and what is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetManagement {
    /// NR plus one.
    pub ranges: u32,
    /// Whether the ranges may be deallocated; otherwise the command is a hint.
    pub deallocate: bool,
}

impl DatasetManagement {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        Self { ranges: (sqe.cdw10 & 0xff) + 1, deallocate: sqe.cdw11 & DSM_DEALLOCATE != 0 }
    }

    /// The command.
    #[must_use]
    pub fn command(&self, cid: u16, nsid: u32, sgl: Sgl) -> Sqe {
        Sqe {
            sgl,
            cdw10: self.ranges.clamp(1, DSM_RANGES_MAX) - 1,
            cdw11: if self.deallocate { DSM_DEALLOCATE } else { 0 },
            ..Sqe::new(IoOpcode::DATASET_MANAGEMENT.0, cid, nsid)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_one_block_has_a_length_of_zero() {
        let blocks = Blocks { start: 0x1_0000_0002, count: 1, flags: IoFlags::NONE };
        let sqe = blocks.command(IoOpcode::READ, 7, 3, Sgl::NONE);
        assert_eq!(sqe.encode()[40..52], [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Blocks::of(&sqe), blocks);
        let most = Blocks { count: 0x1_0000, flags: IoFlags::FORCE_UNIT_ACCESS, ..blocks };
        let sqe = most.command(IoOpcode::WRITE, 7, 3, Sgl::NONE);
        assert_eq!(sqe.cdw12, 0x4000_ffff);
        assert_eq!(Blocks::of(&sqe), most);
    }

    #[test]
    fn the_end_of_a_namespace_is_not_passed_by_any_sum() {
        let within = |start, count, blocks| Blocks { start, count, flags: IoFlags::NONE }.are_within(blocks);
        assert!(within(0, 8, 8) && within(7, 1, 8));
        assert!(!within(0, 9, 8) && !within(8, 1, 8));
        assert!(!within(u64::MAX, 1, u64::MAX) && !within(u64::MAX - 1, 2, u64::MAX));
        assert!(within(u64::MAX - 2, 2, u64::MAX));
        let range = |start, count| DsmRange { attributes: 0, count, start }.is_within(8);
        assert!(range(8, 0) && range(0, 8) && !range(9, 0) && !range(u64::MAX, 1));
    }

    #[test]
    fn ranges_of_dataset_management() {
        let arguments = DatasetManagement { ranges: 256, deallocate: true };
        let sqe = arguments.command(1, 2, Sgl::NONE);
        assert_eq!((sqe.cdw10, sqe.cdw11), (255, 4));
        assert_eq!(DatasetManagement::of(&sqe), arguments);
        let range = DsmRange { attributes: 1, count: 2, start: 3 };
        assert_eq!(range.encode(), [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let bytes = [range.encode().as_slice(), &range.encode(), &[9; 15]].concat();
        assert_eq!(DsmRange::list(&bytes).collect::<Vec<_>>(), [range, range]);
    }
}

//! Stamps: the content that a write gives each cell that it covers, so that a reader of the cell
//! can identify the write.
//!
//! A stamp is a word of 8 bytes, repeated over the whole cell. Check bits detect words that no
//! write wrote, and the cell number in the stamp detects data of another place. Zero is no stamp:
//! zeros are cells that were never written or that a truncation removed.

/// Bytes of a stamp.
pub const WORD_BYTES: usize = 8;
/// The cell number in the stamps of appended records: the file system decides where they go.
pub const ANYWHERE: u16 = u16::MAX;

/// The writer, the number of the writer's operation, and the cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// Not 0.
    pub writer: u8,
    /// At most 24 bits.
    pub number: u32,
    pub cell: u16,
}

impl Stamp {
    pub fn word(self) -> u64 {
        let head =
            u64::from(self.writer) << 40 | u64::from(self.number & 0xff_ffff) << 16 | u64::from(self.cell);
        head << 16 | check_bits(head)
    }

    /// `None` for a word that no write makes.
    pub fn parse(word: u64) -> Option<Self> {
        let head = word >> 16;
        let stamp =
            Self { writer: (head >> 40) as u8, number: (head >> 16) as u32 & 0xff_ffff, cell: head as u16 };
        (stamp.writer != 0 && word & 0xffff == check_bits(head)).then_some(stamp)
    }
}

fn check_bits(head: u64) -> u64 {
    // Any odd number with many bits mixes well enough.
    (head.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) & 0xffff
}

/// The bytes of a cell.
pub fn filled(word: u64, bytes: usize) -> impl Iterator<Item = u8> {
    word.to_ne_bytes().into_iter().cycle().take(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_identifies_its_write_and_a_mixed_word_is_no_stamp() {
        let stamp = Stamp { writer: 3, number: 70_000, cell: 12 };
        assert_eq!(Stamp::parse(stamp.word()), Some(stamp));
        let other = Stamp { writer: 4, ..stamp }.word();
        assert_eq!(Stamp::parse(stamp.word() & !0xffff | other & 0xffff), None);
        assert_eq!(Stamp::parse(0), None);
    }
}

//! The 512 MiB that replies are gathered from, in extents of 64 KiB.

use crate::HEADER_BYTES;
use std::sync::OnceLock;

pub const MEMORY_BYTES: usize = 512 << 20;
pub const EXTENT_BYTES: usize = 64 << 10;
pub static HEADER: [u8; HEADER_BYTES] = [3; HEADER_BYTES];

fn memory() -> &'static [u8] {
    static MEMORY: OnceLock<Vec<u8>> = OnceLock::new();
    MEMORY.get_or_init(|| vec![7; MEMORY_BYTES])
}

pub fn prefault() {
    memory();
}

/// Picks places without any pattern a cache could learn.
pub struct Places(pub u64);

impl Places {
    fn next(&mut self, bytes: usize) -> &'static [u8] {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = (self.0 >> 20) as usize % (MEMORY_BYTES / bytes) * bytes;
        &memory()[at..at + bytes]
    }

    /// The extents of one block.
    pub fn block(&mut self, block: usize, mut each: impl FnMut(&'static [u8])) {
        let mut left = block;
        while left > 0 {
            let bytes = left.min(EXTENT_BYTES);
            each(self.next(bytes));
            left -= bytes;
        }
    }
}

//! The order in which a job accesses the blocks of one file, in one direction.

use serde::{Deserialize, Serialize};

/// The order of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// One block after the other.
    Sequential,
    /// Any block each time.
    Random,
    /// Blocks in random order, each once before any is accessed again.
    RandomOnce,
}

/// The sizes of a job's blocks in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockSizes {
    /// The smallest, in bytes; all others are multiples of it.
    pub min: u64,
    /// The largest, in bytes.
    pub max: u64,
}

impl BlockSizes {
    /// Blocks that all have this size.
    #[must_use]
    pub const fn same(bytes: u64) -> Self {
        Self { min: bytes, max: bytes }
    }
}

/// The part of a file that one loop accesses: every `of`-th stripe, beginning with stripe `part`.
/// A stripe has the size of the largest block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Region {
    /// The bytes of the file.
    pub(super) bytes: u64,
    pub(super) part: u64,
    pub(super) of: u64,
}

impl Region {
    /// The number of units of a file that are this part's.
    const fn units(self, unit: u64) -> u64 {
        let all = self.bytes / unit;
        (all + self.of - 1).saturating_sub(self.part) / self.of
    }

    /// The bytes of this part in stripes of `sizes`.
    pub(super) fn own_bytes(self, sizes: BlockSizes) -> u64 {
        let usable = self.bytes / sizes.min * sizes.min;
        let whole = self.units(sizes.max) * sizes.max;
        let tail = usable % sizes.max;
        let tail_is_ours = (usable / sizes.max) % self.of == self.part;
        whole + if tail_is_ours { tail } else { 0 }
    }
}

/// A position in a file.
#[derive(Debug)]
pub(super) struct Cursor {
    region: Region,
    sizes: BlockSizes,
    order: Order,
    /// Sequential: the stripe, and the byte within it.
    stripe: u64,
    within: u64,
    /// Random: the state of the generator.
    seed: u64,
    once: Permutation,
}

impl Cursor {
    pub(super) fn new(region: Region, sizes: BlockSizes, order: Order, seed: u64) -> Self {
        let once = Permutation::new(region.units(sizes.min).max(1), seed);
        Self { region, sizes, order, stripe: region.part, within: 0, seed, once }
    }

    /// The offset and the length of the next block.
    pub(super) fn next(&mut self) -> (u64, u64) {
        let wished = self.length();
        match self.order {
            Order::Sequential => self.next_in_order(wished),
            Order::Random => {
                let blocks = (self.region.bytes / self.sizes.min).max(1);
                let block = (random(&mut self.seed) >> 20) % blocks;
                self.within_file(block, wished)
            }
            Order::RandomOnce => {
                let block = self.once.next() * self.region.of + self.region.part;
                self.within_file(block, wished)
            }
        }
    }

    /// The wished length of the next block.
    fn length(&mut self) -> u64 {
        let choices = self.sizes.max / self.sizes.min;
        if choices <= 1 {
            return self.sizes.min;
        }
        (1 + (random(&mut self.seed) >> 20) % choices) * self.sizes.min
    }

    fn within_file(&self, block: u64, wished: u64) -> (u64, u64) {
        let offset = block * self.sizes.min;
        let left = self.region.bytes.saturating_sub(offset) / self.sizes.min * self.sizes.min;
        (offset, wished.min(left.max(self.sizes.min)))
    }

    fn next_in_order(&mut self, wished: u64) -> (u64, u64) {
        let usable = self.region.bytes / self.sizes.min * self.sizes.min;
        let begin = self.stripe * self.sizes.max;
        let end = (begin + self.sizes.max).min(usable);
        let offset = begin + self.within;
        let bytes = wished.min(end.saturating_sub(offset)).max(self.sizes.min);
        self.within += bytes;
        if offset + bytes >= end {
            self.within = 0;
            self.stripe += self.region.of;
            if self.stripe * self.sizes.max >= usable {
                self.stripe = self.region.part;
            }
        }
        (offset, bytes)
    }
}

/// A step of the generator, whose high bits are good.
#[inline]
pub(super) fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed
}

/// The numbers below `count` in an order that looks random, each once in a pass.
///
/// A counter of just enough bits is scrambled by steps that can all be undone, so that different
/// counts give different numbers. Numbers that are too large are left out.
#[derive(Debug)]
struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    counter: u64,
    key: u64,
}

impl Permutation {
    fn new(count: u64, key: u64) -> Self {
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(2);
        let mask = u64::MAX >> (u64::BITS - bits);
        Self { count, mask, shift: bits.div_ceil(2), counter: 0, key }
    }

    fn next(&mut self) -> u64 {
        loop {
            let number = self.scramble(self.counter);
            self.counter += 1;
            if self.counter > self.mask {
                self.counter = 0;
                random(&mut self.key);
            }
            if number < self.count {
                return number;
            }
        }
    }

    const fn scramble(&self, counter: u64) -> u64 {
        // An odd factor, a sum and a shifted exclusive-or can each be undone within the mask.
        let mut number = counter;
        let mut round = 0;
        while round < 3 {
            number =
                number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.key >> (round * 7)) & self.mask;
            number ^= number >> self.shift;
            round += 1;
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(bytes: u64, part: u64, of: u64, sizes: BlockSizes, order: Order) -> Cursor {
        Cursor::new(Region { bytes, part, of }, sizes, order, 7)
    }

    #[test]
    fn sequential_parts_share_the_blocks_of_a_file() {
        let offsets = |part| {
            let mut cursor = cursor(5 * 4096 + 100, part, 2, BlockSizes::same(4096), Order::Sequential);
            (0..4).map(|_| cursor.next().0 / 4096).collect::<Vec<_>>()
        };
        assert_eq!(offsets(0), [0, 2, 4, 0]);
        assert_eq!(offsets(1), [1, 3, 1, 3]);
    }

    #[test]
    fn blocks_of_several_sizes_cover_the_file_without_a_gap() {
        let sizes = BlockSizes { min: 512, max: 4096 };
        let bytes = 3 * 4096 + 1024 + 100;
        let mut seen = vec![false; (bytes / 512) as usize];
        for part in 0..2 {
            let mut cursor = cursor(bytes, part, 2, sizes, Order::Sequential);
            let own = Region { bytes, part, of: 2 }.own_bytes(sizes);
            let mut done = 0;
            while done < own {
                let (offset, len) = cursor.next();
                assert!(offset + len <= bytes && len % 512 == 0 && (512..=4096).contains(&len));
                (offset / 512..(offset + len) / 512).for_each(|unit| {
                    assert!(!std::mem::replace(&mut seen[unit as usize], true), "twice");
                });
                done += len;
            }
            assert_eq!(done, own);
        }
        assert!(seen.into_iter().all(|unit| unit));
    }

    #[test]
    fn each_block_comes_once_in_a_pass() {
        for blocks in [1, 2, 3, 7, 64, 1000, 4097] {
            for of in [1, 2] {
                let mut seen = vec![0; blocks as usize];
                for part in 0..of {
                    let region = Region { bytes: blocks * 512, part, of };
                    let own = region.units(512);
                    let mut cursor = Cursor::new(region, BlockSizes::same(512), Order::RandomOnce, 99);
                    (0..2 * own).for_each(|_| seen[(cursor.next().0 / 512) as usize] += 1);
                }
                assert!(seen.iter().all(|times| *times == 2), "{blocks} blocks: {seen:?}");
            }
        }
    }

    #[test]
    fn random_blocks_stay_within_the_file() {
        for order in [Order::Random, Order::RandomOnce] {
            let mut cursor = cursor(10_000, 0, 1, BlockSizes { min: 1000, max: 4000 }, order);
            for _ in 0..1000 {
                let (offset, len) = cursor.next();
                assert!(offset + len <= 10_000 && offset % 1000 == 0 && len >= 1000, "{offset} {len}");
            }
        }
    }
}

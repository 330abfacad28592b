//! What a file may contain: for each block, which generation was written and which was
//! acknowledged, and therefore what a read may return. Every 64 bytes of a block identify the file,
//! the block and the generation, so that a block that is lost, stale, torn or foreign is
//! distinguished from a right one.
//!
//! A block has one write in flight at a time, and reads run concurrently. A read must return the
//! generation that was last acknowledged before the read began, or one that was issued before the
//! read ended.

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of a stamp: file, block, generation and position, twice.
const STAMP_BYTES: usize = 64;

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// Nothing is in flight, and an acknowledged write is not there.
    Lost,
    /// An acknowledged write was not seen by a later read.
    Stale,
    /// Parts of several writes.
    Torn,
    /// Data that were never written there.
    Foreign,
}

/// Whether a read during a write may return parts of both generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// A write becomes visible as a whole.
    Whole,
    /// A read during a write may see parts of the write, as in any local file system.
    ByParts,
}

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    acknowledged: u64,
    issued: u64,
}

/// A read in flight: the state of the block when the read began.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    block: usize,
    floor: u64,
    issued: u64,
    writing: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct History {
    file: u64,
    store: Store,
    blocks: Vec<Block>,
}

/// The data of one generation of a block.
pub fn stamped(file: u64, block: usize, generation: u64) -> Vec<u8> {
    let mut data = Vec::with_capacity(BLOCK_BYTES);
    for place in 0..(BLOCK_BYTES / STAMP_BYTES) as u64 {
        for _ in 0..2 {
            data.extend([file, block as u64, generation, place].iter().flat_map(|word| word.to_be_bytes()));
        }
    }
    data
}

impl Reading {
    pub fn block(self) -> usize {
        self.block
    }
}

impl History {
    pub fn new(file: u64, blocks: usize, store: Store) -> Self {
        Self { file, store, blocks: vec![Block::default(); blocks] }
    }

    /// The generation to write next, with its data; `None` while a write of the block is in flight.
    pub fn begin_write(&mut self, block: usize) -> Option<(u64, Vec<u8>)> {
        let of_block = &mut self.blocks[block];
        if of_block.issued > of_block.acknowledged {
            return None;
        }
        of_block.issued += 1;
        Some((of_block.issued, stamped(self.file, block, of_block.issued)))
    }

    pub fn acknowledge(&mut self, block: usize, generation: u64) {
        self.blocks[block].acknowledged = generation;
    }

    pub fn begin_read(&self, block: usize) -> Reading {
        let Block { acknowledged, issued } = self.blocks[block];
        Reading { block, floor: acknowledged, issued, writing: issued > acknowledged }
    }

    /// Checks what a read returned; bytes beyond the end of the file count as zeros.
    pub fn end_read(&self, reading: Reading, data: &[u8]) -> Result<(), Wrong> {
        let Reading { block, floor, issued, writing } = reading;
        let now = self.blocks[block];
        let (least, most) = self.generations(block, data).ok_or(Wrong::Foreign)?;
        if most > now.issued {
            return Err(Wrong::Foreign);
        }
        let beside_a_write = writing || now.issued > issued;
        if least != most && !(self.store == Store::ByParts && beside_a_write && least >= floor) {
            return Err(Wrong::Torn);
        }
        match least >= floor {
            true => Ok(()),
            false if beside_a_write => Err(Wrong::Stale),
            false => Err(Wrong::Lost),
        }
    }

    /// The state when a read began, the state now, and the lowest and the highest generation in the
    /// data.
    pub fn describe(&self, reading: Reading, data: &[u8]) -> String {
        format!(
            "{reading:?}, now {:?}, read {:?}",
            self.blocks[reading.block],
            self.generations(reading.block, data)
        )
    }

    /// The lowest and the highest generation in a block; `None` if the block contains anything
    /// else.
    fn generations(&self, block: usize, data: &[u8]) -> Option<(u64, u64)> {
        let mut range = (data.len() < BLOCK_BYTES).then_some((0, 0));
        // Each half stamp by itself: a write that becomes visible in parts may end within a stamp.
        for (index, half) in data.chunks(STAMP_BYTES / 2).enumerate() {
            let generation = if half.iter().all(|byte| *byte == 0) {
                0
            } else {
                let generation = u64::from_be_bytes(half.get(16..24)?.try_into().ok()?);
                let words = [self.file, block as u64, generation, index as u64 / 2].map(u64::to_be_bytes);
                (half == words.concat()).then_some(generation)?
            };
            let (least, most) = range.unwrap_or((generation, generation));
            range = Some((least.min(generation), most.max(generation)));
        }
        range
    }
}

/// A history in which block 0 was written three times.
fn written_three_times(store: Store) -> History {
    let mut history = History::new(7, 2, store);
    for wanted in 1..=3 {
        let (generation, _) = history.begin_write(0).expect("none is in flight");
        assert_eq!(generation, wanted);
        history.acknowledge(0, generation);
    }
    history
}

fn mixed(older: u64, newer: u64) -> Vec<u8> {
    let (older, newer) = (stamped(7, 0, older), stamped(7, 0, newer));
    [&newer[..BLOCK_BYTES / 2], &older[BLOCK_BYTES / 2..]].concat()
}

#[test]
fn the_last_acknowledged_generation_is_right() {
    let history = written_three_times(Store::Whole);
    assert_eq!(history.end_read(history.begin_read(0), &stamped(7, 0, 3)), Ok(()));
    assert_eq!(history.end_read(history.begin_read(1), &[0; BLOCK_BYTES]), Ok(()));
    assert_eq!(history.end_read(history.begin_read(1), &[]), Ok(()));
}

#[test]
fn a_lost_write_is_found() {
    let history = written_three_times(Store::Whole);
    for data in [stamped(7, 0, 2), vec![0; BLOCK_BYTES], Vec::new()] {
        assert_eq!(history.end_read(history.begin_read(0), &data), Err(Wrong::Lost));
    }
}

#[test]
fn a_stale_block_is_found_and_both_generations_during_a_write_are_right() {
    let mut history = written_three_times(Store::Whole);
    let before = history.begin_read(0);
    let (generation, _) = history.begin_write(0).expect("none is in flight");
    assert!(history.begin_write(0).is_none(), "one write at a time");
    for (newest, verdict) in [(2, Err(Wrong::Stale)), (3, Ok(())), (4, Ok(())), (5, Err(Wrong::Foreign))] {
        for reading in [before, history.begin_read(0)] {
            assert_eq!(history.end_read(reading, &stamped(7, 0, newest)), verdict, "{newest}");
        }
    }
    history.acknowledge(0, generation);
    assert_eq!(
        history.end_read(before, &stamped(7, 0, 3)),
        Ok(()),
        "the read began before the acknowledgement"
    );
    assert_eq!(history.end_read(history.begin_read(0), &stamped(7, 0, 3)), Err(Wrong::Lost));
}

#[test]
fn a_torn_block_is_found() {
    for store in [Store::Whole, Store::ByParts] {
        let mut history = written_three_times(store);
        assert_eq!(history.end_read(history.begin_read(0), &mixed(2, 3)), Err(Wrong::Torn));
        assert!(history.begin_write(0).is_some());
        let beside = history.end_read(history.begin_read(0), &mixed(3, 4));
        assert_eq!(beside, if store == Store::Whole { Err(Wrong::Torn) } else { Ok(()) });
        assert_eq!(history.end_read(history.begin_read(0), &mixed(2, 4)), Err(Wrong::Torn));
    }
}

#[test]
fn foreign_data_are_found() {
    let history = written_three_times(Store::Whole);
    let mut flipped = stamped(7, 0, 3);
    flipped[BLOCK_BYTES - 1] ^= 1;
    let mut shifted = stamped(7, 0, 3);
    shifted.rotate_left(STAMP_BYTES);
    for data in [stamped(8, 0, 3), stamped(7, 1, 3), flipped, shifted, vec![1; BLOCK_BYTES]] {
        assert_eq!(history.end_read(history.begin_read(0), &data), Err(Wrong::Foreign));
    }
}

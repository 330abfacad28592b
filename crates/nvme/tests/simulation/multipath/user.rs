//! Who reads and writes, and knows what must be true of each block at any time.
//!
//! Each write has a version that no other has, and no block has two writes under way. So the
//! versions that a block has one after the other never fall, whatever is sent how often on which
//! path: a late original that lands after a newer write would show as an older version.

use crate::client::BLOCK;
use fastrand::Rng;
use std::collections::BTreeMap;

/// The blocks that are used: few, so that writes meet.
pub const USED: u64 = 48;
const OUTSTANDING_MAX: usize = 12;

/// A command of the user.
#[derive(Debug, Clone, Copy)]
pub struct Io {
    pub start: u64,
    pub count: u32,
    /// The version to write, or `None` to read.
    pub write: Option<u64>,
}

impl Io {
    fn blocks(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + u64::from(self.count)) as usize
    }

    pub fn data(&self) -> Vec<u8> {
        let version = self.write.unwrap_or_default();
        self.blocks().flat_map(|block| pattern(block, version)).collect()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    /// The newest version that was written, and told so.
    acknowledged: u64,
    /// The newest one that was asked for.
    newest: u64,
    /// The one that the target has.
    content: u64,
    is_busy: bool,
}

#[derive(Debug)]
pub struct User {
    blocks: Vec<Block>,
    outstanding: BTreeMap<u64, Io>,
    next: u64,
    pub reads: u64,
    pub writes: u64,
}

impl User {
    pub fn new() -> Self {
        let blocks = vec![Block::default(); USED as usize];
        Self { blocks, outstanding: BTreeMap::new(), next: 1, reads: 0, writes: 0 }
    }

    pub fn io(&self, id: u64) -> Io {
        self.outstanding[&id]
    }

    pub fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// A new command, if there is room for one.
    pub fn begin(&mut self, random: &mut Rng) -> Option<u64> {
        let most = if random.u8(..5) == 0 { USED } else { 8 };
        let count = 1 + random.u64(..most);
        let start = random.u64(..=USED - count);
        let id = self.next;
        let io = Io { start, count: count as u32, write: (random.u8(..3) != 0).then_some(id) };
        if self.outstanding.len() >= OUTSTANDING_MAX || self.blocks[io.blocks()].iter().any(|one| one.is_busy)
        {
            return None;
        }
        self.next += 1;
        for block in &mut self.blocks[io.blocks()] {
            block.is_busy = true;
            block.newest = io.write.unwrap_or(block.newest);
        }
        self.outstanding.insert(id, io);
        Some(id)
    }

    /// A command was completed, with what was read.
    pub fn done(&mut self, id: u64, data: &[u8]) {
        let io = self.outstanding.remove(&id).expect("a command is completed once");
        for (at, place) in io.blocks().enumerate() {
            let block = &mut self.blocks[place];
            block.is_busy = false;
            if let Some(version) = io.write {
                assert_eq!(block.content, version, "block {place} has what was acknowledged");
                block.acknowledged = version;
                continue;
            }
            let read = version_of(place, &data[at * BLOCK..(at + 1) * BLOCK]);
            let may = block.acknowledged..=block.newest;
            assert!(may.contains(&read), "block {place}: version {read} was read, and not one of {may:?}");
        }
        if io.write.is_some() { self.writes += 1 } else { self.reads += 1 }
    }

    /// The user is killed: it does not learn how its commands end.
    pub fn forget(&mut self) {
        for io in std::mem::take(&mut self.outstanding).into_values() {
            self.blocks[io.blocks()].iter_mut().for_each(|block| block.is_busy = false);
        }
    }

    /// The target has written these blocks.
    pub fn executed(&mut self, start: u64, written: &[u8]) {
        for (at, bytes) in written.chunks(BLOCK).enumerate() {
            let place = start as usize + at;
            let (version, block) = (version_of(place, bytes), &mut self.blocks[place]);
            let before = block.content;
            assert!(version >= before, "block {place} goes back from version {before} to {version}");
            block.content = version;
        }
    }
}

fn pattern(block: usize, version: u64) -> [u8; BLOCK] {
    let word = version << 16 | block as u64;
    std::array::from_fn(|at| word.to_le_bytes()[at % 8])
}

/// The version of a block, all of it.
fn version_of(block: usize, bytes: &[u8]) -> u64 {
    let first = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)) >> 16;
    let is_whole = bytes == pattern(block, first) || (first == 0 && bytes.iter().all(|byte| *byte == 0));
    assert!(is_whole, "block {block} is of one version");
    first
}

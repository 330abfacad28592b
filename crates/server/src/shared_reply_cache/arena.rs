//! The state of clients of NFS version 4 in the group's file: its words, the words that servers
//! share beside it, and its processes, which are the members of the group.
//!
//! The arena is a hole at first, and gets memory block by block before a word is used. Words of a
//! block without memory are never touched: if the file system is full, that would end the process
//! (SIGBUS). Blocks get memory under the arena's lock, or under the change lock at its creation.

use super::file::GroupFile;
use super::layout::{ARENA_AT, ARENA_WORDS_MAX, BLOCK_WORDS, BLOCKS_AT, SERVER_AT};
use state::{OWNER_BITS, Owner, Words};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;

// A member and its generation are the number of an owner.
const _: () = assert!(u8::BITS + drc::shared::GENERATION_BITS == OWNER_BITS);

/// What servers share beside the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerWord {
    /// The server's owner and scope, in two words.
    Identity = 0,
    /// 1 once the end of the grace period is on disk, or if there was none.
    GraceRecorded = 2,
    /// CLOSEs so far.
    Closes = 3,
}

/// Words of the arena.
#[derive(Debug)]
pub(crate) struct ArenaWords {
    file: Arc<GroupFile>,
    /// Blocks of which this process knows that they have memory.
    known: Box<[AtomicU64]>,
}

impl ArenaWords {
    /// The arena in a file that has one.
    pub fn new(file: Arc<GroupFile>) -> Self {
        let blocks = file.arena_words().min(ARENA_WORDS_MAX).div_ceil(BLOCK_WORDS);
        let known = std::iter::repeat_with(AtomicU64::default).take(blocks.div_ceil(BITS)).collect();
        Self { file, known }
    }

    #[inline]
    fn word(&self, at: usize) -> Option<&AtomicU64> {
        if self.has_memory(at / BLOCK_WORDS) { self.file.words().get(ARENA_AT + at) } else { None }
    }

    #[inline]
    fn has_memory(&self, block: usize) -> bool {
        let Some(known) = self.known.get(block / BITS) else { return false };
        let bit = 1 << (block % BITS);
        known.load(Ordering::Relaxed) & bit != 0 || self.look(known, block) & bit != 0
    }

    /// Looks which blocks other processes have got memory for.
    #[cold]
    fn look(&self, known: &AtomicU64, block: usize) -> u64 {
        let shared = self.file.words().get(BLOCKS_AT + block / BITS);
        let shared = shared.map_or(0, |shared| shared.load(Ordering::SeqCst));
        known.fetch_or(shared, Ordering::Relaxed);
        shared
    }

    fn provide_block(&self, block: usize) -> bool {
        let from = block * BLOCK_WORDS;
        let words = self.file.arena_words().saturating_sub(from).min(BLOCK_WORDS);
        let Some(shared) = self.file.words().get(BLOCKS_AT + block / BITS) else { return false };
        if words == 0 || block / BITS >= self.known.len() {
            return false;
        }
        if let Err(error) = self.file.provide(ARENA_AT + from, words) {
            tracing::error!(%error, "the group's file cannot grow: clients of NFS version 4 are turned away");
            return false;
        }
        shared.fetch_or(1 << (block % BITS), Ordering::SeqCst);
        true
    }
}

impl Words for ArenaWords {
    fn word_count(&self) -> usize {
        self.file.arena_words()
    }

    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.word(at).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    #[inline]
    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::Release);
        }
    }

    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64> {
        let Some(word) = self.word(at) else { return Err(0) };
        word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).map(drop)
    }

    fn provide(&self, from: usize, words: usize) -> bool {
        if words == 0 {
            return true;
        }
        let Some(end) = from.checked_add(words) else { return false };
        (from / BLOCK_WORDS..=(end - 1) / BLOCK_WORDS)
            .all(|block| self.has_memory(block) || self.provide_block(block))
    }
}

impl GroupFile {
    /// Words of the arena; 0 if the file has none.
    pub fn arena_words(&self) -> usize {
        self.words().len().saturating_sub(ARENA_AT)
    }

    /// A word that servers share, and the one after it. `None` if the file has no state.
    pub fn server_word(&self, word: ServerWord, after: usize) -> Option<&AtomicU64> {
        self.words().get(SERVER_AT + word as usize + after)
    }
}

/// The processes of a group, as the state knows them.
#[derive(Debug)]
pub(crate) struct GroupHost {
    file: Arc<GroupFile>,
    me: Owner,
}

fn owner_of(member: drc::shared::Owner) -> Option<Owner> {
    Owner::new(member.generation << u8::BITS | u32::from(member.member))
}

impl GroupHost {
    /// This process; `None` if its number is damaged.
    pub fn new(file: Arc<GroupFile>) -> Option<Self> {
        let me = owner_of(drc::shared::Host::me(&*file))?;
        Some(Self { file, me })
    }
}

impl state::Host for GroupHost {
    fn me(&self) -> Owner {
        self.me
    }

    fn is_alive(&self, owner: Owner) -> bool {
        let member =
            drc::shared::Owner { member: owner.number() as u8, generation: owner.number() >> u8::BITS };
        drc::shared::Host::is_alive(&*self.file, member)
    }

    fn pause(&self, round: u32) -> bool {
        drc::shared::Host::pause(&*self.file, round)
    }
}

#[cfg(test)]
mod tests;

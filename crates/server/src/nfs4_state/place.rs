//! Where the state of clients is: on the heap of a server that is one process, or in the file of a
//! group of processes; and which processes use it.

use crate::shared_reply_cache::{ArenaWords, GroupHost};
use state::{HeapWords, Host, Owner, SingleProcess, Words};

/// A change of a file that is under way.
pub(crate) type Change<'a> = state::Change<'a, StateWords>;

/// The words of the state.
#[derive(Debug)]
pub(crate) enum StateWords {
    Heap(HeapWords),
    Group(ArenaWords),
}

impl Words for StateWords {
    fn word_count(&self) -> usize {
        match self {
            Self::Heap(words) => words.word_count(),
            Self::Group(words) => words.word_count(),
        }
    }

    #[inline]
    fn load(&self, at: usize) -> u64 {
        match self {
            Self::Heap(words) => words.load(at),
            Self::Group(words) => words.load(at),
        }
    }

    #[inline]
    fn store(&self, at: usize, value: u64) {
        match self {
            Self::Heap(words) => words.store(at, value),
            Self::Group(words) => words.store(at, value),
        }
    }

    #[inline]
    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64> {
        match self {
            Self::Heap(words) => words.compare_exchange(at, from, to),
            Self::Group(words) => words.compare_exchange(at, from, to),
        }
    }

    fn provide(&self, from: usize, words: usize) -> bool {
        match self {
            Self::Heap(heap) => heap.provide(from, words),
            Self::Group(group) => group.provide(from, words),
        }
    }
}

/// This process, and what it knows of the others.
#[derive(Debug)]
pub(crate) enum StateHost {
    Single(SingleProcess),
    Group(GroupHost),
}

impl Host for StateHost {
    fn me(&self) -> Owner {
        match self {
            Self::Single(host) => host.me(),
            Self::Group(host) => host.me(),
        }
    }

    fn is_alive(&self, owner: Owner) -> bool {
        match self {
            Self::Single(host) => host.is_alive(owner),
            Self::Group(host) => host.is_alive(owner),
        }
    }

    fn pause(&self, round: u32) -> bool {
        match self {
            Self::Single(host) => host.pause(round),
            Self::Group(host) => host.pause(round),
        }
    }
}

//! The memory of an arena: words of 64 bits, each changed by single atomic steps. All zeros at
//! first.
//!
//! One process uses [`HeapWords`]. A group of processes implements [`Words`] for a mapped file.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words that processes share.
///
/// A load sees the last store of any process. Stores of one process are seen in their order, and a
/// compare-exchange is also ordered with later loads of the same process (`SeqCst`).
pub trait Words {
    /// The number of words.
    fn word_count(&self) -> usize;

    /// The word at `at`; 0 beyond the end.
    fn load(&self, at: usize) -> u64;

    /// Changes a word; does nothing beyond the end.
    fn store(&self, at: usize, value: u64);

    /// Changes a word from `from` to `to`. Returns the word that is there if that is not `from`.
    ///
    /// # Errors
    /// The current value, or 0 beyond the end.
    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64>;

    /// Gets memory for words that are about to be used for the first time, so that changing them
    /// cannot fail. Returns false if there is none. Words without memory are 0.
    fn provide(&self, from: usize, words: usize) -> bool {
        let _ = (from, words);
        true
    }
}

impl<W: Words + ?Sized> Words for &W {
    fn word_count(&self) -> usize {
        (**self).word_count()
    }

    fn load(&self, at: usize) -> u64 {
        (**self).load(at)
    }

    fn store(&self, at: usize, value: u64) {
        (**self).store(at, value);
    }

    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64> {
        (**self).compare_exchange(at, from, to)
    }

    fn provide(&self, from: usize, words: usize) -> bool {
        (**self).provide(from, words)
    }
}

/// Words of one page of [`HeapWords`], 32 KiB.
const PAGE_WORDS: usize = 4096;

/// Memory of this process. A page is allocated when one of its words is first changed, so a large
/// arena costs only what is used of it.
#[derive(Debug)]
pub struct HeapWords {
    pages: Box<[OnceLock<Box<[AtomicU64]>>]>,
    word_count: usize,
}

impl HeapWords {
    /// Memory of `word_count` words, all zeros.
    #[must_use]
    pub fn new(word_count: usize) -> Self {
        let pages = word_count.div_ceil(PAGE_WORDS);
        Self { pages: std::iter::repeat_with(OnceLock::new).take(pages).collect(), word_count }
    }

    fn existing(&self, at: usize) -> Option<&AtomicU64> {
        self.pages.get(at / PAGE_WORDS)?.get()?.get(at % PAGE_WORDS)
    }

    fn word(&self, at: usize) -> Option<&AtomicU64> {
        if at >= self.word_count {
            return None;
        }
        let zeros = || std::iter::repeat_with(AtomicU64::default).take(PAGE_WORDS).collect();
        self.pages.get(at / PAGE_WORDS)?.get_or_init(zeros).get(at % PAGE_WORDS)
    }
}

impl Words for HeapWords {
    fn word_count(&self) -> usize {
        self.word_count
    }

    fn load(&self, at: usize) -> u64 {
        self.existing(at).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::Release);
        }
    }

    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64> {
        let Some(word) = self.word(at) else { return Err(0) };
        word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).map(drop)
    }
}

//! Views of file content that do not change until dropped, whatever is written meanwhile.

#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;
use std::sync::LazyLock;

use memory::{Area, Registered, Registrar};
use smallvec::SmallVec;

use super::arena::Arena;
use super::layout::{ARENA_PAGES, EXTENT_BYTES, EXTENT_PAGES, PAGE_BYTES, arena_of};
use super::pool::{Page, Pool};
use crate::payload::Segment;

/// The content of holes; one extent of it per segment. An area, so that devices may be told of it.
static ZEROS: LazyLock<Area> = LazyLock::new(|| {
    Area::map(EXTENT_BYTES).unwrap_or_else(|| handle_alloc_error(Layout::new::<[u8; EXTENT_BYTES]>()))
});

/// Segments up to this length are prefetched. Many of them are sent at once, each from a different
/// place: by the time one is sent, the data requested at its lookup have arrived from memory.
/// Longer segments do not benefit (docs/decisions/0002-event-loop.md).
const SMALL_BYTES: usize = 8 << 10;

/// The prefetched part of a short segment; the processor prefetches the rest by itself.
const PREFETCH_BYTES: usize = 512;

/// Prefetches the first bytes, without waiting for them.
#[cfg(target_arch = "x86_64")]
fn prefetch(bytes: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    const CACHE_LINE_BYTES: usize = 64;
    for line in bytes.get(..bytes.len().min(PREFETCH_BYTES)).unwrap_or_default().chunks(CACHE_LINE_BYTES) {
        // SAFETY: a prefetch hint has no visible effect, and the address belongs to a borrow.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

/// Stable Rust has no prefetch for other processors.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_bytes: &[u8]) {}

/// A view of the store's memory that does not change until dropped.
///
/// It may outlive the store: the memory it refers to is then kept.
pub(crate) struct PinnedBytes {
    start: NonNull<u8>,
    len: usize,
    /// The arena in which it is pinned; absent for a hole.
    arena: Option<NonNull<Arena>>,
}

// SAFETY: the bytes do not change while the segment lives, and unpinning is atomic.
unsafe impl Send for PinnedBytes {}
// SAFETY: as above.
unsafe impl Sync for PinnedBytes {}

impl PinnedBytes {
    fn hole(len: usize) -> PinnedBytes {
        PinnedBytes { start: ZEROS.start(), len: len.min(EXTENT_BYTES), arena: None }
    }

    /// Pins `len` bytes from `from` on, counted from the start of page `first`. The caller borrows
    /// all pages that it covers, which lie in one arena in a row.
    fn new(pool: &Pool, first: &Page, from: usize, len: usize) -> Option<PinnedBytes> {
        let arena = pool.arena(arena_of(first.number()))?;
        let start = NonNull::new(pool.start(first.number()).wrapping_add(from))?;
        let segment = PinnedBytes { start, len, arena: Some(NonNull::from(arena)) };
        for extent in segment.extents(arena) {
            arena.pin(extent);
        }
        if len <= SMALL_BYTES {
            prefetch(&segment);
        }
        Some(segment)
    }

    /// The bytes as a device addresses them; `None` where they cannot be registered.
    pub fn registered(&self, with: &Registrar) -> Option<Registered> {
        match self.arena {
            // SAFETY: a pool keeps the records of its arenas as long as it lives, and it lives
            // while pins are left.
            Some(arena) => unsafe { arena.as_ref() }.registered(with, self.start.as_ptr(), self.len),
            None => ZEROS.registered(with, self.start.as_ptr(), self.len),
        }
    }

    fn extents(&self, arena: &Arena) -> std::ops::RangeInclusive<usize> {
        let from = self.start.as_ptr().addr() - arena.base().addr();
        from / EXTENT_BYTES..=(from + self.len - 1) / EXTENT_BYTES
    }
}

impl Deref for PinnedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory either is that of holes, which stays and is never written, or its
        // extents are pinned: its pages are neither overwritten nor given back while they are, and
        // they were readable when the pin was set.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        let Some(arena) = self.arena else { return };
        // SAFETY: a pool keeps the records of its arenas as long as it lives, and it lives while
        // pins are left.
        let arena = unsafe { arena.as_ref() };
        for extent in self.extents(arena) {
            arena.unpin(extent);
        }
    }
}

/// Appends pinned segments for `len` bytes that start `from` bytes into the first of `slots`;
/// beyond the last slot everything is a hole. Pages that lie in a row become one segment.
pub(super) fn pin_segments(
    pool: &Pool,
    slots: &[Option<Page>],
    from: usize,
    len: usize,
    out: &mut SmallVec<[Segment; 1]>,
) {
    let mut at = from / PAGE_BYTES;
    let mut skip = from % PAGE_BYTES;
    let mut left = len;
    while left > 0 {
        let wanted = (skip + left).div_ceil(PAGE_BYTES);
        let rest = slots.get(at..).unwrap_or(&[]);
        let rest = rest.get(..wanted).unwrap_or(rest);
        let (pages, taken) = match rest.first() {
            Some(Some(first)) => {
                let pages = contiguous(rest);
                let taken = left.min(pages * PAGE_BYTES - skip);
                out.extend(PinnedBytes::new(pool, first, skip, taken).map(Segment::from));
                (pages, taken)
            }
            Some(None) => {
                let pages = rest.iter().take_while(|slot| slot.is_none()).count().min(EXTENT_PAGES);
                let taken = left.min(pages * PAGE_BYTES - skip);
                out.push(PinnedBytes::hole(taken).into());
                (pages, taken)
            }
            None => {
                let taken = left.min(EXTENT_BYTES - skip);
                out.push(PinnedBytes::hole(taken).into());
                (EXTENT_PAGES, taken)
            }
        };
        at += pages;
        skip = 0;
        left -= taken;
    }
}

/// How many slots from the first one, which has a page, lie in a row in one arena.
fn contiguous(slots: &[Option<Page>]) -> usize {
    let mut pages = 0;
    let mut next = 0;
    for slot in slots {
        let Some(page) = slot else { break };
        let number = page.number();
        if pages > 0 && (number != next || (number as usize).is_multiple_of(ARENA_PAGES)) {
            break;
        }
        next = number.wrapping_add(1);
        pages += 1;
    }
    pages
}

//! The pool: pages within a hard bound, their ownership, and access to their bytes.
//!
//! Ownership is in types: a [`FreshPage`] was never seen by a reader and may be filled; a [`Page`]
//! belongs to one slot of one file, may be read while it is borrowed, and may be overwritten only
//! while no pin is on its extent; [`FreedPages`] were taken out of a file. None of them has a
//! destructor: they are four bytes in a table, and their owner must return them.
//!
//! The bound holds for all that is charged: pages in use or in limbo, and the tables and names of
//! the tree. Pages that a WRITE is being received into are not charged until the WRITE is complete
//! ([`Incoming`]): who receives it bounds them, and a WRITE that never ends takes no space from
//! others. A small part of the bound is reserved for changes that free as much as they take, at
//! once or when readers let go: names that move (half of the reserve at most), copies on write, and
//! the last page of a truncated file.

#![allow(unsafe_code)]

use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use memory::{Area, Registrar, Scatter};
use smallvec::SmallVec;

use super::arena::Arena;
use super::free_map::{EmptyArenas, FreeMap};
use super::layout::{
    ARENA_BYTES, ARENA_PAGES, ARENAS_MAX, EXTENT_PAGES, PAGE_BYTES, Spans, arena_of, extent_of, extents_of,
    push_span,
};

/// The reserve's share of the bound.
const RESERVE_SHARE: u64 = 64;
/// The largest reserve: what is copied on write at one time is bounded by the replies in flight.
const RESERVE_BYTES_MAX: u64 = 16 << 20;

/// A page of a file.
#[derive(Debug)]
pub(super) struct Page(NonZeroU32);

impl Page {
    pub fn number(&self) -> u32 {
        self.0.get()
    }
}

/// A page that no reader has ever seen.
#[derive(Debug)]
#[must_use]
pub(super) struct FreshPage(NonZeroU32);

impl FreshPage {
    pub fn number(&self) -> u32 {
        self.0.get()
    }

    /// Makes it a page that readers can find.
    pub fn publish(self) -> Page {
        Page(self.0)
    }
}

/// Bytes of pages that are being received into, and that have memory here for certain; a larger
/// store has memory for as much as its bound. A WRITE beyond that is copied when it is complete.
const INCOMING_BYTES_MIN: u64 = 1 << 30;

/// Fresh pages that are not charged yet, because what they are for may never be complete.
#[must_use]
pub(super) struct Incoming(FreshPages);

impl Incoming {
    /// The pages, to fill them.
    pub fn pages(&mut self) -> &mut FreshPages {
        &mut self.0
    }
}

/// Fresh pages, in order.
#[must_use]
pub(super) struct FreshPages {
    spans: Spans,
    /// Spans before this one are used up.
    at: usize,
}

impl FreshPages {
    /// Takes the first page out.
    pub fn take_first(&mut self) -> Option<FreshPage> {
        while let Some(span) = self.spans.get_mut(self.at) {
            if span.pages > 0 {
                let first = span.first;
                span.pages -= 1;
                span.first = first.saturating_add(1);
                return NonZeroU32::new(first).map(FreshPage);
            }
            self.at += 1;
        }
        None
    }

    /// Bytes of the pages that are left.
    fn bytes(&self) -> u64 {
        let pages: u64 = self.spans.iter().map(|span| u64::from(span.pages)).sum();
        pages * PAGE_BYTES as u64
    }

    /// Visits `len` bytes from `skip` on, as slices in order.
    pub fn slices<'a>(
        &'a mut self,
        pool: &'a Pool,
        skip: usize,
        len: usize,
        mut visit: impl FnMut(&'a mut [u8]),
    ) {
        for (first, from, count) in self.parts(skip, len) {
            // SAFETY: the pages of a span lie in one arena, in a row, and are ours alone until
            // published; spans do not overlap, and `self` is borrowed for as long as the slices
            // live.
            visit(unsafe { slice::from_raw_parts_mut(pool.start(first).add(from), count) });
        }
    }

    /// Appends `len` bytes from `skip` on as a device addresses them; false where some of them
    /// cannot be registered.
    pub fn registered(
        &mut self,
        pool: &Pool,
        skip: usize,
        len: usize,
        with: &Registrar,
        out: &mut Scatter,
    ) -> bool {
        self.parts(skip, len).all(|(first, from, count)| {
            let arena = pool.arena(arena_of(first));
            let start = pool.start(first).wrapping_add(from);
            let part = arena.and_then(|arena| arena.registered(with, start, count));
            out.extend(part);
            part.is_some()
        })
    }

    /// The spans that hold `len` bytes from `skip` on, in order: their first page, and the first
    /// byte and the number of bytes in each.
    fn parts(&self, mut skip: usize, mut len: usize) -> impl Iterator<Item = (u32, usize, usize)> {
        self.spans.iter().skip(self.at).filter_map(move |span| {
            let bytes = span.pages as usize * PAGE_BYTES;
            let from = skip.min(bytes);
            let count = (bytes - from).min(len);
            skip -= from;
            len -= count;
            (count > 0).then_some((span.first, from, count))
        })
    }
}

/// Pages that no file has any more, but readers may still look at.
#[derive(Default)]
#[must_use]
pub(super) struct FreedPages(Spans);

impl FreedPages {
    pub fn push(&mut self, page: Page) {
        push_span(&mut self.0, page.number(), 1);
    }
}

/// The preferred position of a new page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageRequest {
    /// This very page, if it is free.
    pub at: Option<u32>,
    /// Otherwise this index in an extent that is free entirely.
    pub index: Option<usize>,
}

/// See the module.
pub(super) struct Pool {
    bound: u64,
    reserve: u64,
    used: AtomicU64,
    /// Bytes of pages that are being received into.
    incoming: AtomicU64,
    incoming_max: u64,
    /// Made when first mapped, kept for good; number 0 stays empty.
    arenas: Box<[OnceLock<Box<Arena>>]>,
    map: Mutex<FreeMap>,
}

impl Pool {
    pub fn new(bound: u64) -> Arc<Pool> {
        let arenas_of_bound = bound.div_ceil(ARENA_BYTES as u64).clamp(1, ARENAS_MAX);
        let incoming_arenas = arenas_of_bound.max(INCOMING_BYTES_MIN / ARENA_BYTES as u64);
        let incoming_arenas = incoming_arenas.min(ARENAS_MAX - arenas_of_bound);
        let arenas_max = (arenas_of_bound + incoming_arenas) as usize;
        Arc::new(Pool {
            bound,
            reserve: (bound / RESERVE_SHARE).min(RESERVE_BYTES_MAX),
            used: AtomicU64::new(0),
            incoming: AtomicU64::new(0),
            incoming_max: incoming_arenas * ARENA_BYTES as u64,
            arenas: (0..=arenas_max).map(|_| OnceLock::new()).collect(),
            map: Mutex::new(FreeMap::new(arenas_max)),
        })
    }

    /// Bytes in use: pages, tables and names.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The bound in bytes.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// Bytes that can still be used by anything.
    pub fn free_bytes(&self) -> u64 {
        (self.bound - self.reserve).saturating_sub(self.used())
    }

    /// Arenas mapped now.
    pub fn arenas(&self) -> usize {
        self.lock().mapped()
    }

    /// Pins outstanding.
    pub fn pins(&self) -> u64 {
        self.arenas.iter().filter_map(OnceLock::get).map(|arena| arena.pins()).sum()
    }

    /// Takes bytes from the bound, for something that is not a page; false when there are not
    /// enough.
    #[must_use]
    pub fn charge(&self, bytes: u64) -> bool {
        self.charge_within(bytes, self.bound - self.reserve)
    }

    /// As [`Pool::charge`], for a name that takes the place of another: so that names can be moved,
    /// and open files removed by the clients that rename them for that, in a full store.
    #[must_use]
    pub fn charge_move(&self, bytes: u64) -> bool {
        self.charge_within(bytes, self.bound - self.reserve / 2)
    }

    /// Returns charged bytes.
    pub fn uncharge(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{bytes} bytes of {before} are given back");
    }

    fn charge_within(&self, bytes: u64, limit: u64) -> bool {
        add_within(&self.used, bytes, limit)
    }

    /// One page, its bytes undefined; `replacing` when another page will be freed for it.
    pub fn page(&self, request: PageRequest, replacing: bool) -> Option<FreshPage> {
        let limit = if replacing { self.bound } else { self.bound - self.reserve };
        if !self.charge_within(PAGE_BYTES as u64, limit) {
            return None;
        }
        let mut map = self.lock();
        let number = match request {
            PageRequest { at: Some(at), .. } if map.take_at(at) => Some(at),
            PageRequest { index: Some(index), .. } => {
                self.retry(&mut map, |map| map.take_from_whole_extent(index))
            }
            _ => None,
        };
        let number = number.or_else(|| self.retry(&mut map, FreeMap::take_any)).and_then(NonZeroU32::new);
        if number.is_none() {
            self.uncharge(PAGE_BYTES as u64);
        }
        number.map(FreshPage)
    }

    /// `count` pages for a file's pages from one that has `index` in its 64 KiB: whole extents
    /// where the file has whole 64 KiB, so that a later write of those frees whole extents again.
    pub fn incoming(&self, index: usize, count: usize) -> Option<Incoming> {
        let bytes = (count * PAGE_BYTES) as u64;
        if !add_within(&self.incoming, bytes, self.incoming_max) {
            return None;
        }
        let head = ((EXTENT_PAGES - index % EXTENT_PAGES) % EXTENT_PAGES).min(count);
        let extents = (count - head) / EXTENT_PAGES;
        let tail = (count - head) % EXTENT_PAGES;
        let mut spans = Spans::new();
        let mut map = self.lock();
        let got = self.piece(&mut map, head, &mut spans)
            && self.extents(&mut map, extents, &mut spans)
            && self.piece(&mut map, tail, &mut spans);
        if !got {
            let mut empty = EmptyArenas::new();
            map.release_spans(&spans, &mut empty);
            self.unmap(map, &empty);
            self.incoming.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        Some(Incoming(FreshPages { spans, at: 0 }))
    }

    /// Charges pages that have been received into, and takes them; leaves them if the bound has no
    /// room for them.
    pub fn accept(&self, incoming: &mut Option<Incoming>) -> Option<FreshPages> {
        let bytes = incoming.as_ref()?.0.bytes();
        if !self.charge(bytes) {
            return None;
        }
        self.incoming.fetch_sub(bytes, Ordering::Relaxed);
        incoming.take().map(|incoming| incoming.0)
    }

    /// Frees pages that were not received into to the end.
    pub fn give_up(&self, incoming: Incoming) {
        self.incoming.fetch_sub(incoming.0.bytes(), Ordering::Relaxed);
        self.release_fresh(&incoming.0);
    }

    /// The bytes of a page.
    pub fn bytes<'a>(&'a self, page: &'a Page) -> &'a [u8] {
        // SAFETY: the page is mapped as long as it is owned; it changes only through a mutable
        // borrow of it.
        unsafe { slice::from_raw_parts(self.start(page.number()), PAGE_BYTES) }
    }

    /// The bytes of a page, to overwrite them; gives the page back when readers have its extent
    /// pinned.
    pub fn bytes_mut<'a>(&'a self, page: &'a mut Page) -> Result<&'a mut [u8], &'a mut Page> {
        let number = page.number();
        if self.arena(arena_of(number)).is_none_or(|arena| arena.pinned(extent_of(number))) {
            return Err(page);
        }
        // SAFETY: the borrow of the one owner is exclusive, so no reader can find the page and pin
        // it now, and those that did have unpinned: `pinned` synchronises with the last unpin.
        Ok(unsafe { slice::from_raw_parts_mut(self.start(number), PAGE_BYTES) })
    }

    /// The bytes of a fresh page, undefined until written.
    pub fn fill<'a>(&'a self, fresh: &'a mut FreshPage) -> &'a mut [u8] {
        // SAFETY: the page is ours alone until published. Its memory is initialised: anonymous
        // mappings start zeroed.
        unsafe { slice::from_raw_parts_mut(self.start(fresh.number()), PAGE_BYTES) }
    }

    /// Frees pages that no file has any more; those that are pinned when their last pin goes.
    pub fn free(&self, freed: FreedPages) {
        if freed.0.is_empty() {
            return;
        }
        let mut empty = EmptyArenas::new();
        let mut bytes = 0;
        let mut map = self.lock();
        for (arena, extent, pages) in freed.0.iter().flat_map(|&span| extents_of(span)) {
            if self.arena(arena).is_some_and(|at| at.defer(extent, pages)) {
                continue;
            }
            map.release(arena, extent, pages, &mut empty);
            bytes += u64::from(pages.count_ones()) * PAGE_BYTES as u64;
        }
        self.unmap(map, &empty);
        self.uncharge(bytes);
    }

    /// Frees charged pages that no reader ever saw.
    pub fn free_fresh(&self, fresh: FreshPages) {
        self.release_fresh(&fresh);
        self.uncharge(fresh.bytes());
    }

    fn release_fresh(&self, fresh: &FreshPages) {
        let spans: Spans = fresh.spans.iter().copied().filter(|span| span.pages > 0).collect();
        if spans.is_empty() {
            return;
        }
        let mut empty = EmptyArenas::new();
        let mut map = self.lock();
        map.release_spans(&spans, &mut empty);
        self.unmap(map, &empty);
    }

    /// Frees pages of one extent that nobody can see: the last unpin took them out of limbo.
    pub fn release(&self, arena: usize, extent: usize, pages: u16) {
        let mut empty = EmptyArenas::new();
        let mut map = self.lock();
        map.release(arena, extent, pages, &mut empty);
        self.unmap(map, &empty);
        self.uncharge(u64::from(pages.count_ones()) * PAGE_BYTES as u64);
    }

    /// Gives back the memory of arenas without pins; for a pool that lives on only for its pinned
    /// readers.
    pub fn unmap_unpinned(&self) {
        for arena in self.arenas.iter().filter_map(OnceLock::get).filter(|arena| arena.pins() == 0) {
            drop(arena.detach());
        }
    }

    /// The record of an arena that was mapped at least once.
    pub fn arena(&self, index: usize) -> Option<&Arena> {
        self.arenas.get(index).and_then(OnceLock::get).map(Box::as_ref)
    }

    /// Where a page starts. Valid while its owner has it.
    pub fn start(&self, page: u32) -> *mut u8 {
        let base = self.arena(arena_of(page)).map_or(std::ptr::null_mut(), Arena::base);
        assert!(!base.is_null(), "page {page} is mapped");
        base.wrapping_add(page as usize % ARENA_PAGES * PAGE_BYTES)
    }

    fn lock(&self) -> MutexGuard<'_, FreeMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unmaps outside the lock: it takes time in proportion to the memory.
    fn unmap(&self, map: MutexGuard<'_, FreeMap>, empty: &EmptyArenas) {
        let detached: SmallVec<[Area; 2]> = empty.iter().filter_map(|&at| self.arena(at)?.detach()).collect();
        drop(map);
        drop(detached);
    }

    fn retry(&self, map: &mut FreeMap, take: impl Fn(&mut FreeMap) -> Option<u32>) -> Option<u32> {
        take(map).or_else(|| if self.grow(map) { take(map) } else { None })
    }

    fn piece(&self, map: &mut FreeMap, count: usize, out: &mut Spans) -> bool {
        count == 0
            || map.take_contiguous(count, out)
            || (self.grow(map) && map.take_contiguous(count, out))
            || self.scattered(map, count, out)
    }

    fn extents(&self, map: &mut FreeMap, count: usize, out: &mut Spans) -> bool {
        let mut left = count;
        loop {
            left -= map.take_extents(left, out);
            if left == 0 {
                return true;
            }
            if !self.grow(map) {
                return self.scattered(map, left * EXTENT_PAGES, out);
            }
        }
    }

    fn scattered(&self, map: &mut FreeMap, count: usize, out: &mut Spans) -> bool {
        (0..count).all(|_| map.take_any().map(|page| push_span(out, page, 1)).is_some())
    }

    /// Maps one more arena, if the bound and the system allow.
    fn grow(&self, map: &mut FreeMap) -> bool {
        let Some(index) = map.next_unmapped() else { return false };
        let Some(slot) = self.arenas.get(index) else { return false };
        let mapped = slot.get_or_init(|| Box::new(Arena::new(index, NonNull::from(self)))).map();
        if mapped {
            map.add(index);
        }
        mapped
    }
}

/// Adds to a sum unless it would exceed `limit`.
fn add_within(sum: &AtomicU64, bytes: u64, limit: u64) -> bool {
    let add = |sum: u64| sum.checked_add(bytes).filter(|&sum| sum <= limit);
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

impl Drop for Pool {
    fn drop(&mut self) {
        for arena in self.arenas.iter().filter_map(OnceLock::get) {
            drop(arena.detach());
        }
    }
}

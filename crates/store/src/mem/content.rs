//! The content of one file: a sparse map from its pages to pages of the pool.
//!
//! Leaves of up to 1024 slots (4 MiB of file) hang in a tree by their index, and grow from 16
//! slots, so that a small file costs little. An empty slot is a hole. Invariants: bytes of the last
//! page beyond the file's size are zero; there is no page wholly beyond it. The file's lock is held
//! throughout, for writing by whatever changes anything; pages that were taken out are freed by the
//! caller, after the lock.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::cost::heap_bytes;
use super::layout::{EXTENT_PAGES, PAGE_BYTES, index_in_extent};
use super::pool::{FreedPages, FreshPage, FreshPages, Page, PageRequest, Pool};
use super::segment::pin_segments;
use crate::interface::{Result, Status};
use crate::payload::Segment;

/// Slots in a full leaf.
const LEAF_PAGES: u64 = 1024;
/// Slots in the smallest leaf; each next size is four times as large.
const LEAF_PAGES_MIN: usize = 16;
/// What the first leaf costs besides its slots: a node of the tree, which has places for eleven.
const FIRST_LEAF_BYTES: u64 = heap_bytes(11 * size_of::<(u64, Leaf)>() + 2 * size_of::<usize>());
/// What each further leaf costs besides its slots: its share of a node that is about half full, as
/// nodes are that are filled in order, and of the nodes above.
const LEAF_BYTES: u64 = 64;
/// Bytes in a page, as file offsets are counted.
const PAGE: u64 = PAGE_BYTES as u64;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Content {
    leaves: BTreeMap<u64, Leaf>,
    pages: u64,
}

#[derive(Default)]
struct Leaf {
    slots: Box<[Option<Page>]>,
}

impl Leaf {
    /// What so many slots cost.
    fn charge(slots: usize) -> u64 {
        heap_bytes(slots * size_of::<Option<Page>>())
    }
}

/// How one page of a write gets its new bytes.
enum Target<'a> {
    /// Overwritten where it is: no reader looks at it.
    InPlace(&'a mut [u8]),
    /// Copied on write.
    Replace(&'a mut Page, FreshPage),
    /// Put where a hole was.
    Insert(&'a mut Option<Page>, FreshPage),
}

/// The pages a byte range touches, and the part of each.
#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    end: u64,
}

impl Range {
    /// `len` is not 0.
    fn new(offset: u64, len: usize) -> Range {
        Range { offset, end: offset + len as u64 }
    }

    fn first(self) -> u64 {
        self.offset / PAGE
    }

    fn last(self) -> u64 {
        (self.end - 1) / PAGE
    }

    /// The bytes of a page that lie in the range.
    fn part(self, page: u64) -> std::ops::Range<usize> {
        let start = page * PAGE;
        let low = self.offset.saturating_sub(start) as usize;
        let high = (self.end - start).min(PAGE) as usize;
        low..high
    }

    /// The slots of a leaf that lie in the range.
    fn slots(self, leaf: u64) -> std::ops::Range<usize> {
        let start = leaf * LEAF_PAGES;
        let low = self.first().saturating_sub(start) as usize;
        let high = (self.last() - start).min(LEAF_PAGES - 1) as usize;
        low..high + 1
    }

    fn leaves(self) -> std::ops::RangeInclusive<u64> {
        self.first() / LEAF_PAGES..=self.last() / LEAF_PAGES
    }
}

/// What the tree of so many leaves costs.
fn tree_bytes(leaves: usize) -> u64 {
    leaves.checked_sub(1).map_or(0, |more| FIRST_LEAF_BYTES + more as u64 * LEAF_BYTES)
}

impl Content {
    /// Bytes in pages.
    pub fn used(&self) -> u64 {
        self.pages * PAGE
    }

    /// Appends pinned segments for a range, which lies within the file.
    pub fn read(&self, pool: &Pool, offset: u64, len: usize, out: &mut SmallVec<[Segment; 1]>) {
        let mut at = offset;
        let mut left = len;
        while left > 0 {
            let leaf = at / (LEAF_PAGES * PAGE);
            let from = (at % (LEAF_PAGES * PAGE)) as usize;
            let count = left.min((LEAF_PAGES * PAGE) as usize - from);
            let slots = self.leaves.get(&leaf).map_or(&[][..], |leaf| &leaf.slots);
            pin_segments(pool, slots, from, count, out);
            at += count as u64;
            left -= count;
        }
    }

    /// Overwrites a range with bytes received elsewhere: all of it, or nothing for lack of space.
    pub fn write(&mut self, pool: &Pool, offset: u64, data: &[u8], freed: &mut FreedPages) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let range = Range::new(offset, data.len());
        self.prepare(pool, range)?;
        let mut targets: SmallVec<[Target<'_>; 2]> = SmallVec::new();
        let mut inserted = 0;
        let enough = self.leaves.range_mut(range.leaves()).all(|(&index, leaf)| {
            let slots = range.slots(index);
            let first = index * LEAF_PAGES;
            let pieces = slots.start / EXTENT_PAGES..slots.end.div_ceil(EXTENT_PAGES);
            let chunks = leaf.slots.chunks_mut(EXTENT_PAGES).enumerate();
            chunks.skip(pieces.start).take(pieces.len()).all(|(at, chunk)| {
                let start = at * EXTENT_PAGES;
                let part = slots.start.max(start) - start..slots.end.min(start + EXTENT_PAGES) - start;
                collect(pool, chunk, part, first > 0 || at > 0, &mut targets)
            })
        });
        if !enough {
            let mut unused = FreedPages::default();
            for target in targets {
                if let Target::Replace(_, fresh) | Target::Insert(_, fresh) = target {
                    unused.push(fresh.publish());
                }
            }
            pool.free(unused);
            self.prune(pool, range);
            return Err(Status::NoSpace);
        }
        let mut data = data;
        for (target, page) in targets.into_iter().zip(range.first()..) {
            let part = range.part(page);
            let (now, rest) = data.split_at(part.len());
            data = rest;
            match target {
                Target::InPlace(bytes) => bytes[part].copy_from_slice(now),
                Target::Replace(page, mut fresh) => {
                    let bytes = pool.fill(&mut fresh);
                    copy_around(bytes, pool.bytes(page), part.clone());
                    bytes[part].copy_from_slice(now);
                    freed.push(std::mem::replace(page, fresh.publish()));
                }
                Target::Insert(slot, mut fresh) => {
                    let bytes = pool.fill(&mut fresh);
                    zero_around(bytes, part.clone());
                    bytes[part].copy_from_slice(now);
                    *slot = Some(fresh.publish());
                    inserted += 1;
                }
            }
        }
        self.pages += inserted;
        Ok(())
    }

    /// Makes room in the tables for a write; after it [`Content::swap_in`] cannot fail.
    pub fn prepare_swap(&mut self, pool: &Pool, offset: u64, len: usize) -> Result<()> {
        self.prepare(pool, Range::new(offset, len))
    }

    /// Swaps received pages in. Only the first and the last page can be partial; they are merged
    /// with the existing content.
    pub fn swap_in(
        &mut self,
        pool: &Pool,
        offset: u64,
        len: usize,
        mut pages: FreshPages,
        freed: &mut FreedPages,
    ) {
        let range = Range::new(offset, len);
        let mut inserted = 0;
        for (&index, leaf) in self.leaves.range_mut(range.leaves()) {
            let slots = range.slots(index);
            let first = index * LEAF_PAGES + slots.start as u64;
            let slots = leaf.slots.get_mut(slots).into_iter().flatten();
            for (slot, page) in slots.zip(first..) {
                let Some(fresh) = pages.take_first() else { break };
                inserted += u64::from(slot.is_none());
                place_page(pool, slot, fresh, range.part(page), freed);
            }
        }
        self.pages += inserted;
        pool.free_fresh(pages);
    }

    /// Truncates the content to `size`: zeroes the rest of the last page, removes all pages after
    /// it.
    pub fn truncate(&mut self, pool: &Pool, size: u64, freed: &mut FreedPages) -> Result<()> {
        let kept = (size % PAGE) as usize;
        let leaf_index = size / PAGE / LEAF_PAGES;
        let index = (size / PAGE % LEAF_PAGES) as usize;
        if kept > 0
            && let Some(leaf) = self.leaves.get_mut(&leaf_index)
            && let Some(Some(page)) = leaf.slots.get_mut(index)
        {
            match pool.bytes_mut(page) {
                Ok(bytes) => bytes[kept..].fill(0),
                Err(page) => {
                    let mut fresh = pool.page(PageRequest::default(), true).ok_or(Status::NoSpace)?;
                    let bytes = pool.fill(&mut fresh);
                    bytes[..kept].copy_from_slice(&pool.bytes(page)[..kept]);
                    bytes[kept..].fill(0);
                    freed.push(std::mem::replace(page, fresh.publish()));
                }
            }
        }
        let cut = size.div_ceil(PAGE);
        let leaves = self.leaves.len();
        let mut slots_bytes = 0;
        let mut behind = self.leaves.split_off(&(cut / LEAF_PAGES));
        if let Some(mut border) = behind.remove(&(cut / LEAF_PAGES)) {
            let index = (cut % LEAF_PAGES) as usize;
            self.pages -= clear_slots(border.slots.get_mut(index..).unwrap_or(&mut []), freed);
            if border.slots.iter().any(Option::is_some) {
                self.leaves.insert(cut / LEAF_PAGES, border);
            } else {
                slots_bytes += Leaf::charge(border.slots.len());
            }
        }
        for mut leaf in behind.into_values() {
            self.pages -= clear_slots(&mut leaf.slots, freed);
            slots_bytes += Leaf::charge(leaf.slots.len());
        }
        pool.uncharge(slots_bytes + tree_bytes(leaves) - tree_bytes(self.leaves.len()));
        Ok(())
    }

    /// Where data begin at or after an offset; `None` if there are none.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let page = offset / PAGE;
        self.leaves.range(page / LEAF_PAGES..).find_map(|(&index, leaf)| {
            let start = index * LEAF_PAGES;
            let skip = page.saturating_sub(start) as usize;
            let more = leaf.slots.iter().skip(skip).position(Option::is_some)?;
            Some(offset.max((start + (skip + more) as u64) * PAGE))
        })
    }

    /// Where a hole begins at or after an offset; there is one at the end. Past `limit`, which is
    /// not searched, what is there is not known.
    pub fn next_hole(&self, offset: u64, limit: u64) -> u64 {
        let mut page = offset / PAGE;
        loop {
            let start = page / LEAF_PAGES * LEAF_PAGES;
            let skip = (page - start) as usize;
            let slots = self.leaves.get(&(page / LEAF_PAGES)).map_or(&[][..], |leaf| &leaf.slots);
            // Slots that a leaf does not have are holes.
            let filled = slots.iter().skip(skip).take_while(|slot| slot.is_some()).count() as u64;
            page += filled;
            if filled == 0 || page < start + LEAF_PAGES || page * PAGE >= limit {
                return offset.max(page * PAGE);
            }
        }
    }

    /// The first hole in a range: its part in the range, with whole pages.
    pub fn hole_within(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let start = self.next_hole(from, to);
        if start >= to {
            return None;
        }
        let end = self.next_data(start).map_or(to, |data| data.min(to));
        Some((start / PAGE * PAGE, end.next_multiple_of(PAGE)))
    }

    /// Puts zeros where a range of whole pages has holes. `zeros` are pages for the range, with
    /// zeros in them; without them, pages are taken here. If that fails, nothing has changed.
    pub fn fill_holes(
        &mut self,
        pool: &Pool,
        (from, to): (u64, u64),
        mut zeros: Option<FreshPages>,
        freed: &mut FreedPages,
    ) -> Result<()> {
        let range = Range { offset: from, end: to };
        let mut holes: SmallVec<[u64; 8]> = SmallVec::new();
        let mut result = self.prepare(pool, range);
        let pages = if result.is_ok() { range.first()..range.last() + 1 } else { 0..0 };
        for page in pages {
            let fresh = zeros.as_mut().and_then(FreshPages::take_first);
            let leaf = self.leaves.get_mut(&(page / LEAF_PAGES));
            let slot = leaf.and_then(|leaf| leaf.slots.get_mut((page % LEAF_PAGES) as usize));
            let Some(slot @ None) = slot else {
                // Somebody has written there meanwhile.
                fresh.into_iter().for_each(|fresh| freed.push(fresh.publish()));
                continue;
            };
            let Some(fresh) = fresh.or_else(|| zero_page(pool)) else {
                result = Err(Status::NoSpace);
                break;
            };
            *slot = Some(fresh.publish());
            holes.push(page);
            self.pages += 1;
        }
        if let Some(zeros) = zeros {
            pool.free_fresh(zeros);
        }
        if result.is_err() {
            holes.iter().for_each(|page| self.free_pages(pool, page * PAGE, (page + 1) * PAGE, freed));
            self.prune(pool, range);
        }
        result
    }

    /// Makes a range a hole: its whole pages are freed, the others zeroed where they are in the
    /// range. `offset` is less than `end`, which is within the file or at its end.
    pub fn deallocate(&mut self, pool: &Pool, offset: u64, end: u64, freed: &mut FreedPages) -> Result<()> {
        const ZEROS: &[u8] = &[0; PAGE_BYTES];
        let (first, last) = (offset.next_multiple_of(PAGE), end / PAGE * PAGE);
        // The parts of pages, which may lie in one page.
        let head = (offset, first.min(end));
        let tail = (last.max(head.1), end);
        for (from, to) in [head, tail] {
            if from < to && self.next_hole(from, to) > from {
                self.write(pool, from, &ZEROS[..(to - from) as usize], freed)?;
            }
        }
        if first < last {
            self.free_pages(pool, first, last, freed);
        }
        Ok(())
    }

    /// Frees the pages that a range, which is not empty, touches.
    pub fn free_pages(&mut self, pool: &Pool, from: u64, to: u64, freed: &mut FreedPages) {
        let range = Range { offset: from, end: to };
        for (&index, leaf) in self.leaves.range_mut(range.leaves()) {
            let slots = range.slots(index);
            let slots = slots.start..slots.end.min(leaf.slots.len());
            self.pages -= clear_slots(leaf.slots.get_mut(slots).unwrap_or(&mut []), freed);
        }
        self.prune(pool, range);
    }

    /// Frees all pages; for a file that is gone.
    pub fn clear(self, pool: &Pool) {
        let tree = tree_bytes(self.leaves.len());
        for mut leaf in self.leaves.into_values() {
            // Leaf by leaf, so that the pool's lock is not held for the whole of a large file.
            let mut freed = FreedPages::default();
            clear_slots(&mut leaf.slots, &mut freed);
            pool.free(freed);
            pool.uncharge(Leaf::charge(leaf.slots.len()));
        }
        pool.uncharge(tree);
    }

    /// Makes sure that every page of the range has a slot.
    fn prepare(&mut self, pool: &Pool, range: Range) -> Result<()> {
        for index in range.leaves() {
            let needed = range.slots(index).end;
            let have = self.leaves.get(&index).map_or(0, |leaf| leaf.slots.len());
            if have >= needed {
                continue;
            }
            let mut size = LEAF_PAGES_MIN;
            while size < needed {
                size *= 4;
            }
            let leaves = self.leaves.len();
            let tree = if have == 0 { tree_bytes(leaves + 1) - tree_bytes(leaves) } else { 0 };
            if !pool.charge(tree + Leaf::charge(size) - Leaf::charge(have)) {
                self.prune(pool, range);
                return Err(Status::NoSpace);
            }
            let leaf = self.leaves.entry(index).or_default();
            let mut slots = Vec::with_capacity(size);
            slots.extend(std::mem::take(&mut leaf.slots));
            slots.resize_with(size, || None);
            leaf.slots = slots.into_boxed_slice();
        }
        Ok(())
    }

    /// Removes leaves without pages, which a failed write left, or a hole.
    fn prune(&mut self, pool: &Pool, range: Range) {
        let in_range = self.leaves.range(range.leaves());
        let empty = in_range.filter(|(_, leaf)| leaf.slots.iter().all(Option::is_none));
        let empty: SmallVec<[u64; 2]> = empty.map(|(&index, _)| index).collect();
        for index in empty {
            let leaves = self.leaves.len();
            if let Some(leaf) = self.leaves.remove(&index) {
                let tree = tree_bytes(leaves) - tree_bytes(leaves - 1);
                pool.uncharge(tree + Leaf::charge(leaf.slots.len()));
            }
        }
    }
}

/// Decides for some slots of one 64 KiB piece of the file how each gets its bytes, and takes the
/// pages this needs; false when there are none. New pages go where they adjoin their neighbours;
/// the first of a piece breaks an extent of its own, except in files below 64 KiB, which are
/// packed.
fn collect<'a>(
    pool: &'a Pool,
    chunk: &'a mut [Option<Page>],
    part: std::ops::Range<usize>,
    large: bool,
    targets: &mut SmallVec<[Target<'a>; 2]>,
) -> bool {
    // Computed only when needed: a write in place needs no neighbour.
    let holes = chunk.get(part.clone()).is_none_or(|slots| slots.iter().any(Option::is_none));
    let mut base = if holes { find_base_page(chunk, large) } else { None };
    for (index, slot) in chunk.iter_mut().enumerate().take(part.end).skip(part.start) {
        let target = match slot {
            Some(page) => match pool.bytes_mut(page) {
                Ok(bytes) => Some(Target::InPlace(bytes)),
                Err(page) => {
                    pool.page(PageRequest::default(), true).map(|fresh| Target::Replace(page, fresh))
                }
            },
            None => {
                let request =
                    PageRequest { at: base.map(|base| base + index as u32), index: large.then_some(index) };
                pool.page(request, false).map(|fresh| {
                    base = base.or_else(|| base_page_of(fresh.number(), index, large));
                    Target::Insert(slot, fresh)
                })
            }
        };
        let Some(target) = target else { return false };
        targets.push(target);
    }
    true
}

/// The page that the first slot of a 64 KiB piece would have, judged by its neighbours.
fn find_base_page(chunk: &[Option<Page>], large: bool) -> Option<u32> {
    chunk.iter().enumerate().find_map(|(index, slot)| base_page_of(slot.as_ref()?.number(), index, large))
}

/// The page `index` before this one; in a large file only if all sixteen lie in one extent.
fn base_page_of(number: u32, index: usize, large: bool) -> Option<u32> {
    (!large || index_in_extent(number) == index).then(|| number - index as u32)
}

fn place_page(
    pool: &Pool,
    slot: &mut Option<Page>,
    mut fresh: FreshPage,
    part: std::ops::Range<usize>,
    freed: &mut FreedPages,
) {
    let Some(page) = slot else {
        zero_around(pool.fill(&mut fresh), part);
        *slot = Some(fresh.publish());
        return;
    };
    if part.len() < PAGE_BYTES {
        match pool.bytes_mut(page) {
            Ok(bytes) => {
                bytes[part.clone()].copy_from_slice(&pool.fill(&mut fresh)[part]);
                freed.push(fresh.publish());
                return;
            }
            Err(page) => copy_around(pool.fill(&mut fresh), pool.bytes(page), part),
        }
    }
    if let Some(old) = slot.replace(fresh.publish()) {
        freed.push(old);
    }
}

/// Removes the pages of some slots. Returns how many there were.
fn clear_slots(slots: &mut [Option<Page>], freed: &mut FreedPages) -> u64 {
    let mut pages = 0;
    for page in slots.iter_mut().filter_map(Option::take) {
        freed.push(page);
        pages += 1;
    }
    pages
}

/// A page with zeros.
fn zero_page(pool: &Pool) -> Option<FreshPage> {
    let mut fresh = pool.page(PageRequest::default(), false)?;
    pool.fill(&mut fresh).fill(0);
    Some(fresh)
}

fn zero_around(bytes: &mut [u8], part: std::ops::Range<usize>) {
    bytes[..part.start].fill(0);
    bytes[part.end..].fill(0);
}

fn copy_around(bytes: &mut [u8], old: &[u8], part: std::ops::Range<usize>) {
    bytes[..part.start].copy_from_slice(&old[..part.start]);
    bytes[part.end..].copy_from_slice(&old[part.end..]);
}

//! Which pages of which arenas are free: bookkeeping only, no memory and no locks.
//!
//! Whole extents come from the lowest arena that has one, small pieces from the lowest arena that
//! has a broken extent, so that the high arenas drain. An arena that becomes wholly free is handed
//! back, except one that is kept as long as others are in use, so that a file growing and shrinking
//! at an arena's border does not map and unmap it again and again.

use smallvec::SmallVec;

use super::layout::{
    ARENA_EXTENTS, ARENA_PAGES, EXTENT_PAGES, Spans, arena_of, extent_of, extents_of, index_in_extent, mask,
    page_at, push_span,
};

/// Broken extents looked at for a piece that fits, before a whole extent is broken: bounds the
/// time.
const FIT_ATTEMPTS_MAX: usize = 8;

const WHOLE: u16 = u16::MAX;

/// Arenas to give back to the system.
pub(super) type EmptyArenas = SmallVec<[usize; 2]>;

/// A set of small numbers that finds its lowest member.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, at: usize, on: bool) {
        let word = at / 64;
        if word >= self.0.len() {
            if !on {
                return;
            }
            self.0.resize(word + 1, 0);
        }
        let bit = 1 << (at % 64);
        self.0[word] = if on { self.0[word] | bit } else { self.0[word] & !bit };
    }

    fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

struct ArenaMap {
    free: [u16; ARENA_EXTENTS],
    free_pages: usize,
    /// Extents that are free entirely.
    whole: Bits,
    /// Extents that are free in part.
    broken: Bits,
}

/// See the module.
pub(super) struct FreeMap {
    arenas: Vec<Option<Box<ArenaMap>>>,
    arenas_max: usize,
    mapped: usize,
    in_use: usize,
    kept: Option<usize>,
    with_whole: Bits,
    with_broken: Bits,
    unmapped: Bits,
}

impl FreeMap {
    pub fn new(arenas_max: usize) -> FreeMap {
        FreeMap {
            arenas: vec![None],
            arenas_max,
            mapped: 0,
            in_use: 0,
            kept: None,
            with_whole: Bits::default(),
            with_broken: Bits::default(),
            unmapped: Bits::default(),
        }
    }

    /// Arenas mapped now.
    pub fn mapped(&self) -> usize {
        self.mapped
    }

    /// The arena to map next, when one may be.
    pub fn next_unmapped(&self) -> Option<usize> {
        (self.mapped < self.arenas_max).then(|| self.unmapped.first().unwrap_or(self.arenas.len()))
    }

    /// Takes in an arena that was just mapped, all of it free.
    pub fn add(&mut self, arena: usize) {
        if arena == self.arenas.len() {
            self.arenas.push(None);
        }
        let mut whole = Bits(vec![u64::MAX; ARENA_EXTENTS / 64]);
        whole.set(0, true);
        let map = ArenaMap {
            free: [WHOLE; ARENA_EXTENTS],
            free_pages: ARENA_PAGES,
            whole,
            broken: Bits(vec![0; ARENA_EXTENTS / 64]),
        };
        self.arenas[arena] = Some(Box::new(map));
        self.unmapped.set(arena, false);
        self.with_whole.set(arena, true);
        self.mapped += 1;
    }

    /// Takes that very page, if it is free.
    pub fn take_at(&mut self, page: u32) -> bool {
        let (arena, extent, bit) = (arena_of(page), extent_of(page), mask(index_in_extent(page), 1));
        let free =
            self.arenas.get(arena).and_then(Option::as_ref).is_some_and(|map| map.free[extent] & bit != 0);
        if free {
            self.set(arena, extent, |free| free & !bit);
        }
        free
    }

    /// Takes the page at `index` of an extent that is free entirely.
    pub fn take_from_whole_extent(&mut self, index: usize) -> Option<u32> {
        let (arena, extent) = self.lowest_whole_extent()?;
        self.set(arena, extent, |free| free & !mask(index, 1));
        Some(page_at(arena, extent, index))
    }

    /// Takes any page, of a broken extent if there is one.
    pub fn take_any(&mut self) -> Option<u32> {
        let Some(arena) = self.with_broken.first() else { return self.take_from_whole_extent(0) };
        let map = self.arenas[arena].as_ref()?;
        let extent = map.broken.first()?;
        let index = map.free[extent].trailing_zeros() as usize;
        self.set(arena, extent, |free| free & !mask(index, 1));
        Some(page_at(arena, extent, index))
    }

    /// Takes up to `count` entire extents; how many it took.
    pub fn take_extents(&mut self, count: usize, out: &mut Spans) -> usize {
        for taken in 0..count {
            let Some((arena, extent)) = self.lowest_whole_extent() else { return taken };
            self.set(arena, extent, |_| 0);
            push_span(out, page_at(arena, extent, 0), EXTENT_PAGES as u32);
        }
        count
    }

    /// Takes `count` pages in a row within one extent, in a broken one if one fits soon.
    pub fn take_contiguous(&mut self, count: usize, out: &mut Spans) -> bool {
        let Some((arena, extent, index)) = self
            .fitting(count)
            .or_else(|| self.lowest_whole_extent().map(|(arena, extent)| (arena, extent, 0)))
        else {
            return false;
        };
        self.set(arena, extent, |free| free & !mask(index, count));
        push_span(out, page_at(arena, extent, index), count as u32);
        true
    }

    /// Gives pages of one extent back; arenas to unmap are appended to `empty`, and no longer known
    /// here.
    pub fn release(&mut self, arena: usize, extent: usize, pages: u16, empty: &mut EmptyArenas) {
        self.set(arena, extent, |free| {
            debug_assert_eq!(free & pages, 0, "a page is freed once");
            free | pages
        });
        if self.arenas[arena].as_ref().is_none_or(|map| map.free_pages < ARENA_PAGES) {
            return;
        }
        self.in_use -= 1;
        if self.in_use == 0 {
            let kept = self.kept.take();
            for arena in kept.into_iter().chain([arena]) {
                self.remove(arena);
                empty.push(arena);
            }
        } else if self.kept.is_some() {
            self.remove(arena);
            empty.push(arena);
        } else {
            self.kept = Some(arena);
        }
    }

    /// Gives back all pages of some spans.
    pub fn release_spans(&mut self, spans: &Spans, empty: &mut EmptyArenas) {
        for (arena, extent, pages) in spans.iter().flat_map(|&span| extents_of(span)) {
            self.release(arena, extent, pages, empty);
        }
    }

    fn remove(&mut self, arena: usize) {
        self.arenas[arena] = None;
        self.unmapped.set(arena, true);
        self.with_whole.set(arena, false);
        self.with_broken.set(arena, false);
        self.mapped -= 1;
    }

    fn lowest_whole_extent(&self) -> Option<(usize, usize)> {
        let arena = self.with_whole.first()?;
        Some((arena, self.arenas[arena].as_ref()?.whole.first()?))
    }

    /// A position in a broken extent of the lowest arena that has some, with `count` free pages in
    /// a row.
    fn fitting(&self, count: usize) -> Option<(usize, usize, usize)> {
        let arena = self.with_broken.first()?;
        let map = self.arenas[arena].as_ref()?;
        map.broken.iter().take(FIT_ATTEMPTS_MAX).find_map(|extent| {
            let free = map.free[extent];
            let starts = (1..count).fold(free, |starts, shift| starts & (free >> shift));
            (starts != 0).then(|| (arena, extent, starts.trailing_zeros() as usize))
        })
    }

    /// Changes an extent's free pages and all that is derived from them.
    fn set(&mut self, arena: usize, extent: usize, change: impl FnOnce(u16) -> u16) {
        let Some(map) = self.arenas.get_mut(arena).and_then(Option::as_mut) else {
            debug_assert!(false, "arena {arena} is mapped");
            return;
        };
        let before = map.free[extent];
        let after = change(before);
        map.free[extent] = after;
        if map.free_pages == ARENA_PAGES && after != before {
            self.in_use += 1;
            if self.kept == Some(arena) {
                self.kept = None;
            }
        }
        map.free_pages = map.free_pages + after.count_ones() as usize - before.count_ones() as usize;
        map.whole.set(extent, after == WHOLE);
        map.broken.set(extent, after != 0 && after != WHOLE);
        self.with_whole.set(arena, map.whole.first().is_some());
        self.with_broken.set(arena, map.broken.first().is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_come_in_order_and_merge() {
        let mut map = FreeMap::new(2);
        assert_eq!(map.next_unmapped(), Some(1));
        map.add(1);
        let mut spans = Spans::new();
        assert_eq!(map.take_extents(16, &mut spans), 16);
        assert_eq!(spans.len(), 1);
        assert!(map.take_contiguous(3, &mut spans));
        assert_eq!(spans.len(), 1, "the piece adjoins");
        assert_eq!(map.take_any(), Some(page_at(1, 16, 3)), "the broken extent is used first");
        assert!(map.take_at(page_at(1, 16, 4)));
        assert!(!map.take_at(page_at(1, 16, 4)));
        assert_eq!(map.take_from_whole_extent(5), Some(page_at(1, 17, 5)));
    }

    #[test]
    fn the_last_arena_goes_and_one_is_kept_while_others_are_used() {
        let mut map = FreeMap::new(3);
        let mut spans = Spans::new();
        for arena in 1..=3 {
            assert_eq!(map.next_unmapped(), Some(arena));
            map.add(arena);
            assert_eq!(map.take_extents(ARENA_EXTENTS, &mut spans), ARENA_EXTENTS);
        }
        assert_eq!(map.next_unmapped(), None);
        assert_eq!(map.take_any(), None);
        let mut empty = EmptyArenas::new();
        map.release_spans(&Spans::from_slice(&spans[2..]), &mut empty);
        assert!(empty.is_empty(), "kept");
        map.release_spans(&Spans::from_slice(&spans[1..2]), &mut empty);
        assert_eq!(empty.as_slice(), [2]);
        map.release_spans(&Spans::from_slice(&spans[..1]), &mut empty);
        assert_eq!(empty.as_slice(), [2, 3, 1]);
        assert_eq!((map.mapped(), map.next_unmapped()), (0, Some(1)));
    }
}

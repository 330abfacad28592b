//! How memory is cut: arenas of 16 MiB, extents of 64 KiB, pages of 4 KiB, and spans of page
//! numbers.
//!
//! A page number is a `u32`: its arena in the high 20 bits, its extent in the next 8, its index
//! there in the low 4. Arena 0 is never mapped, so that the number 0 can mean "no page".

use smallvec::SmallVec;

/// The unit of copy on write.
pub(super) const PAGE_BYTES: usize = 4096;
/// Pages in an extent: one word of limbo bits, and long enough that gathering costs nothing.
pub(super) const EXTENT_PAGES: usize = 16;
/// The unit of pinning.
pub(super) const EXTENT_BYTES: usize = EXTENT_PAGES * PAGE_BYTES;
/// Extents in an arena.
pub(super) const ARENA_EXTENTS: usize = 256;
/// Pages in an arena.
pub(super) const ARENA_PAGES: usize = ARENA_EXTENTS * EXTENT_PAGES;
/// The unit in which memory is taken from the system and given back.
pub(super) const ARENA_BYTES: usize = ARENA_EXTENTS * EXTENT_BYTES;
/// Page numbers have 32 bits, of which arena 0 is not used: 16 TiB in all.
pub(super) const ARENAS_MAX: u64 = (u32::MAX as u64 + 1) / ARENA_PAGES as u64 - 1;

/// The arena of a page.
pub(super) const fn arena_of(page: u32) -> usize {
    page as usize / ARENA_PAGES
}

/// The extent of a page, counted within its arena.
pub(super) const fn extent_of(page: u32) -> usize {
    page as usize / EXTENT_PAGES % ARENA_EXTENTS
}

/// The index of a page within its extent.
pub(super) const fn index_in_extent(page: u32) -> usize {
    page as usize % EXTENT_PAGES
}

/// The number of a page from its parts.
pub(super) const fn page_at(arena: usize, extent: usize, index: usize) -> u32 {
    (arena * ARENA_PAGES + extent * EXTENT_PAGES + index) as u32
}

/// Page numbers in a row, all of one arena, so that their memory is in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub first: u32,
    pub pages: u32,
}

/// Enough for 1 MiB at any offset: a head, fifteen or sixteen extents, a tail.
pub(super) type Spans = SmallVec<[Span; 17]>;

/// Appends pages of one arena, merged with the last span when they adjoin it.
pub(super) fn push_span(spans: &mut Spans, first: u32, pages: u32) {
    if let Some(last) = spans.last_mut()
        && last.first + last.pages == first
        && arena_of(last.first) == arena_of(first)
    {
        last.pages += pages;
        return;
    }
    spans.push(Span { first, pages });
}

/// Cuts a span at the extent borders: arena, extent, and the mask of pages in it.
pub(super) fn extents_of(span: Span) -> impl Iterator<Item = (usize, usize, u16)> {
    let end = u64::from(span.first) + u64::from(span.pages);
    let mut at = span.first;
    let mut left = span.pages as usize;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let index = index_in_extent(at);
        let count = left.min(EXTENT_PAGES - index);
        let item = (arena_of(at), extent_of(at), mask(index, count));
        left -= count;
        if left > 0 {
            at += count as u32;
        }
        debug_assert!(u64::from(at) < end);
        Some(item)
    })
}

/// The bits of `count` pages from `index` on.
pub(super) const fn mask(index: usize, count: usize) -> u16 {
    (((1u32 << count) - 1) << index) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_merge_within_an_arena_and_are_cut_at_extents() {
        let mut spans = Spans::new();
        push_span(&mut spans, page_at(1, 0, 14), 2);
        push_span(&mut spans, page_at(1, 1, 0), 16);
        push_span(&mut spans, page_at(1, 2, 0), 3);
        assert_eq!(spans.as_slice(), [Span { first: page_at(1, 0, 14), pages: 21 }]);
        let cut: Vec<_> = extents_of(spans[0]).collect();
        assert_eq!(cut, [(1, 0, 0xc000), (1, 1, 0xffff), (1, 2, 0x0007)]);
        let last_of_arena = page_at(1, ARENA_EXTENTS - 1, 15);
        let mut spans = Spans::new();
        push_span(&mut spans, last_of_arena, 1);
        push_span(&mut spans, last_of_arena + 1, 1);
        assert_eq!(spans.len(), 2, "memory of two arenas is not in one piece");
    }
}

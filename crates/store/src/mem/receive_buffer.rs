//! Memory into which a WRITE is received before it is part of a file.

use std::io::IoSliceMut;
use std::sync::Arc;

use memory::{Registrar, Scatter};
use smallvec::SmallVec;

use super::layout::{EXTENT_PAGES, PAGE_BYTES};
use super::pool::{FreshPages, Incoming, Pool};

/// Memory for one WRITE that is still being received: fresh pages that no file has yet, and that
/// take nothing of the store's space.
///
/// The first byte has the same offset within its page as it will have in the file, so that whole
/// pages can be swapped in. Dropping it returns its pages and changes nothing.
pub(crate) struct Pages {
    pool: Arc<Pool>,
    /// Present until written.
    pages: Option<Incoming>,
    offset: u64,
    len: usize,
}

impl Pages {
    /// Takes pages for `len` bytes at `offset`; `None` without memory, or when there is nothing to
    /// receive.
    pub(super) fn new(pool: &Arc<Pool>, offset: u64, len: usize) -> Option<Pages> {
        let head = (offset % PAGE_BYTES as u64) as usize;
        let count = head.checked_add(len)?.div_ceil(PAGE_BYTES);
        offset.checked_add(len as u64)?;
        if len == 0 {
            return None;
        }
        let index = (offset / PAGE_BYTES as u64 % EXTENT_PAGES as u64) as usize;
        let pages = pool.incoming(index, count)?;
        Some(Pages { pool: Arc::clone(pool), pages: Some(pages), offset, len })
    }

    /// The offset in the file at which the bytes are written.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The length of the buffer in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends the slices of memory still to be filled, after the first `from` bytes have been
    /// received.
    pub fn unfilled<'a>(&'a mut self, from: usize, out: &mut SmallVec<[IoSliceMut<'a>; 20]>) {
        let head = (self.offset % PAGE_BYTES as u64) as usize;
        let from = from.min(self.len);
        if let Some(pages) = &mut self.pages {
            pages
                .pages()
                .slices(&self.pool, head + from, self.len - from, |slice| out.push(IoSliceMut::new(slice)));
        }
    }

    /// Appends its memory as a device addresses it; false where some of it cannot be registered.
    pub fn registered(&mut self, with: &Registrar, out: &mut Scatter) -> bool {
        let head = (self.offset % PAGE_BYTES as u64) as usize;
        let Some(pages) = &mut self.pages else { return false };
        pages.pages().registered(&self.pool, head, self.len, with, out)
    }

    /// Copies bytes in, for a write whose bytes are in one piece.
    pub(super) fn fill(&mut self, mut data: &[u8]) {
        let mut slices = SmallVec::new();
        self.unfilled(0, &mut slices);
        for slice in &mut slices {
            let (now, rest) = data.split_at(slice.len().min(data.len()));
            slice[..now.len()].copy_from_slice(now);
            data = rest;
        }
    }

    /// Fills it with zeros.
    pub(super) fn clear(&mut self) {
        let mut slices = SmallVec::new();
        self.unfilled(0, &mut slices);
        slices.iter_mut().for_each(|slice| slice.fill(0));
    }

    /// Whether the pages belong to this pool.
    pub(super) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Takes the pages out, to put them into a file, if the store has space for them.
    pub(super) fn take(&mut self) -> Option<FreshPages> {
        self.pool.accept(&mut self.pages)
    }

    /// A copy of the bytes.
    pub(super) fn copy(&mut self) -> Vec<u8> {
        let mut slices = SmallVec::new();
        self.unfilled(0, &mut slices);
        slices.iter().flat_map(|slice| slice.iter().copied()).collect()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(incoming) = self.pages.take() {
            self.pool.give_up(incoming);
        }
    }
}

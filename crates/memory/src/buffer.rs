//! Reusable buffers, for data that come from and go to system calls or devices.
//!
//! Buffers of a class are cut from areas, so that one registration serves several, unless they are
//! to be [apart](Buffers::apart). A buffer is
//! zeroed once, when its area is mapped, and keeps the bytes of its last use: its user must fill
//! the bytes that it exposes. Kept buffers are bounded here; buffers in use are bounded by their
//! users. An area is unmapped with the last of its buffers.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Area, Registered, Registrar};

/// The sizes buffers come in: of small, usual and the largest transfers.
const CLASSES: [usize; 4] = [4 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The most bytes of kept buffers in each class: as many of the largest transfers as one connection
/// may have in flight.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// What is mapped at a time: several buffers of a class, or one of the largest.
const AREA_BYTES: usize = 1 << 20;
/// The largest buffer is one area.
const _: () = assert!(AREA_BYTES == CLASSES[3]);

/// Part of an area that belongs to one buffer, or is free.
#[derive(Debug)]
struct Slot {
    area: Arc<Area>,
    at: usize,
}

/// Buffers kept for reuse.
#[derive(Debug, Default)]
pub struct Buffers {
    kept: [Mutex<Vec<Slot>>; CLASSES.len()],
    /// Each buffer is an area.
    apart: bool,
}

impl Buffers {
    /// Buffers of which each is an area of its own: for memory that a peer is given a right to,
    /// because a registration bounds what the peer reaches at worst.
    #[must_use]
    pub fn apart() -> Self {
        Self { apart: true, ..Self::default() }
    }

    /// A buffer that exposes `len` bytes of unspecified content.
    #[must_use]
    pub fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let class = CLASSES.iter().zip(&self.kept).find(|(bytes, _)| len <= **bytes);
        let (bytes, slot) = match class {
            Some((bytes, kept)) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                (*bytes, kept.pop().unwrap_or_else(|| self.cut(*bytes, &mut kept)))
            }
            None => (len, Slot { area: mapped(len), at: 0 }),
        };
        Buffer { slot, bytes, len, home: Arc::clone(self) }
    }

    /// Returns half of the kept buffers to the system; called while their user is idle.
    pub fn shrink(&self) {
        for kept in &self.kept {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let half = kept.len() / 2;
            // Of one area at a time, because an area goes with its last buffer.
            kept.sort_by_key(|slot| slot.area.start());
            kept.truncate(half);
        }
    }

    /// Maps an area for buffers of a class: the first of them, and the others to be kept.
    #[cold]
    fn cut(&self, bytes: usize, kept: &mut Vec<Slot>) -> Slot {
        let area = mapped(if self.apart { bytes } else { AREA_BYTES });
        kept.extend((bytes..area.bytes()).step_by(bytes).map(|at| Slot { area: Arc::clone(&area), at }));
        Slot { area, at: 0 }
    }

    fn put(&self, slot: Slot, bytes: usize) {
        let Some((_, kept)) = CLASSES.iter().zip(&self.kept).find(|(class, _)| **class == bytes) else {
            return;
        };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if (kept.len() + 1) * bytes <= KEPT_BYTES_MAX {
            kept.push(slot);
        }
    }
}

/// A system without memory ends the process, as for any allocation.
fn mapped(bytes: usize) -> Arc<Area> {
    match Area::map(bytes.max(1)) {
        Some(area) => Arc::new(area),
        None => handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>())),
    }
}

/// One buffer, page-aligned; dropping it returns it to its pool.
pub struct Buffer {
    slot: Slot,
    /// Its size.
    bytes: usize,
    /// What it exposes.
    len: usize,
    home: Arc<Buffers>,
}

impl Buffer {
    /// Exposes fewer bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The exposed bytes as a device addresses them; `None` where they cannot be registered.
    #[must_use]
    pub fn registered(&self, with: &Registrar) -> Option<Registered> {
        self.slot.area.registered(with, self.start(), self.len)
    }

    fn start(&self) -> *mut u8 {
        self.slot.area.start().as_ptr().wrapping_add(self.slot.at)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the slot lies in its area and belongs to this buffer alone; `len` is no more than
        // the slot has; the memory was zeroed when it was mapped.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the buffer is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.put(Slot { area: Arc::clone(&self.slot.area), at: self.slot.at }, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::area::tests::registrar;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_buffer_comes_back_and_is_used_again() {
        let buffers = Arc::new(Buffers::default());
        let mut first = buffers.take(5000);
        first[4999] = 7;
        let place = first.as_ptr();
        first.truncate(10);
        assert_eq!(first.len(), 10);
        drop(first);
        let again = buffers.take(6000);
        assert_eq!((again.as_ptr(), again.len()), (place, 6000));
        assert_eq!(buffers.take(3 << 20).len(), 3 << 20, "above the classes, made for the occasion");
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let buffers = Arc::new(Buffers::default());
        let out: Vec<Buffer> = (0..70).map(|_| buffers.take(1 << 20)).collect();
        drop(out);
        assert_eq!(buffers.kept[3].lock().unwrap().len(), KEPT_BYTES_MAX >> 20);
        buffers.shrink();
        assert_eq!(buffers.kept[3].lock().unwrap().len(), KEPT_BYTES_MAX >> 21);
    }

    #[test]
    fn no_two_buffers_overlap_and_each_is_aligned_to_pages() {
        let buffers = Arc::new(Buffers::default());
        for bytes in [100, 4096, 64 << 10, 200 << 10, 1 << 20] {
            let mut out: Vec<Buffer> = (0..20).map(|_| buffers.take(bytes)).collect();
            for (mark, buffer) in (0_u8..).zip(&mut out) {
                assert_eq!(buffer.as_ptr().addr() % 4096, 0);
                buffer.fill(mark);
            }
            assert!((0_u8..).zip(&out).all(|(mark, buffer)| buffer.iter().all(|byte| *byte == mark)));
        }
    }

    #[test]
    fn buffers_that_are_apart_share_no_area() {
        let buffers = Arc::new(Buffers::apart());
        let (registrar, held) = registrar(9);
        let out: Vec<Buffer> = (0..4).map(|_| buffers.take(64 << 10)).collect();
        assert!(out.iter().all(|buffer| buffer.registered(&registrar).is_some()));
        assert!(out.iter().all(|buffer| buffer.slot.area.bytes() == 64 << 10));
        assert_eq!(held.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn a_device_learns_of_an_area_once_and_forgets_it_with_its_last_buffer() {
        let buffers = Arc::new(Buffers::default());
        let (registrar, held) = registrar(9);
        let out: Vec<Buffer> = (0..16).map(|_| buffers.take(64 << 10)).collect();
        for buffer in &out {
            let registered = buffer.registered(&registrar).unwrap();
            assert_eq!((registered.start, registered.bytes), (buffer.as_ptr().addr() as u64, 64 << 10));
        }
        assert_eq!(held.load(Ordering::SeqCst), 1);
        drop(out);
        assert_eq!(held.load(Ordering::SeqCst), 1, "the buffers are kept");
        while !buffers.kept[1].lock().unwrap().is_empty() {
            buffers.shrink();
        }
        assert_eq!(held.load(Ordering::SeqCst), 0);
    }
}

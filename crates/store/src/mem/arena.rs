//! One arena: 16 MiB of mapped memory, with the pins on each of its extents.
//!
//! An extent's word packs the number of pins (32 bits) and the limbo bits (16): pages that were
//! freed while pinned. A page goes to limbo, or the last pin takes the limbo pages out, by one
//! compare-and-swap on that word, so that no page is lost or freed early. The record of an arena
//! stays for the life of the pool, also while its memory is unmapped: an unpin that is about to end
//! may still touch its word.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use memory::{Area, Registered, Registrar};

use super::layout::{ARENA_BYTES, ARENA_EXTENTS};
use super::pool::Pool;

const PINS: u64 = u32::MAX as u64;
const LIMBO_SHIFT: u32 = 32;

/// See the module's documentation.
pub(super) struct Arena {
    /// Where `area` starts, for those that know it to be mapped: they need no lock.
    base: AtomicPtr<u8>,
    area: Mutex<Option<Area>>,
    index: usize,
    pool: NonNull<Pool>,
    extents: [AtomicU64; ARENA_EXTENTS],
}

// SAFETY: the memory behind `base` is only reached through `Pool`'s pages and `Segment`s, which
// keep the rules of sharing; `pool` outlives its arenas (it owns them) and is itself `Sync`.
unsafe impl Send for Arena {}
// SAFETY: as above; every field is atomic or never changes.
unsafe impl Sync for Arena {}

impl Arena {
    pub fn new(index: usize, pool: NonNull<Pool>) -> Arena {
        Arena {
            base: AtomicPtr::default(),
            area: Mutex::new(None),
            index,
            pool,
            extents: [const { AtomicU64::new(0) }; ARENA_EXTENTS],
        }
    }

    /// Where its memory starts; null while it is unmapped. A page's owner reads the right value:
    /// the page came to it after the arena was mapped.
    pub fn base(&self) -> *mut u8 {
        self.base.load(Ordering::Relaxed)
    }

    /// Maps its memory; false when the system has none. The pool's lock is held.
    pub fn map(&self) -> bool {
        let Some(area) = Area::map_huge(ARENA_BYTES) else { return false };
        self.base.store(area.start().as_ptr(), Ordering::Relaxed);
        *self.area() = Some(area);
        true
    }

    /// Detaches its memory. Dropping it ends its registrations with devices and gives it back to
    /// the system, which takes time in proportion to the memory. The pool's lock is held.
    pub fn detach(&self) -> Option<Area> {
        self.base.store(ptr::null_mut(), Ordering::Relaxed);
        self.area().take()
    }

    /// A part of its memory as a device addresses it; `None` where it cannot be registered. The
    /// caller has that part pinned, or owns its pages.
    pub fn registered(&self, with: &Registrar, start: *const u8, bytes: usize) -> Option<Registered> {
        self.area().as_ref()?.registered(with, start, bytes)
    }

    fn area(&self) -> MutexGuard<'_, Option<Area>> {
        self.area.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pins an extent: pages freed from now on wait for the unpin.
    pub fn pin(&self, extent: usize) {
        // Relaxed is enough: a thread that frees or overwrites a page covered by this pin takes the
        // lock of the file after us.
        self.extents[extent].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether any pin is left on the extent. If not, all accesses of pinned readers happened
    /// before.
    pub fn pinned(&self, extent: usize) -> bool {
        self.extents[extent].load(Ordering::Acquire) & PINS != 0
    }

    /// All pins of the arena.
    pub fn pins(&self) -> u64 {
        self.extents.iter().map(|word| word.load(Ordering::Acquire) & PINS).sum()
    }

    /// Puts pages that are no longer reachable into limbo. Returns false if the extent has no pin
    /// that would release them; the pages are free at once then.
    pub fn defer(&self, extent: usize, pages: u16) -> bool {
        let word = &self.extents[extent];
        let mut now = word.load(Ordering::Acquire);
        while now & PINS != 0 {
            let limbo = now | u64::from(pages) << LIMBO_SHIFT;
            match word.compare_exchange_weak(now, limbo, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Removes a pin; the last one frees the pages in limbo.
    ///
    /// The pages are freed while this pin is still set, so that removing the pin is the last step:
    /// when all pins are gone, no thread is inside the pool on their behalf.
    pub fn unpin(&self, extent: usize) {
        let word = &self.extents[extent];
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let last_with_limbo = now & PINS == 1 && now >> LIMBO_SHIFT != 0;
            let next = if last_with_limbo { 1 } else { now - 1 };
            match word.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if last_with_limbo => {
                    // SAFETY: the pool outlives every pin: a store that is dropped while pins are
                    // left leaks its pool.
                    let pool = unsafe { self.pool.as_ref() };
                    pool.release(self.index, extent, (now >> LIMBO_SHIFT) as u16);
                    now = word.load(Ordering::Relaxed);
                }
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}

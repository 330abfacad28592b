//! Areas: mapped memory, and the registrations of devices for it.
//!
//! Registrations are kept with the area, under a lock of its own, and each registrar has a list of
//! the areas that it is registered with. So an area that goes ends its registrations, a registrar
//! that goes ends its own in all areas that are left, and either waits for the other at that lock.

use std::any::Any;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use smallvec::SmallVec;

use crate::Registered;

/// Huge pages are aligned to their size.
const HUGE_BYTES: usize = 2 << 20;

/// What a device returned for memory that it was told of.
pub struct Registration {
    /// The key by which this end's own work names the memory.
    pub key: u32,
    /// Ends the registration when dropped.
    pub held: Box<dyn Any + Send + Sync>,
}

/// Something that memory can be registered with.
pub trait Device: Send + Sync {
    /// Registers memory for this end's own work; `None` if that is not possible.
    ///
    /// # Safety
    /// The memory is mapped, readable and writable until the registration is dropped.
    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Option<Registration>;
}

struct Entry {
    registrar: u64,
    registration: Registration,
}

/// The registrations of one area. Most have one: a process uses one device.
type Entries = Mutex<SmallVec<[Entry; 1]>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The lists are consistent between any two operations.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One protection domain of a device, as areas know it. Dropping it ends all registrations that
/// were made through it.
pub struct Registrar {
    id: u64,
    device: Box<dyn Device>,
    areas: Mutex<Areas>,
}

#[derive(Default)]
struct Areas {
    known: Vec<Weak<Entries>>,
    /// Areas that are gone are removed from the list when it has grown to this length.
    clean_at: usize,
}

/// A list of areas shorter than this is not worth cleaning.
const CLEAN_AT_MIN: usize = 64;

impl Registrar {
    /// A registrar without any area.
    #[must_use]
    pub fn new(device: Box<dyn Device>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), device, areas: Mutex::default() }
    }

    fn remember(&self, entries: &Arc<Entries>) {
        let mut areas = lock(&self.areas);
        if areas.known.len() >= areas.clean_at {
            areas.known.retain(|area| area.strong_count() > 0);
            areas.clean_at = (2 * areas.known.len()).max(CLEAN_AT_MIN);
        }
        areas.known.push(Arc::downgrade(entries));
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        let areas = std::mem::take(&mut *lock(&self.areas));
        for entries in areas.known.iter().filter_map(Weak::upgrade) {
            lock(&entries).retain(|entry| entry.registrar != self.id);
        }
    }
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "registrar {}", self.id)
    }
}

/// Mapped memory, zeroed at first. Dropping it ends its registrations and then unmaps it.
///
/// The bytes are reached through raw pointers: the owner of the area says who may read and write
/// which of them.
pub struct Area {
    start: NonNull<u8>,
    bytes: usize,
    entries: Arc<Entries>,
}

// SAFETY: the mapping belongs to no thread, and all access to its bytes is by the owner's rules.
unsafe impl Send for Area {}
// SAFETY: as above; the registrations have a lock.
unsafe impl Sync for Area {}

impl Area {
    /// Maps memory; `None` when the system has none.
    #[must_use]
    pub fn map(bytes: usize) -> Option<Self> {
        let start = map(bytes, MapFlags::PRIVATE)?;
        Some(Self { start, bytes, entries: Arc::default() })
    }

    /// Maps memory that is aligned for huge pages, and not charged before it is used; `None` when
    /// the system has none.
    #[must_use]
    pub fn map_huge(bytes: usize) -> Option<Self> {
        let whole = bytes.checked_add(HUGE_BYTES)?;
        let start = map(whole, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        let head = start.as_ptr().align_offset(HUGE_BYTES);
        let base = start.as_ptr().wrapping_add(head);
        unmap(start.as_ptr(), head);
        unmap(base.wrapping_add(bytes), HUGE_BYTES - head);
        // SAFETY: the range is ours, and advice changes nothing that can be seen. Where there are
        // no huge pages the advice fails, which costs speed only.
        let _ = unsafe { madvise(base.cast(), bytes, Advice::LinuxHugepage) };
        Some(Self { start: NonNull::new(base)?, bytes, entries: Arc::default() })
    }

    /// The first byte.
    #[must_use]
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of the area as a device addresses it. Registers the area at first use; `None` where
    /// that is not possible, or the part does not lie in the area.
    #[must_use]
    pub fn registered(&self, with: &Registrar, start: *const u8, bytes: usize) -> Option<Registered> {
        let from = start.addr().checked_sub(self.start.as_ptr().addr())?;
        from.checked_add(bytes).filter(|end| *end <= self.bytes)?;
        let key = self.key(with)?;
        // A transport may copy the bytes by this address.
        Some(Registered { start: start.expose_provenance() as u64, bytes, key })
    }

    fn key(&self, with: &Registrar) -> Option<u32> {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.iter().find(|entry| entry.registrar == with.id) {
            return Some(entry.registration.key);
        }
        // SAFETY: the area unmaps its memory only after it has dropped its registrations.
        let registration = unsafe { with.device.register(self.start, self.bytes) }?;
        let key = registration.key;
        entries.push(Entry { registrar: with.id, registration });
        with.remember(&self.entries);
        Some(key)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // A registrar that is going at the same time has ended its registration, or finds none.
        lock(&self.entries).clear();
        unmap(self.start.as_ptr(), self.bytes);
    }
}

impl fmt::Debug for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

fn map(bytes: usize, flags: MapFlags) -> Option<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping where the kernel likes it touches no memory of ours.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, flags) }.ok()?;
    NonNull::new(start.cast())
}

fn unmap(start: *mut u8, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: the range is part of a mapping made by `map`, and nothing points into it: it was cut
    // off before use, or its area is being dropped.
    let result = unsafe { munmap(start.cast(), bytes) };
    debug_assert!(result.is_ok());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A device that counts what it knows, and has room for so many areas.
    pub(crate) struct Counting {
        pub held: Arc<AtomicUsize>,
        pub room: usize,
    }

    struct Held(Arc<AtomicUsize>, NonNull<u8>);

    // SAFETY: the pointer is only read through, while the area lives.
    unsafe impl Send for Held {}
    // SAFETY: as above.
    unsafe impl Sync for Held {}

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
            // SAFETY: the memory must still be mapped; if not, this test ends by a signal.
            unsafe { self.1.read_volatile() };
        }
    }

    impl Device for Counting {
        unsafe fn register(&self, start: NonNull<u8>, _bytes: usize) -> Option<Registration> {
            let count = self.held.fetch_add(1, Ordering::SeqCst);
            let held = Held(Arc::clone(&self.held), start);
            (count < self.room)
                .then(|| Registration { key: u32::try_from(count).unwrap() + 1, held: Box::new(held) })
        }
    }

    pub(crate) fn registrar(room: usize) -> (Registrar, Arc<AtomicUsize>) {
        let held = Arc::new(AtomicUsize::new(0));
        (Registrar::new(Box::new(Counting { held: Arc::clone(&held), room })), held)
    }

    #[test]
    fn an_area_is_registered_at_first_use_and_once_with_each_device() {
        let area = Area::map(64 << 10).unwrap();
        let ((one, in_one), (two, in_two)) = (registrar(9), registrar(9));
        let start = area.start().as_ptr();
        let part = area.registered(&one, start.wrapping_add(100), 50).unwrap();
        assert_eq!((part.start, part.bytes, part.key), (start.addr() as u64 + 100, 50, 1));
        assert_eq!(area.registered(&one, start, 64 << 10).unwrap().key, 1);
        assert!(area.registered(&two, start, 1).is_some());
        assert_eq!((in_one.load(Ordering::SeqCst), in_two.load(Ordering::SeqCst)), (1, 1));
        assert!(area.registered(&one, start, (64 << 10) + 1).is_none(), "more than there is");
        assert!(area.registered(&one, start.wrapping_sub(1), 1).is_none(), "before its start");
    }

    #[test]
    fn an_area_that_goes_ends_its_registrations_before_its_memory() {
        let area = Area::map_huge(4 << 20).unwrap();
        assert_eq!(area.start().as_ptr().align_offset(HUGE_BYTES), 0);
        let (registrar, held) = registrar(9);
        assert!(area.registered(&registrar, area.start().as_ptr(), 1).is_some());
        drop(area);
        assert_eq!(held.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_registrar_that_goes_ends_its_registrations_and_no_others() {
        let areas: Vec<Area> = (0..100).map(|_| Area::map(4096).unwrap()).collect();
        let ((one, in_one), (two, in_two)) = (registrar(1000), registrar(1000));
        for area in &areas {
            for registrar in [&one, &two] {
                assert!(area.registered(registrar, area.start().as_ptr(), 1).is_some());
            }
        }
        drop(one);
        assert_eq!((in_one.load(Ordering::SeqCst), in_two.load(Ordering::SeqCst)), (0, 100));
        drop(areas);
        assert_eq!(in_two.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_registrar_keeps_no_list_of_areas_that_are_gone() {
        let (registrar, _) = registrar(usize::MAX);
        for _ in 0..1000 {
            let area = Area::map(4096).unwrap();
            assert!(area.registered(&registrar, area.start().as_ptr(), 1).is_some());
        }
        assert!(lock(&registrar.areas).known.len() <= CLEAN_AT_MIN);
    }

    #[test]
    fn areas_and_registrars_may_go_at_the_same_time() {
        for _ in 0..50 {
            let areas: Vec<Area> = (0..20).map(|_| Area::map(4096).unwrap()).collect();
            let (registrar, held) = registrar(100);
            for area in &areas {
                assert!(area.registered(&registrar, area.start().as_ptr(), 1).is_some());
            }
            std::thread::scope(|scope| {
                scope.spawn(|| drop(registrar));
                scope.spawn(|| drop(areas));
            });
            assert_eq!(held.load(Ordering::SeqCst), 0);
        }
    }

    #[test]
    fn memory_that_cannot_be_registered_has_no_key() {
        let area = Area::map(4096).unwrap();
        let (registrar, _) = registrar(0);
        assert!(area.registered(&registrar, area.start().as_ptr(), 1).is_none());
    }
}

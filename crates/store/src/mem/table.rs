//! All objects by number, each behind its own lock.
//!
//! A number leads to its slot without a lock and without reference counting: chunks of slots are
//! allocated when first needed and stay. A slot is reused for a new object; the generation
//! distinguishes the two.
//!
//! Order of locks: a directory before what it names; two directories only under the rename lock,
//! the one nearer to the root first; the pool's lock last. Nothing is locked after an object that
//! is not a directory, except that rename locks two such, the lower number first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::inode::Inode;
use crate::interface::{ObjectId, Result, Status};

/// Slots made at a time.
const CHUNK: u64 = 1024;
/// What an object costs of the bound: its slot, and the allocator's share.
pub(super) const OBJECT_BYTES: u64 = 512;
const _: () = assert!(size_of::<Slot>() as u64 <= OBJECT_BYTES);

const ROOT_GENERATION: u64 = 1;

/// The root's name.
pub(super) const ROOT: ObjectId = ObjectId::new(1, ROOT_GENERATION);

/// On cache lines of its own, so that two cores that use two files do not contend.
#[repr(align(64))]
#[derive(Default)]
struct Slot(RwLock<Option<Inode>>);

/// Holds an object still.
pub(super) struct Locked<G>(G);

impl std::ops::Deref for Locked<RwLockReadGuard<'_, Option<Inode>>> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        present(self.0.as_ref())
    }
}

impl std::ops::Deref for Locked<RwLockWriteGuard<'_, Option<Inode>>> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        present(self.0.as_ref())
    }
}

impl std::ops::DerefMut for Locked<RwLockWriteGuard<'_, Option<Inode>>> {
    fn deref_mut(&mut self) -> &mut Inode {
        present(self.0.as_mut())
    }
}

/// What a held slot has: no method of [`Table`] holds one without an object.
fn present<T>(inode: Option<T>) -> T {
    match inode {
        Some(inode) => inode,
        None => unreachable!("a held slot has an object"),
    }
}

/// An object locked for shared access.
pub(super) type ReadGuard<'a> = Locked<RwLockReadGuard<'a, Option<Inode>>>;
/// An object locked for exclusive access.
pub(super) type WriteGuard<'a> = Locked<RwLockWriteGuard<'a, Option<Inode>>>;

/// See the module.
pub(super) struct Table {
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
    /// Slots that were used before, and the lowest one that never was.
    free: Mutex<(Vec<u64>, u64)>,
    generation: AtomicU64,
    objects: AtomicU64,
    objects_max: u64,
}

impl Table {
    /// For at most so many objects. Generations start with `seed`, so that names from an earlier
    /// start of the server are stale; except the root's, which is the same directory however often
    /// it is emptied.
    pub fn new(objects_max: u64, seed: u64) -> Table {
        let chunks = (objects_max + 1).div_ceil(CHUNK) as usize;
        Table {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            free: Mutex::new((Vec::new(), ROOT.fileid)),
            generation: AtomicU64::new(seed.max(ROOT_GENERATION + 1)),
            objects: AtomicU64::new(0),
            objects_max,
        }
    }

    /// Objects now, and at most.
    pub fn objects(&self) -> (u64, u64) {
        (self.objects.load(Ordering::Relaxed), self.objects_max)
    }

    pub fn read(&self, object: ObjectId) -> Result<ReadGuard<'_>> {
        let guard = self.slot(object)?.0.read().unwrap_or_else(PoisonError::into_inner);
        if guard.as_ref().is_some_and(|inode| inode.object == object) {
            Ok(Locked(guard))
        } else {
            Err(Status::Stale)
        }
    }

    pub fn write(&self, object: ObjectId) -> Result<WriteGuard<'_>> {
        let guard = self.slot(object)?.0.write().unwrap_or_else(PoisonError::into_inner);
        if guard.as_ref().is_some_and(|inode| inode.object == object) {
            Ok(Locked(guard))
        } else {
            Err(Status::Stale)
        }
    }

    /// Adds an object that `make` makes, given its name.
    pub fn add(&self, make: impl FnOnce(ObjectId) -> Inode) -> Result<ObjectId> {
        let (fileid, fresh) = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            match free.0.pop() {
                Some(fileid) => (fileid, false),
                None if free.1 <= self.objects_max => {
                    free.1 += 1;
                    (free.1 - 1, true)
                }
                None => return Err(Status::NoSpace),
            }
        };
        let generation = if fresh && fileid == ROOT.fileid {
            ROOT_GENERATION
        } else {
            self.generation.fetch_add(1, Ordering::Relaxed)
        };
        let object = ObjectId::new(fileid, generation);
        if let Some(chunk) = self.chunks.get((fileid / CHUNK) as usize) {
            chunk.get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect());
        }
        *self.slot(object)?.0.write().unwrap_or_else(PoisonError::into_inner) = Some(make(object));
        self.objects.fetch_add(1, Ordering::Relaxed);
        Ok(object)
    }

    /// Removes an object; later accesses find it stale.
    pub fn remove(&self, mut held: WriteGuard<'_>) -> Inode {
        let inode = present(held.0.take());
        drop(held);
        self.objects.fetch_sub(1, Ordering::Relaxed);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).0.push(inode.object.fileid);
        inode
    }

    fn slot(&self, object: ObjectId) -> Result<&Slot> {
        let chunk = usize::try_from(object.fileid / CHUNK).ok().and_then(|at| self.chunks.get(at));
        let slots = chunk.and_then(OnceLock::get).ok_or(Status::Stale)?;
        slots.get((object.fileid % CHUNK) as usize).ok_or(Status::Stale)
    }
}

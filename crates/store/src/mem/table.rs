//! All objects by number, each behind its own lock.
//!
//! A number leads to its slot without a lock and without reference counting: chunks of slots are
//! allocated when first needed and stay. A slot is small, because it stays when its object goes;
//! the object has memory of its own. A slot is reused for a new object; the generation
//! distinguishes the two.
//!
//! Order of locks: a directory before what it names; two directories only under the rename lock,
//! the one nearer to the root first; the pool's lock last. Nothing is locked after an object that
//! is not a directory, except that rename locks two such, the lower number first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::cost::heap_bytes;
use super::inode::Inode;
use crate::interface::{ObjectId, Result, Status};

/// Slots made at a time.
const CHUNK: u64 = 1024;
/// Slots between those of two numbers in a row: objects that are made and used together have locks
/// on different cache lines, so that the cores that use them do not contend.
const STRIDE: u64 = 32;
/// What an object costs of the bound: its own memory, its slot, and its number once it is free.
pub(super) const OBJECT_BYTES: u64 =
    heap_bytes(size_of::<Inode>()) + size_of::<Slot>() as u64 + 2 * size_of::<u32>() as u64;

const ROOT_GENERATION: u64 = 1;

/// The root's name.
pub(super) const ROOT: Number = Number { fileid: 1, generation: ROOT_GENERATION };

/// An object's name as this store has it: a file number and a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub fileid: u32,
    pub generation: u64,
}

impl Number {
    /// `None` for a name that no object of this store has.
    pub fn of(object: ObjectId) -> Option<Number> {
        let generation = u64::from_be_bytes(object.name().try_into().ok()?);
        Some(Number { fileid: u32::try_from(object.fileid).ok()?, generation })
    }

    pub const fn object(self) -> ObjectId {
        ObjectId::new(self.fileid as u64, self.generation)
    }
}

#[derive(Default)]
struct Slot(RwLock<Option<Box<Inode>>>);

/// Holds an object still.
pub(super) struct Locked<G>(G);

impl std::ops::Deref for Locked<RwLockReadGuard<'_, Option<Box<Inode>>>> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        present(self.0.as_deref())
    }
}

impl std::ops::Deref for Locked<RwLockWriteGuard<'_, Option<Box<Inode>>>> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        present(self.0.as_deref())
    }
}

impl std::ops::DerefMut for Locked<RwLockWriteGuard<'_, Option<Box<Inode>>>> {
    fn deref_mut(&mut self) -> &mut Inode {
        present(self.0.as_deref_mut())
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
pub(super) type ReadGuard<'a> = Locked<RwLockReadGuard<'a, Option<Box<Inode>>>>;
/// An object locked for exclusive access.
pub(super) type WriteGuard<'a> = Locked<RwLockWriteGuard<'a, Option<Box<Inode>>>>;

/// See the module.
pub(super) struct Table {
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
    /// Slots that were used before, and the lowest one that never was.
    free: Mutex<(Vec<u32>, u32)>,
    generation: AtomicU64,
    objects: AtomicU64,
    objects_max: u32,
}

impl Table {
    /// For at most so many objects. Generations start with `seed`, so that names from an earlier
    /// start of the server are stale; except the root's, which is the same directory however often
    /// it is emptied.
    pub fn new(objects_max: u32, seed: u64) -> Table {
        let chunks = (u64::from(objects_max) + 1).div_ceil(CHUNK) as usize;
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
        (self.objects.load(Ordering::Relaxed), self.objects_max.into())
    }

    pub fn read(&self, object: ObjectId) -> Result<ReadGuard<'_>> {
        let number = Number::of(object).ok_or(Status::Stale)?;
        let guard = self.slot(number)?.0.read().unwrap_or_else(PoisonError::into_inner);
        if guard.as_ref().is_some_and(|inode| inode.number == number) {
            Ok(Locked(guard))
        } else {
            Err(Status::Stale)
        }
    }

    pub fn write(&self, object: ObjectId) -> Result<WriteGuard<'_>> {
        let number = Number::of(object).ok_or(Status::Stale)?;
        let guard = self.slot(number)?.0.write().unwrap_or_else(PoisonError::into_inner);
        if guard.as_ref().is_some_and(|inode| inode.number == number) {
            Ok(Locked(guard))
        } else {
            Err(Status::Stale)
        }
    }

    /// Adds an object that `make` makes, given its name.
    pub fn add(&self, make: impl FnOnce(Number) -> Inode) -> Result<Number> {
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
        let number = Number { fileid, generation };
        if let Some(chunk) = self.chunks.get((u64::from(fileid) / CHUNK) as usize) {
            chunk.get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect());
        }
        let inode = Box::new(make(number));
        *self.slot(number)?.0.write().unwrap_or_else(PoisonError::into_inner) = Some(inode);
        self.objects.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// Removes an object; later accesses find it stale.
    pub fn remove(&self, mut held: WriteGuard<'_>) -> Inode {
        let inode = *present(held.0.take());
        drop(held);
        self.objects.fetch_sub(1, Ordering::Relaxed);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).0.push(inode.number.fileid);
        inode
    }

    fn slot(&self, number: Number) -> Result<&Slot> {
        let fileid = u64::from(number.fileid);
        let chunk = usize::try_from(fileid / CHUNK).ok().and_then(|at| self.chunks.get(at));
        let slots = chunk.and_then(OnceLock::get).ok_or(Status::Stale)?;
        let at = fileid % CHUNK;
        slots.get((at % (CHUNK / STRIDE) * STRIDE + at / (CHUNK / STRIDE)) as usize).ok_or(Status::Stale)
    }
}

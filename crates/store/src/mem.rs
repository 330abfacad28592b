//! The memory store: a POSIX tree whose payload is held in pinned pages.
//!
//! - `layout`, `free_map`, `arena`, `pool`: memory within a hard bound, cut into arenas, extents
//!   and pages.
//! - `segment`, `receive_buffer`: payload in transit, out and in, without a copy.
//! - `content`: one file's pages. `inode`, `directory` with `names`, `table`: the objects and their
//!   locks. `cost`: what they take of the heap.
//! - the operations: `data`, `setattr`, `lookup`, `create`, `remove`, `rename`, `xattr`, `holes`.
//!
//! A READ pins the extents that it found under the file's lock; a WRITE overwrites a page in place
//! only while its extent has no pins, and otherwise replaces it by a new page. So a READ sees all
//! of a WRITE or none of it, and no memory is reused while a reply still refers to it. No operation
//! waits for a device.
//!
//! The bound counts all that a client can make the store hold: pages, objects, names with the
//! tables of their directories, targets of links, tables of files. What a change takes is charged
//! before the change; what it frees is given back after. Not counted: the slots of removed objects,
//! which wait for new ones (`table`), and 3 KiB for each arena.

mod arena;
mod content;
mod cost;
mod create;
mod data;
mod directory;
mod free_map;
mod holes;
mod inode;
mod layout;
mod lookup;
mod names;
mod pool;
mod receive_buffer;
mod remove;
mod rename;
mod segment;
mod setattr;
mod table;
mod xattr;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;

pub(crate) use receive_buffer::Pages;
pub(crate) use segment::PinnedBytes;

use crate::interface::{
    Attempt, Attributes, Caller, Capabilities, DirectoryEnd, Effect, Entry, Found, NewObject, ObjectId,
    ReadEnd, Result, Rights, Seek, SetAttributes, SetXattr, Sought, Space, Stability, Status, Store, Time,
    Wait, Written,
};
use crate::payload::{Backing, ReceiveBuffer, Segment};
use directory::{DIRECTORY_BYTES, Directory, NAME_BYTES_MAX};
use inode::{Body, Inode};
use names::Names;
use pool::Pool;
use table::{OBJECT_BYTES, ROOT, Table};

/// The largest file: offsets are signed on most systems.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// The most hard links, and the most directories in one: the limit of ext4, so that clients see a
/// familiar value.
const LINKS_MAX: u32 = 65_000;
/// The most objects, whatever the bound: bounds the table of their chunks.
const OBJECTS_MAX: u64 = u32::MAX as u64 - 1;
/// What a file without data costs about, with a name of 16 bytes: to tell how many may follow.
const FILE_BYTES: u64 = OBJECT_BYTES + Names::name_bytes(16) + Names::bytes_of(1024) / 1024;
const ROOT_MODE: u32 = 0o755;

/// Memory statistics of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes in use, of the bound: pages, objects, names, and all tables of them. What is being
    /// received does not count.
    pub bytes_used: u64,
    /// Arenas of 16 MiB that are mapped.
    pub arenas: usize,
    /// Pins outstanding: one for each extent that a [`Segment`] touches.
    pub pins: u64,
    /// Objects, the root included.
    pub objects: u64,
}

/// A tree of files in memory.
pub struct MemStore {
    pool: Arc<Pool>,
    table: Table,
    /// Serialises renames.
    renames: Mutex<()>,
    verifier: u64,
}

impl MemStore {
    /// A store of at most `bytes`, with an empty root directory that belongs to the owner.
    ///
    /// Address space is taken in arenas of 16 MiB as files grow, and given back as they go.
    #[must_use]
    pub fn new(bytes: u64, owner_uid: u32, owner_gid: u32) -> MemStore {
        let pool = Pool::new(bytes);
        // The root exists even if the bound is too low for it.
        let _ = pool.charge(OBJECT_BYTES + DIRECTORY_BYTES);
        let objects_max = (bytes / OBJECT_BYTES).clamp(1, OBJECTS_MAX) as u32;
        let table = Table::new(objects_max, random() >> 1);
        let made = table.add(|number| {
            let names = Box::new(Directory::new(number));
            Inode::new(number, Body::Directory(names), ROOT_MODE, owner_uid, owner_gid)
        });
        debug_assert_eq!(made, Ok(ROOT));
        MemStore { pool, table, renames: Mutex::new(()), verifier: random() }
    }

    /// The current statistics.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            bytes_used: self.pool.used(),
            arenas: self.pool.arenas(),
            pins: self.pool.pins(),
            objects: self.table.objects().0,
        }
    }
}

/// A number that differs from start to start. The standard library's hash keys come from the
/// system's randomness.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

impl Drop for MemStore {
    fn drop(&mut self) {
        if self.pool.pins() == 0 {
            return;
        }
        // Replies still refer to the pool: it is never dropped, but returns memory that nothing
        // refers to. An outstanding receive buffer shares ownership of the pool; then all memory
        // stays.
        if Arc::strong_count(&self.pool) == 1 {
            self.pool.unmap_unpinned();
        }
        std::mem::forget(Arc::clone(&self.pool));
    }
}

impl Store for MemStore {
    fn root(&self) -> ObjectId {
        ROOT.object()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            change_grows: true,
            xattrs: true,
            ..Capabilities::of(LINKS_MAX, NAME_BYTES_MAX as u32)
        }
    }

    fn space(&self) -> Space {
        let (objects, objects_max) = self.table.objects();
        let free_bytes = self.pool.free_bytes();
        let free_files = (objects_max - objects).min(free_bytes / FILE_BYTES);
        Space {
            total_bytes: self.pool.bound(),
            free_bytes,
            available_bytes: free_bytes,
            // Files and data share the memory: the number of files that could ever exist would make
            // an empty store look partly used.
            total_files: objects + free_files,
            free_files,
            available_files: free_files,
        }
    }

    fn verifier(&self) -> u64 {
        self.verifier
    }

    fn attributes(&self, object: ObjectId, _wait: Wait<'_>) -> Attempt<Result<Attributes>> {
        Ok(self.get(object))
    }

    fn set_attributes(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> (Effect, Result<()>) {
        self.set(caller, object, set, guard)
    }

    fn lookup(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        _wait: Wait<'_>,
    ) -> Attempt<(Option<Attributes>, Result<Found>)> {
        Ok(self.find(caller, directory, name))
    }

    fn access(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        wanted: Rights,
        _wait: Wait<'_>,
    ) -> Attempt<Result<(Rights, Attributes)>> {
        Ok(self.rights(caller, object, wanted))
    }

    fn read_link(&self, object: ObjectId, out: &mut Vec<u8>) -> Result<Attributes> {
        self.target(object, out)
    }

    fn read(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        count: u32,
        out: &mut SmallVec<[Segment; 1]>,
        _wait: Wait<'_>,
    ) -> Attempt<Result<ReadEnd>> {
        Ok(self.read_data(caller, object, offset, count, out))
    }

    fn receive_buffer(&self, offset: u64, count: u32) -> Option<ReceiveBuffer> {
        self.receive_buffer_for(offset, count).map(|pages| ReceiveBuffer(Backing::Pages(pages)))
    }

    fn write(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        stability: Stability,
        _wait: Wait<'_>,
    ) -> Attempt<(Effect, Result<Written>)> {
        Ok(self.write_data(caller, object, offset, data, stability))
    }

    fn write_received(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        receive_buffer: &mut Option<ReceiveBuffer>,
        stability: Stability,
        _wait: Wait<'_>,
    ) -> Attempt<(Effect, Result<Written>)> {
        Ok(match receive_buffer.take().map(|received| received.0) {
            Some(Backing::Pages(pages)) => self.write_receive_buffer(caller, object, pages, stability),
            // Of another store: its bytes are written like any others.
            Some(Backing::Buffer(buffer, offset)) => {
                self.write_data(caller, object, offset, &buffer, stability)
            }
            None => (Effect::default(), Err(Status::Invalid)),
        })
    }

    fn commit(
        &self,
        object: ObjectId,
        _offset: u64,
        _count: u32,
        _wait: Wait<'_>,
    ) -> Attempt<(Effect, Result<u64>)> {
        Ok(self.commit_data(object))
    }

    fn create(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        new: NewObject<'_>,
    ) -> (Effect, Result<Found>) {
        self.make(caller, directory, name, new)
    }

    fn remove(&self, caller: Caller<'_>, directory: ObjectId, name: &[u8]) -> (Effect, Result<()>) {
        self.unlink(caller, directory, name, false)
    }

    fn remove_directory(&self, caller: Caller<'_>, directory: ObjectId, name: &[u8]) -> (Effect, Result<()>) {
        self.unlink(caller, directory, name, true)
    }

    fn rename(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> (Effect, Effect, Result<()>) {
        self.move_name(caller, from, to)
    }

    fn link(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> (Option<Attributes>, Effect, Result<()>) {
        self.make_link(caller, object, directory, name)
    }

    fn seek(&self, caller: Caller<'_>, object: ObjectId, offset: u64, what: Seek) -> Result<Sought> {
        self.find_in_file(caller, object, offset, what)
    }

    fn allocate(&self, caller: Caller<'_>, object: ObjectId, offset: u64, len: u64) -> (Effect, Result<()>) {
        self.allocate_range(caller, object, offset, len)
    }

    fn deallocate(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        len: u64,
    ) -> (Effect, Result<()>) {
        self.deallocate_range(caller, object, offset, len)
    }

    fn copy(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u32,
    ) -> (Effect, Result<Written>) {
        self.copy_data(caller, from, to, count)
    }

    fn hold(&self, object: ObjectId) -> Result<()> {
        self.hold_file(object)
    }

    fn release(&self, object: ObjectId) {
        self.release_file(object);
    }

    fn xattr(&self, caller: Caller<'_>, object: ObjectId, name: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.value_of_xattr(caller, object, name, out)
    }

    fn set_xattr(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> (Effect, Result<()>) {
        self.change_xattr(caller, object, name, Some((value, how)))
    }

    fn remove_xattr(&self, caller: Caller<'_>, object: ObjectId, name: &[u8]) -> (Effect, Result<()>) {
        self.change_xattr(caller, object, name, None)
    }

    fn list_xattrs(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(&[u8], u64) -> bool,
    ) -> Result<bool> {
        self.names_of_xattrs(caller, object, cookie, visit)
    }

    fn read_directory(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<DirectoryEnd> {
        self.list(caller, directory, cookie, visit)
    }
}

//! The memory store: a POSIX tree whose payload lives in pinned pages.

use std::io::IoSliceMut;
use std::ops::Deref;

use smallvec::SmallVec;

use crate::interface::{
    Attributes, Caller, Change, DirectoryEnd, Entry, Error, Limits, NewObject, ObjectId, ReadEnd, Result,
    SetAttributes, Space, Stability, Store, Time, Written,
};

/// A view of the store's memory that stays as it is until dropped.
pub struct Segment {
    bytes: Box<[u8]>,
}

impl Deref for Segment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Memory for one WRITE that is still being received.
pub struct Landing {
    offset: u64,
    bytes: Vec<u8>,
}

impl Landing {
    /// Where in the file the bytes go.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes it takes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it takes none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends the slices of memory still to be filled, when the first `from` bytes are in.
    pub fn unfilled<'a>(&'a mut self, from: usize, out: &mut SmallVec<[IoSliceMut<'a>; 20]>) {
        if let Some(rest) = self.bytes.get_mut(from..) {
            out.push(IoSliceMut::new(rest));
        }
    }
}

/// What a store uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes in use, of the bound.
    pub bytes_used: u64,
    /// Arenas that are mapped.
    pub arenas: usize,
    /// Pins outstanding.
    pub pins: u64,
}

/// A tree of files in memory.
pub struct MemStore {
    owner: (u32, u32),
    bytes: u64,
}

impl MemStore {
    /// A store of at most `bytes`, with an empty root directory.
    pub fn new(bytes: u64, owner_uid: u32, owner_gid: u32) -> MemStore {
        MemStore { owner: (owner_uid, owner_gid), bytes }
    }

    /// What it uses now.
    pub fn statistics(&self) -> Statistics {
        let _ = self.owner;
        Statistics { bytes_used: 0, arenas: 0, pins: 0 }
    }
}

const NONE: Change = Change { before: None, after: None };

impl Store for MemStore {
    fn root(&self) -> ObjectId {
        ObjectId { fileid: 1, generation: 1 }
    }
    fn limits(&self) -> Limits {
        Limits { file_bytes_max: i64::MAX as u64, name_bytes_max: 255, links_max: 65_000, time_delta_ns: 1 }
    }
    fn space(&self) -> Space {
        Space { total_bytes: self.bytes, free_bytes: 0, total_objects: 0, free_objects: 0 }
    }
    fn verifier(&self) -> u64 {
        0
    }
    fn attributes(&self, _: ObjectId) -> Result<Attributes> {
        Err(Error::NotSupported)
    }
    fn set_attributes(
        &self,
        _: Caller<'_>,
        _: ObjectId,
        _: &SetAttributes,
        _: Option<Time>,
    ) -> (Change, Result<()>) {
        (NONE, Err(Error::NotSupported))
    }
    fn lookup(&self, _: Caller<'_>, _: ObjectId, _: &[u8]) -> (Option<Attributes>, Result<Attributes>) {
        (None, Err(Error::NotSupported))
    }
    fn access(&self, _: Caller<'_>, _: ObjectId, _: u32) -> Result<(u32, Attributes)> {
        Err(Error::NotSupported)
    }
    fn read_link(&self, _: ObjectId, _: &mut Vec<u8>) -> Result<Attributes> {
        Err(Error::NotSupported)
    }
    fn read(
        &self,
        _: Caller<'_>,
        _: ObjectId,
        _: u64,
        _: u32,
        _: &mut SmallVec<[Segment; 1]>,
    ) -> Result<ReadEnd> {
        Err(Error::NotSupported)
    }
    fn landing(&self, _: u64, _: u32) -> Option<Landing> {
        None
    }
    fn write(&self, _: Caller<'_>, _: ObjectId, _: u64, _: &[u8], _: Stability) -> (Change, Result<Written>) {
        (NONE, Err(Error::NotSupported))
    }
    fn write_landed(
        &self,
        _: Caller<'_>,
        _: ObjectId,
        _: Landing,
        _: Stability,
    ) -> (Change, Result<Written>) {
        (NONE, Err(Error::NotSupported))
    }
    fn commit(&self, _: ObjectId, _: u64, _: u32) -> (Change, Result<u64>) {
        (NONE, Err(Error::NotSupported))
    }
    fn create(&self, _: Caller<'_>, _: ObjectId, _: &[u8], _: NewObject<'_>) -> (Change, Result<Attributes>) {
        (NONE, Err(Error::NotSupported))
    }
    fn remove(&self, _: Caller<'_>, _: ObjectId, _: &[u8]) -> (Change, Result<()>) {
        (NONE, Err(Error::NotSupported))
    }
    fn remove_directory(&self, _: Caller<'_>, _: ObjectId, _: &[u8]) -> (Change, Result<()>) {
        (NONE, Err(Error::NotSupported))
    }
    fn rename(
        &self,
        _: Caller<'_>,
        _: (ObjectId, &[u8]),
        _: (ObjectId, &[u8]),
    ) -> (Change, Change, Result<()>) {
        (NONE, NONE, Err(Error::NotSupported))
    }
    fn link(
        &self,
        _: Caller<'_>,
        _: ObjectId,
        _: ObjectId,
        _: &[u8],
    ) -> (Option<Attributes>, Change, Result<()>) {
        (None, NONE, Err(Error::NotSupported))
    }
    fn read_directory(
        &self,
        _: Caller<'_>,
        _: ObjectId,
        _: u64,
        _: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<DirectoryEnd> {
        Err(Error::NotSupported)
    }
}

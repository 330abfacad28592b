//! A memory store whose operations wait at a latch, so that a test can simulate a slow disk.

#![allow(dead_code, reason = "each test program uses a part of it")]

use smallvec::SmallVec;
use std::sync::{Arc, Condvar, Mutex};
use store::{
    Attempt, Attributes, Caller, Capabilities, DirectoryEnd, Effect, Entry, Found, MemStore, NewObject,
    ObjectId, ReadEnd, ReceiveBuffer, Result, Rights, Segment, SetAttributes, Space, Stability, Status,
    Store, Time, Wait, WouldBlock, Written,
};

/// A CREATE of this name panics.
pub const BUG: &[u8] = b"bug";

#[derive(Default)]
struct State {
    closed: bool,
    waiting: usize,
    done: usize,
}

/// A latch at which operations wait. Clones are the same latch.
#[derive(Clone, Default)]
pub struct Latch(Arc<(Mutex<State>, Condvar)>);

impl Latch {
    pub fn closed() -> Self {
        let latch = Self::default();
        latch.0.0.lock().unwrap().closed = true;
        latch
    }

    pub fn open(&self) {
        self.0.0.lock().unwrap().closed = false;
        self.0.1.notify_all();
    }

    pub fn close(&self) {
        self.0.0.lock().unwrap().closed = true;
    }

    /// The number of operations that wait at the latch.
    pub fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().waiting
    }

    /// The number of operations that have passed the latch.
    pub fn done(&self) -> usize {
        self.0.0.lock().unwrap().done
    }

    fn pass(&self) {
        let mut state = self.0.0.lock().unwrap();
        state.waiting += 1;
        while state.closed {
            state = self.0.1.wait(state).unwrap();
        }
        state.waiting -= 1;
        state.done += 1;
    }
}

/// The store.
pub struct Latched {
    mem: MemStore,
    latch: Latch,
    /// Whether attributes, reads and writes are answered at once.
    warm: bool,
    /// Whether cookies of names begin with 1, and files cannot be made shorter.
    odd: bool,
    /// Whether only what changes something waits.
    of_changes: bool,
}

/// The cookies of `.` and `..` in memory, which come before those of names.
const FIRST_COOKIES: u64 = 2;

impl Latched {
    pub fn new(latch: &Latch) -> Box<Self> {
        let (mem, latch) = (MemStore::new(64 << 20, 0, 0), latch.clone());
        Box::new(Self { mem, latch, warm: false, odd: false, of_changes: false })
    }

    pub fn warm(latch: &Latch) -> Box<Self> {
        Box::new(Self { warm: true, ..*Self::new(latch) })
    }

    /// A store without a latch, whose cookies of names begin with 1, and whose files cannot be made
    /// shorter.
    pub fn odd() -> Box<Self> {
        Box::new(Self { odd: true, ..*Self::new(&Latch::default()) })
    }

    /// A store whose changes wait, and nothing else.
    pub fn of_changes(latch: &Latch) -> Box<Self> {
        Box::new(Self { of_changes: true, ..*Self::new(latch) })
    }

    fn slow(&self) -> &MemStore {
        self.latch.pass();
        &self.mem
    }

    /// The store, after the latch unless waiting is refused.
    fn if_allowed(&self, wait: Wait<'_>) -> Attempt<&MemStore> {
        if wait.is_allowed() { Ok(self.slow()) } else { Err(WouldBlock) }
    }

    /// As [`if_allowed`](Self::if_allowed), for what changes nothing.
    fn unchanged_if_allowed(&self, wait: Wait<'_>) -> Attempt<&MemStore> {
        if self.of_changes && wait.is_allowed() { Ok(&self.mem) } else { self.if_allowed(wait) }
    }

    /// As [`if_allowed`](Self::if_allowed); a warm store need not wait.
    fn if_allowed_or_warm(&self, wait: Wait<'_>) -> Attempt<&MemStore> {
        if self.warm && !wait.is_allowed() { Ok(&self.mem) } else { self.if_allowed(wait) }
    }
}

impl Store for Latched {
    fn root(&self) -> ObjectId {
        self.mem.root()
    }

    fn may_block(&self) -> bool {
        true
    }

    fn capabilities(&self) -> Capabilities {
        self.mem.capabilities()
    }

    fn space(&self) -> Space {
        self.slow().space()
    }

    fn verifier(&self) -> u64 {
        self.mem.verifier()
    }

    fn attributes(&self, object: ObjectId, wait: Wait<'_>) -> Attempt<Result<Attributes>> {
        if self.of_changes {
            return self.unchanged_if_allowed(wait)?.attributes(object, wait);
        }
        self.if_allowed_or_warm(wait)?.attributes(object, wait)
    }

    fn set_attributes(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> (Effect, Result<()>) {
        if self.odd && set.size.is_some() {
            return (Effect::default(), Err(Status::Io));
        }
        self.slow().set_attributes(caller, object, set, guard)
    }

    fn lookup(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        wait: Wait<'_>,
    ) -> Attempt<(Option<Attributes>, Result<Found>)> {
        self.unchanged_if_allowed(wait)?.lookup(caller, directory, name, wait)
    }

    fn access(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        wanted: Rights,
        wait: Wait<'_>,
    ) -> Attempt<Result<(Rights, Attributes)>> {
        self.unchanged_if_allowed(wait)?.access(caller, object, wanted, wait)
    }

    fn read_link(&self, object: ObjectId, out: &mut Vec<u8>) -> Result<Attributes> {
        self.slow().read_link(object, out)
    }

    fn read(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        count: u32,
        out: &mut SmallVec<[Segment; 1]>,
        wait: Wait<'_>,
    ) -> Attempt<Result<ReadEnd>> {
        if self.of_changes {
            return self.unchanged_if_allowed(wait)?.read(caller, object, offset, count, out, wait);
        }
        self.if_allowed_or_warm(wait)?.read(caller, object, offset, count, out, wait)
    }

    fn receive_buffer(&self, offset: u64, count: u32) -> Option<ReceiveBuffer> {
        self.mem.receive_buffer(offset, count)
    }

    fn write(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        stability: Stability,
        wait: Wait<'_>,
    ) -> Attempt<(Effect, Result<Written>)> {
        self.if_allowed_or_warm(wait)?.write(caller, object, offset, data, stability, wait)
    }

    fn write_received(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        receive_buffer: &mut Option<ReceiveBuffer>,
        stability: Stability,
        wait: Wait<'_>,
    ) -> Attempt<(Effect, Result<Written>)> {
        self.if_allowed_or_warm(wait)?.write_received(caller, object, receive_buffer, stability, wait)
    }

    fn commit(
        &self,
        object: ObjectId,
        offset: u64,
        count: u32,
        wait: Wait<'_>,
    ) -> Attempt<(Effect, Result<u64>)> {
        self.if_allowed(wait)?.commit(object, offset, count, wait)
    }

    fn create(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        new: NewObject<'_>,
    ) -> (Effect, Result<Found>) {
        assert!(name != BUG, "a bug that a test asked for");
        self.slow().create(caller, directory, name, new)
    }

    fn remove(&self, caller: Caller<'_>, directory: ObjectId, name: &[u8]) -> (Effect, Result<()>) {
        self.slow().remove(caller, directory, name)
    }

    fn remove_directory(&self, caller: Caller<'_>, directory: ObjectId, name: &[u8]) -> (Effect, Result<()>) {
        self.slow().remove_directory(caller, directory, name)
    }

    fn rename(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> (Effect, Effect, Result<()>) {
        self.slow().rename(caller, from, to)
    }

    fn link(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> (Option<Attributes>, Effect, Result<()>) {
        self.slow().link(caller, object, directory, name)
    }

    fn hold(&self, object: ObjectId) -> Result<()> {
        self.mem.hold(object)
    }

    fn release(&self, object: ObjectId) {
        let store = if self.of_changes { &self.mem } else { self.slow() };
        store.release(object);
    }

    fn read_directory(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<DirectoryEnd> {
        if !self.odd {
            return self.slow().read_directory(caller, directory, cookie, visit);
        }
        self.slow().read_directory(caller, directory, cookie + FIRST_COOKIES, &mut |entry| {
            let cookie = entry.cookie.checked_sub(FIRST_COOKIES).filter(|cookie| *cookie > 0);
            cookie.is_none_or(|cookie| visit(Entry { cookie, ..entry }))
        })
    }
}

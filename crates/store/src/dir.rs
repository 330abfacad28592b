//! The directory store: any directory of a POSIX file system.
//!
//! - `sys`, `identity`: the system calls beneath, and acting as the caller.
//! - `name`, `map`, `state`: how objects are named so that handles outlive the process, and what is
//!   kept for that.
//! - `node`, `cache`: objects that are held open. `find`: finds them by name or handle.
//! - `changes`: the change attribute, made from the time of the last change.
//! - the operations: `data`, `setattr`, `create`, `remove`, `listing`, `xattr`, `holes`.
//!
//! Nothing outside of the exported directory is ever reached: names are looked up one at a time,
//! relative to a directory that is held open, without following links and without crossing mounts
//! (`openat2`), and an object that was opened by its handle is shown to lie beneath the root. Every
//! operation may wait for the device, so it belongs on a thread that may wait; where waiting is
//! refused, `nonblocking` answers from what is held open and in memory.
//!
//! docs/decisions/0005-dir-store.md has the reasons.

mod cache;
mod changes;
mod create;
mod data;
mod descriptors;
mod fault;
mod file_size;
mod find;
mod holes;
mod identity;
mod listing;
mod map;
mod mapping;
mod name;
mod node;
mod nonblocking;
mod receive_batch;
mod remove;
mod setattr;
mod space;
mod state;
mod sys;
mod user_groups;
mod xattr;

use crate::interface::{
    Attempt, Attributes, Caller, Capabilities, DirectoryEnd, Effect, Entry, Found, NewObject, ObjectId,
    ReadEnd, Result, Rights, Seek, SetAttributes, SetXattr, Sought, Space, Stability, Status, Store, Time,
    Wait, WouldBlock, Written,
};
use crate::payload::{Backing, ReceiveBuffer, Segment};
use cache::Cache;
use changes::Changes;
use identity::Identity;
pub use identity::keep_identity;
use map::Map;
pub(crate) use mapping::Mapped;
pub use mapping::distrust;
use memory::Buffers;
use name::Naming;
use node::Node;
pub use receive_batch::ReceiveBatch;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use smallvec::SmallVec;
use state::{SharedNumber, State};
use std::hash::RandomState;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use user_groups::UserGroups;

/// The largest file of any file system: offsets are signed.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// The most hard links: the limit of ext4, because no system call reports it reliably.
const LINKS_MAX: u32 = 65_000;
/// The most objects held open; each has up to three descriptors.
const OPEN_OBJECTS_MAX: usize = 8192;
/// The most objects that are held for clients that have them open: a bound for their memory.
const HELD_OBJECTS_MAX: usize = 1 << 16;
/// Descriptors for each object held open, and for each with only a path descriptor; a share of the
/// limit for others.
const DESCRIPTORS_EACH: usize = 4;
/// Objects unused for this long are closed, so that a file deleted on the server itself releases
/// its space.
const IDLE: Duration = Duration::from_secs(10);
/// A descriptor for writing that is unused for this long is closed, if no data are unstable.
const WRITABLE_IDLE: Duration = Duration::from_secs(1);
/// Longer payloads are not received in place: no client sends them.
const RECEIVE_BUFFER_BYTES_MAX: u32 = 1 << 20;

/// The directory to serve, with options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirOptions {
    /// The directory.
    pub path: PathBuf,
    /// Where to keep state that outlives the process, outside the directory; absent: the default
    /// place.
    pub state: Option<PathBuf>,
    /// Whether the groups of a caller whose call has no room for more come from the system's user
    /// database.
    pub server_groups: bool,
}

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be opened.
    #[error("{}: {error}", path.display())]
    Root {
        /// The path as it was given.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// No place for state was given, and there is no default place.
    #[error("there is no place to keep file handles' keys in: neither HOME nor XDG_STATE_HOME is set")]
    NoStatePlace,
    /// The state cannot be read or created.
    #[error("state cannot be kept in {}: {error}", path.display())]
    State {
        /// The path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The state, including the key of the handles, would itself be exported.
    #[error("state would lie in {}, within the exported directory", path.display())]
    StateInside {
        /// The path.
        path: PathBuf,
    },
}

/// A directory of a file system, served to callers.
pub struct DirStore {
    shared: Arc<Shared>,
    groups: Option<UserGroups>,
    /// Dropping it ends the thread that closes idle objects.
    stop: Option<mpsc::Sender<()>>,
    sweeper: Option<JoinHandle<()>>,
}

/// See the module's documentation.
struct Shared {
    /// Opened for reading, because the kernel opens handles only relative to such a descriptor.
    root: OwnedFd,
    root_object: ObjectId,
    /// Whether the root is the root of its file system, so that nothing of it lies outside.
    is_filesystem_root: bool,
    /// Whether cached data are available without asking another machine or process.
    local: bool,
    /// Whether there is no device to wait for.
    memory: bool,
    /// Whether the file system supports reads, and writes, that do only what is possible at once.
    supports_nowait_reads: AtomicBool,
    supports_nowait_writes: AtomicBool,
    /// Whether its files can be mapped.
    maps: AtomicBool,
    /// Whether the offsets in directories do not stay valid, so that names are numbered here.
    number_names: bool,
    naming: Naming,
    identity: Identity,
    state: State,
    map: Map,
    cache: Cache,
    changes: Arc<Changes>,
    buffers: Arc<Buffers>,
    /// Keys the hashes of callers.
    callers: RandomState,
    name_bytes_max: u32,
    file_bytes_max: u64,
    /// Whether the file system has extended attributes of users.
    xattrs: bool,
    /// In units of how many bytes its files can be cloned; 0 if they cannot.
    clone_block_bytes: u32,
}

impl DirStore {
    /// Opens a directory, and its state.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(options: &DirOptions) -> std::result::Result<Self, OpenError> {
        let root_error = |error: io::Error| OpenError::Root { path: options.path.clone(), error };
        let path = std::fs::canonicalize(&options.path).map_err(root_error)?;
        let base = options.state.clone().or_else(state::default_base).ok_or(OpenError::NoStatePlace)?;
        let state = open_state(&base, &path)?;
        let state_error = |error| OpenError::State { path: state.directory.clone(), error };
        let map = Map::open(&state.directory, &state.secret).map_err(state_error)?;
        let changes = SharedNumber::open(&state.directory.join("changes")).map_err(state_error)?;
        let shared = Shared::open(&path, state, map, changes).map_err(|error| root_error(error.into()))?;
        let shared = Arc::new(shared);
        let (stop, stopped) = mpsc::channel();
        let watched = Arc::downgrade(&shared);
        let sweep = move || {
            let mut idle = Duration::ZERO;
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(WRITABLE_IDLE) {
                let Some(shared) = watched.upgrade() else { break };
                shared.cache.writable_idle().iter().for_each(|node| shared.close_writable(node));
                idle += WRITABLE_IDLE;
                if idle >= IDLE {
                    idle = Duration::ZERO;
                    shared.close(shared.cache.take_idle());
                    shared.buffers.shrink();
                }
            }
        };
        let thread = std::thread::Builder::new().name("tl-dir-idle".into()).spawn(sweep);
        let sweeper = Some(thread.map_err(root_error)?);
        // A process that acts only as itself does not need the groups of callers.
        let switches = matches!(shared.identity, Identity::Callers { .. });
        let groups = (options.server_groups && switches).then(UserGroups::default);
        Ok(Self { shared, groups, stop: Some(stop), sweeper })
    }

    /// Calls `act` for a caller with all groups of the caller.
    fn with_groups<T>(&self, caller: Caller<'_>, act: impl FnOnce(Caller<'_>) -> T) -> T {
        let groups = self.groups.as_ref().filter(|_| UserGroups::needs_lookup(&caller));
        match groups.and_then(|groups| groups.lookup(caller.uid)) {
            Some(gids) => act(Caller { gids: &gids, ..caller }),
            None => act(caller),
        }
    }

    /// Like [`with_groups`](Self::with_groups), if the groups are cached.
    fn try_with_groups<T>(&self, caller: Caller<'_>, act: impl FnOnce(Caller<'_>) -> Option<T>) -> Option<T> {
        match self.groups.as_ref().filter(|_| UserGroups::needs_lookup(&caller)) {
            None => act(caller),
            Some(groups) => match groups.cached(caller.uid)? {
                Some(gids) => act(Caller { gids: &gids, ..caller }),
                None => act(caller),
            },
        }
    }

    /// Calls `act` for a caller with all groups of the caller, or `at_once` where waiting is
    /// refused.
    fn attempt<T>(
        &self,
        caller: Caller<'_>,
        wait: Wait<'_>,
        act: impl FnOnce(Caller<'_>) -> T,
        at_once: impl FnOnce(Caller<'_>, Option<&ReceiveBatch>) -> Option<T>,
    ) -> Attempt<T> {
        match wait {
            Wait::Allowed => Ok(self.with_groups(caller, act)),
            Wait::Refused(batch) => {
                self.try_with_groups(caller, |caller| at_once(caller, batch)).ok_or(WouldBlock)
            }
        }
    }

    /// What an administrator should know about how this directory is served, in sentences.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Identity::Own { uid, gid, .. } = &self.shared.identity {
            let why = if *uid == 0 { "root that may not act as others" } else { "not root" };
            notes.push(format!(
                "{why}: every caller, squashed or not, acts as user {uid}, group {gid}, with that user's rights"
            ));
        }
        if !self.shared.naming.can_open {
            let state = self.shared.state.directory.display();
            notes.push(format!(
                "the kernel's file handles cannot be opened here: a map in {state} says where files lie; \
                 a file renamed beneath the server while its handle is idle becomes stale"
            ));
        }
        notes
    }
}

impl Drop for DirStore {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.sweeper.take() {
            let _ = thread.join();
        }
        self.shared.close(self.shared.cache.take_all());
    }
}

fn open_state(base: &Path, root: &Path) -> std::result::Result<State, OpenError> {
    let state_error = |error: io::Error| OpenError::State { path: base.to_owned(), error };
    // Checked before anything is created: the nearest existing ancestor decides.
    let absolute = std::path::absolute(base).map_err(state_error)?;
    let exists = absolute.ancestors().find_map(|path| std::fs::canonicalize(path).ok());
    if exists.is_some_and(|path| path.starts_with(root)) {
        return Err(OpenError::StateInside { path: base.to_owned() });
    }
    State::open(base, root).map_err(state_error)
}

impl Shared {
    fn open(path: &Path, state: State, map: Map, last_change: SharedNumber) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&root)?;
        let kind = rustix::fs::fstatfs(&root)?.f_type;
        let naming = Naming::probe(root.as_fd(), &stat, kind, &state.secret);
        let root_object = naming.name(root.as_fd(), c"", &stat).map_err(|_| rustix::io::Errno::IO)?;
        // On a thread of its own: trying an identity on has effects on a thread that outlast the
        // trial, such as the end of its tie to a parent's death.
        let identity = std::thread::scope(|scope| scope.spawn(Identity::probe).join());
        let Ok(identity) = identity else { return Err(rustix::io::Errno::IO) };
        let local = find::is_local(kind);
        let fine = local && changes::is_fine(root.as_fd());
        let name_bytes_max = rustix::fs::fstatvfs(&root)?.f_namemax;
        Ok(Self {
            is_filesystem_root: find::is_filesystem_root(root.as_fd()),
            local,
            memory: find::is_memory(kind),
            supports_nowait_reads: AtomicBool::new(true),
            supports_nowait_writes: AtomicBool::new(true),
            maps: AtomicBool::new(true),
            number_names: listing::must_number(kind),
            file_bytes_max: file_size::largest(root.as_fd()),
            xattrs: xattr::are_supported(root.as_fd()),
            clone_block_bytes: holes::clone_block_bytes(root.as_fd()),
            root,
            root_object,
            naming,
            identity,
            state,
            map,
            cache: Cache::new(open_objects_max(), held_objects_max()),
            changes: Arc::new(Changes::new(last_change, fine, local)),
            buffers: Arc::default(),
            callers: RandomState::new(),
            name_bytes_max: u32::try_from(name_bytes_max).unwrap_or(255),
        })
    }

    /// Closes objects that have left the cache. Unsynced writes are synced first, because a later
    /// failure would be reported to nobody.
    fn close(&self, gone: Vec<Arc<Node>>) {
        for node in gone {
            self.sync_if_dirty(&node);
        }
    }
}

/// The number of objects for which the descriptor limit has room, after the limit is raised as far
/// as allowed.
fn open_objects_max() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX).min(1 << 17);
    if limit.current.is_some_and(|current| current < most) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let share = usize::try_from(now).unwrap_or(usize::MAX) / DESCRIPTORS_EACH / 2;
    share.clamp(16, OPEN_OBJECTS_MAX)
}

/// The number of objects that can be held: as many as may be open besides, or more where the
/// descriptor limit is high. Both leave a quarter of the limit for others.
fn held_objects_max() -> usize {
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let share = usize::try_from(now).unwrap_or(usize::MAX) / DESCRIPTORS_EACH / 4;
    share.clamp(8, HELD_OBJECTS_MAX)
}

impl Store for DirStore {
    fn root(&self) -> ObjectId {
        self.shared.root_object
    }

    fn path_of(&self, object: ObjectId) -> Option<Vec<u8>> {
        self.shared.path_of(&object)
    }

    fn may_block(&self) -> bool {
        true
    }

    fn handle_secret(&self) -> Option<[u8; 16]> {
        Some(self.shared.state.secret)
    }

    fn state_directory(&self) -> Option<&Path> {
        Some(&self.shared.state.directory)
    }

    fn capabilities(&self) -> Capabilities {
        let Shared { file_bytes_max, xattrs, clone_block_bytes, .. } = *self.shared;
        Capabilities {
            file_bytes_max,
            xattrs,
            clone_block_bytes,
            ..Capabilities::of(LINKS_MAX, self.shared.name_bytes_max)
        }
    }

    fn space(&self) -> Space {
        self.shared.space()
    }

    fn verifier(&self) -> u64 {
        self.shared.state.verifier()
    }

    fn attributes(&self, object: ObjectId, wait: Wait<'_>) -> Attempt<Result<Attributes>> {
        let node = match wait {
            Wait::Allowed => self.shared.get(object),
            Wait::Refused(_) => Ok(self.shared.try_get(object).ok_or(WouldBlock)?),
        };
        Ok(node.and_then(|node| node.attributes()))
    }

    fn set_attributes(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> (Effect, Result<()>) {
        self.with_groups(caller, |caller| self.shared.set(caller, object, set, guard))
    }

    fn lookup(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        wait: Wait<'_>,
    ) -> Attempt<(Option<Attributes>, Result<Found>)> {
        self.attempt(
            caller,
            wait,
            |caller| self.shared.find(caller, directory, name),
            |caller, _| self.shared.try_find(caller, directory, name),
        )
    }

    fn access(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        wanted: Rights,
        wait: Wait<'_>,
    ) -> Attempt<Result<(Rights, Attributes)>> {
        self.attempt(
            caller,
            wait,
            |caller| self.shared.rights(caller, object, wanted),
            |caller, _| self.shared.try_rights(caller, object, wanted),
        )
    }

    fn read_link(&self, object: ObjectId, out: &mut Vec<u8>) -> Result<Attributes> {
        self.shared.target(object, out)
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
        match wait {
            Wait::Allowed => {
                Ok(self
                    .with_groups(caller, |caller| self.shared.read_data(caller, object, offset, count, out)))
            }
            Wait::Refused(batch) => {
                let read = self.try_with_groups(caller, |caller| {
                    self.shared.try_read_data(caller, object, offset, count, out, batch)
                });
                read.ok_or(WouldBlock)
            }
        }
    }

    fn receive_buffer(&self, offset: u64, count: u32) -> Option<ReceiveBuffer> {
        let fits = count > 0 && count <= RECEIVE_BUFFER_BYTES_MAX;
        fits.then(|| ReceiveBuffer(Backing::Buffer(self.shared.buffers.take(count as usize), offset)))
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
        self.attempt(
            caller,
            wait,
            |caller| self.shared.write_data(caller, object, offset, data, stability),
            |caller, batch| self.shared.try_write_data(caller, object, offset, data, stability, batch),
        )
    }

    fn write_received(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        receive_buffer: &mut Option<ReceiveBuffer>,
        stability: Stability,
        wait: Wait<'_>,
    ) -> Attempt<(Effect, Result<Written>)> {
        let Some(ReceiveBuffer(Backing::Buffer(data, offset))) = &*receive_buffer else {
            // Made by another store, which a caller has no reason to mix up with this one.
            return Ok((Effect::default(), Err(Status::Invalid)));
        };
        let written = self.write(caller, object, *offset, data, stability, wait)?;
        *receive_buffer = None;
        Ok(written)
    }

    fn commit(
        &self,
        object: ObjectId,
        _offset: u64,
        _count: u32,
        wait: Wait<'_>,
    ) -> Attempt<(Effect, Result<u64>)> {
        match wait {
            Wait::Allowed => Ok(self.shared.commit_data(object)),
            Wait::Refused(_) => self.shared.try_commit_data(object).ok_or(WouldBlock),
        }
    }

    fn create(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        new: NewObject<'_>,
    ) -> (Effect, Result<Found>) {
        self.with_groups(caller, |caller| self.shared.make(caller, directory, name, new))
    }

    fn sync_names(&self, directory: ObjectId) -> Result<()> {
        self.shared.get(directory).and_then(|directory| self.shared.sync_names(&directory))
    }

    fn remove(&self, caller: Caller<'_>, directory: ObjectId, name: &[u8]) -> (Effect, Result<()>) {
        self.with_groups(caller, |caller| self.shared.unlink(caller, directory, name, false))
    }

    fn remove_directory(&self, caller: Caller<'_>, directory: ObjectId, name: &[u8]) -> (Effect, Result<()>) {
        self.with_groups(caller, |caller| self.shared.unlink(caller, directory, name, true))
    }

    fn rename(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> (Effect, Effect, Result<()>) {
        self.with_groups(caller, |caller| self.shared.move_name(caller, from, to))
    }

    fn link(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> (Option<Attributes>, Effect, Result<()>) {
        self.with_groups(caller, |caller| self.shared.make_link(caller, object, directory, name))
    }

    fn seek(&self, caller: Caller<'_>, object: ObjectId, offset: u64, what: Seek) -> Result<Sought> {
        self.with_groups(caller, |caller| self.shared.find_in_file(caller, object, offset, what))
    }

    fn allocate(&self, caller: Caller<'_>, object: ObjectId, offset: u64, len: u64) -> (Effect, Result<()>) {
        self.with_groups(caller, |caller| self.shared.allocate_range(caller, object, offset, len))
    }

    fn deallocate(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        len: u64,
    ) -> (Effect, Result<()>) {
        self.with_groups(caller, |caller| self.shared.deallocate_range(caller, object, offset, len))
    }

    fn copy(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u32,
    ) -> (Effect, Result<Written>) {
        self.with_groups(caller, |caller| self.shared.copy_data(caller, from, to, count))
    }

    fn clone_range(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> (Effect, Result<()>) {
        self.with_groups(caller, |caller| self.shared.clone_data(caller, from, to, count))
    }

    fn host_file(&self, object: ObjectId) -> Option<(u64, u64)> {
        let stat = self.shared.get(object).ok()?.stat().ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    fn hold(&self, object: ObjectId) -> Result<()> {
        self.shared.hold_file(object)
    }

    fn release(&self, object: ObjectId) {
        self.shared.release_file(&object);
    }

    fn xattr(&self, caller: Caller<'_>, object: ObjectId, name: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.with_groups(caller, |caller| self.shared.value_of_xattr(caller, object, name, out))
    }

    fn set_xattr(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> (Effect, Result<()>) {
        self.with_groups(caller, |caller| self.shared.change_xattr(caller, object, name, Some((value, how))))
    }

    fn remove_xattr(&self, caller: Caller<'_>, object: ObjectId, name: &[u8]) -> (Effect, Result<()>) {
        self.with_groups(caller, |caller| self.shared.change_xattr(caller, object, name, None))
    }

    fn list_xattrs(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(&[u8], u64) -> bool,
    ) -> Result<bool> {
        self.with_groups(caller, |caller| self.shared.names_of_xattrs(caller, object, cookie, visit))
    }

    fn read_directory(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<DirectoryEnd> {
        self.with_groups(caller, |caller| self.shared.list(caller, directory, cookie, visit))
    }
}

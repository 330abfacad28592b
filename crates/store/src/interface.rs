//! The store interface: the types that all stores use, and the trait.

mod object;
mod wait;

use crate::payload::{ReceiveBuffer, Segment};

pub use fs::{SetTime, Stability, Time};
pub use object::{NAME_BYTES_MAX, ObjectId};
pub use wait::{Attempt, Wait, WouldWait};

/// The user on whose behalf an operation runs.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub gids: &'a [u32],
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device with its major and minor number.
    BlockDevice(u32, u32),
    /// A character device with its major and minor number.
    CharacterDevice(u32, u32),
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
}

/// The attributes that `stat` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Which object.
    pub object: ObjectId,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, with set-user-id, set-group-id and sticky: the low 12 bits.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of the content.
    pub modified: Time,
    /// Last change of the attributes.
    pub changed: Time,
}

/// The three attributes that show whether an object changed between two calls. RFC 1813 s2.6
/// (wcc_attr)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeakAttributes {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content.
    pub modified: Time,
    /// Last change of the attributes.
    pub changed: Time,
}

/// An object's state right before and right after an operation, taken under the operation's own
/// lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Before, absent when the object was not reached.
    pub before: Option<WeakAttributes>,
    /// After, absent when the object was not reached.
    pub after: Option<Attributes>,
}

/// Which attributes to set; absent ones stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates, or extends with a hole.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: SetTime,
    /// Last change of the content.
    pub modified: SetTime,
}

/// What to create, and how an existing name is met. RFC 1813 s3.3.8 to s3.3.11
#[derive(Debug, Clone, Copy)]
pub enum NewObject<'a> {
    /// A file; an existing one is used as it is, with the attributes set (UNCHECKED).
    File(SetAttributes),
    /// A file; an existing one is an error (GUARDED).
    FileGuarded(SetAttributes),
    /// A file; an existing one that was made with the same verifier is success (EXCLUSIVE).
    FileExclusive([u8; 8]),
    /// A directory.
    Directory(SetAttributes),
    /// A symbolic link and its target.
    Symlink(SetAttributes, &'a [u8]),
    /// A device, socket or named pipe.
    Special(SetAttributes, Kind),
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes written.
    pub count: u32,
    /// How safe they are.
    pub committed: Stability,
    /// Changes exactly when unstable data could have been lost.
    pub verifier: u64,
}

/// How a read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadEnd {
    /// Bytes in the segments.
    pub count: u32,
    /// Whether the file ends there.
    pub eof: bool,
    /// The file's attributes under the same lock.
    pub attributes: Attributes,
}

/// One name in a directory.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Where to continue after this entry; stable while other names come and go.
    pub cookie: u64,
    /// The object, with its attributes.
    pub attributes: &'a Attributes,
}

/// How a directory listing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryEnd {
    /// Whether the directory ends there.
    pub eof: bool,
    /// The directory's attributes.
    pub attributes: Attributes,
}

/// Space and objects, total and free. RFC 1813 s3.3.18
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Objects in all.
    pub total_objects: u64,
    /// Objects that can still be made.
    pub free_objects: u64,
}

/// What a store can hold. RFC 1813 s3.3.19, s3.3.20
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest file, in bytes.
    pub file_bytes_max: u64,
    /// The longest name, in bytes.
    pub name_bytes_max: u32,
    /// The most hard links.
    pub links_max: u32,
    /// The resolution of times, in nanoseconds.
    pub time_delta_ns: u32,
}

/// Why an operation failed: the caller's mistake, a limit, or the store's own trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// Not owner, and only the owner (or root) may.
    #[error("not permitted")]
    NotPermitted,
    /// No such name.
    #[error("no such file or directory")]
    NotFound,
    /// The device failed.
    #[error("input/output error")]
    Io,
    /// The permission bits forbid it.
    #[error("permission denied")]
    Access,
    /// The name is taken.
    #[error("file exists")]
    Exists,
    /// A link or rename would cross file systems.
    #[error("crosses file systems")]
    CrossDevice,
    /// Not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// A directory, where none may be.
    #[error("is a directory")]
    IsDirectory,
    /// The arguments make no sense for this object.
    #[error("invalid argument")]
    Invalid,
    /// Above the largest file.
    #[error("file too large")]
    FileTooBig,
    /// The store is full.
    #[error("no space left")]
    NoSpace,
    /// The store or export is read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// At the most hard links.
    #[error("too many links")]
    TooManyLinks,
    /// The name is above its bound.
    #[error("name too long")]
    NameTooLong,
    /// The directory is not empty.
    #[error("directory not empty")]
    NotEmpty,
    /// The caller's quota is used up.
    #[error("quota exceeded")]
    Quota,
    /// The object is gone.
    #[error("stale object")]
    Stale,
    /// The guard of a SETATTR did not match. RFC 1813 s3.3.2
    #[error("object changed since the guard was taken")]
    NotSync,
    /// A readdir cookie this directory never gave.
    #[error("bad cookie")]
    BadCookie,
    /// Not supported for this object.
    #[error("not supported")]
    NotSupported,
    /// The type cannot be created.
    #[error("bad type")]
    BadType,
    /// Not now: something that passes stands in the way.
    #[error("try again later")]
    Later,
}

/// The result of an operation that changes nothing.
pub type Result<T> = std::result::Result<T, Error>;

/// A tree of files. Every method may be called from any thread.
///
/// Methods that change an object also return its [`Change`], on failure too, so that weak cache
/// consistency data are right (RFC 1813 s2.6).
///
/// The operations that most calls consist of take a [`Wait`]. On a store that
/// [may block](Self::may_block), a loop calls these alone, with [`Wait::Refused`], and has a thread
/// that may wait do the rest. A store that never blocks ignores the argument.
pub trait Store: Send + Sync + 'static {
    /// The root directory.
    fn root(&self) -> ObjectId;

    /// Whether operations may wait for a device or a network; then they must not run on a loop.
    fn may_block(&self) -> bool {
        false
    }

    /// The secret that file handles are sealed with, where they outlive the process. Absent:
    /// nothing outlives it, and a secret that is drawn at each start will do.
    fn handle_secret(&self) -> Option<[u8; 16]> {
        None
    }

    /// What the store can hold. Never waits.
    fn limits(&self) -> Limits;

    /// Space and objects, total and free.
    fn space(&self) -> Space;

    /// The current write verifier: changes exactly when unstable data could have been lost. Never
    /// waits.
    fn verifier(&self) -> u64;

    /// GETATTR.
    fn attributes(&self, object: ObjectId, wait: Wait<'_>) -> Attempt<Result<Attributes>>;

    /// SETATTR; `guard` is the ctime that the object must still have.
    fn set_attributes(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> (Change, Result<()>);

    /// LOOKUP; `.` and `..` too (the root is its own parent). Also gives the directory's
    /// attributes.
    fn lookup(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        wait: Wait<'_>,
    ) -> Attempt<(Option<Attributes>, Result<Attributes>)>;

    /// ACCESS: which of these rights the caller has. Bits as in RFC 1813 s3.3.4.
    fn access(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        wanted: u32,
        wait: Wait<'_>,
    ) -> Attempt<Result<(u32, Attributes)>>;

    /// READLINK: appends the target to `out`.
    fn read_link(&self, object: ObjectId, out: &mut Vec<u8>) -> Result<Attributes>;

    /// READ: appends pinned segments, at most `count` bytes from `offset`. After [`WouldWait`],
    /// `out` is as it was.
    fn read(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        count: u32,
        out: &mut smallvec::SmallVec<[Segment; 1]>,
        wait: Wait<'_>,
    ) -> Attempt<Result<ReadEnd>>;

    /// Memory into which `count` bytes for `offset` of a file can be received before they are
    /// written; `None` when the store has none to spare (then the bytes come as a slice). Never
    /// waits.
    fn receive_buffer(&self, offset: u64, count: u32) -> Option<ReceiveBuffer>;

    /// WRITE of bytes that were received elsewhere.
    fn write(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        stability: Stability,
        wait: Wait<'_>,
    ) -> Attempt<(Change, Result<Written>)>;

    /// WRITE of bytes that were received into a [`ReceiveBuffer`] made for the same offset and
    /// count. The buffer is taken; after [`WouldWait`] it is still there, with its bytes.
    fn write_landed(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        receive_buffer: &mut Option<ReceiveBuffer>,
        stability: Stability,
        wait: Wait<'_>,
    ) -> Attempt<(Change, Result<Written>)>;

    /// COMMIT; a `count` of 0 means up to the end.
    fn commit(
        &self,
        object: ObjectId,
        offset: u64,
        count: u32,
        wait: Wait<'_>,
    ) -> Attempt<(Change, Result<u64>)>;

    /// CREATE, MKDIR, SYMLINK, MKNOD. The change is the directory's.
    fn create(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        new: NewObject<'_>,
    ) -> (Change, Result<Attributes>);

    /// REMOVE: anything but a directory.
    fn remove(&self, caller: Caller<'_>, directory: ObjectId, name: &[u8]) -> (Change, Result<()>);

    /// RMDIR.
    fn remove_directory(&self, caller: Caller<'_>, directory: ObjectId, name: &[u8]) -> (Change, Result<()>);

    /// RENAME; changes of the source and of the target directory.
    fn rename(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> (Change, Change, Result<()>);

    /// Makes the names of a directory durable, whichever caller changed them. Each change does so
    /// by itself; this method is for a change that was interrupted.
    fn sync_names(&self, _directory: ObjectId) -> Result<()> {
        Ok(())
    }

    /// LINK: the object's attributes afterwards, and the directory's change.
    fn link(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> (Option<Attributes>, Change, Result<()>);

    /// READDIR and READDIRPLUS: visits entries after `cookie` (0: from the start), `.` and `..`
    /// included, until `visit` says false (that entry was not taken) or the directory ends.
    fn read_directory(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<DirectoryEnd>;
}

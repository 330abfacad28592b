//! The store interface: the types that all stores use, and the trait.

mod object;
mod wait;
mod xattr;

use crate::payload::{ReceiveBuffer, Segment};
use std::path::Path;
use std::time::Duration;

pub use fs::{
    Attributes, CreateMode, Device, Effect, FileKind, Limits, Rights, SetAttributes, SetTime, Space, Special,
    Stability, Status, Time, Version,
};
pub use object::{NAME_BYTES_MAX, ObjectId};
pub use wait::{Attempt, Wait, WouldBlock};
pub use xattr::{SetXattr, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
pub(crate) use xattr::{user_name, xattr_cookie, xattr_name};

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

/// An object with its attributes. The store does not know the number of its file system: `fsid` is
/// zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Which object.
    pub object: ObjectId,
    /// Its attributes.
    pub attributes: Attributes,
}

/// What to create. RFC 1813 s3.3.8 to s3.3.11
#[derive(Debug, Clone, Copy)]
pub enum NewObject<'a> {
    /// A regular file; the mode says how an existing name is met.
    File(CreateMode),
    /// A directory.
    Directory(SetAttributes),
    /// A symbolic link and its target.
    Symlink(SetAttributes, &'a [u8]),
    /// A device, socket or named pipe.
    Special(SetAttributes, Special),
}

impl NewObject<'_> {
    /// What the object will be.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        match self {
            Self::File(_) => FileKind::Regular,
            Self::Directory(_) => FileKind::Directory,
            Self::Symlink(..) => FileKind::Symlink,
            Self::Special(_, special) => special.kind(),
        }
    }
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
    pub found: &'a Found,
}

/// What to look for in a file. RFC 7862 s15.11
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next data.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

/// What was found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sought {
    /// Where it begins, at or after the offset that was given; the size of the file if there is
    /// none.
    pub offset: u64,
    /// Whether the file ends there.
    pub eof: bool,
}

/// How a directory listing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryEnd {
    /// Whether the directory ends there.
    pub eof: bool,
    /// The directory's attributes.
    pub attributes: Attributes,
}

/// What a store can hold. RFC 1813 s3.3.19, s3.3.20
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Limits of names and links.
    pub limits: Limits,
    /// The largest file, in bytes.
    pub file_bytes_max: u64,
    /// The resolution of times.
    pub time_delta: Duration,
    /// Whether the change attribute of an object only ever grows. RFC 7862 s12.2.3
    /// (change_attr_type)
    pub change_grows: bool,
    /// Whether objects have extended attributes. RFC 8276 s8.3 (xattr_support)
    pub xattrs: bool,
    /// In units of how many bytes files can be cloned; 0 if they cannot. RFC 7862 s12.2.1
    /// (clone_blksize)
    pub clone_block_bytes: u32,
}

impl Capabilities {
    /// The capabilities of a store as on Linux: signed offsets, names that are bytes and never cut,
    /// times in nanoseconds, and owners that only root changes.
    #[must_use]
    pub const fn of(links_max: u32, name_bytes_max: u32) -> Self {
        let limits = Limits {
            links_max,
            name_bytes_max,
            no_truncation: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        };
        Self {
            limits,
            file_bytes_max: i64::MAX as u64,
            time_delta: Duration::from_nanos(1),
            change_grows: false,
            xattrs: false,
            clone_block_bytes: 0,
        }
    }
}

/// How much of a copy there is to do: up to the end that the source has at its begin, because a
/// copy within one file may make it longer.
///
/// # Errors
/// [`Status::Invalid`] if the two ranges overlap. RFC 7862 s15.2.3
pub(crate) fn bytes_to_copy(
    from: (ObjectId, u64),
    to: (ObjectId, u64),
    count: u32,
    source_bytes: u64,
) -> Result<u32> {
    if from.0 == to.0 && from.1.abs_diff(to.1) < count.into() {
        return Err(Status::Invalid);
    }
    Ok(count.min(u32::try_from(source_bytes.saturating_sub(from.1)).unwrap_or(u32::MAX)))
}

/// The result of an operation that changes nothing.
pub type Result<T> = std::result::Result<T, Status>;

/// A tree of files. Every method may be called from any thread.
///
/// Methods that change an object also return its [`Effect`], on failure too, so that weak cache
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

    /// The directory in which what outlives the process is kept, where anything does. It belongs to
    /// the process's user, and nobody else can change it.
    fn state_directory(&self) -> Option<&Path> {
        None
    }

    /// What the store can hold. Never waits.
    fn capabilities(&self) -> Capabilities;

    /// Space and objects, total and free.
    fn space(&self) -> Space;

    /// The path of an object from the root, which is `/`, if the store knows it without a search.
    /// For people: the object may have been moved meanwhile.
    fn path_of(&self, _object: ObjectId) -> Option<Vec<u8>> {
        None
    }

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
    ) -> (Effect, Result<()>);

    /// LOOKUP; `.` and `..` too (the root is its own parent). Also gives the directory's
    /// attributes.
    fn lookup(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        wait: Wait<'_>,
    ) -> Attempt<(Option<Attributes>, Result<Found>)>;

    /// ACCESS: which of these rights the caller has.
    fn access(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        wanted: Rights,
        wait: Wait<'_>,
    ) -> Attempt<Result<(Rights, Attributes)>>;

    /// READLINK: appends the target to `out`.
    fn read_link(&self, object: ObjectId, out: &mut Vec<u8>) -> Result<Attributes>;

    /// READ: appends pinned segments, at most `count` bytes from `offset`. After [`WouldBlock`],
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
    /// written; `None` when the store has none to spare (then the bytes come as a slice). It takes
    /// nothing of the store's space: the caller bounds what is being received. Never waits.
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
    ) -> Attempt<(Effect, Result<Written>)>;

    /// WRITE of bytes that were received into a [`ReceiveBuffer`] made for the same offset and
    /// count. The buffer is taken; after [`WouldBlock`] it is still there, with its bytes.
    fn write_received(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        receive_buffer: &mut Option<ReceiveBuffer>,
        stability: Stability,
        wait: Wait<'_>,
    ) -> Attempt<(Effect, Result<Written>)>;

    /// COMMIT; a `count` of 0 means up to the end.
    fn commit(
        &self,
        object: ObjectId,
        offset: u64,
        count: u32,
        wait: Wait<'_>,
    ) -> Attempt<(Effect, Result<u64>)>;

    /// CREATE, MKDIR, SYMLINK, MKNOD. The change is the directory's.
    fn create(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
        new: NewObject<'_>,
    ) -> (Effect, Result<Found>);

    /// REMOVE: anything but a directory.
    fn remove(&self, caller: Caller<'_>, directory: ObjectId, name: &[u8]) -> (Effect, Result<()>);

    /// RMDIR.
    fn remove_directory(&self, caller: Caller<'_>, directory: ObjectId, name: &[u8]) -> (Effect, Result<()>);

    /// RENAME; changes of the source and of the target directory.
    fn rename(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> (Effect, Effect, Result<()>);

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
    ) -> (Option<Attributes>, Effect, Result<()>);

    /// SEEK: finds data or a hole at or after an offset. RFC 7862 s15.11
    ///
    /// # Errors
    /// [`Status::NoAddress`] if the offset is not within the file.
    fn seek(&self, _caller: Caller<'_>, _object: ObjectId, _offset: u64, _what: Seek) -> Result<Sought> {
        Err(Status::NotSupported)
    }

    /// ALLOCATE: makes sure that later writes of a range have space, and makes the file longer if
    /// it ends before the range does. The time it takes grows with the range. RFC 7862 s15.1
    ///
    /// # Errors
    /// [`Status::Invalid`] for an empty range.
    fn allocate(
        &self,
        _caller: Caller<'_>,
        _object: ObjectId,
        _offset: u64,
        _len: u64,
    ) -> (Effect, Result<()>) {
        (Effect::default(), Err(Status::NotSupported))
    }

    /// DEALLOCATE: makes a range a hole, as far as its space can be given back, and zero
    /// elsewhere. The size stays. RFC 7862 s15.4
    ///
    /// # Errors
    /// [`Status::Invalid`] for an empty range, or one that ends beyond 2^64.
    fn deallocate(
        &self,
        _caller: Caller<'_>,
        _object: ObjectId,
        _offset: u64,
        _len: u64,
    ) -> (Effect, Result<()>) {
        (Effect::default(), Err(Status::NotSupported))
    }

    /// COPY within the store: at most `count` bytes, fewer where the source ends. The effect is the
    /// target's. The data are unstable until they are committed. RFC 7862 s15.2
    ///
    /// The time it takes grows with `count`: a caller that wants a large copy divides it.
    ///
    /// # Errors
    /// [`Status::Invalid`] if both ranges are of one file and overlap.
    fn copy(
        &self,
        _caller: Caller<'_>,
        _from: (ObjectId, u64),
        _to: (ObjectId, u64),
        _count: u32,
    ) -> (Effect, Result<Written>) {
        (Effect::default(), Err(Status::NotSupported))
    }

    /// CLONE within the store: lets the target share the bytes of the source, until either is
    /// changed; a `count` of 0 means up to the end of the source. The effect is the target's. RFC
    /// 7862 s15.13
    ///
    /// # Errors
    /// [`Status::NotSupported`] where the file system cannot do this, [`Status::Invalid`] if the
    /// offsets or the count are no multiples of its block, or the source ends before the range.
    fn clone_range(
        &self,
        _caller: Caller<'_>,
        _from: (ObjectId, u64),
        _to: (ObjectId, u64),
        _count: u64,
    ) -> (Effect, Result<()>) {
        (Effect::default(), Err(Status::NotSupported))
    }

    /// What a file is to the host, by which the same file is known in another store: a device and a
    /// number. `None` where no other store can have it.
    fn host_file(&self, _object: ObjectId) -> Option<(u64, u64)> {
        None
    }

    /// Holds a regular file: it can be used after its last name is gone, with a link count of zero,
    /// until it is [released](Self::release) as often as it was held, or the process ends. Without
    /// a hold such a file is stale. RFC 8881 s18.16.3 (OPEN4_RESULT_PRESERVE_UNLINKED)
    ///
    /// A file whose last name is gone already can be held while another process holds it, if the
    /// store can still open it there.
    ///
    /// # Errors
    /// [`Status::Later`] where the store holds as many files as it can, [`Status::NotSupported`]
    /// where it holds none.
    fn hold(&self, _object: ObjectId) -> Result<()> {
        Err(Status::NotSupported)
    }

    /// Ends a hold. A file without a name goes with its last hold.
    fn release(&self, _object: ObjectId) {}

    /// GETXATTR: appends the value of an extended attribute to `out`. RFC 8276 s8.4.1
    ///
    /// All extended attributes are the user's (`user.` on Linux), and named without that prefix.
    /// Files and directories have them.
    ///
    /// # Errors
    /// [`Status::NoXattr`] if there is none with this name.
    fn xattr(&self, _caller: Caller<'_>, _object: ObjectId, _name: &[u8], _out: &mut Vec<u8>) -> Result<()> {
        Err(Status::NotSupported)
    }

    /// SETXATTR. RFC 8276 s8.4.2
    ///
    /// # Errors
    /// [`Status::Exists`] and [`Status::NoXattr`] as [`SetXattr`] says, [`Status::XattrTooBig`] if
    /// the value is longer than [`XATTR_VALUE_BYTES_MAX`] or than the file system can keep, and
    /// [`Status::NotPermitted`] if the object is neither a file nor a directory.
    fn set_xattr(
        &self,
        _caller: Caller<'_>,
        _object: ObjectId,
        _name: &[u8],
        _value: &[u8],
        _how: SetXattr,
    ) -> (Effect, Result<()>) {
        (Effect::default(), Err(Status::NotSupported))
    }

    /// REMOVEXATTR. RFC 8276 s8.4.4
    fn remove_xattr(&self, _caller: Caller<'_>, _object: ObjectId, _name: &[u8]) -> (Effect, Result<()>) {
        (Effect::default(), Err(Status::NotSupported))
    }

    /// LISTXATTRS: visits the names of extended attributes after `cookie` (0: from the start), each
    /// with its cookie, until `visit` says false (that name was not taken). Returns whether the
    /// list ends there. Cookies stay valid while other names come and go. RFC 8276 s8.4.3
    fn list_xattrs(
        &self,
        _caller: Caller<'_>,
        _object: ObjectId,
        _cookie: u64,
        _visit: &mut dyn FnMut(&[u8], u64) -> bool,
    ) -> Result<bool> {
        Err(Status::NotSupported)
    }

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

//! The layout of requests: a header that all share, arguments that depend on the operation, and
//! names that end with a zero byte.

mod extension;

use crate::locks::Lock;
use client::{LockKind, LockOwner, LockRange};
use fuser::TimeOrNow;
use std::time::SystemTime;

pub(crate) use extension::Extension;
use extension::extension;

/// `struct fuse_in_header` and `struct fuse_write_in`: what precedes the data of a write.
pub(crate) const WRITE_HEAD_BYTES: usize = 80;
/// `struct fuse_forget_one`.
const FORGET_BYTES: usize = 16;

/// FUSE_GETATTR_FH: the request has a handle.
const GETATTR_HANDLE: u32 = 1;
/// FUSE_WRITE_CACHE: write-back of pages that a mapping has dirtied.
const WRITE_FROM_MAPPING: u32 = 1;
/// FUSE_READ_LOCKOWNER and FUSE_WRITE_LOCKOWNER: the request has a lock owner. The kernel sets one
/// where the data bypass its pages.
const BYPASSES_PAGES: u32 = 1 << 1;

/// FUSE_LK_FLOCK: the lock is one of flock(2).
const LOCK_IS_FLOCK: u32 = 1;
/// FUSE_RELEASE_FLOCK_UNLOCK: the handle had locks of flock(2).
const RELEASE_UNLOCKS: u32 = 1 << 1;

/// The part of `enum fuse_opcode` that is served here.
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const READLINK: u32 = 5;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const GETLK: u32 = 31;
    pub(super) const SETLK: u32 = 32;
    pub(super) const SETLKW: u32 = 33;
    pub(super) const CREATE: u32 = 35;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const IOCTL: u32 = 39;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const READDIRPLUS: u32 = 44;
    pub(super) const RENAME2: u32 = 45;
}

/// The bits of `valid` in `struct fuse_setattr_in`.
mod valid {
    pub(super) const MODE: u32 = 1;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const MTIME: u32 = 1 << 5;
    pub(super) const HANDLE: u32 = 1 << 6;
    pub(super) const ATIME_NOW: u32 = 1 << 7;
    pub(super) const MTIME_NOW: u32 = 1 << 8;
}

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The length of the whole request in bytes.
    pub len: u32,
    pub opcode: u32,
    /// The number of the request, which its reply repeats.
    pub unique: u64,
    /// The kernel's number of the object.
    pub ino: u64,
    pub uid: u32,
    pub gid: u32,
    /// The thread that makes the request; 0 if it is in another pid namespace.
    pub pid: u32,
}

/// The operation of a request, except for a write, whose data are handled separately. Names point
/// into the memory of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    /// Has no reply.
    Forget {
        lookups: u64,
    },
    /// Like `Forget`, for many objects. Has no reply.
    BatchForget(Forgotten<'a>),
    GetAttr {
        handle: Option<u64>,
    },
    SetAttr(SetAttr),
    ReadLink,
    SymLink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MkNod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
    },
    MkDir {
        name: &'a [u8],
        mode: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    RmDir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    /// The object of the header is the directory.
    Link {
        ino: u64,
        name: &'a [u8],
    },
    Open {
        flags: i32,
    },
    Create {
        name: &'a [u8],
        mode: u32,
        flags: i32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
        /// The data bypass the kernel's pages.
        bypasses_pages: bool,
        /// The current flags of the handle.
        flags: i32,
    },
    StatFs,
    /// A descriptor was closed.
    Flush {
        handle: u64,
        /// The process that has closed it, as the owner of locks.
        owner: LockOwner,
    },
    FSync {
        handle: u64,
    },
    Release {
        handle: u64,
        /// The owner of locks of flock(2), if there were any.
        owner: Option<LockOwner>,
    },
    OpenDir,
    ReadDir {
        handle: u64,
        offset: u64,
        size: u32,
    },
    ReadDirPlus {
        handle: u64,
        offset: u64,
        size: u32,
    },
    ReleaseDir {
        handle: u64,
    },
    FSyncDir,
    GetLk {
        handle: u64,
        lock: Lock,
    },
    SetLk {
        handle: u64,
        lock: Lock,
        /// The program waits for a lock that is in the way.
        waits: bool,
    },
    IoCtl,
    /// What only NFS version 4.2 can serve.
    Extension(Extension<'a>),
    /// The thread of the request with this number has a signal pending. Has no reply.
    Interrupt {
        unique: u64,
    },
    /// The file system is going away.
    Destroy,
    /// An operation that is not served here.
    Other,
    /// Some arguments are missing.
    Malformed,
}

/// `struct fuse_write_in`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Write {
    pub handle: u64,
    pub offset: u64,
    pub bytes: usize,
    /// Pages that a mapping has dirtied. The kernel may send them with any handle of the file.
    pub from_mapping: bool,
    /// The data bypass the kernel's pages, whatever the handle's flags are: the kernel locks no
    /// page for them.
    pub bypasses_pages: bool,
    /// The current flags of the handle, which fcntl(2) may have changed since open(2), and O_SYNC
    /// or O_DSYNC if this write alone has them. The kernel does not pass on RWF_APPEND and
    /// RWF_NOAPPEND. Without meaning for pages of a mapping.
    pub flags: i32,
}

/// `struct fuse_setattr_in`: only what is to change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SetAttr {
    pub handle: Option<u64>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
}

/// Objects, and how many lookups of each are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forgotten<'a>(&'a [u8]);

impl Forgotten<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.chunks_exact(FORGET_BYTES).filter_map(|one| {
            let mut fields = Fields(one);
            Some((fields.u64()?, fields.u64()?))
        })
    }
}

/// Parses a request; `None` if its length is not the one in its header.
pub(crate) fn parse(request: &[u8]) -> Option<(Head, Operation<'_>)> {
    let mut fields = Fields(request);
    let head = head(&mut fields)?;
    if head.len as usize != request.len() {
        return None;
    }
    let operation = operation(head.opcode, &mut fields);
    Some((head, operation.unwrap_or(Operation::Malformed)))
}

/// Parses the first bytes of a request of `len` bytes, if it is a write: everything but its data.
pub(crate) fn parse_write(beginning: &[u8; WRITE_HEAD_BYTES], len: usize) -> Option<(Head, Write)> {
    let mut fields = Fields(beginning);
    let head = head(&mut fields)?;
    if head.opcode != opcode::WRITE || head.len as usize != len {
        return None;
    }
    let (handle, offset, bytes) = handle_offset_len(&mut fields)?;
    let io_flags = fields.u32()?;
    let (from_mapping, bypasses_pages) = (io_flags & WRITE_FROM_MAPPING != 0, io_flags & BYPASSES_PAGES != 0);
    let flags = flags_after_lock_owner(&mut fields)?;
    let write = Write { handle, offset, bytes: bytes as usize, from_mapping, bypasses_pages, flags };
    (len - WRITE_HEAD_BYTES == write.bytes).then_some((head, write))
}

/// Skips the lock owner, which has no use here, and returns the handle's flags.
fn flags_after_lock_owner(fields: &mut Fields<'_>) -> Option<i32> {
    fields.skip(8)?;
    fields.i32()
}

fn head(fields: &mut Fields<'_>) -> Option<Head> {
    let (len, opcode, unique, ino) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
    let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
    // Skip the length of extensions, which were not negotiated.
    fields.skip(4)?;
    Some(Head { len, opcode, unique, ino, uid, gid, pid })
}

/// Parses an operation on an object or a name.
fn operation<'a>(opcode: u32, fields: &mut Fields<'a>) -> Option<Operation<'a>> {
    Some(match opcode {
        opcode::LOOKUP => Operation::Lookup { name: fields.name()? },
        opcode::FORGET => Operation::Forget { lookups: fields.u64()? },
        opcode::GETATTR => {
            let flags = fields.u32()?;
            fields.skip(4)?;
            let handle = fields.u64()?;
            Operation::GetAttr { handle: (flags & GETATTR_HANDLE != 0).then_some(handle) }
        }
        opcode::SETATTR => Operation::SetAttr(set_attr(fields)?),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => Operation::SymLink { name: fields.name()?, target: fields.name()? },
        opcode::MKNOD => {
            let (mode, rdev) = (fields.u32()?, fields.u32()?);
            fields.skip(8)?;
            Operation::MkNod { name: fields.name()?, mode, rdev }
        }
        opcode::MKDIR => {
            let mode = fields.u32()?;
            fields.skip(4)?;
            Operation::MkDir { name: fields.name()?, mode }
        }
        opcode::UNLINK => Operation::Unlink { name: fields.name()? },
        opcode::RMDIR => Operation::RmDir { name: fields.name()? },
        opcode::RENAME => {
            let new_parent = fields.u64()?;
            Operation::Rename { name: fields.name()?, new_parent, new_name: fields.name()?, flags: 0 }
        }
        opcode::RENAME2 => {
            let (new_parent, flags) = (fields.u64()?, fields.u32()?);
            fields.skip(4)?;
            Operation::Rename { name: fields.name()?, new_parent, new_name: fields.name()?, flags }
        }
        opcode::LINK => Operation::Link { ino: fields.u64()?, name: fields.name()? },
        opcode::OPEN => Operation::Open { flags: fields.i32()? },
        opcode::STATFS => Operation::StatFs,
        opcode::INTERRUPT => Operation::Interrupt { unique: fields.u64()? },
        opcode::OPENDIR => Operation::OpenDir,
        opcode::CREATE => {
            let (flags, mode) = (fields.i32()?, fields.u32()?);
            fields.skip(8)?;
            Operation::Create { name: fields.name()?, mode, flags }
        }
        opcode::DESTROY => Operation::Destroy,
        opcode::BATCH_FORGET => {
            let count = fields.u32()? as usize;
            fields.skip(4)?;
            Operation::BatchForget(Forgotten(fields.bytes(count.checked_mul(FORGET_BYTES)?)?))
        }
        opcode => return operation_on_handle(opcode, fields),
    })
}

/// Parses an operation on a handle.
fn operation_on_handle<'a>(opcode: u32, fields: &mut Fields<'a>) -> Option<Operation<'a>> {
    Some(match opcode {
        opcode::READ => {
            let (handle, offset, size) = handle_offset_len(fields)?;
            let bypasses_pages = fields.u32()? & BYPASSES_PAGES != 0;
            Operation::Read { handle, offset, size, bypasses_pages, flags: flags_after_lock_owner(fields)? }
        }
        // `parse_write` handles this one.
        opcode::WRITE => return None,
        opcode::RELEASE => {
            let handle = fields.u64()?;
            // Skip the flags of the handle.
            fields.skip(4)?;
            let (flags, number) = (fields.u32()?, fields.u64()?);
            let owner = LockOwner { number, of_flock: true };
            Operation::Release { handle, owner: (flags & RELEASE_UNLOCKS != 0).then_some(owner) }
        }
        opcode::FSYNC => Operation::FSync { handle: fields.u64()? },
        opcode::FLUSH => {
            let handle = fields.u64()?;
            fields.skip(8)?;
            Operation::Flush { handle, owner: LockOwner { number: fields.u64()?, of_flock: false } }
        }
        opcode::READDIR => {
            let (handle, offset, size) = handle_offset_len(fields)?;
            Operation::ReadDir { handle, offset, size }
        }
        opcode::RELEASEDIR => Operation::ReleaseDir { handle: fields.u64()? },
        opcode::FSYNCDIR => Operation::FSyncDir,
        opcode::GETLK => Operation::GetLk { handle: fields.u64()?, lock: lock(fields)? },
        opcode::SETLK | opcode::SETLKW => {
            let waits = opcode == opcode::SETLKW;
            Operation::SetLk { handle: fields.u64()?, lock: lock(fields)?, waits }
        }
        opcode::IOCTL => Operation::IoCtl,
        opcode::READDIRPLUS => {
            let (handle, offset, size) = handle_offset_len(fields)?;
            Operation::ReadDirPlus { handle, offset, size }
        }
        opcode => return extension(opcode, fields),
    })
}

/// Handle, offset and size: the first fields of `struct fuse_read_in` and `struct fuse_write_in`.
fn handle_offset_len(fields: &mut Fields<'_>) -> Option<(u64, u64, u32)> {
    Some((fields.u64()?, fields.u64()?, fields.u32()?))
}

/// `struct fuse_lk_in` after its handle.
fn lock(fields: &mut Fields<'_>) -> Option<Lock> {
    let number = fields.u64()?;
    let (first, last) = (fields.u64()?, fields.u64()?);
    let kind = match fields.i32()? {
        libc::F_RDLCK => Some(LockKind::Shared),
        libc::F_WRLCK => Some(LockKind::Exclusive),
        libc::F_UNLCK => None,
        _ => return None,
    };
    // Skip the process.
    fields.skip(4)?;
    let of_flock = fields.u32()? & LOCK_IS_FLOCK != 0;
    // The kernel's largest offset stands for the end of the file, wherever that is.
    let last = if last >= i64::MAX.cast_unsigned() { LockRange::END } else { last };
    Some(Lock { owner: LockOwner { number, of_flock }, range: LockRange { first, last }, kind })
}

fn set_attr(fields: &mut Fields<'_>) -> Option<SetAttr> {
    let valid = fields.u32()?;
    fields.skip(4)?;
    let (handle, size) = (fields.u64()?, fields.u64()?);
    // Skip the lock owner.
    fields.skip(8)?;
    let (atime, mtime) = (fields.u64()?, fields.u64()?);
    // Skip the time of the last change, which the server sets.
    fields.skip(8)?;
    let (atime, mtime) = (time(atime, fields.u32()?), time(mtime, fields.u32()?));
    fields.skip(4)?;
    let mode = fields.u32()?;
    fields.skip(4)?;
    let (uid, gid) = (fields.u32()?, fields.u32()?);
    let given = |bit: u32| valid & bit != 0;
    let asked = |bit, now, time| {
        given(bit).then(|| if given(now) { TimeOrNow::Now } else { TimeOrNow::SpecificTime(time) })
    };
    Some(SetAttr {
        handle: given(valid::HANDLE).then_some(handle),
        mode: given(valid::MODE).then_some(mode),
        uid: given(valid::UID).then_some(uid),
        gid: given(valid::GID).then_some(gid),
        size: given(valid::SIZE).then_some(size),
        atime: asked(valid::ATIME, valid::ATIME_NOW, atime),
        mtime: asked(valid::MTIME, valid::MTIME_NOW, mtime),
    })
}

/// Negative seconds count backwards from 1970.
fn time(seconds: u64, nanoseconds: u32) -> SystemTime {
    crate::attributes::time(fs::Time { seconds: seconds.cast_signed(), nanoseconds })
}

/// The part of a request that was not parsed yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (now, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*now)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.bytes(bytes).map(|_| ())
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (now, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(now)
    }

    /// A name, without the zero byte that ends it.
    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = self.bytes(end)?;
        self.skip(1)?;
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    /// A request as the kernel makes it.
    fn request(opcode: u32, args: &[&[u8]]) -> Vec<u8> {
        let args = args.concat();
        let mut bytes = Vec::new();
        bytes.extend(((40 + args.len()) as u32).to_ne_bytes());
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(77_u64.to_ne_bytes());
        bytes.extend(5_u64.to_ne_bytes());
        for number in [1000_u32, 100, 4711, 0] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(args);
        bytes
    }

    fn operation_of(bytes: &[u8]) -> Operation<'_> {
        parse(bytes).unwrap().1
    }

    #[test]
    fn a_head_says_whose_request_it_is() {
        let bytes = request(opcode::STATFS, &[]);
        let head = Head { len: 40, opcode: 17, unique: 77, ino: 5, uid: 1000, gid: 100, pid: 4711 };
        assert_eq!(parse(&bytes), Some((head, Operation::StatFs)));
    }

    #[test]
    fn names_end_with_a_zero_and_may_be_two() {
        assert_eq!(
            operation_of(&request(opcode::LOOKUP, &[b"a name\0"])),
            Operation::Lookup { name: b"a name" }
        );
        let bytes = request(opcode::SYMLINK, &[b"link\0", b"../target\0"]);
        assert_eq!(operation_of(&bytes), Operation::SymLink { name: b"link", target: b"../target" });
        let bytes =
            request(opcode::RENAME2, &[&9_u64.to_ne_bytes(), &1_u32.to_ne_bytes(), &[0; 4], b"a\0b\0"]);
        let rename = Operation::Rename { name: b"a", new_parent: 9, new_name: b"b", flags: 1 };
        assert_eq!(operation_of(&bytes), rename);
        assert_eq!(operation_of(&request(opcode::LOOKUP, &[b"no end"])), Operation::Malformed);
    }

    #[test]
    fn a_write_has_its_data_behind_its_arguments() {
        let numbers = [3_u64.to_ne_bytes(), 4096_u64.to_ne_bytes()].concat();
        let sizes = [5_u32.to_ne_bytes(), 3_u32.to_ne_bytes()].concat();
        let flags = [&[0; 8][..], &libc::O_APPEND.to_ne_bytes(), &[0; 4]].concat();
        let bytes = request(opcode::WRITE, &[&numbers, &sizes, &flags, b"hello"]);
        let beginning = bytes.first_chunk().unwrap();
        let flags_told = libc::O_APPEND;
        let write = Write {
            handle: 3,
            offset: 4096,
            bytes: 5,
            from_mapping: true,
            bypasses_pages: true,
            flags: flags_told,
        };
        assert_eq!(parse_write(beginning, bytes.len()).unwrap().1, write);
        assert_eq!(parse_write(beginning, bytes.len() - 1), None);
        let read = request(opcode::READ, &[&numbers, &sizes, &flags, b"hello"]);
        assert_eq!(parse_write(read.first_chunk().unwrap(), read.len()), None);
        let expected =
            Operation::Read { handle: 3, offset: 4096, size: 5, bypasses_pages: true, flags: flags_told };
        assert_eq!(operation_of(&read), expected);
    }

    #[test]
    fn only_what_is_valid_is_to_change() {
        let mut args = vec![0_u8; 88];
        let valid = valid::SIZE | valid::ATIME | valid::ATIME_NOW | valid::MTIME;
        args[..4].copy_from_slice(&valid.to_ne_bytes());
        args[16..24].copy_from_slice(&12_u64.to_ne_bytes());
        args[40..48].copy_from_slice(&(-1_i64).to_ne_bytes());
        args[60..64].copy_from_slice(&500_000_000_u32.to_ne_bytes());
        let expected = SetAttr {
            size: Some(12),
            atime: Some(TimeOrNow::Now),
            mtime: Some(TimeOrNow::SpecificTime(UNIX_EPOCH - Duration::from_millis(500))),
            ..SetAttr::default()
        };
        assert_eq!(operation_of(&request(opcode::SETATTR, &[&args])), Operation::SetAttr(expected));
    }

    #[test]
    fn many_are_forgotten_at_once() {
        let ones: Vec<u8> = [7_u64, 1, 8, 2].iter().flat_map(|number| number.to_ne_bytes()).collect();
        let bytes = request(opcode::BATCH_FORGET, &[&2_u32.to_ne_bytes(), &[0; 4], &ones]);
        let Operation::BatchForget(all) = operation_of(&bytes) else { panic!("{bytes:?}") };
        assert_eq!(all.iter().collect::<Vec<_>>(), [(7, 1), (8, 2)]);
        let torn = request(opcode::BATCH_FORGET, &[&3_u32.to_ne_bytes(), &[0; 4], &ones]);
        assert_eq!(operation_of(&torn), Operation::Malformed);
    }

    #[test]
    fn what_lacks_arguments_is_known_as_such() {
        // Each operation with fixed arguments, and the length of its shortest request.
        let fixed = [
            (opcode::FORGET, 8),
            (opcode::GETATTR, 16),
            (opcode::SETATTR, 84),
            (opcode::MKNOD, 17),
            (opcode::MKDIR, 9),
            (opcode::RENAME, 10),
            (opcode::LINK, 9),
            (opcode::OPEN, 4),
            (opcode::READ, 36),
            (opcode::RELEASE, 24),
            (opcode::FSYNC, 8),
            (opcode::FLUSH, 24),
            (opcode::READDIR, 20),
            (opcode::RELEASEDIR, 8),
            (opcode::GETLK, 44),
            (opcode::SETLK, 44),
            (opcode::INTERRUPT, 8),
            (opcode::CREATE, 17),
            (opcode::BATCH_FORGET, 8),
            (opcode::READDIRPLUS, 20),
            (opcode::RENAME2, 18),
        ];
        for (opcode, len) in fixed {
            let (whole, less) = (vec![0; len], vec![0; len - 1]);
            assert_ne!(operation_of(&request(opcode, &[&whole])), Operation::Malformed, "{opcode}");
            assert_eq!(operation_of(&request(opcode, &[&less])), Operation::Malformed, "{opcode}");
        }
    }

    #[test]
    fn what_is_not_served_is_known_as_such() {
        // FUSE_BMAP, FUSE_POLL, and a number that no operation has yet.
        for opcode in [37, 40, 4000] {
            assert_eq!(operation_of(&request(opcode, &[&[0; 24]])), Operation::Other);
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_parsed_or_refused(opcode in 0..60_u32, args: Vec<u8>, cut: prop::sample::Index) {
            let bytes = request(opcode, &[&args]);
            let _ = parse(&bytes);
            prop_assert_eq!(parse(&bytes[..cut.index(bytes.len())]), None);
        }
    }
}

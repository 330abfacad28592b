//! The layout of replies. A [`Reply`] replies once. If it is dropped before, it replies EIO, so
//! that no request stays without a reply.

use super::Device;
use crate::attributes::since_1970;
use crate::pipes::Pipes;
use client::{Conflict, LockKind, LockRange, Pipe};
use fuser::{Errno, FileAttr, FileType, FopenFlags};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// `struct fuse_statfs_out`. Sizes are in fragments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatFs {
    pub blocks: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub free_files: u64,
    /// The best size of a transfer.
    pub preferred_bytes: u32,
    pub fragment_bytes: u32,
}

/// The length of the longest name, for statfs(2).
const NAME_BYTES_MAX: u32 = 255;
/// Names in a directory begin at multiples of this.
const NAME_ALIGNMENT: usize = 8;
/// `struct fuse_entry_out`.
const ENTRY_BYTES: usize = 128;
/// A reply without data. The longest is the reply to FUSE_CREATE, with 144 bytes.
type Body = SmallVec<[u8; 160]>;

/// The right to reply to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    device: Arc<Device>,
    unique: u64,
    sent: bool,
}

impl Reply {
    pub(crate) fn new(device: &Arc<Device>, unique: u64) -> Self {
        Self { device: Arc::clone(device), unique, sent: false }
    }

    fn send(mut self, error: Option<Errno>, body: &[u8]) {
        self.sent = true;
        self.device.send(self.unique, error.map_or(0, |error| -error.code()), body);
    }

    pub(crate) fn error(self, error: Errno) {
        self.send(Some(error), &[]);
    }

    pub(crate) fn ok(self) {
        self.send(None, &[]);
    }

    /// The request is of a kind that has no reply.
    pub(crate) fn none(mut self) {
        self.sent = true;
    }

    /// Data of a file, or the target of a symbolic link.
    pub(crate) fn data(self, data: &[u8]) {
        self.send(None, data);
    }

    /// Data of a file that are in a pipe.
    pub(crate) fn piped(mut self, data: Pipe, pipes: &Pipes) {
        self.sent = true;
        self.device.send_piped(self.unique, data, pipes);
    }

    pub(crate) fn entry(self, entry: &Entry) {
        self.send(None, &entry.body());
    }

    /// There is no such name, which the kernel may cache for `ttl`: a `struct fuse_entry_out` with
    /// inode 0.
    pub(crate) fn no_entry(self, ttl: Duration) {
        let mut body = Body::new();
        for number in [0, 0, ttl.as_secs(), 0] {
            body.extend_from_slice(&number.to_ne_bytes());
        }
        body.extend_from_slice(&ttl.subsec_nanos().to_ne_bytes());
        body.resize(ENTRY_BYTES, 0);
        self.send(None, &body);
    }

    /// `struct fuse_attr_out`.
    pub(crate) fn attributes(self, attributes: &FileAttr, ttl: Duration) {
        let mut body = Body::new();
        body.extend_from_slice(&ttl.as_secs().to_ne_bytes());
        body.extend_from_slice(&ttl.subsec_nanos().to_ne_bytes());
        body.extend_from_slice(&[0; 4]);
        push_attributes(&mut body, attributes);
        self.send(None, &body);
    }

    /// `struct fuse_lk_out`: a lock that is in the way, or none. Its owner may be on another host.
    pub(crate) fn lock(self, found: Option<Conflict>) {
        let range = found.map_or(LockRange { first: 0, last: 0 }, |found| found.range);
        let kind = match found.map(|found| found.kind) {
            None => libc::F_UNLCK,
            Some(LockKind::Shared) => libc::F_RDLCK,
            Some(LockKind::Exclusive) => libc::F_WRLCK,
        };
        let mut body = Body::new();
        body.extend_from_slice(&range.first.to_ne_bytes());
        body.extend_from_slice(&range.last.min(i64::MAX.cast_unsigned()).to_ne_bytes());
        body.extend_from_slice(&kind.to_ne_bytes());
        body.extend_from_slice(&[0; 4]);
        self.send(None, &body);
    }

    /// `struct fuse_open_out`.
    pub(crate) fn opened(self, handle: u64, flags: FopenFlags) {
        self.send(None, &opened(handle, flags));
    }

    /// `struct fuse_entry_out`, then `struct fuse_open_out`.
    pub(crate) fn created(self, entry: &Entry, handle: u64) {
        let mut body = entry.body();
        body.extend_from_slice(&opened(handle, FopenFlags::empty()));
        self.send(None, &body);
    }

    /// `struct fuse_write_out`.
    pub(crate) fn written(self, bytes: u32) {
        let mut body = [0; 8];
        if let Some(place) = body.first_chunk_mut() {
            *place = bytes.to_ne_bytes();
        }
        self.send(None, &body);
    }

    /// `struct fuse_getxattr_out`: a length without its content.
    pub(crate) fn length(self, bytes: u32) {
        self.written(bytes);
    }

    /// `struct fuse_lseek_out`, or `struct fuse_copy_file_range_out`.
    pub(crate) fn number(self, number: u64) {
        self.send(None, &number.to_ne_bytes());
    }

    /// `struct fuse_statfs_out`.
    pub(crate) fn statfs(self, statfs: &StatFs) {
        let mut body = Body::new();
        for count in [statfs.blocks, statfs.free, statfs.available, statfs.files, statfs.free_files] {
            body.extend_from_slice(&count.to_ne_bytes());
        }
        for count in [statfs.preferred_bytes, NAME_BYTES_MAX, statfs.fragment_bytes] {
            body.extend_from_slice(&count.to_ne_bytes());
        }
        // Padding and spare fields.
        body.extend_from_slice(&[0; 28]);
        self.send(None, &body);
    }

    /// A part of a directory.
    pub(crate) fn names(self, names: &DirentBuffer) {
        self.send(None, &names.bytes);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.sent {
            tracing::warn!(unique = self.unique, "a request ended without a reply, and is answered EIO");
            self.device.send(self.unique, -Errno::EIO.code(), &[]);
        }
    }
}

/// `struct fuse_entry_out`: an object with a name, and how long the kernel may cache name and
/// attributes.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The number by which the kernel is to know the object, or 0 if the kernel is not to remember
    /// a name in a listing. The number that stat(2) shows is in the attributes.
    pub ino: u64,
    pub attributes: FileAttr,
    pub name_ttl: Duration,
    pub attributes_ttl: Duration,
}

impl Entry {
    fn body(&self) -> Body {
        let Self { ino, attributes, name_ttl, attributes_ttl } = self;
        let mut body = Body::new();
        // While the kernel knows an object no other object has its number, so the generation is
        // always 0.
        for number in [*ino, 0, name_ttl.as_secs(), attributes_ttl.as_secs()] {
            body.extend_from_slice(&number.to_ne_bytes());
        }
        body.extend_from_slice(&name_ttl.subsec_nanos().to_ne_bytes());
        body.extend_from_slice(&attributes_ttl.subsec_nanos().to_ne_bytes());
        push_attributes(&mut body, attributes);
        body
    }
}

/// A part of a directory: as many names as there is room for.
#[derive(Debug)]
pub(crate) struct DirentBuffer {
    bytes: Vec<u8>,
    capacity: usize,
}

impl DirentBuffer {
    /// For a reply of at most `capacity` bytes.
    pub(crate) fn new(capacity: u32) -> Self {
        Self { bytes: Vec::with_capacity(capacity as usize), capacity: capacity as usize }
    }

    /// Adds a name; the listing continues behind it at `cookie`. Returns false if there is no room.
    /// The kind may be unknown: a program that needs it asks.
    #[must_use]
    pub(crate) fn add(&mut self, ino: u64, cookie: u64, kind: Option<FileType>, name: &[u8]) -> bool {
        self.push(None, ino, cookie, kind, name)
    }

    /// Adds a name with attributes, which counts as a lookup.
    #[must_use]
    pub(crate) fn add_plus(&mut self, entry: &Entry, cookie: u64, name: &[u8]) -> bool {
        let FileAttr { ino, kind, .. } = entry.attributes;
        self.push(Some(&entry.body()), ino.0, cookie, Some(kind), name)
    }

    /// `struct fuse_dirent`, preceded by `struct fuse_entry_out` in a `struct fuse_direntplus`.
    fn push(
        &mut self,
        entry: Option<&Body>,
        ino: u64,
        cookie: u64,
        kind: Option<FileType>,
        name: &[u8],
    ) -> bool {
        const UNKNOWN: u32 = libc::DT_UNKNOWN as u32;
        let start = self.bytes.len();
        let entry = entry.map_or(&[][..], |entry| entry.as_slice());
        let len = (entry.len() + 24 + name.len()).next_multiple_of(NAME_ALIGNMENT);
        if start + len > self.capacity {
            return false;
        }
        self.bytes.extend_from_slice(entry);
        self.bytes.extend_from_slice(&ino.to_ne_bytes());
        self.bytes.extend_from_slice(&cookie.to_ne_bytes());
        self.bytes.extend_from_slice(&u32::try_from(name.len()).unwrap_or(u32::MAX).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.map_or(UNKNOWN, |kind| type_bits(kind) >> 12).to_ne_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(start + len, 0);
        true
    }
}

fn opened(handle: u64, flags: FopenFlags) -> Body {
    let mut body = Body::new();
    body.extend_from_slice(&handle.to_ne_bytes());
    body.extend_from_slice(&flags.bits().to_ne_bytes());
    body.extend_from_slice(&[0; 4]);
    body
}

/// `struct fuse_attr`.
fn push_attributes(body: &mut Body, attributes: &FileAttr) {
    let times = [attributes.atime, attributes.mtime, attributes.ctime].map(since_1970);
    for number in [attributes.ino.0, attributes.size, attributes.blocks] {
        body.extend_from_slice(&number.to_ne_bytes());
    }
    for time in times {
        body.extend_from_slice(&time.seconds.to_ne_bytes());
    }
    for time in times {
        body.extend_from_slice(&time.nanoseconds.to_ne_bytes());
    }
    let mode = type_bits(attributes.kind) | u32::from(attributes.perm);
    let FileAttr { nlink, uid, gid, rdev, blksize, .. } = *attributes;
    for number in [mode, nlink, uid, gid, rdev, blksize, 0] {
        body.extend_from_slice(&number.to_ne_bytes());
    }
}

const fn type_bits(kind: FileType) -> u32 {
    match kind {
        FileType::NamedPipe => libc::S_IFIFO,
        FileType::CharDevice => libc::S_IFCHR,
        FileType::BlockDevice => libc::S_IFBLK,
        FileType::Directory => libc::S_IFDIR,
        FileType::RegularFile => libc::S_IFREG,
        FileType::Symlink => libc::S_IFLNK,
        FileType::Socket => libc::S_IFSOCK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuser::INodeNo;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::time::UNIX_EPOCH;

    fn attributes() -> FileAttr {
        FileAttr {
            ino: INodeNo(9),
            size: 5,
            blocks: 1,
            atime: UNIX_EPOCH + Duration::new(1, 2),
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::RegularFile,
            perm: 0o640,
            nlink: 1,
            uid: 2,
            gid: 3,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    const TTL: Duration = Duration::new(4, 40);

    fn entry() -> Entry {
        Entry { ino: 8, attributes: attributes(), name_ttl: Duration::new(3, 30), attributes_ttl: TTL }
    }

    /// Error and body of the reply to request 77, as the kernel receives them.
    fn sent_by(send: impl FnOnce(Reply)) -> (i32, Vec<u8>) {
        let (mut kernel, ours) = std::io::pipe().unwrap();
        let device = Arc::new(Device::of(OwnedFd::from(ours)));
        send(Reply::new(&device, 77));
        drop(device);
        let mut bytes = Vec::new();
        kernel.read_to_end(&mut bytes).unwrap();
        let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(number(0) as usize, bytes.len());
        assert_eq!(bytes[8..16], 77_u64.to_ne_bytes());
        (number(4).cast_signed(), bytes[16..].to_vec())
    }

    #[test]
    fn replies_are_as_long_as_the_kernel_has_them() {
        let lengths = [
            (sent_by(|reply| reply.entry(&entry())), 128),
            (sent_by(|reply| reply.no_entry(TTL)), 128),
            (sent_by(|reply| reply.attributes(&attributes(), TTL)), 104),
            (sent_by(|reply| reply.opened(7, FopenFlags::FOPEN_KEEP_CACHE)), 16),
            (sent_by(|reply| reply.created(&entry(), 7)), 144),
            (sent_by(|reply| reply.written(4096)), 8),
            (sent_by(|reply| reply.length(4096)), 8),
            (sent_by(|reply| reply.number(4096)), 8),
            (sent_by(Reply::ok), 0),
        ];
        for ((error, body), len) in lengths {
            assert_eq!((error, body.len()), (0, len));
        }
        let statfs = StatFs {
            blocks: 1,
            free: 2,
            available: 3,
            files: 4,
            free_files: 5,
            preferred_bytes: 6,
            fragment_bytes: 7,
        };
        let (_, body) = sent_by(|reply| reply.statfs(&statfs));
        assert_eq!((body.len(), &body[40..44]), (80, &6_u32.to_ne_bytes()[..]));
    }

    #[test]
    fn attributes_lie_where_the_kernel_looks() {
        let (_, body) = sent_by(|reply| reply.attributes(&attributes(), TTL));
        assert_eq!((&body[0..8], &body[8..12]), (&4_u64.to_ne_bytes()[..], &40_u32.to_ne_bytes()[..]));
        // Inode and size, then the access time, then the mode.
        assert_eq!(body[16..32], [9_u64.to_ne_bytes(), 5_u64.to_ne_bytes()].concat());
        assert_eq!((&body[40..48], &body[64..68]), (&1_u64.to_ne_bytes()[..], &2_u32.to_ne_bytes()[..]));
        assert_eq!(body[76..80], (libc::S_IFREG | 0o640).to_ne_bytes());
    }

    #[test]
    fn an_entry_is_known_by_one_number_and_shows_another() {
        let (_, body) = sent_by(|reply| reply.entry(&entry()));
        assert_eq!((&body[..8], &body[40..48]), (&8_u64.to_ne_bytes()[..], &9_u64.to_ne_bytes()[..]));
    }

    #[test]
    fn that_there_is_no_name_holds_for_a_time() {
        let (_, some) = sent_by(|reply| reply.entry(&Entry { name_ttl: TTL, ..entry() }));
        let (_, none) = sent_by(|reply| reply.no_entry(TTL));
        assert_eq!(none[..8], [0; 8]);
        assert_eq!((&none[16..24], &none[32..36]), (&some[16..24], &some[32..36]));
        assert_eq!(none[16..24], 4_u64.to_ne_bytes());
    }

    #[test]
    fn an_error_has_no_body_and_a_lost_reply_is_one() {
        assert_eq!(sent_by(|reply| reply.error(Errno::ENOENT)), (-libc::ENOENT, Vec::new()));
        assert_eq!(sent_by(drop), (-libc::EIO, Vec::new()));
    }

    #[test]
    fn names_are_added_while_there_is_room() {
        let mut names = DirentBuffer::new(64);
        assert!(names.add(1, 10, Some(FileType::RegularFile), b"."));
        assert!(names.add(2, 11, None, b"12345678"));
        assert!(!names.add(3, 12, None, b"x"));
        assert_eq!(names.bytes.len(), 64);
        // The length of a name, and its type as in readdir(3): regular, and unknown.
        assert_eq!(names.bytes[16..24], [1_u32.to_ne_bytes(), 8_u32.to_ne_bytes()].concat());
        assert_eq!(names.bytes[32 + 16..32 + 24], [8_u32.to_ne_bytes(), 0_u32.to_ne_bytes()].concat());
        let mut plus = DirentBuffer::new(160);
        assert!(plus.add_plus(&entry(), 10, b"a name"));
        assert_eq!(plus.bytes.len(), 160);
    }
}

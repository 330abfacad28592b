//! A FUSE file system that does nothing, set up as the mount is: it shows what FUSE itself costs on
//! this machine.
//!
//! ```text
//! null DIRECTORY MIB [write-back]
//! ```
//!
//! With `write-back` the kernel delays writes, which the mount does not allow
//! (docs/decisions/0007-fuse.md). There are ten files, `load.0` to `load.9`, of MIB MiB each. Reads
//! return memory that is always the same, and writes are discarded. The program ends when the
//! directory is unmounted. `docs/results/fuse-speed.py` measures it beside the mount.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};

const REQUEST_BYTES_MAX: u32 = 1 << 20;
const BACKGROUND_MAX: u16 = 64;
/// The inode number of `load.0`; those of the other files follow.
const FIRST_FILE: u64 = 2;
const LASTING: Duration = Duration::from_secs(3600);

static NOTHING: [u8; REQUEST_BYTES_MAX as usize] = [0; REQUEST_BYTES_MAX as usize];

struct Null {
    bytes: u64,
    writes_back: bool,
}

impl Null {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let is_file = ino.0 >= FIRST_FILE;
        let (kind, size) =
            if is_file { (FileType::RegularFile, self.bytes) } else { (FileType::Directory, 0) };
        FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o777,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: REQUEST_BYTES_MAX,
            flags: 0,
        }
    }
}

impl Filesystem for Null {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let mut wished =
            InitFlags::FUSE_AUTO_INVAL_DATA | InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_PARALLEL_DIROPS;
        if self.writes_back {
            wished |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        // Flags that this kernel lacks are missing for the mount too.
        let _ = config.add_capabilities(wished & config.capabilities());
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.as_encoded_bytes().strip_prefix(b"load.") {
            Some(&[digit @ b'0'..=b'9']) => {
                let ino = INodeNo(FIRST_FILE + u64::from(digit - b'0'));
                reply.entry(&LASTING, &self.attributes(ino), Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&LASTING, &self.attributes(ino));
    }

    /// With `write-back` the kernel reports times of modification this way.
    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&LASTING, &self.attributes(ino));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        reply.data(NOTHING.get(..left.min(size as usize)).unwrap_or_default());
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (directory, mib, writes_back) = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [directory, mib] => (directory, mib, false),
        [directory, mib, "write-back"] => (directory, mib, true),
        _ => {
            eprintln!("usage: null DIRECTORY MIB [write-back]");
            return 2.into();
        }
    };
    let Ok(mib) = mib.parse::<u64>() else {
        eprintln!("error: {mib} is no number of MiB");
        return 2.into();
    };
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("null".into()), MountOption::CUSTOM("subtype=null".into())];
    config.n_threads = Some(std::thread::available_parallelism().map_or(2, usize::from).max(2));
    config.clone_fd = true;
    let served =
        Session::new(Null { bytes: mib << 20, writes_back }, directory, &config).and_then(Session::run);
    match served {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("error: {error}");
            1.into()
        }
    }
}

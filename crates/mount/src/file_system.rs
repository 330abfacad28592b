//! The requests of the kernel, each turned into a task and its outcome into a reply.
//!
//! Nothing here blocks: a thread that received a request goes on to the next while the server works on it.

use crate::caller::As;
use crate::core::{Core, Entry};
use crate::directory::OpenDirectory;
use crate::inode::Known;
use crate::names::Lookup;
use client::Attendant;
use client::options::DirectoryReads;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use nfs3::Sattr3;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

/// Bytes of one request: what NFS moves with one call, and what Linux allows by default (256 pages).
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// A reply of at most so many bytes is given by the thread that received them; a longer one would keep it from its
/// connections for too long.
const SHORT_READ_BYTES_MAX: u32 = 64 << 10;
/// Reads that nobody waits for yet, and direct ones of many threads, that the kernel has in flight at once.
const BACKGROUND_MAX: u16 = 64;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct FileSystem {
    pub core: Arc<Core>,
    pub said_no_locks: AtomicBool,
    /// With which the thread that receives requests drives the client's loop while it waits for the next. It is there
    /// before the first request; over RDMA there is none.
    pub attendant: Arc<OnceLock<Mutex<Attendant>>>,
}

/// Replies that can be an error.
trait Refuse {
    fn refuse(self, error: Errno);
}

macro_rules! refuse {
    ($($reply:ty),+) => {
        $(impl Refuse for $reply {
            fn refuse(self, error: Errno) {
                self.error(error);
            }
        })+
    };
}

refuse!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEmpty,
    ReplyEntry,
    ReplyOpen,
    ReplyStatfs,
    ReplyWrite
);

impl FileSystem {
    /// Runs `work` and replies with what it gives; a thread that is killed while it waits is let go. It goes on where its
    /// answers come in, and must not block there.
    fn answer<R, T, W>(&self, request: &Request, reply: R, work: W, give: impl FnOnce(R, T) + Send + 'static)
    where
        R: Refuse + Send + 'static,
        T: Send + 'static,
        W: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        self.core.executor.spawn_short(self.answering(request, reply, work, give));
        self.attend();
    }

    /// The same for work that may have to tell the kernel something: that can wait for other requests, so a worker does it.
    fn answer_aside<R, T, W>(
        &self,
        request: &Request,
        reply: R,
        work: W,
        give: impl FnOnce(R, T) + Send + 'static,
    ) where
        R: Refuse + Send + 'static,
        T: Send + 'static,
        W: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        self.core.executor.spawn(self.answering(request, reply, work, give));
        self.attend();
    }

    /// Drives the client's loop until the kernel has the next request. Each request ends with it: without it, the thread
    /// would wait for the next one and the loop for its stand-in. What is not here the crate refuses with ENOSYS, once for
    /// a mount, because the kernel asks for it no more.
    fn attend(&self) {
        if let Some(attendant) = self.attendant.get() {
            attendant.lock().unwrap_or_else(PoisonError::into_inner).attend();
        }
    }

    fn answering<R, T, W>(
        &self,
        request: &Request,
        reply: R,
        work: W,
        give: impl FnOnce(R, T) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        R: Refuse + Send + 'static,
        T: Send + 'static,
        W: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        let (core, thread) = (Arc::clone(&self.core), request.pid());
        async move {
            match core.interrupts.guard(thread, work).await {
                Some(Ok(outcome)) => give(reply, outcome),
                Some(Err(error)) => reply.refuse(error),
                None => reply.refuse(Errno::EINTR),
            }
        }
    }

    fn looking(&self, request: &Request) -> (Arc<Core>, As) {
        (Arc::clone(&self.core), self.core.callers.looking(request))
    }

    fn acting(&self, request: &Request) -> (Arc<Core>, As) {
        (Arc::clone(&self.core), self.core.callers.acting(request))
    }

    /// Without `nolock`, a lock that only this host knew of would be no lock.
    fn no_locks(&self) -> Errno {
        if !self.said_no_locks.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a program asked for a file lock: the lock protocol (NLM) is not built, so locks answer ENOLCK; \
                 mount with nolock to have locks that only this host knows of"
            );
        }
        Errno::ENOLCK
    }
}

fn owned(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

// The tasks hand it over boxed.
#[allow(clippy::boxed_local)]
fn give_entry(reply: ReplyEntry, entry: Box<Entry>) {
    reply.entry_with_ttls(&entry.attributes_ttl, &entry.name_ttl, &entry.attributes, entry.generation);
}

/// Tells the kernel that there is no such name, for a time.
fn give_nothing(reply: ReplyEntry, ttl: Duration, like: FileAttr) {
    let nothing = FileAttr { ino: INodeNo(0), ..like };
    reply.entry_with_ttls(&Duration::ZERO, &ttl, &nothing, Generation(0));
}

impl Filesystem for FileSystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let policy = &self.core.policy;
        let mut wished = InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_HANDLE_KILLPRIV;
        wished |= match policy.directory_reads {
            DirectoryReads::Auto => InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
            DirectoryReads::AlwaysPlus => InitFlags::FUSE_DO_READDIRPLUS,
            DirectoryReads::NeverPlus => InitFlags::empty(),
        };
        // With these flags locks are asked of us, without them the kernel keeps them on this host.
        if !policy.local_locks.posix {
            wished |= InitFlags::FUSE_POSIX_LOCKS;
        }
        if !policy.local_locks.flock {
            wished |= InitFlags::FUSE_FLOCK_LOCKS;
        }
        let offered = config.capabilities();
        if config.add_capabilities(wished & offered).is_err() || !offered.contains(wished) {
            tracing::info!(missing = ?(wished - offered), "this kernel's FUSE has less than was asked for");
        }
        let read = u32::try_from(self.core.sizes.0.max(self.core.sizes.1)).unwrap_or(REQUEST_BYTES_MAX);
        let bounds = [
            config.set_max_write(read.clamp(4096, REQUEST_BYTES_MAX)).err(),
            config.set_max_background(BACKGROUND_MAX).err().map(u32::from),
        ];
        tracing::debug!(?bounds, "FUSE is set up");
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ((core, caller), name) = (self.looking(request), owned(name));
        let work = async move {
            let parent = core.inode(parent.0)?;
            let like = core.dummy();
            Ok((core.lookup(caller, parent, name).await?, like))
        };
        self.answer(request, reply, work, |reply, (found, like)| match found {
            Lookup::Found(entry) => give_entry(reply, entry),
            Lookup::Nothing(ttl) => give_nothing(reply, ttl, like),
        });
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        self.core.inodes.forget(ino.0, lookups);
        // The kernel may have said this of many at once, which come one by one: none may wait for the next request.
        if let Some(attendant) = self.attendant.get() {
            attendant.lock().unwrap_or_else(PoisonError::into_inner).leave();
        }
    }

    /// There are none on NFS. Programs ask whether a file is a terminal, and the kernel passes each such question on.
    fn ioctl(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _input: &[u8],
        _output_bytes: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
        self.attend();
    }

    fn getattr(&self, request: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let (core, caller) = self.looking(request);
        let work = async move {
            let open = handle.and_then(|handle| core.files.find(handle.0).ok());
            let (caller, inode) = match open {
                Some(file) => (file.caller.clone(), Arc::clone(&file.inode)),
                None => (caller, core.inode(ino.0)?),
            };
            // The kernel keeps what it was told for as long as it was told; when it asks, it wants to know.
            let known = core.attributes(&caller, &inode).await?;
            Ok((core.to_fuse(ino.0, &known.attributes), known.ttl))
        };
        self.answer(request, reply, work, |reply, (attributes, ttl)| reply.attr(&ttl, &attributes));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (core, caller) = self.acting(request);
        let new = Sattr3 {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: crate::attributes::set_time(atime),
            mtime: crate::attributes::set_time(mtime),
        };
        let work = async move {
            let open = handle.filter(|_| size.is_some()).and_then(|handle| core.files.find(handle.0).ok());
            // Whoever opened a file for writing may cut it, whatever its mode is by now.
            let caller = open.map_or(caller, |file| file.caller.clone());
            let inode = core.inode(ino.0)?;
            let known = core.set_attributes(&caller, &inode, new).await?;
            Ok((core.to_fuse(ino.0, &known.attributes), known.ttl))
        };
        self.answer(request, reply, work, |reply, (attributes, ttl)| reply.attr(&ttl, &attributes));
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let (core, caller) = self.looking(request);
        let work = async move {
            let inode = core.inode(ino.0)?;
            core.call_readlink(&caller, inode.handle).await
        };
        self.answer(request, reply, work, |reply, target| reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let ((core, caller), name) = (self.acting(request), owned(name));
        let work = async move { core.mknod(caller, core.inode(parent.0)?, name, mode, rdev).await };
        self.answer(request, reply, work, give_entry);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let ((core, caller), name) = (self.acting(request), owned(name));
        let work = async move { core.mkdir(caller, core.inode(parent.0)?, name, mode).await };
        self.answer(request, reply, work, give_entry);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let ((core, caller), name) = (self.acting(request), owned(name));
        let work = async move { core.unlink(caller, core.inode(parent.0)?, name).await };
        self.answer(request, reply, work, |reply, ()| reply.ok());
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let ((core, caller), name) = (self.acting(request), owned(name));
        let work = async move { core.rmdir(caller, core.inode(parent.0)?, name).await };
        self.answer(request, reply, work, |reply, ()| reply.ok());
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let ((core, caller), name, target) = (self.acting(request), owned(name), owned(target.as_os_str()));
        let work = async move { core.symlink(caller, core.inode(parent.0)?, name, target).await };
        self.answer(request, reply, work, give_entry);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            // NFS version 3 cannot exchange names, nor leave one that is there alone.
            reply.error(Errno::EINVAL);
            return self.attend();
        }
        let ((core, caller), name, new_name) = (self.acting(request), owned(name), owned(new_name));
        let work = async move {
            let (from, to) = (core.inode(parent.0)?, core.inode(new_parent.0)?);
            core.rename(caller, (from, name), (to, new_name)).await
        };
        self.answer(request, reply, work, |reply, ()| reply.ok());
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let ((core, caller), name) = (self.acting(request), owned(new_name));
        let work = async move {
            let (inode, parent) = (core.inode(ino.0)?, core.inode(new_parent.0)?);
            core.link(caller, inode, parent, name).await
        };
        self.answer(request, reply, work, give_entry);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (core, caller) = self.acting(request);
        let work = async move { core.open(caller, core.inode(ino.0)?, flags.0).await };
        self.answer_aside(request, reply, work, |reply, (handle, flags)| {
            reply.opened(FileHandle(handle), flags);
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let ((core, caller), name) = (self.acting(request), owned(name));
        let work = async move { core.create(caller, core.inode(parent.0)?, name, mode, flags).await };
        self.answer_aside(request, reply, work, |reply, (entry, handle)| {
            // The kernel has one time for both here.
            let ttl = entry.attributes_ttl.min(entry.name_ttl);
            let handle = FileHandle(handle);
            reply.created(&ttl, &entry.attributes, entry.generation, handle, FopenFlags::empty());
        });
    }

    fn read(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let core = Arc::clone(&self.core);
        let work = async move {
            let file = core.files.find(handle.0)?;
            core.read(&file, offset, size as usize).await
        };
        let task = self.answering(request, reply, work, |reply, bytes| reply.data(bytes.as_slice()));
        if size <= SHORT_READ_BYTES_MAX {
            self.core.executor.spawn_short(task);
        } else {
            self.core.executor.spawn(task);
        }
        self.attend();
    }

    fn write(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = match self.core.files.find(handle.0) {
            Ok(file) => file,
            Err(error) => {
                reply.error(error);
                return self.attend();
            }
        };
        let of_mapping = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        if let Some(outcome) = self.core.write_at_once(&file, offset, data, of_mapping) {
            match outcome {
                Ok(count) => reply.written(count),
                Err(error) => reply.error(error),
            }
            return self.attend();
        }
        let (core, data) = (Arc::clone(&self.core), self.core.buffers.copy_of(data));
        let work = async move { core.write(&file, offset, data, of_mapping).await };
        self.answer(request, reply, work, |reply, count| reply.written(count));
    }

    fn flush(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let core = Arc::clone(&self.core);
        let work = async move { core.flush_and_tell(&*core.files.find(handle.0)?).await };
        self.answer(request, reply, work, |reply, ()| reply.ok());
    }

    fn fsync(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let core = Arc::clone(&self.core);
        let work = async move { core.sync_and_tell(&*core.files.find(handle.0)?).await };
        self.answer(request, reply, work, |reply, ()| reply.ok());
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let core = Arc::clone(&self.core);
        // Nobody waits for this, and it must be done.
        self.core.executor.spawn_short(async move {
            core.release(handle.0).await;
            reply.ok();
        });
        self.attend();
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let (core, caller) = self.acting(request);
        let work = async move {
            let inode = core.inode(ino.0)?;
            if core.policy.close_to_open {
                core.attributes(&caller, &inode).await?;
            }
            Ok(core.directories.insert(OpenDirectory::new(inode, caller)))
        };
        self.answer(request, reply, work, |reply, handle| {
            reply.opened(FileHandle(handle), FopenFlags::empty());
        });
    }

    fn readdir(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let (core, thread) = (Arc::clone(&self.core), request.pid());
        self.core.executor.spawn(async move {
            let work = async {
                let directory = core.directories.find(handle.0)?;
                core.list(&directory, offset, &mut reply).await
            };
            match core.interrupts.guard(thread, work).await {
                Some(Ok(())) => reply.ok(),
                Some(Err(error)) => reply.error(error),
                None => reply.error(Errno::EINTR),
            }
        });
        self.attend();
    }

    fn readdirplus(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let (core, thread) = (Arc::clone(&self.core), request.pid());
        self.core.executor.spawn(async move {
            let work = async {
                let directory = core.directories.find(handle.0)?;
                core.list_plus(&directory, offset, &mut reply).await
            };
            match core.interrupts.guard(thread, work).await {
                Some(Ok(())) => reply.ok(),
                Some(Err(error)) => reply.error(error),
                None => reply.error(Errno::EINTR),
            }
        });
        self.attend();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.core.directories.remove(handle.0);
        reply.ok();
        self.attend();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // Changes of names are stable when they are answered. RFC 1813 s4.9
        reply.ok();
        self.attend();
    }

    fn statfs(&self, request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (core, caller) = self.looking(request);
        let work = async move {
            let space = core.call_fsstat(&caller).await?;
            Ok((space, u32::try_from(core.sizes.0.min(core.sizes.1)).unwrap_or(REQUEST_BYTES_MAX)))
        };
        self.answer(request, reply, work, |reply, (space, preferred)| {
            const FRAGMENT: u32 = 4096;
            let blocks = |bytes: u64| bytes / u64::from(FRAGMENT);
            reply.statfs(
                blocks(space.total_bytes),
                blocks(space.free_bytes),
                blocks(space.available_bytes),
                space.total_files,
                space.free_files,
                preferred,
                255,
                FRAGMENT,
            );
        });
    }

    fn getlk(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        reply.error(self.no_locks());
        self.attend();
    }

    fn setlk(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        typ: i32,
        _pid: u32,
        _sleep: bool,
        reply: ReplyEmpty,
    ) {
        // What was never locked is unlocked already; the kernel asks for it at every close.
        if typ == libc::F_UNLCK {
            reply.ok();
        } else {
            reply.error(self.no_locks());
        }
        self.attend();
    }
}

impl Core {
    /// chmod(2), chown(2), truncate(2), utimes(2). What was written before comes before.
    pub(crate) async fn set_attributes(
        self: &Arc<Self>,
        caller: &As,
        inode: &Arc<crate::inode::Inode>,
        new: Sattr3,
    ) -> Result<Known, Errno> {
        self.flush(inode).await;
        let outcome = self.call_setattr(caller, inode.handle, new).await;
        match new.size {
            Some(size) if outcome.is_ok() => inode.resized(size),
            _ => inode.changed(),
        }
        let asked = inode.changes();
        match outcome? {
            Some(attributes) => Ok(inode.learn(attributes, Some(asked), &self.policy)),
            None => self.attributes(caller, inode).await,
        }
    }
}

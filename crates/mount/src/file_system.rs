//! The kernel's requests: each is turned into a task, and the task's outcome into a reply.
//!
//! The thread that receives a request does not wait for it. It handles the next request while the
//! server works on this one.

mod version_4_2;

use crate::caller::Credential;
use crate::core::Core;
use crate::directory::OpenDirectory;
use crate::files::IoFlags;
use crate::inode::Inode;
use crate::interrupts::EndsWith;
use crate::kernel::{
    Data, Device, DirentBuffer, Entry, Head, Operation, Received, Receiver, Reply, SetAttr, StatFs, Write,
    parse,
};
use crate::locks::{Lock, LockRequest};
use crate::names::Lookup;
use crate::reads::is_short;
use client::options::DirectoryReads;
use client::{ExternalDriver, LockOwner};
use fs::SetAttributes;
use fuser::{Errno, Filesystem, FopenFlags, InitFlags, KernelConfig};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The most requests that are received one after the other before their calls are sent together.
/// With more, the first of them would wait too long.
const RECEIVE_BATCH_MAX: usize = 16;
/// Receiving a write of this size takes long, so the calls are sent after it.
const LONG_WRITE_BYTES_MIN: usize = 64 << 10;
/// The most background requests that the kernel has in flight: mainly read-ahead and asynchronous
/// direct I/O.
const BACKGROUND_MAX: u16 = 64;

/// The negotiation with the kernel when the file system is mounted, by the FUSE crate. Afterwards
/// the crate handles no requests.
#[derive(Debug)]
pub(crate) struct Negotiation {
    pub core: Arc<Core>,
}

impl Filesystem for Negotiation {
    fn init(&mut self, _request: &fuser::Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let policy = &self.core.policy;
        let mut wanted = InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_HANDLE_KILLPRIV
            // name_to_handle_at(2) is refused, because open_by_handle_at(2) could find an object
            // only while the kernel still knows it. Linux 6.9
            | InitFlags::FUSE_NO_EXPORT_SUPPORT;
        wanted |= match policy.directory_reads {
            DirectoryReads::Auto => InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
            DirectoryReads::AlwaysPlus => InitFlags::FUSE_DO_READDIRPLUS,
            DirectoryReads::NeverPlus => InitFlags::empty(),
        };
        // Where files may have extended attributes, the kernel asks before each write whether this
        // one has capabilities. With this flag, which says that the server clears them, it asks
        // once after it was given attributes. Linux 5.11
        if self.core.mount.protocol().has_version_4_2() {
            wanted |= InitFlags::FUSE_HANDLE_KILLPRIV_V2;
        }
        // With these flags the kernel sends lock requests to us. Without them it keeps locks on
        // this host.
        if !policy.local_locks.posix {
            wanted |= InitFlags::FUSE_POSIX_LOCKS;
        }
        if !policy.local_locks.flock {
            wanted |= InitFlags::FUSE_FLOCK_LOCKS;
        }
        let offered = config.capabilities();
        if config.add_capabilities(wanted & offered).is_err() || !offered.contains(wanted) {
            tracing::info!(missing = ?(wanted - offered), "this kernel's FUSE lacks features");
        }
        let bounds = [
            config.set_max_write(self.core.request_bytes_max()).err(),
            config.set_max_background(BACKGROUND_MAX).err().map(u32::from),
        ];
        tracing::debug!(?bounds, "FUSE is set up");
        Ok(())
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct FileSystem {
    core: Arc<Core>,
    device: Arc<Device>,
}

impl FileSystem {
    pub(crate) fn new(core: Arc<Core>, device: Arc<Device>) -> Self {
        Self { core, device }
    }

    /// Handles requests until the file system is unmounted. While this thread waits for a request
    /// it drives the client's first loop, if it is given an external driver: otherwise each call
    /// would cost a switch to the loop's own thread.
    ///
    /// # Errors
    /// Errors of the device other than those of an unmount, and requests that are cut short.
    pub(crate) fn serve(&self, mut external_driver: Option<ExternalDriver>) -> io::Result<()> {
        let bytes_max = self.core.request_bytes_max() as usize;
        let mut receiver = Receiver::new(&self.device, bytes_max, &self.core.buffers);
        loop {
            if !external_driver.as_mut().is_some_and(ExternalDriver::drive) {
                // There is no loop to drive, or it has ended.
                external_driver = None;
                self.device.wait()?;
            }
            for _ in 0..RECEIVE_BATCH_MAX {
                match receiver.receive()? {
                    Received::Request(bytes) => {
                        let Some((head, operation)) = parse(bytes) else {
                            let error = "a request has another length than its header says";
                            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                        };
                        self.dispatch(&head, operation);
                    }
                    Received::Write(head, write, data) => {
                        self.write(&head, Reply::new(&self.device, head.unique), write, data);
                        if write.bytes >= LONG_WRITE_BYTES_MIN {
                            break;
                        }
                    }
                    Received::Nothing => break,
                    Received::Unmounted => return Ok(()),
                }
            }
        }
    }

    fn dispatch(&self, head: &Head, operation: Operation<'_>) {
        let reply = Reply::new(&self.device, head.unique);
        match operation {
            Operation::Lookup { name } => self.lookup(head, reply, name),
            Operation::Forget { lookups } => {
                reply.none();
                self.core.inodes.forget(head.ino, lookups);
            }
            Operation::BatchForget(all) => {
                reply.none();
                all.iter().for_each(|(ino, lookups)| self.core.inodes.forget(ino, lookups));
            }
            Operation::GetAttr { handle } => self.get_attributes(head, reply, handle),
            Operation::SetAttr(new) => self.set_attributes(head, reply, new),
            Operation::ReadLink => self.read_link(head, reply),
            Operation::SymLink { name, target } => self.symlink(head, reply, name, target),
            Operation::MkNod { name, mode, rdev } => self.mknod(head, reply, name, mode, rdev),
            Operation::MkDir { name, mode } => self.mkdir(head, reply, name, mode),
            Operation::Unlink { name } => self.unlink(head, reply, name),
            Operation::RmDir { name } => self.rmdir(head, reply, name),
            // NFS version 3 can neither exchange two names nor refuse to replace one.
            Operation::Rename { flags, .. } if flags != 0 => reply.error(Errno::EINVAL),
            Operation::Rename { name, new_parent, new_name, .. } => {
                self.rename(head, reply, name, (new_parent, new_name));
            }
            Operation::Link { ino, name } => self.link(head, reply, ino, name),
            Operation::Open { flags } => self.open(head, reply, flags),
            Operation::Create { name, mode, flags } => self.create(head, reply, name, mode, flags),
            Operation::Read { handle, offset, size, bypasses_pages, flags } => {
                self.read(head, reply, (handle, offset, size), IoFlags::new(flags, bypasses_pages));
            }
            Operation::StatFs => self.statfs(head, reply),
            Operation::Flush { handle, owner } => self.flush(head, reply, handle, owner),
            Operation::FSync { handle } => self.sync(head, reply, handle),
            Operation::Release { handle, owner } => self.release(reply, handle, owner),
            Operation::OpenDir => self.open_directory(head, reply),
            Operation::ReadDir { handle, offset, size } => {
                self.list(head, reply, (handle, offset, size), false);
            }
            Operation::ReadDirPlus { handle, offset, size } => {
                self.list(head, reply, (handle, offset, size), true);
            }
            Operation::ReleaseDir { handle } => {
                self.core.directories.remove(handle);
                reply.ok();
            }
            // Changes of names are stable when they are answered. RFC 1813 s4.9
            Operation::FSyncDir => reply.ok(),
            // Data that the server does not have yet are sent when the session ends.
            Operation::Destroy => reply.ok(),
            Operation::GetLk { handle, lock } => self.test_lock(head, reply, handle, lock),
            Operation::SetLk { handle, lock, waits } => self.set_lock(head, reply, handle, lock, waits),
            // NFS has no ioctl. Programs ask whether a file is a terminal, and the kernel passes
            // each such question on.
            Operation::IoCtl => reply.error(Errno::ENOTTY),
            Operation::Extension(extension) => self.extension(head, reply, extension),
            Operation::Interrupt { unique } => {
                reply.none();
                self.core.interrupts.mark(unique);
            }
            // The kernel does not send such a request again while the file system is mounted.
            Operation::Other => reply.error(Errno::ENOSYS),
            Operation::Malformed => {
                let Head { opcode, len, .. } = head;
                tracing::error!(opcode, len, "a request lacks some of its arguments");
                reply.error(Errno::EIO);
            }
        }
    }

    /// Runs `work`, and replies with what `send` makes of its output. If the thread that made the
    /// request is killed meanwhile, the reply is EINTR. The task continues on the thread that
    /// receives the server's reply, and must not block it.
    fn answer<T, W>(&self, head: &Head, reply: Reply, work: W, send: impl FnOnce(Reply, T) + Send + 'static)
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        self.core.executor.spawn_short(self.answer_task(head, reply, work, send));
    }

    /// Like [`Self::answer`], for work that takes long or may have to notify the kernel. A
    /// notification can wait for other requests, so the task continues on a worker.
    fn answer_on_worker<T, W>(
        &self,
        head: &Head,
        reply: Reply,
        work: W,
        send: impl FnOnce(Reply, T) + Send + 'static,
    ) where
        T: Send + 'static,
        W: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        self.core.executor.spawn(self.answer_task(head, reply, work, send));
    }

    fn answer_task<T, W>(
        &self,
        head: &Head,
        reply: Reply,
        work: W,
        send: impl FnOnce(Reply, T) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        let (core, request) = (Arc::clone(&self.core), (head.unique, head.pid));
        async move {
            match core.interrupts.guard(request, EndsWith::FatalSignal, work).await {
                Some(Ok(outcome)) => send(reply, outcome),
                Some(Err(error)) => reply.error(error),
                None => reply.error(Errno::EINTR),
            }
        }
    }

    fn for_lookup(&self, head: &Head) -> (Arc<Core>, Credential) {
        (Arc::clone(&self.core), self.core.callers.for_lookup(head))
    }

    fn for_change(&self, head: &Head) -> (Arc<Core>, Credential) {
        (Arc::clone(&self.core), self.core.callers.for_change(head))
    }

    fn lookup(&self, head: &Head, reply: Reply, name: &[u8]) {
        let ((core, caller), parent, name) = (self.for_lookup(head), head.ino, name.to_vec());
        let work = async move { core.lookup(caller, core.inode(parent)?, name).await };
        self.answer(head, reply, work, |reply, found| match found {
            Lookup::Found(entry) => reply.entry(&entry),
            Lookup::Nothing(ttl) => reply.no_entry(ttl),
        });
    }

    fn get_attributes(&self, head: &Head, reply: Reply, handle: Option<u64>) {
        let ((core, caller), ino) = (self.for_lookup(head), head.ino);
        let work = async move {
            let open = handle.and_then(|handle| core.files.find(handle).ok());
            let (caller, inode) = match open {
                Some(file) => (file.caller.clone(), Arc::clone(&file.inode)),
                None => (caller, core.inode(ino)?),
            };
            let size_before_growth = inode.lock().growth.size_before();
            // The kernel caches attributes for as long as the replies have said. If it asks, it
            // wants current ones.
            let mut known = core.attributes(&caller, &inode).await?;
            // The kernel asks before it gives out pages of a file that was written. Wait until the
            // pages that lack the data are dropped.
            core.invalidations.completed(inode.ino).await;
            if let Some(end) = size_before_growth {
                // The kernel may not have received the reply to the write that makes the file
                // longer. Once it has, it ignores attributes that it requested before.
                known.attributes.size = known.attributes.size.min(end);
                known.ttl = Duration::ZERO;
            }
            Ok((core.attributes_to_send(&inode, &known), known.ttl))
        };
        self.answer(head, reply, work, |reply, (attributes, ttl)| reply.attributes(&attributes, ttl));
    }

    fn set_attributes(&self, head: &Head, reply: Reply, requested: SetAttr) {
        let ((core, caller), ino) = (self.for_change(head), head.ino);
        let new = SetAttributes {
            mode: requested.mode.map(|mode| mode & 0o7777),
            uid: requested.uid,
            gid: requested.gid,
            size: requested.size,
            atime: crate::attributes::set_time(requested.atime),
            mtime: crate::attributes::set_time(requested.mtime),
        };
        let work = async move {
            let handle = requested.handle.filter(|_| requested.size.is_some());
            let open = handle.and_then(|handle| core.files.find(handle).ok());
            // A program that has opened a file for writing may truncate it, whatever the mode is
            // now.
            let caller = open.map_or(caller, |file| file.caller.clone());
            let inode = core.inode(ino)?;
            if new.size.is_some() {
                core.check_locks_of(&inode)?;
            }
            let known = core.set_attributes(&caller, &inode, new).await?;
            Ok((core.attributes_to_send(&inode, &known), core.ttl(&inode, &known)))
        };
        self.answer(head, reply, work, |reply, (attributes, ttl)| reply.attributes(&attributes, ttl));
    }

    fn read_link(&self, head: &Head, reply: Reply) {
        let ((core, caller), ino) = (self.for_lookup(head), head.ino);
        let work = async move {
            let inode = core.inode(ino)?;
            core.call_readlink(&caller, inode.handle).await
        };
        self.answer(head, reply, work, |reply, target| reply.data(&target));
    }

    fn symlink(&self, head: &Head, reply: Reply, name: &[u8], target: &[u8]) {
        let target = target.to_vec();
        self.create_entry(head, reply, name, move |core, caller, parent, name| async move {
            core.symlink(caller, parent, name, target).await
        });
    }

    fn mknod(&self, head: &Head, reply: Reply, name: &[u8], mode: u32, rdev: u32) {
        self.create_entry(head, reply, name, move |core, caller, parent, name| async move {
            core.mknod(caller, parent, name, mode, rdev).await
        });
    }

    fn mkdir(&self, head: &Head, reply: Reply, name: &[u8], mode: u32) {
        self.create_entry(head, reply, name, move |core, caller, parent, name| async move {
            core.mkdir(caller, parent, name, mode).await
        });
    }

    fn link(&self, head: &Head, reply: Reply, ino: u64, name: &[u8]) {
        self.create_entry(head, reply, name, move |core, caller, parent, name| async move {
            let inode = core.inode(ino)?;
            core.link(caller, inode, parent, name).await
        });
    }

    /// Makes an object by a name in the directory that the head identifies.
    fn create_entry<W>(
        &self,
        head: &Head,
        reply: Reply,
        name: &[u8],
        work: impl FnOnce(Arc<Core>, Credential, Arc<Inode>, Vec<u8>) -> W + Send + 'static,
    ) where
        W: Future<Output = Result<Box<Entry>, Errno>> + Send + 'static,
    {
        let ((core, caller), parent, name) = (self.for_change(head), head.ino, name.to_vec());
        let work = async move {
            let parent = core.inode(parent)?;
            work(core, caller, parent, name).await
        };
        self.answer(head, reply, work, |reply, entry| reply.entry(&entry));
    }

    fn unlink(&self, head: &Head, reply: Reply, name: &[u8]) {
        let ((core, caller), parent, name) = (self.for_change(head), head.ino, name.to_vec());
        let work = async move { core.unlink(caller, core.inode(parent)?, name).await };
        self.answer(head, reply, work, |reply, ()| reply.ok());
    }

    fn rmdir(&self, head: &Head, reply: Reply, name: &[u8]) {
        let ((core, caller), parent, name) = (self.for_change(head), head.ino, name.to_vec());
        let work = async move { core.rmdir(caller, core.inode(parent)?, name).await };
        self.answer(head, reply, work, |reply, ()| reply.ok());
    }

    fn rename(&self, head: &Head, reply: Reply, name: &[u8], to: (u64, &[u8])) {
        let ((core, caller), parent, name) = (self.for_change(head), head.ino, name.to_vec());
        let (new_parent, new_name) = (to.0, to.1.to_vec());
        let work = async move {
            let (from, to) = (core.inode(parent)?, core.inode(new_parent)?);
            core.rename(caller, (from, name), (to, new_name)).await
        };
        self.answer(head, reply, work, |reply, ()| reply.ok());
    }

    fn open(&self, head: &Head, reply: Reply, flags: i32) {
        let ((core, caller), ino) = (self.for_change(head), head.ino);
        let work = async move { core.open(caller, core.inode(ino)?, flags).await };
        self.answer_on_worker(head, reply, work, |reply, (handle, flags)| reply.opened(handle, flags));
    }

    fn create(&self, head: &Head, reply: Reply, name: &[u8], mode: u32, flags: i32) {
        let ((core, caller), parent, name) = (self.for_change(head), head.ino, name.to_vec());
        let work = async move { core.create(caller, core.inode(parent)?, name, mode, flags).await };
        self.answer_on_worker(head, reply, work, |reply, (entry, handle)| reply.created(&entry, handle));
    }

    fn read(&self, head: &Head, reply: Reply, (handle, offset, size): (u64, u64, u32), io_flags: IoFlags) {
        let core = Arc::clone(&self.core);
        let work = async move {
            let file = core.files.find(handle)?;
            core.read(&file, io_flags, (offset, size as usize)).await
        };
        let core = Arc::clone(&self.core);
        let range = (offset, size as usize);
        let task = self.answer_task(head, reply, work, move |reply, (bytes, fill)| match fill {
            None => bytes.send(reply, &core.pipes),
            // A write that arrives from here on waits until the reply is sent.
            Some(fill) => fill.answer(|patches| match core.with_patches(bytes, range, patches) {
                Ok(bytes) => bytes.send(reply, &core.pipes),
                Err(error) => reply.error(error),
            }),
        });
        if is_short(size as usize) {
            self.core.executor.spawn_short(task);
        } else {
            self.core.executor.spawn(task);
        }
    }

    fn write(&self, head: &Head, reply: Reply, write: Write, data: Data<'_>) {
        let Write { handle, offset, from_mapping, bypasses_pages, flags, .. } = write;
        // Pages of a mapping are written where they are, and no program waits for them, so the
        // flags of the handle that the kernel has chosen do not matter.
        let io_flags = IoFlags::new(if from_mapping { 0 } else { flags }, bypasses_pages);
        let file = match self.core.files.find(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        if let Err(error) = self.core.check_locks(&file) {
            return reply.error(error);
        }
        if let Some(outcome) =
            self.core.try_write_now(&file, io_flags, (offset, from_mapping), data.as_slice())
        {
            return match outcome {
                Ok(count) => reply.written(count),
                Err(error) => reply.error(error),
            };
        }
        let (core, data) = (Arc::clone(&self.core), data.into_owned());
        let work = async move { core.write(&file, io_flags, (offset, from_mapping), data).await };
        self.answer(head, reply, work, |reply, count| reply.written(count));
    }

    fn flush(&self, head: &Head, reply: Reply, handle: u64, owner: LockOwner) {
        let core = Arc::clone(&self.core);
        let work = async move {
            let file = core.files.find(handle)?;
            let outcome = core.flush_and_report(&file).await;
            if core.mount.may_have_locks(file.inode.handle, owner) {
                file.is_left_by(owner);
                // This is done even if nobody waits for it any more.
                let (all, of) = (Arc::clone(&core), Arc::clone(&file));
                core.executor.detach_short(async move { all.end_locks(&of, owner).await }).await;
            }
            outcome
        };
        self.answer(head, reply, work, |reply, ()| reply.ok());
    }

    fn set_lock(&self, head: &Head, reply: Reply, handle: u64, lock: Lock, waits: bool) {
        let (core, request) = (Arc::clone(&self.core), (head.unique, head.pid));
        let ends_with = if waits { EndsWith::AnySignal } else { EndsWith::FatalSignal };
        self.core.executor.spawn(async move {
            let (locking, asked) = (Arc::clone(&core), Arc::new(LockRequest::default()));
            let asks = Arc::clone(&asked);
            let mut work = std::pin::pin!(core.executor.detach(async move {
                let file = locking.files.find(handle)?;
                locking.set_lock(&file, lock, waits, &asks).await
            }));
            let outcome = match core.interrupts.guard(request, ends_with, work.as_mut()).await {
                Some(outcome) => outcome,
                None if asked.end() => return reply.error(Errno::EINTR),
                // It was granted before the signal.
                None => work.await,
            };
            match outcome.unwrap_or(Err(Errno::EIO)) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(error),
            }
        });
    }

    fn test_lock(&self, head: &Head, reply: Reply, handle: u64, lock: Lock) {
        let core = Arc::clone(&self.core);
        let work = async move { core.test_lock(&*core.files.find(handle)?, lock).await };
        self.answer(head, reply, work, Reply::lock);
    }

    fn sync(&self, head: &Head, reply: Reply, handle: u64) {
        let core = Arc::clone(&self.core);
        let work = async move { core.sync_and_report(&*core.files.find(handle)?).await };
        self.answer(head, reply, work, |reply, ()| reply.ok());
    }

    fn release(&self, reply: Reply, handle: u64, owner: Option<LockOwner>) {
        let core = Arc::clone(&self.core);
        // No program waits for this, and it must be done in any case.
        self.core.executor.spawn_short(async move {
            core.release(handle, owner).await;
            reply.ok();
        });
    }

    fn statfs(&self, head: &Head, reply: Reply) {
        let (core, caller) = self.for_lookup(head);
        let work = async move {
            let statfs = core.call_statfs(&caller).await?;
            Ok((statfs, u32::try_from(core.sizes.0.min(core.sizes.1)).unwrap_or(u32::MAX)))
        };
        self.answer(head, reply, work, |reply, (statfs, preferred_bytes)| {
            const FRAGMENT: u32 = 4096;
            let blocks = |bytes: u64| bytes / u64::from(FRAGMENT);
            reply.statfs(&StatFs {
                blocks: blocks(statfs.total_bytes),
                free: blocks(statfs.free_bytes),
                available: blocks(statfs.available_bytes),
                files: statfs.total_files,
                free_files: statfs.free_files,
                preferred_bytes,
                fragment_bytes: FRAGMENT,
            });
        });
    }

    fn open_directory(&self, head: &Head, reply: Reply) {
        let ((core, caller), ino) = (self.for_change(head), head.ino);
        let work = async move {
            let inode = core.inode(ino)?;
            if core.policy.close_to_open {
                core.attributes(&caller, &inode).await?;
            }
            Ok(core.directories.insert(OpenDirectory::new(inode, caller)))
        };
        self.answer(head, reply, work, |reply, handle| reply.opened(handle, FopenFlags::empty()));
    }

    /// Reads a part of a directory, with attributes and handles if `plus`. A page from the server
    /// takes long to handle, so a worker does it.
    fn list(&self, head: &Head, reply: Reply, (handle, offset, size): (u64, u64, u32), plus: bool) {
        let core = Arc::clone(&self.core);
        let work = async move {
            let (directory, mut names) = (core.directories.find(handle)?, DirentBuffer::new(size));
            if plus {
                core.list_plus(&directory, offset, &mut names).await?;
            } else {
                core.list(&directory, offset, &mut names).await?;
            }
            Ok(names)
        };
        self.answer_on_worker(head, reply, work, |reply, names| reply.names(&names));
    }
}

//! The requests of the kernel, each turned into a task and its outcome into a reply.
//!
//! No request is waited for here: the thread that received it goes on to the next while the server works on it.

use crate::caller::As;
use crate::core::{Core, Entry};
use crate::directory::OpenDirectory;
use crate::inode::{Inode, Known};
use crate::kernel::{
    Data, Device, Head, Names, Operation, Received, Receiver, Reply, SetAttr, Space, Ttls, Write, parse,
};
use crate::names::Lookup;
use client::Attendant;
use client::options::DirectoryReads;
use fuser::{Errno, FileAttr, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig};
use nfs3::Sattr3;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A reply of at most so many bytes is given by the thread that received them; a longer one would keep it from its
/// connections for too long.
const SHORT_READ_BYTES_MAX: u32 = 64 << 10;
/// So many requests are taken one after the other before their calls are sent, as long as there are more: they leave
/// together. More would keep the first of them waiting.
const TAKEN_MAX: usize = 16;
/// Taking a write of so many bytes is long: it is the last before the calls are sent.
const LONG_WRITE_BYTES_MIN: usize = 64 << 10;
/// Reads that nobody waits for yet, and direct ones of many threads, that the kernel has in flight at once.
const BACKGROUND_MAX: u16 = 64;

/// What is agreed upon with the kernel when it mounts; the crate does that and nothing after it.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub core: Arc<Core>,
}

impl Filesystem for Agreement {
    fn init(&mut self, _request: &fuser::Request, config: &mut KernelConfig) -> std::io::Result<()> {
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
    said_no_locks: AtomicBool,
}

fn give_entry(reply: Reply, entry: &Entry) {
    let ttls = Ttls { name: entry.name_ttl, attributes: entry.attributes_ttl };
    reply.entry(&entry.attributes, entry.generation, ttls);
}

/// Tells the kernel that there is no such name, for a time.
fn give_nothing(reply: Reply, ttl: Duration, like: FileAttr) {
    let nothing = FileAttr { ino: INodeNo(0), ..like };
    reply.entry(&nothing, Generation(0), Ttls { name: ttl, attributes: Duration::ZERO });
}

impl FileSystem {
    pub(crate) fn new(core: Arc<Core>, device: Arc<Device>) -> Self {
        Self { core, device, said_no_locks: AtomicBool::new(false) }
    }

    /// Takes requests until the file system is unmounted. Meanwhile this thread drives the client's loop, where it has one
    /// to attend: waiting for the next request, it would otherwise have handed each to the loop and woken it.
    ///
    /// # Errors
    /// The kernel's, when it stops talking to us in another way.
    pub(crate) fn serve(&self, mut attendant: Option<Attendant>) -> io::Result<()> {
        let bytes_max = self.core.request_bytes_max() as usize;
        let mut receiver = Receiver::new(&self.device, bytes_max, &self.core.buffers);
        loop {
            if !attendant.as_mut().is_some_and(Attendant::attend) {
                // There is no loop to drive, or none any more.
                attendant = None;
                self.device.wait()?;
            }
            for _ in 0..TAKEN_MAX {
                match receiver.receive()? {
                    Received::Request(bytes) => {
                        let Some((head, operation)) = parse(bytes) else {
                            let error = "a request of the kernel's is not as long as it says";
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
        let ino = head.ino;
        match operation {
            Operation::Forget { lookups } => return self.core.inodes.forget(ino, lookups),
            Operation::BatchForget(all) => {
                return all.iter().for_each(|(ino, lookups)| self.core.inodes.forget(ino, lookups));
            }
            _ => {}
        }
        let reply = Reply::new(&self.device, head.unique);
        match operation {
            Operation::Lookup { name } => self.lookup(head, reply, name),
            Operation::GetAttr { handle } => self.get_attributes(head, reply, handle),
            Operation::SetAttr(new) => self.set_attributes(head, reply, new),
            Operation::ReadLink => self.read_link(head, reply),
            Operation::MkNod { .. }
            | Operation::MkDir { .. }
            | Operation::SymLink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::RmDir { .. }
            | Operation::Rename { .. } => self.dispatch_name(head, reply, operation),
            Operation::Open { flags } => {
                let (core, caller) = self.acting(head);
                let work = async move { core.open(caller, core.inode(ino)?, flags).await };
                self.answer_aside(head, reply, work, |reply, (handle, flags)| reply.opened(handle, flags));
            }
            Operation::Create { name, mode, flags } => self.create(head, reply, name, mode, flags),
            Operation::StatFs => self.space(head, reply),
            Operation::OpenDir => self.open_directory(head, reply),
            Operation::Destroy => reply.ok(),
            operation => self.dispatch_open(head, reply, operation),
        }
    }

    /// What changes names: the head's object is the directory.
    fn dispatch_name(&self, head: &Head, reply: Reply, operation: Operation<'_>) {
        let ino = head.ino;
        match operation {
            Operation::MkNod { name, mode, rdev } => {
                self.make(head, reply, name, move |core, caller, parent, name| async move {
                    core.mknod(caller, parent, name, mode, rdev).await
                });
            }
            Operation::MkDir { name, mode } => {
                self.make(head, reply, name, move |core, caller, parent, name| async move {
                    core.mkdir(caller, parent, name, mode).await
                });
            }
            Operation::SymLink { name, target } => {
                let target = target.to_vec();
                self.make(head, reply, name, move |core, caller, parent, name| async move {
                    core.symlink(caller, parent, name, target).await
                });
            }
            Operation::Link { ino, name } => {
                self.make(head, reply, name, move |core, caller, parent, name| async move {
                    let inode = core.inode(ino)?;
                    core.link(caller, inode, parent, name).await
                });
            }
            Operation::Unlink { name } => {
                let ((core, caller), name) = (self.acting(head), name.to_vec());
                let work = async move { core.unlink(caller, core.inode(ino)?, name).await };
                self.answer(head, reply, work, |reply, ()| reply.ok());
            }
            Operation::RmDir { name } => {
                let ((core, caller), name) = (self.acting(head), name.to_vec());
                let work = async move { core.rmdir(caller, core.inode(ino)?, name).await };
                self.answer(head, reply, work, |reply, ()| reply.ok());
            }
            // NFS version 3 cannot exchange names, nor leave one that is there alone.
            Operation::Rename { flags, .. } if flags != 0 => reply.error(Errno::EINVAL),
            Operation::Rename { name, new_parent, new_name, .. } => {
                let ((core, caller), name, new_name) = (self.acting(head), name.to_vec(), new_name.to_vec());
                let work = async move {
                    let (from, to) = (core.inode(ino)?, core.inode(new_parent)?);
                    core.rename(caller, (from, name), (to, new_name)).await
                };
                self.answer(head, reply, work, |reply, ()| reply.ok());
            }
            _ => reply.error(Errno::ENOSYS),
        }
    }

    /// What is asked of something that is open.
    fn dispatch_open(&self, head: &Head, reply: Reply, operation: Operation<'_>) {
        match operation {
            Operation::Read { handle, offset, size } => self.read(head, reply, (handle, offset, size)),
            Operation::Flush { handle } => {
                let core = Arc::clone(&self.core);
                let work = async move { core.flush_and_tell(&*core.files.find(handle)?).await };
                self.answer(head, reply, work, |reply, ()| reply.ok());
            }
            Operation::FSync { handle } => {
                let core = Arc::clone(&self.core);
                let work = async move { core.sync_and_tell(&*core.files.find(handle)?).await };
                self.answer(head, reply, work, |reply, ()| reply.ok());
            }
            Operation::Release { handle } => {
                let core = Arc::clone(&self.core);
                // Nobody waits for this, and it must be done.
                self.core.executor.spawn_short(async move {
                    core.release(handle).await;
                    reply.ok();
                });
            }
            Operation::ReadDir { handle, offset, size } => {
                self.list(head, reply, size, move |core, mut names| async move {
                    core.list(&*core.directories.find(handle)?, offset, &mut names).await?;
                    Ok(names)
                });
            }
            Operation::ReadDirPlus { handle, offset, size } => {
                self.list(head, reply, size, move |core, mut names| async move {
                    core.list_plus(&*core.directories.find(handle)?, offset, &mut names).await?;
                    Ok(names)
                });
            }
            Operation::ReleaseDir { handle } => {
                self.core.directories.remove(handle);
                reply.ok();
            }
            // Changes of names are stable when they are answered. RFC 1813 s4.9
            Operation::FSyncDir => reply.ok(),
            Operation::GetLk => reply.error(self.no_locks()),
            // What was never locked is unlocked already; the kernel asks for it at every close.
            Operation::SetLk { unlocks: true } => reply.ok(),
            Operation::SetLk { unlocks: false } => reply.error(self.no_locks()),
            // There are none on NFS. Programs ask whether a file is a terminal, and the kernel passes each such question on.
            Operation::IoCtl => reply.error(Errno::ENOTTY),
            Operation::Malformed => {
                tracing::error!(
                    opcode = head.opcode,
                    len = head.len,
                    "a request lacks some of its arguments"
                );
                reply.error(Errno::EIO);
            }
            // FUSE_INTERRUPT among them (`interrupts.rs`). The kernel remembers it for the mount's life.
            _ => reply.error(Errno::ENOSYS),
        }
    }

    /// Runs `work` and replies with what it gives; a thread that is killed while it waits is let go. It goes on where its
    /// answers come in, and must not block there.
    fn answer<T, W>(&self, head: &Head, reply: Reply, work: W, give: impl FnOnce(Reply, T) + Send + 'static)
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        self.core.executor.spawn_short(self.answering(head, reply, work, give));
    }

    /// The same for work that may have to tell the kernel something: that can wait for other requests, so a worker does it.
    fn answer_aside<T, W>(
        &self,
        head: &Head,
        reply: Reply,
        work: W,
        give: impl FnOnce(Reply, T) + Send + 'static,
    ) where
        T: Send + 'static,
        W: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        self.core.executor.spawn(self.answering(head, reply, work, give));
    }

    fn answering<T, W>(
        &self,
        head: &Head,
        reply: Reply,
        work: W,
        give: impl FnOnce(Reply, T) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        let (core, thread) = (Arc::clone(&self.core), head.pid);
        async move {
            match core.interrupts.guard(thread, work).await {
                Some(Ok(outcome)) => give(reply, outcome),
                Some(Err(error)) => reply.error(error),
                None => reply.error(Errno::EINTR),
            }
        }
    }

    fn looking(&self, head: &Head) -> (Arc<Core>, As) {
        (Arc::clone(&self.core), self.core.callers.looking(head))
    }

    fn acting(&self, head: &Head) -> (Arc<Core>, As) {
        (Arc::clone(&self.core), self.core.callers.acting(head))
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

    fn lookup(&self, head: &Head, reply: Reply, name: &[u8]) {
        let ((core, caller), parent, name) = (self.looking(head), head.ino, name.to_vec());
        let work = async move {
            let parent = core.inode(parent)?;
            let like = core.dummy();
            Ok((core.lookup(caller, parent, name).await?, like))
        };
        self.answer(head, reply, work, |reply, (found, like)| match found {
            Lookup::Found(entry) => give_entry(reply, &entry),
            Lookup::Nothing(ttl) => give_nothing(reply, ttl, like),
        });
    }

    fn get_attributes(&self, head: &Head, reply: Reply, handle: Option<u64>) {
        let ((core, caller), ino) = (self.looking(head), head.ino);
        let work = async move {
            let open = handle.and_then(|handle| core.files.find(handle).ok());
            let (caller, inode) = match open {
                Some(file) => (file.caller.clone(), Arc::clone(&file.inode)),
                None => (caller, core.inode(ino)?),
            };
            // The kernel keeps what it was told for as long as it was told; when it asks, it wants to know.
            let known = core.attributes(&caller, &inode).await?;
            Ok((core.to_fuse(ino, &known.attributes), known.ttl))
        };
        self.answer(head, reply, work, |reply, (attributes, ttl)| reply.attributes(&attributes, ttl));
    }

    fn set_attributes(&self, head: &Head, reply: Reply, asked: SetAttr) {
        let ((core, caller), ino) = (self.acting(head), head.ino);
        let new = Sattr3 {
            mode: asked.mode.map(|mode| mode & 0o7777),
            uid: asked.uid,
            gid: asked.gid,
            size: asked.size,
            atime: crate::attributes::set_time(asked.atime),
            mtime: crate::attributes::set_time(asked.mtime),
        };
        let work = async move {
            let handle = asked.handle.filter(|_| asked.size.is_some());
            let open = handle.and_then(|handle| core.files.find(handle).ok());
            // Whoever opened a file for writing may cut it, whatever its mode is by now.
            let caller = open.map_or(caller, |file| file.caller.clone());
            let inode = core.inode(ino)?;
            let known = core.set_attributes(&caller, &inode, new).await?;
            Ok((core.to_fuse(ino, &known.attributes), known.ttl))
        };
        self.answer(head, reply, work, |reply, (attributes, ttl)| reply.attributes(&attributes, ttl));
    }

    fn read_link(&self, head: &Head, reply: Reply) {
        let ((core, caller), ino) = (self.looking(head), head.ino);
        let work = async move {
            let inode = core.inode(ino)?;
            core.call_readlink(&caller, inode.handle).await
        };
        self.answer(head, reply, work, |reply, target| reply.data(&target));
    }

    /// Makes something by a name in the directory that the head names.
    fn make<W>(
        &self,
        head: &Head,
        reply: Reply,
        name: &[u8],
        work: impl FnOnce(Arc<Core>, As, Arc<Inode>, Vec<u8>) -> W + Send + 'static,
    ) where
        W: Future<Output = Result<Box<Entry>, Errno>> + Send + 'static,
    {
        let ((core, caller), parent, name) = (self.acting(head), head.ino, name.to_vec());
        let work = async move {
            let parent = core.inode(parent)?;
            work(core, caller, parent, name).await
        };
        self.answer(head, reply, work, |reply, entry| give_entry(reply, &entry));
    }

    fn create(&self, head: &Head, reply: Reply, name: &[u8], mode: u32, flags: i32) {
        let ((core, caller), parent, name) = (self.acting(head), head.ino, name.to_vec());
        let work = async move { core.create(caller, core.inode(parent)?, name, mode, flags).await };
        self.answer_aside(head, reply, work, |reply, (entry, handle)| {
            let ttls = Ttls { name: entry.name_ttl, attributes: entry.attributes_ttl };
            reply.created(&entry.attributes, entry.generation, ttls, handle);
        });
    }

    fn read(&self, head: &Head, reply: Reply, (handle, offset, size): (u64, u64, u32)) {
        let core = Arc::clone(&self.core);
        let work = async move {
            let file = core.files.find(handle)?;
            core.read(&file, offset, size as usize).await
        };
        let pipes = Arc::clone(&self.core.pipes);
        let task = self.answering(head, reply, work, move |reply, bytes| bytes.give(reply, &pipes));
        if size <= SHORT_READ_BYTES_MAX {
            self.core.executor.spawn_short(task);
        } else {
            self.core.executor.spawn(task);
        }
    }

    fn write(&self, head: &Head, reply: Reply, write: Write, data: Data<'_>) {
        let Write { handle, offset, of_mapping, .. } = write;
        let file = match self.core.files.find(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        if let Some(outcome) = self.core.write_at_once(&file, offset, data.as_slice(), of_mapping) {
            return match outcome {
                Ok(count) => reply.written(count),
                Err(error) => reply.error(error),
            };
        }
        let (core, data) = (Arc::clone(&self.core), data.into_owned());
        let work = async move { core.write(&file, offset, data, of_mapping).await };
        self.answer(head, reply, work, |reply, count| reply.written(count));
    }

    fn space(&self, head: &Head, reply: Reply) {
        let (core, caller) = self.looking(head);
        let work = async move {
            let space = core.call_fsstat(&caller).await?;
            Ok((space, u32::try_from(core.sizes.0.min(core.sizes.1)).unwrap_or(u32::MAX)))
        };
        self.answer(head, reply, work, |reply, (space, preferred_bytes)| {
            const FRAGMENT: u32 = 4096;
            let blocks = |bytes: u64| bytes / u64::from(FRAGMENT);
            reply.space(&Space {
                blocks: blocks(space.total_bytes),
                free: blocks(space.free_bytes),
                available: blocks(space.available_bytes),
                files: space.total_files,
                free_files: space.free_files,
                preferred_bytes,
                fragment_bytes: FRAGMENT,
            });
        });
    }

    fn open_directory(&self, head: &Head, reply: Reply) {
        let ((core, caller), ino) = (self.acting(head), head.ino);
        let work = async move {
            let inode = core.inode(ino)?;
            if core.policy.close_to_open {
                core.attributes(&caller, &inode).await?;
            }
            Ok(core.directories.insert(OpenDirectory::new(inode, caller)))
        };
        self.answer(head, reply, work, |reply, handle| reply.opened(handle, FopenFlags::empty()));
    }

    /// Gives a portion of a directory. A page of it takes long, so a worker does it.
    fn list<W>(
        &self,
        head: &Head,
        reply: Reply,
        size: u32,
        work: impl FnOnce(Arc<Core>, Names) -> W + Send + 'static,
    ) where
        W: Future<Output = Result<Names, Errno>> + Send + 'static,
    {
        let work = work(Arc::clone(&self.core), Names::new(size));
        self.answer_aside(head, reply, work, |reply, names| reply.names(&names));
    }
}

impl Core {
    /// chmod(2), chown(2), truncate(2), utimes(2). What was written before comes before.
    pub(crate) async fn set_attributes(
        self: &Arc<Self>,
        caller: &As,
        inode: &Arc<Inode>,
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

//! Open files.

use crate::caller::Credential;
use crate::core::{Core, HandleUse};
use crate::inode::{Inode, ReportedErrors};
use crate::kernel_cache::PendingDrop;
use crate::read_ahead::ReadAhead;
use client::{FileRef, LockOwner};
use fs::Rights;
use fuser::{Errno, FopenFlags};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open handle.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub inode: Arc<Inode>,
    pub file: FileRef,
    /// The user who opened the file. Reads and writes are made with that user's rights, whichever
    /// process makes them.
    pub caller: Credential,
    /// O_WRONLY or O_RDWR.
    pub may_write: bool,
    pub read_ahead: Mutex<ReadAhead>,
    pub reported_errors: ReportedErrors,
    pending_drop: PendingDrop,
    /// The owners of locks of fcntl(2) that have locked by this handle and are not gone.
    lock_owners: Mutex<HashSet<LockOwner>>,
}

impl OpenFile {
    fn lock_owners(&self) -> MutexGuard<'_, HashSet<LockOwner>> {
        self.lock_owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An owner locks by this handle.
    pub(crate) fn locks_by(&self, owner: LockOwner) {
        self.lock_owners().insert(owner);
    }

    /// An owner is gone.
    pub(crate) fn is_left_by(&self, owner: LockOwner) {
        self.lock_owners().remove(&owner);
    }
}

impl HandleUse for OpenFile {
    fn on_use(&self) {
        self.pending_drop.complete(&self.inode);
    }
}

/// How a read or a write is to be served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IoFlags {
    /// O_DIRECT: nothing is read ahead.
    pub is_direct: bool,
    /// O_DIRECT, O_SYNC or O_DSYNC: write(2) returns when the data are stable.
    pub writes_through: bool,
    pub appends: bool,
    /// The request certainly bypasses the kernel's pages. With O_DIRECT alone that is not certain.
    pub bypasses_pages: bool,
}

impl IoFlags {
    /// From the flags that came with the request.
    pub(crate) const fn new(flags: i32, bypasses_pages: bool) -> Self {
        let is_direct = flags & libc::O_DIRECT != 0;
        Self {
            is_direct,
            writes_through: is_direct || flags & (libc::O_SYNC | libc::O_DSYNC) != 0,
            appends: flags & libc::O_APPEND != 0,
            bypasses_pages,
        }
    }
}

impl Core {
    /// open(2) of an existing file. Asks the server for the rights and, unless attributes may be
    /// cached from open to open, for the attributes; of a file that is delegated, both are known.
    pub(crate) async fn open(
        self: &Arc<Self>,
        caller: Credential,
        inode: Arc<Inode>,
        flags: i32,
    ) -> Result<(u64, FopenFlags), Errno> {
        let wanted = match flags & libc::O_ACCMODE {
            libc::O_WRONLY => Rights::MODIFY | Rights::EXTEND,
            // A user may run a program without the right to read it. The kernel then opens it for
            // reading.
            libc::O_RDONLY => Rights::READ | Rights::EXECUTE,
            // O_RDWR, and the two bits together, by which Linux asks for both rights too.
            _ => Rights::READ | Rights::MODIFY | Rights::EXTEND,
        };
        let reads_only = flags & libc::O_ACCMODE == libc::O_RDONLY;
        let may = self.rights_to_open(&caller, &inode, wanted);
        let known = async {
            if self.policy.close_to_open {
                self.attributes_at_open(&caller, &inode, reads_only).await
            } else {
                self.cached_or_fetched_attributes(&caller, &inode).await
            }
        };
        let (granted, known) = both(may, known).await;
        let (granted, known) = (granted?, known?);
        let missing = wanted.without(granted);
        if (reads_only && granted.is_empty()) || (!reads_only && !missing.without(Rights::EXTEND).is_empty())
        {
            return Err(Errno::EACCES);
        }
        // The kernel keeps its pages if they are from the current version of the file.
        let now = known.attributes.version();
        let mut state = inode.lock();
        let (may_keep_pages, has_other_attributes) =
            (state.may_keep_pages(now), state.may_have_other_attributes(now));
        drop(state);
        let keep = if may_keep_pages { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        let handle = self.new_handle_with(caller, Arc::clone(&inode), flags, !may_keep_pages);
        // Record this only after the kernel has forgotten the attributes: other opens rely on it.
        if has_other_attributes {
            self.forget_attributes(&inode);
            inode.lock().attributes_dropped(now);
        }
        Ok((handle, keep))
    }

    /// Makes a handle of a new file.
    pub(crate) fn new_handle(&self, caller: Credential, inode: Arc<Inode>, flags: i32) -> u64 {
        self.new_handle_with(caller, inode, flags, false)
    }

    /// Makes a handle; `drops` says whether the kernel drops its pages on the reply.
    fn new_handle_with(&self, caller: Credential, inode: Arc<Inode>, flags: i32, drops: bool) -> u64 {
        let file = inode.open();
        self.open_files.fetch_add(1, Ordering::AcqRel);
        let may_write = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let mut state = inode.lock();
        state.delegated.writers += u32::from(may_write);
        let reported_errors = state.reported_errors_at_open();
        drop(state);
        self.files.insert(OpenFile {
            inode,
            file,
            caller,
            may_write,
            read_ahead: Mutex::new(ReadAhead::new(
                self.policy.read_ahead_age_max(),
                Arc::clone(&self.read_ahead_budget),
            )),
            reported_errors,
            pending_drop: PendingDrop::new(drops),
            lock_owners: Mutex::default(),
        })
    }

    /// Closes a handle. Data that were written through a mapping may have arrived after close(2).
    pub(crate) async fn release(self: &Arc<Self>, number: u64, owner: Option<LockOwner>) {
        let Some(file) = self.files.remove(number) else { return };
        self.flush(&file.inode).await;
        let left: Vec<LockOwner> = file.lock_owners().drain().chain(owner).collect();
        for owner in left {
            self.end_locks(&file, owner).await;
        }
        self.open_files.fetch_sub(1, Ordering::AcqRel);
        file.inode.lock().delegated.writers -= u32::from(file.may_write);
        if let Some(silly_name) = file.inode.close() {
            let at = (silly_name.directory, silly_name.name.as_slice());
            self.silly_names.closed(at.0, at.1);
            let removed = self.call_remove(&silly_name.caller, at.0, at.1).await;
            self.silly_names.forget(at.0, at.1);
            file.inode.changed();
            if let Err(error) = removed {
                let name = String::from_utf8_lossy(&silly_name.name).into_owned();
                tracing::warn!(name, errno = error.code(), "a file removed while open stays on the server");
            }
        }
    }

    /// A write may clear set-user-id and set-group-id on the server. The kernel keeps the mode that
    /// it has, so it is made to ask again.
    pub(crate) fn forget_privileges(&self, inode: &Inode) {
        if inode.lock().sent_privileges {
            self.forget_attributes(inode);
        }
    }

    /// Makes the kernel ask for the attributes the next time that it needs them.
    pub(crate) fn forget_attributes(&self, inode: &Inode) {
        if let Some(notifier) = self.notifier.get() {
            // A negative offset stands for the attributes alone, so that the kernel waits for no
            // page.
            if let Err(error) = notifier.inval_inode(fuser::INodeNo(inode.ino), -1, 0) {
                tracing::debug!(ino = inode.ino, %error, "the kernel did not forget attributes");
            }
        }
    }
}

/// Waits for two futures.
async fn both<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
    let (mut a, mut b) = (None, None);
    std::future::poll_fn(|context| {
        if a.is_none()
            && let std::task::Poll::Ready(done) = first.as_mut().poll(context)
        {
            a = Some(done);
        }
        if b.is_none()
            && let std::task::Poll::Ready(done) = second.as_mut().poll(context)
        {
            b = Some(done);
        }
        match (a.take(), b.take()) {
            (Some(one), Some(other)) => std::task::Poll::Ready((one, other)),
            (one, other) => {
                (a, b) = (one, other);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

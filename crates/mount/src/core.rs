//! State that all requests of a mount share.

use crate::attributes;
use crate::buffers::Buffers;
use crate::caller::{Callers, Credential};
use crate::directory::OpenDirectory;
use crate::executor::Executor;
use crate::files::OpenFile;
use crate::inode::{Inode, Inodes, ValidAttributes};
use crate::interrupts::Interrupts;
use crate::invalidations::Invalidations;
use crate::kernel::Entry;
use crate::locks::LockWaits;
use crate::pipes::Pipes;
use crate::policy::Policy;
use crate::read_ahead::ByteBudget;
use crate::silly_names::SillyNames;
use crate::unsupported::Unsupported;
use crate::write_back::Budget;
use client::Mount;
use fs::{Attributes, FileHandle, SetAttributes, Verifier};
use fuser::{Errno, FileAttr, Notifier};
use slab::Slab;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The most that Linux puts into one request by default: 256 pages.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Set-user-id and set-group-id.
const SET_USER_OR_GROUP: u32 = 0o6000;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Core {
    pub mount: Mount,
    pub policy: Policy,
    pub inodes: Inodes,
    pub files: Handles<OpenFile>,
    pub directories: Handles<OpenDirectory>,
    pub callers: Callers,
    pub executor: Executor,
    pub interrupts: Interrupts,
    pub budget: Arc<Budget>,
    pub buffers: Arc<Buffers>,
    pub pipes: Arc<Pipes>,
    pub notifier: OnceLock<Notifier>,
    pub invalidations: Invalidations,
    pub lock_waits: LockWaits,
    pub silly_names: SillyNames,
    pub unsupported: Unsupported,
    /// Number of open files: while it is zero, no removed file has to be hidden.
    pub open_files: AtomicUsize,
    /// Number of WRITEs that programs wait for.
    pub writes_in_flight: AtomicUsize,
    /// Sizes in bytes of one READ and of one WRITE.
    pub sizes: (usize, usize),
    /// The size of the largest file on the server.
    pub file_bytes_max: u64,
    /// The most bytes that are read ahead in one file.
    pub read_ahead_max: usize,
    pub read_ahead_budget: Arc<ByteBudget>,
    /// Source of names and verifiers that no other client can make.
    pub unique: AtomicU64,
}

impl Core {
    /// The size of one request in bytes: at most what one call carries, and what Linux allows by
    /// default.
    pub(crate) fn request_bytes_max(&self) -> u32 {
        let (read, write) = self.sizes;
        u32::try_from(read.max(write)).unwrap_or(REQUEST_BYTES_MAX).clamp(4096, REQUEST_BYTES_MAX)
    }

    /// The object that the kernel names by a number.
    pub(crate) fn inode(&self, ino: u64) -> Result<Arc<Inode>, Errno> {
        self.inodes.find(ino).ok_or(Errno::ESTALE)
    }

    /// Waits for the reads and writes of a range that have been received by now.
    pub(crate) async fn wait_for_earlier_requests(&self, ino: u64, range: Range<u64>) {
        if let Some(inode) = self.inodes.find(ino) {
            inode.wait_for_earlier_requests(range).await;
        }
    }

    /// Converts attributes to the kernel's form.
    pub(crate) fn to_fuse(&self, attributes: &Attributes) -> FileAttr {
        let (read, write) = self.sizes;
        let number = self.inodes.number(attributes.fsid, attributes.fileid);
        attributes::to_fuse(number, attributes, u32::try_from(read.min(write)).unwrap_or(u32::MAX))
    }

    /// The kernel's entry for an object in a directory. Returning it to the kernel counts as a
    /// lookup.
    pub(crate) fn entry(
        &self,
        parent: &Inode,
        handle: FileHandle,
        attributes: &Attributes,
    ) -> (Entry, Arc<Inode>) {
        let inode = self.inodes.find_or_add(handle, attributes);
        let known = inode.update_attributes(*attributes, None, &self.policy);
        let entry = Entry {
            ino: inode.ino,
            attributes: self.attributes_to_send(&inode, &known),
            name_ttl: self.name_ttl(parent),
            attributes_ttl: self.ttl(&inode, &known),
        };
        (entry, inode)
    }

    /// Converts attributes that are to be sent to the kernel, and records their version.
    pub(crate) fn attributes_to_send(&self, inode: &Inode, known: &ValidAttributes) -> FileAttr {
        let mut state = inode.lock();
        state.record_sent_version(known.attributes.version());
        state.sent_privileges = known.attributes.mode & SET_USER_OR_GROUP != 0;
        drop(state);
        self.to_fuse(&known.attributes)
    }

    /// How long the kernel may cache the attributes. While it still has pages to drop the time is
    /// zero, so that it asks before it gives out any page.
    pub(crate) fn ttl(&self, inode: &Inode, known: &ValidAttributes) -> Duration {
        if self.invalidations.is_pending(inode.ino) { Duration::ZERO } else { known.ttl }
    }

    /// How long a name in a directory may be cached: as long as the directory's attributes.
    pub(crate) fn name_ttl(&self, parent: &Inode) -> Duration {
        if self.policy.lookup_cache == client::options::LookupCache::None {
            return Duration::ZERO;
        }
        parent.valid_attributes().map_or_else(|| self.policy.bounds(true).0, |known| known.ttl)
    }

    /// Fetches attributes from the server, after all data written here have reached it. Those of a
    /// file that is delegated are known.
    pub(crate) async fn attributes(
        self: &Arc<Self>,
        caller: &Credential,
        inode: &Arc<Inode>,
    ) -> Result<ValidAttributes, Errno> {
        self.flush(inode).await;
        if let Some(known) = self.delegated_attributes(inode) {
            return Ok(known);
        }
        let (delegation, requested_after) = (self.mount.delegation(inode.handle), inode.changes());
        match self.call_getattr(caller, inode.handle).await {
            Ok(attributes) => {
                Ok(inode.update_delegated(attributes, requested_after, delegation, &self.policy))
            }
            Err(error) => {
                inode.expire_attributes();
                Err(error)
            }
        }
    }

    /// Returns attributes that are still valid, or fetches them from the server.
    pub(crate) async fn cached_or_fetched_attributes(
        self: &Arc<Self>,
        caller: &Credential,
        inode: &Arc<Inode>,
    ) -> Result<ValidAttributes, Errno> {
        match inode.valid_attributes() {
            Some(known) => Ok(known),
            None => self.attributes(caller, inode).await,
        }
    }

    /// chmod(2), chown(2), truncate(2), utimes(2). Earlier writes are sent first.
    pub(crate) async fn set_attributes(
        self: &Arc<Self>,
        caller: &Credential,
        inode: &Arc<Inode>,
        new: SetAttributes,
    ) -> Result<ValidAttributes, Errno> {
        if new.size.is_some_and(|size| size > self.file_bytes_max) {
            return Err(Errno::EFBIG);
        }
        // All data behind the new end are affected.
        let cut = new.size.map(|size| inode.begin_change(size..u64::MAX));
        self.flush(inode).await;
        if let Some(cut) = &cut {
            cut.wait_for_turn().await;
        }
        // If the program is killed from here on, the file may or may not have been truncated. Later
        // requests wait until that is known.
        let (core, caller, inode) = (Arc::clone(self), caller.clone(), Arc::clone(inode));
        self.run_to_completion(async move {
            let outcome = core.call_setattr(&caller, inode.handle, new).await;
            match new.size {
                Some(size) if outcome.is_ok() => inode.resized(size),
                Some(_) => inode.resize_failed(),
                None => inode.changed(),
            }
            drop(cut);
            let requested_after = inode.changes();
            match outcome? {
                Some(attributes) => {
                    Ok(inode.update_attributes(attributes, Some(requested_after), &core.policy))
                }
                None => core.attributes(&caller, &inode).await,
            }
        })
        .await
    }

    /// Returns a number that was not returned before.
    pub(crate) fn next_unique(&self) -> u64 {
        self.unique.fetch_add(1, Ordering::Relaxed)
    }

    /// A verifier for CREATE that no other client sends.
    pub(crate) fn verifier(&self) -> Verifier {
        self.next_unique().to_be_bytes()
    }
}

/// Open handles by the number that the kernel sends back.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    open: Mutex<Slab<Arc<T>>>,
}

/// The object that a handle stands for.
pub(crate) trait HandleUse {
    /// Called when a request uses the handle, or the handle is gone.
    fn on_use(&self);
}

impl<T: HandleUse> Handles<T> {
    pub(crate) fn new() -> Self {
        Self { open: Mutex::new(Slab::new()) }
    }

    pub(crate) fn insert(&self, value: T) -> u64 {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(Arc::new(value)) as u64
    }

    pub(crate) fn find(&self, number: u64) -> Result<Arc<T>, Errno> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let found =
            usize::try_from(number).ok().and_then(|key| open.get(key).cloned()).ok_or(Errno::EBADF)?;
        drop(open);
        found.on_use();
        Ok(found)
    }

    pub(crate) fn count(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().map(|(_, value)| Arc::clone(value)).collect()
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = open.try_remove(usize::try_from(number).ok()?)?;
        drop(open);
        gone.on_use();
        Some(gone)
    }
}

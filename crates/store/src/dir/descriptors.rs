//! The descriptors of an object's data: one for reading, kept as long as the object is held, and
//! one for writing, closed soon after the last write.
//!
//! While a file is open for writing, nobody on the server can run it (execve(2) answers ETXTBSY) or
//! take a read lease. So the descriptor for writing is closed once no data are unstable, and opened
//! again when needed. While data are unstable it stays open: a failed write-back is reported only
//! on an open descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Descriptors {
    readable: OnceLock<OwnedFd>,
    writable: Mutex<Option<Arc<OwnedFd>>>,
    /// The descriptor for writing was used since the last check.
    used: AtomicBool,
}

/// A descriptor that stays open while this value lives.
pub(super) enum Descriptor<'a> {
    Kept(BorrowedFd<'a>),
    Shared(Arc<OwnedFd>),
}

impl AsFd for Descriptor<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kept(fd) => *fd,
            Self::Shared(fd) => fd.as_fd(),
        }
    }
}

impl Descriptors {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.writable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn readable(&self) -> Option<Descriptor<'_>> {
        let kept = self.readable.get().map(|fd| Descriptor::Kept(fd.as_fd()));
        kept.or_else(|| self.lock().clone().map(Descriptor::Shared))
    }

    pub fn keep_readable(&self, fd: OwnedFd) -> Descriptor<'_> {
        Descriptor::Kept(self.readable.get_or_init(|| fd).as_fd())
    }

    pub fn writable(&self) -> Option<Descriptor<'_>> {
        let found = self.lock().clone()?;
        self.used.store(true, Ordering::Relaxed);
        Some(Descriptor::Shared(found))
    }

    /// Keeps a descriptor for writing, or returns the one that was opened meanwhile.
    pub fn keep_writable(&self, fd: OwnedFd) -> Descriptor<'_> {
        self.used.store(true, Ordering::Relaxed);
        Descriptor::Shared(Arc::clone(self.lock().get_or_insert_with(|| Arc::new(fd))))
    }

    /// Gives up the descriptor for writing, which is closed once nobody uses it any more.
    pub fn take_writable(&self) -> Option<Arc<OwnedFd>> {
        self.lock().take()
    }

    /// Whether there is a descriptor for writing that was not used since the last call.
    pub fn is_writable_idle(&self) -> bool {
        // One that is in use right now is not idle.
        let found = self.writable.try_lock().is_ok_and(|writable| writable.is_some());
        found && !self.used.swap(false, Ordering::Relaxed)
    }
}

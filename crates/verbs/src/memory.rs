//! Protection domains, and memory registered in them: of our own ([`Region`]) or of others
//! ([`Registration`]).

use crate::abi::{
    ACCESS_LOCAL_WRITE, ACCESS_MW_BIND, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, Context,
    DEVICE_MEM_WINDOW_TYPE_2B, DeviceAttr, Mr, Pd,
};
use crate::count::{Counted, Kind};
use crate::identifier::Handle;
use crate::library::library;
use crate::{Error, Identifier, Slice};
use libc::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

/// A protection domain: a peer reaches the memory of the domain that its queue pair is in, and no
/// other.
#[derive(Debug)]
pub struct Domain {
    raw: NonNull<Pd>,
    /// Dropped last.
    _device: Arc<Handle>,
    _counted: Counted,
}

// SAFETY: the libraries' calls on a domain may come from any thread, also at the same time.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// A domain of the device that an identifier is bound to.
    ///
    /// # Errors
    /// An identifier that is bound to no device yet, or the system's refusal.
    pub fn on(identifier: &Identifier) -> Result<Arc<Self>, Error> {
        let library = library()?;
        let context = identifier.context()?;
        // SAFETY: the context is open, and stays so as long as the identifier's handle lives.
        let raw = unsafe { (library.ibv_alloc_pd)(context) };
        let raw = NonNull::new(raw).ok_or_else(|| Error::last("allocate a protection domain"))?;
        Ok(Arc::new(Self { raw, _device: identifier.handle(), _counted: Counted::new(Kind::Domain) }))
    }

    /// Whether the device has the memory windows that [`Window`](crate::Window) needs.
    ///
    /// # Errors
    /// A device that failed.
    pub fn has_windows(&self) -> Result<bool, Error> {
        let mut attributes = DeviceAttr::new();
        // SAFETY: the domain keeps its device open, and there is room for what the library writes.
        let failed = unsafe { (library()?.ibv_query_device)(self.context(), &mut attributes) };
        if failed != 0 {
            return Err(Error::number("ask a device what it can", failed));
        }
        Ok(attributes.device_cap_flags & DEVICE_MEM_WINDOW_TYPE_2B != 0)
    }

    pub(crate) fn context(&self) -> *mut Context {
        // SAFETY: the domain is alive.
        unsafe { self.raw.as_ref() }.context
    }

    pub(crate) fn raw(&self) -> *mut Pd {
        self.raw.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if let Ok(library) = library() {
            // SAFETY: regions and queue pairs hold the domain, so nothing is in it any more.
            unsafe { (library.ibv_dealloc_pd)(self.raw()) };
        }
    }
}

/// What others may do with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: it is for our own sends and receives.
    Local,
    /// Read it.
    RemoteRead,
    /// Write it.
    RemoteWrite,
}

/// Memory of ours that the device knows. Its bytes are copied in and out, never borrowed: a device
/// or a peer may write them at any time.
#[derive(Debug)]
pub struct Region {
    mr: NonNull<Mr>,
    memory: NonNull<u8>,
    bytes: usize,
    _domain: Arc<Domain>,
    _counted: Counted,
}

// SAFETY: a registration belongs to no thread, and the bytes are reached by copies through raw
// pointers only. Two threads that copy at the same time race like two devices do: for bytes, not
// for types.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Fresh zeroed memory, registered.
    ///
    /// # Errors
    /// No memory, or more than may be locked.
    pub fn new(domain: &Arc<Domain>, bytes: usize, access: Access) -> Result<Self, Error> {
        let library = library()?;
        if bytes == 0 {
            return Err(Error::Misuse("a region needs at least one byte"));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: fresh pages at an address of the system's choice.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(Error::last("get memory"));
        }
        let rights = ACCESS_LOCAL_WRITE
            | match access {
                Access::Local => 0,
                Access::RemoteRead => ACCESS_REMOTE_READ,
                Access::RemoteWrite => ACCESS_REMOTE_WRITE,
            };
        // SAFETY: the domain is alive, and the pages are ours until the registration is gone.
        let mr = unsafe { (library.ibv_reg_mr)(domain.raw(), memory, bytes, rights) };
        match (NonNull::new(mr), NonNull::new(memory.cast())) {
            (Some(mr), Some(memory)) => Ok(Self {
                mr,
                memory,
                bytes,
                _domain: Arc::clone(domain),
                _counted: Counted::new(Kind::Region),
            }),
            _ => {
                let source = std::io::Error::last_os_error();
                // SAFETY: the pages from above, which nobody knows.
                unsafe { libc::munmap(memory, bytes) };
                Err(Error::Register { bytes, source })
            }
        }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The key by which a peer reaches it.
    #[must_use]
    pub fn remote_key(&self) -> u32 {
        // SAFETY: the registration is alive.
        unsafe { self.mr.as_ref() }.rkey
    }

    /// Where it begins, as peers count.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// A part of it, for work.
    ///
    /// # Errors
    /// It has fewer bytes.
    pub fn slice(&self, offset: usize, bytes: u32) -> Result<Slice, Error> {
        self.check(offset, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        Ok(Slice { address: self.address() + offset as u64, bytes, key: self.local_key() })
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// They don't fit there.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len())?;
        // SAFETY: the range is within the pages, and nobody borrows them.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.as_ptr().add(offset), bytes.len())
        };
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// There are not so many.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.check(offset, bytes.len())?;
        // SAFETY: the range is within the pages, and nobody borrows them.
        unsafe {
            std::ptr::copy_nonoverlapping(self.memory.as_ptr().add(offset), bytes.as_mut_ptr(), bytes.len())
        };
        Ok(())
    }

    /// The key by which work of this end names it.
    #[must_use]
    pub fn local_key(&self) -> u32 {
        // SAFETY: the registration is alive.
        unsafe { self.mr.as_ref() }.lkey
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        let end = offset.checked_add(bytes);
        end.filter(|end| *end <= self.bytes)
            .map(|_| ())
            .ok_or(Error::Misuse("the bytes are not in the region"))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let Ok(library) = library() else { return };
        // SAFETY: the registration is ours; once it is gone the device no longer touches the pages.
        // Should it stay, the pages stay too.
        unsafe {
            if (library.ibv_dereg_mr)(self.mr.as_ptr()) == 0 {
                libc::munmap(self.memory.as_ptr().cast(), self.bytes);
            }
        }
    }
}

/// A registration of memory that others own, for work of this end only: no peer reaches the memory
/// by it. Dropping it ends the registration.
#[derive(Debug)]
pub struct Registration {
    mr: NonNull<Mr>,
    _domain: Arc<Domain>,
    _counted: Counted,
}

// SAFETY: a registration belongs to no thread.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers memory.
    ///
    /// # Errors
    /// More than may be locked, or the system's refusal.
    ///
    /// # Safety
    /// The memory is mapped, readable and writable until the registration is dropped.
    pub unsafe fn new(domain: &Arc<Domain>, start: NonNull<u8>, bytes: usize) -> Result<Self, Error> {
        // SAFETY: by the caller.
        unsafe { Self::with(domain, start, bytes, ACCESS_LOCAL_WRITE) }
    }

    /// Registers memory to which windows may be bound ([`Window`](crate::Window)). Without a window
    /// no peer reaches it.
    ///
    /// # Errors
    /// More than may be locked, or the system's refusal.
    ///
    /// # Safety
    /// As for [`Registration::new`].
    pub unsafe fn for_windows(domain: &Arc<Domain>, start: NonNull<u8>, bytes: usize) -> Result<Self, Error> {
        // SAFETY: by the caller.
        unsafe { Self::with(domain, start, bytes, ACCESS_LOCAL_WRITE | ACCESS_MW_BIND) }
    }

    /// # Safety
    /// As for [`Registration::new`].
    unsafe fn with(
        domain: &Arc<Domain>,
        start: NonNull<u8>,
        bytes: usize,
        rights: c_int,
    ) -> Result<Self, Error> {
        let library = library()?;
        // SAFETY: the domain is alive, and the caller keeps the memory.
        let mr = unsafe { (library.ibv_reg_mr)(domain.raw(), start.as_ptr().cast(), bytes, rights) };
        let Some(mr) = NonNull::new(mr) else {
            return Err(Error::Register { bytes, source: std::io::Error::last_os_error() });
        };
        Ok(Self { mr, _domain: Arc::clone(domain), _counted: Counted::new(Kind::Region) })
    }

    pub(crate) fn raw(&self) -> *mut Mr {
        self.mr.as_ptr()
    }

    /// The key by which slices name it ([`Slice::registered`]).
    #[must_use]
    pub fn key(&self) -> u32 {
        // SAFETY: the registration is alive.
        unsafe { self.mr.as_ref() }.lkey
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Ok(library) = library() else { return };
        // SAFETY: the registration is ours. Should it stay, the kernel keeps the pages, which then
        // belong to no mapping any more.
        unsafe { (library.ibv_dereg_mr)(self.mr.as_ptr()) };
    }
}

//! Memory windows of type 2B: a peer's right to a part of registered memory that begins and ends
//! with work on a queue pair, so that it costs no system call.
//!
//! A window is bound ([`Identifier::bind_window`]) before the message that tells its key to the
//! peer, and invalidated ([`Work::Invalidate`](crate::Work::Invalidate)) before the memory is used
//! again. The key belongs to the queue pair: no other connection reaches the memory by it.

use crate::abi::{
    ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, BindMw, MW_TYPE_2, Mw, SEND_SIGNALED, SendWr, WR_BIND_MW,
};
use crate::count::{Counted, Kind};
use crate::{Access, Domain, Error, Identifier, Registration};
use libc::c_uint;
use std::ptr::NonNull;
use std::sync::Arc;

/// A memory window. Dropping it ends the peer's right if it is bound, but not what the device is
/// doing with the memory at that moment: destroy the queue pair first.
#[derive(Debug)]
pub struct Window {
    raw: NonNull<Mw>,
    _domain: Arc<Domain>,
    _counted: Counted,
}

// SAFETY: a window belongs to no thread.
unsafe impl Send for Window {}
// SAFETY: only exclusive borrows change it.
unsafe impl Sync for Window {}

impl Window {
    /// A window that is not bound.
    ///
    /// # Errors
    /// A device without windows ([`Domain::has_windows`]), or the system's refusal.
    pub fn new(domain: &Arc<Domain>) -> Result<Self, Error> {
        // SAFETY: the domain keeps its device open.
        let ops = unsafe { &(*domain.context()).ops };
        let (Some(alloc), Some(_)) = (ops.alloc_mw, ops.dealloc_mw) else {
            return Err(Error::Misuse("the device has no memory windows"));
        };
        // SAFETY: the domain is alive.
        let raw = unsafe { alloc(domain.raw(), MW_TYPE_2) };
        let raw = NonNull::new(raw).ok_or_else(|| Error::last("allocate a memory window"))?;
        Ok(Self { raw, _domain: Arc::clone(domain), _counted: Counted::new(Kind::Window) })
    }

    /// The key of the last bind.
    #[must_use]
    pub fn key(&self) -> u32 {
        // SAFETY: the window is alive.
        unsafe { self.raw.as_ref() }.rkey
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the window is ours, and its context is open as long as the domain.
        unsafe {
            let ops = &(*self.raw.as_ref().context).ops;
            if let Some(dealloc) = ops.dealloc_mw {
                dealloc(self.raw.as_ptr());
            }
        }
    }
}

/// The last eight bits of a key are ours to choose, and a bind must change them.
const fn next_key(key: u32) -> u32 {
    (key & !0xff) | (key.wrapping_add(1) & 0xff)
}

impl Identifier {
    /// Posts work that lets the peer read or write a part of registered memory, by the key that
    /// this returns. Work posted later is done later, so a message that follows may name the key.
    ///
    /// # Errors
    /// A queue that is full, or access that gives the peer no right.
    ///
    /// # Safety
    /// The memory lies in the registration, which was made for windows in the queue pair's domain,
    /// and the window is not bound. Until an invalidation of the key has completed or the queue
    /// pair is destroyed, the registration stays, nobody writes memory that the peer may read, and
    /// nobody reads or writes memory that the peer may write.
    pub unsafe fn bind_window(
        &self,
        id: u64,
        window: &mut Window,
        to: (&Registration, u64, u32),
        access: Access,
        completion: bool,
    ) -> Result<u32, Error> {
        let qp = self.queue_pair()?;
        let (registration, addr, length) = to;
        let rights = match access {
            Access::Local => return Err(Error::Misuse("a window is for a peer")),
            Access::RemoteRead => ACCESS_REMOTE_READ,
            Access::RemoteWrite => ACCESS_REMOTE_WRITE,
        };
        let key = next_key(window.key());
        let mut request = SendWr::new();
        request.wr_id = id;
        request.opcode = WR_BIND_MW;
        request.send_flags = if completion { SEND_SIGNALED } else { 0 };
        request.bind = BindMw {
            mw: window.raw.as_ptr(),
            rkey: key,
            mr: registration.raw(),
            addr,
            length: u64::from(length),
            access: c_uint::try_from(rights).unwrap_or(0),
        };
        // SAFETY: window and registration are borrowed.
        unsafe { self.post_raw(qp, &mut request) }?;
        // SAFETY: the window is alive and borrowed exclusively. The library leaves this to its
        // caller, and takes the old key from here at the next bind.
        unsafe { window.raw.as_mut() }.rkey = key;
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_changes_with_each_bind_and_stays_that_of_its_window() {
        assert_eq!(next_key(0x1234_5600), 0x1234_5601);
        assert_eq!(next_key(0x1234_56ff), 0x1234_5600);
    }
}

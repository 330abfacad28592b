//! What happens to connections.

use crate::abi::{self, CmEvent};
use crate::count::{Counted, Kind};
use crate::library::library;
use crate::{Error, Identifier};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A device was found that reaches the address.
    AddressResolved,
    /// No device reaches the address.
    AddressError,
    /// The way there is known.
    RouteResolved,
    /// There is no way.
    RouteError,
    /// Somebody wants to connect.
    ConnectRequest,
    /// Connecting failed on the way.
    ConnectError,
    /// Nobody is there.
    Unreachable,
    /// The other end said no.
    Rejected,
    /// Connected.
    Established,
    /// The connection ended.
    Disconnected,
    /// The device goes away.
    DeviceRemoval,
    /// Something of no consequence here, by its number.
    Other(u32),
}

impl EventKind {
    fn of(number: u32) -> Self {
        match number {
            0 => Self::AddressResolved,
            1 => Self::AddressError,
            2 => Self::RouteResolved,
            3 => Self::RouteError,
            4 => Self::ConnectRequest,
            6 => Self::ConnectError,
            7 => Self::Unreachable,
            8 => Self::Rejected,
            9 => Self::Established,
            10 => Self::Disconnected,
            11 => Self::DeviceRemoval,
            other => Self::Other(other),
        }
    }
}

/// One event; it has been acknowledged.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// To which identifier, as [`Identifier::token`] names it; for a request to connect, the one
    /// that listens.
    pub token: usize,
    /// An error number, or the reason of a rejection.
    pub status: i32,
    /// What the other end said: with a request, an acceptance, a rejection. Padded by some
    /// transports.
    pub private_data: Vec<u8>,
    /// With a request: how many RDMA reads of its memory the other end serves at a time.
    pub reads_allowed: u8,
    /// The new connection of a request.
    pub incoming: Option<Identifier>,
}

/// Where the events of some identifiers arrive.
#[derive(Debug)]
pub struct EventChannel {
    raw: NonNull<abi::EventChannel>,
    _counted: Counted,
}

// SAFETY: the libraries' calls on an event channel may come from any thread, also at the same time.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    /// A channel that never blocks.
    ///
    /// # Errors
    /// Libraries that are missing, a kernel without RDMA.
    pub fn new() -> Result<Arc<Self>, Error> {
        let library = library()?;
        // SAFETY: no arguments.
        let raw = unsafe { (library.rdma_create_event_channel)() };
        // Without the kernel's part, or a device, there is nothing to talk to.
        let raw = NonNull::new(raw).ok_or(Error::NoDevice)?;
        let channel = Self { raw, _counted: Counted::new(Kind::Channel) };
        set_nonblocking(channel.as_fd())?;
        Ok(Arc::new(channel))
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn poll(self: &Arc<Self>) -> Result<Option<Event>, Error> {
        let library = library()?;
        let mut raw: *mut CmEvent = null_mut();
        // SAFETY: the channel is alive, and the place outlives the call.
        if unsafe { (library.rdma_get_cm_event)(self.raw(), &mut raw) } != 0 {
            let error = std::io::Error::last_os_error();
            return match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => Ok(None),
                _ => Err(Error::Io { what: "take a connection's event", source: error }),
            };
        }
        // SAFETY: the library gave an event, ours until it is acknowledged; all is copied out
        // before.
        let (event, id) = unsafe {
            let CmEvent { id, listen_id, event, status, conn } = &*raw;
            let kind = EventKind::of(*event);
            let length = if conn.private_data.is_null() { 0 } else { usize::from(conn.private_data_len) };
            let has_data =
                matches!(kind, EventKind::ConnectRequest | EventKind::Established | EventKind::Rejected);
            let private_data = if has_data && length > 0 {
                std::slice::from_raw_parts(conn.private_data.cast::<u8>(), length).to_vec()
            } else {
                Vec::new()
            };
            let request = kind == EventKind::ConnectRequest;
            let token = if request { *listen_id as usize } else { *id as usize };
            let incoming = if request { *id } else { null_mut() };
            // What the other end serves is told as what we may begin.
            let reads_allowed = if request { conn.initiator_depth } else { 0 };
            (Event { kind, token, status: *status, private_data, reads_allowed, incoming: None }, incoming)
        };
        // SAFETY: the event from above, and nothing of it is used any more.
        unsafe { (library.rdma_ack_cm_event)(raw) };
        let incoming = NonNull::new(id).map(|id| Identifier::incoming(id, self));
        Ok(Some(Event { incoming, ..event }))
    }

    pub(crate) fn raw(&self) -> *mut abi::EventChannel {
        self.raw.as_ptr()
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel has an open file descriptor as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        if let Ok(library) = library() {
            // SAFETY: identifiers hold their channel, so none uses it any more.
            unsafe { (library.rdma_destroy_event_channel)(self.raw()) };
        }
    }
}

/// Loops wait for many descriptors, and never in a call of the libraries.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Error> {
    let fd = fd.as_raw_fd();
    // SAFETY: the descriptor is open, and the calls touch its flags only.
    let failed = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0
    };
    if failed { Err(Error::last("make a channel non-blocking")) } else { Ok(()) }
}

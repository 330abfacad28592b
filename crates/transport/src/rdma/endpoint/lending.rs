//! Memory of a caller that a client lends to its server for the time of one call, so that the
//! server reads and writes the payload where it is.
//!
//! A memory window is bound to the memory before the call is sent, and invalidated after the reply:
//! the server's right ends while the connection goes on. Memory returns to its owner
//!
//! - when the invalidation has completed ([`Endpoint::take_back`]), or
//! - when the queue pair is destroyed ([`Endpoint::end_lending`]), whatever became of the call.
//!
//! A server that answers before it has written, or uses the key after its answer, loses the
//! connection at that moment: its device is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memory::{Registered, Registrar};
use rpcrdma::header::Segment;
use smallvec::SmallVec;
use verbs::{Access, Domain, Window, Work};

use super::super::domain::{Bindable, callers_registrar, lock};
use super::{Endpoint, Error, Job, NO_DEVICE};

/// A device has refused to bind or to invalidate a window although it says that it has windows.
/// Every further try would cost a connection.
static UNUSABLE: AtomicBool = AtomicBool::new(false);

/// The windows of a connection.
#[derive(Debug)]
pub(super) struct Windows {
    // Windows go before the registrations that they are bound to.
    all: Vec<Window>,
    free: Vec<usize>,
    /// How many pieces of memory the server has a right to.
    lent: usize,
    /// Keys that the server has invalidated itself, as the device says.
    invalidated: Vec<u32>,
    registrar: Registrar,
    bindable: Arc<Bindable>,
    domain: Arc<Domain>,
    count_max: usize,
}

/// Memory that the server has a right to.
#[derive(Debug)]
pub(in crate::rdma) struct Lent {
    window: usize,
    key: u32,
    memory: Registered,
}

impl Windows {
    /// None where the device has no windows.
    pub fn on(domain: &Arc<Domain>, count_max: u32) -> Option<Self> {
        if count_max == 0 || UNUSABLE.load(Ordering::Relaxed) || !domain.has_windows().unwrap_or(false) {
            return None;
        }
        let bindable = Arc::default();
        Some(Self {
            all: Vec::new(),
            free: Vec::new(),
            lent: 0,
            invalidated: Vec::new(),
            registrar: callers_registrar(domain, &bindable),
            bindable,
            domain: Arc::clone(domain),
            count_max: usize::try_from(count_max).unwrap_or(0),
        })
    }

    pub const fn registrar(&self) -> &Registrar {
        &self.registrar
    }

    fn take(&mut self) -> Option<usize> {
        if let Some(free) = self.free.pop() {
            return Some(free);
        }
        if self.all.len() >= self.count_max {
            return None;
        }
        self.all.push(Window::new(&self.domain).ok()?);
        Some(self.all.len() - 1)
    }
}

/// Records that a bind failed by itself, and not because the connection had ended.
pub(super) fn note_failure(failure: &str) {
    if failure.contains("Flushed") || UNUSABLE.swap(true, Ordering::Relaxed) {
        return;
    }
    tracing::warn!(failure, "the RDMA device does not bind memory windows; RDMA copies payload");
}

impl Lent {
    /// What the server is told of the memory.
    pub fn segment(&self) -> Segment {
        let length = u32::try_from(self.memory.bytes).unwrap_or(u32::MAX);
        Segment { handle: self.key, length, offset: self.memory.start }
    }

    /// Whether this slice is the beginning of the memory.
    pub fn is_at(&self, slice: &[u8]) -> bool {
        slice.as_ptr().addr() as u64 == self.memory.start && slice.len() <= self.memory.bytes
    }

    /// Copies bytes out, after the server's right has ended and before the memory has returned to
    /// its owner; fewer if there are not so many.
    pub fn read(&self, from: usize, into: &mut [u8]) {
        let part = self.memory.part(from, into.len());
        let start = std::ptr::with_exposed_provenance::<u8>(usize::try_from(part.start).unwrap_or(0));
        // SAFETY: the owner of the call keeps the memory until its reply is delivered, and neither
        // the owner nor the device uses it now. It does not overlap a slice that is borrowed.
        unsafe { std::ptr::copy_nonoverlapping(start, into.as_mut_ptr(), part.bytes) };
    }
}

impl<T> Endpoint<T> {
    /// Lets the server read or write memory that is registered with [`Endpoint::registrar`]; a
    /// message that is sent later may name the key. `None` if the memory cannot be lent now.
    ///
    /// # Errors
    /// An endpoint that has no device yet.
    ///
    /// # Safety
    /// Until [`Endpoint::take_back`] is done, [`Endpoint::end_lending`] has returned or the
    /// endpoint was dropped, nobody writes memory that the server may read, and nobody reads or
    /// writes memory that it may write.
    pub(in crate::rdma) unsafe fn lend(
        &mut self,
        memory: &Registered,
        access: Access,
    ) -> Result<Option<Lent>, Error> {
        // The bind must precede the message, also in the queue.
        if !self.waiting.is_empty() || !self.has_room() {
            return Ok(None);
        }
        let signalled = self.is_to_signal(false);
        let Some(windows) = &mut self.on_device.as_mut().ok_or(NO_DEVICE)?.windows else { return Ok(None) };
        let registration = lock(&windows.bindable).get(&memory.key).cloned();
        let (Some(registration), Ok(bytes)) = (registration, u32::try_from(memory.bytes)) else {
            return Ok(None);
        };
        let Some(at) = windows.take() else { return Ok(None) };
        let Some(window) = windows.all.get_mut(at) else { return Ok(None) };
        let to = (&*registration, memory.start, bytes);
        // SAFETY: by the caller; a window that is not bound is free, and the registration lives as
        // long as the memory's area and the registrar, which go after the queue pair.
        let key = unsafe { self.identifier.bind_window(self.number, window, to, access, signalled) };
        let Ok(key) = key.inspect_err(|error| note_failure(&error.to_string())) else {
            windows.free.push(at);
            return Ok(None);
        };
        // A window has the same keys again and again: what was said of this one before is over.
        windows.invalidated.retain(|earlier| *earlier != key);
        windows.lent += 1;
        self.counters.lent += 1;
        self.note_posted(signalled, None, None, None);
        self.mark_window();
        Ok(Some(Lent { window: at, key, memory: *memory }))
    }

    /// Ends the server's right. When this is done, which its tag says, the memory may be used
    /// again; then call [`Endpoint::was_returned`].
    ///
    /// # Errors
    /// Errors of the system.
    pub(in crate::rdma) fn take_back(&mut self, lent: &Lent, tag: T) -> Result<(), Error> {
        let on_device = self.on_device.as_mut().ok_or(NO_DEVICE)?;
        if let Some(windows) = &mut on_device.windows
            && let Some(at) = windows.invalidated.iter().position(|key| *key == lent.key)
        {
            // An invalid key must not be invalidated once more. RFC 8797 s3.2
            windows.invalidated.swap_remove(at);
            self.done.push_back(tag);
            return Ok(());
        }
        let work = Work::Invalidate { key: lent.key };
        self.waiting.push_back((Job::Move { work, slices: SmallVec::new(), keeps: None }, Some(tag)));
        self.post_waiting()
    }

    /// Records that the server has ended its right by this key, although nobody asked for that.
    pub(super) fn was_invalidated(&mut self, key: u32) {
        if let Some(windows) = self.on_device.as_mut().and_then(|on_device| on_device.windows.as_mut())
            && windows
                .all
                .iter()
                .enumerate()
                .any(|(at, window)| window.key() == key && !windows.free.contains(&at))
        {
            windows.invalidated.push(key);
        }
    }

    /// The window may be used again.
    pub(in crate::rdma) fn was_returned(&mut self, lent: &Lent) {
        if let Some(windows) = self.on_device.as_mut().and_then(|on_device| on_device.windows.as_mut()) {
            // The server may have invalidated the key at the same time. The same key comes again.
            windows.invalidated.retain(|key| *key != lent.key);
            if lent.window < windows.all.len() {
                windows.free.push(lent.window);
            }
            windows.lent = windows.lent.saturating_sub(1);
        }
    }

    /// Whether the server has a right to memory of a caller.
    pub(in crate::rdma) fn has_lent(&self) -> bool {
        let windows = self.on_device.as_ref().and_then(|on_device| on_device.windows.as_ref());
        windows.is_some_and(|windows| windows.lent > 0)
    }

    /// Ends the server's right to all memory, and the connection: when this returns, the device
    /// uses no memory for it any more. Takes as long as a few commands of the device.
    pub(in crate::rdma) fn end_lending(&mut self) {
        if let Some(windows) = self.on_device.as_mut().and_then(|on_device| on_device.windows.as_mut()) {
            // A registration cannot end while a window is bound to it, and the owner of the memory
            // may unmap it before the rest of the connection is freed. Soft-RoCE cannot end a queue
            // pair with bound windows either, so the windows go first.
            windows.free.clear();
            windows.all.clear();
            windows.lent = 0;
        }
        self.identifier.destroy_queue_pair();
    }
}

//! Completions: polled without a system call, waited for on a file descriptor.

use crate::abi::{
    CompChannel, Cq, WC_RECEIVER_RETRY_EXCEEDED, WC_RECV, WC_RETRY_EXCEEDED, WC_WITH_IMM, WC_WITH_INV,
    WC_WITH_INV_OF_KERNEL, Wc,
};
use crate::count::{Counted, Kind};
use crate::event::set_nonblocking;
use crate::identifier::Handle;
use crate::library::library;
use crate::{Error, Identifier};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Completions taken in one call: a handful is as good as many, and stays on the stack.
const BATCH: usize = 16;

/// What became of a piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The number that the work was posted with.
    pub id: u64,
    /// Whether it was a receive. Known for work that succeeded; what failed is known by its number.
    pub received: bool,
    /// How many bytes were received.
    pub bytes: u32,
    /// The key that the received message has invalidated. It is one of ours, or means nothing.
    pub invalidated: Option<u32>,
    /// Why it failed, in the library's words; after a failure the queue pair carries nothing more.
    pub failure: Option<String>,
    /// Whether it failed because the peer did not acknowledge it in time.
    pub unacknowledged: bool,
}

/// A completion queue with a channel of its own.
#[derive(Debug)]
pub struct Queue {
    raw: NonNull<Cq>,
    channel: NonNull<CompChannel>,
    _device: Arc<Handle>,
    _counted: Counted,
}

// SAFETY: the libraries' calls on a completion queue may come from any thread, also at the same
// time.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// A queue for so many completions on the device that an identifier is bound to.
    ///
    /// # Errors
    /// An identifier that is bound to no device yet, or the system's refusal.
    pub fn on(identifier: &Identifier, entries: u32) -> Result<Arc<Self>, Error> {
        let library = library()?;
        let context = identifier.context()?;
        // SAFETY: the context is open, and stays so as long as the identifier's handle lives.
        let channel = unsafe { (library.ibv_create_comp_channel)(context) };
        let channel = NonNull::new(channel).ok_or_else(|| Error::last("create a completion channel"))?;
        let entries = i32::try_from(entries).map_err(|_| Error::Misuse("too many completions"))?;
        // SAFETY: context and channel are open, vector 0 exists on every device.
        let raw = unsafe { (library.ibv_create_cq)(context, entries, null_mut(), channel.as_ptr(), 0) };
        let Some(raw) = NonNull::new(raw) else {
            let error = Error::last("create a completion queue");
            // SAFETY: the channel from above, which nothing uses.
            unsafe { (library.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let _counted = Counted::new(Kind::Queue);
        let queue = Self { raw, channel, _device: identifier.handle(), _counted };
        set_nonblocking(queue.as_fd())?;
        Ok(Arc::new(queue))
    }

    /// Takes what is complete, without waiting; adds it to `into` and gives how many that were.
    ///
    /// # Errors
    /// A device that failed.
    pub fn poll(&self, into: &mut Vec<Completion>) -> Result<usize, Error> {
        let library = library()?;
        let mut batch = [Wc::default(); BATCH];
        let most = i32::try_from(BATCH).unwrap_or(1);
        // SAFETY: the queue is alive, its context's table has this function, and there is room for
        // so many.
        let count = unsafe {
            let cq = self.raw.as_ptr();
            ((*(*cq).context).ops.poll_cq)(cq, most, batch.as_mut_ptr())
        };
        let count = usize::try_from(count).map_err(|_| Error::last("take completions"))?;
        into.extend(batch.iter().take(count).map(|wc| Completion {
            id: wc.wr_id,
            received: wc.opcode & WC_RECV != 0,
            bytes: wc.byte_len,
            invalidated: invalidated(wc),
            unacknowledged: matches!(wc.status, WC_RETRY_EXCEEDED | WC_RECEIVER_RETRY_EXCEEDED),
            failure: (wc.status != 0).then(|| {
                // SAFETY: the library has a text for every number, in memory of its own.
                unsafe { CStr::from_ptr((library.ibv_wc_status_str)(wc.status)) }
                    .to_string_lossy()
                    .into_owned()
            }),
        }));
        Ok(count)
    }

    /// Makes the file descriptor readable at the next completion. Poll once more after this: one
    /// may have come before.
    ///
    /// # Errors
    /// A device that failed.
    pub fn arm(&self) -> Result<(), Error> {
        // SAFETY: the queue is alive, and its context's table has this function.
        let failed = unsafe {
            let cq = self.raw.as_ptr();
            ((*(*cq).context).ops.req_notify_cq)(cq, 0)
        };
        if failed == 0 { Ok(()) } else { Err(Error::number("arm a completion queue", failed)) }
    }

    /// Takes the notices that made the file descriptor readable.
    ///
    /// # Errors
    /// Libraries that are missing.
    pub fn take_notices(&self) -> Result<u32, Error> {
        let library = library()?;
        let (mut cq, mut context, mut count) = (null_mut(), null_mut(), 0);
        // SAFETY: the channel is alive and non-blocking, and both places outlive the call.
        while unsafe { (library.ibv_get_cq_event)(self.channel.as_ptr(), &mut cq, &mut context) } == 0 {
            count += 1;
        }
        if count > 0 {
            // SAFETY: this channel has this one queue.
            unsafe { (library.ibv_ack_cq_events)(self.raw.as_ptr(), count) };
        }
        Ok(count)
    }

    pub(crate) fn raw(&self) -> *mut Cq {
        self.raw.as_ptr()
    }
}

/// Immediate data, which the peer chooses, has the same place.
fn invalidated(wc: &Wc) -> Option<u32> {
    let flagged = wc.wc_flags & (WC_WITH_INV | WC_WITH_INV_OF_KERNEL) != 0;
    (wc.status == 0 && flagged && wc.wc_flags & WC_WITH_IMM == 0).then_some(wc.invalidated_rkey)
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel has an open file descriptor as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Ok(library) = library() {
            // SAFETY: queue pairs hold their queue, so none uses it any more; all notices have been
            // acknowledged.
            unsafe {
                (library.ibv_destroy_cq)(self.raw());
                (library.ibv_destroy_comp_channel)(self.channel.as_ptr());
            }
        }
    }
}

//! Work for a connection's queue pair.

use crate::abi::{
    Qp, RecvWr, SEND_FENCE, SEND_SIGNALED, SendWr, Sge, WR_LOCAL_INV, WR_RDMA_READ, WR_RDMA_WRITE, WR_SEND,
    WR_SEND_WITH_INV,
};
use crate::{Error, Identifier};
use std::ptr::null_mut;

/// The most slices in one piece of work: what devices commonly take.
pub const SLICES_MAX: usize = 16;

/// A part of registered memory ([`Region::slice`](crate::Region::slice)). Work on memory whose
/// registration has ended fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) key: u32,
}

impl Slice {
    /// A part of memory that somebody else owns, by its address and the key of its
    /// [`Registration`](crate::Registration).
    ///
    /// # Safety
    /// Until the work that it is posted with has completed, or the queue pair is destroyed, the
    /// memory stays what it is: work that sends or writes it needs bytes that do not change, work
    /// that fills it needs memory that nobody else reads or writes.
    #[must_use]
    pub const unsafe fn registered(address: u64, bytes: u32, key: u32) -> Self {
        Self { address, bytes, key }
    }

    /// The length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    const fn raw(&self) -> Sge {
        Sge { addr: self.address, length: self.bytes, lkey: self.key }
    }
}

/// What to do with the slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Send them as a message.
    Send {
        /// A registration of the peer that this ends. On a plain registration that kills the queue
        /// pair.
        invalidate: Option<u32>,
    },
    /// Write them into the peer's memory.
    Write {
        /// Where, as the peer counts.
        address: u64,
        /// By which key.
        key: u32,
    },
    /// Fill them from the peer's memory.
    Read {
        /// From where, as the peer counts.
        address: u64,
        /// By which key.
        key: u32,
    },
    /// End the peer's right to the memory of a window ([`Window`](crate::Window)). Takes no slices.
    /// When this has completed, the peer reaches the memory no more.
    Invalidate {
        /// The key that the window was bound with.
        key: u32,
    },
}

impl Identifier {
    /// Posts a receive; its completion bears this number.
    ///
    /// # Errors
    /// A queue that is full.
    pub fn post_receive(&self, id: u64, into: Slice) -> Result<(), Error> {
        let qp = self.queue_pair()?;
        let mut sge = into.raw();
        let mut request = RecvWr { wr_id: id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive and its context's table has this function; the request
        // and its slice are copied before it returns; the slice is in a region that is registered.
        let failed = unsafe { ((*(*qp).context).ops.post_recv)(qp, &mut request, &mut bad) };
        if failed == 0 { Ok(()) } else { Err(Error::number("post a receive", failed)) }
    }

    /// Posts work; its completion, where one is asked for, bears this number. Work that fails
    /// always completes. With `fence` it begins only after the reads posted before it have ended.
    ///
    /// # Errors
    /// Too many slices, a queue that is full.
    pub fn post(
        &self,
        id: u64,
        work: Work,
        slices: &[Slice],
        completion: bool,
        fence: bool,
    ) -> Result<(), Error> {
        let qp = self.queue_pair()?;
        if slices.len() > SLICES_MAX {
            return Err(Error::Misuse("too many slices in one piece of work"));
        }
        let mut list = [Sge { addr: 0, length: 0, lkey: 0 }; SLICES_MAX];
        for (place, slice) in list.iter_mut().zip(slices) {
            *place = slice.raw();
        }
        let mut request = SendWr::new();
        request.wr_id = id;
        request.sg_list = list.as_mut_ptr();
        request.num_sge = i32::try_from(slices.len()).unwrap_or(0);
        request.send_flags = if completion { SEND_SIGNALED } else { 0 } | if fence { SEND_FENCE } else { 0 };
        match work {
            Work::Send { invalidate: None } => request.opcode = WR_SEND,
            Work::Send { invalidate: Some(key) } => {
                (request.opcode, request.invalidate_rkey) = (WR_SEND_WITH_INV, key);
            }
            Work::Write { address, key } => {
                (request.opcode, request.remote_addr, request.rkey) = (WR_RDMA_WRITE, address, key);
            }
            Work::Read { address, key } => {
                (request.opcode, request.remote_addr, request.rkey) = (WR_RDMA_READ, address, key);
            }
            Work::Invalidate { key } => {
                (request.opcode, request.invalidate_rkey) = (WR_LOCAL_INV, key);
            }
        }
        // SAFETY: the slices live, and so does the list of them; they are in regions that are
        // registered.
        unsafe { self.post_raw(qp, &mut request) }
    }

    /// # Safety
    /// What the request points to is alive.
    pub(crate) unsafe fn post_raw(&self, qp: *mut Qp, request: &mut SendWr) -> Result<(), Error> {
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive and its context's table has this function; the request
        // and what it points to are copied before it returns.
        let failed = unsafe { ((*(*qp).context).ops.post_send)(qp, request, &mut bad) };
        if failed == 0 { Ok(()) } else { Err(Error::number("post work", failed)) }
    }
}

//! Work for a connection's queue pair.

use crate::abi::{
    RecvWr, SEND_FENCE, SEND_SIGNALED, SendWr, Sge, WR_RDMA_READ, WR_RDMA_WRITE, WR_SEND, WR_SEND_WITH_INV,
};
use crate::{Error, Identifier, Region};
use std::ptr::null_mut;

/// The most slices in one piece of work: what devices commonly take.
pub const SLICES_MAX: usize = 16;

/// A part of a region.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a> {
    /// The region.
    pub region: &'a Region,
    /// From which byte on.
    pub offset: usize,
    /// How many.
    pub bytes: u32,
}

impl Slice<'_> {
    fn raw(&self) -> Result<Sge, Error> {
        self.region.check(self.offset, usize::try_from(self.bytes).unwrap_or(usize::MAX))?;
        let addr = self.region.address() + self.offset as u64;
        Ok(Sge { addr, length: self.bytes, lkey: self.region.local_key() })
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
}

impl Identifier {
    /// Posts a receive; its completion bears this number.
    ///
    /// # Errors
    /// A slice that is not in its region, a queue that is full.
    pub fn post_receive(&self, id: u64, into: Slice<'_>) -> Result<(), Error> {
        let qp = self.queue_pair()?;
        let mut sge = into.raw()?;
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
    /// A slice that is not in its region, too many slices, a queue that is full.
    pub fn post(
        &self,
        id: u64,
        work: Work,
        slices: &[Slice<'_>],
        completion: bool,
        fence: bool,
    ) -> Result<(), Error> {
        let qp = self.queue_pair()?;
        if slices.len() > SLICES_MAX {
            return Err(Error::Misuse("too many slices in one piece of work"));
        }
        let mut list = [Sge { addr: 0, length: 0, lkey: 0 }; SLICES_MAX];
        for (place, slice) in list.iter_mut().zip(slices) {
            *place = slice.raw()?;
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
        }
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive and its context's table has this function; the request
        // and its slices are copied before it returns; the slices are in regions that are
        // registered.
        let failed = unsafe { ((*(*qp).context).ops.post_send)(qp, &mut request, &mut bad) };
        if failed == 0 { Ok(()) } else { Err(Error::number("post work", failed)) }
    }
}

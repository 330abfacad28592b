//! Reads, writes and flushes that the kernel executes (io_uring).
//!
//! Each operation has a slot, which owns its memory until the kernel has completed it. The mailbox
//! of the queue is polled through the ring too, so that one descriptor tells of both.

#![allow(unsafe_code)]

use crate::disk::{Disk, RETRIES_MAX, SLICES_MAX, rest};
use crate::operation::{Completion, Fault, Operation};
use crate::payload::{Payload, Segment, buffers_for, payload_bytes};
use crate::waker::Mailbox;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use memory::Buffers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Marks the completion of the mailbox's poll; no slot has this number.
const MAILBOX: u64 = u64::MAX;
/// How long a queue that is dropped waits for the kernel before it abandons the memory.
const DROP_WAIT: Duration = Duration::from_secs(5);
const DROP_POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Read,
    Write { durable: bool },
    Flush,
}

/// An operation that the kernel executes, or a free place.
struct Slot {
    /// `None` while the place is free.
    disk: Option<Arc<Disk>>,
    tag: u64,
    request: Request,
    at: u64,
    payload: Payload,
    bytes: usize,
    done: usize,
    retries: u32,
    /// Where the kernel finds the slices; does not change while it executes the request.
    slices: Vec<libc::iovec>,
}

// SAFETY: the pointers in `slices` refer to memory of `payload`, which may move between threads,
// and are used by the kernel only.
unsafe impl Send for Slot {}

impl Slot {
    fn free() -> Self {
        Self {
            disk: None,
            tag: 0,
            request: Request::Flush,
            at: 0,
            payload: Payload::new(),
            bytes: 0,
            done: 0,
            retries: 0,
            slices: Vec::new(),
        }
    }

    /// Makes the request for what is left to do.
    fn request(&mut self, number: usize) -> Option<squeue::Entry> {
        let file = Fd(self.disk.as_ref()?.file.as_raw_fd());
        let at = self.at + self.done as u64;
        self.slices.clear();
        let slice = |base: *mut u8, len| libc::iovec { iov_base: base.cast(), iov_len: len };
        let entry = match self.request {
            Request::Read => {
                let mut skip = self.done;
                for buffer in self.payload.iter_mut().filter_map(Segment::as_bytes_mut) {
                    let from = skip.min(buffer.len());
                    skip -= from;
                    if let Some(rest) = buffer.get_mut(from..).filter(|rest| !rest.is_empty()) {
                        self.slices.push(slice(rest.as_mut_ptr(), rest.len()));
                    }
                }
                self.slices.truncate(SLICES_MAX);
                opcode::Readv::new(file, self.slices.as_ptr(), self.slices.len() as u32).offset(at).build()
            }
            Request::Write { durable } => {
                let left = rest(&self.payload, self.done);
                self.slices.extend(left.map(|rest| slice(rest.as_ptr().cast_mut(), rest.len())));
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                let request = opcode::Writev::new(file, self.slices.as_ptr(), self.slices.len() as u32);
                request.offset(at).rw_flags(flags).build()
            }
            Request::Flush => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
        };
        Some(entry.user_data(number as u64))
    }

    /// Takes the kernel's answer: the end of the operation, or `None` if it goes on.
    fn answered(&mut self, result: i32) -> Option<Result<(), Fault>> {
        match usize::try_from(result) {
            Ok(_) if self.request == Request::Flush => Some(Ok(())),
            // The end of a file that somebody has made shorter.
            Ok(0) => Some(Err(Fault::Gone)),
            Ok(count) => {
                self.done += count;
                (self.done >= self.bytes).then_some(Ok(()))
            }
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::INTR | Errno::AGAIN if self.retries < RETRIES_MAX => {
                    self.retries += 1;
                    None
                }
                errno => Some(Err(errno.into())),
            },
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

struct Inner {
    // Before the slots: no request is begun any more once they are dropped.
    ring: IoUring,
    slots: Box<[Slot]>,
    free: Vec<usize>,
}

/// A ring and its slots.
pub(crate) struct Ring {
    inner: ManuallyDrop<Inner>,
    mailbox: Arc<Mailbox>,
    /// The mailbox is being polled.
    is_polled: bool,
}

impl Ring {
    /// A ring for `depth` operations, if the system permits it.
    pub fn new(depth: usize, mailbox: &Arc<Mailbox>) -> io::Result<Self> {
        // One more for the poll of the mailbox. The kernel's queue of completions is twice as long,
        // so it cannot overflow.
        let entries = u32::try_from(depth + 1).map_err(|_| io::ErrorKind::InvalidInput)?;
        let ring = IoUring::new(entries.next_power_of_two())?;
        let slots = (0..depth).map(|_| Slot::free()).collect();
        let inner = Inner { ring, slots, free: (0..depth).rev().collect() };
        let mailbox = Arc::clone(mailbox);
        let mut made = Self { inner: ManuallyDrop::new(inner), mailbox, is_polled: false };
        made.poll_mailbox();
        made.kick()?;
        Ok(made)
    }

    /// Begins an operation. Those that the kernel has no request for come back.
    pub fn begin(
        &mut self,
        disk: &Arc<Disk>,
        tag: u64,
        operation: Operation,
        buffers: &Arc<Buffers>,
    ) -> Result<(), Operation> {
        let (request, at, payload) = match operation {
            Operation::Read { at, bytes } => (Request::Read, at, buffers_for(bytes, buffers)),
            Operation::Write { at, payload, durable } => (Request::Write { durable }, at, payload),
            Operation::Flush => (Request::Flush, 0, Payload::new()),
            other => return Err(other),
        };
        let Some(number) = self.inner.free.pop() else {
            // The queue admits no more operations than there are slots.
            return Err(match request {
                Request::Read => Operation::Read { at, bytes: payload_bytes(&payload) },
                Request::Write { durable } => Operation::Write { at, payload, durable },
                Request::Flush => Operation::Flush,
            });
        };
        let slot = &mut self.inner.slots[number];
        let slices = std::mem::take(&mut slot.slices);
        let bytes = payload_bytes(&payload);
        let disk = Some(Arc::clone(disk));
        *slot = Slot { disk, tag, request, at, payload, bytes, done: 0, retries: 0, slices };
        self.push(number);
        Ok(())
    }

    /// Hands requests to the kernel.
    pub fn kick(&mut self) -> io::Result<()> {
        if self.inner.ring.submission().is_empty() {
            return Ok(());
        }
        let mut retries = 0;
        loop {
            match self.inner.ring.submit() {
                Ok(_) => return Ok(()),
                // The kernel lacks memory at the moment, or was interrupted.
                Err(error) if retries < RETRIES_MAX && is_transient(&error) => {
                    retries += 1;
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends what has completed, and prepares requests for the rest of what has only begun.
    pub fn reap(&mut self, out: &mut Vec<Completion>) {
        while let Some((number, result)) = self.next() {
            if number == MAILBOX {
                self.is_polled = false;
                continue;
            }
            let number = number as usize;
            let Some(slot) = self.inner.slots.get_mut(number) else { continue };
            let Some(end) = slot.answered(result) else {
                self.push(number);
                continue;
            };
            let payload = std::mem::take(&mut slot.payload);
            let result = end.map(|()| if slot.request == Request::Read { payload } else { Payload::new() });
            slot.disk = None;
            out.push(Completion { tag: slot.tag, result });
            self.inner.free.push(number);
        }
    }

    /// Polls the mailbox again, and hands on what [`reap`](Self::reap) has begun. After the mailbox
    /// was emptied, so that the poll does not end at once.
    pub fn go_on(&mut self) {
        if !self.is_polled {
            self.poll_mailbox();
        }
        // An error is one of the next kick, too.
        let _ = self.kick();
    }

    fn next(&mut self) -> Option<(u64, i32)> {
        let entry = self.inner.ring.completion().next()?;
        Some((entry.user_data(), entry.result()))
    }

    fn push(&mut self, number: usize) {
        if let Some(entry) = self.inner.slots[number].request(number) {
            self.push_entry(&entry);
        }
    }

    fn poll_mailbox(&mut self) {
        let events = PollFlags::IN.bits().into();
        let poll = opcode::PollAdd::new(Fd(self.mailbox.as_fd().as_raw_fd()), events).build();
        self.push_entry(&poll.user_data(MAILBOX));
        self.is_polled = true;
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: the memory that the entry names is that of its slot, which neither moves nor
        // changes before the kernel has completed the request: the slots are in a box, and `drop`
        // waits or leaves them alone for ever. The queue has a place for each slot and the poll,
        // and each of them has one request at most.
        let pushed = unsafe { self.inner.ring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "more requests than slots");
    }

    fn executing(&self) -> usize {
        self.inner.slots.len() - self.inner.free.len()
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor, and is borrowed for as long.
        unsafe { BorrowedFd::borrow_raw(self.inner.ring.as_raw_fd()) }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("executing", &self.executing()).finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let end = Instant::now() + DROP_WAIT;
        let mut ignored = Vec::new();
        let _ = self.kick();
        self.reap(&mut ignored);
        while self.executing() > 0 && Instant::now() < end {
            let _ = poll(&mut [PollFd::new(&self.as_fd(), PollFlags::IN)], Some(&DROP_POLL));
            self.reap(&mut ignored);
            let _ = self.kick();
        }
        if self.executing() == 0 {
            // SAFETY: this is the destructor, so it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
        // Otherwise a device may still write into the memory of the slots: it is never freed, and
        // the files stay open and locked until the kernel is done and the process ends.
    }
}

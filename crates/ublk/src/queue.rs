//! The queue of a device: requests of the kernel, their data and their completions.

#![allow(unsafe_code)]

use crate::control::is_transient;
use crate::mailbox::{Completion, Mailbox};
use crate::sys::{Descriptor, Descriptors};
use crate::wire::{self, DATA_OFFSET, TAG_SHIFT};
use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use rustix::buffer::spare_capacity;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

/// Marks the completion of the mailbox's poll; no request has this number.
const MAILBOX: u64 = u64::MAX;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Data, by [`Handle::give_data`].
    Read,
    /// To write data, from [`Handle::take_data`].
    Write {
        /// They are durable before the completion.
        durable: bool,
    },
    /// To make completed changes durable.
    Flush,
    /// The range is not needed any more.
    Discard,
    /// To write zeroes.
    WriteZeroes {
        /// They are durable before the completion.
        durable: bool,
        /// Space may be given up.
        may_deallocate: bool,
    },
    /// Something that this device does not offer.
    Other,
}

/// A request of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Its number, until it is completed.
    pub tag: u16,
    /// What it asks for.
    pub kind: Kind,
    /// The first byte.
    pub offset: u64,
    /// The length.
    pub bytes: u64,
}

impl Request {
    fn decode(tag: u16, descriptor: &Descriptor) -> Self {
        let durable = descriptor.operation & wire::FUA != 0;
        let kind = match descriptor.operation & 0xff {
            wire::READ => Kind::Read,
            wire::WRITE => Kind::Write { durable },
            wire::FLUSH => Kind::Flush,
            wire::DISCARD => Kind::Discard,
            wire::WRITE_ZEROES => {
                Kind::WriteZeroes { durable, may_deallocate: descriptor.operation & wire::NO_UNMAP == 0 }
            }
            _ => Kind::Other,
        };
        let bytes = |sectors: u64| sectors.saturating_mul(512);
        Self { tag, kind, offset: bytes(descriptor.start_sector), bytes: bytes(descriptor.sectors.into()) }
    }

    /// What the driver is told of the end of this request.
    fn result(&self, outcome: Result<usize, i32>) -> i32 {
        let moved = i32::try_from(self.bytes).unwrap_or(i32::MAX);
        match (self.kind, outcome) {
            (_, Err(errno)) => -errno.max(1),
            (Kind::Read, Ok(given)) if given as u64 != self.bytes => -libc::EIO,
            (Kind::Read | Kind::Write { .. }, Ok(_)) => moved,
            (_, Ok(_)) => 0,
        }
    }
}

/// Moves data of requests and completes them, from any thread.
#[derive(Debug, Clone)]
pub struct Handle {
    device: Arc<File>,
    mailbox: Arc<Mailbox>,
}

fn data_offset(tag: u16) -> u64 {
    DATA_OFFSET + (u64::from(tag) << TAG_SHIFT)
}

impl Handle {
    /// The data of a write.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn take_data(&self, request: &Request) -> io::Result<Vec<u8>> {
        let bytes = usize::try_from(request.bytes).map_err(|_| ErrorKind::InvalidInput)?;
        let mut data = Vec::with_capacity(bytes);
        while data.len() < bytes {
            let at = data_offset(request.tag) + data.len() as u64;
            // The allocator may have given more room than was asked for: the driver stops at the
            // end of the request.
            match rustix::io::pread(&*self.device, spare_capacity(&mut data), at) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(data)
    }

    /// The data of a read.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn give_data(&self, tag: u16, data: &[u8]) -> io::Result<()> {
        self.device.write_all_at(data, data_offset(tag))
    }

    /// Completes a request: with the length of the data that were given to a read, or with the
    /// number of an error.
    pub fn complete(&self, tag: u16, outcome: Result<usize, i32>) {
        self.mailbox.put((tag, outcome));
    }

    /// Ends the queue: [`Queue::next`] returns false from now on.
    pub fn end(&self) {
        self.mailbox.end();
    }
}

/// The queue of a device. One thread uses it, which is the one that the driver then knows.
pub struct Queue {
    // Before what the kernel may use on its behalf.
    ring: IoUring,
    descriptors: Descriptors,
    device: Arc<File>,
    mailbox: Arc<Mailbox>,
    /// The mailbox is being polled.
    is_polled: bool,
    /// By tag, what is under way.
    requests: Vec<Option<Request>>,
    /// Tags that the driver has taken back.
    ended: usize,
    completions: Vec<Completion>,
}

impl Queue {
    /// Opens the queue of a device that is not served.
    pub(crate) fn open(path: &Path, depth: u16) -> io::Result<(Self, Handle)> {
        let device = Arc::new(File::options().read(true).write(true).open(path)?);
        let mailbox = Arc::new(Mailbox::new()?);
        let descriptors = Descriptors::map(device.as_fd(), depth)?;
        // One more for the poll of the mailbox. The kernel's queue of completions is twice as long.
        let entries = (u32::from(depth) + 1).next_power_of_two();
        let ring = IoUring::builder().setup_coop_taskrun().build(entries)?;
        let handle = Handle { device: Arc::clone(&device), mailbox: Arc::clone(&mailbox) };
        let requests = vec![None; depth.into()];
        let completions = Vec::new();
        let queue =
            Self { ring, descriptors, device, mailbox, is_polled: false, requests, ended: 0, completions };
        Ok((queue, handle))
    }

    /// Asks for requests, on the thread that will use the queue.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn fetch(&mut self) -> io::Result<()> {
        for tag in 0..self.requests.len() as u16 {
            self.push_command(wire::FETCH, tag, -1);
        }
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Err(error) if !is_transient(&error) => return Err(error),
                _ => {}
            }
        }
        // The driver refuses at once, and what it has accepted stays with it.
        match self.ring.completion().find(|entry| entry.result() < 0) {
            Some(refused) => Err(io::Error::from_raw_os_error(-refused.result())),
            None => Ok(()),
        }
    }

    /// Hands completions to the driver, waits, and appends new requests. False once the queue has
    /// ended.
    ///
    /// # Errors
    /// Those of io_uring.
    pub fn next(&mut self, out: &mut Vec<Request>) -> io::Result<bool> {
        let mut completions = std::mem::take(&mut self.completions);
        self.mailbox.take(&mut completions);
        for (tag, outcome) in completions.drain(..) {
            if let Some(request) = self.requests.get_mut(usize::from(tag)).and_then(Option::take) {
                self.push_command(wire::COMMIT_AND_FETCH, tag, request.result(outcome));
            }
        }
        self.completions = completions;
        if !self.is_polled {
            let events = PollFlags::IN.bits().into();
            let poll = opcode::PollAdd::new(Fd(self.mailbox.as_fd().as_raw_fd()), events).build();
            self.push(&poll.user_data(MAILBOX));
            self.is_polled = true;
        }
        match self.ring.submit_and_wait(1) {
            Err(error) if !is_transient(&error) => return Err(error),
            _ => {}
        }
        for entry in self.ring.completion() {
            let tag = u16::try_from(entry.user_data()).ok();
            let Some((tag, place)) =
                tag.and_then(|tag| Some((tag, self.requests.get_mut(usize::from(tag))?)))
            else {
                self.is_polled = false;
                continue;
            };
            match (entry.result(), self.descriptors.of(tag)) {
                (0, Some(descriptor)) => {
                    let request = Request::decode(tag, &descriptor);
                    *place = Some(request);
                    out.push(request);
                }
                (result, _) => {
                    if result != -libc::ENODEV {
                        tracing::warn!(tag, result, "the driver has refused a command");
                    }
                    self.ended += 1;
                }
            }
        }
        Ok(self.ended < self.requests.len() && !self.mailbox.is_ending())
    }

    fn push_command(&mut self, command: u32, tag: u16, result: i32) {
        let entry = opcode::UringCmd16::new(Fd(self.device.as_raw_fd()), command)
            .cmd(wire::io_command(tag, result))
            .build();
        self.push(&entry.user_data(tag.into()));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: no entry refers to memory of this process, and the files of entries are open as
        // long as the ring. The ring has a place for each tag and for the poll, and each of them
        // has one entry at most.
        let pushed = unsafe { self.ring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "more entries than tags");
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("device", &self.device).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: Kind, bytes: u64) -> Request {
        Request { tag: 1, kind, offset: 0, bytes }
    }

    #[test]
    fn the_driver_is_told_bytes_of_reads_and_writes_and_nothing_of_others() {
        let (read, write) = (request(Kind::Read, 8192), request(Kind::Write { durable: true }, 4096));
        assert_eq!((read.result(Ok(8192)), write.result(Ok(0))), (8192, 4096));
        // A read that was not given all of its data has failed.
        assert_eq!(read.result(Ok(4096)), -libc::EIO);
        assert_eq!(request(Kind::Discard, 1 << 30).result(Ok(0)), 0);
        assert_eq!(write.result(Err(28)), -28);
    }

    #[test]
    fn data_of_tags_do_not_overlap() {
        assert_eq!(data_offset(0), 0x8000_0000);
        assert_eq!(data_offset(3) - data_offset(2), 32 << 20);
    }
}

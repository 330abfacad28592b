//! `/dev/fuse` of one mount: a request for each read(2), a reply for each write.

use super::request::{Head, WRITE_HEAD_BYTES, Write, parse_write};
use crate::buffers::Buffers;
use crate::pipes::Pipes;
use client::Pipe;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The kernel refuses a read(2) for less than 8 KiB in all. FUSE_MIN_READ_BUFFER
const BEHIND_BYTES_MIN: usize = 8192;
/// The head of a reply: `struct fuse_out_header`.
const REPLY_HEAD_BYTES: usize = 16;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Device {
    descriptor: OwnedFd,
}

impl Device {
    /// The device of a mount that is set up. From now on nobody waits in read(2) for it.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn new(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        let descriptor = descriptor.try_clone_to_owned()?;
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        rustix::fs::fcntl_setfl(&descriptor, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self { descriptor })
    }

    #[cfg(test)]
    pub(super) fn of(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    /// Waits until there is a request, or no mount any more.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a reply.
    pub(super) fn send(&self, unique: u64, error: i32, body: &[u8]) {
        let head = head(unique, error, body.len());
        let outcome = rustix::io::writev(&self.descriptor, &[IoSlice::new(&head), IoSlice::new(body)]);
        tell(unique, outcome);
    }

    /// Gives a reply whose body lies in a pipe. It goes by way of another, behind its head.
    pub(super) fn send_piped(&self, unique: u64, mut data: Pipe, pipes: &Pipes) {
        let (head, len) = (head(unique, 0, data.len()), data.len());
        if let Some(mut carrier) = pipes.take() {
            let all_in = carrier.put(&head) == Ok(head.len()) && data.move_to(&mut carrier).is_ok();
            if all_in {
                let outcome = carrier.give_to(self.as_fd(), head.len() + len);
                tell(unique, outcome);
                pipes.give_back(data);
                // Whatever is left of a reply that was refused goes with its pipe.
                if outcome.is_ok() {
                    pipes.give_back(carrier);
                }
                return;
            }
            // It had no room for one piece more.
            let mut body = vec![0; REPLY_HEAD_BYTES + len];
            return match carrier.read(&mut body) {
                Ok(begun) => self.send_from(unique, data, body, begun),
                Err(error) => self.send(unique, -error.raw_os_error(), &[]),
            };
        }
        self.send_from(unique, data, vec![0; REPLY_HEAD_BYTES + len], REPLY_HEAD_BYTES);
    }

    /// Gives a reply by way of memory, where its head and more is, up to `begun`.
    fn send_from(&self, unique: u64, mut data: Pipe, mut body: Vec<u8>, begun: usize) {
        match data.read(body.get_mut(begun..).unwrap_or_default()) {
            Ok(_) => self.send(unique, 0, body.get(REPLY_HEAD_BYTES..).unwrap_or_default()),
            Err(error) => self.send(unique, -error.raw_os_error(), &[]),
        }
    }
}

/// `struct fuse_out_header`.
fn head(unique: u64, error: i32, body_bytes: usize) -> SmallVec<[u8; REPLY_HEAD_BYTES]> {
    let len = u32::try_from(REPLY_HEAD_BYTES + body_bytes).unwrap_or(u32::MAX);
    let mut head = SmallVec::new();
    head.extend_from_slice(&len.to_ne_bytes());
    head.extend_from_slice(&error.to_ne_bytes());
    head.extend_from_slice(&unique.to_ne_bytes());
    head
}

/// How a reply was taken. The kernel may not want it any more: whoever asked was killed.
fn tell(unique: u64, outcome: rustix::io::Result<usize>) {
    match outcome {
        Ok(_) => {}
        Err(Errno::NOENT | Errno::NODEV) => tracing::debug!(unique, "nobody waits for a reply any more"),
        Err(error) => tracing::error!(unique, %error, "the kernel refuses a reply"),
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// What a look at the device gave.
#[derive(Debug)]
pub(crate) enum Received<'a> {
    Request(&'a [u8]),
    Write(Head, Write, Data<'a>),
    /// There is none, or its process was killed before it was read.
    Nothing,
    /// The file system is mounted nowhere any more.
    Unmounted,
}

/// Takes requests. One thread does.
#[derive(Debug)]
pub(crate) struct Receiver {
    device: Arc<Device>,
    /// What lies behind as many bytes as a write has before its data: those, in memory that can be given away.
    behind: Vec<u8>,
    /// A request that is none, in one piece.
    whole: Vec<u8>,
    data_bytes_max: usize,
    buffers: Arc<Buffers>,
}

impl Receiver {
    /// For requests with so many bytes of data at most.
    pub(crate) fn new(device: &Arc<Device>, data_bytes_max: usize, buffers: &Arc<Buffers>) -> Self {
        let data_bytes_max = data_bytes_max.max(BEHIND_BYTES_MIN);
        Self {
            device: Arc::clone(device),
            behind: vec![0; data_bytes_max],
            whole: Vec::new(),
            data_bytes_max,
            buffers: Arc::clone(buffers),
        }
    }

    /// Takes a request, if there is one.
    ///
    /// # Errors
    /// The system's: the mount is of no more use.
    pub(crate) fn receive(&mut self) -> io::Result<Received<'_>> {
        let mut beginning = [0; WRITE_HEAD_BYTES];
        let mut places = [IoSliceMut::new(&mut beginning), IoSliceMut::new(&mut self.behind)];
        let len = match rustix::io::readv(&self.device.descriptor, &mut places) {
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => return Ok(Received::Nothing),
            Err(Errno::NODEV) => return Ok(Received::Unmounted),
            Err(error) => return Err(error.into()),
        };
        if len >= WRITE_HEAD_BYTES
            && let Some((head, write)) = parse_write(&beginning, len)
        {
            return Ok(Received::Write(head, write, Data { receiver: self, len: write.bytes }));
        }
        self.whole.clear();
        self.whole.extend_from_slice(beginning.get(..len).unwrap_or(&beginning));
        let behind = len.saturating_sub(WRITE_HEAD_BYTES);
        self.whole.extend_from_slice(self.behind.get(..behind).unwrap_or_default());
        Ok(Received::Request(&self.whole))
    }
}

/// The data of a write, where they were received.
#[derive(Debug)]
pub(crate) struct Data<'a> {
    receiver: &'a mut Receiver,
    len: usize,
}

impl Data<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.receiver.behind.get(..self.len).unwrap_or_default()
    }

    /// The same in memory of their own. Most of what may come at once is given away with the memory that it is in; less is
    /// copied, as what remains of that memory would have to be made fit for use again.
    pub(crate) fn into_owned(self) -> Vec<u8> {
        let Receiver { behind, data_bytes_max, buffers, .. } = self.receiver;
        if self.len < *data_bytes_max / 2 {
            return buffers.copy_of(behind.get(..self.len).unwrap_or_default());
        }
        let mut data = std::mem::replace(behind, buffers.take(*data_bytes_max));
        data.truncate(self.len);
        data
    }
}

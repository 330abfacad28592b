//! `/dev/fuse` of one mount: each read(2) returns a request, and each write sends a reply.

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

/// The kernel refuses a read(2) with less room than 8 KiB. FUSE_MIN_READ_BUFFER
const READ_BYTES_MIN: usize = 8192;
/// The header of a reply: `struct fuse_out_header`.
const REPLY_HEAD_BYTES: usize = 16;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Device {
    descriptor: OwnedFd,
}

impl Device {
    /// The device of a mount that is set up. From now on reading it does not block.
    ///
    /// # Errors
    /// If the system has no descriptor left.
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

    /// Waits until there is a request, or the mount is gone.
    ///
    /// # Errors
    /// Errors of poll(2).
    pub(crate) fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the kernel still sends requests. It stops when the last mount is gone and no file in
    /// it is open.
    pub(crate) fn is_connected(&self) -> bool {
        let mut fds = [PollFd::new(&self.descriptor, PollFlags::empty())];
        while poll(&mut fds, Some(&rustix::time::Timespec::default())) == Err(Errno::INTR) {}
        let [fd] = fds;
        !fd.revents().contains(PollFlags::ERR)
    }

    /// Sends a reply.
    pub(super) fn send(&self, unique: u64, error: i32, body: &[u8]) {
        let head = head(unique, error, body.len());
        let outcome = rustix::io::writev(&self.descriptor, &[IoSlice::new(&head), IoSlice::new(body)]);
        if !is_accepted(unique, outcome) && error == 0 {
            // Without any reply the program would wait for ever.
            self.send(unique, -libc::EIO, &[]);
        }
    }

    /// Sends a reply whose body is in a pipe. Header and body are joined in another pipe, the
    /// carrier.
    pub(super) fn send_piped(&self, unique: u64, mut data: Pipe, pipes: &Pipes) {
        let (head, len) = (head(unique, 0, data.len()), data.len());
        let carrier = pipes.take().and_then(|mut carrier| {
            let has_header = carrier.put(&head) == Ok(head.len());
            has_header.then_some(carrier)
        });
        let Some(mut carrier) = carrier else { return self.send_from_memory(unique, None, data, len) };
        if data.move_to(&mut carrier).is_err() {
            // The carrier had no room for all pieces, and neither will the next one.
            pipes.did_not_fit(carrier.is_large());
            return self.send_from_memory(unique, Some(carrier), data, len);
        }
        let outcome = carrier.give_to(self.as_fd(), head.len() + len);
        pipes.give_back(data);
        if is_accepted(unique, outcome) {
            pipes.give_back(carrier);
        } else {
            // The rest of the body is dropped with the carrier.
            self.send(unique, -libc::EIO, &[]);
        }
    }

    /// Sends such a reply through memory. The header and a part of the body may be in the carrier
    /// already.
    fn send_from_memory(&self, unique: u64, carrier: Option<Pipe>, mut data: Pipe, len: usize) {
        let mut all = vec![0; REPLY_HEAD_BYTES + len];
        let in_carrier = carrier.map_or(Ok(REPLY_HEAD_BYTES), |mut carrier| carrier.read(&mut all));
        let read = in_carrier.and_then(|in_carrier| {
            Ok(in_carrier + data.read(all.get_mut(in_carrier..).unwrap_or_default())?)
        });
        if read == Ok(all.len()) {
            self.send(unique, 0, all.get(REPLY_HEAD_BYTES..).unwrap_or_default());
        } else {
            tracing::error!(unique, ?read, "data cannot be read back from their pipe");
            self.send(unique, -libc::EIO, &[]);
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

/// Whether the kernel has taken a reply, or does not want it any more because the process was
/// killed.
fn is_accepted(unique: u64, outcome: rustix::io::Result<usize>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(Errno::NOENT | Errno::NODEV) => {
            tracing::debug!(unique, "a reply is not wanted any more");
            true
        }
        Err(error) => {
            tracing::error!(unique, %error, "the kernel refuses a reply");
            false
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The result of reading the device.
#[derive(Debug)]
pub(crate) enum Received<'a> {
    Request(&'a [u8]),
    Write(Head, Write, Data<'a>),
    /// There is no request, or its process was killed before the request was read.
    Nothing,
    /// The file system is not mounted anywhere any more.
    Unmounted,
}

/// Receives requests, on one thread.
#[derive(Debug)]
pub(crate) struct Receiver {
    device: Arc<Device>,
    /// The part of a request behind the first [`WRITE_HEAD_BYTES`]: for a write, its data. Replaced
    /// when the data are given away.
    payload: Vec<u8>,
    /// The last request that was not a write, in one piece.
    request: Vec<u8>,
    data_bytes_max: usize,
    buffers: Arc<Buffers>,
}

impl Receiver {
    /// For requests with at most `data_bytes_max` bytes of data.
    pub(crate) fn new(device: &Arc<Device>, data_bytes_max: usize, buffers: &Arc<Buffers>) -> Self {
        let data_bytes_max = data_bytes_max.max(READ_BYTES_MIN);
        Self {
            device: Arc::clone(device),
            payload: vec![0; data_bytes_max],
            request: Vec::new(),
            data_bytes_max,
            buffers: Arc::clone(buffers),
        }
    }

    /// Receives a request, if there is one.
    ///
    /// # Errors
    /// Errors of the device: the mount is unusable.
    pub(crate) fn receive(&mut self) -> io::Result<Received<'_>> {
        let mut beginning = [0; WRITE_HEAD_BYTES];
        let mut read = || {
            let mut slices = [IoSliceMut::new(&mut beginning), IoSliceMut::new(&mut self.payload)];
            rustix::io::readv(&self.device.descriptor, &mut slices)
        };
        // An unmount that comes while a request is read aborts that request; the next read tells of
        // the unmount. Of a connection that was aborted every read tells this.
        let len = match read().or_else(|error| if error == Errno::CONNABORTED { read() } else { Err(error) })
        {
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
        self.request.clear();
        self.request.extend_from_slice(beginning.get(..len).unwrap_or(&beginning));
        let payload_bytes = len.saturating_sub(WRITE_HEAD_BYTES);
        self.request.extend_from_slice(self.payload.get(..payload_bytes).unwrap_or_default());
        Ok(Received::Request(&self.request))
    }
}

/// The data of a write, in the memory into which they were received.
#[derive(Debug)]
pub(crate) struct Data<'a> {
    receiver: &'a mut Receiver,
    len: usize,
}

impl Data<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.receiver.payload.get(..self.len).unwrap_or_default()
    }

    /// Takes ownership of the data. If they fill at least half of the memory into which they were
    /// received, that memory is given away, and replaced. Otherwise they are copied, because
    /// replacing the memory would cost more.
    pub(crate) fn into_owned(self) -> Vec<u8> {
        let Receiver { payload, data_bytes_max, buffers, .. } = self.receiver;
        if self.len < *data_bytes_max / 2 {
            return buffers.copy_of(payload.get(..self.len).unwrap_or_default());
        }
        let mut data = std::mem::replace(payload, buffers.take(*data_bytes_max));
        data.truncate(self.len);
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    const DATA_MAX: usize = 256 << 10;

    /// The kernel's end, and ours.
    fn receiver() -> (UnixStream, Receiver) {
        let (kernel, ours) = UnixStream::pair().unwrap();
        let device = Arc::new(Device::new(ours.as_fd()).unwrap());
        (kernel, Receiver::new(&device, DATA_MAX, &Arc::default()))
    }

    fn write_request(data: &[u8]) -> Vec<u8> {
        let mut request = vec![0; WRITE_HEAD_BYTES];
        let len = u32::try_from(WRITE_HEAD_BYTES + data.len()).unwrap();
        request[..4].copy_from_slice(&len.to_ne_bytes());
        request[4..8].copy_from_slice(&16_u32.to_ne_bytes());
        request[56..60].copy_from_slice(&u32::try_from(data.len()).unwrap().to_ne_bytes());
        request.extend_from_slice(data);
        request
    }

    fn take_write(receiver: &mut Receiver) -> Vec<u8> {
        match receiver.receive().unwrap() {
            Received::Write(_, write, data) => {
                assert_eq!(data.as_slice().len(), write.bytes);
                data.into_owned()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn receiving_does_not_block_if_there_is_no_request() {
        let (_kernel, mut receiver) = receiver();
        assert!(matches!(receiver.receive().unwrap(), Received::Nothing));
    }

    #[test]
    fn a_request_that_is_no_write_comes_in_one_piece() {
        let (mut kernel, mut receiver) = receiver();
        for len in [40, 79, 80, 81, 5000] {
            let mut request = vec![7; len];
            request[..4].copy_from_slice(&u32::try_from(len).unwrap().to_ne_bytes());
            kernel.write_all(&request).unwrap();
            let Received::Request(bytes) = receiver.receive().unwrap() else { panic!("{len} bytes") };
            assert!(bytes == request, "{len} bytes");
        }
    }

    #[test]
    fn long_data_are_given_away_with_their_memory_and_short_ones_copied() {
        let (mut kernel, mut receiver) = receiver();
        for (len, given_away) in
            [(100, false), (DATA_MAX / 2 - 1, false), (DATA_MAX / 2, true), (DATA_MAX, true)]
        {
            let memory = receiver.payload.as_ptr();
            // A socket accepts this many bytes only while they are read.
            let sent = write_request(&vec![1; len]);
            rustix::net::sockopt::set_socket_send_buffer_size(&kernel, 2 * DATA_MAX).unwrap();
            kernel.write_all(&sent).unwrap();
            let data = take_write(&mut receiver);
            assert!(data == vec![1; len] && (data.as_ptr() == memory) == given_away, "{len} bytes");
            // The next request does not overwrite the data.
            kernel.write_all(&write_request(&[2; 50])).unwrap();
            assert!(take_write(&mut receiver) == [2; 50] && data == vec![1; len]);
        }
    }

    /// Replies with as much of `data` as a pipe holds. Checks what the kernel receives, and returns
    /// the pool of pipes.
    fn reply_piped(data: &[u8]) -> Pipes {
        use std::io::Read as _;
        let (mut kernel, ours) = UnixStream::pair().unwrap();
        let device = Device::of(ours.into());
        let mut pipe = Pipe::new().unwrap();
        let held = if data.is_empty() { 0 } else { pipe.put(data).unwrap() };
        let sending = std::thread::spawn(move || {
            let pipes = Pipes::default();
            device.send_piped(77, pipe, &pipes);
            pipes
        });
        let mut all = Vec::new();
        kernel.read_to_end(&mut all).unwrap();
        assert!(all[..] == [&head(77, 0, held)[..], &data[..held]].concat());
        sending.join().unwrap()
    }

    #[test]
    fn a_reply_out_of_a_pipe_is_its_head_and_all_that_was_in_it() {
        assert!(reply_piped(&[5; 100_000]).take_for_read().is_some());
        assert!(reply_piped(&[]).take_for_read().is_some());
    }

    #[test]
    fn a_reply_for_which_its_pipe_has_no_room_goes_by_memory_and_the_next_has_a_larger_one_or_none() {
        let data: Vec<u8> = (0..8_u32 << 18).flat_map(u32::to_ne_bytes).collect();
        let pipes = reply_piped(&data);
        assert!(pipes.take_for_read().is_none_or(|pipe| pipe.is_large()));
    }
}

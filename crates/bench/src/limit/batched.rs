//! A few threads for all connections. Everything that is ready is received in one system call, and
//! everything to send afterwards in another. Like our loops, a thread polls for a moment before it
//! sleeps. The two ends of a connection are driven by different threads or by the same one.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::thread::{Builder, Scope};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use transport::busy::{BUSY_POLL_DEFAULT, BusyPoll};
use transport::poll::{Event, Events, Interest, Poller};

use super::coordinator::Coordinator;
use super::traffic::{Message, Next};
use super::{Error, Role, Shape, Streams, next_block};

/// The size of the buffer into which everything is received.
const RECEIVE_BYTES: usize = 1 << 20;
/// The maximum number of pieces in one send; the system accepts 1024 (UIO_MAXIOV).
const PIECES: usize = 512;
/// The bytes gathered into one send. A socket accepts no more at once, so gathering more is wasted.
const SEND_BYTES: usize = 4 << 20;
/// How often a thread checks whether the try is over.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Which ends a thread drives.
#[derive(Debug, Clone, Copy)]
pub(super) enum ThreadLayout {
    /// This many threads for the server's ends, and as many for the client's ends.
    Separate(usize),
    /// This many threads, each with both ends of its connections.
    Combined(usize),
}

/// Starts the threads and returns their number.
pub(super) fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    shape: &'scope Shape,
    coordinator: &'scope Coordinator,
    streams: Streams,
    layout: ThreadLayout,
) -> io::Result<usize> {
    let (threads, offset) = match layout {
        ThreadLayout::Separate(threads) => (threads, threads),
        ThreadLayout::Combined(threads) => (threads, 0),
    };
    let mut shares: Vec<Vec<End>> = (0..threads + offset).map(|_| Vec::new()).collect();
    for (role, streams, first) in [(Role::Server, streams.server, 0), (Role::Client, streams.client, offset)]
    {
        for (connection, stream) in streams.into_iter().enumerate() {
            if let Some(share) = shares.get_mut(first + connection % threads) {
                share.push(End::new(stream, role, connection, shape.depth));
            }
        }
    }
    let mut workers = 0;
    for mut share in shares.into_iter().filter(|share| !share.is_empty()) {
        Builder::new().spawn_scoped(scope, move || {
            let outcome = Worker::new(shape, coordinator).and_then(|mut worker| worker.drive(&mut share));
            coordinator.worker_ended(outcome);
        })?;
        workers += 1;
    }
    Ok(workers)
}

/// One end of a connection.
struct End {
    stream: TcpStream,
    role: Role,
    connection: usize,
    calls_sent: u64,
    seed: u64,
    /// Remaining bytes of the message being received; 0 between messages.
    bytes_left: usize,
    /// Whether the message that is being received completes a block.
    completes: bool,
    /// Heads and blocks to send; a block may be empty.
    queue: VecDeque<[&'static [u8]; 2]>,
    /// Bytes of the first queued message that were sent.
    sent: usize,
    waits: bool,
}

impl End {
    fn new(stream: TcpStream, role: Role, connection: usize, depth: usize) -> Self {
        // The queue never holds more messages than calls in flight.
        let queue = VecDeque::with_capacity(depth);
        let seed = connection as u64;
        Self {
            stream,
            role,
            connection,
            calls_sent: 0,
            seed,
            bytes_left: 0,
            completes: false,
            queue,
            sent: 0,
            waits: false,
        }
    }

    fn queue_call(&mut self, shape: &Shape) {
        let call = Message::call(shape.direction, self.calls_sent);
        self.calls_sent += 1;
        self.enqueue(shape, call);
    }

    fn enqueue(&mut self, shape: &Shape, message: Message) {
        let has_block = message.has_block(shape.traffic, shape.block_bytes);
        let block = if has_block { next_block(&mut self.seed, shape.block_bytes) } else { &[] };
        self.queue.push_back([message.head(shape.traffic), block]);
    }

    /// Processes received bytes and queues what follows from each message. Returns how many blocks
    /// were completed.
    fn receive_bytes(&mut self, shape: &Shape, mut bytes: &[u8]) -> u64 {
        let mut completed = 0;
        while let Some(first) = bytes.first() {
            if self.bytes_left == 0 {
                let message = Message::of(*first);
                self.bytes_left = message.bytes(shape.traffic, shape.block_bytes);
                match message.next(shape.traffic, shape.block_bytes) {
                    Next::Send(next) => self.enqueue(shape, next),
                    Next::Completed => self.completes = true,
                }
            }
            let now = self.bytes_left.min(bytes.len());
            self.bytes_left -= now;
            bytes = bytes.get(now..).unwrap_or_default();
            if self.bytes_left == 0 && std::mem::take(&mut self.completes) {
                completed += 1;
                self.queue_call(shape);
            }
        }
        completed
    }

    /// Sends the queue until the socket accepts no more. `pieces` is memory to gather in.
    fn flush(&mut self, pieces: &mut Vec<IoSlice<'static>>) -> io::Result<()> {
        while !self.queue.is_empty() {
            let mut offered = gather(&self.queue, pieces);
            offered -= self.sent;
            let mut unsent = pieces.as_mut_slice();
            IoSlice::advance_slices(&mut unsent, self.sent);
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::sendmsg(&self.stream, unsent, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => {
                    self.sent += sent;
                    while let Some([head, block]) = self.queue.front()
                        && self.sent >= head.len() + block.len()
                    {
                        self.sent -= head.len() + block.len();
                        self.queue.pop_front();
                    }
                    if sent < offered {
                        return Ok(());
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Gathers the front of a queue for one send, and returns the number of bytes.
fn gather(queue: &VecDeque<[&'static [u8]; 2]>, pieces: &mut Vec<IoSlice<'static>>) -> usize {
    pieces.clear();
    let mut bytes = 0;
    for [head, block] in queue {
        if pieces.len() + 2 > PIECES || bytes >= SEND_BYTES {
            break;
        }
        pieces.push(IoSlice::new(head));
        if !block.is_empty() {
            pieces.push(IoSlice::new(block));
        }
        bytes += head.len() + block.len();
    }
    bytes
}

/// A thread and its memory, which is mapped in advance.
struct Worker<'a> {
    shape: &'a Shape,
    coordinator: &'a Coordinator,
    poller: Poller,
    busy: BusyPoll,
    buffer: Vec<u8>,
    pieces: Vec<IoSlice<'static>>,
}

impl<'a> Worker<'a> {
    fn new(shape: &'a Shape, coordinator: &'a Coordinator) -> Result<Self, Error> {
        let (buffer, pieces) = (vec![1; RECEIVE_BYTES], Vec::with_capacity(PIECES));
        Ok(Self {
            shape,
            coordinator,
            poller: Poller::new()?,
            busy: BusyPoll::new(BUSY_POLL_DEFAULT),
            buffer,
            pieces,
        })
    }

    fn drive(&mut self, streams: &mut [End]) -> Result<(), Error> {
        for (token, end) in (0_u64..).zip(&mut *streams) {
            self.poller.add(&end.stream, token, Interest::READ)?;
        }
        let role =
            streams.first().map(|end| end.role).filter(|role| streams.iter().all(|end| end.role == *role));
        self.coordinator.wait_to_begin(role);
        for (token, end) in (0_u64..).zip(&mut *streams) {
            if end.role == Role::Client {
                (0..self.shape.depth).for_each(|_| end.queue_call(self.shape));
                self.send(token, end).map_err(|source| end.role.failed(end.connection, source))?;
            }
        }
        let mut events = Events::new();
        while !self.coordinator.stopped() {
            self.busy.wait(&self.poller, &mut events, Some(POLL_INTERVAL))?;
            for event in events.iter() {
                let end = usize::try_from(event.token).ok().and_then(|at| streams.get_mut(at));
                if let Some(end) = end {
                    self.ready(event, end).map_err(|source| end.role.failed(end.connection, source))?;
                }
            }
        }
        Ok(())
    }

    fn ready(&mut self, event: Event, end: &mut End) -> io::Result<()> {
        if event.readable {
            match rustix::net::recv(&end.stream, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((got, _)) => {
                    let completed = end.receive_bytes(self.shape, self.buffer.get(..got).unwrap_or_default());
                    if completed > 0 {
                        self.coordinator.count(end.connection, completed);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.send(event.token, end)
    }

    /// Sends the queue, and waits until the socket accepts more if some is left.
    fn send(&mut self, token: u64, end: &mut End) -> io::Result<()> {
        end.flush(&mut self.pieces)?;
        let waits = !end.queue.is_empty();
        if waits != end.waits {
            end.waits = waits;
            self.poller.modify(&end.stream, token, if waits { Interest::BOTH } else { Interest::READ })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Traffic;

    #[test]
    fn a_send_gathers_no_empty_pieces_and_no_more_than_the_system_takes() {
        let mut pieces = Vec::with_capacity(PIECES);
        let memory = pieces.as_ptr();
        let head = Message::Read.head(Traffic::Nfs);
        let calls: VecDeque<[&'static [u8]; 2]> = (0..2000).map(|_| [head, &[][..]]).collect();
        assert_eq!(gather(&calls, &mut pieces), (PIECES - 1) * head.len());
        assert!(pieces.iter().all(|piece| !piece.is_empty()));
        static BLOCK: [u8; 1 << 20] = [0; 1 << 20];
        let large: VecDeque<[&'static [u8]; 2]> = (0..9).map(|_| [head, &BLOCK[..]]).collect();
        assert_eq!(gather(&large, &mut pieces), 4 * (head.len() + BLOCK.len()));
        assert_eq!(pieces.as_ptr(), memory, "the memory to gather in is the same");
    }
}

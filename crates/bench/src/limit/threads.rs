//! A thread for each end of each connection; blocks are received in place.

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::thread::{Builder, Scope};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::coordinator::Coordinator;
use super::traffic::{HEAD_BYTES_MAX, Message, Next};
use super::{Direction, Role, Shape, Streams, next_block};

/// The number of buffers that a receiver cycles through.
const RECEIVE_BUFFERS: usize = 16;
/// The maximum payload in flight on a connection with blocks in both directions: what socket
/// buffers certainly hold. A thread that sends more before it receives could wait for another that
/// does the same.
const MIXED_BYTES_MAX: usize = 1 << 20;

/// Starts the threads and returns their number.
pub(super) fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    shape: &'scope Shape,
    coordinator: &'scope Coordinator,
    streams: Streams,
) -> io::Result<usize> {
    let mut workers = 0;
    for (role, streams) in [(Role::Server, streams.server), (Role::Client, streams.client)] {
        for (connection, mut stream) in streams.into_iter().enumerate() {
            Builder::new().spawn_scoped(scope, move || {
                let outcome = match role {
                    Role::Server => run_server(shape, coordinator, &mut stream, connection),
                    Role::Client => run_client(shape, coordinator, &mut stream, connection),
                };
                coordinator.worker_ended(outcome.map_err(|source| role.failed(connection, source)));
            })?;
            workers += 1;
        }
    }
    Ok(workers)
}

/// Buffers for the received blocks, mapped in advance.
struct ReceiveBuffers {
    memory: Vec<u8>,
    block_bytes: usize,
    next: usize,
}

impl ReceiveBuffers {
    fn new(block_bytes: usize) -> Self {
        Self { memory: vec![1; block_bytes * RECEIVE_BUFFERS], block_bytes, next: 0 }
    }

    fn next(&mut self) -> &mut [u8] {
        let start = self.next * self.block_bytes;
        self.next = (self.next + 1) % RECEIVE_BUFFERS;
        self.memory.get_mut(start..start + self.block_bytes).unwrap_or_default()
    }
}

/// Receives until `into` is full.
pub(super) fn receive(stream: &TcpStream, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match rustix::net::recv(stream, &mut *into, RecvFlags::WAITALL) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((got, _)) => into = into.get_mut(got..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Sends a head and a block, in one gathered send if the system accepts all of it.
pub(super) fn send(stream: &mut TcpStream, head: &[u8], block: &[u8]) -> io::Result<()> {
    if block.is_empty() {
        return stream.write_all(head);
    }
    let mut slices = [IoSlice::new(head), IoSlice::new(block)];
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let sent = stream.write_vectored(rest)?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, sent);
    }
    Ok(())
}

/// An end of a connection, which a thread drives.
struct End<'a> {
    shape: &'a Shape,
    stream: &'a mut TcpStream,
    buffers: ReceiveBuffers,
    seed: u64,
    /// The heads of all messages that this end receives are at least as long.
    head_bytes_min: usize,
}

impl<'a> End<'a> {
    fn new(shape: &'a Shape, stream: &'a mut TcpStream, connection: usize, received: &[Message]) -> Self {
        let heads = received.iter().map(|message| message.head_bytes(shape.traffic));
        let buffers = ReceiveBuffers::new(shape.block_bytes);
        Self { shape, stream, buffers, seed: connection as u64, head_bytes_min: heads.min().unwrap_or(1) }
    }

    fn send(&mut self, message: Message) -> io::Result<()> {
        let has_block = message.has_block(self.shape.traffic, self.shape.block_bytes);
        let block = if has_block { next_block(&mut self.seed, self.shape.block_bytes) } else { &[] };
        send(self.stream, message.head(self.shape.traffic), block)
    }

    /// Receives a message, and its block in place; returns what follows from it.
    fn receive(&mut self) -> io::Result<Next> {
        let Shape { traffic, block_bytes, .. } = *self.shape;
        let mut head = [0; HEAD_BYTES_MAX];
        let (first, rest) = head.split_at_mut(self.head_bytes_min);
        receive(self.stream, first)?;
        let message = Message::of(first.first().copied().unwrap_or_default());
        let missing = message.head_bytes(traffic) - self.head_bytes_min;
        receive(self.stream, rest.get_mut(..missing).unwrap_or_default())?;
        if message.has_block(traffic, block_bytes) {
            receive(self.stream, self.buffers.next())?;
        }
        Ok(message.next(traffic, block_bytes))
    }
}

fn run_server(
    shape: &Shape,
    coordinator: &Coordinator,
    stream: &mut TcpStream,
    connection: usize,
) -> io::Result<()> {
    let received: &[Message] = match shape.direction {
        Direction::Read => &[Message::Read],
        Direction::Write | Direction::Mixed => &[Message::Read, Message::Write, Message::WrittenData],
    };
    let mut end = End::new(shape, stream, connection, received);
    coordinator.wait_to_begin(Some(Role::Server));
    while !coordinator.stopped() {
        if let Next::Send(answer) = end.receive()? {
            end.send(answer)?;
        }
    }
    Ok(())
}

fn run_client(
    shape: &Shape,
    coordinator: &Coordinator,
    stream: &mut TcpStream,
    connection: usize,
) -> io::Result<()> {
    let mut end = End::new(shape, stream, connection, &[Message::Data, Message::Written, Message::Ready]);
    let mut calls = (0..).map(|sent| Message::call(shape.direction, sent));
    let mut call = |end: &mut End<'_>| calls.next().map_or(Ok(()), |call| end.send(call));
    let depth = match shape.direction {
        Direction::Mixed => (MIXED_BYTES_MAX / shape.block_bytes).clamp(1, shape.depth),
        Direction::Read | Direction::Write => shape.depth,
    };
    coordinator.wait_to_begin(Some(Role::Client));
    for _ in 0..depth {
        call(&mut end)?;
    }
    while !coordinator.stopped() {
        match end.receive()? {
            Next::Send(data) => end.send(data)?,
            Next::Completed => {
                coordinator.count(connection, 1);
                call(&mut end)?;
            }
        }
    }
    Ok(())
}

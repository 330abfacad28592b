//! A thread for each end of each connection; blocks are received in place.

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::thread::{Builder, Scope};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::coordinator::Coordinator;
use super::{ANSWER_BYTES, CALL_BYTES, Direction, Role, Shape, Streams, head, next_block};

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

fn run_server(
    shape: &Shape,
    coordinator: &Coordinator,
    stream: &mut TcpStream,
    connection: usize,
) -> io::Result<()> {
    let mut buffers = ReceiveBuffers::new(shape.block_bytes);
    let mut seed = connection as u64;
    let mut call = [0; CALL_BYTES];
    coordinator.wait_to_begin(Some(Role::Server));
    while !coordinator.stopped() {
        receive(stream, &mut call)?;
        let writes = call.first() == Some(&1);
        if writes {
            receive(stream, buffers.next())?;
        }
        let block = if writes { &[][..] } else { next_block(&mut seed, shape.block_bytes) };
        send(stream, &head::<ANSWER_BYTES>(writes), block)?;
    }
    Ok(())
}

fn run_client(
    shape: &Shape,
    coordinator: &Coordinator,
    stream: &mut TcpStream,
    connection: usize,
) -> io::Result<()> {
    let (mut calls_sent, mut seed) = (0, connection as u64);
    let mut call = |stream: &mut TcpStream| {
        let writes = shape.direction.writes(calls_sent);
        calls_sent += 1;
        let block = if writes { next_block(&mut seed, shape.block_bytes) } else { &[][..] };
        send(stream, &head::<CALL_BYTES>(writes), block)
    };
    let mut buffers = ReceiveBuffers::new(shape.block_bytes);
    let mut answer = [0; ANSWER_BYTES];
    let depth = match shape.direction {
        Direction::Mixed => (MIXED_BYTES_MAX / shape.block_bytes).clamp(1, shape.depth),
        Direction::Read | Direction::Write => shape.depth,
    };
    coordinator.wait_to_begin(Some(Role::Client));
    for _ in 0..depth {
        call(stream)?;
    }
    while !coordinator.stopped() {
        receive(stream, &mut answer)?;
        if answer.first() == Some(&0) {
            receive(stream, buffers.next())?;
        }
        coordinator.count(connection, 1);
        call(stream)?;
    }
    Ok(())
}

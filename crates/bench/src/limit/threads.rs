//! A thread at each end of each connection; blocks are received into place.

use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread::Scope;

use super::{ANSWER_BYTES, CALL_BYTES, Shape, Shared, head, next_block};

/// Blocks that a receiver cycles through, as one with so many buffers would.
const PLACES: usize = 16;

pub(super) fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    shape: &'scope Shape,
    shared: &'scope Shared,
    serving: Vec<(usize, TcpStream)>,
    asking: Vec<(usize, TcpStream)>,
) {
    // An end of the stream is how a try ends.
    for (index, stream) in serving {
        scope.spawn(move || drop(serve(shape, shared, stream, index as u64)));
    }
    for (index, stream) in asking {
        scope.spawn(move || drop(ask(shape, shared, stream, index as u64)));
    }
}

/// Sends a head and a block in one gathered send where the system takes it.
fn send(stream: &mut TcpStream, head: &[u8], block: &[u8]) -> std::io::Result<()> {
    let mut slices = [IoSlice::new(head), IoSlice::new(block)];
    let mut rest = &mut slices[..];
    while rest.iter().any(|slice| !slice.is_empty()) {
        let sent = stream.write_vectored(rest)?;
        if sent == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, sent);
    }
    Ok(())
}

fn serve(shape: &Shape, shared: &Shared, mut stream: TcpStream, mut seed: u64) -> std::io::Result<()> {
    let mut places = vec![1; shape.block_bytes * PLACES];
    let mut call = [0; CALL_BYTES];
    for place in (0..PLACES).cycle() {
        stream.read_exact(&mut call)?;
        let writes = call.first() == Some(&1);
        if writes {
            let start = place * shape.block_bytes;
            stream.read_exact(places.get_mut(start..start + shape.block_bytes).unwrap_or_default())?;
        }
        let block = if writes { &[][..] } else { next_block(&mut seed, shape.block_bytes) };
        send(&mut stream, &head::<ANSWER_BYTES>(writes), block)?;
        if shared.stopped() {
            break;
        }
    }
    Ok(())
}

fn ask(shape: &Shape, shared: &Shared, mut stream: TcpStream, mut seed: u64) -> std::io::Result<()> {
    let mut asked = 0;
    let mut call = |stream: &mut TcpStream| {
        let writes = shape.direction.writes(asked);
        asked += 1;
        let block = if writes { next_block(&mut seed, shape.block_bytes) } else { &[][..] };
        send(stream, &head::<CALL_BYTES>(writes), block)
    };
    let mut places = vec![1; shape.block_bytes * PLACES];
    let mut answer = [0; ANSWER_BYTES];
    // With blocks both ways a thread that sends all its calls first would wait for one that does the same.
    let fits = shape.direction != super::Direction::Mixed || shape.depth * shape.block_bytes <= 1 << 20;
    let depth = if fits { shape.depth } else { ((1 << 20) / shape.block_bytes).clamp(1, shape.depth) };
    for _ in 0..depth {
        call(&mut stream)?;
    }
    for place in (0..PLACES).cycle() {
        stream.read_exact(&mut answer)?;
        if answer.first() == Some(&0) {
            let start = place * shape.block_bytes;
            stream.read_exact(places.get_mut(start..start + shape.block_bytes).unwrap_or_default())?;
        }
        shared.completed.fetch_add(1, Ordering::Relaxed);
        call(&mut stream)?;
        if shared.stopped() {
            break;
        }
    }
    Ok(())
}

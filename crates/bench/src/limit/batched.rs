//! A few threads at each end for all connections: whatever is ready is received in one system call, and all
//! that it leads to is sent in one.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use transport::Slices;
use transport::poll::{Events, Interest, Poller};

use super::{ANSWER_BYTES, CALL_BYTES, Shape, Shared, head, next_block};

/// Memory that everything is received into.
const RECEIVE_BYTES: usize = 1 << 20;
/// Pieces gathered into one send.
const PIECES: usize = 128;
/// A thread looks this often whether the try is over.
const LOOK: Duration = Duration::from_millis(20);

static CALLS: [[u8; CALL_BYTES]; 2] = [head(false), head(true)];
static ANSWERS: [[u8; ANSWER_BYTES]; 2] = [head(false), head(true)];

pub(super) fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    shape: &'scope Shape,
    shared: &'scope Shared,
    serving: Vec<(usize, TcpStream)>,
    asking: Vec<(usize, TcpStream)>,
    threads: usize,
) {
    for (streams, asks) in [(serving, false), (asking, true)] {
        let mut shares: Vec<Vec<End>> = (0..threads).map(|_| Vec::new()).collect();
        for (index, stream) in streams {
            if let Some(share) = shares.get_mut(index % threads) {
                share.push(End::new(stream, asks, index as u64));
            }
        }
        for share in shares.into_iter().filter(|share| !share.is_empty()) {
            // An end of the stream is how a try ends.
            scope.spawn(move || drop(drive(shape, shared, share)));
        }
    }
}

/// One end of a connection.
struct End {
    stream: TcpStream,
    asks: bool,
    asked: u64,
    seed: u64,
    /// Bytes of the message under way that are still to come; 0 between messages.
    missing: usize,
    queue: VecDeque<(&'static [u8], &'static [u8])>,
    /// Bytes of the first queued message that are sent.
    sent: usize,
    waits: bool,
}

impl End {
    fn new(stream: TcpStream, asks: bool, seed: u64) -> Self {
        Self { stream, asks, asked: 0, seed, missing: 0, queue: VecDeque::new(), sent: 0, waits: false }
    }

    fn ask(&mut self, shape: &Shape) {
        let writes = shape.direction.writes(self.asked);
        self.asked += 1;
        self.push(shape, writes, writes);
    }

    fn push(&mut self, shape: &Shape, writes: bool, with_block: bool) {
        let kind = usize::from(writes);
        let head: &[u8] = if self.asks { &CALLS[kind] } else { &ANSWERS[kind] };
        let block = if with_block { next_block(&mut self.seed, shape.block_bytes) } else { &[] };
        self.queue.push_back((head, block));
    }

    /// Takes received bytes; each message that ends leads to one in return.
    fn take(&mut self, shape: &Shape, shared: &Shared, mut bytes: &[u8]) {
        let mut ended = 0;
        while let Some(first) = bytes.first() {
            if self.missing == 0 {
                let writes = *first == 1;
                let carries = if self.asks { !writes } else { writes };
                let head = if self.asks { ANSWER_BYTES } else { CALL_BYTES };
                self.missing = head + if carries { shape.block_bytes } else { 0 };
                if !self.asks {
                    self.push(shape, writes, !writes);
                }
            }
            let now = self.missing.min(bytes.len());
            self.missing -= now;
            bytes = bytes.get(now..).unwrap_or_default();
            if self.missing == 0 && self.asks {
                ended += 1;
                self.ask(shape);
            }
        }
        if ended > 0 {
            shared.completed.fetch_add(ended, Ordering::Relaxed);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.queue.is_empty() {
            let mut pieces = Slices::new();
            for (head, block) in self.queue.iter().take(PIECES / 2) {
                pieces.push(IoSlice::new(head));
                pieces.push(IoSlice::new(block));
            }
            let mut unsent = pieces.as_mut_slice();
            IoSlice::advance_slices(&mut unsent, self.sent);
            let offered: usize = unsent.iter().map(|piece| piece.len()).sum();
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::sendmsg(&self.stream, unsent, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => {
                    self.sent += sent;
                    while let Some((head, block)) = self.queue.front()
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
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

fn drive(shape: &Shape, shared: &Shared, mut ends: Vec<End>) -> io::Result<()> {
    let poller = Poller::new()?;
    for (token, end) in (0_u64..).zip(&mut ends) {
        poller.add(&end.stream, token, Interest::READ)?;
        if end.asks {
            (0..shape.depth).for_each(|_| end.ask(shape));
        }
    }
    for (token, end) in (0_u64..).zip(&mut ends) {
        send(&poller, token, end)?;
    }
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut events = Events::new();
    while !shared.stopped() {
        poller.wait(&mut events, Some(LOOK))?;
        for event in events.iter() {
            let Some(end) = usize::try_from(event.token).ok().and_then(|at| ends.get_mut(at)) else {
                continue;
            };
            if event.readable {
                match rustix::net::recv(&end.stream, &mut buffer[..], RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return Ok(()),
                    Ok((got, _)) => end.take(shape, shared, buffer.get(..got).unwrap_or_default()),
                    Err(Errno::AGAIN) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            send(&poller, event.token, end)?;
        }
    }
    Ok(())
}

/// Sends what is queued, and waits for room when some is left.
fn send(poller: &Poller, token: u64, end: &mut End) -> io::Result<()> {
    end.flush()?;
    let waits = !end.queue.is_empty();
    if waits != end.waits {
        end.waits = waits;
        poller.modify(&end.stream, token, if waits { Interest::BOTH } else { Interest::READ })?;
    }
    Ok(())
}

//! The limit: what TCP itself carries between given addresses in the shape of NFS traffic, with no protocol
//! work.
//!
//! Each call is [`CALL_BYTES`] one way, each answer [`ANSWER_BYTES`] the other way, a number of calls in flight
//! on each connection; a block goes with each answer (READ) or with each call (WRITE). The limit is the best
//! of several modes and of the congestion controls on offer. A result above it means that this program, not
//! the machine, was the limit.

mod batched;
mod threads;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::machine;

/// A READ or WRITE call without its data.
pub const CALL_BYTES: usize = 100;
/// A READ or WRITE answer without its data.
pub const ANSWER_BYTES: usize = 128;
/// Memory that blocks are sent from: larger than any cache.
const STORE_BYTES: usize = 256 << 20;
/// Connections that a shape may have.
const CONNECTIONS_MAX: usize = 256;

/// Which way the blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// With the answers.
    Read,
    /// With the calls.
    Write,
    /// Every other call is a WRITE.
    Mixed,
}

impl Direction {
    /// Whether the n-th call of a connection is a WRITE.
    const fn writes(self, n: u64) -> bool {
        match self {
            Self::Read => false,
            Self::Write => true,
            Self::Mixed => n % 2 == 1,
        }
    }
}

/// The shape of the traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Calls in flight on each connection.
    pub depth: usize,
    /// Connections, dealt out over the pairs.
    pub connections: usize,
    /// Which way the blocks go.
    pub direction: Direction,
    /// The address that the server's side listens on, for each path.
    pub remotes: Vec<IpAddr>,
}

/// How the ends are driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A thread at each end of each connection, payload received into place.
    Threads,
    /// One thread at each end for all connections, whatever is ready in one system call.
    Batched,
    /// The same, with a thread for each processor at each end.
    BatchedPerCpu,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Threads, Self::Batched, Self::BatchedPerCpu];

    /// How records call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "a thread per connection",
            Self::Batched => "one thread per end, batched",
            Self::BatchedPerCpu => "a thread per CPU and end, batched",
        }
    }
}

/// What one try carried.
#[derive(Debug, Clone, PartialEq)]
pub struct Try {
    /// How the ends were driven.
    pub mode: Mode,
    /// The congestion control.
    pub congestion: String,
    /// Blocks per second.
    pub iops: f64,
    /// Bytes of blocks per second, in 1e9.
    pub gbytes_per_s: f64,
    /// Others used more than a tenth of the processors meanwhile.
    pub starved: bool,
}

/// Why a limit cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address is not ours, or nobody can connect to it.
    #[error("cannot measure what {address} carries")]
    Address {
        /// Which address.
        address: IpAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The shape makes no sense.
    #[error("{0}")]
    Shape(String),
    /// The system refused.
    #[error("cannot measure the limit")]
    System(#[from] io::Error),
}

/// What both ends of a try share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    completed: AtomicU64,
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Memory to send from, touched once.
fn store() -> &'static [u8] {
    static STORE: OnceLock<Vec<u8>> = OnceLock::new();
    STORE.get_or_init(|| vec![7; STORE_BYTES])
}

/// The next block to send: anywhere in the store.
fn next_block(seed: &mut u64, block_bytes: usize) -> &'static [u8] {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let blocks = (STORE_BYTES / block_bytes.max(1)).max(1) as u64;
    let at = ((*seed >> 20) % blocks) as usize * block_bytes;
    store().get(at..at + block_bytes).unwrap_or_default()
}

/// A head whose first byte says whether it goes with a WRITE.
const fn head<const N: usize>(writes: bool) -> [u8; N] {
    [writes as u8; N]
}

/// Tries one mode with one congestion control.
///
/// # Errors
/// [`Error`].
pub fn measure_once(shape: &Shape, mode: Mode, congestion: &str, time: Duration) -> Result<Try, Error> {
    if shape.block_bytes == 0 || shape.block_bytes > STORE_BYTES || shape.depth == 0 {
        return Err(Error::Shape(format!("blocks of {} bytes at depth {}", shape.block_bytes, shape.depth)));
    }
    if !(1..=CONNECTIONS_MAX).contains(&shape.connections) || shape.remotes.is_empty() {
        return Err(Error::Shape(format!(
            "{} connections to {} addresses",
            shape.connections,
            shape.remotes.len()
        )));
    }
    store();
    let mut asking = Vec::new();
    let mut serving = Vec::new();
    for (index, address) in (0..shape.connections).zip(shape.remotes.iter().cycle()) {
        let (ours, theirs) =
            connect(*address, congestion).map_err(|source| Error::Address { address: *address, source })?;
        asking.push((index, ours));
        serving.push((index, theirs));
    }
    let shared = Shared::default();
    let ends = asking
        .iter()
        .chain(&serving)
        .map(|(_, stream)| stream.try_clone())
        .collect::<io::Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        match mode {
            Mode::Threads => threads::start(scope, shape, &shared, serving, asking),
            Mode::Batched => batched::start(scope, shape, &shared, serving, asking, 1),
            Mode::BatchedPerCpu => batched::start(scope, shape, &shared, serving, asking, machine::cpus()),
        }
        std::thread::sleep(time / 4);
        let busy = machine::Busy::start();
        let own = own_cpu();
        let (before, began) = (shared.completed.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(time);
        let (after, took) = (shared.completed.load(Ordering::Relaxed), began.elapsed());
        let own = (own_cpu() - own).as_secs_f64() / (took.as_secs_f64() * machine::cpus() as f64);
        let seen = busy.share();
        shared.stop.store(true, Ordering::SeqCst);
        for end in &ends {
            // Wakes whoever waits in a receive or a send; one that is closed already needs no waking.
            let _ = end.shutdown(std::net::Shutdown::Both);
        }
        let iops = (after - before) as f64 / took.as_secs_f64();
        let gbytes_per_s = iops * shape.block_bytes as f64 / 1e9;
        let starved = seen.busy + seen.stolen - own > 0.1;
        Ok(Try { mode, congestion: congestion.to_owned(), iops, gbytes_per_s, starved })
    })
}

/// Tries all modes with all congestion controls on offer; the best is the limit.
///
/// # Errors
/// [`Error`].
pub fn calibrate(shape: &Shape, per_try: Duration, mut step: impl FnMut()) -> Result<Vec<Try>, Error> {
    let mut tries = Vec::new();
    for congestion in transport::socket::congestion_controls() {
        for mode in Mode::ALL {
            // Where there is one processor, or one connection, a thread for each is one thread.
            if mode == Mode::BatchedPerCpu && machine::cpus().min(shape.connections) == 1 {
                continue;
            }
            tries.push(measure_once(shape, mode, &congestion, per_try)?);
            step();
        }
    }
    Ok(tries)
}

fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn connect(address: IpAddr, congestion: &str) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((address, 0))?;
    transport::socket::set_congestion(listener.as_fd(), congestion)?;
    let local: SocketAddr = listener.local_addr()?;
    let ours = TcpStream::connect(local)?;
    transport::socket::set_congestion(ours.as_fd(), congestion)?;
    let (theirs, _) = listener.accept()?;
    ours.set_nodelay(true)?;
    theirs.set_nodelay(true)?;
    Ok((ours, theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(direction: Direction, block_bytes: usize) -> Shape {
        let remotes = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])];
        Shape { block_bytes, depth: 4, connections: 3, direction, remotes }
    }

    #[test]
    fn every_mode_moves_blocks_in_every_direction() {
        let congestion = transport::socket::congestion_controls().remove(0);
        for direction in [Direction::Read, Direction::Write, Direction::Mixed] {
            for mode in Mode::ALL {
                for block_bytes in [4096, 1 << 20] {
                    let time = Duration::from_millis(50);
                    let tried =
                        measure_once(&shape(direction, block_bytes), mode, &congestion, time).unwrap();
                    assert!(tried.iops > 0.0, "{direction:?} {mode:?} {block_bytes}");
                }
            }
        }
    }

    #[test]
    fn an_address_that_is_not_ours_is_named() {
        let mut foreign = shape(Direction::Read, 4096);
        foreign.remotes = vec![IpAddr::from([203, 0, 113, 9])];
        let error = measure_once(&foreign, Mode::Threads, "reno", Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("203.0.113.9"), "{error}");
    }

    #[test]
    fn a_shape_without_sense_is_refused() {
        let none = Shape { connections: 0, ..shape(Direction::Read, 4096) };
        assert!(matches!(measure_once(&none, Mode::Threads, "reno", Duration::ZERO), Err(Error::Shape(_))));
    }
}

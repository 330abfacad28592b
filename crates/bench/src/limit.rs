//! The limit: how much plain TCP carries between given addresses in the shape of NFS or NVMe/TCP
//! traffic, without any protocol work.
//!
//! A number of calls is in flight on each connection. What goes to and fro for each, and how long
//! it is, [`Traffic`] says. The limit is the best of several modes and of the available congestion
//! controls. A result above it means that this program, not the machine, was the limit. [`verbs`]
//! measures the limit of RDMA.

mod batched;
mod coordinator;
pub mod ping;
mod threads;
mod traffic;
pub mod verbs;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use self::batched::ThreadLayout;
use self::coordinator::Coordinator;
pub use self::traffic::Traffic;
use crate::machine;

/// Bytes of a READ or WRITE call without its data.
pub const CALL_BYTES: usize = 100;
/// Bytes of a READ or WRITE answer without its data.
pub const ANSWER_BYTES: usize = 128;
/// The memory from which blocks are sent; larger than any cache.
const STORE_BYTES: usize = 256 << 20;
/// The maximum number of connections of a shape.
const CONNECTIONS_MAX: usize = 1024;
/// With more connections, the mode with a thread for each end is not tried: thousands of threads
/// would measure the scheduler.
const THREADS_CONNECTIONS_MAX: usize = 64;
/// Every connection has completed this many blocks before the measured time begins, so that its
/// buffers have grown and its memory is mapped.
const WARM_BLOCKS: u64 = 4;
/// The time after which blocks that have not moved are given up. Even an emulated processor is far
/// below it.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the progress of the warm-up is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The direction of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Blocks go with the answers.
    Read,
    /// Blocks go with the calls.
    Write,
    /// Every second call is a WRITE.
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
    /// The size of a block in bytes.
    pub block_bytes: usize,
    /// The number of calls in flight on each connection.
    pub depth: usize,
    /// The number of connections, distributed over the addresses.
    pub connections: usize,
    /// The direction of the blocks.
    pub direction: Direction,
    /// The address on which the server's side listens, for each path.
    pub remotes: Vec<IpAddr>,
    /// The protocol whose messages are sent.
    pub traffic: Traffic,
}

/// How the threads drive the ends of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A thread for each end of each connection, which receives payload in place.
    Threads,
    /// One thread for each side, which handles everything that is ready in one system call.
    Batched,
    /// The same with a thread for each processor on each side.
    BatchedPerCpu,
    /// A thread for each processor, with both ends of its connections: no thread waits for another
    /// to wake up.
    BothEnds,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Threads, Self::Batched, Self::BatchedPerCpu, Self::BothEnds];

    /// The name in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "a thread per connection and end",
            Self::Batched => "one thread per end, batched",
            Self::BatchedPerCpu => "a thread per CPU and end, batched",
            Self::BothEnds => "a thread per CPU for both ends, batched",
        }
    }
}

/// The result of one try.
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
    /// Whether other programs used more than a tenth of the processors meanwhile.
    pub starved: bool,
    /// The processor time of both ends for a block, in microseconds.
    pub cpu_us_per_block: f64,
    /// The server's part of that; absent if a thread drives both ends, or the system does not
    /// report it.
    pub server_us_per_block: Option<f64>,
}

/// Why a limit cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address is not local, or cannot be connected to.
    #[error("cannot measure what {address} carries")]
    Address {
        /// The address.
        address: IpAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The shape is invalid.
    #[error("{0}")]
    Shape(String),
    /// A connection failed while its blocks moved.
    #[error("the {end} end of connection {connection} failed")]
    End {
        /// `asking` for the client, `serving` for the server.
        end: &'static str,
        /// The number of the connection, from 0.
        connection: usize,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Threads were started but have not run since.
    #[error("{workers} threads did not begin in {} s", timeout.as_secs())]
    Unready {
        /// The number of threads.
        workers: usize,
        /// How long they were waited for.
        timeout: Duration,
    },
    /// A connection carries next to nothing.
    #[error(
        "TCP carries next to nothing here: in {} s connection {connection} had {blocks} of {WARM_BLOCKS} blocks to warm up",
        timeout.as_secs()
    )]
    Stalled {
        /// The number of the connection, from 0.
        connection: usize,
        /// The number of blocks that it moved.
        blocks: u64,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// A system call failed.
    #[error("cannot measure the limit")]
    System(#[from] io::Error),
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The end that sends calls.
    Client,
    /// The end that answers them.
    Server,
}

impl Role {
    fn failed(self, connection: usize, source: io::Error) -> Error {
        let end = match self {
            Self::Client => "asking",
            Self::Server => "serving",
        };
        Error::End { end, connection, source }
    }
}

/// The connections of a try; both lists have them in the same order.
#[derive(Debug, Default)]
struct Streams {
    client: Vec<TcpStream>,
    server: Vec<TcpStream>,
}

/// The memory to send from, which is mapped by writing to it once.
fn store() -> &'static [u8] {
    static STORE: OnceLock<Vec<u8>> = OnceLock::new();
    STORE.get_or_init(|| vec![7; STORE_BYTES])
}

/// The next block to send, from a random position in the store.
fn next_block(seed: &mut u64, block_bytes: usize) -> &'static [u8] {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let blocks = (STORE_BYTES / block_bytes.max(1)).max(1) as u64;
    let at = ((*seed >> 20) % blocks) as usize * block_bytes;
    store().get(at..at + block_bytes).unwrap_or_default()
}

/// Tries one mode with one congestion control. Measures for `time` once every connection moves
/// blocks, and longer if no block was completed in that time.
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
    let mut streams = Streams::default();
    for address in shape.remotes.iter().cycle().take(shape.connections) {
        let (client, server) =
            connect(*address, congestion).map_err(|source| Error::Address { address: *address, source })?;
        streams.client.push(client);
        streams.server.push(server);
    }
    let measured = measure(shape, mode, streams, time)?;
    let gbytes_per_s = measured.iops * shape.block_bytes as f64 / 1e9;
    let congestion = congestion.to_owned();
    Ok(Try {
        mode,
        congestion,
        iops: measured.iops,
        gbytes_per_s,
        starved: measured.starved,
        cpu_us_per_block: measured.cpu_us_per_block,
        server_us_per_block: measured.server_us_per_block,
    })
}

/// The observations of a try's measured time.
struct Measurement {
    iops: f64,
    starved: bool,
    cpu_us_per_block: f64,
    server_us_per_block: Option<f64>,
}

/// Moves blocks between connected ends until they were measured for this time.
fn measure(shape: &Shape, mode: Mode, streams: Streams, time: Duration) -> Result<Measurement, Error> {
    store();
    let coordinator = Coordinator::new(shape.connections);
    let all = streams.client.iter().chain(&streams.server);
    let all = all.map(TcpStream::try_clone).collect::<io::Result<Vec<_>>>()?;
    let cpus = machine::cpus();
    std::thread::scope(|scope| {
        let coordinator = &coordinator;
        let workers = match mode {
            Mode::Threads => threads::start(scope, shape, coordinator, streams),
            Mode::Batched => batched::start(scope, shape, coordinator, streams, ThreadLayout::Separate(1)),
            Mode::BatchedPerCpu => {
                batched::start(scope, shape, coordinator, streams, ThreadLayout::Separate(cpus))
            }
            Mode::BothEnds => {
                batched::start(scope, shape, coordinator, streams, ThreadLayout::Combined(cpus))
            }
        };
        let measured = workers.map_err(Error::from).and_then(|workers| observe(coordinator, workers, time));
        coordinator.stop();
        for end in &all {
            // Wakes a thread that waits to receive or send. A connection that is already closed
            // needs no waking.
            let _ = end.shutdown(std::net::Shutdown::Both);
        }
        measured
    })
}

/// Starts the workers, warms up, and measures.
fn observe(coordinator: &Coordinator, workers: usize, time: Duration) -> Result<Measurement, Error> {
    coordinator.begin(workers, STALL_TIMEOUT)?;
    wait(coordinator, time / 4, || coordinator.slowest().1 >= WARM_BLOCKS)?;
    let (busy, own, server) = (machine::CpuMeter::start(), machine::own_cpu(), coordinator.server_cpu());
    let (before, began) = (coordinator.completed(), Instant::now());
    wait(coordinator, time, || coordinator.completed() > before)?;
    let (after, took) = (coordinator.completed(), began.elapsed().as_secs_f64());
    let server = coordinator.server_cpu().zip(server).map(|(after, before)| after.saturating_sub(before));
    let own = machine::own_cpu().saturating_sub(own);
    let share = own.as_secs_f64() / (took * machine::cpus() as f64);
    let (measured, blocks) = (busy.share(), (after - before).max(1) as f64);
    Ok(Measurement {
        iops: (after - before) as f64 / took,
        starved: measured.busy + measured.stolen - share > machine::OTHERS_MAX,
        cpu_us_per_block: own.as_secs_f64() * 1e6 / blocks,
        server_us_per_block: server.map(|time| time.as_secs_f64() * 1e6 / blocks),
    })
}

/// Waits for this time, and then until the condition is met.
fn wait(coordinator: &Coordinator, time: Duration, met: impl Fn() -> bool) -> Result<(), Error> {
    let began = Instant::now();
    while began.elapsed() < time || !met() {
        if began.elapsed() > time + STALL_TIMEOUT {
            let (connection, blocks) = coordinator.slowest();
            return Err(Error::Stalled { connection, blocks, timeout: STALL_TIMEOUT });
        }
        coordinator.wait_for_change(time.saturating_sub(began.elapsed()).max(POLL_INTERVAL))?;
    }
    Ok(())
}

/// Tries all modes with all available congestion controls; the best try is the limit. A mode in
/// which a connection starves is left out. After each try, `step` says whether to go on.
///
/// # Errors
/// [`Error`]; a starved connection is an error only if it happens in every mode.
pub fn calibrate(
    shape: &Shape,
    per_try: Duration,
    step: impl FnMut() -> ControlFlow<()>,
) -> Result<Vec<Try>, Error> {
    calibrate_with(shape, &transport::socket::congestion_controls(), per_try, step)
}

/// The same with these congestion controls.
///
/// # Errors
/// As [`calibrate`].
pub(crate) fn calibrate_with(
    shape: &Shape,
    congestion_controls: &[String],
    per_try: Duration,
    mut step: impl FnMut() -> ControlFlow<()>,
) -> Result<Vec<Try>, Error> {
    let (mut tries, mut stalled) = (Vec::new(), None);
    for congestion in congestion_controls {
        for mode in Mode::ALL {
            // With a single processor or connection, this mode equals the one with one thread for
            // each side.
            if mode == Mode::BatchedPerCpu && machine::cpus().min(shape.connections) == 1
                || mode == Mode::Threads && shape.connections > THREADS_CONNECTIONS_MAX
            {
                continue;
            }
            match measure_once(shape, mode, congestion, per_try) {
                Ok(tried) => tries.push(tried),
                Err(error @ (Error::Stalled { .. } | Error::Unready { .. })) => {
                    tracing::warn!(mode = mode.name(), %congestion, %error, "left out of the limit");
                    stalled = Some(error);
                }
                Err(error) => return Err(error),
            }
            if step().is_break() {
                return Ok(tries);
            }
        }
    }
    match stalled {
        Some(error) if tries.is_empty() => Err(error),
        _ => Ok(tries),
    }
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
mod tests;

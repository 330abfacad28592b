//! The wire limit: the best that TCP carries between given addresses in the shape of NFS traffic, with no protocol
//! work at either end.
//!
//! A call is 100 bytes one way, its answer 128 bytes the other way, and a block goes with each answer (read) or with
//! each call (write); a fixed number of calls is in flight per connection. Several ways to drive the sockets are tried
//! with each congestion control on offer, because none is best for all shapes. Both ends run in this process, so both
//! addresses must be this host's; all threads and sockets of a try have ended when it returns.
//!
//! A result above the limit means that this module, not the machine, was the limit, and wants another [`Mode`].

mod batched;
mod connect;
mod cpu;
mod memory;
mod meter;
mod pool;
#[cfg(test)]
mod tests;
mod threads;

pub use pool::Pool;

use crate::calibrate::connect::Link;
use crate::calibrate::meter::Meter;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A call without its block, about what a READ call takes.
const CALL_BYTES: usize = 100;
/// An answer without its block, about what a READ reply takes.
const HEADER_BYTES: usize = 128;
/// A block must fit the memory it is read from many times over, or the cache would answer.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;
/// Two parts for each call of a batch stay within one gathered send (IOV_MAX is 1024).
pub const DEPTH_MAX: usize = 256;
/// Threads mode has two threads per connection, and each holds landing memory.
pub const CONNECTIONS_MAX: usize = 64;

/// Which way the blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// With the answers.
    Read,
    /// With the calls.
    Write,
    /// Both at once: the calls in flight are split in the ratio of readers to writers.
    Mixed {
        /// How many parties read.
        readers: usize,
        /// How many parties write.
        writers: usize,
    },
}

/// The shape of the traffic whose limit is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Payload of one call, 1 to [`BLOCK_BYTES_MAX`].
    pub block_bytes: usize,
    /// Calls in flight per connection, 1 to [`DEPTH_MAX`].
    pub depth: usize,
    /// Connections, 1 to [`CONNECTIONS_MAX`]; connection i uses pair i modulo the number of pairs.
    pub connections: usize,
    /// Which way the blocks go.
    pub direction: Direction,
    /// Local (asking) and remote (serving) addresses; both must be of this host.
    pub pairs: Vec<(IpAddr, IpAddr)>,
}

/// A way to drive the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A thread at each end of each connection, payload received into place.
    Threads,
    /// One thread per end for all connections, whatever is ready in one system call.
    Batched,
    /// As many such threads per end as there are CPUs, the connections spread over them.
    BatchedPerCore,
    /// As [`Mode::Batched`], both threads held on one CPU: with little in flight the wake-ups from CPU to CPU cost
    /// more than the second CPU brings.
    BatchedOneCpu,
}

impl Mode {
    /// The name that records and reports show.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Threads => "threads",
            Mode::Batched => "batched",
            Mode::BatchedPerCore => "batched per core",
            Mode::BatchedOneCpu => "batched on one CPU",
        }
    }
}

/// What one try measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Try {
    /// How the sockets were driven.
    pub mode: Mode,
    /// The congestion control of both ends.
    pub congestion: String,
    /// Payload of both directions, decimal gigabytes per second.
    pub gbytes_per_s: f64,
    /// Calls answered per second, of both directions.
    pub iops: f64,
    /// The reads' part of `gbytes_per_s`.
    pub read_gbytes_per_s: f64,
    /// The writes' part of `gbytes_per_s`.
    pub write_gbytes_per_s: f64,
    /// This process's share of all CPUs' time while measuring, 0 to 1.
    pub cpu_share: f64,
    /// Other processes' and other guests' share of all CPUs' time while measuring, 0 to 1.
    pub others_cpu_share: f64,
    /// Others took more than [`STARVED_CPU_SHARE`], so the machine can do better than this.
    pub starved: bool,
}

/// How much of the machine others may take before a try is flagged.
pub const STARVED_CPU_SHARE: f64 = 0.10;

/// All tries of one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// In the order they ran.
    pub tries: Vec<Try>,
    /// The fastest.
    pub best: Try,
}

/// Why a limit could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shape makes no sense.
    #[error("cannot calibrate: {0}")]
    Misuse(String),
    /// An address is not this host's, or cannot be reached from the other.
    #[error("cannot calibrate {role} {address}: {cause}")]
    Address {
        /// What the address was to be used for.
        role: &'static str,
        /// The address at fault.
        address: IpAddr,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The congestion control is not on offer.
    #[error("cannot calibrate with congestion control {name:?}: {cause}")]
    Congestion {
        /// The name asked for.
        name: String,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A socket or thread failed while it was used.
    #[error("calibration failed while {doing}: {cause}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
}

/// The result of calibrating.
pub type Result<T> = std::result::Result<T, Error>;

/// Calls in flight on one connection, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mix {
    reads: usize,
    writes: usize,
}

/// Tries every mode that can differ for this shape with every congestion control on offer, `per_try` each besides a
/// short warm-up.
///
/// # Errors
/// [`Error::Misuse`] for a shape out of bounds, [`Error::Address`] for an address that is not this host's.
pub fn calibrate(shape: &Shape, per_try: Duration) -> Result<Calibration> {
    let mut tries = Vec::new();
    for mode in modes(shape) {
        for congestion in congestion_controls() {
            tries.push(measure_once(shape, mode, &congestion, per_try)?);
        }
    }
    let best = tries.iter().max_by(|a, b| a.gbytes_per_s.total_cmp(&b.gbytes_per_s)).cloned();
    let best = best.ok_or_else(|| Error::Misuse("no congestion control is on offer".into()))?;
    Ok(Calibration { tries, best })
}

/// One try, so that its repeats can be interleaved with what is measured against it.
///
/// # Errors
/// As [`calibrate`]; [`Error::Congestion`] if the control is not on offer.
pub fn measure_once(shape: &Shape, mode: Mode, congestion: &str, duration: Duration) -> Result<Try> {
    check(shape)?;
    let mixes = mixes(shape, mode);
    let links = connect::links(&shape.pairs, &mixes, congestion)?;
    let meter = Meter::new(links.len());
    let measured = std::thread::scope(|scope| {
        let spawned = match mode {
            Mode::Threads => threads::spawn(scope, &links, shape.block_bytes, &meter),
            Mode::Batched => batched::spawn(scope, &links, shape.block_bytes, &meter, 1, None),
            Mode::BatchedPerCore => batched::spawn(scope, &links, shape.block_bytes, &meter, cpu::count(), None),
            Mode::BatchedOneCpu => {
                batched::spawn(scope, &links, shape.block_bytes, &meter, 1, cpu::current())
            }
        };
        let measured = spawned.and_then(|()| meter.measure(duration));
        // Whatever happened, every thread must see its socket end, or the scope would never close.
        meter.stop();
        links.iter().for_each(Link::shut);
        measured
    });
    let measured = measured.map_err(|cause| Error::Io { doing: "moving blocks", cause })?;
    let per_s = |blocks: u64| blocks as f64 / measured.seconds;
    let gbytes_per_s = |blocks: u64| per_s(blocks) * shape.block_bytes as f64 / 1e9;
    Ok(Try {
        mode,
        congestion: congestion.to_owned(),
        gbytes_per_s: gbytes_per_s(measured.reads + measured.writes),
        iops: per_s(measured.reads + measured.writes),
        read_gbytes_per_s: gbytes_per_s(measured.reads),
        write_gbytes_per_s: gbytes_per_s(measured.writes),
        cpu_share: measured.cpu.own,
        others_cpu_share: measured.cpu.others,
        starved: measured.cpu.others > STARVED_CPU_SHARE,
    })
}

/// The modes worth trying for a shape: those that would do the same as another are left out.
pub fn modes(shape: &Shape) -> Vec<Mode> {
    let mixed = matches!(shape.direction, Direction::Mixed { .. });
    let mut modes = vec![Mode::Batched];
    if !mixed || shape.connections > 1 {
        modes.push(Mode::Threads);
    }
    if shape.connections > 1 && cpu::count() > 1 {
        modes.push(Mode::BatchedPerCore);
    }
    if shape.block_bytes * shape.depth <= ONE_CPU_BYTES_MAX && cpu::count() > 1 {
        modes.push(Mode::BatchedOneCpu);
    }
    modes
}

/// With more than this in flight on a connection, two CPUs have always been seen to beat one.
const ONE_CPU_BYTES_MAX: usize = 512 << 10;

/// The congestion controls that this process may use, in the system's order; empty where there is no such list.
pub fn congestion_controls() -> Vec<String> {
    let read = |name| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let mut all = read("tcp_allowed_congestion_control");
    if all.trim().is_empty() {
        all = read("tcp_congestion_control");
    }
    all.split_whitespace().map(str::to_owned).collect()
}

fn check(shape: &Shape) -> Result<()> {
    let within = |what: &str, value: usize, max: usize| {
        let wrong = || Error::Misuse(format!("{what} is {value}, not 1 to {max}"));
        (1..=max).contains(&value).then_some(()).ok_or_else(wrong)
    };
    within("the block in bytes", shape.block_bytes, BLOCK_BYTES_MAX)?;
    within("the depth", shape.depth, DEPTH_MAX)?;
    within("the number of connections", shape.connections, CONNECTIONS_MAX)?;
    within("the number of address pairs", shape.pairs.len(), usize::MAX)?;
    if let Direction::Mixed { readers, writers } = shape.direction {
        within("the number of readers", readers, usize::MAX / DEPTH_MAX)?;
        within("the number of writers", writers, usize::MAX / DEPTH_MAX)?;
    }
    Ok(())
}

/// What each connection carries. A mix is carried by every connection where one thread can do both without waiting;
/// threads that block carry one kind each, so there the connections are dealt out instead.
fn mixes(shape: &Shape, mode: Mode) -> Vec<Mix> {
    let (reads, writes) = (Mix { reads: shape.depth, writes: 0 }, Mix { reads: 0, writes: shape.depth });
    match shape.direction {
        Direction::Read => vec![reads; shape.connections],
        Direction::Write => vec![writes; shape.connections],
        Direction::Mixed { readers, writers } if mode == Mode::Threads => {
            let total = shape.connections.max(2);
            let reading = (total * readers / (readers + writers)).clamp(1, total - 1);
            // Dealt alternately, so that both kinds use all address pairs.
            (0..total).map(|i| if (i + 1) * reading / total > i * reading / total { reads } else { writes }).collect()
        }
        Direction::Mixed { readers, writers } => {
            let depth = shape.depth.max(2);
            let reads = (depth * readers / (readers + writers)).clamp(1, depth - 1);
            vec![Mix { reads, writes: depth - reads }; shape.connections]
        }
    }
}

fn with_port(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

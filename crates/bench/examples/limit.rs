//! Measures the limit of TCP on loopback, mode by mode. `trunkline bench` compares its results with
//! this limit.
//!
//! ```text
//! cargo run --release -p bench --example limit -- --mode threads --block 1MiB --connections 2
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

use bench::limit::{Direction, Mode, Shape, Traffic, measure_once};
use clap::{Parser, ValueEnum};

/// Print one line for each mode, direction and congestion control, and the best of each direction.
#[derive(Debug, Parser)]
struct Args {
    /// The mode; may be given several times. All modes by default.
    #[arg(long, value_enum)]
    mode: Vec<ModeName>,
    /// The direction of the blocks; may be given several times. All directions by default.
    #[arg(long, value_enum)]
    direction: Vec<DirectionName>,
    /// The congestion control; may be given several times. All available ones by default.
    #[arg(long)]
    congestion: Vec<String>,
    /// The size of a block in bytes.
    #[arg(long, default_value = "1MiB")]
    block: String,
    /// The number of connections.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// The number of calls in flight on each connection.
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// The number of loopback addresses over which the connections are distributed.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    nodes: u8,
    /// The protocol whose messages are sent.
    #[arg(long, value_enum, default_value = "nfs")]
    traffic: TrafficName,
    /// The measured time of each mode, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeName {
    Threads,
    Batched,
    BatchedPerCpu,
    BothEnds,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DirectionName {
    Read,
    Write,
    Mixed,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TrafficName {
    Nfs,
    /// With as many data in a capsule as our target takes.
    NvmeTcp,
}

impl From<TrafficName> for Traffic {
    fn from(name: TrafficName) -> Self {
        match name {
            TrafficName::Nfs => Self::Nfs,
            TrafficName::NvmeTcp => Self::NvmeTcp { in_capsule_bytes: target::CAPSULE_DATA_BYTES as usize },
        }
    }
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Threads => Self::Threads,
            ModeName::Batched => Self::Batched,
            ModeName::BatchedPerCpu => Self::BatchedPerCpu,
            ModeName::BothEnds => Self::BothEnds,
        }
    }
}

impl From<DirectionName> for Direction {
    fn from(name: DirectionName) -> Self {
        match name {
            DirectionName::Read => Self::Read,
            DirectionName::Write => Self::Write,
            DirectionName::Mixed => Self::Mixed,
        }
    }
}

/// Returns what was chosen, or all if nothing was chosen.
fn chosen<T: Clone>(chosen: &[T], all: &[T]) -> Vec<T> {
    if chosen.is_empty() { all.to_vec() } else { chosen.to_vec() }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let block = usize::try_from(server::config::size::parse_bytes(&args.block)?)?;
    let seconds = Duration::try_from_secs_f64(args.seconds)?;
    let remotes = (1..=args.nodes).map(|node| IpAddr::V4(Ipv4Addr::new(127, 0, 0, node))).collect();
    for direction in chosen(&args.direction, DirectionName::value_variants()) {
        let shape = Shape {
            block_bytes: block,
            depth: args.depth,
            connections: args.connections,
            direction: direction.into(),
            remotes: Clone::clone(&remotes),
            traffic: args.traffic.into(),
        };
        let mut best: Option<(f64, String)> = None;
        for congestion in chosen(&args.congestion, &transport::socket::congestion_controls()) {
            for mode in chosen(&args.mode, ModeName::value_variants()) {
                let tried = measure_once(&shape, mode.into(), &congestion, seconds)?;
                let line = format!(
                    "{direction:?} {:?} {congestion}: {:.3} GB/s, {:.0} per second, {:.2} us of CPU per block{}{}",
                    tried.mode,
                    tried.gbytes_per_s,
                    tried.iops,
                    tried.cpu_us_per_block,
                    tried
                        .server_us_per_block
                        .map_or_else(String::new, |us| format!(" ({us:.2} at the serving end)")),
                    if tried.starved { " (others were busy)" } else { "" }
                );
                println!("{line}");
                if best.as_ref().is_none_or(|(most, _)| tried.iops > *most) {
                    best = Some((tried.iops, line));
                }
            }
        }
        if let Some((_, line)) = best {
            println!("best: {line}");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

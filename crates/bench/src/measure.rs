//! One repeat: a workload on a mounted route for a while, and everything that was counted meanwhile.

use std::sync::mpsc;
use std::time::Duration;

use client::{FileRef, Mount, Statistics};
use record::{Direction, Latency};
use server::Server;

use crate::experiment::WorkloadSpec;
use crate::jobs::{Job, Load, Outcome, Tally, Window};
use crate::machine::{Busy, BusyShare};

/// An operation in flight may take this long after the end of its window; a paced queue drains in less.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);

/// What one direction of one repeat did.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Operations per second.
    pub iops: f64,
    /// Operations counted.
    pub ops: u64,
    /// Their bytes.
    pub bytes: u64,
    /// First and last operation, from the start.
    pub span: Option<(Duration, Duration)>,
    /// Latencies.
    pub latency: Latency,
}

/// What one repeat did.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Reads.
    pub read: Option<Flow>,
    /// Writes.
    pub write: Option<Flow>,
    /// Bytes by path, the whole run with its warm-up: read, then written.
    pub bytes_by_path: [Vec<u64>; 2],
    /// Loops of the mount.
    pub loops: usize,
    /// Stamps checked.
    pub stamps: u64,
    /// CPU time of the mount's loops during the window.
    pub client_cpu: Duration,
    /// CPU time of the server's loops, when it runs here.
    pub server_cpu: Option<Duration>,
    /// The window.
    pub window: Duration,
    /// How busy the machine was during the window.
    pub busy: BusyShare,
}

/// Runs a workload once.
///
/// # Errors
/// What went wrong, the first of it.
pub fn run(
    mount: &Mount,
    server: Option<&Server>,
    workload: &WorkloadSpec,
    files: &[(FileRef, u32)],
    window: Window,
) -> Result<Sample, String> {
    let loops = mount.loops().max(1);
    let mut jobs: Vec<Vec<Job>> = vec![Vec::new(); loops];
    for (index, (file, number)) in files.iter().enumerate() {
        let reads = index < workload.readers as usize;
        let direction = if reads { Direction::Read } else { Direction::Write };
        let blocks = workload.file / workload.block.max(1);
        // Every loop works on every file, as every connection of a route may carry every file.
        let of = u64::from(workload.depth).min(loops as u64).min(blocks).max(1);
        for part in 0..of {
            let depth = u32::try_from((u64::from(workload.depth) + part) / of).unwrap_or(u32::MAX);
            let (file, number, pattern) = (*file, *number, workload.pattern);
            let block_bytes = usize::try_from(workload.block).unwrap_or(usize::MAX);
            let job = Job { file, number, direction, pattern, block_bytes, blocks, depth, part, of };
            if let Some(of_loop) = jobs.get_mut((index + usize::try_from(part).unwrap_or(0)) % loops) {
                of_loop.push(job);
            }
        }
    }
    let (sender, receiver) = mpsc::channel();
    let before = mount.statistics();
    for (index, jobs) in jobs.into_iter().enumerate() {
        if !jobs.is_empty() {
            mount.spawn(index, Box::new(Load::new(jobs, window, sender.clone())));
        }
    }
    drop(sender);
    std::thread::sleep(window.warm);
    let busy = Busy::start();
    let cpu = |mount: &Mount| (mount.statistics().cpu, server.map(|server| server.statistics().cpu_ns()));
    let (client_before, server_before) = cpu(mount);
    std::thread::sleep(window.end.saturating_sub(window.warm));
    let (client_after, server_after) = cpu(mount);
    let busy = busy.share();
    let mut outcomes = Vec::new();
    loop {
        match receiver.recv_timeout(DRAIN_PATIENCE) {
            Ok(outcome) => outcomes.push(outcome),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(format!("operations were still unanswered after {DRAIN_PATIENCE:?}"));
            }
        }
    }
    if let Some(error) = outcomes.iter().find_map(|outcome| outcome.error.clone()) {
        return Err(error);
    }
    let nanoseconds = |before: Option<u64>, after: Option<u64>| {
        before.zip(after).map(|(before, after)| Duration::from_nanos(after.saturating_sub(before)))
    };
    Ok(Sample {
        read: flow(outcomes.iter().map(|outcome| &outcome.read), workload.readers),
        write: flow(outcomes.iter().map(|outcome| &outcome.write), workload.writers),
        bytes_by_path: bytes_by_path(&before, &mount.statistics()),
        loops,
        stamps: outcomes.iter().map(|outcome: &Outcome| outcome.stamps).sum(),
        client_cpu: client_after.saturating_sub(client_before),
        server_cpu: nanoseconds(server_before, server_after),
        window: window.end.saturating_sub(window.warm),
        busy,
    })
}

/// Sums what the loops did in one direction.
fn flow<'a>(tallies: impl Iterator<Item = &'a Tally>, jobs: u32) -> Option<Flow> {
    if jobs == 0 {
        return None;
    }
    let mut sum = Flow { bytes_per_s: 0.0, iops: 0.0, ops: 0, bytes: 0, span: None, latency: Latency::new() };
    for tally in tallies {
        let (bytes_per_s, iops) = tally.rates();
        sum.bytes_per_s += bytes_per_s;
        sum.iops += iops;
        sum.ops += tally.ops;
        sum.bytes += tally.bytes;
        sum.latency.merge(&tally.latency);
        sum.span = match (sum.span, tally.span) {
            (Some((first, last)), Some((other_first, other_last))) => {
                Some((first.min(other_first), last.max(other_last)))
            }
            (one, other) => one.or(other),
        };
    }
    Some(sum)
}

fn bytes_by_path(before: &Statistics, after: &Statistics) -> [Vec<u64>; 2] {
    let since = |of: fn(&client::PathCounters) -> u64| {
        let pairs = before.paths.iter().zip(&after.paths);
        pairs.map(|(before, after)| of(&after.counters).saturating_sub(of(&before.counters))).collect()
    };
    [since(|counters| counters.read.bytes), since(|counters| counters.write.bytes)]
}

//! The snapshot of a mount.

use super::Identity;
use super::collector::HEALTHY_AGE_MAX;
use client::{PathStatistics, Statistics};
use metrics::{Gauge, LoopTime, Snapshot};
use mount::Gauges;
use std::time::Duration;

/// What a client has counted. `gauges` are those of a mount.
pub fn snapshot(identity: &Identity, statistics: &Statistics, gauges: Option<&Gauges>) -> Snapshot {
    let mut snapshot = identity.snapshot();
    for path in &statistics.paths {
        for (key, tally) in path.operations() {
            snapshot.operations.add(key, &tally);
        }
    }
    snapshot.paths = statistics.paths.iter().map(PathStatistics::snapshot).collect();
    let cpu_ns = u64::try_from(statistics.cpu.as_nanos()).unwrap_or(u64::MAX);
    snapshot.loops = vec![LoopTime { index: 0, cpu_ns }];
    snapshot.silent_ms = ms(statistics.silent_for);
    snapshot.gauges = of_replays(statistics);
    if let Some(gauges) = gauges {
        snapshot.gauges.extend(of_delegations(statistics));
        snapshot.gauges.extend(held(gauges));
    }
    snapshot
}

/// Whether a path answers. What a loop said of its paths before it hung says nothing of now.
pub fn has_path(statistics: &Statistics) -> bool {
    let is_up =
        |path: &PathStatistics| path.status.iter().any(|status| status.state == client::PathState::Up);
    statistics.silent_for < HEALTHY_AGE_MAX && statistics.paths.iter().any(is_up)
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn of_replays(statistics: &Statistics) -> Vec<Gauge> {
    let client::Replays { reconciled, undecided, unfenced } = statistics.replays;
    vec![
        Gauge::new(
            "replays_reconciled_total",
            "Calls sent again whose error showed that they had been done.",
            reconciled as f64,
        ),
        Gauge::new("replays_undecided_total", "Calls sent again whose error may be real.", undecided as f64),
        Gauge::new(
            "replays_unfenced_total",
            "Writes sent again whose original a server not of ours may execute late.",
            unfenced as f64,
        ),
    ]
}

fn of_delegations(statistics: &Statistics) -> [Gauge; 3] {
    let client::DelegationCounts { held, granted, recalled } = statistics.delegations;
    [
        Gauge::new("delegations", "Files that the server has delegated.", held as f64),
        Gauge::new("delegations_granted_total", "Delegations granted by the server.", granted as f64),
        Gauge::new("delegations_recalled_total", "Delegations recalled by the server.", recalled as f64),
    ]
}

fn held(gauges: &Gauges) -> [Gauge; 5] {
    let Gauges { objects, open_files, open_directories: _, unsent_bytes, read_ahead_bytes, pooled_bytes } =
        *gauges;
    [
        Gauge::new("objects", "Objects that the kernel remembers.", objects as f64),
        Gauge::new("open_files", "Open handles of files.", open_files as f64),
        Gauge::new("unsent_bytes", "Written data that the server does not have yet.", unsent_bytes as f64),
        Gauge::new("read_ahead_bytes", "Data read ahead.", read_ahead_bytes as f64),
        Gauge::new("pooled_bytes", "Memory kept for later requests.", pooled_bytes as f64),
    ]
}

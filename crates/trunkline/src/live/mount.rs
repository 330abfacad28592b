//! The snapshot of a mount.

use super::Identity;
use super::collector::HEALTHY_AGE_MAX;
use client::{PathStatistics, Statistics};
use metrics::{Gauge, Key, Latency, LoopTime, PathState, Snapshot, Tally};
use mount::Gauges;
use std::sync::Arc;
use std::time::Duration;

/// What a client has counted. `gauges` are those of a mount.
pub fn snapshot(identity: &Identity, statistics: &Statistics, gauges: Option<&Gauges>) -> Snapshot {
    let mut snapshot = identity.snapshot();
    for path in &statistics.paths {
        for (key, tally) in operations(path) {
            snapshot.operations.add(key, &tally);
        }
    }
    snapshot.paths = statistics.paths.iter().map(state).collect();
    let cpu_ns = u64::try_from(statistics.cpu.as_nanos()).unwrap_or(u64::MAX);
    snapshot.loops = vec![LoopTime { index: 0, cpu_ns }];
    snapshot.silent_ms = ms(statistics.silent_for);
    snapshot.gauges = of_replays(statistics);
    snapshot.gauges.extend(gauges.into_iter().flat_map(held));
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

/// The remote address of a path, which stands for its node.
fn node(path: &PathStatistics) -> &str {
    path.name.rsplit(" to ").next().unwrap_or(&path.name)
}

/// What was called on a path.
pub(super) fn operations(path: &PathStatistics) -> impl Iterator<Item = (Key, Tally)> {
    let (name, node) = (Arc::<str>::from(path.name.as_str()), Arc::<str>::from(node(path)));
    path.counters.operations.iter().map(move |one| {
        let key = Key {
            node: Some(Arc::clone(&node)),
            path: Some(Arc::clone(&name)),
            operation: Some(one.operation.into()),
            size: Some(one.size),
            ..Key::default()
        };
        let (sent, received) =
            if one.sends_payload { (one.payload_bytes, 0) } else { (0, one.payload_bytes) };
        let tally = Tally {
            count: one.calls,
            errors: one.errors,
            replayed: 0,
            received_bytes: received,
            sent_bytes: sent,
            latency: Latency::of(&one.latency_ns),
        };
        (key, tally)
    })
}

/// The state of a path over all loops: the worst of them, and since when one of them sees it so. A
/// path that is lost is tried again and again: it counts since it was lost.
pub(super) fn state(path: &PathStatistics) -> PathState {
    let worst = path.state();
    let ages = path.status.iter().zip(&path.ages).filter(|(status, _)| Some(status.state) == worst);
    let age = ages.map(|(_, age)| *age).max().unwrap_or_default();
    let is_lost = matches!(worst, Some(client::PathState::Down | client::PathState::Probing));
    let age = path.lost_for.filter(|_| is_lost).unwrap_or(age);
    let sum = |of: fn(&client::PathStatus) -> u64| path.status.iter().map(of).sum();
    let longest =
        |of: fn(&client::PathStatus) -> Duration| ms(path.status.iter().map(of).max().unwrap_or_default());
    PathState {
        name: path.name.clone(),
        node: node(path).to_owned(),
        state: worst.map_or("unused", client::PathState::name).to_owned(),
        since_ms: ms(age),
        failovers: sum(|status| status.failovers),
        moved_calls: sum(|status| status.moved_calls),
        retransmissions: path.counters.retransmissions,
        deaths: sum(|status| status.deaths),
        gap_worst_ms: longest(|status| status.gap_worst),
        gap_last_ms: longest(|status| status.gap_last),
    }
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

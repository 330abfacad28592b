//! The snapshot of a server.

use super::Identity;
use metrics::{Files, Gauge, LoopTime, Snapshot};
use server::Statistics;
use server::statistics::{LoopStatistics, NodeStatistics};

/// What a server has counted.
pub fn snapshot(identity: &Identity, statistics: &Statistics) -> Snapshot {
    let loops = statistics.loops.iter().enumerate();
    Snapshot {
        operations: statistics.operations(),
        loops: loops.map(|(index, one)| LoopTime { index, cpu_ns: one.cpu_ns }).collect(),
        gauges: gauges(statistics),
        files: statistics.files.as_ref().map(|files| Files {
            counted_ms: u64::try_from(files.age.as_millis()).unwrap_or(u64::MAX),
            operations: files.operations.clone(),
        }),
        ..identity.snapshot()
    }
}

fn gauges(statistics: &Statistics) -> Vec<Gauge> {
    let mut gauges: Vec<_> = statistics.nodes.iter().flat_map(of_node).collect();
    let sum = |of: fn(&LoopStatistics) -> u64| statistics.loops.iter().map(of).sum::<u64>() as f64;
    gauges.extend([
        Gauge::new("wakeups_total", "Times an event loop woke up.", sum(|one| one.wakeups)),
        Gauge::new(
            "stalls_total",
            "Times an event loop slept too long and closed connections unexecuted.",
            sum(|one| one.stalls),
        ),
        Gauge::new("connections_moved_total", "Connections given to another loop.", sum(|one| one.moved)),
        Gauge::new("bugs_total", "Connections that ended by a bug of this program.", sum(|one| one.bugs)),
        Gauge::new(
            "held_bytes",
            "Memory held for clients: unfinished records, and replies that wait to be received.",
            statistics.held_bytes as f64,
        ),
        Gauge::new("held_bytes_max", "The bound of held_bytes.", statistics.held_bytes_max as f64),
    ]);
    gauges
}

fn of_node(node: &NodeStatistics) -> [Gauge; 7] {
    let connections = &node.connections;
    let queued: usize = connections.iter().map(|one| one.queued_bytes).sum();
    let pool_calls: usize = connections.iter().map(|one| one.pool_calls).sum();
    let of = |name, help, value| Gauge::new(name, help, value).with("node", &node.name);
    [
        of("connections", "Open connections.", connections.len() as f64),
        of("connections_accepted_total", "Connections accepted.", node.accepted as f64),
        of(
            "calls_refused_total",
            "Calls that reached no procedure: unknown program, broken header, refused credential.",
            node.refused_calls as f64,
        ),
        of("reply_queue_bytes", "Replies that wait until their clients receive them.", queued as f64),
        of("waiting_calls", "Calls that wait for their stores.", pool_calls as f64),
        of("rdma_written_bytes_total", "Bytes written by RDMA.", node.rdma.written_bytes as f64),
        of("rdma_read_bytes_total", "Bytes read by RDMA.", node.rdma.read_bytes as f64),
    ]
}

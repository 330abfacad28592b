//! The snapshot of a server of block volumes.

use super::Identity;
use metrics::{Gauge, LoopTime, Snapshot};
use target::{Overview, Reach};

/// What a target has counted.
pub fn snapshot(identity: &Identity, overview: &Overview) -> Snapshot {
    let mut snapshot = identity.snapshot();
    for volume in &overview.volumes {
        for (key, tally) in volume.operations.iter() {
            snapshot.operations.add(key.clone(), tally);
        }
    }
    let ns = |time: &std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let loops = overview.loops.iter().enumerate();
    snapshot.loops = loops.map(|(index, time)| LoopTime { index, cpu_ns: ns(time) }).collect();
    snapshot.gauges = gauges(overview);
    snapshot
}

fn gauges(overview: &Overview) -> Vec<Gauge> {
    let io = || overview.controllers.iter().filter(|one| !one.report.is_for_discovery());
    let queues: usize = io().map(|one| one.report.io_queues).sum();
    let mut gauges = vec![
        Gauge::new("connections", "Open connections, each a queue.", overview.connections as f64),
        Gauge::new("controllers", "Controllers of hosts, without those for discovery.", io().count() as f64),
        Gauge::new("io_queues", "Connected I/O queues.", queues as f64),
    ];
    for volume in &overview.volumes {
        let nsid = volume.nsid.to_string();
        let of = |name, help, value| Gauge::new(name, help, value).with("nsid", &nsid);
        let is_served = volume.reach == Reach::Serving;
        gauges.push(of("volume_commands", "Commands that are being executed.", volume.commands as f64));
        gauges.push(of("volume_served", "1 if the owner serves it, else 0.", f64::from(u8::from(is_served))));
        gauges.push(of("volume_owner", "The node that owns it: 0 is A, 1 is B.", f64::from(volume.owner.0)));
    }
    gauges
}

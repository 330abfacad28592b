//! The snapshot of a bench: of all the mounts of its routes, those that have ended too.

use super::Identity;
use super::mount::{operations, state};
use ::bench::Watcher;
use client::{Mount, Statistics};
use metrics::{Key, LoopTime, Operations, PathState, Snapshot};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Counts over the mounts of an experiment, which mounts a route again for each repeat.
#[derive(Debug)]
pub struct Counts {
    identity: Identity,
    mounts: Mutex<Mounts>,
}

#[derive(Debug, Default)]
struct Mounts {
    /// The mounts that there are now, each with its route.
    current: Vec<(String, Weak<Mount>)>,
    /// What the others have counted.
    ended: Totals,
}

/// The sum of some mounts.
#[derive(Debug, Clone, Default)]
struct Totals {
    operations: Operations,
    paths: BTreeMap<String, PathState>,
    cpu: Duration,
    /// See [`Statistics::silent_for`].
    silent_for: Duration,
}

impl Counts {
    /// Nothing is mounted yet.
    pub fn new(identity: Identity) -> Self {
        Self { identity, mounts: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Mounts> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been counted so far.
    pub fn snapshot(&self) -> Snapshot {
        let mounts = self.lock();
        let mut totals = mounts.ended.clone();
        for (route, mount) in &mounts.current {
            if let Some(mount) = mount.upgrade() {
                totals.add(route, &mount.statistics());
            }
        }
        drop(mounts);
        let cpu_ns = u64::try_from(totals.cpu.as_nanos()).unwrap_or(u64::MAX);
        Snapshot {
            operations: totals.operations,
            paths: totals.paths.into_values().collect(),
            loops: vec![LoopTime { index: 0, cpu_ns }],
            silent_ms: u64::try_from(totals.silent_for.as_millis()).unwrap_or(u64::MAX),
            ..self.identity.snapshot()
        }
    }
}

impl Watcher for Counts {
    fn mounted(&self, route: &str, mount: &Arc<Mount>) {
        self.lock().current.push((route.to_owned(), Arc::downgrade(mount)));
    }

    fn ended(&self, route: &str, mount: &Arc<Mount>, statistics: &Statistics) {
        let mut mounts = self.lock();
        mounts.current.retain(|(_, other)| other.as_ptr() != Arc::as_ptr(mount));
        mounts.ended.add(route, statistics);
        mounts.ended.silent_for = Duration::ZERO;
        for path in mounts.ended.paths.values_mut() {
            "unused".clone_into(&mut path.state);
        }
    }
}

impl Totals {
    fn add(&mut self, route: &str, statistics: &Statistics) {
        self.cpu += statistics.cpu;
        self.silent_for = self.silent_for.max(statistics.silent_for);
        for path in &statistics.paths {
            let name: Arc<str> = format!("{route} {}", path.name).into();
            for (key, tally) in operations(path) {
                self.operations.add(Key { path: Some(Arc::clone(&name)), ..key }, &tally);
            }
            let now = PathState { name: name.to_string(), ..state(path) };
            let before = self.paths.get(&now.name).cloned();
            let sum = before.map_or(now.clone(), |before| sum(&before, now));
            self.paths.insert(sum.name.clone(), sum);
        }
    }
}

/// The path as it is now, with what it counted in an earlier mount.
fn sum(before: &PathState, now: PathState) -> PathState {
    PathState {
        failovers: before.failovers + now.failovers,
        moved_calls: before.moved_calls + now.moved_calls,
        retransmissions: before.retransmissions + now.retransmissions,
        deaths: before.deaths + now.deaths,
        gap_worst_ms: before.gap_worst_ms.max(now.gap_worst_ms),
        ..now
    }
}

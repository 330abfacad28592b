//! The snapshot of a bench or an agent: of all the mounts and directories of its routes, those that
//! have ended too, of a bench's clients on other machines, and of its embedded group.

mod clients;
mod group;

use self::clients::Clients;
use self::group::Groups;
use super::Identity;
use ::bench::clients::ClientLoad;
use ::bench::{DirectoryCounts, Watcher};
use client::{Mount, Statistics};
use metrics::{Key, LoopTime, Operations, PathState, Snapshot};
use server::StatisticsReader;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The routes that are told apart; an agent may see new ones as long as it runs. The mounts of
/// others are counted together, and so are their directories.
const ROUTES_MAX: usize = 256;
/// The name of these others.
const OTHER_ROUTES: &str = "others";

/// Counts over the mounts and directories of an experiment, which mounts a route again for each
/// repeat.
#[derive(Debug)]
pub struct Counts {
    identity: Identity,
    mounts: Mutex<Mounts>,
    clients: Mutex<Clients>,
    groups: Mutex<Groups>,
}

#[derive(Debug, Default)]
struct Mounts {
    /// The mounts that there are now, each with its route.
    current: Vec<(String, Weak<Mount>)>,
    /// What the others have counted.
    ended: Totals,
    /// The directories that were loaded, each with its route.
    directories: BTreeMap<String, Arc<DirectoryCounts>>,
    /// The names of all routes.
    routes: BTreeSet<String>,
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
        Self { identity, mounts: Mutex::default(), clients: Mutex::default(), groups: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Mounts> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
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
        let directories = mounts.directories.clone();
        drop(mounts);
        for (route, counts) in directories {
            for (key, tally) in counts.keyed(Some(route.into())) {
                totals.operations.add(key, &tally);
            }
        }
        let clients = self.clients();
        for (key, tally) in clients.operations().iter() {
            totals.operations.add(key.clone(), tally);
        }
        totals.cpu += clients.cpu();
        let of_clients = clients.paths();
        drop(clients);
        let cpu_ns = u64::try_from(totals.cpu.as_nanos()).unwrap_or(u64::MAX);
        Snapshot {
            operations: totals.operations,
            paths: totals.paths.into_values().chain(of_clients).collect(),
            loops: vec![LoopTime { index: 0, cpu_ns }],
            silent_ms: u64::try_from(totals.silent_for.as_millis()).unwrap_or(u64::MAX),
            group: self.groups().snapshot().map(Box::new),
            ..self.identity.snapshot()
        }
    }
}

impl Watcher for Counts {
    fn mounted(&self, route: &str, mount: &Arc<Mount>) {
        let mut mounts = self.lock();
        let route = mounts.named(route);
        mounts.current.push((route, Arc::downgrade(mount)));
    }

    fn ended(&self, route: &str, mount: &Arc<Mount>, statistics: &Statistics) {
        let mut mounts = self.lock();
        mounts.current.retain(|(_, other)| other.as_ptr() != Arc::as_ptr(mount));
        let route = mounts.named(route);
        mounts.ended.add(&route, statistics);
        mounts.ended.silent_for = Duration::ZERO;
        for path in mounts.ended.paths.values_mut() {
            "unused".clone_into(&mut path.state);
        }
    }

    fn directory(&self, route: &str) -> Arc<DirectoryCounts> {
        let mut mounts = self.lock();
        let route = mounts.named(route);
        Arc::clone(mounts.directories.entry(route).or_default())
    }

    fn told(&self, route: &str, client: &str, load: &ClientLoad) {
        self.clients().add(route, client, load);
    }

    fn group(&self, nodes: usize, served: StatisticsReader) {
        self.groups().add(&self.identity, nodes, served);
    }

    fn group_ended(&self, served: &server::Statistics) {
        self.groups().end(served);
    }

    fn clients_rest(&self) {
        self.clients().rest();
    }
}

impl Mounts {
    /// The name under which a route is counted.
    fn named(&mut self, route: &str) -> String {
        if !self.routes.contains(route) && self.routes.len() >= ROUTES_MAX {
            return OTHER_ROUTES.to_owned();
        }
        self.routes.insert(route.to_owned());
        route.to_owned()
    }
}

impl Totals {
    fn add(&mut self, route: &str, statistics: &Statistics) {
        self.cpu += statistics.cpu;
        self.silent_for = self.silent_for.max(statistics.silent_for);
        for path in &statistics.paths {
            let name: Arc<str> = format!("{route} {}", path.name).into();
            for (key, tally) in path.operations() {
                self.operations.add(Key { path: Some(Arc::clone(&name)), ..key }, &tally);
            }
            let now = PathState { name: name.to_string(), ..path.snapshot() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_sees_ever_new_routes_keeps_a_bounded_number_of_names() {
        let counts = Counts::new(Identity::new(metrics::Kind::Agent, "10.0.0.11:7411"));
        for number in 0..2 * ROUTES_MAX {
            counts.directory(&format!("/mnt/{number}"));
        }
        counts.directory("/mnt/0");
        let mounts = counts.lock();
        assert_eq!((mounts.routes.len(), mounts.directories.len()), (ROUTES_MAX, ROUTES_MAX + 1));
        assert!(mounts.directories.contains_key(OTHER_ROUTES));
    }
}

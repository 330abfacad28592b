//! What an agent tells of its load while the load runs: once a second, and at the end, what was
//! done since it told last.

use std::time::{Duration, Instant};

use client::{Mount, PathStatistics};
use metrics::{Dimension, Operations, PathState, Tally};
use serde::{Deserialize, Serialize};

use crate::directory::DirectoryRoute;

/// How often an agent tells.
const TELL_INTERVAL: Duration = Duration::from_secs(1);
/// A mount with more paths is told by node: each path adds some kilobytes to each message.
const PATHS_TOLD_MAX: usize = 16;
/// The maximum number of operations that are told apart in a message: those of a mount with all its
/// paths, operations and sizes are fewer.
const ROWS_MAX: usize = 4096;
/// The longest name of a path, node or operation.
const NAME_BYTES_MAX: usize = 256;
/// More operations, and more bytes, than a client does within the time between two messages.
const COUNT_MAX: u64 = 1 << 40;
const BYTES_MAX: u64 = 1 << 50;
/// More processor time than that.
const CPU_MAX: Duration = Duration::from_secs(1 << 24);
/// The states of a path.
const STATES: [&str; 5] = ["up", "suspect", "probing", "down", "unused"];

/// What a client did since it told last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientLoad {
    /// Its operations. In a directory they have no path and no node.
    pub operations: Operations,
    /// The paths of its mount as they are now; their counts are those since it told last.
    pub paths: Vec<PathState>,
    /// The processor time of the mount's loops.
    pub cpu: Duration,
}

/// Where a load is made that an agent tells of.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// On a mount, which nobody has used before.
    Mount(&'a Mount),
    /// In a directory, in which there may have been loads before.
    Directory(&'a DirectoryRoute),
}

/// Tells of a load.
pub(super) struct Teller<'a> {
    place: Place<'a>,
    /// What has been told; in a directory also what was done there before.
    told: ClientLoad,
    next: Instant,
}

impl<'a> Teller<'a> {
    /// Begins with what is to be done in this place.
    pub(super) fn new(place: Place<'a>) -> Self {
        let told = match place {
            Place::Mount(_) => ClientLoad::default(),
            Place::Directory(_) => so_far(place),
        };
        Self { place, told, next: Instant::now() + TELL_INTERVAL }
    }

    /// Whether it is time to tell.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// What was done since this was asked last.
    pub(super) fn tell(&mut self) -> ClientLoad {
        self.next = Instant::now() + TELL_INTERVAL;
        let now = so_far(self.place);
        let since = now.since(&self.told);
        self.told = now;
        since
    }
}

fn so_far(place: Place<'_>) -> ClientLoad {
    let mut load = ClientLoad::default();
    match place {
        Place::Directory(directory) => {
            for (key, tally) in directory.counts().into_iter().flat_map(|counts| counts.keyed(None)) {
                load.operations.add(key, &tally);
            }
        }
        Place::Mount(mount) => {
            let statistics = mount.statistics();
            let is_told = statistics.paths.len() <= PATHS_TOLD_MAX;
            let by_path = [Dimension::Node, Dimension::Path, Dimension::Operation, Dimension::Size];
            let by_node = [Dimension::Node, Dimension::Operation, Dimension::Size];
            let by: &[Dimension] = if is_told { &by_path } else { &by_node };
            for (key, tally) in statistics.paths.iter().flat_map(PathStatistics::operations) {
                load.operations.add(key.only(by), &tally);
            }
            if is_told {
                load.paths = statistics.paths.iter().map(PathStatistics::snapshot).collect();
            }
            load.cpu = statistics.cpu;
        }
    }
    load
}

impl ClientLoad {
    fn since(&self, earlier: &Self) -> Self {
        let paths = self.paths.iter().map(|now| {
            let before = earlier.paths.iter().find(|path| path.name == now.name);
            let since = |count: fn(&PathState) -> u64| count(now).saturating_sub(before.map_or(0, count));
            PathState {
                failovers: since(|path| path.failovers),
                moved_calls: since(|path| path.moved_calls),
                retransmissions: since(|path| path.retransmissions),
                deaths: since(|path| path.deaths),
                ..now.clone()
            }
        });
        Self {
            operations: self.operations.since(&earlier.operations),
            paths: paths.collect(),
            cpu: self.cpu.saturating_sub(earlier.cpu),
        }
    }

    /// The reason why a client cannot have done this, if it cannot.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let texts = self
            .operations
            .iter()
            .flat_map(|(key, _)| [&key.node, &key.client, &key.export, &key.path, &key.operation, &key.file]);
        let names = texts.flatten().map(|text| text.len());
        let mut names = names.chain(self.paths.iter().flat_map(|path| [path.name.len(), path.node.len()]));
        // Each by itself first, so that their sum is a number.
        let is_wrong = |tally: &Tally| {
            let counts = [tally.count, tally.errors, tally.replayed];
            let bytes = [tally.received_bytes, tally.sent_bytes];
            counts.into_iter().chain(tally.latency.bins().iter().map(|(_, count)| *count)).any(is_too_many)
                || bytes.into_iter().any(|bytes| bytes > BYTES_MAX)
        };
        let is_wrong_path = |path: &PathState| {
            let counts = [path.failovers, path.moved_calls, path.retransmissions, path.deaths];
            counts.into_iter().any(is_too_many)
        };
        if self.operations.len() > ROWS_MAX || self.paths.len() > PATHS_TOLD_MAX {
            Some("too many operations or paths")
        } else if names.any(|length| length > NAME_BYTES_MAX) {
            Some("a name that is too long")
        } else if self.operations.iter().any(|(_, tally)| is_wrong(tally))
            || is_too_many(self.operations.total().count)
            || self.paths.iter().any(is_wrong_path)
        {
            Some("a count that nothing reaches")
        } else if self.paths.iter().any(|path| !STATES.contains(&path.state.as_str())) {
            Some("a state that no path has")
        } else if self.cpu > CPU_MAX {
            Some("more processor time than there was")
        } else {
            None
        }
    }
}

const fn is_too_many(count: u64) -> bool {
    count > COUNT_MAX
}

#[cfg(test)]
pub(super) mod tests {
    use metrics::{Key, Latency};

    use super::*;

    /// What a client tells that did nothing wrong.
    pub(in crate::clients) fn load() -> ClientLoad {
        let mut operations = Operations::default();
        let key = Key {
            node: Some("10.0.0.1:2049".into()),
            path: Some("10.0.0.1:2049".into()),
            operation: Some("READ".into()),
            ..Key::default()
        };
        let mut histogram = metrics::latency::histogram();
        histogram.record_n(150_000, 7).unwrap();
        let latency = Latency::of(&histogram);
        operations.add(key, &Tally { count: 7, received_bytes: 7 << 20, latency, ..Tally::default() });
        let path = PathState {
            name: "10.0.0.1:2049".into(),
            node: "10.0.0.1:2049".into(),
            state: "up".into(),
            since_ms: 5,
            failovers: 2,
            moved_calls: 3,
            retransmissions: 0,
            deaths: 1,
            gap_worst_ms: 600,
            gap_last_ms: 600,
        };
        ClientLoad { operations, paths: vec![path], cpu: Duration::from_secs(3) }
    }

    fn tally(load: &mut ClientLoad, change: impl Fn(&mut Tally)) {
        let rows = std::mem::take(&mut load.operations).into_rows();
        for (key, mut tally) in rows {
            change(&mut tally);
            load.operations.add(key, &tally);
        }
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let told = load();
        let mut now = told.clone();
        tally(&mut now, |tally| tally.count += 5);
        now.paths[0].moved_calls += 4;
        now.paths[0].state = "down".into();
        now.cpu += Duration::from_secs(1);
        let since = now.since(&told);
        assert_eq!((since.operations.total().count, since.operations.total().received_bytes), (5, 0));
        let path = &since.paths[0];
        assert_eq!((path.moved_calls, path.failovers, path.state.as_str()), (4, 0, "down"));
        assert_eq!((path.gap_worst_ms, since.cpu), (600, Duration::from_secs(1)));
        assert!(told.since(&told).operations.is_empty());
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(serde_json::from_str::<ClientLoad>(&text).unwrap(), told);
    }

    #[test]
    fn what_no_client_can_have_done_is_told_from_what_one_can() {
        assert_eq!(load().fault(), None);
        type Change<'a> = &'a dyn Fn(&mut ClientLoad);
        let operation = |name: &str| Key { operation: Some(name.into()), ..Key::default() };
        let long = "x".repeat(300);
        let wrong: [(Change<'_>, &str); 9] = [
            (&|it| tally(it, |tally| tally.count = u64::MAX), "count"),
            (&|it| tally(it, |tally| tally.sent_bytes = u64::MAX), "count"),
            (&|it| it.paths[0].deaths = u64::MAX, "count"),
            (&|it| it.paths[0].state = "fine".into(), "state"),
            (&|it| it.paths[0].node = "x".repeat(300), "name"),
            (&|it| it.operations.add(operation(&long), &Tally::default()), "name"),
            (&|it| it.cpu = Duration::MAX, "processor"),
            (&|it| it.paths = vec![it.paths[0].clone(); 17], "too many"),
            (
                &|it| {
                    for number in 0..5000 {
                        it.operations.add(operation(&number.to_string()), &Tally::default());
                    }
                },
                "too many",
            ),
        ];
        for (index, (change, needle)) in wrong.into_iter().enumerate() {
            let mut changed = load();
            change(&mut changed);
            assert!(changed.fault().is_some_and(|fault| fault.contains(needle)), "{index} {needle}");
        }
    }
}

//! What the clients on other machines have told: their operations, told apart by client, and the
//! paths of their mounts. What they call their paths and nodes is foreign text.

use ::bench::clients::ClientLoad;
use metrics::{Key, OTHER_CLIENTS, Operations, PathState, Tally};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The combinations of client, path, node, operation and size that are told apart. The others are
/// counted together.
const KEYS_MAX: usize = 8192;
/// The paths of all clients whose states are kept.
const PATHS_MAX: usize = 2048;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Clients {
    operations: Operations,
    /// The paths by their names and clients.
    paths: BTreeMap<(String, String), PathState>,
    cpu: Duration,
}

impl Clients {
    /// Adds what a client did on a route since it told last.
    pub fn add(&mut self, route: &str, client: &str, load: &ClientLoad) {
        let name = |path: Option<&str>| match path {
            Some(path) => format!("{route} {path}"),
            None => route.to_owned(),
        };
        let client_name: Arc<str> = client.into();
        for (key, tally) in load.operations.iter() {
            let path = Some(name(key.path.as_deref()).into());
            let client = Some(Arc::clone(&client_name));
            self.count(Key { path, client, export: None, file: None, ..key.clone() }, tally);
        }
        for told in &load.paths {
            let key = (name(Some(&told.name)), client.to_owned());
            if let Some(path) = self.paths.get_mut(&key) {
                *path = after(path, told);
            } else if self.paths.len() < PATHS_MAX {
                let path = PathState { name: key.0.clone(), ..told.clone() };
                self.paths.insert(key, path);
            }
        }
        self.cpu = self.cpu.saturating_add(load.cpu);
    }

    fn count(&mut self, key: Key, tally: &Tally) {
        let others = || Some(Arc::<str>::from(OTHER_CLIENTS));
        let has_room = |operations: &Operations, key: &Key, most| {
            operations.len() < most || operations.of(key).is_some()
        };
        if has_room(&self.operations, &key, KEYS_MAX) {
            return self.operations.add(key, tally);
        }
        let key = Key { client: others(), path: others(), ..key };
        if has_room(&self.operations, &key, 2 * KEYS_MAX) {
            return self.operations.add(key, tally);
        }
        // Nodes and operations are names of the clients too.
        self.operations.add(Key { node: others(), operation: others(), ..key }, tally);
    }

    /// No client has a mount any more.
    pub fn rest(&mut self) {
        for path in self.paths.values_mut() {
            "unused".clone_into(&mut path.state);
        }
    }

    /// What they did, told apart by client.
    pub const fn operations(&self) -> &Operations {
        &self.operations
    }

    /// The processor time of their mounts' loops.
    pub const fn cpu(&self) -> Duration {
        self.cpu
    }

    /// The paths, each over all clients that have it: the worst of their states.
    pub fn paths(&self) -> Vec<PathState> {
        let mut merged: Vec<PathState> = Vec::new();
        // Those of one name follow each other.
        for path in self.paths.values() {
            match merged.last_mut().filter(|last| last.name == path.name) {
                None => merged.push(path.clone()),
                Some(last) => {
                    let worst = if badness(path) > badness(last) { path } else { &*last };
                    *last =
                        PathState { state: worst.state.clone(), since_ms: worst.since_ms, ..sum(last, path) };
                }
            }
        }
        merged
    }
}

/// A path as it was told now, with what it counted before.
fn after(before: &PathState, told: &PathState) -> PathState {
    let now = sum(before, told);
    PathState { state: told.state.clone(), since_ms: told.since_ms, gap_last_ms: told.gap_last_ms, ..now }
}

fn sum(one: &PathState, other: &PathState) -> PathState {
    PathState {
        failovers: one.failovers.saturating_add(other.failovers),
        moved_calls: one.moved_calls.saturating_add(other.moved_calls),
        retransmissions: one.retransmissions.saturating_add(other.retransmissions),
        deaths: one.deaths.saturating_add(other.deaths),
        gap_worst_ms: one.gap_worst_ms.max(other.gap_worst_ms),
        gap_last_ms: one.gap_last_ms.max(other.gap_last_ms),
        ..one.clone()
    }
}

fn badness(path: &PathState) -> usize {
    let states = ["unused", "up", "suspect", "probing", "down"];
    states.iter().position(|state| *state == path.state).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::Dimension;

    fn load(path: &str, state: &str, count: u64) -> ClientLoad {
        let mut operations = Operations::default();
        let key = Key {
            node: Some("n1".into()),
            path: Some(path.into()),
            operation: Some("READ".into()),
            ..Key::default()
        };
        operations.add(key, &Tally { count, ..Tally::default() });
        let path = PathState {
            name: path.into(),
            node: "n1".into(),
            state: state.into(),
            since_ms: 7,
            failovers: 1,
            moved_calls: count,
            retransmissions: 0,
            deaths: 0,
            gap_worst_ms: 40,
            gap_last_ms: 40,
        };
        ClientLoad { operations, paths: vec![path], cpu: Duration::from_secs(1) }
    }

    #[test]
    fn what_clients_tell_is_added_up_by_client_and_a_path_has_the_worst_of_its_states() {
        let mut clients = Clients::default();
        clients.add("tcp", "c1", &load("a", "up", 3));
        clients.add("tcp", "c1", &load("a", "up", 4));
        clients.add("tcp", "c2", &load("a", "down", 5));
        let directory = Key { operation: Some("WRITE".into()), ..Key::default() };
        let mut in_directory = ClientLoad::default();
        in_directory.operations.add(directory, &Tally { count: 2, ..Tally::default() });
        clients.add("dir", "c2", &in_directory);
        let of = |client: &str, path: &str| {
            let conditions = [(Dimension::Client, client.to_owned()), (Dimension::Path, path.to_owned())];
            clients.operations().by(&[], &conditions).total().count
        };
        assert_eq!((of("c1", "tcp a"), of("c2", "tcp a"), of("c2", "dir")), (7, 5, 2));
        let paths = clients.paths();
        assert_eq!((paths.len(), paths[0].name.as_str(), paths[0].state.as_str()), (1, "tcp a", "down"));
        assert_eq!((paths[0].moved_calls, paths[0].failovers), (12, 3));
        assert_eq!(clients.cpu(), Duration::from_secs(3));
        clients.rest();
        assert_eq!(clients.paths()[0].state, "unused");
    }

    #[test]
    fn a_client_that_names_ever_new_paths_takes_a_bounded_memory_and_no_operation_is_lost() {
        let mut clients = Clients::default();
        for number in 0..3 * KEYS_MAX {
            let mut load = load(&number.to_string(), "up", 1);
            let rows = std::mem::take(&mut load.operations).into_rows();
            for (key, tally) in rows {
                load.operations.add(Key { node: Some(number.to_string().into()), ..key }, &tally);
            }
            clients.add("tcp", "c1", &load);
        }
        assert_eq!(clients.operations().total().count, 3 * KEYS_MAX as u64);
        assert!(clients.operations().len() <= 2 * KEYS_MAX + 1, "{}", clients.operations().len());
        assert_eq!(clients.paths().len(), PATHS_MAX);
    }
}

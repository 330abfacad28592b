//! Which nodes new files may be placed on: those that some path leads to which no loop knows to be
//! down.
//!
//! Each loop has a path table of its own, and tells every change of the state of a path on which it
//! has connections of its own. A file that is
//! placed already stays placed while its node is down, and its calls go elsewhere meanwhile.

use paths::{NodeId, PathId, Placement, State};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct NodeHealth {
    /// The node of each path.
    nodes: Vec<NodeId>,
    /// Paths that are down, each with the loop that knows it: from the moment at which it is down
    /// until it is up, also while it is probed.
    down: Mutex<HashSet<(PathId, u64)>>,
    /// Counts changes, so that whatever places files looks at the paths only after one.
    changes: AtomicU64,
}

impl NodeHealth {
    /// By the node of each path.
    pub(crate) fn new(nodes: impl Iterator<Item = NodeId>) -> Self {
        Self { nodes: nodes.collect(), down: Mutex::default(), changes: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(PathId, u64)>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A path has come to this state in a loop.
    pub(crate) fn note(&self, path: PathId, by: &Reporter, state: State) {
        if !by.own.contains(&path) {
            return;
        }
        let is_new = match state {
            State::Down => self.lock().insert((path, by.identity)),
            State::Up => self.lock().remove(&(path, by.identity)),
            State::Suspect | State::Probing => false,
        };
        if is_new {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Each node that a path leads to, and whether some path does that no loop knows to be down.
    fn usable(&self) -> BTreeMap<u16, bool> {
        let down: HashSet<PathId> = self.lock().iter().map(|(path, _)| *path).collect();
        let mut usable = BTreeMap::new();
        for (index, node) in (0_u16..).zip(&self.nodes) {
            *usable.entry(node.0).or_insert(false) |= !down.contains(&PathId(index));
        }
        usable
    }
}

/// A loop, which reports the paths on which it has connections of its own. Of a path that it only
/// fails over to, it may never learn that the path is up again.
#[derive(Debug)]
pub(crate) struct Reporter {
    identity: u64,
    own: HashSet<PathId>,
}

impl Reporter {
    pub(crate) fn new(identity: u64, own: impl Iterator<Item = PathId>) -> Self {
        Self { identity, own: own.collect() }
    }

    /// The identity of the loop, if the loop reports this path.
    pub(crate) fn of(&self, path: PathId) -> Option<u64> {
        self.own.contains(&path).then_some(self.identity)
    }
}

/// Files on nodes, with what is known of the nodes.
#[derive(Debug)]
pub(crate) struct FilePlacement {
    placement: Placement,
    /// Changes that the placement knows of.
    seen: u64,
}

impl FilePlacement {
    pub(crate) const fn new(placement: Placement) -> Self {
        Self { placement, seen: 0 }
    }

    /// The node of a file, which counts as used once more.
    pub(crate) fn place(&mut self, file: u64, health: &NodeHealth) -> NodeId {
        let changes = health.changes.load(Ordering::Acquire);
        if changes != self.seen {
            self.seen = changes;
            for (node, usable) in health.usable() {
                self.placement.set_usable(NodeId(node), usable);
            }
        }
        self.placement.place(file)
    }

    /// Undoes one [`FilePlacement::place`].
    pub(crate) fn release(&mut self, file: u64) {
        self.placement.release(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_are_placed_on_a_node_again_once_some_path_to_it_is_up_in_all_loops() {
        let health = NodeHealth::new([0, 1, 1].map(NodeId).into_iter());
        let mut placement = FilePlacement::new(Placement::new(2, 0));
        let mut next = 0;
        let mut nodes = |health: &NodeHealth| {
            next += 2;
            let mut nodes = [next, next + 1].map(|file| placement.place(file, health).0);
            nodes.sort_unstable();
            nodes
        };
        assert_eq!(nodes(&health), [0, 1]);
        let [seven, eight] = [7, 8].map(|identity| Reporter::new(identity, [1, 2].map(PathId).into_iter()));
        let note = |path, by: &Reporter, state| health.note(PathId(path), by, state);
        note(1, &seven, State::Down);
        assert_eq!(nodes(&health), [0, 1], "another path leads to the second node");
        // Both loops use the second path to that node.
        note(2, &seven, State::Down);
        note(2, &eight, State::Down);
        assert_eq!(nodes(&health), [0, 0]);
        note(2, &seven, State::Up);
        note(2, &eight, State::Probing);
        assert_eq!(nodes(&health), [0, 0], "one loop has not reached the second node again");
        note(2, &eight, State::Up);
        assert_eq!(nodes(&health), [1, 1], "the second node has fewer files");
        assert_eq!(nodes(&health), [1, 1], "both nodes have equally many files");
        note(0, &seven, State::Down);
        assert_eq!(nodes(&health), [0, 1], "a path that a loop only fails over to says nothing");
    }
}

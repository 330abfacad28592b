//! What the loops of a mount tell each other about its paths.

use std::sync::Arc;

use paths::{PathId, State};

use crate::node_health::Reporter;
use crate::path_failures::SeenFailures;
use crate::route::Route;

/// One loop's part in that.
#[derive(Debug)]
pub(super) struct Health {
    route: Arc<Route>,
    /// The path failures of other loops that this loop has seen.
    seen: SeenFailures,
    /// Tells which nodes are down.
    reporter: Reporter,
}

impl Health {
    /// For a loop with this identity whose connections prefer these paths.
    pub(super) fn new(route: &Arc<Route>, identity: u64, own: impl Iterator<Item = PathId>) -> Self {
        let seen = route.path_failures.listener();
        Self { route: Arc::clone(route), seen, reporter: Reporter::new(identity, own) }
    }

    /// Tells the other loops that a validated connection on this path broke.
    pub(super) fn report_failure(&mut self, path: PathId) {
        self.route.path_failures.tell(path, &mut self.seen);
    }

    /// A path on which a connection of another loop broke, until all are told.
    pub(super) fn next_failure(&mut self) -> Option<PathId> {
        self.route.path_failures.hear(&mut self.seen)
    }

    /// Notes that a path has come to this state in this loop.
    pub(super) fn note(&self, path: PathId, state: State) {
        self.route.node_health.note(path, &self.reporter, state);
    }
}

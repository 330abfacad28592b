//! What the loops of a mount tell each other about its paths.

use std::sync::Arc;
use std::time::Instant;

use paths::{PathId, State, Table};

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
    /// Paths on which something failed since the last tick.
    failed: Vec<PathId>,
}

impl Health {
    /// For a loop with this identity whose connections prefer these paths.
    pub(super) fn new(route: &Arc<Route>, identity: u64, own: impl Iterator<Item = PathId>) -> Self {
        let seen = route.path_failures.listener();
        Self { route: Arc::clone(route), seen, reporter: Reporter::new(identity, own), failed: Vec::new() }
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
        let Some(identity) = self.reporter.of(path) else { return };
        if let Some(away) = self.route.path_losses.note(path, identity, state, Instant::now()) {
            let (server, path) = (&self.route.server, self.route.path_name(path));
            tracing::warn!(%server, %path, "a path is back after {:.1} s", away.as_secs_f64());
        }
    }

    /// Logs the paths that are lost and not logged yet; called at each tick. A failure on a path
    /// that is up by then did not lose it.
    pub(super) fn log_losses(&mut self, table: &Table) {
        for path in self.failed.drain(..) {
            let is_up = table.path(path).is_some_and(|status| status.state == State::Up);
            if let Some(identity) = self.reporter.of(path).filter(|_| is_up) {
                self.route.path_losses.withstood(path, identity);
            }
        }
        let (due, lost) = self.route.path_losses.due(Instant::now());
        let all = self.route.paths.len();
        for (path, reason) in due {
            let (server, path) = (&self.route.server, self.route.path_name(path));
            let reason = reason.as_deref().unwrap_or("no answer");
            let left = all.saturating_sub(lost);
            tracing::warn!(%server, %path, "a path is lost ({reason}); {left} of {all} paths are left");
        }
    }

    /// Notes why a connection or a probe on a path failed.
    pub(super) fn failed(&mut self, path: Option<PathId>, reason: &dyn std::fmt::Display) {
        if let Some((path, identity)) = path.and_then(|path| Some((path, self.reporter.of(path)?))) {
            self.route.path_losses.failed(path, identity, reason, Instant::now());
            self.failed.push(path);
        }
    }
}

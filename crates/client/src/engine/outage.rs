//! Says once that a mount has no path, and once that it has one again.

use std::time::Duration;

use crate::route::Route;

/// A mount without a path for this long logs a warning. Shorter gaps are a reset and a new
/// connection, or a busy machine.
const LOG_DOWN_AFTER: Duration = Duration::from_secs(2);

/// A loop's view of whether it has a path.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Since when calls wait for a path.
    since: Option<Duration>,
    /// Whether this loop is one of the route's stranded loops.
    is_stranded: bool,
}

impl Outage {
    /// Looks whether there is a path, and whether calls wait for one. Logs only from the first loop
    /// of the mount to notice, and the last to recover.
    pub(super) fn look(&mut self, route: &Route, is_usable: bool, calls_wait: bool, now: Duration) {
        let server = &route.server;
        if is_usable && std::mem::take(&mut self.is_stranded) && route.loops_without_path.remove() {
            tracing::warn!(%server, "a path answers again");
        }
        if is_usable || !calls_wait {
            self.since = None;
            return;
        }
        let seconds = now.saturating_sub(*self.since.get_or_insert(now)).as_secs();
        let is_long = seconds >= LOG_DOWN_AFTER.as_secs();
        if is_long && !std::mem::replace(&mut self.is_stranded, true) && route.loops_without_path.add() {
            tracing::warn!(%server, "no path has answered for {seconds} s; calls wait until one does");
        }
    }
}

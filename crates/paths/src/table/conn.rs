//! One connection of a table.

use crate::PathId;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Conn {
    pub link: Link,
    pub preferred: PathId,
    /// The path that the driver was last told to use.
    pub path: PathId,
    /// Attempts to connect again after the connection broke while its path was alive.
    pub attempts: u32,
}

/// Whether a connection can carry calls.
#[derive(Debug, Clone, Copy)]
pub(super) enum Link {
    /// Not connected; waits for a path.
    Idle,
    /// The driver is connecting it.
    Connecting(Attempt),
    /// Broken while its path is alive; it connects again at this time.
    Waiting { until: Duration },
    /// Connected and validated.
    Live(Live),
}

/// An attempt to connect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// When it began or, once the peer's system has accepted it, when path validation began.
    pub since: Duration,
    pub until: Duration,
    /// The peer's system has accepted the connection.
    pub accepted: bool,
    /// It gave up a live connection on another path.
    pub is_failback: bool,
}

/// A connection that carries calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    pub since: Duration,
    pub last_alive: Duration,
    /// Its calls are overdue.
    pub silent: bool,
    /// How much of its silence is due to the driver, which did not run.
    pub excused: Duration,
    /// Takes no new calls until this time, because it is about to fail back.
    pub draining: Option<Duration>,
}

impl Conn {
    pub const fn new(preferred: PathId) -> Self {
        Self { link: Link::Idle, preferred, path: preferred, attempts: 0 }
    }

    pub const fn live(&self) -> Option<&Live> {
        if let Link::Live(live) = &self.link { Some(live) } else { None }
    }

    pub const fn live_mut(&mut self) -> Option<&mut Live> {
        if let Link::Live(live) = &mut self.link { Some(live) } else { None }
    }

    pub const fn is_connecting(&self) -> bool {
        matches!(self.link, Link::Connecting(_))
    }

    pub const fn draining(&self) -> Option<Duration> {
        if let Link::Live(Live { draining, .. }) = self.link { draining } else { None }
    }

    pub fn is_failed_over(&self) -> bool {
        self.path != self.preferred
    }
}

impl Live {
    pub const fn new(now: Duration) -> Self {
        Self { since: now, last_alive: now, silent: false, excused: Duration::ZERO, draining: None }
    }

    /// A byte arrived. Returns whether its calls were overdue.
    pub const fn alive(&mut self, now: Duration) -> bool {
        self.last_alive = now;
        self.excused = Duration::ZERO;
        std::mem::replace(&mut self.silent, false)
    }

    /// How long the connection has been silent since `since`, apart from what is excused.
    pub const fn silence(&self, now: Duration, since: Duration) -> Duration {
        now.saturating_sub(since).saturating_sub(self.excused)
    }
}

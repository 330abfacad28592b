//! What a loop does after it did not run for a while.
//!
//! Clients send a call elsewhere if its reply does not come, and a late original must not undo a
//! newer write there: the other server may be on a host that shares no reply cache with this one
//! ([decision 0004](../../../../../docs/decisions/0004-reply-cache.md)). So calls that waited in
//! this host for longer than [`Limits::stall_ms_max`](crate::config::Limits) because the loop did
//! not run are never executed: their connections are reset.
//!
//! All other connections stay. A connection that holds no received call has nothing to execute. A
//! client that sent data more recently had not given up the connection by then, because it resets a
//! connection before it sends calls of that connection elsewhere.
//!
//! A loop with much to do runs all the time: it reads the clock between any two pieces of work. A
//! call that waits for its turn there is executed, as it would be on a slow server.

use super::EventLoop;
use crate::clock;
use crate::runtime::connection::{CloseReason, Connection};
use std::time::Duration;
use transport::Transport;

impl EventLoop {
    /// Reads the clock; after too long a sleep, connections are reset that may hold calls which
    /// waited too long.
    pub(super) fn notice_stall(&mut self) {
        let slept = self.read_clock();
        if slept > self.stall_max() {
            self.reset_stale(slept);
        }
    }

    /// As [`notice_stall`](Self::notice_stall), after a wait for events, which may have lasted long
    /// without a sleep of the machine: without events a loop only has work if its connections hold
    /// calls.
    pub(super) fn notice_stall_after_wait(&mut self, has_events: bool) {
        let slept = self.read_clock();
        if slept <= self.stall_max() || self.connections.is_empty() {
            return;
        }
        let has_work = has_events || !self.run_queue.is_empty();
        if has_work || self.connections.iter().any(|(_, connection)| connection.holds_waiting_calls()) {
            self.reset_stale(slept);
        }
    }

    fn reset_stale(&mut self, slept: Duration) {
        let stall_max = self.stall_max();
        self.statistics.stalls += 1;
        let stale = self.keys(|connection| connection.may_hold_stale_call(stall_max));
        tracing::warn!(
            index = self.index,
            ?slept,
            reset = stale.len(),
            "the loop did not run; connections with calls that waited for longer than stall_ms are reset \
             unexecuted"
        );
        for key in stale {
            self.close(key, CloseReason::Stalled);
        }
    }

    /// Reads the clock. Returns the time since it was last read.
    pub(super) fn read_clock(&mut self) -> Duration {
        let now = clock::now();
        let passed = now.saturating_sub(self.alive);
        self.alive = now;
        if passed > self.stall_max() {
            self.runs_since = now;
        }
        passed
    }

    /// Whether a connection that left another loop at `since` may hold a call that waited too long
    /// because this loop did not run.
    pub(super) fn slept_while_moving(&self, connection: &Connection, since: Duration) -> bool {
        let waited = self.alive.saturating_sub(since);
        waited > self.stall_max()
            && since < self.runs_since
            && connection.may_hold_stale_call(self.stall_max())
    }

    /// After this long without running, a loop no longer knows which calls its clients have sent
    /// elsewhere.
    fn stall_max(&self) -> Duration {
        Duration::from_millis(self.group.limits.stall_ms_max)
    }
}

impl Connection {
    /// Whether calls may have been received that no event of the connection would announce: they
    /// wait for a worker, or the connection is paused.
    fn holds_waiting_calls(&self) -> bool {
        self.pool_calls() > 0 || self.paused && self.stream.may_hold_records()
    }

    /// Whether calls may have been received and not executed, of which the newest data arrived
    /// longer ago than this.
    pub(super) fn may_hold_stale_call(&self, stale_after: Duration) -> bool {
        let holds_calls = self.stream.may_hold_records() || self.pool_calls() > 0;
        holds_calls && self.stream.since_data().is_none_or(|since| since > stale_after)
    }
}

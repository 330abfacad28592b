//! Checks whether a client has received its replies. This tells a client's retry from a call of its
//! neighbour.
//!
//! The reply cache is asked for a call that also arrived on another connection
//! ([`drc::ConnectionTable`]). The loop of that other connection answers: it notes the total length
//! of all replies so far, and checks until the client's system has acknowledged that many bytes, or
//! has failed to do so for [`UNACKNOWLEDGED_MAX`]. Connections that nobody asks about cost nothing.

use super::connection::Connection;
use crate::reply_cache::ReplyCache;
use std::time::Duration;
use transport::Transport;

/// A client that has not acknowledged a reply within this time may never receive it, and may send
/// the call again elsewhere. A system acknowledges within a quarter of a second plus the round-trip
/// time.
pub(super) const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(2);

/// A check in progress.
#[derive(Debug)]
pub(super) struct AcknowledgementCheck {
    since: Duration,
    /// Calls that workers had when the check began and have not finished.
    calls: usize,
    /// The length of all replies, known once none of those calls is outstanding, and the time from
    /// which it is known.
    bytes: Option<(u64, Duration)>,
}

impl AcknowledgementCheck {
    /// A call has come back from the worker pool.
    pub fn call_ended(&mut self, received: Duration) {
        if received <= self.since {
            self.calls = self.calls.saturating_sub(1);
        }
    }
}

impl Connection {
    /// Checks whether the client has its replies, if somebody asks. Returns true while the check
    /// must be repeated soon.
    pub fn check_acknowledgement(&mut self, reply_cache: &ReplyCache, now: Duration) -> bool {
        let Some(id) = self.client.cache_client.connection.id() else { return false };
        let connections = reply_cache.connections();
        if self.acknowledgement_check.is_none() && !connections.has_pending_query(id) {
            return false;
        }
        let calls = self.pool_calls();
        let all = self.sent_bytes + self.stream.queued_bytes() as u64;
        let check =
            self.acknowledgement_check.get_or_insert(AcknowledgementCheck { since: now, calls, bytes: None });
        // Calls that ended before the check began have been received by then, however long others
        // take.
        if check.bytes.is_none() && (check.calls == 0 || now >= check.since + UNACKNOWLEDGED_MAX) {
            check.bytes = Some((all, now));
        }
        let since = check.since;
        let Some((bytes, known_since)) = check.bytes else { return true };
        let unacknowledged = self.stream.unacknowledged_bytes();
        let acknowledged = unacknowledged.is_some_and(|left| self.sent_bytes.saturating_sub(left) >= bytes);
        // A reset is noticed soon, and then means that the client may not have read what its system
        // received.
        let acknowledged = acknowledged && (self.stream.is_open() || self.stream.is_closed_by_peer());
        if acknowledged || now >= known_since + UNACKNOWLEDGED_MAX {
            connections.answer_query(id, since, acknowledged);
            self.acknowledgement_check = None;
            return false;
        }
        true
    }

    /// Whether the client has closed the connection and has received every reply.
    pub fn is_fully_acknowledged(&self) -> bool {
        !self.has_pending_replies()
            && self.stream.unacknowledged_bytes() == Some(0)
            && self.stream.is_closed_by_peer()
    }

    /// Whether the connection is kept open after the client closed it, to see whether the client
    /// has its replies.
    pub fn awaits_last_acknowledgement(&self) -> bool {
        self.closed_by_peer_at.is_some()
    }

    /// Handles a close by the client. Returns whether the connection stays open to check the
    /// replies.
    pub fn await_last_acknowledgement(&mut self, now: Duration) -> bool {
        let is_known = self.client.cache_client.connection.id().is_some();
        let may_still_learn = self.stream.acknowledges_after_close() && self.stream.is_closed_by_peer();
        if !is_known || !may_still_learn || self.is_fully_acknowledged() {
            return false;
        }
        now < *self.closed_by_peer_at.get_or_insert(now) + UNACKNOWLEDGED_MAX
    }
}

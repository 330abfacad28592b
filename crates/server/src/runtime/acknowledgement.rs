//! Whether a client has its replies: what tells its retry from a neighbour's call.
//!
//! Somebody asks the reply cache for a call that another connection had, too
//! ([`drc::ConnectionTable`]). The loop of that connection answers: it notes how many bytes all
//! replies up to now have, and looks until the client's system has acknowledged as many, or has not
//! for [`UNACKNOWLEDGED_MAX`]. Nothing is done for a connection of which nobody asks.

use super::connection::Connection;
use crate::reply_cache::ReplyCache;
use std::time::Duration;

/// A client that has not acknowledged a reply for so long may not get it any more, and may ask
/// again elsewhere. A system acknowledges within a quarter of a second and the way there and back.
pub(super) const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(2);

/// A look that has begun.
#[derive(Debug)]
pub(super) struct Look {
    since: Duration,
    /// Calls of then that workers have still.
    calls: usize,
    /// Bytes of all replies, once none of those calls is missing, and since when that is known.
    bytes: Option<(u64, Duration)>,
}

impl Look {
    /// A call that was off the loop has come back.
    pub fn land(&mut self, received: Duration) {
        if received <= self.since {
            self.calls = self.calls.saturating_sub(1);
        }
    }
}

impl Connection {
    /// Looks whether the client has its replies, if somebody asks; true while that is to be looked
    /// at again soon.
    pub fn look(&mut self, reply_cache: &ReplyCache, now: Duration) -> bool {
        let Some(known_as) = self.client.caller.called_from.known_as() else { return false };
        let connections = reply_cache.connections();
        if self.look.is_none() && !connections.is_asked(known_as) {
            return false;
        }
        let calls = self.pool_calls();
        let all = self.sent_bytes + self.stream.queued_bytes() as u64;
        let look = self.look.get_or_insert(Look { since: now, calls, bytes: None });
        // What ended before the look began has landed by then, however long others take.
        if look.bytes.is_none() && (look.calls == 0 || now >= look.since + UNACKNOWLEDGED_MAX) {
            look.bytes = Some((all, now));
        }
        let since = look.since;
        let Some((bytes, known_since)) = look.bytes else { return true };
        let unacknowledged = self.stream.unacknowledged_bytes(self.unsent);
        let acknowledged = unacknowledged.is_some_and(|left| self.sent_bytes.saturating_sub(left) >= bytes);
        // What was reset is about to be noticed, and then says that the client may not have read
        // what its system had.
        let acknowledged = acknowledged && (self.stream.is_open() || self.stream.is_closed_by_peer());
        if acknowledged || now >= known_since + UNACKNOWLEDGED_MAX {
            connections.answer(known_as, since, acknowledged);
            self.look = None;
            return false;
        }
        true
    }

    /// Whether the client has closed the connection and every reply is with it.
    pub fn is_received(&self) -> bool {
        !self.is_owing()
            && self.stream.unacknowledged_bytes(self.unsent) == Some(0)
            && self.stream.is_closed_by_peer()
    }

    /// Whether it is kept open though the client has closed it, to see whether the client has its
    /// replies.
    pub fn is_parting(&self) -> bool {
        self.parting_since.is_some()
    }

    /// The client has closed the connection: whether it is to be kept open for that.
    pub fn parts(&mut self, now: Duration) -> bool {
        let is_known = self.client.caller.called_from.known_as().is_some();
        if !is_known || self.stream.is_rdma() || self.is_received() || !self.stream.is_closed_by_peer() {
            return false;
        }
        now < *self.parting_since.get_or_insert(now) + UNACKNOWLEDGED_MAX
    }
}

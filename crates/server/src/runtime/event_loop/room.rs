//! Room for connections that wait for memory: they go on in the order in which they began to wait,
//! and connections that keep the server waiting are ended for them.
//!
//! The memory belongs to all loops ([`crate::byte_budget`]). A loop that finds nothing to end among
//! its own connections asks the others.

use super::EventLoop;
use crate::byte_budget::Account;
use crate::runtime::connection::CloseReason;
use crate::runtime::held_memory::ROOM_BYTES_MIN;
use crate::runtime::mailbox::Message;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// How often a loop looks for room while connections wait: often enough for a bulk transfer, and
/// rarely enough that looking at all connections costs little.
pub(super) const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// In one round memory is sought for at most so many addresses in vain: each looks at all
/// connections.
const REFUSED_MAX: usize = 8;
/// How often the log mentions that memory is used up.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// What a loop knows of its connections that wait for room.
#[derive(Debug, Default)]
pub(super) struct RoomCheck {
    /// Some connection waits.
    pub is_needed: bool,
    /// A reply was shortened: room for as long a one is sought, so that the next is not.
    for_reply: Option<(Arc<Account>, usize)>,
    next: Duration,
    next_warning: Duration,
}

impl RoomCheck {
    /// Seeks room for replies of this length on behalf of an address.
    pub fn seek_for_reply(&mut self, account: &Arc<Account>, bytes: usize) {
        self.is_needed = true;
        self.for_reply.get_or_insert_with(|| (Arc::clone(account), bytes));
    }
}

impl EventLoop {
    /// Resumes connections that wait for room, as far as there is room or some can be made.
    pub(super) fn resume_waiting(&mut self) {
        let now = self.alive;
        if !self.room_check.is_needed || now < self.room_check.next {
            return;
        }
        self.room_check.next = now + ROOM_CHECK_INTERVAL;
        if let Some((account, bytes)) = self.room_check.for_reply.take() {
            self.find_room(&account, bytes, 0);
        }
        let waiting = self.connections.iter().filter(|(_, connection)| !connection.is_queued);
        let mut waiting: Vec<_> = waiting
            .filter_map(|(key, connection)| Some((connection.waits_for_room()?, key)))
            .map(|((since, bytes), key)| (since, key, bytes))
            .collect();
        self.room_check.is_needed = !waiting.is_empty();
        waiting.sort_unstable();
        let mut promised = 0;
        // Addresses for which no memory could be freed in this round.
        let mut refused: SmallVec<[Arc<Account>; REFUSED_MAX]> = SmallVec::new();
        for (_, key, bytes) in waiting {
            let Some(account) = self.connections.get(key).map(|connection| Arc::clone(connection.account()))
            else {
                continue;
            };
            if !self.group.budget.has_room(&account, bytes, promised) {
                // A connection that wants less waits for its own client to take its replies.
                let is_refused = refused.iter().any(|other| Arc::ptr_eq(other, &account));
                if is_refused || refused.len() >= REFUSED_MAX || bytes <= ROOM_BYTES_MIN {
                    continue;
                }
                if !self.find_room(&account, bytes, promised) {
                    refused.push(account);
                    continue;
                }
            }
            promised += bytes;
            self.schedule(key);
        }
    }

    /// Makes room here, or asks the other loops to. Returns whether there is room now.
    fn find_room(&mut self, account: &Arc<Account>, bytes: usize, promised: usize) -> bool {
        if self.group.budget.has_room(account, bytes, promised) {
            return true;
        }
        self.warn_of_used_up_memory();
        let found = self.make_room(account, bytes, promised);
        if !found {
            self.mailboxes.send_others(self.index, || Message::MakeRoom(Arc::clone(account), bytes));
        }
        found
    }

    /// Ends overdue connections until an address has room for `bytes` besides what others were
    /// promised: those of the address itself if it may not hold that much, or else of the address
    /// that holds most, the oldest first. Returns false if that does not suffice.
    pub(super) fn make_room(&mut self, account: &Arc<Account>, bytes: usize, promised: usize) -> bool {
        while !self.group.budget.has_room(account, bytes, promised) {
            let only_own = self.group.budget.lacks_share(account, bytes, promised);
            let others = self.connections.iter().filter(|(_, connection)| {
                connection.waits_for_room().is_none()
                    && (!only_own || Arc::ptr_eq(connection.account(), account))
            });
            let oldest = others
                .filter_map(|(key, connection)| {
                    let since = connection.overdue_since(self.alive)?;
                    Some((Reverse(connection.account().held_bytes()), since, key))
                })
                .min();
            let Some((_, _, key)) = oldest else { return false };
            // Its bytes may have come while this loop was busy with others.
            if self
                .connections
                .get_mut(key)
                .is_some_and(|connection| connection.has_unreceived_bytes(self.alive))
            {
                continue;
            }
            self.close(key, CloseReason::Overdue);
            // There may be many, and the loop runs all the time.
            self.notice_stall();
        }
        true
    }

    fn warn_of_used_up_memory(&mut self) {
        if self.alive >= self.room_check.next_warning {
            self.room_check.next_warning = self.alive + WARN_INTERVAL;
            tracing::warn!(
                bytes = self.group.limits.held_bytes_max,
                "clients hold all the memory that `held` allows; calls wait, and clients that do not go on \
                 sending or receiving are disconnected"
            );
        }
    }
}

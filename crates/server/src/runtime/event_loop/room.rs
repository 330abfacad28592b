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
use std::sync::Arc;
use std::time::Duration;

/// How often a loop looks for room while connections wait: often enough for a bulk transfer, and
/// rarely enough that looking at all connections costs little.
pub(super) const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// How often the log mentions that memory is used up.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// What a loop knows of its connections that wait for room.
#[derive(Debug, Default)]
pub(super) struct RoomCheck {
    /// Some connection waits.
    pub is_needed: bool,
    next: Duration,
    next_warning: Duration,
}

impl EventLoop {
    /// Resumes connections that wait for room, as far as there is room or some can be made.
    pub(super) fn resume_waiting(&mut self) {
        let now = self.alive;
        if !self.room_check.is_needed || now < self.room_check.next {
            return;
        }
        self.room_check.next = now + ROOM_CHECK_INTERVAL;
        let waiting = self.connections.iter().filter(|(_, connection)| !connection.is_queued);
        let mut waiting: Vec<_> = waiting
            .filter_map(|(key, connection)| Some((connection.waits_for_room()?, key)))
            .map(|((since, bytes), key)| (since, key, bytes))
            .collect();
        self.room_check.is_needed = !waiting.is_empty();
        waiting.sort_unstable();
        let mut promised = 0;
        let mut may_end_others = true;
        for (_, key, bytes) in waiting {
            let Some(account) = self.connections.get(key).map(|connection| Arc::clone(connection.account()))
            else {
                continue;
            };
            let wanted = promised + bytes;
            if self.group.budget.room(&account) < wanted {
                // A connection that wants less waits for its own client to take its replies.
                if !may_end_others || bytes <= ROOM_BYTES_MIN {
                    continue;
                }
                self.warn_of_used_up_memory();
                if !self.make_room(&account, wanted) {
                    may_end_others = false;
                    self.mailboxes
                        .send_others(self.index, || Message::MakeRoom(Arc::clone(&account), wanted));
                    continue;
                }
            }
            promised = wanted;
            self.schedule(key);
        }
    }

    /// Ends overdue connections until an address has this much room. Returns false if that does not
    /// suffice.
    pub(super) fn make_room(&mut self, account: &Arc<Account>, bytes: usize) -> bool {
        while self.group.budget.room(account) < bytes {
            let debtor = self.group.budget.debtor(account, bytes);
            let overdue = self.connections.iter().filter(|(_, connection)| {
                Arc::ptr_eq(connection.account(), &debtor) && connection.waits_for_room().is_none()
            });
            let oldest = overdue
                .filter_map(|(key, connection)| Some((connection.overdue_since(self.alive)?, key)))
                .min();
            let Some((_, key)) = oldest else { return false };
            // Its bytes may have come while this loop was busy with others.
            if self
                .connections
                .get_mut(key)
                .is_some_and(|connection| connection.has_unreceived_bytes(self.alive))
            {
                continue;
            }
            self.close(key, CloseReason::Overdue);
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

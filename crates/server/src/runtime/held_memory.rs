//! What a connection does when the memory for clients is used up ([`crate::byte_budget`]).
//!
//! Before a long record is received, the connection asks for all the room that the record takes.
//! Without room the connection is paused: nothing is received from it, and time does not count
//! against it until its loop resumes it. A record that was given its room is received to its end.
//!
//! Replies are made to fit: a READ returns fewer bytes than it asks for, and a directory fewer
//! entries. A connection without pending replies always has the room for a short one, so that a
//! client that takes its replies goes on, whatever others hold.
//!
//! When connections wait for room, their loop ends others that keep the server waiting
//! ([`Connection::overdue_since`]).

use super::connection::{Connection, Phase, RECORD_BYTES_MAX};
use crate::byte_budget::{Account, ByteBudget, Charge, FREE_BYTES};
use std::sync::Arc;
use std::time::Duration;
use transport::Transport;

/// The least room with which a connection receives anything.
pub(in crate::runtime) const ROOM_BYTES_MIN: usize = 4 << 10;
/// The most room that one turn gets while room is scarce: for a WRITE or READ of the largest size,
/// so that loops that ask at the same time exceed the budget by little.
const ROOM_BYTES_MAX: usize = 2 << 20;
/// What one turn receives of short calls while room is scarce: calls that the turn does not execute
/// are kept, and must not take the room of their replies.
const SCARCE_RECEIVE_BYTES: usize = 8 << 10;
/// A client that has sent nothing for this long in the middle of a record may be ended when others
/// wait for room. It is longer than a segment's retransmission takes.
const SILENT_AFTER: Duration = Duration::from_millis(500);
/// The same for a record that still arrives, but slowly.
const SLOW_AFTER: Duration = Duration::from_secs(5);
/// The same for a client that takes its replies too slowly.
const UNREAD_AFTER: Duration = Duration::from_secs(15);
/// The minimum rate at which a client takes replies that wait for it, about 500 kbit/s: the longest
/// queue is taken in two minutes. A client whose connection is paced must take something.
const REPLY_BYTES_PER_S_MIN: u64 = 64 << 10;

/// How fast a client takes the replies that wait for it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReplyPace {
    /// When the present interval began, and what had been sent by then; `None` while no reply
    /// waits.
    interval: Option<(Duration, u64)>,
    /// Since when the client has been too slow in every interval.
    slow_since: Option<Duration>,
}

impl ReplyPace {
    /// Called now and then while replies wait for the client. Intervals of [`UNREAD_AFTER`] follow
    /// each other, in each of which the client takes replies at the minimum rate, or is slow.
    fn note(&mut self, sent_bytes: u64, bytes_per_s_min: u64, now: Duration) {
        let (since, sent_before) = *self.interval.get_or_insert((now, sent_bytes));
        let passed = now.saturating_sub(since);
        if passed < UNREAD_AFTER {
            return;
        }
        let is_slow = sent_bytes - sent_before < bytes_per_s_min.saturating_mul(passed.as_secs()).max(1);
        self.slow_since = if is_slow { self.slow_since.or(Some(since)) } else { None };
        self.interval = Some((now, sent_bytes));
    }
}

/// The memory of one connection.
pub(super) struct HeldMemory {
    pub charge: Charge,
    /// The room that the connection waits for; 0 if it does not wait.
    wanted_bytes: usize,
    waits_since: Duration,
    /// The longest reply of the last turn that was shortened because there was no room for it.
    pub shortened_bytes: usize,
}

impl HeldMemory {
    pub const fn new(charge: Charge) -> Self {
        Self { charge, wanted_bytes: 0, waits_since: Duration::ZERO, shortened_bytes: 0 }
    }

    pub const fn is_waiting(&self) -> bool {
        self.wanted_bytes > 0
    }

    /// Whether the connection waits for more room than this.
    pub fn lacks(&self, room: Option<usize>) -> bool {
        room.is_some_and(|room| self.wanted_bytes > room)
    }

    /// Begins to wait, or goes on waiting.
    const fn wait(&mut self, wanted_bytes: usize, now: Duration) {
        if self.wanted_bytes == 0 {
            self.waits_since = now;
        }
        self.wanted_bytes = wanted_bytes;
    }
}

/// What a turn may receive; `usize::MAX` of room is plenty.
pub(super) const fn receive_bytes_max(room: usize, within_admitted_record: bool) -> usize {
    match (room, within_admitted_record) {
        (usize::MAX, _) => usize::MAX,
        (_, true) => RECORD_BYTES_MAX,
        (_, false) => SCARCE_RECEIVE_BYTES,
    }
}

impl Connection {
    pub fn account(&self) -> &Arc<Account> {
        self.memory.charge.account()
    }

    /// Memory that the connection holds or has been promised: queued replies, and the record that
    /// is being received. Calls in the worker pool are charged on their own.
    pub fn held_bytes(&self) -> usize {
        let promised = if self.memory.is_waiting() { 0 } else { self.stream.long_record().unwrap_or(0) };
        self.stream.held_bytes() + promised
    }

    /// Charges what the connection holds now.
    #[inline]
    pub fn settle(&mut self) {
        let bytes = self.held_bytes().saturating_sub(FREE_BYTES);
        self.memory.charge.set(bytes);
    }

    /// How much more the connection may hold after this turn; `None` while nothing needs checking.
    pub fn room(&self, budget: &ByteBudget, loops: usize) -> Option<usize> {
        let room = budget.room(self.account());
        if budget.is_ample(room, loops) {
            return None;
        }
        let pending = self.stream.queued_records() > 0 || self.pool_calls() > 0;
        let least = if pending { 0 } else { 2 * ROOM_BYTES_MIN };
        let free = FREE_BYTES.saturating_sub(self.held_bytes()).max(least);
        Some(free.max(room.min(ROOM_BYTES_MAX)))
    }

    /// Whether there is now the room that the connection waits for.
    pub fn has_room(&self, budget: &ByteBudget, loops: usize) -> bool {
        !self.memory.lacks(self.room(budget, loops))
    }

    /// Whether a record that was given its room is being received.
    pub fn is_within_admitted_record(&self) -> bool {
        !self.memory.is_waiting() && self.stream.long_record().is_some()
    }

    /// Takes the room that the connection has been waiting for, or some to begin with. Returns
    /// false if there is not enough: then it waits.
    pub fn claim_room(&mut self, room: Option<usize>, now: Duration) -> bool {
        let wanted = self.memory.wanted_bytes.max(ROOM_BYTES_MIN);
        if room.is_some_and(|room| wanted > room) && !self.is_within_admitted_record() {
            self.memory.wait(wanted, now);
            return false;
        }
        self.memory.wanted_bytes = 0;
        true
    }

    /// Waits after a turn in which a long record began for which there is no room: the length of
    /// that record is given, or its kind tells only now how long it may be.
    pub fn wait_for_room(&mut self, record_bytes: Option<usize>, room: usize, now: Duration) {
        let lacking = || self.stream.long_record().filter(|bytes| *bytes > room);
        if let Some(bytes) = record_bytes.or_else(lacking) {
            self.memory.wait(bytes, now);
        }
    }

    /// Since when the connection has waited for room, and for how much.
    pub fn waits_for_room(&self) -> Option<(Duration, usize)> {
        self.memory.is_waiting().then_some((self.memory.waits_since, self.memory.wanted_bytes))
    }

    /// Notes how fast the client takes its replies. Called about once a second.
    pub fn note_reply_pace(&mut self, now: Duration) {
        if !self.unsent || self.out_of_budget || self.is_queued {
            // Nothing waits for the client.
            self.reply_pace = ReplyPace::default();
            return;
        }
        let bytes_per_s_min = if self.is_paced { 0 } else { REPLY_BYTES_PER_S_MIN };
        self.reply_pace.note(self.sent_bytes, bytes_per_s_min, now);
    }

    /// Since when the peer has kept memory occupied by not sending the rest of a record, or by
    /// taking its replies slowly or not at all, if that is long enough to be ended for others.
    /// Records come first, the oldest before younger ones. A connection that was paused here is
    /// never to blame.
    pub fn overdue_since(&self, now: Duration) -> Option<(bool, Duration)> {
        if self.memory.charge.bytes() == 0 || self.is_queued || matches!(self.phase, Phase::Lingering { .. })
        {
            return None;
        }
        if let Some(since) = self.reply_pace.slow_since.filter(|_| self.unsent) {
            return Some((true, since));
        }
        let since = self.record_since.filter(|_| !self.paused && self.stream.long_record().is_some())?;
        let overdue = self.active + SILENT_AFTER <= now || since + SLOW_AFTER <= now;
        overdue.then_some((false, since))
    }

    /// After a pause: the peer could not send meanwhile, so its silence begins now.
    pub fn restart_silence(&mut self, now: Duration) {
        self.active = now;
        if let Some(since) = &mut self.record_since {
            *since = now;
        }
    }

    /// Whether bytes of a record that seems silent have arrived, and the loop has not received them
    /// yet. Then the silence begins now.
    pub fn has_unreceived_bytes(&mut self, now: Duration) -> bool {
        let seems_silent = !self.unsent && self.active + SILENT_AFTER <= now;
        let has_bytes = |socket| {
            let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
            rustix::net::recv(socket, &mut [0_u8], flags).is_ok_and(|(got, _)| got > 0)
        };
        if seems_silent && self.socket().is_some_and(has_bytes) {
            self.active = now;
            return true;
        }
        false
    }
}

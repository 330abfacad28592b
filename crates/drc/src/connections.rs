//! The connections on which foreign clients' calls were received, and how a retry of a call is
//! distinguished from a neighbour's call.
//!
//! Two clients at one address may send the same call under the same number: embedded clients count
//! from 0. RFC 1813 s4.5 requires that a retry is answered from the cache, but a neighbour's call
//! must be executed. They are distinguished by the state of the connection on which the known call
//! was received ([`Relation`]). The owner of a connection writes that state into words that every
//! process can read.
//!
//! Invariants: a connection counts as open while its process is alive and has not ended it; a
//! query is answered only by a check that the owner made after the query; a connection of which
//! nothing is known any more counts as lost, so that a copy of a call is answered and not executed.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::CallKey;
use super::shared::{GENERATION_BITS, Host, Owner, exchange, load, store};

/// Number of connections remembered. A connection that has ended is forgotten once this many newer
/// ones were opened: if calls are kept for 120 seconds, that takes 270 new connections per second,
/// each of which changes something.
pub const CONNECTIONS_MAX: usize = 32_768;

/// How long an owner may take to answer a query before its connection counts as lost: the owner
/// is stopped or stuck.
pub const OWNER_REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Slots checked to find a free one. Where few connections come and go, they stay open for long.
const OPEN_STEPS_MAX: u64 = CONNECTIONS_MAX as u64;

/// State, query, answer; the last word is spare.
const SLOT_WORDS: usize = 4;
const STATE: usize = 0;
const QUERIED: usize = 1;
const ANSWERED: usize = 2;
/// Words of the table, 1 MiB: the last number assigned, then the slots. All zeros is the empty
/// table.
pub const CONNECTIONS_WORDS: usize = SLOT_WORDS * (1 + CONNECTIONS_MAX);

const CONNECTION_STATE_BITS: u32 = 2;
const OPEN: u64 = 1;
const CLOSED_CLEANLY: u64 = 2;
const LOST: u64 = 3;
const LAP_SHIFT: u32 = CONNECTION_STATE_BITS + u8::BITS + GENERATION_BITS;

// A state is exactly lap, owner and connection state.
const _: () = assert!(LAP_SHIFT + u32::BITS == u64::BITS);
const _: () = assert!(CONNECTIONS_MAX.is_power_of_two());

/// A connection's number; its slot in the table is the number modulo the table size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// No connection: there was no slot for it, and nothing is known about it.
    pub const NONE: Self = Self(0);

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    pub(super) const fn of(word: u64) -> Self {
        Self(word)
    }

    const fn slot(self) -> usize {
        (self.0 % CONNECTIONS_MAX as u64) as usize
    }

    const fn lap(self) -> u64 {
        (self.0 / CONNECTIONS_MAX as u64) & u32::MAX as u64
    }
}

/// The origin of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The connection.
    pub connection: ConnectionId,
    /// Addresses and ports of both ends ([`path_of`]). A connection that replaces another between
    /// the same ends belongs to the same client: two such connections cannot exist at once.
    pub path: u64,
}

/// Addresses and ports of both ends of a connection, as one number.
#[must_use]
pub fn path_of(peer: SocketAddr, local: SocketAddr) -> u64 {
    let mut bytes: SmallVec<[u8; 36]> = SmallVec::new();
    for end in [peer, local] {
        let address = match end.ip().to_canonical() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        bytes.extend_from_slice(&address.octets());
        bytes.extend_from_slice(&end.port().to_be_bytes());
    }
    xxh3_64(&bytes)
}

/// A foreign client's call: its identity and its origin.
#[derive(Debug, Clone)]
pub struct ForeignCall {
    /// The identity of the call.
    pub key: CallKey,
    /// The origin of the call.
    pub origin: Origin,
}

/// The context of a lookup in the cache.
#[derive(Debug)]
pub struct LookupContext<'a> {
    /// The known connections.
    pub connections: ConnectionTable<'a>,
    /// When the call was received.
    pub received: Duration,
    /// The time now.
    pub now: Duration,
    /// Set when the owner of a connection was queried and its answer is pending.
    pub queried_owner: Cell<bool>,
}

impl<'a> LookupContext<'a> {
    /// The context at `now` for a call that was received at `received`.
    #[must_use]
    pub const fn new(connections: ConnectionTable<'a>, received: Duration, now: Duration) -> Self {
        Self { connections, received, now, queried_owner: Cell::new(false) }
    }
}

/// The relation of a call to a known call with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The same call again: its client may not have the reply.
    Retry,
    /// Another client's call: the first client has its reply and does not ask again.
    Neighbour,
    /// Not known yet: ask again in a moment.
    Undecided,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    Open,
    ClosedCleanly,
    Lost,
}

/// The table: [`CONNECTIONS_WORDS`] words, and the process that uses it.
#[derive(Clone, Copy)]
pub struct ConnectionTable<'m> {
    words: &'m [AtomicU64],
    host: &'m dyn Host,
}

impl std::fmt::Debug for ConnectionTable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionTable").finish_non_exhaustive()
    }
}

const fn state(id: ConnectionId, owner: Owner, connection_state: u64) -> u64 {
    let owner = (owner.generation as u64) << u8::BITS | owner.member as u64;
    id.lap() << LAP_SHIFT | owner << CONNECTION_STATE_BITS | connection_state
}

fn nanoseconds(time: Duration) -> u64 {
    // Half of the range, because an answer has a flag bit beside the time: 292 years.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) & u64::MAX >> 1
}

impl<'m> ConnectionTable<'m> {
    /// Creates a table over any slice; a slice that is too short remembers nothing.
    #[must_use]
    pub const fn new(words: &'m [AtomicU64], host: &'m dyn Host) -> Self {
        Self { words, host }
    }

    fn word(&self, id: ConnectionId, word: usize) -> Option<&'m AtomicU64> {
        self.words.get((1 + id.slot()) * SLOT_WORDS + word)
    }

    fn get(&self, id: ConnectionId, word: usize) -> u64 {
        self.word(id, word).map_or(0, load)
    }

    /// Records a new connection of this process. Returns [`ConnectionId::NONE`] if all slots are
    /// taken by open connections.
    #[must_use]
    pub fn open(&self) -> ConnectionId {
        let Some(last) = self.words.first() else { return ConnectionId::NONE };
        for _ in 0..OPEN_STEPS_MAX {
            let current = load(last);
            // From 1, because 0 means none.
            let id = ConnectionId(current.wrapping_add(1).max(1));
            if exchange(last, current, id.0).is_err() {
                continue;
            }
            let Some(word) = self.word(id, STATE) else { return ConnectionId::NONE };
            let before = load(word);
            if self.decode_state(before) == ConnectionState::Open {
                continue;
            }
            // Marked open only once the words behind the state are reset for this connection.
            if exchange(word, before, state(id, self.host.me(), 0)).is_err() {
                continue;
            }
            [QUERIED, ANSWERED]
                .into_iter()
                .filter_map(|word| self.word(id, word))
                .for_each(|word| store(word, 0));
            store(word, state(id, self.host.me(), OPEN));
            return id;
        }
        ConnectionId::NONE
    }

    /// Records that a connection of this process has ended; cleanly if the client closed it and
    /// has received every reply.
    pub fn end(&self, id: ConnectionId, cleanly: bool) {
        let open = state(id, self.host.me(), OPEN);
        let ended = state(id, self.host.me(), if cleanly { CLOSED_CLEANLY } else { LOST });
        if let Some(word) = self.word(id, STATE).filter(|_| id != ConnectionId::NONE) {
            // If this fails, the slot belongs to another connection, and nothing is known about
            // this one anyway.
            let _ = exchange(word, open, ended);
        }
    }

    /// Whether the owner of a connection is to [`answer_query`](Self::answer_query).
    #[must_use]
    pub fn has_pending_query(&self, id: ConnectionId) -> bool {
        id != ConnectionId::NONE && self.get(id, QUERIED) > self.get(id, ANSWERED) >> 1
    }

    /// Records the owner's answer. `acknowledged` says that the client has received every reply to
    /// a call that was received and had ended before `since`, and that the connection was open
    /// after that. Otherwise the client was silent for too long.
    pub fn answer_query(&self, id: ConnectionId, since: Duration, acknowledged: bool) {
        if let Some(word) = self.word(id, ANSWERED).filter(|_| id != ConnectionId::NONE) {
            store(word, nanoseconds(since) << 1 | u64::from(!acknowledged));
        }
    }

    fn decode_state(&self, state: u64) -> ConnectionState {
        let owner = Owner {
            member: (state >> CONNECTION_STATE_BITS & u64::from(u8::MAX)) as u8,
            generation: (state >> (CONNECTION_STATE_BITS + u8::BITS) & ((1 << GENERATION_BITS) - 1)) as u32,
        };
        match state & ((1 << CONNECTION_STATE_BITS) - 1) {
            OPEN if owner == self.host.me() || self.host.is_alive(owner) => ConnectionState::Open,
            CLOSED_CLEANLY => ConnectionState::ClosedCleanly,
            // A process that was killed could not record which replies its clients had received.
            _ => ConnectionState::Lost,
        }
    }

    fn connection_state(&self, id: ConnectionId) -> ConnectionState {
        let state = self.get(id, STATE);
        if id == ConnectionId::NONE || state >> LAP_SHIFT != id.lap() {
            ConnectionState::Lost
        } else {
            self.decode_state(state)
        }
    }

    /// The relation of a received call to a known one, whose connection is `of` and which ended at
    /// `ended`, if it has. Asks the owner of that connection if nothing else decides.
    fn relation(&self, of: ConnectionId, ended: Option<Duration>, context: &LookupContext<'_>) -> Relation {
        match (self.connection_state(of), ended) {
            (ConnectionState::ClosedCleanly, _) => Relation::Neighbour,
            (ConnectionState::Lost, _) => Relation::Retry,
            // The client is still waiting for the reply. Once the call has ended, the client either
            // has the reply or does not.
            (ConnectionState::Open, None) => Relation::Undecided,
            (ConnectionState::Open, Some(ended)) => {
                let from = ended.max(context.received).min(context.now);
                let answer = self.get(of, ANSWERED);
                // Another connection may have taken the slot in the meantime.
                if self.connection_state(of) == ConnectionState::Open && answer >> 1 >= nanoseconds(from) {
                    return if answer & 1 == 0 { Relation::Neighbour } else { Relation::Retry };
                }
                if context.now.saturating_sub(from) >= OWNER_REPLY_TIMEOUT {
                    return Relation::Retry;
                }
                self.query_owner(of, nanoseconds(from), context);
                Relation::Undecided
            }
        }
    }

    fn query_owner(&self, id: ConnectionId, from: u64, context: &LookupContext<'_>) {
        let Some(word) = self.word(id, QUERIED) else { return };
        let mut current = load(word);
        while current < from {
            match exchange(word, current, from) {
                Ok(()) => return context.queried_owner.set(true),
                Err(now) => current = now,
            }
        }
    }
}

/// A known call with the same key as a received one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<T> {
    pub at: T,
    pub origin: Origin,
    /// The origin of a retry that waits for the end of the call.
    pub waiter: Option<Origin>,
    /// When the call ended, if it has.
    pub ended: Option<Duration>,
}

/// Which of the candidates a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice<T> {
    /// A retry of this one.
    Retry(T),
    /// None of them.
    New,
    /// Not decided yet.
    Undecided,
}

/// Decides which of the candidates, oldest first, a call from `origin` is.
pub(super) fn choose<T: Copy>(
    candidates: &[Candidate<T>],
    origin: Origin,
    context: &LookupContext<'_>,
) -> Choice<T> {
    let is_from = |candidate: &Candidate<T>, same: &dyn Fn(Origin) -> bool| {
        same(candidate.origin) || candidate.waiter.is_some_and(same)
    };
    let own = |of: Origin| of == origin;
    let own_path = |of: Origin| of.path == origin.path;
    let known = candidates.iter().find(|candidate| is_from(candidate, &own));
    let known = known.or_else(|| candidates.iter().find(|candidate| is_from(candidate, &own_path)));
    // A call whose connection ended while it waited here is not executed, because its client may
    // have sent it again on another connection.
    let ended = context.connections.connection_state(origin.connection) != ConnectionState::Open;
    let known = known.or_else(|| candidates.first().filter(|_| ended));
    if let Some(known) = known {
        return Choice::Retry(known.at);
    }
    let mut undecided = false;
    for candidate in candidates {
        // Once a call was retried, the connection of the retry decides.
        let of = candidate.waiter.unwrap_or(candidate.origin);
        match context.connections.relation(of.connection, candidate.ended, context) {
            Relation::Retry => return Choice::Retry(candidate.at),
            Relation::Neighbour => {}
            Relation::Undecided => undecided = true,
        }
    }
    if undecided { Choice::Undecided } else { Choice::New }
}

#[cfg(test)]
pub(super) mod tests;

//! The table of foreign clients' calls in shared memory: buckets of slots, found by a digest of the
//! call.
//!
//! Neighbours' calls with equal keys have a slot each; which slot a call belongs to is decided by
//! the origins of the calls ([`crate::connections`]).
//!
//! A bucket is searched under its lock, so that only one process takes a call that two processes
//! receive at once. The process that has a slot ends its call without the lock. A lock names its
//! process; a process that ends leaves a consistent bucket, because a slot counts only once its
//! entry is written, which is last.

use super::entry::{Entry, Phase, Verdict};
use super::slot::{SLOT_WORDS, Slot};
use super::{Host, Seen, SharedBegin, Start, exchange, load, store};
use crate::class::Counter;
use crate::connections::{Asker, Candidate, Choice, ConnectionId, ForeignCall, Origin, choose};
use crate::{Outcome, Refusal, STATUS_MAX, TABLE_AGE_MAX, TABLE_ENTRIES_MAX};
use smallvec::SmallVec;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Slots of a bucket: enough that a bucket is rarely full before the table is.
const SLOTS: usize = 16;
/// Buckets of the table.
pub const BUCKETS: usize = TABLE_ENTRIES_MAX / SLOTS;
/// The lock; the rest of its cache line is unused.
const HEAD_WORDS: usize = 8;
/// The digest, when the call was received or ended, and its origin.
const KEY_WORDS: usize = 5;
const SINCE: usize = 2;
const CONNECTION: usize = 3;
const PATH: usize = 4;
const ENTRY_WORDS: usize = KEY_WORDS + SLOT_WORDS;
const BUCKET_WORDS: usize = HEAD_WORDS + SLOTS * ENTRY_WORDS;
/// Words of the table, 27 MiB; all zeros is the empty table.
pub const TABLE_WORDS: usize = BUCKETS * BUCKET_WORDS;

/// The table's calls have no counter; this entry stands for any of them.
const CALL: Entry = Entry { counter: Counter::ZERO, phase: Phase::Empty, doubt: false };

/// The position of a call in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(usize);

/// The table: [`TABLE_WORDS`] words.
#[derive(Debug, Clone, Copy)]
pub struct SharedTable<'m> {
    words: &'m [AtomicU64],
    /// Random, and known only to the group, so that no client can choose keys that collide.
    seed: u64,
}

/// One slot with its key.
#[derive(Clone, Copy)]
struct Keyed<'m> {
    words: &'m [AtomicU64],
    place: Place,
}

impl<'m> Keyed<'m> {
    fn word(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, load)
    }

    fn put(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            store(word, value);
        }
    }

    fn slot(&self, digest: [u64; 2]) -> Slot<'m> {
        Slot::new(self.words.get(KEY_WORDS..).unwrap_or_default(), digest[0])
    }

    fn has(&self, digest: [u64; 2]) -> bool {
        [self.word(0), self.word(1)] == digest
    }

    fn since(&self) -> Duration {
        Duration::from_nanos(self.word(SINCE))
    }

    fn set_since(&self, now: Duration) {
        self.put(SINCE, u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    }

    fn is_aged(&self, now: Duration) -> bool {
        now.saturating_sub(self.since()) >= TABLE_AGE_MAX
    }

    fn origin(&self) -> Origin {
        Origin { connection: ConnectionId::of(self.word(CONNECTION)), path: self.word(PATH) }
    }

    fn set_origin(&self, origin: Origin) {
        self.put(CONNECTION, origin.connection.word());
        self.put(PATH, origin.path);
    }

    /// The call as a candidate for a search; `None` if the slot no longer describes it.
    fn candidate(&self, host: &impl Host, digest: [u64; 2], now: Duration) -> Option<Candidate<Self>> {
        let ended = match self.slot(digest).entry().phase {
            Phase::Empty => return None,
            Phase::Ended(_) | Phase::Replied if self.is_aged(now) => return None,
            Phase::Begun(owner) | Phase::Started(owner) | Phase::Writing(owner) => {
                let runs = owner == host.me() || host.is_alive(owner);
                (!runs).then(|| self.since())
            }
            Phase::Ended(_) | Phase::Replied | Phase::Corrupt(_) => Some(self.since()),
        };
        Some(Candidate { at: *self, origin: self.origin(), waiter: None, ended })
    }
}

/// The held lock of a bucket.
struct Held<'m>(&'m AtomicU64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        #[cfg(test)]
        if std::thread::panicking() {
            return; // A process that has ended gives nothing back.
        }
        store(self.0, 0);
    }
}

impl<'m> SharedTable<'m> {
    /// Creates a table with its seed.
    #[must_use]
    pub const fn new(words: &'m [AtomicU64], seed: u64) -> Self {
        Self { words, seed }
    }

    fn keyed(&self, place: Place) -> Option<Keyed<'m>> {
        let (bucket, slot) = (place.0 / SLOTS, place.0 % SLOTS);
        let at = bucket * BUCKET_WORDS + HEAD_WORDS + slot * ENTRY_WORDS;
        Some(Keyed { words: self.words.get(at..at + ENTRY_WORDS)?, place })
    }

    fn bucket(&self, digest: [u64; 2]) -> usize {
        (digest[1] % BUCKETS as u64) as usize
    }

    fn slots(&self, bucket: usize) -> impl Iterator<Item = Keyed<'m>> + Clone {
        let this = *self;
        (bucket * SLOTS..(bucket + 1) * SLOTS).filter_map(move |place| this.keyed(Place(place)))
    }

    fn lock(&self, host: &impl Host, bucket: usize) -> Option<Held<'m>> {
        let lock = self.words.get(bucket * BUCKET_WORDS)?;
        let mine = Entry { phase: Phase::Begun(host.me()), ..CALL };
        let mut round = 0;
        let mut seen = 0;
        loop {
            match exchange(lock, seen, mine.word()) {
                Ok(()) => return Some(Held(lock)),
                Err(now) => seen = now,
            }
            if seen == 0 {
                continue;
            }
            let is_held = match Entry::of(seen).phase {
                Phase::Begun(owner) => owner == host.me() || host.is_alive(owner),
                _ => false,
            };
            // The lock of a process that has ended, or an invalid value, is taken over by the next
            // exchange.
            if is_held {
                if !host.pause(round) {
                    return None;
                }
                round += 1;
                seen = 0;
            }
        }
    }

    /// Asks before a call is executed, after its arguments were validated. The returned place
    /// speeds up later operations.
    pub fn begin(
        &self,
        host: &impl Host,
        call: &ForeignCall,
        asker: &Asker<'_>,
    ) -> (SharedBegin, Option<Place>) {
        let digest = call.key.digest(self.seed);
        let bucket = self.bucket(digest);
        let Some(_held) = self.lock(host, bucket) else {
            return (SharedBegin::Refused(Refusal::TableFull), None);
        };
        self.forget_aged(bucket, digest, asker.now);
        let twins = self.slots(bucket).filter(|keyed| keyed.has(digest));
        let mut candidates: SmallVec<[Candidate<Keyed<'m>>; 2]> =
            twins.filter_map(|keyed| keyed.candidate(host, digest, asker.now)).collect();
        candidates.sort_by_key(|candidate| candidate.at.word(SINCE));
        match choose(&candidates, call.origin, asker) {
            Choice::Retry(found) => {
                if let Some(begin) = self.begin_found(host, found, digest, call.origin, asker.now) {
                    return (begin, Some(found.place));
                }
            }
            Choice::Undecided => return (SharedBegin::Running, None),
            Choice::New => {}
        }
        match self.make_room(host, bucket, asker.now) {
            Some(free) => {
                free.put(0, digest[0]);
                free.put(1, digest[1]);
                free.set_since(asker.now);
                free.set_origin(call.origin);
                // The note of a neighbour's call with the same digest would pass for this call's.
                free.slot(digest).clear_note();
                free.put(KEY_WORDS, Entry { phase: Phase::Begun(host.me()), ..CALL }.word());
                (SharedBegin::Run, Some(free.place))
            }
            None => (SharedBegin::Refused(Refusal::TableFull), None),
        }
    }

    /// Clears the slots of ended calls of this digest that are too old to be answered again.
    /// Otherwise one of them could be taken for the slot of a new call from the same connection.
    fn forget_aged(&self, bucket: usize, digest: [u64; 2], now: Duration) {
        for aged in self.slots(bucket).filter(|keyed| keyed.has(digest) && keyed.is_aged(now)) {
            let slot = aged.slot(digest);
            let entry = slot.entry();
            if matches!(entry.phase, Phase::Ended(_) | Phase::Replied) {
                let _ = slot.exchange(entry, CALL);
            }
        }
    }

    /// Returns `None` if the slot no longer describes the call.
    fn begin_found(
        &self,
        host: &impl Host,
        found: Keyed<'m>,
        digest: [u64; 2],
        origin: Origin,
        now: Duration,
    ) -> Option<SharedBegin> {
        let slot = found.slot(digest);
        let mut seen = slot.entry();
        loop {
            let next = match seen.verdict(host) {
                _ if seen.phase == Phase::Empty => return None,
                Verdict::Running => return Some(SharedBegin::Running),
                // The slot cannot be taken away here: that needs the lock.
                Verdict::Ended => match slot.stored(seen) {
                    Some(stored) => {
                        found.set_origin(origin);
                        return Some(SharedBegin::Replay(stored));
                    }
                    None => Entry { phase: Phase::Begun(host.me()), doubt: true, ..CALL },
                },
                Verdict::Take(next) => Entry { counter: CALL.counter, ..next },
            };
            match slot.exchange(seen, next) {
                Ok(()) => {
                    found.set_since(now);
                    found.set_origin(origin);
                    return Some(SharedBegin::Run);
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Finds a free slot, or the one whose call ended first. Running calls are not evicted.
    fn make_room(&self, host: &impl Host, bucket: usize, now: Duration) -> Option<Keyed<'m>> {
        for _ in 0..SLOTS {
            let entry = |keyed: &Keyed<'m>| keyed.slot([0; 2]).entry();
            if let Some(empty) = self.slots(bucket).find(|keyed| entry(keyed).phase == Phase::Empty) {
                return Some(empty);
            }
            let may_go = |keyed: &Keyed<'m>| match entry(keyed).phase {
                Phase::Empty | Phase::Ended(_) | Phase::Replied | Phase::Corrupt(_) => true,
                // No retry was received for it.
                Phase::Begun(owner) | Phase::Started(owner) | Phase::Writing(owner) => {
                    owner != host.me() && !host.is_alive(owner) && keyed.is_aged(now)
                }
            };
            let oldest = self.slots(bucket).filter(may_go).min_by_key(|keyed| keyed.word(SINCE))?;
            let slot = oldest.slot([0; 2]);
            let _ = slot.exchange(slot.entry(), CALL);
        }
        None
    }

    /// The slot of a call that this process has begun; `place` is where it was.
    fn of(&self, call: &ForeignCall, place: Option<Place>) -> Option<(Slot<'m>, Keyed<'m>)> {
        let digest = call.key.digest(self.seed);
        let is_it = |keyed: &Keyed<'m>| keyed.has(digest) && keyed.origin() == call.origin;
        let there = place.and_then(|place| self.keyed(place)).filter(is_it);
        let holds_a_call = |keyed: &Keyed<'m>| keyed.slot(digest).entry().phase != Phase::Empty;
        let mut slots = self.slots(self.bucket(digest));
        let keyed = there.or_else(|| slots.find(|keyed| is_it(keyed) && holds_a_call(keyed)))?;
        Some((keyed.slot(digest), keyed))
    }

    /// Starts a begun call, right before it is executed.
    pub fn start(&self, host: &impl Host, call: &ForeignCall, place: Option<Place>) -> Start {
        self.of(call, place).map_or(Start::Lost, |(slot, _)| slot.start(host, CALL))
    }

    /// Undoes [`start`](Self::start): nothing was executed. The call stays begun.
    pub fn unstart(&self, host: &impl Host, call: &ForeignCall, place: Option<Place>) {
        if let Some((slot, _)) = self.of(call, place) {
            slot.unstart(host, CALL);
        }
    }

    /// Gives up a call that was not executed.
    pub fn forget(&self, host: &impl Host, call: &ForeignCall, place: Option<Place>) {
        if let Some((slot, _)) = self.of(call, place) {
            slot.forget(host, CALL);
        }
    }

    /// Ends a started call.
    pub fn finish(
        &self,
        host: &impl Host,
        call: &ForeignCall,
        place: Option<Place>,
        outcome: Outcome<'_>,
        now: Duration,
    ) {
        let Some((slot, keyed)) = self.of(call, place) else { return };
        let kept = match outcome {
            Outcome::Dropped => return slot.forget(host, CALL),
            Outcome::Done => Err(0),
            Outcome::Failed(status) => Err(status.clamp(1, STATUS_MAX)),
            Outcome::Reply(reply) => Ok(reply),
        };
        keyed.set_since(now);
        slot.finish(host, CALL, kept);
    }

    /// Records what was seen before a started call is executed.
    pub fn note(&self, call: &ForeignCall, place: Option<Place>, seen: Seen) {
        if let Some((slot, _)) = self.of(call, place) {
            slot.note(seen);
        }
    }

    /// What was seen before the call was executed for the first time, if a process got that far.
    #[must_use]
    pub fn seen(&self, call: &ForeignCall, place: Option<Place>) -> Option<Seen> {
        self.of(call, place)?.0.seen()
    }
}

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
use super::{Host, PreOpState, SharedBegin, Start, exchange, load, store};
use crate::class::Counter;
use crate::connections::{Candidate, Choice, ConnectionId, ForeignCall, LookupContext, Origin, choose};
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
pub struct SlotIndex(usize);

/// The table: [`TABLE_WORDS`] words.
#[derive(Debug, Clone, Copy)]
pub struct SharedTable<'m> {
    words: &'m [AtomicU64],
    /// Random, and known only to the group, so that no client can choose keys that collide.
    seed: u64,
}

/// One slot with its key.
#[derive(Clone, Copy)]
struct KeyedSlot<'m> {
    words: &'m [AtomicU64],
    index: SlotIndex,
}

impl<'m> KeyedSlot<'m> {
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
struct BucketLock<'m>(&'m AtomicU64);

impl Drop for BucketLock<'_> {
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

    fn keyed(&self, index: SlotIndex) -> Option<KeyedSlot<'m>> {
        let (bucket, slot) = (index.0 / SLOTS, index.0 % SLOTS);
        let at = bucket * BUCKET_WORDS + HEAD_WORDS + slot * ENTRY_WORDS;
        Some(KeyedSlot { words: self.words.get(at..at + ENTRY_WORDS)?, index })
    }

    fn bucket(&self, digest: [u64; 2]) -> usize {
        (digest[1] % BUCKETS as u64) as usize
    }

    fn slots(&self, bucket: usize) -> impl Iterator<Item = KeyedSlot<'m>> + Clone {
        let this = *self;
        (bucket * SLOTS..(bucket + 1) * SLOTS).filter_map(move |index| this.keyed(SlotIndex(index)))
    }

    fn lock(&self, host: &impl Host, bucket: usize) -> Option<BucketLock<'m>> {
        let lock = self.words.get(bucket * BUCKET_WORDS)?;
        let locked = Entry { phase: Phase::Begun(host.me()), ..CALL };
        let mut round = 0;
        let mut current = 0;
        loop {
            match exchange(lock, current, locked.word()) {
                Ok(()) => return Some(BucketLock(lock)),
                Err(now) => current = now,
            }
            if current == 0 {
                continue;
            }
            let is_held = match Entry::of(current).phase {
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
                current = 0;
            }
        }
    }

    /// Asks before a call is executed, after its arguments were validated. The returned index
    /// speeds up later operations.
    pub fn begin(
        &self,
        host: &impl Host,
        call: &ForeignCall,
        context: &LookupContext<'_>,
    ) -> (SharedBegin, Option<SlotIndex>) {
        let digest = call.key.digest(self.seed);
        let bucket = self.bucket(digest);
        let Some(_lock) = self.lock(host, bucket) else {
            return (SharedBegin::Refused(Refusal::TableFull), None);
        };
        self.forget_aged(bucket, digest, context.now);
        let same_key = self.slots(bucket).filter(|keyed| keyed.has(digest));
        let mut candidates: SmallVec<[Candidate<KeyedSlot<'m>>; 2]> =
            same_key.filter_map(|keyed| keyed.candidate(host, digest, context.now)).collect();
        candidates.sort_by_key(|candidate| candidate.at.word(SINCE));
        match choose(&candidates, call.origin, context) {
            Choice::Retry(found) => {
                if let Some(begin) = self.begin_found(host, found, digest, call.origin, context.now) {
                    return (begin, Some(found.index));
                }
            }
            Choice::Undecided => return (SharedBegin::Running, None),
            Choice::New => {}
        }
        match self.make_room(host, bucket, context.now) {
            Some(free) => {
                free.put(0, digest[0]);
                free.put(1, digest[1]);
                free.set_since(context.now);
                free.set_origin(call.origin);
                // The recorded state of a neighbour's call with the same digest would be taken for
                // this call's.
                free.slot(digest).clear_pre_op();
                free.put(KEY_WORDS, Entry { phase: Phase::Begun(host.me()), ..CALL }.word());
                (SharedBegin::Run, Some(free.index))
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
        found: KeyedSlot<'m>,
        digest: [u64; 2],
        origin: Origin,
        now: Duration,
    ) -> Option<SharedBegin> {
        let slot = found.slot(digest);
        let mut current = slot.entry();
        loop {
            let next = match current.verdict(host) {
                _ if current.phase == Phase::Empty => return None,
                Verdict::Running => return Some(SharedBegin::Running),
                // The slot cannot be taken away here: that needs the lock.
                Verdict::Ended => match slot.stored(current) {
                    Some(stored) => {
                        found.set_origin(origin);
                        return Some(SharedBegin::Replay(stored));
                    }
                    None => Entry { phase: Phase::Begun(host.me()), doubt: true, ..CALL },
                },
                Verdict::Take(next) => Entry { counter: CALL.counter, ..next },
            };
            match slot.exchange(current, next) {
                Ok(()) => {
                    found.set_since(now);
                    found.set_origin(origin);
                    return Some(SharedBegin::Run);
                }
                Err(now) => current = now,
            }
        }
    }

    /// Finds a free slot, or the one whose call ended first. Running calls are not evicted.
    fn make_room(&self, host: &impl Host, bucket: usize, now: Duration) -> Option<KeyedSlot<'m>> {
        for _ in 0..SLOTS {
            let entry = |keyed: &KeyedSlot<'m>| keyed.slot([0; 2]).entry();
            if let Some(empty) = self.slots(bucket).find(|keyed| entry(keyed).phase == Phase::Empty) {
                return Some(empty);
            }
            let may_go = |keyed: &KeyedSlot<'m>| match entry(keyed).phase {
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

    /// The slot of a call that this process has begun; `index` is where it was.
    fn find(&self, call: &ForeignCall, index: Option<SlotIndex>) -> Option<(Slot<'m>, KeyedSlot<'m>)> {
        let digest = call.key.digest(self.seed);
        let is_it = |keyed: &KeyedSlot<'m>| keyed.has(digest) && keyed.origin() == call.origin;
        let at_index = index.and_then(|index| self.keyed(index)).filter(is_it);
        let holds_a_call = |keyed: &KeyedSlot<'m>| keyed.slot(digest).entry().phase != Phase::Empty;
        let mut slots = self.slots(self.bucket(digest));
        let keyed = at_index.or_else(|| slots.find(|keyed| is_it(keyed) && holds_a_call(keyed)))?;
        Some((keyed.slot(digest), keyed))
    }

    /// Starts a begun call, right before it is executed.
    pub fn start(&self, host: &impl Host, call: &ForeignCall, index: Option<SlotIndex>) -> Start {
        self.find(call, index).map_or(Start::Lost, |(slot, _)| slot.start(host, CALL))
    }

    /// Undoes [`start`](Self::start): nothing was executed. The call stays begun.
    pub fn cancel_start(&self, host: &impl Host, call: &ForeignCall, index: Option<SlotIndex>) {
        if let Some((slot, _)) = self.find(call, index) {
            slot.cancel_start(host, CALL);
        }
    }

    /// Gives up a call that was not executed.
    pub fn forget(&self, host: &impl Host, call: &ForeignCall, index: Option<SlotIndex>) {
        if let Some((slot, _)) = self.find(call, index) {
            slot.forget(host, CALL);
        }
    }

    /// Ends a started call.
    pub fn finish(
        &self,
        host: &impl Host,
        call: &ForeignCall,
        index: Option<SlotIndex>,
        outcome: Outcome<'_>,
        now: Duration,
    ) {
        let Some((slot, keyed)) = self.find(call, index) else { return };
        let result = match outcome {
            Outcome::Dropped => return slot.forget(host, CALL),
            Outcome::Done => Err(0),
            Outcome::Failed(status) => Err(status.clamp(1, STATUS_MAX)),
            Outcome::Reply(reply) => Ok(reply),
        };
        keyed.set_since(now);
        slot.finish(host, CALL, result);
    }

    /// Records the state before a started call is executed.
    pub fn record_pre_op(&self, call: &ForeignCall, index: Option<SlotIndex>, state: PreOpState) {
        if let Some((slot, _)) = self.find(call, index) {
            slot.record_pre_op(state);
        }
    }

    /// The state before the call was executed for the first time, if a process got that far.
    #[must_use]
    pub fn pre_op(&self, call: &ForeignCall, index: Option<SlotIndex>) -> Option<PreOpState> {
        self.find(call, index)?.0.pre_op()
    }
}

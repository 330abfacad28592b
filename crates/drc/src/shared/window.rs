//! The windows of one of Trunkline's clients in shared memory. Their guarantees and rules are those
//! of [`ClientWindow`](crate::ClientWindow).

use super::entry::{Entry, Phase, Verdict};
use super::slot::{SLOT_WORDS, Slot};
use super::{Host, PreOpState, SharedBegin, Start, exchange, load};
use crate::class::{Counter, WINDOW_DONE, WINDOW_REPLY, XidClass};
use crate::{Outcome, Refusal, STATUS_MAX};
use rpc::Xid;
use std::sync::atomic::AtomicU64;

/// The newest counters, one per class; the rest of their cache line is unused.
const HEAD_WORDS: usize = 8;
const RING_AT: usize = HEAD_WORDS + WINDOW_DONE as usize;

/// Words of one client's windows, 513 KiB; all zeros are empty windows.
pub const WINDOW_WORDS: usize = RING_AT + WINDOW_REPLY as usize * SLOT_WORDS;

/// The windows of one client: [`WINDOW_WORDS`] words.
#[derive(Debug, Clone, Copy)]
pub struct SharedWindow<'m> {
    words: &'m [AtomicU64],
    id: u64,
}

/// A call's slot, and its entry in the initial state.
struct LocatedSlot<'m> {
    slot: Slot<'m>,
    call: Entry,
    newest: &'m AtomicU64,
    window: u32,
}

impl<'m> SharedWindow<'m> {
    /// The windows of the client `id`.
    #[must_use]
    pub const fn new(words: &'m [AtomicU64], id: u64) -> Self {
        Self { words, id }
    }

    fn at(&self, xid: Xid) -> Option<LocatedSlot<'m>> {
        let counter = Counter::of(xid);
        let call = Entry { counter, phase: Phase::Empty, doubt: false };
        let seed = self.id ^ u64::from(counter.value());
        let (newest, at, len, window) = match XidClass::of(xid)? {
            XidClass::Repeatable => return None,
            XidClass::DoneBit => (0, HEAD_WORDS + counter.slot(WINDOW_DONE), 1, WINDOW_DONE),
            XidClass::WholeReply => {
                (1, RING_AT + counter.slot(WINDOW_REPLY) * SLOT_WORDS, SLOT_WORDS, WINDOW_REPLY)
            }
        };
        let slot = Slot::new(self.words.get(at..at + len)?, seed);
        Some(LocatedSlot { slot, call, newest: self.words.get(newest)?, window })
    }

    /// Asks before a call is executed, after its arguments were validated and its xid was found to
    /// have the class that its procedure needs. A call of [`XidClass::Repeatable`] always runs.
    pub fn begin(&self, host: &impl Host, xid: Xid) -> SharedBegin {
        let Some(LocatedSlot { slot, call, newest, window }) = self.at(xid) else {
            return match XidClass::of(xid) {
                Some(XidClass::Repeatable) => SharedBegin::Run,
                Some(_) | None => SharedBegin::Refused(Refusal::UnknownClass),
            };
        };
        if advance(newest, call.counter) >= window {
            return SharedBegin::Refused(Refusal::BelowWindow);
        }
        let mut current = slot.entry();
        let mut round = 0;
        loop {
            let is_same = current.counter == call.counter;
            let next = match current.phase {
                Phase::Empty | Phase::Corrupt(_) => {
                    call.to(Phase::Begun(host.me())).doubtful(matches!(current.phase, Phase::Corrupt(_)))
                }
                _ if is_same => match current.verdict(host) {
                    Verdict::Take(next) => next,
                    Verdict::Running => return SharedBegin::Running,
                    Verdict::Ended => {
                        let stored = slot.stored(current);
                        match (slot.entry(), stored) {
                            (now, Some(stored)) if now == current => return SharedBegin::Replay(stored),
                            // The entry is unchanged, and its reply is incomplete.
                            (now, None) if now == current => call.to(Phase::Begun(host.me())).doubtful(true),
                            (now, _) => {
                                current = now;
                                continue;
                            }
                        }
                    }
                },
                // Overtaken since the newest counter was read: the window moved, and the slot
                // belongs to a newer call.
                _ if !call.counter.is_after(current.counter) => {
                    return SharedBegin::Refused(Refusal::BelowWindow);
                }
                // A whole window behind, and still being written: Trunkline's clients never run
                // that far ahead.
                Phase::Writing(owner) if owner == host.me() || host.is_alive(owner) => {
                    if !host.pause(round) {
                        return SharedBegin::Refused(Refusal::BelowWindow);
                    }
                    round += 1;
                    current = slot.entry();
                    continue;
                }
                Phase::Begun(_)
                | Phase::Started(_)
                | Phase::Writing(_)
                | Phase::Ended(_)
                | Phase::Replied => call.to(Phase::Begun(host.me())),
            };
            match slot.exchange(current, next) {
                Ok(()) => return SharedBegin::Run,
                Err(now) => current = now,
            }
        }
    }

    /// Starts a begun call, right before it is executed.
    pub fn start(&self, host: &impl Host, xid: Xid) -> Start {
        match self.at(xid) {
            Some(at) => at.slot.start(host, at.call),
            None if XidClass::of(xid) == Some(XidClass::Repeatable) => Start::Fresh,
            // The windows belong to another client by now: nothing would protect the call.
            None => Start::Lost,
        }
    }

    /// Undoes [`start`](Self::start): nothing was executed. The call stays begun.
    pub fn cancel_start(&self, host: &impl Host, xid: Xid) {
        if let Some(at) = self.at(xid) {
            at.slot.cancel_start(host, at.call);
        }
    }

    /// Gives up a call that was not executed.
    pub fn forget(&self, host: &impl Host, xid: Xid) {
        if let Some(at) = self.at(xid) {
            at.slot.forget(host, at.call);
        }
    }

    /// Ends a started call.
    pub fn finish(&self, host: &impl Host, xid: Xid, outcome: Outcome<'_>) {
        let Some(at) = self.at(xid) else { return };
        let result = match outcome {
            Outcome::Dropped => return at.slot.forget(host, at.call),
            Outcome::Done => Err(0),
            // 0 is success; a failure with status 0 is a caller's bug and stays a failure.
            Outcome::Failed(status) => Err(status.clamp(1, STATUS_MAX)),
            Outcome::Reply(_) if XidClass::of(xid) == Some(XidClass::DoneBit) => Err(STATUS_MAX),
            Outcome::Reply(reply) => Ok(reply),
        };
        at.slot.finish(host, at.call, result);
    }

    /// Records the state before a started call is executed. Only calls with whole replies have
    /// room for it.
    pub fn record_pre_op(&self, xid: Xid, state: PreOpState) {
        if let Some(at) = self.whole_reply_slot(xid) {
            at.slot.record_pre_op(state);
        }
    }

    /// The state before the call was executed for the first time, if a process got that far.
    #[must_use]
    pub fn pre_op(&self, xid: Xid) -> Option<PreOpState> {
        self.whole_reply_slot(xid)?.slot.pre_op()
    }

    fn whole_reply_slot(&self, xid: Xid) -> Option<LocatedSlot<'m>> {
        self.at(xid).filter(|_| XidClass::of(xid) == Some(XidClass::WholeReply))
    }
}

impl Entry {
    const fn doubtful(self, doubt: bool) -> Self {
        Self { doubt, ..self }
    }
}

/// Advances to `counter` if that is newer. Returns how far `counter` is then behind the newest.
fn advance(newest: &AtomicU64, counter: Counter) -> u32 {
    const IS_SET: u64 = 1 << 32;
    let mut current = load(newest);
    loop {
        let at = Counter::new((current & u64::from(u32::MAX)) as u32);
        if current & IS_SET != 0 && !counter.is_after(at) {
            return at.since(counter);
        }
        match exchange(newest, current, IS_SET | u64::from(counter.value())) {
            Ok(()) => return 0,
            Err(now) => current = now,
        }
    }
}

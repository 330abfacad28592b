//! The slots of a session: each request is executed once, whichever process receives it, and
//! whichever process ends. RFC 8881 s2.10.6
//!
//! A slot is one word that is changed by compare-exchange, without the lock, with the digest of its
//! request, a progress record and the reply beside it. From the top: 32 bits of the sequence id, 30
//! bits of data, 2 of the phase.
//!
//! ```text
//!  free ──> running(P) ──> done, with a reply of n bytes ──> running(P), the next sequence id
//!               │     └──> done, no reply kept
//!               └─ P has ended ──> running(Q), in doubt: the progress says how far P got
//! ```
//!
//! Only the process that the word names writes beside it, so a process may end between any two
//! steps. The progress record has the sequence id of its request, so what an earlier request left
//! there counts as nothing.

use crate::arena::{Arena, lower, pair, upper};
use crate::error::Error;
use crate::host::{Host, OWNER_BITS, Owner};
use crate::record::slot;
use crate::transaction::{Transaction, words_of};
use crate::words::Words;

/// Words that a process may leave for the process that goes on after its death.
pub const NOTE_WORDS: usize = slot::NOTE_WORDS;
/// Operations of one request whose progress can be recorded.
pub const STEP_OPERATIONS_MAX: u32 = 255;
/// Bytes of the results of single operations that can be recorded before the reply is complete.
pub const STEP_RESULT_BYTES: usize = slot::RESULT_WORDS * 8;

const PHASE_BITS: u32 = 2;
const DATA_BITS: u32 = OWNER_BITS;
const _: () = assert!(PHASE_BITS + DATA_BITS + u32::BITS == u64::BITS);

/// What became of the request with the sequence id of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No request yet. The number tells sessions apart that used the same memory.
    Free(u32),
    /// This process executes it, or ended in the middle.
    Running(Option<Owner>),
    /// It has ended, and its reply of this length is kept.
    Replied(u32),
    /// It has ended, and no reply is kept.
    Ended,
}

/// A decoded slot word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotWord {
    pub seqid: u32,
    pub phase: Phase,
}

impl SlotWord {
    pub fn free(session_generation: u32) -> u64 {
        let phase = Phase::Free(session_generation & ((1 << DATA_BITS) - 1));
        Self { seqid: 0, phase }.word()
    }

    pub fn word(self) -> u64 {
        let (data, number) = match self.phase {
            Phase::Free(data) => (data, 0),
            Phase::Running(owner) => (owner.map_or(0, Owner::number), 1),
            Phase::Replied(len) => (len, 2),
            Phase::Ended => (0, 3),
        };
        pair(self.seqid, data << PHASE_BITS | number)
    }

    pub fn of(word: u64) -> Self {
        let data = lower(word) >> PHASE_BITS;
        let phase = match lower(word) & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Free(data),
            1 => Phase::Running(Owner::new(data)),
            2 => Phase::Replied(data),
            _ => Phase::Ended,
        };
        Self { seqid: upper(word), phase }
    }
}

/// A slot in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotAt {
    /// Its first word.
    pub address: usize,
    /// Longest reply that fits.
    pub reply_bytes: usize,
}

/// How far a request got before its process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Operations of the request that are done and whose results are in `results`.
    pub done: u32,
    /// What became of the next operation.
    pub next: NextOperation,
    /// What the process left with the next operation; all 0 if `next` is
    /// [`NextOperation::NotBegun`].
    pub note: [u64; NOTE_WORDS],
    /// The results of the operations that are done, as the process encoded them.
    pub results: Vec<u8>,
}

/// What became of an operation whose process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextOperation {
    /// Nothing of it was done.
    NotBegun,
    /// It may have been done: compare with the note.
    InDoubt,
    /// It was done; the note has its result, from which the caller encodes it again.
    Committed,
}

/// Received requests, as far as the slot decides about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Begun {
    Run,
    /// A process that ended had it.
    Continue(Progress),
    Replay(Vec<u8>),
    /// It ended, and no reply was kept.
    ReplayUncached,
}

const STARTED: u32 = 1;
const COMMITTED: u32 = 1 << 1;
const OPERATION_SHIFT: u32 = 4;
const LENGTH_SHIFT: u32 = 12;

/// A decoded progress word: the results' length, the number of operations done, and flags.
#[derive(Debug, Clone, Copy)]
struct ProgressWord {
    seqid: u32,
    length: u32,
    done: u32,
    flags: u32,
}

impl ProgressWord {
    fn word(self) -> u64 {
        let lower = self.length << LENGTH_SHIFT | (self.done & 0xff) << OPERATION_SHIFT | self.flags;
        pair(self.seqid, lower)
    }

    fn of(word: u64) -> Self {
        let bits = lower(word);
        let done = bits >> OPERATION_SHIFT & 0xff;
        Self { seqid: upper(word), length: bits >> LENGTH_SHIFT, done, flags: bits & 0xf }
    }
}

impl<W: Words> Arena<W> {
    pub fn slot_word(&self, at: SlotAt) -> SlotWord {
        SlotWord::of(self.words.load(at.address))
    }

    /// Whether a slot is in nobody's hands: its session's memory may be used again.
    pub fn slot_is_idle(&self, host: &impl Host, at: SlotAt) -> bool {
        match self.slot_word(at).phase {
            Phase::Running(Some(owner)) => owner != host.me() && !host.is_alive(owner),
            Phase::Running(None) | Phase::Free(_) | Phase::Replied(_) | Phase::Ended => true,
        }
    }

    /// Decides about a request with this sequence id and digest. Errors change nothing, except that
    /// a false retry of a request whose process ended gives that request up. `check` says whether
    /// the slot still belongs to the session: asked after each look at the slot's word, which is
    /// never the same for two sessions, it shows that another session's slot is not changed.
    pub fn slot_begin(
        &self,
        host: &impl Host,
        at: SlotAt,
        seqid: u32,
        digest: u64,
        check: impl Fn() -> Result<(), Error>,
    ) -> Result<(Begun, u64), Error> {
        loop {
            let word = self.words.load(at.address);
            check()?;
            let current = SlotWord::of(word);
            let running = SlotWord { seqid, phase: Phase::Running(Some(host.me())) }.word();
            let is_next = seqid == current.seqid.wrapping_add(1);
            let has_ended =
                |owner: Option<Owner>| owner.is_none_or(|owner| owner != host.me() && !host.is_alive(owner));
            match current.phase {
                _ if !is_next && seqid != current.seqid => return Err(Error::SeqMisordered),
                Phase::Free(_) if !is_next => return Err(Error::SeqMisordered),
                // The client gave up a request that is still running.
                Phase::Running(owner) if is_next && !has_ended(owner) => return Err(Error::SeqMisordered),
                Phase::Running(owner) if !is_next && !has_ended(owner) => return Err(Error::InProgress),
                Phase::Running(_) if !is_next => {
                    self.undo_of_ended(host)?;
                    let progress = self.slot_progress(at, seqid);
                    let is_same = progress.is_none() || self.words.load(at.address + slot::DIGEST) == digest;
                    let ended = SlotWord { seqid, phase: Phase::Ended }.word();
                    let next = if is_same { running } else { ended };
                    if self.words.compare_exchange(at.address, word, next).is_err() {
                        continue;
                    }
                    let begun = progress.map_or(Begun::Run, Begun::Continue);
                    return if is_same { Ok((begun, word)) } else { Err(Error::SeqFalseRetry) };
                }
                Phase::Replied(_) | Phase::Ended if !is_next => {
                    let replay = self.slot_replay(at, current, digest);
                    // A neighbour may have begun the next request while the reply was read.
                    if self.words.load(at.address) != word {
                        continue;
                    }
                    return replay.map(|replay| (replay, word));
                }
                Phase::Free(_) | Phase::Running(_) | Phase::Replied(_) | Phase::Ended => {
                    if matches!(current.phase, Phase::Running(_)) {
                        self.undo_of_ended(host)?;
                    }
                    if self.words.compare_exchange(at.address, word, running).is_ok() {
                        return Ok((Begun::Run, word));
                    }
                }
            }
        }
    }

    /// A process that has ended may have been in a transaction that noted progress: taking the lock
    /// takes that back. Later it would be restored over the progress of the slot's next user.
    fn undo_of_ended(&self, host: &impl Host) -> Result<(), Error> {
        self.begin(host).map(drop).map_err(|_| Error::InProgress)
    }

    /// Takes back [`slot_begin`](Self::slot_begin): nothing was done.
    pub fn slot_forget(&self, host: &impl Host, at: SlotAt, seqid: u32, before: u64) {
        let running = SlotWord { seqid, phase: Phase::Running(Some(host.me())) }.word();
        let _ = self.words.compare_exchange(at.address, running, before);
    }

    /// Keeps the digest of a request that this process has begun. The progress record follows it,
    /// so that a progress of this request implies a digest of this request.
    pub fn slot_describe(&self, at: SlotAt, seqid: u32, digest: u64) {
        self.words.store(at.address + slot::DIGEST, digest);
        let progress = ProgressWord { seqid, length: 0, done: 0, flags: 0 };
        self.words.store(at.address + slot::PROGRESS, progress.word());
    }

    /// How far the request of a process that ended got; `None` if nothing of it was begun.
    fn slot_progress(&self, at: SlotAt, seqid: u32) -> Option<Progress> {
        let word = ProgressWord::of(self.words.load(at.address + slot::PROGRESS));
        if word.seqid != seqid {
            return None;
        }
        let next = match word.flags {
            0 => NextOperation::NotBegun,
            flags if flags & COMMITTED != 0 => NextOperation::Committed,
            _ => NextOperation::InDoubt,
        };
        let mut note = [0; NOTE_WORDS];
        if next != NextOperation::NotBegun {
            for (offset, word) in note.iter_mut().enumerate() {
                *word = self.words.load(at.address + slot::NOTE + offset);
            }
        }
        let length = (word.length as usize).min(STEP_RESULT_BYTES);
        let results = self.slot_bytes(at.address + slot::RESULTS, length);
        Some(Progress { done: word.done, next, note, results })
    }

    fn slot_bytes(&self, from: usize, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        for offset in 0..length.div_ceil(8) {
            bytes.extend_from_slice(&self.words.load(from + offset).to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    fn slot_replay(&self, at: SlotAt, current: SlotWord, digest: u64) -> Result<Begun, Error> {
        if self.words.load(at.address + slot::DIGEST) != digest {
            return Err(Error::SeqFalseRetry);
        }
        match current.phase {
            Phase::Replied(length) if length as usize <= at.reply_bytes => {
                Ok(Begun::Replay(self.slot_bytes(at.address + slot::REPLY, length as usize)))
            }
            _ => Ok(Begun::ReplayUncached),
        }
    }

    /// Whether this process has the request.
    fn slot_is_mine(&self, host: &impl Host, at: SlotAt, seqid: u32) -> bool {
        let mine = SlotWord { seqid, phase: Phase::Running(Some(host.me())) };
        self.slot_word(at) == mine
    }

    /// The progress record of a request that this process has.
    fn slot_own_progress(&self, host: &impl Host, at: SlotAt, seqid: u32) -> Option<ProgressWord> {
        let progress = ProgressWord::of(self.words.load(at.address + slot::PROGRESS));
        (self.slot_is_mine(host, at, seqid) && progress.seqid == seqid).then_some(progress)
    }

    /// Notes that an operation begins whose effect is outside of the arena.
    pub fn slot_start_operation(
        &self,
        host: &impl Host,
        at: SlotAt,
        seqid: u32,
        note: [u64; NOTE_WORDS],
    ) -> bool {
        let Some(progress) = self.slot_own_progress(host, at, seqid) else { return false };
        if progress.flags != 0 {
            // A process that ended had started it, in vain. Its note is not valid while it changes.
            let not_begun = ProgressWord { flags: 0, ..progress };
            self.words.store(at.address + slot::PROGRESS, not_begun.word());
        }
        for (offset, word) in note.into_iter().enumerate() {
            self.words.store(at.address + slot::NOTE + offset, word);
        }
        let started = ProgressWord { flags: STARTED, ..progress };
        self.words.store(at.address + slot::PROGRESS, started.word());
        true
    }

    /// Notes in one step that so many operations are done, with their encoded results. Returns
    /// false if these do not fit, or the request is no longer this process's: then nothing is
    /// noted.
    pub fn slot_end_operations(
        &self,
        host: &impl Host,
        at: SlotAt,
        seqid: u32,
        operations: u32,
        results_of: &[u8],
    ) -> bool {
        let Some(progress) = self.slot_own_progress(host, at, seqid) else { return false };
        let (length, all) = (progress.length as usize, progress.done.saturating_add(operations));
        if length + results_of.len() > STEP_RESULT_BYTES || all > STEP_OPERATIONS_MAX {
            return false;
        }
        // The last word may hold the end of the results before.
        let whole = length / 8 * 8;
        let results = at.address + slot::RESULTS;
        let mut bytes = self.slot_bytes(results, length).split_off(whole);
        bytes.extend_from_slice(results_of);
        self.slot_put_bytes(results + whole / 8, &bytes);
        let length = (length + results_of.len()) as u32;
        let done = ProgressWord { length, done: all, flags: 0, ..progress };
        self.words.store(at.address + slot::PROGRESS, done.word());
        true
    }

    fn slot_put_bytes(&self, from: usize, bytes: &[u8]) {
        for (offset, chunk) in bytes.chunks(8).enumerate() {
            let [word] = words_of::<1>(chunk);
            self.words.store(from + offset, word);
        }
    }

    /// Ends a request, with the reply to be kept. A reply that does not fit is not kept. Returns
    /// false if the request is no longer this process's.
    pub fn slot_finish(&self, host: &impl Host, at: SlotAt, seqid: u32, reply: Option<&[u8]>) -> bool {
        if !self.slot_is_mine(host, at, seqid) {
            return false;
        }
        let phase = match reply.filter(|reply| reply.len() <= at.reply_bytes) {
            Some(reply) => {
                self.slot_put_bytes(at.address + slot::REPLY, reply);
                Phase::Replied(reply.len() as u32)
            }
            None => Phase::Ended,
        };
        let mine = SlotWord { seqid, phase: Phase::Running(Some(host.me())) }.word();
        self.words.compare_exchange(at.address, mine, SlotWord { seqid, phase }.word()).is_ok()
    }
}

impl<W: Words> Transaction<'_, W> {
    /// Notes with the change itself that the next operation of the request is done, and its result.
    pub fn slot_commit(&mut self, at: SlotAt, seqid: u32, note: [u64; NOTE_WORDS]) -> Result<(), Error> {
        let progress = ProgressWord::of(self.words.load(at.address + slot::PROGRESS));
        if progress.seqid != seqid {
            return Err(Error::Damaged("a request without a progress record"));
        }
        for (offset, word) in note.into_iter().enumerate() {
            self.set(at.address + slot::NOTE + offset, word)?;
        }
        let committed = ProgressWord { flags: COMMITTED, ..progress };
        self.set(at.address + slot::PROGRESS, committed.word())
    }
}

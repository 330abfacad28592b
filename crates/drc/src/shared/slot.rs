//! The slot of one call whose reply is kept: its entry, the state before the call was executed,
//! and its reply.
//!
//! Only the process that an entry names writes here. Checksums of the contents are bound to the
//! call, so that the remains of another call, or a partial write, count as nothing.

use super::entry::{Entry, Phase};
use super::{Host, Start, exchange, load, store};
use crate::{STATUS_MAX, Stored};
use std::sync::atomic::AtomicU64;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The longest reply that is kept, after the xid: that of CREATE has 300 bytes with the longest
/// handle.
pub const REPLY_BYTES_MAX: usize = 320;

const WORD: usize = size_of::<u64>();
const REPLY_WORDS: usize = REPLY_BYTES_MAX / WORD;
/// The entry; the state before the call, with its checksum; the reply's length and checksum; the
/// reply.
pub(super) const SLOT_WORDS: usize = 1 + PRE_OP_WORDS + 1 + 2 + REPLY_WORDS;
const PRE_OP_WORDS: usize = 3;
const PRE_OP_AT: usize = 1;
const REPLY_AT: usize = PRE_OP_AT + PRE_OP_WORDS + 1;

/// NFS3ERR_SERVERFAULT, for a reply that does not fit. RFC 1813 s2.6
const SERVERFAULT: u32 = 10_006;

/// What was found under the name that a call is about, before the call was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreOpState {
    /// Nothing.
    Absent,
    /// An object, by two numbers of the server that identify it.
    Object(u64, u64),
}

/// One slot. Any slice will do: missing words read as zeros.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot<'m> {
    words: &'m [AtomicU64],
    /// The seed of the call, mixed into the checksums.
    seed: u64,
}

impl<'m> Slot<'m> {
    pub const fn new(words: &'m [AtomicU64], seed: u64) -> Self {
        Self { words, seed }
    }

    fn load(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, load)
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            store(word, value);
        }
    }

    pub fn entry(&self) -> Entry {
        Entry::of(self.load(0))
    }

    /// Changes the entry, unless another process has changed it in the meantime.
    pub fn exchange(&self, from: Entry, to: Entry) -> Result<(), Entry> {
        let Some(word) = self.words.first() else { return Err(Entry::of(0)) };
        exchange(word, from.word(), to.word()).map_err(Entry::of)
    }

    /// The entry, if it is this process's in `phase`.
    fn owned_entry(&self, host: &impl Host, is: impl Fn(Phase) -> bool, call: Entry) -> Option<Entry> {
        let entry = self.entry();
        let owner = match entry.phase {
            Phase::Begun(owner) | Phase::Started(owner) | Phase::Writing(owner) => owner,
            Phase::Empty | Phase::Ended(_) | Phase::Replied | Phase::Corrupt(_) => return None,
        };
        (owner == host.me() && entry.counter == call.counter && is(entry.phase)).then_some(entry)
    }

    /// Moves a call that this process has begun to "started". From then on no other process takes
    /// it over.
    pub fn start(&self, host: &impl Host, call: Entry) -> Start {
        let Some(begun) = self.owned_entry(host, |phase| matches!(phase, Phase::Begun(_)), call) else {
            return Start::Lost;
        };
        match self.exchange(begun, begun.to(Phase::Started(host.me()))) {
            Ok(()) if begun.doubt => Start::InDoubt,
            Ok(()) => Start::Fresh,
            Err(_) => Start::Lost,
        }
    }

    /// Takes back a start without execution; the call stays this process's.
    pub fn cancel_start(&self, host: &impl Host, call: Entry) {
        if let Some(started) = self.owned_entry(host, |phase| matches!(phase, Phase::Started(_)), call) {
            let _ = self.exchange(started, started.to(Phase::Begun(host.me())));
        }
    }

    /// Gives up a call that was not executed: the next process that receives it takes it.
    pub fn forget(&self, host: &impl Host, call: Entry) {
        let unexecuted = |phase| matches!(phase, Phase::Begun(_) | Phase::Started(_));
        if let Some(entry) = self.owned_entry(host, unexecuted, call) {
            let _ = self.exchange(entry, entry.to(Phase::Begun(super::Owner::NOBODY)));
        }
    }

    /// Ends a call with the result to be kept. Does nothing if the call is no longer this
    /// process's.
    pub fn finish(&self, host: &impl Host, call: Entry, result: Result<&[u8], u32>) {
        let Some(started) = self.owned_entry(host, |phase| matches!(phase, Phase::Started(_)), call) else {
            return;
        };
        let sure = Entry { doubt: false, ..started };
        let status = match result {
            Ok(reply) if reply.len() <= REPLY_BYTES_MAX => {
                let writing = started.to(Phase::Writing(host.me()));
                if self.exchange(started, writing).is_ok() {
                    self.put_reply(reply);
                    let _ = self.exchange(writing, sure.to(Phase::Replied));
                }
                return;
            }
            Ok(_) => SERVERFAULT,
            Err(status) => status.min(STATUS_MAX),
        };
        // If this fails, the window has moved past the call, and copies of it are refused.
        let _ = self.exchange(started, sure.to(Phase::Ended(status)));
    }

    fn put_reply(&self, reply: &[u8]) {
        self.store(REPLY_AT, reply.len() as u64);
        self.store(REPLY_AT + 1, xxh3_64_with_seed(reply, self.seed));
        for (at, chunk) in reply.chunks(WORD).enumerate() {
            let mut bytes = [0; WORD];
            bytes.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.store(REPLY_AT + 2 + at, u64::from_le_bytes(bytes));
        }
    }

    /// The stored result of a call that has ended; `None` if it is incomplete. The entry must be
    /// checked again afterwards.
    pub fn stored(&self, entry: Entry) -> Option<Stored> {
        if let Phase::Ended(status) = entry.phase {
            return Some(if status == 0 { Stored::Done } else { Stored::Failed(status) });
        }
        let len = usize::try_from(self.load(REPLY_AT)).ok().filter(|len| *len <= REPLY_BYTES_MAX)?;
        let checksum = self.load(REPLY_AT + 1);
        let mut reply = Vec::with_capacity(len + WORD);
        for at in 0..len.div_ceil(WORD) {
            reply.extend_from_slice(&self.load(REPLY_AT + 2 + at).to_le_bytes());
        }
        reply.truncate(len);
        (xxh3_64_with_seed(&reply, self.seed) == checksum).then(|| Stored::Reply(reply.into()))
    }

    /// Records the state before the call, for the process that finds the call in doubt.
    pub fn record_pre_op(&self, state: PreOpState) {
        let words = match state {
            PreOpState::Absent => [1, 0, 0],
            PreOpState::Object(a, b) => [2, a, b],
        };
        words.iter().enumerate().for_each(|(at, word)| self.store(PRE_OP_AT + at, *word));
        self.store(PRE_OP_AT + PRE_OP_WORDS, self.checksum(words));
    }

    /// Clears the record of another call.
    pub fn clear_pre_op(&self) {
        self.store(PRE_OP_AT, 0);
    }

    /// The state before the call was executed for the first time; `None` if it was never
    /// executed.
    pub fn pre_op(&self) -> Option<PreOpState> {
        let words = [0, 1, 2].map(|at| self.load(PRE_OP_AT + at));
        let [kind, a, b] = words;
        if self.load(PRE_OP_AT + PRE_OP_WORDS) != self.checksum(words) {
            return None;
        }
        match kind {
            1 => Some(PreOpState::Absent),
            2 => Some(PreOpState::Object(a, b)),
            _ => None,
        }
    }

    fn checksum(&self, words: [u64; PRE_OP_WORDS]) -> u64 {
        let [a, b, c] = words.map(u64::to_le_bytes);
        xxh3_64_with_seed(&[a, b, c].concat(), self.seed)
    }
}

//! The reply table for foreign clients.
//!
//! The key is what a retry has in common with its call: the client's address, xid, program,
//! version, procedure, the whole credential, and a hash of the arguments. A neighbour's call may
//! have the same key; [`super::connections`] decides whether a call is a retry or a neighbour's, so
//! a key may have several entries. Entries are dropped when they are [`TABLE_AGE_MAX`] old or when
//! the table is full, oldest first; a running call is never dropped. Plain data with one
//! owner at a time: a server creates several tables and chooses one by [`CallKey::shard`].
//!
//! Only for procedures that change something. The table misses what the kernel's cache misses: a
//! copy that is received after its entry was dropped is executed again.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use smallvec::SmallVec;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use super::connections::{Candidate, Choice, ForeignCall, LookupContext, Origin, choose};
use super::{Begin, Outcome, Refusal, ReplyTo, Stored, Token};
use rpc::Xid;
use rpc::call::CallHeader;

/// Entries over all tables of a server, divided by the number of tables: far more calls than its
/// clients have outstanding, in 22 MiB with replies of 280 bytes. Under load this limit applies
/// long before the age does.
pub const TABLE_ENTRIES_MAX: usize = 65_536;

/// How long the outcome of a call is kept, the same as in the kernel's server. A client that
/// retransmits within its first two timeouts of a minute finds it.
pub const TABLE_AGE_MAX: Duration = Duration::from_secs(120);

/// Payload bytes of a WRITE that are hashed, as many as the kernel's server hashes. Two WRITEs with
/// equal xid, credential, file, offset, length and first bytes count as one call.
pub const HASHED_PAYLOAD_BYTES: usize = 256;

/// Entries checked to find one that may be dropped. With a larger limit, running calls would slow
/// down every new call.
const EVICTION_STEPS_MAX: usize = 64;

/// Aged entries dropped per call begun: more than one, so that a table past its peak shrinks.
const AGED_STEPS: usize = 2;

/// The most entries of one key, which are equal calls of neighbours. If there are more at once, the
/// oldest is dropped.
const ENTRIES_PER_KEY_MAX: usize = 16;

/// Hashes arguments for [`CallKey`]. `args` are all of them where they are small; of a WRITE, what
/// precedes the payload and its first [`HASHED_PAYLOAD_BYTES`]. `args_len` is the length of all
/// arguments.
#[must_use]
pub fn args_hash(args: &[u8], args_len: usize) -> u64 {
    xxh3_64_with_seed(args, args_len as u64)
}

/// The identity of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallKey {
    address: IpAddr,
    xid: Xid,
    procedure: u32,
    program: u32,
    version: u32,
    args_hash: u64,
    credential_flavor: u32,
    /// A usual AUTH_SYS body is stored inline; one with many groups is allocated.
    credential_body: SmallVec<[u8; 64]>,
}

impl CallKey {
    /// The key of a call that came from `address` and whose arguments hash to `args_hash`
    /// ([`args_hash`]).
    #[must_use]
    pub fn new(header: &CallHeader<'_>, args_hash: u64, address: IpAddr) -> Self {
        Self {
            address: address.to_canonical(),
            xid: header.xid,
            procedure: header.procedure,
            program: header.program,
            version: header.version,
            args_hash,
            credential_flavor: header.credential_flavor,
            credential_body: SmallVec::from_slice(header.credential_body),
        }
    }

    /// The call as two numbers, for a table that several processes share.
    #[must_use]
    pub(super) fn digest(&self, seed: u64) -> [u64; 2] {
        let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
        for word in [self.xid.0, self.procedure, self.program, self.version, self.credential_flavor] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&self.args_hash.to_be_bytes());
        match self.address {
            IpAddr::V4(v4) => bytes.extend_from_slice(&v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => bytes.extend_from_slice(&v6.octets()),
        }
        bytes.extend_from_slice(&self.credential_body);
        let digest = xxh3_128_with_seed(&bytes, seed);
        [(digest >> 64) as u64, digest as u64]
    }

    /// Which of `shards` tables the call belongs to; 0 if there are none.
    #[must_use]
    pub fn shard(&self, shards: usize) -> usize {
        let mixed = (self.args_hash ^ u64::from(self.xid.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (mixed as usize).checked_rem(shards).unwrap_or(0)
    }
}

/// What is known of one call.
#[derive(Debug)]
enum Phase {
    /// The call is being executed; the newest connection that waits for it, if any.
    Running(Option<(Token, Origin)>),
    /// The call ended with this result, at this time.
    Ended(Stored, Duration),
}

#[derive(Debug)]
struct Entry {
    key: CallKey,
    /// The origin of the call while it runs; afterwards, of its last retry.
    origin: Origin,
    phase: Phase,
    /// Distinguishes the entry from an earlier one of the same digest that is still in the queue.
    serial: u64,
}

impl Entry {
    fn is_aged(&self, now: Duration) -> bool {
        matches!(self.phase, Phase::Ended(_, since) if now.saturating_sub(since) >= TABLE_AGE_MAX)
    }

    fn candidate(&self) -> Candidate<u64> {
        let (waiter, ended) = match &self.phase {
            Phase::Running(waiter) => (waiter.map(|(_, origin)| origin), None),
            Phase::Ended(_, since) => (None, Some(*since)),
        };
        Candidate { at: self.serial, origin: self.origin, waiter, ended }
    }

    /// Handles a retry of the call.
    fn retry(&mut self, token: Token, origin: Origin) -> Begin {
        match &mut self.phase {
            Phase::Running(waiter) => {
                *waiter = Some((token, origin));
                Begin::Attached
            }
            Phase::Ended(stored, _) => {
                self.origin = origin;
                Begin::Replay(stored.clone())
            }
        }
    }
}

/// The hash of a key, with random hash keys per table, so that no client can choose keys that
/// collide.
type Digest = u64;

/// Uses a [`Digest`] itself as its hash.
#[derive(Debug, Default)]
struct DigestHasher(Digest);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a digest is hashed as a whole number");
    }

    fn write_u64(&mut self, digest: Digest) {
        self.0 = digest;
    }
}

/// Entries of one key, oldest first; nearly always one. Boxed, so that unused slots of the map cost
/// little.
type Bucket = SmallVec<[Box<Entry>; 1]>;

/// One table.
#[derive(Debug)]
pub struct Table {
    hasher: RandomState,
    entries: HashMap<Digest, Bucket, BuildHasherDefault<DigestHasher>>,
    /// All entries, oldest first, at most `entries_max`.
    queue: VecDeque<(u64, Digest)>,
    entries_max: usize,
    serial: u64,
}

impl Table {
    /// Creates a table of at most `entries_max` entries. Allocates nothing yet.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            entries: HashMap::default(),
            queue: VecDeque::new(),
            entries_max,
            serial: 0,
        }
    }

    /// Asks before a call is executed, after its arguments were validated.
    pub fn begin(&mut self, call: &ForeignCall, token: Token, context: &LookupContext<'_>) -> Begin {
        let now = context.now;
        self.drop_aged(now);
        let digest = self.hasher.hash_one(&call.key);
        if let Some(bucket) = self.entries.get_mut(&digest) {
            bucket.retain(|entry| !entry.is_aged(now));
            // Two keys with one digest do not happen in practice; if they do, the second must not
            // be taken for the first, and there is no room for both.
            if bucket.iter().any(|entry| entry.key != call.key) {
                return Begin::Refused(Refusal::TableFull);
            }
            let candidates: SmallVec<[Candidate<u64>; 2]> =
                bucket.iter().map(|entry| entry.candidate()).collect();
            match choose(&candidates, call.origin, context) {
                Choice::Retry(serial) => {
                    if let Some(entry) = bucket.iter_mut().find(|entry| entry.serial == serial) {
                        return entry.retry(token, call.origin);
                    }
                }
                Choice::Undecided => return Begin::Defer,
                Choice::New => {}
            }
            if bucket.len() >= ENTRIES_PER_KEY_MAX {
                let ended = bucket.iter().position(|entry| matches!(entry.phase, Phase::Ended(..)));
                let Some(oldest) = ended else { return Begin::Refused(Refusal::TableFull) };
                // Its position in the queue is removed when it reaches the front.
                bucket.remove(oldest);
            }
        }
        if self.queue.len() >= self.entries_max && !self.make_room() {
            return Begin::Refused(Refusal::TableFull);
        }
        self.serial += 1;
        self.queue.push_back((self.serial, digest));
        let (key, origin) = (call.key.clone(), call.origin);
        let entry = Entry { key, origin, phase: Phase::Running(None), serial: self.serial };
        self.entries.entry(digest).or_default().push(Box::new(entry));
        Begin::Run
    }

    /// Ends a call for which [`begin`](Self::begin) returned `Run`. Returns where its reply goes.
    pub fn finish(&mut self, call: &ForeignCall, outcome: Outcome<'_>, now: Duration) -> ReplyTo {
        let digest = self.hasher.hash_one(&call.key);
        let Some(bucket) = self.entries.get_mut(&digest) else { return ReplyTo::ORIGINAL };
        let is_it = |entry: &Entry| {
            entry.key == call.key && entry.origin == call.origin && matches!(entry.phase, Phase::Running(_))
        };
        let Some(at) = bucket.iter().position(|entry| is_it(entry)) else { return ReplyTo::ORIGINAL };
        let Some(entry) = bucket.get_mut(at) else { return ReplyTo::ORIGINAL };
        let Phase::Running(waiter) = entry.phase else { return ReplyTo::ORIGINAL };
        match Stored::of(outcome) {
            Some(stored) => {
                entry.phase = Phase::Ended(stored, now);
                entry.origin = waiter.map_or(entry.origin, |(_, origin)| origin);
            }
            // Its position in the queue is removed when it reaches the front.
            None => {
                bucket.remove(at);
                if bucket.is_empty() {
                    self.entries.remove(&digest);
                }
            }
        }
        ReplyTo { waiter: waiter.map(|(token, _)| token) }
    }

    /// The number of known calls.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.values().map(|bucket| bucket.len()).sum()
    }

    /// Whether no call is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at the front of the queue. The inner `None` means that the entry is gone by now,
    /// the outer that the queue is empty.
    fn oldest(&self) -> Option<Option<&Entry>> {
        let (serial, digest) = self.queue.front()?;
        let bucket = self.entries.get(digest);
        Some(bucket.and_then(|bucket| bucket.iter().find(|entry| entry.serial == *serial)).map(Box::as_ref))
    }

    fn drop_aged(&mut self, now: Duration) {
        for _ in 0..AGED_STEPS {
            match self.oldest() {
                Some(Some(entry)) if !entry.is_aged(now) => return,
                Some(_) => self.drop_oldest(),
                None => return,
            }
        }
    }

    /// Drops the oldest entry that is not running; running ones are moved to the end of the queue.
    fn make_room(&mut self) -> bool {
        for _ in 0..EVICTION_STEPS_MAX {
            match self.oldest() {
                Some(Some(Entry { phase: Phase::Running(_), .. })) => self.queue.rotate_left(1),
                Some(_) => {
                    self.drop_oldest();
                    return true;
                }
                None => return false,
            }
        }
        false
    }

    fn drop_oldest(&mut self) {
        if let Some((serial, digest)) = self.queue.pop_front()
            && let Some(bucket) = self.entries.get_mut(&digest)
        {
            bucket.retain(|entry| entry.serial != serial);
            if bucket.is_empty() {
                self.entries.remove(&digest);
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Where everything is in an arena: a head, an undo log, hash tables, and a slab for each kind of
//! record. All of it follows from the bounds, which the head repeats.

use crate::error::OpenError;
use crate::id::INDEX_BITS;
use crate::record::{BACK_SLOTS_MAX, CHUNK_SLOTS, Kind, Record, SESSION_CHUNKS_MAX};
use crate::words::Words;
use std::ops::Range;
use std::time::Duration;

const MAGIC: u64 = u64::from_be_bytes(*b"TRKSTATE");
/// Increased with every change of the layout or of the meaning of a word.
const VERSION: u64 = 7;

/// Words of the head.
pub(crate) mod head {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const WORD_COUNT: usize = 2;
    pub const EPOCH: usize = 3;
    /// 128 random bits, in two words.
    pub const SEED: usize = 4;
    /// Entries of the undo log that count.
    pub const UNDO_COUNT: usize = 6;
    /// Odd while words are being changed under the lock.
    pub const CHANGES: usize = 7;
    pub const CLIENT_COUNTER: usize = 8;
    /// When the grace period ends, in milliseconds; 0 if there is none.
    pub const GRACE_END: usize = 10;
    /// Clients that may reclaim and have not said that they are done, while there is a grace
    /// period.
    pub const RECLAIMING: usize = 11;
    /// Lists with work to do.
    pub const DYING_CLIENTS: usize = 12;
    pub const DYING_SESSIONS: usize = 13;
    pub const PERSIST: usize = 14;
    pub const RECALLS: usize = 15;
    pub const NOTIFY: usize = 16;
    /// Opens that deny anything: without them I/O by special stateids and by other protocols is
    /// never refused.
    pub const DENIALS: usize = 17;
    /// Where the search for clients whose lease has ended continues.
    pub const SWEEP: usize = 18;
    /// Recalls that were handed out.
    pub const RECALLS_SENT: usize = 19;
    /// Clients that have ended and whose recovery record is to be removed.
    pub const FORGET: usize = 20;
    /// The end of the grace period is to be reported.
    pub const GRACE_OVER: usize = 21;
    /// Clients that are not confirmed, in the order in which they came, and how many they are.
    pub const UNCONFIRMED: usize = 9;
    pub const UNCONFIRMED_COUNT: usize = 22;
    /// Hosts that lock by NLM.
    pub const NLM_COUNT: usize = 23;
    /// The bounds and times that the arena was created with.
    pub const CONFIG: usize = 24;
    pub const CONFIG_WORDS: usize = 28;
    /// For each kind: the first free record, how many were ever used, and how many are in use.
    pub const SLABS: usize = CONFIG + CONFIG_WORDS;
    pub const SLAB_WORDS: usize = 3;
    /// For each kind: a time in milliseconds before which no lease ends of a client that has such
    /// records, so that a search for one is in vain.
    pub const EXPIRY: usize = SLABS + SLAB_WORDS * crate::record::Kind::ALL.len();
    /// 1 once the recovery records are in the arena. Until then nothing is served.
    pub const LOADED: usize = EXPIRY + crate::record::Kind::ALL.len();
    /// All delegations that are being recalled, in the order in which that began.
    pub const RECALLS_BY_AGE: usize = LOADED + 1;
    /// Opens that ended without a CLOSE, ever.
    pub const DROPPED_OPENS: usize = RECALLS_BY_AGE + 1;
    /// When the grace period ends at the latest, in milliseconds: until then it gets longer while
    /// clients reclaim.
    pub const GRACE_LIMIT: usize = DROPPED_OPENS + 1;
    /// The process that changes the arena; 0 if none does. Those that wait for it look at it all
    /// the time: eight words before and after it, a cache line, have nothing else.
    pub const LOCK: usize = 120;
    pub const WORDS: usize = 136;
    const _: () = assert!(GRACE_LIMIT + 8 < LOCK && LOCK + 8 < WORDS);
}

/// Entries of the undo log. The largest change drops the [`RANGES_PER_LOCK_MAX`] ranges of one
/// owner, each with about 20 words.
///
/// [`RANGES_PER_LOCK_MAX`]: crate::RANGES_PER_LOCK_MAX
pub(crate) const UNDO_ENTRIES: usize = 32_768;

/// Defines [`Bounds`], and the words that keep them in an arena in the order of the fields.
macro_rules! bounds {
    ($($(#[$about:meta])* pub $field:ident: u32,)+) => {
        /// How many records of each kind there may be, in all and for one client.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Bounds {
            $($(#[$about])* pub $field: u32,)+
        }

        impl Bounds {
            fn to_words(&self) -> [u32; BOUNDS] {
                [$(self.$field),+]
            }

            fn of_words(words: [u32; BOUNDS]) -> Self {
                let [$($field),+] = words;
                Self { $($field),+ }
            }
        }

        const BOUNDS: usize = [$(stringify!($field)),+].len();
    };
}

bounds! {
    /// Clients, and hosts that lock by NLM. The hosts are a half at most; clients that have asked
    /// for an id and not yet confirmed it are a quarter at most.
    pub clients: u32,
    /// Sessions.
    pub sessions: u32,
    /// Sessions of one client.
    pub sessions_per_client: u32,
    /// Slots of all sessions, each with memory for one reply.
    pub slots: u32,
    /// Slots of one session, 512 at most.
    pub slots_per_session: u32,
    /// Bytes of a kept reply: `ca_maxresponsesize_cached` is granted up to this.
    pub reply_bytes: u32,
    /// Open owners and lock owners.
    pub owners: u32,
    /// Owners of one client.
    pub owners_per_client: u32,
    /// Files with any state.
    pub files: u32,
    /// Opens.
    pub opens: u32,
    /// Opens of one client.
    pub opens_per_client: u32,
    /// Pairs of a lock owner and a file.
    pub locks: u32,
    /// Such pairs of one client.
    pub locks_per_client: u32,
    /// Locked ranges.
    pub ranges: u32,
    /// Locked ranges of one client.
    pub ranges_per_client: u32,
    /// Delegations.
    pub delegations: u32,
    /// Delegations of one client.
    pub delegations_per_client: u32,
    /// Lock requests that wait.
    pub waiters: u32,
    /// Waiting requests of one client.
    pub waiters_per_client: u32,
    /// Clients of an earlier start that may reclaim.
    pub recoveries: u32,
    /// Blocks of 48 bytes for the names of clients and owners.
    pub blobs: u32,
}

impl Default for Bounds {
    /// For 16,384 clients and a million opens: about 2.1 GiB of addresses, of which only what is
    /// used takes memory.
    fn default() -> Self {
        Self {
            clients: 16_384,
            sessions: 32_768,
            sessions_per_client: 16,
            slots: 1 << 19,
            slots_per_session: 128,
            reply_bytes: 2048,
            owners: 1 << 20,
            owners_per_client: 1 << 18,
            files: 1 << 20,
            opens: 1 << 20,
            opens_per_client: 1 << 18,
            locks: 1 << 18,
            locks_per_client: 1 << 16,
            ranges: 1 << 19,
            ranges_per_client: 1 << 17,
            delegations: 1 << 18,
            delegations_per_client: 1 << 15,
            waiters: 1 << 16,
            waiters_per_client: 1 << 12,
            recoveries: 16_384,
            blobs: 1 << 21,
        }
    }
}

impl Bounds {
    /// Bounds for tests and small servers: a few hundred of everything.
    #[must_use]
    pub fn small() -> Self {
        Self {
            clients: 64,
            sessions: 64,
            sessions_per_client: 4,
            slots: 256,
            slots_per_session: 16,
            reply_bytes: 256,
            owners: 256,
            owners_per_client: 64,
            files: 256,
            opens: 256,
            opens_per_client: 64,
            locks: 256,
            locks_per_client: 64,
            ranges: 512,
            ranges_per_client: 128,
            delegations: 64,
            delegations_per_client: 16,
            waiters: 64,
            waiters_per_client: 16,
            recoveries: 64,
            blobs: 512,
        }
    }

    fn count(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Client => self.clients,
            Kind::Session => self.sessions,
            Kind::Chunk => self.slots.div_ceil(CHUNK_SLOTS as u32),
            Kind::Owner => self.owners,
            Kind::File => self.files,
            Kind::Open => self.opens,
            Kind::Lock => self.locks,
            Kind::Range => self.ranges,
            Kind::Delegation => self.delegations,
            Kind::Waiter => self.waiters,
            Kind::Recovery => self.recoveries,
            Kind::Blob => self.blobs,
            // Each client names one at most, and so does each session, which may outlive its
            // client.
            Kind::Peer => self.clients.saturating_add(self.sessions),
        }
    }

    /// Records of a kind that one client may have.
    pub(crate) fn per_client(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Session => self.sessions_per_client,
            Kind::Owner => self.owners_per_client,
            Kind::Open => self.opens_per_client,
            Kind::Lock => self.locks_per_client,
            Kind::Range => self.ranges_per_client,
            Kind::Delegation => self.delegations_per_client,
            Kind::Waiter => self.waiters_per_client,
            Kind::Client | Kind::Chunk | Kind::File | Kind::Recovery | Kind::Blob | Kind::Peer => u32::MAX,
        }
    }

    /// Records of a kind that the clients of one address may have together, so that it leaves
    /// others their part: a quarter of the confirmed clients and of the sessions, a half of what
    /// they hold, or as much as one client may. Files need opens.
    pub(crate) fn per_peer(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Client | Kind::Session => self.count(kind).div_ceil(4),
            Kind::File | Kind::Recovery | Kind::Peer => u32::MAX,
            Kind::Chunk | Kind::Blob => self.count(kind).div_ceil(2),
            _ => self.count(kind).div_ceil(2).max(self.per_client(kind)),
        }
    }

    /// Clients of one address that have not confirmed their id: a quarter of all such.
    pub(crate) const fn unconfirmed_per_peer(&self) -> u32 {
        self.unconfirmed().div_ceil(4)
    }

    /// Clients that have not confirmed their id: a quarter, so that whoever only asks for ids keeps
    /// no others out. A newer one takes the place of the oldest.
    pub(crate) const fn unconfirmed(&self) -> u32 {
        self.clients.div_ceil(4)
    }

    /// Hosts that lock by NLM, whose names anybody may invent: a half.
    pub(crate) const fn nlm_hosts(&self) -> u32 {
        self.clients.div_ceil(2)
    }

    fn are_usable(&self) -> bool {
        let indices = Kind::ALL.iter().all(|kind| (1..1 << INDEX_BITS).contains(&self.count(*kind)));
        let slots = CHUNK_SLOTS as u32 * SESSION_CHUNKS_MAX as u32;
        indices && (1..=slots).contains(&self.slots_per_session) && (64..=65_536).contains(&self.reply_bytes)
    }
}

/// Bounds and times of an arena. All processes that share it must agree on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How many records there may be.
    pub bounds: Bounds,
    /// How long a client's state is safe after its last sign of life. RFC 8881 s8.3
    pub lease: Duration,
    /// How long the state of a silent client is kept at most if nobody needs it.
    pub courtesy: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let courtesy = Duration::from_secs(24 * 60 * 60);
        Self { bounds: Bounds::default(), lease: Duration::from_secs(90), courtesy }
    }
}

/// Where a slab is.
#[derive(Debug, Clone, Copy, Default)]
struct Slab {
    base: usize,
    words: usize,
    count: u32,
}

/// A hash table: each bucket is a list of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    ClientByOwner,
    ClientById,
    Owner,
    File,
    Open,
    Lock,
    Delegation,
    Recovery,
    Peer,
}

impl Table {
    const ALL: [Self; 9] = [
        Self::ClientByOwner,
        Self::ClientById,
        Self::Owner,
        Self::File,
        Self::Open,
        Self::Lock,
        Self::Delegation,
        Self::Recovery,
        Self::Peer,
    ];

    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::ClientByOwner | Self::ClientById => Kind::Client,
            Self::Owner => Kind::Owner,
            Self::File => Kind::File,
            Self::Open => Kind::Open,
            Self::Lock => Kind::Lock,
            Self::Delegation => Kind::Delegation,
            Self::Recovery => Kind::Recovery,
            Self::Peer => Kind::Peer,
        }
    }
}

/// What is known of the files of one hash, in words of its own: that is asked for without the lock.
pub(crate) mod shared {
    /// Opens that deny anything in the upper half, delegations that are not revoked in the lower
    /// one.
    pub const COUNTS: usize = 0;
    /// Until when no such file is delegated, in milliseconds, because one had to be recalled.
    pub const UNTIL: usize = 1;
    pub const WORDS: usize = 2;
}

/// Sets of words in which changes are announced; the hash of a file says in which. As many words as
/// all threads of all processes need, with room to spare.
const CHANGE_SETS: usize = 256;
/// Words of a set: one cache line.
const CHANGE_SET_WORDS: usize = 8;
/// Words for the changes that find no place in their set: one for each process.
const CROWD_WORDS: usize = 32;

/// Where everything is, computed from the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub config: Config,
    pub undo: usize,
    slabs: [Slab; Kind::ALL.len()],
    tables: [(usize, usize); Table::ALL.len()],
    /// What is asked for without the lock: the first word, and of how many hashes.
    shared: (usize, usize),
    changes: usize,
    pub word_count: usize,
}

impl Layout {
    pub fn new(config: &Config) -> Option<Self> {
        let bounds = &config.bounds;
        if !bounds.are_usable() {
            return None;
        }
        let mut at = head::WORDS + 2 * UNDO_ENTRIES;
        let mut tables = [(0, 0); Table::ALL.len()];
        for table in Table::ALL {
            let buckets = bounds.count(table.kind()).next_power_of_two() as usize;
            tables[table as usize] = (at, buckets);
            at = at.checked_add(buckets)?;
        }
        // Twice as many as there can be delegations, so that a file seldom pays for another one's.
        let hashes = (bounds.delegations as usize * 2).next_power_of_two();
        let shared = (at, hashes);
        let changes = at.checked_add(hashes * shared::WORDS)?.next_multiple_of(CHANGE_SET_WORDS);
        at = changes.checked_add(CHANGE_SETS * CHANGE_SET_WORDS + CROWD_WORDS)?;
        let reply_words = (bounds.reply_bytes as usize).div_ceil(8);
        let mut slabs = [Slab::default(); Kind::ALL.len()];
        for kind in Kind::ALL {
            let (words, count) = (kind.words(reply_words), bounds.count(kind));
            slabs[kind as usize] = Slab { base: at, words, count };
            at = at.checked_add(words.checked_mul(count as usize)?)?;
        }
        let config = config.clone();
        Some(Self { config, undo: head::WORDS, slabs, tables, shared, changes, word_count: at })
    }

    /// The word `field` of a record; `None` if there is no such record or word.
    pub fn address(&self, record: Record, field: usize) -> Option<usize> {
        let slab = &self.slabs[record.kind as usize];
        let number = record.index.checked_sub(1)?;
        (number < slab.count && field < slab.words).then(|| slab.base + number as usize * slab.words + field)
    }

    pub fn count(&self, kind: Kind) -> u32 {
        self.slabs[kind as usize].count
    }

    /// Gets memory for a record that was never used.
    pub fn provide(&self, words: &impl Words, record: Record) -> bool {
        let length = self.slabs[record.kind as usize].words;
        self.address(record, 0).is_some_and(|at| words.provide(at, length))
    }

    pub const fn slab(kind: Kind) -> usize {
        head::SLABS + head::SLAB_WORDS * kind as usize
    }

    pub fn bucket(&self, table: Table, hash: u64) -> usize {
        let (base, buckets) = self.tables[table as usize];
        base + (hash as usize & (buckets - 1))
    }

    /// The words of [`shared`] that a file has with all others of like hash.
    pub fn shared(&self, hash: u64) -> usize {
        let (base, hashes) = self.shared;
        base + (hash as usize & (hashes - 1)) * shared::WORDS
    }

    /// The words in which a change of a file is announced.
    pub fn changes(&self, hash: u64) -> Range<usize> {
        // Other bits than those of a bucket.
        let set = (hash >> 24) as usize % CHANGE_SETS;
        let first = self.changes + set * CHANGE_SET_WORDS;
        first..first + CHANGE_SET_WORDS
    }

    /// The words in which changes of any file are announced that find no place in the set.
    pub fn crowd(&self) -> Range<usize> {
        let first = self.changes + CHANGE_SETS * CHANGE_SET_WORDS;
        first..first + CROWD_WORDS
    }

    /// All words of [`shared`].
    #[cfg(test)]
    pub fn all_shared(&self) -> Range<usize> {
        self.shared.0..self.shared.0 + self.shared.1 * shared::WORDS
    }

    /// All words in which changes are announced.
    #[cfg(test)]
    pub fn all_changes(&self) -> Range<usize> {
        self.changes..self.crowd().end
    }

    /// The first bucket of a table, and how many it has.
    #[cfg(test)]
    pub fn table(&self, table: Table) -> (usize, usize) {
        self.tables[table as usize]
    }

    /// Whether transactions change this word, so that an undo log may name it.
    pub fn is_undoable(&self, at: usize) -> bool {
        let counters = head::CLIENT_COUNTER..head::CONFIG;
        let records = head::WORDS + 2 * UNDO_ENTRIES..self.word_count;
        let counts = head::SLABS..=head::GRACE_LIMIT;
        // Changes are announced without the lock.
        let announced = self.changes..self.crowd().end;
        counters.contains(&at) || counts.contains(&at) || records.contains(&at) && !announced.contains(&at)
    }

    /// Writes a head into memory that is all zeros; the magic number last.
    pub fn create(&self, words: &impl Words, epoch: u32, seed: u128) -> Result<(), OpenError> {
        if words.word_count() < self.word_count {
            return Err(OpenError::TooShort { found: words.word_count(), needed: self.word_count });
        }
        if !words.provide(0, self.slabs[0].base) {
            return Err(OpenError::NoMemory);
        }
        words.store(head::MAGIC, 0);
        words.store(head::VERSION, VERSION);
        words.store(head::WORD_COUNT, self.word_count as u64);
        words.store(head::EPOCH, u64::from(epoch));
        words.store(head::SEED, seed as u64);
        words.store(head::SEED + 1, (seed >> 64) as u64);
        for (at, value) in config_words(&self.config).into_iter().enumerate() {
            words.store(head::CONFIG + at, value);
        }
        words.store(head::MAGIC, MAGIC);
        Ok(())
    }

    /// The layout that a head describes.
    pub fn of(words: &impl Words) -> Result<Self, OpenError> {
        if words.load(head::MAGIC) != MAGIC {
            return Err(OpenError::NotCreated);
        }
        let found = words.load(head::VERSION);
        if found != VERSION {
            return Err(OpenError::Version { found, ours: VERSION });
        }
        let mut bounds = [0; BOUNDS];
        for (at, bound) in bounds.iter_mut().enumerate() {
            let word = words.load(head::CONFIG + 2 + at);
            *bound = u32::try_from(word).map_err(|_| OpenError::Damaged("a bound is not a number"))?;
        }
        let time = |at| Duration::from_millis(words.load(head::CONFIG + at));
        let config = Config { bounds: Bounds::of_words(bounds), lease: time(0), courtesy: time(1) };
        let layout = Self::new(&config).ok_or(OpenError::Damaged("its bounds are not usable"))?;
        let sum = words.load(head::CONFIG + head::CONFIG_WORDS - 1);
        if config_words(&config)[head::CONFIG_WORDS - 1] != sum {
            return Err(OpenError::Damaged("the checksum of its bounds is wrong"));
        }
        let length = layout.word_count as u64;
        if words.load(head::WORD_COUNT) != length {
            return Err(OpenError::Damaged("its length is not that of its bounds"));
        }
        if words.word_count() < layout.word_count {
            return Err(OpenError::TooShort { found: words.word_count(), needed: layout.word_count });
        }
        Ok(layout)
    }
}

fn config_words(config: &Config) -> [u64; head::CONFIG_WORDS] {
    let mut words = [0; head::CONFIG_WORDS];
    words[0] = milliseconds(config.lease);
    words[1] = milliseconds(config.courtesy);
    for (word, bound) in words[2..].iter_mut().zip(config.bounds.to_words()) {
        *word = u64::from(bound);
    }
    let bytes = words.map(u64::to_le_bytes).concat();
    words[head::CONFIG_WORDS - 1] = xxhash_rust::xxh3::xxh3_64(&bytes);
    words
}

/// Times in the arena are whole milliseconds.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

// The back channel's slots fit the session's record.
const _: () = assert!(BACK_SLOTS_MAX <= 16);

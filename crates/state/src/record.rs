//! The kinds of records and their words. Word 0 of every record is its header: the generation in
//! the upper half, and whether the record is in use. A free record links to the next in word 1.

/// A kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Kind {
    /// A client, or a host that locks by NLM.
    Client,
    /// A session.
    Session,
    /// [`CHUNK_SLOTS`] slots of a session, with their replies.
    Chunk,
    /// An open owner or a lock owner.
    Owner,
    /// A file that has any state.
    File,
    /// An open: one owner, one file.
    Open,
    /// The locks of one owner on one file.
    Lock,
    /// A range of bytes that is locked.
    Range,
    /// A delegation.
    Delegation,
    /// A lock request that waits.
    Waiter,
    /// A client that may reclaim after a restart.
    Recovery,
    /// [`BLOB_BYTES`] bytes of a string.
    Blob,
    /// An address from which clients come.
    Peer,
}

impl Kind {
    pub(crate) const ALL: [Self; 13] = [
        Self::Client,
        Self::Session,
        Self::Chunk,
        Self::Owner,
        Self::File,
        Self::Open,
        Self::Lock,
        Self::Range,
        Self::Delegation,
        Self::Waiter,
        Self::Recovery,
        Self::Blob,
        Self::Peer,
    ];

    /// A word for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Session => "session",
            Self::Chunk => "block of slots",
            Self::Owner => "owner",
            Self::File => "file",
            Self::Open => "open",
            Self::Lock => "lock state",
            Self::Range => "locked range",
            Self::Delegation => "delegation",
            Self::Waiter => "waiting lock request",
            Self::Recovery => "client that may reclaim",
            Self::Blob => "string block",
            Self::Peer => "client address",
        }
    }

    /// Words of a record.
    pub(crate) const fn words(self, reply_words: usize) -> usize {
        match self {
            Self::Client => client::WORDS,
            Self::Session => session::WORDS,
            Self::Chunk => 1 + CHUNK_SLOTS * (slot::REPLY + reply_words),
            Self::Owner => owner::WORDS,
            Self::File => file::WORDS,
            Self::Open => open::WORDS,
            Self::Lock => lock::WORDS,
            Self::Range => range::WORDS,
            Self::Delegation => delegation::WORDS,
            Self::Waiter => waiter::WORDS,
            Self::Recovery => recovery::WORDS,
            Self::Blob => 2 + BLOB_WORDS,
            Self::Peer => peer::WORDS,
        }
    }

    /// Words that are zeroed when a record is taken into use. The words of slots are set by the
    /// session, and those of strings with the string.
    pub(crate) const fn cleared_words(self) -> usize {
        match self {
            Self::Chunk | Self::Blob => 2,
            _ => self.words(0),
        }
    }
}

/// A record, by kind and number. Numbers begin at 1; 0 in a word of the arena means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub kind: Kind,
    pub index: u32,
}

/// Slots of a [`Kind::Chunk`].
pub const CHUNK_SLOTS: usize = 16;
/// Bytes of a [`Kind::Blob`].
pub const BLOB_BYTES: usize = BLOB_WORDS * 8;
/// Words of bytes in a blob, after its header and its link.
pub(crate) const BLOB_WORDS: usize = 6;
/// Blocks of slots of one session.
pub(crate) const SESSION_CHUNKS_MAX: usize = 32;
/// Slots of the back channel of one session.
pub const BACK_SLOTS_MAX: usize = 16;
/// Processes that may hold connections of one session's back channel.
pub(crate) const BACK_PROCESSES_MAX: usize = 16;
/// Bytes of the name of a file.
pub const FILE_BYTES_MAX: usize = 64;

/// Word 1 of a record that is not in use.
pub(crate) const NEXT_FREE: usize = 1;

pub(crate) mod client {
    pub const ID: usize = 1;
    pub const OWNER: usize = 2;
    pub const OWNER_HASH: usize = 3;
    pub const BY_OWNER: usize = 4;
    pub const BY_ID: usize = 5;
    pub const VERIFIER: usize = 6;
    pub const PRINCIPAL: usize = 7;
    pub const FLAGS: usize = 8;
    /// When the lease was renewed, in milliseconds. Stored without the lock.
    pub const LEASE: usize = 9;
    /// The last sequence id of CREATE_SESSION, and how it ended.
    pub const CREATE_SESSION: usize = 10;
    /// The session that the last CREATE_SESSION made: index and generation.
    pub const CREATED: usize = 11;
    pub const SESSIONS: usize = 12;
    pub const SESSION_COUNT: usize = 13;
    pub const OPENS: usize = 14;
    pub const OPEN_COUNT: usize = 15;
    pub const OWNERS: usize = 16;
    pub const OWNER_COUNT: usize = 17;
    pub const LOCKS: usize = 18;
    pub const LOCK_COUNT: usize = 19;
    pub const DELEGATIONS: usize = 20;
    pub const DELEGATION_COUNT: usize = 21;
    pub const WAITERS: usize = 22;
    pub const WAITER_COUNT: usize = 23;
    pub const RANGE_COUNT: usize = 24;
    /// Link in the list of clients that are being dropped, or whose record is to be written.
    pub const QUEUE: usize = 25;
    pub const REVOKED_COUNT: usize = 26;
    /// The process that writes its recovery record.
    pub const WRITER: usize = 27;
    /// Sessions that have ended and whose memory is still in use by a request.
    pub const DYING_SESSION_COUNT: usize = 28;
    /// Attributes of the session that the last CREATE_SESSION made.
    pub const CREATED_CHANNELS: usize = 29;
    /// The address that it was introduced from.
    pub const PEER: usize = CREATED_CHANNELS + super::CHANNELS_WORDS;
    /// Delegations that are being recalled, and since when there has always been one.
    pub const RECALLED_COUNT: usize = PEER + 1;
    pub const RECALLED_SINCE: usize = PEER + 2;
    /// No delegation is granted before this time, because one was revoked.
    pub const DELEGATE_FROM: usize = PEER + 3;
    pub const WORDS: usize = PEER + 4;

    pub const CONFIRMED: u64 = 1;
    pub const DYING: u64 = 1 << 1;
    pub const RECLAIM_DONE: u64 = 1 << 2;
    /// Its recovery record is in stable storage.
    pub const PERSISTED: u64 = 1 << 3;
    /// Its recovery record is to be written: it is in the list of those.
    pub const PERSIST_DUE: u64 = 1 << 4;
    /// A process has been asked to write it.
    pub const PERSIST_ASKED: u64 = 1 << 7;
    pub const MAY_RECLAIM: u64 = 1 << 5;
    /// A host that locks by NLM: no lease, no sessions.
    pub const NLM: u64 = 1 << 6;
    /// Such a host that renews a lease all the same.
    pub const LEASED: u64 = 1 << 8;
}

/// Words of the attributes of both channels and the flags.
pub(crate) const CHANNELS_WORDS: usize = 7;

pub(crate) mod session {
    /// The client: its generation in the upper half, because it may end before the session's memory
    /// is free, and its index.
    pub const CLIENT: usize = 1;
    pub const LINK: usize = 2;
    pub const SLOT_COUNT: usize = 3;
    pub const FLAGS: usize = 4;
    pub const CALLBACK_PROGRAM: usize = 5;
    /// Length and bytes of what the server needs to call back.
    pub const CALLBACK_SECURITY: usize = 6;
    pub const CALLBACK_SECURITY_WORDS: usize = 8;
    pub const CHANNELS: usize = CALLBACK_SECURITY + 1 + CALLBACK_SECURITY_WORDS;
    /// Processes with connections of the back channel, and which they are.
    pub const BACK_COUNT: usize = CHANNELS + super::CHANNELS_WORDS;
    pub const BACK_PROCESSES: usize = BACK_COUNT + 1;
    pub const BACK_SLOTS: usize = BACK_PROCESSES + super::BACK_PROCESSES_MAX;
    pub const CHUNKS: usize = BACK_SLOTS + super::BACK_SLOTS_MAX;
    /// The principal of its CREATE_SESSION.
    pub const PRINCIPAL: usize = CHUNKS + super::SESSION_CHUNKS_MAX;
    /// The address of its client.
    pub const PEER: usize = PRINCIPAL + 1;
    pub const WORDS: usize = PEER + 1;

    pub const DYING: u64 = 1;
    /// The client asked for a back channel.
    pub const HAS_BACK: u64 = 1 << 1;
    /// The client does not answer call-backs, or not as it must.
    pub const BACK_FAULT: u64 = 1 << 2;
}

pub(crate) mod slot {
    pub const WORD: usize = 0;
    pub const DIGEST: usize = 1;
    pub const PROGRESS: usize = 2;
    pub const NOTE: usize = 3;
    pub const NOTE_WORDS: usize = 5;
    /// Results of single operations, until the whole reply is there.
    pub const RESULTS: usize = NOTE + NOTE_WORDS;
    pub const RESULT_WORDS: usize = 128;
    pub const REPLY: usize = RESULTS + RESULT_WORDS;
}

pub(crate) mod owner {
    pub const CLIENT: usize = 1;
    pub const NAME: usize = 2;
    pub const HASH: usize = 3;
    pub const BY_KEY: usize = 4;
    pub const LINK: usize = 5;
    /// Records that name this owner; the owner ends with the last one.
    pub const USES: usize = 6;
    pub const WORDS: usize = 7;
}

pub(crate) mod file {
    pub const LENGTH: usize = 1;
    pub const NAME: usize = 2;
    pub const NAME_WORDS: usize = super::FILE_BYTES_MAX / 8;
    pub const HASH: usize = NAME + NAME_WORDS;
    pub const BY_KEY: usize = HASH + 1;
    pub const USES: usize = BY_KEY + 1;
    pub const OPENS: usize = USES + 1;
    /// Opens that read, in the upper half; that write, in the lower.
    pub const ACCESS: usize = OPENS + 1;
    /// Opens that deny reading, in the upper half; writing, in the lower.
    pub const DENY: usize = ACCESS + 1;
    pub const RANGES: usize = DENY + 1;
    pub const RANGE_COUNT: usize = RANGES + 1;
    pub const DELEGATIONS: usize = RANGE_COUNT + 1;
    pub const WAITERS: usize = DELEGATIONS + 1;
    pub const WAITER_COUNT: usize = WAITERS + 1;
    /// Delegations that are not revoked.
    pub const DELEGATED: usize = WAITER_COUNT + 1;
    pub const WORDS: usize = DELEGATED + 1;
}

pub(crate) mod open {
    pub const CLIENT: usize = 1;
    pub const OWNER: usize = 2;
    pub const FILE: usize = 3;
    /// The sequence id in the upper half, the access bits (0, 1) and the deny bits (2, 3).
    pub const MODE: usize = 4;
    /// Which pairs of access and deny were opened, one bit each.
    pub const OPENED: usize = 5;
    pub const BY_KEY: usize = 6;
    pub const BY_FILE: usize = 7;
    pub const BY_CLIENT: usize = 8;
    pub const LOCKS: usize = 9;
    pub const WORDS: usize = 10;
}

pub(crate) mod lock {
    pub const CLIENT: usize = 1;
    pub const OWNER: usize = 2;
    pub const FILE: usize = 3;
    /// The open; 0 for NLM.
    pub const OPEN: usize = 4;
    pub const SEQID: usize = 5;
    pub const BY_KEY: usize = 6;
    pub const BY_OPEN: usize = 7;
    pub const BY_CLIENT: usize = 8;
    pub const RANGES: usize = 9;
    pub const RANGE_COUNT: usize = 10;
    pub const WORDS: usize = 11;
}

pub(crate) mod range {
    pub const LOCK: usize = 1;
    pub const START: usize = 2;
    /// The last byte.
    pub const END: usize = 3;
    pub const EXCLUSIVE: usize = 4;
    pub const BY_FILE: usize = 5;
    pub const BY_LOCK: usize = 6;
    pub const WORDS: usize = 7;
}

pub(crate) mod delegation {
    pub const CLIENT: usize = 1;
    pub const FILE: usize = 2;
    pub const STATE: usize = 3;
    /// When the recall began, in milliseconds.
    pub const RECALLED: usize = 4;
    /// When the call-back was last handed out; 0 if it was not yet.
    pub const SENT: usize = 5;
    /// Of one that is revoked: since when its client has been kept from the file, in milliseconds,
    /// and how often that has begun, and when the client last came, in seconds.
    pub const HELD_SINCE: usize = RECALLED;
    pub const HELD_LAST: usize = SENT;
    pub const BY_KEY: usize = 6;
    pub const BY_FILE: usize = 7;
    pub const BY_CLIENT: usize = 8;
    pub const QUEUE: usize = 9;
    pub const BY_AGE: usize = 10;
    pub const WORDS: usize = 11;
}

pub(crate) mod waiter {
    pub const CLIENT: usize = 1;
    pub const OWNER: usize = 2;
    pub const FILE: usize = 3;
    pub const START: usize = 4;
    pub const END: usize = 5;
    pub const EXCLUSIVE: usize = 6;
    pub const STATE: usize = 7;
    pub const SINCE: usize = 8;
    pub const BY_FILE: usize = 9;
    pub const BY_CLIENT: usize = 10;
    pub const QUEUE: usize = 11;
    pub const COOKIE: usize = 12;
    pub const WORDS: usize = 13;
}

pub(crate) mod recovery {
    pub const OWNER: usize = 1;
    pub const HASH: usize = 2;
    pub const PRINCIPAL: usize = 3;
    pub const BY_OWNER: usize = 4;
    pub const DONE: usize = 5;
    /// 1 for a host that locks by NLM, which never says that it is done.
    pub const NLM: usize = 6;
    pub const WORDS: usize = 7;
}

pub(crate) mod peer {
    const KINDS: usize = super::Kind::ALL.len();
    pub const KEY: usize = 1;
    pub const BY_KEY: usize = 2;
    /// Clients and sessions that name it, also those that have ended; it ends with the last.
    pub const USES: usize = 3;
    /// Its clients that are not confirmed.
    pub const UNCONFIRMED: usize = 4;
    /// For each kind: how many records its clients have; of clients, those that were confirmed.
    pub const COUNTS: usize = 5;
    /// For each kind: a time in milliseconds before which none of its clients that has such records
    /// ends.
    pub const EXPIRY: usize = COUNTS + KINDS;
    pub const WORDS: usize = EXPIRY + KINDS;
}

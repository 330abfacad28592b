//! The layout of the file, in words of 8 bytes.

use crate::config::EXPORTS_MAX;
use drc::shared::{MEMBERS_MAX, TABLE_WORDS, WINDOW_WORDS};
use drc::{CLIENT_WINDOWS_MAX, CONNECTIONS_WORDS};

pub(super) const WORD: usize = size_of::<u64>();
/// Parts begin at page boundaries, so that each can be allocated on its own.
const PAGE_WORDS: usize = 4096 / WORD;

/// The bytes `tl-group`.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"tl-group");
/// Incremented with every change of the layout of the file, also in [`drc::shared`].
/// 2: neighbours' calls and the connections they came on.
pub(super) const VERSION: u64 = 2;
/// As [`VERSION`], with the state of clients of NFS version 4 behind the windows: so processes with
/// that state and without it refuse each other, also those of releases that do not know it.
pub(super) const VERSION_WITH_STATE: u64 = 3;

// The head, in this order: it is written once, the magic number last.
pub(super) const MAGIC_AT: usize = 0;
pub(super) const VERSION_AT: usize = 1;
pub(super) const WORDS_AT: usize = 2;
pub(super) const BOOT_AT: usize = 3;
pub(super) const SEED_AT: usize = 5;
/// A checksum of all words before it.
pub(super) const CHECKSUM_AT: usize = 6;
pub(super) const HEAD_WORDS: usize = 7;

/// The last generation that was assigned.
pub(super) const GENERATION_AT: usize = 8;
/// The generation of each member.
pub(super) const MEMBERS_AT: usize = 16;
/// Exports: fsid with a flag that the entry is used, fingerprint, first verifier, a checksum.
pub(super) const EXPORTS_AT: usize = PAGE_WORDS;
pub(super) const EXPORT_WORDS: usize = 4;
/// Clients: id, state, last use in seconds, address in two words.
pub(super) const CLIENTS_AT: usize = pages(EXPORTS_AT + EXPORTS_MAX * EXPORT_WORDS);
pub(super) const CLIENT_WORDS: usize = 8;
/// The table of calls from foreign clients.
pub(super) const TABLE_AT: usize = pages(CLIENTS_AT + CLIENT_WINDOWS_MAX * CLIENT_WORDS);
/// The connections on which those calls arrived.
pub(super) const CONNECTIONS_AT: usize = pages(TABLE_AT + TABLE_WORDS);
/// The parts before the windows are allocated from the beginning.
pub(super) const WINDOWS_AT: usize = pages(CONNECTIONS_AT + CONNECTIONS_WORDS);
const WINDOW_STRIDE: usize = pages(WINDOW_WORDS);
/// The windows end about half a GiB behind the beginning, most of which stays a hole until that
/// many clients connect. The state of clients of NFS version 4 begins here.
pub(super) const STATE_AT: usize = WINDOWS_AT + CLIENT_WINDOWS_MAX * WINDOW_STRIDE;
/// Which blocks of the arena have memory, one bit each.
pub(super) const BLOCKS_AT: usize = STATE_AT;
/// What servers share beside the arena: [`ServerWord`](super::ServerWord).
pub(super) const SERVER_AT: usize = BLOCKS_AT + PAGE_WORDS;
/// The arena.
pub(super) const ARENA_AT: usize = SERVER_AT + PAGE_WORDS;
/// Words of a block of the arena, 64 KiB: the arena gets memory block by block.
pub(super) const BLOCK_WORDS: usize = (64 << 10) / WORD;
/// The longest arena whose blocks have their bits: 2 GiB.
pub(super) const ARENA_WORDS_MAX: usize = PAGE_WORDS * u64::BITS as usize * BLOCK_WORDS;

const _: () = assert!(MEMBERS_AT + (MEMBERS_MAX as usize) < EXPORTS_AT && HEAD_WORDS <= GENERATION_AT);

const fn pages(words: usize) -> usize {
    words.next_multiple_of(PAGE_WORDS)
}

/// The parts that a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub version: u64,
    /// The length of the file.
    pub words: usize,
}

impl Form {
    /// Without the state of clients of NFS version 4.
    pub const PLAIN: Self = Self { version: VERSION, words: STATE_AT };

    /// With an arena of so many words.
    pub const fn with_arena(words: usize) -> Self {
        Self { version: VERSION_WITH_STATE, words: ARENA_AT + words }
    }

    pub const fn has_state(self) -> bool {
        self.version == VERSION_WITH_STATE
    }
}

/// Where a client's windows begin.
pub(super) const fn window_at(slot: usize) -> usize {
    WINDOWS_AT + slot * WINDOW_STRIDE
}

// Byte ranges used only for locks, far behind the end of the file, so that they hold no data.

/// Locked while the head, the exports, or the owners of windows are changed.
pub(super) const CHANGE_LOCK: i64 = 1 << 40;

/// Locked by a member as long as it is alive.
pub(super) fn member_lock(member: u8) -> i64 {
    CHANGE_LOCK + i64::from(member)
}

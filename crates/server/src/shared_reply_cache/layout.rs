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
/// The whole file: about half a GiB, most of which stays a hole until that many clients connect.
pub(super) const FILE_WORDS: usize = WINDOWS_AT + CLIENT_WINDOWS_MAX * WINDOW_STRIDE;

const _: () = assert!(MEMBERS_AT + (MEMBERS_MAX as usize) < EXPORTS_AT && HEAD_WORDS <= GENERATION_AT);

const fn pages(words: usize) -> usize {
    words.next_multiple_of(PAGE_WORDS)
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

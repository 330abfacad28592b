//! Records, lists and hash tables in an arena, as they are read. Every index that is read is
//! checked against its bounds: a damaged arena leads to [`Error::Damaged`], never out of bounds,
//! and no list is followed for longer than there are records.

use crate::error::Error;
use crate::layout::{Layout, Table, head};
use crate::record::{BLOB_WORDS, Kind, Record};
use crate::words::Words;
use siphasher::sip::SipHasher24;
use std::fmt;
use std::hash::Hasher;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The lower half of a header word: the record is in use.
pub(crate) const IN_USE: u64 = 1;

/// Purposes of codes.
const TABLES: u8 = 0;
pub(crate) const SESSIONS: u8 = 1;
pub(crate) const CLIENTS: u8 = 2;
pub(crate) const HOLDERS: u8 = 3;
pub(crate) const PEERS: u8 = 4;

/// An arena and its layout.
#[derive(Debug, Clone)]
pub(crate) struct Arena<W> {
    pub words: W,
    pub layout: Layout,
    pub epoch: u32,
    /// Keeps the buckets of names from being guessed. It says nothing about the secret.
    pub seed: u64,
    pub secret: Secret,
}

/// A key of an arena, from its random seed.
#[derive(Clone, Copy)]
pub(crate) struct Secret(SipHasher24);

impl Secret {
    /// A number that nobody can guess who does not have the key.
    pub fn code(&self, purpose: u8, bytes: &[u8]) -> u64 {
        let mut hasher = self.0;
        hasher.write(&[purpose]);
        hasher.write(bytes);
        hasher.finish()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}

/// The head of a list: a word with the index of the first record in the upper half and of the last
/// one in the lower. Records link to the previous one in the upper half, to the next in the lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct List {
    pub head: usize,
    pub kind: Kind,
    /// The word of each record that links.
    pub link: usize,
}

pub(crate) const fn pair(upper: u32, lower: u32) -> u64 {
    (upper as u64) << 32 | lower as u64
}

pub(crate) const fn upper(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(crate) const fn lower(word: u64) -> u32 {
    word as u32
}

impl<W: Words> Arena<W> {
    pub fn of(words: W, layout: Layout) -> Self {
        let epoch = lower(words.load(head::EPOCH));
        let key = u128::from(words.load(head::SEED)) | u128::from(words.load(head::SEED + 1)) << 64;
        let secret = Secret(SipHasher24::new_with_key(&key.to_le_bytes()));
        Self { words, layout, epoch, seed: secret.code(TABLES, &[]), secret }
    }

    pub fn address(&self, record: Record, field: usize) -> Result<usize, Error> {
        self.layout.address(record, field).ok_or(Error::Damaged("an index is out of bounds"))
    }

    pub fn read(&self, record: Record, field: usize) -> Result<u64, Error> {
        Ok(self.words.load(self.address(record, field)?))
    }

    /// The record of `kind` that a word names; `None` for 0.
    pub fn named(&self, record: Record, field: usize, kind: Kind) -> Result<Option<Record>, Error> {
        let index = lower(self.read(record, field)?);
        Ok((index != 0).then_some(Record { kind, index }))
    }

    /// As [`named`](Self::named), where a record must be named.
    pub fn owning(&self, record: Record, field: usize, kind: Kind) -> Result<Record, Error> {
        self.named(record, field, kind)?.ok_or(Error::Damaged("a record names nothing"))
    }

    pub fn generation(&self, record: Record) -> Result<u32, Error> {
        Ok(upper(self.read(record, 0)?))
    }

    /// Whether the record is in use, and has this generation.
    pub fn is_current(&self, record: Record, generation: u32) -> Result<bool, Error> {
        Ok(self.read(record, 0)? == pair(generation, IN_USE as u32))
    }

    pub fn in_use(&self, record: Record) -> Result<bool, Error> {
        Ok(lower(self.read(record, 0)?) == IN_USE as u32)
    }

    /// Records of a kind that are in use.
    pub fn used(&self, kind: Kind) -> u64 {
        self.words.load(Layout::slab(kind) + 2)
    }

    /// Records of a kind that were ever in use: the first so many.
    pub fn ever_used(&self, kind: Kind) -> u32 {
        (self.words.load(Layout::slab(kind) + 1) as u32).min(self.layout.count(kind))
    }

    pub fn hash(&self, bytes: &[u8], salt: u64) -> u64 {
        xxh3_64_with_seed(bytes, self.seed ^ salt.rotate_left(17))
    }

    /// The list whose head is a word of a record.
    pub fn list(&self, of: Record, field: usize, kind: Kind, link: usize) -> Result<List, Error> {
        Ok(List { head: self.address(of, field)?, kind, link })
    }

    pub fn bucket(&self, table: Table, hash: u64, link: usize) -> List {
        List { head: self.layout.bucket(table, hash), kind: table.kind(), link }
    }

    pub fn first(&self, list: List) -> Option<Record> {
        let index = upper(self.words.load(list.head));
        (index != 0).then_some(Record { kind: list.kind, index })
    }

    /// Begins to follow a list. The record that was returned last may be removed meanwhile.
    pub fn walk(&self, list: List) -> Walk {
        let next = self.first(list).map_or(0, |first| first.index);
        Walk { list, next, left: self.layout.count(list.kind) }
    }

    /// The first record of a bucket for which `is` holds.
    pub fn find(
        &self,
        list: List,
        is: impl Fn(Record) -> Result<bool, Error>,
    ) -> Result<Option<Record>, Error> {
        let mut walk = self.walk(list);
        while let Some(record) = walk.next(self)? {
            if is(record)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The bytes of a string that begins at a blob.
    pub fn bytes(&self, blob: Option<Record>) -> Result<Vec<u8>, Error> {
        let (mut bytes, mut next) = (Vec::new(), blob);
        while let Some(blob) = next {
            let link = self.read(blob, 1)?;
            let len = (upper(link) as usize).min(BLOB_WORDS * 8);
            for at in 0..len.div_ceil(8) {
                bytes.extend_from_slice(&self.read(blob, 2 + at)?.to_le_bytes());
            }
            bytes.truncate(bytes.len() - (len.next_multiple_of(8) - len));
            if bytes.len() > crate::OWNER_BYTES_MAX {
                return Err(Error::Damaged("a string is too long"));
            }
            next = (lower(link) != 0).then_some(Record { kind: Kind::Blob, index: lower(link) });
        }
        Ok(bytes)
    }
}

/// Follows a list.
#[derive(Debug)]
pub(crate) struct Walk {
    list: List,
    next: u32,
    left: u32,
}

impl Walk {
    pub fn next<W: Words>(&mut self, arena: &Arena<W>) -> Result<Option<Record>, Error> {
        if self.next == 0 {
            return Ok(None);
        }
        self.left = self.left.checked_sub(1).ok_or(Error::Damaged("a list has no end"))?;
        let record = Record { kind: self.list.kind, index: self.next };
        self.next = lower(arena.read(record, self.list.link)?);
        Ok(Some(record))
    }
}

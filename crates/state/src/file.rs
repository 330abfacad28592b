//! Files that have any state, and the owners of opens and locks. Both exist as long as something
//! names them.

use crate::arena::{Arena, List, lower, pair, upper};
use crate::error::Error;
use crate::layout::Table;
use crate::record::{BLOB_BYTES, FILE_BYTES_MAX, Kind, Record, client, file, owner};
use crate::transaction::{Transaction, words_of};
use crate::words::Words;

/// What an owner owns: the names of open owners and of lock owners are apart. RFC 8881 s3.3.8
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerClass {
    Open = 1,
    Lock = 2,
}

impl<W: Words> Arena<W> {
    fn files(&self, hash: u64) -> List {
        self.bucket(Table::File, hash, file::BY_KEY)
    }

    pub fn file_hash(&self, name: &[u8]) -> u64 {
        self.hash(name, Table::File as u64)
    }

    /// The record of a file, if it has any state.
    pub fn find_file(&self, name: &[u8]) -> Result<Option<Record>, Error> {
        let hash = self.file_hash(name);
        self.find(self.files(hash), |record| {
            Ok(self.read(record, file::HASH)? == hash && self.file_is(record, name)?)
        })
    }

    /// Whether a record is that of this file.
    pub fn file_is(&self, record: Record, name: &[u8]) -> Result<bool, Error> {
        if self.read(record, file::LENGTH)? != name.len() as u64 {
            return Ok(false);
        }
        let words = words_of::<{ file::NAME_WORDS }>(name);
        for (at, word) in words.into_iter().enumerate().take(name.len().div_ceil(8)) {
            if self.read(record, file::NAME + at)? != word {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub fn file_name(&self, record: Record) -> Result<Vec<u8>, Error> {
        let length = (self.read(record, file::LENGTH)? as usize).min(FILE_BYTES_MAX);
        let mut bytes = Vec::with_capacity(FILE_BYTES_MAX);
        for at in 0..length.div_ceil(8) {
            bytes.extend_from_slice(&self.read(record, file::NAME + at)?.to_le_bytes());
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn owners(&self, hash: u64) -> List {
        self.bucket(Table::Owner, hash, owner::BY_KEY)
    }

    fn owner_key(&self, of: Record, class: OwnerClass, name: &[u8]) -> u64 {
        self.hash(name, pair(of.index, class as u32))
    }

    /// An owner of a client, if anything names it.
    pub fn find_owner(&self, of: Record, class: OwnerClass, name: &[u8]) -> Result<Option<Record>, Error> {
        let hash = self.owner_key(of, class, name);
        self.find(self.owners(hash), |record| {
            Ok(self.read(record, owner::HASH)? == hash
                && self.read(record, owner::CLIENT)? == pair(class as u32, of.index)
                && self.owner_name(record)? == name)
        })
    }

    pub fn owner_name(&self, record: Record) -> Result<Vec<u8>, Error> {
        self.bytes(self.named(record, owner::NAME, Kind::Blob)?)
    }
}

impl<W: Words> Transaction<'_, W> {
    /// The record of a file, with one more use.
    pub fn use_file(&mut self, name: &[u8]) -> Result<Record, Error> {
        if name.is_empty() || name.len() > FILE_BYTES_MAX {
            return Err(Error::TooLong("the name of the file", FILE_BYTES_MAX));
        }
        let record = match self.find_file(name)? {
            Some(record) => record,
            None => {
                let record = self.allocate(Kind::File)?;
                let hash = self.file_hash(name);
                self.write(record, file::LENGTH, name.len() as u64)?;
                let words = words_of::<{ file::NAME_WORDS }>(name);
                for (at, word) in words.into_iter().enumerate() {
                    self.write(record, file::NAME + at, word)?;
                }
                self.write(record, file::HASH, hash)?;
                self.push(self.files(hash), record)?;
                record
            }
        };
        self.count(record, file::USES, 1)?;
        Ok(record)
    }

    /// Ends a use of a file.
    pub fn release_file(&mut self, record: Record) -> Result<(), Error> {
        self.count(record, file::USES, -1)?;
        if self.read(record, file::USES)? != 0 {
            return Ok(());
        }
        let hash = self.read(record, file::HASH)?;
        self.unlink(self.files(hash), record)?;
        self.free(record)
    }

    /// An owner of a client, with one more use.
    pub fn use_owner(&mut self, of: Record, class: OwnerClass, name: &[u8]) -> Result<Record, Error> {
        if name.len() > crate::OWNER_BYTES_MAX {
            return Err(Error::TooLong("the owner", crate::OWNER_BYTES_MAX));
        }
        let record = match self.find_owner(of, class, name)? {
            Some(record) => record,
            None => {
                self.admit(of, Kind::Owner, client::OWNER_COUNT)?;
                self.charge(self.peer_of(of)?, Kind::Blob, name.len().div_ceil(BLOB_BYTES))?;
                let record = self.allocate(Kind::Owner)?;
                let blob = self.put_bytes(name)?;
                let hash = self.owner_key(of, class, name);
                self.write(record, owner::CLIENT, pair(class as u32, of.index))?;
                self.write(record, owner::NAME, blob.map_or(0, |blob| u64::from(blob.index)))?;
                self.write(record, owner::HASH, hash)?;
                self.push(self.owners(hash), record)?;
                let list = self.list(of, client::OWNERS, Kind::Owner, owner::LINK)?;
                self.push(list, record)?;
                record
            }
        };
        self.count(record, owner::USES, 1)?;
        Ok(record)
    }

    /// Ends a use of an owner.
    pub fn release_owner(&mut self, record: Record) -> Result<(), Error> {
        self.count(record, owner::USES, -1)?;
        if self.read(record, owner::USES)? != 0 {
            return Ok(());
        }
        let of = Record { kind: Kind::Client, index: lower(self.read(record, owner::CLIENT)?) };
        let hash = self.read(record, owner::HASH)?;
        self.unlink(self.owners(hash), record)?;
        let list = self.list(of, client::OWNERS, Kind::Owner, owner::LINK)?;
        self.unlink(list, record)?;
        self.dismiss(of, Kind::Owner, client::OWNER_COUNT)?;
        let blobs = self.owner_name(record)?.len().div_ceil(BLOB_BYTES);
        self.discharge(self.peer_of(of)?, Kind::Blob, blobs)?;
        let name = self.named(record, owner::NAME, Kind::Blob)?;
        self.free_bytes(name)?;
        self.free(record)
    }

    /// Counts one more record of a client, within its bound and that of its address.
    pub fn admit(&mut self, of: Record, kind: Kind, count: usize) -> Result<(), Error> {
        let bound = self.layout.config.bounds.per_client(kind);
        if self.read(of, count)? >= u64::from(bound) {
            return Err(Error::ClientLimit(kind));
        }
        self.charge(self.peer_of(of)?, kind, 1)?;
        self.count(of, count, 1)
    }
}

/// Two counters in one word: of opens that read, and of opens that write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadWrite {
    pub read: u32,
    pub write: u32,
}

impl ReadWrite {
    pub const fn of(word: u64) -> Self {
        Self { read: upper(word), write: lower(word) }
    }

    pub const fn word(self) -> u64 {
        pair(self.read, self.write)
    }

    /// One count for each bit.
    pub fn of_bits(bits: u8) -> Self {
        Self { read: u32::from(bits & 1 != 0), write: u32::from(bits & 2 != 0) }
    }

    /// The counters with one open's bits replaced by others.
    pub fn replace(self, from: u8, to: u8) -> Result<Self, Error> {
        let (from, to) = (Self::of_bits(from), Self::of_bits(to));
        let change =
            |count: u32, from: u32, to: u32| count.checked_sub(from).map(|count| count.saturating_add(to));
        let changed = change(self.read, from.read, to.read).zip(change(self.write, from.write, to.write));
        let (read, write) = changed.ok_or(Error::Damaged("opens are counted below zero"))?;
        Ok(Self { read, write })
    }

    /// Whether the counters have anything that these bits ask about.
    pub const fn meets(self, bits: u8) -> bool {
        bits & 1 != 0 && self.read != 0 || bits & 2 != 0 && self.write != 0
    }
}

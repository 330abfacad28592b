//! Byte-range locks: LOCK (RFC 8881 s18.10), LOCKT (s18.11), LOCKU (s18.12). The locks of NLM are
//! in the same table (`nlm`).
//!
//! The locks that one owner has on one file by one open have one stateid and a list of ranges, as
//! large as they can be: neighbours of the same kind are one range. To others, and to LOCKU, all
//! locks of the owner on the file are one set of disjoint ranges; which open they are by decides
//! with which CLOSE they end. A file has all ranges of all owners in one list, in which conflicts
//! are searched.

use crate::State;
use crate::arena::{Arena, List};
use crate::client::ClientRef;
use crate::error::Error;
use crate::file::OwnerClass;
use crate::host::Host;
use crate::id::{ClientId, StateId};
use crate::layout::Table;
use crate::open::{DROPS_MAX, READ, WRITE, next_seqid, note_of};
use crate::range::Bytes;
use crate::record::{Kind, Record, client, file, lock, open, range};
use crate::session::Ticket;
use crate::transaction::Transaction;
use crate::words::Words;
use std::time::Duration;

/// Opens by which one owner locks one file: as many lists are looked through for each lock.
pub const OPENS_PER_LOCK_OWNER_MAX: usize = 64;
/// Ranges of one owner on one file, so that they can be released in one change.
pub const RANGES_PER_LOCK_MAX: u64 = 1024;
/// Ranges of one file, because a search for conflicts looks at all of them.
pub const RANGES_PER_FILE_MAX: u64 = 16_384;

/// Whose locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locker<'a> {
    /// The first lock of an owner on the file (`open_to_lock_owner4`).
    New {
        /// The open that allows the lock.
        open: StateId,
        /// The lock owner.
        owner: &'a [u8],
    },
    /// Further locks, by the stateid of the first.
    Known(StateId),
}

/// LOCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockArgs<'a> {
    /// Whose locks.
    pub locker: Locker<'a>,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; `u64::MAX` to the end of the file, however long it grows.
    pub length: u64,
    /// WRITE_LT or WRITEW_LT.
    pub exclusive: bool,
    /// READW_LT or WRITEW_LT: note that the owner waits, if the lock is denied.
    pub wait: bool,
    /// The client held the lock before the restart.
    pub reclaim: bool,
}

/// Bytes of a file, as LOCKT names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockQuery<'a> {
    /// The lock owner.
    pub owner: &'a [u8],
    /// The name of the file.
    pub file: &'a [u8],
    /// The first byte.
    pub offset: u64,
    /// How many bytes; `u64::MAX` to the end of the file.
    pub length: u64,
    /// Whether the lock is to be exclusive.
    pub exclusive: bool,
}

impl LockQuery<'_> {
    pub(crate) fn wanted(&self) -> Result<Wanted, Error> {
        Ok(Wanted { bytes: Bytes::new(self.offset, self.length)?, exclusive: self.exclusive })
    }
}

/// A lock that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The client, or NLM host, of the lock: a number that is always the same for it, but not its
    /// client id, which others need not know.
    pub client: ClientId,
    /// Whether it locks by NLM, so that the owner is as NLM names it.
    pub is_nlm: bool,
    /// Its lock owner.
    pub owner: Vec<u8>,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; `u64::MAX` to the end of the file.
    pub length: u64,
    /// Whether nobody else may lock the bytes at all.
    pub exclusive: bool,
}

/// What somebody asks to lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub bytes: Bytes,
    pub exclusive: bool,
}

impl Wanted {
    /// Whether not both can be locked, by two owners.
    pub const fn conflicts(self, other: Self) -> bool {
        self.bytes.overlaps(other.bytes) && (self.exclusive || other.exclusive)
    }
}

/// The open that a lock belongs to; `None` for NLM.
pub(crate) fn lock_open<W: Words>(arena: &Arena<W>, record: Record) -> Result<Option<Record>, Error> {
    arena.named(record, lock::OPEN, Kind::Open)
}

impl<W: Words> Arena<W> {
    fn locks(&self, of: Record, owner: Record) -> List {
        self.bucket(Table::Lock, self.state_key(of, owner), lock::BY_KEY)
    }

    /// The locks of an owner on a file, for each open by which it has any.
    fn locks_of_owner(&self, of: Record, owner: Record) -> Result<Vec<Record>, Error> {
        let (mut walk, mut found) = (self.walk(self.locks(of, owner)), Vec::new());
        while let Some(record) = walk.next(self)? {
            if self.read(record, lock::FILE)? == u64::from(of.index)
                && self.read(record, lock::OWNER)? == u64::from(owner.index)
            {
                found.push(record);
            }
        }
        Ok(found)
    }

    /// The locks of an owner on a file by one open; `None` for NLM, which has no opens.
    pub fn find_lock(
        &self,
        of: Record,
        owner: Record,
        opened: Option<Record>,
    ) -> Result<Option<Record>, Error> {
        for record in self.locks_of_owner(of, owner)? {
            if lock_open(self, record)? == opened {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    pub fn ranges_of_file(&self, of: Record) -> Result<List, Error> {
        self.list(of, file::RANGES, Kind::Range, range::BY_FILE)
    }

    pub fn ranges_of_lock(&self, of: Record) -> Result<List, Error> {
        self.list(of, lock::RANGES, Kind::Range, range::BY_LOCK)
    }

    pub fn range_bytes(&self, record: Record) -> Result<Bytes, Error> {
        Ok(Bytes { first: self.read(record, range::START)?, last: self.read(record, range::END)? })
    }

    pub fn is_exclusive(&self, record: Record) -> Result<bool, Error> {
        Ok(self.read(record, range::EXCLUSIVE)? != 0)
    }

    /// Whether a range stands in the way of another owner's wish.
    pub fn is_in_the_way(
        &self,
        record: Record,
        wanted: Wanted,
        owner: Option<Record>,
    ) -> Result<bool, Error> {
        if !self.range_bytes(record)?.overlaps(wanted.bytes) {
            return Ok(false);
        }
        if !wanted.exclusive && !self.is_exclusive(record)? {
            return Ok(false);
        }
        let of = self.owning(record, range::LOCK, Kind::Lock)?;
        Ok(self.named(of, lock::OWNER, Kind::Owner)? != owner)
    }

    fn holder(&self, record: Record) -> Result<Holder, Error> {
        let of = self.owning(record, range::LOCK, Kind::Lock)?;
        let of_client = self.owning(of, lock::CLIENT, Kind::Client)?;
        let owner = self.owning(of, lock::OWNER, Kind::Owner)?;
        let bytes = self.range_bytes(record)?;
        Ok(Holder {
            client: self.client_alias(self.client_id(of_client)?),
            is_nlm: self.has_flag(of_client, client::NLM)?,
            owner: self.owner_name(owner)?,
            offset: bytes.first,
            length: bytes.length(),
            exclusive: self.is_exclusive(record)?,
        })
    }
}

impl<W: Words> Transaction<'_, W> {
    /// Makes sure that no range is in the way of an owner. Ranges of clients that ended, or whose
    /// lease has, are dropped for that.
    pub fn clear_ranges(
        &mut self,
        now: Duration,
        of: Record,
        owner: Option<Record>,
        wanted: Wanted,
    ) -> Result<(), Error> {
        let (mut walk, mut dropped) = (self.walk(self.ranges_of_file(of)?), 0);
        while let Some(record) = walk.next(self)? {
            if !self.is_in_the_way(record, wanted, owner)? {
                continue;
            }
            let of_lock = self.owning(record, range::LOCK, Kind::Lock)?;
            let of_client = self.owning(of_lock, lock::CLIENT, Kind::Client)?;
            if !self.may_be_dropped(of_client, now)? {
                return Err(Error::Denied(Box::new(self.holder(record)?)));
            }
            self.kill_client(of_client)?;
            self.drop_range(of_lock, record)?;
            self.checkpoint();
            dropped += 1;
            if dropped == DROPS_MAX {
                return Err(Error::Delay);
            }
        }
        Ok(())
    }

    /// The locks of an owner on a file by an open, with a stateid. An owner and a file of which a
    /// use was taken are used by a new lock; for one that exists the uses are given back.
    pub fn use_lock(
        &mut self,
        of_client: Record,
        of: Record,
        owner: Record,
        opened: Option<Record>,
    ) -> Result<Record, Error> {
        if let Some(record) = self.find_lock(of, owner, opened)? {
            self.release_owner(owner)?;
            self.release_file(of)?;
            return Ok(record);
        }
        if self.locks_of_owner(of, owner)?.len() >= OPENS_PER_LOCK_OWNER_MAX {
            return Err(Error::ClientLimit(Kind::Lock));
        }
        self.admit(of_client, Kind::Lock, client::LOCK_COUNT)?;
        let record = self.allocate(Kind::Lock)?;
        self.write(record, lock::CLIENT, u64::from(of_client.index))?;
        self.write(record, lock::OWNER, u64::from(owner.index))?;
        self.write(record, lock::FILE, u64::from(of.index))?;
        self.push(self.locks(of, owner), record)?;
        if let Some(opened) = opened {
            self.write(record, lock::OPEN, u64::from(opened.index))?;
            let by_open = self.list(opened, open::LOCKS, Kind::Lock, lock::BY_OPEN)?;
            self.push(by_open, record)?;
        }
        let by_client = self.list(of_client, client::LOCKS, Kind::Lock, lock::BY_CLIENT)?;
        self.push(by_client, record)?;
        Ok(record)
    }

    /// Ends the locks of an owner on a file.
    pub fn drop_lock(&mut self, record: Record, now: Duration) -> Result<(), Error> {
        let ranges = self.ranges_of_lock(record)?;
        let mut taken = 0;
        while let Some(first) = self.first(ranges) {
            self.taken(ranges, &mut taken)?;
            self.drop_range(record, first)?;
        }
        let of = self.owning(record, lock::FILE, Kind::File)?;
        let owner = self.owning(record, lock::OWNER, Kind::Owner)?;
        let of_client = self.owning(record, lock::CLIENT, Kind::Client)?;
        self.unlink(self.locks(of, owner), record)?;
        if let Some(opened) = lock_open(self, record)? {
            let by_open = self.list(opened, open::LOCKS, Kind::Lock, lock::BY_OPEN)?;
            self.unlink(by_open, record)?;
        }
        let by_client = self.list(of_client, client::LOCKS, Kind::Lock, lock::BY_CLIENT)?;
        self.unlink(by_client, record)?;
        self.dismiss(of_client, Kind::Lock, client::LOCK_COUNT)?;
        self.free(record)?;
        self.wake_waiters(of, now)?;
        self.release_owner(owner)?;
        self.release_file(of)
    }

    pub fn drop_range(&mut self, of: Record, record: Record) -> Result<(), Error> {
        let of_file = self.owning(of, lock::FILE, Kind::File)?;
        let of_client = self.owning(of, lock::CLIENT, Kind::Client)?;
        self.unlink(self.ranges_of_lock(of)?, record)?;
        self.unlink(self.ranges_of_file(of_file)?, record)?;
        self.count(of, lock::RANGE_COUNT, -1)?;
        self.count(of_file, file::RANGE_COUNT, -1)?;
        self.dismiss(of_client, Kind::Range, client::RANGE_COUNT)?;
        self.free(record)
    }

    fn add_range(&mut self, of: Record, wanted: Wanted) -> Result<(), Error> {
        let of_file = self.owning(of, lock::FILE, Kind::File)?;
        let of_client = self.owning(of, lock::CLIENT, Kind::Client)?;
        let owner = self.owning(of, lock::OWNER, Kind::Owner)?;
        let mut its = 0;
        for record in self.locks_of_owner(of_file, owner)? {
            its += self.read(record, lock::RANGE_COUNT)?;
        }
        let is_full =
            its >= RANGES_PER_LOCK_MAX || self.read(of_file, file::RANGE_COUNT)? >= RANGES_PER_FILE_MAX;
        if is_full {
            return Err(Error::ClientLimit(Kind::Range));
        }
        self.admit(of_client, Kind::Range, client::RANGE_COUNT)?;
        let record = self.allocate(Kind::Range)?;
        self.write(record, range::LOCK, u64::from(of.index))?;
        self.write(record, range::START, wanted.bytes.first)?;
        self.write(record, range::END, wanted.bytes.last)?;
        self.write(record, range::EXCLUSIVE, u64::from(wanted.exclusive))?;
        self.push(self.ranges_of_lock(of)?, record)?;
        self.push(self.ranges_of_file(of_file)?, record)?;
        self.count(of, lock::RANGE_COUNT, 1)?;
        self.count(of_file, file::RANGE_COUNT, 1)
    }

    /// Locks bytes for an owner, or unlocks them (`exclusive` is `None`). What the owner had there,
    /// by any open, gives way, and ranges of the same kind by the same open grow together.
    pub fn set_range(&mut self, of: Record, bytes: Bytes, exclusive: Option<bool>) -> Result<(), Error> {
        let of_file = self.owning(of, lock::FILE, Kind::File)?;
        let owner = self.owning(of, lock::OWNER, Kind::Owner)?;
        let (mut whole, mut pieces) = (bytes, [None; 2]);
        for its in self.locks_of_owner(of_file, owner)? {
            let mut walk = self.walk(self.ranges_of_lock(its)?);
            while let Some(record) = walk.next(self)? {
                let (other, kind) = (self.range_bytes(record)?, self.is_exclusive(record)?);
                if its == of && exclusive == Some(kind) {
                    if other.touches(bytes) {
                        whole = whole.union(other);
                        self.drop_range(of, record)?;
                    }
                } else if other.overlaps(bytes) {
                    self.drop_range(its, record)?;
                    // Ranges are disjoint: only the first and the last reach out of the bytes.
                    for (place, left) in other.without(bytes).into_iter().enumerate() {
                        if let Some(left) = left {
                            pieces[place] = Some((its, Wanted { bytes: left, exclusive: kind }));
                        }
                    }
                }
            }
        }
        for (its, piece) in pieces.into_iter().flatten() {
            self.add_range(its, piece)?;
        }
        match exclusive {
            Some(exclusive) => self.add_range(of, Wanted { bytes: whole, exclusive }),
            None => Ok(()),
        }
    }

    fn next_version(&mut self, record: Record) -> Result<StateId, Error> {
        let seqid = next_seqid(self.read(record, lock::SEQID)? as u32);
        self.write(record, lock::SEQID, u64::from(seqid))?;
        self.state_id(record)
    }

    /// Whether the open of a lock allows it.
    fn check_lock_mode(&self, opened: Record, exclusive: bool) -> Result<(), Error> {
        let needed = if exclusive { WRITE } else { READ };
        if self.mode(opened)?.access & needed == 0 { Err(Error::OpenMode) } else { Ok(()) }
    }
}

impl<W: Words> State<W> {
    /// LOCK. The result is the lock's new stateid.
    ///
    /// # Errors
    /// [`Error::Denied`]; [`Error::OpenMode`]; [`Error::Invalid`] for the range; for the stateid as
    /// [`downgrade`](Self::downgrade); [`Error::Delay`], [`Error::Grace`], [`Error::NoGrace`],
    /// [`Error::ReclaimBad`], [`Error::ClientLimit`], [`Error::Full`], [`Error::Expired`].
    pub fn lock(
        &self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        args: &LockArgs<'_>,
    ) -> Result<StateId, Error> {
        let bytes = Bytes::new(args.offset, args.length)?;
        self.change(host, now, |transaction| {
            let of_client = transaction.live_client(ticket.client())?;
            transaction.admits_lock(of_client, now, args.reclaim)?;
            transaction.pass_grace(now, args.reclaim)?;
            let wanted = Wanted { bytes, exclusive: args.exclusive };
            let record = lock(transaction, now, of_client, args, wanted)?;
            transaction.set_range(record, bytes, Some(args.exclusive))?;
            let owner = transaction.owning(record, lock::OWNER, Kind::Owner)?;
            let of = transaction.owning(record, lock::FILE, Kind::File)?;
            transaction.end_waiting(of, owner, wanted)?;
            // A downgrade may let others in.
            transaction.wake_waiters(of, now)?;
            let id = transaction.next_version(record)?;
            transaction.commit_step(ticket, note_of(id))?;
            Ok(id)
        })
    }

    /// LOCKT: whether a lock would be granted.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Invalid`], [`Error::Grace`], [`Error::Expired`],
    /// [`Error::Delay`].
    pub fn test_lock(
        &self,
        host: &impl Host,
        now: Duration,
        of: ClientRef,
        query: &LockQuery<'_>,
    ) -> Result<(), Error> {
        let wanted = query.wanted()?;
        self.change(host, now, |transaction| {
            let of_client = transaction.live_client(of)?;
            if transaction.in_grace(now) {
                return Err(Error::Grace);
            }
            let Some(of_file) = transaction.find_file(query.file)? else { return Ok(()) };
            let owner = transaction.find_owner(of_client, OwnerClass::Lock, query.owner)?;
            transaction.clear_ranges(now, of_file, owner, wanted)
        })
    }

    /// LOCKU: unlocks bytes, also those that are not locked. The result is the new stateid.
    ///
    /// # Errors
    /// As [`downgrade`](Self::downgrade); [`Error::ClientLimit`] or [`Error::Full`] if a range must
    /// be split.
    pub fn unlock(
        &self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        id: StateId,
        (offset, length): (u64, u64),
    ) -> Result<StateId, Error> {
        let bytes = Bytes::new(offset, length)?;
        self.change(host, now, |transaction| {
            let of_client = transaction.live_client(ticket.client())?;
            let record = transaction.state_record(of_client, id, &[Kind::Lock])?;
            transaction.set_range(record, bytes, None)?;
            let of = transaction.owning(record, lock::FILE, Kind::File)?;
            transaction.wake_waiters(of, now)?;
            let id = transaction.next_version(record)?;
            transaction.commit_step(ticket, note_of(id))?;
            Ok(id)
        })
    }
}

/// The lock's record, if nobody is in the way.
fn lock<W: Words>(
    transaction: &mut Transaction<'_, W>,
    now: Duration,
    of_client: Record,
    args: &LockArgs<'_>,
    wanted: Wanted,
) -> Result<Record, Error> {
    let (opened, known, name) = match args.locker {
        Locker::New { open, owner } => {
            (transaction.state_record(of_client, open, &[Kind::Open])?, None, owner.to_vec())
        }
        Locker::Known(id) => {
            let record = transaction.state_record(of_client, id, &[Kind::Lock])?;
            let owner = transaction.owning(record, lock::OWNER, Kind::Owner)?;
            let opened = lock_open(transaction, record)?.ok_or(Error::BadStateId)?;
            (opened, Some(record), transaction.owner_name(owner)?)
        }
    };
    transaction.check_lock_mode(opened, wanted.exclusive)?;
    let of = transaction.owning(opened, open::FILE, Kind::File)?;
    if wanted.exclusive {
        // Who has a delegation may have locked for reading by itself. RFC 8881 s10.4
        transaction.recall_of(now, of, Some(of_client))?;
    }
    let owner = transaction.find_owner(of_client, OwnerClass::Lock, &name)?;
    let way = transaction.clear_way(now, of, owner, wanted);
    if args.wait && matches!(way, Err(Error::Denied(_))) {
        // Without room for it the client asks again by itself.
        transaction.as_favour(|transaction| transaction.wait_for(now, of_client, of, &name, wanted, 0))?;
    }
    way?;
    if let Some(record) = known {
        return Ok(record);
    }
    let owner = transaction.use_owner(of_client, OwnerClass::Lock, &name)?;
    transaction.count(of, file::USES, 1)?;
    transaction.use_lock(of_client, of, owner, Some(opened))
}

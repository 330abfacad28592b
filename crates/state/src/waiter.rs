//! Lock requests that wait. The first in a file's queue that nothing is in the way of any more is
//! notified (CB_NOTIFY_LOCK, RFC 8881 s20.11, or NLM's GRANTED), and for some seconds nobody else
//! gets what it waits for.

use crate::arena::{Arena, List};
use crate::error::Error;
use crate::file::OwnerClass;
use crate::host::Host;
use crate::id::{ClientId, SessionId};
use crate::layout::{head, milliseconds};
use crate::lock::{Holder, Wanted};
use crate::range::Bytes;
use crate::record::{Kind, Record, client, file, lock, range, waiter};
use crate::transaction::Transaction;
use crate::words::Words;
use std::time::Duration;

/// How long a lock is reserved for a waiter that was told of it.
pub const RESERVATION: Duration = Duration::from_secs(5);
/// Waiters of one file. Others that are denied ask again by themselves.
pub const WAITERS_PER_FILE_MAX: u64 = 256;
/// Waiters that are looked at for one that this process can tell.
const NOTIFICATIONS_LOOKED_AT: usize = 64;
/// Waiters of a file that are looked at when a lock is released.
const WAITERS_LOOKED_AT: usize = 64;

/// A waiter's state.
const WAITING: u64 = 0;
const NOTIFIED: u64 = 1;

/// A lock that a waiter can have now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Available {
    /// The client, or NLM host, that waits.
    pub client: ClientId,
    /// The name of the NLM host that waits: then lock for it, and call back GRANTED. `None` for
    /// others.
    pub nlm_host: Option<Vec<u8>>,
    /// A session of it whose back channel this process has; none by NLM.
    pub session: Option<SessionId>,
    /// Its lock owner.
    pub owner: Vec<u8>,
    /// The file.
    pub file: Vec<u8>,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; `u64::MAX` to the end of the file.
    pub length: u64,
    /// Whether it waits for an exclusive lock.
    pub exclusive: bool,
    /// The number that the caller gave the request.
    pub cookie: u64,
}

/// A waiter that may be told.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    record: Record,
    owner: Record,
    wanted: Wanted,
}

const fn notify() -> List {
    List { head: head::NOTIFY, kind: Kind::Waiter, link: waiter::QUEUE }
}

impl<W: Words> Arena<W> {
    fn waiters(&self, of: Record) -> Result<List, Error> {
        self.list(of, file::WAITERS, Kind::Waiter, waiter::BY_FILE)
    }

    fn wanted(&self, record: Record) -> Result<Wanted, Error> {
        let bytes = Bytes { first: self.read(record, waiter::START)?, last: self.read(record, waiter::END)? };
        Ok(Wanted { bytes, exclusive: self.read(record, waiter::EXCLUSIVE)? != 0 })
    }

    fn is_reserved(&self, record: Record, now: Duration) -> Result<bool, Error> {
        let until = self.read(record, waiter::SINCE)?.saturating_add(milliseconds(RESERVATION));
        Ok(self.read(record, waiter::STATE)? == NOTIFIED && milliseconds(now) < until)
    }

    /// Those that nothing but their own ranges is in the way of, as far as it can be seen without
    /// dropping anything. Looks at each range once.
    fn unblocked(&self, of: Record, mut candidates: Vec<Candidate>) -> Result<Vec<Candidate>, Error> {
        let mut walk = self.walk(self.ranges_of_file(of)?);
        while !candidates.is_empty() {
            let Some(record) = walk.next(self)? else { break };
            let (bytes, exclusive) = (self.range_bytes(record)?, self.is_exclusive(record)?);
            let range = Wanted { bytes, exclusive };
            if !candidates.iter().any(|candidate| candidate.wanted.conflicts(range)) {
                continue;
            }
            let of_lock = self.owning(record, range::LOCK, Kind::Lock)?;
            let of_client = self.owning(of_lock, lock::CLIENT, Kind::Client)?;
            if self.has_flag(of_client, client::DYING)? {
                continue;
            }
            let owner = self.owning(of_lock, lock::OWNER, Kind::Owner)?;
            candidates.retain(|candidate| candidate.owner == owner || !candidate.wanted.conflicts(range));
        }
        Ok(candidates)
    }

    /// The first waiters of a file that wait for nobody who waits before them.
    fn candidates(&self, of: Record) -> Result<Vec<Candidate>, Error> {
        let (mut walk, mut before) = (self.walk(self.waiters(of)?), Vec::new());
        let mut candidates = Vec::new();
        while before.len() < WAITERS_LOOKED_AT {
            let Some(record) = walk.next(self)? else { break };
            let (wanted, state) = (self.wanted(record)?, self.read(record, waiter::STATE)?);
            let is_behind = before.iter().any(|other: &Wanted| other.conflicts(wanted));
            if state == WAITING && !is_behind {
                let owner = self.owning(record, waiter::OWNER, Kind::Owner)?;
                candidates.push(Candidate { record, owner, wanted });
            }
            before.push(wanted);
        }
        Ok(candidates)
    }

    /// The waiter for which what an owner wants is reserved.
    fn reserved_for(
        &self,
        now: Duration,
        of: Record,
        owner: Option<Record>,
        wanted: Wanted,
    ) -> Result<Option<Record>, Error> {
        self.find(self.waiters(of)?, |record| {
            let conflicts = self.wanted(record)?.conflicts(wanted);
            let is_other = self.named(record, waiter::OWNER, Kind::Owner)? != owner;
            Ok(conflicts && is_other && self.is_reserved(record, now)?)
        })
    }

    fn available(&self, record: Record) -> Result<Available, Error> {
        let of_client = self.owning(record, waiter::CLIENT, Kind::Client)?;
        let owner = self.owning(record, waiter::OWNER, Kind::Owner)?;
        let of = self.owning(record, waiter::FILE, Kind::File)?;
        let wanted = self.wanted(record)?;
        let is_nlm = self.has_flag(of_client, client::NLM)?;
        Ok(Available {
            client: self.client_id(of_client)?,
            nlm_host: if is_nlm { Some(self.client_owner(of_client)?) } else { None },
            session: None,
            owner: self.owner_name(owner)?,
            file: self.file_name(of)?,
            offset: wanted.bytes.first,
            length: wanted.bytes.length(),
            exclusive: wanted.exclusive,
            cookie: self.read(record, waiter::COOKIE)?,
        })
    }
}

impl<W: Words> Transaction<'_, W> {
    /// Makes sure that nothing is in the way of an owner, neither a lock nor a reservation.
    pub fn clear_way(
        &mut self,
        now: Duration,
        of: Record,
        owner: Option<Record>,
        wanted: Wanted,
    ) -> Result<(), Error> {
        self.clear_ranges(now, of, owner, wanted)?;
        let Some(first) = self.reserved_for(now, of, owner, wanted)? else { return Ok(()) };
        let its = self.available(first)?;
        let (offset, length, is_nlm) = (its.offset, its.length, its.nlm_host.is_some());
        let (client, owner, exclusive) = (self.client_alias(its.client), its.owner, its.exclusive);
        Err(Error::Denied(Box::new(Holder { client, is_nlm, owner, offset, length, exclusive })))
    }

    /// Notes that an owner waits.
    pub fn wait_for(
        &mut self,
        now: Duration,
        of_client: Record,
        of: Record,
        name: &[u8],
        wanted: Wanted,
        cookie: u64,
    ) -> Result<(), Error> {
        if let Some(owner) = self.find_owner(of_client, OwnerClass::Lock, name)? {
            let same = self.find(self.waiters(of)?, |record| {
                Ok(self.named(record, waiter::OWNER, Kind::Owner)? == Some(owner)
                    && self.wanted(record)? == wanted)
            })?;
            if let Some(record) = same {
                self.write(record, waiter::COOKIE, cookie)?;
                if self.read(record, waiter::STATE)? == WAITING {
                    self.write(record, waiter::SINCE, milliseconds(now))?;
                }
                return Ok(());
            }
        }
        let bound = self.layout.config.bounds.per_client(Kind::Waiter);
        let owners = self.layout.config.bounds.per_client(Kind::Owner);
        if self.read(of_client, client::WAITER_COUNT)? >= u64::from(bound)
            || self.read(of, file::WAITER_COUNT)? >= WAITERS_PER_FILE_MAX
            || self.read(of_client, client::OWNER_COUNT)? >= u64::from(owners)
        {
            return Err(Error::ClientLimit(Kind::Waiter));
        }
        let record = self.allocate(Kind::Waiter)?;
        let owner = self.use_owner(of_client, OwnerClass::Lock, name)?;
        self.charge(self.peer_of(of_client)?, Kind::Waiter, 1)?;
        self.count(of_client, client::WAITER_COUNT, 1)?;
        self.count(of, file::WAITER_COUNT, 1)?;
        self.count(of, file::USES, 1)?;
        self.write(record, waiter::CLIENT, u64::from(of_client.index))?;
        self.write(record, waiter::OWNER, u64::from(owner.index))?;
        self.write(record, waiter::FILE, u64::from(of.index))?;
        self.write(record, waiter::START, wanted.bytes.first)?;
        self.write(record, waiter::END, wanted.bytes.last)?;
        self.write(record, waiter::EXCLUSIVE, u64::from(wanted.exclusive))?;
        self.write(record, waiter::SINCE, milliseconds(now))?;
        self.write(record, waiter::COOKIE, cookie)?;
        self.push(self.waiters(of)?, record)?;
        let by_client = self.list(of_client, client::WAITERS, Kind::Waiter, waiter::BY_CLIENT)?;
        self.push(by_client, record)
    }

    /// Ends a request that waits.
    pub fn drop_waiter(&mut self, record: Record) -> Result<(), Error> {
        let of_client = self.owning(record, waiter::CLIENT, Kind::Client)?;
        let owner = self.owning(record, waiter::OWNER, Kind::Owner)?;
        let of = self.owning(record, waiter::FILE, Kind::File)?;
        self.leave_notify(record)?;
        self.unlink(self.waiters(of)?, record)?;
        let by_client = self.list(of_client, client::WAITERS, Kind::Waiter, waiter::BY_CLIENT)?;
        self.unlink(by_client, record)?;
        self.dismiss(of_client, Kind::Waiter, client::WAITER_COUNT)?;
        self.count(of, file::WAITER_COUNT, -1)?;
        self.free(record)?;
        self.release_owner(owner)?;
        self.release_file(of)
    }

    /// Takes a waiter off the list of those to be told, if it is there.
    fn leave_notify(&mut self, record: Record) -> Result<(), Error> {
        let is_listed = self.read(record, waiter::QUEUE)? != 0 || self.first(notify()) == Some(record);
        if is_listed { self.unlink(notify(), record) } else { Ok(()) }
    }

    /// An owner has got what it wanted: it waits for that no longer. Returns whether it did.
    pub fn end_waiting(&mut self, of: Record, owner: Record, wanted: Wanted) -> Result<bool, Error> {
        let same = self.find(self.waiters(of)?, |record| {
            Ok(self.named(record, waiter::OWNER, Kind::Owner)? == Some(owner)
                && self.wanted(record)? == wanted)
        })?;
        same.map_or(Ok(()), |record| self.drop_waiter(record))?;
        Ok(same.is_some())
    }

    /// Lets waiters know whose locks are free now, in the order in which they came: a waiter that
    /// conflicts with one before it waits for that one.
    pub fn wake_waiters(&mut self, of: Record, now: Duration) -> Result<(), Error> {
        for Candidate { record, .. } in self.unblocked(of, self.candidates(of)?)? {
            self.write(record, waiter::STATE, NOTIFIED)?;
            self.write(record, waiter::SINCE, milliseconds(now))?;
            self.push(notify(), record)?;
        }
        Ok(())
    }

    /// The next waiter of NLM, or else the next of others that this process can tell.
    pub fn next_notification(&mut self, host: &impl Host, of_nlm: bool) -> Result<Option<Available>, Error> {
        let mut passed_on = None;
        for _ in 0..NOTIFICATIONS_LOOKED_AT {
            let Some(record) = self.first(notify()).filter(|first| Some(*first) != passed_on) else { break };
            self.unlink(notify(), record)?;
            let of_client = self.owning(record, waiter::CLIENT, Kind::Client)?;
            if self.has_flag(of_client, client::DYING)? {
                continue;
            }
            let is_nlm = self.has_flag(of_client, client::NLM)?;
            let session = if is_nlm { None } else { self.session_to_call(host, of_client)? };
            if is_nlm != of_nlm || !is_nlm && session.is_none() {
                // Somebody else asks for it, perhaps another process.
                self.push(notify(), record)?;
                passed_on = passed_on.or(Some(record));
                continue;
            }
            return Ok(Some(Available { session, ..self.available(record)? }));
        }
        Ok(None)
    }

    /// Drops up to `most` requests of a client that wait for longer than a lease without having
    /// asked again, or that did not use what was reserved for them. NLM requests wait until they
    /// are cancelled. Returns how many.
    pub fn drop_old_waiters(
        &mut self,
        of_client: Record,
        now: Duration,
        most: usize,
    ) -> Result<usize, Error> {
        let list = self.list(of_client, client::WAITERS, Kind::Waiter, waiter::BY_CLIENT)?;
        let (mut walk, mut files, mut count) = (self.walk(list), Vec::<(Record, Vec<Record>)>::new(), 0);
        while count < most {
            let Some(record) = walk.next(self)? else { break };
            if !self.is_old(of_client, record, now)? {
                continue;
            }
            let of = self.owning(record, waiter::FILE, Kind::File)?;
            match files.iter_mut().find(|(file, _)| *file == of) {
                Some((_, waiters)) => waiters.push(record),
                None => files.push((of, vec![record])),
            }
            count += 1;
        }
        for (of, waiters) in files {
            self.count(of, file::USES, 1)?;
            for record in waiters {
                self.drop_waiter(record)?;
            }
            self.wake_waiters(of, now)?;
            self.release_file(of)?;
            self.checkpoint();
        }
        Ok(count)
    }

    fn is_old(&self, of_client: Record, record: Record, now: Duration) -> Result<bool, Error> {
        let is_notified = self.read(record, waiter::STATE)? == NOTIFIED;
        if !is_notified && self.has_flag(of_client, client::NLM)? {
            return Ok(false);
        }
        let patience = if is_notified { RESERVATION } else { self.layout.config.lease };
        Ok(milliseconds(now) >= self.read(record, waiter::SINCE)?.saturating_add(milliseconds(patience)))
    }
}

impl<W: Words> Transaction<'_, W> {
    /// Ends a request of an owner that waits for these bytes. Returns whether there was one.
    pub fn cancel_wait(
        &mut self,
        now: Duration,
        of: Record,
        owner: Record,
        wanted: Wanted,
    ) -> Result<bool, Error> {
        self.count(of, file::USES, 1)?;
        let did_wait = self.end_waiting(of, owner, wanted)?;
        self.wake_waiters(of, now)?;
        self.release_file(of)?;
        Ok(did_wait)
    }
}

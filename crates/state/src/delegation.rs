//! Read delegations (RFC 8881 s10.4): a client may open and lock a file for reading by itself,
//! until somebody wants to change the file. Then the delegation is recalled, and whoever caused
//! that tries again. A delegation that is not returned within a lease is revoked. How a change
//! learns of delegations, and they of changes, is in `change`.
//!
//! A file may have as many delegations as there are, so a recall of all looks at some of them under
//! one hold of the lock. Those that were looked at go to the end of the file's list.

use crate::State;
use crate::arena::{Arena, List, lower, pair, upper};
use crate::client::ClientRef;
use crate::error::Error;
use crate::file::ReadWrite;
use crate::host::Host;
use crate::id::{ClientId, Name, SessionId, StateId};
use crate::layout::{Table, head, milliseconds};
use crate::open::DROPS_MAX;
use crate::record::{Kind, Record, client, delegation, file, slot};
use crate::session::Ticket;
use crate::slot::NOTE_WORDS;
use crate::transaction::Transaction;
use crate::words::Words;
use std::time::Duration;

/// How long a recall is waited for before it is handed out again.
pub const RECALL_RETRY: Duration = Duration::from_secs(5);
/// Recalls that are looked at under one hold of the lock, for one that this process can send.
const RECALLS_LOOKED_AT: usize = 64;
/// Delegations of a file that are looked at under one hold of the lock.
const RECALLED_AT_ONCE: usize = 256;
/// Delegations that are revoked under one hold of the lock.
const REVOKED_AT_ONCE: usize = 64;
/// A client that has not returned all that it was asked for in this time gets nothing new: it has
/// been asked twice.
const RECALL_PATIENCE: Duration = Duration::from_secs(10);
/// Leases for which a client gets nothing that has lost a delegation: each delegation that it does
/// not return costs others one.
const DISTRUST_LEASES: u32 = 10;
/// How often a client is kept anew from a file of which it has lost a delegation. It may never have
/// got the answer if it was silent for a lease after that; but it is not to wait for ever.
const HELD_ANEW_MAX: u32 = 8;
/// In [`delegation::HELD_SINCE`]: the client is kept from the file no more.
const LET_GO: u64 = u64::MAX;
/// Locked ranges of a file that are looked at before it is delegated.
const RANGES_LOOKED_AT: u64 = 64;

const GRANTED: u64 = 0;
const RECALLED: u64 = 1;
const REVOKED: u64 = 2;

/// A delegation that its client is to return: CB_RECALL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall {
    /// The client.
    pub client: ClientId,
    /// A session of it whose back channel this process has.
    pub session: SessionId,
    /// The delegation.
    pub state: StateId,
    /// The file.
    pub file: Vec<u8>,
}

const fn unsent() -> List {
    List { head: head::RECALLS, kind: Kind::Delegation, link: delegation::QUEUE }
}

const fn sent() -> List {
    List { head: head::RECALLS_SENT, kind: Kind::Delegation, link: delegation::QUEUE }
}

const fn by_age() -> List {
    List { head: head::RECALLS_BY_AGE, kind: Kind::Delegation, link: delegation::BY_AGE }
}

impl<W: Words> Arena<W> {
    fn delegations(&self, of: Record, of_client: Record) -> List {
        self.bucket(Table::Delegation, self.state_key(of, of_client), delegation::BY_KEY)
    }

    fn find_delegation(&self, of: Record, of_client: Record) -> Result<Option<Record>, Error> {
        self.find(self.delegations(of, of_client), |record| {
            Ok(self.read(record, delegation::FILE)? == u64::from(of.index)
                && self.read(record, delegation::CLIENT)? == u64::from(of_client.index))
        })
    }

    pub fn is_revoked(&self, record: Record) -> Result<bool, Error> {
        Ok(record.kind == Kind::Delegation && self.read(record, delegation::STATE)? == REVOKED)
    }

    /// The queue that a delegation is in.
    fn recall_queue(&self, record: Record) -> Result<Option<List>, Error> {
        if self.read(record, delegation::STATE)? != RECALLED {
            return Ok(None);
        }
        Ok(Some(if self.read(record, delegation::SENT)? == 0 { unsent() } else { sent() }))
    }

    /// Whether a client gives back what it is asked for, as far as that is known.
    fn is_trusted(&self, of: Record, now: Duration) -> Result<bool, Error> {
        let recalled = self.read(of, client::RECALLED_COUNT)? != 0;
        let patience = milliseconds(RECALL_PATIENCE);
        let late = self.read(of, client::RECALLED_SINCE)?.saturating_add(patience);
        Ok(self.read(of, client::REVOKED_COUNT)? == 0
            && milliseconds(now) >= self.read(of, client::DELEGATE_FROM)?
            && !(recalled && milliseconds(now) >= late))
    }

    /// Whether a file has locks that whoever locks it for reading by itself would not see, or may
    /// get such a lock from somebody who waits. Opens that write do not count here.
    fn may_be_locked(&self, of: Record) -> Result<bool, Error> {
        let is_waited_for = self.read(of, file::WAITER_COUNT)? != 0;
        if is_waited_for || self.read(of, file::RANGE_COUNT)? > RANGES_LOOKED_AT {
            return Ok(true);
        }
        let exclusive = self.find(self.ranges_of_file(of)?, |record| self.is_exclusive(record));
        Ok(exclusive?.is_some())
    }
}

impl<W: Words> Transaction<'_, W> {
    /// Makes sure that no other client has a delegation of a file that is about to change: see
    /// [`recall_of`](Self::recall_of).
    pub fn recall_for(&mut self, now: Duration, name: &[u8], except: Option<Record>) -> Result<(), Error> {
        self.settle_delegations(self.file_hash(name))?;
        self.find_file(name)?.map_or(Ok(()), |of| self.recall_of(now, of, except))
    }

    /// Makes sure that no other client has a delegation of a file. Recalls are begun, delegations
    /// of clients that ended are dropped, and those of clients whose lease has ended are revoked:
    /// some of them, and then the caller tries again, at once if there are more.
    ///
    /// A client whose lease has ended keeps all else. To end it would be allowed, but Linux takes
    /// a delegation for valid while it recovers from that, and then goes on to read old data.
    pub fn recall_of(&mut self, now: Duration, of: Record, except: Option<Record>) -> Result<(), Error> {
        let own = except.map_or(Ok(None), |except| self.find_delegation(of, except))?;
        let keeps_own = own.map_or(Ok(false), |own| Ok(!self.is_revoked(own)?))?;
        let mut others = self.read(of, file::DELEGATED)?.saturating_sub(u64::from(keeps_own));
        if others == 0 {
            return Ok(());
        }
        self.share(now, self.read(of, file::HASH)?)?;
        let list = self.list(of, file::DELEGATIONS, Kind::Delegation, delegation::BY_FILE)?;
        let (mut walk, mut last, mut begun, mut dropped) = (self.walk(list), None, 0, 0);
        for _ in 0..RECALLED_AT_ONCE {
            let Some(record) = walk.next(self)? else {
                last = None;
                break;
            };
            last = Some(record);
            if own == Some(record) || self.is_revoked(record)? {
                continue;
            }
            let of_client = self.owning(record, delegation::CLIENT, Kind::Client)?;
            if !self.may_be_dropped(of_client, now)? {
                begun += usize::from(self.recall(record, of_client, now)?);
                continue;
            }
            if self.has_flag(of_client, client::DYING)? {
                // The file ends with its last delegation if nothing else names it; but then none
                // is left to be looked at.
                last = None;
                self.drop_lost_delegation(record)?;
            } else {
                self.revoke(record, of_client, now)?;
            }
            self.checkpoint();
            (dropped, others) = (dropped + 1, others.saturating_sub(1));
            if others == 0 {
                return Ok(());
            }
            if dropped == DROPS_MAX {
                break;
            }
        }
        if let Some(last) = last {
            self.rotate(list, last)?;
        }
        self.goes_on = last.is_some() && begun > 0 || dropped == DROPS_MAX;
        self.checkpoint();
        Err(Error::Delay)
    }

    /// Begins the recall of a delegation, unless it has begun. Returns whether it had not.
    fn recall(&mut self, record: Record, of_client: Record, now: Duration) -> Result<bool, Error> {
        if self.read(record, delegation::STATE)? != GRANTED {
            return Ok(false);
        }
        self.write(record, delegation::STATE, RECALLED)?;
        self.write(record, delegation::RECALLED, milliseconds(now))?;
        if self.read(of_client, client::RECALLED_COUNT)? == 0 {
            self.write(of_client, client::RECALLED_SINCE, milliseconds(now))?;
        }
        self.count(of_client, client::RECALLED_COUNT, 1)?;
        self.push(by_age(), record)?;
        self.push(unsent(), record)?;
        Ok(true)
    }

    /// Ends the recall of a delegation, if it has begun.
    fn end_recall(&mut self, record: Record, of_client: Record) -> Result<(), Error> {
        let Some(queue) = self.recall_queue(record)? else { return Ok(()) };
        self.unlink(queue, record)?;
        self.unlink(by_age(), record)?;
        self.count(of_client, client::RECALLED_COUNT, -1)
    }

    /// Ends a delegation that nobody has returned. Its file may have been kept for it.
    pub fn drop_lost_delegation(&mut self, record: Record) -> Result<(), Error> {
        self.drop_delegation(record)?;
        self.add(head::DROPPED_OPENS, 1)
    }

    pub fn drop_delegation(&mut self, record: Record) -> Result<(), Error> {
        let of = self.owning(record, delegation::FILE, Kind::File)?;
        let of_client = self.owning(record, delegation::CLIENT, Kind::Client)?;
        self.end_recall(record, of_client)?;
        if !self.is_revoked(record)? {
            self.discount_delegation(of)?;
        }
        self.unlink(self.delegations(of, of_client), record)?;
        let by_file = self.list(of, file::DELEGATIONS, Kind::Delegation, delegation::BY_FILE)?;
        self.unlink(by_file, record)?;
        let by_client = self.list(of_client, client::DELEGATIONS, Kind::Delegation, delegation::BY_CLIENT)?;
        self.unlink(by_client, record)?;
        self.dismiss(of_client, Kind::Delegation, client::DELEGATION_COUNT)?;
        self.free(record)?;
        self.release_file(of)
    }

    /// A delegation, unless the file is being changed or shared.
    fn grant(
        &mut self,
        host: &impl Host,
        of_client: Record,
        name: &[u8],
        now: Duration,
    ) -> Result<Option<Record>, Error> {
        let Some(of) = self.find_file(name)? else { return Ok(None) };
        let is_written = ReadWrite::of(self.read(of, file::ACCESS)?).write != 0;
        if is_written
            || self.is_shared(now, self.read(of, file::HASH)?)
            || self.may_be_locked(of)?
            || self.find_delegation(of, of_client)?.is_some()
            || !self.count_delegation(host, of)?
        {
            return Ok(None);
        }
        match self.admit(of_client, Kind::Delegation, client::DELEGATION_COUNT) {
            Err(Error::ClientLimit(_) | Error::PeerLimit(_)) => {
                self.discount_delegation(of)?;
                return Ok(None);
            }
            admitted => admitted?,
        }
        let record = self.allocate(Kind::Delegation)?;
        self.count(of, file::USES, 1)?;
        self.write(record, delegation::CLIENT, u64::from(of_client.index))?;
        self.write(record, delegation::FILE, u64::from(of.index))?;
        self.push(self.delegations(of, of_client), record)?;
        let by_file = self.list(of, file::DELEGATIONS, Kind::Delegation, delegation::BY_FILE)?;
        self.push(by_file, record)?;
        let by_client = self.list(of_client, client::DELEGATIONS, Kind::Delegation, delegation::BY_CLIENT)?;
        self.push(by_client, record)?;
        Ok(Some(record))
    }

    fn delegate(
        &mut self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        file: &[u8],
    ) -> Result<Option<StateId>, Error> {
        let of_client = self.live_client(ticket.client())?;
        if !self.takes_call_backs(of_client)? || !self.is_trusted(of_client, now)? {
            return Ok(None);
        }
        let Some(record) = self.grant(host, of_client, file, now)? else { return Ok(None) };
        let place = Name::of_state(0, record, 0).place;
        let name = pair(place, self.generation(record)?);
        self.add_to_note(ticket, DELEGATION_NOTE, name)?;
        self.state_id(record).map(Some)
    }

    /// The next recall that this process can send.
    pub fn next_recall(&mut self, host: &impl Host, now: Duration) -> Result<Option<Recall>, Error> {
        // Those that were sent without effect can be sent again, by any process.
        for _ in 0..RECALLS_LOOKED_AT {
            let Some(record) = self.first(sent()) else { break };
            let at = self.read(record, delegation::SENT)?;
            if milliseconds(now) < at.saturating_add(milliseconds(RECALL_RETRY)) {
                break;
            }
            self.unlink(sent(), record)?;
            self.write(record, delegation::SENT, 0)?;
            self.push(unsent(), record)?;
        }
        let mut passed_on = None;
        for _ in 0..RECALLS_LOOKED_AT {
            let Some(record) = self.first(unsent()).filter(|first| Some(*first) != passed_on) else { break };
            self.unlink(unsent(), record)?;
            let of_client = self.owning(record, delegation::CLIENT, Kind::Client)?;
            let Some(session) = self.session_to_call(host, of_client)? else {
                // Another process may send it.
                self.push(unsent(), record)?;
                passed_on = passed_on.or(Some(record));
                continue;
            };
            self.write(record, delegation::SENT, milliseconds(now).max(1))?;
            self.push(sent(), record)?;
            let of = self.owning(record, delegation::FILE, Kind::File)?;
            let (client, state) = (self.client_id(of_client)?, self.state_id(record)?);
            return Ok(Some(Recall { client, session, state, file: self.file_name(of)? }));
        }
        Ok(None)
    }

    /// Revokes some of the delegations that were not returned within a lease. Returns false if
    /// there are more.
    pub fn revoke_late(&mut self, now: Duration) -> Result<bool, Error> {
        let lease = self.layout.config.lease;
        for _ in 0..REVOKED_AT_ONCE {
            let Some(record) = self.first(by_age()) else { return Ok(true) };
            let since = self.read(record, delegation::RECALLED)?;
            if milliseconds(now) < since.saturating_add(milliseconds(lease)) {
                return Ok(true);
            }
            let of_client = self.owning(record, delegation::CLIENT, Kind::Client)?;
            self.revoke(record, of_client, now)?;
            self.checkpoint();
        }
        Ok(false)
    }

    /// Takes a delegation away. Its client is told so by its next request, and gets no other one
    /// for a while.
    fn revoke(&mut self, record: Record, of_client: Record, now: Duration) -> Result<(), Error> {
        self.end_recall(record, of_client)?;
        let of = self.owning(record, delegation::FILE, Kind::File)?;
        self.discount_delegation(of)?;
        self.write(record, delegation::STATE, REVOKED)?;
        self.write(record, delegation::HELD_SINCE, 0)?;
        self.write(record, delegation::HELD_LAST, 0)?;
        self.count(of_client, client::REVOKED_COUNT, 1)?;
        let until = now.saturating_add(self.layout.config.lease.saturating_mul(DISTRUST_LEASES));
        self.write(of_client, client::DELEGATE_FROM, milliseconds(until))
    }

    /// Refuses a file to a client that has lost a delegation of it and may not know that yet.
    fn keep_from(&mut self, of: ClientRef, name: &[u8], now: Duration) -> Result<(), Error> {
        let of_client = self.live_client(of)?;
        let Some(of_file) = self.find_file(name)? else { return Ok(()) };
        let Some(record) = self.find_delegation(of_file, of_client)? else { return Ok(()) };
        let since = self.read(record, delegation::HELD_SINCE)?;
        if !self.is_revoked(record)? || since == LET_GO {
            return Ok(());
        }
        let (lease, held) = (self.layout.config.lease, self.read(record, delegation::HELD_LAST)?);
        let (times, last) = (upper(held), Duration::from_secs(lower(held).into()));
        let is_anew = since == 0 || times < HELD_ANEW_MAX && now >= last.saturating_add(lease);
        if !is_anew && milliseconds(now) >= since.saturating_add(milliseconds(lease)) {
            return self.write(record, delegation::HELD_SINCE, LET_GO);
        }
        if is_anew {
            self.write(record, delegation::HELD_SINCE, milliseconds(now).max(1))?;
        }
        let seconds = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        self.write(record, delegation::HELD_LAST, pair(times + u32::from(is_anew), seconds))?;
        self.checkpoint();
        Err(Error::Delay)
    }
}

impl<W: Words> State<W> {
    /// Grants a read delegation with an OPEN that has just succeeded, if nothing speaks against it.
    /// The client must have asked for it, or at least not refused. `None` is OPEN_DELEGATE_NONE.
    ///
    /// # Errors
    /// [`Error::Expired`], [`Error::Busy`], [`Error::Damaged`].
    pub fn delegate(
        &self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        file: &[u8],
    ) -> Result<Option<StateId>, Error> {
        // A delegation is a favour, for which no client's state is dropped: this makes no room.
        let mut transaction = self.arena.begin(host)?;
        match transaction.delegate(host, now, ticket, file) {
            Ok(granted) => {
                transaction.commit();
                Ok(granted)
            }
            Err(Error::Full(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a client may see what a file is by now, or change it: not while it has a delegation
    /// of it that was revoked and that it has not freed. It may not have heard of that, and would
    /// take what it has cached for what goes with the new attributes. It is kept waiting for a
    /// lease at most, counted anew while it does not come back. Takes no lock if the client has
    /// lost nothing.
    ///
    /// # Errors
    /// [`Error::Delay`]; [`Error::Expired`], [`Error::Busy`], [`Error::Damaged`].
    #[inline]
    pub fn check_revoked(
        &self,
        host: &impl Host,
        now: Duration,
        of: ClientRef,
        file: &[u8],
    ) -> Result<(), Error> {
        if self.has_revoked(of)? {
            return self.change(host, now, |transaction| transaction.keep_from(of, file, now));
        }
        Ok(())
    }

    /// Whether a client has revoked delegations that it has not freed. Takes no lock.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    #[inline]
    pub fn has_revoked(&self, of: ClientRef) -> Result<bool, Error> {
        Ok(self.arena.read(of.record(), client::REVOKED_COUNT)? != 0)
    }

    /// The delegation that an OPEN granted whose process ended.
    pub fn committed_delegation(&self, note: [u64; NOTE_WORDS]) -> Option<StateId> {
        let name = note[DELEGATION_NOTE];
        let (epoch, place, generation) = (self.arena.epoch, upper(name), lower(name));
        (name != 0).then(|| StateId { seqid: 1, other: Name { epoch, place, generation }.to_bytes() })
    }

    /// DELEGRETURN.
    ///
    /// # Errors
    /// [`Error::DelegationRevoked`]; for the stateid [`Error::BadStateId`], [`Error::OldStateId`],
    /// [`Error::StaleStateId`]; [`Error::Expired`].
    pub fn return_delegation(
        &self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        id: StateId,
    ) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let of_client = transaction.live_client(ticket.client())?;
            let record = transaction.state_record(of_client, id, &[Kind::Delegation])?;
            if transaction.is_revoked(record)? {
                return Err(Error::DelegationRevoked);
            }
            transaction.drop_delegation(record)?;
            transaction.commit_step(ticket, [0; NOTE_WORDS])
        })
    }
}

/// The word of an OPEN's note that names the delegation.
const DELEGATION_NOTE: usize = 3;
const _: () = assert!(DELEGATION_NOTE < slot::NOTE_WORDS);

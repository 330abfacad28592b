//! Leases. A client whose lease has ended keeps its state as a courtesy, until somebody needs what
//! it holds, memory is short, or a day has passed (RFC 8881 s8.4.2.1); then all of it is dropped at
//! once.
//!
//! Dropping is in two steps. The client dies in one small change: it answers no more, and its state
//! does not count. Its records are then freed bit by bit, so that a client with a million opens
//! never holds the lock for long.

use crate::State;
use crate::arena::{Arena, List};
use crate::error::Error;
use crate::host::Host;
use crate::layout::{head, milliseconds};
use crate::record::{Kind, Record, client, delegation, file, lock, open, peer, waiter};
use crate::transaction::Transaction;
use crate::words::Words;
use std::time::Duration;

/// How much longer than the lease a client's state is safe, because renewals are stored coarsely.
pub const EXPIRY_MARGIN: Duration = Duration::from_millis(250);
/// How much a lease may be renewed too late: the time is stored at most once in so long.
const RENEWAL_STEP_MS: u64 = 250;
const _: () = assert!(RENEWAL_STEP_MS as u128 <= EXPIRY_MARGIN.as_millis());
/// Records that are freed under one hold of the lock.
const REAP_RECORDS: usize = 64;
/// Such holds in one call.
const REAP_ROUNDS: usize = 64;
/// Clients that are looked at under one hold of the lock.
const SWEEP_CLIENTS: u32 = 2048;
/// Lock requests that have waited for too long and are dropped under one hold of the lock.
const SWEEP_WAITERS: usize = 64;
/// Clients that are dropped to make room for one record.
const EVICTIONS: usize = 8;

/// What is left to do after [`State::tick`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// Call again about a second later.
    Idle,
    /// There is more to free: call again soon.
    More,
}

impl<W: Words> Arena<W> {
    fn lease_end(&self, of: Record) -> Result<u64, Error> {
        let period = milliseconds(self.layout.config.lease.saturating_add(EXPIRY_MARGIN));
        Ok(self.read(of, client::LEASE)?.saturating_add(period))
    }

    /// Renews a client's lease. Leases only get longer: the time is changed by compare-exchange,
    /// and never by a transaction, because to undo that would take back what SEQUENCE has stored.
    pub fn renew(&self, of: Record, now: Duration) -> Result<(), Error> {
        let (at, now) = (self.address(of, client::LEASE)?, milliseconds(now));
        let mut found = self.words.load(at);
        while now >= found.saturating_add(RENEWAL_STEP_MS) {
            match self.words.compare_exchange(at, found, now) {
                Ok(()) => break,
                Err(other) => found = other,
            }
        }
        Ok(())
    }

    /// Whether the client's lease has ended. Most hosts that lock by NLM have none.
    pub fn is_expired(&self, of: Record, now: Duration) -> Result<bool, Error> {
        let has_lease = self.client_flags(of)? & (client::NLM | client::LEASED) != client::NLM;
        Ok(has_lease && milliseconds(now) > self.lease_end(of)?)
    }

    /// Whether the state of a client no longer protects it from others.
    pub fn may_be_dropped(&self, of: Record, now: Duration) -> Result<bool, Error> {
        Ok(self.has_flag(of, client::DYING)? || self.is_expired(of, now)?)
    }

    /// Whether the client's end would make room for a record of this kind.
    fn holds(&self, of: Record, kind: Kind) -> Result<bool, Error> {
        let count = match kind {
            Kind::Client | Kind::Blob | Kind::Recovery | Kind::Peer => return Ok(true),
            Kind::Session | Kind::Chunk => client::SESSION_COUNT,
            Kind::Owner => client::OWNER_COUNT,
            Kind::File => return Ok(self.has_state(of)? || self.read(of, client::WAITER_COUNT)? != 0),
            Kind::Open => client::OPEN_COUNT,
            Kind::Lock => client::LOCK_COUNT,
            Kind::Range => client::RANGE_COUNT,
            Kind::Delegation => client::DELEGATION_COUNT,
            Kind::Waiter => client::WAITER_COUNT,
        };
        Ok(self.read(of, count)? != 0)
    }

    fn clients(&self) -> impl Iterator<Item = Record> + use<W> {
        (1..=self.ever_used(Kind::Client)).map(|index| Record { kind: Kind::Client, index })
    }
}

const fn dying_clients() -> List {
    List { head: head::DYING_CLIENTS, kind: Kind::Client, link: client::QUEUE }
}

/// Clients that are not confirmed.
pub(crate) const fn unconfirmed() -> List {
    List { head: head::UNCONFIRMED, kind: Kind::Client, link: client::QUEUE }
}

impl<W: Words> Transaction<'_, W> {
    /// Drops the client, of one address or of any, that has been silent for longest and holds
    /// records of this kind, if its lease has ended; for the record of a client, otherwise the
    /// oldest that is not confirmed.
    fn evict(&mut self, now: Duration, kind: Kind, of: Option<Record>) -> Result<bool, Error> {
        let found = match self.longest_silent(now, kind, of)? {
            None if matches!(kind, Kind::Client | Kind::Peer) && of.is_none() => self.first(unconfirmed()),
            found => found,
        };
        found.map_or(Ok(()), |record| self.kill_client(record))?;
        Ok(found.is_some())
    }

    /// Looks at all clients, but not again before one that has such records may have expired.
    fn longest_silent(
        &mut self,
        now: Duration,
        kind: Kind,
        of: Option<Record>,
    ) -> Result<Option<Record>, Error> {
        let expiry = match of {
            None => head::EXPIRY + kind as usize,
            Some(of) => self.address(of, peer::EXPIRY + kind as usize)?,
        };
        if milliseconds(now) <= self.words.load(expiry) {
            return Ok(None);
        }
        let (mut oldest, mut candidates) = (None, 0);
        // Leases only get longer, and a client without a lease gets no records before it has one
        // again: what is found is a lower bound, also for new clients.
        let mut earliest = milliseconds(now.saturating_add(self.layout.config.lease));
        for record in self.clients() {
            let flags = self.client_flags(record)?;
            if !self.in_use(record)? || flags & (client::DYING | client::NLM) != 0 {
                continue;
            }
            if of.is_some() && self.peer_of(record)? != of {
                continue;
            }
            let end = self.lease_end(record)?;
            if milliseconds(now) <= end {
                earliest = earliest.min(end);
            } else if self.holds(record, kind)? {
                candidates += 1;
                if oldest.is_none_or(|(_, other)| end < other) {
                    oldest = Some((record, end));
                }
            }
        }
        self.set(expiry, if candidates > 1 { 0 } else { earliest })?;
        Ok(oldest.map(|(record, _)| record))
    }

    /// Frees records of clients and sessions that have ended. Returns how many.
    fn reap(&mut self, host: &impl Host, now: Duration) -> Result<usize, Error> {
        let mut freed = self.reap_sessions(host, REAP_RECORDS)?;
        let mut walk = self.walk(dying_clients());
        while let Some(record) = walk.next(self)? {
            freed += self.drop_state(record, REAP_RECORDS.saturating_sub(freed), now)?;
            if freed >= REAP_RECORDS {
                break;
            }
            self.unlink(dying_clients(), record)?;
            self.free_client(record)?;
            freed += 1;
            self.checkpoint();
        }
        Ok(freed)
    }

    /// Frees up to `most` records of a client. Returns how many; fewer than `most` if none are
    /// left.
    fn drop_state(&mut self, of: Record, most: usize, now: Duration) -> Result<usize, Error> {
        for freed in 0..most {
            let waiters = self.list(of, client::WAITERS, Kind::Waiter, waiter::BY_CLIENT)?;
            let opens = self.list(of, client::OPENS, Kind::Open, open::BY_CLIENT)?;
            let locks = self.list(of, client::LOCKS, Kind::Lock, lock::BY_CLIENT)?;
            let delegations = self.list(of, client::DELEGATIONS, Kind::Delegation, delegation::BY_CLIENT)?;
            if let Some(record) = self.first(waiters) {
                self.drop_waiter(record)?;
            } else if let Some(record) = self.first(locks) {
                // Ranges of a client that has ended are in nobody's way: they go one by one.
                match self.first(self.ranges_of_lock(record)?) {
                    Some(range) => self.drop_range(record, range)?,
                    None => self.drop_lock(record, now)?,
                }
            } else if let Some(record) = self.first(opens) {
                self.drop_lost_open(record, now)?;
            } else if let Some(record) = self.first(delegations) {
                self.drop_lost_delegation(record)?;
            } else {
                return Ok(freed);
            }
            self.checkpoint();
        }
        Ok(most)
    }

    /// Whether somebody waits for what a silent client has locked.
    fn is_waited_for(&self, of: Record) -> Result<bool, Error> {
        if self.used(Kind::Waiter) == 0 {
            return Ok(false);
        }
        let locks = self.list(of, client::LOCKS, Kind::Lock, lock::BY_CLIENT)?;
        let waits = self.find(locks, |record| {
            let of_file = self.owning(record, lock::FILE, Kind::File)?;
            Ok(self.read(of_file, file::WAITERS)? != 0)
        });
        Ok(waits?.is_some())
    }

    /// Drops some of the clients that nobody needs: those that were never confirmed or have nothing
    /// to lose, after their lease; others after the time of courtesy. Returns false if there is
    /// more to do now.
    fn sweep(&mut self, host: &impl Host, now: Duration) -> Result<bool, Error> {
        let from = self.words.load(head::SWEEP) as u32;
        let clients = self.clients().skip_while(|record| record.index <= from);
        let (mut last, mut waiters) = (0, SWEEP_WAITERS);
        for (number, record) in (0..SWEEP_CLIENTS).zip(clients) {
            last = if number + 1 == SWEEP_CLIENTS { record.index } else { 0 };
            let flags = self.client_flags(record)?;
            if !self.in_use(record)? || flags & client::DYING != 0 {
                continue;
            }
            self.persist_again(host, record)?;
            waiters -= self.drop_old_waiters(record, now, waiters)?.min(waiters);
            if waiters == 0 {
                // The same client again, after others had the lock.
                self.set(head::SWEEP, u64::from(record.index - 1))?;
                return Ok(false);
            }
            self.release_nlm_host(record, now)?;
            self.checkpoint();
            self.drop_if_useless(record, flags, now)?;
        }
        self.set(head::SWEEP, u64::from(last))?;
        Ok(true)
    }

    fn drop_if_useless(&mut self, record: Record, flags: u64, now: Duration) -> Result<(), Error> {
        if !self.is_expired(record, now)? {
            return Ok(());
        }
        let courtesy = milliseconds(self.layout.config.courtesy);
        let is_over = milliseconds(now) > self.lease_end(record)?.saturating_add(courtesy);
        let is_useless = flags & client::CONFIRMED == 0 || !self.has_state(record)?;
        if is_over || is_useless || self.is_waited_for(record)? {
            self.kill_client(record)?;
            self.checkpoint();
        }
        Ok(())
    }
}

impl<W: Words> State<W> {
    /// Frees something, so that there may be room for a record of this kind, of an address if one
    /// is given. Returns false if there was nothing to free.
    pub(crate) fn make_room(
        &self,
        host: &impl Host,
        now: Duration,
        kind: Kind,
        of: Option<Record>,
    ) -> Result<bool, Error> {
        let mut transaction = self.arena.begin(host)?;
        for _ in 0..EVICTIONS {
            if transaction.reap(host, now)? > 0 {
                transaction.commit();
                return Ok(true);
            }
            if !transaction.evict(now, kind, of)? {
                break;
            }
            transaction.checkpoint();
        }
        transaction.commit();
        Ok(false)
    }

    /// Regular work, about once a second in each process: drops clients that nobody needs, and
    /// frees the records of those that were dropped.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Damaged`].
    pub fn tick(&self, host: &impl Host, now: Duration) -> Result<Tick, Error> {
        let mut transaction = self.arena.begin(host)?;
        let is_swept = transaction.sweep(host, now)?;
        let is_revoked = transaction.revoke_late(now)?;
        transaction.sweep_grace(now)?;
        transaction.commit();
        let reaped = self.reap_rounds(host, now)?;
        Ok(if is_swept && is_revoked { reaped } else { Tick::More })
    }

    fn reap_rounds(&self, host: &impl Host, now: Duration) -> Result<Tick, Error> {
        for _ in 0..REAP_ROUNDS {
            let mut transaction = self.arena.begin(host)?;
            let freed = transaction.reap(host, now)?;
            transaction.commit();
            if freed == 0 {
                return Ok(Tick::Idle);
            }
        }
        Ok(Tick::More)
    }

    /// Frees what has ended, as far as one call does; the rest is left to [`tick`](Self::tick).
    pub(crate) fn reap_all(&self, host: &impl Host, now: Duration) -> Result<(), Error> {
        self.reap_rounds(host, now).map(drop)
    }
}

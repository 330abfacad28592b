//! The grace period after the end of all processes (RFC 8881 s8.4.2): clients that are known to
//! have had state reclaim it, and nobody else gets any. It ends when all of them are done.
//!
//! What is known of them is in stable storage: a record for each client, which the server writes
//! ([`Output::Persist`](crate::Output::Persist)) before the client's first open, and hands in here.

use crate::State;
use crate::arena::{Arena, List};
use crate::client::ClientRef;
use crate::error::Error;
use crate::host::Host;
use crate::id::ClientId;
use crate::layout::{Table, head, milliseconds};
use crate::record::{Kind, Record, client, recovery};
use crate::transaction::Transaction;
use crate::words::Words;
use std::time::Duration;

/// How much longer the grace period lasts, at least, after something was reclaimed.
const RECLAIM_TIME: Duration = Duration::from_secs(2);

/// Records of ended grace periods that are freed under one hold of the lock.
const RECOVERIES_DROPPED: usize = 64;

/// What stable storage knows of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryRecord {
    /// The client, which names the record.
    pub client: ClientId,
    /// Its owner string.
    pub owner: Vec<u8>,
    /// The digest of its credential; 0 for a host of NLM.
    pub principal: u64,
    /// Whether it is a host that locks by NLM.
    pub is_nlm: bool,
}

impl<W: Words> Arena<W> {
    /// Whether the recovery records are in the arena.
    pub fn is_loaded(&self) -> bool {
        self.words.load(head::LOADED) != 0
    }

    /// Whether only reclaims are served, or nothing yet.
    pub fn in_grace(&self, now: Duration) -> bool {
        milliseconds(now) < self.words.load(head::GRACE_END) || !self.is_loaded()
    }

    fn recoveries(&self, hash: u64) -> List {
        self.bucket(Table::Recovery, hash, recovery::BY_OWNER)
    }

    /// The record by which a client, or a host of NLM, may reclaim.
    fn find_recovery(&self, owner: &[u8], principal: u64, is_nlm: bool) -> Result<Option<Record>, Error> {
        let hash = self.owner_hash(owner);
        self.find(self.recoveries(hash), |record| {
            Ok(self.read(record, recovery::HASH)? == hash
                && self.read(record, recovery::PRINCIPAL)? == principal
                && self.read(record, recovery::NLM)? == u64::from(is_nlm)
                && self.bytes(self.named(record, recovery::OWNER, Kind::Blob)?)? == owner)
        })
    }

    /// Whether a host of NLM may lock, or reclaim a lock.
    pub fn admits_nlm(&self, name: &[u8], now: Duration, reclaim: bool) -> Result<(), Error> {
        match (self.in_grace(now), reclaim) {
            (true, false) => Err(Error::Grace),
            (false, false) => Ok(()),
            (false, true) => Err(Error::NoGrace),
            (true, true) if self.find_recovery(name, 0, true)?.is_none() => Err(Error::ReclaimBad),
            (true, true) => Ok(()),
        }
    }

    /// Whether a client may open, or reclaim an open. RFC 8881 s8.4.2, s18.51
    pub fn admits(&self, of: Record, now: Duration, reclaim: bool) -> Result<(), Error> {
        self.admits_lock(of, now, reclaim)?;
        let flags = self.client_flags(of)?;
        match reclaim {
            false if flags & client::RECLAIM_DONE == 0 => Err(Error::Grace),
            false if flags & client::PERSISTED == 0 => Err(Error::NotRecorded),
            _ => Ok(()),
        }
    }

    /// Whether a client may lock, or reclaim a lock.
    pub fn admits_lock(&self, of: Record, now: Duration, reclaim: bool) -> Result<(), Error> {
        let flags = self.client_flags(of)?;
        match (self.in_grace(now), reclaim) {
            (true, false) => Err(Error::Grace),
            (false, false) => Ok(()),
            (false, true) => Err(Error::NoGrace),
            (true, true) if flags & client::RECLAIM_DONE != 0 => Err(Error::NoGrace),
            (true, true) if flags & client::MAY_RECLAIM == 0 => Err(Error::ReclaimBad),
            (true, true) => Ok(()),
        }
    }
}

const fn persist() -> List {
    List { head: head::PERSIST, kind: Kind::Client, link: client::QUEUE }
}

impl<W: Words> Transaction<'_, W> {
    /// Flags of a client that is confirmed now.
    pub fn reclaim_flags(&self, of: Record, owner: &[u8]) -> Result<u64, Error> {
        let recovery = self.find_recovery(owner, self.read(of, client::PRINCIPAL)?, false)?;
        let may = match recovery {
            Some(record) => self.read(record, recovery::DONE)? == 0,
            None => false,
        };
        Ok(if may { client::MAY_RECLAIM } else { 0 })
    }

    /// Asks for a recovery record of a client that has none.
    pub fn persist(&mut self, record: Record) -> Result<(), Error> {
        let flags = self.client_flags(record)?;
        self.write(record, client::FLAGS, flags | client::PERSIST_DUE)?;
        self.push(persist(), record)
    }

    /// The client has reclaimed what it wanted: from now on it may open, once its recovery record
    /// is written.
    pub fn end_reclaim(&mut self, record: Record) -> Result<(), Error> {
        let flags = self.client_flags(record)?;
        self.write(record, client::FLAGS, flags | client::RECLAIM_DONE)?;
        self.persist(record)?;
        if flags & client::MAY_RECLAIM == 0 || self.words.load(head::GRACE_END) == 0 {
            return Ok(());
        }
        let (owner, principal) = (self.client_owner(record)?, self.read(record, client::PRINCIPAL)?);
        let Some(known) = self.find_recovery(&owner, principal, false)? else { return Ok(()) };
        if self.read(known, recovery::DONE)? == 0 {
            self.write(known, recovery::DONE, 1)?;
            self.add(head::RECLAIMING, -1)?;
            if self.words.load(head::RECLAIMING) == 0 {
                self.end_grace()?;
            }
        }
        Ok(())
    }

    /// Something is reclaimed, or is new, as admitted at `now`. Clients that reclaim get the time
    /// to go on; what is new ends a grace period whose time is over, for all processes at once.
    pub fn pass_grace(&mut self, now: Duration, reclaim: bool) -> Result<(), Error> {
        let end = self.words.load(head::GRACE_END);
        if end == 0 {
            return Ok(());
        }
        if !reclaim {
            return self.end_grace();
        }
        let needed = milliseconds(now.saturating_add(RECLAIM_TIME)).min(self.words.load(head::GRACE_LIMIT));
        if end < needed { self.set(head::GRACE_END, needed) } else { Ok(()) }
    }

    /// Adds a record of stable storage, unless a process that ended has done so.
    fn load_record(&mut self, known: &RecoveryRecord) -> Result<(), Error> {
        if self.find_recovery(&known.owner, known.principal, known.is_nlm)?.is_some() {
            return Ok(());
        }
        let record = self.allocate(Kind::Recovery)?;
        let blob = self.put_bytes(&known.owner)?;
        let hash = self.owner_hash(&known.owner);
        self.write(record, recovery::OWNER, blob.map_or(0, |blob| u64::from(blob.index)))?;
        self.write(record, recovery::HASH, hash)?;
        self.write(record, recovery::PRINCIPAL, known.principal)?;
        self.write(record, recovery::NLM, u64::from(known.is_nlm))?;
        let list = self.recoveries(hash);
        self.push(list, record)?;
        self.add(head::RECLAIMING, 1)
    }

    fn end_grace(&mut self) -> Result<(), Error> {
        self.set(head::GRACE_END, 0)?;
        self.set(head::RECLAIMING, 0)?;
        self.set(head::GRACE_OVER, 1)
    }

    /// Ends a grace period whose time is over, and frees records of one that ended.
    pub fn sweep_grace(&mut self, now: Duration) -> Result<(), Error> {
        if self.words.load(head::GRACE_END) != 0 {
            return if self.in_grace(now) { Ok(()) } else { self.end_grace() };
        }
        let mut dropped = 0;
        for index in 1..=self.layout.count(Kind::Recovery) {
            if self.used(Kind::Recovery) == 0 || dropped == RECOVERIES_DROPPED {
                break;
            }
            let record = Record { kind: Kind::Recovery, index };
            if self.in_use(record)? {
                let hash = self.read(record, recovery::HASH)?;
                self.unlink(self.recoveries(hash), record)?;
                let owner = self.named(record, recovery::OWNER, Kind::Blob)?;
                self.free_bytes(owner)?;
                self.free(record)?;
                dropped += 1;
            }
        }
        Ok(())
    }

    fn recovery_record(&self, of: Record) -> Result<RecoveryRecord, Error> {
        let (client, owner) = (self.client_id(of)?, self.client_owner(of)?);
        let (principal, is_nlm) = (self.read(of, client::PRINCIPAL)?, self.has_flag(of, client::NLM)?);
        Ok(RecoveryRecord { client, owner, principal, is_nlm })
    }

    /// The next client whose record is to be written, by this process.
    pub fn next_to_persist(&mut self, host: &impl Host) -> Result<Option<RecoveryRecord>, Error> {
        let Some(record) = self.first(persist()) else { return Ok(None) };
        self.unlink(persist(), record)?;
        let flags = self.client_flags(record)?;
        let asked = flags & !client::PERSIST_DUE | client::PERSIST_ASKED;
        self.write(record, client::FLAGS, asked)?;
        self.write(record, client::WRITER, u64::from(host.me().number()))?;
        self.recovery_record(record).map(Some)
    }

    /// Asks again for the record of a client, if the process that was asked has ended.
    pub fn persist_again(&mut self, host: &impl Host, of: Record) -> Result<(), Error> {
        let flags = self.client_flags(of)?;
        if flags & client::PERSIST_ASKED == 0 {
            return Ok(());
        }
        let writer = crate::host::Owner::new(self.read(of, client::WRITER)? as u32);
        if writer.is_some_and(|writer| writer == host.me() || host.is_alive(writer)) {
            return Ok(());
        }
        self.write(of, client::FLAGS, flags & !client::PERSIST_ASKED | client::PERSIST_DUE)?;
        self.push(persist(), of)
    }
}

impl<W: Words> State<W> {
    /// Begins to serve, with a grace period if there are records: `records` are those of stable
    /// storage, and it ends at `until`, or when all of them have reclaimed. While some reclaim
    /// then, it goes on, for the time of a lease at most. Called right after
    /// [`create`](Self::create), and by every process that finds an arena which is not
    /// [loaded](Self::is_loaded), because its creator has ended; in one that is, it does nothing.
    /// Hosts of NLM never say that they have reclaimed, so with any of them it lasts until `until`.
    ///
    /// # Errors
    /// [`Error::Full`] if there are more records than the bounds allow; [`Error::Busy`].
    pub fn begin_grace(
        &self,
        host: &impl Host,
        until: Duration,
        records: &[RecoveryRecord],
    ) -> Result<(), Error> {
        let mut transaction = self.arena.begin_any(host)?;
        if transaction.is_loaded() {
            return Ok(());
        }
        if !records.is_empty() {
            let limit = until.saturating_add(transaction.layout.config.lease);
            transaction.set(head::GRACE_END, milliseconds(until).max(1))?;
            transaction.set(head::GRACE_LIMIT, milliseconds(limit))?;
        }
        for known in records {
            transaction.load_record(known)?;
            transaction.checkpoint();
        }
        transaction.set(head::LOADED, 1)?;
        transaction.commit();
        Ok(())
    }

    /// Whether the arena is served: [`begin_grace`](Self::begin_grace) has ended. Until then all
    /// operations fail with [`Error::Busy`], or find no session.
    pub fn is_loaded(&self) -> bool {
        self.arena.is_loaded()
    }

    /// Whether only reclaims are served, or nothing yet.
    pub fn is_in_grace(&self, now: Duration) -> bool {
        self.arena.in_grace(now)
    }

    /// Whether a client may open, or reclaim an open, now: asked before a file is created for an
    /// OPEN, which asks once more.
    ///
    /// # Errors
    /// [`Error::Grace`], [`Error::NoGrace`], [`Error::ReclaimBad`], [`Error::NotRecorded`],
    /// [`Error::Expired`].
    pub fn may_open(&self, now: Duration, of: ClientRef, reclaim: bool) -> Result<(), Error> {
        let record = self.arena.live_client(of)?;
        self.arena.admits(record, now, reclaim)
    }

    /// The recovery record of a client is in stable storage. A client that has ended meanwhile is
    /// no error: its record is removed later.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Damaged`].
    pub fn persisted(&self, host: &impl Host, now: Duration, id: ClientId) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let Some(record) = transaction.client_by_id(id)? else { return Ok(()) };
            let flags = transaction.client_flags(record)?;
            if flags & client::PERSIST_DUE != 0 {
                transaction.unlink(persist(), record)?;
            }
            let asked = client::PERSIST_DUE | client::PERSIST_ASKED;
            transaction.write(record, client::FLAGS, flags & !asked | client::PERSISTED)
        })
    }
}

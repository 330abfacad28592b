//! Read delegations (RFC 8881 s10.4): a client may open and lock a file for reading by itself,
//! until somebody wants to change the file. Then the delegation is recalled, and whoever caused
//! that tries again. A delegation that is not returned within a lease is revoked.

use crate::State;
use crate::arena::{Arena, List, lower, pair, upper};
use crate::error::Error;
use crate::file::ReadWrite;
use crate::host::Host;
use crate::id::{ClientId, Name, SessionId, StateId};
use crate::layout::{Table, head, milliseconds};
use crate::open::DROPS_MAX;
use crate::record::{Kind, Record, client, delegation, file, session, slot};
use crate::session::Ticket;
use crate::slot::NOTE_WORDS;
use crate::transaction::Transaction;
use crate::words::Words;
use std::time::Duration;

/// How long a recall is waited for before it is handed out again.
pub const RECALL_RETRY: Duration = Duration::from_secs(5);
/// Recalls that are looked at for one that this process can send.
const RECALLS_LOOKED_AT: usize = 64;

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

    /// A session of a client whose back channel this process has.
    pub fn reachable_session(&self, host: &impl Host, of: Record) -> Result<Option<SessionId>, Error> {
        let sessions = self.list(of, client::SESSIONS, Kind::Session, session::LINK)?;
        let mut walk = self.walk(sessions);
        while let Some(record) = walk.next(self)? {
            if self.back_place(record, host.me())?.is_some() {
                return self.session_id(record).map(Some);
            }
        }
        Ok(None)
    }

    /// The queue that a delegation is in.
    fn recall_queue(&self, record: Record) -> Result<Option<List>, Error> {
        if self.read(record, delegation::STATE)? != RECALLED {
            return Ok(None);
        }
        Ok(Some(if self.read(record, delegation::SENT)? == 0 { unsent() } else { sent() }))
    }
}

impl<W: Words> Transaction<'_, W> {
    /// Makes sure that no other client has a delegation of a file that is about to change. Recalls
    /// are begun, and delegations of clients that ended, or whose lease has, are dropped: up to
    /// [`DROPS_MAX`] of them, and then the caller tries again.
    pub fn recall_for(&mut self, now: Duration, name: &[u8], except: Option<Record>) -> Result<(), Error> {
        let Some(of) = self.find_file(name)? else { return Ok(()) };
        let list = self.list(of, file::DELEGATIONS, Kind::Delegation, delegation::BY_FILE)?;
        let (mut walk, mut begun, mut must_wait, mut dropped) = (self.walk(list), false, false, 0);
        while let Some(record) = walk.next(self)? {
            let of_client = self.owning(record, delegation::CLIENT, Kind::Client)?;
            let state = self.read(record, delegation::STATE)?;
            if Some(of_client) == except || state == REVOKED {
                continue;
            }
            if !begun {
                // First, because the file ends with its last delegation if nothing else names it.
                let until = now.saturating_add(self.layout.config.lease);
                self.write(of, file::SHARED_UNTIL, milliseconds(until))?;
                begun = true;
            }
            if self.may_be_dropped(of_client, now)? {
                self.kill_client(of_client)?;
                self.drop_lost_delegation(record)?;
                self.checkpoint();
                dropped += 1;
                if dropped == DROPS_MAX {
                    return Err(Error::Delay);
                }
                continue;
            }
            must_wait = true;
            if state == GRANTED {
                self.write(record, delegation::STATE, RECALLED)?;
                self.write(record, delegation::RECALLED, milliseconds(now))?;
                self.push(unsent(), record)?;
                self.checkpoint_if_large();
            }
        }
        if must_wait {
            self.checkpoint();
            return Err(Error::Delay);
        }
        Ok(())
    }

    /// Ends a delegation that nobody has returned. Its file may have been kept for it.
    pub fn drop_lost_delegation(&mut self, record: Record) -> Result<(), Error> {
        self.drop_delegation(record)?;
        self.add(head::DROPPED_OPENS, 1)
    }

    pub fn drop_delegation(&mut self, record: Record) -> Result<(), Error> {
        if let Some(queue) = self.recall_queue(record)? {
            self.unlink(queue, record)?;
        }
        if !self.is_revoked(record)? {
            self.add(head::DENIALS, -1)?;
        }
        let of = self.owning(record, delegation::FILE, Kind::File)?;
        let of_client = self.owning(record, delegation::CLIENT, Kind::Client)?;
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
    fn grant(&mut self, of_client: Record, name: &[u8], now: Duration) -> Result<Option<Record>, Error> {
        let Some(of) = self.find_file(name)? else { return Ok(None) };
        let is_written = ReadWrite::of(self.read(of, file::ACCESS)?).write != 0;
        let is_shared = milliseconds(now) < self.read(of, file::SHARED_UNTIL)?;
        if is_written || is_shared || self.find_delegation(of, of_client)?.is_some() {
            return Ok(None);
        }
        match self.admit(of_client, Kind::Delegation, client::DELEGATION_COUNT) {
            Err(Error::ClientLimit(_) | Error::PeerLimit(_)) => return Ok(None),
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
        self.add(head::DENIALS, 1)?;
        Ok(Some(record))
    }

    fn delegate(&mut self, now: Duration, ticket: &Ticket, file: &[u8]) -> Result<Option<StateId>, Error> {
        let of_client = self.live_client(ticket.client())?;
        if self.reachable_by_any(ticket.session())?.is_none() {
            return Ok(None);
        }
        let Some(record) = self.grant(of_client, file, now)? else { return Ok(None) };
        let place = Name::of_state(0, record, 0).place;
        let name = pair(place, self.generation(record)?);
        self.add_to_note(ticket, DELEGATION_NOTE, name)?;
        self.state_id(record).map(Some)
    }

    /// The next recall that this process can send.
    pub fn next_recall(&mut self, host: &impl Host, now: Duration) -> Result<Option<Recall>, Error> {
        // Those that were sent without effect can be sent again, by any process.
        let mut taken = 0;
        while let Some(record) = self.first(sent()) {
            self.taken(sent(), &mut taken)?;
            let at = self.read(record, delegation::SENT)?;
            if milliseconds(now) < at.saturating_add(milliseconds(RECALL_RETRY)) {
                break;
            }
            self.unlink(sent(), record)?;
            self.write(record, delegation::SENT, 0)?;
            self.push(unsent(), record)?;
            self.checkpoint_if_large();
        }
        let mut passed_on = None;
        for _ in 0..RECALLS_LOOKED_AT {
            let Some(record) = self.first(unsent()).filter(|first| Some(*first) != passed_on) else { break };
            self.unlink(unsent(), record)?;
            let of_client = self.owning(record, delegation::CLIENT, Kind::Client)?;
            let Some(session) = self.reachable_session(host, of_client)? else {
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

    /// Revokes delegations that were not returned within a lease.
    pub fn revoke_late(&mut self, now: Duration) -> Result<(), Error> {
        let lease = milliseconds(self.layout.config.lease);
        for queue in [unsent(), sent()] {
            let mut walk = self.walk(queue);
            while let Some(record) = walk.next(self)? {
                if milliseconds(now) < self.read(record, delegation::RECALLED)?.saturating_add(lease) {
                    continue;
                }
                self.unlink(queue, record)?;
                self.write(record, delegation::STATE, REVOKED)?;
                self.add(head::DENIALS, -1)?;
                let of_client = self.owning(record, delegation::CLIENT, Kind::Client)?;
                self.count(of_client, client::REVOKED_COUNT, 1)?;
                self.checkpoint_if_large();
            }
        }
        Ok(())
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
        match transaction.delegate(now, ticket, file) {
            Ok(granted) => {
                transaction.commit();
                Ok(granted)
            }
            Err(Error::Full(_)) => Ok(None),
            Err(error) => Err(error),
        }
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

    /// Makes sure that no other client has a delegation of a file whose name, links, size or
    /// attributes are about to change: REMOVE, RENAME, LINK, SETATTR, in any protocol. Takes no
    /// lock while there are no delegations.
    ///
    /// # Errors
    /// [`Error::Delay`] until the delegations are returned or revoked, [`Error::Busy`].
    pub fn recall_for_change(
        &self,
        host: &impl Host,
        now: Duration,
        of: Option<crate::ClientRef>,
        file: &[u8],
    ) -> Result<(), Error> {
        if self.arena.words.load(head::DENIALS) == 0 {
            return Ok(());
        }
        self.change(host, now, |transaction| {
            transaction.recall_for(now, file, of.map(crate::ClientRef::record))
        })
    }
}

/// The word of an OPEN's note that names the delegation.
const DELEGATION_NOTE: usize = 3;
const _: () = assert!(DELEGATION_NOTE < slot::NOTE_WORDS);

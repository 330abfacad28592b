//! Clients: EXCHANGE_ID (RFC 8881 s18.35), DESTROY_CLIENTID (s18.50), RECLAIM_COMPLETE (s18.51).

use crate::arena::{Arena, CLIENTS, HOLDERS, List};
use crate::error::Error;
use crate::host::Host;
use crate::id::ClientId;
use crate::layout::{Table, head, milliseconds};
use crate::lease::unconfirmed;
use crate::record::{Kind, Record, client, peer, session};
use crate::session::Ticket;
use crate::transaction::Transaction;
use crate::words::Words;
use crate::{OWNER_BYTES_MAX, State};
use std::net::IpAddr;
use std::time::Duration;

/// What a client says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeIdArgs<'a> {
    /// `co_ownerid`, up to [`OWNER_BYTES_MAX`] bytes.
    pub owner: &'a [u8],
    /// `co_verifier`.
    pub verifier: u64,
    /// A digest of the credential, by which principals are told apart.
    pub principal: u64,
    /// EXCHGID4_FLAG_UPD_CONFIRMED_REC_A
    pub update: bool,
    /// Where it comes from: what its clients have together is bounded. `None` for no such bound.
    pub peer: Option<IpAddr>,
}

/// The client id that a client is to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeId {
    /// `eir_clientid`.
    pub client: ClientId,
    /// `eir_sequenceid`: of the next CREATE_SESSION.
    pub sequence: u32,
    /// EXCHGID4_FLAG_CONFIRMED_R
    pub confirmed: bool,
}

/// A client that was found by its session or its name, as operations take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientRef {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ClientRef {
    pub(crate) const fn record(self) -> Record {
        Record { kind: Kind::Client, index: self.index }
    }
}

impl<W: Words> Arena<W> {
    fn clients_by_owner(&self, hash: u64) -> List {
        self.bucket(Table::ClientByOwner, hash, client::BY_OWNER)
    }

    fn clients_by_id(&self, id: ClientId) -> List {
        self.bucket(Table::ClientById, id.0, client::BY_ID)
    }

    pub fn client_flags(&self, of: Record) -> Result<u64, Error> {
        self.read(of, client::FLAGS)
    }

    pub fn has_flag(&self, of: Record, flag: u64) -> Result<bool, Error> {
        Ok(self.client_flags(of)? & flag != 0)
    }

    pub fn client_ref(&self, of: Record) -> Result<ClientRef, Error> {
        Ok(ClientRef { index: of.index, generation: self.generation(of)? })
    }

    pub fn client_id(&self, of: Record) -> Result<ClientId, Error> {
        Ok(ClientId(self.read(of, client::ID)?))
    }

    /// The record of a client that is still served.
    pub fn live_client(&self, of: ClientRef) -> Result<Record, Error> {
        let record = of.record();
        let is_live = self.is_current(record, of.generation)? && !self.has_flag(record, client::DYING)?;
        if is_live { Ok(record) } else { Err(Error::Expired) }
    }

    pub fn client_by_id(&self, id: ClientId) -> Result<Option<Record>, Error> {
        self.find(self.clients_by_id(id), |record| Ok(self.client_id(record)? == id))
    }

    /// By what number others get to know a client: not by its id, with which they could ask for
    /// sessions in its name.
    pub fn client_alias(&self, id: ClientId) -> ClientId {
        ClientId(self.secret.code(HOLDERS, &id.0.to_be_bytes()))
    }

    /// The client with this owner string that is, or is not, confirmed.
    pub fn client_by_owner(&self, owner: &[u8], with: u64, hash: u64) -> Result<Option<Record>, Error> {
        self.find(self.clients_by_owner(hash), |record| {
            let kinds = client::CONFIRMED | client::NLM;
            Ok(self.read(record, client::OWNER_HASH)? == hash
                && self.client_flags(record)? & kinds == with
                && self.client_owner(record)? == owner)
        })
    }

    pub fn client_owner(&self, of: Record) -> Result<Vec<u8>, Error> {
        self.bytes(self.named(of, client::OWNER, Kind::Blob)?)
    }

    pub fn owner_hash(&self, owner: &[u8]) -> u64 {
        self.hash(owner, Table::ClientByOwner as u64)
    }

    /// Whether anything would be lost with the client.
    pub fn has_state(&self, of: Record) -> Result<bool, Error> {
        let counts = [client::OPEN_COUNT, client::LOCK_COUNT, client::DELEGATION_COUNT];
        for count in counts {
            if self.read(of, count)? != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn exchange_result(&self, of: Record) -> Result<ExchangeId, Error> {
        let sequence = crate::arena::upper(self.read(of, client::CREATE_SESSION)?).wrapping_add(1);
        let confirmed = self.has_flag(of, client::CONFIRMED)?;
        Ok(ExchangeId { client: self.client_id(of)?, sequence, confirmed })
    }
}

impl<W: Words> Transaction<'_, W> {
    /// Makes sure that one more client without a lease of its own, or whose id is not confirmed, is
    /// within its bound.
    fn admit_client(&mut self, flags: u64) -> Result<(), Error> {
        let bounds = &self.layout.config.bounds;
        if flags & client::NLM != 0 {
            let is_full = self.words.load(head::NLM_COUNT) >= u64::from(bounds.nlm_hosts());
            return if is_full { Err(Error::HostLimit) } else { self.add(head::NLM_COUNT, 1) };
        }
        if flags & client::CONFIRMED == 0 {
            let is_full = self.words.load(head::UNCONFIRMED_COUNT) >= u64::from(bounds.unconfirmed());
            if let Some(oldest) = self.first(unconfirmed()).filter(|_| is_full) {
                self.kill_client(oldest)?;
            }
        }
        Ok(())
    }

    /// A client's record, in both tables.
    pub fn new_client(
        &mut self,
        owner: &[u8],
        hash: u64,
        now: Duration,
        flags: u64,
    ) -> Result<Record, Error> {
        self.admit_client(flags)?;
        let record = self.allocate(Kind::Client)?;
        let blob = self.put_bytes(owner)?;
        // With a client's id anybody could ask for sessions in its name: an id tells nothing about
        // those before and after it. Skips ids that are in use.
        let id = loop {
            self.add(head::CLIENT_COUNTER, 1)?;
            let counter = self.words.load(head::CLIENT_COUNTER);
            let id = ClientId(self.secret.code(CLIENTS, &counter.to_be_bytes()));
            if self.client_by_id(id)?.is_none() {
                break id;
            }
        };
        self.write(record, client::ID, id.0)?;
        self.write(record, client::OWNER, blob.map_or(0, |blob| u64::from(blob.index)))?;
        self.write(record, client::OWNER_HASH, hash)?;
        self.write(record, client::FLAGS, flags)?;
        self.write(record, client::LEASE, milliseconds(now))?;
        let (by_owner, by_id) = (self.clients_by_owner(hash), self.clients_by_id(id));
        self.push(by_owner, record)?;
        self.push(by_id, record)?;
        if flags & client::CONFIRMED == 0 {
            self.push(unconfirmed(), record)?;
            self.add(head::UNCONFIRMED_COUNT, 1)?;
        }
        Ok(record)
    }

    /// Takes a client that is confirmed, or ends, off the list of those that are not confirmed.
    pub fn leave_unconfirmed(&mut self, record: Record) -> Result<(), Error> {
        self.unlink(unconfirmed(), record)?;
        if let Some(of) = self.peer_of(record)? {
            self.count(of, peer::UNCONFIRMED, -1)?;
        }
        self.add(head::UNCONFIRMED_COUNT, -1)
    }

    /// Ends a client: its names are free at once, its sessions answer no more, and its state no
    /// longer counts. The records themselves are freed bit by bit.
    pub fn kill_client(&mut self, record: Record) -> Result<(), Error> {
        let flags = self.client_flags(record)?;
        if flags & client::DYING != 0 {
            return Ok(());
        }
        let (hash, id) = (self.read(record, client::OWNER_HASH)?, self.client_id(record)?);
        let (by_owner, by_id) = (self.clients_by_owner(hash), self.clients_by_id(id));
        self.unlink(by_owner, record)?;
        self.unlink(by_id, record)?;
        let queue = |head| List { head, kind: Kind::Client, link: client::QUEUE };
        if flags & client::PERSIST_DUE != 0 {
            self.unlink(queue(head::PERSIST), record)?;
        }
        if flags & client::CONFIRMED == 0 {
            self.leave_unconfirmed(record)?;
        } else {
            // Counted no more, so that a client that replaces itself does not count twice. What it
            // has counts until it is freed.
            self.discharge(self.peer_of(record)?, Kind::Client, 1)?;
            if flags & client::NLM != 0 {
                self.add(head::NLM_COUNT, -1)?;
            }
        }
        self.push(queue(head::DYING_CLIENTS), record)?;
        self.write(record, client::FLAGS, (flags | client::DYING) & !client::PERSIST_DUE)?;
        let sessions = self.list(record, client::SESSIONS, Kind::Session, session::LINK)?;
        let mut taken = 0;
        while let Some(first) = self.first(sessions) {
            self.taken(sessions, &mut taken)?;
            self.kill_session(record, first)?;
        }
        Ok(())
    }
}

impl<W: Words> State<W> {
    /// EXCHANGE_ID. Renews the lease of a client that is known.
    ///
    /// # Errors
    /// [`Error::ClientIdInUse`], [`Error::NoClient`], [`Error::NotSame`], [`Error::NotPermitted`],
    /// [`Error::Full`], [`Error::TooLong`].
    pub fn exchange_id(
        &self,
        host: &impl Host,
        now: Duration,
        args: ExchangeIdArgs<'_>,
    ) -> Result<ExchangeId, Error> {
        if args.owner.len() > OWNER_BYTES_MAX {
            return Err(Error::TooLong("the client's owner string", OWNER_BYTES_MAX));
        }
        self.change(host, now, |transaction| exchange_id(transaction, now, &args))
    }

    /// DESTROY_CLIENTID.
    ///
    /// # Errors
    /// [`Error::StaleClientId`], [`Error::ClientIdBusy`].
    pub fn destroy_client_id(&self, host: &impl Host, now: Duration, id: ClientId) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let record = transaction.client_by_id(id)?.ok_or(Error::StaleClientId)?;
            let has_sessions = transaction.read(record, client::SESSION_COUNT)? != 0;
            if has_sessions || transaction.has_state(record)? {
                return Err(Error::ClientIdBusy);
            }
            transaction.kill_client(record)
        })
    }

    /// RECLAIM_COMPLETE for all file systems. (With `rca_one_fs` there is nothing to do here: state
    /// does not move between servers.) The client's recovery record must be in stable storage
    /// before the reply is sent.
    ///
    /// # Errors
    /// [`Error::CompleteAlready`], [`Error::Expired`].
    pub fn reclaim_complete(&self, host: &impl Host, now: Duration, ticket: &Ticket) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let record = transaction.live_client(ticket.client())?;
            if transaction.has_flag(record, client::RECLAIM_DONE)? {
                return Err(Error::CompleteAlready);
            }
            transaction.end_reclaim(record)?;
            transaction.commit_step(ticket, [0; crate::NOTE_WORDS])
        })
    }

    /// Whether a principal may end a client: the one that introduced it.
    ///
    /// # Errors
    /// [`Error::StaleClientId`], [`Error::WrongCredential`].
    pub fn may_end_client(
        &self,
        host: &impl Host,
        now: Duration,
        id: ClientId,
        principal: u64,
    ) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let record = transaction.client_by_id(id)?.ok_or(Error::StaleClientId)?;
            let is_its = transaction.read(record, client::PRINCIPAL)? == principal;
            if is_its { Ok(()) } else { Err(Error::WrongCredential) }
        })
    }

    /// The client of a client id.
    ///
    /// # Errors
    /// [`Error::StaleClientId`].
    pub fn client(&self, host: &impl Host, now: Duration, id: ClientId) -> Result<ClientRef, Error> {
        self.change(host, now, |transaction| {
            let record = transaction.client_by_id(id)?.ok_or(Error::StaleClientId)?;
            transaction.client_ref(record)
        })
    }
}

/// The cases of RFC 8881 s18.35.4, by number.
fn exchange_id<W: Words>(
    transaction: &mut Transaction<'_, W>,
    now: Duration,
    args: &ExchangeIdArgs<'_>,
) -> Result<ExchangeId, Error> {
    let hash = transaction.owner_hash(args.owner);
    let confirmed = transaction.client_by_owner(args.owner, client::CONFIRMED, hash)?;
    if let Some(known) = confirmed {
        let same_verifier = transaction.read(known, client::VERIFIER)? == args.verifier;
        let same_principal = transaction.read(known, client::PRINCIPAL)? == args.principal;
        match (args.update, same_verifier, same_principal) {
            // 2: the same incarnation asks again, and 6: an update.
            (_, true, true) => {
                transaction.renew(known, now)?;
                return transaction.exchange_result(known);
            }
            (true, false, _) => return Err(Error::NotSame), // 8
            (true, true, false) => return Err(Error::NotPermitted), // 9
            // 3: another principal. The old client stays while it has a lease and anything to lose.
            (false, _, false) => {
                let has_sessions = transaction.read(known, client::SESSION_COUNT)? != 0;
                let in_use = has_sessions || transaction.has_state(known)?;
                if in_use && !transaction.is_expired(known, now)? {
                    return Err(Error::ClientIdInUse);
                }
                transaction.kill_client(known)?;
            }
            // 5: the client has restarted. Its old state ends when the new id is confirmed.
            (false, false, true) => {}
        }
    } else if args.update {
        return Err(Error::NoClient); // 7
    }
    // 4: a new request replaces one that was never confirmed. 1: a new owner.
    if let Some(old) = transaction.client_by_owner(args.owner, 0, hash)? {
        transaction.kill_client(old)?;
    }
    let of = args.peer.map(|address| transaction.use_peer(address)).transpose()?;
    of.map_or(Ok(()), |of| transaction.admit_unconfirmed(of))?;
    let record = transaction.new_client(args.owner, hash, now, 0)?;
    if let Some(of) = of {
        transaction.write(record, client::PEER, u64::from(of.index))?;
        transaction.count(of, peer::UNCONFIRMED, 1)?;
    }
    transaction.write(record, client::VERIFIER, args.verifier)?;
    transaction.write(record, client::PRINCIPAL, args.principal)?;
    transaction.exchange_result(record)
}

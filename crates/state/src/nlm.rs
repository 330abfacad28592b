//! Locks of NFSv3 clients (NLM version 4) in the same table. A host is a client without a lease or
//! sessions; its locks end when it unlocks them, or when the host is known to have restarted (NSM).
//! Hosts that are *monitored* are told of a restart of the server: each is before its first lock,
//! unless it asks for NLM_NM_LOCK.

use crate::client::ClientRef;
use crate::error::Error;
use crate::file::OwnerClass;
use crate::host::Host;
use crate::layout::milliseconds;
use crate::lock::Wanted;
use crate::range::Bytes;
use crate::record::{Kind, Record, client, lock};
use crate::transaction::Transaction;
use crate::words::Words;
use crate::{OWNER_BYTES_MAX, State};
use std::net::IpAddr;
use std::time::Duration;

/// A lock as NLM names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NlmLock<'a> {
    /// What the server calls the host.
    pub host: &'a [u8],
    /// `oh` and `svid`, as one string.
    pub owner: &'a [u8],
    /// The name of the file, the same as NFSv4 uses.
    pub file: &'a [u8],
    /// The first byte.
    pub offset: u64,
    /// How many bytes; `u64::MAX` to the end of the file. (NLM says 0 for that.)
    pub length: u64,
    /// Whether nobody else may lock the bytes at all.
    pub exclusive: bool,
}

/// What became of a lock request that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NlmLocked {
    /// The bytes are locked.
    Granted,
    /// Another lock is in the way, and the request waits for its end.
    Waits,
}

/// How a host asks for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NlmHow {
    /// To wait if another lock is in the way, under this number.
    pub wait: Option<u64>,
    /// The host held the lock before the restart.
    pub reclaim: bool,
    /// Only if the host is [monitored](State::nlm_monitor).
    pub monitored: bool,
}

/// A host that is to be monitored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NlmMonitor<'a> {
    /// What the server calls the host.
    pub name: &'a [u8],
    /// Its address, by which what its hosts have together is bounded. `None` for no such bound.
    pub peer: Option<IpAddr>,
    /// It wants to reclaim.
    pub reclaim: bool,
    /// It renews a lease by its requests, as clients of version 4 do: without that, its locks end
    /// when somebody wants them.
    pub is_leased: bool,
}

/// How long a host that has nothing is remembered: to monitor it anew costs a write to stable
/// storage, and programs lock and unlock in turns.
pub const NLM_HOST_IDLE: Duration = Duration::from_secs(300);

/// Set while a host is monitored, or soon will be.
const MONITORED: u64 = client::PERSISTED | client::PERSIST_ASKED | client::PERSIST_DUE;

impl<W: Words> Transaction<'_, W> {
    fn find_nlm_host(&self, name: &[u8]) -> Result<Option<Record>, Error> {
        self.client_by_owner(name, client::CONFIRMED | client::NLM, self.owner_hash(name))
    }

    fn use_nlm_host(
        &mut self,
        now: Duration,
        name: &[u8],
        known: Option<Record>,
        peer: Option<IpAddr>,
    ) -> Result<Record, Error> {
        if let Some(known) = known {
            self.renew(known, now)?;
            return Ok(known);
        }
        let peer = peer.map(|address| self.use_peer(address)).transpose()?;
        self.charge(peer, Kind::Client, 1)?;
        let hash = self.owner_hash(name);
        let record = self.new_client(name, hash, now, client::CONFIRMED | client::NLM)?;
        self.write(record, client::PEER, peer.map_or(0, |peer| u64::from(peer.index)))?;
        Ok(record)
    }

    /// Whether an owner has a lock of all these bytes, and of this kind.
    fn nlm_holds(&self, known: Option<Record>, args: &NlmLock<'_>, wanted: Wanted) -> Result<bool, Error> {
        let (Some(known), Some(of)) = (known, self.find_file(args.file)?) else { return Ok(false) };
        let Some(owner) = self.find_owner(known, OwnerClass::Lock, args.owner)? else { return Ok(false) };
        let Some(record) = self.find_lock(of, owner, None)? else { return Ok(false) };
        // Neighbours of one kind are one range.
        let found = self.find(self.ranges_of_lock(record)?, |range| {
            let has = self.range_bytes(range)?;
            let covers = has.first <= wanted.bytes.first && wanted.bytes.last <= has.last;
            Ok(covers && self.is_exclusive(range)? == wanted.exclusive)
        })?;
        Ok(found.is_some())
    }

    /// Ends a host that has nothing any more; one that is monitored, when it has had nothing for a
    /// while. Other clients stay.
    pub fn release_nlm_host(&mut self, of: Record, now: Duration) -> Result<(), Error> {
        let flags = self.client_flags(of)?;
        let waits = self.read(of, client::WAITER_COUNT)? != 0;
        if flags & client::NLM == 0 || waits || self.has_state(of)? {
            return Ok(());
        }
        let until = self.read(of, client::LEASE)?.saturating_add(milliseconds(NLM_HOST_IDLE));
        if flags & MONITORED != 0 && milliseconds(now) < until { Ok(()) } else { self.kill_client(of) }
    }
}

impl<W: Words> State<W> {
    /// Makes sure that stable storage knows of a host before it locks: it is told after a restart.
    /// Returns whether it does; if not, the record is asked for
    /// ([`Output::Persist`](crate::Output::Persist)). A host that may not lock, or reclaim, now, is
    /// not recorded: it would count as one that has had locks.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Full`], [`Error::HostLimit`], [`Error::PeerLimit`],
    /// [`Error::Grace`], [`Error::NoGrace`], [`Error::ReclaimBad`].
    pub fn nlm_monitor(&self, host: &impl Host, now: Duration, args: NlmMonitor<'_>) -> Result<bool, Error> {
        check_name(args.name)?;
        self.change(host, now, |transaction| {
            transaction.admits_nlm(args.name, now, args.reclaim)?;
            let known = transaction.find_nlm_host(args.name)?;
            let record = transaction.use_nlm_host(now, args.name, known, args.peer)?;
            let leased = if args.is_leased { client::LEASED } else { 0 };
            let flags = transaction.client_flags(record)?;
            if flags | leased != flags {
                transaction.write(record, client::FLAGS, flags | leased)?;
            }
            if flags & MONITORED == 0 {
                transaction.persist(record)?;
            }
            Ok(flags & client::PERSISTED != 0)
        })
    }

    /// NLM_LOCK and NLM_NM_LOCK. What is reclaimed after the grace period is granted if the owner
    /// has it: the reply to the first reclaim may have been lost.
    ///
    /// # Errors
    /// [`Error::Denied`]; [`Error::NotRecorded`] if the host is to be monitored and is not, or not
    /// yet; [`Error::Grace`], [`Error::NoGrace`], [`Error::ReclaimBad`]; [`Error::Invalid`],
    /// [`Error::TooLong`], [`Error::Full`], [`Error::HostLimit`], [`Error::ClientLimit`], which
    /// may be that of waiting requests; [`Error::Delay`], also until delegations of the file are
    /// returned, if the lock is exclusive.
    pub fn nlm_lock(
        &self,
        host: &impl Host,
        now: Duration,
        args: &NlmLock<'_>,
        how: NlmHow,
    ) -> Result<NlmLocked, Error> {
        check_name(args.host)?;
        let wanted = args.wanted()?;
        self.in_rounds(host, now, |transaction| {
            let known = transaction.find_nlm_host(args.host)?;
            match transaction.admits_nlm(args.host, now, how.reclaim) {
                Err(Error::NoGrace) if transaction.nlm_holds(known, args, wanted)? => {
                    known.map_or(Ok(()), |known| transaction.renew(known, now))?;
                    return Ok(NlmLocked::Granted);
                }
                admitted => admitted?,
            }
            transaction.pass_grace(now, how.reclaim)?;
            let is_recorded = match known {
                Some(known) => transaction.has_flag(known, client::PERSISTED)?,
                None => false,
            };
            if how.monitored && !is_recorded {
                return Err(Error::NotRecorded);
            }
            // Nothing is taken before the conflicts are settled, which may keep some changes. Who
            // has a delegation may have locked for reading by itself. RFC 8881 s10.4
            if wanted.exclusive {
                transaction.recall_for(now, args.file, None)?;
            }
            if let Some(of) = transaction.find_file(args.file)? {
                let owner = match known {
                    Some(known) => transaction.find_owner(known, OwnerClass::Lock, args.owner)?,
                    None => None,
                };
                let way = transaction.clear_way(now, of, owner, wanted);
                if let (Err(Error::Denied(_)), Some(cookie)) = (&way, how.wait) {
                    let waits = transaction.as_favour(|transaction| {
                        let of_client = transaction.use_nlm_host(now, args.host, known, None)?;
                        transaction.wait_for(now, of_client, of, args.owner, wanted, cookie)
                    })?;
                    let refusal = Error::ClientLimit(Kind::Waiter);
                    return if waits { Ok(NlmLocked::Waits) } else { Err(refusal) };
                }
                way?;
            }
            let of_client = transaction.use_nlm_host(now, args.host, known, None)?;
            lock_now(transaction, now, of_client, args, wanted)?;
            Ok(NlmLocked::Granted)
        })
    }

    /// NLM_TEST.
    ///
    /// # Errors
    /// As [`test_lock`](Self::test_lock).
    pub fn nlm_test(&self, host: &impl Host, now: Duration, args: &NlmLock<'_>) -> Result<(), Error> {
        let wanted = args.wanted()?;
        self.change(host, now, |transaction| {
            if transaction.in_grace(now) {
                return Err(Error::Grace);
            }
            let Some(of) = transaction.find_file(args.file)? else { return Ok(()) };
            let owner = match transaction.find_nlm_host(args.host)? {
                Some(known) => transaction.find_owner(known, OwnerClass::Lock, args.owner)?,
                None => None,
            };
            transaction.clear_ranges(now, of, owner, wanted)
        })
    }

    /// NLM_UNLOCK; bytes that are not locked are no error.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::Full`] or [`Error::ClientLimit`] if a range must be split.
    pub fn nlm_unlock(&self, host: &impl Host, now: Duration, args: &NlmLock<'_>) -> Result<(), Error> {
        let bytes = args.wanted()?.bytes;
        self.change(host, now, |transaction| {
            let Some(of_client) = transaction.find_nlm_host(args.host)? else { return Ok(()) };
            transaction.renew(of_client, now)?;
            let owner = transaction.find_owner(of_client, OwnerClass::Lock, args.owner)?;
            let (Some(owner), Some(of)) = (owner, transaction.find_file(args.file)?) else { return Ok(()) };
            let Some(record) = transaction.find_lock(of, owner, None)? else { return Ok(()) };
            transaction.set_range(record, bytes, None)?;
            if transaction.read(record, lock::RANGE_COUNT)? == 0 {
                // Others wait for what was just unlocked; the file stays until they are told.
                transaction.wake_waiters(of, now)?;
                transaction.drop_lock(record, now)?;
                return transaction.release_nlm_host(of_client, now);
            }
            transaction.wake_waiters(of, now)
        })
    }

    /// NLM_CANCEL. Returns whether such a request has waited.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn nlm_cancel(&self, host: &impl Host, now: Duration, args: &NlmLock<'_>) -> Result<bool, Error> {
        let wanted = args.wanted()?;
        self.change(host, now, |transaction| {
            let Some(of_client) = transaction.find_nlm_host(args.host)? else { return Ok(false) };
            transaction.renew(of_client, now)?;
            let owner = transaction.find_owner(of_client, OwnerClass::Lock, args.owner)?;
            let (Some(owner), Some(of)) = (owner, transaction.find_file(args.file)?) else {
                return Ok(false);
            };
            let did_wait = transaction.cancel_wait(now, of, owner, wanted)?;
            transaction.release_nlm_host(of_client, now)?;
            Ok(did_wait)
        })
    }

    /// Hosts have restarted, or freed all (SM_NOTIFY, NLM_FREE_ALL): their locks and requests end.
    /// `is_meant` is asked for the name of each host. Returns how many ended.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Damaged`].
    pub fn nlm_forget(
        &self,
        host: &impl Host,
        now: Duration,
        is_meant: impl Fn(&[u8]) -> bool,
    ) -> Result<usize, Error> {
        let ended = self.change(host, now, |transaction| {
            let mut ended = 0;
            for index in 1..=transaction.ever_used(Kind::Client) {
                let record = Record { kind: Kind::Client, index };
                if !transaction.in_use(record)? {
                    continue;
                }
                let kinds = transaction.client_flags(record)? & (client::NLM | client::DYING);
                if kinds == client::NLM && is_meant(&transaction.client_owner(record)?) {
                    transaction.kill_client(record)?;
                    transaction.checkpoint();
                    ended += 1;
                }
            }
            Ok(ended)
        })?;
        self.reap_all(host, now)?;
        Ok(ended)
    }

    /// An NLM host that has locks or waits for some, or is monitored.
    ///
    /// # Errors
    /// [`Error::StaleClientId`].
    pub fn nlm_client(&self, host: &impl Host, now: Duration, name: &[u8]) -> Result<ClientRef, Error> {
        self.change(host, now, |transaction| {
            let known = transaction.find_nlm_host(name)?.ok_or(Error::StaleClientId)?;
            transaction.client_ref(known)
        })
    }
}

impl NlmLock<'_> {
    fn wanted(&self) -> Result<Wanted, Error> {
        Ok(Wanted { bytes: Bytes::new(self.offset, self.length)?, exclusive: self.exclusive })
    }
}

const fn check_name(host: &[u8]) -> Result<(), Error> {
    if host.len() > OWNER_BYTES_MAX {
        return Err(Error::TooLong("the host's name", OWNER_BYTES_MAX));
    }
    Ok(())
}

/// Locks what nothing is in the way of.
fn lock_now<W: Words>(
    transaction: &mut Transaction<'_, W>,
    now: Duration,
    of_client: Record,
    args: &NlmLock<'_>,
    wanted: Wanted,
) -> Result<(), Error> {
    let of = transaction.use_file(args.file)?;
    let owner = transaction.use_owner(of_client, OwnerClass::Lock, args.owner)?;
    let record = transaction.use_lock(of_client, of, owner, None)?;
    transaction.set_range(record, wanted.bytes, Some(wanted.exclusive))?;
    let owner = transaction.owning(record, lock::OWNER, Kind::Owner)?;
    let of = transaction.owning(record, lock::FILE, Kind::File)?;
    transaction.end_waiting(of, owner, wanted)?;
    transaction.wake_waiters(of, now)
}

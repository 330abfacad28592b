//! Locks of NFSv3 clients (NLM version 4) in the same table. A host is a client without a lease or
//! sessions; its locks end when it unlocks them, or when the host is known to have restarted (NSM).

use crate::State;
use crate::client::ClientRef;
use crate::error::Error;
use crate::file::OwnerClass;
use crate::host::Host;
use crate::lock::Wanted;
use crate::range::Bytes;
use crate::record::{Kind, Record, client, lock};
use crate::transaction::Transaction;
use crate::words::Words;
use std::time::Duration;

/// A lock as NLM names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NlmLock<'a> {
    /// `caller_name` of the host.
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

impl<W: Words> Transaction<'_, W> {
    fn find_nlm_host(&self, name: &[u8]) -> Result<Option<Record>, Error> {
        self.client_by_owner(name, client::CONFIRMED | client::NLM, self.owner_hash(name))
    }

    fn use_nlm_host(&mut self, now: Duration, name: &[u8], known: Option<Record>) -> Result<Record, Error> {
        if let Some(known) = known {
            return Ok(known);
        }
        let hash = self.owner_hash(name);
        self.new_client(name, hash, now, client::CONFIRMED | client::NLM)
    }

    /// Ends a host that has nothing any more. Other clients stay.
    pub fn release_nlm_host(&mut self, of: Record) -> Result<(), Error> {
        let is_host = self.has_flag(of, client::NLM)?;
        let waits = self.read(of, client::WAITER_COUNT)? != 0;
        if !is_host || waits || self.has_state(of)? { Ok(()) } else { self.kill_client(of) }
    }
}

impl<W: Words> State<W> {
    /// NLM_LOCK. With `wait`, a lock that is denied is waited for, under the number in `wait`.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Grace`] unless `reclaim`, [`Error::NoGrace`] if `reclaim`;
    /// [`Error::Invalid`], [`Error::TooLong`], [`Error::Full`], [`Error::ClientLimit`],
    /// [`Error::HostLimit`], [`Error::Delay`].
    pub fn nlm_lock(
        &self,
        host: &impl Host,
        now: Duration,
        args: &NlmLock<'_>,
        wait: Option<u64>,
        reclaim: bool,
    ) -> Result<(), Error> {
        if args.host.len() > crate::OWNER_BYTES_MAX {
            return Err(Error::TooLong("the host's name", crate::OWNER_BYTES_MAX));
        }
        let wanted = Wanted { bytes: Bytes::new(args.offset, args.length)?, exclusive: args.exclusive };
        self.change(host, now, |transaction| {
            match (transaction.in_grace(now), reclaim) {
                (true, false) => return Err(Error::Grace),
                (false, true) => return Err(Error::NoGrace),
                _ => {}
            }
            // Nothing is taken before the conflicts are settled, which may keep some changes.
            let known = transaction.find_nlm_host(args.host)?;
            if let Some(of) = transaction.find_file(args.file)? {
                let owner = match known {
                    Some(known) => transaction.find_owner(known, OwnerClass::Lock, args.owner)?,
                    None => None,
                };
                let way = transaction.clear_way(now, of, owner, wanted);
                if let (Err(Error::Denied(_)), Some(cookie)) = (&way, wait) {
                    transaction.as_favour(|transaction| {
                        let of_client = transaction.use_nlm_host(now, args.host, known)?;
                        transaction.wait_for(now, of_client, of, args.owner, wanted, cookie)
                    })?;
                }
                way?;
            }
            let of_client = transaction.use_nlm_host(now, args.host, known)?;
            let of = transaction.use_file(args.file)?;
            let owner = transaction.use_owner(of_client, OwnerClass::Lock, args.owner)?;
            let record = transaction.use_lock(of_client, of, owner, None)?;
            transaction.set_range(record, wanted.bytes, Some(wanted.exclusive))?;
            let owner = transaction.owning(record, lock::OWNER, Kind::Owner)?;
            let of = transaction.owning(record, lock::FILE, Kind::File)?;
            transaction.end_waiting(of, owner, wanted)?;
            transaction.wake_waiters(of, now)
        })
    }

    /// NLM_TEST.
    ///
    /// # Errors
    /// As [`test_lock`](Self::test_lock).
    pub fn nlm_test(&self, host: &impl Host, now: Duration, args: &NlmLock<'_>) -> Result<(), Error> {
        let wanted = Wanted { bytes: Bytes::new(args.offset, args.length)?, exclusive: args.exclusive };
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
        let bytes = Bytes::new(args.offset, args.length)?;
        self.change(host, now, |transaction| {
            let Some(of_client) = transaction.find_nlm_host(args.host)? else { return Ok(()) };
            let owner = transaction.find_owner(of_client, OwnerClass::Lock, args.owner)?;
            let (Some(owner), Some(of)) = (owner, transaction.find_file(args.file)?) else { return Ok(()) };
            let Some(record) = transaction.find_lock(of, owner, None)? else { return Ok(()) };
            transaction.set_range(record, bytes, None)?;
            if transaction.read(record, lock::RANGE_COUNT)? == 0 {
                // Others wait for what was just unlocked; the file stays until they are told.
                transaction.wake_waiters(of, now)?;
                transaction.drop_lock(record, now)?;
                return transaction.release_nlm_host(of_client);
            }
            transaction.wake_waiters(of, now)
        })
    }

    /// The host has restarted, or freed all (SM_NOTIFY, NLM_FREE_ALL): its locks and requests end.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Damaged`].
    pub fn nlm_forget(&self, host: &impl Host, now: Duration, name: &[u8]) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let known = transaction.find_nlm_host(name)?;
            known.map_or(Ok(()), |known| transaction.kill_client(known))
        })?;
        self.reap_all(host, now)
    }

    /// An NLM host that has locks or waits for some.
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

//! What the server is to do because of the state: call clients back, and write their recovery
//! records. All of it is in the arena until it is done or handed out, so any process may ask.

use crate::State;
use crate::arena::List;
use crate::delegation::Recall;
use crate::error::Error;
use crate::grace::RecoveryRecord;
use crate::host::Host;
use crate::id::ClientId;
use crate::layout::head;
use crate::record::{Kind, client};
use crate::transaction::Transaction;
use crate::waiter::Available;
use crate::words::Words;
use std::time::Duration;

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Write this record to stable storage, then call [`State::persisted`]. Asked again of another
    /// process if this one ends.
    Persist(RecoveryRecord),
    /// Remove the record of a client that has ended. Asked once: a record that stays makes the next
    /// grace period longer, and nothing else.
    Forget(ClientId),
    /// The grace period is over: records of clients that have not reclaimed are void. Asked once.
    GraceEnded,
    /// Recall a delegation. Asked again, of any process, until it is returned or revoked.
    Recall(Recall),
    /// Tell a client that its lock is free now: CB_NOTIFY_LOCK. By NLM, lock for it and call back
    /// GRANTED. Asked once: a client that is not told asks again by itself.
    LockAvailable(Available),
}

const fn forget() -> List {
    List { head: head::FORGET, kind: Kind::Client, link: client::QUEUE }
}

impl<W: Words> Transaction<'_, W> {
    /// Frees the last record of a client that has ended. One whose recovery record is in stable
    /// storage stays until that is to be removed.
    pub fn free_client(&mut self, record: crate::record::Record) -> Result<(), Error> {
        let owner = self.named(record, client::OWNER, Kind::Blob)?;
        self.free_bytes(owner)?;
        self.write(record, client::OWNER, 0)?;
        if let Some(peer) = self.peer_of(record)? {
            self.write(record, client::PEER, 0)?;
            self.release_peer(peer)?;
        }
        let kept = client::PERSISTED | client::PERSIST_ASKED;
        if self.client_flags(record)? & kept != 0 { self.push(forget(), record) } else { self.free(record) }
    }

    fn next_to_forget(&mut self) -> Result<Option<ClientId>, Error> {
        let Some(record) = self.first(forget()) else { return Ok(None) };
        let id = self.client_id(record)?;
        self.unlink(forget(), record)?;
        self.free(record)?;
        Ok(Some(id))
    }

    fn next_work(&mut self, host: &impl Host) -> Result<Option<Output>, Error> {
        if let Some(record) = self.next_to_persist(host)? {
            return Ok(Some(Output::Persist(record)));
        }
        if let Some(id) = self.next_to_forget()? {
            return Ok(Some(Output::Forget(id)));
        }
        if self.words.load(head::GRACE_OVER) != 0 {
            self.set(head::GRACE_OVER, 0)?;
            return Ok(Some(Output::GraceEnded));
        }
        Ok(self.next_notification(host, true)?.map(Output::LockAvailable))
    }

    fn next_call_back(&mut self, host: &impl Host, now: Duration) -> Result<Option<Output>, Error> {
        if let Some(recall) = self.next_recall(host, now)? {
            return Ok(Some(Output::Recall(recall)));
        }
        Ok(self.next_notification(host, false)?.map(Output::LockAvailable))
    }
}

/// Words that say whether there is something to do, or to tell.
const WORK: [usize; 4] = [head::PERSIST, head::FORGET, head::GRACE_OVER, head::NOTIFY];
const CALL_BACKS: [usize; 3] = [head::RECALLS, head::RECALLS_SENT, head::NOTIFY];

impl<W: Words> State<W> {
    /// The next thing to do for this process, if any: ask after each change, and after each
    /// [`tick`](Self::tick). Takes no lock if there is nothing.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Damaged`].
    pub fn poll_output(&self, host: &impl Host, now: Duration) -> Result<Option<Output>, Error> {
        match self.poll_work(host, now)? {
            None => self.poll_call_back(host, now),
            found => Ok(found),
        }
    }

    /// As [`poll_output`](Self::poll_output), of what is to be written to stable storage and the
    /// locks of NLM: for the process of a group that does so.
    ///
    /// # Errors
    /// As [`poll_output`](Self::poll_output).
    pub fn poll_work(&self, host: &impl Host, now: Duration) -> Result<Option<Output>, Error> {
        if self.is_nothing(&WORK) {
            return Ok(None);
        }
        self.change(host, now, |transaction| transaction.next_work(host))
    }

    /// As [`poll_output`](Self::poll_output), of what clients are to be told whose back channels
    /// this process has.
    ///
    /// # Errors
    /// As [`poll_output`](Self::poll_output).
    pub fn poll_call_back(&self, host: &impl Host, now: Duration) -> Result<Option<Output>, Error> {
        if self.is_nothing(&CALL_BACKS) {
            return Ok(None);
        }
        self.change(host, now, |transaction| transaction.next_call_back(host, now))
    }

    /// Whether some client is to be told something that no process has sent yet. Takes no lock.
    #[inline]
    #[must_use]
    pub fn has_call_backs(&self) -> bool {
        !self.is_nothing(&[head::RECALLS, head::NOTIFY])
    }

    fn is_nothing(&self, words: &[usize]) -> bool {
        words.iter().all(|word| self.arena.words.load(*word) == 0)
    }
}

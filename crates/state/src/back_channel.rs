//! Back channels, as far as processes share them: which processes have connections of a session's
//! back channel (BIND_CONN_TO_SESSION, RFC 8881 s18.34), and the slots of call-backs (s2.10.6).

use crate::State;
use crate::arena::{Arena, lower, pair, upper};
use crate::error::Error;
use crate::host::{Host, Owner};
use crate::id::SessionId;
use crate::record::{BACK_PROCESSES_MAX, BACK_SLOTS_MAX, Kind, Record, client, session};
use crate::session::{SessionChannels, Ticket};
use crate::transaction::Transaction;
use crate::words::Words;
use std::time::Duration;

/// A slot for one call-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallBackSlot {
    /// `csa_slotid`.
    pub slot: u32,
    /// `csa_sequenceid`.
    pub sequence: u32,
    /// A process ended while it used the slot: its call-back may have been executed. On
    /// SEQ_FALSE_RETRY or the reply to another call-back, end this one as executed and begin again.
    pub in_doubt: bool,
}

/// How to call a client back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallBackTarget {
    /// `csa_cb_program`.
    pub program: u32,
    /// What the server keeps to call back.
    pub security: Vec<u8>,
}

impl<W: Words> Arena<W> {
    /// Where a process is noted among those with connections.
    pub fn back_place(&self, of: Record, process: Owner) -> Result<Option<usize>, Error> {
        for at in 0..BACK_PROCESSES_MAX {
            if lower(self.read(of, session::BACK_PROCESSES + at)?) == process.number() {
                return Ok(Some(session::BACK_PROCESSES + at));
            }
        }
        Ok(None)
    }

    /// Whether any process has connections of the back channel.
    pub fn reachable_by_any(&self, of: Record) -> Result<Option<()>, Error> {
        Ok((self.read(of, session::BACK_COUNT)? != 0).then_some(()))
    }

    /// Whether any process has connections of the back channel of any of a client's sessions.
    pub fn is_client_reachable(&self, of: Record) -> Result<bool, Error> {
        let sessions = self.list(of, client::SESSIONS, Kind::Session, session::LINK)?;
        Ok(self.find(sessions, |record| Ok(self.reachable_by_any(record)?.is_some()))?.is_some())
    }

    /// Whether a session can carry call-backs, and its client takes them, as far as that is known.
    fn has_sound_back(&self, of: Record) -> Result<bool, Error> {
        let is_faulty = self.read(of, session::FLAGS)? & session::BACK_FAULT != 0;
        Ok(!is_faulty && self.reachable_by_any(of)?.is_some() && self.back_slots(of)? != 0)
    }

    /// Whether a client can be called back on any of its sessions, and takes it.
    pub fn takes_call_backs(&self, of: Record) -> Result<bool, Error> {
        let sessions = self.list(of, client::SESSIONS, Kind::Session, session::LINK)?;
        Ok(self.find(sessions, |record| self.has_sound_back(record))?.is_some())
    }

    /// The session on which this process is to call a client back: one whose back channel works and
    /// has a free slot, else one whose works. One whose client does not answer is for want of any
    /// other, also by way of another process.
    pub fn session_to_call(&self, host: &impl Host, of: Record) -> Result<Option<SessionId>, Error> {
        let sessions = self.list(of, client::SESSIONS, Kind::Session, session::LINK)?;
        let (mut walk, mut busy, mut faulty) = (self.walk(sessions), None, None);
        let mut is_elsewhere = false;
        while let Some(record) = walk.next(self)? {
            let (is_here, is_sound) =
                (self.back_place(record, host.me())?.is_some(), self.has_sound_back(record)?);
            match (is_here, is_sound) {
                (true, true) if self.has_free_slot(record)? => return self.session_id(record).map(Some),
                (true, true) => busy = busy.or(Some(record)),
                (true, false) => faulty = faulty.or(Some(record)),
                (false, _) => is_elsewhere |= is_sound,
            }
        }
        let found = busy.or_else(|| faulty.filter(|_| !is_elsewhere));
        found.map(|record| self.session_id(record)).transpose()
    }

    fn has_free_slot(&self, of: Record) -> Result<bool, Error> {
        for slot in 0..self.back_slots(of)? {
            if lower(self.read(of, session::BACK_SLOTS + slot)?) == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn back_slots(&self, of: Record) -> Result<usize, Error> {
        let mut words = [0; crate::record::CHANNELS_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = self.read(of, session::CHANNELS + at)?;
        }
        Ok((SessionChannels::of_words(words).back.requests as usize).min(BACK_SLOTS_MAX))
    }
}

impl<W: Words> Transaction<'_, W> {
    fn end_back(&mut self, of: Record, place: usize) -> Result<(), Error> {
        self.write(of, place, 0)?;
        self.count(of, session::BACK_COUNT, -1)
    }
}

impl<W: Words> State<W> {
    /// A connection of this process carries call-backs of the session now.
    ///
    /// # Errors
    /// [`Error::BadSession`]; [`Error::ClientLimit`] if 16 processes have such connections.
    pub fn bind_back(&self, host: &impl Host, now: Duration, id: SessionId) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let (record, _) = transaction.live_session(id)?;
            let flags = transaction.read(record, session::FLAGS)?;
            transaction.write(record, session::FLAGS, flags & !session::BACK_FAULT | session::HAS_BACK)?;
            if let Some(place) = transaction.back_place(record, host.me())? {
                let word = transaction.read(record, place)?;
                return transaction.write(record, place, word.saturating_add(1 << 32));
            }
            for at in session::BACK_PROCESSES..session::BACK_PROCESSES + BACK_PROCESSES_MAX {
                let before = Owner::new(lower(transaction.read(record, at)?));
                if before.is_some_and(|before| host.is_alive(before)) {
                    continue;
                }
                transaction.write(record, at, pair(1, host.me().number()))?;
                let more = i64::from(before.is_none());
                return transaction.count(record, session::BACK_COUNT, more);
            }
            Err(Error::ClientLimit(Kind::Session))
        })
    }

    /// A connection of this process that carried call-backs of the session has ended. A session
    /// that is unknown is no error.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Damaged`].
    pub fn unbind_back(&self, host: &impl Host, now: Duration, id: SessionId) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let Ok((record, _)) = transaction.live_session(id) else { return Ok(()) };
            let Some(place) = transaction.back_place(record, host.me())? else { return Ok(()) };
            let word = transaction.read(record, place)?;
            if upper(word) > 1 {
                return transaction.write(record, place, word - (1 << 32));
            }
            transaction.end_back(record, place)
        })
    }

    /// A process has ended: its connections carry no call-backs any more.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Damaged`].
    pub fn forget_process(&self, host: &impl Host, now: Duration, process: Owner) -> Result<(), Error> {
        let ever = self.arena.ever_used(Kind::Session);
        for from in (1..=ever).step_by(256) {
            self.change(host, now, |transaction| {
                for index in from..=ever.min(from + 255) {
                    let record = Record { kind: Kind::Session, index };
                    if !transaction.in_use(record)? {
                        continue;
                    }
                    if let Some(place) = transaction.back_place(record, process)? {
                        transaction.end_back(record, place)?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Forgets the connections of all processes that have ended. Takes no lock if none has.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Damaged`].
    pub fn forget_ended_processes(&self, host: &impl Host, now: Duration) -> Result<(), Error> {
        // A process is asked for once, as that may take a system call.
        let mut known: Vec<Owner> = Vec::new();
        for index in 1..=self.arena.ever_used(Kind::Session) {
            let record = Record { kind: Kind::Session, index };
            if self.arena.read(record, session::BACK_COUNT)? == 0 {
                continue;
            }
            for at in session::BACK_PROCESSES..session::BACK_PROCESSES + BACK_PROCESSES_MAX {
                let process = Owner::new(lower(self.arena.read(record, at)?));
                known.extend(process.filter(|process| !known.contains(process)));
            }
        }
        known.retain(|process| *process != host.me() && !host.is_alive(*process));
        known.into_iter().try_for_each(|process| self.forget_process(host, now, process))
    }

    /// Whether the client of a request can be called back on its session.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn has_back_channel(&self, ticket: &Ticket) -> Result<bool, Error> {
        Ok(self.arena.reachable_by_any(ticket.session())?.is_some())
    }

    /// Notes whether the client of a session answers call-backs as it must:
    /// SEQ4_STATUS_BACKCHANNEL_FAULT. Takes no lock if that is known.
    ///
    /// # Errors
    /// [`Error::BadSession`], [`Error::Busy`], [`Error::Damaged`].
    pub fn set_back_fault(
        &self,
        host: &impl Host,
        now: Duration,
        id: SessionId,
        is_faulty: bool,
    ) -> Result<(), Error> {
        let (record, _) = self.arena.live_session(id)?;
        if (self.arena.read(record, session::FLAGS)? & session::BACK_FAULT != 0) == is_faulty {
            return Ok(());
        }
        self.change(host, now, |transaction| {
            let (record, _) = transaction.live_session(id)?;
            let flags = transaction.read(record, session::FLAGS)? & !session::BACK_FAULT;
            let fault = if is_faulty { session::BACK_FAULT } else { 0 };
            transaction.write(record, session::FLAGS, flags | fault)
        })
    }

    /// How to call a session's client back.
    ///
    /// # Errors
    /// [`Error::BadSession`].
    pub fn call_back_target(
        &self,
        host: &impl Host,
        now: Duration,
        id: SessionId,
    ) -> Result<CallBackTarget, Error> {
        self.change(host, now, |transaction| {
            let (record, _) = transaction.live_session(id)?;
            let program = transaction.read(record, session::CALLBACK_PROGRAM)? as u32;
            let length = transaction.read(record, session::CALLBACK_SECURITY)? as usize;
            let mut security = Vec::new();
            for at in 0..session::CALLBACK_SECURITY_WORDS {
                let word = transaction.read(record, session::CALLBACK_SECURITY + 1 + at)?;
                security.extend_from_slice(&word.to_le_bytes());
            }
            security.truncate(length);
            Ok(CallBackTarget { program, security })
        })
    }

    /// Takes a slot for a call-back; `None` while all of them are in use.
    ///
    /// # Errors
    /// [`Error::BadSession`].
    pub fn begin_call_back(
        &self,
        host: &impl Host,
        now: Duration,
        id: SessionId,
    ) -> Result<Option<CallBackSlot>, Error> {
        self.change(host, now, |transaction| {
            let (record, _) = transaction.live_session(id)?;
            for slot in 0..transaction.back_slots(record)? {
                let field = session::BACK_SLOTS + slot;
                let word = transaction.read(record, field)?;
                let user = Owner::new(lower(word));
                if user.is_some_and(|user| user == host.me() || host.is_alive(user)) {
                    continue;
                }
                transaction.write(record, field, pair(upper(word), host.me().number()))?;
                let sequence = upper(word).wrapping_add(1);
                return Ok(Some(CallBackSlot { slot: slot as u32, sequence, in_doubt: user.is_some() }));
            }
            Ok(None)
        })
    }

    /// Gives a slot back. `executed` says that CB_SEQUENCE succeeded: only then the sequence id
    /// advances.
    ///
    /// # Errors
    /// [`Error::BadSession`], [`Error::BadSlot`].
    pub fn end_call_back(
        &self,
        host: &impl Host,
        now: Duration,
        id: SessionId,
        used: CallBackSlot,
        executed: bool,
    ) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let (record, _) = transaction.live_session(id)?;
            if used.slot as usize >= transaction.back_slots(record)? {
                return Err(Error::BadSlot);
            }
            let field = session::BACK_SLOTS + used.slot as usize;
            let word = transaction.read(record, field)?;
            if lower(word) != host.me().number() {
                return Ok(());
            }
            let sequence = if executed { used.sequence } else { upper(word) };
            transaction.write(record, field, pair(sequence, 0))
        })
    }
}

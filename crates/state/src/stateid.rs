//! What stateids name: TEST_STATEID (RFC 8881 s18.48), FREE_STATEID (s18.38), and the check before
//! READ, WRITE and SETATTR, which takes no lock (s8.2, s18.22, s18.32).

use crate::State;
use crate::arena::Arena;
use crate::client::ClientRef;
use crate::error::Error;
use crate::host::Host;
use crate::id::{INDEX_BITS, LAYOUT, Name, StateId};
use crate::layout::head;
use crate::lock::lock_open;
use crate::open::{Mode, READ, WRITE};
use crate::record::{Kind, Record, client, delegation, lock, open};
use crate::session::Ticket;
use crate::slot::NOTE_WORDS;
use crate::words::Words;
use std::time::Duration;

impl<W: Words> Arena<W> {
    /// The current stateid of a state.
    pub fn state_id(&self, record: Record) -> Result<StateId, Error> {
        let name = Name::of_state(self.epoch, record, self.generation(record)?);
        Ok(StateId { seqid: self.seqid(record)?, other: name.to_bytes() })
    }

    fn seqid(&self, record: Record) -> Result<u32, Error> {
        match record.kind {
            Kind::Open => Ok(self.mode(record)?.seqid),
            Kind::Lock => Ok(self.read(record, lock::SEQID)? as u32),
            // A delegation does not change.
            _ => Ok(1),
        }
    }

    /// The state of one of these kinds that a stateid names for a client. RFC 8881 s8.2.4
    pub fn state_record(&self, of: Record, id: StateId, kinds: &[Kind]) -> Result<Record, Error> {
        if id.is_special() {
            return Err(Error::BadStateId);
        }
        let name = Name::of_bytes(id.other);
        if name.epoch != self.epoch {
            return Err(Error::StaleStateId);
        }
        let record = name.state().filter(|record| kinds.contains(&record.kind));
        let record = record.filter(|record| self.layout.address(*record, 0).is_some());
        let record = record.ok_or(Error::BadStateId)?;
        let field = match record.kind {
            Kind::Open => open::CLIENT,
            Kind::Lock => lock::CLIENT,
            _ => delegation::CLIENT,
        };
        let current = self.seqid(record)?;
        // The header comes last: it shows that all of this belonged to the state.
        let is_its = self.read(record, field)? == u64::from(of.index);
        if !is_its || !self.is_current(record, name.generation)? {
            return Err(Error::BadStateId);
        }
        match id.seqid {
            0 => Ok(record),
            asked if asked == current => Ok(record),
            // Versions wrap around, so the older half is older.
            asked if current.wrapping_sub(asked) < 1 << 31 => Err(Error::OldStateId),
            _ => Err(Error::BadStateId),
        }
    }

    /// What the state allows, and its file.
    fn io_mode(&self, record: Record) -> Result<(u8, Record), Error> {
        match record.kind {
            Kind::Open => Ok((self.mode(record)?.access, self.owning(record, open::FILE, Kind::File)?)),
            Kind::Lock => {
                let of = self.owning(record, lock::FILE, Kind::File)?;
                let open = lock_open(self, record)?.ok_or(Error::BadStateId)?;
                Ok((self.mode(open)?.access, of))
            }
            _ => Ok((READ, self.owning(record, delegation::FILE, Kind::File)?)),
        }
    }

    /// What the state allows, whether it is revoked, and whether it is that of a file.
    fn io_facts(&self, record: Record, file: &[u8]) -> Result<(u8, bool, bool), Error> {
        let (allowed, of_file) = self.io_mode(record)?;
        Ok((allowed, self.is_revoked(record)?, self.file_is(of_file, file)?))
    }
}

impl<W: Words> State<W> {
    /// The stateid of a client's layout of a file: the same one while the arena lasts, because
    /// nothing is kept of layouts. It names no state, so it allows nothing.
    #[must_use]
    pub fn layout_id(&self, of: ClientRef, file: &[u8]) -> [u8; 12] {
        let client = u64::from(of.generation) << 32 | u64::from(of.index);
        let hash = self.arena.hash(&[file, &client.to_be_bytes()].concat(), LAYOUT.into());
        let place = LAYOUT << INDEX_BITS | (hash >> 32) as u32 & ((1 << INDEX_BITS) - 1);
        Name { epoch: self.arena.epoch, place, generation: hash as u32 }.to_bytes()
    }

    /// Whether a stateid allows a client to read or write a file. Takes no lock for the stateids of
    /// states; a READ is also allowed by an open for writing only, which RFC 8881 s18.22.4 leaves
    /// to the server and page caches need.
    ///
    /// # Errors
    /// [`Error::BadStateId`], [`Error::OldStateId`], [`Error::StaleStateId`], [`Error::Expired`],
    /// [`Error::OpenMode`], [`Error::DelegationRevoked`]; for special stateids those of
    /// [`check_io`](Self::check_io).
    pub fn check_state_io(
        &self,
        host: &impl Host,
        now: Duration,
        of: ClientRef,
        id: StateId,
        file: &[u8],
        access: u8,
    ) -> Result<(), Error> {
        if id.is_special() {
            return self.check_io(host, now, Some(of), file, access);
        }
        self.check_state(of, id, &[Kind::Open, Kind::Lock, Kind::Delegation], file, access)
    }

    /// Whether a stateid is that of a delegation which allows a client to open a file so.
    ///
    /// # Errors
    /// As [`check_state_io`](Self::check_state_io) of states.
    pub fn check_delegation(&self, of: ClientRef, id: StateId, file: &[u8], access: u8) -> Result<(), Error> {
        self.check_state(of, id, &[Kind::Delegation], file, access)
    }

    fn check_state(
        &self,
        of: ClientRef,
        id: StateId,
        kinds: &[Kind],
        file: &[u8],
        access: u8,
    ) -> Result<(), Error> {
        let record = self.arena.live_client(of)?;
        let state = self.arena.state_record(record, id, kinds)?;
        let found = self.arena.io_facts(state, file);
        // The state may have ended meanwhile, and its records may be others': then neither what was
        // found nor an error means anything.
        self.arena.state_record(record, id, kinds)?;
        let (allowed, is_revoked, is_same_file) = found?;
        if !is_same_file {
            return Err(Error::BadStateId);
        }
        if is_revoked {
            return Err(Error::DelegationRevoked);
        }
        if access & WRITE != 0 && allowed & WRITE == 0 { Err(Error::OpenMode) } else { Ok(()) }
    }

    /// Whether [`check_io`](Self::check_io) of other protocols could refuse anything: whether any
    /// open denies something. Takes no lock.
    #[inline]
    #[must_use]
    pub fn denies_anything(&self) -> bool {
        self.arena.words.load(head::DENIALS) != 0
    }

    /// Whether somebody without an open may read or write a file: I/O with a special stateid, and
    /// other protocols'. Takes no lock while nobody denies anything of the file. A change needs
    /// [`begin_change`](Self::begin_change) too.
    ///
    /// # Errors
    /// [`Error::ShareDenied`], [`Error::Delay`] while silent clients' opens are dropped,
    /// [`Error::Grace`], [`Error::Busy`].
    pub fn check_io(
        &self,
        host: &impl Host,
        now: Duration,
        of: Option<ClientRef>,
        file: &[u8],
        access: u8,
    ) -> Result<(), Error> {
        // Other protocols have no way to reclaim; their I/O goes on.
        if of.is_some() && self.arena.in_grace(now) {
            return Err(Error::Grace);
        }
        if !self.denies_anything() || !self.arena.may_be_denied(self.arena.file_hash(file)) {
            return Ok(());
        }
        self.in_rounds(host, now, |transaction| {
            let Some(of_file) = transaction.find_file(file)? else { return Ok(()) };
            let asked = Mode { seqid: 0, access, deny: 0 };
            transaction.clear_shares(now, of_file, asked, None)
        })
    }

    /// TEST_STATEID: `Ok` if the state is there. It is not an error to ask for what is not.
    ///
    /// # Errors
    /// [`Error::BadStateId`], [`Error::OldStateId`], [`Error::DelegationRevoked`],
    /// [`Error::Expired`] for the client; never [`Error::StaleStateId`].
    pub fn test_state(
        &self,
        host: &impl Host,
        now: Duration,
        of: ClientRef,
        id: StateId,
    ) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let record = transaction.live_client(of)?;
            let kinds = [Kind::Open, Kind::Lock, Kind::Delegation];
            let state = transaction.state_record(record, id, &kinds).map_err(|error| match error {
                Error::StaleStateId => Error::BadStateId,
                other => other,
            })?;
            if transaction.is_revoked(state)? { Err(Error::DelegationRevoked) } else { Ok(()) }
        })
    }

    /// FREE_STATEID: of locks that hold no range, and of a revoked delegation.
    ///
    /// # Errors
    /// [`Error::LocksHeld`] for opens and for locks with ranges; [`Error::BadStateId`],
    /// [`Error::OldStateId`], [`Error::StaleStateId`], [`Error::Expired`].
    pub fn free_state(
        &self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        id: StateId,
    ) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let of = transaction.live_client(ticket.client())?;
            let state = transaction.state_record(of, id, &[Kind::Open, Kind::Lock, Kind::Delegation])?;
            match state.kind {
                Kind::Lock if transaction.read(state, lock::RANGE_COUNT)? == 0 => {
                    transaction.drop_lock(state, now)?;
                }
                Kind::Delegation if transaction.is_revoked(state)? => {
                    transaction.count(of, client::REVOKED_COUNT, -1)?;
                    transaction.drop_lost_delegation(state)?;
                }
                _ => return Err(Error::LocksHeld),
            }
            transaction.commit_step(ticket, [0; NOTE_WORDS])
        })
    }
}

//! Sessions: CREATE_SESSION (RFC 8881 s18.36), DESTROY_SESSION (s18.37), SEQUENCE (s18.46), and the
//! part of BIND_CONN_TO_SESSION (s18.34) that all processes share: who can call back.

mod channels;

pub use channels::{ChannelAttributes, SessionChannels};

use crate::arena::{Arena, IN_USE, List, SESSIONS, lower, pair, upper};
use crate::client::ClientRef;
use crate::error::Error;
use crate::host::Host;
use crate::id::{ClientId, SessionId};
use crate::layout::head;
use crate::record::{CHANNELS_WORDS, CHUNK_SLOTS, Kind, Record, SESSION_CHUNKS_MAX, client, session, slot};
use crate::slot::{Begun, NOTE_WORDS, Progress, SlotAt, SlotWord};
use crate::transaction::{Transaction, words_of};
use crate::words::Words;
use crate::{OWNER_BYTES_MAX, State};
use std::time::Duration;

/// Bytes of what a server keeps to call a client back.
pub const CALLBACK_SECURITY_BYTES_MAX: usize = session::CALLBACK_SECURITY_WORDS * 8;

/// Sessions that are freed before a client is told that it has too many.
const REAP_SESSIONS: usize = 64;

/// CREATE_SESSION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateSessionArgs<'a> {
    /// `csa_clientid`.
    pub client: ClientId,
    /// `csa_sequence`.
    pub sequence: u32,
    /// The digest of the credential, as in EXCHANGE_ID.
    pub principal: u64,
    /// What the client asks for.
    pub asked: SessionChannels,
    /// The most that the server grants.
    pub limits: SessionChannels,
    /// `csa_cb_program`.
    pub callback_program: u32,
    /// What the server keeps to call back, 64 bytes at most.
    pub callback_security: &'a [u8],
    /// Why the server refuses the request whatever the state says. The refusal is kept as the
    /// reply, as a session is.
    pub refused: Option<SessionRefusal>,
}

/// Why a server refuses to create a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRefusal {
    /// A channel is too small for what the server sends on it.
    TooSmall,
    /// The request has flags that are not known.
    Flags,
}

/// The new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateSession {
    /// `csr_sessionid`.
    pub session: SessionId,
    /// `csr_sequence`.
    pub sequence: u32,
    /// The attributes that were granted.
    pub granted: SessionChannels,
}

/// SEQUENCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceArgs {
    /// `sa_sessionid`.
    pub session: SessionId,
    /// `sa_slotid`.
    pub slot: u32,
    /// `sa_sequenceid`.
    pub sequence: u32,
    /// A digest of the whole request without `sa_highest_slotid` and `sa_cachethis`, and of its
    /// credential. RFC 8881 s2.10.6.1.3.1
    pub digest: u64,
}

/// A request that this process executes. It must be given to [`State::finish`] in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    client: ClientRef,
    session: Record,
    at: SlotAt,
    sequence: u32,
}

impl Ticket {
    /// The client that sent the request.
    #[must_use]
    pub const fn client(&self) -> ClientRef {
        self.client
    }

    pub(crate) const fn session(&self) -> Record {
        self.session
    }
}

/// What to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sequence {
    /// Execute it, then [`finish`](State::finish) it.
    Run(Ticket),
    /// A process that has ended began it. Go on after the operations that are done, then
    /// [`finish`](State::finish) it.
    Continue(Ticket, Progress),
    /// It was executed: send this reply. The slot ids and flags of its SEQUENCE must be replaced by
    /// the current ones.
    Replay(Vec<u8>),
    /// It was executed, and its reply was not kept. RETRY_UNCACHED_REP
    ReplayUncached,
}

/// What the reply to SEQUENCE says of the session, now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// `sr_highest_slotid` and `sr_target_highest_slotid`.
    pub highest_slot: u32,
    /// `sr_status_flags`: the bits SEQ4_STATUS_* of RFC 8881 s18.46.1.
    pub flags: u32,
}

impl Status {
    /// SEQ4_STATUS_CB_PATH_DOWN
    pub const CB_PATH_DOWN: u32 = 0x1;
    /// SEQ4_STATUS_RECALLABLE_STATE_REVOKED
    pub const RECALLABLE_STATE_REVOKED: u32 = 0x40;
    /// SEQ4_STATUS_CB_PATH_DOWN_SESSION
    pub const CB_PATH_DOWN_SESSION: u32 = 0x200;
    /// SEQ4_STATUS_BACKCHANNEL_FAULT
    pub const BACKCHANNEL_FAULT: u32 = 0x400;
}

/// The index and generation in a session's id.
fn place_of(id: SessionId) -> (u32, u32) {
    let number = |at: usize| id.0[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    (number(0), number(4))
}

impl<W: Words> Arena<W> {
    pub fn session_id(&self, record: Record) -> Result<SessionId, Error> {
        Ok(self.session_id_of(record.index, self.generation(record)?))
    }

    fn session_id_of(&self, index: u32, generation: u32) -> SessionId {
        let place = pair(index, generation).to_be_bytes();
        // Nobody can guess another client's session, from however many of its own; and none of an
        // earlier arena, whose key was another.
        let code = self.secret.code(SESSIONS, &place).to_be_bytes();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&place);
        bytes[8..].copy_from_slice(&code);
        SessionId(bytes)
    }

    /// The record of a session that is still served, and its client.
    pub fn live_session(&self, id: SessionId) -> Result<(Record, Record), Error> {
        let (index, generation) = place_of(id);
        let record = Record { kind: Kind::Session, index };
        if id != self.session_id_of(index, generation) || self.layout.address(record, 0).is_none() {
            return Err(Error::BadSession);
        }
        let of = self.named(record, session::CLIENT, Kind::Client)?;
        // The header comes last: it shows that the client was that of the session.
        self.check_session(record, generation)?;
        Ok((record, of.ok_or(Error::BadSession)?))
    }

    /// Whether a session that was found is still served.
    fn check_session(&self, record: Record, generation: u32) -> Result<(), Error> {
        let is_dying = self.read(record, session::FLAGS)? & session::DYING != 0;
        let is_served = !is_dying && self.is_current(record, generation)?;
        if is_served { Ok(()) } else { Err(Error::BadSession) }
    }

    pub fn slot_at(&self, of: Record, slot: u32) -> Result<SlotAt, Error> {
        let slot = slot as usize;
        let count = self.read(of, session::SLOT_COUNT)? as usize;
        if slot >= count.min(CHUNK_SLOTS * SESSION_CHUNKS_MAX) {
            return Err(Error::BadSlot);
        }
        let chunk = self.owning(of, session::CHUNKS + slot / CHUNK_SLOTS, Kind::Chunk)?;
        let reply_words = (self.layout.config.bounds.reply_bytes as usize).div_ceil(8);
        let field = 1 + slot % CHUNK_SLOTS * (slot::REPLY + reply_words);
        // The chunk ends behind its last slot's reply.
        self.address(chunk, field + slot::REPLY + reply_words - 1)?;
        Ok(SlotAt { address: self.address(chunk, field)?, reply_bytes: reply_words * 8 })
    }

    /// What the last CREATE_SESSION of a client made, or why it was refused.
    fn created(
        &self,
        of: Record,
        outcome: u32,
    ) -> Result<Result<(SessionId, SessionChannels), Error>, Error> {
        if let Some(refusal) = Created::refusal(outcome) {
            return Ok(Err(refusal));
        }
        let made = self.read(of, client::CREATED)?;
        let mut words = [0; CHANNELS_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = self.read(of, client::CREATED_CHANNELS + at)?;
        }
        let session = self.session_id_of(upper(made), lower(made));
        Ok(Ok((session, SessionChannels::of_words(words))))
    }

    /// Whether the memory of a session may be used again.
    fn session_is_idle(&self, host: &impl Host, of: Record) -> Result<bool, Error> {
        let count = self.read(of, session::SLOT_COUNT)? as u32;
        for number in 0..count.min((CHUNK_SLOTS * SESSION_CHUNKS_MAX) as u32) {
            if !self.slot_is_idle(host, self.slot_at(of, number)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<W: Words> Transaction<'_, W> {
    fn new_session(&mut self, of: Record, args: &CreateSessionArgs<'_>) -> Result<Record, Error> {
        let bounds = &self.layout.config.bounds;
        let (per_session, reply_bytes) = (bounds.slots_per_session, bounds.reply_bytes);
        let peer = self.peer_of(of)?;
        self.charge(peer, Kind::Session, 1)?;
        let record = self.allocate(Kind::Session)?;
        if let Some(peer) = peer {
            self.count(peer, crate::record::peer::USES, 1)?;
            self.write(record, session::PEER, u64::from(peer.index))?;
        }
        let mut granted = args.asked.within(&args.limits);
        granted.fore.cached_bytes = granted.fore.cached_bytes.min(reply_bytes);
        let wanted = granted.fore.requests.min(per_session).div_ceil(CHUNK_SLOTS as u32).max(1);
        let mut chunks = 0;
        // The first block of slots must be there. More of them only while half are free, so that
        // many clients get few slots rather than few clients many.
        let has_spare = |this: &Self| -> Result<bool, Error> {
            Ok(this.has_spare_chunks() && this.is_half_empty(peer, Kind::Chunk)?)
        };
        while chunks < wanted && (chunks == 0 || has_spare(self)?) {
            self.charge(peer, Kind::Chunk, 1)?;
            let chunk = self.allocate(Kind::Chunk)?;
            self.write(record, session::CHUNKS + chunks as usize, u64::from(chunk.index))?;
            chunks += 1;
        }
        granted.fore.requests =
            granted.fore.requests.min(per_session).min(chunks * CHUNK_SLOTS as u32).max(1);
        self.write(record, session::SLOT_COUNT, u64::from(granted.fore.requests))?;
        let free = SlotWord::free(self.generation(record)?);
        for number in 0..granted.fore.requests {
            let at = self.slot_at(record, number)?;
            self.set(at.address + slot::WORD, free)?;
            self.set(at.address + slot::PROGRESS, 0)?;
        }
        for (at, word) in granted.to_words().into_iter().enumerate() {
            self.write(record, session::CHANNELS + at, word)?;
        }
        let back = if granted.back_channel { session::HAS_BACK } else { 0 };
        self.write(record, session::FLAGS, back)?;
        self.write(record, session::CLIENT, pair(self.generation(of)?, of.index))?;
        self.write(record, session::PRINCIPAL, args.principal)?;
        self.set_callback(record, args.callback_program, args.callback_security)?;
        let sessions = self.list(of, client::SESSIONS, Kind::Session, session::LINK)?;
        self.push(sessions, record)?;
        self.count(of, client::SESSION_COUNT, 1)?;
        Ok(record)
    }

    /// Whether a client has as many sessions as it may have. Those that have ended and are still in
    /// use count.
    fn has_all_sessions(&self, of: Record) -> Result<bool, Error> {
        let ended = self.read(of, client::DYING_SESSION_COUNT)?;
        let count = self.read(of, client::SESSION_COUNT)?.saturating_add(ended);
        Ok(count >= u64::from(self.layout.config.bounds.sessions_per_client))
    }

    fn has_spare_chunks(&self) -> bool {
        self.used(Kind::Chunk) * 2 < u64::from(self.layout.count(Kind::Chunk))
    }

    fn set_callback(&mut self, record: Record, program: u32, security: &[u8]) -> Result<(), Error> {
        self.write(record, session::CALLBACK_PROGRAM, u64::from(program))?;
        self.write(record, session::CALLBACK_SECURITY, security.len() as u64)?;
        let words = words_of::<{ session::CALLBACK_SECURITY_WORDS }>(security);
        for (at, word) in words.into_iter().enumerate() {
            self.write(record, session::CALLBACK_SECURITY + 1 + at, word)?;
        }
        Ok(())
    }

    /// Ends a session: it answers no more. Its memory is freed once none of its requests is
    /// running.
    pub fn kill_session(&mut self, of: Record, record: Record) -> Result<(), Error> {
        let sessions = self.list(of, client::SESSIONS, Kind::Session, session::LINK)?;
        self.unlink(sessions, record)?;
        self.count(of, client::SESSION_COUNT, -1)?;
        self.count(of, client::DYING_SESSION_COUNT, 1)?;
        self.push(dying_sessions(), record)?;
        let flags = self.address(record, session::FLAGS)?;
        // Ordered before the slots are looked at: see `State::sequence`.
        self.set_fenced(flags, self.words.load(flags) | session::DYING)
    }

    /// Frees sessions that have ended, except those with running requests, which go to the end of
    /// the queue. Looks at no more than `most`; returns how many were freed.
    pub fn reap_sessions(&mut self, host: &impl Host, most: usize) -> Result<usize, Error> {
        let (mut walk, mut looked_at) = (self.walk(dying_sessions()), Vec::new());
        while let Some(record) = walk.next(self)? {
            looked_at.push(record);
            if looked_at.len() >= most {
                break;
            }
        }
        let mut freed = 0;
        for record in looked_at {
            self.unlink(dying_sessions(), record)?;
            if self.session_is_idle(host, record)? {
                self.free_session(record)?;
                freed += 1;
            } else {
                self.push(dying_sessions(), record)?;
            }
            self.checkpoint();
        }
        Ok(freed)
    }

    fn free_session(&mut self, record: Record) -> Result<(), Error> {
        let peer = self.named(record, session::PEER, Kind::Peer)?;
        for at in 0..SESSION_CHUNKS_MAX {
            if let Some(chunk) = self.named(record, session::CHUNKS + at, Kind::Chunk)? {
                self.free(chunk)?;
                self.discharge(peer, Kind::Chunk, 1)?;
            }
        }
        self.discharge(peer, Kind::Session, 1)?;
        peer.map_or(Ok(()), |peer| self.release_peer(peer))?;
        let name = self.read(record, session::CLIENT)?;
        let of = Record { kind: Kind::Client, index: lower(name) };
        if self.is_current(of, upper(name))? {
            self.count(of, client::DYING_SESSION_COUNT, -1)?;
        }
        self.free(record)
    }

    /// Notes in the request's slot, as part of the change, that its next operation is done. `note`
    /// is its result, for a process that goes on after this one's death.
    pub fn commit_step(&mut self, ticket: &Ticket, note: [u64; NOTE_WORDS]) -> Result<(), Error> {
        self.slot_commit(ticket.at, ticket.sequence, note)
    }

    /// Adds a word to the note of the operation that was committed last.
    pub fn add_to_note(&mut self, ticket: &Ticket, place: usize, word: u64) -> Result<(), Error> {
        self.set(ticket.at.address + slot::NOTE + place, word)
    }
}

const fn dying_sessions() -> List {
    List { head: head::DYING_SESSIONS, kind: Kind::Session, link: session::LINK }
}

/// How the last CREATE_SESSION of a client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Created {
    Nothing = 0,
    Session = 1,
    TooSmall = 2,
    Flags = 3,
    Limit = 4,
}

impl Created {
    /// Why there is no session.
    const fn refusal(outcome: u32) -> Option<Error> {
        const TOO_SMALL: u32 = Created::TooSmall as u32;
        const FLAGS: u32 = Created::Flags as u32;
        const LIMIT: u32 = Created::Limit as u32;
        match outcome {
            TOO_SMALL => Some(Error::TooSmall),
            FLAGS => Some(Error::Invalid("CREATE_SESSION has unknown flags")),
            LIMIT => Some(Error::ClientLimit(Kind::Session)),
            _ => None,
        }
    }
}

impl<W: Words> State<W> {
    /// CREATE_SESSION. Confirms the client, which only the principal of its EXCHANGE_ID may; ends
    /// an older incarnation of it; and renews its lease. RFC 8881 s18.36.4
    ///
    /// A refusal that a later try would meet again takes the sequence id and is kept as the reply.
    /// Whoever may not confirm the client changes nothing.
    ///
    /// # Errors
    /// Kept: [`Error::TooSmall`], [`Error::Invalid`], [`Error::ClientLimit`]. Not kept:
    /// [`Error::StaleClientId`], [`Error::SeqMisordered`], [`Error::ClientIdInUse`],
    /// [`Error::PeerLimit`], [`Error::Full`].
    pub fn create_session(
        &self,
        host: &impl Host,
        now: Duration,
        args: &CreateSessionArgs<'_>,
    ) -> Result<CreateSession, Error> {
        if args.callback_security.len() > CALLBACK_SECURITY_BYTES_MAX {
            return Err(Error::TooLong("the call-back security", CALLBACK_SECURITY_BYTES_MAX));
        }
        let created = self.change(host, now, |transaction| {
            let of = transaction.client_by_id(args.client)?.ok_or(Error::StaleClientId)?;
            let last = transaction.read(of, client::CREATE_SESSION)?;
            if args.sequence == upper(last) && lower(last) != Created::Nothing as u32 {
                return transaction.created(of, lower(last));
            }
            if args.sequence != upper(last).wrapping_add(1) {
                return Err(Error::SeqMisordered);
            }
            // Further sessions of a confirmed client may be another principal's.
            let is_its = transaction.read(of, client::PRINCIPAL)? == args.principal;
            if !is_its && !transaction.has_flag(of, client::CONFIRMED)? {
                return Err(Error::ClientIdInUse);
            }
            if transaction.has_all_sessions(of)? {
                // Some may have ended, and only wait to be freed.
                transaction.reap_sessions(host, REAP_SESSIONS)?;
            }
            let outcome = create_session(transaction, now, of, args)?;
            transaction.write(of, client::CREATE_SESSION, pair(args.sequence, outcome as u32))?;
            transaction.created(of, outcome as u32)
        });
        let (session, granted) = created??;
        Ok(CreateSession { session, sequence: args.sequence, granted })
    }

    /// DESTROY_SESSION. Requests that are running on the session end as they would have.
    ///
    /// # Errors
    /// [`Error::BadSession`].
    pub fn destroy_session(&self, host: &impl Host, now: Duration, id: SessionId) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let (record, of) = transaction.live_session(id)?;
            transaction.kill_session(of, record)
        })
    }

    /// Whether a principal may end a session, or give it connections: the one that created it, and
    /// the one that introduced its client. Anybody may send requests on it, as state protection is
    /// not built. RFC 8881 s2.10.8.3
    ///
    /// # Errors
    /// [`Error::BadSession`], [`Error::WrongCredential`].
    pub fn may_control(&self, id: SessionId, principal: u64) -> Result<(), Error> {
        let (record, of) = self.arena.live_session(id)?;
        let creator = self.arena.read(record, session::PRINCIPAL)?;
        let owner = self.arena.read(of, client::PRINCIPAL)?;
        // The session may have ended meanwhile, and its memory may be another's.
        self.arena.check_session(record, place_of(id).1)?;
        if creator == principal || owner == principal { Ok(()) } else { Err(Error::WrongCredential) }
    }

    /// BACKCHANNEL_CTL: how to call back from now on.
    ///
    /// # Errors
    /// [`Error::BadSession`], [`Error::TooLong`].
    pub fn set_callback(
        &self,
        host: &impl Host,
        now: Duration,
        id: SessionId,
        program: u32,
        security: &[u8],
    ) -> Result<(), Error> {
        if security.len() > CALLBACK_SECURITY_BYTES_MAX {
            return Err(Error::TooLong("the call-back security", CALLBACK_SECURITY_BYTES_MAX));
        }
        self.change(host, now, |transaction| {
            let (record, _) = transaction.live_session(id)?;
            transaction.set_callback(record, program, security)
        })
    }

    /// SEQUENCE: decides about a request, takes its slot, and renews the lease. Takes no lock.
    ///
    /// # Errors
    /// [`Error::BadSession`], [`Error::BadSlot`], [`Error::SeqMisordered`],
    /// [`Error::SeqFalseRetry`], [`Error::InProgress`]. None of them advances the slot.
    pub fn sequence(&self, host: &impl Host, now: Duration, args: &SequenceArgs) -> Result<Sequence, Error> {
        let (record, of) = self.arena.live_session(args.session)?;
        // If the session ends meanwhile, its memory may be another's: then errors mean nothing.
        let check = || self.arena.check_session(record, place_of(args.session).1);
        let or_ended = |error| check().err().unwrap_or(error);
        let client = self.arena.client_ref(of).map_err(or_ended)?;
        let at = self.arena.slot_at(record, args.slot).map_err(or_ended)?;
        let begun = self.arena.slot_begin(host, at, args.sequence, args.digest, check);
        let (begun, before) = begun.map_err(or_ended)?;
        // The session may have ended since it was found. Its end is ordered before the look at its
        // slots, and the slot was taken before this look at the session: one sees the other.
        if check().is_err() {
            if matches!(begun, Begun::Run | Begun::Continue(_)) {
                self.arena.slot_forget(host, at, args.sequence, before);
            }
            return Err(Error::BadSession);
        }
        self.arena.renew(of, now)?;
        let ticket = Ticket { client, session: record, at, sequence: args.sequence };
        Ok(match begun {
            Begun::Run => {
                self.arena.slot_describe(at, args.sequence, args.digest);
                Sequence::Run(ticket)
            }
            Begun::Continue(progress) => Sequence::Continue(ticket, progress),
            Begun::Replay(reply) => Sequence::Replay(reply),
            Begun::ReplayUncached => Sequence::ReplayUncached,
        })
    }

    /// What the reply to SEQUENCE says of a session.
    ///
    /// # Errors
    /// [`Error::BadSession`].
    pub fn status(&self, id: SessionId) -> Result<Status, Error> {
        let (record, of) = self.arena.live_session(id)?;
        let count = self.arena.read(record, session::SLOT_COUNT)? as u32;
        let mut flags = 0;
        if self.arena.read(of, client::REVOKED_COUNT)? != 0 {
            flags |= Status::RECALLABLE_STATE_REVOKED;
        }
        let session_flags = self.arena.read(record, session::FLAGS)?;
        if session_flags & session::BACK_FAULT != 0 {
            flags |= Status::BACKCHANNEL_FAULT;
        }
        if session_flags & session::HAS_BACK != 0 && self.arena.reachable_by_any(record)?.is_none() {
            flags |= Status::CB_PATH_DOWN_SESSION;
            if !self.arena.is_client_reachable(of)? {
                flags |= Status::CB_PATH_DOWN;
            }
        }
        Ok(Status { highest_slot: count.saturating_sub(1), flags })
    }

    /// What a session was granted. Takes no lock.
    ///
    /// # Errors
    /// [`Error::BadSession`].
    pub fn channels(&self, id: SessionId) -> Result<SessionChannels, Error> {
        let (record, _) = self.arena.live_session(id)?;
        let mut words = [0; CHANNELS_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = self.arena.read(record, session::CHANNELS + at)?;
        }
        // The session may have ended meanwhile, and its memory may be another's.
        self.arena.check_session(record, place_of(id).1)?;
        Ok(SessionChannels::of_words(words))
    }

    /// Notes that the next operation of a request begins, whose effect is outside of the arena,
    /// with what a survivor needs to find out whether it was done. A survivor calls this only after
    /// it has found that the operation was not done. Returns false if the request is no longer this
    /// process's: then it must not be executed.
    pub fn start_operation(&self, host: &impl Host, ticket: &Ticket, note: [u64; NOTE_WORDS]) -> bool {
        self.arena.slot_start_operation(host, ticket.at, ticket.sequence, note)
    }

    /// Notes, in one step, that the next `operations` operations of a request are done, with their
    /// encoded results. Returns false if the results do not fit
    /// [`STEP_RESULT_BYTES`](crate::STEP_RESULT_BYTES): then no further operation of the request
    /// may change anything.
    pub fn end_operations(&self, host: &impl Host, ticket: &Ticket, operations: u32, results: &[u8]) -> bool {
        self.arena.slot_end_operations(host, ticket.at, ticket.sequence, operations, results)
    }

    /// Ends a request, before its reply is sent. `reply` is what a retry is answered with; `None`
    /// if the client did not ask to keep it and repeating the request would be refused. Returns
    /// false if the request is no longer this process's: then the reply must not be sent.
    pub fn finish(&self, host: &impl Host, ticket: &Ticket, reply: Option<&[u8]>) -> bool {
        self.arena.slot_finish(host, ticket.at, ticket.sequence, reply)
    }

    /// The session of a request.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn session_of(&self, ticket: &Ticket) -> Result<SessionId, Error> {
        self.arena.session_id(ticket.session)
    }
}

fn create_session<W: Words>(
    transaction: &mut Transaction<'_, W>,
    now: Duration,
    of: Record,
    args: &CreateSessionArgs<'_>,
) -> Result<Created, Error> {
    match args.refused {
        Some(SessionRefusal::Flags) => return Ok(Created::Flags),
        Some(SessionRefusal::TooSmall) => return Ok(Created::TooSmall),
        None if !args.asked.are_usable() => return Ok(Created::TooSmall),
        None => {}
    }
    if transaction.has_all_sessions(of)? {
        return Ok(Created::Limit);
    }
    let flags = transaction.client_flags(of)?;
    if flags & client::CONFIRMED == 0 {
        let owner = transaction.client_owner(of)?;
        if owner.len() > OWNER_BYTES_MAX {
            return Err(Error::Damaged("a string is too long"));
        }
        let hash = transaction.owner_hash(&owner);
        if let Some(old) = transaction.client_by_owner(&owner, client::CONFIRMED, hash)? {
            // Kept even if there is no room for the new one's session: what the old one had is
            // then freed for it.
            transaction.kill_client(old)?;
            transaction.checkpoint();
        }
        transaction.leave_unconfirmed(of)?;
        transaction.charge(transaction.peer_of(of)?, Kind::Client, 1)?;
        let reclaim = transaction.reclaim_flags(of, &owner)?;
        transaction.write(of, client::FLAGS, flags | client::CONFIRMED | reclaim)?;
    }
    let record = transaction.new_session(of, args)?;
    let generation = transaction.generation(record)?;
    transaction.write(of, client::CREATED, pair(record.index, generation))?;
    for at in 0..CHANNELS_WORDS {
        let word = transaction.read(record, session::CHANNELS + at)?;
        transaction.write(of, client::CREATED_CHANNELS + at, word)?;
    }
    transaction.renew(of, now)?;
    Ok(Created::Session)
}

// A header says "in use" with its lowest bit.
const _: () = assert!(IN_USE == 1);

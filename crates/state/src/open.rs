//! Opens and share reservations: OPEN (RFC 8881 s18.16), OPEN_DOWNGRADE (s18.18), CLOSE (s18.2).
//!
//! One open owner has one open of a file, whose access and deny are the unions of what it asked
//! for. Counters in the file's record say whether a new open conflicts; only after a conflict are
//! the opens looked at, to drop those of clients whose lease has ended.

use crate::State;
use crate::arena::{Arena, List, lower, pair, upper};
use crate::client::ClientRef;
use crate::error::Error;
use crate::file::{OwnerClass, ReadWrite};
use crate::host::Host;
use crate::id::StateId;
use crate::layout::{Table, head};
use crate::record::{Kind, Record, client, delegation, file, lock, open};
use crate::session::Ticket;
use crate::slot::NOTE_WORDS;
use crate::transaction::Transaction;
use crate::words::Words;
use std::time::Duration;

/// OPEN4_SHARE_ACCESS_READ and OPEN4_SHARE_DENY_READ.
pub const READ: u8 = 1;
/// OPEN4_SHARE_ACCESS_WRITE and OPEN4_SHARE_DENY_WRITE.
pub const WRITE: u8 = 2;

/// States of ended clients that one operation drops; if there are more, it asks to try again.
pub(crate) const DROPS_MAX: usize = 64;

/// OPEN, after the name was resolved and the file created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenArgs<'a> {
    /// The open owner, up to [`OWNER_BYTES_MAX`](crate::OWNER_BYTES_MAX) bytes.
    pub owner: &'a [u8],
    /// The name of the file, up to [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX) bytes, the same for
    /// all its handles.
    pub file: &'a [u8],
    /// [`READ`], [`WRITE`] or both.
    pub access: u8,
    /// [`READ`], [`WRITE`], both or 0.
    pub deny: u8,
    /// CLAIM_PREVIOUS: the client had the file open before the restart.
    pub reclaim: bool,
    /// The file was just created for this OPEN, which would find it if it was asked for again: a
    /// delegation that is in the way is recalled, and not waited for. Changes wait for it.
    pub created: bool,
}

/// What the owner of an open had before; nothing if the open is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndoOpen(Option<(Mode, u64)>);

/// Access and deny of an open, and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    pub seqid: u32,
    pub access: u8,
    pub deny: u8,
}

impl Mode {
    pub const fn of(word: u64) -> Self {
        Self { seqid: upper(word), access: word as u8 & 3, deny: word as u8 >> 2 & 3 }
    }

    const fn word(self) -> u64 {
        pair(self.seqid, (self.access | self.deny << 2) as u32)
    }
}

/// The next version of a state; 0 is not a version. RFC 8881 s8.2.2
pub(crate) const fn next_seqid(seqid: u32) -> u32 {
    if seqid == u32::MAX { 1 } else { seqid + 1 }
}

impl<W: Words> Arena<W> {
    pub fn mode(&self, record: Record) -> Result<Mode, Error> {
        Ok(Mode::of(self.read(record, open::MODE)?))
    }

    fn opens(&self, of: Record, owner: Record) -> List {
        self.bucket(Table::Open, self.state_key(of, owner), open::BY_KEY)
    }

    /// The hash of a state that is found by file and owner.
    pub fn state_key(&self, of: Record, owner: Record) -> u64 {
        self.hash(&pair(of.index, owner.index).to_le_bytes(), 0)
    }

    fn find_open(&self, of: Record, owner: Record) -> Result<Option<Record>, Error> {
        self.find(self.opens(of, owner), |record| {
            Ok(self.read(record, open::FILE)? == u64::from(of.index)
                && self.read(record, open::OWNER)? == u64::from(owner.index))
        })
    }

    /// Whether access and deny conflict with opens of the file; those of one open, `own`, do not
    /// count.
    fn is_denied(&self, of: Record, asked: Mode, own: Mode) -> Result<bool, Error> {
        let count = |field, own| ReadWrite::of(self.read(of, field)?).replace(own, 0);
        Ok(count(file::DENY, own.deny)?.meets(asked.access)
            || count(file::ACCESS, own.access)?.meets(asked.deny))
    }
}

impl<W: Words> Transaction<'_, W> {
    /// Makes sure that access and deny conflict with no open. Opens of clients that ended, or whose
    /// lease has, are dropped for that.
    pub fn clear_shares(
        &mut self,
        now: Duration,
        of: Record,
        asked: Mode,
        own: Option<Record>,
    ) -> Result<(), Error> {
        let mine = own.map_or(Ok(Mode::of(0)), |own| self.mode(own))?;
        if !self.is_denied(of, asked, mine)? {
            return Ok(());
        }
        let mut walk = self.walk(self.list(of, file::OPENS, Kind::Open, open::BY_FILE)?);
        let mut dropped = 0;
        while let Some(record) = walk.next(self)? {
            let mode = self.mode(record)?;
            let conflicts = mode.deny & asked.access | mode.access & asked.deny;
            if conflicts == 0 || Some(record) == own {
                continue;
            }
            let of_client = self.owning(record, open::CLIENT, Kind::Client)?;
            if !self.may_be_dropped(of_client, now)? {
                return Err(Error::ShareDenied);
            }
            self.kill_client(of_client)?;
            self.drop_lost_open(record, now)?;
            self.checkpoint();
            dropped += 1;
            if dropped == DROPS_MAX {
                self.goes_on = true;
                return Err(Error::Delay);
            }
        }
        Ok(())
    }

    /// Changes access and deny of an open, in the counters too, and its version.
    fn set_mode(&mut self, record: Record, access: u8, deny: u8) -> Result<(), Error> {
        let seqid = next_seqid(self.mode(record)?.seqid);
        self.replace_mode(record, Mode { seqid, access, deny })
    }

    fn replace_mode(&mut self, record: Record, new: Mode) -> Result<(), Error> {
        let of = self.owning(record, open::FILE, Kind::File)?;
        let old = self.mode(record)?;
        for (field, from, to) in [(file::ACCESS, old.access, new.access), (file::DENY, old.deny, new.deny)] {
            let counts = ReadWrite::of(self.read(of, field)?).replace(from, to)?;
            self.write(of, field, counts.word())?;
        }
        let denials = i64::from(new.deny != 0) - i64::from(old.deny != 0);
        self.add(head::DENIALS, denials)?;
        self.count_denial(of, denials)?;
        self.write(record, open::MODE, new.word())
    }

    fn new_open(&mut self, of_client: Record, of: Record, owner: Record) -> Result<Record, Error> {
        self.admit(of_client, Kind::Open, client::OPEN_COUNT)?;
        let record = self.allocate(Kind::Open)?;
        self.write(record, open::CLIENT, u64::from(of_client.index))?;
        self.write(record, open::OWNER, u64::from(owner.index))?;
        self.write(record, open::FILE, u64::from(of.index))?;
        self.push(self.opens(of, owner), record)?;
        let by_file = self.list(of, file::OPENS, Kind::Open, open::BY_FILE)?;
        self.push(by_file, record)?;
        let by_client = self.list(of_client, client::OPENS, Kind::Open, open::BY_CLIENT)?;
        self.push(by_client, record)?;
        Ok(record)
    }

    /// Ends an open that nobody has closed.
    pub fn drop_lost_open(&mut self, record: Record, now: Duration) -> Result<(), Error> {
        self.drop_open(record, now)?;
        self.add(head::DROPPED_OPENS, 1)
    }

    /// Ends an open, with its locks. Many locks are dropped in several steps.
    pub fn drop_open(&mut self, record: Record, now: Duration) -> Result<(), Error> {
        let locks = self.list(record, open::LOCKS, Kind::Lock, lock::BY_OPEN)?;
        let mut taken = 0;
        while let Some(first) = self.first(locks) {
            self.taken(locks, &mut taken)?;
            self.drop_lock(first, now)?;
            self.checkpoint_if_large();
        }
        self.set_mode(record, 0, 0)?;
        let of = self.owning(record, open::FILE, Kind::File)?;
        let owner = self.owning(record, open::OWNER, Kind::Owner)?;
        let of_client = self.owning(record, open::CLIENT, Kind::Client)?;
        self.unlink(self.opens(of, owner), record)?;
        let by_file = self.list(of, file::OPENS, Kind::Open, open::BY_FILE)?;
        self.unlink(by_file, record)?;
        let by_client = self.list(of_client, client::OPENS, Kind::Open, open::BY_CLIENT)?;
        self.unlink(by_client, record)?;
        self.dismiss(of_client, Kind::Open, client::OPEN_COUNT)?;
        self.free(record)?;
        self.release_owner(owner)?;
        self.release_file(of)
    }
}

impl<W: Words> State<W> {
    /// OPEN: a new open, or more access for one that its owner has.
    ///
    /// # Errors
    /// [`Error::ShareDenied`]; [`Error::Delay`] while a delegation is recalled; [`Error::Grace`],
    /// [`Error::NoGrace`], [`Error::ReclaimBad`], [`Error::NotRecorded`]; [`Error::Invalid`],
    /// [`Error::TooLong`], [`Error::ClientLimit`], [`Error::Full`], [`Error::Expired`].
    pub fn open_file(
        &self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        args: &OpenArgs<'_>,
    ) -> Result<StateId, Error> {
        self.open_file_first(host, now, ticket, args).map(|(id, _)| id)
    }

    /// OPEN as [`open_file`](Self::open_file), before something else that may still fail: then
    /// [`undo_open`](Self::undo_open) is called.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file).
    pub fn open_file_first(
        &self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        args: &OpenArgs<'_>,
    ) -> Result<(StateId, UndoOpen), Error> {
        if !(1..=3).contains(&args.access) || args.deny > 3 {
            return Err(Error::Invalid("OPEN needs access, and no other bits"));
        }
        self.in_rounds(host, now, |transaction| {
            let of_client = transaction.live_client(ticket.client())?;
            transaction.admits(of_client, now, args.reclaim)?;
            transaction.pass_grace(now, args.reclaim)?;
            let (id, undo) = open_file(transaction, now, of_client, args)?;
            transaction.commit_step(ticket, note_of(id))?;
            Ok((id, undo))
        })
    }

    /// Whether there is room for an open of a file that does not exist yet, so that none is created
    /// for an open that would be refused. Room is made if possible, and not reserved.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::ClientLimit`], [`Error::PeerLimit`], [`Error::Full`],
    /// [`Error::Expired`].
    pub fn has_room_for_open(
        &self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        owner: &[u8],
    ) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let of_client = transaction.live_client(ticket.client())?;
            let owner = transaction.use_owner(of_client, OwnerClass::Open, owner)?;
            let of = transaction.allocate(Kind::File)?;
            transaction.new_open(of_client, of, owner)?;
            transaction.roll_back();
            Ok(())
        })
    }

    /// Takes an open back whose client does not learn of it: what its owner had before is left,
    /// with the version that the client knows. If the owner has opened the file once more
    /// meanwhile, that counts for both.
    ///
    /// # Errors
    /// [`Error::Expired`], [`Error::BadStateId`].
    pub fn undo_open(
        &self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        id: StateId,
        undo: &UndoOpen,
    ) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let of_client = transaction.live_client(ticket.client())?;
            let record = transaction.state_record(of_client, StateId { seqid: 0, ..id }, &[Kind::Open])?;
            if transaction.mode(record)?.seqid == id.seqid {
                match undo.0 {
                    None => transaction.drop_open(record, now)?,
                    Some((mode, opened)) => {
                        transaction.write(record, open::OPENED, opened)?;
                        transaction.replace_mode(record, mode)?;
                    }
                }
            }
            transaction.commit_step(ticket, [0; NOTE_WORDS])
        })
    }

    /// OPEN_DOWNGRADE: access and deny that are the union of some earlier opens of the owner.
    ///
    /// # Errors
    /// [`Error::Invalid`]; for the stateid [`Error::BadStateId`], [`Error::OldStateId`],
    /// [`Error::StaleStateId`]; [`Error::Expired`].
    pub fn downgrade(
        &self,
        host: &impl Host,
        now: Duration,
        ticket: &Ticket,
        id: StateId,
        access: u8,
        deny: u8,
    ) -> Result<StateId, Error> {
        self.change(host, now, |transaction| {
            let of_client = transaction.live_client(ticket.client())?;
            let record = transaction.state_record(of_client, id, &[Kind::Open])?;
            let opened = downgraded(transaction.read(record, open::OPENED)?, access, deny);
            let opened = opened.ok_or(Error::Invalid("no opens have this access and deny"))?;
            transaction.write(record, open::OPENED, opened)?;
            transaction.set_mode(record, access, deny)?;
            let id = transaction.state_id(record)?;
            transaction.commit_step(ticket, note_of(id))?;
            Ok(id)
        })
    }

    /// CLOSE. Locks of the open are released.
    ///
    /// # Errors
    /// As [`downgrade`](Self::downgrade).
    pub fn close(&self, host: &impl Host, now: Duration, ticket: &Ticket, id: StateId) -> Result<(), Error> {
        self.change(host, now, |transaction| {
            let of_client = transaction.live_client(ticket.client())?;
            let record = transaction.state_record(of_client, id, &[Kind::Open])?;
            transaction.drop_open(record, now)?;
            transaction.commit_step(ticket, [0; NOTE_WORDS])
        })
    }

    /// Whether a file is open, or delegated, to anybody.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Damaged`].
    pub fn is_open(&self, host: &impl Host, now: Duration, file: &[u8]) -> Result<bool, Error> {
        self.change(host, now, |transaction| {
            let Some(of) = transaction.find_file(file)? else { return Ok(false) };
            let opens = transaction.list(of, file::OPENS, Kind::Open, open::BY_FILE)?;
            let delegations =
                transaction.list(of, file::DELEGATIONS, Kind::Delegation, delegation::BY_FILE)?;
            Ok(transaction.first(opens).is_some() || transaction.first(delegations).is_some())
        })
    }

    /// The name of the file that an open, or a delegation, of this client is of.
    ///
    /// # Errors
    /// For the stateid as [`downgrade`](Self::downgrade); [`Error::Expired`].
    pub fn file_of_open(
        &self,
        host: &impl Host,
        now: Duration,
        of: ClientRef,
        id: StateId,
    ) -> Result<Vec<u8>, Error> {
        self.change(host, now, |transaction| {
            let of_client = transaction.live_client(of)?;
            let record = transaction.state_record(of_client, id, &[Kind::Open, Kind::Delegation])?;
            let field = if record.kind == Kind::Open { open::FILE } else { delegation::FILE };
            transaction.file_name(transaction.owning(record, field, Kind::File)?)
        })
    }

    /// How many opens have ended without a CLOSE, and delegations without a DELEGRETURN. While this
    /// number stays the same, a file that [is open](Self::is_open) stays so until somebody closes
    /// or returns it.
    #[must_use]
    pub fn dropped_opens(&self) -> u64 {
        self.arena.words.load(head::DROPPED_OPENS)
    }

    /// The stateid that an operation made whose process ended after it was
    /// [`Committed`](crate::NextOperation::Committed). OPEN, OPEN_DOWNGRADE, LOCK and LOCKU leave
    /// it in the note.
    #[must_use]
    pub fn committed_state(note: [u64; NOTE_WORDS]) -> StateId {
        let mut other = [0; 12];
        other[..8].copy_from_slice(&note[1].to_be_bytes());
        other[8..].copy_from_slice(&lower(note[2]).to_be_bytes());
        StateId { seqid: lower(note[0]), other }
    }
}

/// The inverse of [`State::committed_state`].
pub(crate) fn note_of(id: StateId) -> [u64; NOTE_WORDS] {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    [u64::from(id.seqid), number(&id.other[..8]), number(&id.other[8..]), 0, 0]
}

fn open_file<W: Words>(
    transaction: &mut Transaction<'_, W>,
    now: Duration,
    of_client: Record,
    args: &OpenArgs<'_>,
) -> Result<(StateId, UndoOpen), Error> {
    let asked = Mode { seqid: 0, access: args.access, deny: args.deny };
    // Nothing is taken before the conflicts are settled, which may keep some changes.
    let existing = match transaction.find_file(args.file)? {
        Some(of) => {
            let owner = transaction.find_owner(of_client, OwnerClass::Open, args.owner)?;
            let existing = owner.map_or(Ok(None), |owner| transaction.find_open(of, owner))?;
            transaction.clear_shares(now, of, asked, existing)?;
            existing
        }
        None => None,
    };
    if args.access & WRITE != 0 || args.deny & READ != 0 {
        match transaction.recall_for(now, args.file, Some(of_client)) {
            Err(Error::Delay) if args.created => {}
            recalled => recalled?,
        }
    }
    let record = match existing {
        Some(record) => record,
        None => {
            let owner = transaction.use_owner(of_client, OwnerClass::Open, args.owner)?;
            let of = transaction.use_file(args.file)?;
            transaction.new_open(of_client, of, owner)?
        }
    };
    let (mode, opened) = (transaction.mode(record)?, transaction.read(record, open::OPENED)?);
    transaction.write(record, open::OPENED, opened | opened_bit(args.access, args.deny))?;
    transaction.set_mode(record, mode.access | args.access, mode.deny | args.deny)?;
    Ok((transaction.state_id(record)?, UndoOpen(existing.map(|_| (mode, opened)))))
}

/// The bit of a pair of access (1 to 3) and deny (0 to 3).
const fn opened_bit(access: u8, deny: u8) -> u64 {
    1 << (access | deny << 2)
}

/// The pairs that are left of those in `opened` after a downgrade: all that ask for no more. `None`
/// if their union is not exactly what is asked for. RFC 8881 s18.18.3
fn downgraded(opened: u64, access: u8, deny: u8) -> Option<u64> {
    let (mut left, mut union) = (0, (0, 0));
    for bit in 0..16u8 {
        let (its_access, its_deny) = (bit & 3, bit >> 2);
        if opened >> bit & 1 != 0 && its_access & !access == 0 && its_deny & !deny == 0 {
            left |= 1 << bit;
            union = (union.0 | its_access, union.1 | its_deny);
        }
    }
    (left != 0 && union == (access, deny)).then_some(left)
}

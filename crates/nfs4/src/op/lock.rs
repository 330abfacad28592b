//! LOCK, LOCKT and LOCKU: locks of ranges. RFC 8881 s18.10 to s18.12

use crate::wire::{wire_enum, wire_fields};
use crate::{Range, StateOwner, Stateid, Status, Wire};
use xdr::{Reader, Writer};

/// `nfs_lock_type4`. RFC 8881 s3.3 and s18.10
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockType {
    /// READ_LT: shared.
    Read,
    /// WRITE_LT: exclusive.
    Write,
    /// READW_LT: shared, and the client will wait for it.
    ReadWait,
    /// WRITEW_LT: exclusive, and the client will wait for it.
    WriteWait,
}

wire_enum!(LockType { Read = 1, Write = 2, ReadWait = 3, WriteWait = 4 });

impl LockType {
    /// Whether the lock is exclusive.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        matches!(self, Self::Write | Self::WriteWait)
    }

    /// Whether the client will wait for the lock.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(self, Self::ReadWait | Self::WriteWait)
    }
}

/// `locker4`: for whom. RFC 8881 s18.10
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locker<'a> {
    /// The first lock of an owner on an open (`open_to_lock_owner4`).
    New {
        /// Ignored in a session.
        open_seqid: u32,
        /// The open.
        open: Stateid,
        /// Ignored in a session.
        lock_seqid: u32,
        /// The owner.
        owner: StateOwner<'a>,
    },
    /// A further lock (`exist_lock_owner4`).
    Existing {
        /// The owner's locks.
        lock: Stateid,
        /// Ignored in a session.
        lock_seqid: u32,
    },
}

impl<'a> Wire<'a> for Locker<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        if reader.bool()? {
            Ok(Self::New {
                open_seqid: Wire::decode(reader)?,
                open: Wire::decode(reader)?,
                lock_seqid: Wire::decode(reader)?,
                owner: Wire::decode(reader)?,
            })
        } else {
            Ok(Self::Existing { lock: Wire::decode(reader)?, lock_seqid: Wire::decode(reader)? })
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::New { open_seqid, open, lock_seqid, owner } => {
                writer.bool(true);
                open_seqid.encode(writer);
                open.encode(writer);
                lock_seqid.encode(writer);
                owner.encode(writer);
            }
            Self::Existing { lock, lock_seqid } => {
                writer.bool(false);
                lock.encode(writer);
                lock_seqid.encode(writer);
            }
        }
    }
}

/// `LOCK4args`. RFC 8881 s18.10
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The type.
    pub lock_type: LockType,
    /// Whether the lock was held before the server restarted.
    pub reclaim: bool,
    /// The range.
    pub range: Range,
    /// The owner.
    pub locker: Locker<'a>,
}

wire_fields!(Args<'a> { lock_type, reclaim, range, locker });

/// `LOCK4denied`: a lock that is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict<'a> {
    /// Its range.
    pub range: Range,
    /// Its type.
    pub lock_type: LockType,
    /// Its owner.
    pub owner: StateOwner<'a>,
}

wire_fields!(Conflict<'a> { range, lock_type, owner });

/// `LOCK4res`, and with nothing in a success `LOCKT4res`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a, S> {
    /// Granted; or, for LOCKT, could be.
    Granted(S),
    /// NFS4ERR_DENIED.
    Denied(Conflict<'a>),
    /// Any other failure.
    Failed(Status),
}

impl<S> Outcome<'_, S> {
    /// The status on the wire.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Granted(_) => Status::OK,
            Self::Denied(_) => Status::DENIED,
            Self::Failed(status) => *status,
        }
    }
}

impl<'a, S: Wire<'a>> Wire<'a> for Outcome<'a, S> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Granted(Wire::decode(reader)?),
            Status::DENIED => Self::Denied(Wire::decode(reader)?),
            status => Self::Failed(status),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.status().encode(writer);
        match self {
            Self::Granted(success) => success.encode(writer),
            Self::Denied(conflict) => conflict.encode(writer),
            Self::Failed(_) => {}
        }
    }
}

/// `LOCK4res`: the stateid of the owner's locks.
pub type Reply<'a> = Outcome<'a, Stateid>;

/// `LOCKT4args`. RFC 8881 s18.11
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestArgs<'a> {
    /// The type.
    pub lock_type: LockType,
    /// The range.
    pub range: Range,
    /// The owner.
    pub owner: StateOwner<'a>,
}

wire_fields!(TestArgs<'a> { lock_type, range, owner });

/// `LOCKT4res`.
pub type TestReply<'a> = Outcome<'a, ()>;

/// `LOCKU4args`. RFC 8881 s18.12
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnlockArgs {
    /// Has no meaning.
    pub lock_type: LockType,
    /// Ignored in a session.
    pub seqid: u32,
    /// The owner's locks.
    pub lock: Stateid,
    /// The range.
    pub range: Range,
}

wire_fields!(UnlockArgs { lock_type, seqid, lock, range });

/// `LOCKU4res`: the stateid of the owner's locks.
pub type UnlockReply = Result<Stateid, Status>;

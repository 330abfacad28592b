//! OPEN: opens a regular file, and creates it. RFC 8881 s18.16, RFC 9754

use crate::wire::{wire_enum, wire_fields};
use crate::{Ace, Bitmap, ChangeInfo, Fattr, StateOwner, Stateid, Status, Wire};
use fs::Verifier;
use xdr::{Error, Reader, Writer};

/// The bits of `share_access`. RFC 8881 s18.16.3, RFC 9754 s4, s5
pub mod access {
    /// OPEN4_SHARE_ACCESS_READ.
    pub const READ: u32 = 0x1;
    /// OPEN4_SHARE_ACCESS_WRITE.
    pub const WRITE: u32 = 0x2;
    /// OPEN4_SHARE_ACCESS_BOTH.
    pub const BOTH: u32 = 0x3;
    /// Which delegation the client wants: one of the next six.
    pub const WANT_MASK: u32 = 0xff00;
    /// The client does not say.
    pub const WANT_NO_PREFERENCE: u32 = 0x0000;
    /// A delegation for reading.
    pub const WANT_READ: u32 = 0x0100;
    /// A delegation for writing.
    pub const WANT_WRITE: u32 = 0x0200;
    /// Any delegation.
    pub const WANT_ANY: u32 = 0x0300;
    /// None.
    pub const WANT_NONE: u32 = 0x0400;
    /// None any more, after an earlier wish.
    pub const WANT_CANCEL: u32 = 0x0500;
    /// Tell the client when a delegation may be had after all.
    pub const WANT_SIGNAL: u32 = 0x0001_0000;
    /// Give the client a delegation when nobody else uses the file any more.
    pub const WANT_PUSH: u32 = 0x0002_0000;
    /// A delegation with the times of the file. RFC 9754 s5
    pub const WANT_TIMESTAMPS: u32 = 0x0010_0000;
    /// A delegation instead of an open, if there is one. RFC 9754 s4
    pub const WANT_OPEN_XOR_DELEGATION: u32 = 0x0020_0000;
    /// All bits that the standards know; others are NFS4ERR_INVAL.
    pub const KNOWN: u32 =
        BOTH | WANT_MASK | WANT_SIGNAL | WANT_PUSH | WANT_TIMESTAMPS | WANT_OPEN_XOR_DELEGATION;
}

/// The bits of `share_deny`. RFC 8881 s18.16.3
pub mod deny {
    /// OPEN4_SHARE_DENY_NONE.
    pub const NONE: u32 = 0;
    /// OPEN4_SHARE_DENY_READ.
    pub const READ: u32 = 1;
    /// OPEN4_SHARE_DENY_WRITE.
    pub const WRITE: u32 = 2;
    /// OPEN4_SHARE_DENY_BOTH.
    pub const BOTH: u32 = 3;
}

/// The bits of `rflags`. RFC 8881 s18.16.4, RFC 9754 s4
pub mod result_flag {
    /// The open must be confirmed; of version 4.0 only.
    pub const CONFIRM: u32 = 0x2;
    /// Locks behave as POSIX has them.
    pub const LOCKTYPE_POSIX: u32 = 0x4;
    /// The file stays until it is closed, even if its name is removed.
    pub const PRESERVE_UNLINKED: u32 = 0x8;
    /// There is a delegation, and no open. RFC 9754 s4
    pub const NO_OPEN_STATEID: u32 = 0x10;
    /// The server may send CB_NOTIFY_LOCK.
    pub const MAY_NOTIFY_LOCK: u32 = 0x20;
}

/// `openflag4`: whether to create the file, and how. RFC 8881 s18.16
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How<'a> {
    /// OPEN4_NOCREATE.
    NoCreate,
    /// UNCHECKED4: use an existing file; of these attributes only a size of 0 applies to it.
    Unchecked(Fattr<'a>),
    /// GUARDED4: an existing name is an error.
    Guarded(Fattr<'a>),
    /// EXCLUSIVE4: an existing file that was created with the same verifier is a success.
    Exclusive(Verifier),
    /// EXCLUSIVE4_1: the same, with attributes of `suppattr_exclcreat`.
    ExclusiveWith(Verifier, Fattr<'a>),
}

impl<'a> Wire<'a> for How<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        match reader.u32()? {
            0 => return Ok(Self::NoCreate),
            1 => {}
            value => return Err(Error::BadDiscriminant { name: "opentype4", value }),
        }
        Ok(match reader.u32()? {
            0 => Self::Unchecked(Wire::decode(reader)?),
            1 => Self::Guarded(Wire::decode(reader)?),
            2 => Self::Exclusive(Wire::decode(reader)?),
            3 => Self::ExclusiveWith(Wire::decode(reader)?, Wire::decode(reader)?),
            value => return Err(Error::BadDiscriminant { name: "createmode4", value }),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(u32::from(!matches!(self, Self::NoCreate)));
        match self {
            Self::NoCreate => {}
            Self::Unchecked(attributes) => {
                writer.u32(0);
                attributes.encode(writer);
            }
            Self::Guarded(attributes) => {
                writer.u32(1);
                attributes.encode(writer);
            }
            Self::Exclusive(verifier) => {
                writer.u32(2);
                verifier.encode(writer);
            }
            Self::ExclusiveWith(verifier, attributes) => {
                writer.u32(3);
                verifier.encode(writer);
                attributes.encode(writer);
            }
        }
    }
}

/// `open_delegation_type4`. RFC 8881 s18.16, RFC 9754 s5
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DelegationType {
    /// OPEN_DELEGATE_NONE.
    None,
    /// OPEN_DELEGATE_READ.
    Read,
    /// OPEN_DELEGATE_WRITE.
    Write,
    /// OPEN_DELEGATE_NONE_EXT: none, with a reason.
    NoneBecause,
    /// OPEN_DELEGATE_READ_ATTRS_DELEG: with the time of last access.
    ReadWithTimes,
    /// OPEN_DELEGATE_WRITE_ATTRS_DELEG: with the times.
    WriteWithTimes,
}

wire_enum!(DelegationType {
    None = 0,
    Read = 1,
    Write = 2,
    NoneBecause = 3,
    ReadWithTimes = 4,
    WriteWithTimes = 5,
});

/// `open_claim4`: which file, and by which right. RFC 8881 s18.16
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim<'a> {
    /// CLAIM_NULL: a name in the current directory.
    Name(&'a [u8]),
    /// CLAIM_PREVIOUS: the current file, which was open before the server restarted, with this
    /// delegation.
    Previous(DelegationType),
    /// CLAIM_DELEGATE_CUR: a name in the current directory, by a delegation.
    DelegatedName {
        /// The delegation.
        delegation: Stateid,
        /// The name.
        name: &'a [u8],
    },
    /// CLAIM_DELEGATE_PREV: a name in the current directory, by a delegation of the client's
    /// earlier life.
    PreviouslyDelegatedName(&'a [u8]),
    /// CLAIM_FH: the current file.
    Current,
    /// CLAIM_DELEG_CUR_FH: the current file, by a delegation.
    Delegated(Stateid),
    /// CLAIM_DELEG_PREV_FH: the current file, by a delegation of the client's earlier life.
    PreviouslyDelegated,
}

impl<'a> Wire<'a> for Claim<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match reader.u32()? {
            0 => Self::Name(Wire::decode(reader)?),
            1 => Self::Previous(Wire::decode(reader)?),
            2 => Self::DelegatedName { delegation: Wire::decode(reader)?, name: Wire::decode(reader)? },
            3 => Self::PreviouslyDelegatedName(Wire::decode(reader)?),
            4 => Self::Current,
            5 => Self::Delegated(Wire::decode(reader)?),
            6 => Self::PreviouslyDelegated,
            value => return Err(Error::BadDiscriminant { name: "open_claim_type4", value }),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Name(name) => {
                writer.u32(0);
                name.encode(writer);
            }
            Self::Previous(delegation) => {
                writer.u32(1);
                delegation.encode(writer);
            }
            Self::DelegatedName { delegation, name } => {
                writer.u32(2);
                delegation.encode(writer);
                name.encode(writer);
            }
            Self::PreviouslyDelegatedName(name) => {
                writer.u32(3);
                name.encode(writer);
            }
            Self::Current => writer.u32(4),
            Self::Delegated(delegation) => {
                writer.u32(5);
                delegation.encode(writer);
            }
            Self::PreviouslyDelegated => writer.u32(6),
        }
    }
}

/// `OPEN4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// Ignored in a session.
    pub seqid: u32,
    /// [`access`] (`share_access`).
    pub access: u32,
    /// [`deny`] (`share_deny`).
    pub deny: u32,
    /// The owner of the open.
    pub owner: StateOwner<'a>,
    /// Whether to create the file.
    pub how: How<'a>,
    /// Which file.
    pub claim: Claim<'a>,
}

wire_fields!(Args<'a> { seqid, access, deny, owner, how, claim });

/// `nfs_space_limit4`: how much a holder of a delegation may write without asking. RFC 8881 s18.16
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceLimit {
    /// NFS_LIMIT_SIZE: up to this size of the file.
    Size(u64),
    /// NFS_LIMIT_BLOCKS: this many blocks.
    Blocks {
        /// Blocks.
        count: u32,
        /// Bytes of each.
        bytes: u32,
    },
}

impl<'a> Wire<'a> for SpaceLimit {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        match reader.u32()? {
            1 => reader.u64().map(Self::Size),
            2 => Ok(Self::Blocks { count: reader.u32()?, bytes: reader.u32()? }),
            value => Err(Error::BadDiscriminant { name: "limit_by4", value }),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Size(size) => {
                writer.u32(1);
                writer.u64(*size);
            }
            Self::Blocks { count, bytes } => {
                writer.u32(2);
                writer.u32(*count);
                writer.u32(*bytes);
            }
        }
    }
}

/// `open_none_delegation4`: why there is no delegation. RFC 8881 s18.16 (`why_no_delegation4`)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDelegation {
    /// WND4_CONTENTION; the flag says whether the server will give one when it can.
    Contention(bool),
    /// WND4_RESOURCE; the flag says whether the server will tell when it can.
    Resource(bool),
    /// Any other reason: not wanted 0, not for this type of file 3, not for writing this type of
    /// file 4, no upgrade 5, no downgrade 6, cancelled 7, a directory 8.
    Other(u32),
}

impl NoDelegation {
    /// WND4_NOT_WANTED.
    pub const NOT_WANTED: Self = Self::Other(0);
    /// WND4_NOT_SUPP_FTYPE.
    pub const NOT_SUPPORTED: Self = Self::Other(3);
    /// WND4_CANCELLED.
    pub const CANCELLED: Self = Self::Other(7);
    /// WND4_IS_DIR.
    pub const IS_DIRECTORY: Self = Self::Other(8);
}

impl<'a> Wire<'a> for NoDelegation {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match reader.u32()? {
            1 => Self::Contention(reader.bool()?),
            2 => Self::Resource(reader.bool()?),
            other => Self::Other(other),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Contention(will) => {
                writer.u32(1);
                writer.bool(*will);
            }
            Self::Resource(will) => {
                writer.u32(2);
                writer.bool(*will);
            }
            Self::Other(number) => writer.u32(*number),
        }
    }
}

/// `open_delegation4`. RFC 8881 s18.16, RFC 9754 s5
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delegation<'a> {
    /// OPEN_DELEGATE_NONE.
    None,
    /// OPEN_DELEGATE_NONE_EXT.
    NoneBecause(NoDelegation),
    /// OPEN_DELEGATE_READ, or OPEN_DELEGATE_READ_ATTRS_DELEG (`open_read_delegation4`).
    Read {
        /// The delegation.
        stateid: Stateid,
        /// Whether it is being recalled already.
        recall: bool,
        /// Who may read without asking the server.
        permissions: Ace<'a>,
        /// Whether it is one with the time of last access.
        with_times: bool,
    },
    /// OPEN_DELEGATE_WRITE, or OPEN_DELEGATE_WRITE_ATTRS_DELEG (`open_write_delegation4`).
    Write {
        /// The delegation.
        stateid: Stateid,
        /// Whether it is being recalled already.
        recall: bool,
        /// How much may be written without asking.
        limit: SpaceLimit,
        /// Who may read and write without asking the server.
        permissions: Ace<'a>,
        /// Whether it is one with the times.
        with_times: bool,
    },
}

impl<'a> Wire<'a> for Delegation<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        let kind = DelegationType::decode(reader)?;
        Ok(match kind {
            DelegationType::None => Self::None,
            DelegationType::NoneBecause => Self::NoneBecause(Wire::decode(reader)?),
            DelegationType::Read | DelegationType::ReadWithTimes => Self::Read {
                stateid: Wire::decode(reader)?,
                recall: Wire::decode(reader)?,
                permissions: Wire::decode(reader)?,
                with_times: kind == DelegationType::ReadWithTimes,
            },
            DelegationType::Write | DelegationType::WriteWithTimes => Self::Write {
                stateid: Wire::decode(reader)?,
                recall: Wire::decode(reader)?,
                limit: Wire::decode(reader)?,
                permissions: Wire::decode(reader)?,
                with_times: kind == DelegationType::WriteWithTimes,
            },
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        let choose = |with_times, plain, timed| if with_times { timed } else { plain };
        match self {
            Self::None => DelegationType::None.encode(writer),
            Self::NoneBecause(why) => {
                DelegationType::NoneBecause.encode(writer);
                why.encode(writer);
            }
            Self::Read { stateid, recall, permissions, with_times } => {
                choose(*with_times, DelegationType::Read, DelegationType::ReadWithTimes).encode(writer);
                stateid.encode(writer);
                recall.encode(writer);
                permissions.encode(writer);
            }
            Self::Write { stateid, recall, limit, permissions, with_times } => {
                choose(*with_times, DelegationType::Write, DelegationType::WriteWithTimes).encode(writer);
                stateid.encode(writer);
                recall.encode(writer);
                limit.encode(writer);
                permissions.encode(writer);
            }
        }
    }
}

/// `OPEN4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success<'a> {
    /// The open.
    pub stateid: Stateid,
    /// The directory before and after.
    pub directory: ChangeInfo,
    /// [`result_flag`].
    pub flags: u32,
    /// Which attributes were set at creation.
    pub set: Bitmap,
    /// The delegation.
    pub delegation: Delegation<'a>,
}

wire_fields!(Success<'a> { stateid, directory, flags, set, delegation });

/// `OPEN4res`.
pub type Reply<'a> = Result<Success<'a>, Status>;

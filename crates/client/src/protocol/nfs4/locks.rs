//! Opens that are kept, and locks of ranges: one compound each.

use ::nfs4::op::lock::{LockType, Locker, Outcome, TestArgs, UnlockArgs};
use ::nfs4::op::{Args, kind, lock, open, stateid};
use ::nfs4::{ClientId, Operation as Nfs, OwnerId, Range, StateOwner, Stateid};
use fs::FileHandle;
use xdr::Reader;

use super::on;
use super::operations::{operation, read_put};
use super::reply::{done, expect};
use crate::locks::{Conflict, LockKind, LockRange};
use crate::protocol::Operation;

/// The answer to LOCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locked {
    /// The owner has it; this is the stateid of the owner's locks of the file.
    Granted(Stateid),
    /// A lock of somebody else is in the way.
    Denied,
}

/// For whom a lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockerOf<'a> {
    /// An owner that has no locks of the file yet, by this open.
    Open(Stateid, &'a [u8]),
    /// The owner of these locks.
    Locks(Stateid),
}

/// What a client says of an open or a lock that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Now,
    /// It waits for the lock if another is in the way, and may be told when to ask again. RFC 8881
    /// s18.10.3
    Waiting,
    /// It was held before the server restarted. RFC 8881 s8.4.2
    Reclaim,
}

fn owner(name: &[u8]) -> StateOwner<'_> {
    StateOwner { client: ClientId(0), owner: OwnerId::new(name).unwrap_or_default() }
}

fn wire_range(range: LockRange) -> Range {
    let length = match range.last {
        LockRange::END => Range::TO_THE_END,
        last => last.saturating_sub(range.first).saturating_add(1),
    };
    Range { offset: range.first, length }
}

const fn wire_type(of: LockKind, when: When) -> LockType {
    match (of, when) {
        (LockKind::Shared, When::Now | When::Reclaim) => LockType::Read,
        (LockKind::Exclusive, When::Now | When::Reclaim) => LockType::Write,
        (LockKind::Shared, When::Waiting) => LockType::ReadWait,
        (LockKind::Exclusive, When::Waiting) => LockType::WriteWait,
    }
}

/// The number in a stateid is that of the state's last change, if it is 0. RFC 8881 s8.2.2
const fn current(of: Stateid) -> Stateid {
    Stateid { seqid: 0, ..of }
}

/// Opens a file that exists, without a delegation. The open is kept.
pub(crate) fn open(
    minor: u32,
    file: FileHandle,
    (access, by): (u32, &[u8]),
    when: When,
) -> Operation<Stateid> {
    let claim = match when {
        When::Now | When::Waiting => open::Claim::Current,
        When::Reclaim => open::Claim::Previous(open::DelegationType::None),
    };
    let args = on(minor, file, |to| {
        to.push(&Args::Open(open::Args {
            seqid: 0,
            access: access | open::access::WANT_NONE,
            deny: open::deny::NONE,
            owner: owner(by),
            how: open::How::NoCreate,
            claim,
        }));
    });
    operation(Nfs::Open, args, |reader| {
        read_put(reader)?;
        Ok(done(expect::<kind::Open>(reader)?)?.stateid)
    })
}

pub(crate) fn lock(
    minor: u32,
    file: FileHandle,
    (range, of): (LockRange, LockKind),
    by: LockerOf<'_>,
    when: When,
) -> Operation<Locked> {
    let locker = match by {
        LockerOf::Open(open, name) => {
            Locker::New { open_seqid: 0, open: current(open), lock_seqid: 0, owner: owner(name) }
        }
        LockerOf::Locks(lock) => Locker::Existing { lock: current(lock), lock_seqid: 0 },
    };
    let reclaim = when == When::Reclaim;
    let args = on(minor, file, |to| {
        to.push(&Args::Lock(lock::Args {
            lock_type: wire_type(of, when),
            reclaim,
            range: wire_range(range),
            locker,
        }));
    });
    operation(Nfs::Lock, args, |reader| {
        read_put(reader)?;
        match expect::<kind::Lock>(reader)? {
            Outcome::Granted(stateid) => Ok(Locked::Granted(stateid)),
            Outcome::Denied(_) => Ok(Locked::Denied),
            Outcome::Failed(status) => done(Err(status)),
        }
    })
}

/// Releases what of a range is locked. RFC 8881 s18.12
pub(crate) fn unlock(minor: u32, file: FileHandle, range: LockRange, locks: Stateid) -> Operation<Stateid> {
    let range = wire_range(range);
    let args = on(minor, file, |to| {
        let args = UnlockArgs { lock_type: LockType::Write, seqid: 0, lock: current(locks), range };
        to.push(&Args::LockU(args));
    });
    operation(Nfs::LockU, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::LockU>(reader)?)
    })
}

/// Which lock is in the way of one, if any. RFC 8881 s18.11
pub(crate) fn test(
    minor: u32,
    file: FileHandle,
    (range, of): (LockRange, LockKind),
    by: &[u8],
) -> Operation<Option<Conflict>> {
    let args = on(minor, file, |to| {
        to.push(&Args::LockT(TestArgs {
            lock_type: wire_type(of, When::Now),
            range: wire_range(range),
            owner: owner(by),
        }));
    });
    operation(Nfs::LockT, args, tested)
}

fn tested(reader: &mut Reader<'_>) -> xdr::Result<Option<Conflict>> {
    read_put(reader)?;
    match expect::<kind::LockT>(reader)? {
        Outcome::Granted(()) => Ok(None),
        Outcome::Denied(conflict) => {
            let Range { offset: first, length } = conflict.range;
            let last = if length == Range::TO_THE_END {
                LockRange::END
            } else {
                first.saturating_add(length.saturating_sub(1))
            };
            let kind = if conflict.lock_type.is_exclusive() { LockKind::Exclusive } else { LockKind::Shared };
            Ok(Some(Conflict { range: LockRange { first, last }, kind }))
        }
        Outcome::Failed(status) => done(Err(status)),
    }
}

/// Has the server forget an owner that has no locks of a file any more. RFC 8881 s18.38
pub(crate) fn free(minor: u32, locks: Stateid) -> Operation<()> {
    let args = super::compound(minor, |to| {
        to.push(&Args::FreeStateid(stateid::FreeArgs { stateid: current(locks) }));
    });
    operation(Nfs::FreeStateid, args, |reader| done(expect::<kind::FreeStateid>(reader)?))
}

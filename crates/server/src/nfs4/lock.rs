//! LOCK, LOCKT, LOCKU: locks of ranges. RFC 8881 s18.10 to s18.12
//!
//! A client that says that it will wait, and that can be called back, is told when the lock is
//! free, and for some seconds nobody else gets it. It asks again by itself too: not every client is
//! told. RFC 8881 s9.6, s20.11

use super::compound::{Compound, Outcome, Place, Replies};
use super::io::{check, of_kind};
use super::status::{of_handler, of_state};
use crate::nfs4_state::file_name;
use crate::request::Target;
use nfs4::op::lock::{Args, Conflict, LockType, Locker, Outcome as Locked, TestArgs, UnlockArgs};
use nfs4::op::{Operation, Reply};
use nfs4::{ClientId, OwnerId, Range, StateOwner, Stateid, Status};
use state::{Error, Holder, LockArgs, LockQuery, StateId};

/// The current object, which must be a regular file.
fn file<'a>(compound: &Compound<'a>) -> Outcome<Target<'a>> {
    let Place::Object(export, object) = compound.place()? else { return Err(Status::ISDIR) };
    let target = compound.target(export, object)?;
    let attributes = target.attributes().map_err(of_handler)?.map_err(Status::from_fs)?;
    of_kind(attributes.kind)?;
    Ok(target)
}

/// A state of the current file.
fn of_file(compound: &Compound<'_>, id: Stateid) -> Outcome<StateId> {
    let target = file(compound)?;
    let id = compound.stateid(id)?;
    if id.is_special() {
        return Err(Status::BAD_STATEID);
    }
    check(compound, &target, id, state::READ)?;
    Ok(id)
}

/// A lock that is in the way.
fn conflict(holder: &Holder) -> Conflict<'_> {
    let owner = OwnerId::new(&holder.owner).unwrap_or_default();
    Conflict {
        range: Range { offset: holder.offset, length: holder.length },
        lock_type: if holder.exclusive { LockType::Write } else { LockType::Read },
        owner: StateOwner { client: ClientId(holder.client.0), owner },
    }
}

/// How a lock is refused.
enum Refused {
    Status(Status),
    Denied(Box<Holder>),
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied(holder) => Self::Denied(holder),
            other => Self::Status(of_state(&other)),
        }
    }
}

/// LOCK.
pub(super) fn lock(compound: &mut Compound<'_>, args: &Args<'_>, out: &mut Replies<'_>) -> Status {
    match try_lock(compound, args) {
        Ok(id) => granted(compound, id, out),
        Err(Refused::Denied(holder)) => out.push(&Reply::Lock(Locked::Denied(conflict(&holder)))),
        Err(Refused::Status(status)) => out.fail(Operation::Lock, status),
    }
}

/// The result of a lock that was granted.
pub(super) fn granted(compound: &mut Compound<'_>, id: StateId, out: &mut Replies<'_>) -> Status {
    let id = compound.put_stateid(id);
    out.push(&Reply::Lock(Locked::Granted(id)))
}

fn try_lock(compound: &Compound<'_>, args: &Args<'_>) -> Result<StateId, Refused> {
    args.range.last()?;
    compound.admits_new_state(args.reclaim)?;
    let locker = match &args.locker {
        Locker::New { open, owner, .. } => {
            state::Locker::New { open: of_file(compound, *open)?, owner: owner.owner.as_slice() }
        }
        Locker::Existing { lock, .. } => state::Locker::Known(of_file(compound, *lock)?),
    };
    let (state, ticket) = (&compound.shared.state, compound.ticket()?);
    let args = LockArgs {
        locker,
        offset: args.range.offset,
        length: args.range.length,
        exclusive: args.lock_type.is_exclusive(),
        wait: args.lock_type.waits() && state.has_back_channel(ticket)?,
        reclaim: args.reclaim,
    };
    Ok(state.lock(compound.shared.host(), compound.now, ticket, &args)?)
}

/// LOCKT.
pub(super) fn test(compound: &Compound<'_>, args: &TestArgs<'_>, out: &mut Replies<'_>) -> Status {
    match try_test(compound, args) {
        Ok(()) => out.push(&Reply::LockT(Locked::Granted(()))),
        Err(Refused::Denied(holder)) => out.push(&Reply::LockT(Locked::Denied(conflict(&holder)))),
        Err(Refused::Status(status)) => out.fail(Operation::LockT, status),
    }
}

fn try_test(compound: &Compound<'_>, args: &TestArgs<'_>) -> Result<(), Refused> {
    let target = file(compound)?;
    args.range.last()?;
    let query = LockQuery {
        owner: args.owner.owner.as_slice(),
        file: &file_name(target.export, target.object),
        offset: args.range.offset,
        length: args.range.length,
        exclusive: args.lock_type.is_exclusive(),
    };
    Ok(compound.shared.state.test_lock(compound.shared.host(), compound.now, compound.client()?, &query)?)
}

/// LOCKU.
pub(super) fn unlock(compound: &mut Compound<'_>, args: &UnlockArgs) -> Outcome<Stateid> {
    args.range.last()?;
    let id = of_file(compound, args.lock)?;
    let range = (args.range.offset, args.range.length);
    let unlocked =
        compound.shared.state.unlock(compound.shared.host(), compound.now, compound.ticket()?, id, range);
    let id = unlocked.map_err(|error| of_state(&error))?;
    Ok(compound.put_stateid(id))
}

//! GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR: extended attributes of the current object. RFC 8276
//! s8.4

use super::attributes::change_info;
use super::compound::progress::changed_before;
use super::compound::{Compound, Outcome, Replies};
use crate::request::Target;
use drc::shared::PreOpState;
use nfs4::op::xattr::{ListArgs, ListSuccess, SetArgs, SetOption};
use nfs4::op::{Operation, Reply};
use nfs4::{Array, ChangeInfo, Status};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use store::SetXattr;

/// A list without names: the cookie, the number of names, and whether it ends there.
const EMPTY_LIST_BYTES: usize = 8 + 4 + 4;
/// The most bytes of one list, whatever the client has room for: some thousand names.
pub(super) const LIST_BYTES_MAX: u32 = 128 << 10;

/// GETXATTR.
pub(super) fn get(compound: &mut Compound<'_>, name: &[u8], out: &mut Replies<'_>) -> Status {
    match value(compound, name) {
        Err(status) => out.fail(Operation::GetXattr, status),
        Ok(()) => out.push(&Reply::GetXattr(Ok(compound.text))),
    }
}

fn value(compound: &mut Compound<'_>, name: &[u8]) -> Outcome<()> {
    // What is above the exports has none.
    let target = compound.object_or(Status::NOXATTR)?;
    compound.text.clear();
    let caller = target.squashed.caller();
    target.export.store.xattr(caller, target.object, name, compound.text).map_err(Status::from_fs)
}

/// A value, as an operation notes it before it changes an attribute.
fn value_of(value: &[u8]) -> PreOpState {
    let mut hasher = SipHasher13::new();
    hasher.write(value);
    PreOpState::Object(value.len() as u64, hasher.finish())
}

/// What an attribute is now. `None` if that is unknown.
fn now(target: &Target<'_>, name: &[u8]) -> Option<PreOpState> {
    let mut value = Vec::new();
    match target.export.store.xattr(target.squashed.caller(), target.object, name, &mut value) {
        Ok(()) => Some(value_of(&value)),
        Err(fs::Status::NoXattr) => Some(PreOpState::Absent),
        Err(_) => None,
    }
}

/// SETXATTR.
pub(super) fn set(compound: &Compound<'_>, args: &SetArgs<'_>) -> Outcome<ChangeInfo> {
    let target = compound.changeable(compound.place()?)?;
    let how = match args.option {
        SetOption::Either => SetXattr::Either,
        SetOption::Create => SetXattr::Create,
        SetOption::Replace => SetXattr::Replace,
    };
    let (caller, store) = (target.squashed.caller(), &target.export.store);
    let is_new = how == SetXattr::Create;
    if is_new
        && compound.doubt() == Some(PreOpState::Absent)
        && now(&target, args.name) == Some(value_of(args.value))
    {
        return Ok(changed_before(&target));
    }
    let _change = compound.begin_change(target.export, target.object)?;
    if is_new {
        compound.note(now(&target, args.name))?;
    }
    let (effect, set) = store.set_xattr(caller, target.object, args.name, args.value, how);
    set.map_err(Status::from_fs)?;
    Ok(change_info(&effect))
}

/// REMOVEXATTR.
pub(super) fn remove(compound: &Compound<'_>, name: &[u8]) -> Outcome<ChangeInfo> {
    let target = compound.changeable(compound.place()?)?;
    let there = |state: Option<PreOpState>| matches!(state, Some(PreOpState::Object(..)));
    if there(compound.doubt()) && now(&target, name) == Some(PreOpState::Absent) {
        return Ok(changed_before(&target));
    }
    let _change = compound.begin_change(target.export, target.object)?;
    compound.note(now(&target, name))?;
    let caller = target.squashed.caller();
    let (effect, removed) = target.export.store.remove_xattr(caller, target.object, name);
    removed.map_err(Status::from_fs)?;
    Ok(change_info(&effect))
}

/// A part of a list of names.
struct Listed {
    /// Where each of the names ends in the compound's text.
    ends: Vec<usize>,
    cookie: u64,
    eof: bool,
}

/// LISTXATTRS.
pub(super) fn list(compound: &mut Compound<'_>, args: &ListArgs, out: &mut Replies<'_>) -> Status {
    let most = args.count_max.min(LIST_BYTES_MAX).min(compound.payload_bytes_max);
    let most = most.min(compound.list_bytes_max(out.len()));
    let listed = match names(compound, args.cookie, most as usize) {
        Ok(listed) => listed,
        Err(Status::TOOSMALL) => {
            let status = compound.no_room_for_list(out.len(), args.count_max);
            return out.fail(Operation::ListXattrs, status);
        }
        Err(status) => return out.fail(Operation::ListXattrs, status),
    };
    let starts = std::iter::once(0).chain(listed.ends.iter().copied());
    let ranges = starts.zip(listed.ends.iter().copied());
    let names: Vec<&[u8]> =
        ranges.map(|(start, end)| compound.text.get(start..end).unwrap_or_default()).collect();
    let names = Array::from(names.as_slice());
    out.push(&Reply::ListXattrs(Ok(ListSuccess { cookie: listed.cookie, names, eof: listed.eof })))
}

/// The names after a cookie, as far as they fit.
fn names(compound: &mut Compound<'_>, cookie: u64, most: usize) -> Outcome<Listed> {
    let place = compound.place()?;
    let mut left = most.checked_sub(EMPTY_LIST_BYTES).ok_or(Status::TOOSMALL)?;
    let mut listed = Listed { ends: Vec::new(), cookie, eof: true };
    let super::compound::Place::Object(export, object) = place else { return Ok(listed) };
    let target = compound.target(export, object)?;
    let text = &mut *compound.text;
    text.clear();
    let (caller, store) = (target.squashed.caller(), &target.export.store);
    let eof = store.list_xattrs(caller, target.object, cookie, &mut |name, cookie| {
        let Some(rest) = left.checked_sub(4 + name.len() + xdr::padding(name.len())) else { return false };
        left = rest;
        text.extend_from_slice(name);
        listed.ends.push(text.len());
        listed.cookie = cookie;
        true
    });
    listed.eof = eof.map_err(Status::from_fs)?;
    // RFC 8276 s8.4.3.3: room for nothing is told from an end.
    if listed.ends.is_empty() && !listed.eof { Err(Status::TOOSMALL) } else { Ok(listed) }
}

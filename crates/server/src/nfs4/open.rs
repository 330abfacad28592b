//! OPEN, OPEN_DOWNGRADE, CLOSE. RFC 8881 s18.2, s18.16, s18.18

use super::attributes::{EXCLUSIVE, change_info, to_set, unchanged};
use super::compound::progress::changed_before;
use super::compound::{Compound, Outcome, Place};
use super::delegation;
use super::io::{check, of_kind};
use super::names::{check_name, of_lookup};
use super::pseudo;
use super::status::{of_handler, of_state};
use crate::export::Export;
use crate::nfs4_state::{file_name, parse_file_name};
use crate::request::Target;
use fs::{CreateMode, FileKind, Rights, SetAttributes};
use nfs4::op::close::DowngradeArgs;
use nfs4::op::open::{Args, Claim, How, Success, access, result_flag};
use nfs4::types::attributes::number;
use nfs4::{Bitmap, ChangeInfo, Fattr, Stateid, Status};
use state::{NOTE_WORDS, OpenArgs, StateId};
use store::{Found, NewObject, ObjectId};

/// How often a file may come and go between a look and a creation.
const ATTEMPTS: usize = 3;

/// Where a store keeps the verifier of an exclusive creation: a client sets these afterwards.
const VERIFIER_PLACE: Bitmap = Bitmap::of(&[number::TIME_ACCESS, number::TIME_MODIFY]);

/// The file to be opened.
struct Chosen<'a> {
    export: &'a Export,
    found: Found,
    directory: ChangeInfo,
    /// The attributes that were set at its creation.
    set: Bitmap,
    /// The caller has just created it, and may open it whatever its mode says.
    is_new: bool,
    /// It is to be emptied once it is open.
    truncate: bool,
}

/// Access and deny of OPEN and OPEN_DOWNGRADE, as the state has them.
fn shares(of_access: u32, of_deny: u32) -> Outcome<(u8, u8)> {
    let wanted = of_access & access::WANT_MASK;
    let is_known = of_access & !access::KNOWN == 0 && wanted <= access::WANT_CANCEL;
    match (of_access & access::BOTH, of_deny) {
        (1..=3, 0..=3) if is_known => Ok(((of_access & access::BOTH) as u8, of_deny as u8)),
        _ => Err(Status::INVAL),
    }
}

/// OPEN.
pub(super) fn open(compound: &mut Compound<'_>, args: &Args<'_>) -> Outcome<Success<'static>> {
    let (wanted, denied) = shares(args.access, args.deny)?;
    compound.place()?;
    let reclaim = matches!(args.claim, Claim::Previous(_));
    let (state, client) = (&compound.shared.state, compound.client()?);
    compound.admits_new_state(reclaim)?;
    state.may_open(compound.now, client, reclaim).map_err(|error| of_state(&error))?;
    let chosen = match args.claim {
        Claim::Name(name) => by_name(compound, name, args)?,
        Claim::Current | Claim::Previous(_) if args.how == How::NoCreate => current(compound)?,
        Claim::Current | Claim::Previous(_) => return Err(Status::INVAL),
        Claim::DelegatedName { delegation, name } if args.how == How::NoCreate => {
            let chosen = by_name(compound, name, args)?;
            delegation::check(compound, chosen.export, chosen.found.object, (delegation, wanted))?;
            chosen
        }
        Claim::Delegated(delegation) if args.how == How::NoCreate => {
            let chosen = current(compound)?;
            delegation::check(compound, chosen.export, chosen.found.object, (delegation, wanted))?;
            chosen
        }
        Claim::DelegatedName { .. } | Claim::Delegated(_) => return Err(Status::INVAL),
        Claim::PreviouslyDelegatedName(_) | Claim::PreviouslyDelegated => return Err(Status::NOTSUPP),
    };
    of_kind(chosen.found.attributes.kind)?;
    compound.knows_of_loss(chosen.export, chosen.found.object)?;
    let target = compound.target(chosen.export, chosen.found.object)?;
    check_rights(&chosen, &target, wanted)?;
    let file = file_name(chosen.export, chosen.found.object);
    if chosen.truncate && wanted & state::WRITE == 0 {
        let denied = state.check_io(compound.shared.host(), compound.now, Some(client), &file, state::WRITE);
        denied.map_err(|error| of_state(&error))?;
    }
    let (export, object) = (chosen.export, chosen.found.object);
    let change = if chosen.truncate { compound.begin_change(export, object)? } else { None };
    // Held before it is open, so that it cannot go in between.
    let held = compound.shared.hold(compound.now, chosen.export, chosen.found.object, file.clone());
    let opening = held.map_err(Status::from_fs)?;
    let owner = args.owner.owner.as_slice();
    let created = chosen.is_new;
    let opened = OpenArgs { owner, file: &file, access: wanted, deny: denied, reclaim, created };
    let done = state.open_file_first(compound.shared.host(), compound.now, compound.ticket()?, &opened);
    let (id, undo) = done.map_err(|error| of_state(&error))?;
    if chosen.truncate
        && let Err(status) = empty(&target)
    {
        // An open is of no use to a client that does not learn of it.
        let undone = state.undo_open(compound.shared.host(), compound.now, compound.ticket()?, id, &undo);
        if let Err(error) = undone {
            tracing::warn!(%error, "an open that failed cannot be taken back");
        }
        return Err(status);
    }
    drop(change);
    let delegation = delegation::granted(compound, args, chosen.export, &file);
    opening.keep();
    compound.set(Place::Object(chosen.export, chosen.found.object));
    let stateid = compound.put_stateid(id);
    Ok(Success {
        stateid,
        directory: chosen.directory,
        flags: result_flags(compound)?,
        set: chosen.set,
        delegation,
    })
}

/// The result of an OPEN that a process, which has ended, has done in the state: the file is opened
/// as it was, and held by this process.
pub(super) fn committed(
    compound: &mut Compound<'_>,
    args: &Args<'_>,
    id: StateId,
    note: [u64; NOTE_WORDS],
) -> Outcome<Success<'static>> {
    let shared = compound.shared;
    let name = shared.state.file_of_open(shared.host(), compound.now, compound.client()?, id);
    let name = name.map_err(|error| of_state(&error))?;
    let (export, object) = named_file(compound, &name).ok_or(Status::STALE)?;
    let held = shared.hold(compound.now, export, object, file_name(export, object));
    let opening = held.map_err(Status::from_fs)?;
    let target = compound.target(export, object)?;
    // A file that was new is empty.
    if asks_to_empty(compound, &args.how)? && !matches!(target.attributes(), Ok(Ok(now)) if now.size == 0) {
        // If the open is not for writing, others may have a delegation by now.
        let _change = compound.begin_change(export, object)?;
        empty(&target)?;
    }
    opening.keep();
    let directory = match (&args.claim, compound.place()?) {
        (Claim::Name(_), Place::Object(export, directory)) => {
            changed_before(&compound.target(export, directory)?)
        }
        _ => ChangeInfo::default(),
    };
    let set = set_at_creation(compound, &args.how)?;
    compound.set(Place::Object(export, object));
    let stateid = compound.put_stateid(id);
    let flags = result_flags(compound)?;
    let delegation = shared.state.committed_delegation(note);
    let delegation = delegation.map_or_else(|| delegation::none(args), delegation::read);
    Ok(Success { stateid, directory, flags, set, delegation })
}

/// What holds for locks of the file: who can be called back is told when one is free.
fn result_flags(compound: &Compound<'_>) -> Outcome<u32> {
    let has_back = compound.shared.state.has_back_channel(compound.ticket()?);
    let may_notify = if has_back == Ok(true) { result_flag::MAY_NOTIFY_LOCK } else { 0 };
    Ok(result_flag::LOCKTYPE_POSIX | may_notify)
}

/// The file of a name that [`file_name`] has made.
fn named_file<'a>(compound: &Compound<'a>, name: &[u8]) -> Option<(&'a Export, ObjectId)> {
    let (fsid, object) = parse_file_name(name)?;
    let client = compound.request.client;
    let export = client.exports.iter().find(|(_, export)| export.config.fsid == fsid)?.1;
    Some((export, object))
}

/// Whether an OPEN empties a file that exists.
fn asks_to_empty(compound: &Compound<'_>, how: &How<'_>) -> Outcome<bool> {
    match how {
        How::Unchecked(given) => Ok(to_set(compound, given, true)?.0.size == Some(0)),
        How::NoCreate | How::Guarded(_) | How::Exclusive(_) | How::ExclusiveWith(..) => Ok(false),
    }
}

/// The attributes that an OPEN has certainly set. What an unchecked creation has set besides the
/// size depends on whether the file was there.
fn set_at_creation(compound: &Compound<'_>, how: &How<'_>) -> Outcome<Bitmap> {
    Ok(match how {
        How::NoCreate => Bitmap::EMPTY,
        How::Unchecked(_) if asks_to_empty(compound, how)? => Bitmap::of(&[number::SIZE]),
        How::Unchecked(_) => Bitmap::EMPTY,
        How::Guarded(given) => to_set(compound, given, true)?.1,
        How::Exclusive(_) => VERIFIER_PLACE,
        How::ExclusiveWith(_, given) => to_set(compound, given, true)?.1 | VERIFIER_PLACE,
    })
}

fn empty(target: &Target<'_>) -> Outcome<()> {
    let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let caller = target.squashed.caller();
    let (_, result) = target.export.store.set_attributes(caller, target.object, &set, None);
    result.map_err(Status::from_fs)
}

/// Whether the caller may have the file open for this.
fn check_rights(chosen: &Chosen<'_>, target: &Target<'_>, wanted: u8) -> Outcome<()> {
    let changes = wanted & state::WRITE != 0 || chosen.truncate;
    if changes && chosen.export.config.read_only {
        return Err(Status::ROFS);
    }
    if chosen.is_new {
        return Ok(());
    }
    let asked = Rights::READ | Rights::MODIFY | Rights::EXECUTE;
    let (rights, _) = target.access(asked).map_err(of_handler)?.map_err(Status::from_fs)?;
    // A program that may be run must be read for that.
    let reads = !(rights & (Rights::READ | Rights::EXECUTE)).is_empty();
    let writes = !(rights & Rights::MODIFY).is_empty();
    if wanted & state::READ != 0 && !reads || changes && !writes {
        return Err(Status::ACCESS);
    }
    Ok(())
}

/// The current object, for CLAIM_FH and CLAIM_PREVIOUS.
fn current<'a>(compound: &Compound<'a>) -> Outcome<Chosen<'a>> {
    let Place::Object(export, object) = compound.place()? else { return Err(Status::ISDIR) };
    let target = compound.target(export, object)?;
    let attributes = target.attributes().map_err(of_handler)?.map_err(Status::from_fs)?;
    let found = Found { object, attributes };
    Ok(existing(export, found, ChangeInfo::default()))
}

const fn existing(export: &Export, found: Found, directory: ChangeInfo) -> Chosen<'_> {
    Chosen { export, found, directory, set: Bitmap::EMPTY, is_new: false, truncate: false }
}

/// The object of a name in the current directory, which is created if that is wanted.
fn by_name<'a>(compound: &Compound<'a>, name: &[u8], args: &Args<'_>) -> Outcome<Chosen<'a>> {
    let (place, how) = (compound.place()?, &args.how);
    check_name(name)?;
    let creates = *how != How::NoCreate;
    let (export, directory) = match place {
        Place::Object(export, directory) => (export, directory),
        Place::Pseudo(node) => {
            let found = node.child(compound.request.client, name).map(|_| Status::ISDIR);
            return Err(found.unwrap_or(if creates { Status::ROFS } else { Status::NOENT }));
        }
    };
    let target = compound.target(export, directory)?;
    if pseudo::leads_away(compound.request.client, target.export, target.object, name).is_some() {
        let may_exist = matches!(how, How::NoCreate | How::Unchecked(_));
        return Err(if may_exist { Status::ISDIR } else { Status::EXIST });
    }
    let at = NewName { export, directory, name, owner: args.owner.owner.as_slice() };
    match how {
        How::NoCreate => look(compound, export, directory, name)?.map_err(|status| {
            compound.target(export, directory).map_or(Status::from_fs(status), |at| of_lookup(&at, status))
        }),
        How::Unchecked(given) => unchecked(compound, at, given),
        How::Guarded(given) => {
            let (set, mask) = to_set(compound, given, true)?;
            made(compound, at, CreateMode::Guarded(set), mask)?.map_err(Status::from_fs)
        }
        How::Exclusive(verifier) => exclusive(compound, at, *verifier, &Fattr::EMPTY),
        How::ExclusiveWith(verifier, given) => exclusive(compound, at, *verifier, given),
    }
}

/// The present object of a name.
fn look<'a>(
    compound: &Compound<'a>,
    export: &'a Export,
    directory: ObjectId,
    name: &[u8],
) -> Outcome<Result<Chosen<'a>, fs::Status>> {
    let target = compound.target(export, directory)?;
    let (attributes, found) = target.lookup(name).map_err(of_handler)?;
    let change = attributes.as_ref().map_or(ChangeInfo::default(), unchanged);
    Ok(found.map(|found| existing(export, found, change)))
}

/// Where a file may have to be created, and for whom it is to be opened.
#[derive(Clone, Copy)]
struct NewName<'a, 'b> {
    export: &'a Export,
    directory: ObjectId,
    name: &'b [u8],
    owner: &'b [u8],
}

/// A new file.
fn made<'a>(
    compound: &Compound<'a>,
    at: NewName<'a, '_>,
    mode: CreateMode,
    set: Bitmap,
) -> Outcome<Result<Chosen<'a>, fs::Status>> {
    let target = compound.changeable(Place::Object(at.export, at.directory))?;
    // An open that is refused leaves no file behind.
    let state = &compound.shared.state;
    let room = state.has_room_for_open(compound.shared.host(), compound.now, compound.ticket()?, at.owner);
    room.map_err(|error| of_state(&error))?;
    // An exclusive creation that is done again finds its own file.
    if let CreateMode::Guarded(wanted) = &mode {
        if let Some(made) = made_before(compound, at, &target, wanted, set)? {
            return Ok(Ok(made));
        }
        compound.note_name(&target, at.name)?;
    }
    let caller = target.squashed.caller();
    let (effect, found) = at.export.store.create(caller, at.directory, at.name, NewObject::File(mode));
    Ok(found.map(|found| Chosen {
        export: at.export,
        found,
        directory: change_info(&effect),
        set,
        is_new: true,
        truncate: false,
    }))
}

/// A file that a process, which has ended, has created for this OPEN.
fn made_before<'a>(
    compound: &Compound<'a>,
    at: NewName<'a, '_>,
    directory: &Target<'a>,
    wanted: &SetAttributes,
    set: Bitmap,
) -> Outcome<Option<Chosen<'a>>> {
    let is_file = |found: &Found| found.attributes.kind == FileKind::Regular;
    let Some(found) = compound.made_before(directory, at.name, is_file)? else { return Ok(None) };
    let attributes = compound.complete_attributes(directory, &found, wanted)?;
    Ok(Some(Chosen {
        export: at.export,
        found: Found { attributes, ..found },
        directory: changed_before(directory),
        set,
        is_new: true,
        truncate: false,
    }))
}

/// UNCHECKED4: an existing file is used; of the attributes only a size of 0 applies to it.
fn unchecked<'a>(compound: &Compound<'a>, at: NewName<'a, '_>, given: &Fattr<'_>) -> Outcome<Chosen<'a>> {
    let (set, mask) = to_set(compound, given, true)?;
    if compound.is_in_doubt() {
        let target = compound.changeable(Place::Object(at.export, at.directory))?;
        if let Some(made) = made_before(compound, at, &target, &set, mask)? {
            return Ok(made);
        }
    }
    for _ in 0..ATTEMPTS {
        match look(compound, at.export, at.directory, at.name)? {
            Ok(found) => {
                let truncate = set.size == Some(0);
                let applied = if truncate { Bitmap::of(&[number::SIZE]) } else { Bitmap::EMPTY };
                return Ok(Chosen { truncate, set: applied, ..found });
            }
            Err(fs::Status::NotFound) => {}
            Err(status) => {
                let target = compound.target(at.export, at.directory)?;
                return Err(of_lookup(&target, status));
            }
        }
        match made(compound, at, CreateMode::Guarded(set), mask)? {
            // Another client was faster.
            Err(fs::Status::Exists) => {}
            made => return made.map_err(Status::from_fs),
        }
    }
    Err(Status::DELAY)
}

/// EXCLUSIVE4 and EXCLUSIVE4_1: a file that was created with the same verifier is a success.
fn exclusive<'a>(
    compound: &Compound<'a>,
    at: NewName<'a, '_>,
    verifier: fs::Verifier,
    given: &Fattr<'_>,
) -> Outcome<Chosen<'a>> {
    let (set, mask) = to_set(compound, given, true)?;
    // RFC 8881 s18.16.3: only what `suppattr_exclcreat` has.
    if !mask.is_within(EXCLUSIVE) {
        return Err(Status::INVAL);
    }
    let made = made(compound, at, CreateMode::Exclusive(verifier), mask | VERIFIER_PLACE)?;
    let chosen = made.map_err(Status::from_fs)?;
    let target = compound.target(chosen.export, chosen.found.object)?;
    let caller = target.squashed.caller();
    // A file that was there is a success too, and verifiers can be seen: only to its owner it
    // counts as new.
    let chosen = Chosen { is_new: chosen.found.attributes.uid == caller.uid, ..chosen };
    if !mask.is_empty() {
        // Who asks again finds the file by its verifier.
        let _change = compound.begin_change(chosen.export, chosen.found.object)?;
        let (_, result) = target.export.store.set_attributes(caller, target.object, &set, None);
        result.map_err(Status::from_fs)?;
    }
    Ok(chosen)
}

/// The state of the current file that an operation changes.
pub(super) fn of_current(compound: &Compound<'_>, id: Stateid) -> Outcome<StateId> {
    let target = compound.object_or(Status::ISDIR)?;
    let id = compound.stateid(id)?;
    if id.is_special() {
        return Err(Status::BAD_STATEID);
    }
    check(compound, &target, id, state::READ)?;
    Ok(id)
}

/// OPEN_DOWNGRADE.
pub(super) fn downgrade(compound: &mut Compound<'_>, args: &DowngradeArgs) -> Outcome<Stateid> {
    let (wanted, denied) = shares(args.access, args.deny)?;
    let id = of_current(compound, args.open)?;
    let state = &compound.shared.state;
    let id = state.downgrade(compound.shared.host(), compound.now, compound.ticket()?, id, wanted, denied);
    let id = id.map_err(|error| of_state(&error))?;
    Ok(compound.put_stateid(id))
}

/// CLOSE. Locks of the open are released.
pub(super) fn close(compound: &mut Compound<'_>, id: Stateid) -> Outcome<Stateid> {
    let id = of_current(compound, id)?;
    let closed = compound.shared.state.close(compound.shared.host(), compound.now, compound.ticket()?, id);
    closed.map_err(|error| of_state(&error))?;
    Ok(self::closed(compound))
}

/// The current file has an open less.
pub(super) fn closed(compound: &mut Compound<'_>) -> Stateid {
    closed_file(compound);
    compound.set_stateid(Stateid::INVALID);
    Stateid::INVALID
}

/// Lets the current file go if nobody has it open any more, or delegated.
pub(super) fn closed_file(compound: &Compound<'_>) {
    if let Ok(Place::Object(export, object)) = compound.place() {
        compound.shared.release(compound.now, &file_name(export, object));
    }
}

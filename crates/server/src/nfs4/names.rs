//! LOOKUP, LOOKUPP, CREATE, REMOVE, RENAME, LINK, READLINK, READDIR: the names in directories.
//! RFC 8881 s18.4, s18.9, s18.13, s18.14, s18.23 to s18.26

use super::DIRECTORY_BYTES_MAX;
use super::attributes::{change_info, to_set};
use super::compound::progress::changed_before;
use super::compound::{Compound, Outcome, Place, Replies};
use super::listing::{list_node, list_object};
use super::pseudo::{self, Way};
use super::status::of_handler;
use crate::request::Target;
use fs::{FileKind, Special, Verifier};
use nfs4::op::create::{Args as CreateArgs, Success as Created, What};
use nfs4::op::link::{RenameArgs, RenameSuccess};
use nfs4::op::readdir::Args as ReadDirArgs;
use nfs4::op::{Operation, Reply, readlink};
use nfs4::{ChangeInfo, Status};
use store::{Found, NewObject};

/// Cookies stay valid while names come and go, so there is nothing to verify.
const COOKIE_VERIFIER: Verifier = [0; 8];

/// What a REMOVE or a RENAME gets of a name that leads to another export. Version 4 has no status
/// for what is in use but a file; Linux answers so for a directory on which something is mounted.
/// RFC 8881 s18.25.4, s18.26.4
const MOUNTED: Status = Status::ACCESS;

/// Checks a component of a path as far as no store would. RFC 8881 s14.4
pub(super) fn check_name(name: &[u8]) -> Outcome<()> {
    match name {
        b"" => Err(Status::INVAL),
        b"." | b".." => Err(Status::BADNAME),
        name if name.contains(&b'/') || name.contains(&0) => Err(Status::BADCHAR),
        _ => Ok(()),
    }
}

/// What a failed lookup says of a current object that is no directory. RFC 8881 s18.13.4
pub(super) fn of_lookup(target: &Target<'_>, status: fs::Status) -> Status {
    if status == fs::Status::NotDirectory
        && let Ok(Ok(attributes)) = target.attributes()
        && attributes.kind == FileKind::Symlink
    {
        return Status::SYMLINK;
    }
    Status::from_fs(status)
}

/// What a name in the current directory leads to.
pub(super) fn find<'a>(compound: &Compound<'a>, name: &[u8]) -> Outcome<Place<'a>> {
    let place = compound.place()?;
    check_name(name)?;
    match place {
        Place::Pseudo(node) => node.child(compound.request.client, name),
        Place::Object(export, object) => {
            let target = compound.target(export, object)?;
            let way = pseudo::way(compound.request.client, export, object, name);
            let (_, found) = target.lookup(name).map_err(of_handler)?;
            match (found, way) {
                (Ok(_) | Err(fs::Status::NotFound), Some(Way::Mount(place)))
                | (Err(fs::Status::NotFound), Some(Way::Through(place))) => Ok(place),
                (Ok(found), _) => Ok(Place::Object(export, found.object)),
                (Err(status), _) => Err(of_lookup(&target, status)),
            }
        }
    }
}

/// Whether a name leads out of the export of a directory that is to be changed.
fn leads_away(compound: &Compound<'_>, at: &Target<'_>, name: &[u8]) -> bool {
    pseudo::leads_away(compound.request.client, at.export, at.object, name).is_some()
}

/// LOOKUP.
pub(super) fn lookup(compound: &mut Compound<'_>, name: &[u8]) -> Outcome<()> {
    let found = find(compound, name)?;
    // RFC 8881 s2.6.3.1.1.3
    compound.check_flavor(found)?;
    compound.set(found);
    Ok(())
}

/// The directory above the current one.
pub(super) fn parent<'a>(compound: &Compound<'a>) -> Outcome<Place<'a>> {
    match compound.place()? {
        Place::Pseudo(node) => pseudo::above(compound, node),
        Place::Object(export, object) if object == export.store.root() => {
            pseudo::above_root(compound, export)
        }
        Place::Object(export, object) => {
            let target = compound.target(export, object)?;
            let (_, found) = target.lookup(b"..").map_err(of_handler)?;
            let found = found.map_err(|status| of_lookup(&target, status))?;
            Ok(Place::Object(export, found.object))
        }
    }
}

/// LOOKUPP.
pub(super) fn lookup_parent(compound: &mut Compound<'_>) -> Outcome<()> {
    let found = parent(compound)?;
    // RFC 8881 s2.6.3.1.1.4
    compound.check_flavor(found)?;
    compound.set(found);
    Ok(())
}

/// CREATE.
pub(super) fn create(compound: &mut Compound<'_>, args: &CreateArgs<'_>) -> Outcome<Created> {
    let place = compound.place()?;
    check_name(args.name)?;
    let (set, mask) = to_set(compound, &args.attributes, true)?;
    let new = match args.what {
        What::Directory => NewObject::Directory(set),
        What::Symlink(text) => NewObject::Symlink(set, text),
        What::BlockDevice(device) => NewObject::Special(set, Special::BlockDevice(device)),
        What::CharacterDevice(device) => NewObject::Special(set, Special::CharacterDevice(device)),
        What::Socket => NewObject::Special(set, Special::Socket),
        What::Fifo => NewObject::Special(set, Special::Fifo),
        // OPEN creates regular files.
        What::Other(_) => return Err(Status::BADTYPE),
    };
    let target = compound.changeable(place)?;
    if leads_away(compound, &target, args.name) {
        return Err(Status::EXIST);
    }
    let store = &target.export.store;
    let is_asked = |found: &Found| is_as_asked(&target, found, &new);
    if let Some(found) = compound.made_before(&target, args.name, is_asked)? {
        compound.complete_attributes(&target, &found, &set)?;
        compound.set(Place::Object(target.export, found.object));
        return Ok(Created { directory: changed_before(&target), set: mask });
    }
    compound.note_name(&target, args.name)?;
    let (effect, created) = store.create(target.squashed.caller(), target.object, args.name, new);
    let created = created.map_err(Status::from_fs)?;
    compound.set(Place::Object(target.export, created.object));
    Ok(Created { directory: change_info(&effect), set: mask })
}

/// Whether an object is what a CREATE asks for.
fn is_as_asked(target: &Target<'_>, found: &Found, new: &NewObject<'_>) -> bool {
    let is_same_text = match new {
        NewObject::Symlink(_, text) => {
            let mut its = Vec::new();
            target.export.store.read_link(found.object, &mut its).is_ok() && its == *text
        }
        NewObject::File(_) | NewObject::Directory(_) | NewObject::Special(..) => true,
    };
    found.attributes.kind == new.kind() && is_same_text
}

/// REMOVE, of anything.
pub(super) fn remove(compound: &Compound<'_>, name: &[u8]) -> Outcome<ChangeInfo> {
    let place = compound.place()?;
    check_name(name)?;
    let target = compound.changeable(place)?;
    if leads_away(compound, &target, name) {
        return Err(MOUNTED);
    }
    if compound.is_taken_away(&target, name)? {
        return Ok(changed_before(&target));
    }
    compound.admits_new_state(false)?;
    let _change = compound.begin_change_named(&target, name)?;
    compound.note_name(&target, name)?;
    let _held = target.hold_if_open(compound.shared, compound.now, name);
    let (store, caller) = (&target.export.store, target.squashed.caller());
    let (mut effect, mut result) = store.remove(caller, target.object, name);
    if matches!(result, Err(fs::Status::IsDirectory)) {
        (effect, result) = store.remove_directory(caller, target.object, name);
    }
    result.map_err(Status::from_fs)?;
    Ok(change_info(&effect))
}

/// RENAME, from the saved to the current directory.
pub(super) fn rename(compound: &Compound<'_>, args: &RenameArgs<'_>) -> Outcome<RenameSuccess> {
    let (source, target) = (compound.saved_place()?, compound.place()?);
    check_name(args.old)?;
    check_name(args.new)?;
    let (from, to) = (compound.changeable(source)?, compound.changeable(target)?);
    if !std::ptr::eq(from.export, to.export) {
        return Err(Status::XDEV);
    }
    if leads_away(compound, &from, args.old) || leads_away(compound, &to, args.new) {
        return Err(MOUNTED);
    }
    if compound.is_taken_away(&from, args.old)? {
        to.export.store.sync_names(to.object).map_err(Status::from_fs)?;
        return Ok(RenameSuccess { source: changed_before(&from), target: changed_before(&to) });
    }
    compound.admits_new_state(false)?;
    let _moved = compound.begin_change_named(&from, args.old)?;
    let _replaced = compound.begin_change_named(&to, args.new)?;
    compound.note_name(&from, args.old)?;
    let _held = to.hold_if_open(compound.shared, compound.now, args.new);
    let caller = from.squashed.caller();
    let (source, target) = ((from.object, args.old), (to.object, args.new));
    let (left, moved, result) = from.export.store.rename(caller, source, target);
    result.map_err(Status::from_fs)?;
    Ok(RenameSuccess { source: change_info(&left), target: change_info(&moved) })
}

/// LINK, of the saved object into the current directory.
pub(super) fn link(compound: &Compound<'_>, name: &[u8]) -> Outcome<ChangeInfo> {
    let (source, target) = (compound.saved_place()?, compound.place()?);
    check_name(name)?;
    let directory = compound.changeable(target)?;
    let file = match source {
        Place::Pseudo(_) => return Err(Status::XDEV),
        Place::Object(export, object) => compound.target(export, object)?,
    };
    if !std::ptr::eq(file.export, directory.export) {
        return Err(Status::XDEV);
    }
    if leads_away(compound, &directory, name) {
        return Err(Status::EXIST);
    }
    let is_its = |found: &Found| found.object == file.object;
    if compound.made_before(&directory, name, is_its)?.is_some() {
        return Ok(changed_before(&directory));
    }
    let _change = compound.begin_change(file.export, file.object)?;
    compound.note_name(&directory, name)?;
    let caller = file.squashed.caller();
    let (_, effect, result) = file.export.store.link(caller, file.object, directory.object, name);
    result.map_err(|status| match status {
        // RFC 8881 s18.9.4: a directory has no further names.
        fs::Status::NotPermitted if is_directory(&file) => Status::ISDIR,
        other => Status::from_fs(other),
    })?;
    Ok(change_info(&effect))
}

fn is_directory(target: &Target<'_>) -> bool {
    matches!(target.attributes(), Ok(Ok(attributes)) if attributes.kind == FileKind::Directory)
}

/// READLINK.
pub(super) fn read_link(compound: &mut Compound<'_>, out: &mut Replies<'_>) -> Status {
    let found = link_text(compound);
    match found {
        Err(status) => out.fail(Operation::ReadLink, status),
        Ok(()) => out.push(&Reply::ReadLink(Ok(readlink::Success { text: compound.text }))),
    }
}

fn link_text(compound: &mut Compound<'_>) -> Outcome<()> {
    let target = compound.object_or(Status::WRONG_TYPE)?;
    compound.text.clear();
    let text = target.export.store.read_link(target.object, compound.text);
    text.map(drop).map_err(|status| match status {
        // RFC 8881 s18.24.4
        fs::Status::Invalid => Status::WRONG_TYPE,
        other => Status::from_fs(other),
    })
}

/// READDIR.
pub(super) fn read_directory(
    compound: &mut Compound<'_>,
    args: &ReadDirArgs,
    out: &mut Replies<'_>,
) -> Status {
    let place = match compound.place() {
        Ok(place) => place,
        Err(status) => return out.fail(Operation::ReadDir, status),
    };
    // RFC 8881 s18.23.3: no cookie that a server returns is 1 or 2.
    if matches!(args.cookie, 1 | 2) {
        return out.fail(Operation::ReadDir, Status::BAD_COOKIE);
    }
    let most = args.maxcount.min(DIRECTORY_BYTES_MAX).min(compound.payload_bytes_max);
    let before = out.len();
    let most = most.min(compound.list_bytes_max(before));
    let listed = out.readdir(COOKIE_VERIFIER, args.dircount, most, |entries| match place {
        Place::Pseudo(node) => list_node(compound, node, args, entries),
        Place::Object(..) => list_object(compound, args, entries),
    });
    if listed == Status::TOOSMALL {
        return out.replace_last(Operation::ReadDir, compound.no_room_for_list(before, args.maxcount));
    }
    listed
}

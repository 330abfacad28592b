//! GETATTR, SETATTR, VERIFY, NVERIFY, ACCESS, and what is sent of an object. RFC 8881 s5, s18.1,
//! s18.7, s18.15, s18.30, s18.31

use super::compound::{Compound, Outcome, Place, Replies};
use super::delegation;
use super::layout;
use super::locations::with_locations;
use super::pseudo;
use super::status::{of_handler, of_wait};
use crate::export::Export;
use crate::program::IO_BYTES_MAX;
use fs::{Effect, FileKind, Rights, SetAttributes, SetTime, Time};
use nfs4::op::access::Success as Access;
use nfs4::op::getattr::{SetArgs, SetReply, Success};
use nfs4::op::layout::TYPE_FILES;
use nfs4::op::{Operation, Reply};
use nfs4::types::attributes::{REQUIRED, SETTABLE, SETTABLE_AT_CREATION, SPACE, number};
use nfs4::{Array, Attributes, Bitmap, ChangeAttrType, ChangeInfo, Fattr, Fsid, Status};
use std::time::Duration;
use store::{ObjectId, Wait};

/// Permission bits with set-user-id, set-group-id and sticky. RFC 8881 s6.2.4
const MODE_BITS: u32 = 0o7777;
const NANOSECONDS: u32 = 1_000_000_000;

/// What can be asked of every object besides [`REQUIRED`], in version 4.1.
const RECOMMENDED: Bitmap = Bitmap::of(&[
    number::ACLSUPPORT,
    number::CANSETTIME,
    number::CASE_INSENSITIVE,
    number::CASE_PRESERVING,
    number::CHOWN_RESTRICTED,
    number::FILEID,
    number::FILES_AVAIL,
    number::FILES_FREE,
    number::FILES_TOTAL,
    number::FS_LAYOUT_TYPES,
    number::FS_LOCATIONS,
    number::HOMOGENEOUS,
    number::MAXFILESIZE,
    number::MAXLINK,
    number::MAXNAME,
    number::MAXREAD,
    number::MAXWRITE,
    number::MDSTHRESHOLD,
    number::MODE,
    number::NO_TRUNC,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_AVAIL,
    number::SPACE_FREE,
    number::SPACE_TOTAL,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_ACCESS_SET,
    number::TIME_DELTA,
    number::TIME_METADATA,
    number::TIME_MODIFY,
    number::TIME_MODIFY_SET,
    number::MOUNTED_ON_FILEID,
    number::FS_CHARSET_CAP,
]);

/// What version 4.2 adds.
const RECOMMENDED_4_2: Bitmap =
    Bitmap::of(&[number::CLONE_BLKSIZE, number::CHANGE_ATTR_TYPE, number::XATTR_SUPPORT]);

/// Names are any bytes: FSCHARSET_CAP4_CONTAINS_NON_UTF8. RFC 8881 s14.4
const CHARSET: u32 = 1;

/// What an exclusive creation may set: not the times, in which a store keeps the verifier, nor the
/// size, which changes them.
pub(super) const EXCLUSIVE: Bitmap = Bitmap::of(&[number::MODE, number::OWNER, number::OWNER_GROUP]);

/// The file system of the directories above the exports, which no export has: theirs have a minor
/// number of 0.
const PSEUDO_FSID: Fsid = Fsid { major: 0, minor: 1 };

/// The attributes that can be asked for in a minor version.
pub(super) fn supported(minor: u32) -> Bitmap {
    let all = REQUIRED | RECOMMENDED;
    if minor >= 2 { all | RECOMMENDED_4_2 } else { all }
}

/// A directory before and after a change.
pub(super) fn change_info(effect: &Effect) -> ChangeInfo {
    let before = effect.before.map(|before| before.change);
    let after = effect.after.map(|after| after.change);
    let atomic = effect.atomic && before.is_some() && after.is_some();
    ChangeInfo { atomic, before: before.unwrap_or(0), after: after.unwrap_or(0) }
}

/// A directory that an operation only looked at.
pub(super) const fn unchanged(directory: &fs::Attributes) -> ChangeInfo {
    ChangeInfo { atomic: true, before: directory.change, after: directory.change }
}

/// What does not depend on the object, but on its file system.
fn of_system(compound: &Compound<'_>, export: Option<&Export>) -> Attributes<'static> {
    let capabilities = export.map(|export| export.store.capabilities());
    let limits = capabilities.map(|capabilities| capabilities.limits);
    let time_delta = capabilities.map_or(Duration::from_nanos(1), |capabilities| capabilities.time_delta);
    let grows = capabilities.is_some_and(|capabilities| capabilities.change_grows);
    let has_layouts = export.is_some() && layout::are_offered(compound);
    let (layout_types, thresholds): (&[_], &[_]) =
        if has_layouts { (&[TYPE_FILES], &layout::THRESHOLDS) } else { (&[], &[]) };
    Attributes {
        supported_attrs: Some(supported(compound.minor)),
        fh_expire_type: Some(0),
        link_support: Some(true),
        symlink_support: Some(true),
        named_attr: Some(false),
        unique_handles: Some(true),
        lease_time: Some(u32::try_from(compound.shared.lease.as_secs()).unwrap_or(u32::MAX)),
        rdattr_error: Some(Status::OK),
        aclsupport: Some(0),
        cansettime: Some(true),
        case_insensitive: Some(limits.is_some_and(|limits| limits.case_insensitive)),
        case_preserving: Some(limits.is_none_or(|limits| limits.case_preserving)),
        chown_restricted: Some(limits.is_none_or(|limits| limits.chown_restricted)),
        homogeneous: Some(true),
        maxfilesize: Some(capabilities.map_or(0, |capabilities| capabilities.file_bytes_max)),
        maxlink: Some(limits.map_or(1, |limits| limits.links_max)),
        maxname: Some(limits.map_or(255, |limits| limits.name_bytes_max)),
        maxread: Some(u64::from(IO_BYTES_MAX)),
        maxwrite: Some(u64::from(IO_BYTES_MAX)),
        no_trunc: Some(limits.is_none_or(|limits| limits.no_truncation)),
        time_delta: Some(Time {
            seconds: i64::try_from(time_delta.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: time_delta.subsec_nanos(),
        }),
        suppattr_exclcreat: Some(EXCLUSIVE),
        fs_charset_cap: Some(CHARSET),
        fs_layout_types: Some(Array::from(layout_types)),
        mdsthreshold: Some(Array::from(thresholds)),
        clone_blksize: Some(capabilities.map_or(0, |capabilities| capabilities.clone_block_bytes)),
        // Linux asks the root of the server, once for all that it mounts of it.
        xattr_support: Some(capabilities.is_none_or(|capabilities| capabilities.xattrs)),
        change_attr_type: Some(if grows {
            ChangeAttrType::MONOTONIC_INCR
        } else {
            ChangeAttrType::UNDEFINED
        }),
        ..Attributes::default()
    }
}

/// Attributes of objects of one file system, as far as somebody wants them.
pub(super) struct Describer<'a> {
    system: Attributes<'static>,
    export: Option<&'a Export>,
    wanted: Bitmap,
}

impl<'a> Describer<'a> {
    pub fn new(compound: &Compound<'_>, export: Option<&'a Export>, wanted: Bitmap) -> Self {
        let wanted = wanted & supported(compound.minor);
        let mut system = of_system(compound, export);
        if !(wanted & SPACE).is_empty() {
            let space = export.map(|export| export.store.space()).unwrap_or_default();
            system = Attributes {
                files_avail: Some(space.available_files),
                files_free: Some(space.free_files),
                files_total: Some(space.total_files),
                space_avail: Some(space.available_bytes),
                space_free: Some(space.free_bytes),
                space_total: Some(space.total_bytes),
                ..system
            };
        }
        Self { system, export, wanted }
    }

    /// An object of the export.
    pub fn object(&self, object: ObjectId, of: &fs::Attributes) -> Attributes<'static> {
        let fsid = self.export.map_or(0, |export| export.config.fsid);
        let root = self.export.filter(|export| export.store.root() == object);
        let handle = || self.export.and_then(|export| fs::FileHandle::new(export.handle(object).as_slice()));
        Attributes {
            fsid: Some(Fsid { major: u64::from(fsid), minor: 0 }),
            mounted_on_fileid: Some(root.map_or(of.fileid, pseudo::mounted_on)),
            filehandle: if self.wanted.contains(number::FILEHANDLE) { handle() } else { None },
            ..merged(self.system, Attributes::of_object(of))
        }
    }

    /// A directory above the exports: everybody may look into it, and nobody changes it.
    pub fn node(&self, compound: &Compound<'_>, node: pseudo::Node<'_>) -> Attributes<'static> {
        let directory = fs::Attributes { mode: 0o555, nlink: 2, ..fs::Attributes::of(FileKind::Directory) };
        let fileid = node.fileid();
        Attributes {
            fsid: Some(PSEUDO_FSID),
            fileid: Some(fileid),
            mounted_on_fileid: Some(fileid),
            change: Some(pseudo::generation(compound.request.client)),
            filehandle: pseudo::handle_of(Place::Pseudo(node)).ok(),
            change_attr_type: Some(ChangeAttrType::UNDEFINED),
            ..merged(self.system, Attributes::of_object(&directory))
        }
    }

    /// What an entry has whose attributes cannot be had. RFC 8881 s18.23.3
    pub fn failed(status: Status) -> Attributes<'static> {
        Attributes { rdattr_error: Some(status), ..Attributes::default() }
    }

    pub const fn wanted(&self) -> Bitmap {
        self.wanted
    }
}

/// The attributes of an object, with those of its file system.
fn merged<'a>(system: Attributes<'a>, object: Attributes<'a>) -> Attributes<'a> {
    Attributes {
        file_type: object.file_type,
        change: object.change,
        size: object.size,
        fileid: object.fileid,
        mode: object.mode,
        numlinks: object.numlinks,
        owner: object.owner,
        owner_group: object.owner_group,
        rawdev: object.rawdev,
        space_used: object.space_used,
        time_access: object.time_access,
        time_metadata: object.time_metadata,
        time_modify: object.time_modify,
        ..system
    }
}

/// The wanted attributes of an object.
pub(super) fn of_place(
    compound: &Compound<'_>,
    place: Place<'_>,
    wanted: Bitmap,
) -> Outcome<Attributes<'static>> {
    match place {
        Place::Pseudo(node) => Ok(Describer::new(compound, None, wanted).node(compound, node)),
        Place::Object(export, object) => {
            compound.knows_of_loss(export, object)?;
            let attributes = export.store.attributes(object, Wait::Allowed).map_err(of_wait)?;
            let attributes = attributes.map_err(Status::from_fs)?;
            Ok(Describer::new(compound, Some(export), wanted).object(object, &attributes))
        }
    }
}

/// GETATTR.
pub(super) fn get(compound: &Compound<'_>, wanted: Bitmap, out: &mut Replies<'_>) -> Status {
    // RFC 8881 s5.5: what can only be set cannot be asked for.
    let write_only = wanted & nfs4::types::attributes::WRITE_ONLY;
    if !write_only.is_empty() {
        return out.fail(Operation::GetAttr, Status::INVAL);
    }
    let found = delegation::check_attributes_at_return(compound).and_then(|()| compound.place());
    match found.and_then(|place| Ok((place, of_place(compound, place, wanted)?))) {
        Err(status) => out.fail(Operation::GetAttr, status),
        Ok((place, values)) => {
            let wanted = wanted & supported(compound.minor);
            with_locations(compound, place, wanted, &values, |values| {
                out.push(&Reply::GetAttr(Ok(Success { attributes: Fattr::Send { values, wanted } })))
            })
        }
    }
}

/// The attributes that a client sets on a new object, or on an existing one.
pub(super) fn to_set(
    compound: &Compound<'_>,
    given: &Fattr<'_>,
    at_creation: bool,
) -> Outcome<(SetAttributes, Bitmap)> {
    let settable = if at_creation { SETTABLE_AT_CREATION } else { SETTABLE };
    let parsed = given.raw().parse_settable(supported(compound.minor), settable);
    // Only numeric owners are known here.
    let mut set = parsed.map_err(|error| error.status())?.to_set(b"")?;
    set.mode = set.mode.map(|mode| mode & MODE_BITS);
    let is_sound = |time| !matches!(time, SetTime::To(time) if time.nanoseconds >= NANOSECONDS);
    if !is_sound(set.atime) || !is_sound(set.mtime) {
        return Err(Status::INVAL);
    }
    Ok((set, given.mask()))
}

/// SETATTR.
pub(super) fn set(compound: &Compound<'_>, args: &SetArgs<'_>) -> SetReply {
    match try_set(compound, args) {
        Ok(set) => SetReply { status: Status::OK, set },
        Err(status) => SetReply::failed(status),
    }
}

fn try_set(compound: &Compound<'_>, args: &SetArgs<'_>) -> Outcome<Bitmap> {
    let place = compound.place()?;
    let (set, mask) = to_set(compound, &args.attributes, false)?;
    let target = compound.changeable(place)?;
    // A change of the size is a write. RFC 8881 s18.30.3
    if set.size.is_some() {
        let id = compound.stateid(args.stateid)?;
        super::io::check(compound, &target, id, state::WRITE)?;
    }
    let _change = compound.begin_change(target.export, target.object)?;
    let caller = target.squashed.caller();
    let (_, result) = target.export.store.set_attributes(caller, target.object, &set, None);
    result.map_err(Status::from_fs)?;
    Ok(mask)
}

/// VERIFY goes on if the attributes are the same, NVERIFY if they are not.
pub(super) fn verify(compound: &Compound<'_>, given: &Fattr<'_>, same: bool) -> Outcome<()> {
    let place = compound.place()?;
    let parsed = given.raw().parse_comparable(supported(compound.minor));
    let parsed = parsed.map_err(|error| error.status())?;
    let mask = given.mask();
    let ours = of_place(compound, place, mask)?;
    let is_same = with_locations(compound, place, mask, &ours, |ours| parsed == ours.only(mask));
    match (is_same, same) {
        (true, true) | (false, false) => Ok(()),
        (false, true) => Err(Status::NOT_SAME),
        (true, false) => Err(Status::SAME),
    }
}

/// The rights that change an object.
const CHANGES: Rights =
    Rights(Rights::MODIFY.0 | Rights::EXTEND.0 | Rights::DELETE.0 | Rights::WRITE_XATTRS.0);

/// The rights that this server checks: those of version 3.
const CHECKED: Rights = Rights(0x3f);

/// The rights to read and list extended attributes.
const READ_XATTRS: Rights = Rights(Rights::READ_XATTRS.0 | Rights::LIST_XATTRS.0);

/// The rights that this server checks in a minor version, of objects that have extended attributes
/// or not. RFC 8276 s8.5
const fn checked(minor: u32, has_xattrs: bool) -> u32 {
    let of_xattrs = READ_XATTRS.0 | Rights::WRITE_XATTRS.0;
    if minor >= 2 && has_xattrs { CHECKED.0 | of_xattrs } else { CHECKED.0 }
}

/// ACCESS.
pub(super) fn access(compound: &Compound<'_>, wanted: Rights) -> Outcome<Access> {
    match compound.place()? {
        Place::Pseudo(_) => {
            let supported = Rights(wanted.0 & checked(compound.minor, true));
            let granted = Rights::READ | Rights::LOOKUP | READ_XATTRS;
            Ok(Access { supported, access: supported & granted })
        }
        Place::Object(export, object) => {
            let target = compound.target(export, object)?;
            let has_xattrs = export.store.capabilities().xattrs;
            let supported = Rights(wanted.0 & checked(compound.minor, has_xattrs));
            let asked = if export.config.read_only { supported.without(CHANGES) } else { supported };
            let (rights, _) = target.access(asked).map_err(of_handler)?.map_err(Status::from_fs)?;
            Ok(Access { supported, access: rights & asked })
        }
    }
}

//! The operations on a tree, one compound each: the operations after SEQUENCE are encoded, and
//! their results decoded.

use ::nfs4::compound::RequestWriter;
use ::nfs4::op::{
    Args, Fore, Reply, access, close, create, getattr, kind, link, lookup, open, readdir, verify,
};
use ::nfs4::table::Family;
use ::nfs4::types::attributes::{SPACE, number};
use ::nfs4::{
    Attributes as Told, Bitmap, ChangeInfo, ClientId, Fattr, FileType, Operation as Nfs, Owner, OwnerId,
    StateOwner, Stateid,
};
use fs::{
    Attributes, CreateMode, DirectoryEntry, DirectoryPage, DirectoryPosition, FileHandle, FileSystemInfo,
    Limits, Rights, SetAttributes, Space, Special, Time,
};
use xdr::{Reader, Writer};

use super::reply::{done, expect};
use super::{convert, on, put};
use crate::owners::{Names, SetOwners};
use crate::protocol::{Decode, DecodeOwned, Found, Operation, Procedure};

/// The requested size of the names and cookies of a page of a directory.
const NAMES_BYTES: u32 = 16 << 10;

/// The owner of the opens by which files are created. They end with the compound that makes them,
/// so one owner does for all.
const OPEN_OWNER: &[u8] = b"create";

/// Attributes of the entries of a directory: why there are none, and the number in the directory.
const ENTRY: Bitmap = Bitmap::of(&[number::RDATTR_ERROR, number::FILEID, number::MOUNTED_ON_FILEID]);
/// The same with everything that a lookup would tell.
const ENTRY_PLUS: Bitmap = Bitmap::of(&[number::FILEHANDLE]);

type Compound<'w> = RequestWriter<'w, Fore>;

pub(super) fn operation<T>(named: Nfs, args: Vec<u8>, decode: Decode<T>) -> Operation<T> {
    Operation::new(Procedure::Nfs4(named), args, decode)
}

/// An operation that tells the attributes of an object.
pub(super) fn telling_object<T>(named: Nfs, args: Vec<u8>, decode: DecodeOwned<T>) -> Operation<T> {
    Operation::with_owners(Procedure::Nfs4(named), args, decode)
}

pub(super) fn push_getattr(to: &mut Compound<'_>, wanted: Bitmap) {
    to.push(&Args::GetAttr(getattr::Args { wanted }));
}

/// GETFH GETATTR: which object it is, and what it is like.
fn push_object(to: &mut Compound<'_>) {
    to.push(&Args::GetFh(()));
    push_getattr(to, convert::OBJECT);
}

/// LOOKUP; the two names that no directory of this version has are the directory and its parent.
/// RFC 8881 s18.13.4
fn push_lookup(to: &mut Compound<'_>, name: &[u8]) {
    match name {
        b"." => {}
        b".." => _ = to.push(&Args::LookupP(())),
        name => _ = to.push(&Args::Lookup(lookup::Args { name })),
    }
}

fn invalid(name: &'static str) -> xdr::Error {
    xdr::Error::BadDiscriminant { name, value: 0 }
}

pub(super) fn told<'a>(reader: &mut Reader<'a>) -> xdr::Result<Told<'a>> {
    let told = done(expect::<kind::GetAttr>(reader)?)?;
    told.attributes.parse().map_err(|_| invalid("fattr4"))
}

/// The attributes of an object; its type must be among them. RFC 8881 s5.6
pub(super) fn object(told: &getattr::Success<'_>, names: &Names<'_>) -> xdr::Result<Attributes> {
    let told = told.attributes.parse().map_err(|_| invalid("fattr4"))?;
    convert::object(&told, names).ok_or(invalid("nfs_ftype4"))
}

fn read_object(reader: &mut Reader<'_>, names: &Names<'_>) -> xdr::Result<Attributes> {
    object(&done(expect::<kind::GetAttr>(reader)?)?, names)
}

pub(super) fn read_put(reader: &mut Reader<'_>) -> xdr::Result<()> {
    done(expect::<kind::PutFh>(reader)?)
}

fn read_found(reader: &mut Reader<'_>, names: &Names<'_>) -> xdr::Result<(FileHandle, Attributes)> {
    let found = done(expect::<kind::GetFh>(reader)?)?;
    Ok((found.handle, read_object(reader, names)?))
}

/// How many operations follow, in a compound of so many that is named for this operation, the one
/// that changes something. They only tell what it made, or close it.
pub(super) const fn told_after(operation: Nfs, operations: u32) -> u32 {
    match operation {
        // After PUTFH; nothing follows an open that is kept.
        Nfs::Open => operations.saturating_sub(2),
        Nfs::Create | Nfs::Link => 2,
        Nfs::SetAttr => 1,
        _ => 0,
    }
}

/// A result after the change; `None` if the operation failed, with which the compound ends.
pub(super) fn told_at_end<S>(
    reader: &Reader<'_>,
    reply: Result<S, ::nfs4::Status>,
) -> xdr::Result<Option<S>> {
    match reply {
        Err(_) if reader.remaining() == 0 => Ok(None),
        reply => done(reply).map(Some),
    }
}

pub(super) fn read_object_at_end(
    reader: &mut Reader<'_>,
    names: &Names<'_>,
) -> xdr::Result<Option<Attributes>> {
    let reply = expect::<kind::GetAttr>(reader)?;
    told_at_end(reader, reply)?.map(|told| object(&told, names)).transpose()
}

pub(super) fn read_handle_at_end(reader: &mut Reader<'_>) -> xdr::Result<Option<FileHandle>> {
    let reply = expect::<kind::GetFh>(reader)?;
    Ok(told_at_end(reader, reply)?.map(|found| found.handle))
}

fn made(reader: &mut Reader<'_>, names: &Names<'_>) -> xdr::Result<Found> {
    read_put(reader)?;
    done(expect::<kind::Create>(reader)?)?;
    let handle = read_handle_at_end(reader)?;
    let attributes = if handle.is_some() { read_object_at_end(reader, names)? } else { None };
    Ok(Found { handle, attributes })
}

fn opened(reader: &mut Reader<'_>, names: &Names<'_>) -> xdr::Result<Found> {
    read_put(reader)?;
    done(expect::<kind::Open>(reader)?)?;
    let handle = read_handle_at_end(reader)?;
    let mut attributes = None;
    if handle.is_some() {
        let closed = expect::<kind::Close>(reader)?;
        if told_at_end(reader, closed)?.is_some() {
            attributes = read_object_at_end(reader, names)?;
        }
    }
    Ok(Found { handle, attributes })
}

/// An open that its compound did not close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftOpen {
    pub stateid: Stateid,
    /// The file, if the compound told it.
    pub file: Option<FileHandle>,
}

/// The open that a compound with these kept results has left, if any.
pub(crate) fn left_open(results: &[u8]) -> Option<LeftOpen> {
    let mut reader = Reader::new(results);
    reader.u32().ok()?;
    read_put(&mut reader).ok()?;
    let opened = expect::<kind::Open>(&mut reader).ok()?.ok()?;
    let file = read_handle_at_end(&mut reader).ok()?;
    let is_closed = file.is_some() && expect::<kind::Close>(&mut reader).is_ok_and(|reply| reply.is_ok());
    // Whatever its number is now: an open of this owner is there to be closed.
    let stateid = Stateid { seqid: 0, ..opened.stateid };
    (!is_closed).then_some(LeftOpen { stateid, file })
}

/// Ends an open, unless it was opened again since it had this stateid. RFC 8881 s18.2
pub(crate) fn close(minor: u32, file: FileHandle, open: Stateid) -> Operation<()> {
    let args = on(minor, file, |to| _ = to.push(&Args::Close(close::Args { seqid: 0, open })));
    operation(Nfs::Close, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::Close>(reader)?).map(drop)
    })
}

pub(crate) fn getattr(minor: u32, object: FileHandle) -> Operation<Attributes> {
    let args = on(minor, object, |to| push_getattr(to, convert::OBJECT));
    telling_object(Nfs::GetAttr, args, |reader, names| {
        read_put(reader)?;
        read_object(reader, names)
    })
}

pub(crate) fn setattr(
    minor: u32,
    object: FileHandle,
    new: SetAttributes,
    guard: Option<Time>,
) -> Operation<Option<Attributes>> {
    setattr_by_name(minor, object, new, guard, &SetOwners::default())
}

/// Sets attributes, with names in place of the numbers of owners where there are names. The guard
/// is checked in the same compound, right before the attributes are set: this version has none of
/// its own. RFC 8881 s18.30.4
pub(crate) fn setattr_by_name(
    minor: u32,
    object: FileHandle,
    new: SetAttributes,
    guard: Option<Time>,
    owners: &SetOwners,
) -> Operation<Option<Attributes>> {
    let mut set = Told::of_set(&new);
    set.owner = owners.user.as_deref().map(Owner::Name).or(set.owner);
    set.owner_group = owners.group.as_deref().map(Owner::Name).or(set.owner_group);
    let is_guarded = guard.is_some();
    let args = on(minor, object, |to| {
        if is_guarded {
            let known = Told { time_metadata: guard, ..Told::default() };
            to.push(&Args::Verify(verify::Args { attributes: Fattr::all(&known) }));
        }
        let (stateid, attributes) = (Stateid::ANONYMOUS, Fattr::all(&set));
        to.push(&Args::SetAttr(getattr::SetArgs { stateid, attributes }));
        push_getattr(to, convert::OBJECT);
    });
    fn after(reader: &mut Reader<'_>, names: &Names<'_>) -> xdr::Result<Option<Attributes>> {
        let set = expect::<kind::SetAttr>(reader)?;
        done(if set.status == ::nfs4::Status::OK { Ok(()) } else { Err(set.status) })?;
        read_object_at_end(reader, names)
    }
    let decode: DecodeOwned<Option<Attributes>> = if is_guarded {
        |reader, names| {
            read_put(reader)?;
            done(expect::<kind::Verify>(reader)?)?;
            after(reader, names)
        }
    } else {
        |reader, names| {
            read_put(reader)?;
            after(reader, names)
        }
    };
    telling_object(Nfs::SetAttr, args, decode)
}

pub(crate) fn lookup(
    minor: u32,
    directory: FileHandle,
    name: &[u8],
) -> Operation<(FileHandle, Option<Attributes>)> {
    let args = on(minor, directory, |to| {
        push_lookup(to, name);
        push_object(to);
    });
    fn found(reader: &mut Reader<'_>, names: &Names<'_>) -> xdr::Result<(FileHandle, Option<Attributes>)> {
        read_found(reader, names).map(|(handle, attributes)| (handle, Some(attributes)))
    }
    let decode: DecodeOwned<(FileHandle, Option<Attributes>)> = match name {
        b"." => |reader, names| {
            read_put(reader)?;
            found(reader, names)
        },
        b".." => |reader, names| {
            read_put(reader)?;
            done(expect::<kind::LookupP>(reader)?)?;
            found(reader, names)
        },
        _ => |reader, names| {
            read_put(reader)?;
            done(expect::<kind::Lookup>(reader)?)?;
            found(reader, names)
        },
    };
    telling_object(Nfs::Lookup, args, decode)
}

pub(crate) fn access(minor: u32, object: FileHandle, wished: Rights) -> Operation<Rights> {
    let args = on(minor, object, |to| _ = to.push(&Args::Access(access::Args { access: wished })));
    operation(Nfs::Access, args, |reader| {
        read_put(reader)?;
        Ok(done(expect::<kind::Access>(reader)?)?.access)
    })
}

pub(crate) fn readlink(minor: u32, symlink: FileHandle) -> Operation<Vec<u8>> {
    let args = on(minor, symlink, |to| _ = to.push(&Args::ReadLink(())));
    operation(Nfs::ReadLink, args, |reader| {
        read_put(reader)?;
        Ok(done(expect::<kind::ReadLink>(reader)?)?.text.to_vec())
    })
}

/// Opens the file to create it, without a delegation, and closes it again before anything can fail
/// that might. RFC 8881 s18.16, s16.2.3.1.2
pub(crate) fn create(minor: u32, directory: FileHandle, name: &[u8], mode: CreateMode) -> Operation<Found> {
    let set = match &mode {
        CreateMode::Unchecked(new) | CreateMode::Guarded(new) => Told::of_set(new),
        CreateMode::Exclusive(_) => Told::default(),
    };
    let how = match mode {
        CreateMode::Unchecked(_) => open::How::Unchecked(Fattr::all(&set)),
        CreateMode::Guarded(_) => open::How::Guarded(Fattr::all(&set)),
        // The attributes are set afterwards, with the times that may hold the verifier.
        CreateMode::Exclusive(verifier) => open::How::ExclusiveWith(verifier, Fattr::EMPTY),
    };
    let owner = StateOwner { client: ClientId(0), owner: OwnerId::new(OPEN_OWNER).unwrap_or_default() };
    let args = on(minor, directory, |to| {
        to.push(&Args::Open(open::Args {
            seqid: 0,
            access: open::access::WRITE | open::access::WANT_NONE,
            deny: open::deny::NONE,
            owner,
            how,
            claim: open::Claim::Name(name),
        }));
        to.push(&Args::GetFh(())).push(&Args::Close(close::Args { seqid: 0, open: Stateid::CURRENT }));
        push_getattr(to, convert::OBJECT);
    });
    telling_object(Nfs::Open, args, opened)
}

fn create_other(
    minor: u32,
    directory: FileHandle,
    (name, what): (&[u8], create::What<'_>),
    new: &SetAttributes,
) -> Operation<Found> {
    let set = Told::of_set(new);
    let args = on(minor, directory, |to| {
        to.push(&Args::Create(create::Args { what, name, attributes: Fattr::all(&set) }));
        push_object(to);
    });
    telling_object(Nfs::Create, args, made)
}

pub(crate) fn mkdir(minor: u32, directory: FileHandle, name: &[u8], new: SetAttributes) -> Operation<Found> {
    create_other(minor, directory, (name, create::What::Directory), &new)
}

pub(crate) fn symlink(minor: u32, directory: FileHandle, name: &[u8], target: &[u8]) -> Operation<Found> {
    create_other(minor, directory, (name, create::What::Symlink(target)), &SetAttributes::mode(0o777))
}

pub(crate) fn mknod(
    minor: u32,
    directory: FileHandle,
    name: &[u8],
    special: Special,
    new: SetAttributes,
) -> Operation<Found> {
    create_other(minor, directory, (name, convert::to_what(special)), &new)
}

/// What a name must be, or must not be, to be removed.
fn directory_type() -> Told<'static> {
    Told { file_type: Some(FileType::Directory), ..Told::default() }
}

/// One operation removes directories and all else in this version, so the type is checked in the
/// same compound, right before. RFC 8881 s18.25
pub(crate) fn remove(minor: u32, directory: FileHandle, name: &[u8]) -> Operation<()> {
    let of_directory = directory_type();
    let is_other = verify::NotArgs { attributes: Fattr::all(&of_directory) };
    let args = removal(minor, directory, name, &Args::NVerify(is_other));
    operation(Nfs::Remove, args, removed)
}

/// See [`remove`].
pub(crate) fn rmdir(minor: u32, directory: FileHandle, name: &[u8]) -> Operation<()> {
    let of_directory = directory_type();
    let is_directory = verify::Args { attributes: Fattr::all(&of_directory) };
    let args = removal(minor, directory, name, &Args::Verify(is_directory));
    operation(Nfs::Remove, args, removed)
}

fn removal(minor: u32, directory: FileHandle, name: &[u8], check: &Args<'_>) -> Vec<u8> {
    on(minor, directory, |to| {
        to.push(&Args::Lookup(lookup::Args { name })).push(check).push(&put(directory));
        to.push(&Args::Remove(link::RemoveArgs { name }));
    })
}

fn removed(reader: &mut Reader<'_>) -> xdr::Result<()> {
    read_put(reader)?;
    done(expect::<kind::Lookup>(reader)?)?;
    // Both checks have the same result.
    let is_verify = reader.clone().u32()? == Nfs::Verify.number();
    let checked = if is_verify { expect::<kind::Verify>(reader)? } else { expect::<kind::NVerify>(reader)? };
    done(checked)?;
    read_put(reader)?;
    done(expect::<kind::Remove>(reader)?).map(drop)
}

/// The results of a removal, as kept: it is done, whoever did it.
pub(super) fn removed_before() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.u32(::nfs4::Status::OK.0);
    let results = [
        Reply::PutFh(Ok(())),
        Reply::Lookup(Ok(())),
        Reply::Verify(Ok(())),
        Reply::PutFh(Ok(())),
        Reply::Remove(Ok(ChangeInfo::default())),
    ];
    for result in &results {
        writer.u32(result.operation().number());
        Fore::encode_reply(result, &mut writer);
    }
    out
}

pub(crate) fn rename(minor: u32, from: (FileHandle, &[u8]), to: (FileHandle, &[u8])) -> Operation<()> {
    let args = on(minor, from.0, |compound| {
        compound.push(&Args::SaveFh(())).push(&put(to.0));
        compound.push(&Args::Rename(link::RenameArgs { old: from.1, new: to.1 }));
    });
    operation(Nfs::Rename, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::SaveFh>(reader)?)?;
        read_put(reader)?;
        done(expect::<kind::Rename>(reader)?).map(drop)
    })
}

pub(crate) fn link(minor: u32, file: FileHandle, at: (FileHandle, &[u8])) -> Operation<Option<Attributes>> {
    let args = on(minor, file, |to| {
        to.push(&Args::SaveFh(())).push(&put(at.0));
        to.push(&Args::Link(link::LinkArgs { name: at.1 })).push(&Args::RestoreFh(()));
        push_getattr(to, convert::OBJECT);
    });
    telling_object(Nfs::Link, args, |reader, names| {
        read_put(reader)?;
        done(expect::<kind::SaveFh>(reader)?)?;
        read_put(reader)?;
        done(expect::<kind::Link>(reader)?)?;
        let restored = expect::<kind::RestoreFh>(reader)?;
        let is_restored = told_at_end(reader, restored)?.is_some();
        if is_restored { read_object_at_end(reader, names) } else { Ok(None) }
    })
}

fn list(
    minor: u32,
    maxcount: u32,
    directory: FileHandle,
    from: DirectoryPosition,
    wanted: Bitmap,
) -> Operation<DirectoryPage> {
    let DirectoryPosition { cookie, verifier } = from;
    let dircount = NAMES_BYTES.min(maxcount);
    let args = on(minor, directory, |to| {
        to.push(&Args::ReadDir(readdir::Args { cookie, verifier, dircount, maxcount, wanted }));
    });
    telling_object(Nfs::ReadDir, args, |reader, names| {
        read_put(reader)?;
        let page = done(expect::<kind::ReadDir>(reader)?)?;
        let entries = page.entries.iter().map(|entry| entry_of(&entry, names)).collect::<xdr::Result<_>>()?;
        Ok(DirectoryPage { entries, verifier: page.verifier, eof: page.eof })
    })
}

/// An entry whose attributes cannot be had is a name all the same. RFC 8881 s5.8.1.12
fn entry_of(entry: &readdir::Entry<'_>, names: &Names<'_>) -> xdr::Result<DirectoryEntry> {
    let told = entry.attributes.parse().map_err(|_| invalid("fattr4"))?;
    let fails = told.rdattr_error.is_some_and(|status| status != ::nfs4::Status::OK);
    let attributes = if fails { None } else { convert::object(&told, names) };
    Ok(DirectoryEntry {
        name: entry.name.to_vec(),
        fileid: told.mounted_on_fileid.or(told.fileid).unwrap_or(0),
        cookie: entry.cookie,
        attributes,
        handle: told.filehandle.filter(|_| attributes.is_some()),
    })
}

pub(crate) fn readdir(
    minor: u32,
    maxcount: u32,
    directory: FileHandle,
    from: DirectoryPosition,
) -> Operation<DirectoryPage> {
    list(minor, maxcount, directory, from, ENTRY)
}

pub(crate) fn readdirplus(
    minor: u32,
    maxcount: u32,
    directory: FileHandle,
    from: DirectoryPosition,
) -> Operation<DirectoryPage> {
    list(minor, maxcount, directory, from, ENTRY | ENTRY_PLUS | convert::OBJECT)
}

/// GETATTR of the attributes of a file system.
pub(super) fn of_file_system<T>(
    minor: u32,
    object: FileHandle,
    wanted: Bitmap,
    decode: Decode<T>,
) -> Operation<T> {
    operation(Nfs::GetAttr, on(minor, object, |to| push_getattr(to, wanted)), decode)
}

pub(crate) fn statfs(minor: u32, root: FileHandle) -> Operation<Space> {
    of_file_system(minor, root, SPACE, |reader| {
        read_put(reader)?;
        Ok(convert::space(&told(reader)?))
    })
}

pub(crate) fn fsinfo(minor: u32, root: FileHandle) -> Operation<FileSystemInfo> {
    of_file_system(minor, root, convert::INFO, |reader| {
        read_put(reader)?;
        Ok(convert::info(&told(reader)?))
    })
}

pub(crate) fn limits(minor: u32, object: FileHandle) -> Operation<Limits> {
    of_file_system(minor, object, convert::LIMITS, |reader| {
        read_put(reader)?;
        Ok(convert::limits(&told(reader)?))
    })
}

/// The duration of a lease, in seconds. RFC 8881 s5.8.1.11
pub(crate) fn lease_seconds(minor: u32, root: FileHandle) -> Operation<Option<u32>> {
    of_file_system(minor, root, Bitmap::of(&[number::LEASE_TIME]), |reader| {
        read_put(reader)?;
        Ok(told(reader)?.lease_time)
    })
}

/// The root of everything that a server has. RFC 8881 s18.21
pub(crate) fn root(minor: u32) -> Operation<(FileHandle, Attributes)> {
    let args = super::compound(minor, |to| {
        to.push(&Args::PutRootFh(()));
        push_object(to);
    });
    telling_object(Nfs::PutRootFh, args, |reader, names| {
        done(expect::<kind::PutRootFh>(reader)?)?;
        read_found(reader, names)
    })
}

/// Tells the server that nothing is reclaimed. RFC 8881 s18.51
pub(crate) fn reclaim_complete(minor: u32) -> Operation<()> {
    let args = super::compound(minor, |to| {
        to.push(&Args::ReclaimComplete(::nfs4::op::reclaim_complete::Args { one_file_system: false }));
    });
    operation(Nfs::ReclaimComplete, args, |reader| done(expect::<kind::ReclaimComplete>(reader)?))
}

/// SEQUENCE alone: renews the lease, or finds out what a slot was last used for.
pub(crate) fn sequence(minor: u32) -> Operation<()> {
    operation(Nfs::Sequence, super::compound(minor, |_| {}), |_| Ok(()))
}

//! The operations on a tree, one procedure each: arguments are encoded, results decoded.

use fs::{
    Attributes, CreateMode, DirectoryEntry, DirectoryPage, DirectoryPosition, FileHandle, FileSystemInfo,
    Limits, Rights, SetAttributes, Space, Special, Time,
};
use nfs3::proc::{
    access, create, fsinfo, fsstat, getattr, link, lookup, mkdir, mknod, pathconf, readdir, readdirplus,
    readlink, remove, rename, rmdir, setattr, symlink,
};
use nfs3::{Created, DirOpArgs, PostOpAttr, Procedure as Nfs, Wire};
use xdr::{Reader, Writer};

use super::convert;
use crate::protocol::{Decode, Found, Operation, Procedure};

/// The requested size of a page of a directory: for names and cookies, and in total.
const DIRECTORY_BYTES: (u32, u32) = (16 << 10, 64 << 10);

fn encode<'a>(args: &impl Wire<'a>) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(128);
    args.encode(&mut Writer::new(&mut encoded));
    encoded
}

fn place(directory: FileHandle, name: &[u8]) -> DirOpArgs<'_> {
    DirOpArgs { directory: convert::to_handle(directory), name }
}

fn optional(attributes: PostOpAttr) -> Option<Attributes> {
    attributes.map(|attributes| convert::attributes(&attributes))
}

fn created(reader: &mut Reader<'_>) -> xdr::Result<Found> {
    let Created { object, attributes, .. } = Wire::decode(reader)?;
    Ok(Found { handle: object.map(convert::handle), attributes: optional(attributes) })
}

fn operation<T>(procedure: Nfs, args: Vec<u8>, decode: Decode<T>) -> Operation<T> {
    Operation::new(Procedure::Nfs3(procedure), args, decode)
}

/// Decodes the results of operations that return only success. What follows the status is checked
/// all the same.
fn done<S: for<'a> Wire<'a>>(reader: &mut Reader<'_>) -> xdr::Result<()> {
    S::decode(reader).map(drop)
}

pub(crate) fn getattr(object: FileHandle) -> Operation<Attributes> {
    let args = encode(&getattr::Args { object: convert::to_handle(object) });
    operation(Nfs::GetAttr, args, |reader| {
        Ok(convert::attributes(&getattr::Success::decode(reader)?.attributes))
    })
}

pub(crate) fn setattr(
    object: FileHandle,
    new: SetAttributes,
    guard: Option<Time>,
) -> Operation<Option<Attributes>> {
    let args = encode(&setattr::Args {
        object: convert::to_handle(object),
        new_attributes: convert::to_sattr(new),
        guard: guard.map(convert::to_time),
    });
    operation(Nfs::SetAttr, args, |reader| Ok(optional(setattr::Success::decode(reader)?.after)))
}

pub(crate) fn lookup(directory: FileHandle, name: &[u8]) -> Operation<(FileHandle, Option<Attributes>)> {
    let args = encode(&lookup::Args { what: place(directory, name) });
    operation(Nfs::Lookup, args, |reader| {
        let found = lookup::Success::decode(reader)?;
        Ok((convert::handle(found.object), optional(found.attributes)))
    })
}

pub(crate) fn access(object: FileHandle, wished: Rights) -> Operation<Rights> {
    let args = encode(&access::Args { object: convert::to_handle(object), access: wished.0 });
    operation(Nfs::Access, args, |reader| Ok(Rights(access::Success::decode(reader)?.access)))
}

pub(crate) fn readlink(symlink: FileHandle) -> Operation<Vec<u8>> {
    let args = encode(&readlink::Args { symlink: convert::to_handle(symlink) });
    operation(Nfs::ReadLink, args, |reader| Ok(readlink::Success::decode(reader)?.target.to_vec()))
}

pub(crate) fn create(directory: FileHandle, name: &[u8], mode: CreateMode) -> Operation<Found> {
    let args = encode(&create::Args { location: place(directory, name), how: convert::to_how(mode) });
    operation(Nfs::Create, args, created)
}

pub(crate) fn mkdir(directory: FileHandle, name: &[u8], new: SetAttributes) -> Operation<Found> {
    let args = encode(&mkdir::Args { location: place(directory, name), attributes: convert::to_sattr(new) });
    operation(Nfs::MkDir, args, created)
}

pub(crate) fn symlink(directory: FileHandle, name: &[u8], target: &[u8]) -> Operation<Found> {
    let attributes = convert::to_sattr(SetAttributes::mode(0o777));
    let args = encode(&symlink::Args { location: place(directory, name), attributes, target });
    operation(Nfs::SymLink, args, created)
}

pub(crate) fn mknod(
    directory: FileHandle,
    name: &[u8],
    special: Special,
    new: SetAttributes,
) -> Operation<Found> {
    let what = convert::to_what(special, new);
    let args = encode(&mknod::Args { location: place(directory, name), what });
    operation(Nfs::MkNod, args, created)
}

pub(crate) fn remove(directory: FileHandle, name: &[u8]) -> Operation<()> {
    let args = encode(&remove::Args { object: place(directory, name) });
    operation(Nfs::Remove, args, done::<remove::Success>)
}

pub(crate) fn rmdir(directory: FileHandle, name: &[u8]) -> Operation<()> {
    let args = encode(&rmdir::Args { object: place(directory, name) });
    operation(Nfs::RmDir, args, done::<rmdir::Success>)
}

pub(crate) fn rename(from: (FileHandle, &[u8]), to: (FileHandle, &[u8])) -> Operation<()> {
    let args = encode(&rename::Args { from: place(from.0, from.1), to: place(to.0, to.1) });
    operation(Nfs::Rename, args, done::<rename::Success>)
}

pub(crate) fn link(file: FileHandle, at: (FileHandle, &[u8])) -> Operation<Option<Attributes>> {
    let args = encode(&link::Args { file: convert::to_handle(file), link: place(at.0, at.1) });
    operation(Nfs::Link, args, |reader| Ok(optional(link::Success::decode(reader)?.attributes)))
}

pub(crate) fn readdir(directory: FileHandle, from: DirectoryPosition) -> Operation<DirectoryPage> {
    let DirectoryPosition { cookie, verifier } = from;
    let directory = convert::to_handle(directory);
    let args = encode(&readdir::Args { directory, cookie, verifier, count: DIRECTORY_BYTES.1 });
    operation(Nfs::ReadDir, args, |reader| {
        let page = readdir::Success::decode(reader)?;
        let entries = page.entries.iter().map(|entry| DirectoryEntry {
            name: entry.name.to_vec(),
            fileid: entry.fileid,
            cookie: entry.cookie,
            attributes: None,
            handle: None,
        });
        Ok(DirectoryPage { entries: entries.collect(), verifier: page.verifier, eof: page.eof })
    })
}

pub(crate) fn readdirplus(directory: FileHandle, from: DirectoryPosition) -> Operation<DirectoryPage> {
    let DirectoryPosition { cookie, verifier } = from;
    let (directory, (dircount, maxcount)) = (convert::to_handle(directory), DIRECTORY_BYTES);
    let args = encode(&readdirplus::Args { directory, cookie, verifier, dircount, maxcount });
    operation(Nfs::ReadDirPlus, args, |reader| {
        let page = readdirplus::Success::decode(reader)?;
        let entries = page.entries.iter().map(|entry| DirectoryEntry {
            name: entry.name.to_vec(),
            fileid: entry.fileid,
            cookie: entry.cookie,
            attributes: optional(entry.attributes),
            handle: entry.handle.map(convert::handle),
        });
        Ok(DirectoryPage { entries: entries.collect(), verifier: page.verifier, eof: page.eof })
    })
}

pub(crate) fn statfs(root: FileHandle) -> Operation<Space> {
    let args = encode(&fsstat::Args { root: convert::to_handle(root) });
    operation(Nfs::FsStat, args, |reader| Ok(convert::space(&fsstat::Success::decode(reader)?)))
}

pub(crate) fn fsinfo(root: FileHandle) -> Operation<FileSystemInfo> {
    let args = encode(&fsinfo::Args { root: convert::to_handle(root) });
    operation(Nfs::FsInfo, args, |reader| Ok(convert::info(&fsinfo::Success::decode(reader)?)))
}

pub(crate) fn limits(object: FileHandle) -> Operation<Limits> {
    let args = encode(&pathconf::Args { object: convert::to_handle(object) });
    operation(Nfs::PathConf, args, |reader| Ok(convert::limits(&pathconf::Success::decode(reader)?)))
}

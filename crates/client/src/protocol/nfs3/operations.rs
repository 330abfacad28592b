//! The operations on a tree, one procedure each: arguments are encoded, results decoded.

use fs::{
    Attributes, CreateMode, DirectoryEntry, DirectoryPage, DirectoryPosition, FileHandle, FileSystemInfo,
    Limits, Rights, SetAttributes, Space, Special, Time,
};
use nfs3::proc::{
    access, create, fsinfo, fsstat, getattr, link, lookup, mkdir, mknod, pathconf, readdir, readdirplus,
    readlink, remove, rename, rmdir, setattr, symlink,
};
use nfs3::{Created, DirOpArgs, PostOpAttr, Procedure, Wire};
use xdr::{Reader, Writer};

use super::convert;
use crate::protocol::{Found, Operation};

/// The requested size of a page of a directory: for names and cookies, and in total.
const DIRECTORY_BYTES: (u32, u32) = (16 << 10, 64 << 10);

/// Creates the operations of a mount's protocol.
#[derive(Debug, Clone, Copy)]
pub struct Protocol(());

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

/// Decodes the results of operations that return only success. What follows the status is checked
/// all the same.
fn done<S: for<'a> Wire<'a>>(reader: &mut Reader<'_>) -> xdr::Result<()> {
    S::decode(reader).map(drop)
}

impl Protocol {
    /// The protocol of every mount.
    pub(crate) const NFS3: Self = Self(());

    /// The attributes of an object.
    #[must_use]
    pub fn getattr(self, object: FileHandle) -> Operation<Attributes> {
        let args = encode(&getattr::Args { object: convert::to_handle(object) });
        Operation::new(Procedure::GetAttr, args, |reader| {
            Ok(convert::attributes(&getattr::Success::decode(reader)?.attributes))
        })
    }

    /// Sets attributes; `guard` is the ctime that the object must still have. Returns the new
    /// attributes, if the server sent them.
    #[must_use]
    pub fn setattr(
        self,
        object: FileHandle,
        new: SetAttributes,
        guard: Option<Time>,
    ) -> Operation<Option<Attributes>> {
        let args = encode(&setattr::Args {
            object: convert::to_handle(object),
            new_attributes: convert::to_sattr(new),
            guard: guard.map(convert::to_time),
        });
        Operation::new(Procedure::SetAttr, args, |reader| {
            Ok(optional(setattr::Success::decode(reader)?.after))
        })
    }

    /// Looks a name up in a directory.
    #[must_use]
    pub fn lookup(self, directory: FileHandle, name: &[u8]) -> Operation<(FileHandle, Option<Attributes>)> {
        let args = encode(&lookup::Args { what: place(directory, name) });
        Operation::new(Procedure::Lookup, args, |reader| {
            let found = lookup::Success::decode(reader)?;
            Ok((convert::handle(found.object), optional(found.attributes)))
        })
    }

    /// Returns which of these rights the caller has.
    #[must_use]
    pub fn access(self, object: FileHandle, wished: Rights) -> Operation<Rights> {
        let args = encode(&access::Args { object: convert::to_handle(object), access: wished.0 });
        Operation::new(Procedure::Access, args, |reader| Ok(Rights(access::Success::decode(reader)?.access)))
    }

    /// Returns the target of a symbolic link.
    #[must_use]
    pub fn readlink(self, symlink: FileHandle) -> Operation<Vec<u8>> {
        let args = encode(&readlink::Args { symlink: convert::to_handle(symlink) });
        Operation::new(Procedure::ReadLink, args, |reader| {
            Ok(readlink::Success::decode(reader)?.target.to_vec())
        })
    }

    /// Creates a regular file.
    #[must_use]
    pub fn create(self, directory: FileHandle, name: &[u8], mode: CreateMode) -> Operation<Found> {
        let args = encode(&create::Args { location: place(directory, name), how: convert::to_how(mode) });
        Operation::new(Procedure::Create, args, created)
    }

    /// Creates a directory.
    #[must_use]
    pub fn mkdir(self, directory: FileHandle, name: &[u8], new: SetAttributes) -> Operation<Found> {
        let args =
            encode(&mkdir::Args { location: place(directory, name), attributes: convert::to_sattr(new) });
        Operation::new(Procedure::MkDir, args, created)
    }

    /// Creates a symbolic link.
    #[must_use]
    pub fn symlink(self, directory: FileHandle, name: &[u8], target: &[u8]) -> Operation<Found> {
        let attributes = convert::to_sattr(SetAttributes::mode(0o777));
        let args = encode(&symlink::Args { location: place(directory, name), attributes, target });
        Operation::new(Procedure::SymLink, args, created)
    }

    /// Creates a device, a socket or a named pipe.
    #[must_use]
    pub fn mknod(
        self,
        directory: FileHandle,
        name: &[u8],
        special: Special,
        new: SetAttributes,
    ) -> Operation<Found> {
        let what = convert::to_what(special, new);
        let args = encode(&mknod::Args { location: place(directory, name), what });
        Operation::new(Procedure::MkNod, args, created)
    }

    /// Removes anything but a directory.
    #[must_use]
    pub fn remove(self, directory: FileHandle, name: &[u8]) -> Operation<()> {
        let args = encode(&remove::Args { object: place(directory, name) });
        Operation::new(Procedure::Remove, args, done::<remove::Success>)
    }

    /// Removes an empty directory.
    #[must_use]
    pub fn rmdir(self, directory: FileHandle, name: &[u8]) -> Operation<()> {
        let args = encode(&rmdir::Args { object: place(directory, name) });
        Operation::new(Procedure::RmDir, args, done::<rmdir::Success>)
    }

    /// Renames an object, replacing an existing one.
    #[must_use]
    pub fn rename(self, from: (FileHandle, &[u8]), to: (FileHandle, &[u8])) -> Operation<()> {
        let args = encode(&rename::Args { from: place(from.0, from.1), to: place(to.0, to.1) });
        Operation::new(Procedure::Rename, args, done::<rename::Success>)
    }

    /// Creates a hard link. Returns the new attributes of the file, if the server sent them.
    #[must_use]
    pub fn link(self, file: FileHandle, at: (FileHandle, &[u8])) -> Operation<Option<Attributes>> {
        let args = encode(&link::Args { file: convert::to_handle(file), link: place(at.0, at.1) });
        Operation::new(Procedure::Link, args, |reader| {
            Ok(optional(link::Success::decode(reader)?.attributes))
        })
    }

    /// A page of a directory, without attributes and handles.
    #[must_use]
    pub fn readdir(self, directory: FileHandle, from: DirectoryPosition) -> Operation<DirectoryPage> {
        let DirectoryPosition { cookie, verifier } = from;
        let directory = convert::to_handle(directory);
        let args = encode(&readdir::Args { directory, cookie, verifier, count: DIRECTORY_BYTES.1 });
        Operation::new(Procedure::ReadDir, args, |reader| {
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

    /// A page of a directory, with attributes and handles.
    #[must_use]
    pub fn readdirplus(self, directory: FileHandle, from: DirectoryPosition) -> Operation<DirectoryPage> {
        let DirectoryPosition { cookie, verifier } = from;
        let (directory, (dircount, maxcount)) = (convert::to_handle(directory), DIRECTORY_BYTES);
        let args = encode(&readdirplus::Args { directory, cookie, verifier, dircount, maxcount });
        Operation::new(Procedure::ReadDirPlus, args, |reader| {
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

    /// Space and objects, total and free.
    #[must_use]
    pub fn statfs(self, root: FileHandle) -> Operation<Space> {
        let args = encode(&fsstat::Args { root: convert::to_handle(root) });
        Operation::new(Procedure::FsStat, args, |reader| {
            Ok(convert::space(&fsstat::Success::decode(reader)?))
        })
    }

    /// The server's information about a file system.
    #[must_use]
    pub fn fsinfo(self, root: FileHandle) -> Operation<FileSystemInfo> {
        let args = encode(&fsinfo::Args { root: convert::to_handle(root) });
        Operation::new(Procedure::FsInfo, args, |reader| Ok(convert::info(&fsinfo::Success::decode(reader)?)))
    }

    /// Limits of names and links.
    #[must_use]
    pub fn limits(self, object: FileHandle) -> Operation<Limits> {
        let args = encode(&pathconf::Args { object: convert::to_handle(object) });
        Operation::new(Procedure::PathConf, args, |reader| {
            Ok(convert::limits(&pathconf::Success::decode(reader)?))
        })
    }
}

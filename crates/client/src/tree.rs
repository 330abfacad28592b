//! The tree of a mount: names, attributes, creation and removal. Blocking, one call each.

use nfs3::proc::{
    create, fsstat, getattr, link, lookup, mkdir, readdirplus, readlink, remove, rename, rmdir,
};
use nfs3::proc::{setattr, symlink};
use nfs3::{
    Created, DirOpArgs, Fattr3, FileHandle, NfsTime, Outcome, PostOpAttr, Procedure, Sattr3, Status, Wire,
};
use xdr::{Reader, Writer};

use crate::error::{Error, Result};
use crate::mount::Mount;

/// What a READDIRPLUS asks for: names and cookies, and all in all.
const DIRECTORY_BYTES: (u32, u32) = (16 << 10, 64 << 10);
/// Names in one directory at most: a server that never ends its listing must not fill our memory.
const DIRECTORY_ENTRIES_MAX: usize = 16_000_000;
/// A path with more symbolic links than this is a loop; Linux follows as many.
const SYMLINKS_MAX: u32 = 40;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, which need not be UTF-8.
    pub name: Vec<u8>,
    /// The object's number.
    pub fileid: u64,
    /// Its attributes, when the server gave them.
    pub attributes: PostOpAttr,
    /// Its handle, when the server gave it.
    pub handle: Option<FileHandle>,
}

fn encode<'a>(args: &impl Wire<'a>) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(128);
    args.encode(&mut Writer::new(&mut encoded));
    encoded
}

/// Decodes results and turns a status into an error.
fn accept<'a, S: Wire<'a>, F: Wire<'a>>(procedure: Procedure, results: &'a [u8]) -> Result<S> {
    let operation = procedure.name();
    let outcome: Outcome<S, F> = Wire::decode(&mut Reader::new(results))
        .map_err(|error| Error::PeerMisbehaved { operation, reason: error.to_string() })?;
    outcome.into_result().map_err(|(status, _)| Error::Status { operation, status })
}

impl Mount {
    /// The attributes of an object.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn attributes(&self, object: FileHandle) -> Result<Fattr3> {
        let results = self.call(Procedure::GetAttr, encode(&getattr::Args { object }))?;
        Ok(accept::<getattr::Success, getattr::Failure>(Procedure::GetAttr, &results)?.attributes)
    }

    /// Sets attributes; `guard` is the ctime that the object must still have.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn set_attributes(&self, object: FileHandle, new: Sattr3, guard: Option<NfsTime>) -> Result<()> {
        let args = encode(&setattr::Args { object, new_attributes: new, guard });
        let results = self.call(Procedure::SetAttr, args)?;
        accept::<setattr::Success, setattr::Failure>(Procedure::SetAttr, &results)?;
        Ok(())
    }

    /// Looks a name up in a directory.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn lookup(&self, directory: FileHandle, name: &[u8]) -> Result<(FileHandle, PostOpAttr)> {
        let args = encode(&lookup::Args { what: DirOpArgs { directory, name } });
        let results = self.call(Procedure::Lookup, args)?;
        let found = accept::<lookup::Success, lookup::Failure>(Procedure::Lookup, &results)?;
        Ok((found.object, found.attributes))
    }

    /// Walks a path from the root of the mount, through symbolic links that stay within it.
    ///
    /// # Errors
    /// The server's, or the mount's; a chain of links without an end is ELOOP's equivalent, `INVAL`.
    pub fn resolve(&self, path: &[u8]) -> Result<(FileHandle, Fattr3)> {
        let mut links = 0;
        let mut todo: Vec<Vec<u8>> = components(path);
        let mut trail = vec![self.root()];
        while let Some(name) = todo.pop() {
            if name == b".." {
                // Never above the root of the mount.
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            let at = trail.last().copied().unwrap_or_else(|| self.root());
            let (handle, attributes) = self.lookup(at, &name)?;
            let attributes = attributes.map_or_else(|| self.attributes(handle), Ok)?;
            if attributes.file_type == nfs3::FileType::Symlink {
                links += 1;
                if links > SYMLINKS_MAX {
                    return Err(Error::Status { operation: "LOOKUP", status: Status::INVAL });
                }
                let target = self.read_link(handle)?;
                if target.first() == Some(&b'/') {
                    trail.truncate(1);
                }
                todo.extend(components(&target));
            } else {
                trail.push(handle);
            }
        }
        let handle = trail.last().copied().unwrap_or_else(|| self.root());
        Ok((handle, self.attributes(handle)?))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn read_link(&self, symlink: FileHandle) -> Result<Vec<u8>> {
        let results = self.call(Procedure::ReadLink, encode(&readlink::Args { symlink }))?;
        let success = accept::<readlink::Success<'_>, readlink::Failure>(Procedure::ReadLink, &results)?;
        Ok(success.target.to_vec())
    }

    /// Creates a file.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn create(
        &self,
        directory: FileHandle,
        name: &[u8],
        how: create::How,
    ) -> Result<(FileHandle, Fattr3)> {
        let args = encode(&create::Args { location: DirOpArgs { directory, name }, how });
        let results = self.call(Procedure::Create, args)?;
        let created = accept::<Created, create::Failure>(Procedure::Create, &results)?;
        self.created(directory, name, created)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn make_directory(
        &self,
        directory: FileHandle,
        name: &[u8],
        attributes: Sattr3,
    ) -> Result<(FileHandle, Fattr3)> {
        let args = encode(&mkdir::Args { location: DirOpArgs { directory, name }, attributes });
        let results = self.call(Procedure::MkDir, args)?;
        let created = accept::<Created, mkdir::Failure>(Procedure::MkDir, &results)?;
        self.created(directory, name, created)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn make_symlink(
        &self,
        directory: FileHandle,
        name: &[u8],
        target: &[u8],
    ) -> Result<(FileHandle, Fattr3)> {
        let attributes = Sattr3 { mode: Some(0o777), ..Sattr3::default() };
        let args = encode(&symlink::Args { location: DirOpArgs { directory, name }, attributes, target });
        let results = self.call(Procedure::SymLink, args)?;
        let created = accept::<Created, symlink::Failure>(Procedure::SymLink, &results)?;
        self.created(directory, name, created)
    }

    /// A server need not give the handle of what it made. RFC 1813 s3.3.8
    fn created(&self, directory: FileHandle, name: &[u8], created: Created) -> Result<(FileHandle, Fattr3)> {
        let (handle, attributes) = match created.object {
            Some(handle) => (handle, created.attributes),
            None => self.lookup(directory, name)?,
        };
        Ok((handle, attributes.map_or_else(|| self.attributes(handle), Ok)?))
    }

    /// Removes anything but a directory.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn remove(&self, directory: FileHandle, name: &[u8]) -> Result<()> {
        let args = encode(&remove::Args { object: DirOpArgs { directory, name } });
        let results = self.call(Procedure::Remove, args)?;
        accept::<remove::Success, remove::Failure>(Procedure::Remove, &results)?;
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn remove_directory(&self, directory: FileHandle, name: &[u8]) -> Result<()> {
        let args = encode(&rmdir::Args { object: DirOpArgs { directory, name } });
        let results = self.call(Procedure::RmDir, args)?;
        accept::<rmdir::Success, rmdir::Failure>(Procedure::RmDir, &results)?;
        Ok(())
    }

    /// Renames, over an existing object too.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn rename(&self, from: (FileHandle, &[u8]), to: (FileHandle, &[u8])) -> Result<()> {
        let args = encode(&rename::Args {
            from: DirOpArgs { directory: from.0, name: from.1 },
            to: DirOpArgs { directory: to.0, name: to.1 },
        });
        let results = self.call(Procedure::Rename, args)?;
        accept::<rename::Success, rename::Failure>(Procedure::Rename, &results)?;
        Ok(())
    }

    /// Makes a hard link.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn link(&self, file: FileHandle, directory: FileHandle, name: &[u8]) -> Result<()> {
        let args = encode(&link::Args { file, link: DirOpArgs { directory, name } });
        let results = self.call(Procedure::Link, args)?;
        accept::<link::Success, link::Failure>(Procedure::Link, &results)?;
        Ok(())
    }

    /// Lists a directory, without `.` and `..`.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn read_directory(&self, directory: FileHandle) -> Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        let (mut cookie, mut verifier) = (0, nfs3::Verifier::default());
        let (dircount, maxcount) = DIRECTORY_BYTES;
        loop {
            let args = readdirplus::Args { directory, cookie, verifier, dircount, maxcount };
            let results = self.call(Procedure::ReadDirPlus, encode(&args))?;
            let page =
                accept::<readdirplus::Success<'_>, readdirplus::Failure>(Procedure::ReadDirPlus, &results)?;
            let before = cookie;
            for entry in page.entries.iter() {
                cookie = entry.cookie;
                if entry.name != b"." && entry.name != b".." {
                    let (name, fileid) = (entry.name.to_vec(), entry.fileid);
                    entries.push(DirectoryEntry {
                        name,
                        fileid,
                        attributes: entry.attributes,
                        handle: entry.handle,
                    });
                }
            }
            verifier = page.verifier;
            if page.eof {
                return Ok(entries);
            }
            let reason = if cookie == before {
                "a page without entries that is not the last"
            } else if entries.len() > DIRECTORY_ENTRIES_MAX {
                "a directory that does not end"
            } else {
                continue;
            };
            return Err(Error::PeerMisbehaved { operation: "READDIRPLUS", reason: reason.into() });
        }
    }

    /// Space and objects, total and free.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn space(&self) -> Result<fsstat::Success> {
        let results = self.call(Procedure::FsStat, encode(&fsstat::Args { root: self.root() }))?;
        accept::<fsstat::Success, fsstat::Failure>(Procedure::FsStat, &results)
    }
}

/// The names of a path, the last first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .rev()
        .map(<[u8]>::to_vec)
        .collect()
}

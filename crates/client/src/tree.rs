//! The tree of a mount: names, attributes, creation and removal. Blocking, one call each.

use nfs3::proc::{
    create, fsstat, getattr, link, lookup, mkdir, mknod, pathconf, readlink, remove, rename, rmdir,
};
use nfs3::proc::{setattr, symlink};
use nfs3::{Created, DirOpArgs, Fattr3, FileHandle, NfsTime, Outcome, PostOpAttr, Procedure, Sattr3, Wire};
use xdr::{Reader, Writer};

use crate::error::{Error, Result};
use crate::mount::Mount;

pub(crate) fn encode<'a>(args: &impl Wire<'a>) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(128);
    args.encode(&mut Writer::new(&mut encoded));
    encoded
}

/// Decodes results and turns a status into an error.
pub(crate) fn accept<'a, S: Wire<'a>, F: Wire<'a>>(procedure: Procedure, results: &'a [u8]) -> Result<S> {
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

    /// Makes a device, a socket or a named pipe.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn make_special(
        &self,
        directory: FileHandle,
        name: &[u8],
        what: mknod::What,
    ) -> Result<(FileHandle, Fattr3)> {
        let args = encode(&mknod::Args { location: DirOpArgs { directory, name }, what });
        let results = self.call(Procedure::MkNod, args)?;
        let created = accept::<Created, mknod::Failure>(Procedure::MkNod, &results)?;
        self.created(directory, name, created)
    }

    /// Limits of names and links (PATHCONF).
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn limits(&self, object: FileHandle) -> Result<pathconf::Success> {
        let results = self.call(Procedure::PathConf, encode(&pathconf::Args { object }))?;
        accept::<pathconf::Success, pathconf::Failure>(Procedure::PathConf, &results)
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

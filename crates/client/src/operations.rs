//! Operations on the tree of a mount, as futures: names, attributes, creation and removal.
//!
//! Most operations are one call each. This module combines the calls of operations that take
//! several in the mount's protocol: a server need not return the handle or the attributes of an
//! object that it has found or created.

mod copying;
mod owners;
mod space;
mod xattrs;

use std::sync::Arc;

use fs::{
    Attributes, CreateMode, DirectoryPage, DirectoryPosition, FileHandle, FileKind, Limits, Rights,
    SetAttributes, SetTime, Space, Special, Status, Time, Verifier,
};

use crate::call::{Caller, Op};
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::protocol::{Found, Operation, Protocol};

pub use copying::Place;
pub use space::Sought;
pub use xattrs::{SetXattr, XATTR_BYTES_MAX};

/// The operations of a mount on behalf of a caller. All errors come from the server or the mount.
#[derive(Debug)]
pub struct Operations<'a> {
    mount: &'a Mount,
    caller: Option<Arc<Caller>>,
}

impl Mount {
    /// The operations on behalf of `caller`, or of the mount's own user. If there is an external
    /// driver, the loop that it drives makes the calls.
    #[must_use]
    pub const fn operations(&self, caller: Option<Arc<Caller>>) -> Operations<'_> {
        Operations { mount: self, caller }
    }
}

fn is_denied(error: &Error) -> bool {
    matches!(error.status(), Some(Status::Access | Status::NotPermitted))
}

impl<'a> Operations<'a> {
    pub(crate) const fn of(mount: &'a Mount, caller: Option<Arc<Caller>>) -> Self {
        Self { mount, caller }
    }

    pub(crate) const fn mount(&self) -> &'a Mount {
        self.mount
    }

    pub(crate) const fn caller(&self) -> Option<&Arc<Caller>> {
        self.caller.as_ref()
    }
}

impl Operations<'_> {
    fn protocol(&self) -> Protocol {
        self.mount.protocol()
    }

    pub(crate) async fn run<T>(&self, operation: Operation<T>) -> Result<T> {
        let (request, reading) = operation.into_parts();
        let done = self.mount.submit_to_driver(Op::Call(request), self.caller.clone()).await;
        self.mount.decode(&reading, &done.results()?).await
    }

    /// The attributes of an object.
    pub async fn getattr(&self, object: FileHandle) -> Result<Attributes> {
        self.run(self.protocol().getattr(object)).await
    }

    /// Sets attributes; `guard` is the ctime that the object must still have. Returns the new
    /// attributes, if the server sent them.
    pub async fn setattr(
        &self,
        object: FileHandle,
        new: SetAttributes,
        guard: Option<Time>,
    ) -> Result<Option<Attributes>> {
        match self.mount.owners().filter(|_| new.uid.is_some() || new.gid.is_some()) {
            Some(owners) => self.set_owners(owners, object, new, guard).await,
            None => self.run(self.protocol().setattr(object, new, guard)).await,
        }
    }

    /// Looks a name up in a directory.
    pub async fn lookup(&self, directory: FileHandle, name: &[u8]) -> Result<(FileHandle, Attributes)> {
        let (handle, attributes) = self.run(self.protocol().lookup(directory, name)).await?;
        self.whole(handle, attributes).await
    }

    /// Completes an object whose attributes the server may have left out.
    async fn whole(
        &self,
        handle: FileHandle,
        attributes: Option<Attributes>,
    ) -> Result<(FileHandle, Attributes)> {
        match attributes {
            Some(attributes) => Ok((handle, attributes)),
            None => Ok((handle, self.getattr(handle).await?)),
        }
    }

    /// Completes a newly created object whose handle the server may have left out.
    async fn made(&self, at: (FileHandle, &[u8]), found: Found) -> Result<(FileHandle, Attributes)> {
        match found.handle {
            Some(handle) => self.whole(handle, found.attributes).await,
            None => self.lookup(at.0, at.1).await,
        }
    }

    /// Returns which of these rights the caller has.
    pub async fn access(&self, object: FileHandle, wished: Rights) -> Result<Rights> {
        self.run(self.protocol().access(object, wished)).await
    }

    /// Returns the target of a symbolic link.
    pub async fn readlink(&self, symlink: FileHandle) -> Result<Vec<u8>> {
        self.run(self.protocol().readlink(symlink)).await
    }

    /// Creates a regular file.
    pub async fn create(
        &self,
        at: (FileHandle, &[u8]),
        mode: CreateMode,
    ) -> Result<(FileHandle, Attributes)> {
        let may_exist = matches!(&mode, CreateMode::Unchecked(new) if new.size.is_none());
        match self.run(self.protocol().create(at.0, at.1, mode)).await {
            Ok(found) => self.made(at, found).await,
            // Version 4 opens the file to write. One that exists the caller need not be allowed to
            // write: in version 3 it is found all the same.
            Err(error) if may_exist && self.protocol().has_sessions() && is_denied(&error) => {
                match self.lookup(at.0, at.1).await {
                    Ok((handle, found)) if found.kind == FileKind::Regular => Ok((handle, found)),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a regular file exactly once, however often the call is sent, or fails. The server
    /// stores the verifier in the file's times until they are set; no other caller may use the same
    /// verifier. RFC 1813 s3.3.8
    pub async fn create_exclusive(
        &self,
        at: (FileHandle, &[u8]),
        verifier: Verifier,
        mode: u32,
    ) -> Result<(FileHandle, Attributes)> {
        let attributes = SetAttributes::mode(mode);
        match self.create(at, CreateMode::Exclusive(verifier)).await {
            Err(Error::Status { status: Status::NotSupported | Status::BadType, .. }) => {
                self.create(at, CreateMode::Guarded(attributes)).await
            }
            Err(error) => Err(error),
            Ok((handle, _)) => {
                let times = SetAttributes { atime: SetTime::Now, mtime: SetTime::Now, ..attributes };
                let after = self.setattr(handle, times, None).await?;
                self.whole(handle, after).await
            }
        }
    }

    /// Creates a directory.
    pub async fn mkdir(
        &self,
        at: (FileHandle, &[u8]),
        new: SetAttributes,
    ) -> Result<(FileHandle, Attributes)> {
        let found = self.run(self.protocol().mkdir(at.0, at.1, new)).await?;
        self.made(at, found).await
    }

    /// Creates a symbolic link.
    pub async fn symlink(&self, at: (FileHandle, &[u8]), target: &[u8]) -> Result<(FileHandle, Attributes)> {
        let found = self.run(self.protocol().symlink(at.0, at.1, target)).await?;
        self.made(at, found).await
    }

    /// Creates a device, a socket or a named pipe.
    pub async fn mknod(
        &self,
        at: (FileHandle, &[u8]),
        special: Special,
        new: SetAttributes,
    ) -> Result<(FileHandle, Attributes)> {
        let found = self.run(self.protocol().mknod(at.0, at.1, special, new)).await?;
        self.made(at, found).await
    }

    /// Removes anything but a directory.
    pub async fn remove(&self, directory: FileHandle, name: &[u8]) -> Result<()> {
        self.run(self.protocol().remove(directory, name)).await
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, directory: FileHandle, name: &[u8]) -> Result<()> {
        self.run(self.protocol().rmdir(directory, name)).await
    }

    /// Renames an object, replacing an existing one.
    pub async fn rename(&self, from: (FileHandle, &[u8]), to: (FileHandle, &[u8])) -> Result<()> {
        self.run(self.protocol().rename(from, to)).await
    }

    /// Creates a hard link. Returns the new attributes of the file, if the server sent them.
    pub async fn link(&self, file: FileHandle, at: (FileHandle, &[u8])) -> Result<Option<Attributes>> {
        self.run(self.protocol().link(file, at)).await
    }

    /// Reads a page of a directory, with attributes and handles if `plus`.
    pub async fn read_directory(
        &self,
        directory: FileHandle,
        from: DirectoryPosition,
        plus: bool,
    ) -> Result<DirectoryPage> {
        let protocol = self.protocol();
        let page =
            if plus { protocol.readdirplus(directory, from) } else { protocol.readdir(directory, from) };
        self.run(page).await
    }

    /// Limits of names and links.
    pub async fn limits(&self, object: FileHandle) -> Result<Limits> {
        self.run(self.protocol().limits(object)).await
    }

    /// Space and objects, total and free.
    pub async fn statfs(&self) -> Result<Space> {
        self.statfs_at(self.mount.root()).await
    }

    /// Space and objects of the file system that has an object, total and free.
    pub async fn statfs_at(&self, object: FileHandle) -> Result<Space> {
        self.run(self.protocol().statfs(object)).await
    }
}

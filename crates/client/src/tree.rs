//! The operations on the tree of a mount for a thread that blocks: [`crate::Operations`] on behalf
//! of the mount's own user.

use std::ops::Range;

use fs::{Attributes, CreateMode, FileHandle, Limits, Rights, SetAttributes, Space, Special, Time};

use crate::error::Result;
use crate::mount::Mount;
use crate::operations::{Place, SetXattr, Sought};
use crate::slot::wait;

impl Mount {
    /// The attributes of an object.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn attributes(&self, object: FileHandle) -> Result<Attributes> {
        wait(self.operations(None).getattr(object))
    }

    /// Sets attributes; `guard` is the ctime that the object must still have.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn set_attributes(&self, object: FileHandle, new: SetAttributes, guard: Option<Time>) -> Result<()> {
        wait(self.operations(None).setattr(object, new, guard)).map(drop)
    }

    /// Returns which of these rights the mount's user has.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn access(&self, object: FileHandle, wished: Rights) -> Result<Rights> {
        wait(self.operations(None).access(object, wished))
    }

    /// Looks a name up in a directory.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn lookup(&self, directory: FileHandle, name: &[u8]) -> Result<(FileHandle, Attributes)> {
        wait(self.operations(None).lookup(directory, name))
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn read_link(&self, symlink: FileHandle) -> Result<Vec<u8>> {
        wait(self.operations(None).readlink(symlink))
    }

    /// Creates a file.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn create(
        &self,
        directory: FileHandle,
        name: &[u8],
        mode: CreateMode,
    ) -> Result<(FileHandle, Attributes)> {
        wait(self.operations(None).create((directory, name), mode))
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn make_directory(
        &self,
        directory: FileHandle,
        name: &[u8],
        new: SetAttributes,
    ) -> Result<(FileHandle, Attributes)> {
        wait(self.operations(None).mkdir((directory, name), new))
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn make_symlink(
        &self,
        directory: FileHandle,
        name: &[u8],
        target: &[u8],
    ) -> Result<(FileHandle, Attributes)> {
        wait(self.operations(None).symlink((directory, name), target))
    }

    /// Creates a device, a socket or a named pipe.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn make_special(
        &self,
        directory: FileHandle,
        name: &[u8],
        special: Special,
        new: SetAttributes,
    ) -> Result<(FileHandle, Attributes)> {
        wait(self.operations(None).mknod((directory, name), special, new))
    }

    /// Removes anything but a directory.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn remove(&self, directory: FileHandle, name: &[u8]) -> Result<()> {
        wait(self.operations(None).remove(directory, name))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn remove_directory(&self, directory: FileHandle, name: &[u8]) -> Result<()> {
        wait(self.operations(None).rmdir(directory, name))
    }

    /// Renames an object, replacing an existing one.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn rename(&self, from: (FileHandle, &[u8]), to: (FileHandle, &[u8])) -> Result<()> {
        wait(self.operations(None).rename(from, to))
    }

    /// Creates a hard link.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn link(&self, file: FileHandle, directory: FileHandle, name: &[u8]) -> Result<()> {
        wait(self.operations(None).link(file, (directory, name))).map(drop)
    }

    /// Limits of names and links.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn limits(&self, object: FileHandle) -> Result<Limits> {
        wait(self.operations(None).limits(object))
    }

    /// Space and objects, total and free.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn space(&self) -> Result<Space> {
        wait(self.operations(None).statfs())
    }

    /// Space and objects of the file system that has an object, total and free.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn space_at(&self, object: FileHandle) -> Result<Space> {
        wait(self.operations(None).statfs_at(object))
    }

    /// [`crate::Operations::seek`].
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn seek(&self, file: FileHandle, offset: u64, sought: Sought) -> Result<Option<u64>> {
        wait(self.operations(None).seek(file, offset, sought))
    }

    /// [`crate::Operations::allocate`].
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn allocate(&self, file: FileHandle, range: Range<u64>) -> Result<()> {
        wait(self.operations(None).allocate(file, range))
    }

    /// [`crate::Operations::deallocate`].
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn deallocate(&self, file: FileHandle, range: Range<u64>) -> Result<()> {
        wait(self.operations(None).deallocate(file, range))
    }

    /// [`crate::Operations::deallocate_stably`].
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn deallocate_stably(&self, file: FileHandle, range: Range<u64>) -> Result<()> {
        wait(self.operations(None).deallocate_stably(file, range))
    }

    /// [`crate::Operations::zero_stably`].
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn zero_stably(&self, file: FileHandle, range: Range<u64>) -> Result<()> {
        wait(self.operations(None).zero_stably(file, range))
    }

    /// [`crate::Operations::zero`].
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn zero(&self, file: FileHandle, range: Range<u64>) -> Result<()> {
        wait(self.operations(None).zero(file, range))
    }

    /// [`crate::Operations::copy`].
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn copy(&self, from: Place, to: Place, count: u64, goes_on: impl Fn() -> bool) -> Result<u64> {
        wait(self.operations(None).copy(from, to, count, goes_on))
    }

    /// The value of an extended attribute; its name has no prefix.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn xattr(&self, object: FileHandle, name: &[u8]) -> Result<Vec<u8>> {
        wait(self.operations(None).xattr(object, name))
    }

    /// [`crate::Operations::has_xattrs`].
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn has_xattrs(&self, object: FileHandle) -> Result<bool> {
        wait(self.operations(None).has_xattrs(object))
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn xattrs(&self, object: FileHandle) -> Result<Vec<Vec<u8>>> {
        wait(self.operations(None).xattrs(object))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn set_xattr(&self, object: FileHandle, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        wait(self.operations(None).set_xattr(object, name, value, how))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// The server's, or the mount's.
    pub fn remove_xattr(&self, object: FileHandle, name: &[u8]) -> Result<()> {
        wait(self.operations(None).remove_xattr(object, name))
    }
}

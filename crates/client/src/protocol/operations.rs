//! The operations on a tree, in the protocol of a mount.

use fs::{
    Attributes, CreateMode, DirectoryPage, DirectoryPosition, FileHandle, FileSystemInfo, Limits, Rights,
    SetAttributes, Space, Special, Time,
};

use super::{Found, Operation, Protocol, SetOwners, Version, nfs3, nfs4};

/// Defines each operation as that of the mount's protocol.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $of:ty),*) -> $result:ty;)+) => {
        impl Protocol {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(self, $($arg: $of),*) -> Operation<$result> {
                    match self.0 {
                        Version::Nfs3 => nfs3::operations::$name($($arg),*),
                        Version::Nfs4 { minor, .. } => nfs4::operations::$name(minor, $($arg),*),
                    }
                }
            )+
        }
    };
}

operations! {
    /// The attributes of an object.
    getattr(object: FileHandle) -> Attributes;
    /// Sets attributes; `guard` is the ctime that the object must still have. Returns the new
    /// attributes, if the server sent them.
    setattr(object: FileHandle, new: SetAttributes, guard: Option<Time>) -> Option<Attributes>;
    /// Looks a name up in a directory.
    lookup(directory: FileHandle, name: &[u8]) -> (FileHandle, Option<Attributes>);
    /// Returns which of these rights the caller has.
    access(object: FileHandle, wished: Rights) -> Rights;
    /// Returns the target of a symbolic link.
    readlink(symlink: FileHandle) -> Vec<u8>;
    /// Creates a regular file.
    create(directory: FileHandle, name: &[u8], mode: CreateMode) -> Found;
    /// Creates a directory.
    mkdir(directory: FileHandle, name: &[u8], new: SetAttributes) -> Found;
    /// Creates a symbolic link.
    symlink(directory: FileHandle, name: &[u8], target: &[u8]) -> Found;
    /// Creates a device, a socket or a named pipe.
    mknod(directory: FileHandle, name: &[u8], special: Special, new: SetAttributes) -> Found;
    /// Removes anything but a directory.
    remove(directory: FileHandle, name: &[u8]) -> ();
    /// Removes an empty directory.
    rmdir(directory: FileHandle, name: &[u8]) -> ();
    /// Renames an object, replacing an existing one.
    rename(from: (FileHandle, &[u8]), to: (FileHandle, &[u8])) -> ();
    /// Creates a hard link. Returns the new attributes of the file, if the server sent them.
    link(file: FileHandle, at: (FileHandle, &[u8])) -> Option<Attributes>;
    /// Space and objects, total and free.
    statfs(root: FileHandle) -> Space;
    /// The server's information about a file system.
    fsinfo(root: FileHandle) -> FileSystemInfo;
    /// Limits of names and links.
    limits(object: FileHandle) -> Limits;
}

impl Protocol {
    /// [`Protocol::setattr`] with owners as names; `None` if the protocol has numbers alone.
    pub(crate) fn setattr_by_name(
        self,
        object: FileHandle,
        new: SetAttributes,
        guard: Option<Time>,
        owners: &SetOwners,
    ) -> Option<Operation<Option<Attributes>>> {
        match self.0 {
            Version::Nfs3 => None,
            Version::Nfs4 { minor, .. } => {
                Some(nfs4::operations::setattr_by_name(minor, object, new, guard, owners))
            }
        }
    }

    /// A page of a directory, without attributes and handles.
    #[must_use]
    pub fn readdir(self, directory: FileHandle, from: DirectoryPosition) -> Operation<DirectoryPage> {
        match self.0 {
            Version::Nfs3 => nfs3::operations::readdir(directory, from),
            Version::Nfs4 { minor, page_bytes } => {
                nfs4::operations::readdir(minor, page_bytes, directory, from)
            }
        }
    }

    /// A page of a directory, with attributes and handles.
    #[must_use]
    pub fn readdirplus(self, directory: FileHandle, from: DirectoryPosition) -> Operation<DirectoryPage> {
        match self.0 {
            Version::Nfs3 => nfs3::operations::readdirplus(directory, from),
            Version::Nfs4 { minor, page_bytes } => {
                nfs4::operations::readdirplus(minor, page_bytes, directory, from)
            }
        }
    }
}

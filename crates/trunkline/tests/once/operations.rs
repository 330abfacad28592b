//! The operations that must not happen twice: what each needs, what it does, what the directory
//! must contain when it was done once, and how it is undone, so that a second execution would be
//! seen.

use client::{Error, Mount, Result};
use fs::{CreateMode, FileHandle, FileKind, SetAttributes, Special, Status};
use nfs3::Procedure;
use std::collections::BTreeMap;

/// The content of a file, what is appended, and what is written over that.
const FIRST: &[u8] = b"first";
const APPENDED: &[u8] = b" appended";
const NEWER: &[u8] = b" newer...";
/// The name that CREATE EXCLUSIVE creates; all others create `new`.
const EXCLUSIVE: &[u8] = b"exclusive";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    CreateExclusive,
    CreateGuarded,
    MakeDirectory,
    Symlink,
    MakeNode,
    Link,
    Remove,
    RemoveDirectory,
    Rename,
    RenameOver,
    GuardedSetAttr,
    Append,
}

/// An object as a directory shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    kind: FileKind,
    nlink: u32,
    mode: u32,
    contents: Vec<u8>,
}

pub type Listing = BTreeMap<Vec<u8>, Seen>;

fn mode(mode: u32) -> SetAttributes {
    SetAttributes::mode(mode)
}

fn create(mount: &Mount, directory: FileHandle, name: &[u8], contents: &[u8]) {
    let (file, _) = mount.create(directory, name, CreateMode::Guarded(mode(0o644))).expect("made");
    write(mount, file, contents, 0).expect("written");
}

/// A WRITE that is stable when this returns.
fn write(mount: &Mount, file: FileHandle, data: &[u8], offset: u64) -> Result<()> {
    let file = mount.file_ref(file);
    let done = mount.submit(client::Op::Write { file, offset, buffer: data.to_vec().into() }).wait();
    mount.release(&file);
    done.result.map(|_| ())
}

/// The contents of a directory.
pub fn list(mount: &Mount, directory: FileHandle) -> Listing {
    let entries = mount.read_directory(directory).expect("listed");
    let names = entries.into_iter().map(|entry| entry.name).filter(|name| name != b"." && name != b"..");
    names
        .map(|name| {
            let (object, _) = mount.lookup(directory, &name).expect("a listed name is found");
            let attributes = mount.attributes(object).expect("a listed object exists");
            let contents = match attributes.kind {
                FileKind::Regular => read(mount, object, attributes.size),
                FileKind::Symlink => mount.read_link(object).expect("read"),
                _ => Vec::new(),
            };
            // The link count of a directory depends on the file system.
            let nlink = if attributes.kind == FileKind::Directory { 0 } else { attributes.nlink };
            // So does the mode of a symbolic link, and of a file created with a verifier.
            let own = attributes.kind == FileKind::Symlink || name == EXCLUSIVE;
            let mode = if own { 0 } else { attributes.mode & 0o777 };
            (name, Seen { kind: attributes.kind, nlink, mode, contents })
        })
        .collect()
}

fn read(mount: &Mount, object: FileHandle, size: u64) -> Vec<u8> {
    let file = mount.file_ref(object);
    let done =
        mount.submit(client::Op::Read { file, offset: 0, buffer: vec![0; size as usize].into() }).wait();
    mount.release(&file);
    done.result.expect("read");
    done.buffer.into_vec()
}

impl Operation {
    pub const ALL: [Self; 12] = [
        Self::CreateExclusive,
        Self::CreateGuarded,
        Self::MakeDirectory,
        Self::Symlink,
        Self::MakeNode,
        Self::Link,
        Self::Remove,
        Self::RemoveDirectory,
        Self::Rename,
        Self::RenameOver,
        Self::GuardedSetAttr,
        Self::Append,
    ];

    pub const fn procedure(self) -> Procedure {
        match self {
            Self::CreateExclusive | Self::CreateGuarded => Procedure::Create,
            Self::MakeDirectory => Procedure::MkDir,
            Self::Symlink => Procedure::SymLink,
            Self::MakeNode => Procedure::MkNod,
            Self::Link => Procedure::Link,
            Self::Remove => Procedure::Remove,
            Self::RemoveDirectory => Procedure::RmDir,
            Self::Rename | Self::RenameOver => Procedure::Rename,
            Self::GuardedSetAttr => Procedure::SetAttr,
            Self::Append => Procedure::Write,
        }
    }

    /// The operation of version 4 that does it.
    pub const fn operation_4(self) -> nfs4::Operation {
        match self {
            Self::CreateExclusive | Self::CreateGuarded => nfs4::Operation::Open,
            Self::MakeDirectory | Self::Symlink | Self::MakeNode => nfs4::Operation::Create,
            Self::Link => nfs4::Operation::Link,
            Self::Remove | Self::RemoveDirectory => nfs4::Operation::Remove,
            Self::Rename | Self::RenameOver => nfs4::Operation::Rename,
            Self::GuardedSetAttr => nfs4::Operation::SetAttr,
            Self::Append => nfs4::Operation::Write,
        }
    }

    /// The status with which the operation must fail if [`Self::prepare`] has made an obstacle;
    /// `None` if there can be none.
    pub const fn refusal(self) -> Option<Status> {
        match self {
            Self::CreateExclusive
            | Self::CreateGuarded
            | Self::MakeDirectory
            | Self::Symlink
            | Self::MakeNode
            | Self::Link => Some(Status::Exists),
            Self::Remove | Self::RemoveDirectory | Self::Rename => Some(Status::NotFound),
            Self::GuardedSetAttr => Some(Status::NotSync),
            Self::RenameOver | Self::Append => None,
        }
    }

    const fn needs_old_file(self) -> bool {
        matches!(
            self,
            Self::Link | Self::Remove | Self::Rename | Self::RenameOver | Self::GuardedSetAttr | Self::Append
        )
    }

    /// The name that the operation creates.
    const fn made(self) -> &'static [u8] {
        match self {
            Self::CreateExclusive => EXCLUSIVE,
            _ => b"new",
        }
    }

    /// Creates what the operation needs, or an obstacle that makes it fail.
    pub fn prepare(self, mount: &Mount, directory: FileHandle, refused: bool) {
        let refusal = self.refusal().filter(|_| refused);
        if refusal == Some(Status::Exists) || self == Self::RenameOver {
            create(mount, directory, self.made(), b"in the way");
        }
        if refusal == Some(Status::NotFound) {
            return;
        }
        if self.needs_old_file() {
            create(mount, directory, b"old", FIRST);
        }
        if self == Self::RemoveDirectory {
            mount.make_directory(directory, b"old", mode(0o755)).expect("made");
        }
    }

    /// Does the operation, once as far as the caller knows.
    pub fn perform(self, mount: &Mount, directory: FileHandle, refused: bool) -> Result<()> {
        let old = || mount.lookup(directory, b"old").map(|(object, _)| object);
        match self {
            Self::CreateExclusive => {
                let verifier = *b"verifier";
                mount.create(directory, EXCLUSIVE, CreateMode::Exclusive(verifier)).map(|_| ())
            }
            Self::CreateGuarded => {
                mount.create(directory, b"new", CreateMode::Guarded(mode(0o644))).map(|_| ())
            }
            Self::MakeDirectory => mount.make_directory(directory, b"new", mode(0o755)).map(|_| ()),
            Self::Symlink => mount.make_symlink(directory, b"new", b"target").map(|_| ()),
            Self::MakeNode => mount.make_special(directory, b"new", Special::Fifo, mode(0o644)).map(|_| ()),
            Self::Link => mount.link(old()?, directory, b"new"),
            Self::Remove => mount.remove(directory, b"old"),
            Self::RemoveDirectory => mount.remove_directory(directory, b"old"),
            Self::Rename | Self::RenameOver => mount.rename((directory, b"old"), (directory, b"new")),
            Self::GuardedSetAttr => {
                let mut guard = mount.attributes(old()?)?.ctime;
                guard.nanoseconds ^= u32::from(refused);
                mount.set_attributes(old()?, mode(0o600), Some(guard))
            }
            Self::Append => write(mount, old()?, APPENDED, FIRST.len() as u64),
        }
    }

    /// What the directory must contain when the operation was done once; `before` is what it
    /// contained before.
    pub fn done(self, before: &Listing) -> Listing {
        let mut after = before.clone();
        let kind = match self {
            Self::CreateExclusive | Self::CreateGuarded => FileKind::Regular,
            Self::MakeDirectory => FileKind::Directory,
            Self::Symlink => FileKind::Symlink,
            _ => FileKind::Fifo,
        };
        let contents = if self == Self::Symlink { b"target".to_vec() } else { Vec::new() };
        let nlink = u32::from(kind != FileKind::Directory);
        let mode = match self {
            Self::CreateExclusive | Self::Symlink => 0,
            Self::MakeDirectory => 0o755,
            _ => 0o644,
        };
        match self {
            Self::CreateExclusive
            | Self::CreateGuarded
            | Self::MakeDirectory
            | Self::Symlink
            | Self::MakeNode => {
                after.insert(self.made().to_vec(), Seen { kind, nlink, mode, contents });
            }
            Self::Link => {
                let both = Seen { nlink: 2, ..after[&b"old"[..]].clone() };
                after.insert(b"old".to_vec(), both.clone());
                after.insert(b"new".to_vec(), both);
            }
            Self::Remove | Self::RemoveDirectory => {
                after.remove(&b"old"[..]);
            }
            Self::Rename | Self::RenameOver => {
                let moved = after.remove(&b"old"[..]).expect("`old` existed");
                after.insert(b"new".to_vec(), moved);
            }
            Self::GuardedSetAttr => after.get_mut(&b"old"[..]).expect("`old` existed").mode = 0o600,
            Self::Append => {
                after.get_mut(&b"old"[..]).expect("`old` existed").contents.extend_from_slice(APPENDED);
            }
        }
        after
    }

    /// Undoes the operation, or does something newer over it.
    pub fn undo(self, mount: &Mount, directory: FileHandle) {
        let old = || mount.lookup(directory, b"old").expect("`old` exists").0;
        let undone = match self {
            Self::CreateExclusive | Self::CreateGuarded | Self::Symlink | Self::MakeNode | Self::Link => {
                mount.remove(directory, self.made())
            }
            Self::MakeDirectory => mount.remove_directory(directory, b"new"),
            Self::Remove => {
                create(mount, directory, b"old", NEWER);
                Ok(())
            }
            Self::RemoveDirectory => mount.make_directory(directory, b"old", mode(0o755)).map(|_| ()),
            Self::Rename | Self::RenameOver => mount.rename((directory, b"new"), (directory, b"old")),
            Self::GuardedSetAttr => mount.set_attributes(old(), mode(0o640), None),
            Self::Append => write(mount, old(), NEWER, FIRST.len() as u64),
        };
        undone.unwrap_or_else(|error: Error| panic!("{self:?} cannot be undone: {error}"));
    }
}

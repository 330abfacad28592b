//! Trees of a server: directories with the ones above them, and a walk with many threads.
//!
//! Invariants: memory is bounded by the depth and the number of threads, not by the size of the
//! tree: a thread holds a page of names for each level, and the queue is bounded. A directory that
//! contains one of those above it, and a path without an end, are failures and are not entered.
//! Symbolic links are not followed.

mod walk;

use crate::error::Error;
use client::Mount;
use fs::{Attributes, DirectoryEntry, FileHandle, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
pub use walk::{LeaveOutcome, Visitor, walk};

/// The longest path below a place, in bytes: PATH_MAX of Linux, beyond which no program can name a
/// file by its path.
const PATH_BYTES_MAX: usize = 4096;

/// A directory of a tree, with those above it.
#[derive(Debug)]
pub struct Node<D> {
    pub parent: Option<Arc<Self>>,
    /// The name; of the uppermost directory, what messages call it.
    pub name: Vec<u8>,
    pub handle: FileHandle,
    pub attributes: Attributes,
    /// Levels below the uppermost directory.
    pub depth: usize,
    /// The length of the path below the uppermost directory.
    path_bytes: usize,
    /// What is unfinished: the listing, directories below, and batches of files.
    unfinished: AtomicUsize,
    /// Something below, or the listing, failed.
    failed: AtomicBool,
    /// Of the uppermost directory, those above it up to the export's root.
    above_root: Vec<FileHandle>,
    /// What a walk adds.
    pub data: D,
}

/// Why a part of a tree was left out.
#[derive(Debug)]
pub enum Failure {
    /// The server refused.
    Remote(client::Error),
    /// The directory is the one of this path, which contains it.
    Cycle(String),
    /// The path is longer than [`PATH_BYTES_MAX`].
    TooDeep,
}

impl Failure {
    /// The error for a command; `sentence` says what it could not do.
    pub fn explain(self, sentence: String) -> Error {
        let (cause, advice) = match self {
            Self::Remote(cause) => return Error::Remote { sentence, cause: Box::new(cause) },
            Self::Cycle(path) => (
                format!("it contains itself: it is the same directory as {path}, which contains it"),
                "check the file system on the server; its directories are damaged, or the server lies",
            ),
            Self::TooDeep => (
                format!("its path below the place is longer than {PATH_BYTES_MAX} bytes"),
                "a place further down in the tree",
            ),
        };
        Error::Refused { sentence, cause, advice: advice.to_owned() }
    }
}

impl<D: Default> Node<D> {
    /// The uppermost directory; messages call it `name`. `trail` has the directories from the
    /// export's root down to this one, which is the last.
    pub fn root(name: &str, trail: &[FileHandle], attributes: Attributes) -> Arc<Self> {
        let (handle, above_root) = trail.split_last().unwrap_or((&FileHandle::EMPTY, &[]));
        let name = name.trim_end_matches('/').as_bytes().to_vec();
        Arc::new(Self {
            parent: None,
            name,
            handle: *handle,
            attributes,
            depth: 0,
            path_bytes: 0,
            above_root: above_root.to_vec(),
            unfinished: AtomicUsize::new(1),
            failed: AtomicBool::new(false),
            data: D::default(),
        })
    }

    /// A directory in this one.
    pub fn child(self: &Arc<Self>, entry: &Entry) -> Result<Arc<Self>, Failure> {
        let path_bytes = self.path_bytes + 1 + entry.name.len();
        if let Some(ancestor) = self.ancestors().find(|ancestor| ancestor.handle == entry.handle) {
            let ancestor = String::from_utf8_lossy(&ancestor.path()).into_owned();
            return Err(Failure::Cycle(ancestor));
        }
        if let Some(root) = self.ancestors().find(|node| node.above_root.contains(&entry.handle)) {
            let root = String::from_utf8_lossy(&root.name).into_owned();
            return Err(Failure::Cycle(format!("one above {root}")));
        }
        if path_bytes > PATH_BYTES_MAX {
            return Err(Failure::TooDeep);
        }
        Ok(Arc::new(Self {
            parent: Some(Arc::clone(self)),
            name: entry.name.clone(),
            handle: entry.handle,
            attributes: entry.attributes,
            depth: self.depth + 1,
            path_bytes,
            above_root: Vec::new(),
            unfinished: AtomicUsize::new(1),
            failed: AtomicBool::new(false),
            data: D::default(),
        }))
    }
}

impl<D> Node<D> {
    /// This directory and those above it.
    fn ancestors(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |node| node.parent.as_deref())
    }

    /// The path of the directory in messages.
    pub fn path(&self) -> Vec<u8> {
        let mut names: Vec<&[u8]> = self.ancestors().map(|node| node.name.as_slice()).collect();
        names.reverse();
        names.join(&b'/')
    }

    /// The path below the uppermost directory.
    pub fn below(&self) -> Vec<u8> {
        let below = self.ancestors().filter(|node| node.parent.is_some());
        let mut names: Vec<&[u8]> = below.map(|node| node.name.as_slice()).collect();
        names.reverse();
        names.join(&b'/')
    }

    /// The path of a name in the directory in messages.
    pub fn path_of(&self, name: &[u8]) -> Vec<u8> {
        [self.path().as_slice(), b"/", name].concat()
    }
}

/// A name in a directory, with its object.
#[derive(Debug)]
pub struct Entry {
    pub name: Vec<u8>,
    pub handle: FileHandle,
    pub attributes: Attributes,
}

impl Entry {
    /// Completes an entry of a listing: a server need not return attributes and handles with the
    /// names (RFC 1813 s3.3.17). `None` if the object was removed after the directory was read.
    pub fn complete(
        mount: &Mount,
        directory: FileHandle,
        found: DirectoryEntry,
    ) -> client::Result<Option<Self>> {
        let (handle, attributes) = match (found.handle, found.attributes) {
            (Some(handle), Some(attributes)) => (handle, attributes),
            _ => match mount.lookup(directory, &found.name) {
                Ok(found) => found,
                Err(error) if error.status() == Some(Status::NotFound) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        Ok(Some(Self { name: found.name, handle, attributes }))
    }
}

//! A local directory, held by its descriptor.
//!
//! A tree is walked by descriptors. Each directory is opened beneath its parent without following
//! links, so a symbolic link that replaces a directory during the copy is an error. What is created
//! or read in an open directory stays in that directory, even if its path changes meanwhile. Only a
//! path that the user named may be a link.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Mode, OFlags};

use super::with_context;
use crate::error::Result;

/// The flags to open a directory as a starting point, not to list it.
const OPEN_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory, opened when it is first used.
#[derive(Debug)]
pub(super) struct DirectoryHandle {
    path: PathBuf,
    above: Option<(Arc<Self>, Vec<u8>)>,
    descriptor: OnceLock<OwnedFd>,
}

impl DirectoryHandle {
    /// A directory that the user named.
    pub(super) fn named(path: &Path) -> Self {
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() };
        Self { path, above: None, descriptor: OnceLock::new() }
    }

    /// A directory beneath another.
    pub(super) fn beneath(above: &Arc<Self>, name: &[u8]) -> Self {
        let path = above.path.join(OsStr::from_bytes(name));
        Self { path, above: Some((Arc::clone(above), name.to_vec())), descriptor: OnceLock::new() }
    }

    /// The path to show in messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor of the directory; `what` names the operation that needs it.
    pub(super) fn descriptor(&self, what: &'static str) -> Result<BorrowedFd<'_>> {
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(descriptor.as_fd());
        }
        let opened = match &self.above {
            None => rustix::fs::open(&self.path, OPEN_FLAGS, Mode::empty()),
            Some((above, name)) => {
                let above = above.descriptor(what)?;
                rustix::fs::openat(above, name.as_slice(), OPEN_FLAGS | OFlags::NOFOLLOW, Mode::empty())
            }
        };
        let opened = with_context(what, opened)?;
        Ok(self.descriptor.get_or_init(|| opened).as_fd())
    }

    /// The directory that the user named, and the names that lead from there to this one.
    pub(super) fn path_from_top(self: &Arc<Self>) -> (Arc<Self>, Vec<Vec<u8>>) {
        let (mut top, mut names) = (self, Vec::new());
        while let Some((above, name)) = &top.above {
            names.push(name.clone());
            top = above;
        }
        names.reverse();
        (Arc::clone(top), names)
    }
}

/// The name of an object, as a path from the directory that the user named. The object can be found
/// again without keeping its directory open.
#[derive(Debug, Clone)]
pub struct LocalPath {
    top: Arc<DirectoryHandle>,
    names: Vec<Vec<u8>>,
    name: Vec<u8>,
}

impl LocalPath {
    pub(super) fn to(directory: &Arc<DirectoryHandle>, name: &[u8]) -> Self {
        let (top, names) = directory.path_from_top();
        Self { top, names, name: name.to_vec() }
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Opens the object's directory step by step; `what` names the operation that needs it.
    pub(super) fn directory(&self, what: &'static str) -> Result<Arc<DirectoryHandle>> {
        let mut directory = Arc::clone(&self.top);
        for name in &self.names {
            directory = Arc::new(DirectoryHandle::beneath(&directory, name));
        }
        directory.descriptor(what)?;
        Ok(directory)
    }
}

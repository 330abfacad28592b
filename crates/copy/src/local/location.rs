//! A directory of this machine, held by its descriptor.
//!
//! A tree is walked by descriptors, each opened beneath the one above it without following links: a
//! symbolic link that takes a directory's place while a copy runs is an error, and what is made or
//! read in a directory that is open stays in that directory, whatever its path names meanwhile.
//! Only what the user named himself may be a link.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Mode, OFlags};

use super::tried;
use crate::error::Result;

/// How a directory is held: to walk on from, not to read.
const HOLD: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// See the module's documentation. It is opened when it is first used.
#[derive(Debug)]
pub(super) struct Location {
    path: PathBuf,
    above: Option<(Arc<Self>, Vec<u8>)>,
    descriptor: OnceLock<OwnedFd>,
}

impl Location {
    /// One that the user named.
    pub(super) fn named(path: &Path) -> Self {
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() };
        Self { path, above: None, descriptor: OnceLock::new() }
    }

    /// One beneath another.
    pub(super) fn beneath(above: &Arc<Self>, name: &[u8]) -> Self {
        let path = above.path.join(OsStr::from_bytes(name));
        Self { path, above: Some((Arc::clone(above), name.to_vec())), descriptor: OnceLock::new() }
    }

    /// What people call it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// It, opened; `what` is tried with it.
    pub(super) fn descriptor(&self, what: &'static str) -> Result<BorrowedFd<'_>> {
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(descriptor.as_fd());
        }
        let opened = match &self.above {
            None => rustix::fs::open(&self.path, HOLD, Mode::empty()),
            Some((above, name)) => {
                let above = above.descriptor(what)?;
                rustix::fs::openat(above, name.as_slice(), HOLD | OFlags::NOFOLLOW, Mode::empty())
            }
        };
        let opened = tried(what, opened)?;
        Ok(self.descriptor.get_or_init(|| opened).as_fd())
    }

    /// The directory that the user named, and the names that lead from there to here.
    pub(super) fn way(self: &Arc<Self>) -> (Arc<Self>, Vec<Vec<u8>>) {
        let (mut top, mut names) = (self, Vec::new());
        while let Some((above, name)) = &top.above {
            names.push(name.clone());
            top = above;
        }
        names.reverse();
        (Arc::clone(top), names)
    }
}

/// A name in a directory, from the one that the user named: to be found again without holding the
/// directory open.
#[derive(Debug, Clone)]
pub struct LocalPath {
    top: Arc<Location>,
    names: Vec<Vec<u8>>,
    name: Vec<u8>,
}

impl LocalPath {
    pub(super) fn to(place: &Arc<Location>, name: &[u8]) -> Self {
        let (top, names) = place.way();
        Self { top, names, name: name.to_vec() }
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its directory, opened step by step; `what` is tried with it.
    pub(super) fn directory(&self, what: &'static str) -> Result<Arc<Location>> {
        let mut place = Arc::clone(&self.top);
        for name in &self.names {
            place = Arc::new(Location::beneath(&place, name));
        }
        place.descriptor(what)?;
        Ok(place)
    }
}

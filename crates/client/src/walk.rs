//! Resolves a path to an object, and to all directories on the way.
//!
//! Each name is resolved by LOOKUP. In a directory that the caller may not search, MOUNT is asked
//! for the path up to that name instead: MOUNT returns directories below an export as it does
//! exports (RFC 1813 s5.2.1), so that what can be mounted can also be reached by its path. Links
//! are followed here and stay within the mount. MOUNT may follow links to anywhere, so MOUNT is
//! asked only where LOOKUP is refused.

use fs::{Attributes, FileHandle, FileKind, Status};

use crate::error::{Error, Result};
use crate::mount::Mount;

/// A path with more symbolic links than this is considered a loop; Linux uses the same limit.
const SYMLINKS_MAX: u32 = 40;

impl Mount {
    /// Resolves a path from the root of the mount, following symbolic links that stay within the
    /// mount.
    ///
    /// # Errors
    /// [`Error::Step`] with the server's error for a name; too many symbolic links are reported as
    /// `INVAL`, the equivalent of ELOOP.
    pub fn resolve(&self, path: &[u8]) -> Result<(FileHandle, Attributes)> {
        let (trail, attributes) = self.resolve_trail(path, true)?;
        Ok((trail.last().copied().unwrap_or_else(|| self.root()), attributes))
    }

    /// Like [`Mount::resolve`], but returns all directories from the root down to the object, which
    /// is the last entry. Without `follow` the object itself may be a symbolic link.
    ///
    /// # Errors
    /// As [`Mount::resolve`].
    pub fn resolve_trail(&self, path: &[u8], follow: bool) -> Result<(Vec<FileHandle>, Attributes)> {
        let (walk, attributes) = self.walk(path, follow)?;
        Ok((walk.trail, attributes))
    }

    /// The path of a directory from the root of the server, without symbolic links and `..`, as
    /// MOUNT takes it.
    pub(crate) fn real_path(&self, path: &[u8]) -> Result<Vec<u8>> {
        let (mut walk, attributes) = self.walk(path, true)?;
        let last = walk.names.pop().unwrap_or_default();
        if attributes.kind == FileKind::Directory {
            Ok(walk.path_to(&last))
        } else {
            Err(walk.explain(&last, NOT_A_DIRECTORY))
        }
    }

    fn walk(&self, path: &[u8], follow: bool) -> Result<(Walk<'_>, Attributes)> {
        let is_directory = names_a_directory(path);
        let follow = follow || is_directory;
        let mut links = 0;
        let mut todo: Vec<Vec<u8>> = components(path);
        let mut walk = Walk { mount: self, trail: vec![self.root()], names: Vec::new() };
        while let Some(name) = todo.pop() {
            if name == b".." {
                walk.ascend();
                continue;
            }
            let (handle, attributes) = walk.step(&name)?;
            if attributes.kind != FileKind::Symlink {
                walk.descend(handle, name);
                continue;
            }
            if todo.is_empty() && !follow {
                walk.descend(handle, name);
                return Ok((walk, attributes));
            }
            links += 1;
            if links > SYMLINKS_MAX {
                return Err(
                    walk.explain(&name, Error::Status { operation: "LOOKUP", status: Status::Invalid })
                );
            }
            let target = self.read_link(handle).map_err(|cause| walk.explain(&name, cause))?;
            if target.first() == Some(&b'/') {
                walk.restart();
            }
            todo.extend(components(&target));
        }
        let attributes = self.attributes(walk.here())?;
        if is_directory && attributes.kind != FileKind::Directory {
            let name = walk.names.pop().unwrap_or_default();
            return Err(walk.explain(&name, NOT_A_DIRECTORY));
        }
        Ok((walk, attributes))
    }
}

const NOT_A_DIRECTORY: Error = Error::Status { operation: "LOOKUP", status: Status::NotDirectory };

/// Whether the end of a path requires a directory, as in path_resolution(7).
#[must_use]
pub fn names_a_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.") || path.ends_with(b"/..")
}

/// The state of a walk: each directory from the root down, and the names of all but the root.
struct Walk<'a> {
    mount: &'a Mount,
    trail: Vec<FileHandle>,
    names: Vec<Vec<u8>>,
}

impl Walk<'_> {
    fn here(&self) -> FileHandle {
        self.trail.last().copied().unwrap_or_else(|| self.mount.root())
    }

    fn descend(&mut self, handle: FileHandle, name: Vec<u8>) {
        self.trail.push(handle);
        self.names.push(name);
    }

    /// Goes to the parent directory, but never above the root of the mount.
    fn ascend(&mut self) {
        if self.names.pop().is_some() {
            self.trail.pop();
        }
    }

    fn restart(&mut self) {
        self.trail.truncate(1);
        self.names.clear();
    }

    /// Resolves a name in the current directory.
    fn step(&self, name: &[u8]) -> Result<(FileHandle, Attributes)> {
        let found = match self.mount.lookup(self.here(), name) {
            Err(denied) if matches!(denied.status(), Some(Status::Access | Status::NotPermitted)) => {
                match self.mount.directory_by_mount(&self.path_to(name)) {
                    Some(handle) => self.mount.attributes(handle).map(|attributes| (handle, attributes)),
                    None => Err(denied),
                }
            }
            other => other,
        };
        found.map_err(|cause| self.explain(name, cause))
    }

    /// The path of a name in the current directory, as MOUNT takes it.
    fn path_to(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.mount.export().to_vec();
        for name in self.names.iter().map(Vec::as_slice).chain([name]).filter(|name| !name.is_empty()) {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        path
    }

    fn explain(&self, name: &[u8], cause: Error) -> Error {
        let path = String::from_utf8_lossy(&self.path_to(name)).into_owned();
        Error::Step { path, cause: Box::new(cause) }
    }
}

/// The names of a path in reverse order.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .rev()
        .map(<[u8]>::to_vec)
        .collect()
}

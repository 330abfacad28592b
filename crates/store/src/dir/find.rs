//! Finds an object by handle or name and holds it open; ACCESS and READLINK.

use super::Shared;
use super::changes::Looked;
use super::fault::{OrStatus, status};
use super::name::kernel_handle;
use super::node::{EXECUTE, Node, READ, WRITE, attributes, found, now, own_path};
use super::sys;
use crate::interface::{Attributes, Caller, FileKind, Found, ObjectId, Result, Rights, Status};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How long the result of a check that an object lies beneath the root stays valid: somebody on the
/// server itself may move a directory away.
const BENEATH_CHECK_TTL_MS: u64 = 2_000;
/// The most directories above an object in the map; more mean a cycle.
const DEPTH_MAX: usize = 4096;

/// How names are resolved: beneath the directory, without following links or crossing mounts.
pub(super) const RESOLVE_BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
pub(super) const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Converts a name for the kernel. Refuses invalid names: empty, too long, or with a separator or a
/// NUL. Names are bytes, not text.
pub(super) fn check_name(name: &[u8]) -> Result<CString> {
    if name.is_empty() {
        return Err(Status::Access);
    }
    if name.len() > 255 {
        return Err(Status::NameTooLong);
    }
    if name.contains(&b'/') {
        return Err(Status::Invalid);
    }
    CString::new(name).map_err(|_| Status::Invalid)
}

/// Whether the name is `.` or `..`.
pub(super) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The type of a file system: a magic number of 32 bits, whatever the width of the word.
pub(super) const fn magic(kind: rustix::fs::FsWord) -> u32 {
    (kind & 0xffff_ffff) as u32
}

/// Whether the file system keeps everything in memory, so that no access waits for a device.
pub(super) fn is_memory(kind: rustix::fs::FsWord) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    matches!(magic(kind), TMPFS | RAMFS)
}

/// Whether the objects of the file system lie on other file systems, and may have their device
/// numbers.
pub(super) fn is_layered(kind: rustix::fs::FsWord) -> bool {
    const OVERLAY: u32 = 0x794c_7630;
    magic(kind) == OVERLAY
}

/// Whether the kernel caches data of such a file system in the memory of this machine.
pub(super) fn is_local(kind: rustix::fs::FsWord) -> bool {
    const EXT: u32 = 0xef53;
    const XFS: u32 = 0x5846_5342;
    const BTRFS: u32 = 0x9123_683e;
    const F2FS: u32 = 0xf2f5_2010;
    const BCACHEFS: u32 = 0xca45_1a4e;
    is_memory(kind) || matches!(magic(kind), EXT | XFS | BTRFS | F2FS | BCACHEFS)
}

/// Whether a directory is the root of its file system: then nothing of the file system lies
/// outside.
pub(super) fn is_filesystem_root(root: BorrowedFd<'_>) -> bool {
    let Ok(known) = rustix::fs::statx(root, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) else {
        return false;
    };
    if !known.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return false;
    }
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mountinfo") else { return false };
    // Fields: mount number, parent, device, the directory of the file system that is mounted, and
    // the mount point.
    let ours = known.stx_mnt_id.to_string();
    mounts.lines().any(|line| {
        let mut fields = line.split(' ');
        fields.next() == Some(ours.as_str()) && fields.nth(2) == Some("/")
    })
}

impl Shared {
    /// Opens an object and keeps it open.
    pub fn get(&self, object: ObjectId) -> Result<Arc<Node>> {
        if let Some(node) = self.cache.find(&object) {
            self.check_beneath_root(&node)?;
            return Ok(node);
        }
        let (node, stat) = self.open_object(object)?;
        if stat.st_nlink == 0 {
            return Err(Status::Stale);
        }
        self.check_beneath_root(&node)?;
        Ok(self.keep(node))
    }

    /// See [`Store::hold`](crate::Store::hold).
    pub fn hold_file(&self, object: ObjectId) -> Result<()> {
        let node = match self.cache.find(&object) {
            Some(node) => node,
            // Its last name may be gone: then another process has it open.
            None => Arc::new(self.open_object(object)?.0),
        };
        node.require_file()?;
        self.cache.hold(&node)?;
        self.check_beneath_root(&node).inspect_err(|_| self.release_file(&object))
    }

    /// See [`Store::release`](crate::Store::release).
    pub fn release_file(&self, object: &ObjectId) {
        self.close(self.cache.release(object).into_iter().collect());
    }

    /// Opens an object that is not in the cache. It may have no name any more.
    fn open_object(&self, object: ObjectId) -> Result<(Node, Looked)> {
        let path_fd = if object == self.root_object {
            rustix::fs::openat(&self.root, c".", PATH_FLAGS, Mode::empty()).or_status()?
        } else if self.naming.opens(&object) {
            let handle = kernel_handle(&object).ok_or(Status::Stale)?;
            sys::open_by_handle(self.root.as_fd(), &handle).map_err(|errno| match errno {
                // Errors for a handle of a different object, or of another file system.
                Errno::INVAL | Errno::NOENT | Errno::STALE => Status::Stale,
                other => status(other),
            })?
        } else {
            self.open_by_map(&object)?
        };
        let stat = self.changes.look(|| rustix::fs::fstat(&path_fd)).or_status()?;
        // File systems do not check all bytes of a handle, an object has one name here, and the
        // map's entry may lead to a different object by now.
        match self.naming.name(path_fd.as_fd(), c"", &stat) {
            Ok(name) if name == object => {}
            Ok(_) | Err(Status::Access) => return Err(Status::Stale),
            Err(error) => return Err(error),
        }
        Ok((Node::new(object, path_fd, &stat, &self.changes), stat))
    }

    /// Adds an object to the cache, and closes objects that are evicted for it.
    pub fn keep(&self, node: Node) -> Arc<Node> {
        let (node, gone) = self.cache.add(node);
        self.close(gone);
        node
    }

    /// Opens an object by walking down from the root along the entries of the map.
    fn open_by_map(&self, object: &ObjectId) -> Result<OwnedFd> {
        let mut names = Vec::new();
        let mut at = *object;
        while at != self.root_object {
            if names.len() > DEPTH_MAX {
                return Err(Status::Stale);
            }
            let (parent, name) = self.map.find(&at).ok_or(Status::Stale)?;
            names.push(CString::new(name).map_err(|_| Status::Stale)?);
            at = parent;
        }
        let mut path_fd = rustix::fs::openat(&self.root, c".", PATH_FLAGS, Mode::empty()).or_status()?;
        while let Some(name) = names.pop() {
            let next = rustix::fs::openat2(&path_fd, &name, PATH_FLAGS, Mode::empty(), RESOLVE_BENEATH);
            path_fd = next.map_err(|errno| match errno {
                Errno::NOENT | Errno::NOTDIR | Errno::XDEV => Status::Stale,
                other => status(other),
            })?;
        }
        Ok(path_fd)
    }

    /// Whether the check that the object lies beneath the root is still valid.
    pub fn is_known_beneath_root(&self, node: &Node) -> bool {
        self.is_filesystem_root || node.object == self.root_object || {
            let now = u64::try_from(now().as_millis()).unwrap_or_default();
            now < node.beneath_root_until.load(Ordering::Relaxed)
        }
    }

    /// Checks that an object lies beneath the root.
    ///
    /// The kernel always knows the path of a directory. It may not know the path of a file that was
    /// opened by handle and not looked up since, and it may know a file with several names by a
    /// name outside. Such files are accepted, because their handle was given out beneath the root.
    /// A file whose only name is seen to be outside is refused.
    fn check_beneath_root(&self, node: &Node) -> Result<()> {
        if self.is_known_beneath_root(node) {
            return Ok(());
        }
        let root = rustix::fs::readlink(own_path(self.root.as_fd()), Vec::new()).or_status()?.into_bytes();
        let (path, beneath) = match rustix::fs::readlink(node.own_path(), Vec::new()) {
            Ok(path) => {
                let path = path.into_bytes();
                let rest = path.strip_prefix(&root[..]);
                let beneath = rest.is_some_and(|rest| rest.first() == Some(&b'/')) || root == b"/";
                (path, beneath)
            }
            // The path is too deep to fit into a buffer.
            Err(Errno::NAMETOOLONG) => (Vec::new(), !node.is_directory() || self.climbs_to_root(node)?),
            Err(errno) => return Err(status(errno)),
        };
        if !beneath {
            let stat = node.stat()?;
            let seen_outside = || {
                let there = rustix::fs::openat(rustix::fs::CWD, path.as_slice(), PATH_FLAGS, Mode::empty());
                let there = there.and_then(rustix::fs::fstat);
                there.is_ok_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino))
            };
            if node.is_directory() || (stat.st_nlink == 1 && seen_outside()) {
                self.close(self.cache.forget(&node.object).into_iter().collect());
                return Err(Status::Stale);
            }
        }
        let until = u64::try_from(now().as_millis()).unwrap_or_default() + BENEATH_CHECK_TTL_MS;
        node.beneath_root_until.store(until, Ordering::Relaxed);
        Ok(())
    }

    /// The path of an object that is open, as the kernel knows it.
    pub fn path_of(&self, object: &ObjectId) -> Option<Vec<u8>> {
        let node = self.cache.find(object)?;
        let root = rustix::fs::readlink(own_path(self.root.as_fd()), Vec::new()).ok()?.into_bytes();
        let path = rustix::fs::readlink(node.own_path(), Vec::new()).ok()?.into_bytes();
        let below = if root == b"/" { &path[..] } else { path.strip_prefix(&root[..])? };
        match below {
            b"" => Some(b"/".to_vec()),
            [b'/', ..] if !below.ends_with(b" (deleted)") => Some(below.to_vec()),
            _ => None,
        }
    }

    /// Whether the parents of a directory, followed one by one, lead to the root.
    fn climbs_to_root(&self, node: &Node) -> Result<bool> {
        let root = rustix::fs::fstat(&self.root).or_status()?;
        let mut at = rustix::fs::openat(&node.path_fd, c".", PATH_FLAGS, Mode::empty()).or_status()?;
        let mut last = 0;
        loop {
            let stat = rustix::fs::fstat(&at).or_status()?;
            if (stat.st_dev, stat.st_ino) == (root.st_dev, root.st_ino) {
                return Ok(true);
            }
            if stat.st_dev != root.st_dev || stat.st_ino == last {
                return Ok(false);
            }
            last = stat.st_ino;
            at = rustix::fs::openat(&at, c"..", PATH_FLAGS, Mode::empty()).or_status()?;
        }
    }

    /// Opens the object of a name in a directory, with the current identity of the thread.
    pub fn child(
        &self,
        parent: &Node,
        name: &[u8],
        resolve: ResolveFlags,
    ) -> std::result::Result<OwnedFd, Errno> {
        rustix::fs::openat2(&parent.path_fd, name, PATH_FLAGS, Mode::empty(), RESOLVE_BENEATH.union(resolve))
    }

    /// Names an object found in a directory, and adds it to the cache.
    pub fn keep_child(&self, parent: &Node, name: &[u8], path_fd: OwnedFd) -> Result<(Arc<Node>, Looked)> {
        let stat = self.changes.look(|| rustix::fs::fstat(&path_fd)).or_status()?;
        let object = self.naming.name(path_fd.as_fd(), c"", &stat)?;
        self.note(&object, parent, name);
        let node = match self.cache.find(&object) {
            Some(known) => known,
            None => self.keep(Node::new(object, path_fd, &stat, &self.changes)),
        };
        let until = u64::try_from(now().as_millis()).unwrap_or_default() + BENEATH_CHECK_TTL_MS;
        node.beneath_root_until.store(until, Ordering::Relaxed);
        Ok((node, stat))
    }

    /// Records where an object was found, if its name alone is not enough to open it.
    pub fn note(&self, object: &ObjectId, parent: &Node, name: &[u8]) {
        if !self.naming.opens(object) {
            self.map.note(object, &parent.object, name);
        }
    }

    pub fn find(
        &self,
        caller: Caller<'_>,
        directory: ObjectId,
        name: &[u8],
    ) -> (Option<Attributes>, Result<Found>) {
        let (parent, stat) = match self.get(directory).and_then(|node| node.stat().map(|stat| (node, stat))) {
            Ok(known) => known,
            Err(error) => return (None, Err(error)),
        };
        (Some(attributes(directory, &stat)), self.find_in(caller, &parent, &stat, name))
    }

    fn find_in(&self, caller: Caller<'_>, parent: &Node, stat: &Looked, name: &[u8]) -> Result<Found> {
        parent.require_directory()?;
        check_name(name)?;
        if parent.rights(&self.callers, &self.identity, caller, stat)? & EXECUTE == 0 {
            return Err(Status::Access);
        }
        if name == b"." || (name == b".." && parent.object == self.root_object) {
            return Ok(found(parent.object, stat));
        }
        if name == b".." {
            return self.parent_of(parent)?.found();
        }
        // Mount points are not crossed, and objects beneath them are not visible.
        let path_fd = self.child(parent, name, ResolveFlags::empty()).map_err(|errno| match errno {
            Errno::XDEV => Status::Access,
            other => status(other),
        })?;
        let (node, stat) = self.keep_child(parent, name, path_fd)?;
        Ok(found(node.object, &stat))
    }

    /// The parent of a directory other than the root; the parent is the root or lies beneath it
    /// too.
    fn parent_of(&self, node: &Node) -> Result<Arc<Node>> {
        let path_fd = rustix::fs::openat(&node.path_fd, c"..", PATH_FLAGS, Mode::empty()).or_status()?;
        let stat = rustix::fs::fstat(&path_fd).or_status()?;
        let object = self.naming.name(path_fd.as_fd(), c"", &stat)?;
        let above = match self.cache.find(&object) {
            Some(known) => known,
            None => self.keep(Node::new(object, path_fd, &stat, &self.changes)),
        };
        self.check_beneath_root(&above)?;
        Ok(above)
    }

    pub fn rights(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        wanted: Rights,
    ) -> Result<(Rights, Attributes)> {
        let node = self.get(object)?;
        let stat = node.stat()?;
        let rights = node.rights(&self.callers, &self.identity, caller, &stat)?;
        Ok((rights_of(&node, rights) & wanted, attributes(object, &stat)))
    }

    pub fn target(&self, object: ObjectId, out: &mut Vec<u8>) -> Result<Attributes> {
        let node = self.get(object)?;
        if node.kind != FileKind::Symlink {
            return Err(Status::Invalid);
        }
        let target = rustix::fs::readlinkat(&node.path_fd, c"", Vec::new()).or_status()?;
        out.extend_from_slice(target.as_bytes());
        node.attributes()
    }
}

/// The rights to an object, from the permission bits that the caller has.
pub(super) fn rights_of(node: &Node, bits: u32) -> Rights {
    let when = |needed: u32, rights| if bits & needed == needed { rights } else { Rights::NONE };
    let xattrs = match node.kind {
        FileKind::Regular | FileKind::Directory => {
            when(READ, Rights::READ_XATTRS | Rights::LIST_XATTRS) | when(WRITE, Rights::WRITE_XATTRS)
        }
        _ => Rights::NONE,
    };
    let rights = if node.is_directory() {
        when(READ, Rights::READ)
            | when(EXECUTE, Rights::LOOKUP)
            | when(WRITE | EXECUTE, Rights::MODIFY | Rights::EXTEND | Rights::DELETE)
    } else {
        when(READ, Rights::READ)
            | when(WRITE, Rights::MODIFY | Rights::EXTEND)
            | when(EXECUTE, Rights::EXECUTE)
    };
    rights | xattrs
}

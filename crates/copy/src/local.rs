//! The local side of a copy: directories of this machine.

mod directory_handle;
mod file;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};

use crate::backend::{Directory, Entries, Identity, LinkSource, Sink, Source, TransferOptions};
use crate::entry::{Entry, NewAttributes, attributes_of};
use crate::error::{Error, Result};
use directory_handle::DirectoryHandle;
pub use directory_handle::LocalPath;
use file::{LocalSink, LocalSource};
use fs::{Attributes, FileKind, Time};

/// The size of a block: as large as a READ or WRITE of any server.
const BLOCK_BYTES: usize = 1 << 20;

/// A local directory.
#[derive(Debug)]
pub(crate) struct LocalDirectory(Arc<DirectoryHandle>);

impl LocalDirectory {
    /// A directory that the user named, which may be a symbolic link to a directory.
    pub(crate) fn new(path: &Path) -> Self {
        Self(Arc::new(DirectoryHandle::named(path)))
    }

    fn entry(&self, name: &[u8]) -> Result<Entry> {
        let what = "cannot examine it";
        entry(self.0.descriptor(what)?, name)
    }
}

fn entry(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Entry> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let stat = with_context("cannot examine it", rustix::fs::statat(directory, name, flags))?;
    Ok(Entry { name: name.to_vec(), attributes: attributes_of(&stat), handle: None })
}

pub(crate) fn timestamps((atime, mtime): (Time, Time)) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(atime), last_modification: time(mtime) }
}

/// Converts a result of the system; `what` names the failed operation.
fn with_context<T>(what: &'static str, result: rustix::io::Result<T>) -> Result<T> {
    result.map_err(|error| Error::local(what)(error.into()))
}

/// The names of a directory, each examined in that directory.
struct Listing {
    directory: Arc<DirectoryHandle>,
    names: Dir,
}

impl Iterator for Listing {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        loop {
            let found = match with_context("cannot list it", self.names.next()?) {
                Ok(found) => found,
                Err(error) => return Some(Err(error)),
            };
            let name = found.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            match self.directory.descriptor("cannot list it").and_then(|directory| entry(directory, name)) {
                // The object was removed after the directory was read.
                Err(error) if error.is_not_found() => {}
                other => return Some(other),
            }
        }
    }
}

impl Directory for LocalDirectory {
    fn display_name(&self) -> String {
        self.0.path().display().to_string()
    }

    fn identity(&self) -> Result<Identity> {
        let what = "cannot examine it";
        let stat = with_context(what, rustix::fs::fstat(self.0.descriptor(what)?))?;
        let of = attributes_of(&stat);
        Ok(Identity::Local(of.fsid, of.fileid))
    }

    fn list(&self) -> Result<Entries> {
        let what = "cannot list it";
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(self.0.descriptor(what)?, c".", flags, Mode::empty());
        let names = with_context(what, Dir::new(with_context(what, opened)?))?;
        Ok(Box::new(Listing { directory: Arc::clone(&self.0), names }))
    }

    fn find(&self, name: &[u8]) -> Result<Option<Entry>> {
        match self.entry(name) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn child(&self, entry: &Entry) -> Arc<dyn Directory> {
        Arc::new(Self(match entry.name.as_slice() {
            b"" => Arc::clone(&self.0),
            name => Arc::new(DirectoryHandle::beneath(&self.0, name)),
        }))
    }

    fn read_link(&self, entry: &Entry) -> Result<Vec<u8>> {
        let what = "cannot read the link";
        let name = entry.name.as_slice();
        let target = rustix::fs::readlinkat(self.0.descriptor(what)?, name, Vec::new());
        Ok(with_context(what, target)?.into_bytes())
    }

    fn block_bytes(&self) -> usize {
        BLOCK_BYTES
    }

    fn open(&self, entry: &Entry, from: u64, transfer: TransferOptions) -> Result<Box<dyn Source>> {
        let directory = self.0.descriptor("cannot open it")?;
        let source = LocalSource::open(directory, &entry.name, from, entry.attributes.size, transfer)?;
        Ok(Box::new(source))
    }

    fn make_directory(&self, name: &[u8], mode: u32) -> Result<Entry> {
        let what = "cannot make the directory";
        let mode = Mode::from_raw_mode((mode & 0o777) | 0o700);
        with_context(what, rustix::fs::mkdirat(self.0.descriptor(what)?, name, mode))?;
        self.entry(name)
    }

    fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<Entry> {
        let what = "cannot make the link";
        with_context(what, rustix::fs::symlinkat(target, self.0.descriptor(what)?, name))?;
        self.entry(name)
    }

    fn make_special(&self, name: &[u8], like: &Attributes) -> Result<Entry> {
        let what = "cannot make it";
        let kind = match like.kind {
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::BlockDevice => FileType::BlockDevice,
            _ => FileType::CharacterDevice,
        };
        let device = rustix::fs::makedev(like.rdev.major, like.rdev.minor);
        let directory = self.0.descriptor(what)?;
        with_context(what, rustix::fs::mknodat(directory, name, kind, Mode::from_raw_mode(0o600), device))?;
        self.entry(name)
    }

    fn create(&self, name: &[u8], _shape: TransferOptions) -> Result<Box<dyn Sink>> {
        Ok(Box::new(LocalSink::create(self.0.descriptor("cannot make the file")?, name)?))
    }

    fn reopen(&self, name: &[u8], _shape: TransferOptions) -> Result<Option<(u64, Box<dyn Sink>)>> {
        let directory = self.0.descriptor("cannot open it")?;
        let Some(sink) = LocalSink::reopen(directory, name)? else { return Ok(None) };
        Ok(Some((sink.found_bytes(), Box::new(sink))))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let what = "cannot give it its name";
        let directory = self.0.descriptor(what)?;
        with_context(what, rustix::fs::renameat(directory, from, directory, to))
    }

    fn remove(&self, name: &[u8]) -> Result<()> {
        let what = "cannot remove it";
        with_context(what, rustix::fs::unlinkat(self.0.descriptor(what)?, name, AtFlags::empty()))
    }

    fn link_source(&self, name: &[u8]) -> Result<LinkSource> {
        Ok(LinkSource::Local(LocalPath::to(&self.0, name)))
    }

    fn link(&self, link_source: &LinkSource, name: &[u8]) -> Result<()> {
        let what = "cannot link it";
        match link_source {
            LinkSource::Local(file) => {
                let directory = file.directory(what)?;
                let (from, to) = (directory.descriptor(what)?, self.0.descriptor(what)?);
                with_context(what, rustix::fs::linkat(from, file.name(), to, name, AtFlags::empty()))
            }
            LinkSource::Remote(_) => Err(Error::Conflict("a link cannot lead from a server to here".into())),
        }
    }

    fn set(&self, entry: Option<&Entry>, new: NewAttributes) -> Result<()> {
        let what = "cannot open it";
        let (own, named);
        let object = match entry {
            None => {
                own = self.0.descriptor(what)?;
                own.as_fd()
            }
            // Opened once, so that an object that takes the name meanwhile does not get these
            // attributes.
            Some(entry) => {
                let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let directory = self.0.descriptor(what)?;
                named =
                    with_context(what, rustix::fs::openat(directory, &*entry.name, flags, Mode::empty()))?;
                named.as_fd()
            }
        };
        let kind =
            FileType::from_raw_mode(with_context("cannot examine it", rustix::fs::fstat(object))?.st_mode);
        let mut new = new;
        if let Some((uid, gid)) = new.owner {
            let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            match rustix::fs::chownat(object, c"", owner.0, owner.1, AtFlags::EMPTY_PATH) {
                Err(rustix::io::Errno::PERM) => new = new.without_owner(),
                other => with_context("cannot set its owner", other)?,
            }
        }
        // The permissions of a symbolic link cannot be set.
        if let Some(mode) = new.mode.filter(|_| kind != FileType::Symlink) {
            let here = format!("/proc/self/fd/{}", object.as_raw_fd());
            with_context("cannot set its mode", rustix::fs::chmod(here, Mode::from_raw_mode(mode)))?;
        }
        if let Some(times) = new.times {
            let set = rustix::fs::utimensat(object, c"", &timestamps(times), AtFlags::EMPTY_PATH);
            with_context("cannot set its times", set)?;
        }
        Ok(())
    }

    fn boot_matters(&self) -> bool {
        true
    }
}

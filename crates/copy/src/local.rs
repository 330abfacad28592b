//! The side of this machine.

mod file;

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};

use crate::entry::{Attributes, Entry, Kind, NewAttributes, Time};
use crate::error::{Error, Result};
use crate::side::{Anchor, Entries, Folder, Identity, Shape, Sink, Source};
use file::{LocalSink, LocalSource};

/// As much as one READ or WRITE of any server.
const BLOCK_BYTES: usize = 1 << 20;

/// A directory of this machine.
#[derive(Debug)]
pub(crate) struct LocalFolder {
    path: PathBuf,
    /// The user named it, so that it may be a symbolic link to a directory.
    named: bool,
}

impl LocalFolder {
    pub(crate) fn new(path: &Path) -> Self {
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() };
        Self { path, named: true }
    }

    fn at(&self, name: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(name))
    }

    fn entry(&self, name: &[u8]) -> Result<Entry> {
        entry(name.to_vec(), &self.at(name))
    }
}

fn entry(name: Vec<u8>, path: &Path) -> Result<Entry> {
    let metadata = fs::symlink_metadata(path).map_err(Error::local("cannot examine it"))?;
    Ok(Entry { name, attributes: Attributes::from(&metadata), handle: None })
}

pub(crate) fn timestamps((atime, mtime): (Time, Time)) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(atime), last_modification: time(mtime) }
}

/// A result of the system, with what was tried.
fn tried<T>(what: &'static str, result: rustix::io::Result<T>) -> Result<T> {
    result.map_err(|error| Error::local(what)(error.into()))
}

impl Folder for LocalFolder {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn identity(&self) -> Result<Identity> {
        let metadata = fs::metadata(&self.path).map_err(Error::local("cannot examine it"))?;
        Ok(Identity::Local(metadata.dev(), metadata.ino()))
    }

    fn list(&self) -> Result<Entries> {
        let entries = fs::read_dir(&self.path).map_err(Error::local("cannot list it"))?;
        Ok(Box::new(entries.filter_map(|found| match found {
            Ok(found) => match entry(found.file_name().into_vec(), &found.path()) {
                // It was removed after the directory was read.
                Err(error) if error.is_not_found() => None,
                other => Some(other),
            },
            Err(error) => Some(Err(Error::local("cannot list it")(error))),
        })))
    }

    fn find(&self, name: &[u8]) -> Result<Option<Entry>> {
        match self.entry(name) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn child(&self, entry: &Entry) -> Arc<dyn Folder> {
        Arc::new(Self { path: self.at(&entry.name), named: self.named && entry.name.is_empty() })
    }

    fn read_link(&self, entry: &Entry) -> Result<Vec<u8>> {
        let target = fs::read_link(self.at(&entry.name)).map_err(Error::local("cannot read the link"))?;
        Ok(target.into_os_string().into_vec())
    }

    fn block_bytes(&self) -> usize {
        BLOCK_BYTES
    }

    fn open(&self, entry: &Entry, from: u64, shape: Shape) -> Result<Box<dyn Source>> {
        let source = LocalSource::open(&self.at(&entry.name), from, entry.attributes.size, shape)?;
        Ok(Box::new(source))
    }

    fn make_folder(&self, name: &[u8], mode: u32) -> Result<Entry> {
        let mode = Mode::from_raw_mode((mode & 0o777) | 0o700);
        tried("cannot make the directory", rustix::fs::mkdir(self.at(name), mode))?;
        self.entry(name)
    }

    fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<Entry> {
        let target = OsStr::from_bytes(target);
        tried("cannot make the link", rustix::fs::symlink(target, self.at(name)))?;
        self.entry(name)
    }

    fn make_special(&self, name: &[u8], like: &Attributes) -> Result<Entry> {
        let kind = match like.kind {
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::BlockDevice => FileType::BlockDevice,
            _ => FileType::CharacterDevice,
        };
        let device = rustix::fs::makedev(like.device.0, like.device.1);
        let made = rustix::fs::mknodat(CWD, self.at(name), kind, Mode::from_raw_mode(0o600), device);
        tried("cannot make it", made)?;
        self.entry(name)
    }

    fn create(&self, name: &[u8], _shape: Shape) -> Result<Box<dyn Sink>> {
        Ok(Box::new(LocalSink::create(self.at(name))?))
    }

    fn reopen(&self, name: &[u8], _shape: Shape) -> Result<Option<(u64, Box<dyn Sink>)>> {
        let Some(sink) = LocalSink::reopen(self.at(name))? else { return Ok(None) };
        Ok(Some((sink.found_bytes(), Box::new(sink))))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        fs::rename(self.at(from), self.at(to)).map_err(Error::local("cannot give it its name"))
    }

    fn remove(&self, name: &[u8]) -> Result<()> {
        fs::remove_file(self.at(name)).map_err(Error::local("cannot remove it"))
    }

    fn anchor(&self, name: &[u8]) -> Result<Anchor> {
        Ok(Anchor::Local(self.at(name)))
    }

    fn link(&self, anchor: &Anchor, name: &[u8]) -> Result<()> {
        match anchor {
            Anchor::Local(path) => fs::hard_link(path, self.at(name)).map_err(Error::local("cannot link it")),
            Anchor::Remote(_) => Err(Error::Conflict("a link cannot lead from a server to here".into())),
        }
    }

    fn set(&self, entry: Option<&Entry>, new: NewAttributes) -> Result<()> {
        let path = entry.map_or_else(|| self.path.clone(), |entry| self.at(&entry.name));
        // Opened once, so that nothing that takes the name meanwhile gets another's attributes.
        let follow = if entry.is_none() && self.named { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::PATH | OFlags::CLOEXEC | follow;
        let place = tried("cannot open it", rustix::fs::open(&path, flags, Mode::empty()))?;
        let kind = FileType::from_raw_mode(tried("cannot examine it", rustix::fs::fstat(&place))?.st_mode);
        let mut new = new;
        if let Some((uid, gid)) = new.owner {
            let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            match rustix::fs::chownat(&place, c"", owner.0, owner.1, AtFlags::EMPTY_PATH) {
                Err(rustix::io::Errno::PERM) => new = new.without_owner(),
                other => tried("cannot set its owner", other)?,
            }
        }
        // A symbolic link has no permissions of its own to be set.
        if let Some(mode) = new.mode.filter(|_| kind != FileType::Symlink) {
            let here = format!("/proc/self/fd/{}", place.as_raw_fd());
            tried("cannot set its mode", rustix::fs::chmod(here, Mode::from_raw_mode(mode)))?;
        }
        if let Some(times) = new.times {
            let set = rustix::fs::utimensat(&place, c"", &timestamps(times), AtFlags::EMPTY_PATH);
            tried("cannot set its times", set)?;
        }
        Ok(())
    }

    fn boot_matters(&self) -> bool {
        true
    }
}

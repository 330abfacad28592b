//! The server's side of a copy.

mod file;

use std::sync::Arc;

use client::{Mount, Pages};
use fs::{
    Attributes, CreateMode, DirectoryEntry, FileHandle, FileKind, SetAttributes, SetTime, Special, Status,
    Time,
};

use crate::backend::{Directory, Entries, Identity, LinkSource, Sink, Source, TransferOptions};
use crate::entry::{Entry, NewAttributes};
use crate::error::{Error, Result};
use file::{RemoteSink, RemoteSource};

/// A directory of a server.
#[derive(Debug)]
pub(crate) struct RemoteDirectory {
    mount: Mount,
    handle: FileHandle,
    display_name: String,
}

impl RemoteDirectory {
    pub(crate) fn new(mount: &Mount, handle: FileHandle, display_name: &str) -> Self {
        Self { mount: mount.clone(), handle, display_name: display_name.trim_end_matches('/').to_owned() }
    }

    fn lookup(&self, name: &[u8]) -> client::Result<Entry> {
        let (handle, attributes) = self.mount.lookup(self.handle, name)?;
        Ok(Entry { name: name.to_vec(), attributes, handle: Some(handle) })
    }

    fn handle_of(&self, entry: &Entry) -> Result<FileHandle> {
        match entry.handle {
            Some(handle) => Ok(handle),
            None => Ok(self.mount.lookup(self.handle, &entry.name)?.0),
        }
    }

    fn sink(&self, handle: FileHandle, found: u64, transfer: TransferOptions) -> Box<dyn Sink> {
        Box::new(RemoteSink::new(&self.mount, handle, found, transfer))
    }
}

/// Converts attributes to those of SETATTR.
pub(crate) fn sattr(new: NewAttributes) -> SetAttributes {
    let time = |time: Option<Time>| time.map_or(SetTime::Keep, SetTime::To);
    SetAttributes {
        mode: new.mode,
        uid: new.owner.map(|owner| owner.0),
        gid: new.owner.map(|owner| owner.1),
        size: None,
        atime: time(new.times.map(|times| times.0)),
        mtime: time(new.times.map(|times| times.1)),
    }
}

/// Sets attributes, without the owner if this user may not set it.
pub(crate) fn set(mount: &Mount, handle: FileHandle, size: Option<u64>, new: NewAttributes) -> Result<()> {
    let attempt = |new, size| mount.set_attributes(handle, SetAttributes { size, ..sattr(new) }, None);
    let rest = NewAttributes { owner: None, ..new };
    // A server clears set-user-ID when the owner changes, even if one call sets both.
    let apart = new.owner.is_some() && new.mode.is_some_and(|mode| mode & 0o6000 != 0);
    let first = if apart {
        attempt(NewAttributes { owner: new.owner, ..NewAttributes::default() }, None)
    } else {
        attempt(new, size)
    };
    match first {
        Ok(()) if apart => Ok(attempt(rest, size)?),
        Err(error) if new.owner.is_some() && error.status() == Some(Status::NotPermitted) => {
            let now = mount.attributes(handle)?;
            let is_so_already = new.owner == Some((now.uid, now.gid));
            Ok(attempt(if is_so_already { rest } else { rest.without_owner() }, size)?)
        }
        other => Ok(other?),
    }
}

struct RemoteEntries {
    directory: RemoteDirectory,
    pages: Pages,
    page: std::vec::IntoIter<DirectoryEntry>,
}

impl Iterator for RemoteEntries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        loop {
            let Some(found) = self.page.next() else {
                match self.pages.next()? {
                    Ok(page) => self.page = page.into_iter(),
                    Err(error) => return Some(Err(error.into())),
                }
                continue;
            };
            // A server may omit attributes and handles. RFC 1813 s3.3.17
            let (Some(handle), Some(attributes)) = (found.handle, found.attributes) else {
                match self.directory.lookup(&found.name) {
                    // The object was removed after the directory was read.
                    Err(error) if error.status() == Some(Status::NotFound) => continue,
                    other => return Some(other.map_err(Error::from)),
                }
            };
            return Some(Ok(Entry { name: found.name, attributes, handle: Some(handle) }));
        }
    }
}

impl Directory for RemoteDirectory {
    fn display_name(&self) -> String {
        self.display_name.clone()
    }

    fn identity(&self) -> Result<Identity> {
        Ok(Identity::Remote(self.mount.addresses(), self.mount.port(), self.handle))
    }

    fn list(&self) -> Result<Entries> {
        let directory = Self::new(&self.mount, self.handle, &self.display_name);
        let pages = self.mount.pages(self.handle);
        Ok(Box::new(RemoteEntries { directory, pages, page: Vec::new().into_iter() }))
    }

    fn find(&self, name: &[u8]) -> Result<Option<Entry>> {
        match self.lookup(name) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.status() == Some(Status::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn child(&self, entry: &Entry) -> Arc<dyn Directory> {
        let display_name = if entry.name.is_empty() {
            self.display_name.clone()
        } else {
            format!("{}/{}", self.display_name, String::from_utf8_lossy(&entry.name))
        };
        // A directory's entry always has a handle, because it was listed, looked up or created.
        Arc::new(Self::new(&self.mount, entry.handle.unwrap_or(self.handle), &display_name))
    }

    fn read_link(&self, entry: &Entry) -> Result<Vec<u8>> {
        Ok(self.mount.read_link(self.handle_of(entry)?)?)
    }

    fn block_bytes(&self) -> usize {
        let (read, write) = self.mount.transfer_sizes();
        usize::try_from(read.min(write)).unwrap_or(usize::MAX)
    }

    fn open(&self, entry: &Entry, from: u64, transfer: TransferOptions) -> Result<Box<dyn Source>> {
        let handle = self.handle_of(entry)?;
        Ok(Box::new(RemoteSource::new(&self.mount, handle, from..entry.attributes.size, transfer)))
    }

    fn make_directory(&self, name: &[u8], mode: u32) -> Result<Entry> {
        let new = SetAttributes::mode((mode & 0o777) | 0o700);
        let (handle, attributes) = self.mount.make_directory(self.handle, name, new)?;
        Ok(Entry { name: name.to_vec(), attributes, handle: Some(handle) })
    }

    fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<Entry> {
        let (handle, attributes) = self.mount.make_symlink(self.handle, name, target)?;
        Ok(Entry { name: name.to_vec(), attributes, handle: Some(handle) })
    }

    fn make_special(&self, name: &[u8], like: &Attributes) -> Result<Entry> {
        let new = SetAttributes::mode(0o600);
        let special = match like.kind {
            FileKind::Fifo => Special::Fifo,
            FileKind::Socket => Special::Socket,
            FileKind::BlockDevice => Special::BlockDevice(like.rdev),
            _ => Special::CharacterDevice(like.rdev),
        };
        let (handle, attributes) = self.mount.make_special(self.handle, name, special, new)?;
        Ok(Entry { name: name.to_vec(), attributes, handle: Some(handle) })
    }

    fn create(&self, name: &[u8], transfer: TransferOptions) -> Result<Box<dyn Sink>> {
        let how = CreateMode::Guarded(SetAttributes::mode(0o600));
        let (handle, _) = self.mount.create(self.handle, name, how)?;
        Ok(self.sink(handle, 0, transfer))
    }

    fn reopen(&self, name: &[u8], transfer: TransferOptions) -> Result<Option<(u64, Box<dyn Sink>)>> {
        let Some(found) = self.find(name)? else { return Ok(None) };
        let of = found.attributes;
        let ours = of.kind == FileKind::Regular && of.nlink == 1;
        Ok(found.handle.filter(|_| ours).map(|handle| (of.size, self.sink(handle, of.size, transfer))))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        Ok(self.mount.rename((self.handle, from), (self.handle, to))?)
    }

    fn remove(&self, name: &[u8]) -> Result<()> {
        Ok(self.mount.remove(self.handle, name)?)
    }

    fn link_source(&self, name: &[u8]) -> Result<LinkSource> {
        Ok(LinkSource::Remote(self.mount.lookup(self.handle, name)?.0))
    }

    fn link(&self, link_source: &LinkSource, name: &[u8]) -> Result<()> {
        match link_source {
            LinkSource::Remote(file) => Ok(self.mount.link(*file, self.handle, name)?),
            LinkSource::Local(_) => Err(Error::Conflict("a link cannot lead from here to a server".into())),
        }
    }

    fn set(&self, entry: Option<&Entry>, new: NewAttributes) -> Result<()> {
        let handle = entry.map_or(Ok(self.handle), |entry| self.handle_of(entry))?;
        set(&self.mount, handle, None, new)
    }

    fn boot_matters(&self) -> bool {
        false
    }
}

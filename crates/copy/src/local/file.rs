//! Local files: holes are skipped on reading and kept on writing.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use client::{Block, Buffer};
use rustix::fs::{Advice, Gid, Mode, OFlags, SeekFrom, Uid};
use rustix::io::Errno;

use super::{timestamps, with_context};
use crate::backend::{Directory, Sink, Source, TransferOptions};
use crate::entry::{NewAttributes, attributes_of};
use crate::error::{Error, Result};
use fs::Attributes;

/// The start and end of data are rounded outwards to this size, so that blocks stay large.
const ALIGNMENT_BYTES: u64 = 64 << 10;

/// Symbolic links are not followed, and opening a named pipe that has replaced the file must not
/// block.
const EXISTING: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A local file that is read.
#[derive(Debug)]
pub(super) struct LocalSource {
    file: File,
    next: u64,
    end: u64,
    /// The end of the current range of data, as far as known.
    data_end: u64,
    /// Whether the file system reports holes.
    holes: bool,
    block_bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl LocalSource {
    pub(super) fn open(
        directory: BorrowedFd<'_>,
        name: &[u8],
        from: u64,
        size: u64,
        transfer: TransferOptions,
    ) -> Result<Self> {
        let opened = rustix::fs::openat(directory, name, OFlags::RDONLY | EXISTING, Mode::empty());
        Ok(Self::of(with_context("cannot open it", opened)?.into(), from, size, transfer))
    }

    fn of(file: File, from: u64, size: u64, transfer: TransferOptions) -> Self {
        // The advice only affects read-ahead. Without it the copy is slower, but correct.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        let block_bytes = transfer.block_bytes;
        Self { file, next: from, end: size, data_end: from, holes: true, block_bytes, spare: Vec::new() }
    }

    /// Advances to the next data.
    fn find_data(&mut self) -> Result<()> {
        if self.next < self.data_end {
            return Ok(());
        }
        self.data_end = self.end;
        if !self.holes {
            return Ok(());
        }
        match rustix::fs::seek(&self.file, SeekFrom::Data(self.next)) {
            Ok(data) => {
                self.next = (data - data % ALIGNMENT_BYTES).max(self.next);
                let hole = with_context("cannot seek", rustix::fs::seek(&self.file, SeekFrom::Hole(data)))?;
                self.data_end = hole.next_multiple_of(ALIGNMENT_BYTES).min(self.end);
            }
            Err(Errno::NXIO) => self.next = self.end,
            Err(_) => self.holes = false,
        }
        Ok(())
    }
}

impl Source for LocalSource {
    fn next_block(&mut self) -> Result<Option<Block>> {
        if self.next < self.end {
            self.find_data()?;
        }
        let left = usize::try_from(self.data_end.saturating_sub(self.next)).unwrap_or(usize::MAX);
        let wanted = left.min(self.block_bytes);
        if wanted == 0 {
            return Ok(None);
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(wanted, 0);
        let mut len = 0;
        while len < wanted {
            let into = buffer.get_mut(len..).unwrap_or_default();
            match self.file.read_at(into, self.next + len as u64) {
                Ok(0) => break,
                Ok(got) => len += got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::local("cannot read it")(error)),
            }
        }
        if len < wanted {
            // The file was truncated, or was never as long as its size says.
            return Err(Error::Changed);
        }
        let offset = self.next;
        self.next += len as u64;
        Ok((len > 0).then_some(Block { offset, len, buffer: buffer.into() }))
    }

    fn give_back(&mut self, buffer: Buffer) {
        // Other memory returns to the mount that it is from.
        if !buffer.is_registrable() {
            self.spare.push(buffer.into_vec());
        }
    }

    fn attributes(&self) -> Result<Attributes> {
        let stat = with_context("cannot examine it", rustix::fs::fstat(&self.file))?;
        Ok(attributes_of(&stat))
    }
}

/// A local file that is written.
#[derive(Debug)]
pub(super) struct LocalSink {
    file: File,
    found: u64,
    done: Vec<Buffer>,
}

impl LocalSink {
    pub(super) fn create(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600));
        Ok(Self { file: with_context("cannot make the file", opened)?.into(), found: 0, done: Vec::new() })
    }

    /// Opens a file only if an earlier copy of this user left it.
    pub(super) fn reopen(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Self>> {
        let opened = rustix::fs::openat(directory, name, OFlags::RDWR | EXISTING, Mode::empty());
        let Ok(file) = opened.map(File::from) else { return Ok(None) };
        let metadata = file.metadata().map_err(Error::local("cannot examine it"))?;
        let ours = metadata.is_file()
            && metadata.nlink() == 1
            && metadata.uid() == rustix::process::geteuid().as_raw();
        Ok(ours.then(|| Self { file, found: metadata.len(), done: Vec::new() }))
    }

    pub(super) const fn found_bytes(&self) -> u64 {
        self.found
    }
}

impl Sink for LocalSink {
    fn write(&mut self, offset: u64, buffer: Buffer) -> Result<()> {
        self.file.write_all_at(&buffer, offset).map_err(Error::local("cannot write it"))?;
        self.done.push(buffer);
        Ok(())
    }

    fn spare(&mut self) -> Option<Buffer> {
        self.done.pop()
    }

    fn drain(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, size: u64, new: NewAttributes, sync: bool) -> Result<()> {
        self.file.set_len(size).map_err(Error::local("cannot set its length"))?;
        let mut new = new;
        if let Some((uid, gid)) = new.owner {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            match rustix::fs::fchown(&self.file, uid, gid) {
                Err(Errno::PERM) => new = new.without_owner(),
                other => with_context("cannot set its owner", other)?,
            }
        }
        if let Some(mode) = new.mode {
            with_context("cannot set its mode", rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode)))?;
        }
        if let Some(times) = new.times {
            with_context("cannot set its times", rustix::fs::futimens(&self.file, &timestamps(times)))?;
        }
        if sync {
            self.file.sync_all().map_err(Error::local("cannot write it to the disk"))?;
        }
        Ok(())
    }

    fn read_back(&self, size: u64, transfer: TransferOptions) -> Result<Box<dyn Source>> {
        self.file.sync_data().map_err(Error::local("cannot write it to the disk"))?;
        // Drops cached pages, so that the data are read from the disk if the system follows the
        // advice.
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
        let file = self.file.try_clone().map_err(Error::local("cannot open it"))?;
        // A hole at the end is not yet part of the length, which is set at the end.
        let size = size.min(file.metadata().map_err(Error::local("cannot examine it"))?.len());
        Ok(Box::new(LocalSource::of(file, 0, size, transfer)))
    }

    fn is_named(&self, directory: &dyn Directory, name: &[u8]) -> Result<bool> {
        let metadata = self.file.metadata().map_err(Error::local("cannot examine it"))?;
        let found = directory.find(name)?;
        Ok(found.is_some_and(|found| {
            (found.attributes.fsid, found.attributes.fileid) == (metadata.dev(), metadata.ino())
        }))
    }
}

//! SEEK, ALLOCATE, DEALLOCATE, COPY and CLONE: the kernel's own, as far as the file system has
//! them. RFC 7862

use super::Shared;
use super::data::write_all;
use super::fault::status;
use super::identity::prepare_thread;
use super::node::Node;
use super::sys;
use crate::interface::{
    Caller, Effect, ObjectId, Result, Seek, Sought, Stability, Status, Written, bytes_to_copy,
};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

/// The bytes that are copied at a time where the kernel cannot copy between two files.
const COPY_BYTES: u32 = 1 << 20;

/// In units of how many bytes files in a directory can be cloned; 0 if they cannot.
pub(super) fn clone_block_bytes(directory: BorrowedFd<'_>) -> u32 {
    let open = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::openat(directory, c".", flags, Mode::RUSR | Mode::WUSR)
    };
    let block = || {
        let (one, other) = (open()?, open()?);
        sys::clone_range(one.as_fd(), 0, 0, other.as_fd(), 0)?;
        rustix::fs::fstatfs(directory)
    };
    block().ok().and_then(|known| u32::try_from(known.f_bsize).ok()).unwrap_or(0)
}

fn fault(errno: Errno) -> Status {
    match errno {
        Errno::NXIO => Status::NoAddress,
        // A file system without the operation.
        Errno::NOTTY => Status::NotSupported,
        other => status(other),
    }
}

impl Shared {
    pub fn find_in_file(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        what: Seek,
    ) -> Result<Sought> {
        let node = self.get(object)?;
        node.require_file()?;
        let stat = node.stat()?;
        self.may_read(caller, &node, &stat)?;
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        if offset >= size {
            return Err(Status::NoAddress);
        }
        let fd = node.to_read()?;
        // The position of the descriptor, which others share, is of no use: all else says where.
        let found = match what {
            Seek::Data => rustix::fs::seek(&fd, SeekFrom::Data(offset)),
            Seek::Hole => rustix::fs::seek(&fd, SeekFrom::Hole(offset)),
        };
        match found {
            Ok(found) => Ok(Sought { offset: found.min(size), eof: found >= size }),
            Err(Errno::NXIO) => Ok(Sought { offset: size, eof: true }),
            Err(errno) => Err(fault(errno)),
        }
    }

    pub fn allocate_range(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        len: u64,
    ) -> (Effect, Result<()>) {
        self.change_range(caller, object, |node, stat| {
            self.may_write(caller, node, stat, offset, len)?;
            let fd = node.to_write()?;
            prepare_thread();
            let _impersonation = self.impersonate_to_write(caller, stat)?;
            rustix::fs::fallocate(&fd, FallocateFlags::empty(), offset, len).map_err(fault)
        })
    }

    pub fn deallocate_range(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        len: u64,
    ) -> (Effect, Result<()>) {
        self.change_range(caller, object, |node, stat| {
            self.may_write(caller, node, stat, 0, 0)?;
            if len == 0 || offset.checked_add(len).is_none() {
                return Err(Status::Invalid);
            }
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            // Beyond the end there is nothing, whatever the largest offset is. To the end means all
            // of the last block, which a hole up to the size would leave.
            let Some(len) = size.checked_sub(offset).filter(|left| *left > 0).map(|left| match len < left {
                true => len,
                false => left.saturating_add(u64::try_from(stat.st_blksize).unwrap_or_default()),
            }) else {
                return Ok(());
            };
            let len = len.min(super::FILE_BYTES_MAX - offset);
            let fd = node.to_write()?;
            prepare_thread();
            let _impersonation = self.impersonate_to_write(caller, stat)?;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&fd, flags, offset, len).map_err(fault)
        })
    }

    /// Changes a file, with its state before and after, and makes the change durable.
    fn change_range(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        change: impl FnOnce(&Node, &Stat) -> Result<()>,
    ) -> (Effect, Result<()>) {
        let (node, effect, result) = self.change_file(caller, object, change);
        let synced = result.and_then(|()| node.map_or(Ok(()), |node| self.sync_attributes(&node)));
        (effect, synced)
    }

    fn change_file<T>(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        change: impl FnOnce(&Node, &Stat) -> Result<T>,
    ) -> (Option<std::sync::Arc<Node>>, Effect, Result<T>) {
        let node = match self.get(object) {
            Ok(node) => node,
            Err(error) => return (None, Effect::default(), Err(error)),
        };
        let guard = node.hold();
        let before = match node.stat() {
            Ok(stat) => stat,
            Err(error) => return (None, Effect::default(), Err(error)),
        };
        // Checked first: the descriptors are not opened for callers without the right.
        let allowed = self.may_write(caller, &node, &before, 0, 0);
        let result = allowed.and_then(|()| {
            node.dirty.store(true, Ordering::Relaxed);
            let result = change(&node, &before);
            node.dirty.store(true, Ordering::Relaxed);
            result
        });
        let effect = node.effect_since(&before);
        drop(guard);
        (Some(node), effect, result)
    }

    pub fn copy_data(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u32,
    ) -> (Effect, Result<Written>) {
        let verifier = self.state.verifier();
        let (_, effect, copied) = self.change_file(caller, to.0, |target, stat| {
            self.may_write(caller, target, stat, to.1, count.into())?;
            let source = self.get(from.0)?;
            source.require_file()?;
            let seen = source.stat()?;
            self.may_read(caller, &source, &seen)?;
            let count = bytes_to_copy(from, to, count, u64::try_from(seen.st_size).unwrap_or_default())?;
            let (read, write) = (source.to_read()?, target.to_write()?);
            prepare_thread();
            let _impersonation = self.impersonate_to_write(caller, stat)?;
            self.copy_between(read.as_fd(), from.1, write.as_fd(), to.1, count)
        });
        let written = copied.map(|count| Written { count, committed: Stability::Unstable, verifier });
        (effect, written)
    }

    /// Copies as much as possible; an error only if nothing was copied.
    fn copy_between(
        &self,
        from: BorrowedFd<'_>,
        mut read_at: u64,
        to: BorrowedFd<'_>,
        mut write_at: u64,
        count: u32,
    ) -> Result<u32> {
        let mut left = count;
        while left > 0 {
            let (mut reads, mut writes) = (read_at, write_at);
            let copied =
                rustix::fs::copy_file_range(from, Some(&mut reads), to, Some(&mut writes), left as usize);
            let copied = match copied {
                Ok(copied) => Ok(copied),
                Err(Errno::INTR) => continue,
                // The kernel cannot copy between these files.
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.copy_by_buffer(from, read_at, to, write_at, left.min(COPY_BYTES))
                }
                Err(errno) => Err(fault(errno)),
            };
            match copied {
                Ok(0) => break,
                Ok(copied) => {
                    left = left.saturating_sub(u32::try_from(copied).unwrap_or(u32::MAX));
                    read_at += copied as u64;
                    write_at += copied as u64;
                }
                Err(error) if left == count => return Err(error),
                Err(_) => break,
            }
        }
        Ok(count - left)
    }

    fn copy_by_buffer(
        &self,
        from: BorrowedFd<'_>,
        read_at: u64,
        to: BorrowedFd<'_>,
        write_at: u64,
        count: u32,
    ) -> Result<usize> {
        let mut buffer = self.buffers.take(count as usize);
        let read = loop {
            match rustix::io::pread(from, &mut buffer[..], read_at) {
                Err(Errno::INTR) => {}
                other => break other.map_err(fault)?,
            }
        };
        buffer.truncate(read);
        write_all(to, write_at, &buffer)
    }

    pub fn clone_data(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> (Effect, Result<()>) {
        self.change_range(caller, to.0, |target, stat| {
            self.may_write(caller, target, stat, to.1, count)?;
            let source = self.get(from.0)?;
            source.require_file()?;
            let seen = source.stat()?;
            self.may_read(caller, &source, &seen)?;
            let (read, write) = (source.to_read()?, target.to_write()?);
            prepare_thread();
            let _impersonation = self.impersonate_to_write(caller, stat)?;
            sys::clone_range(read.as_fd(), from.1, count, write.as_fd(), to.1).map_err(fault)
        })
    }
}

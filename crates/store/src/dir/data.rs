//! READ, WRITE and COMMIT.

use super::fault::status;
use super::identity::{WriterImpersonation, is_identity_pinned, prepare_thread};
use super::mapping::{self, Mapped};
use super::node::{EXECUTE, Node, READ, WRITE, attributes, now, owns};
use super::receive_batch::{FileSnapshot, ReceiveBatch};
use super::{FILE_BYTES_MAX, Shared};
use crate::interface::{Caller, Effect, ObjectId, ReadEnd, Result, Stability, Status, Written};
use crate::payload::Segment;
use rustix::fs::{Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::{Errno, ReadWriteFlags};
use smallvec::SmallVec;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A write that takes longer gets its time once more when it ends: the kernel takes the time when
/// it begins, and an object that was looked at meanwhile may count as settled (`changes`).
const SLOW_WRITE: Duration = Duration::from_millis(20);

impl Shared {
    pub fn read_data(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        count: u32,
        out: &mut SmallVec<[Segment; 1]>,
    ) -> Result<ReadEnd> {
        let node = self.get(object)?;
        node.require_file()?;
        // Taken before the data are read: a change in between gives the client a time older than
        // its data, which it then fetches again, and not a time that hides the change.
        let stat = node.stat()?;
        self.may_read(caller, &node, &stat)?;
        let fd = node.to_read()?;
        let left = u64::try_from(stat.st_size).unwrap_or_default().saturating_sub(offset);
        let count = count.min(u32::try_from(left).unwrap_or(u32::MAX));
        let mut done = 0;
        if count > 0 {
            let mut buffer = self.buffers.take(count as usize);
            while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
                match rustix::io::pread(&fd, rest, offset + done as u64) {
                    Ok(0) => break,
                    Ok(more) => done += more,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(status(errno)),
                }
            }
            buffer.truncate(done);
            if done > 0 {
                out.push(buffer.into());
            }
        }
        let eof = done < count as usize || u64::from(count) >= left;
        Ok(ReadEnd { count: done as u32, eof, attributes: attributes(object, &stat) })
    }

    /// Whether the caller may read the data of a file.
    pub fn may_read(&self, caller: Caller<'_>, node: &Node, stat: &Stat) -> Result<()> {
        let caller = self.identity.effective(caller);
        let rights = || node.rights(&self.callers, &self.identity, caller, stat);
        if owns(caller, stat) || reads(rights()?) { Ok(()) } else { Err(Status::Access) }
    }

    /// Like [`read_data`](Self::read_data), but from memory or not at all.
    pub fn try_read_data(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        count: u32,
        out: &mut SmallVec<[Segment; 1]>,
        batch: Option<&ReceiveBatch>,
    ) -> Option<Result<ReadEnd>> {
        let caller = self.identity.effective(caller);
        let store = std::ptr::from_ref(self).addr();
        let known = batch.and_then(|batch| {
            batch.with_snapshot(store, &object, caller, |snapshot| {
                self.read_snapshot(snapshot, offset, count, out)
            })
        });
        if let Some(read) = known {
            return read.map(Ok);
        }
        let snapshot = self.snapshot(caller, object, batch.is_some())?;
        let read = self.read_snapshot(&snapshot, offset, count, out);
        if let Some(batch) = batch {
            batch.remember(snapshot);
        }
        read.map(Ok)
    }

    /// A file that the caller may read, if everything needed for that is known already.
    /// `kernel_only`: the data may be pages that only the kernel may access.
    fn snapshot(&self, caller: Caller<'_>, object: ObjectId, kernel_only: bool) -> Option<FileSnapshot> {
        let node = self.try_get(object)?;
        node.opened_to_read().filter(|_| self.supports_nowait_reads.load(Ordering::Relaxed))?;
        node.require_file().ok()?;
        let stat = node.stat().ok()?;
        if !owns(caller, &stat) && !reads(node.try_cached_rights(&self.callers, caller, &stat)?) {
            return None;
        }
        let attributes = attributes(object, &stat);
        // Reading a hole through a mapping would allocate its pages.
        let mapping = if kernel_only
            && self.memory
            && attributes.size >= mapping::FILE_BYTES_MIN
            && attributes.used >= attributes.size
            && self.maps.load(Ordering::Relaxed)
            && mapping::is_trusted()
        {
            match node.mapped(attributes.size) {
                Ok(mapping) => Some(mapping),
                // Too many mappings, or too little memory: try again later.
                Err(Errno::NOMEM | Errno::AGAIN | Errno::NFILE) => None,
                Err(_) => {
                    self.maps.store(false, Ordering::Relaxed);
                    None
                }
            }
        } else {
            None
        };
        let store = std::ptr::from_ref(self).addr();
        let mut snapshot = FileSnapshot::new(store, node, attributes, caller);
        snapshot.mapping = mapping;
        Some(snapshot)
    }

    /// Reads from a file that was seen in this receive batch, from memory or not at all.
    fn read_snapshot(
        &self,
        snapshot: &FileSnapshot,
        offset: u64,
        count: u32,
        out: &mut SmallVec<[Segment; 1]>,
    ) -> Option<ReadEnd> {
        let attributes = snapshot.attributes;
        let left = attributes.size.saturating_sub(offset);
        let count = count.min(u32::try_from(left).unwrap_or(u32::MAX));
        let eof = u64::from(count) >= left;
        let mapping = snapshot.mapping.as_ref().filter(|_| count > 0);
        if let Some(mapped) = mapping.and_then(|mapping| Mapped::new(mapping, offset, count as usize)) {
            out.push(mapped.into());
        } else if count > 0 {
            let mut buffer = self.buffers.take(count as usize);
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let done =
                rustix::io::preadv2(snapshot.node.opened_to_read()?, &mut slices, offset, self.at_once());
            let done = supported(done, &self.supports_nowait_reads)?;
            if done != count as usize {
                return None;
            }
            out.push(buffer.into());
        }
        Some(ReadEnd { count, eof, attributes })
    }

    /// The flag that asks the kernel not to wait for a device. A file system in memory has no
    /// device, and does not know the flag.
    fn at_once(&self) -> ReadWriteFlags {
        if self.memory { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT }
    }

    pub fn write_data(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> (Effect, Result<Written>) {
        let node = match self.get(object) {
            Ok(node) => node,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let guard = node.hold();
        let before = match node.stat() {
            Ok(stat) => stat,
            Err(error) => return (Effect::default(), Err(error)),
        };
        // Taken before the data are written, so that a loss in between changes the verifier.
        let verifier = self.state.verifier();
        let written = self.write_in(caller, &node, &before, offset, data, stability);
        let change = node.effect_since(&before);
        // Other writes may run while this one waits for the disk.
        drop(guard);
        let synced = written.and_then(|(count, own)| {
            if let Some(own) = own {
                self.count_loss(&node, call_sync(own.as_fd(), stability == Stability::DataSync))?;
                self.has_synced(&node);
            }
            Ok(Written { count, committed: stability, verifier })
        });
        (change, synced)
    }

    /// Writes the data, and returns the descriptor through which to sync them. The descriptor is an
    /// open file description of this write alone, opened before its data: the kernel reports a
    /// failed write-back once to each, and then considers the pages clean. On a shared one this
    /// sync could succeed because the failure was reported to another sync.
    fn write_in(
        &self,
        caller: Caller<'_>,
        node: &Node,
        stat: &Stat,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<(u32, Option<OwnedFd>)> {
        self.may_write(caller, node, stat, offset, data.len() as u64)?;
        u32::try_from(data.len()).map_err(|_| Status::Invalid)?;
        if data.is_empty() {
            return Ok((0, None));
        }
        let fd = node.to_write()?;
        let syncs = stability != Stability::Unstable && !self.memory;
        let own = if syncs { Some(node.open_to_sync()?) } else { None };
        prepare_thread();
        if own.is_none() {
            node.dirty.store(true, Ordering::Relaxed);
        }
        let done = {
            let began = now();
            let _impersonation = self.impersonate_to_write(caller, stat)?;
            let done = write_all(fd.as_fd(), offset, data);
            if now().saturating_sub(began) > SLOW_WRITE {
                stamp(fd.as_fd());
            }
            done
        };
        if own.is_none() {
            // Once more: a sync that ran during the write has missed some of the data.
            node.dirty.store(true, Ordering::Relaxed);
        }
        Ok((done? as u32, own))
    }

    /// Acts as the caller: quotas and reserved blocks are those of the caller, and writing clears
    /// privileges of the file. A file system in memory reserves nothing and charges the file's
    /// owner, so for a file without privileges the identity makes no difference.
    pub fn impersonate_to_write(&self, caller: Caller<'_>, stat: &Stat) -> Result<WriterImpersonation<'_>> {
        const SET_USER_OR_GROUP: u32 = 0o6000;
        if self.memory && stat.st_mode & SET_USER_OR_GROUP == 0 {
            return Ok(WriterImpersonation::none());
        }
        self.identity.impersonate_writer(caller, stat.st_mode)
    }

    /// Whether the caller may write a range.
    pub fn may_write(
        &self,
        caller: Caller<'_>,
        node: &Node,
        stat: &Stat,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        node.require_file()?;
        let caller = self.identity.effective(caller);
        let rights = || node.rights(&self.callers, &self.identity, caller, stat);
        if !owns(caller, stat) && rights()? & WRITE == 0 {
            return Err(Status::Access);
        }
        let end = offset.checked_add(len).filter(|&end| end <= FILE_BYTES_MAX);
        end.map(drop).ok_or(Status::FileTooBig)
    }

    /// Like [`write_data`](Self::write_data), but into memory or not at all.
    pub fn try_write_data(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        stability: Stability,
        batch: Option<&ReceiveBatch>,
    ) -> Option<(Effect, Result<Written>)> {
        if is_identity_pinned() {
            return None;
        }
        // A file system in memory has nothing to sync.
        if (stability != Stability::Unstable && !self.memory) || data.is_empty() {
            return None;
        }
        let node = self.try_get(object)?;
        if let Some(batch) = batch {
            batch.forget(&object);
        }
        // Under the lock the descriptor is not closed before the data count as unsynced.
        let guard = node.try_hold()?;
        let fd = node.opened_to_write().filter(|_| self.supports_nowait_writes.load(Ordering::Relaxed))?;
        let before = node.stat().ok()?;
        let effective = self.identity.effective(caller);
        if !owns(effective, &before)
            && node.try_cached_rights(&self.callers, effective, &before)? & WRITE == 0
        {
            return None;
        }
        offset.checked_add(data.len() as u64).filter(|&end| end <= FILE_BYTES_MAX)?;
        let verifier = self.state.verifier();
        prepare_thread();
        node.dirty.store(true, Ordering::Relaxed);
        let done = {
            let _impersonation = self.impersonate_to_write(caller, &before).ok()?;
            rustix::io::pwritev2(&fd, &[IoSlice::new(data)], offset, self.at_once())
        };
        // Once more: a sync that ran during the write has missed some of the data.
        node.dirty.store(true, Ordering::Relaxed);
        let done = supported(done, &self.supports_nowait_writes)?;
        // A worker that may wait writes the missing data, and then writes the present part once
        // more.
        if done != data.len() {
            return None;
        }
        let change = node.effect_since(&before);
        drop(guard);
        let count = u32::try_from(done).ok()?;
        Some((change, Ok(Written { count, committed: stability, verifier })))
    }

    /// Like [`commit_data`](Self::commit_data), if there is nothing to sync.
    pub fn try_commit_data(&self, object: ObjectId) -> Option<(Effect, Result<u64>)> {
        let node = self.try_get(object).filter(|_| self.memory)?;
        node.require_file().ok()?;
        let stat = node.stat().ok()?;
        Some((node.effect_since(&stat), Ok(self.state.verifier())))
    }

    pub fn commit_data(&self, object: ObjectId) -> (Effect, Result<u64>) {
        let known = self.get(object).and_then(|node| node.stat().map(|stat| (node, stat)));
        let (node, before) = match known {
            Ok(known) => known,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let result = node.require_file().and_then(|()| {
            let fd = node.opened_to_write().map_or_else(|| node.to_read(), Ok)?;
            self.sync(&node, fd.as_fd(), false)?;
            // A failure of this file may have been reported to another sync instead of this one.
            node.wait_for_syncs();
            self.has_synced(&node);
            // Taken after the sync, so that an earlier loss shows.
            Ok(self.state.verifier())
        });
        (node.effect_since(&before), result)
    }

    /// Syncs a file through a descriptor that other syncs share. A failure, to whichever sync it is
    /// reported, has been counted when [`Node::wait_for_syncs`] returns.
    pub fn sync(&self, node: &Node, fd: BorrowedFd<'_>, data_only: bool) -> Result<()> {
        self.sync_by(node, || call_sync(fd, data_only))
    }

    fn sync_by(&self, node: &Node, call: impl FnOnce() -> rustix::io::Result<()>) -> Result<()> {
        let _under_way = node.hold_sync();
        node.dirty.store(false, Ordering::Relaxed);
        self.count_loss(node, call())
    }

    /// Counts a failure: unstable data of other writers may be lost.
    fn count_loss(&self, node: &Node, synced: rustix::io::Result<()>) -> Result<()> {
        synced.map_err(|errno| {
            self.state.lost();
            tracing::error!(file = node.object.fileid, %errno, "a sync failed: data may be lost");
            status(errno)
        })
    }

    /// Closes the descriptor for writing after a sync. A file system in memory keeps it until it is
    /// idle: a write through an open descriptor does not wait there.
    pub fn has_synced(&self, node: &Node) {
        if !self.memory {
            self.close_writable(node);
        }
    }

    /// Closes the descriptor for writing of a file without unsynced writes, unless a write is in
    /// progress. A file system in memory has nothing to sync.
    pub fn close_writable(&self, node: &Node) {
        let closed = {
            let Some(_guard) = node.try_hold() else { return };
            let may_close = self.memory || !node.dirty.load(Ordering::Relaxed);
            may_close.then(|| node.descriptors.take_writable())
        };
        // close(2) may wait, on a network file system for its server: no lock is held then.
        drop(closed);
    }

    /// Syncs a file with unsynced writes before it is closed.
    pub fn sync_if_dirty(&self, node: &Arc<Node>) {
        if !node.dirty.load(Ordering::Relaxed) {
            return;
        }
        if let Some(fd) = node.opened_to_write()
            && node.stat().is_ok()
        {
            // Reported and counted by `sync`.
            let _ = self.sync(node, fd.as_fd(), true);
        }
    }
}

fn call_sync(fd: BorrowedFd<'_>, data_only: bool) -> rustix::io::Result<()> {
    if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }
}

/// Returns the length of an immediate transfer; remembers if the file system does not support such
/// transfers.
fn supported(done: rustix::io::Result<usize>, can: &AtomicBool) -> Option<usize> {
    if done == Err(Errno::OPNOTSUPP) {
        can.store(false, Ordering::Relaxed);
    }
    done.ok()
}

/// A caller who may execute a program, but not read it otherwise, may read it to run it. RFC 1813
/// s3.3.6
const fn reads(rights: u32) -> bool {
    rights & (READ | EXECUTE) != 0
}

/// Marks a change of a file's data now. Without effect where the file system refuses it: the file
/// has a time from when the write began.
fn stamp(fd: BorrowedFd<'_>) {
    let keep = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let _ = rustix::fs::futimens(fd, &Timestamps { last_access: keep, last_modification: now });
}

/// Writes as much as possible; an error only if nothing was written.
pub(super) fn write_all(fd: BorrowedFd<'_>, offset: u64, data: &[u8]) -> Result<usize> {
    let mut done = 0;
    while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pwrite(fd, rest, offset + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(Errno::INTR) => {}
            Err(errno) if done == 0 => return Err(status(errno)),
            Err(_) => break,
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests;

//! Reading: from data that were read ahead, from the server through memory, or from the server
//! through a pipe.

use crate::buffers::Buffer;
use crate::core::Core;
use crate::files::{IoFlags, OpenFile};
use crate::kernel::Reply;
use crate::page_fills::{Patch, apply_patches};
use crate::pipes::Pipes;
use crate::write_ranges::FillGuard;
use client::Pipe;
use fuser::Errno;
use std::sync::Arc;

/// The longest reply that is sent by the thread that received the data, which is a connection's
/// thread. A longer reply would keep that thread from its connections for too long.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// A shorter read costs less through memory: a pipe takes four more system calls.
const PIPED_BYTES_MIN: usize = 128 << 10;

/// How many READs in a row may return no bytes within a file, without an end.
const EMPTY_READS_MAX: u32 = 3;

/// Whether a thread that must not be busy for long may copy and send this many bytes.
pub(crate) const fn is_short(bytes: usize) -> bool {
    bytes <= SHORT_BYTES_MAX
}

/// What a READ has brought.
#[derive(Debug)]
pub(crate) enum ReadData {
    Memory(Buffer),
    /// The bytes never were in memory of this process.
    Pipe(Pipe),
}

impl ReadData {
    fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::Pipe(pipe) => pipe.len(),
        }
    }
}

/// The bytes of a reply, without a copy where possible.
#[derive(Debug)]
pub(crate) enum ReplyData {
    Whole(ReadData),
    Part(Arc<Buffer>, usize, usize),
}

impl From<Buffer> for ReplyData {
    fn from(bytes: Buffer) -> Self {
        Self::Whole(ReadData::Memory(bytes))
    }
}

impl ReplyData {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole(data) => data.len(),
            Self::Part(_, from, to) => to - from,
        }
    }

    /// Sends the reply.
    pub(crate) fn send(self, reply: Reply, pipes: &Pipes) {
        match self {
            Self::Whole(ReadData::Memory(bytes)) => reply.data(&bytes),
            Self::Whole(ReadData::Pipe(pipe)) => reply.piped(pipe, pipes),
            Self::Part(bytes, from, to) => reply.data(bytes.get(from..to).unwrap_or_default()),
        }
    }
}

impl Core {
    /// read(2). Data in the range that were written here and that the server does not have yet are
    /// sent first. Returns the page fill, if the kernel keeps the bytes in its pages.
    pub(crate) async fn read(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        io_flags: IoFlags,
        (offset, len): (u64, usize),
    ) -> Result<(ReplyData, Option<FillGuard>), Errno> {
        self.check_locks(file)?;
        let range = offset..offset.saturating_add(len as u64);
        // Begin the fill before looking for data, so that it takes in every write that arrives from
        // here on.
        let fill = (!io_flags.bypasses_pages).then(|| file.inode.begin_fill(range.clone()));
        match &fill {
            Some(fill) => fill.wait_for_turn().await,
            None => file.inode.wait_for_earlier_writes(range.clone()).await,
        }
        if file.inode.lock().dirty.overlaps(&range) {
            self.flush(&file.inode).await;
        }
        let bytes = self.read_once(file, io_flags, (offset, len)).await?;
        let end = offset + bytes.len() as u64;
        if end >= range.end.min(file.inode.lock().known_end()) {
            return Ok((bytes, fill));
        }
        // The server's file ends earlier than the file is known to end here. Either data further on
        // have not reached the server yet, and there is a hole before them; or another client has
        // truncated the file. After a flush the server knows.
        self.flush(&file.inode).await;
        Ok((self.read_to_memory(file, offset, len).await?.into(), fill))
    }

    /// Puts the data that were written meanwhile over the bytes that were read.
    pub(crate) fn with_patches(
        &self,
        bytes: ReplyData,
        (offset, len): (u64, usize),
        patches: &[Patch],
    ) -> Result<ReplyData, Errno> {
        if patches.is_empty() {
            return Ok(bytes);
        }
        let mut all = match bytes {
            ReplyData::Whole(ReadData::Memory(bytes)) => bytes,
            ReplyData::Whole(ReadData::Pipe(mut pipe)) => {
                let mut bytes = self.buffers.own(self.buffers.take(pipe.len()));
                let read = pipe.read(&mut bytes);
                self.pipes.give_back(pipe);
                if read != Ok(bytes.len()) {
                    tracing::error!(?read, "data cannot be read back from their pipe");
                    return Err(Errno::EIO);
                }
                bytes
            }
            ReplyData::Part(bytes, from, to) => {
                self.buffers.own(self.buffers.copy_of(bytes.get(from..to).unwrap_or_default()))
            }
        };
        apply_patches(patches, all.growing(), (offset, len));
        Ok(all.into())
    }

    /// Reads from data that were read ahead or from the server. Short only where the server says
    /// that the file ends.
    async fn read_once(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        io_flags: IoFlags,
        (offset, len): (u64, usize),
    ) -> Result<ReplyData, Errno> {
        let outcome = if io_flags.is_direct || !self.policy.reads_ahead() {
            self.read_piped(file, offset, len).await.map(|outcome| outcome.map(ReplyData::Whole))
        } else {
            self.read_from_read_ahead(file, offset, len).await
        };
        match outcome {
            Some(outcome) => outcome,
            None => Ok(self.read_to_memory(file, offset, len).await?.into()),
        }
    }

    /// Reads from the server through memory. Short only at the end of the file: where the server
    /// returns no bytes within it, that is an error after some attempts, because a program would
    /// take a short read for the end.
    pub(crate) async fn read_to_memory(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
    ) -> Result<Buffer, Errno> {
        let mut all = self.buffers.own(Vec::new());
        let mut empty = 0;
        loop {
            let at = offset + all.len() as u64;
            let wanted = (len - all.len()).min(self.sizes.0);
            let (bytes, eof) = self.call_read(&file.caller, file.file, at, wanted).await?;
            let nothing = bytes.is_empty() && !eof && wanted > 0;
            empty = if nothing { empty + 1 } else { 0 };
            let ended = eof || nothing && self.ends_at(file, at, empty).await?;
            if all.is_empty() {
                all = bytes;
            } else {
                all.growing().extend_from_slice(&bytes);
            }
            if ended || all.len() >= len {
                return Ok(all);
            }
        }
    }

    /// Whether a file ends where the server has returned no bytes `attempts` times in a row without
    /// saying so.
    #[cold]
    async fn ends_at(&self, file: &OpenFile, offset: u64, attempts: u32) -> Result<bool, Errno> {
        let size = self.call_getattr(&file.caller, file.file.handle).await?.size;
        if size > offset && attempts >= EMPTY_READS_MAX {
            tracing::warn!(file = file.inode.ino, offset, size, "the server returns no bytes within a file");
            return Err(Errno::EIO);
        }
        Ok(size <= offset)
    }

    /// Reads from the server through a pipe, with one READ. Returns `None` if that is not possible:
    /// the read is too short or too long, the connections use RDMA, there is no pipe, or the server
    /// returns less than was requested.
    pub(crate) async fn read_piped(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
    ) -> Option<Result<ReadData, Errno>> {
        if !(PIPED_BYTES_MIN..=self.sizes.0).contains(&len) || self.mount.uses_rdma() {
            return None;
        }
        let pipe = self.pipes.take_for_read()?;
        let is_large = pipe.is_large();
        let outcome = self.call_read_piped(&file.caller, file.file, (offset, len), pipe).await;
        match outcome {
            Ok((data, eof)) if eof || data.len() == len => {
                // The transport receives a short record whole, in memory, so a short payload says
                // nothing about the pipe.
                if matches!(&data, ReadData::Memory(bytes) if bytes.len() >= PIPED_BYTES_MIN) {
                    self.pipes.did_not_fit(is_large);
                }
                Some(Ok(data))
            }
            Ok(_) => {
                // A server may return less than was requested. Then everything is read once more,
                // through memory.
                self.pipes.pause_for_reads();
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

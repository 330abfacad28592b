//! Reading: from what was read ahead, from the server by way of memory, or from the server by a
//! pipe.

use crate::buffers::Buffer;
use crate::core::Core;
use crate::files::{How, OpenFile};
use crate::kernel::Reply;
use crate::page_fills::{Patch, apply};
use crate::pipes::Pipes;
use crate::write_ranges::Filling;
use client::Pipe;
use fuser::Errno;
use std::sync::Arc;

/// A reply of at most so many bytes is given by the thread that received them; a longer one would
/// keep it from its connections for too long.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// A shorter read costs less by way of memory: a pipe takes four system calls more.
const PIPED_BYTES_MIN: usize = 128 << 10;

/// Whether so many bytes may be read and given where nothing may take long.
pub(crate) const fn is_short(bytes: usize) -> bool {
    bytes <= SHORT_BYTES_MAX
}

/// What a READ brought.
#[derive(Debug)]
pub(crate) enum Fresh {
    Memory(Buffer),
    /// It never came to our memory.
    Pipe(Pipe),
}

impl Fresh {
    fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::Pipe(pipe) => pipe.len(),
        }
    }
}

/// Bytes for a reader, without a copy where that can be.
#[derive(Debug)]
pub(crate) enum Bytes {
    Fresh(Fresh),
    Part(Arc<Buffer>, usize, usize),
}

impl From<Buffer> for Bytes {
    fn from(bytes: Buffer) -> Self {
        Self::Fresh(Fresh::Memory(bytes))
    }
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Fresh(fresh) => fresh.len(),
            Self::Part(_, from, to) => to - from,
        }
    }

    /// Replies with them.
    pub(crate) fn give(self, reply: Reply, pipes: &Pipes) {
        match self {
            Self::Fresh(Fresh::Memory(bytes)) => reply.data(&bytes),
            Self::Fresh(Fresh::Pipe(pipe)) => reply.piped(pipe, pipes),
            Self::Part(bytes, from, to) => reply.data(bytes.get(from..to).unwrap_or_default()),
        }
    }
}

impl Core {
    /// read(2). What was written here and is not on the server yet goes there first.
    pub(crate) async fn read(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        how: How,
        (offset, len): (u64, usize),
    ) -> Result<(Bytes, Option<Filling>), Errno> {
        let range = offset..offset.saturating_add(len as u64);
        // Before anything is looked for: whatever is written from here on is given to a fill.
        let filling = (!how.passes_pages).then(|| file.inode.begin_fill(range.clone()));
        match &filling {
            Some(filling) => filling.turn().await,
            None => file.inode.written_by_now(range.clone()).await,
        }
        if file.inode.lock().dirty.overlaps(&range) {
            self.flush(&file.inode).await;
        }
        let bytes = self.read_once(file, how, (offset, len)).await?;
        let end = offset + bytes.len() as u64;
        if end >= range.end.min(file.inode.lock().known_end()) {
            return Ok((bytes, filling));
        }
        // Short, but data further on make it a hole; or the file was cut elsewhere, which the
        // server knows.
        self.flush(&file.inode).await;
        Ok((self.read_now(file, offset, len).await?.into(), filling))
    }

    /// What was read with what was written meanwhile.
    pub(crate) fn patched(
        &self,
        bytes: Bytes,
        (offset, len): (u64, usize),
        patches: &[Patch],
    ) -> Result<Bytes, Errno> {
        if patches.is_empty() {
            return Ok(bytes);
        }
        let mut all = match bytes {
            Bytes::Fresh(Fresh::Memory(bytes)) => bytes,
            Bytes::Fresh(Fresh::Pipe(mut pipe)) => {
                let mut bytes = self.buffers.own(self.buffers.take(pipe.len()));
                let read = pipe.read(&mut bytes);
                self.pipes.give_back(pipe);
                if read != Ok(bytes.len()) {
                    tracing::error!(?read, "what was read is lost in its pipe");
                    return Err(Errno::EIO);
                }
                bytes
            }
            Bytes::Part(bytes, from, to) => {
                self.buffers.own(self.buffers.copy_of(bytes.get(from..to).unwrap_or_default()))
            }
        };
        apply(patches, &mut all, (offset, len));
        Ok(all.into())
    }

    /// The same, once; short only at what the server says is the end.
    async fn read_once(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        how: How,
        (offset, len): (u64, usize),
    ) -> Result<Bytes, Errno> {
        let outcome = if how.is_direct || !self.policy.reads_ahead() {
            self.read_piped(file, offset, len).await.map(|outcome| outcome.map(Bytes::Fresh))
        } else {
            self.read_what_is_ahead(file, offset, len).await
        };
        match outcome {
            Some(outcome) => outcome,
            None => Ok(self.read_now(file, offset, len).await?.into()),
        }
    }

    /// Reads from the server; short only at the end of the file.
    pub(crate) async fn read_now(&self, file: &OpenFile, offset: u64, len: usize) -> Result<Buffer, Errno> {
        let mut all = self.buffers.own(Vec::new());
        loop {
            let at = offset + all.len() as u64;
            let wanted = (len - all.len()).min(self.sizes.0);
            let (bytes, eof) = self.call_read(&file.caller, file.file, at, wanted).await?;
            let ended = eof || bytes.is_empty();
            if all.is_empty() {
                all = bytes;
            } else {
                all.extend_from_slice(&bytes);
            }
            if ended || all.len() >= len {
                return Ok(all);
            }
        }
    }

    /// The same without a copy, for a long read of which all is wanted, once; nothing where that
    /// cannot be.
    pub(crate) async fn read_piped(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
    ) -> Option<Result<Fresh, Errno>> {
        if !(PIPED_BYTES_MIN..=self.sizes.0).contains(&len) || self.mount.uses_rdma() {
            return None;
        }
        let pipe = self.pipes.take_for_read()?;
        let is_large = pipe.is_large();
        let outcome = self.call_read_piped(&file.caller, file.file, (offset, len), pipe).await;
        match outcome {
            Ok((fresh, eof)) if eof || fresh.len() == len => {
                // Less comes to memory in any case, with what else came.
                if matches!(&fresh, Fresh::Memory(bytes) if bytes.len() >= PIPED_BYTES_MIN) {
                    self.pipes.did_not_fit(is_large);
                }
                Some(Ok(fresh))
            }
            Ok(_) => {
                // A server may give less than it is asked for: then all is read once more, by way
                // of memory.
                self.pipes.rest();
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

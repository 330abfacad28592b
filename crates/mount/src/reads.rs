//! Reading: from what was read ahead, from the server by way of memory, or from the server by a pipe.

use crate::buffers::Buffer;
use crate::core::Core;
use crate::files::OpenFile;
use crate::kernel::Reply;
use crate::pipes::Pipes;
use client::Pipe;
use fuser::Errno;
use std::sync::Arc;

/// A shorter read costs less by way of memory: a pipe takes four system calls more.
const PIPED_BYTES_MIN: usize = 128 << 10;

/// Bytes for a reader, without a copy where that can be.
#[derive(Debug)]
pub(crate) enum Bytes {
    Own(Buffer),
    Part(Arc<Buffer>, usize, usize),
    /// They never came to our memory.
    Piped(Pipe),
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Part(_, from, to) => to - from,
            Self::Piped(pipe) => pipe.len(),
        }
    }

    /// Replies with them.
    pub(crate) fn give(self, reply: Reply, pipes: &Pipes) {
        match self {
            Self::Own(bytes) => reply.data(&bytes),
            Self::Part(bytes, from, to) => reply.data(bytes.get(from..to).unwrap_or_default()),
            Self::Piped(pipe) => reply.piped(pipe, pipes),
        }
    }
}

impl Core {
    /// read(2). What was written here and is not on the server yet goes there first.
    pub(crate) async fn read(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
    ) -> Result<Bytes, Errno> {
        let range = offset..offset.saturating_add(len as u64);
        if file.inode.lock().dirty.overlaps(&range) {
            self.flush(&file.inode).await;
        }
        let bytes = self.read_once(file, offset, len).await?;
        let end = offset + bytes.len() as u64;
        if end >= range.end.min(file.inode.lock().known_end()) {
            return Ok(bytes);
        }
        // Short, but data further on make it a hole; or the file was cut elsewhere, which the server knows.
        self.flush(&file.inode).await;
        Ok(Bytes::Own(self.read_now(file, offset, len).await?))
    }

    /// The same, once; short only at what the server says is the end.
    async fn read_once(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
    ) -> Result<Bytes, Errno> {
        let outcome = if file.is_direct || !self.policy.reads_ahead() {
            self.read_piped(file, offset, len).await
        } else {
            self.read_what_is_ahead(file, offset, len).await
        };
        match outcome {
            Some(outcome) => outcome,
            None => Ok(Bytes::Own(self.read_now(file, offset, len).await?)),
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

    /// The same without a copy, for a long read of which nothing is kept; nothing where that cannot be.
    pub(crate) async fn read_piped(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
    ) -> Option<Result<Bytes, Errno>> {
        if !(PIPED_BYTES_MIN..=self.sizes.0).contains(&len) || self.mount.uses_rdma() {
            return None;
        }
        let pipe = self.pipes.take_for_read()?;
        let outcome = self.call_read_piped(&file.caller, file.file, (offset, len), pipe).await;
        match outcome {
            Ok((Bytes::Own(bytes), _)) if bytes.len() == len => {
                // It did not fit.
                self.pipes.rest();
                Some(Ok(Bytes::Own(bytes)))
            }
            Ok((bytes, eof)) if eof || bytes.len() == len => Some(Ok(bytes)),
            Ok(_) => {
                // A server may give less than it is asked for: then all is read once more, by way of memory.
                self.pipes.rest();
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

//! Files of a server, read and written over all paths with many blocks in flight.

use std::collections::VecDeque;
use std::ops::Range;

use client::{Block, Blocks, Buffer, FileRef, Mount, Op, Pending};
use fs::{Attributes, FileHandle};

use super::set;
use crate::backend::{Directory, Sink, Source, TransferOptions};
use crate::entry::NewAttributes;
use crate::error::{Error, Result};
use crate::temporary::WINDOW_BYTES;

/// Writes of a large file move to the next loop after this many bytes, so that all loops and their
/// connections are used.
const ROTATION_BYTES: u64 = 4 << 20;

/// A file of a server that is read.
#[derive(Debug)]
pub(super) struct RemoteSource {
    mount: Mount,
    handle: FileHandle,
    blocks: Blocks,
    /// The offset up to which the file was read.
    next: u64,
    end: u64,
}

impl RemoteSource {
    pub(super) fn new(
        mount: &Mount,
        handle: FileHandle,
        range: Range<u64>,
        transfer: TransferOptions,
    ) -> Self {
        let (next, end) = (range.start, range.end);
        let blocks = mount.blocks(handle, range, end, (transfer.block_bytes, transfer.depth));
        Self { mount: mount.clone(), handle, blocks, next, end }
    }
}

impl Source for RemoteSource {
    fn next_block(&mut self) -> Result<Option<Block>> {
        let block = self.blocks.next_block()?;
        match &block {
            Some(block) => self.next = block.offset + block.len as u64,
            // Missing bytes are not a hole: a server returns zeros for a hole.
            None if self.next < self.end => return Err(Error::Changed),
            None => {}
        }
        Ok(block)
    }

    fn give_back(&mut self, buffer: Buffer) {
        self.blocks.give_back(buffer);
    }

    fn attributes(&self) -> Result<Attributes> {
        Ok(self.mount.attributes(self.handle)?)
    }
}

/// A file of a server that is written.
#[derive(Debug)]
pub(super) struct RemoteSink {
    mount: Mount,
    handle: FileHandle,
    /// The file, once for each loop if it is spread over all of them, otherwise once.
    files: Vec<FileRef>,
    in_flight: VecDeque<(u64, Pending)>,
    depth: usize,
    /// The length of the file on the server.
    length: u64,
    spare: Vec<Buffer>,
}

impl RemoteSink {
    pub(super) fn new(mount: &Mount, handle: FileHandle, length: u64, transfer: TransferOptions) -> Self {
        let files = if transfer.spread {
            (0..mount.loops()).map(|_| mount.spread_file_ref(handle)).collect()
        } else {
            vec![mount.file_ref(handle)]
        };
        let (in_flight, spare) = (VecDeque::new(), Vec::new());
        Self { mount: mount.clone(), handle, files, in_flight, depth: transfer.depth, length, spare }
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        if let Some((_, pending)) = self.in_flight.pop_front() {
            let spare = pending.wait();
            spare.result?;
            self.spare.push(spare.buffer);
        }
        Ok(())
    }

    fn file(&self, offset: u64) -> Option<FileRef> {
        let index = offset / ROTATION_BYTES % (self.files.len() as u64).max(1);
        self.files.get(usize::try_from(index).unwrap_or_default()).copied()
    }
}

impl Sink for RemoteSink {
    fn write(&mut self, offset: u64, buffer: Buffer) -> Result<()> {
        let end = offset + buffer.len() as u64;
        let is_far = |first: &u64| end.saturating_sub(*first) > WINDOW_BYTES;
        while self.in_flight.len() >= self.depth
            || self.in_flight.front().is_some_and(|(first, _)| is_far(first))
        {
            self.wait_for_oldest()?;
        }
        let Some(file) = self.file(offset) else { return Ok(()) };
        self.length = self.length.max(end);
        self.in_flight.push_back((offset, self.mount.submit(Op::Write { file, offset, buffer })));
        Ok(())
    }

    fn spare(&mut self) -> Option<Buffer> {
        self.spare.pop()
    }

    fn drain(&mut self) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn finish(&mut self, size: u64, new: NewAttributes, _sync: bool) -> Result<()> {
        self.drain()?;
        let size = (self.length != size).then_some(size);
        if size.is_none() && new.is_empty() {
            return Ok(());
        }
        set(&self.mount, self.handle, size, new)
    }

    fn read_back(&self, size: u64, transfer: TransferOptions) -> Result<Box<dyn Source>> {
        // A hole at the end is not yet part of the length, and reads as the end of the file.
        let range = 0..size.min(self.length);
        Ok(Box::new(RemoteSource::new(&self.mount, self.handle, range, transfer)))
    }

    fn is_named(&self, directory: &dyn Directory, name: &[u8]) -> Result<bool> {
        Ok(directory.find(name)?.is_some_and(|length| length.handle == Some(self.handle)))
    }
}

impl Drop for RemoteSink {
    fn drop(&mut self) {
        self.files.iter().filter(|file| file.home.is_some()).for_each(|file| self.mount.release(file));
    }
}

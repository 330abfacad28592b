//! Reads a range of a file, block by block and in order, with many READs in flight.

use std::collections::VecDeque;

use fs::FileHandle;

use crate::buffer::Buffer;
use crate::call::{Answer, FileRef, Op};
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::slot::Pending;

/// How many READs in a row may return no bytes within a file before the block fails.
const EMPTY_READS_MAX: u32 = 3;

/// One block of a file. Its buffer may be longer than the data.
#[derive(Debug)]
pub struct Block {
    /// The offset of the block in the file.
    pub offset: u64,
    /// The number of bytes of the buffer that are data.
    pub len: usize,
    /// The buffer.
    pub buffer: Buffer,
}

impl Block {
    /// The data of the block.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

/// A reader of blocks; see the module's documentation. READs in flight when this is dropped
/// continue and are ignored.
#[derive(Debug)]
pub struct Blocks {
    mount: Mount,
    file: FileRef,
    /// The offset of the next READ to be sent.
    next: u64,
    /// Where to stop reading ahead.
    known_end: u64,
    /// Where to stop in any case.
    end: u64,
    block_bytes: usize,
    depth: usize,
    in_flight: VecDeque<(u64, usize, Pending)>,
    /// Heap memory for reuse; other memory returns to the mount.
    spare: Vec<Vec<u8>>,
    ended: bool,
}

impl Mount {
    /// Reads a file over all paths from `start` to `end` or the end of the file, which is assumed
    /// to be at `size`, with `depth` READs of `block_bytes` in flight. `block_bytes` is bounded by
    /// what the server accepts; both are at least 1.
    #[must_use]
    pub fn blocks(
        &self,
        file: FileHandle,
        range: std::ops::Range<u64>,
        size: u64,
        (block_bytes, depth): (usize, usize),
    ) -> Blocks {
        let read_max = usize::try_from(self.transfer_sizes().0).unwrap_or(usize::MAX);
        Blocks {
            mount: self.clone(),
            file: self.spread_file_ref(file),
            next: range.start,
            known_end: range.end.min(size),
            end: range.end,
            block_bytes: block_bytes.clamp(1, read_max.max(1)),
            depth: depth.max(1),
            in_flight: VecDeque::new(),
            spare: Vec::new(),
            ended: range.is_empty(),
        }
    }
}

impl Blocks {
    /// Returns the next block, or `None` after the last. A short read that is not at the end of the
    /// file is completed. Before the assumed end of the file, an end that the server reports counts
    /// only if the file's size confirms it.
    ///
    /// # Errors
    /// Errors of the server or of the mount; no block follows an error.
    pub fn next_block(&mut self) -> Result<Option<Block>> {
        self.ask_ahead();
        if self.in_flight.is_empty() && !self.ended {
            // The file has been read up to its assumed size; the server knows whether it has grown.
            self.ask();
        }
        let Some((offset, wanted, pending)) = self.in_flight.pop_front() else { return Ok(None) };
        let block = self.complete(offset, wanted, pending);
        if block.is_err() {
            self.end();
        }
        let block = block?;
        if block.len == 0 {
            return Ok(None);
        }
        Ok(Some(block))
    }

    /// Takes a buffer back for reuse.
    pub fn give_back(&mut self, buffer: impl Into<Buffer>) {
        let buffer = buffer.into();
        if self.spare.len() < self.depth && !buffer.is_registrable() {
            self.spare.push(buffer.into_vec());
        }
    }

    fn memory(&mut self, len: usize) -> Buffer {
        let Some(mut spare) = self.spare.pop() else { return self.mount.buffer(len) };
        spare.resize(len, 0);
        spare.into()
    }

    fn end(&mut self) {
        self.ended = true;
        self.in_flight.clear();
    }

    fn ask_ahead(&mut self) {
        while !self.ended && self.next < self.known_end && self.in_flight.len() < self.depth {
            self.ask();
        }
    }

    fn ask(&mut self) {
        let limit = if self.next < self.known_end { self.known_end } else { self.end };
        let left = usize::try_from(limit.saturating_sub(self.next)).unwrap_or(usize::MAX);
        let len = left.min(self.block_bytes);
        if len == 0 {
            self.ended = true;
            return;
        }
        let buffer = self.memory(len);
        let pending = self.read(buffer, self.next);
        self.in_flight.push_back((self.next, len, pending));
        self.next = self.next.saturating_add(len as u64);
    }

    fn read(&self, buffer: Buffer, offset: u64) -> Pending {
        self.mount.submit(Op::Read { file: self.file, offset, buffer })
    }

    fn complete(&mut self, offset: u64, wanted: usize, pending: Pending) -> Result<Block> {
        let done = pending.wait();
        let (mut len, mut eof) = counted(done.result?)?;
        let mut buffer = done.buffer;
        let mut empty = u32::from(len == 0);
        while len < wanted && !(eof && self.is_end(offset + len as u64)?) {
            if empty == EMPTY_READS_MAX {
                return Err(nothing_read(offset + len as u64));
            }
            let rest = self.read(self.mount.buffer(wanted - len), offset + len as u64).wait();
            let (more, ends) = counted(rest.result?)?;
            empty = if more == 0 { empty + 1 } else { 0 };
            if let (Some(to), Some(from)) = (buffer.get_mut(len..len + more), rest.buffer.get(..more)) {
                to.copy_from_slice(from);
            }
            len += more;
            eof = ends;
        }
        if eof && (len < wanted || offset + len as u64 >= self.known_end) {
            self.end();
        }
        Ok(Block { offset, len, buffer })
    }

    /// Whether the file ends at an offset at which the server reported its end.
    fn is_end(&self, offset: u64) -> Result<bool> {
        Ok(offset >= self.known_end || self.mount.attributes(self.file.handle)?.size <= offset)
    }
}

/// The error for READs that return no bytes within a file.
pub(crate) fn nothing_read(offset: u64) -> Error {
    let reason = format!("no bytes at offset {offset}, where the file does not end");
    Error::PeerMisbehaved { operation: "READ", reason }
}

fn counted(answer: Answer) -> Result<(usize, bool)> {
    match answer {
        Answer::Read { count, eof } => Ok((usize::try_from(count).unwrap_or(usize::MAX), eof)),
        Answer::Piped { .. } | Answer::Written | Answer::Results(_) => {
            Err(Error::Misuse("a READ answered as another call".into()))
        }
    }
}

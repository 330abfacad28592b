//! A file read from one place to another, block by block and in order, with many READs in flight.

use std::collections::VecDeque;

use fs::FileHandle;

use crate::call::{Answer, FileRef, Op};
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::slot::Pending;

/// One block of a file. Its buffer may be longer than what was read.
#[derive(Debug)]
pub struct Block {
    /// Where in the file it begins.
    pub offset: u64,
    /// Bytes of the buffer that are the file's.
    pub len: usize,
    /// The buffer.
    pub buffer: Vec<u8>,
}

impl Block {
    /// The file's bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

/// See the module's documentation. READs that are in flight when it is dropped go on and are
/// forgotten.
#[derive(Debug)]
pub struct Blocks {
    mount: Mount,
    file: FileRef,
    /// The next READ to be sent.
    next: u64,
    /// Where to stop asking ahead.
    known_end: u64,
    /// Where to stop in any case.
    end: u64,
    block_bytes: usize,
    depth: usize,
    in_flight: VecDeque<(u64, usize, Pending)>,
    spare: Vec<Vec<u8>>,
    ended: bool,
}

impl Mount {
    /// Reads a file over all paths from `start` to `end` or its own end, which is taken to be at
    /// `size`, with `depth` READs of `block_bytes` in flight; both are bounded to what the server
    /// takes and at least 1.
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
    /// The next block; none after the last. A short answer that is not the file's end is completed.
    ///
    /// # Errors
    /// The server's, or the mount's; nothing follows then.
    pub fn next_block(&mut self) -> Result<Option<Block>> {
        self.ask_ahead();
        if self.in_flight.is_empty() && !self.ended {
            // All that the file was said to have is read; whether it has grown, the server says.
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

    /// Takes a buffer back, to be used again.
    pub fn give_back(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < self.depth {
            self.spare.push(buffer);
        }
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
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(len, 0);
        let pending = self.read(buffer, self.next);
        self.in_flight.push_back((self.next, len, pending));
        self.next = self.next.saturating_add(len as u64);
    }

    fn read(&self, buffer: Vec<u8>, offset: u64) -> Pending {
        self.mount.submit(Op::Read { file: self.file, offset, buffer })
    }

    fn complete(&mut self, offset: u64, wanted: usize, pending: Pending) -> Result<Block> {
        let done = pending.wait();
        let (mut len, mut eof) = counted(done.result?)?;
        let mut buffer = done.buffer;
        while len < wanted && !eof {
            let rest = self.read(vec![0; wanted - len], offset + len as u64).wait();
            let (more, ends) = counted(rest.result?)?;
            if more == 0 && !ends {
                let reason = "no bytes, and no end of the file either".to_owned();
                return Err(Error::PeerMisbehaved { operation: "READ", reason });
            }
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
}

fn counted(answer: Answer) -> Result<(usize, bool)> {
    match answer {
        Answer::Read { count, eof } => Ok((usize::try_from(count).unwrap_or(usize::MAX), eof)),
        Answer::Piped { .. } | Answer::Written | Answer::Results(_) => {
            Err(Error::Misuse("a READ answered as another call".into()))
        }
    }
}

//! Copies the content of one file from its source to its sink.

use client::Block;

use crate::backend::{Sink, Source};
use crate::digest::{Digest, is_zero};
use crate::error::{Error, Result};
use crate::progress::Progress;

/// Blocks are searched for zeros in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// The state and options of copying one file's content.
#[derive(Debug)]
pub(crate) struct ContentCopy<'a> {
    /// Bytes before this offset are already in the sink. The source may still return them, to be
    /// hashed.
    pub from: u64,
    /// Whether pieces of zeros are left out, so that they become holes.
    pub sparse: bool,
    pub digest: Option<Digest>,
    /// Bytes that were added to the progress.
    pub counted: u64,
    pub progress: &'a Progress,
}

impl ContentCopy<'_> {
    /// Copies everything that the source returns, and waits for the writes.
    pub(crate) fn run(&mut self, source: &mut dyn Source, sink: &mut dyn Sink) -> Result<()> {
        while let Some(block) = source.next_block()? {
            if self.progress.is_stopped() {
                // Waits for the writes in flight, so that a later copy can resume after them.
                sink.drain()?;
                return Err(Error::Interrupted);
            }
            if let Some(digest) = &mut self.digest {
                digest.add(block.offset, block.data());
            }
            if block.offset + block.len as u64 <= self.from {
                source.give_back(block.buffer);
                continue;
            }
            Progress::add(&self.progress.bytes_done, block.len as u64);
            self.counted += block.len as u64;
            if self.sparse {
                self.write_data(block, source, sink)?;
            } else {
                let Block { offset, len, mut buffer } = block;
                buffer.truncate(len);
                sink.write(offset, buffer)?;
            }
            while let Some(buffer) = sink.spare() {
                source.give_back(buffer);
            }
        }
        sink.drain()
    }

    /// Writes the pieces of a block that are not all zeros, adjacent pieces in one write.
    fn write_data(&self, block: Block, source: &mut dyn Source, sink: &mut dyn Sink) -> Result<()> {
        let data = block.data();
        let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
        for (index, piece) in data.chunks(PIECE_BYTES).enumerate() {
            let (start, end) = (index * PIECE_BYTES, index * PIECE_BYTES + piece.len());
            match runs.last_mut() {
                _ if is_zero(piece) => {}
                Some(last) if last.end == start => last.end = end,
                _ => runs.push(start..end),
            }
        }
        if matches!(runs.as_slice(), [run] if run.len() == data.len()) {
            let Block { offset, len, mut buffer } = block;
            buffer.truncate(len);
            return sink.write(offset, buffer);
        }
        for run in runs {
            let at = block.offset + run.start as u64;
            sink.write(at, data.get(run).unwrap_or_default().to_vec().into())?;
        }
        source.give_back(block.buffer);
        Ok(())
    }
}

/// The hash of everything that a source returns.
pub(crate) fn digest(source: &mut dyn Source, progress: &Progress) -> Result<u128> {
    let mut digest = Digest::default();
    while let Some(block) = source.next_block()? {
        if progress.is_stopped() {
            return Err(Error::Interrupted);
        }
        digest.add(block.offset, block.data());
        source.give_back(block.buffer);
    }
    Ok(digest.finish())
}

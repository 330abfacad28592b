//! The bytes of one file, from its source to its sink.

use client::Block;

use crate::backend::{Sink, Source};
use crate::digest::{Digest, is_zero};
use crate::error::{Error, Result};
use crate::progress::Progress;

/// Zeros are looked for in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// What is wanted of a copy of contents.
#[derive(Debug)]
pub(crate) struct Filling<'a> {
    /// What lies before is there already; it may come from the source all the same, to be hashed.
    pub from: u64,
    /// Pieces of zeros are not written: they become holes.
    pub sparse: bool,
    pub digest: Option<Digest>,
    /// Bytes that were counted as done.
    pub counted: u64,
    pub progress: &'a Progress,
}

impl Filling<'_> {
    /// Copies all that the source gives, and waits until it is stable.
    pub(crate) fn fill(&mut self, source: &mut dyn Source, sink: &mut dyn Sink) -> Result<()> {
        while let Some(block) = source.next_block()? {
            if self.progress.is_stopped() {
                // What is under way may still be stable, for the copy that takes it up.
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

    /// Writes the pieces of a block that are not all zeros, neighbours together.
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
            sink.write(at, data.get(run).unwrap_or_default().to_vec())?;
        }
        source.give_back(block.buffer);
        Ok(())
    }
}

/// The hash of all that a source gives.
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

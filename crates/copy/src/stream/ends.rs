//! The two ends of a stream: input and output.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};

use client::{Block, Buffer};
use rustix::event::PollFlags;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::{Stream, wait};
use crate::error::{Error, Result};

/// The maximum size of one write. A slow reader would only block a larger one for longer.
const PIECE_BYTES: usize = 64 << 10;
/// The content of a hole.
static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// A stream that is read to its end.
#[derive(Debug)]
pub(crate) struct Input {
    file: File,
    next: u64,
    block_bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Input {
    /// Opens a stream. All blocks except the last have this many bytes.
    pub(crate) fn open(of: &Stream, block_bytes: usize, stopped: &dyn Fn() -> bool) -> Result<Self> {
        let file = of.open(OFlags::RDONLY, stopped)?;
        Ok(Self { file, next: 0, block_bytes, spare: Vec::new() })
    }

    /// The next block; `None` at the end.
    pub(crate) fn fill(&mut self, stopped: &dyn Fn() -> bool) -> Result<Option<Block>> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(self.block_bytes, 0);
        let mut len = 0;
        while len < self.block_bytes {
            // Also necessary because a pipe without a writer reads as if it had ended.
            wait(&self.file, PollFlags::IN, stopped)?;
            match self.file.read(buffer.get_mut(len..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(got) => len += got,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(Error::local("cannot read it")(error)),
            }
        }
        let offset = self.next;
        self.next += len as u64;
        Ok((len > 0).then_some(Block { offset, len, buffer: buffer.into() }))
    }

    /// Takes back a buffer for reuse.
    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        // Other memory returns to the mount that it is from.
        if !buffer.is_registrable() {
            self.spare.push(buffer.into_vec());
        }
    }
}

/// A stream that is written from its beginning.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    written: u64,
}

impl Output {
    pub(crate) fn open(of: &Stream, stopped: &dyn Fn() -> bool) -> Result<Self> {
        Ok(Self { file: of.open(OFlags::WRONLY, stopped)?, written: 0 })
    }

    /// Appends all data.
    pub(crate) fn write(&mut self, data: &[u8], stopped: &dyn Fn() -> bool) -> Result<()> {
        let mut left = data;
        while !left.is_empty() {
            wait(&self.file, PollFlags::OUT, stopped)?;
            match self.file.write(left.get(..PIECE_BYTES).unwrap_or(left)) {
                Ok(0) => return Err(Error::local("cannot write it")(ErrorKind::WriteZero.into())),
                Ok(write) => {
                    self.written += write as u64;
                    left = left.get(write..).unwrap_or_default();
                }
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    return Err(Error::ReaderLeft(self.written));
                }
                Err(error) => return Err(Error::local("cannot write it")(error)),
            }
        }
        Ok(())
    }

    /// Appends zeros up to this offset.
    pub(crate) fn write_zeros(&mut self, up_to: u64, stopped: &dyn Fn() -> bool) -> Result<()> {
        while self.written < up_to {
            let left = usize::try_from(up_to - self.written).unwrap_or(usize::MAX);
            self.write(ZEROS.get(..left).unwrap_or(&ZEROS), stopped)?;
        }
        Ok(())
    }

    /// Waits until the data are on disk, if the stream is a file or a block device.
    pub(crate) fn flush(&self) -> Result<()> {
        let failed = Error::local("cannot write it to the disk");
        let stat = rustix::fs::fstat(&self.file).map_err(|error| failed(error.into()))?;
        if !matches!(FileType::from_raw_mode(stat.st_mode), FileType::BlockDevice | FileType::RegularFile) {
            return Ok(());
        }
        match rustix::fs::fsync(&self.file) {
            // Not every device supports fsync.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP | Errno::ROFS) => Ok(()),
            Err(error) => Err(failed(error.into())),
        }
    }
}

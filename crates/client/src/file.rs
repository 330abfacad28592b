//! A file of a mount: reads and writes at an offset.

use fs::{Attributes, CreateMode, FileHandle, FileKind, SetAttributes, Status};

use crate::blocks::nothing_read;
use crate::buffer::Buffer;
use crate::call::{Answer, FileRef, Op};
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::slot::Pending;

/// Operations of one large read or write in flight at once.
const PIPELINE_DEPTH: usize = 16;

/// An open file. NFS version 3 has no open: this is only a handle and a placement on a node.
#[derive(Debug)]
pub struct File {
    mount: Mount,
    file: FileRef,
}

impl Mount {
    /// Opens an existing file.
    ///
    /// # Errors
    /// Errors of the server or of the mount.
    pub fn open(&self, path: &[u8]) -> Result<File> {
        let (handle, attributes) = self.resolve(path)?;
        if attributes.kind == FileKind::Directory {
            return Err(Error::Status { operation: "OPEN", status: Status::IsDirectory });
        }
        Ok(File { mount: self.clone(), file: self.file_ref(handle) })
    }

    /// Creates a file, or truncates an existing one.
    ///
    /// # Errors
    /// Errors of the server or of the mount.
    pub fn create_file(&self, path: &[u8], mode: u32) -> Result<File> {
        let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => {
                let (directory, name) = path.split_at(at);
                (self.resolve(directory)?.0, name.get(1..).unwrap_or_default())
            }
            None => (self.root(), path),
        };
        let how = CreateMode::Unchecked(SetAttributes { size: Some(0), ..SetAttributes::mode(mode) });
        let (handle, _) = self.create(directory, name, how)?;
        Ok(File { mount: self.clone(), file: self.file_ref(handle) })
    }
}

impl File {
    /// The file's handle.
    #[must_use]
    pub const fn handle(&self) -> FileHandle {
        self.file.handle
    }

    /// The reference to the file that a [`crate::Task`] uses.
    #[must_use]
    pub const fn file_ref(&self) -> FileRef {
        self.file
    }

    /// The file's attributes, fetched from the server.
    ///
    /// # Errors
    /// Errors of the server or of the mount.
    pub fn attributes(&self) -> Result<Attributes> {
        self.mount.attributes(self.file.handle)
    }

    /// Sends one READ of `buffer.len()` bytes, at most `rsize`. A buffer of this length is returned
    /// with the outcome, see [`Op`]. Over RDMA a buffer of [`Mount::buffer`] saves a copy.
    pub fn read_at(&self, buffer: impl Into<Buffer>, offset: u64) -> Pending {
        let buffer = buffer.into();
        self.mount.submit(Op::Read { file: self.file, offset, buffer })
    }

    /// Sends one WRITE of the whole of `buffer`, at most `wsize` bytes. The buffer is returned when
    /// the data are stable. Over RDMA a buffer of [`Mount::buffer`] saves a copy.
    pub fn write_at(&self, buffer: impl Into<Buffer>, offset: u64) -> Pending {
        let buffer = buffer.into();
        self.mount.submit(Op::Write { file: self.file, offset, buffer })
    }

    /// Reads until `into` is full or the file ends. Blocks, and reads in pieces of `rsize` over all
    /// paths.
    ///
    /// # Errors
    /// The first error of a piece; a READ that returns no bytes where the file does not end is one.
    pub fn read_all_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        let piece = self.mount.transfer_sizes().0 as usize;
        let mut done = 0;
        for batch in into.chunks_mut(piece * PIPELINE_DEPTH) {
            let starts = (0..batch.len()).step_by(piece).map(|at| (at, (batch.len() - at).min(piece)));
            let pending: Vec<(usize, usize, Pending)> = starts
                .map(|(at, len)| (at, len, self.read_at(self.mount.buffer(len), offset + (done + at) as u64)))
                .collect();
            let batch_start = done;
            let mut ended = false;
            for (at, len, pending) in pending {
                let outcome = pending.wait();
                let Answer::Read { count, .. } = outcome.result? else { continue };
                let mut have = count as usize;
                if let (Some(target), Some(data)) = (batch.get_mut(at..at + have), outcome.buffer.get(..have))
                {
                    target.copy_from_slice(data);
                }
                // A short read that is not at the end of the file: the rest is requested
                // separately.
                while have < len && !ended {
                    let rest = self
                        .read_at(self.mount.buffer(len - have), offset + (batch_start + at + have) as u64)
                        .wait();
                    let Answer::Read { count, eof } = rest.result? else { break };
                    let got = count as usize;
                    if let (Some(target), Some(data)) =
                        (batch.get_mut(at + have..at + have + got), rest.buffer.get(..got))
                    {
                        target.copy_from_slice(data);
                    }
                    have += got;
                    if eof {
                        break;
                    }
                    if got == 0 {
                        return Err(nothing_read(offset + (batch_start + at + have) as u64));
                    }
                }
                if !ended {
                    done = batch_start + at + have;
                }
                ended |= have < len;
            }
            if ended {
                break;
            }
        }
        Ok(done)
    }

    /// Writes all of `data`. Blocks, and writes in pieces of `wsize` over all paths. On return the
    /// data are stable.
    ///
    /// # Errors
    /// The first error of a piece; some of the data may then be written and some not.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let piece = self.mount.transfer_sizes().1 as usize;
        for (index, batch) in data.chunks(piece * PIPELINE_DEPTH).enumerate() {
            let start = offset + (index * piece * PIPELINE_DEPTH) as u64;
            let pending: Vec<Pending> = batch
                .chunks(piece)
                .enumerate()
                .map(|(at, chunk)| {
                    let mut buffer = self.mount.buffer(chunk.len());
                    buffer.copy_from_slice(chunk);
                    self.write_at(buffer, start + (at * piece) as u64)
                })
                .collect();
            let outcomes: Vec<Result<Answer>> =
                pending.into_iter().map(|pending| pending.wait().result).collect();
            outcomes.into_iter().collect::<Result<Vec<_>>>()?;
        }
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.mount.release(&self.file);
    }
}

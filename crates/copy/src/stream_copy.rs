//! Copies that begin or end at a stream: in order, and of a length that is unknown before the end.
//! Like every copied file, a file copied from a stream has a temporary name until it is complete.

use client::{Block, Buffer};

use crate::Options;
use crate::backend::{Sink, Source, TransferOptions};
use crate::content::{ContentCopy, digest};
use crate::digest::Digest;
use crate::endpoints::{Destination, Origin};
use crate::entry::{Entry, NewAttributes, describe, is_replaceable_by_file};
use crate::error::{Error, Result};
use crate::job::{Context, DEPTH_MAX, IN_FLIGHT_BYTES_MAX};
use crate::progress::Progress;
use crate::run::Outcome;
use crate::stream::{Input, Output, Stream};
use crate::temporary::temporary_name;
use fs::{Attributes, FileKind};

/// The mode of a file copied from a stream, before the umask: what programs usually request.
const MODE: u32 = 0o666;

/// Copies one file into a stream; compare [`crate::copy`]. The length and the attributes of an
/// existing object do not change. The copy can be neither verified nor resumed.
///
/// # Errors
/// If the options ask for something that a stream cannot do.
pub fn copy_to_stream(
    from: &Origin,
    onto: &Stream,
    options: &Options,
    progress: &Progress,
) -> Result<Outcome> {
    if options.verify {
        let describe = "nothing that was written to it can be read back";
        return Err(Error::Conflict(describe.to_owned()));
    }
    let copied = match from.kind() {
        FileKind::Regular => copy_file_to_stream(from, onto, options, progress),
        kind => Err(Error::Conflict(format!("it is {}, which no stream can take", describe(kind)))),
    };
    match copied {
        Ok(()) => Progress::add(&progress.files_done, 1),
        Err(error) => progress.fail(from.display_name(), error),
    }
    Ok(crate::run::outcome(progress))
}

fn copy_file_to_stream(from: &Origin, onto: &Stream, options: &Options, progress: &Progress) -> Result<()> {
    let size = from.size();
    let transfer = transfer(from.directory.block_bytes());
    let mut source = from.directory.open(&from.entry, 0, transfer)?;
    let stopped = || progress.is_stopped();
    let mut output = Output::open(onto, &stopped)?;
    while let Some(Block { offset, len, buffer }) = source.next_block()? {
        output.write_zeros(offset, &stopped)?;
        output.write(buffer.get(..len).unwrap_or_default(), &stopped)?;
        Progress::add(&progress.bytes_done, len as u64);
        source.give_back(buffer);
    }
    output.write_zeros(size, &stopped)?;
    let (was, now) = (&from.entry.attributes, source.attributes()?);
    if (now.size, now.mtime) != (was.size, was.mtime) {
        return Err(Error::Changed);
    }
    if options.sync { output.flush() } else { Ok(()) }
}

fn transfer(block_bytes: usize) -> TransferOptions {
    let block_bytes = block_bytes.max(1);
    TransferOptions {
        block_bytes,
        depth: (IN_FLIGHT_BYTES_MAX / block_bytes).clamp(1, DEPTH_MAX),
        spread: true,
    }
}

impl Context<'_> {
    /// Reads a stream to its end into a file of this name.
    pub(crate) fn copy_from_stream(&self, from: &Stream, onto: &Destination, name: &[u8]) -> Result<()> {
        let directory = &onto.directory;
        if self.options.resume {
            return Err(Error::Conflict("what was read from it cannot be read again to go on".to_owned()));
        }
        if let Some(found) = directory.find(name)?
            && !is_replaceable_by_file(found.attributes.kind)
        {
            return Err(Error::Conflict(format!(
                "a file cannot replace {}",
                describe(found.attributes.kind)
            )));
        }
        let transfer = transfer(directory.block_bytes());
        let _reservation = self.budget.take(2 * transfer.depth * transfer.block_bytes);
        let stopped = || self.progress.is_stopped();
        let input = Input::open(from, transfer.block_bytes, &stopped)?;
        let temporary = temporary_name(&Entry::of_stream(), name, directory.boot_matters());
        let mut sink = directory.create(&temporary, transfer)?;
        let filled =
            self.copy_input(input, sink.as_mut(), transfer).and_then(|()| directory.rename(&temporary, name));
        if filled.is_err() {
            drop(sink);
            // Report the first error, not this one.
            let _ = directory.remove(&temporary);
        }
        filled
    }

    fn copy_input(&self, input: Input, sink: &mut dyn Sink, transfer: TransferOptions) -> Result<()> {
        let mut input_source = InputSource { input, progress: self.progress };
        let mut content_copy = ContentCopy {
            from: 0,
            sparse: false,
            digest: self.options.verify.then(Digest::default),
            counted: 0,
            progress: self.progress,
        };
        content_copy.run(&mut input_source, sink)?;
        let size = content_copy.counted;
        if let Some(wanted) = content_copy.digest.take() {
            let mut back = sink.read_back(size, transfer)?;
            if digest(back.as_mut(), self.progress)? != wanted.finish() {
                return Err(Error::Damaged);
            }
        }
        let mode = MODE & !self.options.umask;
        sink.finish(size, NewAttributes { mode: Some(mode), ..NewAttributes::default() }, self.options.sync)
    }
}

/// A stream as the source of a file.
#[derive(Debug)]
struct InputSource<'a> {
    input: Input,
    progress: &'a Progress,
}

impl Source for InputSource<'_> {
    fn next_block(&mut self) -> Result<Option<Block>> {
        self.input.fill(&|| self.progress.is_stopped())
    }

    fn give_back(&mut self, buffer: Buffer) {
        self.input.give_back(buffer);
    }

    fn attributes(&self) -> Result<Attributes> {
        Ok(Entry::of_stream().attributes)
    }
}

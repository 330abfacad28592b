//! Copies that begin or end at a stream: in order, and of a length that is unknown before the end.
//! Like every copied file, a file copied from a stream has a temporary name until it is complete.

use client::Block;

use crate::Options;
use crate::backend::{Shape, Sink, Source};
use crate::content::{Filling, digest};
use crate::digest::Digest;
use crate::entry::{Entry, NewAttributes, gives_way_to_a_file, words};
use crate::error::{Error, Result};
use crate::job::{Context, DEPTH_MAX, FLIGHT_BYTES};
use crate::progress::Progress;
use crate::run::Outcome;
use crate::spot::{Destination, Origin};
use crate::stream::{Input, Output, Stream};
use crate::temporary::name_of;
use fs::{Attributes, FileKind};

/// The mode of a file copied from a stream, before the umask: what programs usually request.
const MODE: u32 = 0o666;

/// Copies one file into a stream; compare [`crate::copy`]. The length and the attributes of an
/// existing object do not change. The copy can be neither verified nor resumed.
///
/// # Errors
/// If the options ask for something that a stream cannot do.
pub fn pour(from: &Origin, onto: &Stream, options: &Options, progress: &Progress) -> Result<Outcome> {
    if options.verify {
        let words = "nothing that was written to it can be read back";
        return Err(Error::Conflict(words.to_owned()));
    }
    let poured = match from.kind() {
        FileKind::Regular => pour_file(from, onto, options, progress),
        kind => Err(Error::Conflict(format!("it is {}, which no stream can take", words(kind)))),
    };
    match poured {
        Ok(()) => Progress::add(&progress.files_done, 1),
        Err(error) => progress.fail(from.place(), error),
    }
    Ok(crate::run::outcome(progress))
}

fn pour_file(from: &Origin, onto: &Stream, options: &Options, progress: &Progress) -> Result<()> {
    let size = from.size();
    let shape = shape(from.folder.block_bytes());
    let mut source = from.folder.open(&from.entry, 0, shape)?;
    let stopped = || progress.is_stopped();
    let mut output = Output::open(onto, &stopped)?;
    while let Some(Block { offset, len, buffer }) = source.next_block()? {
        output.put_zeros(offset, &stopped)?;
        output.put(buffer.get(..len).unwrap_or_default(), &stopped)?;
        Progress::add(&progress.bytes_done, len as u64);
        source.give_back(buffer);
    }
    output.put_zeros(size, &stopped)?;
    let (was, now) = (&from.entry.attributes, source.attributes()?);
    if (now.size, now.mtime) != (was.size, was.mtime) {
        return Err(Error::Changed);
    }
    if options.sync { output.flush() } else { Ok(()) }
}

fn shape(block_bytes: usize) -> Shape {
    let block_bytes = block_bytes.max(1);
    Shape { block_bytes, depth: (FLIGHT_BYTES / block_bytes).clamp(1, DEPTH_MAX), spread: true }
}

impl Context<'_> {
    /// Reads a stream to its end into a file of this name.
    pub(crate) fn copy_stream(&self, from: &Stream, onto: &Destination, name: &[u8]) -> Result<()> {
        let folder = &onto.folder;
        if self.options.resume {
            return Err(Error::Conflict("what was read from it cannot be read again to go on".to_owned()));
        }
        if let Some(found) = folder.find(name)?
            && !gives_way_to_a_file(found.attributes.kind)
        {
            return Err(Error::Conflict(format!("a file cannot replace {}", words(found.attributes.kind))));
        }
        let shape = shape(folder.block_bytes());
        let _share = self.budget.take(2 * shape.depth * shape.block_bytes);
        let stopped = || self.progress.is_stopped();
        let input = Input::open(from, shape.block_bytes, &stopped)?;
        let temporary = name_of(&Entry::of_stream(), name, folder.boot_matters());
        let mut sink = folder.create(&temporary, shape)?;
        let filled =
            self.fill_from(input, sink.as_mut(), shape).and_then(|()| folder.rename(&temporary, name));
        if filled.is_err() {
            drop(sink);
            // Report the first error, not this one.
            let _ = folder.remove(&temporary);
        }
        filled
    }

    fn fill_from(&self, input: Input, sink: &mut dyn Sink, shape: Shape) -> Result<()> {
        let mut reading = Reading { input, progress: self.progress };
        let mut filling = Filling {
            from: 0,
            sparse: false,
            digest: self.options.verify.then(Digest::default),
            counted: 0,
            progress: self.progress,
        };
        filling.fill(&mut reading, sink)?;
        let size = filling.counted;
        if let Some(wanted) = filling.digest.take() {
            let mut back = sink.read_back(size, shape)?;
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
struct Reading<'a> {
    input: Input,
    progress: &'a Progress,
}

impl Source for Reading<'_> {
    fn next_block(&mut self) -> Result<Option<Block>> {
        self.input.fill(&|| self.progress.is_stopped())
    }

    fn give_back(&mut self, buffer: Vec<u8>) {
        self.input.give_back(buffer);
    }

    fn attributes(&self) -> Result<Attributes> {
        Ok(Entry::of_stream().attributes)
    }
}

//! Local ends of a copy that are not files: `-`, pipes, devices and descriptors.

use super::{CpArgs, remote};
use crate::error::Error;
use crate::output::STDOUT;
use ::copy::{Options, Origin, Outcome, Progress, Stream};
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::path::Path;

/// The stream that an argument names as a destination.
pub fn onto(argument: &OsStr) -> Option<Stream> {
    match remote(argument) {
        Some(_) => None,
        None if argument == STDOUT => Some(Stream::standard_output()),
        None => Stream::named(Path::new(argument)),
    }
}

/// The stream that an argument names as a source. With -r, pipes and devices are recreated, not
/// read.
pub fn from(argument: &OsStr, recursive: bool) -> Option<Stream> {
    match remote(argument) {
        None if argument == STDOUT => Some(Stream::standard_input()),
        None if !recursive => Stream::named_source(Path::new(argument)),
        _ => None,
    }
}

/// Refuses what streams do not support, before anything is read or written.
pub fn check(args: &CpArgs, sources: &[OsString], last: &OsStr) -> Result<(), Error> {
    let recursive = args.recursive || args.archive;
    let usage = |cause: String, advice: &str| {
        let sentence = "cannot copy like this".to_owned();
        Err(Error::Usage { sentence, cause, advice: advice.to_owned() })
    };
    let dashes = sources.iter().filter(|source| *source == STDOUT).count();
    if dashes > 1 {
        return usage("standard input can be read once".to_owned(), "one -");
    }
    if dashes > 0 && recursive {
        return usage("standard input is one file, and no tree for -r".to_owned(), "leave out -r and -a");
    }
    if let Some(stream) = sources.iter().find_map(|source| from(source, recursive)).filter(|_| args.resume) {
        let cause = format!("{} cannot be read again from where a copy ended", stream.display_name());
        return usage(cause, "leave out --resume");
    }
    let Some(stream) = onto(last) else { return Ok(()) };
    let name = stream.display_name();
    if recursive {
        return usage(format!("{name} takes one file, and no tree"), "a directory, or leave out -r and -a");
    }
    if sources.len() > 1 {
        return usage(format!("{name} takes one file"), "trunkline cat        for several after each other");
    }
    if args.verify {
        let cause = format!("what was written to {name} cannot be read back to be compared");
        return usage(cause, "leave out --verify");
    }
    if args.resume {
        let cause = format!("what was written to {name} cannot be taken up again");
        return usage(cause, "leave out --resume, or trunkline cat --offset");
    }
    Ok(())
}

/// Copies the only source, if it was found, into a stream.
pub fn copy_to_stream(
    sources: &[Origin],
    onto: &Stream,
    options: &Options,
    progress: &Progress,
    planned: &mut dyn FnMut(&str),
) -> ::copy::Result<Outcome> {
    let Some(from) = sources.first() else { return Ok(Outcome::Partial) };
    if options.dry_run {
        planned(&format!("{} -> {}", from.display_name(), onto.display_name()));
        return Ok(Outcome::Whole);
    }
    ::copy::copy_to_stream(from, onto, options, progress)
}

/// Whether the progress of a copy would be mixed with its output.
pub fn takes_terminal(last: &OsStr) -> bool {
    onto(last).as_ref().is_some_and(Stream::is_standard_output) && io::stdout().is_terminal()
}

//! `trunkline cp`: copies files and trees to, from and between servers, over all paths at once.

mod show;
mod streams;

use crate::error::{Error, copy_advice};
use crate::output;
use crate::remote::{LOCATION_HELP, Location, MountArgs, is_remote};
use crate::signals::SignalWatch;
use ::copy::{Destination, Exclude, Options, Origin, Outcome, Progress, Stream};
use clap::{Args, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The maximum number of failures reported at the end; -v reports each as it happens.
const FAILURES_SHOWN: usize = 20;

/// Copy files and trees to, from and between NFS servers.
#[derive(Debug, Args)]
#[command(
    override_usage = "trunkline cp [OPTIONS] SOURCE... DEST",
    long_about = format!(
        "Copy files and trees to, from and between NFS servers.\n\nFiles are copied over all connections and \
        addresses, many at once, under a temporary name until they are complete and stable. Files that fail are \
        skipped and reported at the end.\n\n{LOCATION_HELP} Any other argument is a local file, and - is standard input or \
        standard output. Pipes, devices and - are read and written in order, as cp does, and never replaced."
    ),
    after_help = EXAMPLES
)]
pub struct CpArgs {
    /// The sources and, last, the destination: an existing directory, or a name in one; - is
    /// standard input or output.
    #[arg(value_name = "PLACE", num_args = 2.., required = true)]
    places: Vec<OsString>,
    #[command(flatten)]
    mount: MountArgs,
    /// Copy directories with their contents; symbolic links, pipes and devices are recreated.
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Same as -r --preserve=all.
    #[arg(short, long)]
    archive: bool,
    /// Attributes to preserve; set-user-ID and set-group-ID bits and permissions of devices are
    /// preserved only with the owner.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_values = ["mode", "times", "links"])]
    preserve: Vec<Preserve>,
    /// Read each copy back and compare it with its source by hash before it gets its name.
    #[arg(long)]
    verify: bool,
    /// Continue an interrupted copy: skip files that exist with the same size and time, and
    /// continue partial files.
    #[arg(long)]
    resume: bool,
    /// Do not wait until local files are on disk before they get their names.
    #[arg(long)]
    no_sync: bool,
    /// Leave out names that match, with everything in them; repeat for more. A PATTERN without a
    /// slash is compared with each name, one with a slash with the path below the source; a slash
    /// at its end stands for directories only. * and ? match no slash, ** does.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Change nothing; print what would be copied where.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Number of files to copy at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    files: u16,
}

/// An attribute to preserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Preserve {
    /// Permissions; without this, the source's without the umask.
    Mode,
    /// Times of last access and last change.
    #[value(alias = "timestamps")]
    Times,
    /// Owner and group, if this user may set them.
    #[value(alias = "ownership")]
    Owner,
    /// Hard links.
    Links,
    /// All of these.
    All,
    /// None of these.
    None,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline cp -r projects nas:/data/backup\n  \
    trunkline cp --verify 'nfs://10.0.0.1/data/disk.img?nconnect=8&remoteports=10.0.0.1-10.0.0.4' /var/tmp\n  \
    trunkline cp -r --exclude '*.o' --exclude /target/ project nas:/data/backup\n  \
    trunkline cp -a --resume nas:/data/ 'nfs://10.0.0.9:2050/export/copy'\n  \
    tar -c projects | trunkline cp - nas:/data/projects.tar\n  \
    trunkline cp nas:/data/projects.tar - | tar -x";

impl CpArgs {
    fn options(&self) -> Result<Options, Error> {
        let exclude = Exclude::new(self.exclude.iter().map(String::as_str));
        let exclude = exclude.map_err(|cause| Error::Usage {
            sentence: "cannot copy like this".to_owned(),
            cause,
            advice: "--exclude '*.o', --exclude /build/        as in trunkline cp --help".to_owned(),
        })?;
        let has =
            |what| self.archive || self.preserve.contains(&what) || self.preserve.contains(&Preserve::All);
        Ok(Options {
            recursive: self.recursive || self.archive,
            mode: has(Preserve::Mode),
            umask: umask(),
            times: has(Preserve::Times),
            owner: has(Preserve::Owner),
            links: has(Preserve::Links),
            verify: self.verify,
            resume: self.resume,
            sync: !self.no_sync,
            dry_run: self.dry_run,
            files_at_once: usize::from(self.files),
            exclude,
        })
    }
}

/// Reads the umask, which is only possible by setting it; no file has been created yet.
pub fn umask() -> u32 {
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(umask);
    umask.as_raw_mode()
}

/// The text of an argument that is a place on a server.
fn remote(argument: &OsStr) -> Option<&str> {
    argument.to_str().filter(|text| is_remote(text))
}

/// The destination of a copy.
enum CopyTarget {
    Location(Destination),
    Stream(Stream),
}

/// Copies, shows the progress, and reports failures.
pub fn run(args: &CpArgs) -> Result<ExitCode, Error> {
    let Some((last, sources)) = args.places.split_last() else { return Ok(ExitCode::FAILURE) };
    check_usage(args, sources, last)?;
    let options = args.options()?;
    let onto = match streams::onto(last) {
        Some(stream) => CopyTarget::Stream(stream),
        None => CopyTarget::Location(destination(last, &args.mount.joined())?),
    };
    let progress = Arc::new(Progress::default());
    let sources = origins(args, sources, options.recursive, &progress)?;
    let stopped = Arc::clone(&progress);
    let watch = SignalWatch::start(move || stopped.stop())?;
    let streams = matches!(onto, CopyTarget::Stream(_)) || sources.iter().any(Origin::is_stream);
    let shown = io::stderr().is_terminal() && !options.dry_run && !streams::takes_terminal(last);
    let bar = show::Bar::start(shown, &progress);
    let mut print_error = None;
    let mut planned = |line: &str| {
        if print_error.is_none() {
            print_error = output::print(&format!("{}\n", crate::names::escaped(line.as_bytes()))).err();
        }
    };
    let outcome = match &onto {
        CopyTarget::Location(onto) => ::copy::copy(&sources, onto, &options, &progress, shown, &mut planned),
        CopyTarget::Stream(onto) => {
            streams::copy_to_stream(&sources, onto, &options, &progress, &mut planned)
        }
    };
    bar.finish(!options.dry_run && !streams::takes_terminal(last));
    let signal = watch.end();
    if let Some(error) = print_error {
        return Err(error);
    }
    let outcome = outcome.map_err(|cause| Error::Copy {
        sentence: format!("cannot copy to {}", last.display()),
        cause: Box::new(cause),
    })?;
    if outcome == Outcome::Stopped {
        return Err(interrupted(&progress, signal, streams));
    }
    report_failures(&progress)
}

fn check_usage(args: &CpArgs, sources: &[OsString], last: &OsStr) -> Result<(), Error> {
    let usage = |cause: &str, advice: &str| {
        Err(Error::Usage {
            sentence: "cannot copy like this".to_owned(),
            cause: cause.to_owned(),
            advice: advice.to_owned(),
        })
    };
    if remote(last).is_none() && sources.iter().any(|source| remote(source).is_none()) {
        return usage(
            "source and destination are both on this machine",
            "cp, or nfs://HOST/EXPORT/PATH for one of them",
        );
    }
    streams::check(args, sources, last)?;
    if args.preserve.contains(&Preserve::None) && args.preserve.len() > 1 {
        return usage("--preserve=none excludes all others", "trunkline cp --help");
    }
    if args.resume
        && !args.archive
        && !args.preserve.iter().any(|what| matches!(what, Preserve::Times | Preserve::All))
    {
        return usage("--resume knows whole copies by their times", "--preserve=times besides");
    }
    Ok(())
}

fn destination(argument: &OsStr, options: &str) -> Result<Destination, Error> {
    let cannot = |cause| Error::Copy {
        sentence: format!("cannot copy to {}", argument.display()),
        cause: Box::new(cause),
    };
    match remote(argument) {
        Some(target) => {
            let location = Location::open(target, options)?;
            Destination::remote(&location.mount, &location.path, &location.name).map_err(cannot)
        }
        None => Destination::local(Path::new(argument)).map_err(cannot),
    }
}

/// The sources. Those that cannot be found are recorded and left out, unless there are no others.
fn origins(
    args: &CpArgs,
    sources: &[OsString],
    recursive: bool,
    progress: &Progress,
) -> Result<Vec<Origin>, Error> {
    let mut found = Vec::new();
    for source in sources {
        let origin = match remote(source) {
            Some(target) => {
                let location = Location::open(target, &args.mount.joined())?;
                Origin::remote(&location.mount, &location.path, &location.name, !recursive)
            }
            None => match streams::from(source, recursive) {
                Some(stream) if source == output::STDOUT => Ok(Origin::stream(&stream, None)),
                _ => Origin::local(Path::new(source), !recursive),
            },
        };
        match origin {
            Ok(origin) => found.push(origin),
            Err(error) => progress.fail(&source.to_string_lossy(), error),
        }
    }
    Ok(found)
}

fn interrupted(progress: &Progress, signal: i32, streams: bool) -> Error {
    let done = progress.files_done.load(Ordering::SeqCst);
    Error::Interrupted {
        cause: format!(
            "a signal came when {done} files and directories were copied; no partial file has its name"
        ),
        // What went through a pipe can be neither read nor written again.
        advice: if streams {
            "the same command again".to_owned()
        } else {
            "the same command with --resume        to go on from there".to_owned()
        },
        signal: u8::try_from(signal).unwrap_or_default(),
    }
}

fn report_failures(progress: &Progress) -> Result<ExitCode, Error> {
    let failed = progress.failed.load(Ordering::SeqCst);
    let mut failures = progress.take_failures();
    if failed == 1
        && let Some(only) = failures.pop()
    {
        let sentence = format!("cannot copy {}", crate::names::escaped(only.display_name.as_bytes()));
        return Err(Error::Copy { sentence, cause: Box::new(only.error) });
    }
    if failed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let mut causes: String = failures
        .iter()
        .take(FAILURES_SHOWN)
        .map(|failure| {
            let location = crate::names::escaped(failure.display_name.as_bytes());
            format!("\n  cause: {location}: {}", failure.error)
        })
        .collect();
    let left = failed.saturating_sub(FAILURES_SHOWN as u64);
    if left > 0 {
        causes.push_str(&format!("\n  cause: and {left} more; -v tells each"));
    }
    let done = progress.files_done.load(Ordering::SeqCst) + progress.files_skipped.load(Ordering::SeqCst);
    let sentence = format!("cannot copy {failed} of {} files and directories", failed + done);
    let advice = failures.first().map_or_else(String::new, |failure| copy_advice(&failure.error));
    Err(Error::CopiedInPart { sentence, causes, advice })
}

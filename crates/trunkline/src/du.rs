//! `trunkline du`: the space that trees of a server use, listed over many connections at once.

use crate::error::Error;
use crate::human::blocks;
use crate::remote::{LOCATION_HELP, Location, MountArgs};
use crate::tree::{self, Entry, Failure, LeaveOutcome, Node, Visitor};
use crate::{names, output};
use clap::{ArgAction, Args};
use fs::{Attributes, FileKind};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Show how much space files and directories of an NFS server use.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    long_about = format!(
        "Show how much space files and directories of an NFS server use, with all that is in them.\n\nA file with \
        several names within a place counts once. Directories are listed by many threads at once, so the order of lines \
        differs from run to run; a directory always comes after what is in it.\n\n{LOCATION_HELP}"
    ),
    after_help = EXAMPLES
)]
pub struct DuArgs {
    /// What to measure: nfs://HOST/EXPORT/PATH or HOST:/EXPORT/PATH.
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,
    #[command(flatten)]
    mount: MountArgs,
    /// Show only the total of each place.
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Show files too, not only directories.
    #[arg(short, long)]
    all: bool,
    /// Show what is at most so many levels below a place.
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Show sizes in powers of 1024 with their unit, such as 1.5G, instead of blocks of 1 KiB.
    #[arg(short, long)]
    human_readable: bool,
    /// Show the length of files instead of the space that they use.
    #[arg(long)]
    apparent_size: bool,
    /// Show the total of all places at the end.
    #[arg(short = 'c', long)]
    total: bool,
    /// A JSON object for each line: path and bytes.
    #[arg(long, conflicts_with = "human_readable")]
    json: bool,
    /// Print help (-h is --human-readable).
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline du -sh nas:/data/projects\n  \
    trunkline du -h -d 1 'nfs://10.0.0.1/data?nconnect=8'\n  \
    trunkline du --json -a nas:/data | jq -r 'select(.bytes > 1e9).path'";

impl DuArgs {
    fn depth(&self) -> usize {
        if self.summarize { 0 } else { self.max_depth.unwrap_or(usize::MAX) }
    }

    fn bytes(&self, of: &Attributes) -> u64 {
        match of.kind {
            _ if !self.apparent_size => of.used,
            // As du(1): the length of a directory or a device says nothing.
            FileKind::Regular | FileKind::Symlink => of.size,
            _ => 0,
        }
    }

    fn line(&self, path: &[u8], bytes: u64) -> Vec<u8> {
        let mut line = if self.json {
            let mut object = Map::new();
            names::put(&mut object, "path", path);
            object.insert("bytes".to_owned(), json!(bytes));
            Value::Object(object).to_string().into_bytes()
        } else {
            let mut line = format!("{}\t", blocks(bytes, self.human_readable)).into_bytes();
            line.extend(names::shown(path, output::stdout_is_terminal()));
            line
        };
        line.push(b'\n');
        line
    }
}

/// Measures each place.
pub fn run(args: &DuArgs) -> Result<ExitCode, Error> {
    let (mut code, mut total) = (ExitCode::SUCCESS, 0_u64);
    for target in &args.places {
        match measure(args, target) {
            Ok((bytes, is_complete)) => {
                total = total.saturating_add(bytes);
                if !is_complete {
                    code = ExitCode::FAILURE;
                }
            }
            Err(error @ Error::Print(_)) => return Err(error),
            Err(error) => {
                error.report_to_user();
                code = ExitCode::FAILURE;
            }
        }
    }
    if args.total {
        output::print_bytes(&args.line(b"total", total))?;
    }
    Ok(code)
}

/// The bytes of a place, and whether nothing was left out.
fn measure(args: &DuArgs, target: &str) -> Result<(u64, bool), Error> {
    let location = Location::open(target, &args.mount.joined())?;
    let (trail, attributes) =
        location.mount.resolve_trail(&location.path, false).map_err(location.cannot("measure"))?;
    if attributes.kind != FileKind::Directory {
        let bytes = args.bytes(&attributes);
        output::print_bytes(&args.line(location.name.as_bytes(), bytes))?;
        return Ok((bytes, true));
    }
    let sum = Sum {
        args,
        seen: Mutex::default(),
        total: AtomicU64::new(0),
        is_complete: AtomicBool::new(true),
        printing: Mutex::default(),
    };
    tree::walk(&location.mount, Node::root(&location.name, &trail, attributes), &sum)
        .map_err(Error::Threads)?;
    Ok((sum.total.into_inner(), sum.is_complete.into_inner()))
}

struct Sum<'a> {
    args: &'a DuArgs,
    /// How many names of a file with several were not seen yet, by file system and file.
    seen: Mutex<HashMap<(u64, u64), u32>>,
    total: AtomicU64,
    is_complete: AtomicBool,
    /// Held while a line is printed, so that lines stay whole.
    printing: Mutex<()>,
}

impl Sum<'_> {
    fn show(&self, path: &[u8], bytes: u64) {
        let _printing = self.printing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = output::print_bytes(&self.args.line(path, bytes)) {
            // Nobody reads the rest, so the other threads need not finish.
            std::process::exit(error.report_to_user().into());
        }
    }

    /// Whether a file counts: a file with several names counts once.
    fn counts(&self, of: &Attributes) -> bool {
        if of.nlink < 2 {
            return true;
        }
        let key = (of.fsid, of.fileid);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = seen.get_mut(&key) else {
            seen.insert(key, of.nlink - 1);
            return true;
        };
        *left -= 1;
        if *left == 0 {
            seen.remove(&key);
        }
        false
    }
}

impl Visitor for Sum<'_> {
    /// The bytes of what is in a directory.
    type Data = AtomicU64;
    const CALLS_FOR_FILES: bool = false;

    fn files(&self, directory: &Node<AtomicU64>, entries: &[Entry]) -> bool {
        let mut sum = 0_u64;
        for entry in entries.iter().filter(|entry| self.counts(&entry.attributes)) {
            let bytes = self.args.bytes(&entry.attributes);
            sum = sum.saturating_add(bytes);
            if self.args.all && directory.depth < self.args.depth() {
                self.show(&directory.path_of(&entry.name), bytes);
            }
        }
        add(&directory.data, sum);
        true
    }

    fn leave(&self, directory: &Node<AtomicU64>, _whole: bool) -> LeaveOutcome {
        let bytes =
            directory.data.load(Ordering::SeqCst).saturating_add(self.args.bytes(&directory.attributes));
        if directory.depth <= self.args.depth() {
            self.show(&directory.path(), bytes);
        }
        add(directory.parent.as_ref().map_or(&self.total, |parent| &parent.data), bytes);
        LeaveOutcome::Finished
    }

    fn fail(&self, path: &[u8], failure: Failure) {
        self.is_complete.store(false, Ordering::SeqCst);
        failure.explain(format!("cannot measure {}", names::escaped(path))).report_to_user();
    }
}

/// Adds without an overflow: a server that lies may return any size.
fn add(to: &AtomicU64, bytes: u64) {
    let _ = to.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |sum| Some(sum.saturating_add(bytes)));
}

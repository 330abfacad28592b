//! `trunkline rm`: removes files and trees of a server, with many calls in flight.

use crate::error::Error;
use crate::names;
use crate::remote::{LOCATION_HELP, LastName, Location, MountArgs};
use crate::tree::{self, Entry, Failure, LeaveOutcome, Node, Visitor};
use clap::Args;
use client::Mount;
use fs::{Attributes, FileHandle, FileKind, Status};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How often a directory is listed again because it was not empty after all of its names were
/// removed: a server may leave out names while others are being removed.
const LISTINGS_MAX: u64 = 16;

/// Remove files and directories of an NFS server.
#[derive(Debug, Args)]
#[command(
    long_about = format!(
        "Remove files and directories of an NFS server.\n\nA symbolic link is removed, never followed. The root of an \
        export, . and .. are refused. Each failure is reported, and the rest is removed.\n\n{LOCATION_HELP}"
    ),
    after_help = EXAMPLES
)]
pub struct RmArgs {
    /// What to remove: nfs://HOST/EXPORT/PATH or HOST:/EXPORT/PATH.
    #[arg(value_name = "PLACE", required_unless_present = "force")]
    places: Vec<String>,
    #[command(flatten)]
    mount: MountArgs,
    /// Remove directories with everything in them.
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Ignore what does not exist.
    #[arg(short, long)]
    force: bool,
    /// Remove empty directories.
    #[arg(short, long)]
    dir: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline rm nas:/data/disk.img\n  \
    trunkline rm -rf 'nfs://10.0.0.1/data/scratch?nconnect=8'";

/// Removes each place.
pub fn run(args: &RmArgs) -> Result<ExitCode, Error> {
    let mut code = ExitCode::SUCCESS;
    for location in &args.places {
        match remove(args, location) {
            Ok(true) => {}
            Ok(false) => code = ExitCode::FAILURE,
            Err(error) => {
                error.report_to_user();
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Removes a place. `false` says that something failed, and was reported.
fn remove(args: &RmArgs, target: &str) -> Result<bool, Error> {
    let location = Location::open(target, &args.mount.joined())?;
    let cannot = location.cannot("remove");
    let ignores = |error: &client::Error| {
        args.force && matches!(error.status(), Some(Status::NotFound | Status::NotDirectory))
    };
    let found = LastName::of(&location, "remove")?;
    let last = match found {
        Ok(last) => last,
        Err(error) if ignores(&error) => return Ok(true),
        Err(error) => return Err(cannot(error)),
    };
    let (handle, attributes) = match location.mount.lookup(last.directory(), &last.name) {
        Ok(found) => found,
        Err(error) if ignores(&error) => return Ok(true),
        Err(error) => return Err(cannot(error)),
    };
    if attributes.kind != FileKind::Directory {
        if last.must_be_directory {
            return Err(cannot(client::Error::Status { operation: "LOOKUP", status: Status::NotDirectory }));
        }
        return match location.mount.remove(last.directory(), &last.name) {
            Err(error) if !ignores(&error) => Err(cannot(error)),
            _ => Ok(true),
        };
    }
    if !args.recursive && !args.dir {
        return Err(Error::Refused {
            sentence: format!("cannot remove {}", location.name),
            cause: "it is a directory".to_owned(),
            advice: "-r        to remove it with everything in it, or -d if it is empty".to_owned(),
        });
    }
    if last.trail.contains(&handle) {
        let cause = "one above it".to_owned();
        return Err(Failure::Cycle(cause).explain(format!("cannot remove {}", location.name)));
    }
    if !args.recursive {
        return location.mount.remove_directory(last.directory(), &last.name).map(|()| true).map_err(cannot);
    }
    remove_tree(&location, &last, handle, attributes)
}

fn remove_tree(
    location: &Location,
    last: &LastName,
    handle: FileHandle,
    of: Attributes,
) -> Result<bool, Error> {
    let removal = Removal { mount: &location.mount, last, failed: AtomicBool::new(false) };
    let trail = [last.trail.as_slice(), &[handle]].concat();
    let root = Node::root(&location.name, &trail, of);
    tree::walk(&location.mount, root, &removal).map_err(Error::Threads)?;
    Ok(!removal.failed.load(Ordering::SeqCst))
}

struct Removal<'a> {
    mount: &'a Mount,
    last: &'a LastName,
    failed: AtomicBool,
}

/// The progress in one directory.
#[derive(Debug, Default)]
struct Removed {
    /// Names removed since the directory was last listed.
    names: AtomicU64,
    listings: AtomicU64,
}

impl Visitor for Removal<'_> {
    type Data = Removed;
    const CALLS_FOR_FILES: bool = true;

    fn files(&self, directory: &Node<Removed>, entries: &[Entry]) -> bool {
        let mut is_complete = true;
        for entry in entries {
            match self.mount.remove(directory.handle, &entry.name) {
                Ok(()) => {
                    directory.data.names.fetch_add(1, Ordering::SeqCst);
                }
                // Somebody else removed it, or a call that was sent twice.
                Err(error) if error.status() == Some(Status::NotFound) => {}
                Err(error) => {
                    is_complete = false;
                    self.fail(&directory.path_of(&entry.name), Failure::Remote(error));
                }
            }
        }
        is_complete
    }

    fn leave(&self, directory: &Node<Removed>, is_complete: bool) -> LeaveOutcome {
        // A directory in which something is left cannot be removed, and that was reported.
        if !is_complete {
            return LeaveOutcome::Failed;
        }
        let (parent, name) = match &directory.parent {
            Some(parent) => (parent.handle, &directory.name),
            None => (self.last.directory(), &self.last.name),
        };
        match self.mount.remove_directory(parent, name) {
            Ok(()) => {}
            Err(error) if error.status() == Some(Status::NotFound) => {}
            Err(error) => {
                let removed = directory.data.names.swap(0, Ordering::SeqCst);
                let listings = directory.data.listings.fetch_add(1, Ordering::SeqCst);
                let is_not_empty = matches!(error.status(), Some(Status::NotEmpty | Status::Exists));
                if is_not_empty && removed > 0 && listings < LISTINGS_MAX {
                    return LeaveOutcome::ListAgain;
                }
                self.fail(&directory.path(), Failure::Remote(error));
                return LeaveOutcome::Failed;
            }
        }
        if let Some(parent) = &directory.parent {
            parent.data.names.fetch_add(1, Ordering::SeqCst);
        }
        LeaveOutcome::Finished
    }

    fn fail(&self, path: &[u8], failure: Failure) {
        self.failed.store(true, Ordering::SeqCst);
        failure.explain(format!("cannot remove {}", names::escaped(path))).report_to_user();
    }
}

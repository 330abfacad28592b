//! Runs a copy: one walker and some workers.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};

use crate::Options;
use crate::budget::Budget;
use crate::endpoints::{Destination, Origin};
use crate::error::{Error, Result};
use crate::job::{Context, Job};
use crate::links::Links;
use crate::progress::Progress;
use crate::walk::{Walker, count, visit};

/// The maximum number of objects that wait for a worker.
const QUEUE_MAX: usize = 256;
/// The maximum number of workers; each is a thread.
const WORKERS_MAX: usize = 256;

/// How a copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was copied.
    Whole,
    /// Some objects failed; [`Progress::take_failures`] returns them.
    Partial,
    /// The copy was stopped.
    Stopped,
}

/// Copies each source to the destination. Objects that fail are left out and reported in
/// `progress`. With `counted`, a thread counts all objects while the copy runs. With
/// [`Options::dry_run`], each pair of places is passed to `planned`, and nothing changes.
///
/// # Errors
/// If nothing can be copied at all: several sources for one name, or no threads.
pub fn copy(
    sources: &[Origin],
    onto: &Destination,
    options: &Options,
    progress: &Progress,
    counted: bool,
    planned: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    if sources.len() > 1 && !onto.is_directory() {
        return Err(Error::Conflict("several sources need an existing directory".to_owned()));
    }
    if options.dry_run {
        return plan(sources, onto, options, progress, planned);
    }
    // A local tree is walked with a directory open for each level, which takes several descriptors
    // per level.
    client::raise_descriptor_limit();
    let context = Context { options, progress, budget: Budget::new(), links: Links::default() };
    let (sender, receiver) = sync_channel(QUEUE_MAX);
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        let thread = |name: &str| std::thread::Builder::new().name(format!("tl-copy-{name}"));
        for _ in 0..options.files_at_once.clamp(1, WORKERS_MAX) {
            thread("worker")
                .spawn_scoped(scope, || run_worker(&context, &receiver))
                .map_err(Error::local("cannot start a thread"))?;
        }
        if counted {
            thread("count")
                .spawn_scoped(scope, || count(sources, (options.recursive, &options.exclude), progress))
                .map_err(Error::local("cannot start a thread"))?;
        }
        let walker = Walker { context: &context, jobs: &sender };
        for (number, from) in sources.iter().enumerate() {
            walker.walk(number, from, onto);
        }
        // The workers end when the queue is empty and has no sender.
        drop(sender);
        Ok::<(), Error>(())
    })?;
    Ok(outcome(progress))
}

pub(crate) fn outcome(progress: &Progress) -> Outcome {
    if progress.is_stopped() {
        Outcome::Stopped
    } else if progress.failed.load(std::sync::atomic::Ordering::SeqCst) > 0 {
        Outcome::Partial
    } else {
        Outcome::Whole
    }
}

/// Lists what would be copied where.
fn plan(
    sources: &[Origin],
    onto: &Destination,
    options: &Options,
    progress: &Progress,
    planned: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    for from in sources {
        if from.kind() == fs::FileKind::Directory && !options.recursive {
            let why = "it is a directory, and -r was not given".to_owned();
            progress.fail(from.display_name(), Error::Conflict(why));
            continue;
        }
        let name = match onto.name_for(from) {
            Ok(name) => name,
            Err(error) => {
                progress.fail(from.display_name(), error);
                continue;
            }
        };
        let mut target = onto.directory.display_name();
        if !name.is_empty() {
            target = format!("{}/{}", target.trim_end_matches('/'), String::from_utf8_lossy(&name));
        }
        let visited = visit(from, (options.recursive, &options.exclude), progress, true, &mut |below, _| {
            let below = String::from_utf8_lossy(below);
            planned(&format!("{}{below} -> {target}{below}", from.display_name().trim_end_matches('/')));
        });
        if let Err(error) = visited {
            progress.fail(from.display_name(), error);
        }
    }
    Ok(outcome(progress))
}

fn run_worker(context: &Context<'_>, receiver: &Mutex<Receiver<Job>>) {
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        context.run(job);
    }
}

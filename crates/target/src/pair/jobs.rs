//! What may take long: opening, saving and closing, for each volume in order, for different volumes
//! at the same time.

use super::Backings;
use nvme::pair::{Opened, Output};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a job has ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Done {
    Opened(u32, Opened),
    Saved(u32, bool),
    Closed(u32),
}

/// The jobs that wait, by volume. A volume that is here has a thread.
type Waiting = Mutex<BTreeMap<u32, VecDeque<Output>>>;

pub(super) struct Jobs {
    backings: Arc<dyn Backings>,
    waiting: Arc<Waiting>,
    report: Arc<dyn Fn(Done) + Send + Sync>,
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, BTreeMap<u32, VecDeque<Output>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Jobs {
    pub(super) fn new(backings: Arc<dyn Backings>, report: impl Fn(Done) + Send + Sync + 'static) -> Self {
        Self { backings, waiting: Arc::default(), report: Arc::new(report) }
    }

    /// Begins a job after those of its volume; others are none.
    pub(super) fn begin(&self, job: Output) {
        let (Output::Open { nsid } | Output::Save { nsid, .. } | Output::Close { nsid }) = job else {
            return;
        };
        let mut waiting = lock(&self.waiting);
        let has_thread = waiting.contains_key(&nsid);
        waiting.entry(nsid).or_default().push_back(job);
        drop(waiting);
        if has_thread {
            return;
        }
        let (backings, jobs, report) =
            (Arc::clone(&self.backings), Arc::clone(&self.waiting), Arc::clone(&self.report));
        let run = move || work(nsid, &*backings, &jobs, &*report);
        let started = std::thread::Builder::new().name(format!("pair-volume-{nsid}")).spawn(run);
        if let Err(error) = started {
            tracing::error!(%error, nsid, "no thread for a volume");
            let failed = lock(&self.waiting).remove(&nsid);
            failed.into_iter().flatten().for_each(|job| (self.report)(failure(nsid, job)));
        }
    }
}

/// A job that was not done. A backing that is not closed is still locked, and nobody else gets it.
fn failure(nsid: u32, job: Output) -> Done {
    match job {
        Output::Save { .. } => Done::Saved(nsid, false),
        _ => Done::Opened(nsid, Opened::Failed),
    }
}

fn work(nsid: u32, backings: &dyn Backings, jobs: &Waiting, report: &dyn Fn(Done)) {
    loop {
        let next = {
            let mut waiting = lock(jobs);
            let next = waiting.get_mut(&nsid).and_then(VecDeque::pop_front);
            if next.is_none() {
                waiting.remove(&nsid);
            }
            next
        };
        report(match next {
            None => return,
            Some(Output::Save { nsid, record }) => Done::Saved(nsid, backings.save(nsid, record)),
            Some(Output::Close { .. }) => {
                backings.close(nsid);
                Done::Closed(nsid)
            }
            Some(_) => Done::Opened(nsid, backings.open(nsid)),
        });
    }
}

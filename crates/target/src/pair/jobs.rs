//! What may take long: opening, saving and closing, for each volume in order, for different volumes
//! at the same time.
//!
//! The system may refuse a thread for it, for instance at the limit of processes of a container. The
//! jobs of that volume wait until it gives one.

use super::Backings;
use nvme::pair::{Opened, Output};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a thread is asked for that the system has refused.
const RETRY: Duration = Duration::from_millis(100);

/// How a job has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Opened(u32, Opened),
    Saved(u32, bool),
    Closed(u32),
}

/// The jobs that wait, by volume. A volume that is here has a thread, or is stranded.
type Waiting = Mutex<BTreeMap<u32, VecDeque<Output>>>;

type Report = dyn Fn(Done) + Send + Sync;

/// Runs a volume's jobs in a thread of this name.
type Spawn = fn(String, Box<dyn FnOnce() + Send>) -> io::Result<()>;

pub(super) struct Jobs {
    backings: Arc<dyn Backings>,
    waiting: Arc<Waiting>,
    report: Arc<Report>,
    spawn: Spawn,
    /// Volumes whose thread the system has refused.
    stranded: BTreeSet<u32>,
    retries_at: Duration,
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, BTreeMap<u32, VecDeque<Output>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(name: String, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    std::thread::Builder::new().name(name).spawn(run).map(drop)
}

impl Jobs {
    pub(super) fn new(backings: Arc<dyn Backings>, report: impl Fn(Done) + Send + Sync + 'static) -> Self {
        Self {
            backings,
            waiting: Arc::default(),
            report: Arc::new(report),
            spawn,
            stranded: BTreeSet::new(),
            retries_at: Duration::ZERO,
        }
    }

    /// Begins a job after those of its volume; others are none.
    pub(super) fn begin(&mut self, now: Duration, job: Output) {
        let (Output::Open { nsid } | Output::Save { nsid, .. } | Output::Close { nsid }) = job else {
            return;
        };
        let mut waiting = lock(&self.waiting);
        let is_known = waiting.contains_key(&nsid);
        waiting.entry(nsid).or_default().push_back(job);
        drop(waiting);
        if !is_known && let Err(error) = self.start(nsid) {
            tracing::error!(%error, nsid, "no thread for a volume; it is tried again until there is one");
            self.stranded.insert(nsid);
            self.retries_at = now + RETRY;
        }
    }

    /// Starts the thread of a volume.
    fn start(&self, nsid: u32) -> io::Result<()> {
        let (backings, jobs, report) =
            (Arc::clone(&self.backings), Arc::clone(&self.waiting), Arc::clone(&self.report));
        let run = move || work(nsid, &*backings, &jobs, &*report);
        (self.spawn)(format!("pair-volume-{nsid}"), Box::new(run))
    }

    /// When [`retry`](Self::retry) is to be called.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        (!self.stranded.is_empty()).then_some(self.retries_at)
    }

    /// Tries again to begin what had no thread, if it is time for it.
    pub(super) fn retry(&mut self, now: Duration) {
        while now >= self.retries_at
            && let Some(nsid) = self.stranded.pop_first()
        {
            if self.start(nsid).is_err() {
                self.stranded.insert(nsid);
                self.retries_at = now + RETRY;
            } else {
                tracing::info!(nsid, "a thread for a volume that had none");
            }
        }
    }
}

fn work(nsid: u32, backings: &dyn Backings, jobs: &Waiting, report: &Report) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use nvme::controller::Reach;
    use nvme::pair::Record;
    use std::cell::Cell;
    use std::sync::mpsc::channel;

    struct Elsewhere;

    impl Backings for Elsewhere {
        fn open(&self, _: u32) -> Opened {
            Opened::Held
        }
        fn save(&self, _: u32, _: Record) -> bool {
            true
        }
        fn close(&self, _: u32) {}
        fn reach(&self, _: u32, _: Record, _: Reach) {}
    }

    thread_local! {
        /// How often no thread is given, and how many were asked for.
        static REFUSALS: Cell<u32> = const { Cell::new(0) };
        static ASKED: Cell<u32> = const { Cell::new(0) };
    }

    fn spawn_later(name: String, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        ASKED.set(ASKED.get() + 1);
        if REFUSALS.get() > 0 {
            REFUSALS.set(REFUSALS.get() - 1);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        spawn(name, run)
    }

    #[test]
    fn what_the_system_has_no_thread_for_is_done_later_and_in_order() {
        const OPENED: Done = Done::Opened(1, Opened::Held);
        let (to_test, done) = channel();
        let mut jobs = Jobs::new(Arc::new(Elsewhere), move |done| to_test.send(done).unwrap());
        jobs.spawn = spawn_later;
        assert_eq!(jobs.poll_timeout(), None);
        REFUSALS.set(4);
        let now = Duration::from_secs(5);
        jobs.begin(now, Output::Open { nsid: 1 });
        jobs.begin(now, Output::Close { nsid: 1 });
        assert_eq!(ASKED.get(), 1, "the second job waits for the first one's thread");
        jobs.begin(now, Output::Open { nsid: 2 });
        assert_eq!(jobs.poll_timeout(), Some(now + RETRY));
        jobs.retry(now + RETRY / 2);
        assert_eq!(ASKED.get(), 2, "too early");
        jobs.retry(now + RETRY);
        assert_eq!((ASKED.get(), jobs.poll_timeout()), (3, Some(now + 2 * RETRY)), "one refusal is enough");
        jobs.retry(now + 2 * RETRY);
        assert!(done.try_recv().is_err(), "nothing is reported that was not done");
        jobs.retry(now + 3 * RETRY);
        assert_eq!(jobs.poll_timeout(), None);
        let mut all: Vec<Done> = (0..3).map(|_| done.recv().unwrap()).collect();
        all.retain(|done| *done != Done::Opened(2, Opened::Held));
        assert_eq!(all, [OPENED, Done::Closed(1)]);
        // A volume whose jobs are all done gets a thread again.
        while lock(&jobs.waiting).contains_key(&1) {
            std::thread::yield_now();
        }
        jobs.begin(now, Output::Open { nsid: 1 });
        assert_eq!(done.recv().unwrap(), OPENED);
    }
}

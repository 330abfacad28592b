//! Threads for what may wait for a device: each drive has its own, so that one that hangs delays no
//! other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads of one drive. More keep no device busier that is served by them at all.
const THREADS_MAX: usize = 8;

/// What a thread does; it delivers its own result.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

/// The threads are started when they are needed, and end when the workers are dropped and nothing
/// is left to do.
#[derive(Default)]
pub(crate) struct Workers(Arc<Shared>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
            } else if state.closed {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl Workers {
    /// Has a thread do the job. The number of jobs is bounded by the queues that they come from. A
    /// system that has no thread at all for them gets the job back.
    pub fn give(&self, job: Job) -> Result<(), Job> {
        let mut state = self.0.lock();
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < THREADS_MAX {
            let shared = Arc::clone(&self.0);
            let started = std::thread::Builder::new().name("drive".to_owned()).spawn(move || shared.work());
            match started {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads > 0 => {}
                Err(_) => return Err(state.jobs.pop_back().unwrap_or_else(|| Box::new(|| ()))),
            }
        }
        self.0.wake.notify_one();
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_all();
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("Workers").field("threads", &state.threads).field("jobs", &state.jobs.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn jobs_run_beside_each_other_and_threads_are_bounded() {
        let workers = Workers::default();
        let (done, all_done) = mpsc::channel();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        for _ in 0..3 * THREADS_MAX {
            let (done, gate) = (done.clone(), Arc::clone(&gate));
            let job = Box::new(move || {
                let open = gate.0.lock().unwrap();
                drop(gate.1.wait_while(open, |open| !*open).unwrap());
                done.send(()).unwrap();
            });
            assert!(workers.give(job).is_ok());
        }
        assert_eq!(workers.0.lock().threads, THREADS_MAX);
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        let shared = Arc::clone(&workers.0);
        drop(workers);
        for _ in 0..3 * THREADS_MAX {
            all_done.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        drop(done);
        assert!(all_done.recv_timeout(Duration::from_secs(20)).is_err(), "each job ran once");
        assert!(shared.lock().jobs.is_empty());
    }
}

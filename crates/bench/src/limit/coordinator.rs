//! Coordinates the workers of a try: all begin together and count the blocks they complete, and the
//! first failure ends the try.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use transport::threads;

use super::{Error, Role};

/// The blocks that one connection has completed. Each counter has its own cache line (and the
/// adjacent one, which is prefetched with it), so that counting on different processors does not
/// slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

#[derive(Debug, Default)]
struct State {
    /// The number of workers that are ready to begin, or failed before that.
    ready: usize,
    begun: bool,
    failure: Option<Error>,
    /// The threads that drive only the server's ends.
    server: Vec<u32>,
}

/// The state shared by the workers of a try.
#[derive(Debug)]
pub(super) struct Coordinator {
    stop: AtomicBool,
    completed: Vec<Count>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Coordinator {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            completed: (0..connections).map(|_| Count::default()).collect(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the try is over.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the try. Later errors are not failures.
    pub(super) fn stop(&self) {
        let _state = self.lock();
        self.stop.store(true, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Counts completed blocks of a connection.
    pub(super) fn count(&self, connection: usize, blocks: u64) {
        if let Some(count) = self.completed.get(connection) {
            count.0.fetch_add(blocks, Ordering::Relaxed);
        }
    }

    /// The number of blocks that all connections have completed.
    pub(super) fn completed(&self) -> u64 {
        self.completed.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }

    /// The connection that has completed the fewest blocks, and their number.
    pub(super) fn slowest(&self) -> (usize, u64) {
        let counts = self.completed.iter().map(|count| count.0.load(Ordering::Relaxed));
        counts.enumerate().min_by_key(|(_, blocks)| *blocks).unwrap_or_default()
    }

    /// Called by a worker that has mapped its memory: waits for the other workers. `role` is the
    /// side whose ends it drives, if only one.
    pub(super) fn wait_to_begin(&self, role: Option<Role>) {
        let mut state = self.lock();
        state.ready += 1;
        if role == Some(Role::Server) {
            state.server.push(threads::own());
        }
        self.changed.notify_all();
        while !state.begun && !self.stopped() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The processor time of the threads that drive only the server's ends. `None` if there are
    /// none, or the system does not report it.
    pub(super) fn server_cpu(&self) -> Option<Duration> {
        let state = self.lock();
        let of_all = || state.server.iter().map(|thread| threads::cpu(*thread)).sum();
        (!state.server.is_empty()).then(of_all)?
    }

    /// Called by a worker that ends; before the end of the try, only a failure is a reason.
    pub(super) fn worker_ended(&self, outcome: Result<(), Error>) {
        let mut state = self.lock();
        state.ready += 1;
        if let (Err(error), false) = (outcome, self.stopped()) {
            state.failure.get_or_insert(error);
        }
        self.changed.notify_all();
    }

    /// Lets all workers begin once all are ready.
    ///
    /// # Errors
    /// The first failure, or [`Error::Unready`] after `timeout`.
    pub(super) fn begin(&self, workers: usize, timeout: Duration) -> Result<(), Error> {
        let until = Instant::now() + timeout;
        // The lock is held from the check to the wait, so that no arrival is missed in between.
        let mut state = self.lock();
        while state.ready < workers && state.failure.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Unready { workers: workers - state.ready, timeout });
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        state.begun = true;
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for this time, or until something happens.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn wait_for_change(&self, time: Duration) -> Result<(), Error> {
        let mut state = self.lock();
        if state.failure.is_none() {
            state = self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.failure.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workers_begin_together_in_whatever_order_they_are_ready() {
        for round in 0..2000 {
            let coordinator = Coordinator::new(1);
            std::thread::scope(|scope| {
                for _ in 0..1 + round % 3 {
                    scope.spawn(|| {
                        coordinator.wait_to_begin(None);
                        coordinator.count(0, 1);
                    });
                }
                // Far longer than the threads need, so that a missed arrival shows.
                coordinator.begin(1 + round % 3, Duration::from_secs(300)).unwrap();
            });
            assert_eq!(coordinator.slowest(), (0, 1 + round as u64 % 3));
        }
    }

    #[test]
    fn a_failure_before_the_beginning_lets_no_worker_begin() {
        let coordinator = Coordinator::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| coordinator.wait_to_begin(None));
            coordinator.worker_ended(Err(Error::Shape("a failure of this test".into())));
            let failed = coordinator.begin(2, Duration::from_secs(300));
            assert!(failed.unwrap_err().to_string().contains("of this test"));
            coordinator.stop();
        });
    }

    #[test]
    fn threads_that_never_begin_are_counted() {
        let failed = Coordinator::new(1).begin(3, Duration::ZERO).unwrap_err();
        assert!(failed.to_string().starts_with("3 threads did not begin"), "{failed}");
    }

    #[test]
    fn what_fails_after_the_end_is_no_failure() {
        let coordinator = Coordinator::new(1);
        coordinator.stop();
        coordinator.worker_ended(Err(Error::Shape("the end".into())));
        coordinator.wait_for_change(Duration::ZERO).unwrap();
    }
}

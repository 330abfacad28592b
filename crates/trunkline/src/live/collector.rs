//! Reads the counters once for all who ask over HTTP, and keeps the history of each second.
//!
//! One thread reads, because an event loop that hangs lets its reader wait. Whoever asks then gets
//! what was read last, with its age.

use metrics::{Gauge, History, Snapshot};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};
use tokio::sync::watch;

/// How often the history takes a second.
const TICK: Duration = Duration::from_secs(1);
/// Whoever asks waits this long for counters that are read after the question.
const FRESH_TIMEOUT: Duration = Duration::from_secs(2);
/// The shortest time between two readings: an event loop answers between two pieces of work.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
/// A process whose counters have not been read for this long is not healthy.
const HEALTHY_AGE_MAX: Duration = Duration::from_secs(5);

/// What the counters were at one time.
#[derive(Debug, Clone)]
pub struct Collected {
    number: u64,
    /// The counters.
    pub snapshot: Arc<Snapshot>,
    at: Instant,
}

impl Collected {
    /// How long ago that was.
    pub fn age(&self) -> Duration {
        self.at.elapsed()
    }

    /// The counters, with a gauge that tells their age.
    pub fn with_age(&self) -> Snapshot {
        let mut snapshot = Snapshot::clone(&self.snapshot);
        snapshot.gauges.push(Gauge::new(
            "counters_age_seconds",
            "How long ago these counters were read: more than 2 if an event loop does not answer.",
            self.age().as_secs_f64(),
        ));
        snapshot
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Collector {
    state: Mutex<State>,
    asked: Condvar,
    latest: watch::Sender<Option<Collected>>,
    history: Mutex<History>,
    started: Instant,
}

#[derive(Debug, Default)]
struct State {
    /// The reading that somebody waits for.
    wanted: u64,
    /// The readings that have begun.
    begun: u64,
}

impl Collector {
    /// Starts to read, until the process ends.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(read: Arc<dyn Fn() -> Snapshot + Send + Sync>) -> io::Result<Arc<Self>> {
        let collector = Arc::new(Self {
            state: Mutex::default(),
            asked: Condvar::new(),
            latest: watch::Sender::new(None),
            history: Mutex::default(),
            started: Instant::now(),
        });
        let ours = Arc::clone(&collector);
        thread::Builder::new().name("tl-history".into()).spawn(move || ours.run(&*read))?;
        Ok(collector)
    }

    fn run(&self, read: &dyn Fn() -> Snapshot) {
        let mut tick = Instant::now();
        loop {
            let number = self.next_reading(tick);
            let begun = Instant::now();
            let snapshot = Arc::new(read());
            let at = Instant::now();
            if begun >= tick {
                self.history().push(Arc::clone(&snapshot));
                while tick <= at {
                    tick += TICK;
                }
            }
            self.latest.send_replace(Some(Collected { number, snapshot, at }));
            thread::sleep(INTERVAL_MIN);
        }
    }

    /// Waits for the next second, or for somebody who asks. Returns the number of the reading.
    fn next_reading(&self, tick: Instant) -> u64 {
        let mut state = lock(&self.state);
        loop {
            let left = tick.saturating_duration_since(Instant::now());
            if state.wanted > state.begun || left.is_zero() {
                state.begun += 1;
                return state.begun;
            }
            state = self.asked.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Counters that are read after this question; or the last ones if that takes too long. `None`
    /// if there are none yet.
    pub async fn fresh(&self) -> Option<Collected> {
        let wanted = {
            let mut state = lock(&self.state);
            state.wanted = state.begun + 1;
            state.wanted
        };
        self.asked.notify_all();
        let mut latest = self.latest.subscribe();
        let is_new = |collected: &Option<Collected>| {
            collected.as_ref().is_some_and(|collected| collected.number >= wanted)
        };
        // The sender lives as long as this.
        _ = tokio::time::timeout(FRESH_TIMEOUT, latest.wait_for(is_new)).await;
        self.latest.borrow().clone()
    }

    /// The counters that were read last; those of now if there are none yet.
    pub async fn latest(&self) -> Option<Collected> {
        let latest = self.latest.borrow().clone();
        match latest {
            Some(latest) => Some(latest),
            None => self.fresh().await,
        }
    }

    /// Whether the counters can be read. This reads none.
    pub fn is_healthy(&self) -> bool {
        let age = self.latest.borrow().as_ref().map(Collected::age);
        age.unwrap_or_else(|| self.started.elapsed()) < HEALTHY_AGE_MAX
    }

    /// The history. Hold it shortly: the next second waits.
    pub fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Identity;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn who_asks_gets_counters_of_later_and_a_hung_loop_gives_the_last_ones() {
        let identity = Identity::new(metrics::Kind::Serve, "/x");
        let (count, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(())));
        let (counted, waited) = (Arc::clone(&count), Arc::clone(&gate));
        let collector = Collector::start(Arc::new(move || {
            drop(waited.lock());
            let mut snapshot = identity.snapshot();
            snapshot.gauges.push(Gauge::new("n", "", counted.load(Ordering::Acquire) as f64));
            snapshot
        }))
        .unwrap();
        let value = |collected: &Collected| collected.snapshot.gauges[0].value;
        for n in 1..20_u64 {
            count.store(n, Ordering::Release);
            let found = block_on(collector.fresh()).unwrap();
            // On a machine that stands still, an old answer is right.
            let is_old = found.age() >= FRESH_TIMEOUT;
            assert!(is_old || value(&found) >= n as f64, "{} at {n}", value(&found));
        }
        let hung = gate.lock().unwrap();
        count.store(100, Ordering::Release);
        // A reading that had passed the gate may still see the new count.
        block_on(collector.fresh());
        let found = block_on(collector.fresh()).unwrap();
        assert!(found.age() >= FRESH_TIMEOUT, "{:?}", found.age());
        let gauges = found.with_age().gauges;
        assert!(gauges.iter().any(|one| one.name == "counters_age_seconds" && one.value >= 2.0));
        drop(hung);
        let found = block_on(collector.fresh()).unwrap();
        assert!((value(&found) - 100.0).abs() < 0.1);
        assert!(collector.is_healthy());
    }
}

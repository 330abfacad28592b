//! Reads the counters once for all who ask over HTTP, and keeps the history of each second.
//!
//! One thread reads, because an event loop that hangs lets its reader wait. Whoever asks then gets
//! what was read last, with its age.

use super::ByFile;
use metrics::history::Limits;
use metrics::{FileActivity, Gauge, History, Interval, Snapshot};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
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
pub const HEALTHY_AGE_MAX: Duration = Duration::from_secs(5);

/// What the counters were at one time.
#[derive(Debug, Clone)]
pub struct Collected {
    number: u64,
    /// The counters of the process.
    pub snapshot: Arc<Snapshot>,
    /// Those of a bench's embedded group, if it has one.
    pub group: Option<Arc<Snapshot>>,
    at: Instant,
}

/// Of what counters are: of the process, or of the embedded group within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// The process.
    #[default]
    Process,
    /// The embedded group.
    Group,
}

impl Collected {
    /// How old the oldest of it is: a mount answers for a loop that does not.
    pub fn age(&self) -> Duration {
        self.at.elapsed() + Duration::from_millis(self.snapshot.silent_ms)
    }

    /// The counters of a side, if there are any.
    pub fn of(&self, side: Side) -> Option<&Arc<Snapshot>> {
        match side {
            Side::Process => Some(&self.snapshot),
            Side::Group => self.group.as_ref(),
        }
    }

    /// The same with a gauge that tells their age; those of the process with its group.
    pub fn with_age(&self, side: Side) -> Option<Snapshot> {
        let mut snapshot = Snapshot::clone(self.of(side)?);
        if side == Side::Process {
            snapshot.group = self.group.as_deref().cloned().map(Box::new);
        }
        snapshot.gauges.push(Gauge::new(
            "counters_age_seconds",
            "How long ago these counters were read: more than 2 if an event loop does not answer.",
            self.age().as_secs_f64(),
        ));
        Some(snapshot)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Collector {
    state: Mutex<State>,
    asked: Condvar,
    latest: watch::Sender<Option<Collected>>,
    history: Kept,
    /// That of a bench's embedded group.
    group_history: Kept,
    /// What happened by file in the seconds in which somebody asked; `None` of a process that
    /// cannot count by file.
    file_history: Option<Kept>,
    /// Until when calls are counted by file.
    files_until: Mutex<Option<Instant>>,
    started: Instant,
}

/// Calls are counted by file for this long after a page has asked, so that one that comes every
/// second finds them.
const FILES_TIME: Duration = Duration::from_secs(10);
const FILES_TIME_MAX: Duration = Duration::from_secs(7200);
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
    pub fn start(
        read: Arc<dyn Fn() -> Snapshot + Send + Sync>,
        by_file: Option<ByFile>,
    ) -> io::Result<Arc<Self>> {
        let collector = Arc::new(Self {
            state: Mutex::default(),
            asked: Condvar::new(),
            latest: watch::Sender::new(None),
            history: Kept::default(),
            group_history: Kept::default(),
            file_history: by_file.is_some().then(|| Kept::new(Limits::FILES)),
            files_until: Mutex::default(),
            started: Instant::now(),
        });
        let ours = Arc::clone(&collector);
        thread::Builder::new().name("tl-history".into()).spawn(move || ours.run(&*read, by_file.as_ref()))?;
        Ok(collector)
    }

    fn run(&self, read: &dyn Fn() -> Snapshot, by_file: Option<&ByFile>) {
        let (mut tick, mut group_has_begun) = (Instant::now(), false);
        let mut last: Option<Arc<Snapshot>> = None;
        loop {
            let number = self.next_reading(tick);
            let begun = Instant::now();
            let until = *lock(&self.files_until);
            let time = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(begun));
            let by_file = by_file.filter(|_| !time.is_zero());
            let mut snapshot = by_file.map_or_else(read, |by_file| by_file(time));
            let group = snapshot.group.take().map(|group| Arc::new(*group));
            let snapshot = Arc::new(snapshot);
            let at = Instant::now();
            let is_tick = begun >= tick;
            if let Some(group) = group.as_ref().filter(|_| is_tick || !group_has_begun) {
                // Its history begins with the first reading, so that who sees the group has one.
                self.group_history.push(group);
                group_has_begun = true;
            }
            if is_tick {
                let since = last.replace(Arc::clone(&snapshot)).filter(|_| snapshot.files.is_some());
                let interval = since.and_then(|last| Interval::between(&last, &snapshot).ok());
                if let Some((kept, activity)) =
                    self.file_history.as_ref().zip(interval.and_then(|it| it.files))
                {
                    kept.push_activity(snapshot.taken_unix_ms, activity);
                }
                self.history.push(&snapshot);
                while tick <= at {
                    tick += TICK;
                }
            }
            self.latest.send_replace(Some(Collected { number, snapshot, group, at }));
            self.history.try_put_in();
            self.group_history.try_put_in();
            self.file_history.iter().for_each(Kept::try_put_in);
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

    /// Counts calls by file for this time, at most two hours.
    pub fn count_files(&self, time: Duration) {
        let mut until = lock(&self.files_until);
        *until = (*until).max(Some(Instant::now() + time.min(FILES_TIME_MAX)));
    }

    /// What happened by file, which is counted from now on as long as somebody asks; `None` of a
    /// process that cannot count by file.
    pub fn file_history(&self) -> Option<MutexGuard<'_, History>> {
        let kept = self.file_history.as_ref()?;
        self.count_files(FILES_TIME);
        Some(kept.look())
    }

    /// Whether the counters can be read. This reads none.
    pub fn is_healthy(&self) -> bool {
        let age = self.latest.borrow().as_ref().map(Collected::age);
        age.unwrap_or_else(|| self.started.elapsed()) < HEALTHY_AGE_MAX
    }

    /// The history of a side. Whoever holds it delays others who look into it, and nothing else.
    pub fn history(&self, side: Side) -> MutexGuard<'_, History> {
        match side {
            Side::Process => self.history.look(),
            Side::Group => self.group_history.look(),
        }
    }
}

/// A history, and the seconds that it does not have yet, because somebody looks into it.
#[derive(Debug, Default)]
struct Kept {
    history: Mutex<History>,
    pending: Mutex<Vec<Part>>,
}

/// What a history does not have yet.
#[derive(Debug)]
enum Part {
    Counted(Arc<Snapshot>),
    /// What happened by file until this millisecond since 1970.
    Files(u64, FileActivity),
}

impl Kept {
    fn new(limits: Limits) -> Self {
        Self { history: Mutex::new(History::new(limits)), pending: Mutex::default() }
    }

    fn push(&self, snapshot: &Arc<Snapshot>) {
        lock(&self.pending).push(Part::Counted(Arc::clone(snapshot)));
    }

    fn push_activity(&self, end_ms: u64, activity: FileActivity) {
        lock(&self.pending).push(Part::Files(end_ms, activity));
    }

    /// Whoever looks into the history, which may take long, takes no longer than that: the next one
    /// to look puts in what waits.
    fn try_put_in(&self) {
        match self.history.try_lock() {
            Ok(history) => drop(self.put_in(history)),
            Err(TryLockError::Poisoned(error)) => drop(self.put_in(error.into_inner())),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn look(&self) -> MutexGuard<'_, History> {
        self.put_in(lock(&self.history))
    }

    fn put_in<'a>(&self, mut history: MutexGuard<'a, History>) -> MutexGuard<'a, History> {
        let pending = std::mem::take(&mut *lock(&self.pending));
        for part in pending {
            match part {
                Part::Counted(snapshot) => history.push(snapshot),
                Part::Files(end_ms, activity) => history.push_activity(end_ms, activity),
            }
        }
        history
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
        let collector = Collector::start(
            Arc::new(move || {
                drop(waited.lock());
                let mut snapshot = identity.snapshot();
                snapshot.gauges.push(Gauge::new("n", "", counted.load(Ordering::Acquire) as f64));
                snapshot
            }),
            None,
        )
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
        let gauges = found.with_age(Side::Process).unwrap().gauges;
        assert!(gauges.iter().any(|one| one.name == "counters_age_seconds" && one.value >= 2.0));
        drop(hung);
        let found = block_on(collector.fresh()).unwrap();
        assert!((value(&found) - 100.0).abs() < 0.1);
        assert!(collector.is_healthy());
    }

    #[test]
    fn a_mount_that_answers_for_a_hung_loop_is_not_healthy_and_says_how_old_its_counters_are() {
        let identity = Identity::new(metrics::Kind::Mount, "/x");
        let silent_ms = Arc::new(AtomicU64::new(60_000));
        let told = Arc::clone(&silent_ms);
        let collector = Collector::start(
            Arc::new(move || Snapshot { silent_ms: told.load(Ordering::Acquire), ..identity.snapshot() }),
            None,
        )
        .unwrap();
        let found = block_on(collector.fresh()).unwrap();
        assert!(found.age() >= Duration::from_secs(60) && !collector.is_healthy());
        silent_ms.store(0, Ordering::Release);
        testkit::Deadline::wait_until("counters of now", Duration::from_secs(60), || {
            block_on(collector.fresh());
            collector.is_healthy().then_some(())
        });
    }

    #[test]
    fn who_looks_into_the_history_delays_no_counters_and_no_second_is_lost() {
        let identity = Identity::new(metrics::Kind::Serve, "/x");
        let read = Arc::new(move || identity.snapshot());
        let collector = Collector::start(read, None).unwrap();
        let held = collector.history(Side::Process);
        let first = held.last().map_or(0, |last| last.uptime_ms);
        testkit::Deadline::wait_until("three seconds to wait", Duration::from_secs(60), || {
            block_on(collector.fresh());
            (lock(&collector.history.pending).len() >= 3).then_some(())
        });
        drop(held);
        let history = collector.history(Side::Process);
        assert!(lock(&collector.history.pending).len() <= 1);
        assert!(history.len() >= 2 && history.last().unwrap().uptime_ms > first + 1_000);
    }

    #[test]
    fn an_embedded_group_has_a_history_of_its_own() {
        let bench = Identity::new(metrics::Kind::Bench, "x");
        let group = bench.within(metrics::Kind::Serve, "embedded group of 2 nodes");
        let read = move || Snapshot { group: Some(Box::new(group.snapshot())), ..bench.snapshot() };
        let collector = Collector::start(Arc::new(read), None).unwrap();
        let found = testkit::Deadline::wait_until("two seconds", Duration::from_secs(60), || {
            let found = block_on(collector.fresh())?;
            (!collector.history(Side::Group).is_empty()).then_some(found)
        });
        let kind =
            |side| collector.history(side).last().map(|last| (last.process.kind, last.group.is_some()));
        assert_eq!(kind(Side::Group), Some((metrics::Kind::Serve, false)));
        assert_eq!(kind(Side::Process), Some((metrics::Kind::Bench, false)), "the group is kept once");
        let told = found.with_age(Side::Process).unwrap();
        assert_eq!(told.group.unwrap().process.kind, metrics::Kind::Serve);
        assert!(found.with_age(Side::Group).unwrap().group.is_none());
    }

    #[test]
    fn calls_are_counted_by_file_only_while_somebody_asks() {
        let identity = Identity::new(metrics::Kind::Serve, "/x");
        let (counted, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let count = Arc::clone(&counted);
        let (plain, by_file) = (identity.clone(), identity);
        let by_file: ByFile = Arc::new(move |_| {
            count.fetch_add(1, Ordering::AcqRel);
            let mut operations = metrics::Operations::default();
            let ms = u64::try_from(begun.elapsed().as_millis()).unwrap();
            let key = metrics::Key { file: Some("/x/a".into()), ..Default::default() };
            operations.add(key, &metrics::Tally { count: ms, ..Default::default() });
            Snapshot { files: Some(metrics::Files { counted_ms: ms, operations }), ..by_file.snapshot() }
        });
        let collector = Collector::start(Arc::new(move || plain.snapshot()), Some(by_file)).unwrap();
        block_on(collector.fresh());
        assert_eq!(counted.load(Ordering::Acquire), 0, "nobody has asked");
        let query = |history: &History| {
            let (range, by) = (history.range()?, metrics::Dimension::File);
            let query = metrics::history::Query { range, by, conditions: &[], points_max: 9, groups_max: 9 };
            Some(history.view(&query)).filter(|view| view.points.len() >= 2)
        };
        let found = testkit::Deadline::wait_until("calls by file", Duration::from_secs(60), || {
            query(&collector.file_history().unwrap())
        });
        // A thousand a second, in each of the seconds.
        assert_eq!((found.groups.len(), found.groups[0].value.as_deref()), (1, Some("/x/a")));
        let rate = found.total.count as f64 / (found.ms as f64 / 1e3);
        assert!((990.0..1010.0).contains(&rate), "{rate}");
    }

    #[test]
    fn a_process_that_cannot_count_by_file_has_no_history_of_files() {
        let identity = Identity::new(metrics::Kind::Mount, "/x");
        let collector = Collector::start(Arc::new(move || identity.snapshot()), None).unwrap();
        assert!(collector.file_history().is_none());
    }
}

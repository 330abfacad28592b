//! A load on a disk that is served by NBD: writers that stamp what they write with its place and a
//! number, and readers that compare.
//!
//! A unit is used by one worker at a time. So whatever is read is exactly what was acknowledged
//! last: nothing lost, nothing older, nothing of another place.

use crate::nbd_client::Client;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::Deadline;

/// Only a hang takes so long, also in an emulated machine.
const TIMEOUT: Duration = Duration::from_secs(120);

const WRITERS: usize = 6;
const READERS: usize = 4;
const UNITS: usize = 96;
const STRIDE: usize = 64 << 10;

/// A read or write that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub is_write: bool,
    pub submitted: Instant,
    pub took: Duration,
}

#[derive(Debug)]
struct Shared {
    /// The number that was acknowledged last for each unit.
    units: Vec<Mutex<u64>>,
    done: Mutex<Vec<Done>>,
    /// What was wrong, where.
    wrong: Mutex<Vec<String>>,
    /// Operations of each worker.
    counts: Vec<AtomicU64>,
    is_ended: AtomicBool,
}

/// What a load has done.
pub struct Outcome {
    pub done: Vec<Done>,
    pub wrong: Vec<String>,
    /// What each unit must hold, from its first byte on.
    pub content: Vec<(u64, Vec<u8>)>,
}

pub struct DiskLoad {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// One goes within a capsule, and the next one is asked for.
pub const fn place(unit: usize) -> (u64, usize) {
    ((unit * STRIDE) as u64, if unit.is_multiple_of(2) { 4096 } else { STRIDE })
}

/// Sixteen bytes of place and number, again and again.
pub fn stamped(unit: usize, number: u64) -> Vec<u8> {
    let (offset, bytes) = place(unit);
    let pieces = (offset..offset + bytes as u64).step_by(16);
    pieces.flat_map(|at| [at.to_le_bytes(), number.to_le_bytes()].concat()).collect()
}

/// The first difference.
pub fn difference(unit: usize, number: u64, found: &[u8]) -> Option<String> {
    let expected = stamped(unit, number);
    let at = expected.chunks(16).zip(found.chunks(16)).position(|(one, other)| one != other);
    let at = at.or((expected.len() != found.len()).then_some(0))?;
    let stamp = found.get(at * 16..at * 16 + 16).unwrap_or_default();
    let half = |part: Option<&[u8]>| part.and_then(|one| one.try_into().ok()).map(u64::from_le_bytes);
    let [place, is] = [half(stamp.get(..8)), half(stamp.get(8..))];
    Some(format!("unit {unit}, piece {at}: acknowledged was {number}, found {is:?} of place {place:?}"))
}

impl Shared {
    /// Works with a unit that nobody else uses.
    fn with_unit(&self, random: &mut fastrand::Rng, work: impl FnOnce(usize, &mut u64)) {
        let unit = random.usize(..UNITS);
        // The one of a worker that has panicked stays locked.
        if let Ok(mut number) = self.units[unit].try_lock() {
            work(unit, &mut number);
        } else {
            std::thread::yield_now();
        }
    }

    fn timed<T>(&self, worker: usize, is_write: bool, work: impl FnOnce() -> T) -> T {
        let submitted = Instant::now();
        let result = work();
        let done = Done { is_write, submitted, took: submitted.elapsed() };
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        self.counts[worker].fetch_add(1, Ordering::Relaxed);
        result
    }

    fn compare(&self, unit: usize, number: u64, found: &[u8]) {
        let difference = difference(unit, number, found);
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).extend(difference);
    }

    fn work(&self, worker: usize, socket: &Path, seed: u64) {
        let mut client = Client::begin(socket);
        let mut random = fastrand::Rng::with_seed(seed);
        while !self.is_ended.load(Ordering::Relaxed) {
            self.with_unit(&mut random, |unit, number| {
                let (offset, bytes) = place(unit);
                if worker < WRITERS {
                    let data = stamped(unit, *number + 1);
                    self.timed(worker, true, || client.write(offset, &data));
                    *number += 1;
                } else {
                    let found = self.timed(worker, false, || client.read(offset, bytes as u32));
                    self.compare(unit, *number, &found);
                }
            });
        }
    }
}

impl DiskLoad {
    /// Writes every unit once, and begins.
    pub fn start(socket: &Path, seed: u64) -> Self {
        let mut client = Client::begin(socket);
        for unit in 0..UNITS {
            client.write(place(unit).0, &stamped(unit, 1));
        }
        let shared = Arc::new(Shared {
            units: (0..UNITS).map(|_| Mutex::new(1)).collect(),
            done: Mutex::default(),
            wrong: Mutex::default(),
            counts: (0..WRITERS + READERS).map(|_| AtomicU64::new(0)).collect(),
            is_ended: AtomicBool::new(false),
        });
        let spawn = |worker: usize| {
            let (shared, socket) = (Arc::clone(&shared), socket.to_owned());
            std::thread::spawn(move || shared.work(worker, &socket, seed + worker as u64))
        };
        Self { workers: (0..WRITERS + READERS).map(spawn).collect(), shared }
    }

    /// Waits until every worker has begun and ended something since.
    #[track_caller]
    pub fn wait_for_all(&self) {
        let counts = || self.shared.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let before: Vec<u64> = counts().collect();
        Deadline::wait_until("every worker to go on", TIMEOUT, || {
            assert!(!self.workers.iter().any(JoinHandle::is_finished), "a worker has panicked");
            counts().zip(&before).all(|(now, before)| now >= before + 2).then_some(())
        });
    }

    /// Ends it, reads everything back, and compares.
    pub fn stop(self, socket: &Path) -> Outcome {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.join().expect("no operation fails");
        }
        let mut client = Client::begin(socket);
        let mut content = Vec::new();
        for (unit, number) in self.shared.units.iter().enumerate() {
            let number = *number.lock().unwrap_or_else(PoisonError::into_inner);
            let (offset, bytes) = place(unit);
            self.shared.compare(unit, number, &client.read(offset, bytes as u32));
            content.push((offset, stamped(unit, number)));
        }
        let take = |wrong: &Mutex<Vec<String>>| {
            std::mem::take(&mut *wrong.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let done = std::mem::take(&mut *self.shared.done.lock().unwrap_or_else(PoisonError::into_inner));
        Outcome { done, wrong: take(&self.shared.wrong), content }
    }
}

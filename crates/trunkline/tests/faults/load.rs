//! A mixed load on a mount: workers that write their own file and read all files, checked by a
//! [`History`], and workers that create, rename and remove names, each of which must happen once.
//!
//! The duration of every call is kept, so that the figures can be computed afterwards.

use super::history::{BLOCK_BYTES, History, Reading, Store, Wrong};
use client::{Answer, File, Mount, Pending};
use fastrand::Rng;
use fs::{CreateMode, FileHandle, SetAttributes, Status};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Workers that read and write, each with its file: as many as nodes, so that each node has a file.
const WORKERS: usize = 4;
/// Workers that create and remove names.
const NAMERS: usize = 2;
const BLOCKS: usize = 32;
/// Calls of a worker in flight.
const DEPTH: usize = 8;
/// Names that a worker keeps, so that there are names to rename and to remove.
const NAMES_MAX: usize = 40;

/// A call that was answered.
#[derive(Debug, Clone, Copy)]
pub struct Completion {
    /// The worker that made the call.
    pub worker: usize,
    pub submitted: Instant,
    pub took: Duration,
    pub bytes: usize,
}

impl Completion {
    pub fn ended(&self) -> Instant {
        self.submitted + self.took
    }
}

/// The results of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    pub completions: Vec<Completion>,
    /// Blocks that were wrong, with descriptions.
    pub wrong: Vec<(Wrong, String)>,
    /// Calls that failed, with descriptions.
    pub failed: Vec<String>,
    /// Names that were created or removed twice, or not at all, with descriptions.
    pub doubled: Vec<String>,
    /// How many of these errors came from calls that a server may have executed before it lost its
    /// reply cache.
    pub undecided: u64,
    pub calls: u64,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.completions.extend(other.completions);
        self.wrong.extend(other.wrong);
        self.failed.extend(other.failed);
        self.doubled.extend(other.doubled);
        self.calls += other.calls;
    }
}

struct Shared {
    mount: Arc<Mount>,
    files: Vec<(File, Mutex<History>)>,
    label: String,
    stop: AtomicBool,
}

impl Shared {
    fn history<T>(&self, file: usize, act: impl FnOnce(&mut History) -> T) -> T {
        act(&mut self.files[file].1.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A running load.
pub struct Load {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Outcome>>,
}

enum Call {
    Write { block: usize, generation: u64 },
    Read { file: usize, reading: Reading },
}

impl Load {
    /// Creates the files and starts; `label` distinguishes the names from those of other loads.
    pub fn start(mount: &Arc<Mount>, label: &str, store: Store, seed: u64) -> Self {
        let files = (0..WORKERS)
            .map(|worker| {
                let file = mount.create_file(format!("/{label}-{worker}").as_bytes(), 0o644).expect("made");
                (file, Mutex::new(History::new(seed << 8 | worker as u64, BLOCKS, store)))
            })
            .collect();
        let shared = Arc::new(Shared {
            mount: Arc::clone(mount),
            files,
            label: label.to_owned(),
            stop: AtomicBool::new(false),
        });
        let mut workers = Vec::new();
        for worker in 0..WORKERS {
            let (shared, random) = (Arc::clone(&shared), Rng::with_seed(seed ^ worker as u64));
            workers.push(std::thread::spawn(move || read_and_write(&shared, worker, random)));
        }
        for worker in 0..NAMERS {
            let (shared, random) = (Arc::clone(&shared), Rng::with_seed(seed ^ 0x100 ^ worker as u64));
            let directory = format!("{label}-names-{worker}");
            let number = WORKERS + worker;
            workers.push(std::thread::spawn(move || name(&shared, number, &directory, random)));
        }
        Self { shared, workers }
    }

    /// Ends the load, and compares everything on the server with what must be there.
    pub fn stop(mut self) -> Outcome {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut outcome = Outcome::default();
        for worker in self.workers.drain(..) {
            outcome.add(worker.join().expect("a worker of the load has panicked"));
        }
        for (number, (file, history)) in self.shared.files.iter().enumerate() {
            let history = history.lock().unwrap_or_else(PoisonError::into_inner);
            for block in 0..BLOCKS {
                let reading = history.begin_read(block);
                let done = file.read_at(vec![0; BLOCK_BYTES], (block * BLOCK_BYTES) as u64).wait();
                judge(&mut outcome, done.result, &done.buffer, number, block, |data| {
                    let verdict = history.end_read(reading, data);
                    verdict
                        .map_err(|wrong| (wrong, format!("at the end, {}", history.describe(reading, data))))
                });
            }
        }
        outcome.undecided = self.shared.mount.statistics().replays.undecided;
        // Otherwise the files would fill a server in memory after some hundred loads.
        let mount = &self.shared.mount;
        for worker in 0..WORKERS {
            let name = format!("{}-{worker}", self.shared.label);
            if let Err(error) = mount.remove(mount.root(), name.as_bytes()) {
                outcome.failed.push(format!("REMOVE at the end: {error}"));
            }
        }
        outcome
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

fn judge(
    outcome: &mut Outcome,
    result: client::Result<Answer>,
    buffer: &[u8],
    file: usize,
    block: usize,
    verdict: impl FnOnce(&[u8]) -> Result<(), (Wrong, String)>,
) {
    match result {
        Ok(Answer::Read { count, .. }) => {
            if let Err((wrong, why)) = verdict(buffer.get(..count as usize).unwrap_or(buffer)) {
                outcome.wrong.push((wrong, format!("block {block} of file {file}: {why}")));
            }
        }
        Ok(other) => outcome.failed.push(format!("a read was answered by {other:?}")),
        Err(error) => outcome.failed.push(error.to_string()),
    }
}

fn read_and_write(shared: &Shared, worker: usize, mut random: Rng) -> Outcome {
    let mut outcome = Outcome::default();
    let mut under_way: VecDeque<(Call, Instant, Pending)> = VecDeque::new();
    let mut begun = 0;
    loop {
        while under_way.len() < DEPTH && !shared.stopped() {
            // At first every block is written once.
            let block = if begun < BLOCKS { begun } else { random.usize(..BLOCKS) };
            // All files are read equally often: if many workers read one file, calls would wait for
            // more than the fault.
            let file = (worker + begun) % WORKERS;
            let write = begun < BLOCKS || random.bool();
            let begin_write = |history: &mut History| history.begin_write(block);
            let next = if write { shared.history(worker, begin_write) } else { None };
            let now = Instant::now();
            let offset = (block * BLOCK_BYTES) as u64;
            under_way.push_back(match next {
                Some((generation, data)) => {
                    let pending = shared.files[worker].0.write_at(data, offset);
                    (Call::Write { block, generation }, now, pending)
                }
                None => {
                    let reading = shared.history(file, |history| history.begin_read(block));
                    let pending = shared.files[file].0.read_at(vec![0; BLOCK_BYTES], offset);
                    (Call::Read { file, reading }, now, pending)
                }
            });
            begun += 1;
        }
        let Some((call, submitted, pending)) = under_way.pop_front() else { return outcome };
        let done = pending.wait();
        outcome.calls += 1;
        outcome.completions.push(Completion { worker, submitted, took: done.latency, bytes: BLOCK_BYTES });
        match call {
            Call::Write { block, generation } => match done.result {
                Ok(_) => shared.history(worker, |history| history.acknowledge(block, generation)),
                Err(error) => outcome.failed.push(error.to_string()),
            },
            Call::Read { file, reading } => {
                judge(&mut outcome, done.result, &done.buffer, file, reading.block(), |data| {
                    shared.history(file, |history| {
                        let verdict = history.end_read(reading, data);
                        verdict.map_err(|wrong| (wrong, history.describe(reading, data)))
                    })
                });
            }
        }
    }
}

/// A directory in which one worker creates and removes names.
#[derive(Debug)]
struct Names<'a> {
    mount: &'a Mount,
    directory: FileHandle,
    files: BTreeSet<Vec<u8>>,
    others: BTreeSet<Vec<u8>>,
}

/// Creates, links, renames and removes names that no other worker uses, one after the other. An
/// error means that an operation was done twice, or not at all.
fn name(shared: &Shared, worker: usize, label: &str, mut random: Rng) -> Outcome {
    let mut outcome = Outcome::default();
    let mount = &shared.mount;
    let made = mount.make_directory(mount.root(), label.as_bytes(), SetAttributes::default());
    let (directory, _) = made.expect("the first directory is made");
    let mut names = Names { mount, directory, files: BTreeSet::new(), others: BTreeSet::new() };
    let mut number = 0_u64;
    while !shared.stopped() {
        number += 1;
        let submitted = Instant::now();
        let (what, result) = names.change(format!("{number}").into_bytes(), &mut random);
        outcome.calls += 1;
        outcome.completions.push(Completion { worker, submitted, took: submitted.elapsed(), bytes: 0 });
        match result {
            Ok(()) => {}
            Err(error) if matches!(error.status(), Some(Status::Exists | Status::NotFound)) => {
                outcome.doubled.push(format!("{what}: {error}"));
            }
            Err(error) => outcome.failed.push(format!("{what}: {error}")),
        }
    }
    let emptied = names.compare(&mut outcome);
    if let Err(error) = emptied.and_then(|()| mount.remove_directory(mount.root(), label.as_bytes())) {
        outcome.failed.push(format!("at the end: {error}"));
    }
    outcome
}

impl Names<'_> {
    /// Does an operation with a new name or an old one.
    fn change(&mut self, fresh: Vec<u8>, random: &mut Rng) -> (&'static str, client::Result<()>) {
        let Self { mount, directory, ref mut files, ref mut others } = *self;
        let full = files.len() + others.len() > NAMES_MAX;
        let pick =
            |names: &BTreeSet<Vec<u8>>, at: u64| names.iter().nth(at as usize % names.len().max(1)).cloned();
        let old = pick(files, random.u64(..1000));
        let other = pick(others, random.u64(..1000));
        match (random.u64(..8), old, other) {
            (0 | 1, Some(old), _) if full => {
                files.remove(&old);
                ("REMOVE", mount.remove(directory, &old))
            }
            (2 | 3, _, Some(other)) if full => {
                others.remove(&other);
                ("RMDIR", mount.remove_directory(directory, &other))
            }
            (0, Some(old), _) => {
                files.remove(&old);
                files.insert(fresh.clone());
                ("RENAME", mount.rename((directory, &old), (directory, &fresh)))
            }
            (1, Some(old), _) => {
                files.insert(fresh.clone());
                let linked =
                    mount.lookup(directory, &old).and_then(|(file, _)| mount.link(file, directory, &fresh));
                ("LINK", linked)
            }
            (2 | 3, ..) => {
                others.insert(fresh.clone());
                ("MKDIR", mount.make_directory(directory, &fresh, SetAttributes::default()).map(|_| ()))
            }
            (4, ..) => {
                files.insert(fresh.clone());
                ("SYMLINK", mount.make_symlink(directory, &fresh, b"target").map(|_| ()))
            }
            (5, ..) => {
                files.insert(fresh.clone());
                let verifier = random.u64(..).to_be_bytes();
                (
                    "CREATE EXCLUSIVE",
                    mount.create(directory, &fresh, CreateMode::Exclusive(verifier)).map(|_| ()),
                )
            }
            _ => {
                files.insert(fresh.clone());
                (
                    "CREATE",
                    mount
                        .create(directory, &fresh, CreateMode::Guarded(SetAttributes::default()))
                        .map(|_| ()),
                )
            }
        }
    }

    /// Compares the names on the server with those that must exist, and removes them.
    fn compare(self, outcome: &mut Outcome) -> client::Result<()> {
        let Self { mount, directory, files, others } = self;
        let wanted: BTreeSet<Vec<u8>> = files.union(&others).cloned().collect();
        let entries = mount.read_directory(directory)?.into_iter().map(|entry| entry.name);
        let there: BTreeSet<Vec<u8>> = entries.filter(|name| !name.starts_with(b".")).collect();
        for name in wanted.symmetric_difference(&there) {
            let name = String::from_utf8_lossy(name);
            outcome.doubled.push(format!("the name {name} exists and must not, or must exist and does not"));
        }
        for name in there {
            let remove = if others.contains(&name) { Mount::remove_directory } else { Mount::remove };
            remove(mount, directory, &name)?;
        }
        Ok(())
    }
}

//! A worker process: the test program started again, which reads and writes the files of a plan and
//! keeps a record of its operations.

use crate::access::{Access, Times};
use crate::op::{AccessMethod, Effect, Log, Op, now};
use crate::plan::{Abilities, Kind, Meeting, Plan};
use crate::stamp::Stamp;
use fastrand::Rng;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::{Deadline, Process};

const PROCESS: &str = "TRUNKLINE_HISTORY_PROCESS";
const SEED: &str = "TRUNKLINE_HISTORY_SEED";
const OPTIONS: &str = "TRUNKLINE_HISTORY_DRAWN_OPTIONS";
const DIRECTORY: &str = "TRUNKLINE_HISTORY_DIRECTORY";
const ORDERS: &str = "TRUNKLINE_HISTORY_ORDERS";
const ANY_DIRECT: &str = "TRUNKLINE_HISTORY_ANY_DIRECT";
/// Set for rounds that include operations with known findings.
pub const KNOWN_LIMITS: &str = "TRUNKLINE_HISTORY_KNOWN_LIMITS";
const GO: &str = "go";
const TIMEOUT: Duration = Duration::from_secs(240);

/// A round ends after this time, or after this number of turns of each thread, which bounds the
/// size of the history.
const ROUND_NS: u64 = 1_500_000_000;
const TURNS_MAX: u32 = 2500;

/// Starts a worker on one of the mounts. The worker waits for [`go`].
pub fn start(
    test: &str,
    plan: &Plan,
    abilities: &Abilities,
    process: u8,
    directory: &Path,
    orders: &Path,
) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
    command.args(["--exact", "--nocapture", test]).env(PROCESS, process.to_string());
    command.env(SEED, plan.seed.to_string()).env(OPTIONS, &plan.options);
    command.env(DIRECTORY, directory).env(ORDERS, orders);
    if abilities.known_limits {
        command.env(KNOWN_LIMITS, "yes");
    }
    command.env(ANY_DIRECT, abilities.direct_anywhere.to_string());
    Process::spawn(command)
}

/// Lets the workers begin when all are ready.
pub fn go(workers: &[Process], orders: &Path) {
    workers.iter().for_each(|worker| drop(worker.wait_for_line("the worker is there", TIMEOUT)));
    File::create(orders.join(GO)).expect("written");
}

/// The path of the file in which a thread keeps its operations.
pub fn log(orders: &Path, writer: u8) -> PathBuf {
    orders.join(format!("history-{writer}"))
}

/// Whether this process is a worker; if so, its work is done on return.
pub fn is_asked_for() -> bool {
    let [Some(process), Some(seed), Some(options), Some(any_direct)] =
        [PROCESS, SEED, OPTIONS, ANY_DIRECT].map(|name| std::env::var(name).ok())
    else {
        return false;
    };
    let [directory, orders] =
        [DIRECTORY, ORDERS].map(|name| PathBuf::from(std::env::var_os(name).expect(name)));
    let direct_anywhere = any_direct == "true";
    let seed = seed.parse().expect("a seed");
    let plan = Plan::of(
        seed,
        &Abilities {
            direct_anywhere,
            options: Some(options),
            known_limits: std::env::var_os(KNOWN_LIMITS).is_some(),
        },
    );
    let process: u8 = process.parse().expect("a number");
    println!("the worker is there");
    Deadline::wait_until("the file that lets the worker begin", TIMEOUT, || {
        orders.join(GO).exists().then_some(())
    });
    std::thread::scope(|threads| {
        for thread in 0..plan.threads {
            let (plan, directory, orders) = (&plan, &directory, &orders);
            threads.spawn(move || {
                Worker::new(plan, plan.writer(process, thread), thread, directory, orders).run()
            });
        }
    });
    true
}

struct Worker<'a> {
    plan: &'a Plan,
    writer: u8,
    random: Rng,
    log: Log,
    files: Vec<Access<'a>>,
    /// In the order of `files`; `None` if no lock is to be held.
    locks: Vec<Option<Lock>>,
    number: u32,
}

/// A file to lock before each turn, and the kind of lock.
enum Lock {
    /// On the mount, with fcntl(2), whose locks belong to processes.
    OnMount(File),
    /// Not on the mount.
    Apart(File),
}

impl Lock {
    fn apply(&self, operation: FlockOperation) {
        let done = match self {
            Self::OnMount(file) => fcntl_lock(file, operation),
            Self::Apart(file) => flock(file, operation),
        };
        done.expect("a lock must not fail");
    }
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, writer: u8, thread: u8, directory: &Path, orders: &Path) -> Self {
        let open = |place: &Path, file: usize| {
            let path = place.join(format!("lock-{file}"));
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .expect("a lock's file opens")
        };
        // An fcntl(2) lock does not exclude threads of the same process.
        let usable = |kind| kind != Kind::Locked || thread == 0;
        let files = || plan.files.iter().enumerate().filter(|(_, file)| usable(file.kind));
        let locks = files().map(|(number, file)| match plan.meeting {
            Meeting::UnderLock => Some(Lock::Apart(open(orders, number))),
            _ if file.kind == Kind::Locked => Some(Lock::OnMount(open(directory, number))),
            _ => None,
        });
        let locks = locks.collect();
        let files = files().map(|(number, file)| Access::new(file, directory, number, writer, plan.meeting));
        let random = Rng::with_seed(plan.seed ^ u64::from(writer) << 32);
        Self {
            plan,
            writer,
            random,
            log: Log::create(&log(orders, writer)),
            files: files.collect(),
            locks,
            number: 0,
        }
    }

    fn run(mut self) {
        let end = now() + ROUND_NS;
        let turns = if self.files.is_empty() { 0 } else { TURNS_MAX };
        for _ in 0..turns {
            if now() >= end {
                break;
            }
            let file = self.random.usize(..self.files.len());
            if self.random.u32(..32) == 0 {
                self.files[file].disturb(&mut self.random);
            }
            self.step(file);
        }
        self.log.finish();
    }

    fn step(&mut self, file: usize) {
        let Some(lock) = self.locks[file].take() else { return self.act(file) };
        lock.apply(FlockOperation::LockExclusive);
        let begin = now();
        for _ in 0..self.random.u32(1..=3) {
            self.act(file);
        }
        self.keep(file, AccessMethod::Buffered, 0, Effect::Held, [begin, now()]);
        lock.apply(FlockOperation::Unlock);
        self.locks[file] = Some(lock);
    }

    /// Performs a write, which is often read back at once, or a read.
    fn act(&mut self, file: usize) {
        if self.random.bool() {
            let range = self.files[file].plan.range(&mut self.random);
            return self.read(file, range);
        }
        let wrote = self.write(file);
        if let Some(range) = wrote.filter(|_| self.random.bool()) {
            self.read(file, range);
        }
    }

    fn write(&mut self, file: usize) -> Option<(u32, u32)> {
        let random = &mut self.random;
        let access = &mut self.files[file];
        let method = access.plan.writes[random.usize(..access.plan.writes.len())];
        if access.plan.kind == Kind::Appended {
            return self.append(file, method);
        }
        if method == AccessMethod::Cut {
            let cell = if random.bool() { access.plan.cells } else { access.plan.range(random).0 };
            let times = access.cut(cell);
            self.keep(file, method, cell, Effect::Cut, times);
            return None;
        }
        let (first, cells) = access.plan.range_of(random, self.writer, self.plan.workers(), method)?;
        self.number += 1;
        let (writer, number) = (self.writer, self.number);
        let times = access.write(method, Stamp { writer, number, cell: 0 }, first, cells);
        self.keep(file, method, first, Effect::Wrote { number, cells }, times);
        Some((first, cells))
    }

    fn append(&mut self, file: usize, method: AccessMethod) -> Option<(u32, u32)> {
        // Several workers may append at the same time, each one record.
        if self.files[file].cells_now() + u32::from(self.plan.workers()) >= self.files[file].plan.cells {
            return None;
        }
        self.number += 1;
        let number = self.number;
        let times = self.files[file].append(method, self.writer, number);
        self.keep(file, method, 0, Effect::Appended { number }, times);
        None
    }

    fn read(&mut self, file: usize, (mut first, mut cells): (u32, u32)) {
        let access = &mut self.files[file];
        let method = access.plan.reads[self.random.usize(..access.plan.reads.len())];
        if access.plan.kind == Kind::Appended {
            // Reads near the end of the file, where appends happen.
            first = access.cells_now().saturating_sub(self.random.u32(..32)).min(access.plan.cells - 1);
            cells = cells.min(access.plan.cells - first);
        }
        let (runs, times) = access.read(method, first, cells);
        self.keep(file, method, first, Effect::Read(runs), times);
    }

    fn keep(&mut self, file: usize, method: AccessMethod, first: u32, effect: Effect, [begin, end]: Times) {
        // Files that a thread may not use are missing from its list.
        let number = self.number_of(file);
        self.log.keep(number, &Op { writer: self.writer, method, begin, end, first, effect });
    }

    fn number_of(&self, file: usize) -> usize {
        let own = self.files[file].plan;
        self.plan.files.iter().position(|plan| std::ptr::eq(plan, own)).expect("the file is in the plan")
    }
}

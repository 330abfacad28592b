//! A program in a mounted directory: none of its calls may fail, nothing that it has written may be
//! lost, every read must return the newest data, and each name is created, renamed and removed
//! once.
//!
//! The program is the test itself, started again with the directory in its environment, because a
//! process that has files of a mount open must not start processes while that mount waits. The
//! program works until a file tells it to stop:
//!
//! - writers and readers of blocks with O_DIRECT, each checked by a [`History`];
//! - others write whole files through the page cache, and after fsync or close compare the files
//!   with what they have written;
//! - others create, rename and remove names.
//!
//! The program compares both what the mount returns and what is in the served directory, which is
//! on the same machine.

use super::history::{BLOCK_BYTES, History, Store};
use fastrand::Rng;
use rustix::fs::OFlags;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use testkit::{Deadline, Process, temp_dir};

/// The directory to work in, the same directory as it is served, and the directory with the orders.
const DIRECTORY: &str = "TRUNKLINE_FAULTS_DIRECTORY";
const SERVED: &str = "TRUNKLINE_FAULTS_SERVED";
const ORDERS: &str = "TRUNKLINE_FAULTS_ORDERS";
const STOP: &str = "stop";
/// Writers, each with its own file, and as many readers. They have more files open than there are
/// nodes, so that each node is the affinity of a file.
const WRITERS: usize = 4;
const BLOCKS: usize = 32;
/// Workers that write whole files, and workers that create names.
const KEEPERS: usize = 2;
const NAMERS: usize = 2;
const WORKERS: u64 = (2 * WRITERS + KEEPERS + NAMERS) as u64;
/// The number of files of each keeper, and the maximum size of a file.
const FILES: usize = 3;
const FILE_BYTES_MAX: usize = 300_000;
/// The prefix of the names of files that were removed while open.
const HIDDEN: &str = ".nfs";
const TIMEOUT: Duration = Duration::from_secs(240);

/// The running program, as the test sees it.
pub struct Program {
    process: Process,
    orders: TempDir,
    marks: u64,
}

impl Program {
    /// Starts this test again by its full name, which then calls [`is_asked_for`], in a new
    /// directory of this name.
    pub fn start(test: &str, name: &str, [mounted, served]: [&Path; 2]) -> Self {
        let orders = temp_dir("program");
        let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
        command.args(["--exact", "--nocapture", test]).env(ORDERS, orders.path());
        command.env(DIRECTORY, mounted.join(name)).env(SERVED, served.join(name));
        let process = Process::spawn(command);
        process.wait_for_line("the program is at work", TIMEOUT);
        Self { process, orders, marks: 0 }
    }

    fn order(&self, what: &str) {
        fs::write(self.orders.path().join(what), "").expect("written");
    }

    /// Waits until each worker has done something that it began after this call.
    pub fn wait_until_all_went_on(&mut self) {
        self.marks += 1;
        self.order(&self.marks.to_string());
        self.process.wait_for_line(&format!("all went on after {};", self.marks), TIMEOUT);
    }

    /// How many calls so far returned an error although the operation was done.
    pub fn uncertain(&self) -> usize {
        self.process.all_output().matches(UNCERTAIN).count()
    }

    /// Ends the program. Returns a description of its work, and the number of such errors.
    pub fn stop(mut self) -> (String, u64) {
        self.order(STOP);
        let status = self.process.wait(TIMEOUT);
        let said = self.process.all_output();
        let last = said.lines().find_map(|line| line.split_once(" in doubt: ").filter(|_| status.success()));
        let Some((uncertain, done)) = last else { panic!("{status}: {said}") };
        (done.to_owned(), uncertain.trim().parse().expect("a number"))
    }
}

/// What the program prints for each call in doubt.
const UNCERTAIN: &str = "done, and answered with an error";

/// Whether this process is the program; if so, the program has run when this returns.
pub fn is_asked_for() -> bool {
    let [directory, served, orders] = [DIRECTORY, SERVED, ORDERS].map(std::env::var_os);
    let (Some(directory), Some(served), Some(orders)) = (directory, served, orders) else { return false };
    let place = FilePaths { mounted: directory.into(), served: served.into() };
    run(&place, &Orders { directory: orders.into(), followed: Mutex::default() });
    true
}

/// The orders of the test: to stop, and when to report that all workers have continued.
struct Orders {
    directory: PathBuf,
    /// How many workers have continued after each mark.
    followed: Mutex<Vec<u64>>,
}

impl Orders {
    /// Repeats `act` until the order to stop.
    fn follow(&self, mut act: impl FnMut()) {
        let mut mark = 1;
        while !self.directory.join(STOP).exists() {
            let marked = self.directory.join(mark.to_string()).exists();
            act();
            if marked {
                self.record_progress(mark);
                mark += 1;
            }
        }
    }

    fn record_progress(&self, mark: usize) {
        let mut followed = self.followed.lock().expect("no thread has panicked with the lock");
        let marks = followed.len().max(mark);
        followed.resize(marks, 0);
        followed[mark - 1] += 1;
        if followed[mark - 1] == WORKERS {
            println!("all went on after {mark};");
        }
    }
}

/// Works until the order to stop, then compares everything once more and removes it. A thread that
/// panics ends the program with an error.
fn run(place: &FilePaths, orders: &Orders) {
    fs::create_dir(&place.mounted).expect("made");
    let blocks: Vec<Blocks> = (0..WRITERS).map(|number| Blocks::made(place, number)).collect();
    let keepers: Vec<Keeper> = (0..KEEPERS).map(|number| Keeper::new(place, number)).collect();
    let namers: Vec<Namer> = (0..NAMERS).map(|number| Namer::made(place, number)).collect();
    println!("the program is at work");
    let [written, read, files, names, uncertain] = [const { AtomicU64::new(0) }; 5];
    let count = |done: &AtomicU64| done.fetch_add(1, Ordering::Relaxed);
    std::thread::scope(|threads| {
        for (number, one) in blocks.iter().enumerate() {
            let repeat = move |seed: u64, done: &AtomicU64, act: &dyn Fn(&File, usize)| {
                let (file, mut random) = (one.open(), Rng::with_seed(seed));
                orders.follow(|| {
                    act(&file, random.usize(..BLOCKS));
                    count(done);
                });
                // The sync writes pending data, or fails.
                file.sync_all().expect("a sync must not fail");
            };
            let (written, read) = (&written, &read);
            threads.spawn(move || repeat(number as u64, written, &|file, block| one.write(file, block)));
            threads.spawn(move || repeat(!(number as u64), read, &|file, block| one.read(file, block)));
        }
        for mut keeper in keepers {
            let files = &files;
            threads.spawn(move || {
                orders.follow(|| {
                    keeper.write();
                    count(files);
                });
                keeper.compare_all();
            });
        }
        for mut namer in namers {
            let (names, uncertain) = (&names, &uncertain);
            threads.spawn(move || {
                orders.follow(|| {
                    namer.step();
                    count(names);
                });
                namer.compare();
                uncertain.fetch_add(namer.uncertain, Ordering::Relaxed);
            });
        }
    });
    for one in &blocks {
        let file = one.open();
        (0..BLOCKS).for_each(|block| one.read(&file, block));
    }
    fs::remove_dir_all(&place.mounted).expect("removed");
    assert!(!place.served.exists(), "the directory was removed");
    let [written, read, files, names, uncertain] =
        [written, read, files, names, uncertain].map(AtomicU64::into_inner);
    println!(
        "{uncertain} in doubt: {written} blocks written, {read} read, {files} files written, {names} turns with names, \
         and nothing was lost"
    );
}

/// A directory of the program in the mount, and in the served directory.
#[derive(Clone)]
struct FilePaths {
    mounted: PathBuf,
    served: PathBuf,
}

impl FilePaths {
    fn join(&self, name: &str) -> Self {
        Self { mounted: self.mounted.join(name), served: self.served.join(name) }
    }
}

fn direct() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::DIRECT.bits() as i32);
    options
}

/// A file of blocks that is accessed with O_DIRECT, and what it may contain.
struct Blocks {
    path: PathBuf,
    history: Mutex<History>,
}

impl Blocks {
    /// Creates the file and writes each block once.
    fn made(place: &FilePaths, number: usize) -> Self {
        let made = Self {
            path: place.mounted.join(format!("blocks-{number}")),
            history: Mutex::new(History::new(number as u64, BLOCKS, Store::ByParts)),
        };
        let file = made.open();
        (0..BLOCKS).for_each(|block| made.write(&file, block));
        made
    }

    fn open(&self) -> File {
        direct().write(true).create(true).open(&self.path).expect("the file opens")
    }

    fn history<T>(&self, act: impl FnOnce(&mut History) -> T) -> T {
        act(&mut self.history.lock().expect("no thread has panicked with the lock"))
    }

    fn write(&self, file: &File, block: usize) {
        let (generation, data) = self.history(|history| history.begin_write(block)).expect("one writer");
        file.write_all_at(&data, (block * BLOCK_BYTES) as u64).expect("a write must not fail");
        self.history(|history| history.acknowledge(block, generation));
    }

    fn read(&self, file: &File, block: usize) {
        let reading = self.history(|history| history.begin_read(block));
        let mut data = vec![0; BLOCK_BYTES];
        file.read_exact_at(&mut data, (block * BLOCK_BYTES) as u64).expect("a read must not fail");
        self.history(|history| {
            let verdict = history.end_read(reading, &data);
            assert!(verdict.is_ok(), "block {block}: {verdict:?}: {}", history.describe(reading, &data));
        });
    }
}

/// Writes whole files through the page cache.
struct Keeper {
    files: Vec<(FilePaths, Vec<u8>)>,
    random: Rng,
}

impl Keeper {
    fn new(place: &FilePaths, number: usize) -> Self {
        let file = |at| (place.join(&format!("kept-{number}-{at}")), Vec::new());
        Self { files: (0..FILES).map(file).collect(), random: Rng::with_seed(number as u64) }
    }

    /// Rewrites a file in pieces; after a sync or a close the data must be on the server.
    fn write(&mut self) {
        let Self { files, random } = self;
        let (place, kept) = &mut files[random.usize(..FILES)];
        let mut data = vec![0; random.usize(1..FILE_BYTES_MAX)];
        random.fill(&mut data);
        let mut file = File::create(&place.mounted).expect("the file opens");
        for piece in data.chunks(random.usize(500..50_000)) {
            file.write_all(piece).expect("a write must not fail");
        }
        *kept = data;
        if random.bool() {
            file.sync_all().expect("a sync must not fail");
            assert!(
                fs::read(&place.served).expect("the file exists") == *kept,
                "{}: synced",
                place.served.display()
            );
        }
        drop(file);
        Self::compare(place, kept);
    }

    /// Compares a file in the served directory, in the mount with O_DIRECT, and in the page cache.
    fn compare(place: &FilePaths, kept: &[u8]) {
        let FilePaths { mounted, served } = place;
        assert!(fs::read(served).expect("the file exists") == kept, "{}: closed", served.display());
        let mut seen = vec![0; kept.len()];
        let file = direct().open(mounted).expect("the file opens");
        file.read_exact_at(&mut seen, 0).expect("a read must not fail");
        assert!(seen == kept, "{}: past the cache", mounted.display());
        assert!(fs::read(mounted).expect("a read must not fail") == kept, "{}: read", mounted.display());
    }

    fn compare_all(&self) {
        let written = self.files.iter().filter(|(_, kept)| !kept.is_empty());
        written.for_each(|(place, kept)| Self::compare(place, kept));
    }
}

/// Creates, renames and removes names in its own directory, one call after the other.
struct Namer {
    place: FilePaths,
    turns: u64,
    /// The names that must exist.
    names: BTreeSet<String>,
    /// How many calls returned an error although the operation was done.
    uncertain: u64,
}

impl Namer {
    fn made(place: &FilePaths, number: usize) -> Self {
        let place = place.join(&format!("names-{number}"));
        fs::create_dir(&place.mounted).expect("made");
        Self { place, turns: 0, names: BTreeSet::new(), uncertain: 0 }
    }

    /// Each name is new, so that only the calls of this turn can be in its way.
    fn step(&mut self) {
        self.turns += 1;
        let step = self.turns;
        let [made, moved, below] = ["made", "moved", "below"].map(|what| format!("{what}-{step}"));
        let path = |name: &str| self.place.mounted.join(name);
        let (made_path, moved_path, last, directory) =
            (path(&made), path(&moved), path("last"), path(&below));
        // A repeated CREATE EXCLUSIVE recognizes its own file, so it is never in doubt.
        let mut file = File::create_new(&made_path).expect("a new name must not exist");
        file.write_all(step.to_string().as_bytes()).expect("a write must not fail");
        drop(file);
        self.now(&[&made], &[]);
        self.done(fs::rename(&made_path, &moved_path), ErrorKind::NotFound);
        self.now(&[&moved], &[&made]);
        if step % 2 == 1 {
            self.done(fs::rename(&moved_path, &last), ErrorKind::NotFound);
            self.now(&["last"], &[&moved]);
            let seen = fs::read_to_string(self.place.served.join("last")).expect("the file exists");
            assert_eq!(seen, step.to_string(), "renamed over another");
        } else {
            self.done(fs::remove_file(&moved_path), ErrorKind::NotFound);
            self.now(&[], &[&moved]);
        }
        self.done(fs::create_dir(&directory), ErrorKind::AlreadyExists);
        self.now(&[&below], &[]);
        self.done(fs::remove_dir(&directory), ErrorKind::NotFound);
        self.now(&[], &[&below]);
    }

    /// The operation must have been done. A killed node may have done the operation without
    /// replying, so the result is compared next in any case.
    fn done(&mut self, outcome: std::io::Result<()>, doubt: ErrorKind) {
        match outcome {
            Err(error) if error.kind() == doubt => {
                println!("{UNCERTAIN}: {error}");
                self.uncertain += 1;
            }
            outcome => outcome.expect("no call may fail"),
        }
    }

    /// Checks in the served directory that these names were added, those were removed, and nothing
    /// else has changed.
    fn now(&mut self, come: &[&str], gone: &[&str]) {
        self.names.extend(come.iter().map(|&name| name.to_owned()));
        gone.iter().for_each(|&name| assert!(self.names.remove(name), "{name}"));
        assert_eq!(names_in(&self.place.served), self.names);
    }

    /// Also compares the listing of the mount, once the files that were removed before the kernel
    /// reported their close are gone too.
    fn compare(&self) {
        Deadline::wait_until("names of what was removed while open to go", TIMEOUT, || {
            let all = all_names_in(&self.place.served);
            all.iter().all(|name| !name.starts_with(HIDDEN)).then_some(())
        });
        for directory in [&self.place.served, &self.place.mounted] {
            assert_eq!(names_in(directory), self.names, "{}", directory.display());
        }
    }
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let mut names = all_names_in(directory);
    names.retain(|name| !name.starts_with(HIDDEN));
    names
}

fn all_names_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory)
        .expect("the directory exists")
        .map(|entry| entry.expect("the directory can be listed"));
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

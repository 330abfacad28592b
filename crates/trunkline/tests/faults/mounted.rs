//! A program in a mounted directory while paths and nodes fail: no call of it may fail, nothing that it has written may
//! be lost, and no read may give it anything but the newest.
//!
//! The program is this test, started again with the directory in its environment: whoever holds files of a mount open
//! must not start processes while that mount waits. It writes blocks around the kernel's cache and reads them at the same
//! time, each held to a [`History`], until a file tells it to stop.

use super::ground::{Fault, Ground, NODES, PORT};
use super::history::{BLOCK_BYTES, History, Store};
use crate::mounts::Mounted;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::park_timeout as pass;
use std::time::Duration;
use testkit::Process;

const NAME: &str = "mounted::a_program_in_a_mounted_directory_notices_no_fault";
/// The directory that the program is to work in, and the file that ends it.
const DIRECTORY: &str = "TRUNKLINE_FAULTS_DIRECTORY";
const STOP: &str = "TRUNKLINE_FAULTS_STOP";
/// Writers, each with a file of its own, and as many readers: what they hold open is more than the nodes, so that each
/// node is some file's home.
const WRITERS: usize = 4;
const BLOCKS: usize = 32;
const SOON: Duration = Duration::from_secs(120);
/// How long nothing is wrong before and after each fault.
const CALM: Duration = Duration::from_millis(700);

#[test]
fn a_program_in_a_mounted_directory_notices_no_fault() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        program(Path::new(&directory), Path::new(&std::env::var_os(STOP).expect("both are given")));
        return;
    }
    under_a_mount(vec![Fault::Silent, Fault::Kill]);
}

/// The suite `faults-mounted` runs it: it takes minutes.
#[test]
fn a_program_in_a_mounted_directory_notices_none_of_all_faults_on_any_path() {
    let every = Fault::ALL.into_iter().flat_map(|fault| [fault; NODES as usize]);
    under_a_mount(every.collect());
}

/// How long a fault lasts. Where nothing goes on meanwhile, long enough that the system has stopped to send again often.
const fn lasts(fault: Fault) -> Duration {
    match fault {
        Fault::AllGone => Duration::from_secs(10),
        _ => Duration::from_millis(1500),
    }
}

/// Runs the program in a mounted directory while one fault comes after the other.
fn under_a_mount(faults: Vec<Fault>) {
    // In a thread of its own, which moves to the client's namespace.
    let struck = std::thread::spawn(move || {
        let mut ground = Ground::build(Store::ByParts);
        let place = tempfile::tempdir().expect("made");
        let (directory, stop) = (place.path().join("mnt"), place.path().join("stop"));
        std::fs::create_dir(&directory).expect("made");
        let mounted = mount_beside(&ground, directory, 8);
        let mut command = Command::new(std::env::current_exe().expect("it has a path"));
        command.args(["--exact", "--nocapture", NAME]).env(DIRECTORY, &mounted.directory).env(STOP, &stop);
        let mut program = Process::spawn(command);
        program.wait_for_line("the program is at work", SOON);
        let filters = faults.iter().any(|fault| fault.filters());
        for (number, fault) in faults.into_iter().enumerate() {
            let path = number % usize::from(NODES);
            // Not a wait for anything, here and below: this is how long each part lasts.
            pass(CALM);
            ground.apply(fault, path, lasts(fault));
            assert!(program.is_running(), "{}: {}", fault.name(), program.all_output());
        }
        pass(CALM);
        assert!(ground.take_stopped() > 0 || !filters, "no segment met a fault");
        std::fs::write(&stop, "").expect("written");
        let status = program.wait(SOON);
        let said = program.all_output();
        assert!(status.success() && said.contains("nothing was lost"), "{status}: {said}");
        println!("{}", said.lines().find(|line| line.contains("nothing was lost")).unwrap_or_default());
    });
    struck.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Mounts what the ground's servers serve, in the client's namespace and over all paths.
pub fn mount_beside(ground: &Ground, directory: PathBuf, connections: u8) -> Mounted {
    let nodes = ground.addresses();
    let remotes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    let options = format!("port={PORT},nconnect={connections},nolock,remoteports={}", remotes.join("~"));
    let mut mount = ground.trunkline_beside();
    mount.args(["mount", "-f", &format!("{}:/export", nodes[0])]).arg(&directory).args(["-o", &options]);
    let mounted = Mounted { process: Process::spawn(mount), directory };
    mounted.process.wait_for_line("mounted", SOON);
    mounted
}

/// A file of the directory, past the kernel's cache, and what it may hold.
struct Kept {
    path: PathBuf,
    history: Mutex<History>,
}

impl Kept {
    fn open(&self) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).custom_flags(OFlags::DIRECT.bits() as i32);
        options.open(&self.path).expect("it opens")
    }

    fn history<T>(&self, act: impl FnOnce(&mut History) -> T) -> T {
        act(&mut self.history.lock().expect("nobody has panicked with it"))
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

/// Writes and reads until it is told to stop, then reads all once more. A thread that panics ends it with an error.
fn program(directory: &Path, stop: &Path) {
    let kept: Vec<Kept> = (0..WRITERS)
        .map(|number| Kept {
            path: directory.join(format!("file-{number}")),
            history: Mutex::new(History::new(number as u64, BLOCKS, Store::ByParts)),
        })
        .collect();
    for one in &kept {
        let file = one.open();
        (0..BLOCKS).for_each(|block| one.write(&file, block));
    }
    println!("the program is at work");
    let [written, read] = [const { AtomicU64::new(0) }; 2];
    std::thread::scope(|threads| {
        for (number, one) in kept.iter().enumerate() {
            let (written, read) = (&written, &read);
            let repeat = move |seed: u64, done: &AtomicU64, act: &dyn Fn(&File, usize)| {
                let (file, mut random) = (one.open(), fastrand::Rng::with_seed(seed));
                while !stop.exists() {
                    act(&file, random.usize(..BLOCKS));
                    done.fetch_add(1, Ordering::Relaxed);
                }
                // What is to be written then is written, or this fails.
                file.sync_all().expect("a sync must not fail");
            };
            threads.spawn(move || repeat(number as u64, written, &|file, block| one.write(file, block)));
            threads.spawn(move || repeat(!(number as u64), read, &|file, block| one.read(file, block)));
        }
    });
    for one in &kept {
        let file = one.open();
        (0..BLOCKS).for_each(|block| one.read(&file, block));
    }
    let [written, read] = [written, read].map(AtomicU64::into_inner);
    println!("{written} blocks written, {read} read, and nothing was lost");
}

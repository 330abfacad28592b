//! A process that is a node, and the one that watches it.

use drives::{Drive, Error, How};
use nvme::controller::{Node, Reach};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use target::pair::{Backings, Member, MemberConfig, Opened, Record, Timing};
use tempfile::TempDir;
use testkit::Deadline;

/// The directory and the node that a process is to be.
const BE: &str = "TRUNKLINE_TEST_PAIR";
/// Nothing here takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Volumes, their records, and the directory of the pair.
pub struct Directory(TempDir);

impl Directory {
    pub fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for (nsid, owner) in [(1, "A"), (2, "B")] {
            let path = directory.path().join(format!("volume-{nsid}"));
            File::create(path).unwrap().set_len(1 << 20).unwrap();
            fs::write(record_of(directory.path(), nsid), format!("{owner} 1")).unwrap();
        }
        Self(directory)
    }

    /// The owner and the epoch.
    pub fn record(&self, nsid: u32) -> (String, u64) {
        read(self.0.path(), nsid)
    }
}

fn record_of(directory: &Path, nsid: u32) -> PathBuf {
    directory.join(format!("record-{nsid}"))
}

fn read(directory: &Path, nsid: u32) -> (String, u64) {
    let text = fs::read_to_string(record_of(directory, nsid)).unwrap();
    let (owner, epoch) = text.split_once(' ').unwrap();
    (owner.to_owned(), epoch.parse().unwrap())
}

fn node(name: &str) -> Node {
    if name == "A" { Node::A } else { Node::B }
}

/// Files with their locks, whose states are printed.
struct Files {
    directory: PathBuf,
    open: Mutex<BTreeMap<u32, Drive>>,
}

impl Files {
    fn record(&self, nsid: u32) -> Record {
        let (owner, epoch) = read(&self.directory, nsid);
        Record { owner: node(&owner), epoch }
    }
}

impl Backings for Files {
    fn open(&self, nsid: u32) -> Opened {
        match Drive::open(&self.directory.join(format!("volume-{nsid}")), How::Known) {
            Ok(drive) => {
                self.open.lock().unwrap().insert(nsid, drive);
                Opened::Locked(self.record(nsid))
            }
            Err(Error::Locked { .. }) => Opened::Held,
            Err(_) => Opened::Failed,
        }
    }

    fn save(&self, nsid: u32, record: Record) -> bool {
        let new = self.directory.join(format!("new-{nsid}"));
        let written = fs::write(&new, format!("{} {}", record.owner, record.epoch));
        written.and_then(|()| fs::rename(new, record_of(&self.directory, nsid))).is_ok()
    }

    fn close(&self, nsid: u32) {
        self.open.lock().unwrap().remove(&nsid);
    }

    fn reach(&self, nsid: u32, record: Record, reach: Reach) {
        println!("volume {nsid} {} {} {reach:?}", record.owner, record.epoch);
    }
}

/// A process that is a node, ended with the test.
pub struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// Starts one; the test of this name calls [`Process::be`] first.
    pub fn start(test: &str, directory: &Directory, node: Node) -> Self {
        Self::start_with(test, directory, node, Timing::default().appearance)
    }

    /// Starts one that waits so long for its partner.
    pub fn start_with(test: &str, directory: &Directory, node: Node, appearance: Duration) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        let path = directory.0.path().display();
        command.env(BE, format!("{node} {} {path}", appearance.as_millis()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let into = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                into.lock().unwrap().push(line);
            }
        });
        Self { child, lines }
    }

    /// Is the other process, if this is one.
    pub fn be() {
        let Some(what) = std::env::var_os(BE) else { return };
        let what = what.into_string().unwrap();
        let (name, rest) = what.split_once(' ').unwrap();
        let (appearance_ms, directory) = rest.split_once(' ').unwrap();
        let appearance = Duration::from_millis(appearance_ms.parse().unwrap());
        let files = Files { directory: directory.into(), open: Mutex::default() };
        let config = MemberConfig {
            node: node(name),
            directory: directory.into(),
            timing: Timing { appearance, ..Timing::default() },
            records: [1, 2].map(|nsid| (nsid, files.record(nsid))).to_vec(),
        };
        let member = match Member::start(config, Arc::new(files)) {
            Ok(member) => member,
            Err(error) => {
                println!("refused: {error}");
                std::process::exit(1);
            }
        };
        for line in std::io::stdin().lines() {
            let line = line.unwrap();
            let (nsid, owner) = line.split_once(' ').unwrap();
            member.own(nsid.parse().unwrap(), node(owner)).unwrap();
        }
        std::process::exit(0);
    }

    /// What it has said of volumes.
    pub fn said(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter_map(|line| line.split_once("volume ")).map(|(_, rest)| rest.to_owned()).collect()
    }

    /// Waits until this is the last that was said of the volume.
    pub fn wait_for(&self, nsid: u32, state: &str) {
        let start = format!("{nsid} ");
        Deadline::wait_until(&format!("volume {nsid}: {state}"), PATIENCE, || {
            let said = self.said();
            let last = said.iter().rev().find_map(|line| line.strip_prefix(&start));
            (last == Some(state)).then_some(())
        });
    }

    pub fn wait_for_line(&self, part: &str) {
        Deadline::wait_until(part, PATIENCE, || {
            self.lines.lock().unwrap().iter().any(|line| line.contains(part)).then_some(())
        });
    }

    pub fn own(&self, nsid: u32, owner: &str) {
        self.child.stdin.as_ref().unwrap().write_all(format!("{nsid} {owner}\n").as_bytes()).unwrap();
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; returns the signal that has ended it.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().signal()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

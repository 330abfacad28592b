//! Targets that become full while files are made there: there was room when bench looked, and then
//! a neighbour took it. Bench says so once, leaves nothing, and writes no record.

use super::fixture::{trunkline, write_key};
use rustix::fs::FallocateFlags;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Deadline, Process, TempDir, temp_dir};

const TIMEOUT: std::time::Duration = super::TIMEOUT;
/// How often bench may be faster than the neighbour before the test gives up.
const ATTEMPTS_MAX: usize = 50;
/// The neighbour's file.
const NEIGHBOUR: &str = "neighbour";

/// A file system of 96 MiB, of which the files of the experiment need 64.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> Self {
        let directory = temp_dir("full");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(directory.path());
        assert!(mount.status().unwrap().success());
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// What is there beside the neighbour's file.
    fn entries(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| !path.ends_with(NEIGHBOUR)).collect()
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let file = fs::File::create(self.path().join(NEIGHBOUR)).unwrap();
        let space = rustix::fs::fstatvfs(&file).unwrap();
        let left = space.f_bavail * space.f_frsize;
        // The kernel may have counted less than it gives.
        let _ = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, left);
    }

    fn empty(&self) {
        fs::remove_file(self.path().join(NEIGHBOUR)).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// The directory from which bench is started, with its experiment and its key.
fn place(target: &str) -> TempDir {
    let place = temp_dir("full");
    write_key(&place.path().join("key"), "0123456789abcdef");
    let text = format!(
        "repeats = 1\nwindow_ms = 20\n[[route]]\nname = \"r\"\ntarget = \"{target}\"\n\
         [[workload]]\nname = \"w\"\nblock = \"64KiB\"\ndepth = 1\nreaders = 4\nfile = \"16MiB\"\n"
    );
    fs::write(place.path().join("full.toml"), text).unwrap();
    place
}

/// Runs bench until a neighbour took the room while the files were made; returns what bench said.
/// `makes` is the process that makes them, if it is not bench; it stands still meanwhile.
fn with_neighbour(
    place: &Path,
    options: &[&str],
    makes: Option<&Process>,
    has_begun: &dyn Fn() -> bool,
    [fill, empty]: [&dyn Fn(); 2],
) -> String {
    for _ in 0..ATTEMPTS_MAX {
        let mut command = trunkline();
        command.args(["bench", "full.toml", "--no-report", "--record", "never.json"]).args(options);
        let mut bench = Process::spawn({
            command.current_dir(place);
            command
        });
        Deadline::wait_until("the first file", TIMEOUT, || {
            (has_begun() || !bench.is_running()).then_some(())
        });
        if !bench.is_running() {
            assert!(bench.wait(TIMEOUT).success(), "{}", bench.all_output());
            fs::remove_file(place.join("never.json")).unwrap();
            continue;
        }
        makes.unwrap_or(&bench).signal(Signal::STOP);
        fill();
        makes.unwrap_or(&bench).signal(Signal::CONT);
        let ended = bench.wait(TIMEOUT);
        empty();
        let said = bench.all_output();
        if !ended.success() {
            assert_eq!(ended.code(), Some(1), "{said}");
            assert!(!place.join("never.json").exists(), "{said}");
            assert_eq!(said.matches("error: ").count(), 1, "told once: {said}");
            return said;
        }
        // All files had been made.
        fs::remove_file(place.join("never.json")).unwrap();
    }
    panic!("bench was faster than the neighbour {ATTEMPTS_MAX} times");
}

#[test]
fn a_directory_that_a_neighbour_fills_is_named_with_what_to_do() {
    let disk = SmallDisk::new();
    let place = place(disk.path().to_str().unwrap());
    let (fill, empty) = (|| disk.fill(), || disk.empty());
    let said =
        with_neighbour(place.path(), &["--buffered"], None, &|| !disk.entries().is_empty(), [&fill, &empty]);
    let advice = format!("  try:   df {}        or quota", disk.path().display());
    assert!(said.contains("No space left on device") && said.contains(&advice), "{said}");
    assert_eq!(disk.entries(), [] as [PathBuf; 0], "{said}");
}

#[test]
fn a_directory_of_a_client_that_a_neighbour_fills_is_named_with_the_client() {
    let disk = SmallDisk::new();
    let place = place(disk.path().to_str().unwrap());
    let mut command = trunkline();
    command.args(["agent", "--listen", "127.0.0.1:0", "--key", "key", "--allow-dir"]).arg(disk.path());
    let agent = Process::spawn({
        command.current_dir(place.path());
        command
    });
    let line = agent.wait_for_line("ready on", TIMEOUT);
    let client = format!("c1={}", line.trim_start_matches("ready on ").trim());
    let options = ["--buffered", "--client-key", "key", "--client", &client];
    let (fill, empty) = (|| disk.fill(), || disk.empty());
    let said =
        with_neighbour(place.path(), &options, Some(&agent), &|| !disk.entries().is_empty(), [&fill, &empty]);
    assert!(said.contains("c1") && said.contains("No space left on device"), "{said}");
    assert!(said.contains("  try:   "), "{said}");
    assert_eq!(disk.entries(), [] as [PathBuf; 0], "{said}");
}

#[test]
fn a_server_that_a_neighbour_fills_is_named_and_nothing_of_bench_remains() {
    let server = testkit::ServerProcess::start_on_free_port(trunkline, |port| {
        ["--mem", "96MiB", "--listen", &format!("127.0.0.1:{port}")].map(str::to_owned).to_vec()
    });
    let url = format!("nfs://127.0.0.1:{}/export", server.port());
    let place = place(&url);
    let neighbour = client::Mount::connect(&url, "nolock").unwrap();
    let entries = || {
        let all = neighbour.read_directory(neighbour.root()).unwrap().into_iter();
        let names = all.map(|entry| String::from_utf8(entry.name).unwrap());
        names.filter(|name| name != NEIGHBOUR).collect::<Vec<_>>()
    };
    let fill = || {
        let file = neighbour.create_file(format!("/{NEIGHBOUR}").as_bytes(), 0o644).unwrap();
        let mut end = 0;
        while file.write_at(vec![7; 1 << 20], end).wait().result.is_ok() {
            end += 1 << 20;
        }
    };
    let empty = || {
        let output = trunkline().args(["rm", &format!("{url}/{NEIGHBOUR}")]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let said = with_neighbour(place.path(), &[], None, &|| !entries().is_empty(), [&fill, &empty]);
    assert!(said.contains("no space left on the server (WRITE: NOSPC)"), "{said}");
    assert!(said.contains("  try:   "), "{said}");
    assert_eq!(entries(), [] as [String; 0], "{said}");
}

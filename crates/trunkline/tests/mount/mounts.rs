//! Mounted directories of any server, and what tests do in them.

use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use testkit::{Deadline, Process, Stream, TempDir};

/// Long, because the machine may be slow and loaded.
pub const MOUNT_TIMEOUT: Duration = Duration::from_secs(120);

/// The environment variable whose NFS version mounts have, unless a test asks for another.
pub const VERSION: &str = "TRUNKLINE_TEST_NFS_VERSION";

/// A mounted directory.
pub struct Mounted {
    pub process: Process,
    pub directory: PathBuf,
}

/// Whether mounts have NFS version 3, unless a test asks for another.
pub fn is_version_3() -> bool {
    std::env::var(VERSION).map_or(true, |version| version == "3")
}

/// These options in the version of [`VERSION`], unless they have one. Version 4 has no MOUNT.
fn in_version(options: &str) -> String {
    if is_version_3() || options.contains("vers=") {
        return options.to_owned();
    }
    let is_left = |option: &&str| !option.is_empty() && !option.starts_with("mountport=");
    let version = format!("vers={}", std::env::var(VERSION).unwrap_or_default());
    std::iter::once(version.as_str()).chain(options.split(',').filter(is_left)).collect::<Vec<_>>().join(",")
}

impl Mounted {
    /// Mounts in the foreground, by the NFS version that the options or [`VERSION`] say.
    pub fn start(source: &str, directory: PathBuf, options: &str) -> Self {
        let options = in_version(options);
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["mount", "-f", source]).arg(&directory).args(["-o", &options]);
        let process = Process::spawn(command);
        process.wait_for_line(&format!("mounted {source} on "), MOUNT_TIMEOUT);
        Self { process, directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn names(&self) -> Vec<String> {
        names_in(&self.directory)
    }

    /// The statistics that the mount prints.
    pub fn statistics(&self) -> String {
        // The last line of the statistics.
        const END: &str = " kept for the next requests";
        let said = || self.process.output(Stream::Err);
        let before = said().matches(END).count();
        self.process.signal(Signal::USR1);
        let all = Deadline::wait_until("statistics", MOUNT_TIMEOUT, || {
            Some(said()).filter(|said| said.matches(END).count() > before)
        });
        let head = all.lines().rfind(|line| line.starts_with("path ") && line.contains("worst gap ms"));
        all[all.rfind(head.expect("the statistics have a head")).unwrap_or_default()..].to_owned()
    }

    /// The number of pipes that the process of the mount has.
    pub fn pipes(&self) -> usize {
        self.rooms_of_pipes().len()
    }

    /// The capacity of each pipe of the process, in bytes.
    pub fn rooms_of_pipes(&self) -> Vec<usize> {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().flatten();
        let mut pipes = HashMap::new();
        for path in descriptors.map(|descriptor| descriptor.path()) {
            // Both ends of a pipe have the same name.
            let link =
                std::fs::read_link(&path).ok().filter(|link| link.to_string_lossy().starts_with("pipe:"));
            // A pipe that was closed meanwhile is left out.
            let room = || rustix::pipe::fcntl_getpipe_size(std::fs::File::open(&path).ok()?).ok();
            pipes.extend(link.and_then(|link| Some((link, room()?))));
        }
        pipes.into_values().collect()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The directory may be unmounted already.
        let _ = rustix::mount::unmount(&self.directory, UnmountFlags::DETACH);
    }
}

/// Unmounts everything that is mounted below a directory.
pub fn unmount_all_below(directory: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for at in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
        if Path::new(at).starts_with(directory) {
            let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
        }
    }
}

/// The names in a directory, sorted.
pub fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether a mount covers a directory.
pub fn is_mounted(directory: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == directory.to_str())
}

/// Waits until all processes that serve a directory, or watch its mount, have ended.
#[track_caller]
pub fn wait_until_nobody_serves(directory: &Path) {
    let directory = directory.to_str().unwrap();
    Deadline::wait_until("the processes of the mount to end", MOUNT_TIMEOUT, || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines =
            processes.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
        (!lines.any(|line| line.split('\0').any(|word| word == directory))).then_some(())
    });
}

/// Runs a shell script in a directory; the script must succeed.
#[track_caller]
pub fn shell(directory: &Path, script: &str) -> String {
    let output = try_shell(directory, script);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{script}: {}\n{out}\n{err}", output.status);
    out
}

pub fn try_shell(directory: &Path, script: &str) -> Output {
    Command::new("sh").args(["-euc", script]).current_dir(directory).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compiles a program of this directory.
pub fn compiled(source: &str) -> (TempDir, PathBuf) {
    let built = testkit::temp_dir("compiled");
    let program = built.path().join("program");
    let source = format!("{}/tests/mount/{source}", env!("CARGO_MANIFEST_DIR"));
    shell(built.path(), &format!("cc -O1 -Wall -Werror -o {} {source}", program.display()));
    (built, program)
}

//! Mounted directories of any server, and what tests do in them.

use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use testkit::{Deadline, Process, Stream};

/// Long, because the machine may be slow and loaded.
pub const MOUNT_TIMEOUT: Duration = Duration::from_secs(120);

/// A mounted directory.
pub struct Mounted {
    pub process: Process,
    pub directory: PathBuf,
}

impl Mounted {
    /// Mounts in the foreground.
    pub fn start(source: &str, directory: PathBuf, options: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["mount", "-f", source]).arg(&directory).args(["-o", options]);
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

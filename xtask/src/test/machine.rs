//! Checks what this machine permits, and ends processes.

use super::debian;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A requirement of a suite other than packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Root.
    Root,
    /// The permission to create network namespaces, which a container may deny even to root.
    NetNamespaces,
    /// The permission to mount FUSE file systems: /dev/fuse, which a container may lack.
    Fuse,
    /// The same for users other than root: /dev/fuse is accessible to all users, as udev makes it.
    /// Without udev it may not be.
    FuseForAll,
    /// Loop devices, which a container may lack even for root.
    LoopDevices,
    /// A bare Debian of this machine's release below target/, or the mirror that debootstrap takes
    /// it from.
    DebianMirror,
    /// A test suite published by others and built by the tester; `--suite-dir` names its directory.
    OutsideSuite(OutsideSuite),
}

/// A test suite published by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutsideSuite {
    /// The directory below `--suite-dir` that may contain the suite.
    pub(crate) name: &'static str,
    /// A file that the suite always has.
    pub(crate) file: &'static str,
}

impl OutsideSuite {
    /// The directory of the suite: `--suite-dir` itself, or the subdirectory with the suite's name.
    fn find(self, suite_dir: &Path) -> Option<PathBuf> {
        let places = [suite_dir.to_owned(), suite_dir.join(self.name)];
        places.into_iter().find(|place| place.join(self.file).is_file())
    }

    fn obstacle(self, suite_dir: Option<&Path>) -> Option<String> {
        let Self { name, file } = self;
        match suite_dir {
            None => Some(format!("needs {name}, built by you; name its directory with --suite-dir DIR")),
            Some(dir) if self.find(dir).is_none() => {
                Some(format!("neither {0} nor {0}/{name} has {file}", dir.display()))
            }
            Some(_) => None,
        }
    }
}

const FUSE: &str = "/dev/fuse";
/// The mode with which every user may read and write the device.
const MODE_FOR_ALL: u32 = 0o666;

impl Need {
    /// Why the requirement is not met, if it is not.
    pub(super) fn obstacle(self, suite_dir: Option<&Path>) -> Option<String> {
        match self {
            Self::OutsideSuite(suite) => suite.obstacle(suite_dir),
            Self::Root => (!is_root()).then(|| "needs root; run it with sudo".to_owned()),
            Self::Fuse => {
                let opened = fs::OpenOptions::new().read(true).write(true).open(FUSE);
                opened.err().map(|error| format!("{FUSE} cannot be opened ({error}); modprobe fuse"))
            }
            Self::FuseForAll => is_closed_to_some()
                .then(|| format!("others than root may not open {FUSE}; chmod {MODE_FOR_ALL:o} {FUSE}")),
            Self::DebianMirror => debian::obstacle(),
            Self::LoopDevices => {
                let found = Command::new("losetup").arg("--find").stderr(Stdio::null()).output();
                let found = found.is_ok_and(|output| output.status.success());
                (!found).then(|| "this machine has no loop device to give; modprobe loop".to_owned())
            }
            Self::NetNamespaces => {
                let made = Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()).status();
                let allowed = made.is_ok_and(|status| status.success());
                (!allowed).then(|| "this machine forbids network namespaces".to_owned())
            }
        }
    }
}

/// The directory of the external suite among these requirements.
pub(super) fn outside_suite(needs: &[Need], suite_dir: Option<&Path>) -> Option<PathBuf> {
    needs.iter().find_map(|need| match need {
        Need::OutsideSuite(suite) => suite.find(suite_dir?),
        _ => None,
    })
}

/// Meets a requirement that is met by default on a machine with all its services.
pub(super) fn prepare(need: Need) {
    if need == Need::FuseForAll && is_closed_to_some() {
        match fs::set_permissions(FUSE, fs::Permissions::from_mode(MODE_FOR_ALL)) {
            Ok(()) => println!("{FUSE} was root's alone; it is open to all now, as udev makes it"),
            Err(error) => println!("{FUSE} cannot be opened to all: {error}"),
        }
    }
}

fn is_closed_to_some() -> bool {
    fs::metadata(FUSE).is_ok_and(|device| device.mode() & MODE_FOR_ALL != MODE_FOR_ALL)
}

/// Whether this process is root.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Kills a process and all its descendants. Repeats until there are none, because they may start
/// further processes.
pub(super) fn kill_family(pid: u32) {
    loop {
        let descendants = family(pid);
        for member in descendants.iter().copied().chain([pid]) {
            // An error means that the process has ended meanwhile.
            let _ = to_pid(member).map(|pid| kill_process(pid, Signal::KILL));
        }
        if descendants.is_empty() {
            return;
        }
    }
}

/// The direct children of a process.
pub(super) fn children(pid: u32) -> Vec<u32> {
    family(pid).into_iter().filter(|child| parent_of(*child) == Some(pid)).collect()
}

#[cfg(test)]
pub(super) fn is_there(pid: u32) -> bool {
    parent_of(pid).is_some()
}

/// Handles of processes. Unlike a process id, a handle never refers to a later process.
pub(super) struct Held(Vec<OwnedFd>);

impl Held {
    /// Handles of those processes that still exist.
    pub(super) fn all(pids: &[u32]) -> Self {
        let hold = |pid: &u32| pidfd_open(to_pid(*pid)?, PidfdFlags::empty()).ok();
        Self(pids.iter().filter_map(hold).collect())
    }

    pub(super) fn signal(&self, signal: Signal) {
        for process in &self.0 {
            // An error means that the process has ended meanwhile.
            let _ = pidfd_send_signal(process, signal);
        }
    }

    /// Waits until all have ended, at most this long.
    pub(super) fn wait(&self, limit: Duration) {
        let start = Instant::now();
        for process in &self.0 {
            let left = Timespec::try_from(limit.saturating_sub(start.elapsed())).ok();
            // If the wait fails or times out, the processes are killed next.
            let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], left.as_ref());
        }
    }
}

fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// The living descendants of a process.
pub(super) fn family(pid: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        Some((id, parent_of(id)?))
    });
    let processes: Vec<_> = processes.collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(processes.iter().filter(|(_, its)| *its == parent).map(|(id, _)| *id));
        next += 1;
    }
    found.split_off(1)
}

/// The parent of a living process; a zombie counts as ended. Uses `status`, because reading `stat`
/// or `cmdline` blocks for a process that is stuck in an exec.
fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if field("State:")?.starts_with('Z') { None } else { field("PPid:")?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outside_suite_is_found_in_the_directory_or_in_the_one_of_its_name() {
        let suite = OutsideSuite { name: "theirs", file: "check" };
        let directory = tempfile::tempdir().expect("a directory");
        let theirs = directory.path().join("theirs");
        assert!(suite.obstacle(None).is_some_and(|said| said.contains("--suite-dir DIR")));
        assert!(suite.obstacle(Some(directory.path())).is_some_and(|said| said.contains("check")));
        fs::create_dir(&theirs).expect("a directory");
        fs::write(theirs.join("check"), "").expect("a file");
        assert_eq!(suite.find(directory.path()), Some(theirs.clone()));
        assert_eq!(suite.find(&theirs), Some(theirs.clone()));
        assert_eq!(suite.obstacle(Some(&theirs)), None);
        assert_eq!(outside_suite(&[Need::Root, Need::OutsideSuite(suite)], Some(&theirs)), Some(theirs));
    }
}

//! What this machine lets us do, and ending what we started.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Command, Stdio};

/// Something besides packages that a suite needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// To be root.
    Root,
    /// To make network namespaces, which a container may forbid even to root.
    NetNamespaces,
    /// To mount file systems of one's own: /dev/fuse, which a container may lack.
    Fuse,
}

impl Need {
    /// Why it is not to be had, where it is not.
    pub(super) fn obstacle(self) -> Option<String> {
        match self {
            Self::Root => (!is_root()).then(|| "needs root; run it with sudo".to_owned()),
            Self::Fuse => {
                let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
                opened.err().map(|error| format!("/dev/fuse cannot be opened ({error}); modprobe fuse"))
            }
            Self::NetNamespaces => {
                let made = Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()).status();
                let allowed = made.is_ok_and(|status| status.success());
                (!allowed).then(|| "this machine forbids network namespaces".to_owned())
            }
        }
    }
}

/// Whether we may do everything.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Kills a process and all that came from it. Until no more are found, as they may still be multiplying.
pub(super) fn kill_family(pid: u32) {
    loop {
        let descendants = family(pid);
        kill(&descendants);
        kill(&[pid]);
        if descendants.is_empty() {
            return;
        }
    }
}

/// Kills them, as far as they are still there.
pub(super) fn kill(all: &[u32]) {
    all.iter().for_each(|pid| signal(*pid, Signal::KILL));
}

/// Sends SIGTERM to those that a process has started itself.
pub(super) fn ask_children_to_end(pid: u32) {
    let children = family(pid).into_iter().filter(|child| parent_of(*child) == Some(pid));
    children.for_each(|child| signal(child, Signal::TERM));
}

fn signal(pid: u32, signal: Signal) {
    // An error means that it has ended meanwhile.
    let _ = i32::try_from(pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, signal));
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

/// The parent of a living process; a zombie has ended. From `status`: reading `stat` or `cmdline` waits for a process
/// that is stuck on its way into a program.
fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if field("State:")?.starts_with('Z') { None } else { field("PPid:")?.parse().ok() }
}

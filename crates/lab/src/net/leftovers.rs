//! Which process owns a lab, whether that process is alive, and how a lab is removed.

use super::state::{PREFIX, ids, remove_description};
use super::{Error, system};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a process in a lab may take to end after SIGTERM before it is killed.
const TERM_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a killed process may take to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval between checks whether processes are gone.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The process that owns a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// When it started, in ticks since boot.
    pub(crate) started: u64,
}

impl Owner {
    pub(crate) fn this_process() -> Result<Self, Error> {
        let pid = std::process::id();
        match start_of(pid) {
            Some(started) => Ok(Self { pid, started }),
            None => Err(Error::Unsupported("/proc does not tell when a process started".to_owned())),
        }
    }

    /// Reads the owner from a lab's identity.
    pub(crate) fn of(id: &str) -> Option<Self> {
        let mut parts = id.split('-');
        Some(Self { pid: parts.next()?.parse().ok()?, started: parts.next()?.parse().ok()? })
    }

    pub(crate) fn is_alive(self) -> bool {
        start_of(self.pid) == Some(self.started)
    }
}

/// The 22nd field of `/proc/PID/stat`. The second field, in parentheses, may contain anything. A
/// zombie counts as ended.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

/// Removes labs whose owner was killed. Labs whose owner is alive are not touched.
///
/// # Errors
/// Without root, or if a namespace cannot be removed.
pub fn remove_leftovers() -> Result<(), Error> {
    system::require_root()?;
    system::require_programs()?;
    let dead = |id: &str| Owner::of(id).is_some_and(|owner| !owner.is_alive());
    let left: Vec<_> =
        namespaces()?.into_iter().filter(|name| name.strip_prefix(PREFIX).is_some_and(dead)).collect();
    remove_namespaces(&left)?;
    ids()?.iter().filter(|id| dead(id)).try_for_each(|id| remove_description(id))
}

/// All named network namespaces of this machine.
pub(super) fn namespaces() -> Result<BTreeSet<String>, Error> {
    let listed = system::ip(&["netns", "list"])?;
    Ok(listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// Ends the processes in these namespaces and removes the namespaces, and with them the devices in
/// them.
pub(super) fn remove_namespaces(names: &[String]) -> Result<(), Error> {
    end_processes(names)?;
    for name in names {
        match system::ip(&["netns", "delete", name]) {
            // Another lab, collecting at the same time, removed the namespace first.
            Err(_) if !namespaces()?.contains(name) => {}
            outcome => {
                outcome?;
            }
        }
    }
    Ok(())
}

/// Sends SIGTERM to every process in these namespaces, and kills those that do not end. This
/// process is left out, because a program in a lab may remove that lab.
fn end_processes(names: &[String]) -> Result<(), Error> {
    let start = Instant::now();
    let mut signalled = BTreeSet::new();
    loop {
        let alive = processes(names);
        if alive.is_empty() {
            return Ok(());
        }
        let waited = start.elapsed();
        if waited > TERM_TIMEOUT + KILL_TIMEOUT {
            let list = alive.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect::<Vec<_>>();
            return Err(Error::Timeout(format!("processes {} do not end when killed", list.join(" "))));
        }
        let signal = if waited < TERM_TIMEOUT { Signal::TERM } else { Signal::KILL };
        for pid in alive {
            if signalled.insert((pid.as_raw_nonzero(), signal.as_raw())) {
                // An error means that the process has ended meanwhile.
                let _ = kill_process(pid, signal);
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn processes(names: &[String]) -> Vec<Pid> {
    let own = i32::try_from(std::process::id()).ok();
    let mut found = Vec::new();
    for name in names {
        // A namespace that no longer exists has no processes.
        let listed = system::ip(&["netns", "pids", name]).unwrap_or_default();
        let pids = listed.lines().filter_map(|line| line.trim().parse().ok());
        // If a thread in the namespace asks, the list includes `ip` itself.
        let is_alive = |pid: &i32| Path::new("/proc").join(pid.to_string()).exists();
        found.extend(pids.filter(|pid| Some(*pid) != own && is_alive(pid)).filter_map(Pid::from_raw));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_of_another_start_is_not() {
        let this = Owner::this_process().expect("there is /proc");
        assert!(this.is_alive());
        assert!(!Owner { started: this.started + 1, ..this }.is_alive());
    }

    #[test]
    fn the_owner_is_read_from_the_identity() {
        assert_eq!(Owner::of("12-345-1"), Some(Owner { pid: 12, started: 345 }));
        assert_eq!(Owner::of("12-345-1-client"), Some(Owner { pid: 12, started: 345 }));
        assert_eq!(Owner::of("elsewhere"), None);
    }
}

//! Who owns a lab, whether that process lives, and how a lab is taken away.

use super::state::{PREFIX, forget, ids};
use super::{Error, system};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a process in a lab may take to end when asked; then it is killed.
const POLITE: Duration = Duration::from_secs(2);

/// How long a killed process may take to be gone.
const KILLED: Duration = Duration::from_secs(10);

/// Between two looks at whether processes are gone.
const LOOK_EVERY: Duration = Duration::from_millis(10);

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

    /// From the identity of a lab.
    pub(crate) fn of(id: &str) -> Option<Self> {
        let mut parts = id.split('-');
        Some(Self { pid: parts.next()?.parse().ok()?, started: parts.next()?.parse().ok()? })
    }

    pub(crate) fn lives(self) -> bool {
        start_of(self.pid) == Some(self.started)
    }
}

/// The 22nd field of `/proc/PID/stat`; the second, in parentheses, may contain anything. A zombie
/// has ended.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

/// Removes what labs left whose owner was killed. Labs whose owner lives are not touched.
///
/// # Errors
/// Not root, or a namespace that cannot be removed.
pub fn collect() -> Result<(), Error> {
    system::require_root()?;
    system::require_programs()?;
    let dead = |id: &str| Owner::of(id).is_some_and(|owner| !owner.lives());
    let left: Vec<_> =
        namespaces()?.into_iter().filter(|name| name.strip_prefix(PREFIX).is_some_and(dead)).collect();
    remove_namespaces(&left)?;
    ids()?.iter().filter(|id| dead(id)).try_for_each(|id| forget(id))
}

/// All named network namespaces of this machine.
pub(super) fn namespaces() -> Result<BTreeSet<String>, Error> {
    let listed = system::ip(&["netns", "list"])?;
    Ok(listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// Ends what runs in these namespaces and removes them; the devices in them go with them.
pub(super) fn remove_namespaces(names: &[String]) -> Result<(), Error> {
    end_processes(names)?;
    for name in names {
        match system::ip(&["netns", "delete", name]) {
            // Another lab that collects at the same time was faster.
            Err(_) if !namespaces()?.contains(name) => {}
            outcome => {
                outcome?;
            }
        }
    }
    Ok(())
}

/// Asks every process in these namespaces to end, and kills those that don't. Ourselves excepted: a
/// lab may be collected by a program that runs in it.
fn end_processes(names: &[String]) -> Result<(), Error> {
    let start = Instant::now();
    let mut asked = BTreeSet::new();
    loop {
        let alive = processes(names);
        if alive.is_empty() {
            return Ok(());
        }
        let waited = start.elapsed();
        if waited > POLITE + KILLED {
            let list = alive.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect::<Vec<_>>();
            return Err(Error::Timeout(format!("processes {} do not end when killed", list.join(" "))));
        }
        let signal = if waited < POLITE { Signal::TERM } else { Signal::KILL };
        for pid in alive {
            if asked.insert((pid.as_raw_nonzero(), signal.as_raw())) {
                // An error means that it has ended meanwhile.
                let _ = kill_process(pid, signal);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn processes(names: &[String]) -> Vec<Pid> {
    let own = i32::try_from(std::process::id()).ok();
    let mut found = Vec::new();
    for name in names {
        // A namespace that has just gone has no processes.
        let listed = system::ip(&["netns", "pids", name]).unwrap_or_default();
        let pids = listed.lines().filter_map(|line| line.trim().parse().ok());
        // Asked by a thread that is in it, the list has the program that made it.
        let lives = |pid: &i32| Path::new("/proc").join(pid.to_string()).exists();
        found.extend(pids.filter(|pid| Some(*pid) != own && lives(pid)).filter_map(Pid::from_raw));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_one_of_another_start_does_not() {
        let this = Owner::this_process().expect("there is /proc");
        assert!(this.lives());
        assert!(!Owner { started: this.started + 1, ..this }.lives());
    }

    #[test]
    fn the_owner_is_read_from_the_identity() {
        assert_eq!(Owner::of("12-345-1"), Some(Owner { pid: 12, started: 345 }));
        assert_eq!(Owner::of("12-345-1-client"), Some(Owner { pid: 12, started: 345 }));
        assert_eq!(Owner::of("elsewhere"), None);
    }
}

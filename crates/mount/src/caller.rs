//! For whom a request is made: the user, the group, and the supplementary groups, which FUSE does
//! not carry.
//!
//! A mount made by root acts for each caller with that caller's own numbers; the groups are read
//! from `/proc/PID/status`. A mount of anybody else acts for its owner, whom alone the kernel lets
//! in.

use crate::kernel::Head;
use client::Caller;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whose credential a call carries; the mount's own where none.
pub(crate) type As = Option<Arc<Caller>>;

/// Groups that were read are believed this long for lookups and attributes. Where something is
/// opened, made, changed or removed they are read anew.
const GROUPS_KEPT: Duration = Duration::from_secs(1);
/// Callers remembered at most; then all are forgotten.
const CALLERS_MAX: usize = 1024;

/// Callers by thread, user and group, and when their groups were read.
type Known = HashMap<(u32, u32, u32), (Instant, Arc<Caller>)>;

/// Gives each request its caller.
#[derive(Debug)]
pub(crate) struct Callers {
    each: bool,
    root: Arc<Caller>,
    known: Mutex<Known>,
}

impl Callers {
    /// With `each`, every request is made for its own caller.
    pub(crate) fn new(each: bool) -> Self {
        let root = Arc::new(Caller { uid: 0, gid: 0, gids: Vec::new() });
        Self { each, root, known: Mutex::default() }
    }

    /// For what only looks.
    pub(crate) fn looking(&self, head: &Head) -> As {
        self.of(head, false)
    }

    /// For what opens or changes something.
    pub(crate) fn acting(&self, head: &Head) -> As {
        self.of(head, true)
    }

    fn of(&self, head: &Head, fresh: bool) -> As {
        if !self.each {
            return None;
        }
        let (pid, uid, gid) = (head.pid, head.uid, head.gid);
        if uid == 0 && gid == 0 {
            // Groups give root nothing: a server believes root in all or in nothing.
            return Some(Arc::clone(&self.root));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !fresh
            && let Some((at, caller)) = known.get(&(pid, uid, gid))
            && at.elapsed() < GROUPS_KEPT
        {
            return Some(Arc::clone(caller));
        }
        let caller = Arc::new(Caller { uid, gid, gids: groups_of(pid) });
        if known.len() >= CALLERS_MAX {
            known.clear();
        }
        known.insert((pid, uid, gid), (Instant::now(), Arc::clone(&caller)));
        Some(caller)
    }
}

/// The supplementary groups of a thread; none for one that is gone or in another pid namespace (pid
/// 0).
fn groups_of(pid: u32) -> Vec<u32> {
    if pid == 0 {
        return Vec::new();
    }
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .map_or_else(|_| Vec::new(), |text| groups_in(&text))
}

fn groups_in(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_the_status_of_a_process() {
        assert_eq!(groups_in("Name:\tx\nGroups:\t4 24 1000 \nVmPeak:\t1 kB\n"), [4, 24, 1000]);
        assert_eq!(groups_in("Name:\tx\nGroups:\t\n"), [0; 0]);
        assert_eq!(groups_in(""), [0; 0]);
    }
}

//! The caller of a request: user, group, and the supplementary groups, which FUSE does not carry.
//!
//! A mount made by root acts for each caller with that caller's own numbers; the groups are read
//! from `/proc/PID/status`. A mount made by another user acts for its owner, the only user whom the
//! kernel admits.

use crate::kernel::Head;
use client::Caller;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The caller whose credential a call carries; `None` stands for the mount's own credential.
pub(crate) type Credential = Option<Arc<Caller>>;

/// How long groups are cached for lookups and attributes. Operations that open, make, change or
/// remove something read the groups again.
const GROUPS_TTL: Duration = Duration::from_secs(1);
/// The most callers that are remembered. When this is reached, all are forgotten.
const CALLERS_MAX: usize = 1024;

/// Callers by thread, user and group, with the time at which their groups were read.
type CallerCache = HashMap<(u32, u32, u32), (Instant, Arc<Caller>)>;

/// Finds the caller of each request.
#[derive(Debug)]
pub(crate) struct Callers {
    per_request: bool,
    root: Arc<Caller>,
    cache: Mutex<CallerCache>,
}

impl Callers {
    /// With `per_request`, every request has its own caller. Otherwise all have the mount's
    /// credential.
    pub(crate) fn new(per_request: bool) -> Self {
        let root = Arc::new(Caller { uid: 0, gid: 0, gids: Vec::new() });
        Self { per_request, root, cache: Mutex::default() }
    }

    /// The caller of an operation that only looks something up.
    pub(crate) fn for_lookup(&self, head: &Head) -> Credential {
        self.of(head, false)
    }

    /// The caller of an operation that opens or changes something.
    pub(crate) fn for_change(&self, head: &Head) -> Credential {
        self.of(head, true)
    }

    fn of(&self, head: &Head, reread: bool) -> Credential {
        if !self.per_request {
            return None;
        }
        let (pid, uid, gid) = (head.pid, head.uid, head.gid);
        if uid == 0 && gid == 0 {
            // Groups make no difference for root: a server grants root everything or treats it as
            // any user.
            return Some(Arc::clone(&self.root));
        }
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if !reread
            && let Some((at, caller)) = cache.get(&(pid, uid, gid))
            && at.elapsed() < GROUPS_TTL
        {
            return Some(Arc::clone(caller));
        }
        let caller = Arc::new(Caller { uid, gid, gids: groups_of(pid) });
        if cache.len() >= CALLERS_MAX {
            cache.clear();
        }
        cache.insert((pid, uid, gid), (Instant::now(), Arc::clone(&caller)));
        Some(caller)
    }
}

/// The supplementary groups of a thread; none if the thread is gone or in another pid namespace
/// (pid 0).
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

//! Groups from the server's user database, for callers whose call has no room for all of their
//! groups.
//!
//! AUTH_SYS carries 16 groups (RFC 5531 appendix A). A caller with that many groups may have more,
//! so with this option the database is asked, and only its answer counts. The query may wait for a
//! directory service, so answers are cached, and a loop uses only cached answers.
//!
//! Root's own group is left out: otherwise an export that squashes root's group would give it back
//! to any caller that claims to be one of its members.

use super::node::now;
use super::sys;
use crate::interface::Caller;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most groups that a call carries. RFC 5531 appendix A
const CALL_GROUPS_MAX: usize = 16;
/// How long an answer is cached.
const GROUPS_CACHE_TTL: Duration = Duration::from_secs(300);
/// Users whose groups are cached; above this number the cache is cleared.
const USERS_MAX: usize = 4096;

/// `None`: the database does not know the user.
type GroupList = Option<Arc<[u32]>>;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct UserGroups(Mutex<HashMap<u32, (Duration, GroupList)>>);

impl UserGroups {
    /// Whether a caller may have more groups than its call carries.
    pub const fn needs_lookup(caller: &Caller<'_>) -> bool {
        caller.gids.len() >= CALL_GROUPS_MAX
    }

    /// The cached answer for a user.
    pub fn cached(&self, uid: u32) -> Option<GroupList> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, groups) = cache.get(&uid)?;
        (now() < *until).then(|| groups.clone())
    }

    /// The groups of a user. May wait.
    pub fn lookup(&self, uid: u32) -> GroupList {
        if let Some(groups) = self.cached(uid) {
            return groups;
        }
        let groups = sys::groups_of(uid);
        let groups: GroupList = groups.map(|gids| gids.into_iter().filter(|gid| *gid != 0).collect());
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= USERS_MAX {
            cache.clear();
        }
        cache.insert(uid, (now() + GROUPS_CACHE_TTL, groups.clone()));
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_comes_into_roots_group_by_the_database() {
        let all = sys::groups_of(0).expect("every system knows root");
        assert!(all.contains(&0));
        let groups = UserGroups::default().lookup(0).expect("root has groups");
        assert!(!groups.contains(&0), "{groups:?}");
    }
}

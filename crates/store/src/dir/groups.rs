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
const REMEMBERED: Duration = Duration::from_secs(300);
/// Users whose groups are cached; above this number the cache is cleared.
const USERS_MAX: usize = 4096;

/// `None`: the database does not know the user.
type Answer = Option<Arc<[u32]>>;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Groups(Mutex<HashMap<u32, (Duration, Answer)>>);

impl Groups {
    /// Whether a caller may have more groups than its call carries.
    pub const fn concerns(caller: &Caller<'_>) -> bool {
        caller.gids.len() >= CALL_GROUPS_MAX
    }

    /// The cached answer for a user.
    pub fn known(&self, uid: u32) -> Option<Answer> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, answer) = known.get(&uid)?;
        (now() < *until).then(|| answer.clone())
    }

    /// The groups of a user. May wait.
    pub fn of(&self, uid: u32) -> Answer {
        if let Some(answer) = self.known(uid) {
            return answer;
        }
        let groups = sys::groups_of(uid);
        let answer: Answer = groups.map(|gids| gids.into_iter().filter(|gid| *gid != 0).collect());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(uid, (now() + REMEMBERED, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_comes_into_roots_group_by_the_database() {
        let known = sys::groups_of(0).expect("every system knows root");
        assert!(known.contains(&0));
        let told = Groups::default().of(0).expect("root has groups");
        assert!(!told.contains(&0), "{told:?}");
    }
}

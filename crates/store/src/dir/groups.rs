//! Groups from the server's own user database, for callers whose call has no room for all of
//! theirs.
//!
//! AUTH_SYS carries 16 groups (RFC 5531 appendix A). A caller that brings as many may have more, so
//! where that is wanted the database is asked, and what it says counts alone. It may ask a
//! directory service and wait, so what it said is remembered, and a loop uses only that.
//!
//! Root's own group is left out: an export that squashes it would give it back to whoever claims to
//! be one of its members.

use super::node::now;
use super::sys;
use crate::interface::Caller;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// As many as a call carries. RFC 5531 appendix A
const CALL_GROUPS_MAX: usize = 16;
/// How long an answer counts.
const REMEMBERED: Duration = Duration::from_secs(300);
/// Users that are remembered; above it all are asked for anew.
const USERS_MAX: usize = 4096;

/// `None`: the database does not know the user.
type Answer = Option<Arc<[u32]>>;

/// See the module.
#[derive(Default)]
pub(super) struct Groups(Mutex<HashMap<u32, (Duration, Answer)>>);

impl Groups {
    /// Whether a caller may have more groups than its call says.
    pub const fn concerns(caller: &Caller<'_>) -> bool {
        caller.gids.len() >= CALL_GROUPS_MAX
    }

    /// What is remembered of a user.
    pub fn known(&self, uid: u32) -> Option<Answer> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, answer) = known.get(&uid)?;
        (now() < *until).then(|| answer.clone())
    }

    /// A user's groups. May wait.
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

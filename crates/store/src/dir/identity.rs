//! Acting as a caller: for the length of a scope, this thread's file accesses are the caller's.
//!
//! Only the file system identity changes (`setfsuid`, `setfsgid`, and the groups of this one
//! thread), so that nobody can send it a signal, and with a user other than root the kernel takes
//! the capabilities to pass over permissions away. A scope does not nest. If the identity cannot be
//! taken back, the process ends: everything else would act as somebody it is not.

use super::sys;
use crate::interface::{Caller, Error, Result};
use std::cell::Cell;
use std::io::Write;

thread_local! {
    static PREPARED: Cell<bool> = const { Cell::new(false) };
    static KEPT: Cell<bool> = const { Cell::new(false) };
    /// The user that this thread was last seen to become; root stands for none.
    static SEEN_TO_WORK: Cell<u32> = const { Cell::new(0) };
}

/// On whose behalf a store acts.
#[derive(Debug, Clone)]
pub(super) enum Identity {
    /// On each caller's: the process is root.
    Callers {
        /// The process's own group and groups, to go back to.
        gid: u32,
        gids: Vec<u32>,
    },
    /// On its own, whoever calls.
    Own {
        /// The process's user.
        uid: u32,
        gid: u32,
        gids: Vec<u32>,
    },
}

impl Identity {
    /// Finds out what the process may: switch its identity, or not.
    pub fn probe() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let groups = rustix::process::getgroups().unwrap_or_default();
        let gids: Vec<u32> = groups.into_iter().map(|gid| gid.as_raw()).collect();
        let callers = Self::Callers { gid, gids: gids.clone() };
        // Tried and not asked: what counts is that it works, here with somebody who has no rights.
        let nobody = Caller { uid: 65_534, gid: 65_534, gids: &[] };
        if uid == 0 && callers.act_as(nobody).is_ok() { callers } else { Self::Own { uid, gid, gids } }
    }

    /// The caller that the kernel will see.
    pub fn effective<'a>(&'a self, caller: Caller<'a>) -> Caller<'a> {
        match self {
            Self::Callers { .. } => caller,
            Self::Own { uid, gid, gids } => Caller { uid: *uid, gid: *gid, gids },
        }
    }

    /// Acts as the caller's user until the guard is dropped; its groups do not matter. For data, of
    /// which it was asked before whether the caller may.
    ///
    /// # Errors
    /// [`Error::Access`] when the system has no such user.
    pub fn act_as_user(&self, caller: Caller<'_>) -> Result<ActingUser> {
        if caller.uid == 0 || matches!(self, Self::Own { .. }) {
            return Ok(ActingUser(None));
        }
        may_change()?;
        // Most writes of a thread are one user's, and what worked once works again: the next is not
        // looked at before it acts, but when it ends.
        if SEEN_TO_WORK.get() == caller.uid {
            sys::switch_fs_user(caller.uid);
            return Ok(ActingUser(Some(caller.uid)));
        }
        match sys::set_fs_user(caller.uid) {
            Ok(()) => {
                SEEN_TO_WORK.set(caller.uid);
                Ok(ActingUser(Some(caller.uid)))
            }
            Err(_) => Err(Error::Access),
        }
    }

    /// Acts as the caller until the guard is dropped.
    ///
    /// # Errors
    /// [`Error::Access`] when the system has no such user.
    pub fn act_as(&self, caller: Caller<'_>) -> Result<Acting<'_>> {
        let Self::Callers { gid, gids } = self else { return Ok(Acting(None)) };
        if caller.uid == 0 && caller.gid == *gid && caller.gids == gids {
            return Ok(Acting(None));
        }
        may_change()?;
        let acting = Acting(Some((*gid, gids)));
        // The user last: without root's the groups cannot be set. A failure drops `acting`, which
        // goes back.
        let switch = || {
            sys::set_groups(caller.gids)?;
            sys::set_fs_group(caller.gid)?;
            sys::set_fs_user(caller.uid)
        };
        match switch() {
            Ok(()) => Ok(acting),
            Err(_) => Err(Error::Access),
        }
    }
}

/// As [`Acting`], for the user alone.
#[must_use]
pub(super) struct ActingUser(Option<u32>);

impl ActingUser {
    /// Acts as this process.
    pub const fn nobody_else() -> Self {
        Self(None)
    }
}

impl Drop for ActingUser {
    fn drop(&mut self) {
        // Root may always become root again; that it was the user until now is what is checked.
        if self.0.is_some_and(|uid| sys::switch_fs_user(0) != Some(uid)) {
            end();
        }
    }
}

/// While it lives, this thread acts as somebody; not sent elsewhere, because the identity is this
/// thread's.
#[must_use]
pub(super) struct Acting<'a>(Option<(u32, &'a [u32])>);

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let Some((gid, gids)) = self.0 else { return };
        let back =
            sys::set_fs_user(0).and_then(|()| sys::set_fs_group(gid)).and_then(|()| sys::set_groups(gids));
        if back.is_err() {
            end();
        }
    }
}

fn end() -> ! {
    let _ = std::io::stderr().write_all(b"fatal: a thread cannot take its own identity back\n");
    std::process::abort()
}

/// Has this thread keep its identity and its capabilities for as long as it lives. What would
/// change them is not done at once here, and is left to a thread that may wait.
///
/// For threads that use RDMA: the system takes nothing on its descriptors from a thread whose
/// credentials are not the very ones that they were opened with, not even if all is again as it
/// was.
pub fn keep_identity() {
    KEPT.set(true);
}

/// Whether this thread has been told to.
pub(super) fn is_kept() -> bool {
    KEPT.get()
}

/// Refuses a thread that has been told to keep its identity: what would change it should have been
/// left to another.
fn may_change() -> Result<()> {
    if is_kept() { Err(Error::Access) } else { Ok(()) }
}

/// Makes this thread fit to change files: modes are taken as they are given, and quotas hold.
pub(super) fn prepare_thread() {
    debug_assert!(!is_kept(), "this thread's capabilities must stay as they are");
    if PREPARED.replace(true) {
        return;
    }
    if sys::own_empty_umask().is_err() || sys::obey_quotas().is_err() {
        // Then modes may come out narrower, and quotas wider, than asked; nothing that could be
        // done about it.
        PREPARED.set(false);
    }
}

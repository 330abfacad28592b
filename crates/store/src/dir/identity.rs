//! Acting as a caller: within a scope, this thread accesses files as the caller.
//!
//! Only the file system identity changes (`setfsuid`, `setfsgid`, and the groups of this one
//! thread), so that callers cannot send signals to the process. For a user other than root the
//! kernel drops the capabilities that override permissions. Scopes do not nest. If the identity
//! cannot be restored, the process ends: everything else would run as the wrong user.

use super::sys;
use crate::interface::{Caller, Result, Status};
use std::cell::Cell;
use std::io::Write;

thread_local! {
    static PREPARED: Cell<bool> = const { Cell::new(false) };
    static IDENTITY_PINNED: Cell<bool> = const { Cell::new(false) };
    /// The user that this thread was last verified to become; root means none.
    static VERIFIED_USER: Cell<u32> = const { Cell::new(0) };
}

/// The identity under which a store acts.
#[derive(Debug, Clone)]
pub(super) enum Identity {
    /// Acts as each caller: the process is root.
    Callers {
        /// The process's own group and supplementary groups, to be restored.
        gid: u32,
        gids: Vec<u32>,
    },
    /// Acts as the process itself, for every caller.
    Own {
        /// The process's user.
        uid: u32,
        gid: u32,
        gids: Vec<u32>,
    },
}

impl Identity {
    /// Finds out whether the process can switch its identity.
    pub fn probe() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let groups = rustix::process::getgroups().unwrap_or_default();
        let gids: Vec<u32> = groups.into_iter().map(|gid| gid.as_raw()).collect();
        let callers = Self::Callers { gid, gids: gids.clone() };
        // This is tested by doing it, with a user without rights: what counts is that the switch
        // works.
        let nobody = Caller { uid: 65_534, gid: 65_534, gids: &[] };
        if uid == 0 && callers.impersonate(nobody).is_ok() { callers } else { Self::Own { uid, gid, gids } }
    }

    /// The caller as the kernel will see it.
    pub fn effective<'a>(&'a self, caller: Caller<'a>) -> Caller<'a> {
        match self {
            Self::Callers { .. } => caller,
            Self::Own { uid, gid, gids } => Caller { uid: *uid, gid: *gid, gids },
        }
    }

    /// Acts as the caller's user until the guard is dropped; the groups of the thread do not
    /// change. Used for data access, after the caller's rights have been checked.
    ///
    /// # Errors
    /// [`Status::Access`] when the system has no such user.
    fn impersonate_user(&self, caller: Caller<'_>) -> Result<UserImpersonation> {
        if caller.uid == 0 || matches!(self, Self::Own { .. }) {
            return Ok(UserImpersonation(None));
        }
        may_change()?;
        // Most writes of a thread are made as the same user, and a switch that worked once works
        // again: so the next switch is not verified before the access, but when the guard is
        // dropped.
        if VERIFIED_USER.get() == caller.uid {
            sys::switch_fs_user(caller.uid);
            return Ok(UserImpersonation(Some(caller.uid)));
        }
        match sys::set_fs_user(caller.uid) {
            Ok(()) => {
                VERIFIED_USER.set(caller.uid);
                Ok(UserImpersonation(Some(caller.uid)))
            }
            Err(_) => Err(Status::Access),
        }
    }

    /// Acts as a caller who changes the data of a file with this mode. A set-group-id without group
    /// execute stays only if the writer is in the file's group, so for such a file the groups of
    /// the thread change too.
    ///
    /// # Errors
    /// [`Status::Access`] when the system has no such user.
    pub fn impersonate_writer(&self, caller: Caller<'_>, mode: u32) -> Result<WriterImpersonation<'_>> {
        const SET_GROUP: u32 = 0o2000;
        const GROUP_EXECUTE: u32 = 0o010;
        let asks_group = mode & (SET_GROUP | GROUP_EXECUTE) == SET_GROUP;
        Ok(if asks_group {
            WriterImpersonation { _user: UserImpersonation(None), _caller: Some(self.impersonate(caller)?) }
        } else {
            WriterImpersonation { _user: self.impersonate_user(caller)?, _caller: None }
        })
    }

    /// Acts as the caller until the guard is dropped.
    ///
    /// # Errors
    /// [`Status::Access`] when the system has no such user.
    pub fn impersonate(&self, caller: Caller<'_>) -> Result<Impersonation<'_>> {
        let Self::Callers { gid, gids } = self else { return Ok(Impersonation(None)) };
        if caller.uid == 0 && caller.gid == *gid && caller.gids == gids {
            return Ok(Impersonation(None));
        }
        may_change()?;
        let impersonation = Impersonation(Some((*gid, gids)));
        // The user is set last: without root's identity the groups cannot be set. A failure drops
        // `impersonation`, which restores the identity.
        let switch = || {
            sys::set_groups(caller.gids)?;
            sys::set_fs_group(caller.gid)?;
            sys::set_fs_user(caller.uid)
        };
        match switch() {
            Ok(()) => Ok(impersonation),
            Err(_) => Err(Status::Access),
        }
    }
}

/// Like [`Impersonation`], for changing the data of a file.
#[must_use]
pub(super) struct WriterImpersonation<'a> {
    _user: UserImpersonation,
    _caller: Option<Impersonation<'a>>,
}

impl WriterImpersonation<'_> {
    /// Acts as this process.
    pub const fn none() -> Self {
        Self { _user: UserImpersonation(None), _caller: None }
    }
}

/// Like [`Impersonation`], for the user alone.
#[must_use]
struct UserImpersonation(Option<u32>);

impl Drop for UserImpersonation {
    fn drop(&mut self) {
        // Root can always become root again; the check is that the thread acted as the user until
        // now.
        if self.0.is_some_and(|uid| sys::switch_fs_user(0) != Some(uid)) {
            end();
        }
    }
}

/// While this guard lives, the thread acts as another user. The guard is not sent to other threads,
/// because the identity belongs to this thread.
#[must_use]
pub(super) struct Impersonation<'a>(Option<(u32, &'a [u32])>);

impl Drop for Impersonation<'_> {
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

/// Makes this thread keep its identity and its capabilities for as long as it lives. Operations
/// that would change them are not done at once on this thread, but left to a thread that may wait.
///
/// Required for threads that use RDMA: the system rejects operations on RDMA descriptors from a
/// thread whose credentials are not the very ones with which the descriptors were opened, even if
/// the identity has been restored.
pub fn keep_identity() {
    IDENTITY_PINNED.set(true);
}

/// Whether this thread keeps its identity.
pub(super) fn is_identity_pinned() -> bool {
    IDENTITY_PINNED.get()
}

/// Fails on a thread that keeps its identity: an operation that would change it should have been
/// left to another thread.
fn may_change() -> Result<()> {
    if is_identity_pinned() { Err(Status::Access) } else { Ok(()) }
}

/// Prepares this thread to change files: modes are applied as given, and quotas are enforced.
pub(super) fn prepare_thread() {
    debug_assert!(!is_identity_pinned(), "this thread's capabilities must stay as they are");
    if PREPARED.replace(true) {
        return;
    }
    if sys::own_empty_umask().is_err() || sys::obey_quotas().is_err() {
        // Modes may then be narrower than requested, and quotas may not be enforced; this cannot be
        // helped.
        PREPARED.set(false);
    }
}

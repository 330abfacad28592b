//! Locks of ranges of files, which the server of a mount of version 4 keeps. Those of version 3 are
//! in the module `nlm`.
//!
//! A lock needs an open. The first lock of a user on a file opens it, and when the last owner of
//! locks of a file is gone, the file is closed. The table here has what the server has of this
//! mount, so that it can be reclaimed when the server has restarted. RFC 8881 s8.4, s9
//!
//! Invariants: the table's lock is not held during a call. What a call of before a reclaim has
//! changed is not entered after it: the call is made again; the table's epoch tells. While a call
//! that may lock something is under way, the opens of its file are not closed:
//! [`FileLocks::users`] counts.

mod held;
mod reclaim;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::nfs4::op::open::access;
use ::nfs4::{ClientId, Stateid, Status as Nfs};
use fs::{FileHandle, Status};

use crate::call::Caller;
use crate::error::{Error, Result};
use crate::operations::Operations;
use crate::protocol::nfs4::locks::{self as calls, Locked, LockerOf, When};
use crate::protocol::nfs4::operations;
pub(crate) use held::Held;

/// How often a call is made again because its open or its locks have other stateids by now.
const TRIES: usize = 8;

/// A range of bytes, with its last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// The first byte.
    pub first: u64,
    /// The last byte.
    pub last: u64,
}

impl LockRange {
    /// The last byte of a range that goes on however long the file becomes.
    pub const END: u64 = u64::MAX;
    /// The whole file.
    pub const ALL: Self = Self { first: 0, last: Self::END };
}

/// Who may have a lock of the same range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Others with shared locks.
    Shared,
    /// Nobody.
    Exclusive,
}

impl LockKind {
    /// What the open must permit.
    const fn access(self) -> u32 {
        match self {
            Self::Shared => access::READ,
            Self::Exclusive => access::WRITE,
        }
    }
}

/// An owner of locks. The locks of one owner replace each other, and those of two conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockOwner {
    /// A number that no other owner of the mount has.
    pub number: u64,
    /// The locks are those of flock(2), which know nothing of those of fcntl(2).
    pub of_flock: bool,
}

impl LockOwner {
    fn name(self) -> Vec<u8> {
        format!("{} {:x}", if self.of_flock { "flock" } else { "fcntl" }, self.number).into_bytes()
    }
}

/// A lock that is in the way of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// Its range.
    pub range: LockRange,
    /// Its kind.
    pub kind: LockKind,
}

/// The name of the owner of a user's opens.
fn opener(caller: Option<&Arc<Caller>>) -> Vec<u8> {
    caller.map_or_else(|| b"locks".to_vec(), |caller| format!("locks of {}", caller.uid).into_bytes())
}

/// An open that is kept for the locks of a user.
#[derive(Debug, Clone)]
struct KeptOpen {
    caller: Option<Arc<Caller>>,
    access: u32,
    stateid: Stateid,
}

/// The locks of an owner.
#[derive(Debug, Clone)]
struct OwnerLocks {
    owner: LockOwner,
    caller: Option<Arc<Caller>>,
    /// `None` until the first is granted.
    stateid: Option<Stateid>,
    held: Held,
    /// The server has lost locks that the owner takes for held.
    is_lost: bool,
    /// A call that may have locked something had no answer.
    is_in_doubt: bool,
}

/// The locks of a file.
#[derive(Debug, Clone, Default)]
struct FileLocks {
    opens: Vec<KeptOpen>,
    owners: Vec<OwnerLocks>,
    /// Those who make calls for locks of the file.
    users: usize,
}

impl FileLocks {
    fn open_of(&mut self, caller: Option<&Arc<Caller>>) -> Option<&mut KeptOpen> {
        let name = opener(caller);
        self.opens.iter_mut().find(|open| opener(open.caller.as_ref()) == name)
    }

    fn owner(&mut self, owner: LockOwner) -> Option<&mut OwnerLocks> {
        self.owners.iter_mut().find(|one| one.owner == owner)
    }

    /// The same, made if necessary.
    fn owner_of(&mut self, owner: LockOwner, caller: Option<&Arc<Caller>>) -> &mut OwnerLocks {
        let at = self.owners.iter().position(|one| one.owner == owner).unwrap_or_else(|| {
            let (caller, held) = (caller.cloned(), Held::default());
            let (is_lost, is_in_doubt) = (false, false);
            self.owners.push(OwnerLocks { owner, caller, stateid: None, held, is_lost, is_in_doubt });
            self.owners.len() - 1
        });
        &mut self.owners[at]
    }
}

/// What a lock takes next.
#[derive(Debug)]
enum Step {
    /// The file must be opened, or opened for more.
    Open(u32),
    /// LOCK by this open.
    ByOpen(Stateid),
    /// LOCK beside locks that the owner has.
    ByLocks(Stateid),
    /// The owner's locks are lost.
    Lost,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<FileHandle, FileLocks>,
    epoch: u64,
}

/// All locks of a mount; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    table: Mutex<Table>,
    /// Owners whose locks are lost.
    lost: AtomicU64,
    /// The client for which locks were reclaimed.
    reclaimed_for: Mutex<Option<ClientId>>,
}

impl Locks {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server has lost locks of this file that an owner takes for held.
    pub(crate) fn are_lost(&self, file: FileHandle) -> bool {
        self.lost.load(Ordering::Relaxed) > 0
            && self.lock().files.get(&file).is_some_and(|file| file.owners.iter().any(|one| one.is_lost))
    }

    /// Begins calls for locks of a file; [`Self::leave`] ends them.
    fn enter_use(&self, file: FileHandle) {
        self.lock().files.entry(file).or_default().users += 1;
    }

    /// Returns the opens that are to be closed, if nobody needs them any more.
    fn leave(&self, file: FileHandle) -> Vec<KeptOpen> {
        let mut table = self.lock();
        let Some(locks) = table.files.get_mut(&file) else { return Vec::new() };
        locks.users = locks.users.saturating_sub(1);
        if locks.users > 0 || !locks.owners.is_empty() {
            return Vec::new();
        }
        table.files.remove(&file).map(|locks| locks.opens).unwrap_or_default()
    }

    /// What a lock of this kind takes next, by whose open, and the epoch.
    fn next(
        &self,
        file: FileHandle,
        owner: LockOwner,
        caller: Option<&Arc<Caller>>,
        kind: LockKind,
    ) -> (Step, Option<Arc<Caller>>, u64) {
        let mut table = self.lock();
        let epoch = table.epoch;
        let Some(file) = table.files.get_mut(&file) else {
            return (Step::Open(kind.access()), caller.cloned(), epoch);
        };
        let known = file.owner(owner).map(|one| (one.stateid, one.is_lost, one.caller.clone()));
        // The locks of an owner go by one open, whoever asks for them.
        let by = known.as_ref().map_or_else(|| caller.cloned(), |(_, _, caller)| caller.clone());
        let step = match (known, file.open_of(by.as_ref())) {
            (Some((_, true, _)), _) => Step::Lost,
            (_, Some(open)) if open.access & kind.access() == 0 => Step::Open(kind.access()),
            (Some((Some(stateid), ..)), Some(_)) => Step::ByLocks(stateid),
            (_, Some(open)) => Step::ByOpen(open.stateid),
            (_, None) => Step::Open(kind.access()),
        };
        (step, by, epoch)
    }

    /// The file was opened.
    fn opened(
        &self,
        file: FileHandle,
        caller: Option<&Arc<Caller>>,
        (access, stateid): (u32, Stateid),
        epoch: u64,
    ) {
        let mut table = self.lock();
        if table.epoch != epoch {
            return;
        }
        let file = table.files.entry(file).or_default();
        match file.open_of(caller) {
            // The number of a stateid counts the changes of an open.
            Some(open) if open.stateid.other == stateid.other => {
                open.access |= access;
                open.stateid.seqid = open.stateid.seqid.max(stateid.seqid);
            }
            Some(open) => (open.access, open.stateid) = (access, stateid),
            None => file.opens.push(KeptOpen { caller: caller.cloned(), access, stateid }),
        }
    }

    /// A lock was granted. Returns false if that was before a reclaim.
    fn granted(
        &self,
        file: FileHandle,
        owner: LockOwner,
        caller: Option<&Arc<Caller>>,
        (range, kind, stateid): (LockRange, LockKind, Stateid),
        epoch: u64,
    ) -> bool {
        let mut table = self.lock();
        if table.epoch != epoch {
            return false;
        }
        let one = table.files.entry(file).or_default().owner_of(owner, caller);
        one.stateid = Some(stateid);
        one.held.set(range, Some(kind));
        true
    }

    /// A call that may have locked something had no answer.
    fn is_in_doubt(&self, file: FileHandle, owner: LockOwner, caller: Option<&Arc<Caller>>) {
        self.lock().files.entry(file).or_default().owner_of(owner, caller).is_in_doubt = true;
    }

    /// A range was released. Returns false if that was before a reclaim.
    fn released(&self, file: FileHandle, owner: LockOwner, range: LockRange, epoch: u64) -> bool {
        let mut table = self.lock();
        if table.epoch != epoch {
            return false;
        }
        if let Some(one) = table.files.get_mut(&file).and_then(|file| file.owner(owner)) {
            one.held.set(range, None);
            if one.is_lost && one.held.is_empty() {
                one.is_lost = false;
                self.lost.fetch_sub(1, Ordering::Relaxed);
            }
        }
        true
    }

    /// The server does not know this stateid. If it is still the one of the table, what was held by
    /// it is lost.
    fn unknown(&self, file: FileHandle, owner: LockOwner, stateid: Stateid) {
        let mut table = self.lock();
        let Some(locks) = table.files.get_mut(&file) else { return };
        locks.opens.retain(|open| open.stateid.other != stateid.other);
        let Some(one) =
            locks.owner(owner).filter(|one| one.stateid.is_some_and(|own| own.other == stateid.other))
        else {
            return;
        };
        one.stateid = None;
        self.lose(file, one);
    }

    /// The locks of an owner, and the epoch.
    fn of(&self, file: FileHandle, owner: LockOwner) -> (Option<OwnerLocks>, u64) {
        let mut table = self.lock();
        let epoch = table.epoch;
        (table.files.get_mut(&file).and_then(|file| file.owner(owner)).cloned(), epoch)
    }

    fn forget(&self, file: FileHandle, owner: LockOwner) {
        let mut table = self.lock();
        let Some(locks) = table.files.get_mut(&file) else { return };
        let lost = locks.owners.iter().filter(|one| one.owner == owner && one.is_lost).count();
        self.lost.fetch_sub(lost as u64, Ordering::Relaxed);
        locks.owners.retain(|one| one.owner != owner);
    }

    /// The server has revoked all opens and locks of this client. RFC 8881 s18.46.3
    pub(crate) fn are_all_revoked(&self) {
        let mut table = self.lock();
        for (file, locks) in &mut table.files {
            locks.opens.clear();
            for one in &mut locks.owners {
                one.stateid = None;
                self.lose(*file, one);
            }
        }
    }

    /// What an owner takes for held is lost.
    fn lose(&self, file: FileHandle, one: &mut OwnerLocks) {
        if !one.held.is_empty() && !one.is_lost {
            one.is_lost = true;
            self.lost.fetch_add(1, Ordering::Relaxed);
            tell_lost(file);
        }
    }

    /// Whether the server has what was reclaimed for this client.
    pub(crate) fn were_reclaimed_for(&self, client: ClientId) -> bool {
        *self.reclaimed_for.lock().unwrap_or_else(PoisonError::into_inner) == Some(client)
    }
}

pub(crate) fn tell_lost(file: FileHandle) {
    tracing::error!(
        file = %hex(file),
        "the server has lost locks of a file that a program holds: reads and writes of the file fail until \
         the program has unlocked or closed it"
    );
}

/// A handle as it is shown.
fn hex(file: FileHandle) -> String {
    file.as_slice().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the server does not know an open or locks, or not any more. RFC 8881 s15.1.5
fn is_unknown(error: &Error) -> bool {
    const UNKNOWN: [Nfs; 6] = [
        Nfs::BAD_STATEID,
        Nfs::OLD_STATEID,
        Nfs::STALE_STATEID,
        Nfs::EXPIRED,
        Nfs::ADMIN_REVOKED,
        Nfs::STALE_CLIENTID,
    ];
    matches!(error.status(), Some(Status::Other(number)) if UNKNOWN.contains(&Nfs(number)))
}

impl Operations<'_> {
    fn locks(&self) -> Result<&Arc<Locks>> {
        self.mount().locks().ok_or(Error::Status { operation: "LOCK", status: Status::NotSupported })
    }

    fn lost() -> Error {
        Error::Status { operation: "LOCK", status: Status::Io }
    }

    /// Locks a range for an owner, which must be ended by [`Self::end_locks`]. Returns false if a
    /// lock of another owner is in the way.
    pub async fn lock(
        &self,
        file: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<bool> {
        self.lock_when(file, owner, (range, kind), When::Now).await
    }

    /// The same for an owner who asks again until it has the lock. If one is in the way, the server
    /// may say when it is worth asking; see
    /// [`Mount::on_lock_available`](crate::Mount::on_lock_available).
    pub async fn lock_to_wait(
        &self,
        file: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<bool> {
        let when = if self.mount().settings().call_backs { When::Waiting } else { When::Now };
        self.lock_when(file, owner, (range, kind), when).await
    }

    async fn lock_when(
        &self,
        file: FileHandle,
        owner: LockOwner,
        (range, kind): (LockRange, LockKind),
        when: When,
    ) -> Result<bool> {
        if let Some(nlm) = self.mount().nlm() {
            return nlm.lock(file, owner, range, kind).await;
        }
        let locks = self.locks()?;
        locks.enter_use(file);
        let outcome = self.lock_in_use(locks, file, owner, (range, kind, when)).await;
        self.leave(locks, file).await;
        outcome
    }

    /// Closes a file that nobody needs any more. What fails here ends with the lease.
    async fn leave(&self, locks: &Locks, file: FileHandle) {
        for open in locks.leave(file) {
            let closing = Operations::of(self.mount(), open.caller);
            let close = operations::close(self.mount().protocol().minor(), file, open.stateid);
            _ = closing.run(close).await;
        }
    }

    async fn lock_in_use(
        &self,
        locks: &Locks,
        file: FileHandle,
        owner: LockOwner,
        (range, kind, when): (LockRange, LockKind, When),
    ) -> Result<bool> {
        let (minor, caller) = (self.mount().protocol().minor(), self.caller());
        for _ in 0..TRIES {
            let (step, opened_by, epoch) = locks.next(file, owner, caller, kind);
            let (opened_by, name) = (opened_by.as_ref(), owner.name());
            let (by, stateid) = match step {
                Step::Lost => return Err(Self::lost()),
                Step::Open(access) => {
                    let by = (access, &*opener(opened_by));
                    let stateid = self.run(calls::open(minor, file, by, When::Now)).await?;
                    locks.opened(file, opened_by, (access, stateid), epoch);
                    continue;
                }
                Step::ByOpen(open) => (LockerOf::Open(open, &name), open),
                Step::ByLocks(held) => (LockerOf::Locks(held), held),
            };
            match self.run(calls::lock(minor, file, (range, kind), by, when)).await {
                Ok(Locked::Denied) => return Ok(false),
                Ok(Locked::Granted(stateid)) => {
                    if locks.granted(file, owner, opened_by, (range, kind, stateid), epoch) {
                        return Ok(true);
                    }
                }
                Err(error) if is_unknown(&error) => locks.unknown(file, owner, stateid),
                Err(error) => {
                    if error.status().is_none() {
                        locks.is_in_doubt(file, owner, opened_by);
                    }
                    return Err(error);
                }
            }
        }
        Err(Self::lost())
    }

    /// Releases a range, as far as the owner has locked it.
    pub async fn unlock(&self, file: FileHandle, owner: LockOwner, range: LockRange) -> Result<()> {
        if let Some(nlm) = self.mount().nlm() {
            return nlm.unlock(file, owner, range).await;
        }
        let locks = self.locks()?;
        for _ in 0..TRIES {
            let (found, epoch) = locks.of(file, owner);
            let Some(stateid) = found.as_ref().and_then(|one| one.stateid) else {
                // Nothing is locked, or it is lost.
                locks.released(file, owner, range, epoch);
                return Ok(());
            };
            match self.run(calls::unlock(self.mount().protocol().minor(), file, range, stateid)).await {
                Ok(_) => {
                    if locks.released(file, owner, range, epoch) {
                        return Ok(());
                    }
                }
                Err(error) if is_unknown(&error) => locks.unknown(file, owner, stateid),
                Err(error) => return Err(error),
            }
        }
        Err(Self::lost())
    }

    /// A lock of another owner that is in the way of this one, if there is any.
    pub async fn test_lock(
        &self,
        file: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<Conflict>> {
        if let Some(nlm) = self.mount().nlm() {
            return nlm.test(file, owner, range, kind).await;
        }
        self.locks()?;
        self.run(calls::test(self.mount().protocol().minor(), file, (range, kind), &owner.name())).await
    }

    /// Releases all locks of an owner on a file, and forgets the owner.
    pub async fn end_locks(&self, file: FileHandle, owner: LockOwner) -> Result<()> {
        if let Some(nlm) = self.mount().nlm() {
            return nlm.end(file, owner).await;
        }
        let locks = self.locks()?;
        let (Some(found), _) = locks.of(file, owner) else { return Ok(()) };
        locks.enter_use(file);
        let has_none = found.held.is_empty() && !found.is_in_doubt;
        let unlocked = if has_none { Ok(()) } else { self.unlock(file, owner, LockRange::ALL).await };
        let held = locks.of(file, owner).0.and_then(|one| one.stateid);
        locks.forget(file, owner);
        // What fails here ends with the open, or with the lease.
        if let Some(stateid) = held {
            _ = self.run(calls::free(self.mount().protocol().minor(), stateid)).await;
        }
        self.leave(locks, file).await;
        unlocked
    }

    /// The locks that an owner has.
    #[must_use]
    pub fn locks_held(&self, file: FileHandle, owner: LockOwner) -> Vec<(LockRange, LockKind)> {
        if let Some(nlm) = self.mount().nlm() {
            return nlm.held(file, owner).iter().collect();
        }
        let found = self.locks().ok().and_then(|locks| locks.of(file, owner).0);
        found.map(|one| one.held.iter().collect()).unwrap_or_default()
    }

    /// Undoes a lock that nobody waits for any more: what the owner had locked in its range before
    /// is as it was.
    pub async fn undo_lock(
        &self,
        file: FileHandle,
        owner: LockOwner,
        range: LockRange,
        before: &[(LockRange, LockKind)],
    ) -> Result<()> {
        let mut gaps = Held::default();
        gaps.set(range, Some(LockKind::Shared));
        for (held, kind) in before {
            let (first, last) = (held.first.max(range.first), held.last.min(range.last));
            if first <= last {
                gaps.set(LockRange { first, last }, None);
                self.lock(file, owner, LockRange { first, last }, *kind).await?;
            }
        }
        for (gap, _) in gaps.iter() {
            self.unlock(file, owner, gap).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: LockOwner = LockOwner { number: 1, of_flock: false };
    const OTHER: LockOwner = LockOwner { number: 2, of_flock: false };
    const RANGE: LockRange = LockRange { first: 0, last: 9 };

    fn file() -> FileHandle {
        FileHandle::new(b"file").unwrap()
    }

    fn stateid(number: u8) -> Stateid {
        Stateid { seqid: 1, other: [number; 12] }
    }

    /// A lock of an owner by the open 1, as the answers enter it.
    fn hold(locks: &Locks, owner: LockOwner, number: u8) {
        locks.enter_use(file());
        let (_, _, epoch) = locks.next(file(), owner, None, LockKind::Exclusive);
        locks.opened(file(), None, (access::WRITE, stateid(1)), epoch);
        assert!(locks.granted(file(), owner, None, (RANGE, LockKind::Exclusive, stateid(number)), epoch));
        assert!(locks.leave(file()).is_empty());
    }

    #[test]
    fn a_file_is_closed_when_nobody_holds_a_lock_or_asks_for_one() {
        let locks = Locks::default();
        hold(&locks, ONE, 2);
        // Another asks while the first ends.
        locks.enter_use(file());
        locks.enter_use(file());
        locks.forget(file(), ONE);
        assert!(locks.leave(file()).is_empty(), "a lock may be granted by this open");
        let opens = locks.leave(file());
        assert_eq!(opens.iter().map(|open| open.stateid).collect::<Vec<_>>(), [stateid(1)]);
        assert!(locks.lock().files.is_empty());
        // One whose lock was refused.
        locks.enter_use(file());
        locks.opened(file(), None, (access::READ, stateid(3)), 0);
        assert_eq!(locks.leave(file()).len(), 1);
        assert!(locks.lock().files.is_empty());
    }

    #[test]
    fn what_a_lock_takes_next_depends_on_what_there_is() {
        let locks = Locks::default();
        let next = |owner, kind| locks.next(file(), owner, None, kind).0;
        assert!(matches!(next(ONE, LockKind::Shared), Step::Open(access::READ)));
        locks.opened(file(), None, (access::READ, stateid(1)), 0);
        assert!(matches!(next(ONE, LockKind::Shared), Step::ByOpen(open) if open == stateid(1)));
        assert!(matches!(next(ONE, LockKind::Exclusive), Step::Open(access::WRITE)));
        hold(&locks, ONE, 2);
        assert!(matches!(next(ONE, LockKind::Exclusive), Step::ByLocks(held) if held == stateid(2)));
        assert!(matches!(next(OTHER, LockKind::Exclusive), Step::ByOpen(_)));
        locks.unknown(file(), ONE, stateid(2));
        assert!(matches!(next(ONE, LockKind::Shared), Step::Lost));
        assert!(matches!(next(OTHER, LockKind::Shared), Step::ByOpen(_)));
    }

    #[test]
    fn locks_are_lost_until_they_are_released_or_their_owner_is_gone() {
        let locks = Locks::default();
        hold(&locks, ONE, 2);
        hold(&locks, OTHER, 3);
        assert!(!locks.are_lost(file()));
        locks.are_all_revoked();
        locks.unknown(file(), ONE, stateid(2));
        assert_eq!(locks.lost.load(Ordering::Relaxed), 2);
        assert!(locks.released(file(), ONE, LockRange { first: 0, last: 4 }, 0));
        assert!(locks.released(file(), ONE, RANGE, 0) && locks.are_lost(file()));
        locks.forget(file(), OTHER);
        assert!(!locks.are_lost(file()));
        assert_eq!(locks.lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_was_done_before_a_reclaim_is_not_entered_after_it() {
        let locks = Locks::default();
        hold(&locks, ONE, 2);
        locks.lock().epoch += 1;
        assert!(!locks.granted(file(), OTHER, None, (RANGE, LockKind::Shared, stateid(3)), 0));
        assert!(!locks.released(file(), ONE, RANGE, 0));
        assert_eq!(locks.of(file(), ONE).0.unwrap().held.iter().count(), 1);
    }
}

//! Locks of fcntl(2) and flock(2) on the server.
//!
//! A lock is also a promise that what others wrote under it is seen, and that what was written
//! under it is there for others: data are sent before a range is released, and what is cached of a
//! file is dropped once a range is locked. The kernel keeps no locks of its own. It names their
//! owners, and says when an owner is gone: with FUSE_FLUSH at a close for those of fcntl(2), with
//! FUSE_RELEASE for those of flock(2). Of owners that are open file descriptions (F_OFD_SETLK) it
//! says nothing, so owners that have locked by a handle and are not gone end with the handle.
//!
//! A program that waits for a lock asks the server again and again, and at once when another
//! program of this mount releases something of the file, or the server says that somebody else has.
//! Any signal ends the wait.

use crate::caller::Credential;
use crate::core::Core;
use crate::errno;
use crate::files::OpenFile;
use crate::inode::Inode;
use crate::interrupts::TICK;
use client::{Conflict, Error, LockKind, LockOwner, LockRange, Operations};
use fs::{FileHandle, Status};
use fuser::Errno;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// The longest time until a program that waits asks the server again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A lock that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lock {
    pub owner: LockOwner,
    pub range: LockRange,
    /// `None`: the range is released.
    pub kind: Option<LockKind>,
}

/// A request for a lock, which is granted, or ended by a signal, but not both.
#[derive(Debug, Default)]
pub(crate) struct LockRequest(AtomicU8);

impl LockRequest {
    const WAITS: u8 = 0;
    const GRANTED: u8 = 1;
    const ENDED: u8 = 2;

    /// Returns false if it was ended before.
    fn grant(&self) -> bool {
        self.become_one(Self::GRANTED)
    }

    /// Nobody waits for it any more. Returns false if it was granted before.
    pub(crate) fn end(&self) -> bool {
        self.become_one(Self::ENDED)
    }

    fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::ENDED
    }

    fn become_one(&self, next: u8) -> bool {
        self.0.compare_exchange(Self::WAITS, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// A program that waits for a lock.
#[derive(Debug)]
struct Waiting {
    /// The file, and its number.
    file: FileHandle,
    ino: u64,
    waker: Waker,
    /// Something of the file was released.
    has_chance: Arc<AtomicBool>,
}

/// A lock for which a program has stopped to wait. The server does not know that, and reserves the
/// lock for it when its turn comes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Abandoned {
    file: FileHandle,
    ino: u64,
    caller: Credential,
    owner: LockOwner,
    range: LockRange,
    kind: LockKind,
}

/// Locks of this kind that are remembered. What is forgotten is reserved for nobody, for some
/// seconds.
const ABANDONED_MAX: usize = 64;

/// The programs that wait for locks.
#[derive(Debug, Default)]
pub(crate) struct LockWaits {
    waiting: Mutex<Vec<Waiting>>,
    abandoned: Mutex<VecDeque<Abandoned>>,
    turns: Mutex<Turns>,
}

/// The owners for whom a call is under way. A program may ask again although the call for its last
/// request, which a signal has ended, is still unanswered.
#[derive(Debug, Default)]
struct Turns {
    taken: HashSet<(u64, LockOwner)>,
    wakers: Vec<Waker>,
}

/// The right to make calls for an owner of locks of a file.
#[derive(Debug)]
struct Turn<'a> {
    all: &'a LockWaits,
    of: (u64, LockOwner),
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = self.all.turns();
        turns.taken.remove(&self.of);
        let woken = std::mem::take(&mut turns.wakers);
        drop(turns);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl LockWaits {
    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other call is made for an owner of locks of a file.
    async fn turn(&self, ino: u64, owner: LockOwner) -> Turn<'_> {
        std::future::poll_fn(|context| {
            let mut turns = self.turns();
            if turns.taken.insert((ino, owner)) {
                return Poll::Ready(Turn { all: self, of: (ino, owner) });
            }
            turns.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Wakes those that wait for a file of which this mount has released something.
    fn released(&self, ino: u64) {
        self.give_chance(|waiting| waiting.ino == ino);
    }

    /// Wakes those that wait for a file of which another client has released something. Returns
    /// those for whom nobody waits any more.
    fn available(&self, file: FileHandle) -> Vec<Abandoned> {
        self.give_chance(|waiting| waiting.file == file);
        let mut all = self.abandoned();
        let (of_file, others) = all.drain(..).partition(|one| one.file == file);
        *all = others;
        Vec::from(of_file)
    }

    fn abandoned(&self) -> MutexGuard<'_, VecDeque<Abandoned>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A program has stopped to wait.
    fn abandon(&self, one: Abandoned) {
        let mut all = self.abandoned();
        if all.len() == ABANDONED_MAX {
            all.pop_front();
        }
        all.push_back(one);
    }

    /// An owner has a lock, or waits for it again: it is not to be passed on.
    fn is_wanted(&self, file: FileHandle, owner: LockOwner, range: LockRange) {
        self.abandoned().retain(|one| (one.file, one.owner, one.range) != (file, owner, range));
    }

    fn give_chance(&self, has: impl Fn(&Waiting) -> bool) {
        let woken: Vec<_> = self.lock().extract_if(.., |waiting| has(waiting)).collect();
        for waiting in woken {
            waiting.has_chance.store(true, Ordering::Release);
            waiting.waker.wake();
        }
    }

    /// Wakes all; each looks whether its time has come.
    pub(crate) fn tick(&self) {
        let woken = std::mem::take(&mut *self.lock());
        woken.into_iter().for_each(|waiting| waiting.waker.wake());
    }

    /// Waits until something of the file is released, or for this long, or until the request is
    /// ended.
    async fn wait(&self, (file, ino): (FileHandle, u64), pause: Duration, request: &LockRequest) {
        let (started, has_chance) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let mut is_first = true;
        std::future::poll_fn(|context| {
            let is_over = started.elapsed() + TICK / 2 >= pause || request.has_ended();
            if (is_over && !is_first) || has_chance.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            is_first = false;
            let (waker, has_chance) = (context.waker().clone(), Arc::clone(&has_chance));
            self.lock().push(Waiting { file, ino, waker, has_chance });
            Poll::Pending
        })
        .await;
    }
}

/// The errno of a lock that fails.
fn errno_of(error: &Error) -> Errno {
    match error.status() {
        // The open for the lock is refused: the file may be read, and the lock is for writers.
        Some(Status::Access | Status::NotPermitted | Status::ReadOnly) => Errno::EBADF,
        Some(Status::NotSupported) => Errno::ENOLCK,
        _ => errno::of_error(error),
    }
}

impl Core {
    fn locks_of(&self, file: &OpenFile) -> Operations<'_> {
        self.mount.operations(file.caller.clone())
    }

    /// An error if the server has lost locks that a program relies on.
    pub(crate) fn check_locks(&self, file: &OpenFile) -> Result<(), Errno> {
        self.check_locks_of(&file.inode)
    }

    /// The same, without a handle.
    pub(crate) fn check_locks_of(&self, inode: &Inode) -> Result<(), Errno> {
        if self.mount.has_lost_locks(inode.handle) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Locks or releases a range. `waits` says whether the program waits for a lock that is in the
    /// way, until the request is ended.
    pub(crate) async fn set_lock(
        self: &Arc<Self>,
        file: &OpenFile,
        lock: Lock,
        waits: bool,
        request: &LockRequest,
    ) -> Result<(), Errno> {
        let (inode, Lock { owner, range, kind }) = (&file.inode, lock);
        // What was written under a lock is there for those who get it next; what is written before
        // one is not newer than what is written under it.
        self.flush(inode).await;
        let Some(kind) = kind else {
            let _turn = self.lock_waits.turn(inode.ino, owner).await;
            let released = self.locks_of(file).unlock(inode.handle, owner, range).await;
            self.lock_waits.released(inode.ino);
            return released.map_err(|error| errno_of(&error));
        };
        if !owner.of_flock {
            file.locks_by(owner);
        }
        if waits {
            self.lock_waits.is_wanted(inode.handle, owner, range);
        }
        let (mut pause, mut has_asked) = (TICK, false);
        loop {
            let turn = self.lock_waits.turn(inode.ino, owner).await;
            if request.has_ended() {
                if has_asked {
                    let (file, ino, caller) = (inode.handle, inode.ino, file.caller.clone());
                    self.lock_waits.abandon(Abandoned { file, ino, caller, owner, range, kind });
                }
                return Err(Errno::EINTR);
            }
            let before = self.locks_of(file).locks_held(inode.handle, owner);
            let locks = self.locks_of(file);
            let granted = if waits {
                locks.lock_to_wait(inode.handle, owner, range, kind).await
            } else {
                locks.lock(inode.handle, owner, range, kind).await
            };
            has_asked = true;
            if matches!(granted, Ok(true)) {
                self.lock_waits.is_wanted(inode.handle, owner, range);
            }
            match granted.map_err(|error| errno_of(&error)) {
                Ok(true) if request.grant() => break,
                Ok(true) => {
                    let undone = self.locks_of(file).undo_lock(inode.handle, owner, range, &before).await;
                    if let Err(error) = undone {
                        tracing::warn!(%error, "a lock that nobody waits for any more is kept until its close");
                    }
                    self.lock_waits.released(inode.ino);
                    return Err(Errno::EINTR);
                }
                Ok(false) if !waits => return Err(Errno::EAGAIN),
                Ok(false) => drop(turn),
                Err(error) => return Err(error),
            }
            self.lock_waits.wait((inode.handle, inode.ino), pause, request).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        // Others may have written until now.
        inode.changed();
        self.forget_attributes(inode);
        self.invalidations.request(inode.ino);
        self.invalidations.completed(inode.ino).await;
        Ok(())
    }

    /// The server says that a lock of a file may be free.
    pub(crate) fn lock_is_available(self: &Arc<Self>, file: FileHandle) {
        for one in self.lock_waits.available(file) {
            let core = Arc::clone(self);
            self.executor.spawn(async move { core.pass_on(one).await });
        }
    }

    /// Takes a lock that is reserved for a program which waits no more, and releases it for others.
    async fn pass_on(&self, one: Abandoned) {
        let Abandoned { file, ino, caller, owner, range, kind } = one;
        let _turn = self.lock_waits.turn(ino, owner).await;
        let locks = self.mount.operations(caller);
        let before = locks.locks_held(file, owner);
        let mut outcome = locks.lock(file, owner, range, kind).await;
        if matches!(outcome, Ok(true)) {
            outcome = locks.undo_lock(file, owner, range, &before).await.map(|()| true);
            if before.is_empty() {
                outcome = outcome.and(locks.end_locks(file, owner).await.map(|()| true));
            }
        }
        if let Err(error) = outcome {
            tracing::debug!(%error, "a lock stays reserved that nobody waits for");
        }
    }

    /// A lock that is in the way of one, if there is any.
    pub(crate) async fn test_lock(&self, file: &OpenFile, lock: Lock) -> Result<Option<Conflict>, Errno> {
        let kind = lock.kind.unwrap_or(LockKind::Exclusive);
        let tested = self.locks_of(file).test_lock(file.inode.handle, lock.owner, lock.range, kind).await;
        tested.map_err(|error| errno_of(&error))
    }

    /// An owner is gone, or has closed the file: nothing is locked for it any more.
    pub(crate) async fn end_locks(&self, file: &OpenFile, owner: LockOwner) {
        if !self.mount.may_have_locks(file.inode.handle, owner) {
            return;
        }
        let _turn = self.lock_waits.turn(file.inode.ino, owner).await;
        if let Err(error) = self.locks_of(file).end_locks(file.inode.handle, owner).await {
            tracing::warn!(%error, "locks of a file that was closed are left to their lease");
        }
        self.lock_waits.released(file.inode.ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::task::{Context, Wake};

    #[derive(Debug, Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_is_woken_when_something_of_the_file_is_released_and_only_then() {
        let (waits, request) = (LockWaits::default(), LockRequest::default());
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let file = |name: &[u8]| FileHandle::new(name).unwrap();
        let seven = (file(b"seven"), 7);
        let mut wait = std::pin::pin!(waits.wait(seven, Duration::from_secs(3600), &request));
        assert!(wait.as_mut().poll(&mut context).is_pending());
        waits.released(8);
        assert!(waits.available(file(b"eight")).is_empty());
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        waits.tick();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(wait.as_mut().poll(&mut context).is_pending(), "its time has not come");
        waits.released(7);
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(wait.as_mut().poll(&mut context).is_ready());
        let mut wait = std::pin::pin!(waits.wait(seven, Duration::from_secs(3600), &request));
        assert!(wait.as_mut().poll(&mut context).is_pending());
        assert!(waits.available(seven.0).is_empty());
        assert!(wait.as_mut().poll(&mut context).is_ready(), "the server says so");
        let mut wait = std::pin::pin!(waits.wait(seven, Duration::from_secs(3600), &request));
        assert!(wait.as_mut().poll(&mut context).is_pending());
        assert!(request.end() && !request.grant());
        waits.tick();
        assert!(wait.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn what_is_waited_for_no_more_is_remembered_until_the_server_says_that_it_is_free() {
        let waits = LockWaits::default();
        let file = FileHandle::new(b"seven").unwrap();
        let abandoned = |number, first| Abandoned {
            file,
            ino: 7,
            caller: None,
            owner: LockOwner { number, of_flock: false },
            range: LockRange { first, last: LockRange::END },
            kind: LockKind::Exclusive,
        };
        let [one, other] = [abandoned(1, 0), abandoned(2, 5)];
        waits.abandon(one.clone());
        waits.abandon(other.clone());
        assert!(waits.available(FileHandle::new(b"eight").unwrap()).is_empty());
        waits.is_wanted(file, one.owner, one.range);
        assert_eq!(waits.available(file), [other]);
        assert!(waits.available(file).is_empty());
        (0..1000).for_each(|number| waits.abandon(abandoned(number, 0)));
        assert_eq!(waits.available(file).len(), ABANDONED_MAX);
    }

    #[test]
    fn one_call_at_a_time_is_made_for_an_owner() {
        let waits = LockWaits::default();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let owner = LockOwner { number: 1, of_flock: false };
        let Poll::Ready(first) = std::pin::pin!(waits.turn(7, owner)).poll(&mut context) else { panic!() };
        for (ino, other) in [(8, owner), (7, LockOwner { of_flock: true, ..owner })] {
            assert!(std::pin::pin!(waits.turn(ino, other)).poll(&mut context).is_ready());
        }
        let mut second = std::pin::pin!(waits.turn(7, owner));
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(second.as_mut().poll(&mut context).is_ready());
    }
}

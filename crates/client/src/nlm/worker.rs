//! The thread that calls the server's lock manager.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fs::{FileHandle, Status};

use super::calls::{LockManager, Missing, Owner, status_of};
use super::table::{HeldRange, Table};
use super::{Outcome, Request, Wanted, failed};
use crate::error::{Error, MountError};
use crate::locks::{LockOwner, LockRange};
use crate::settings::Settings;

/// How often the server is called while the mount has locks: well within the shortest lease of our
/// server, and within the time in which others let clients reclaim.
const RENEWAL: Duration = Duration::from_secs(2);
/// When a request is made again that the server could not take yet.
const LATER: Duration = Duration::from_secs(1);
/// The wait after an attempt at which no address answered; it doubles up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long a lock is reclaimed from a server that cannot take it yet.
const RECLAIM_MAX: Duration = Duration::from_secs(60);

/// See the module's documentation.
pub(super) struct Worker {
    settings: Settings,
    table: Arc<Table>,
    is_over: Arc<AtomicBool>,
    /// A number that no other mount has.
    mount: u64,
    manager: Option<LockManager>,
    /// The numbers of owners, which begin where those of the kernel's lock manager are not.
    svids: HashMap<LockOwner, i32>,
    next_svid: i32,
    /// Requests that the server could not take yet, and when they are made again.
    deferred: VecDeque<(Instant, Request)>,
    has_told_none: bool,
}

/// Why a request is not answered.
enum Failure {
    /// By an error.
    Error(Error),
    /// The server could not take it yet.
    Later,
}

impl Worker {
    pub(super) fn new(settings: Settings, table: Arc<Table>, is_over: Arc<AtomicBool>) -> Self {
        let mount = crate::random_u64();
        Self {
            settings,
            table,
            is_over,
            mount,
            manager: None,
            svids: HashMap::new(),
            next_svid: 0x4000_0000 | (mount & 0x0fff_ffff) as i32,
            deferred: VecDeque::new(),
            has_told_none: false,
        }
    }

    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        while !self.is_over.load(Ordering::Relaxed) {
            match self.wait(requests) {
                Ok(request) => self.carry_out(request),
                Err(RecvTimeoutError::Timeout) => self.renew(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            while self.deferred.front().is_some_and(|(due, _)| *due <= now) {
                let Some((_, request)) = self.deferred.pop_front() else { break };
                self.carry_out(request);
            }
        }
    }

    /// Waits for the next request, or until there is something else to do.
    fn wait(&self, requests: &Receiver<Request>) -> std::result::Result<Request, RecvTimeoutError> {
        let due = self.deferred.front().map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let renewal = (!self.table.is_empty()).then_some(RENEWAL);
        match due.into_iter().chain(renewal).min() {
            Some(wait) => requests.recv_timeout(wait),
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn owner(&mut self, owner: LockOwner) -> Owner {
        let next = &mut self.next_svid;
        let svid = *self.svids.entry(owner).or_insert_with(|| {
            *next = if *next == i32::MAX { 0x4000_0000 } else { *next + 1 };
            *next
        });
        Owner { owner, svid }
    }

    fn carry_out(&mut self, request: Request) {
        let Request { file, owner, wanted, asked, answer } = request;
        let outcome = match self.attempt(file, owner, wanted, asked) {
            Err(Failure::Later) => {
                let request = Request { file, owner, wanted, asked, answer };
                self.deferred.push_back((Instant::now() + LATER, request));
                return;
            }
            Err(Failure::Error(error)) => Err(error),
            Ok(outcome) => Ok(outcome),
        };
        if !self.table.has_owner(owner) {
            self.svids.remove(&owner);
        }
        answer.fulfill(outcome);
    }

    fn attempt(
        &mut self,
        file: FileHandle,
        owner: LockOwner,
        wanted: Wanted,
        asked: Instant,
    ) -> std::result::Result<Outcome, Failure> {
        match wanted {
            Wanted::Lock(range, kind) => {
                self.table.begin(file, owner);
                let of = self.owner(owner);
                let status = self.call(asked, |manager| manager.lock(file, of, (range, kind), false))?;
                // On a connection that is new, what the owner had may have been found lost.
                if self.table.is_lost(file, owner) {
                    return Err(Failure::Error(failed(Status::Io)));
                }
                match status {
                    nlm::Status::GRANTED => {
                        self.table.set(file, owner, range, Some(kind));
                        Ok(Outcome::Done)
                    }
                    nlm::Status::DENIED | nlm::Status::BLOCKED => Ok(Outcome::Denied(None)),
                    other => Err(failure_of(other)),
                }
            }
            Wanted::Test(range, kind) => {
                let of = self.owner(owner);
                match self.call(asked, |manager| manager.test(file, of, (range, kind)))? {
                    Ok(conflict) => Ok(Outcome::Denied(Some(conflict))),
                    Err(nlm::Status::GRANTED) => Ok(Outcome::Done),
                    Err(other) => Err(failure_of(other)),
                }
            }
            Wanted::Unlock(range) => self.unlock(file, owner, range, asked),
            Wanted::End => {
                let ended = self.unlock(file, owner, LockRange::ALL, asked);
                if !matches!(ended, Err(Failure::Later)) {
                    self.table.forget(file, owner);
                }
                ended
            }
        }
    }

    fn unlock(
        &mut self,
        file: FileHandle,
        owner: LockOwner,
        range: LockRange,
        asked: Instant,
    ) -> std::result::Result<Outcome, Failure> {
        let of = self.owner(owner);
        match self.call(asked, |manager| manager.unlock(file, of, range))? {
            // A file that is gone has no locks.
            nlm::Status::GRANTED | nlm::Status::STALE_FH => {
                self.table.set(file, owner, range, None);
                Ok(Outcome::Done)
            }
            other => Err(failure_of(other)),
        }
    }

    /// Makes a call until it is answered, or for as long as a soft mount tries.
    fn call<T>(
        &mut self,
        asked: Instant,
        mut call: impl FnMut(&mut LockManager) -> std::result::Result<T, MountError>,
    ) -> std::result::Result<T, Failure> {
        let mut pause = RETRY;
        loop {
            let outcome = match self.manager() {
                Ok(manager) => call(manager).map_err(|error| error.to_string()),
                Err(Missing::Away(reason)) => Err(reason),
                Err(Missing::None(reason)) => {
                    self.tell_none(&reason);
                    return Err(Failure::Error(failed(Status::NotSupported)));
                }
            };
            let reason = match outcome {
                Ok(done) => return Ok(done),
                Err(reason) => reason,
            };
            self.manager = None;
            tracing::debug!(reason, "the server's lock manager does not answer");
            if self.is_over.load(Ordering::Relaxed) {
                return Err(Failure::Error(Error::Closed));
            }
            let waited = asked.elapsed();
            if self.settings.soft_timeout().is_some_and(|soft| waited >= soft) {
                return Err(Failure::Error(Error::TimedOut { operation: "LOCK", waited }));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// The connection; on a new one the server has what this mount had, as far as it can.
    fn manager(&mut self) -> std::result::Result<&mut LockManager, Missing> {
        let manager = match self.manager.take() {
            Some(manager) => manager,
            None => {
                let mut manager = LockManager::find(&self.settings, self.mount)?;
                self.reassert(&mut manager).map_err(|error| Missing::Away(error.to_string()))?;
                manager
            }
        };
        Ok(self.manager.insert(manager))
    }

    fn reassert(&mut self, manager: &mut LockManager) -> std::result::Result<(), MountError> {
        for held in self.table.all_held() {
            let owner = self.owner(held.owner);
            if !has(manager, held, owner)? && self.table.lose(held.file, held.owner) {
                crate::locks::tell_lost(held.file);
            }
        }
        Ok(())
    }

    /// Calls the server, so that it keeps what the mount has, and to find out whether it does.
    fn renew(&mut self) {
        let Some(HeldRange { file, owner, .. }) = self.table.all_held().first().copied() else { return };
        let owner = self.owner(owner);
        match self.manager() {
            Ok(manager) => {
                if let Err(error) = manager.renew(file, owner) {
                    tracing::debug!(%error, "the server's lock manager does not answer");
                    self.manager = None;
                }
            }
            Err(Missing::Away(reason) | Missing::None(reason)) => {
                tracing::debug!(reason, "the server's lock manager does not answer");
            }
        }
    }

    fn tell_none(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.has_told_none, true) {
            tracing::warn!(
                "a program asked for a file lock, and the server has no lock manager (NLM), so locks answer ENOLCK: \
                 {reason}; start one there, or mount with vers=4.2 for locks without it, or with nolock for locks \
                 that only this host knows of"
            );
        }
    }
}

/// What a status that is no outcome means.
fn failure_of(status: nlm::Status) -> Failure {
    match status {
        nlm::Status::DENIED_GRACE_PERIOD => Failure::Later,
        other => {
            tracing::debug!(status = %other, "a lock is refused");
            Failure::Error(failed(status_of(other)))
        }
    }
}

/// Whether the server has a lock that this mount had, or gives it back.
fn has(manager: &mut LockManager, held: HeldRange, owner: Owner) -> std::result::Result<bool, MountError> {
    let (lock, started) = ((held.range, held.kind), Instant::now());
    // A server of others takes a reclaim only while it lets clients reclaim.
    let mut reclaim = manager.is_ours;
    while started.elapsed() < RECLAIM_MAX {
        match manager.lock(held.file, owner, lock, reclaim)? {
            nlm::Status::GRANTED => return Ok(true),
            nlm::Status::DENIED_GRACE_PERIOD if !reclaim => reclaim = true,
            nlm::Status::DENIED_GRACE_PERIOD => std::thread::sleep(LATER),
            _ => return Ok(false),
        }
    }
    Ok(false)
}

//! Locks of a mount of version 3, which the server keeps by NLM version 4. RFC 1813 s6
//!
//! A thread makes the calls, one after another, on a connection of its own; it is started with the
//! first lock. It has a table of what the server has of this mount (`table`). On each new
//! connection it makes sure of that first: a server that has restarted lets what it had be
//! reclaimed, and what it does not have any more is lost (`worker`). While the mount has locks, the
//! thread calls regularly, so that it finds out, and so that a server of ours, which gives a client
//! of ours a lease, keeps them. Who waits asks again: nothing is called back.
//!
//! An owner is lost once any lock of it is: then its locks fail until it has unlocked all.

mod calls;
mod table;
mod worker;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Instant;

use fs::{FileHandle, Status};

use crate::error::{Error, Result};
use crate::locks::{Conflict, Held, LockKind, LockOwner, LockRange};
use crate::settings::Settings;
use table::Table;
use worker::Worker;

/// What is asked of the server.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Lock(LockRange, LockKind),
    Unlock(LockRange),
    Test(LockRange, LockKind),
    /// Unlock everything, and forget the owner.
    End,
}

/// What came of it.
#[derive(Debug)]
enum Outcome {
    Done,
    /// A lock of another owner is in the way.
    Denied(Option<Conflict>),
}

#[derive(Debug)]
struct Request {
    file: FileHandle,
    owner: LockOwner,
    wanted: Wanted,
    asked: Instant,
    answer: Promise,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct NlmLocks {
    settings: Settings,
    table: Arc<Table>,
    is_over: Arc<AtomicBool>,
    worker: Mutex<Option<(Sender<Request>, JoinHandle<()>)>>,
}

impl NlmLocks {
    pub(crate) fn new(settings: Settings) -> Self {
        let (table, is_over) = (Arc::default(), Arc::default());
        Self { settings, table, is_over, worker: Mutex::default() }
    }

    fn worker(&self) -> MutexGuard<'_, Option<(Sender<Request>, JoinHandle<()>)>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, file: FileHandle, owner: LockOwner, wanted: Wanted) -> Result<Outcome> {
        let answer = Arc::new(Answer::default());
        let promise = Promise(Some(Arc::clone(&answer)));
        self.send(Request { file, owner, wanted, asked: Instant::now(), answer: promise });
        Waiting(answer).await
    }

    /// Gives a request to the thread; one that cannot be given is answered by its end.
    fn send(&self, request: Request) {
        let mut worker = self.worker();
        if worker.is_none() {
            let (sender, requests) = channel();
            let of_thread =
                Worker::new(self.settings.clone(), Arc::clone(&self.table), Arc::clone(&self.is_over));
            let thread = std::thread::Builder::new().name("tl-nlm".to_owned());
            match thread.spawn(move || of_thread.run(&requests)) {
                Ok(thread) => *worker = Some((sender, thread)),
                Err(error) => tracing::error!(%error, "locks need a thread"),
            }
        }
        if let Some((sender, _)) = &*worker {
            // A request that is not taken is dropped, and says so to who waits.
            drop(sender.send(request));
        }
    }

    /// Locks a range. Returns false if a lock of another owner is in the way.
    pub(crate) async fn lock(
        &self,
        file: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<bool> {
        let outcome = self.ask(file, owner, Wanted::Lock(range, kind)).await?;
        Ok(matches!(outcome, Outcome::Done))
    }

    pub(crate) async fn unlock(&self, file: FileHandle, owner: LockOwner, range: LockRange) -> Result<()> {
        if !self.knows(file, owner) {
            return Ok(());
        }
        self.ask(file, owner, Wanted::Unlock(range)).await.map(drop)
    }

    pub(crate) async fn test(
        &self,
        file: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<Conflict>> {
        Ok(match self.ask(file, owner, Wanted::Test(range, kind)).await? {
            Outcome::Done => None,
            Outcome::Denied(conflict) => conflict,
        })
    }

    pub(crate) async fn end(&self, file: FileHandle, owner: LockOwner) -> Result<()> {
        if self.knows(file, owner) {
            self.ask(file, owner, Wanted::End).await?;
        }
        Ok(())
    }

    /// Whether an owner has locked something of a file, or tried to: most have not.
    pub(crate) fn knows(&self, file: FileHandle, owner: LockOwner) -> bool {
        self.table.knows(file, owner)
    }

    pub(crate) fn held(&self, file: FileHandle, owner: LockOwner) -> Held {
        self.table.held(file, owner)
    }

    #[inline]
    pub(crate) fn are_lost(&self, file: FileHandle) -> bool {
        self.table.are_lost(file)
    }
}

impl Drop for NlmLocks {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let Some((sender, thread)) = self.worker().take() else { return };
        drop(sender);
        // It may wait for a server that is gone; what it has is the server's to free.
        if thread.is_finished() && thread.join().is_err() {
            tracing::error!("the thread for locks ended by a panic");
        }
    }
}

/// The answer to one request, between the thread and who waits.
#[derive(Debug, Default)]
struct Answer(Mutex<(Option<Result<Outcome>>, Option<Waker>)>);

/// The thread's end: dropped without an answer, the mount is closed.
#[derive(Debug)]
struct Promise(Option<Arc<Answer>>);

impl Promise {
    fn fulfill(mut self, outcome: Result<Outcome>) {
        if let Some(answer) = self.0.take() {
            answer.finish(outcome);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer.finish(Err(Error::Closed));
        }
    }
}

impl Answer {
    fn finish(&self, outcome: Result<Outcome>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(outcome);
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

struct Waiting(Arc<Answer>);

impl Future for Waiting {
    type Output = Result<Outcome>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = state.0.take() {
            return Poll::Ready(outcome);
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

fn failed(status: Status) -> Error {
    Error::Status { operation: "LOCK", status }
}
